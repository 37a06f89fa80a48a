//! Cases: lanes.
