//! Answers that every task has its part in, written without serde's steps from field to field. The bytes are the same; what
//! few tasks have is left to serde.

use ekiden_core::dependency::OnParentFailure;
use ekiden_core::id::TaskId;
use ekiden_core::order::Rank;
use ekiden_core::task::{JSON, Phase, QuestionAnswer, Spec};
use ekiden_core::time::Timestamp;
use serde::Serialize;

use crate::content;
use crate::pool::Policy;
use crate::spec;
use crate::task::AnswerGiven;

/// JSON that is being written.
#[derive(Debug)]
pub struct Text(Vec<u8>);

impl Text {
    /// With room for this many bytes.
    pub fn with_room(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// Makes room for this many bytes more.
    pub fn make_room(&mut self, bytes: usize) {
        self.0.reserve(bytes);
    }

    /// What was written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Adds what is JSON already.
    pub fn plain(&mut self, json: &str) {
        self.0.extend_from_slice(json.as_bytes());
    }

    /// Adds a value.
    pub fn value<T: Serialize>(&mut self, value: &T) {
        serde_json::to_writer(&mut self.0, value).expect("what goes over the wire has names that are text");
    }

    /// Adds a list.
    pub fn list<I: IntoIterator>(&mut self, items: I, mut item: impl FnMut(&mut Self, I::Item)) {
        self.plain("[");
        for (at, one) in items.into_iter().enumerate() {
            if at > 0 {
                self.plain(",");
            }
            item(self, one);
        }
        self.plain("]");
    }

    /// Adds what came of an enqueue: an `Enqueued`.
    pub fn enqueued(&mut self, id: &TaskId, is_new: bool) {
        self.plain(r#"{"id":"#);
        self.string(id.as_str());
        self.plain(if is_new { r#","is_new":true}"# } else { r#","is_new":false}"# });
    }

    /// Adds what came of a settlement: a `Settled`.
    pub fn settled(&mut self, state: Phase, next_run_at: Option<Timestamp>) {
        self.plain(r#"{"state":"#);
        self.string(state.as_str());
        if let Some(moment) = next_run_at {
            self.plain(r#","next_run_at":"#);
            self.moment(moment);
        }
        self.plain("}");
    }

    /// Adds a task with its lease: a `LeasedTask`.
    pub fn leased(&mut self, token: u64, attempts: u32, answer: Option<&QuestionAnswer>, spec: &Spec) {
        self.plain(r#"{"token":"#);
        self.value(&token);
        self.plain(r#","attempts":"#);
        self.value(&attempts);
        if let Some(answer) = answer {
            self.plain(r#","answer":"#);
            self.value(&AnswerGiven::from(answer.clone()));
        }
        self.plain(r#","task":"#);
        match content::as_json(&spec.envelope.payload) {
            Some(payload) if is_plain(spec) => self.spec(spec, payload),
            _ => self.value(&spec::Spec::from(spec)),
        }
        self.plain("}");
    }

    fn spec(&mut self, spec: &Spec, payload: &str) {
        self.plain(r#"{"id":"#);
        self.string(spec.id.as_str());
        self.plain(r#","pool":"#);
        self.string(spec.pool.as_str());
        self.plain(r#","task_type":"#);
        self.string(spec.envelope.task_type.as_str());
        self.plain(r#","payload":"#);
        self.plain(payload);
        self.plain(r#","created_at":"#);
        self.moment(spec.created_at);
        self.plain("}");
    }

    fn string(&mut self, text: &str) {
        if has_escapes(text) {
            return self.value(&text);
        }
        self.plain("\"");
        self.plain(text);
        self.plain("\"");
    }

    fn moment(&mut self, moment: Timestamp) {
        self.plain("\"");
        self.0.extend_from_slice(&digits(moment));
        self.plain("\"");
    }
}

/// Whether a text stands otherwise in a string of JSON. To its end, whatever is found: that goes many bytes at a time.
fn has_escapes(text: &str) -> bool {
    text.bytes().fold(false, |found, byte| found | (byte < 0x20) | (byte == b'"') | (byte == b'\\'))
}

/// Whether a task has nothing but what every task has. Each field of a spec is named here, so that a new one is thought of.
fn is_plain(spec: &Spec) -> bool {
    let Spec {
        id: _,
        namespace: _,
        pool: _,
        envelope,
        created_at: _,
        rank,
        policy,
        title: None,
        run_at: None,
        expires_at: None,
        lane: None,
        on_parent_failure: OnParentFailure::Block,
        unique: None,
        group: None,
        session: None,
        labels,
        after_group: None,
        retry_of: None,
        origin: _,
        message: _,
        newer: _,
    } = spec
    else {
        return false;
    };
    *rank == Rank(0) && labels.is_empty() && *envelope.content_type == *JSON && Policy::from(&**policy).is_usual()
}

/// A moment, as it is shown. Moments have four digits of year by construction.
fn digits(moment: Timestamp) -> [u8; 24] {
    let millis = moment.as_millis().unsigned_abs();
    let (days, of_day) = (millis / 86_400_000, millis % 86_400_000);
    // Years that begin in March have their odd day at the end, and 400 of them have 146,097 days. From 0000-03-01 on, which
    // was 719,468 days before 1970.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);

    let mut text = *b"0000-00-00T00:00:00.000Z";
    let parts = [
        (year, 3),
        (month, 6),
        (day, 9),
        (of_day / 3_600_000, 12),
        (of_day / 60_000 % 60, 15),
        (of_day / 1_000 % 60, 18),
        (of_day % 1_000, 22),
    ];
    for (mut number, mut at) in parts {
        while let Some(place) = text.get_mut(at).filter(|_| number > 0) {
            *place = b'0' + u8::try_from(number % 10).unwrap_or(0);
            number /= 10;
            at = at.wrapping_sub(1);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use ekiden_core::id::{Kind, Namespace, PoolName};
    use ekiden_core::task::TaskEnvelope;

    use super::*;
    use crate::lease::{LeasedTask, Settled};
    use crate::task::Enqueued;

    fn written(write: impl FnOnce(&mut Text)) -> String {
        let mut text = Text::with_room(0);
        write(&mut text);
        String::from_utf8(text.into_bytes()).unwrap()
    }

    #[test]
    fn moments_are_shown_as_core_shows_them() {
        let day = 86_400_000;
        for at in
            (0..200_000).map(|at| at * 7 * day / 5 + at * 977).chain([1, 951_782_400_000, Timestamp::MAX.as_millis()])
        {
            let moment = Timestamp::from_millis(at);
            assert_eq!(std::str::from_utf8(&digits(moment)).unwrap(), moment.to_string());
        }
    }

    #[test]
    fn what_is_written_is_what_serde_writes() {
        let id = |text: &str| TaskId::new(text).unwrap();
        for name in ["task-1", "受信箱 \"#\\1"] {
            let enqueued = Enqueued { id: id(name), is_new: name == "task-1" };
            let text = written(|text| text.enqueued(&enqueued.id, enqueued.is_new));
            assert_eq!(text, serde_json::to_string(&enqueued).unwrap());
        }
        for next_run_at in [None, Some(Timestamp::from_millis(1_794_744_000_001))] {
            let settled = Settled { state: Phase::Succeeded, next_run_at };
            let text = written(|text| text.settled(settled.state, next_run_at));
            assert_eq!(text, serde_json::to_string(&settled).unwrap());
        }
    }

    #[test]
    fn leases_are_written_as_serde_writes_them() {
        let policy: ekiden_core::pool::Policy = Policy::default().into();
        let plain = |payload: &'static str| {
            let envelope = TaskEnvelope::json(Kind::new("job \"x\"").unwrap(), Bytes::from_static(payload.as_bytes()));
            let (namespace, pool) = (Namespace::new("default").unwrap(), PoolName::new("p").unwrap());
            let moment = Timestamp::from_millis(1_794_744_000_123);
            Spec::new(namespace, pool, TaskId::new("task-1").unwrap(), envelope, Arc::new(policy.clone()), moment)
        };
        let json = plain(r#"{"a": [1.50, "x"]}"#);
        let mut unusual = policy.clone();
        unusual.attempts_max += 1;
        let specs = [
            Spec { title: Some("t".into()), ..json.clone() },
            Spec { rank: Rank(-3), ..json.clone() },
            Spec { run_at: Some(Timestamp::ZERO), ..json.clone() },
            Spec { labels: [("a".into(), "b".into())].into(), ..json.clone() },
            Spec { on_parent_failure: OnParentFailure::Run, ..json.clone() },
            Spec { retry_of: Some(TaskId::new("other").unwrap()), ..json.clone() },
            Spec { policy: Arc::new(unusual), ..json.clone() },
            plain(" 1"),
            plain("no json"),
            json,
        ];
        for spec in specs {
            let leased = LeasedTask { token: 7, attempts: 2, answer: None, task: (&spec).into() };
            let text = written(|text| text.leased(7, 2, None, &spec));
            assert_eq!(text, serde_json::to_string(&leased).unwrap());
        }
    }
}
