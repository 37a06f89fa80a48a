//! Layers: stores around a store. Each adds one thing and passes the rest on.
#![deny(clippy::missing_trait_methods)]

mod faulty;
mod retrying;
mod shared;
mod traced;

pub use faulty::{Faults, Faulty};
pub use retrying::Retrying;
pub use traced::Traced;

use std::future::Future;

use ekiden_core::limits;

use crate::op::{Op, Outcome};
use crate::query::check_batch;

/// For layers that treat each op by itself: in order, so that one that is repeated does not come after those behind it (C8),
/// and a call with too many is refused as a whole (C10).
async fn one_by_one<F: Future<Output = Outcome>>(ops: Vec<Op>, one: impl Fn(Op) -> F) -> Vec<Outcome> {
    if let Err(refusal) = check_batch("ops", ops.len(), limits::APPLY_OPS_MAX) {
        return vec![Err(refusal.into()); ops.len()];
    }
    let mut outcomes = Vec::with_capacity(ops.len());
    for op in ops {
        outcomes.push(one(op).await);
    }
    outcomes
}
