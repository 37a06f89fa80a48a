//! Behaviour: a handler runs the tasks of one kind, and says how each attempt ended.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use ekiden_core::reason::Refusal;
use ekiden_core::retry::FailureKind;
use ekiden_core::task::Question;
use ekiden_core::time::Millis;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::Context;
use crate::port::{Failure, Verdict};

/// Runs the tasks of one kind.
///
/// An async fn with a typed payload is the convenient form; implement this where the kind is known only at run time, or
/// the payload is not JSON.
#[async_trait]
pub trait TaskHandler: Send + Sync + 'static {
    /// The kind that it runs.
    fn task_type(&self) -> &str;

    /// How long it may take to end by itself after it was told to stop; then it is dropped. At once if nobody says. A handler
    /// with processes to kill needs the time: its task is settled, and its successor starts, when it has ended.
    fn stop_within(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether it always ends by itself after it was told to stop, and something of it may go on when it is dropped before. An
    /// attempt that was cancelled or ran out of time is then not dropped, and not settled before its handler has ended.
    fn ends_by_itself(&self) -> bool {
        false
    }

    /// Whether it can run attempts at all. A runner asks before it claims anything, and does not start if it cannot.
    fn check(&self) -> Result<(), Refusal> {
        Ok(())
    }

    /// Runs one attempt. Decoding the payload is the handler's business.
    async fn execute(&self, payload: Bytes, context: Context) -> Result<Done, TaskError>;
}

/// A payload that knows its kind.
///
/// ```
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct SendEmail {
///     to: String,
/// }
///
/// impl ekiden::Payload for SendEmail {
///     const TASK_TYPE: &'static str = "send_email";
/// }
/// ```
pub trait Payload: Serialize + DeserializeOwned + Send + 'static {
    /// The kind of the tasks that carry it.
    const TASK_TYPE: &'static str;

    /// What a payload that does not decode means. A newer program may have written it, so another runner may know it.
    const UNDECODABLE: Undecodable = Undecodable::Retry;
}

/// What becomes of a task whose payload does not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecodable {
    /// It is tried again, within its budget.
    Retry,
    /// It is dead at once.
    Die,
}

/// How an attempt ended without failing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The work is done.
    Succeeded(Option<Bytes>),
    /// Go on later; no attempt is spent.
    Snoozed(Duration),
    /// A person must answer first.
    Asked(Box<Question>),
    /// It stopped as it was told to, before the work was done; no attempt is spent.
    Interrupted,
    /// It took longer than a limit of its own.
    TimedOut,
}

impl Done {
    /// The work is done, and this came of it.
    pub fn with(result: &impl Serialize) -> Result<Self, TaskError> {
        let bytes = serde_json::to_vec(result).map_err(|why| TaskError::permanent(format!("result: {why}")))?;
        Ok(Self::Succeeded(Some(bytes.into())))
    }
}

/// Why an attempt failed. Any error becomes one that is tried again; say more with [`Self::permanent`] and
/// [`Self::retry_after`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskError {
    kind: FailureKind,
    message: String,
}

impl TaskError {
    /// May work next time.
    pub fn retryable(message: impl ToString) -> Self {
        Self { kind: FailureKind::Retryable, message: message.to_string() }
    }

    /// Will never work: the task is dead at once.
    pub fn permanent(message: impl ToString) -> Self {
        Self { kind: FailureKind::Permanent, message: message.to_string() }
    }

    /// May work after this wait.
    pub fn retry_after(wait: Duration, message: impl ToString) -> Self {
        Self { kind: FailureKind::RetryAfter(wait.into()), message: message.to_string() }
    }

    /// Something died that was needed for it, as a process does by a signal. Tried again within the budget and the pool's
    /// limit of crashes in a row.
    pub fn crashed(message: impl ToString) -> Self {
        Self { kind: FailureKind::Crashed, message: message.to_string() }
    }

    /// What happened.
    pub fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn failure(self) -> Failure {
        Failure { kind: self.kind, message: Arc::from(self.message) }
    }
}

/// Whatever `?` meets: errors of any kind, boxed ones (also those of `anyhow` and its like), and plain texts. The whole chain of
/// causes is the message: the last one is often the one that helps.
impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for TaskError {
    fn from(error: E) -> Self {
        let error: Box<dyn std::error::Error + Send + Sync> = error.into();
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message.push_str(": ");
            message.push_str(&error.to_string());
            cause = error.source();
        }
        Self::retryable(message)
    }
}

