//! Laws of the plans.
