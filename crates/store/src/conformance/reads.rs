//! Cases: reads.
