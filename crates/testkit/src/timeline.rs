//! A history prepared for the laws: operations put together from their lines, and listed by task. It answers what is certain
//! and what is possible; the laws decide what to make of it.

use std::collections::BTreeMap;

use ekiden_core::attempt::Outcome;
use ekiden_core::id::{OpId, TaskId};
use ekiden_core::lane::LaneSpec;
use ekiden_core::lease::Token;

use crate::checker::{Law, Violation};
use crate::facts::{Ack, Call, EnqueueFacts, FinalState, FinalTask, Note, Reply};
use crate::history::{History, Line, What};

/// An operation from its first line to its last.
#[derive(Clone, Copy)]
pub(crate) struct Op<'a> {
    pub(crate) call: &'a Call,
    pub(crate) invoke: &'a Line,
    pub(crate) end: End<'a>,
}

/// How an operation ended.
#[derive(Clone, Copy)]
pub(crate) enum End<'a> {
    Ok(&'a Line, &'a Reply),
    Fail,
    Unknown,
}

impl<'a> Op<'a> {
    /// The line that says it happened, and what was answered.
    pub(crate) fn ok(&self) -> Option<(&'a Line, &'a Reply)> {
        if let End::Ok(line, reply) = self.end { Some((line, reply)) } else { None }
    }

    /// Whether it happened by this very request.
    pub(crate) fn ack(&self) -> Option<Ack> {
        match self.ok()?.1 {
            Reply::Enqueued { ack, .. } | Reply::Done(ack) => Some(*ack),
            Reply::Claimed(_) => Some(Ack::Fresh),
        }
    }

    /// Whether it may have happened.
    pub(crate) const fn possible(&self) -> bool {
        !matches!(self.end, End::Fail)
    }

    /// Its lines, for evidence.
    pub(crate) fn lines(&self) -> Vec<String> {
        let end = self.ok().map(|(line, _)| line.to_string());
        [self.invoke.to_string()].into_iter().chain(end).collect()
    }
}

/// A settlement.
#[derive(Clone, Copy)]
pub(crate) struct Settle<'a> {
    pub(crate) op: Op<'a>,
    pub(crate) id: OpId,
    pub(crate) token: Token,
    pub(crate) outcome: Outcome,
}

/// A task that an acknowledged claim handed out.
#[derive(Clone, Copy)]
pub(crate) struct Granted<'a> {
    pub(crate) op: Op<'a>,
    pub(crate) claim: OpId,
    pub(crate) token: Token,
    pub(crate) end: &'a Line,
}

/// Work that was really done. Without an end its process may have died at any moment after the start.
#[derive(Clone, Copy)]
pub(crate) struct Execution<'a> {
    pub(crate) task: &'a TaskId,
    pub(crate) token: Token,
    pub(crate) start: &'a Line,
    pub(crate) end: Option<&'a Line>,
}

/// A look at everything in the store, from its first line to its last.
pub(crate) struct Look<'a> {
    pub(crate) begin: &'a Line,
    pub(crate) end: &'a Line,
    pub(crate) found: BTreeMap<&'a TaskId, &'a Line>,
}

/// What is known of one task.
#[derive(Default)]
pub(crate) struct Life<'a> {
    /// The enqueues that asked for it, happened or not.
    pub(crate) enqueues: Vec<(Op<'a>, &'a EnqueueFacts)>,
    /// Enqueues and retries that answered with it.
    pub(crate) answered: Vec<Op<'a>>,
    pub(crate) granted: Vec<Granted<'a>>,
    pub(crate) settles: Vec<Settle<'a>>,
    pub(crate) cancels: Vec<Op<'a>>,
    pub(crate) retries: Vec<Op<'a>>,
    pub(crate) purges: Vec<Op<'a>>,
    /// Lost leases: what lets a successor run although this attempt never settled.
    pub(crate) releases: Vec<(Op<'a>, Option<Token>)>,
    /// Ended attempts of cancelled tasks. They excuse nothing: who says that the work has ended must not work any more.
    pub(crate) stops: Vec<(Op<'a>, Token)>,
    pub(crate) executions: Vec<Execution<'a>>,
    /// How handlers said that their attempts ended.
    pub(crate) said: Vec<(&'a Line, Token, Outcome)>,
    pub(crate) last: Option<&'a FinalTask>,
}

impl<'a> Life<'a> {
    /// Whether it may have run again as itself after its end. A retry may lead from one task to the one that runs in its place,
    /// so whatever a retry made or answered with counts, and so does a task whose origin nobody recorded.
    pub(crate) fn may_be_reopened(&self) -> bool {
        let by_retry = |op: &Op<'_>| matches!(op.call, Call::Retry { .. });
        self.retries.iter().any(Op::possible) || self.answered.iter().any(by_retry) || self.enqueues.is_empty()
    }

    /// Whether it may have been removed on purpose.
    pub(crate) fn may_be_purged(&self) -> bool {
        self.purges.iter().any(Op::possible)
    }

    /// Settlements as succeeded that were acknowledged.
    pub(crate) fn successes(&self) -> impl Iterator<Item = &Settle<'a>> {
        self.settles.iter().filter(|settle| settle.outcome == Outcome::Succeeded && settle.op.ok().is_some())
    }

    /// The lane that it asked for.
    pub(crate) fn lane(&self) -> Option<&'a LaneSpec> {
        let asked = self.enqueues.iter().find_map(|(_, facts)| facts.lane.as_ref());
        asked.or_else(|| self.last?.lane.as_ref())
    }
}

