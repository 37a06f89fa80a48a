//! One attempt on the caller's runtime: the handler, its panics, and the word that it ended, which is always given.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use ekiden_core::attempt::Stage;
use ekiden_core::reason::ReasonCode;
use tokio::runtime::Handle;

use super::desk::{Desk, Written};
use super::table::Slot;
use super::words::Words;
use crate::context::Context;
use crate::error::Error;
use crate::handler::{Call, TaskError, verdict};
use crate::port::{Settlement, Verdict};

/// How a handler ended.
#[derive(Debug)]
pub(super) enum End {
    /// By its own word, or by a panic.
    Said(Verdict),
    /// It was dropped: told to, or its runtime is gone.
    Dropped,
    /// By its own word, and what came of writing that down.
    Written(Result<(), Error>),
    /// Somehow, but that could not be written down, and its place does not depend on it any more.
    Unwritten(Box<Settlement>, Error),
}

/// The end of an attempt, on its way to the engine.
pub(super) type Word = (Slot, End);

/// One attempt, ready to run.
pub(super) struct Attempt {
    pub(super) call: Call,
    pub(super) context: Context,
    pub(super) last_word: LastWord,
}

/// Starts attempts on the runtime that handlers run on. Several go over together: waking another runtime costs more than
/// starting a task on it.
pub(super) fn start(handlers: &Handle, mut attempts: Vec<Attempt>, desk: &Arc<Desk>) {
    let desk = desk.clone();
    if attempts.len() > 1 {
        handlers.spawn(async move {
            for attempt in attempts {
                tokio::spawn(run(attempt, desk.clone()));
            }
        });
    } else if let Some(attempt) = attempts.pop() {
        handlers.spawn(run(attempt, desk));
    }
}

/// Runs an attempt and says how it ended, whatever happens to it; and then the one that took its place, if one did.
async fn run(mut attempt: Attempt, desk: Arc<Desk>) {
    loop {
        let slot = attempt.last_word.slot;
        let Some((verdict, mut last_word)) = carry_out(attempt).await else { return };
        if !desk.is_near {
            last_word.say(End::Said(verdict));
            return;
        }
        // Settled without it, or just being so: there is nothing left to say but that it ended.
        let Some(Written { outcome, next, incarnation }) = desk.write(slot, verdict).await else { return };
        let Some(next) = next else {
            last_word.say(End::Written(outcome));
            return;
        };
        // Taken over while its place is its own; an end that was written needs nobody.
        let unwritten = outcome.err().and_then(|error| Some((desk.table.ending(slot)?, error)));
        // A task of a kind that nobody here runs cannot come: only own kinds were asked for.
        let Ok(taken) = desk.take(next, Some(slot), incarnation) else { return };
        match unwritten {
            Some((ending, error)) => last_word.say(End::Unwritten(Box::new(ending), error)),
            None => {
                desk.settled.fetch_add(1, Ordering::Relaxed);
                last_word.keep();
            }
        }
        if desk.stop.is_over() {
            // Too late: it is handed back by not being run.
            return;
        }
        attempt = taken;
        // Handlers that never wait must not keep the thread to themselves.
        tokio::task::consume_budget().await;
    }
}

/// Runs a handler. `None` if it was dropped, and then its last word was said.
async fn carry_out(attempt: Attempt) -> Option<(Verdict, LastWord)> {
    let Attempt { call, context, last_word } = attempt;
    let held = context.clone();
    let leash = held.leash();
    let mut told = pin!(leash.pulled());
    let mut handler = pin!(judged(call, context));
    let ended = std::future::poll_fn(|task| {
        if leash.is_pulled() {
            return Poll::Ready(None);
        }
        match handler.as_mut().poll(task) {
            Poll::Ready(verdict) => Poll::Ready(Some(verdict)),
            Poll::Pending => told.as_mut().poll(task).map(|()| None),
        }
    });
    // A handler that is dropped is gone before the last word says so: it stands below it, and goes first. A closure that took
    // the word along would be gone before both.
    let verdict = ended.await?;
    Some((verdict, last_word))
}

/// Runs a handler to its own end. A panic is a failure that may be tried again.
pub(crate) async fn judged(call: Call, context: Context) -> Verdict {
    let handler = async move {
        let payload = context.task().envelope.payload.clone();
        call.execute(payload, context).await
    };
    match caught(handler).await {
        Ok(outcome) => verdict(outcome),
        Err(panic) => Verdict::Failed(TaskError::retryable(panic_text(panic.as_ref())).failure()),
    }
}

/// What to do about the end of an attempt that was refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AfterRefusal {
    /// Send the same end again, under its own id: the refusal says nothing about it.
    Repeat,
    /// Send this end in its place.
    Replace(Verdict),
    /// Nothing: the attempt is no longer the runner's to end.
    GiveUp,
}

