//! The end of the load: everything that still can happen happens. Held tasks are released, questions answered, silent runners
//! declared dead, and a last runner takes what is left, until nothing moves any more. Then everything is read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ekiden::core::{Millis, TaskFilter, TaskId, Token};
use ekiden::store::{Clock, SystemClock, TaskQuery};
use ekiden::{Queue, TaskRecord, TaskState};

use super::client::Worker;
use super::{Traffic, named, namespace};
use crate::facts::{FinalState, FinalTask, Note};
use crate::fleet::pass;
use crate::history::{Client, History};
use crate::recorded_queue::{RecordedQueue, taken_away};

/// One minute: what has not come to rest by then is stuck. Sound queues need some seconds, for the leases to end.
const LIMIT: Duration = Duration::from_secs(60);

/// 50 ms between two looks at what is left.
const PERIOD: Duration = Duration::from_millis(50);

/// Lets everything come to rest, and reads it.
pub(super) async fn come_to_rest(traffic: &Arc<Traffic>, queue: Arc<dyn Queue>) -> (History, FinalState) {
    let record = traffic.recorder.client("last");
    let recorded = RecordedQueue::new(queue.clone(), record.clone());
    let mut last = Worker::new(traffic.clone(), 99, recorded, record.clone());
    let begin = SystemClock.monotonic();
    let records = loop {
        // A lane gives one at a time: what an end admits is asked for at once, and everything is read in between only.
        let mut worked = false;
        while last.finish_some().await && !late(begin) {
            worked = true;
        }
        // What fails is left for the next round, as in every process that maintains.
        let _ = queue.maintain(namespace()).await;
        let records = every_task(&*queue).await.expect("a queue that is not disturbed any more answers");
        help(&*queue, &records).await;
        if late(begin) || (!worked && at_rest(&records)) {
            break records;
        }
        pass(PERIOD).await;
    };
    for task in &records {
        record.note(Note::Observed { task: task.id.clone(), found: Box::new(FinalTask::from(task)) });
    }
    let told = traffic.recorder.history();
    let state = FinalState::observed(&told).quiesced();
    let lines = told.lines().iter().cloned().chain(taken_away(&records, "server")).collect();
    (History::from_lines(lines, Millis::ZERO), state)
}

fn late(begin: Duration) -> bool {
    SystemClock.monotonic().saturating_sub(begin) > LIMIT
}

/// Does what people do: releases and answers.
async fn help(queue: &dyn Queue, records: &[TaskRecord]) {
    for task in records {
        match (task.state, &task.question) {
            (TaskState::Pending, _) => drop(queue.release(named(&task.id)).await),
            (TaskState::NeedsInput, Some(question)) => {
                let _ = queue.answer(named(&task.id), question.id.clone(), Arc::from("go on")).await;
            }
            _ => {}
        }
    }
}

/// Whether everything has ended with all its attempts, or is blocked for good, by itself or behind one that is.
fn at_rest(tasks: &[TaskRecord]) -> bool {
    let blocked: BTreeSet<&TaskId> =
        tasks.iter().filter(|task| task.state == TaskState::Blocked).map(|task| &task.id).collect();
    tasks.iter().all(|task| match task.state {
        TaskState::Blocked => task.reason.is_some() || task.waits_for.iter().any(|parent| blocked.contains(parent)),
        state => state.is_final() && task.runner.is_none(),
    })
}

/// Writes down everything that is there.
pub(super) async fn look(queue: &dyn Queue, client: &Client) -> ekiden::Result<()> {
    client.note(Note::Looking);
    for task in every_task(queue).await? {
        client.note(Note::Found {
            task: task.id.clone(),
            phase: task.state,
            execution_no: task.execution_no,
            lease: task.runner.is_some().then_some(Token(task.execution_no)),
        });
    }
    client.note(Note::Looked);
    Ok(())
}

async fn every_task(queue: &dyn Queue) -> ekiden::Result<Vec<TaskRecord>> {
    let mut found = Vec::new();
    let mut query = TaskQuery::oldest(TaskFilter::all(namespace()), 200);
    loop {
        let page = queue.tasks(query.clone()).await?;
        found.extend(page.items);
        if page.cursor.is_none() {
            return Ok(found);
        }
        query.cursor = page.cursor;
    }
}
