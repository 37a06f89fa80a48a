//! What another program said by changing an item of ours (Q4–Q6): its word, as events for core to decide about.

use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use ekiden_core::event::Event;
use ekiden_core::id::{OpId, RunnerId};
use ekiden_core::index::Index;
use ekiden_core::key::Key;
use ekiden_core::lease::{Token, Until};
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::Record;
use ekiden_core::retry::FailureKind;
use ekiden_core::task::{Phase, Task};
use ekiden_core::time::Timestamp;

use super::attributes as at;
use super::words::{self, status_of};
use super::{Item, get_text};

/// The answers of people, oldest first, each a map with `content`.
const CONVERSATION: &str = "conversation_history";

/// A foreign change: `status` is not the word that our own attributes stand for.
#[derive(Debug)]
pub(crate) struct Said {
    /// What happened, in order; empty if the change is one that no program may make.
    pub(crate) events: Vec<Event>,
    /// When, but not before our own last change.
    pub(crate) at: Timestamp,
    /// The word itself.
    pub(crate) word: String,
}

/// What another program said of a record, if it did.
pub(crate) fn said(key: &Key, record: &Record, item: &Item) -> Option<Said> {
    let task = record.as_task().filter(|_| item.contains_key(at::STATE))?;
    let word = get_text(item, at::STATUS)?;
    if word == status_of(task, &Index::of(key, record)) {
        return None;
    }
    let changed_at = get_text(item, at::UPDATED_AT).and_then(|text| Timestamp::parse(text).ok());
    let at = changed_at.unwrap_or(Timestamp::ZERO).max(task.state.updated_at);
    Some(Said { events: events(task, word, item), at, word: word.to_owned() })
}

fn events(task: &Task, word: &str, item: &Item) -> Vec<Event> {
    let waits = matches!(task.state.phase, Phase::Queued | Phase::RetryScheduled);
    // The token of the attempt that ended: the running one, or the one that began and ended since we last looked.
    let token = Token(task.state.execution_no + u64::from(waits));
    let end = match word {
        words::CANCELLED => {
            let note = Some(Arc::from("cancelled by another program"));
            return vec![Event::CancelRequested { reason: ReasonCode::CancelRequested, note }];
        }
        words::RUNNING if task.state.phase == Phase::NeedsInput => return answered(task, item).into_iter().collect(),
        words::RUNNING => None,
        words::COMPLETE => Some(Event::Succeeded { token, result: None }),
        words::ERROR => {
            let error = get_text(item, at::ERROR_MESSAGE).unwrap_or("failed in another program");
            Some(Event::Failed { token, kind: FailureKind::Permanent, error: Arc::from(error) })
        }
        _ => return Vec::new(),
    };
    let began = waits.then(|| {
        let holder = get_text(item, at::CLAIMED_BY).and_then(|text| RunnerId::new(text).ok());
        let holder = holder.unwrap_or_else(|| RunnerId::new("foreign").expect("a valid id"));
        Event::Claimed { claim: OpId::from_bits(0), holder, until: Until::Foreign, counted: false }
    });
    began.into_iter().chain(end).collect()
}

/// Q5: a program that appends an answer and writes RUNNING has answered.
fn answered(task: &Task, item: &Item) -> Option<Event> {
    let question = task.state.question.as_ref()?.id.clone();
    let last = item.get(CONVERSATION)?.as_l().ok()?.last()?.as_m().ok()?;
    let content = last.get("content").and_then(|content: &AttributeValue| content.as_s().ok())?;
    Some(Event::Answered { question, content: Arc::from(content.as_str()) })
}
