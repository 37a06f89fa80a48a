//! The engine: settles what ended, claims what there is room for, and starts it. It moves in turns; who takes them, and
//! where, is the shift's business.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ekiden_core::id::Kind;
use ekiden_core::limits;
use ekiden_core::time::Timestamp;
use tokio::runtime::Handle;

use super::Ended;
use super::attempt::{self, AfterRefusal, End};
use super::builder::Options;
use super::desk::Desk;
use super::pulse::Pulse;
use super::shift::AGAIN_MAX;
use super::table::{Fate, Run, Slot, Table};
use crate::backoff::Backoff;
use crate::bell::{Bell, Heard};
use crate::client::Client;
use crate::error::{Error, Result};
use crate::port::{Ask, LeaseRef, Leased, Settlement, Verdict};

/// 64 attempts beyond the concurrency whose end could not be written: then the store has to recover first.
const UNSETTLED_MAX: usize = 64;

/// The wait before an end that could not be written is tried again.
const SETTLE_AGAIN: Duration = Duration::from_millis(200);

/// How often the engine looks by itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// For tasks.
    pub(super) poll: Duration,
    /// For what it holds and does not run.
    pub(super) lease: Duration,
    /// How many attempts run at once.
    pub(super) concurrency: usize,
}

pub(super) struct Engine {
    client: Client,
    options: Arc<Options>,
    handlers: Handle,
    table: Arc<Table>,
    pulse: Arc<Pulse>,
    desk: Arc<Desk>,
    bell: Arc<Bell>,
    pace: Pace,
    /// What was heard of the bell.
    heard: Heard,
    look_at: Duration,
    compare_at: Duration,
    /// When the next waiting task is due, as far as is known.
    known: Option<Timestamp>,
    /// Whether the last claim was answered in full.
    more: bool,
    /// Whether this turn started attempts.
    started: bool,
    /// Rises with each claim, so that each ask comes first in its turn.
    turn: usize,
    /// Ends to be written.
    ends: Vec<Settlement>,
    /// Ends that could not be written, until they are tried again.
    refused: Vec<Settlement>,
    /// When that is.
    again_at: Duration,
    waits: Backoff,
    ended: Ended,
}

/// When the next turn is worth taking.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    /// At the latest.
    pub(super) at_most: Duration,
    /// Whether the bell is worth waking up for.
    pub(super) listens: bool,
    /// Whether there is more to do right now.
    pub(super) at_once: bool,
}

impl Engine {
    pub(super) fn new(desk: Arc<Desk>, handlers: Handle, pace: Pace) -> Self {
        let client = desk.client.clone();
        let bell = client.queue().bell(client.namespace());
        let now = client.tools().clock.monotonic();
        Self {
            heard: bell.ready.heard(),
            bell,
            look_at: now,
            compare_at: now + pace.lease,
            known: None,
            more: true,
            started: false,
            turn: 0,
            ends: Vec::new(),
            refused: Vec::new(),
            again_at: now,
            waits: Backoff::new(SETTLE_AGAIN, AGAIN_MAX),
            ended: Ended::default(),
            client,
            options: desk.options.clone(),
            handlers,
            table: desk.table.clone(),
            pulse: desk.pulse.clone(),
            desk,
            pace,
        }
    }

    fn monotonic(&self) -> Duration {
        self.client.tools().clock.monotonic()
    }

    /// One turn: whatever is to be done now is done. Says whether attempts were started.
    pub(super) async fn turn(&mut self) -> bool {
        self.started = false;
        let ended = self.hear();
        self.recall();
        let looks = self.monotonic() >= self.look_at;
        if looks {
            self.look_at = self.monotonic() + self.pace.poll;
            self.look_ahead().await;
        }
        let due = self.became_due().await;
        let claims = self.is_called() || self.more || ended || looks || due;
        if claims || !self.ends.is_empty() {
            self.more = self.exchange(claims).await;
        }
        if self.monotonic() >= self.compare_at {
            self.compare_at = self.monotonic() + self.pace.lease;
            self.compare().await;
        }
        self.started
    }

