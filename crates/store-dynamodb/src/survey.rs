//! What a check looks for beyond single items: tables of an older layout, clocks that disagree, lines that take more than one part
//! can, counts that drifted, payloads without a task, and tasks that a silent program of others holds.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_dynamodb::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use ekiden_core::id::{Namespace, PoolName, RunnerId};
use ekiden_core::key::{Key, RecordKind, SEPARATOR};
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::Record;
use ekiden_core::task::Phase;
use ekiden_core::time::{Millis, Timestamp};
use ekiden_store::{CheckDepth, Finding, StoreError};

use crate::client::Range;
use crate::codec::{self, Item, attributes as at, get_number, get_text, number, places, text};
use crate::counts;
use crate::error;
use crate::expression::{Change, Effect, Words};
use crate::payloads;
use crate::shared::{Shared, lock};
use crate::tables::PLACE_INDEX;

/// Five seconds: clocks that differ by less are as good as one for everything that people read.
const SKEW_MAX: Millis = Millis::from_secs(5);

/// 500 tasks within a second: each is written to its line's part twice, and a part takes 1,000 writes a second.
const HOT_TASKS: usize = 500;

/// See [`HOT_TASKS`].
const HOT_SPAN: Millis = Millis::from_secs(1);

/// Seven seconds between two counts: longer than any difference is on its way.
const BETWEEN_COUNTS: Duration = Duration::from_secs(7);

/// 50 ms between two pages of a count, so that it leaves the table to those who work.
const PAGE_PAUSE: Duration = Duration::from_millis(50);

/// A number that is kept: the namespace, the pool and the phase of the tasks that it counts.
type Cell = (Namespace, PoolName, Phase);

/// What a walk through all tasks saw.
#[derive(Default)]
struct Census {
    counts: HashMap<Cell, i64>,
    /// Items that a foreign runner runs.
    foreign: Vec<(Key, RunnerId)>,
}

impl Census {
    /// Takes note of a task.
    fn note(&mut self, key: &Key, item: &Item) {
        let Some(revision) = codec::counted(key, item) else { return };
        if !item.contains_key(at::STATE) {
            let claimer = get_text(item, at::CLAIMED_BY).and_then(|text| RunnerId::new(text).ok());
            let running = get_text(item, at::STATUS) == Some("RUNNING");
            self.foreign.extend(claimer.filter(|_| running).map(|claimer| (key.clone(), claimer)));
            return;
        }
        let counted = codec::Guard::parse(RecordKind::Task, &revision).and_then(|guard| guard.counted);
        if let Some((pool, phase)) = counted {
            *self.counts.entry((key.namespace.clone(), pool, phase)).or_default() += 1;
        }
    }
}

/// Reads the service's own clock off an answer.
#[derive(Clone, Debug, Default)]
struct Dated(Arc<Mutex<Option<String>>>);

impl Intercept for Dated {
    fn name(&self) -> &'static str {
        "Dated"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        *lock(&self.0) = context.response().headers().get("date").map(str::to_owned);
        Ok(())
    }
}

