//! Short words for the names, records and writes that the cases use.

use std::future::Future;
use std::sync::Arc;

use ekiden_core::commit::{Action, Expect, Write};
use ekiden_core::id::{Kind, LaneKey, Namespace, PoolName, QuestionId, RunnerId, TaskId, UniqueKey};
use ekiden_core::key::Key;
use ekiden_core::newer::Newer;
use ekiden_core::record::{Record, Revision, Versioned};
use ekiden_core::task::{Question, Task};
use ekiden_core::unique::KeyRecord;

use crate::op::{Answer, Claimed};

/// The namespace of the cases.
pub fn ns() -> Namespace {
    Namespace::new("default").expect("a valid id")
}

/// A namespace that must not notice anything.
pub fn other_ns() -> Namespace {
    Namespace::new("other").expect("a valid id")
}

/// A pool by name.
pub fn pool(name: &str) -> PoolName {
    PoolName::new(name).expect("a valid id")
}

/// A kind by name.
pub fn kind(name: &str) -> Kind {
    Kind::new(name).expect("a valid id")
}

/// A task id by name.
pub fn id(name: &str) -> TaskId {
    TaskId::new(name).expect("a valid id")
}

/// A runner id by name.
pub fn runner(name: &str) -> RunnerId {
    RunnerId::new(name).expect("a valid id")
}

/// A lane by name.
pub fn lane(name: &str) -> LaneKey {
    LaneKey::new(name).expect("a valid id")
}

/// The key of a task of the cases' namespace.
pub fn task_key(name: &str) -> Key {
    Key::task(&ns(), &id(name))
}

/// The key of a plain record without index entries.
pub fn note_key(name: &str) -> Key {
    Key::unique(&ns(), &UniqueKey::new(name).expect("a valid id"))
}

/// A plain record without index entries: a unique key that some task holds.
pub fn note(text: &str) -> Record {
    Record::Unique(KeyRecord { task: id(text), expires_at: None, newer: Newer::NONE })
}

/// Runs this many at once, each on a task of its own, and gives their answers in order.
pub async fn at_once<T, F>(count: usize, each: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let gate = Arc::new(tokio::sync::Barrier::new(count));
    let spawn = |work: F| {
        let gate = gate.clone();
        tokio::spawn(async move {
            gate.wait().await;
            work.await
        })
    };
    let running: Vec<_> = (0..count).map(each).map(spawn).collect();
    let mut answers = Vec::with_capacity(count);
    for one in running {
        answers.push(one.await.expect("a racer that does not panic"));
    }
    answers
}

/// The ids of tasks, in their order.
pub fn ids(tasks: &[Arc<Task>]) -> Vec<&str> {
    tasks.iter().map(|task| task.id().as_str()).collect()
}

/// The tasks of a claim's answer.
pub fn tasks_of(claimed: Claimed) -> Vec<Arc<Task>> {
    claimed.tasks.iter().filter_map(|versioned| versioned.record.as_task().cloned()).collect()
}

/// A delete of whatever is there.
pub fn delete(key: Key) -> Write {
    Write { key, expect: Expect::Any, action: Action::Delete }
}

/// A check that changes nothing.
pub fn check(key: Key, expect: Expect) -> Write {
    Write { key, expect, action: Action::Check }
}

/// An addition to a counter.
pub fn add(key: Key, by: i64) -> Write {
    Write { key, expect: Expect::Any, action: Action::Add(by) }
}

/// A delete of a record as it was read.
pub fn delete_at(key: Key, revision: Revision) -> Write {
    Write { key, expect: Expect::At(revision), action: Action::Delete }
}

/// The revisions of a commit that must be applied.
pub fn applied(answer: Answer) -> Vec<Option<Revision>> {
    match answer {
        Answer::Applied(applied) => applied.revisions.into_vec(),
        other => panic!("expected an applied commit, got {other:?}"),
    }
}

/// What a commit that must conflict found, by key.
pub fn found(answer: Answer) -> Vec<(Key, Option<Versioned>)> {
    match answer {
        Answer::Conflict(mut conflict) => {
            conflict.found.sort_by(|a, b| a.0.cmp(&b.0));
            conflict.found
        }
        other => panic!("expected a conflict, got {other:?}"),
    }
}

/// A question without choices or deadline.
pub fn question(text: &str) -> Question {
    let id = QuestionId::new("q-1").expect("a valid id");
    Question { id, text: Arc::from(text), choices: Vec::new(), deadline: None, default: None }
}

/// Names as a question answers them.
pub fn texts(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}
