//! The DynamoDB store: the documented tables `pm-runner-queue` and `pm-runner-runners`, which other programs share, and one
//! table of ours for everything else. A change is a conditional write, or a transaction where it touches several items; an
//! index of DynamoDB is a hint, and the item decides. `docs/formats.md` lists the attributes.

mod check;
mod claim;
mod client;
mod codec;
mod commit;
mod counts;
mod credentials;
mod due;
mod error;
mod expression;
mod foreign;
mod heads;
mod lines;
mod listing;
mod namespaces;
mod open;
mod payloads;
mod reads;
mod retry;
mod shared;
mod store;
mod survey;
mod tables;
mod units;
mod url;
mod waiting;

pub use credentials::Keys;
pub use open::Options;
pub use store::DynamoStore;
pub use units::Units;
pub use url::{Location, Place};
