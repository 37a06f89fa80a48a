//! What attempts and the engine share: the table, and how a task is taken into it and its end written down.
//!
//! Where the store is in this process, an attempt writes its own end down and takes the next task with the same request, and
//! its tokio task goes on with that: nobody needs to be woken. The engine fills the places that are empty, and does what an
//! attempt cannot: try again, take turns among kinds with limits, wait for what comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ekiden_core::id::OpId;
use ekiden_core::pool::Timeout;

use super::Stop;
use super::attempt::{Attempt, End, LastWord};
use super::builder::Options;
use super::pulse::Pulse;
use super::table::{Fate, Run, Slot, Table};
use super::warden::Deadlines;
use super::words::Words;
use crate::client::Client;
use crate::context::{Context, Surroundings};
use crate::error::Result;
use crate::port::{Ask, LeaseRef, Leased, Verdict};

pub(super) struct Desk {
    pub(super) client: Client,
    pub(super) options: Arc<Options>,
    pub(super) table: Arc<Table>,
    pub(super) words: Arc<Words>,
    /// What the handlers of all attempts share.
    pub(super) around: Arc<Surroundings>,
    pub(super) deadlines: Arc<Deadlines>,
    pub(super) pulse: Arc<Pulse>,
    pub(super) stop: Stop,
    /// Whether attempts write their ends down by themselves.
    pub(super) is_near: bool,
    /// Ends that were written down beside the engine.
    pub(super) settled: AtomicU64,
}

/// What came of an end that was written down beside the engine, and the task that was taken with it.
pub(super) struct Written {
    pub(super) outcome: Result<()>,
    pub(super) next: Option<Leased>,
    /// Which incarnation claimed it.
    pub(super) incarnation: u64,
}

impl Desk {
    /// Takes a task into the table, in the place of another attempt where one is named. The lease comes back if nobody here
    /// can run it.
    pub(super) fn take(
        &self,
        mut leased: Leased,
        instead_of: Option<Slot>,
        incarnation: u64,
    ) -> Result<Attempt, Box<LeaseRef>> {
        let Some(handling) = self.options.calls.get(&leased.spec.envelope.task_type) else {
            return Err(Box::new(leased.lease));
        };
        let deadline = match leased.spec.policy.timeout {
            Timeout::After(limit) => Some(self.client.tools().clock.monotonic().saturating_add(limit.as_duration())),
            Timeout::Never => None,
        };
        let seen = leased.lease.seen.take();
        let context = Context::new(self.around.clone(), leased);
        let (call, stop_within, ends_by_itself) =
            (handling.call.clone(), handling.stop_within, handling.ends_by_itself);
        let run = Run {
            context: context.clone(),
            seen,
            deadline,
            stop_within,
            ends_by_itself,
            fate: Fate::Running,
            incarnation,
            is_doubted: false,
            ending: None,
            claim: None,
        };
        let last_word = LastWord::new(self.table.put(run, instead_of), self.words.clone());
        if let Some(deadline) = deadline {
            self.deadlines.begins(deadline);
        }
        Ok(Attempt { call, context, last_word })
    }

    /// Writes an end down, and asks for the next task with the same request. `None` if there is nothing to write any more.
    pub(super) async fn write(&self, slot: Slot, verdict: Verdict) -> Option<Written> {
        let [id, ask] = self.client.op_ids();
        let incarnation = self.pulse.incarnation();
        let ask = self.ask(ask);
        let end = self.table.ends(slot, verdict, id, ask.as_ref())?;
        let mut answer = self.client.queue().settle(vec![end], ask).await;
        let outcome = answer.settled.pop().map_or(Ok(()), |settled| settled.map(drop));
        // What could not be claimed is found by the engine, which also says so.
        let next = answer.leased.ok().and_then(|mut leased| leased.pop());
        Some(Written { outcome, next, incarnation })
    }

    /// Writes down that an attempt ran out of time, although its handler has not ended.
    pub(super) async fn write_timeout(&self, slot: Slot) {
        let Some(end) = self.table.ends(slot, Verdict::TimedOut, self.client.op_id(), None) else { return };
        let outcome = self.client.queue().settle(vec![end], None).await.settled.pop();
        // Who took the end over meanwhile writes it again, under its own id.
        let Some(ending) = self.table.leave(slot) else { return };
        match outcome {
            Some(Err(error)) => self.words.say((slot, End::Unwritten(Box::new(ending), error))),
            _ => {
                self.settled.fetch_add(1, Ordering::Relaxed);
                self.words.chime.ring();
            }
        }
    }

    /// For one task of any kind, if kinds need not take turns and the runner may claim.
    fn ask(&self, id: OpId) -> Option<Ask> {
        let ([kinds], []) = (self.options.open_kinds.as_slice(), self.options.limited_kinds.as_slice()) else {
            return None;
        };
        (!self.stop.gently.is_cancelled() && self.pulse.may_claim()).then(|| Ask {
            id,
            namespace: self.client.namespace().clone(),
            pools: self.options.pools.clone(),
            kinds: kinds.clone(),
            limit: 1,
            holder: self.pulse.runner(),
        })
    }
}
