//! Ekiden over HTTP: the port of the queue, for programs in any language and for runners elsewhere. The server translates;
//! what a request means is decided behind the port.

mod accept;
mod access;
mod answer;
mod api;
mod call;
mod docs;
mod events;
mod finish;
mod front;
mod guard;
mod language;
pub mod limits;
mod metrics;
mod namespaces;
mod openapi;
mod overview;
mod query;
mod room;
mod route;
mod router;
mod routes;
mod server;
mod shared;
mod stream;
mod token;
mod upkeep;
mod watched;

pub use access::Scope;
pub use events::Events;
pub use openapi::document as openapi;
pub use route::{Parameter, Route};
pub use routes::all as routes;
pub use server::{Server, ServerBuilder, Upkeep};
pub use token::{TokenInfo, Tokens};
