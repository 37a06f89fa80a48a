//! Tasks as items of the queue table: the document's attributes, ours, and the entries of indexes.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use ekiden_core::index::{DueIndex, Index, is_with_others};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::pool::PROMPT;
use ekiden_core::task::{Spec, State, Task};

use super::attributes as at;
use super::words::{self, status_of};
use super::{Encoded, Item, Unreadable, foreign, get_bytes, get_text, pack, places, text, unpack};

/// `{"prompt": …}` and nothing else: `prompt` holds the inner text.
const FORM_PROMPT: &str = "prompt";
/// `prompt` holds the payload as it is.
const FORM_TEXT: &str = "text";
/// An item of our own table holds it; `prompt` names the kind.
pub(super) const FORM_APART: &str = "apart";
/// `ek_payload` holds it; `prompt` names the kind, because it is never empty.
const FORM_BYTES: &str = "bytes";

/// Attributes that follow from what was asked for alone, and so never change in a task's life.
pub(super) const ASKED: [&str; 11] = [
    at::SPEC,
    at::FORM,
    at::PROMPT,
    at::PAYLOAD,
    at::GROUP,
    at::SESSION,
    at::CREATED_AT,
    at::LISTED,
    at::GROUPED,
    at::IN_SESSION,
    at::CREATED_ORDER,
];

/// 4 KiB: a larger payload stands apart. Below it one request less is worth more than the units that it costs in the item.
const INSIDE_BYTES_MAX: usize = 4 * 1024;

/// Whether the payload of a task is kept apart from its item. That of a prompt never is: other programs read it there (Q3).
pub(crate) fn stands_apart(spec: &Spec) -> bool {
    spec.envelope.payload.len() > INSIDE_BYTES_MAX && spec.envelope.task_type.as_str() != PROMPT
}

/// The payload of tasks that other programs may run too.
#[derive(serde::Serialize, serde::Deserialize)]
struct Prompt<'a> {
    prompt: std::borrow::Cow<'a, str>,
}

/// The payload that a prompt stands for.
pub(super) fn payload_of_prompt(prompt: &str) -> Bytes {
    let payload = Prompt { prompt: prompt.into() };
    Bytes::from(serde_json::to_vec(&payload).expect("a text can be written as JSON"))
}

pub(super) fn encode(task: &Task, index: &Index, shards: u32, encoded: &mut Encoded) {
    let (spec, state) = (&*task.spec, &task.state);
    put_document(task, index, encoded);
    put_payload(spec, encoded);
    let mut bare = spec.clone();
    bare.envelope.payload = Bytes::new();
    encoded.put(at::SPEC, Some(pack(&bare)));
    encoded.put(at::STATE, Some(pack(state)));
    put_entries(task, index, shards, encoded);
}

/// Q3: the documented attributes, always there and never empty.
fn put_document(task: &Task, index: &Index, encoded: &mut Encoded) {
    let (spec, state) = (&*task.spec, &task.state);
    let status = status_of(task, index);
    let own_id = spec.id.as_str();
    encoded.put(at::STATUS, Some(text(status)));
    encoded.put(at::GROUP, Some(text(spec.group.as_ref().map_or(own_id, |group| group.as_str()))));
    encoded.put(at::SESSION, Some(text(spec.session.as_ref().map_or(own_id, |session| session.as_str()))));
    encoded.put(at::CREATED_AT, Some(text(spec.created_at.to_string())));
    encoded.put(at::UPDATED_AT, Some(text(state.updated_at.to_string())));
    let error = || state.last_error.as_deref().filter(|error| !error.is_empty());
    let reason = || state.reason.map_or("the task failed", ekiden_core::reason::ReasonCode::as_str);
    encoded.put(at::ERROR_MESSAGE, (status == words::ERROR).then(|| text(error().unwrap_or_else(reason))));
    encoded.put(at::CLAIMED_BY, (status == words::RUNNING).then(|| text(claimer(state))));
    // Removed by nobody: a foreign program reads the question together with the answer.
    if let Some(question) = &state.question {
        encoded.put(at::CLARIFICATION, Some(text(&*question.text)));
    }
}

/// Who runs it, or who ran it last: between two attempts the document knows no other word than RUNNING, which has a runner.
fn claimer(state: &State) -> &str {
    let live = state.lease.as_ref().map(|lease| lease.holder.as_str());
    let late = || state.late.as_ref().map(|late| late.holder.as_str());
    let ended = || state.recent.last().map(|attempt| attempt.runner.as_str());
    live.or_else(late).or_else(ended).unwrap_or("ekiden")
}

