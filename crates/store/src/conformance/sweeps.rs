//! Cases: sweeps.