    /// When the next turn is worth taking, after this one.
    pub(super) fn wait(&self) -> Wait {
        let now = self.client.tools().clock.now();
        let look = self.look_at.saturating_sub(self.monotonic());
        let due = self.bell.earliest(now).map_or(Duration::MAX, |due| due.since(now).as_duration());
        let again = match (self.ends.is_empty(), self.refused.is_empty()) {
            (true, true) => Duration::MAX,
            (true, false) => self.again_at.saturating_sub(self.monotonic()),
            (false, _) => SETTLE_AGAIN,
        };
        // Without room there is nothing to wake up for; the end of an attempt makes room and looks.
        let has_room = self.room() > 0;
        Wait { at_most: look.min(due).min(again), listens: has_room, at_once: self.more && has_room }
    }

    /// Whether the bell rang. Without room it is not heard, so that it is heard when there is some.
    fn is_called(&mut self) -> bool {
        let now = self.bell.ready.heard();
        let rang = self.room() > 0 && now != self.heard;
        if rang {
            self.heard = now;
        }
        rang
    }

    /// Whether the moment that was waited for has come, by whatever this turn was caused. The bell knows one moment only, so
    /// that is when the one after it is looked for.
    async fn became_due(&mut self) -> bool {
        let came = self.known.is_some_and(|due| due <= self.client.tools().clock.now());
        if came {
            self.look_ahead().await;
        }
        self.known = self.bell.earliest(self.client.tools().clock.now());
        came
    }

