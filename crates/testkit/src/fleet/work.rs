//! What the tasks of a fleet are, and what their handlers do.

use std::sync::Arc;
use std::time::Duration;

use ekiden::core::{OnParentFailure, Question, QuestionId, RetryPolicy};
use ekiden::{Client, Context, Done, EnqueueBuilder, Payload, TaskError};
use ekiden_core::id::TaskId;
use ekiden_core::lease::Token;
use ekiden_core::time::Millis;
use ekiden_store::entropy::Entropy;
use serde::{Deserialize, Serialize};

use crate::facts::Note;
use crate::history;

/// What each attempt does, in order; attempts beyond the list succeed.
#[derive(Serialize, Deserialize)]
pub(super) struct Work {
    steps: Vec<Step>,
}

impl Payload for Work {
    const TASK_TYPE: &'static str = "work";
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Step {
    Succeed,
    Fail,
    FailForGood,
    FailForNow,
    Panic,
    Snooze,
    Ask,
    /// Takes its time, then succeeds.
    Dawdle(u64),
    /// Ends only when it is told to.
    Hang,
}

/// A task of any sort.
pub(super) fn wish(client: &Client, entropy: &mut Entropy, known: &[TaskId]) -> EnqueueBuilder {
    let steps = (0..entropy.below(4)).map(|_| step(entropy)).collect();
    let delay = RetryPolicy::Fixed { delay: Millis::new(500) };
    let mut task = client.enqueue(Work { steps }).retry(delay).timeout(Duration::from_secs(3));
    if entropy.chance(40) {
        task = task.serial_key(entropy.pick(&["a", "b"]));
    } else if entropy.chance(15) {
        task = task.at_most(2, "wide");
    }
    if entropy.chance(10) {
        task = task.unique(entropy.pick(&["u", "v"]));
    }
    if entropy.chance(10) {
        task = task.idempotency_key(entropy.pick(&["i", "j"]));
    }
    if entropy.chance(20) {
        task = task.delay(Duration::from_millis(u64::try_from(entropy.below(5_000)).unwrap_or(0)));
    }
    if entropy.chance(20) {
        task = task.priority(*entropy.pick(&[-10, 10, 20]));
    }
    if entropy.chance(20) {
        task = task.group(entropy.pick(&["g", "h"]));
    } else if entropy.chance(10) {
        task = task.after_group(entropy.pick(&["g", "h"]));
    }
    if entropy.chance(25) && !known.is_empty() {
        task = task.depends_on([entropy.pick(known)]);
    }
    let policies = [OnParentFailure::Block, OnParentFailure::Cancel, OnParentFailure::Run];
    task.on_parent_failure(*entropy.pick(&policies))
}

fn step(entropy: &mut Entropy) -> Step {
    match entropy.below(100) {
        0..25 => Step::Succeed,
        25..45 => Step::Fail,
        45..48 => Step::FailForGood,
        48..55 => Step::FailForNow,
        55..57 => Step::Panic,
        57..65 => Step::Snooze,
        65..70 => Step::Ask,
        70..92 => Step::Dawdle(u64::try_from(entropy.below(3_500)).unwrap_or(0)),
        _ => Step::Hang,
    }
}

/// Carries out the step of this attempt, and notes when the work really began and ended.
pub(super) async fn carry_out(work: Work, context: Context, record: history::Client) -> Result<Done, TaskError> {
    let _noted = Noted::begin(&context, record);
    let number = usize::try_from(context.token().0.saturating_sub(1)).unwrap_or(usize::MAX);
    match work.steps.get(number).copied().unwrap_or(Step::Succeed) {
        Step::Succeed => Ok(Done::Succeeded(None)),
        Step::Fail => Err(TaskError::retryable("not this time")),
        Step::FailForGood => Err(TaskError::permanent("never")),
        Step::FailForNow => Err(TaskError::retry_after(Duration::from_secs(1), "not yet")),
        Step::Panic => std::panic::resume_unwind(Box::new("a planned panic")),
        Step::Snooze => Ok(Done::Snoozed(Duration::from_millis(700))),
        Step::Ask => Ok(Done::Asked(Box::new(question(context.token())))),
        Step::Dawdle(millis) => {
            context.progress(1, 2);
            super::pass(Duration::from_millis(millis)).await;
            Ok(Done::Succeeded(None))
        }
        Step::Hang => std::future::pending().await,
    }
}

fn question(token: Token) -> Question {
    Question {
        id: QuestionId::new(format!("q{token}")).expect("letters and digits are a valid id"),
        text: Arc::from("which way?"),
        choices: Vec::new(),
        deadline: None,
        default: None,
    }
}

/// Notes the end of the work however it comes: a handler that is dropped has ended too.
pub(crate) struct Noted {
    task: TaskId,
    token: Token,
    record: history::Client,
}

impl Noted {
    pub(crate) fn begin(context: &Context, record: history::Client) -> Self {
        let (task, token) = (context.task().id.clone(), context.token());
        record.note(Note::Started { task: task.clone(), token });
        Self { task, token, record }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.record.note(Note::Finished { task: self.task.clone(), token: self.token });
    }
}