/// A history by tasks.
pub(crate) struct Timeline<'a> {
    history: &'a History,
    pub(crate) last: &'a FinalState,
    pub(crate) lives: BTreeMap<&'a TaskId, Life<'a>>,
    pub(crate) looks: Vec<Look<'a>>,
}

impl<'a> Timeline<'a> {
    pub(crate) fn new(history: &'a History, last: &'a FinalState) -> Self {
        let mut timeline = Self { history, last, lives: BTreeMap::new(), looks: looks(history) };
        for (task, found) in &last.tasks {
            timeline.life(task).last = Some(found);
        }
        for op in ops(history) {
            timeline.place(op);
        }
        for line in history.lines() {
            timeline.place_note(line);
        }
        timeline
    }

    /// Whether one line certainly came before another.
    pub(crate) fn precedes(&self, first: &Line, second: &Line) -> bool {
        self.history.precedes(first, second)
    }

    /// The moment of the last line.
    pub(crate) fn ends_at(&self) -> i64 {
        self.history.lines().iter().map(|line| line.at).max().unwrap_or(0)
    }

    /// A broken law, with its evidence and what the store says of the task at the end.
    pub(crate) fn violation(&self, law: Law, task: &TaskId, what: String, evidence: Vec<String>) -> Violation {
        let end = match self.last.tasks.get(task) {
            Some(found) => format!("at the end: {found}"),
            None => "at the end: not in the store".to_owned(),
        };
        Violation { law, task: task.clone(), what, evidence: evidence.into_iter().chain([end]).collect() }
    }

    fn life(&mut self, task: &'a TaskId) -> &mut Life<'a> {
        self.lives.entry(task).or_default()
    }

    fn place(&mut self, op: Op<'a>) {
        if let (Call::Claim { claim }, Some((end, Reply::Claimed(grants)))) = (op.call, op.ok()) {
            for grant in grants {
                self.life(&grant.task).granted.push(Granted { op, claim: *claim, token: grant.token, end });
            }
        }
        if let Some((_, Reply::Enqueued { task, .. })) = op.ok() {
            self.life(task).answered.push(op);
        }
        let Some(task) = op.call.task() else { return };
        let life = self.life(task);
        match op.call {
            Call::Enqueue(facts) => life.enqueues.push((op, facts)),
            Call::Settle { op: id, token, outcome, .. } => {
                life.settles.push(Settle { op, id: *id, token: *token, outcome: *outcome });
            }
            Call::Cancel { .. } => life.cancels.push(op),
            Call::Retry { .. } => life.retries.push(op),
            Call::Purge { .. } => life.purges.push(op),
            Call::LeaseLost { token, .. } => life.releases.push((op, *token)),
            Call::EndAttempt { token, .. } => life.stops.push((op, *token)),
            Call::Claim { .. } => {}
        }
    }

    fn place_note(&mut self, line: &'a Line) {
        match &line.what {
            What::Note(Note::Started { task, token }) => {
                self.life(task).executions.push(Execution { task, token: *token, start: line, end: None });
            }
            What::Note(Note::Said { task, token, outcome }) => self.life(task).said.push((line, *token, *outcome)),
            What::Note(Note::Finished { task, token }) => {
                // The same client's: two holders of one token would otherwise end each other's work.
                let mine = |work: &&mut Execution<'_>| {
                    let same_client = work.start.process == line.process && work.start.client == line.client;
                    work.end.is_none() && work.token == *token && same_client
                };
                if let Some(work) = self.life(task).executions.iter_mut().find(mine) {
                    work.end = Some(line);
                }
            }
            _ => {}
        }
    }
}

fn ops(history: &History) -> Vec<Op<'_>> {
    let mut ends = BTreeMap::new();
    for line in history.lines() {
        let end = match &line.what {
            What::Ok(reply) => End::Ok(line, reply),
            What::Fail(_) => End::Fail,
            What::Unknown(_) => End::Unknown,
            What::Invoke(_) | What::Note(_) => continue,
        };
        ends.insert((&line.process, line.op), end);
    }
    let invoked = history.lines().iter().filter_map(|line| match &line.what {
        What::Invoke(call) => Some((line, call)),
        _ => None,
    });
    let end_of = |line: &Line| ends.get(&(&line.process, line.n)).copied().unwrap_or(End::Unknown);
    invoked.map(|(invoke, call)| Op { call, invoke, end: end_of(invoke) }).collect()
}

/// The looks that came to their end. One whose process was killed before that is none.
fn looks(history: &History) -> Vec<Look<'_>> {
    let mut begun = BTreeMap::new();
    let mut looks = Vec::new();
    for line in history.lines() {
        let who = (&line.process, &line.client);
        match &line.what {
            What::Note(Note::Looking) => {
                begun.insert(who, Look { begin: line, end: line, found: BTreeMap::new() });
            }
            What::Note(Note::Found { task, .. }) => {
                begun.entry(who).and_modify(|look| {
                    look.found.insert(task, line);
                });
            }
            What::Note(Note::Looked) => {
                looks.extend(begun.remove(&who).map(|look| Look { end: line, ..look }));
            }
            _ => {}
        }
    }
    looks
}
