//! The engine: settles what ended, claims what there is room for, starts it, and waits for the next word.

use std::sync::Arc;
use std::time::Duration;

use ekiden_core::attempt::Stage;
use ekiden_core::id::{Kind, TaskId};
use ekiden_core::limits;
use ekiden_core::pool::{Concurrency, PoolSettings, Timeout};
use ekiden_core::time::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::attempt::{self, End, LastWord, Word};
use super::builder::Options;
use super::progress::Reporter;
use super::pulse::Pulse;
use super::table::{Fate, Run, Slot, Table};
use super::upkeep;
use super::warden::{Deadlines, Warden};
use super::{Ended, Stop};
use crate::bell::Bell;
use crate::client::Client;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::port::{Ask, LeaseRef, Leased, Settlement, Verdict};

/// 256 words at once: as many as a claim can start.
const WORDS_MAX: usize = 256;

/// 64 attempts beyond the concurrency whose end could not be written: then the store has to recover first.
const UNSETTLED_MAX: usize = 64;

/// The wait before an end that could not be written is tried again.
const SETTLE_AGAIN: Duration = Duration::from_millis(200);

/// Five seconds for the last settlements of a runner that ends.
const LAST_SETTLEMENTS: Duration = Duration::from_secs(5);

/// Ten seconds for a store that does not answer when everything must end at once.
const AT_ONCE: Duration = Duration::from_secs(10);

pub(super) struct Engine {
    client: Client,
    options: Arc<Options>,
    stop: Stop,
    handlers: Handle,
    table: Arc<Table>,
    words: UnboundedReceiver<Word>,
    speak: UnboundedSender<Word>,
    reporter: Arc<Reporter>,
    deadlines: Arc<Deadlines>,
    next_slot: Slot,
    /// Rises with each claim, so that each ask comes first in its turn.
    turn: usize,
    concurrency: usize,
    /// Ends to be written.
    ends: Vec<Settlement>,
    ended: Ended,
}

impl Engine {
    pub(super) fn new(client: Client, options: Arc<Options>, stop: Stop, handlers: Handle) -> Self {
        let (speak, words) = unbounded_channel();
        Self {
            client,
            options,
            stop,
            handlers,
            table: Arc::default(),
            words,
            speak,
            reporter: Arc::default(),
            deadlines: Arc::default(),
            next_slot: 0,
            turn: 0,
            concurrency: 1,
            ends: Vec::new(),
            ended: Ended::default(),
        }
    }

    pub(super) async fn run(mut self) -> Ended {
        let hopeless = self.patience_ends();
        tokio::select! {
            outcome = self.live() => {
                if let Err(error) = outcome {
                    tracing::error!(%error, "runner ends early");
                }
            }
            () = hopeless => tracing::error!("the store did not answer in time, runner ends"),
        }
        self.table.lock().values().for_each(Run::drop_handler);
        self.ended.unsettled.extend(self.ends.iter().map(|end| end.lease.task.id.clone()));
        self.ended.unsettled.extend(self.table.lock().values().filter(|run| run.fate != Fate::Left).map(task_id));
        self.ended
    }

    /// A store that does not answer must not keep a runner from ending: gently after everything that may take time has had
    /// it, at once soon after that was asked for.
    fn patience_ends(&self) -> impl Future<Output = ()> + use<> {
        let Options { grace, cancel_grace, .. } = *self.options;
        let gently = grace.saturating_add(cancel_grace).saturating_add(LAST_SETTLEMENTS).saturating_add(AT_ONCE);
        let stop = self.stop.clone();
        async move {
            stop.gently.cancelled().await;
            let in_time = async {
                stop.at_once.cancelled().await;
                tokio::time::sleep(AT_ONCE).await;
            };
            // Either way the patience is over.
            let _ = tokio::time::timeout(gently, in_time).await;
        }
    }

