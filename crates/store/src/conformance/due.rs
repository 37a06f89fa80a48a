//! Cases: due.
