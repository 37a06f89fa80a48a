//! Cases: listing.
