//! Signs of life. One a second is most of what an idle runner asks of a shared store, so a beat that follows another one of this process
//! does not read the record first: it knows what the last one left behind, and the write is guarded by that.

use std::time::Duration;

use ekiden_core::id::{Namespace, RunnerId};
use ekiden_core::key::Key;
use ekiden_core::plan::{Beat, Draft, Forget, Lanes, PurgeWhen, View};
use ekiden_core::record::{Record, Versioned};
use ekiden_core::runner::Runner;
use ekiden_core::time::{Millis, Timestamp};
use ekiden_store::{Answer, PlanError, StoreExt};
use hashbrown::{Equivalent, HashMap};

use super::{StoreQueue, locked};
use crate::error::Result;

/// A sign of life that went through a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastBeat {
    /// When it was sent, by the monotonic clock.
    pub(super) at: Duration,
    /// How long the runner may be silent.
    pub(super) lease: Millis,
    /// The moment that was written.
    pub(super) told: Timestamp,
}

/// The record that the last beat of each runner left behind.
pub(super) type Beaten = HashMap<(Namespace, RunnerId), Versioned>;

/// A runner by its names, which need not be copied to look it up.
#[derive(Hash)]
struct Named<'a>(&'a Namespace, &'a RunnerId);

impl Equivalent<(Namespace, RunnerId)> for Named<'_> {
    fn equivalent(&self, (namespace, runner): &(Namespace, RunnerId)) -> bool {
        self.1 == runner && self.0 == namespace
    }
}

impl StoreQueue {
    /// The last acknowledged beat of a runner through this queue.
    pub(super) fn last_beat(&self, namespace: &Namespace, runner: &RunnerId) -> Option<LastBeat> {
        locked(&self.beats).get(&Named(namespace, runner)).copied()
    }

    pub(super) async fn note_beat(&self, runner: Runner) -> Result<()> {
        runner.check()?;
        // A beat that does not get through in time is followed by the next one; only the latest moment counts.
        let id = (runner.namespace.clone(), runner.id.clone());
        let (at, lease) = (self.clock.monotonic(), runner.lease);
        let seen = self.seen(&id).await?;
        if seen.is_none() {
            Box::pin(self.make_room_for(&runner)).await?;
        }
        match self.write_beat(&id, seen, &Beat { runner }).await {
            Ok(told) => {
                locked(&self.beats).insert(id, LastBeat { at, lease, told });
                Ok(())
            }
            Err(PlanError::Refused(refusal)) => {
                self.forget_beats(&id);
                Err(refusal.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Nothing is known of a runner any more.
    pub(super) fn forget_beats(&self, id: &(Namespace, RunnerId)) {
        locked(&self.beats).remove(id);
        locked(&self.beaten).remove(id);
    }

    /// Makes sure that one runner more fits beside those of its namespace.
    async fn make_room_for(&self, runner: &Runner) -> Result<()> {
        let records = self.runner_records(&runner.namespace).await?;
        let gone =
            runner.room_among(records.iter().filter_map(|found| found.record.as_runner().map(|runner| &**runner)))?;
        let forget = |id| Forget { record: Key::runner(&runner.namespace, id), when: PurgeWhen::OnDemand };
        self.each(gone.into_iter().map(forget).collect()).await.map(drop)
    }

    /// The record of a runner, if it has one: what its last beat left behind, or what the store has.
    async fn seen(&self, id: &(Namespace, RunnerId)) -> Result<Option<Versioned>> {
        // Whatever comes of this beat, the next one must not rest on what this one rests on.
        let known = locked(&self.beaten).remove(id);
        match known {
            Some(known) => Ok(Some(known)),
            None => Ok(self.store().get_one(Key::runner(&id.0, &id.1)).await?),
        }
    }

    async fn write_beat(
        &self,
        id: &(Namespace, RunnerId),
        seen: Option<Versioned>,
        beat: &Beat,
    ) -> Result<Timestamp, PlanError> {
        let (op, now, key) = (self.op_id(), self.now(), Key::runner(&id.0, &id.1));
        let created_by = seen.as_ref().map_or(op, |seen| seen.created_by);
        let mut view = View::default();
        view.insert(key.clone(), seen);
        if let Ok((runner, Some(commit))) = Draft::of(beat, op, &view, now, Lanes::Admit)
            && let Answer::Applied(applied) = self.store().commit(commit).await?
        {
            if let Some(revision) = applied.revisions.into_iter().next().flatten() {
                let record = Record::Runner(runner.clone());
                locked(&self.beaten).insert(id.clone(), Versioned { key, record, revision, created_by, last: op });
            }
            return Ok(runner.last_heartbeat);
        }
        // It was declared dead, or said goodbye elsewhere: the record as it is now decides.
        Ok(self.store().run(beat, self.op_id(), now).await?.last_heartbeat)
    }
}