/// What a handler may return: nothing, a [`Done`], or a `Result` of either with anything that becomes a [`TaskError`].
pub trait IntoDone {
    /// How the attempt ended.
    fn into_done(self) -> Result<Done, TaskError>;
}

impl IntoDone for () {
    fn into_done(self) -> Result<Done, TaskError> {
        Ok(Done::Succeeded(None))
    }
}

impl IntoDone for Done {
    fn into_done(self) -> Result<Done, TaskError> {
        Ok(self)
    }
}

impl<T: IntoDone, E: Into<TaskError>> IntoDone for Result<T, E> {
    fn into_done(self) -> Result<Done, TaskError> {
        match self {
            Ok(done) => done.into_done(),
            Err(error) => Err(error.into()),
        }
    }
}

pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A handler with a typed payload, which it decodes by itself.
pub(crate) type Typed = dyn Fn(Bytes, Context) -> BoxFuture<Result<Done, TaskError>> + Send + Sync;

/// A handler of any form, ready to be called.
#[derive(Clone)]
pub(crate) enum Call {
    Typed(Arc<Typed>),
    Own(Arc<dyn TaskHandler>),
}

impl Call {
    /// Runs the handler. One of the user's own is kept while it runs, so that its future needs no second box around it.
    pub(crate) async fn execute(self, payload: Bytes, context: Context) -> Result<Done, TaskError> {
        match self {
            Self::Typed(call) => call(payload, context).await,
            Self::Own(handler) => handler.execute(payload, context).await,
        }
    }
}

/// A handler and how it is to be treated.
#[derive(Clone)]
pub(crate) struct Handling {
    pub(crate) call: Call,
    /// How long it may take to end by itself after it was told to stop.
    pub(crate) stop_within: Duration,
    /// Whether it must not be taken for ended before it is.
    pub(crate) ends_by_itself: bool,
}

impl Handling {
    /// Whether it can run attempts at all.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        match &self.call {
            Call::Typed(_) => Ok(()),
            Call::Own(handler) => handler.check(),
        }
    }
}

pub(crate) fn typed<P, F, Fut, R>(handler: F) -> Handling
where
    P: Payload,
    F: Fn(P, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = R> + Send + 'static,
    R: IntoDone + 'static,
{
    let handler = Arc::new(handler);
    let call: Arc<Typed> = Arc::new(move |bytes, context: Context| {
        let handler = handler.clone();
        Box::pin(async move {
            let payload: P = serde_json::from_slice(&bytes).map_err(|why| undecodable(P::UNDECODABLE, &why))?;
            // Not kept while the handler runs.
            drop(bytes);
            handler(payload, context).await.into_done()
        })
    });
    Handling { call: Call::Typed(call), stop_within: Duration::ZERO, ends_by_itself: false }
}

pub(crate) fn of_trait(handler: Arc<dyn TaskHandler>) -> Handling {
    let (stop_within, ends_by_itself) = (handler.stop_within(), handler.ends_by_itself());
    Handling { call: Call::Own(handler), stop_within, ends_by_itself }
}

fn undecodable(means: Undecodable, why: &serde_json::Error) -> TaskError {
    let message = format!("payload does not decode: {why}");
    match means {
        Undecodable::Retry => TaskError::retryable(message),
        Undecodable::Die => TaskError::permanent(message),
    }
}

pub(crate) fn verdict(outcome: Result<Done, TaskError>) -> Verdict {
    match outcome {
        Ok(Done::Succeeded(result)) => Verdict::Succeeded(result),
        Ok(Done::Snoozed(wait)) => Verdict::Snoozed(Millis::from(wait)),
        Ok(Done::Asked(question)) => Verdict::Asked(question),
        Ok(Done::Interrupted) => Verdict::Interrupted,
        Ok(Done::TimedOut) => Verdict::TimedOut,
        Err(error) => Verdict::Failed(error.failure()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_boxes_and_texts_become_failures_with_all_their_causes() {
        let number = "x".parse::<u8>().unwrap_err();
        assert_eq!(TaskError::from(number.clone()).message(), number.to_string());
        let boxed: Box<dyn std::error::Error + Send + Sync> = "boxed".into();
        assert_eq!(TaskError::from(boxed).message(), "boxed");
        assert_eq!(TaskError::from("plain"), TaskError::retryable("plain"));
        let nested = std::io::Error::other(number);
        assert!(TaskError::from(nested).message().contains("invalid digit"));
    }
}
