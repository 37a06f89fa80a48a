//! Layers: stores around a store. Each adds one thing and passes the rest on.
#![deny(clippy::missing_trait_methods)]

mod faulty;
mod retrying;
mod shared;
mod traced;

pub use faulty::{Faults, Faulty};
pub use retrying::Retrying;
pub use traced::Traced;
