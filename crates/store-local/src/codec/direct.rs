//! States and specs, written field by field. They are encoded at every change of a task, and most of what `numbered.rs` does for
//! them is asking which field comes next. The bytes are the same, which a test holds.
//!
//! Each structure is taken apart by name, so that a new field does not compile before it is written here. What few tasks have
//! goes the general way, and so does a structure with fields that only a newer version understands.

use std::sync::Arc;

use ekiden_core::attempt::{Attempt, HistoryLine, Outcome, OutcomeCounts};
use ekiden_core::dependency::OnParentFailure;
use ekiden_core::id::{GroupId, OpId, SessionId, TaskId};
use ekiden_core::lane::Place;
use ekiden_core::lease::{Lease, Until};
use ekiden_core::newer::Versions;
use ekiden_core::pool::Policy;
use ekiden_core::task::{JSON, Origin, Spec, State, TaskEnvelope};
use ekiden_core::time::Timestamp;
use serde::Serialize;

use super::OURS;
use super::numbered::{List, put_len, put_numbered, put_str, put_uint};

/// Writes states and specs. It remembers the policy that it wrote last: nearly all tasks of a pool share one.
#[derive(Default)]
pub(crate) struct Pen {
    policy: Option<Written>,
}

/// A policy and its bytes.
struct Written {
    policy: Arc<Policy>,
    bytes: Vec<u8>,
    versions: Versions,
}

impl Pen {
    /// Appends a state, and says which versions what was appended has.
    #[must_use]
    pub(crate) fn state(&mut self, state: &State, into: &mut Vec<u8>) -> Versions {
        let result = state.result.as_deref().map(str::from_utf8).transpose();
        match result {
            Ok(result) if state.newer.is_none() => put_state(state, result, into),
            _ => put_numbered(state, into),
        }
    }

    /// Appends a spec without its payload, and says which versions what was appended has.
    #[must_use]
    pub(crate) fn spec(&mut self, spec: &Spec, into: &mut Vec<u8>) -> Versions {
        if spec.newer.is_none() { self.put_spec(spec, into) } else { put_numbered(spec, into) }
    }

    fn put_spec(&mut self, spec: &Spec, into: &mut Vec<u8>) -> Versions {
        let mut fields = Fields::new(into, spec_entries(spec));
        fields.text(0, spec.id.as_str());
        fields.text(1, spec.namespace.as_str());
        fields.text(2, spec.pool.as_str());
        fields.envelope(3, &spec.envelope);
        fields.time(4, spec.created_at);
        fields.int(5, spec.rank.0.into());
        self.policy(&mut fields, 6, &spec.policy);
        fields.optional_text(7, spec.title.as_deref());
        fields.optional_time(8, spec.run_at);
        fields.optional_time(9, spec.expires_at);
        fields.rare(10, spec.lane.as_ref());
        match spec.on_parent_failure {
            OnParentFailure::Block => fields.text(11, "block"),
            other => fields.general(11, &other),
        }
        fields.rare(12, spec.unique.as_ref());
        fields.optional_text(13, spec.group.as_ref().map(GroupId::as_str));
        fields.optional_text(14, spec.session.as_ref().map(SessionId::as_str));
        fields.rare(15, Some(&spec.labels).filter(|labels| !labels.is_empty()));
        fields.optional_text(16, spec.after_group.as_ref().map(GroupId::as_str));
        fields.optional_text(17, spec.retry_of.as_ref().map(TaskId::as_str));
        match spec.origin {
            Origin::Ours => fields.text(18, "ours"),
            Origin::Foreign => fields.general(18, &spec.origin),
        }
        fields.rare(19, spec.message.as_ref());
        fields.versions
    }

    fn policy(&mut self, fields: &mut Fields<'_>, place: u8, policy: &Arc<Policy>) {
        let known = self.policy.take().filter(|last| Arc::ptr_eq(&last.policy, policy) || last.policy == *policy);
        let last = self.policy.insert(known.unwrap_or_else(|| {
            let mut bytes = Vec::new();
            let versions = put_numbered(policy, &mut bytes);
            Written { policy: policy.clone(), bytes, versions }
        }));
        fields.into.push(place);
        fields.into.extend_from_slice(&last.bytes);
        fields.versions = fields.versions.with(last.versions);
    }
}

/// How many fields of a spec are written.
fn spec_entries(spec: &Spec) -> usize {
    let Spec {
        id: _,
        namespace: _,
        pool: _,
        envelope: _,
        created_at: _,
        rank: _,
        policy: _,
        title,
        run_at,
        expires_at,
        lane,
        on_parent_failure: _,
        unique,
        group,
        session,
        labels,
        after_group,
        retry_of,
        origin: _,
        message,
        newer: _,
    } = spec;
    9 + count([title.is_some(), run_at.is_some(), expires_at.is_some(), lane.is_some(), unique.is_some()])
        + count([group.is_some(), session.is_some(), !labels.is_empty(), after_group.is_some(), retry_of.is_some()])
        + usize::from(message.is_some())
}

