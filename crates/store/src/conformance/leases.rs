//! Cases: leases.
