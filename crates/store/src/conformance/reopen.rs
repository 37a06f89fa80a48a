//! Cases: reopen.
