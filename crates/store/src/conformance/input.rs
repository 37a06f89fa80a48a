//! Cases: input.
