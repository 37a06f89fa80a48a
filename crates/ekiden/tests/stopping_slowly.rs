//! Handlers that need time to stop, as those with processes to kill do: they get it, whyever they must stop, and nothing is
//! settled before they have ended.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod lab;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use ekiden::core::{EventName, Outcome, Stage};
use ekiden::{Context, Done, StopReason, TaskError, TaskHandler, TaskState};
use lab::{Gauge, happened, lab, ms, passes, secs, start};

/// Works until it is told to stop, and needs a while to do so.
#[derive(Clone, Default)]
struct Slow {
    needs: Duration,
    may_take: Duration,
    inside: Gauge,
    reasons: Arc<Mutex<Vec<StopReason>>>,
}

#[async_trait]
impl TaskHandler for Slow {
    fn task_type(&self) -> &str {
        "job"
    }

    fn stop_within(&self) -> Duration {
        self.may_take
    }

    async fn execute(&self, _: Bytes, context: Context) -> Result<Done, TaskError> {
        let inside = self.inside.enter();
        context.cancelled().await;
        self.reasons.lock().unwrap().push(context.stop_reason().unwrap());
        context.stage(Stage::Signalled).await.unwrap();
        passes(self.needs).await;
        context.stage(Stage::Exited).await.unwrap();
        drop(inside);
        Ok(Done::Interrupted)
    }
}

fn slow(needs: Duration, may_take: Duration) -> Slow {
    Slow { needs, may_take, ..Slow::default() }
}

/// R16, X5: a handler that is out of time ends by itself within what it asked for, and only then its attempt has ended.
#[tokio::test(start_paused = true)]
async fn a_timeout_waits_for_a_handler_that_needs_time_to_stop() {
    let lab = lab();
    let mut changes = lab.client.subscribe().await.unwrap();
    let id = lab.client.enqueue(lab::Job { n: 1 }).timeout(secs(10)).max_attempts(1).await.unwrap().id;
    let handler = slow(secs(3), secs(5));
    let runner = start(lab.runner().task_handler(handler.clone()));
    happened(&mut changes, &id, EventName::TimedOut).await;
    assert_eq!((lab.ms(), handler.inside.inside()), (13_000, 0), "settled when it had ended");
    let record = lab.status(&id).await;
    assert_eq!((record.state, record.recent.last().unwrap().outcome), (TaskState::Dead, Some(Outcome::TimedOut)));
    assert_eq!(*handler.reasons.lock().unwrap(), [StopReason::TimedOut]);
    runner.end().await;
}

/// R16: it asked for five seconds and takes ten: it is dropped after five.
#[tokio::test(start_paused = true)]
async fn a_handler_that_takes_longer_than_it_asked_for_is_dropped() {
    let lab = lab();
    let mut changes = lab.client.subscribe().await.unwrap();
    let id = lab.client.enqueue(lab::Job { n: 1 }).timeout(secs(10)).max_attempts(1).await.unwrap().id;
    let handler = slow(secs(10), secs(5));
    let runner = start(lab.runner().task_handler(handler.clone()));
    happened(&mut changes, &id, EventName::TimedOut).await;
    assert_eq!((lab.ms(), handler.inside.inside()), (15_000, 0));
    runner.end().await;
}

/// X5: the stages of a stop are seen as they come, and the lane of a cancelled attempt is free when it has ended.
#[tokio::test(start_paused = true)]
async fn a_cancel_waits_for_its_stages() {
    let lab = lab();
    let mut changes = lab.client.subscribe().await.unwrap();
    let enqueue = |n| lab.client.enqueue(lab::Job { n }).serial_key("one");
    let (id, next) = (enqueue(1).await.unwrap().id, enqueue(2).await.unwrap().id);
    let handler = slow(secs(3), secs(5));
    let runner = start(lab.runner().task_handler(handler.clone()));
    happened(&mut changes, &id, EventName::Claimed).await;
    passes(ms(10)).await;
    let before = lab.ms();
    lab.client.cancel(&id).await.unwrap();
    let stage = async || lab.status(&id).await.recent.last().unwrap().stage;
    happened(&mut changes, &id, EventName::AttemptEnded).await;
    assert_eq!((stage().await, lab.ms() - before), (Some(Stage::Signalled), 0));
    assert_eq!(lab.state(&next).await, TaskState::Queued, "it waits for the lane");
    // The last two stages come at the same moment: the handler says the first and ends.
    happened(&mut changes, &id, EventName::AttemptEnded).await;
    happened(&mut changes, &id, EventName::AttemptEnded).await;
    assert_eq!((stage().await, lab.ms() - before), (Some(Stage::Verified), 3_000));
    assert_eq!(lab.status(&id).await.outcomes.cancelled, 1);
    happened(&mut changes, &next, EventName::Claimed).await;
    assert_eq!(*handler.reasons.lock().unwrap(), [StopReason::Cancelled]);
    runner.end_at_once().await;
}

/// R17: a shutdown gives the time too, hands back what stopped, and waits for nobody longer than that.
#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_handlers_that_need_time_to_stop() {
    for (needs, took) in [(secs(3), 33_000), (secs(60), 35_000)] {
        let lab = lab();
        let mut changes = lab.client.subscribe().await.unwrap();
        let id = lab.job(1).await;
        let handler = slow(needs, secs(5));
        let runner = start(lab.runner().grace(secs(30)).task_handler(handler.clone()));
        happened(&mut changes, &id, EventName::Claimed).await;
        let ended = runner.end().await;
        assert_eq!((lab.ms(), handler.inside.inside()), (took, 0), "needs {needs:?}");
        assert_eq!(ended.handed_back, std::slice::from_ref(&id));
        let record = lab.status(&id).await;
        assert_eq!((record.state, record.attempts, record.outcomes.interrupted), (TaskState::Queued, 0, 1));
        assert_eq!(*handler.reasons.lock().unwrap(), [StopReason::ShutDown]);
    }
}
