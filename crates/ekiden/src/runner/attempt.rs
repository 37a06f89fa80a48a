//! One attempt on the caller's runtime: the handler, its panics, and the word that it ended, which is always given.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use ekiden_core::attempt::Stage;
use ekiden_core::reason::ReasonCode;
use tokio::sync::mpsc::UnboundedSender;

use super::table::Slot;
use crate::context::Context;
use crate::error::Error;
use crate::handler::{Call, TaskError, verdict};
use crate::port::Verdict;

/// How a handler ended.
#[derive(Debug)]
pub(super) enum End {
    /// By its own word, or by a panic.
    Said(Verdict),
    /// It was dropped: told to, or its runtime is gone.
    Dropped,
    /// Its time was over long ago and it has not ended: it blocks its thread.
    GivenUp,
}

/// The end of an attempt, on its way to the engine.
pub(super) type Word = (Slot, End);

/// Runs a handler and says how it ended, whatever happens to it.
pub(super) async fn run(call: Call, payload: bytes::Bytes, context: Context, mut last_word: LastWord) {
    last_word.say(End::Said(judged(call, payload, context).await));
}

/// Runs a handler to its own end. A panic is a failure that may be tried again.
pub(crate) async fn judged(call: Call, payload: bytes::Bytes, context: Context) -> Verdict {
    let handler = async move { call(payload, context).await };
    match caught(handler).await {
        Ok(outcome) => verdict(outcome),
        Err(panic) => Verdict::Failed(TaskError::retryable(panic_text(panic.as_ref())).failure()),
    }
}

/// What to write down when the store refused the end of an attempt, if anything.
pub(crate) fn instead(refused: &Verdict, error: &Error) -> Option<Verdict> {
    match (error.code(), refused) {
        // It was cancelled before it ended; its place is free when that is written.
        (ReasonCode::TaskCancelled, verdict) if !matches!(verdict, Verdict::Stopped(_)) => {
            Some(Verdict::Stopped(Stage::Verified))
        }
        (_, Verdict::Failed(_)) => None,
        _ if is_not_ours(error) => None,
        // What the handler returned cannot be kept, and never will be.
        _ => Some(Verdict::Failed(TaskError::permanent(error).failure())),
    }
}

/// Whether an end was refused because the attempt was no longer the runner's to end.
pub(crate) fn is_not_ours(error: &Error) -> bool {
    matches!(
        error.code(),
        ReasonCode::LeaseLost
            | ReasonCode::TaskFinal
            | ReasonCode::TaskCancelled
            | ReasonCode::TaskNotCancelled
            | ReasonCode::TaskNotRunning
            | ReasonCode::TaskNotFound
    )
}

/// Says that a handler was dropped unless it said something before.
pub(super) struct LastWord {
    slot: Slot,
    words: Option<UnboundedSender<Word>>,
}

impl LastWord {
    pub(super) const fn new(slot: Slot, words: UnboundedSender<Word>) -> Self {
        Self { slot, words: Some(words) }
    }

    fn say(&mut self, end: End) {
        if let Some(words) = self.words.take() {
            // An engine that is gone has settled everything it could.
            let _ = words.send((self.slot, end));
        }
    }
}

impl Drop for LastWord {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Something of the handler panicked while it was dropped. Handed back, the task would do so for ever.
            let failure = TaskError::retryable("panicked: while the handler was dropped").failure();
            self.say(End::Said(Verdict::Failed(failure)));
        } else {
            self.say(End::Dropped);
        }
    }
}

/// A panic ends the attempt, not the runner.
async fn caught<F: Future>(work: F) -> Result<F::Output, Box<dyn Any + Send>> {
    let mut work = pin!(work);
    std::future::poll_fn(move |task| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(task))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panicked: {}", said.unwrap_or_else(|| "without a message".to_owned()))
}
