//! Cases: lost_replies.
