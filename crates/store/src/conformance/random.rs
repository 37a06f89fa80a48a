//! Cases: random.
