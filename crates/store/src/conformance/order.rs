//! Cases: order.
