//! The store contract: what Ekiden needs of a place that keeps records, and how a store proves that it gives it.
//!
//! Start at [`Store`], whose documentation numbers the rules. [`MemoryStore`] is the executable specification, and
//! the `conformance` module (a feature of that name) holds every store to it.

pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod entropy;
mod error;
mod ext;
pub mod layers;
mod memory;
mod op;
mod query;
mod store;

pub use error::{Happened, StoreError};
pub use ext::{PlanError, StoreExt};
pub use memory::MemoryStore;
pub use op::{Answer, Applied, Claimed, Conflict, Op, Outcome};
pub use query::{CountScope, Counts, DueEntry, DueQuery, ListOrder, Page, RecordQuery, TaskQuery};
pub use store::{CheckDepth, Finding, Hint, Info, Store};
