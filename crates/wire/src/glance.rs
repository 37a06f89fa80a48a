//! Requests that every task is sent in, as nearly everybody writes them, read at a glance: plain strings, plain numbers, each
//! name once. Whatever looks different in any way is left to serde, which reads all of JSON and says what is wrong.

use std::collections::BTreeMap;

use ekiden_core::dependency::OnParentFailure;
use ekiden_core::id::{Kind, OpId, PoolName, RunnerId, TaskId};
use ekiden_core::limits;
use serde::Deserialize;
use serde::de::value::{BorrowedStrDeserializer, Error};
use serde_json::value::RawValue;

use crate::bounded::{BATCH_TASKS_MAX, SETTLEMENTS_MAX};
use crate::content::Encoding;
use crate::lease::{Claim, Settle, Settlement, Verdict};
use crate::spec::{NewTask, Wishes};
use crate::task::EnqueueBatch;

/// What can be read at a glance.
pub trait Glance: Sized {
    /// The same that serde would read, or nothing where it takes a closer look.
    fn glance(text: &str) -> Option<Self> {
        let mut scan = Scan { text, at: 0, kind: None };
        let read = Self::scan(&mut scan)?;
        scan.space();
        (scan.at == text.len()).then_some(read)
    }

    #[doc(hidden)]
    fn scan(scan: &mut Scan<'_>) -> Option<Self>;
}

impl Glance for Settle {
    fn scan(scan: &mut Scan<'_>) -> Option<Self> {
        let (mut settlements, mut claim) = (None, None);
        scan.object(|scan, name| match name {
            "settlements" => fill(&mut settlements, scan.list(SETTLEMENTS_MAX, Settlement::scan)?),
            "claim" => fill(&mut claim, Claim::scan(scan)?),
            _ => None,
        })?;
        Some(Self { settlements: settlements.unwrap_or_default(), claim })
    }
}

impl Glance for Settlement {
    fn scan(scan: &mut Scan<'_>) -> Option<Self> {
        let (mut id, mut task_id, mut token, mut verdict) = (None, None, None, None);
        scan.object(|scan, name| match name {
            "id" => fill(&mut id, op_id(scan.string()?)?),
            "task_id" => fill(&mut task_id, TaskId::new(scan.string()?).ok()?),
            "token" => fill(&mut token, scan.number()?),
            "verdict" => fill(&mut verdict, Verdict::scan(scan)?),
            _ => None,
        })?;
        Some(Self { id, task_id: task_id?, token: token?, verdict: verdict? })
    }
}

/// Only a success has anything to be quick about.
impl Glance for Verdict {
    fn scan(scan: &mut Scan<'_>) -> Option<Self> {
        let (mut outcome, mut result) = (None, None);
        scan.object(|scan, name| match name {
            "outcome" => fill(&mut outcome, scan.string().filter(|name| *name == "succeeded")?),
            "result" => fill(&mut result, scan.raw()?),
            _ => None,
        })?;
        outcome.map(|_| Self::Succeeded { result, result_encoding: Encoding::Json })
    }
}

impl Glance for Claim {
    fn scan(scan: &mut Scan<'_>) -> Option<Self> {
        let (mut id, mut runner, mut pools, mut task_types) = (None, None, None, None);
        let (mut limit, mut wait_ms) = (None, None);
        scan.object(|scan, name| match name {
            "id" => fill(&mut id, op_id(scan.string()?)?),
            "runner" => fill(&mut runner, RunnerId::new(scan.string()?).ok()?),
            "pools" => fill(&mut pools, scan.list(limits::CLAIM_POOLS_MAX, |scan| PoolName::new(scan.string()?).ok())?),
            "task_types" => {
                fill(&mut task_types, scan.list(limits::CLAIM_KINDS_MAX, |scan| Kind::new(scan.string()?).ok())?)
            }
            "limit" => fill(&mut limit, usize::try_from(scan.number()?).ok()?),
            "wait_ms" => fill(&mut wait_ms, scan.number()?),
            _ => None,
        })?;
        let (limit, wait_ms) = (limit.unwrap_or(1), wait_ms.unwrap_or(0));
        Some(Self { id, runner: runner?, pools, task_types: task_types?, limit, wait_ms })
    }
}

impl Glance for EnqueueBatch {
    fn scan(scan: &mut Scan<'_>) -> Option<Self> {
        let mut tasks = None;
        scan.object(|scan, name| match name {
            "tasks" => fill(&mut tasks, scan.list(BATCH_TASKS_MAX, NewTask::scan)?),
            _ => None,
        })?;
        Some(Self { tasks: tasks? })
    }
}

impl Glance for NewTask {
    fn scan(scan: &mut Scan<'_>) -> Option<Self> {
        let (mut id, mut op, mut task_type, mut pool, mut payload) = (None, None, None, None, None);
        scan.object(|scan, name| match name {
            "id" => fill(&mut id, TaskId::new(scan.string()?).ok()?),
            "op_id" => fill(&mut op, op_id(scan.string()?)?),
            "task_type" => fill(&mut task_type, scan.kind()?),
            "pool" => fill(&mut pool, PoolName::new(scan.string()?).ok()?),
            "payload" => fill(&mut payload, scan.raw()?),
            _ => None,
        })?;
        Some(Self {
            id,
            op_id: op,
            task_type: task_type?,
            payload,
            payload_encoding: Encoding::Json,
            content_type: None,
            pool,
            title: None,
            delay_ms: None,
            run_at: None,
            expires_after_ms: None,
            held: false,
            priority: 0,
            lane: None,
            unique: None,
            idempotency_key: None,
            depends_on: Vec::new(),
            after_group: None,
            on_parent_failure: OnParentFailure::Block,
            group: None,
            session: None,
            labels: BTreeMap::new(),
            policy: Wishes::default(),
        })
    }
}

/// 96 bytes: hardly an item of a list is shorter.
const ITEM_BYTES: usize = 96;

/// 64 items: longer lists may grow.
const ITEMS_AT_ONCE: usize = 64;

/// A name that stands there twice is a mistake, which serde tells.
fn fill<T>(place: &mut Option<T>, value: T) -> Option<()> {
    let is_first = place.is_none();
    *place = Some(value);
    is_first.then_some(())
}

fn op_id(text: &str) -> Option<OpId> {
    OpId::deserialize(BorrowedStrDeserializer::<Error>::new(text)).ok()
}

/// A place in a document.
#[derive(Debug)]
pub struct Scan<'a> {
    text: &'a str,
    at: usize,
    /// The kind that was read last: tasks that come together are mostly of one, and share it.
    kind: Option<Kind>,
}

