//! Cases: counts.