fn put_payload(spec: &Spec, encoded: &mut Encoded) {
    let payload = &spec.envelope.payload;
    if stands_apart(spec) {
        encoded.put(at::FORM, Some(text(FORM_APART)));
        encoded.put(at::PROMPT, Some(text(spec.envelope.task_type.as_str())));
        encoded.put(at::PAYLOAD, None);
        return;
    }
    let as_text = std::str::from_utf8(payload).ok().filter(|text| !text.is_empty());
    let inner = as_text
        .and_then(|text| serde_json::from_str::<Prompt<'_>>(text).ok())
        .filter(|inner| !inner.prompt.is_empty() && payload_of_prompt(&inner.prompt) == *payload);
    let (form, prompt, bytes) = match (inner, as_text) {
        (Some(inner), _) => (FORM_PROMPT, inner.prompt.into_owned(), None),
        (None, Some(text)) => (FORM_TEXT, text.to_owned(), None),
        (None, None) => {
            (FORM_BYTES, spec.envelope.task_type.to_string(), Some(AttributeValue::B(Blob::new(payload.to_vec()))))
        }
    };
    encoded.put(at::FORM, Some(text(form)));
    encoded.put(at::PROMPT, Some(text(prompt)));
    encoded.put(at::PAYLOAD, bytes);
}

/// The entries that core computed. A task stands in one place at a time and in one due list beside it; its own test keeps
/// watch over that.
fn put_entries(task: &Task, index: &Index, shards: u32, encoded: &mut Encoded) {
    let spec = &*task.spec;
    let (namespace, pool, kind, id) = (&spec.namespace, &spec.pool, &spec.envelope.task_type, spec.id.as_str());
    let created = places::created_order(spec.created_at, id);
    let holder = task.state.lease.as_ref().filter(|_| index.held).map(|lease| &lease.holder);
    let mut place = index
        .ready
        .map(|ready| {
            let shard = places::shard_of(&spec.id, shards);
            (places::ready(namespace, pool, kind, shard), places::claim_order(ready.rank, spec))
        })
        .or_else(|| is_with_others(task).then(|| (places::with_others(namespace), created.clone())))
        .or_else(|| holder.map(|holder| (places::held(namespace, holder), created.clone())));
    let mut listed = None;
    for due in &index.due {
        let order = places::due_order(due.at, RecordKind::Task, id);
        match due.index {
            DueIndex::Promote => place = Some((places::waiting(namespace, pool, kind), order)),
            DueIndex::Rejoin => place = Some((places::rejoining(namespace), order)),
            index => listed = Some((places::due(index, namespace), order)),
        }
    }
    let mut pair = |names: [&'static str; 2], entry: Option<(String, String)>| {
        let (hash, range) = entry.unzip();
        encoded.put(names[0], hash.map(text));
        encoded.put(names[1], range.map(text));
    };
    pair([at::PLACE, at::PLACE_ORDER], place);
    pair([at::DUE, at::DUE_ORDER], listed);
    let listing = (!places::sorts_by_id(spec.created_at, id)).then(|| text(namespace.as_str()));
    let group = spec.group.as_ref().map(|group| text(places::group(namespace, group)));
    let session = spec.session.as_ref().map(|session| text(places::session(namespace, session)));
    let any = listing.is_some() || group.is_some() || session.is_some();
    encoded.put(at::LISTED, listing);
    encoded.put(at::GROUPED, group);
    encoded.put(at::IN_SESSION, session);
    encoded.put(at::CREATED_ORDER, any.then(|| text(created)));
}

pub(super) fn decode(key: &Key, item: &Item) -> Result<Task, Unreadable> {
    if !item.contains_key(at::STATE) {
        return foreign::decode(key, item);
    }
    let mut spec: Spec = unpack(item, at::SPEC)?;
    let state: State = unpack(item, at::STATE)?;
    let prompt = || get_text(item, at::PROMPT).ok_or(Unreadable::Missing(at::PROMPT));
    spec.envelope.payload = match get_text(item, at::FORM) {
        Some(FORM_PROMPT) => payload_of_prompt(prompt()?),
        Some(FORM_TEXT) => Bytes::from(prompt()?.to_owned()),
        Some(FORM_BYTES | FORM_APART) => {
            let bytes = get_bytes(item, at::PAYLOAD).ok_or(Unreadable::Missing(at::PAYLOAD))?;
            Bytes::copy_from_slice(bytes)
        }
        _ => return Err(Unreadable::Missing(at::FORM)),
    };
    Ok(Task { spec: spec.into(), state })
}