    async fn live(&mut self) -> Result<()> {
        let Some(settings) = self.settings().await else { return Ok(()) };
        self.concurrency = self.options.concurrency.unwrap_or_else(|| cores(settings.concurrency));
        let lease = self.options.lease.unwrap_or(settings.lease);
        let pulse = Arc::new(Pulse::new(self.client.clone(), self.options.clone(), lease)?);
        // They end with this set.
        let mut company = JoinSet::new();
        company.spawn(pulse.clone().beat_on());
        company.spawn(self.reporter.clone().pass_on(self.client.queue().clone()));
        company.spawn(self.warden(pulse.clone()).watch_on());
        if self.options.maintenance {
            company.spawn(upkeep::maintain_on(self.client.clone()));
        }
        tokio::select! {
            () = pulse.started() => {}
            () = self.stop.gently.cancelled() => return Ok(()),
        }
        let poll = self.options.poll.unwrap_or_else(|| settings.poll.as_duration());
        self.work(&pulse, poll, lease.as_duration()).await;
        self.wind_down(&pulse).await;
        company.shutdown().await;
        self.client.queue().goodbye(self.client.namespace().clone(), pulse.runner()).await
    }

    /// The settings of the first pool; a store that is not there yet is waited for.
    async fn settings(&self) -> Option<PoolSettings> {
        let pool = self.options.pools.first()?;
        loop {
            tokio::select! {
                settings = self.client.pool(pool.as_str()) => match settings {
                    Ok(settings) => return Some(settings),
                    Err(error) => tracing::warn!(%error, "cannot read the settings of the pool"),
                },
                () = self.stop.gently.cancelled() => return None,
            }
            tokio::time::sleep(SETTLE_AGAIN).await;
        }
    }

    fn warden(&self, pulse: Arc<Pulse>) -> Warden {
        Warden {
            client: self.client.clone(),
            table: self.table.clone(),
            pulse,
            words: self.speak.clone(),
            cancel_grace: self.options.cancel_grace,
            deadlines: self.deadlines.clone(),
        }
    }

    fn monotonic(&self) -> Duration {
        self.client.tools().clock.monotonic()
    }

    async fn work(&mut self, pulse: &Pulse, poll: Duration, lease: Duration) {
        let bell = self.client.queue().bell(self.client.namespace());
        let mut heard = bell.ready.heard();
        let mut look_at = self.monotonic();
        let mut compare_at = self.monotonic() + lease;
        let mut claims = true;
        let mut known = None;
        loop {
            if claims || !self.ends.is_empty() {
                claims = self.exchange(pulse, claims).await;
            }
            claims |= self.became_due(&bell, &mut known).await;
            let again = if self.ends.is_empty() { Duration::MAX } else { SETTLE_AGAIN };
            let wait = self.until_next(&bell, look_at).min(again);
            let mut words = Vec::new();
            tokio::select! {
                biased;
                () = self.stop.gently.cancelled() => return,
                _ = self.words.recv_many(&mut words, WORDS_MAX) => claims = true,
                () = bell.ready.since(&mut heard) => claims = true,
                () = tokio::task::yield_now(), if claims => {}
                () = tokio::time::sleep(wait) => {
                    claims = true;
                    look_at = self.monotonic() + poll;
                    self.look_ahead(&bell).await;
                }
            }
            self.hear(words, pulse);
            if self.monotonic() >= compare_at {
                compare_at = self.monotonic() + lease;
                self.compare(pulse).await;
            }
        }
    }

    /// Whether the moment that was waited for has come, by whatever this runner was woken. The bell knows one moment only, so
    /// that is when the one after it is looked for.
    async fn became_due(&self, bell: &Bell, known: &mut Option<Timestamp>) -> bool {
        let now = self.client.tools().clock.now();
        let came = known.is_some_and(|due| due <= now);
        if came {
            self.look_ahead(bell).await;
        }
        *known = bell.earliest(self.client.tools().clock.now());
        came
    }

    /// Until the next look, or until a task is known to be due.
    fn until_next(&self, bell: &Bell, look_at: Duration) -> Duration {
        let now = self.client.tools().clock.now();
        let look = look_at.saturating_sub(self.monotonic());
        bell.earliest(now).map_or(look, |due| look.min(due.since(now).as_duration()))
    }

