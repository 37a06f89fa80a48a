//! Runners that are silent are declared dead, and what they held goes to others.
//!
//! A store that one process owns has one clock, and a runner's last beat is read by it. Where several processes write, no clock is
//! believed: a runner is silent when its record stayed as it is for a whole lease, on the monotonic clock of whoever looks.

use std::collections::BTreeSet;
use std::time::Duration;

use ekiden_core::event::Event;
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{Namespace, RunnerId};
use ekiden_core::index::DueIndex;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::lease::Evidence;
use ekiden_core::limits;
use ekiden_core::plan::{ClearDead, DeclareDead, Happen};
use ekiden_core::record::{Record, Revision, Versioned};
use ekiden_core::runner::{Runner, RunnerStatus, Silence};
use ekiden_core::time::Millis;
use ekiden_store::{RecordQuery, StoreExt, TaskQuery};
use hashbrown::HashMap;

use super::maintain::ENTRIES_A_ROUND;
use super::{StoreQueue, locked};
use crate::error::Result;
use crate::port::Maintained;

/// The runners that are watched, each with its record as last seen, and since when it has been so.
pub(super) type Watched = HashMap<Namespace, HashMap<RunnerId, (Revision, Duration)>>;

impl StoreQueue {
    /// Finds who is silent, by the means that its store allows.
    pub(super) async fn reclaim(&self, namespace: &Namespace, done: &mut Maintained) -> Result<()> {
        if self.store().info().shared {
            return self.reclaim_by_watching(namespace, done).await;
        }
        let due = self.due(namespace, DueIndex::Runner, done).await?;
        if due.is_empty() {
            return Ok(());
        }
        let mut failed = None;
        for entry in due {
            failed = failed.or(self.reclaim_one(&entry.key, done).await.err());
        }
        // Whoever is silent until then is dead then, and not only when the next round happens to come.
        self.look_ahead(namespace, DueIndex::Runner, done).await?;
        failed.map_or(Ok(()), Err)
    }

    /// A runner that is due. Each stands for itself: one that fails is looked at again in the next round.
    async fn reclaim_one(&self, key: &Key, done: &mut Maintained) -> Result<()> {
        let found = self.store().get_one(key.clone()).await?;
        let Some(Record::Runner(runner)) = found.map(|found| found.record) else { return Ok(()) };
        if self.beats_here(&runner) {
            return Ok(());
        }
        self.bury(key, &runner, Silence::ByClock, done).await
    }

