//! The laws, one file each. A law is a function from a timeline to what broke it, and says in its file what it cannot see.

mod attempts;
mod cancelled;
mod completed_twice;
mod duplicate;
mod ended_early;
mod forgotten;
mod lane_order;
mod lane_overlap;
mod lost;
mod misreported;
mod stale;
mod stuck;
mod tokens;

#[cfg(test)]
mod script;
#[cfg(test)]
mod unknowns;

use crate::checker::Violation;
use crate::timeline::Timeline;

/// A law.
pub(crate) type Check = fn(&Timeline<'_>) -> Vec<Violation>;

/// Every law.
pub(crate) const ALL: &[Check] = &[
    lost::check,
    completed_twice::check,
    stale::check,
    stuck::check,
    duplicate::check,
    cancelled::check,
    attempts::check,
    lane_overlap::check,
    lane_order::check,
    tokens::check,
    ended_early::check,
    forgotten::check,
    misreported::check,
];
