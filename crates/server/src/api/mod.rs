//! The handlers, a file a subject: each reads its request, asks the port, and writes the answer.

pub(crate) mod claims;
pub(crate) mod commands;
pub(crate) mod health;
pub(crate) mod logs;
pub(crate) mod overview;
pub(crate) mod pools;
pub(crate) mod runners;
pub(crate) mod schedules;
pub(crate) mod streams;
pub(crate) mod sweeps;
pub(crate) mod tasks;

use ekiden::Error;

use crate::answer::Answer;

/// What a handler comes to.
pub(crate) type Answered = Result<Answer, Error>;
