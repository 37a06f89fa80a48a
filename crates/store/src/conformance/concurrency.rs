//! Cases: concurrency.
