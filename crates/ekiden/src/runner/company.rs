//! The parts of a runner that work by themselves, for as long as it lives. One that fails takes the runner with it: a runner
//! without signs of life or time limits would look alive and keep no promise.

use std::any::Any;
use std::future::Future;

use ekiden_core::reason::{ReasonCode, Refusal};
use tokio::task::JoinSet;

use super::attempt::{caught, panic_text};
use crate::error::Error;

/// The parts of one runner. They end with it.
#[derive(Default)]
pub(super) struct Company {
    parts: JoinSet<Error>,
}

impl Company {
    /// Starts a part that never ends.
    pub(super) fn start(&mut self, name: &'static str, part: impl Future<Output = ()> + Send + 'static) {
        self.parts.spawn(async move {
            match caught(part).await {
                Ok(()) => failed(name, "ended"),
                Err(panic) => panicked(name, panic.as_ref()),
            }
        });
    }

    /// Waits until a part has failed.
    pub(super) async fn failure(&mut self) -> Error {
        match self.parts.join_next().await {
            Some(Ok(error)) => error,
            Some(Err(why)) => failed("company", why),
            None => std::future::pending().await,
        }
    }

    /// Ends all parts, and returns when they have.
    pub(super) async fn end(mut self) {
        self.parts.shutdown().await;
    }
}

/// What to tell when a part panicked.
pub(super) fn panicked(part: &'static str, panic: &(dyn Any + Send)) -> Error {
    failed(part, panic_text(panic))
}

/// What to tell when a part ended that should not have.
pub(super) fn failed(part: &'static str, why: impl ToString) -> Error {
    Refusal::new(ReasonCode::RunnerFailed).with("part", part).with("why", why.to_string()).into()
}
