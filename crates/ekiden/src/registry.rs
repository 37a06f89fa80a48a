//! The registry: which handler runs which kind. Runners and tests look handlers up in the same one.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use ekiden_core::id::Kind;
use ekiden_core::reason::{ReasonCode, Refusal};

use crate::context::Context;
use crate::error::Result;
use crate::handler::{Handling, IntoDone, Payload, TaskHandler, of_trait, typed};

/// Handlers by kind. Make one where the program and its tests both find it; cheap to clone.
///
/// ```
/// use ekiden::{Context, Payload, Registry};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct SendEmail { to: String }
///
/// impl Payload for SendEmail {
///     const TASK_TYPE: &'static str = "send_email";
/// }
///
/// async fn send_email(email: SendEmail, _: Context) { /* … */ }
///
/// fn handlers() -> Registry {
///     Registry::new().handler(send_email)
/// }
/// # assert!(format!("{:?}", handlers()).contains("send_email"));
/// ```
#[derive(Clone, Default)]
#[must_use = "handlers run when a runner has them"]
pub struct Registry {
    handlers: Vec<(String, Handling)>,
}

impl Registry {
    /// A registry without handlers.
    pub fn new() -> Self {
        Self::default()
    }

    /// A handler as an async fn with a typed payload.
    pub fn handler<P, F, Fut, R>(mut self, handler: F) -> Self
    where
        P: Payload,
        F: Fn(P, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoDone + 'static,
    {
        self.handlers.push((P::TASK_TYPE.to_owned(), typed(handler)));
        self
    }

    /// A handler as an object.
    pub fn task_handler(mut self, handler: impl TaskHandler) -> Self {
        let kind = handler.task_type().to_owned();
        self.handlers.push((kind, of_trait(Arc::new(handler))));
        self
    }

    /// The handlers of another registry as well.
    pub fn and(mut self, other: Self) -> Self {
        self.handlers.extend(other.handlers);
        self
    }

    /// The handlers by kind. Two for one kind are a mistake, and so is none at all.
    pub(crate) fn calls(&self) -> Result<BTreeMap<Kind, Handling>> {
        let mut calls = BTreeMap::new();
        for (task_type, handling) in &self.handlers {
            if calls.insert(Kind::new(task_type)?, handling.clone()).is_some() {
                return Err(Refusal::new(ReasonCode::HandlerTwice).with("task_type", task_type).into());
            }
        }
        if calls.is_empty() {
            return Err(Refusal::new(ReasonCode::RunnerInvalid).with("why", "no handler").into());
        }
        Ok(calls)
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.handlers.iter().map(|(task_type, _)| task_type)).finish()
    }
}
