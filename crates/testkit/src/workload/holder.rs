//! A runner that holds tasks while its process may stand still, maintenance that takes away what was held too long, and another
//! runner that gets some of it. Time is what the scene's clock says: here it follows the machine's.

use std::sync::Arc;
use std::time::Duration;

use ekiden_core::claim::{Claim, ClaimPool, Kinds, LeaseTerm};
use ekiden_core::event::Event;
use ekiden_core::id::{Kind, RunnerId, TaskId};
use ekiden_core::index::DueIndex;
use ekiden_core::key::Key;
use ekiden_core::lease::Token;
use ekiden_core::newer::Newer;
use ekiden_core::plan::{Beat, Enqueue, Goodbye};
use ekiden_core::pool::{Keep, Policy, Timeout};
use ekiden_core::retry::RetryPolicy;
use ekiden_core::runner::{Runner, RunnerStatus};
use ekiden_core::task::{Spec, TaskEnvelope};
use ekiden_core::time::Millis;
use ekiden_core::transition::Start;
use tokio::task::JoinHandle;

use super::Scene;
use super::maintenance::page;
use super::world::{Actor, Sent, World, namespace, pool, token_of};
use crate::facts::{Call, EnqueueFacts, Note};

/// The pool of what is held.
const POOL: &str = "work";

/// 2 ms between two looks at what is due: maintenance and the pulse come in either order after a stop.
const PAUSE: Duration = Duration::from_millis(2);

/// Holds tasks.
pub struct Holder {
    world: Arc<World>,
    mine: Actor,
    other: Actor,
    upkeep: Actor,
    lease: Millis,
    round: u64,
    runner: Option<(RunnerId, JoinHandle<()>)>,
    held: Vec<(TaskId, Token)>,
    given: Vec<(TaskId, Token)>,
}

/// What became of late settlements.
#[derive(Clone, Copy, Debug, Default)]
pub struct LateSettlements {
    /// How many were refused.
    pub refused: usize,
    /// How many were accepted.
    pub accepted: usize,
}

impl Holder {
    /// A runner whose leases last so long.
    pub fn new(scene: Scene, lease: Millis) -> Self {
        let world = World::of(scene);
        let actor = |name, stream| Actor::new(world.clone(), name, stream);
        let (mine, other, upkeep) = (actor("holder", 910), actor("other", 911), actor("maintenance", 912));
        Self { world, mine, other, upkeep, lease, round: 0, runner: None, held: Vec::new(), given: Vec::new() }
    }

    /// Hands in so many tasks and claims them, half until a moment and half for as long as it beats; the work begins. Says how
    /// many there are, or nothing if they are not as many.
    pub async fn take(&mut self, tasks: usize) -> Option<usize> {
        self.leave().await;
        self.round += 1;
        let runner = self.mine.runner_id(usize::try_from(self.round).unwrap_or(0));
        let mut pulse = Pulse {
            actor: Actor::new(self.world.clone(), "pulse", 1_000 + self.round),
            runner: runner.clone(),
            lease: self.lease,
            oversleeps: self.oversleeps(),
        };
        pulse.beat().await;
        self.runner = Some((runner.clone(), tokio::spawn(pulse.go_on())));
        for _ in 0..tasks {
            self.hand_in().await;
        }
        let terms = [(LeaseTerm::For(self.lease), tasks / 2), (LeaseTerm::Heartbeat, tasks - tasks / 2)];
        for (lease, limit) in terms {
            let claim = claim(&mut self.mine, &runner, lease, limit);
            let taken = self.mine.claim(&claim).await;
            self.held.extend(taken.iter().map(|task| (task.id().clone(), token_of(task))));
        }
        for (task, token) in &self.held {
            self.mine.record.note(Note::Started { task: task.clone(), token: *token });
        }
        (self.held.len() == tasks).then_some(tasks)
    }

    /// Every second time the runner is the last to wake up after a stop. By itself it would be the first, and nothing that
    /// depends on its beats would ever be lost.
    const fn oversleeps(&self) -> bool {
        self.round.is_multiple_of(2)
    }

    async fn hand_in(&mut self) {
        let now = self.world.now();
        let (id, op) = (self.mine.entropy.task_id(now), self.mine.op());
        let kind = Kind::new("a").expect("a letter is a valid id");
        let spec = Spec::new(namespace(), pool(POOL), id, TaskEnvelope::json(kind, "{}"), policy(), now);
        let facts = EnqueueFacts {
            op,
            task: spec.id.clone(),
            unique: None,
            idempotency: None,
            lane: None,
            waits: false,
            parents: 0,
            attempts_max: spec.policy.attempts_max,
        };
        let plan = Enqueue { spec: Arc::new(spec), start: Start::Released, parents: Vec::new(), idempotency: None };
        self.mine.hand_in(&plan, op, &Call::Enqueue(Box::new(facts))).await;
    }

