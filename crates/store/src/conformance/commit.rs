//! Cases: commit.