    async fn reclaim_by_watching(&self, namespace: &Namespace, done: &mut Maintained) -> Result<()> {
        let all = self.runner_records(namespace).await?;
        self.met_in(namespace, &all);
        let ours: Vec<(Versioned, Runner)> = all
            .into_iter()
            // Those of other programs are nobody's to declare dead.
            .filter(|found| !found.is_foreign())
            .filter_map(|found| {
                let runner = Runner::clone(found.record.as_runner()?);
                Some((found, runner))
            })
            .collect();
        let mut failed = None;
        for (found, runner) in self.watch(namespace, ours) {
            let silence = self.silence(&found, &runner);
            let lasts = runner.lease.as_u64().saturating_sub(silence.as_u64());
            match runner.status {
                RunnerStatus::Running if lasts > 0 => done.look_at(self.now() + Millis::new(lasts)),
                RunnerStatus::Running | RunnerStatus::Stopped => {
                    failed = failed.or(self.bury(&found.key, &runner, Silence::Watched(silence), done).await.err());
                }
                RunnerStatus::Dead { .. } if runner.due_at().is_some_and(|at| at <= self.now()) => {
                    failed = failed.or(self.bury(&found.key, &runner, Silence::Watched(silence), done).await.err());
                }
                RunnerStatus::Dead { .. } => runner.due_at().into_iter().for_each(|at| done.look_at(at)),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Every runner of a namespace, within the limit of what a round looks at.
    pub(super) async fn runner_records(&self, namespace: &Namespace) -> Result<Vec<Versioned>> {
        let mut query = RecordQuery {
            namespace: namespace.clone(),
            kind: RecordKind::Runner,
            prefix: String::new(),
            cursor: None,
            limit: limits::PAGE_ITEMS_MAX,
        };
        let mut all = Vec::new();
        while all.len() < limits::RUNNERS_MAX {
            let page = self.read(|| self.store().records(query.clone())).await?;
            all.extend(page.items);
            query.cursor = page.cursor;
            if query.cursor.is_none() {
                break;
            }
        }
        Ok(all)
    }

    /// Notes which records changed since the last look. Who is gone is watched no more.
    fn watch(&self, namespace: &Namespace, runners: Vec<(Versioned, Runner)>) -> Vec<(Versioned, Runner)> {
        let now = self.clock.monotonic();
        let there: BTreeSet<RunnerId> = runners.iter().map(|(_, runner)| runner.id.clone()).collect();
        let mut watched = locked(&self.watched);
        if runners.is_empty() {
            watched.remove(namespace);
            return runners;
        }
        let watched = watched.entry(namespace.clone()).or_default();
        watched.retain(|id, _| there.contains(id));
        for (found, runner) in &runners {
            let seen = watched
                .entry(runner.id.clone())
                .or_insert_with(|| (found.revision.clone(), self.beaten_at(runner).unwrap_or(now)));
            if seen.0 != found.revision {
                *seen = (found.revision.clone(), now);
            }
        }
        runners
    }

    /// When this very record was written, if the beat that wrote it went through this queue.
    fn beaten_at(&self, runner: &Runner) -> Option<Duration> {
        let beat = self.last_beat(&runner.namespace, &runner.id)?;
        (beat.told == runner.last_heartbeat).then_some(beat.at)
    }

    fn silence(&self, found: &Versioned, runner: &Runner) -> Millis {
        let seen = locked(&self.watched).get(&runner.namespace).and_then(|watched| watched.get(&runner.id)).cloned();
        match seen {
            Some((revision, since)) if revision == found.revision => {
                Millis::from(self.clock.monotonic().saturating_sub(since))
            }
            _ => Millis::ZERO,
        }
    }

    /// Declares a runner dead unless it is, and takes back what it held. An error says which runner it was in the log.
    async fn bury(&self, key: &Key, runner: &Runner, silence: Silence, done: &mut Maintained) -> Result<()> {
        let buried = self.bury_once(key, runner, silence, done).await;
        buried
            .inspect_err(|error| tracing::warn!(runner_id = runner.id.as_str(), %error, "a runner cannot be reclaimed"))
    }

    async fn bury_once(&self, key: &Key, runner: &Runner, silence: Silence, done: &mut Maintained) -> Result<()> {
        if !matches!(runner.status, RunnerStatus::Dead { .. }) {
            let plan = DeclareDead { runner: key.clone(), silence };
            if self.each(vec![plan]).await?.is_empty() {
                return Ok(());
            }
            self.forget_beats(&(runner.namespace.clone(), runner.id.clone()));
            if runner.status == RunnerStatus::Running {
                tracing::warn!(runner_id = runner.id.as_str(), "runner declared dead");
            }
        }
        self.take_back(key, &runner.id, done).await
    }

    /// A runner whose beats pass through this process is alive, whatever the wall clock says: it may have jumped.
    fn beats_here(&self, runner: &Runner) -> bool {
        let beat = self.last_beat(&runner.namespace, &runner.id);
        let Some(beat) = beat else { return false };
        self.clock.monotonic().saturating_sub(beat.at) < runner.lease.as_duration()
    }

    async fn take_back(&self, runner_key: &Key, runner: &RunnerId, done: &mut Maintained) -> Result<()> {
        let filter = TaskFilter::held_by(runner_key.namespace.clone(), runner.clone());
        let query = TaskQuery::oldest(filter, ENTRIES_A_ROUND);
        let page = self.store().tasks(query).await?;
        if page.items.is_empty() && page.cursor.is_none() {
            return self.each(vec![ClearDead { runner: runner_key.clone() }]).await.map(drop);
        }
        done.more |= page.cursor.is_some();
        let event = Event::LeaseLost { evidence: Evidence::RunnerDead(runner.clone()) };
        let plans = page.items.into_iter().map(|found| Happen { task: found.key, event: event.clone() }).collect();
        self.told(self.each(plans).await?, done);
        Ok(())
    }
}
