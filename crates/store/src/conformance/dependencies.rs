//! Cases: dependencies.