/// How many fields of a state are written.
fn state_entries(state: &State) -> usize {
    let State {
        phase: _,
        attempts: _,
        execution_no: _,
        crashes: _,
        next_run_at: _,
        promoted: _,
        place: _,
        lease,
        late,
        waits_for,
        has_dependents: _,
        retried_as,
        question,
        answer,
        last_error,
        reason,
        result,
        progress,
        updated_at: _,
        started_at,
        finished_at,
        recent,
        outcomes: _,
        history,
        purge_after,
        reopened_at,
        newer: _,
    } = state;
    10 + count([lease.is_some(), late.is_some(), !waits_for.is_empty(), retried_as.is_some(), question.is_some()])
        + count([answer.is_some(), last_error.is_some(), reason.is_some(), result.is_some(), progress.is_some()])
        + count([started_at.is_some(), finished_at.is_some(), !recent.is_empty(), !history.is_empty()])
        + count([purge_after.is_some(), reopened_at.is_some()])
}

fn count<const N: usize>(there: [bool; N]) -> usize {
    there.into_iter().map(usize::from).sum()
}

/// A state without fields of a newer version, and its result as a text.
fn put_state(state: &State, result: Option<&str>, into: &mut Vec<u8>) -> Versions {
    let mut fields = Fields::new(into, state_entries(state));
    fields.word(0, state.phase as u8);
    fields.uint(1, state.attempts.into());
    fields.uint(2, state.execution_no);
    fields.uint(3, state.crashes.into());
    fields.time(4, state.next_run_at);
    fields.flag(5, state.promoted);
    match state.place {
        Place::None => fields.text(6, "none"),
        place => fields.general(6, &place),
    }
    if let Some(lease) = &state.lease {
        fields.lease(7, lease);
    }
    fields.rare(8, state.late.as_ref());
    fields.rare(9, Some(&state.waits_for).filter(|parents| !parents.is_empty()));
    fields.flag(10, state.has_dependents);
    fields.optional_text(11, state.retried_as.as_ref().map(TaskId::as_str));
    fields.rare(12, state.question.as_ref());
    fields.rare(13, state.answer.as_ref());
    fields.optional_text(14, state.last_error.as_deref());
    fields.rare(15, state.reason.as_ref());
    fields.optional_text(16, result);
    fields.rare(17, state.progress.as_ref());
    fields.time(18, state.updated_at);
    fields.optional_time(19, state.started_at);
    fields.optional_time(20, state.finished_at);
    fields.list(21, &state.recent, Fields::attempt);
    fields.outcomes(22, &state.outcomes);
    fields.list(23, &state.history, Fields::line);
    fields.optional_time(24, state.purge_after);
    fields.optional_time(25, state.reopened_at);
    fields.versions
}

/// A map whose keys are the places of fields.
struct Fields<'a> {
    into: &'a mut Vec<u8>,
    /// The highest versions of anything in it.
    versions: Versions,
}

impl<'a> Fields<'a> {
    fn new(into: &'a mut Vec<u8>, entries: usize) -> Self {
        let mut fields = Self { into, versions: OURS };
        fields.len(entries, List::Map);
        fields
    }

    #[inline]
    fn len(&mut self, items: usize, list: List) {
        put_len(self.into, items, list).expect("no task has four thousand million of anything");
    }

    /// A word that is a number.
    #[inline]
    fn word(&mut self, place: u8, number: u8) {
        self.uint(place, number.into());
    }

    #[inline]
    fn flag(&mut self, place: u8, is: bool) {
        self.into.extend_from_slice(&[place, 0xc2 | u8::from(is)]);
    }

    #[inline]
    fn uint(&mut self, place: u8, value: u64) {
        match u8::try_from(value) {
            Ok(value @ 0..0x80) => self.into.extend_from_slice(&[place, value]),
            _ => {
                self.into.push(place);
                put_uint(self.into, value);
            }
        }
    }

    #[inline]
    fn int(&mut self, place: u8, value: i64) {
        match u64::try_from(value) {
            Ok(value) => self.uint(place, value),
            Err(_) => self.general(place, &value),
        }
    }

    #[inline]
    fn time(&mut self, place: u8, at: Timestamp) {
        let millis = at.as_millis();
        // All of this century but its first weeks take eight bytes.
        if millis > u32::MAX.into() {
            let [a, b, c, d, e, f, g, h] = millis.to_be_bytes();
            self.into.extend_from_slice(&[place, 0xcf, a, b, c, d, e, f, g, h]);
        } else {
            self.int(place, millis);
        }
    }

    #[inline]
    fn optional_time(&mut self, place: u8, at: Option<Timestamp>) {
        if let Some(at) = at {
            self.time(place, at);
        }
    }

