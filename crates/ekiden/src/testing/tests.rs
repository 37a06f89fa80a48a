//! What the test queue promises, and what its failures show.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::*;
use crate::handler::{Done, TaskError, TaskHandler};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Email {
    to: String,
}

impl Payload for Email {
    const TASK_TYPE: &'static str = "email";
}

#[derive(Serialize, Deserialize)]
struct Report;

impl Payload for Report {
    const TASK_TYPE: &'static str = "report";
}

fn email(to: &str) -> Email {
    Email { to: to.to_owned() }
}

fn kinds(ran: &[Ran]) -> Vec<&str> {
    ran.iter().map(|ran| ran.task_type.as_str()).collect()
}

fn panic_text(work: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(work)).expect_err("it must fail");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

fn quiet() -> Registry {
    Registry::new().handler(|_: Email, _: Context| async {}).handler(|_: Report, _: Context| async {})
}

#[tokio::test]
async fn what_may_run_runs_by_priority_and_age_in_every_pool() {
    let mut queue = TestQueue::new();
    let client = queue.client().clone();
    let low = client.enqueue(email("low")).priority(-10).await.unwrap();
    let old = client.enqueue(email("old")).pool("mail").await.unwrap();
    let new = client.enqueue(email("new")).await.unwrap();
    let ran = queue.drain(&quiet()).await;
    assert_eq!(ran.iter().map(|ran| &ran.id).collect::<Vec<_>>(), [&old.id, &new.id, &low.id]);
}

#[tokio::test]
async fn a_kind_without_a_handler_stays_and_is_shown() {
    let mut queue = TestQueue::new();
    queue.client().enqueue(Report).await.unwrap();
    let only_mail = Registry::new().handler(|_: Email, _: Context| async {});
    assert!(queue.drain(&only_mail).await.is_empty());
    let text = panic_text(|| queue.assert_enqueued(|email: &Email| email.to == "a"));
    assert!(text.contains("no \"email\" task") && text.contains("report null queued in pool default"), "{text}");
    let text = panic_text(|| queue.assert_none_enqueued::<Report>());
    assert!(text.contains("a \"report\" task waits"), "{text}");
}

#[tokio::test]
async fn a_wrong_state_is_shown_with_its_reasons() {
    let mut queue = TestQueue::new();
    let task = queue.client().enqueue(email("a")).await.unwrap();
    let fails = Registry::new().handler(|_: Email, _: Context| async { Err::<(), _>(TaskError::retryable("busy")) });
    queue.drain(&fails).await;
    let text = panic_text(|| queue.assert_state(&task.id, TaskState::Dead));
    assert!(text.contains("expected dead, found retry_scheduled"), "{text}");
    assert!(text.contains("last error: busy") && text.contains("NOT_DUE"), "{text}");
}

#[tokio::test]
async fn snoozes_permanent_failures_and_panics_end_as_in_a_runner() {
    let mut queue = TestQueue::new();
    let handlers = Registry::new().handler(|email: Email, context: Context| async move {
        match email.to.as_str() {
            "later" if context.token().0 == 1 => Ok(Done::Snoozed(Duration::from_secs(5))),
            "never" => Err(TaskError::permanent("no such address")),
            "boom" => panic!("boom"),
            _ => Ok(Done::Succeeded(None)),
        }
    });
    let client = queue.client().clone();
    let later = client.enqueue(email("later")).await.unwrap();
    let never = client.enqueue(email("never")).await.unwrap();
    let boom = client.enqueue(email("boom")).max_attempts(1).await.unwrap();
    queue.drain(&handlers).await;
    queue.assert_state(&never.id, TaskState::Dead);
    queue.assert_state(&boom.id, TaskState::Dead);
    assert_eq!(queue.status(&boom.id).last_error.as_deref(), Some("panicked: boom"));
    assert_eq!(queue.status(&later.id).attempts, 0, "a snooze spends no attempt");
    queue.advance(Duration::from_secs(5));
    queue.drain(&handlers).await;
    queue.assert_state(&later.id, TaskState::Succeeded);
}

#[tokio::test]
async fn a_task_that_is_cancelled_by_its_own_handler_stays_cancelled() {
    struct Cancels;

    #[async_trait::async_trait]
    impl TaskHandler for Cancels {
        fn task_type(&self) -> &str {
            "email"
        }

        async fn execute(&self, _: Bytes, context: Context) -> std::result::Result<Done, TaskError> {
            context.progress(1, 2);
            context.client().cancel(&context.task().id).await?;
            Ok(Done::Succeeded(None))
        }
    }

    let mut queue = TestQueue::new();
    let task = queue.client().enqueue(email("a")).await.unwrap();
    let ran = queue.drain(&Registry::new().task_handler(Cancels)).await;
    assert_eq!(ran.first().map(|ran| ran.state), Some(TaskState::Cancelled));
    assert_eq!(queue.status(&task.id).runner, None, "its place is free");
}

#[tokio::test]
async fn progress_is_there_when_the_attempt_has_ended() {
    let mut queue = TestQueue::new();
    let task = queue.client().enqueue(email("a")).await.unwrap();
    let handlers = Registry::new().handler(|_: Email, context: Context| async move { context.progress(3, 4) });
    queue.drain(&handlers).await;
    assert_eq!(queue.status(&task.id).progress.map(|progress| progress.done), Some(3));
}

#[tokio::test]
async fn dependents_and_groups_come_to_their_end() {
    let mut queue = TestQueue::new();
    let client = queue.client().clone();
    let first = client.enqueue(email("a")).group("batch").await.unwrap();
    client.enqueue(email("b")).group("batch").depends_on([&first.id]).delay(Duration::from_secs(90)).await.unwrap();
    let report = client.enqueue(Report).after_group("batch").await.unwrap();
    let ran = queue.run_to_end(&quiet()).await;
    assert_eq!(kinds(&ran), ["email", "email", "report"]);
    queue.assert_state(&report.id, TaskState::Succeeded);
    assert!(queue.now() >= START + Millis::from_secs(90));
}

#[tokio::test]
async fn a_schedule_ticks_at_each_of_its_moments() {
    let mut queue = TestQueue::new();
    let client = queue.client().clone();
    let every = client.schedule("hourly", client.enqueue(Report)).every(Duration::from_secs(3_600));
    every.overlap(ekiden_core::schedule::Overlap::Allow).await.unwrap();
    queue.advance(Duration::from_secs(3 * 3_600));
    assert_eq!(queue.drain(&quiet()).await.len(), 3);
}

#[tokio::test]
async fn days_may_pass_between_drains() {
    let mut queue = TestQueue::new();
    for _ in 0..3 {
        queue.client().enqueue(email("a")).await.unwrap();
        assert_eq!(queue.drain(&quiet()).await.len(), 1);
        queue.advance(Duration::from_secs(3 * 86_400));
    }
}

#[tokio::test]
#[should_panic(expected = "more than 10000 attempts ran")]
async fn a_circle_is_noticed() {
    let mut queue = TestQueue::new();
    queue.client().enqueue(email("a")).await.unwrap();
    let circle = Registry::new().handler(|_: Email, _: Context| async { Done::Snoozed(Duration::ZERO) });
    queue.drain(&circle).await;
}

#[tokio::test]
#[should_panic(expected = "HANDLER_TWICE")]
async fn two_handlers_for_one_kind_are_refused() {
    let twice = Registry::new().handler(|_: Email, _: Context| async {}).and(quiet());
    TestQueue::new().drain(&twice).await;
}
