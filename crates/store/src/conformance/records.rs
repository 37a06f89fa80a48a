//! Cases: records.
