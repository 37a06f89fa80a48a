//! Cases: claim.