    #[inline]
    fn text(&mut self, place: u8, text: &str) {
        self.into.push(place);
        self.just_text(text);
    }

    #[inline]
    fn just_text(&mut self, text: &str) {
        put_str(self.into, text).expect("no text of a task has four gigabytes");
    }

    #[inline]
    fn optional_text(&mut self, place: u8, text: Option<&str>) {
        if let Some(text) = text {
            self.text(place, text);
        }
    }

    /// A field of any shape.
    fn general(&mut self, place: u8, value: &impl Serialize) {
        self.into.push(place);
        self.just(value);
    }

    /// A value of any shape.
    fn just(&mut self, value: &impl Serialize) {
        self.versions = self.versions.with(put_numbered(value, self.into));
    }

    /// A field that few tasks have.
    #[inline]
    fn rare(&mut self, place: u8, value: Option<&impl Serialize>) {
        if let Some(value) = value {
            self.general(place, value);
        }
    }

    /// A list that is left out when it is empty.
    #[inline]
    fn list<T>(&mut self, place: u8, items: &[T], put: impl Fn(&mut Self, &T)) {
        if items.is_empty() {
            return;
        }
        self.into.push(place);
        self.len(items.len(), List::Array);
        for item in items {
            put(self, item);
        }
    }

    fn envelope(&mut self, place: u8, envelope: &TaskEnvelope) {
        let TaskEnvelope { task_type, payload: _, content_type, newer } = envelope;
        if !newer.is_none() {
            return self.general(place, envelope);
        }
        let other_type = Some(content_type.as_ref()).filter(|content_type| *content_type != JSON);
        self.into.push(place);
        self.len(2 + usize::from(other_type.is_some()), List::Map);
        self.text(0, task_type.as_str());
        // The payload stands apart.
        self.text(1, "");
        self.optional_text(2, other_type);
    }

    fn lease(&mut self, place: u8, lease: &Lease) {
        let Lease { holder, claim, token, until, counted, newer } = lease;
        if !newer.is_none() {
            return self.general(place, lease);
        }
        self.into.push(place);
        self.len(4 + usize::from(*counted), List::Map);
        self.text(0, holder.as_str());
        self.op(1, *claim);
        self.uint(2, token.0);
        match until {
            Until::Heartbeat => self.text(3, "heartbeat"),
            until => self.general(3, until),
        }
        if *counted {
            self.flag(4, true);
        }
    }

    fn op(&mut self, place: u8, op: OpId) {
        self.into.extend_from_slice(&[place, 0xc4, 16]);
        self.into.extend_from_slice(&op.as_bits().to_be_bytes());
    }

    fn attempt(&mut self, attempt: &Attempt) {
        let Attempt { execution_no, runner, started_at, finished_at, outcome, error, stage, newer } = attempt;
        if !newer.is_none() {
            return self.just(attempt);
        }
        let optional = [finished_at.is_some(), outcome.is_some(), error.is_some(), stage.is_some()];
        self.len(3 + count(optional), List::Map);
        self.uint(0, *execution_no);
        self.text(1, runner.as_str());
        self.time(2, *started_at);
        self.optional_time(3, *finished_at);
        if let Some(outcome) = outcome {
            self.word(4, *outcome as u8);
        }
        self.optional_text(5, error.as_deref());
        self.rare(6, stage.as_ref());
    }

    fn line(&mut self, line: &HistoryLine) {
        let HistoryLine { at, event, phase, execution_no, note, newer } = line;
        if !newer.is_none() {
            return self.just(line);
        }
        let (millis, number) = (at.as_millis(), u8::try_from(*execution_no));
        // Nearly every line looks like this, and lines are most of a state.
        if let (None, Ok(number @ 0..0x80)) = (note, number)
            && millis > u32::MAX.into()
        {
            let [a, b, c, d, e, f, g, h] = millis.to_be_bytes();
            let line = [0x84, 0, 0xcf, a, b, c, d, e, f, g, h, 1, *event as u8, 2, *phase as u8, 3, number];
            return self.into.extend_from_slice(&line);
        }
        self.len(4 + usize::from(note.is_some()), List::Map);
        self.time(0, *at);
        self.word(1, *event as u8);
        self.word(2, *phase as u8);
        self.uint(3, *execution_no);
        self.optional_text(4, note.as_deref());
    }

    /// How often attempts ended in each way, by name; what never happened is left out.
    fn outcomes(&mut self, place: u8, outcomes: &OutcomeCounts) {
        let head = self.into.len() + 1;
        self.into.extend_from_slice(&[place, 0x80]);
        for outcome in Outcome::ALL {
            let count = outcomes.get(*outcome);
            if count > 0 {
                self.just_text(outcome.as_str());
                put_uint(self.into, count.into());
                // There are fewer than sixteen, which the four lower bits hold.
                if let Some(entries) = self.into.get_mut(head) {
                    *entries += 1;
                }
            }
        }
    }
}
