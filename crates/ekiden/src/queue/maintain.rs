//! Maintenance without a leader: what is due is done by whoever looks first, and a guarded write makes that safe.

use std::collections::{BTreeMap, BTreeSet};

use ekiden_core::id::{GroupId, Namespace, TaskId};
use ekiden_core::index::DueIndex;
use ekiden_core::key::Key;
use ekiden_core::limits;
use ekiden_core::plan::{
    Forget, Happen, Happened, MoveTick, Plan, Purge, PurgeWhen, Purged, Swept, Tick, Told, due_event,
};
use ekiden_core::sweep::{Sweep, SweepWork};
use ekiden_core::task::{Phase, Task};
use ekiden_core::time::{ClockLead, Millis, Timestamp};
use ekiden_store::{DueEntry, DueQuery, Others, PlanError, StoreExt};

use super::{StoreQueue, locked};
use crate::error::Result;
use crate::port::Maintained;

/// 256 entries of each list a round: enough to keep up, little enough not to hold up the next list.
pub(super) const ENTRIES_A_ROUND: usize = 256;

/// 8 looks for ended tasks a round, a thousand each: what a store removes in less than a second, in which other lists wait.
const PURGE_LOOKS_A_ROUND: usize = 8;

/// 64 steps of a sweep a round: some 1,500 tasks, and then other sweeps have their turn.
const STEPS_A_ROUND: usize = 64;

/// Two seconds: a tick or the end of a runner's lease within it is waited for; the next round finds those beyond.
const SOON: Millis = Millis::from_secs(2);

/// One second: when a list with something due is looked at again, whatever came of it.
const LOOK_AGAIN: Millis = Millis::from_secs(1);

/// One minute: how far ahead the next waiting task is looked for.
const AHEAD: Millis = Millis::from_secs(60);

impl StoreQueue {
    /// One round. What fails is left for the next one. The first error is the answer where nothing could be done; otherwise it is
    /// in the log, and the answer says what was done and that there may be more.
    pub(super) async fn do_due(&self, namespace: &Namespace) -> Result<Maintained> {
        let mut done = Maintained::default();
        let mut failed = None;
        for index in [DueIndex::Runner, DueIndex::Lease, DueIndex::Expire, DueIndex::Rejoin, DueIndex::Promote] {
            let outcome = match index {
                DueIndex::Runner => self.reclaim(namespace, &mut done).await,
                _ => self.let_happen(namespace, index, &mut done).await,
            };
            failed = failed.or(outcome.err());
        }
        failed = failed.or(self.hear_others(namespace, &mut done).await.err());
        failed = failed.or(self.sweep_on(namespace, &mut done).await.err());
        failed = failed.or(self.tick(namespace, &mut done).await.err());
        failed = failed.or(self.clear_away(namespace, &mut done).await.err());
        let ready = done.changed + done.swept + done.ticked;
        if ready > 0 {
            self.notifiers.with(namespace, |bell| bell.ready.ring_for(ready));
        }
        match failed {
            Some(error) if ready + done.removed == 0 => Err(error),
            Some(error) => {
                tracing::warn!(namespace = namespace.as_str(), %error, "a part of maintenance failed");
                done.look_at(self.now() + LOOK_AGAIN);
                Ok(done)
            }
            None => Ok(done),
        }
    }

    pub(super) async fn next_waiting(&self, namespace: Namespace) -> Result<Option<Timestamp>> {
        let now = self.now();
        let query = DueQuery { namespace, index: DueIndex::Promote, until: now + AHEAD, limit: ENTRIES_A_ROUND };
        let waiting = self.read(|| self.store().due(query.clone())).await?;
        Ok(waiting.into_iter().map(|entry| entry.at).find(|at| *at > now))
    }

    /// What is due in a list. The first entry alone says whether anything is and, if not, when: a list with nothing due costs one
    /// entry, and nobody needs to look at it before that moment.
    pub(super) async fn due(
        &self,
        namespace: &Namespace,
        index: DueIndex,
        done: &mut Maintained,
    ) -> Result<Vec<DueEntry>> {
        let Some(now) = self.due_first(namespace, index, done).await? else { return Ok(Vec::new()) };
        let query = DueQuery { namespace: namespace.clone(), index, until: now, limit: ENTRIES_A_ROUND };
        let entries = self.read(|| self.store().due(query.clone())).await?;
        done.more |= entries.len() == ENTRIES_A_ROUND;
        Ok(entries)
    }