/// What to do about the end of an attempt that was refused. Only a refusal of its content makes a failure of it: anything else
/// may be taken later, and a success that was done once must not be done again.
pub(crate) fn after_refusal(refused: &Verdict, error: &Error) -> AfterRefusal {
    if error.is_retryable() || error.is_unknown() {
        return AfterRefusal::Repeat;
    }
    match (error.code(), refused) {
        // It was cancelled before it ended; its place is free when that is written.
        (ReasonCode::TaskCancelled, verdict) if !matches!(verdict, Verdict::Stopped(_)) => {
            AfterRefusal::Replace(Verdict::Stopped(Stage::Verified))
        }
        _ if is_not_ours(error) => AfterRefusal::GiveUp,
        // A failure has no content that could be left out.
        (code, verdict) if code.refuses_content() && !matches!(verdict, Verdict::Failed(_)) => {
            AfterRefusal::Replace(Verdict::Failed(TaskError::permanent(error).failure()))
        }
        _ => AfterRefusal::Repeat,
    }
}

/// Whether an end was refused because the attempt was no longer the runner's to end.
fn is_not_ours(error: &Error) -> bool {
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
    words: Option<Arc<Words>>,
}

impl LastWord {
    pub(super) const fn new(slot: Slot, words: Arc<Words>) -> Self {
        Self { slot, words: Some(words) }
    }

    /// Says nothing: another attempt has its place.
    fn keep(&mut self) {
        self.words = None;
    }

    fn say(&mut self, end: End) {
        if let Some(words) = self.words.take() {
            words.say((self.slot, end));
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
pub(super) async fn caught<F: Future>(work: F) -> Result<F::Output, Box<dyn Any + Send>> {
    let mut work = pin!(work);
    std::future::poll_fn(move |task| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(task))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panicked: {}", said.unwrap_or_else(|| "without a message".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use ekiden_core::id::{Kind, PoolName, RunnerId};
    use ekiden_core::reason::Category;

    use super::*;
    use crate::client::{Client, Ekiden};
    use crate::context::Surroundings;
    use crate::port::{Ask, Leased};
    use crate::runner::table::{Fate, Run, Table};

    /// Looks, when it is dropped, whether the last word was said before.
    struct Guard {
        words: Arc<Words>,
        was_first: Arc<AtomicBool>,
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            self.was_first.store(self.words.take().is_empty(), Ordering::SeqCst);
        }
    }

    async fn leased(client: &Client) -> Leased {
        client.enqueue_json("kind", &serde_json::json!(1)).await.unwrap();
        let ask = Ask {
            id: client.op_id(),
            namespace: client.namespace().clone(),
            pools: Arc::from([PoolName::new("default").unwrap()]),
            kinds: Arc::from([Kind::new("kind").unwrap()]),
            limit: 1,
            holder: RunnerId::new("runner").unwrap(),
        };
        client.queue().dequeue_ready(ask).await.unwrap().pop().unwrap()
    }

    /// R16: who hears that a handler was dropped may give its task to another, so it must be gone by then.
    #[tokio::test]
    async fn a_dropped_handler_is_gone_before_its_last_word() {
        let client = Ekiden::open("memory:").await.unwrap().namespace("default").unwrap();
        let leased = leased(&client).await;
        let context = Context::new(Arc::new(Surroundings::of(client, crate::runner::Stop::default())), leased);
        let run = Run {
            context: context.clone(),
            seen: None,
            deadline: None,
            stop_within: std::time::Duration::ZERO,
            ends_by_itself: false,
            fate: Fate::Running,
            incarnation: 0,
            is_doubted: false,
            ending: None,
            claim: None,
        };
        let (words, was_first) = (Arc::new(Words::default()), Arc::new(AtomicBool::new(false)));
        let last_word = LastWord::new(Table::default().put(run, None), words.clone());
        let (seen, first) = (words.clone(), was_first.clone());
        let call = Call::Typed(Arc::new(move |_, _| {
            let guard = Guard { words: seen.clone(), was_first: first.clone() };
            Box::pin(async move {
                std::future::pending::<()>().await;
                drop(guard);
                unreachable!("it never ends by itself")
            })
        }));
        let mut handler = pin!(carry_out(Attempt { call, context: context.clone(), last_word }));
        let begins = std::future::poll_fn(|task| Poll::Ready(handler.as_mut().poll(task).is_pending()));
        assert!(begins.await, "it waits");
        context.leash().pull();
        assert!(handler.await.is_none());
        assert!(was_first.load(Ordering::SeqCst), "the handler was dropped first");
        assert!(matches!(words.take().as_slice(), [(_, End::Dropped)]));
    }

    /// R16: whatever is wrong with a request, its sender, the store or the server, a success stays one.
    #[test]
    fn only_a_refusal_of_its_content_makes_a_failure_of_a_success() {
        let success = Verdict::Succeeded(None);
        for code in ReasonCode::ALL {
            let after = after_refusal(&success, &Error::from(*code));
            match code.category() {
                Category::Access | Category::Store | Category::Server => {
                    assert_eq!(after, AfterRefusal::Repeat, "{code}");
                }
                Category::Request if !code.refuses_content() => assert_eq!(after, AfterRefusal::Repeat, "{code}"),
                Category::Request => {
                    let failure = TaskError::permanent(Error::from(*code)).failure();
                    assert_eq!(after, AfterRefusal::Replace(Verdict::Failed(failure.clone())), "{code}");
                    // The replacement is kept, whatever becomes of it.
                    let again = after_refusal(&Verdict::Failed(failure), &Error::from(*code));
                    assert_eq!(again, AfterRefusal::Repeat, "{code}");
                }
                Category::Execution => assert!(!matches!(after, AfterRefusal::Replace(Verdict::Failed(_))), "{code}"),
            }
        }
    }
}