    /// Asks when the next waiting task is due, so that it is not late by a poll.
    async fn look_ahead(&self) {
        match self.client.queue().next_due(self.client.namespace().clone()).await {
            Ok(Some(due)) => self.bell.ready_at(due, self.client.tools().clock.now()),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "cannot see what is due next"),
        }
    }

    /// Takes note of what ended. Says whether anything did.
    pub(super) fn hear(&mut self) -> bool {
        let words = self.desk.words.take();
        let any = !words.is_empty();
        for (slot, end) in words {
            self.end(slot, end);
        }
        debug_assert!(self.table.len() <= self.pace.concurrency, "no more than the concurrency may run");
        any
    }

    /// Writes down what ended, claims what there is room for, and starts it. Says whether there may be more.
    pub(super) async fn exchange(&mut self, claims: bool) -> bool {
        self.recall();
        // Read before the holder is: an attempt that is taken for an older one than it is costs a look.
        let incarnation = self.pulse.incarnation();
        let mut asks = if claims && self.may_claim() { self.asks() } else { Vec::new() };
        asks.reverse();
        let first = asks.pop();
        let mut full = first.as_ref().map_or(0, |ask| ask.limit);
        let mut more = false;
        let leased = if self.ends.is_empty() {
            match first {
                Some(ask) => self.client.queue().dequeue_ready(ask).await,
                None => Ok(Vec::new()),
            }
        } else {
            self.settle(first).await
        };
        more |= self.begin(leased, full, incarnation);
        while let Some(mut ask) = asks.pop() {
            ask.limit = ask.limit.min(self.room());
            if ask.limit > 0 {
                full = ask.limit;
                let leased = self.client.queue().dequeue_ready(ask).await;
                more |= self.begin(leased, full, incarnation);
            }
        }
        more && self.room() > 0
    }

    /// Ends that could not be written are tried again when it is time.
    fn recall(&mut self) {
        if !self.refused.is_empty() && self.monotonic() >= self.again_at {
            self.ends.append(&mut self.refused);
        }
    }

    /// The runner ends: there is no time for long waits.
    pub(super) fn hurry(&mut self) {
        self.waits = Backoff::new(SETTLE_AGAIN, SETTLE_AGAIN);
        self.again_at = self.monotonic();
    }

    fn room(&self) -> usize {
        self.pace.concurrency.saturating_sub(self.table.len())
    }

    fn may_claim(&self) -> bool {
        self.room() > 0
            && self.ends.len() + self.refused.len() < self.pace.concurrency + UNSETTLED_MAX
            && self.pulse.may_claim()
    }

    /// One ask for the kinds without a limit, and one for each kind that has one and is not at it.
    fn asks(&mut self) -> Vec<Ask> {
        let room = self.room();
        let holder = self.pulse.runner();
        let ask = |kinds: Arc<[Kind]>, limit: usize| Ask {
            id: self.client.op_id(),
            namespace: self.client.namespace().clone(),
            pools: self.options.pools.clone(),
            kinds,
            limit: limit.min(limits::CLAIM_TASKS_MAX),
            holder: holder.clone(),
        };
        let mut asks: Vec<Ask> = self.options.open_kinds.iter().map(|kinds| ask(kinds.clone(), room)).collect();
        for (kind, limit) in &self.options.limited_kinds {
            let left = limit.saturating_sub(self.table.count(kind)).min(room);
            if left > 0 {
                asks.push(ask(Arc::from([kind.clone()]), left));
            }
        }
        // Nobody is always asked first.
        if !asks.is_empty() {
            self.turn = self.turn.wrapping_add(1);
            let first = self.turn % asks.len();
            asks.rotate_left(first);
        }
        asks
    }

    /// An end is forgotten when its answer is there, not before: this may be dropped on the way, when the grace is over.
    async fn settle(&mut self, then: Option<Ask>) -> Result<Vec<Leased>> {
        let sent = self.ends.clone();
        for end in &mut self.ends {
            // Should it be needed again, things may have changed.
            end.lease = LeaseRef::new(end.lease.task.clone(), end.lease.token);
        }
        let answer = self.client.queue().settle(sent, then).await;
        let is_answered = answer.settled.iter().any(Result::is_ok);
        let mut outcomes = answer.settled.into_iter();
        for end in std::mem::take(&mut self.ends) {
            match outcomes.next() {
                Some(Ok(_)) => self.settled(&end),
                Some(Err(error)) => self.not_settled(end, &error),
                None => self.ends.push(end),
            }
        }
        if is_answered {
            self.waits.reset();
        }
        answer.leased
    }

    fn settled(&mut self, end: &Settlement) {
        self.ended.settled += 1;
        if matches!(end.verdict, Verdict::Interrupted | Verdict::Returned) {
            self.ended.handed_back.push(end.lease.task.id.clone());
        }
    }

    /// What cannot be written now is tried again under the same id. What is refused is understood.
    fn not_settled(&mut self, end: Settlement, error: &Error) {
        let task_id = end.lease.task.id.as_str();
        match attempt::after_refusal(&end.verdict, error) {
            AfterRefusal::Repeat => {
                tracing::warn!(task_id, %error, "cannot write how an attempt ended, trying again");
                if self.refused.is_empty() {
                    self.again_at = self.monotonic() + self.waits.next(self.client.random());
                }
                self.refused.push(end);
            }
            AfterRefusal::Replace(verdict) => {
                self.ends.push(Settlement { id: self.client.op_id(), verdict, lease: end.lease });
            }
            AfterRefusal::GiveUp => tracing::warn!(task_id, %error, "the attempt was no longer ours to end"),
        }
    }

    /// Starts what was given. Says whether there may be more of it.
    fn begin(&mut self, leased: Result<Vec<Leased>>, asked: usize, incarnation: u64) -> bool {
        match leased {
            Ok(leased) => {
                let more = asked > 0 && leased.len() == asked;
                let mut attempts = Vec::with_capacity(leased.len());
                for one in leased {
                    match self.desk.take(one, None, incarnation) {
                        Ok(attempt) => attempts.push(attempt),
                        Err(lease) => self.push_end(*lease, Verdict::Returned),
                    }
                }
                self.started |= !attempts.is_empty();
                attempt::start(&self.handlers, attempts, &self.desk);
                more
            }
            Err(error) => {
                tracing::warn!(%error, "cannot claim");
                false
            }
        }
    }

    fn end(&mut self, slot: Slot, end: End) {
        if let End::Unwritten(ending, error) = end {
            self.not_settled(*ending, &error);
            return;
        }
        let mut runs = self.table.lock();
        let Some(mut run) = runs.remove(slot) else { return };
        drop(runs);
        match (run.take_ending(), end) {
            (Some(ending), End::Written(Ok(()))) => self.settled(&ending),
            (Some(ending), End::Written(Err(error))) => self.not_settled(ending, &error),
            // Dropped while it wrote: whether it happened is not known, so it is written again under its own id.
            (Some(ending), _) => self.ends.push(ending),
            (None, End::Said(verdict)) => self.close(run, Some(verdict)),
            (None, End::Dropped) => self.close(run, None),
            (None, End::Written(_) | End::Unwritten(..)) => {}
        }
    }

    fn close(&mut self, mut run: Run, said: Option<Verdict>) {
        match run.verdict(said) {
            Some(verdict) => self.push_end(run.lease(), verdict),
            // Dropped, and perhaps not ended: nothing is written, and the lease says the rest when it is over.
            None if !matches!(run.fate, Fate::Left | Fate::Lost { .. }) => {
                self.ended.unsettled.push(run.task().clone())
            }
            None => {}
        }
    }

    fn push_end(&mut self, lease: LeaseRef, verdict: Verdict) {
        self.ends.push(Settlement { id: self.client.op_id(), lease, verdict });
    }

    /// What the store says this runner holds and it does not run: a claim's reply got lost for good. It is given back.
    async fn compare(&mut self) {
        match self.client.queue().held(self.client.namespace().clone(), self.pulse.runner()).await {
            Ok(held) => {
                let ends = || self.ends.iter().chain(&self.refused);
                let same =
                    |end: &Settlement, lease: &LeaseRef| end.lease.task == lease.task && end.lease.token == lease.token;
                let abandoned = self.table.abandoned(held, |lease| ends().any(|end| same(end, lease)));
                for lease in abandoned {
                    tracing::warn!(task_id = lease.task.id.as_str(), "held but not running, given back");
                    self.push_end(lease, Verdict::Returned);
                }
            }
            Err(error) => tracing::warn!(%error, "cannot see what is held"),
        }
    }

    /// Handlers that block their threads cannot be dropped. Their tasks go to others all the same, but for those that were
    /// cancelled: who comes next must not overlap them.
    pub(super) fn leave_blocked(&mut self) {
        let mut blocked = Vec::new();
        for run in self.table.lock().values_mut() {
            let verdict = match run.fate {
                Fate::Interrupted => Verdict::Interrupted,
                Fate::TimedOut { .. } => Verdict::TimedOut,
                Fate::Running | Fate::Cancelled { .. } | Fate::Lost { .. } | Fate::Left => continue,
            };
            run.fate = Fate::Left;
            blocked.push((run.lease(), verdict, run.take_ending()));
        }
        for (lease, verdict, ending) in blocked {
            match ending {
                Some(ending) => self.ends.push(ending),
                None => self.push_end(lease, verdict),
            }
        }
    }

    /// Whether something could not be written yet.
    pub(super) fn has_ends(&self) -> bool {
        !(self.ends.is_empty() && self.refused.is_empty())
    }

    /// What is left when everything is over.
    pub(super) fn take_ended(&mut self) -> Ended {
        let mut ended = std::mem::take(&mut self.ended);
        ended.settled += self.desk.settled.load(Ordering::Relaxed);
        ended.unsettled.extend(self.ends.iter().chain(&self.refused).map(|end| end.lease.task.id.clone()));
        ended
    }
}