    /// Maintenance goes on until some of the tasks were lost and given to the other runner, which begins to work on them: a
    /// quarter while the runner may still beat in time, three quarters when it cannot.
    pub async fn lose(&mut self) -> usize {
        let holder = self.other.runner_id(99);
        let quarters = if self.oversleeps() { 3 } else { 1 };
        let wanted = (self.held.len() * quarters / 4).max(1);
        let mut pause = tokio::time::interval(PAUSE);
        while self.given.len() < wanted {
            pause.tick().await;
            for index in [DueIndex::Lease, DueIndex::Runner, DueIndex::Promote] {
                page(&mut self.upkeep, index).await;
            }
            let claim =
                claim(&mut self.other, &holder, LeaseTerm::For(Millis::from_secs(600)), wanted - self.given.len());
            for task in self.other.claim(&claim).await {
                let (task, token) = (task.id().clone(), token_of(&task));
                self.other.record.note(Note::Started { task: task.clone(), token });
                self.given.push((task, token));
            }
        }
        self.given.len()
    }

    /// The work of the first holder ends, however late, and is settled as a success; then that of the other.
    pub async fn settle_late(&mut self) -> LateSettlements {
        let mut late = LateSettlements::default();
        for (task, token) in std::mem::take(&mut self.held) {
            match succeed(&mut self.mine, task, token).await {
                Sent::Done(_) => late.accepted += 1,
                Sent::Refused(_) => late.refused += 1,
                Sent::GaveUp => {}
            }
        }
        for (task, token) in std::mem::take(&mut self.given) {
            succeed(&mut self.other, task, token).await;
        }
        late
    }

    /// The runner says goodbye, if it has not been declared dead.
    pub async fn leave(&mut self) {
        if let Some((runner, pulse)) = self.runner.take() {
            pulse.abort();
            self.mine.quietly(&Goodbye { runner: Key::runner(&namespace(), &runner) }).await;
        }
    }
}

fn claim(actor: &mut Actor, holder: &RunnerId, lease: LeaseTerm, limit: usize) -> Claim {
    Claim {
        id: actor.op(),
        now: actor.world.now(),
        pools: vec![ClaimPool::open(namespace(), pool(POOL))],
        kinds: Kinds::Any,
        limit: limit.max(1),
        holder: holder.clone(),
        lease,
    }
}

async fn succeed(actor: &mut Actor, task: TaskId, token: Token) -> Sent<ekiden_core::plan::Happened> {
    actor.record.note(Note::Finished { task: task.clone(), token });
    actor.settle(&task, token, Event::Succeeded { token, result: None }).await
}

fn policy() -> Arc<Policy> {
    Arc::new(Policy {
        attempts_max: 5,
        crashes_max: None,
        retry: RetryPolicy::Fixed { delay: Millis::new(100) },
        timeout: Timeout::Never,
        keep: Keep::Forever,
        keep_dead: Keep::Forever,
        reopen: false,
        newer: Newer::NONE,
    })
}

/// The holder's signs of life, on a task of their own: they stop with the process and go on with it.
struct Pulse {
    actor: Actor,
    runner: RunnerId,
    lease: Millis,
    oversleeps: bool,
}

impl Pulse {
    /// Until the runner is declared dead. One that oversleeps gives no sign of life after a silence longer than its lease.
    async fn go_on(mut self) {
        let mut tick = tokio::time::interval(Duration::from_millis(self.lease.as_u64()) / 4);
        let mut beat_at = self.actor.world.now();
        loop {
            tick.tick().await;
            let now = self.actor.world.now();
            if self.oversleeps && now.since(beat_at) > self.lease || !self.beat().await {
                return;
            }
            beat_at = now;
        }
    }

    /// Whether the runner still counts as alive.
    async fn beat(&mut self) -> bool {
        let now = self.actor.world.now();
        let runner = Runner {
            namespace: namespace(),
            id: self.runner.clone(),
            started_at: now,
            last_heartbeat: now,
            status: RunnerStatus::Running,
            lease: self.lease,
            project_root: String::new(),
            pools: Vec::new(),
            kinds: Vec::new(),
            newer: Newer::NONE,
        };
        !matches!(self.actor.quietly(&Beat { runner }).await, Sent::Refused(_))
    }
}