    /// The moment, if anything in a list is due by now. Notes when to look again.
    async fn due_first(
        &self,
        namespace: &Namespace,
        index: DueIndex,
        done: &mut Maintained,
    ) -> Result<Option<Timestamp>> {
        let now = self.now();
        let first = DueQuery { namespace: namespace.clone(), index, until: Timestamp::MAX, limit: 1 };
        let first = self.read(|| self.store().due(first.clone())).await?;
        let Some(at) = first.first().map(|entry| entry.at) else { return Ok(None) };
        done.look_at(if at > now { at } else { now + LOOK_AGAIN });
        Ok((at <= now).then_some(now))
    }

    /// Carries out one plan for each entry. A refusal is an answer: somebody else was faster, or it is not time.
    pub(super) async fn each<P>(&self, plans: Vec<P>) -> Result<Vec<P::Done>>
    where
        P: Plan + Sync + Send,
        P::Done: Send,
    {
        let named: Vec<_> = plans.into_iter().map(|plan| (self.op_id(), plan)).collect();
        let mut done = Vec::with_capacity(named.len());
        let mut failed = None;
        for outcome in self.store().run_all(&named, self.now()).await {
            match outcome {
                Ok(one) => done.push(one),
                Err(PlanError::Refused(_)) => {}
                Err(PlanError::Store(error)) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if done.is_empty() => Err(error.into()),
            _ => Ok(done),
        }
    }

    async fn let_happen(&self, namespace: &Namespace, index: DueIndex, done: &mut Maintained) -> Result<()> {
        let entries = self.due(namespace, index, done).await?;
        let plans: Vec<Happen> = entries.into_iter().filter_map(|entry| due_event(index, entry.key)).collect();
        self.told(self.each(plans).await?, done);
        Ok(())
    }

    pub(super) fn told(&self, happened: Vec<Happened>, done: &mut Maintained) {
        for happened in happened {
            if let Happened::Changed(task) = happened {
                done.changed += 1;
                self.announce(&task);
            }
        }
    }

    /// What other programs did with tasks that only they bring further. A store that lists such a task hears of it when it is read.
    async fn hear_others(&self, namespace: &Namespace, done: &mut Maintained) -> Result<()> {
        if self.store().info().others == Others::Never {
            return Ok(());
        }
        // The store looks at a part of this list each time, so it is asked once, and for all of that part.
        let index = DueIndex::Foreign;
        let query = DueQuery { namespace: namespace.clone(), index, until: self.now(), limit: ENTRIES_A_ROUND };
        let changed = self.read(|| self.store().due(query.clone())).await?;
        done.more |= changed.len() == ENTRIES_A_ROUND;
        if !changed.is_empty() {
            self.records(changed.into_iter().map(|entry| entry.key).collect()).await?;
            done.changed += 1;
        }
        Ok(())
    }

    /// Carries every sweep on that is due. Each stands for itself: one that fails is tried again in the next round.
    async fn sweep_on(&self, namespace: &Namespace, done: &mut Maintained) -> Result<()> {
        let mut sweeps = locked(&self.groups).take(namespace);
        sweeps.extend(self.due(namespace, DueIndex::Sweep, done).await?.into_iter().map(|entry| entry.key));
        let mut failed = None;
        for sweep in sweeps {
            if let Err(error) = self.carry_on(&sweep, done).await {
                tracing::warn!(namespace = namespace.as_str(), sweep = &*sweep.name, %error, "a sweep cannot go on");
                failed = failed.or(Some(error));
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// The steps of one sweep, as many as a round gives it.
    async fn carry_on(&self, sweep: &Key, done: &mut Maintained) -> Result<()> {
        for step in 0..STEPS_A_ROUND {
            match self.sweep_once(sweep).await? {
                Some(Swept::On(sweep)) if sweep.due_at() <= self.now() => done.more |= step + 1 == STEPS_A_ROUND,
                Some(Swept::Stale) => {}
                Some(Swept::On(_) | Swept::Ended) => {
                    done.swept += 1;
                    break;
                }
                None => break,
            }
            done.swept += 1;
        }
        Ok(())
    }

    /// One step of a sweep; `None` when it is done. Nothing is repeated here: others wait behind it. A step asks for no more than a
    /// commit holds, so its refusal is an error, and not an answer.
    async fn sweep_once(&self, key: &Key) -> Result<Option<Swept>> {
        let next = self.store().sweep_step(key.clone(), limits::SWEEP_ITEMS_MAX, || self.task_id()).await?;
        let Some(next) = next else {
            locked(&self.groups).forget(key);
            return Ok(None);
        };
        if let SweepWork::Await { group, then, .. } = &next.seen.work {
            locked(&self.groups).waits(&key.namespace, group.group.as_ref(), then);
        }
        let (swept, told) = self.store().run(&Told(next), self.op_id(), self.now()).await?;
        for task in told {
            self.announce(&task);
            if task.state.phase == Phase::Cancelled && task.state.lease.is_some() {
                self.notifiers.with(&key.namespace, |bell| bell.stop.ring());
            }
        }
        if swept == Swept::Ended {
            locked(&self.groups).forget(key);
        }
        Ok(Some(swept))
    }

    /// Cron expressions are read off the machine's clock: their next ticks move when that was set back.
    async fn move_ticks(&self, namespace: &Namespace, lead: ClockLead) -> Result<()> {
        let now = self.now();
        let mut plans = Vec::new();
        for schedule in self.all_schedules(namespace).await? {
            // One that cannot tick any more holds up no other.
            if matches!(schedule.moved(now, lead), Ok(Some(_))) {
                plans.push(MoveTick { schedule: Key::schedule(namespace, &schedule.id), lead });
            }
        }
        self.each(plans).await.map(drop)
    }

    async fn tick(&self, namespace: &Namespace, done: &mut Maintained) -> Result<()> {
        let lead = self.clock.lead();
        if lead != ClockLead::NONE {
            self.move_ticks(namespace, lead).await?;
        }
        let due = self.due(namespace, DueIndex::Schedule, done).await?;
        if due.is_empty() {
            return Ok(());
        }
        let plans: Vec<Tick> = due.into_iter().map(|entry| Tick { schedule: entry.key, lead }).collect();
        for ticked in self.each(plans).await? {
            done.more |= ticked.more;
            for (at, refusal) in ticked.refused {
                tracing::warn!(%namespace, %at, %refusal, "a tick is left out, because its task was refused");
            }
            for task in ticked.tasks {
                done.ticked += 1;
                self.announce(&task);
            }
        }
        self.look_ahead(namespace, DueIndex::Schedule, done).await
    }

    /// Notes when the next entry of a list is due, if that is soon.
    pub(super) async fn look_ahead(&self, namespace: &Namespace, index: DueIndex, done: &mut Maintained) -> Result<()> {
        let now = self.now();
        let query = DueQuery { namespace: namespace.clone(), index, until: now + SOON, limit: ENTRIES_A_ROUND };
        let coming = self.read(|| self.store().due(query.clone())).await?;
        if let Some(at) = coming.into_iter().map(|entry| entry.at).find(|at| *at > now) {
            done.look_at(at);
        }
        Ok(())
    }

    async fn clear_away(&self, namespace: &Namespace, done: &mut Maintained) -> Result<()> {
        let entries = self.due(namespace, DueIndex::Forget, done).await?;
        let plans = entries.into_iter().map(|entry| Forget { record: entry.key, when: PurgeWhen::Due }).collect();
        let forgotten = self.each(plans).await?.into_iter().filter(|gone| *gone).count();
        done.removed += u64::try_from(forgotten).unwrap_or(u64::MAX);
        self.purge(namespace, done).await
    }

    /// Removes what was kept long enough. A look at the list costs a store the same for many as for few, and behind what was
    /// removed a moment ago it costs more, so there are few looks, each for many tasks.
    async fn purge(&self, namespace: &Namespace, done: &mut Maintained) -> Result<()> {
        if self.due_first(namespace, DueIndex::Purge, done).await?.is_none() {
            return Ok(());
        }
        for _ in 0..PURGE_LOOKS_A_ROUND {
            let (index, limit) = (DueIndex::Purge, limits::DUE_ITEMS_MAX);
            let query = DueQuery { namespace: namespace.clone(), index, until: self.now(), limit };
            let entries = self.read(|| self.store().due(query.clone())).await?;
            let is_full = entries.len() == limit;
            let before = done.removed;
            for some in entries.chunks(ENTRIES_A_ROUND) {
                let purge = |entry: &DueEntry| Purge { task: entry.key.clone(), when: PurgeWhen::Due };
                let purged = self.each(some.iter().map(purge).collect()).await?;
                let gone = purged.into_iter().filter(|purged| *purged == Purged::Gone).count();
                done.removed += u64::try_from(gone).unwrap_or(u64::MAX);
            }
            done.more |= is_full;
            // A list that lags behind the records would give the same again.
            if !is_full || done.removed == before || !self.store().info().exact_index {
                break;
            }
        }
        Ok(())
    }
}

/// 4,096 waiting tasks: a cache of hints; those beyond it look by themselves.
const GROUPS_MAX: usize = 4_096;

/// Which sweeps wait for which groups. Hints only: a sweep that is not known here looks when its time comes.
#[derive(Debug, Default)]
pub(super) struct Groups {
    sweeps: BTreeMap<Key, GroupId>,
    waiting: BTreeMap<(Namespace, GroupId), BTreeSet<Key>>,
    due: BTreeMap<Namespace, BTreeSet<Key>>,
}

impl Groups {
    fn waits(&mut self, namespace: &Namespace, group: Option<&GroupId>, then: &TaskId) {
        let Some(group) = group.cloned() else { return };
        let sweep = Key::sweep(namespace, &Sweep::await_id(&group, then));
        if self.sweeps.contains_key(&sweep) {
            return;
        }
        if self.sweeps.len() >= GROUPS_MAX
            && let Some(any) = self.sweeps.keys().next().cloned()
        {
            self.forget(&any);
        }
        self.waiting.entry((namespace.clone(), group.clone())).or_default().insert(sweep.clone());
        self.sweeps.insert(sweep, group);
    }

    /// A sweep came to its end, or another one needs its room.
    fn forget(&mut self, sweep: &Key) {
        let Some(group) = self.sweeps.remove(sweep) else { return };
        let remove_from = |sweeps: &mut BTreeSet<Key>| {
            sweeps.remove(sweep);
            sweeps.is_empty()
        };
        let group = (sweep.namespace.clone(), group);
        if self.waiting.get_mut(&group).is_some_and(remove_from) {
            self.waiting.remove(&group);
        }
        if self.due.get_mut(&sweep.namespace).is_some_and(remove_from) {
            self.due.remove(&sweep.namespace);
        }
    }

    /// A task ended, or one that waits for a group was handed in or waits no more.
    pub(super) fn note(&mut self, task: &Task) {
        let namespace = &task.spec.namespace;
        if let Some(group) = &task.spec.after_group {
            if task.state.phase == Phase::Pending && task.state.reason.is_none() {
                self.waits(namespace, Some(group), task.id());
            } else {
                self.forget(&Key::sweep(namespace, &Sweep::await_id(group, task.id())));
            }
        }
        let Some(group) = &task.spec.group else { return };
        if let Some(sweeps) = self.waiting.get(&(namespace.clone(), group.clone())) {
            self.due.entry(namespace.clone()).or_default().extend(sweeps.iter().cloned());
        }
    }

    /// What may be worth a look now.
    fn take(&mut self, namespace: &Namespace) -> Vec<Key> {
        self.due.remove(namespace).into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use ekiden_core::id::{Kind, PoolName};
    use ekiden_core::pool::Profile;
    use ekiden_core::task::{Spec, TaskEnvelope};
    use ekiden_core::transition::{Start, birth};

    use super::*;

    fn task(name: &str, change: impl FnOnce(&mut Spec)) -> Task {
        let envelope = TaskEnvelope::json(Kind::new("k").unwrap(), "{}");
        let policy = Profile::Embedded.settings().policy;
        let (namespace, pool) = (Namespace::new("default").unwrap(), PoolName::new("p").unwrap());
        let mut spec = Spec::new(namespace, pool, TaskId::new(name).unwrap(), envelope, policy, Timestamp::ZERO);
        change(&mut spec);
        let state = birth(&spec, Start::Released, Vec::new(), Timestamp::ZERO).state;
        Task { spec: spec.into(), state }
    }

    fn group(number: usize) -> Option<GroupId> {
        Some(GroupId::new(format!("g-{number}")).unwrap())
    }

    /// R21
    #[test]
    fn hints_of_groups_are_forgotten_with_their_sweeps_and_never_run_out() {
        let (mut groups, namespace) = (Groups::default(), Namespace::new("default").unwrap());
        let waiter = |number| task(&format!("t-{number}"), |spec| spec.after_group = group(number));
        let member = |number| task("m", |spec| spec.group = group(number));
        for number in 0..2 * GROUPS_MAX {
            let mut waiter = waiter(number);
            groups.note(&waiter);
            groups.note(&member(number));
            assert_eq!(groups.take(&namespace).len(), 1, "the end of a member is a hint for group {number}");
            waiter.state.phase = Phase::Succeeded;
            groups.note(&waiter);
        }
        assert!(groups.sweeps.is_empty() && groups.waiting.is_empty() && groups.due.is_empty());
        for number in 0..2 * GROUPS_MAX {
            groups.note(&waiter(number));
            groups.note(&member(number));
        }
        assert_eq!((groups.sweeps.len(), groups.waiting.len()), (GROUPS_MAX, GROUPS_MAX));
        assert!(groups.take(&namespace).len() <= GROUPS_MAX, "those without an end are bounded");
        groups.note(&waiter(2 * GROUPS_MAX));
        groups.note(&member(2 * GROUPS_MAX));
        assert_eq!(groups.take(&namespace).len(), 1, "a newcomer is known all the same");
    }
}