impl Shared {
    /// Everything of this file. Nothing of it is damage: what is found costs money, room or a person's time, and no task.
    pub(crate) async fn survey(&self, depth: CheckDepth) -> Result<Vec<Finding>, StoreError> {
        let mut findings = Vec::new();
        self.survey_quickly(&mut findings).await?;
        if depth == CheckDepth::Full {
            // Differences of this process that are on their way would look like drift.
            self.flush_counts().await?;
            let census = self.census().await?;
            self.compare(&census, &mut findings).await?;
            let mut after = None;
            loop {
                let (items, next) = self.scan(&self.names.ekiden, after).await?;
                for item in &items {
                    self.check_payload(item, &mut findings).await?;
                }
                after = next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(findings)
    }

    /// What costs little: a list of tables, the service's clock, the heads of lines, runners.
    async fn survey_quickly(&self, findings: &mut Vec<Finding>) -> Result<(), StoreError> {
        self.old_tables(findings).await?;
        let mut after = None;
        loop {
            let page = self.namespaces(after, ekiden_core::limits::PAGE_ITEMS_MAX).await?;
            for namespace in &page.items {
                self.hot_lines(namespace, findings).await?;
                self.runners_ahead(namespace, findings).await?;
            }
            after = page.items.last().cloned();
            if page.cursor.is_none() || after.is_none() {
                return Ok(());
            }
        }
    }

    /// Q13: tables of the layout before this one are left alone and reported. The same request tells the service's time.
    async fn old_tables(&self, findings: &mut Vec<Finding>) -> Result<(), StoreError> {
        let old = format!("{}-", self.names.queue);
        let dated = Dated::default();
        let mut after: Option<String> = None;
        loop {
            let list = self.client.list_tables().set_exclusive_start_table_name(after);
            let sent = self.clock.now();
            let page = list.customize().interceptor(dated.clone()).send().await;
            let page = page.map_err(|error| StoreError::from(error::of_read(error)))?;
            if let Some(finding) = self.skew(lock(&dated.0).take().as_deref(), sent) {
                findings.retain(|known| known.code != finding.code);
                findings.push(finding);
            }
            for name in page.table_names.unwrap_or_default().into_iter().filter(|name| name.starts_with(&old)) {
                let what = format!("table {name} is of the layout with a table for each namespace; nothing reads it");
                findings.push(Finding { code: ReasonCode::TableOld, key: None, what });
            }
            after = page.last_evaluated_table_name;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    fn skew(&self, date: Option<&str>, sent: Timestamp) -> Option<Finding> {
        let date = DateTime::from_str(date?, DateTimeFormat::HttpDate).ok()?;
        let theirs = Timestamp::from_millis(date.to_millis().ok()?);
        let now = self.clock.now();
        // The service says whole seconds, and its answer took its time.
        let (ahead, behind) = (sent.since(theirs + Millis::from_secs(1)), theirs.since(now));
        let by = ahead.max(behind);
        (by > SKEW_MAX).then(|| {
            let word = if ahead > behind { "ahead of" } else { "behind" };
            let what = format!("the clock of this machine is {} ms {word} the service's", by.as_u64());
            Finding { code: ReasonCode::ClockSkewed, key: None, what }
        })
    }

    /// Runners whose last beat lies in the future of this machine.
    async fn runners_ahead(&self, namespace: &Namespace, findings: &mut Vec<Finding>) -> Result<(), StoreError> {
        let now = self.clock.now();
        let range = self.names_of(RecordKind::Runner, namespace, "");
        for item in self.query(&range, ekiden_core::limits::RUNNERS_MAX).await? {
            let Some(key) = codec::parse_key(RecordKind::Runner, &item) else { continue };
            let Record::Runner(runner) = self.read(key.clone(), &item)?.record else { continue };
            let ahead = runner.last_heartbeat.since(now);
            if ahead > SKEW_MAX {
                let what =
                    format!("the clock of runner {} is {} ms ahead of this machine's", runner.id, ahead.as_u64());
                findings.push(Finding { code: ReasonCode::ClockSkewed, key: Some(key), what });
            }
        }
        Ok(())
    }

    /// Parts of lines whose newest tasks came faster than one key of an index takes.
    async fn hot_lines(&self, namespace: &Namespace, findings: &mut Vec<Finding>) -> Result<(), StoreError> {
        for ((pool, kind), parts) in self.lines_of(namespace).await? {
            for part in 0..parts {
                let place = places::ready(namespace, &pool, &kind, part);
                let range = Range::of(&self.names.queue, Some(PLACE_INDEX), at::PLACE, text(place));
                let newest = self.query(&Range { forward: false, ..range }, HOT_TASKS).await?;
                let moments: Vec<Timestamp> = newest.iter().filter_map(created_at).collect();
                let (Some(first), Some(last)) = (moments.iter().min(), moments.iter().max()) else { continue };
                if newest.len() == HOT_TASKS && last.since(*first) < HOT_SPAN {
                    let what = format!(
                        "part {part} of line {pool}/{kind} in {namespace} took {HOT_TASKS} tasks within a second; \
                         it has {parts} parts, give it more with shards={}",
                        (parts * 2).min(64)
                    );
                    findings.push(Finding { code: ReasonCode::LineHot, key: None, what });
                }
            }
        }
        Ok(())
    }

    /// Compares the numbers that are kept with what was counted, and looks at what foreign runners hold.
    async fn compare(&self, census: &Census, findings: &mut Vec<Finding>) -> Result<(), StoreError> {
        for ((namespace, pool, phase), (kept, counted)) in self.drift(census).await? {
            let what = format!("{pool} in {namespace} counts {kept} tasks as {phase}, there are {counted}");
            findings.push(Finding { code: ReasonCode::CountsDrifted, key: None, what });
        }
        let now = self.clock.now();
        for (key, claimer) in &census.foreign {
            let runner = Key::runner(&key.namespace, claimer);
            let found = self.get_raw(std::slice::from_ref(&runner)).await?.pop().flatten();
            let alive = found.as_ref().and_then(|found| found.record.as_runner().map(|runner| runner.is_alive(now)));
            if alive != Some(true) {
                let what = format!("another program's runner {claimer} is silent and never ended it");
                findings.push(Finding { code: ReasonCode::ForeignRunnerSilent, key: Some(key.clone()), what });
            }
        }
        Ok(())
    }

    async fn drift(&self, census: &Census) -> Result<BTreeMap<Cell, (i64, i64)>, StoreError> {
        let mut kept: HashMap<Cell, i64> = HashMap::new();
        let mut after = None;
        loop {
            let (items, next) = self.scan(&self.names.ekiden, after).await?;
            kept.extend(items.iter().filter_map(cell));
            after = next;
            if after.is_none() {
                break;
            }
        }
        let mut drift = BTreeMap::new();
        for cell in kept.keys().chain(census.counts.keys()) {
            let number = |of: &HashMap<Cell, i64>| of.get(cell).copied().unwrap_or(0);
            let (kept, counted) = (number(&kept), number(&census.counts));
            if kept != counted {
                drift.insert(cell.clone(), (kept, counted));
            }
        }
        Ok(drift)
    }

    /// Repairs counts: a difference that two counts agree on, some seconds apart, is drift; what is in motion differs. Says how many
    /// numbers were wrong.
    pub(crate) async fn recount(&self) -> Result<u64, StoreError> {
        self.flush_counts().await?;
        let first = self.drift(&self.census().await?).await?;
        if first.is_empty() {
            return Ok(0);
        }
        tokio::time::sleep(BETWEEN_COUNTS).await;
        let second = self.drift(&self.census().await?).await?;
        let mut repaired = 0;
        for (cell, (kept, counted)) in second {
            let by = counted - kept;
            if first.get(&cell).is_some_and(|(kept, counted)| counted - kept == by) {
                let mut words = Words::default();
                let (name, value) = (words.name(at::COUNT), words.value(number(by)));
                let effect = Effect::Update(format!("ADD {name} {value}"));
                let key = counts::key_of(&cell);
                let add = Change { table: self.names.ekiden.clone(), key, effect, condition: None, words };
                self.change(&add).await?;
                repaired += 1;
            }
        }
        Ok(repaired)
    }

    /// A walk through all tasks, with pauses.
    async fn census(&self) -> Result<Census, StoreError> {
        let (mut census, mut after) = (Census::default(), None);
        loop {
            let (items, next) = self.scan(&self.names.queue, after).await?;
            for item in &items {
                if let Some(key) = codec::parse_key(RecordKind::Task, item) {
                    census.note(&key, item);
                }
            }
            after = next;
            if after.is_none() {
                return Ok(census);
            }
            tokio::time::sleep(PAGE_PAUSE).await;
        }
    }

    /// A payload whose task is not there, or has another.
    async fn check_payload(&self, item: &Item, findings: &mut Vec<Finding>) -> Result<(), StoreError> {
        if let Some(task) = payloads::task_of(item)
            && !self.has_task(item).await?
        {
            let what = "a payload belongs to no task; its task was never written, or is gone".to_owned();
            findings.push(Finding { code: ReasonCode::PayloadOrphaned, key: Some(task), what });
        }
        Ok(())
    }
}

fn created_at(item: &Item) -> Option<Timestamp> {
    // Behind the rank come creation and id.
    let order = get_text(item, at::PLACE_ORDER)?.get(8..)?;
    Some(places::parse_created_order(order)?.0)
}

fn cell(item: &Item) -> Option<(Cell, i64)> {
    let namespace = counts::namespace_of(get_text(item, at::PK)?)?;
    let (pool, phase) = get_text(item, at::SK)?.rsplit_once(SEPARATOR)?;
    let phase = Phase::ALL.into_iter().find(|known| known.as_str() == phase)?;
    Some(((namespace, PoolName::new(pool).ok()?, phase), get_number(item, at::COUNT)?))
}