impl<'a> Scan<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> Option<&'a str> {
        self.text.get(self.at..)
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// The next byte that is no space.
    fn next(&mut self) -> Option<u8> {
        self.space();
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    /// A string without anything escaped.
    fn string(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let rest = self.rest()?;
        // Names and ids are short: one byte after the other takes fewer instructions than a search and a second look.
        let end = rest.bytes().position(|byte| byte < 0x20 || matches!(byte, b'"' | b'\\'))?;
        self.at += end + 1;
        (rest.as_bytes().get(end) == Some(&b'"')).then(|| rest.get(..end))?
    }

    fn kind(&mut self) -> Option<Kind> {
        let name = self.string()?;
        match &self.kind {
            Some(last) if last.as_str() == name => Some(last.clone()),
            _ => {
                self.kind = Kind::new(name).ok();
                self.kind.clone()
            }
        }
    }

    /// A number without sign, point and exponent.
    fn number(&mut self) -> Option<u64> {
        self.space();
        let rest = self.rest()?;
        let end = rest.bytes().position(|byte| !byte.is_ascii_digit())?;
        let digits = rest.get(..end)?;
        let is_plain = matches!(rest.as_bytes().get(end), Some(b',' | b'}' | b' '));
        if !is_plain || (end > 1 && digits.starts_with('0')) {
            return None;
        }
        self.at += end;
        digits.parse().ok()
    }

    /// Any value, as it stands there.
    fn raw(&mut self) -> Option<Box<RawValue>> {
        self.space();
        let mut values = serde_json::Deserializer::from_str(self.rest()?).into_iter::<&RawValue>();
        let value = values.next()?.ok()?.to_owned();
        self.at += values.byte_offset();
        Some(value)
    }

    fn object(&mut self, mut field: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        self.expect(b'{')?;
        loop {
            let name = self.string()?;
            self.expect(b':')?;
            field(self, name)?;
            match self.next()? {
                b',' => {}
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    /// A list of at most so many items; what to say of a longer one is left to serde.
    fn list<T>(&mut self, most: usize, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        self.expect(b'[')?;
        // A list that grows step by step moves what it has, and tasks are large.
        let room = (self.text.len() - self.at) / ITEM_BYTES;
        let mut items = Vec::with_capacity(room.clamp(1, ITEMS_AT_ONCE));
        self.space();
        if self.peek()? == b']' {
            self.at += 1;
            return Some(items);
        }
        loop {
            if items.len() == most {
                return None;
            }
            items.push(item(self)?);
            match self.next()? {
                b',' => {}
                b']' => return Some(items),
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use serde::de::DeserializeOwned;

    use super::*;

    const TASK: &str = r#"{"id":"task-1","op_id":"0192aaaa-0000-7000-8000-000000000001","task_type":"受","pool":"p","payload": {"a":[1.50,null]} }"#;

    fn settle() -> String {
        let settlement = r#"{"task_id":"t","token":170,"verdict":{"outcome":"succeeded"}}"#;
        let returned = r#"{"id":"0192aaaa-0000-7000-8000-000000000001","task_id":"t","token":0,"verdict":{"outcome":"succeeded","result":[1]}}"#;
        let claim = r#"{"runner":"r","pools":["p","q"],"task_types":["job"],"limit":32,"wait_ms":1000}"#;
        format!(r#"{{"settlements":[{settlement}, {returned}],"claim":{claim}}}"#)
    }

    /// Every document that differs in one byte from this one is read as serde reads it, if it is read at all.
    fn agrees<T: Glance + DeserializeOwned + Debug>(text: &str) {
        assert!(T::glance(text).is_some(), "{text}");
        for at in 0..text.len() {
            for byte in br#" "\{}[]:,0179-.eantu"#.iter().chain(&[0x0a, 0x00, 0x7f]) {
                let mut other = text.as_bytes().to_vec();
                other[at] = *byte;
                compare::<T>(&other);
                other.insert(at, *byte);
                compare::<T>(&other);
                other.truncate(at);
                compare::<T>(&other);
            }
        }
    }

    fn compare<T: Glance + DeserializeOwned + Debug>(bytes: &[u8]) {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        if let Some(glanced) = T::glance(text) {
            let read: T = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(format!("{glanced:?}"), format!("{read:?}"), "{text}");
        }
    }

    #[test]
    fn what_is_read_at_a_glance_is_what_serde_reads() {
        agrees::<NewTask>(TASK);
        agrees::<EnqueueBatch>(&format!(r#"{{"tasks":[{TASK},{{"task_type":"b"}}]}}"#));
        agrees::<Settle>(&settle());
        agrees::<Settle>(r#"{"settlements":[]}"#);
    }

    #[test]
    fn what_looks_different_is_left_to_serde() {
        for text in [
            r#"{"task_type":"a\n"}"#,
            r#"{"task_type":"a","task_type":"a"}"#,
            r#"{"task_type":"a","title":"t"}"#,
            r#"{"task_type":"a","pool":null}"#,
            r#"{"task_type":"a","payload":nul}"#,
            r#"{"task_type":"a"} x"#,
            r#"{"task_type":""}"#,
            "{}",
        ] {
            assert!(NewTask::glance(text).is_none(), "{text}");
        }
        let failed = r#"{"settlements":[{"task_id":"t","token":1,"verdict":{"outcome":"failed","error":"e"}}]}"#;
        assert!(Settle::glance(failed).is_none());
    }
}