    /// Asks when the next waiting task is due, so that it is not late by a poll.
    async fn look_ahead(&self, bell: &Bell) {
        match self.client.queue().next_due(self.client.namespace().clone()).await {
            Ok(Some(due)) => bell.ready_at(due, self.client.tools().clock.now()),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "cannot see what is due next"),
        }
    }

    fn hear(&mut self, words: Vec<Word>, pulse: &Pulse) {
        for (slot, end) in words {
            self.end(slot, end);
        }
        debug_assert!(self.table.len() <= self.concurrency, "no more than its concurrency runs on {}", pulse.runner());
    }

    /// Writes down what ended, claims what there is room for, and starts it. Says whether there may be more.
    async fn exchange(&mut self, pulse: &Pulse, claims: bool) -> bool {
        let mut asks = if claims && self.may_claim(pulse) { self.asks(pulse) } else { Vec::new() };
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
        more |= self.begin(leased, full);
        while let Some(mut ask) = asks.pop() {
            ask.limit = ask.limit.min(self.room());
            if ask.limit > 0 {
                full = ask.limit;
                let leased = self.client.queue().dequeue_ready(ask).await;
                more |= self.begin(leased, full);
            }
        }
        more && self.room() > 0
    }

    fn room(&self) -> usize {
        self.concurrency.saturating_sub(self.table.len())
    }

    fn may_claim(&self, pulse: &Pulse) -> bool {
        self.room() > 0 && self.ends.len() < self.concurrency + UNSETTLED_MAX && pulse.may_claim()
    }

    /// One ask for the kinds without a limit, and one for each kind that has one and is not at it.
    fn asks(&mut self, pulse: &Pulse) -> Vec<Ask> {
        let room = self.room();
        let holder = pulse.runner();
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
        let mut outcomes = answer.settled.into_iter();
        for end in std::mem::take(&mut self.ends) {
            match outcomes.next() {
                Some(Ok(_)) => self.settled(&end),
                Some(Err(error)) => self.not_settled(end, &error),
                None => self.ends.push(end),
            }
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
        if error.is_retryable() || error.is_unknown() {
            tracing::warn!(task_id, %error, "cannot write how an attempt ended, trying again");
            self.ends.push(end);
            return;
        }
        match attempt::instead(&end.verdict, error) {
            Some(verdict) => self.ends.push(Settlement { id: self.client.op_id(), verdict, lease: end.lease }),
            None if attempt::is_not_ours(error) => {
                tracing::warn!(task_id, %error, "the attempt was no longer ours to end");
            }
            None => tracing::error!(task_id, %error, "cannot write that an attempt failed"),
        }
    }

    /// Starts what was given. Says whether there may be more of it.
    fn begin(&mut self, leased: Result<Vec<Leased>>, asked: usize) -> bool {
        match leased {
            Ok(leased) => {
                let more = asked > 0 && leased.len() == asked;
                for one in leased {
                    self.start(one);
                }
                more
            }
            Err(error) => {
                tracing::warn!(%error, "cannot claim");
                false
            }
        }
    }

    fn start(&mut self, leased: Leased) {
        let kind = leased.spec.envelope.task_type.clone();
        let Some(call) = self.options.calls.get(&kind).cloned() else {
            self.push_end(leased.lease, Verdict::Returned);
            return;
        };
        let slot = self.next_slot;
        self.next_slot += 1;
        let stop = CancellationToken::new();
        let deadline = match leased.spec.policy.timeout {
            Timeout::After(limit) => Some(self.monotonic().saturating_add(limit.as_duration())),
            Timeout::Never => None,
        };
        let context = Context::new(self.client.clone(), &leased, stop.clone(), self.reporter.clone());
        let payload = leased.spec.envelope.payload.clone();
        let last_word = LastWord::new(slot, self.speak.clone());
        // The lock is held until the attempt is in the table: its end must find it there.
        let mut runs = self.table.lock();
        let handler = self.handlers.spawn(attempt::run(call, payload, context, last_word));
        let abort = Some(handler.abort_handle());
        runs.insert(slot, Run { lease: leased.lease, kind, stop, abort, deadline, fate: Fate::Running });
        drop(runs);
        if let Some(deadline) = deadline {
            self.deadlines.begins(deadline);
        }
    }

    fn end(&mut self, slot: Slot, end: End) {
        let mut runs = self.table.lock();
        let Some(run) = runs.get_mut(&slot) else { return };
        let verdict = match (run.fate, end) {
            (Fate::TimedOut { .. }, End::GivenUp) => {
                run.fate = Fate::Left;
                let lease = run.lease.clone();
                drop(runs);
                self.push_end(lease, Verdict::TimedOut);
                return;
            }
            (_, End::GivenUp) => return,
            (Fate::Left, _) => None,
            (Fate::TimedOut { .. }, _) => Some(Verdict::TimedOut),
            (Fate::Cancelled { .. }, _) => Some(Verdict::Stopped(Stage::Verified)),
            (Fate::Running | Fate::Interrupted, End::Said(verdict)) => Some(verdict),
            (Fate::Running | Fate::Interrupted, End::Dropped) => Some(Verdict::Interrupted),
        };
        let run = runs.remove(&slot);
        drop(runs);
        if let (Some(run), Some(verdict)) = (run, verdict) {
            self.push_end(run.lease, verdict);
        }
    }

    fn push_end(&mut self, lease: LeaseRef, verdict: Verdict) {
        self.ends.push(Settlement { id: self.client.op_id(), lease, verdict });
    }

    /// What the store says this runner holds and it does not run: a claim's reply got lost for good. It is given back.
    async fn compare(&mut self, pulse: &Pulse) {
        match self.client.queue().held(self.client.namespace().clone(), pulse.runner()).await {
            Ok(held) => {
                for lease in held {
                    let ending = |end: &Settlement| end.lease.task == lease.task && end.lease.token == lease.token;
                    if !self.table.holds(&lease.task.id, lease.token) && !self.ends.iter().any(ending) {
                        tracing::warn!(task_id = lease.task.id.as_str(), "held but not running, given back");
                        self.push_end(lease, Verdict::Returned);
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "cannot see what is held"),
        }
    }

    /// No more claims. What runs may finish within the grace, then it is interrupted.
    async fn wind_down(&mut self, pulse: &Pulse) {
        let at_once = self.stop.at_once.clone();
        let grace = self.options.grace;
        tokio::select! {
            () = self.settle_until_idle(pulse) => return,
            () = at_once.cancelled() => {}
            () = tokio::time::sleep(grace) => {}
        }
        for run in self.table.lock().values_mut().filter(|run| run.fate == Fate::Running) {
            run.fate = Fate::Interrupted;
            run.stop.cancel();
            run.drop_handler();
        }
        let dropped = tokio::time::timeout(self.options.cancel_grace, self.settle_until_idle(pulse)).await;
        if dropped.is_err() {
            self.leave_blocked();
        }
        let _ = tokio::time::timeout(LAST_SETTLEMENTS, async {
            while !self.ends.is_empty() {
                self.exchange(pulse, false).await;
                self.pause().await;
            }
        })
        .await;
    }

    /// Handlers that block their threads cannot be dropped. Their tasks go to others all the same, but for those that were
    /// cancelled: who comes next must not overlap them.
    fn leave_blocked(&mut self) {
        let mut blocked = Vec::new();
        for run in self.table.lock().values_mut() {
            let verdict = match run.fate {
                Fate::Interrupted => Verdict::Interrupted,
                Fate::TimedOut { .. } => Verdict::TimedOut,
                Fate::Running | Fate::Cancelled { .. } | Fate::Left => continue,
            };
            run.fate = Fate::Left;
            blocked.push((run.lease.clone(), verdict));
        }
        for (lease, verdict) in blocked {
            self.push_end(lease, verdict);
        }
    }

    async fn settle_until_idle(&mut self, pulse: &Pulse) {
        while self.table.open() > 0 || !self.ends.is_empty() {
            let mut words = Vec::new();
            if !self.ends.is_empty() {
                self.exchange(pulse, false).await;
            }
            if self.table.open() == 0 {
                self.pause().await;
                continue;
            }
            let again = if self.ends.is_empty() { Duration::MAX } else { SETTLE_AGAIN };
            tokio::select! {
                _ = self.words.recv_many(&mut words, WORDS_MAX) => {}
                () = tokio::time::sleep(again) => {}
            }
            self.hear(words, pulse);
        }
    }

    /// Only while something could not be written.
    async fn pause(&self) {
        if !self.ends.is_empty() {
            tokio::time::sleep(SETTLE_AGAIN).await;
        }
    }
}

fn task_id(run: &Run) -> TaskId {
    run.lease.task.id.clone()
}

fn cores(concurrency: Concurrency) -> usize {
    match concurrency {
        Concurrency::Cores => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        Concurrency::Fixed(count) => usize::try_from(count).unwrap_or(1),
    }
}
