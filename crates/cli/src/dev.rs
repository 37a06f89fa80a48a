//! `ekiden dev`: a small taste. Demo tasks are carried through the real rules on the memory store, by a loop that stands in
//! for the runner until there is one.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use anstream::{eprintln, println};
use ekiden_core::claim::{Claim, ClaimPool, Kinds, LeaseTerm};
use ekiden_core::event::Event;
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{Kind, LaneKey, Namespace, PoolName, RunnerId, TaskId};
use ekiden_core::index::DueIndex;
use ekiden_core::key::Key;
use ekiden_core::lane::LaneSpec;
use ekiden_core::lease::Token;
use ekiden_core::limits;
use ekiden_core::plan::{Enqueue, Happen, due_event};
use ekiden_core::pool::Profile;
use ekiden_core::reason::Refusal;
use ekiden_core::retry::{FailureKind, RetryPolicy};
use ekiden_core::task::{Phase, Spec, Task, TaskEnvelope};
use ekiden_core::time::Millis;
use ekiden_core::transition::Start;
use ekiden_store::clock::{Clock, SystemClock};
use ekiden_store::entropy::Entropy;
use ekiden_store::{DueQuery, MemoryStore, Store, StoreExt, TaskQuery};

use crate::language::Lang;

/// How often the loop looks. A real runner is woken; this one only shows the rules.
const TICK: Duration = Duration::from_millis(50);

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Runs the demo until every task has ended, or until Ctrl-C.
pub(crate) fn run(lang: Lang) -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut demo = Demo::new(lang)?;
        eprintln!(
            "{}",
            lang.pick(
                "ekiden dev: demo tasks in memory, nothing is kept. Ctrl-C ends.",
                "ekiden dev: メモリ上のデモタスクです（保存されません）。Ctrl-C で終了します。"
            )
        );
        demo.enqueue_all().await?;
        let ended = demo.carry_on().await?;
        demo.print_table().await?;
        if !ended {
            eprintln!(
                "{}",
                lang.pick(
                    "stopped; what was running was handed back",
                    "中断しました。実行中のタスクはキューに戻しました"
                )
            );
        }
        Ok(())
    })
}

struct Demo {
    lang: Lang,
    store: MemoryStore,
    entropy: Entropy,
    namespace: Namespace,
    runner: RunnerId,
    shown: BTreeMap<TaskId, (Phase, u64)>,
}

impl Demo {
    fn new(lang: Lang) -> Outcome<Self> {
        let names = (Namespace::new("default")?, RunnerId::new("dev.1")?);
        let entropy = Entropy::from_system();
        Ok(Self {
            lang,
            store: MemoryStore::new(),
            entropy,
            namespace: names.0,
            runner: names.1,
            shown: BTreeMap::new(),
        })
    }

    fn spec(&self, name: &str, kind: &str) -> Result<Spec, Refusal> {
        let mut policy = Profile::Embedded.settings().policy;
        Arc::make_mut(&mut policy).retry = RetryPolicy::Fixed { delay: Millis::new(400) };
        let envelope = TaskEnvelope::json(Kind::new(kind)?, "{}");
        Ok(Spec::new(
            self.namespace.clone(),
            PoolName::new("demo")?,
            TaskId::new(name)?,
            envelope,
            policy,
            SystemClock.now(),
        ))
    }

    async fn enqueue_all(&mut self) -> Outcome<()> {
        self.enqueue(self.spec("greet", "succeeds")?, &[]).await?;
        self.enqueue(self.spec("flaky", "fails-twice")?, &[]).await?;
        self.enqueue(self.spec("hopeless", "never-works")?, &[]).await?;
        let mut later = self.spec("later", "succeeds")?;
        later.run_at = Some(later.created_at + Millis::new(900));
        self.enqueue(later, &[]).await?;
        self.enqueue(self.spec("after-flaky", "succeeds")?, &["flaky"]).await?;
        for name in ["lane-1", "lane-2", "lane-3"] {
            let mut spec = self.spec(name, "succeeds")?;
            spec.lane = Some(Arc::new(LaneSpec::serial(LaneKey::new("one-at-a-time")?)));
            self.enqueue(spec, &[]).await?;
        }
        Ok(())
    }

    async fn enqueue(&mut self, spec: Spec, parents: &[&str]) -> Outcome<()> {
        let parents = parents.iter().map(TaskId::new).collect::<Result<_, _>>()?;
        let plan = Enqueue { spec: Arc::new(spec), start: Start::Released, parents, idempotency: None };
        let now = SystemClock.now();
        self.store.run(&plan, self.entropy.op_id(now), now).await?;
        self.show_changes().await
    }

    /// Claims, executes and maintains until all have ended (true) or Ctrl-C (false).
    async fn carry_on(&mut self) -> Outcome<bool> {
        loop {
            let taken = self.claim().await?;
            self.show_changes().await?;
            tokio::select! {
                () = tokio::time::sleep(TICK) => {}
                stop = tokio::signal::ctrl_c() => {
                    stop?;
                    for task in taken {
                        self.happen(&task, Event::Returned { token: Token(task.state.execution_no) }).await?;
                    }
                    return Ok(false);
                }
            }
            for task in taken {
                let event = execute(&task);
                self.happen(&task, event).await?;
            }
            self.maintain().await?;
            self.show_changes().await?;
            if self.shown.values().all(|(phase, _)| phase.is_final()) {
                return Ok(true);
            }
        }
    }

    async fn claim(&mut self) -> Outcome<Vec<Arc<Task>>> {
        let now = SystemClock.now();
        let claim = Claim {
            id: self.entropy.op_id(now),
            now,
            pools: vec![ClaimPool::open(self.namespace.clone(), PoolName::new("demo")?)],
            kinds: Kinds::Any,
            limit: 2,
            holder: self.runner.clone(),
            lease: LeaseTerm::Heartbeat,
        };
        let claimed = self.store.claim(claim).await?;
        Ok(claimed.tasks.iter().filter_map(|found| found.record.as_task().cloned()).collect())
    }

    async fn happen(&mut self, task: &Task, event: Event) -> Outcome<()> {
        let now = SystemClock.now();
        let plan = Happen { task: Key::task(&self.namespace, task.id()), event };
        self.store.run(&plan, self.entropy.op_id(now), now).await?;
        Ok(())
    }

    /// What is due is promoted, and children of ended tasks are released.
    async fn maintain(&mut self) -> Outcome<()> {
        for index in [DueIndex::Promote, DueIndex::Sweep] {
            let now = SystemClock.now();
            let query = DueQuery { namespace: self.namespace.clone(), index, until: now, limit: 100 };
            for entry in self.store.due(query).await? {
                match due_event(index, entry.key.clone()) {
                    Some(plan) => drop(self.store.run(&plan, self.entropy.op_id(now), now).await?),
                    None => self.sweep(entry.key).await?,
                }
            }
        }
        Ok(())
    }

    async fn sweep(&mut self, sweep: Key) -> Outcome<()> {
        let now = SystemClock.now();
        let entropy = &mut self.entropy;
        if let Some(step) = self.store.sweep_step(sweep, limits::SWEEP_ITEMS_MAX, || entropy.task_id(now)).await? {
            self.store.run(&step, self.entropy.op_id(now), now).await?;
        }
        Ok(())
    }

    async fn tasks(&self) -> Outcome<Vec<Arc<Task>>> {
        let query = TaskQuery::oldest(TaskFilter::all(self.namespace.clone()), 100);
        let page = self.store.tasks(query).await?;
        Ok(page.items.iter().filter_map(|found| found.record.as_task().cloned()).collect())
    }

    /// One line for each task whose phase or attempt changed since the last look.
    async fn show_changes(&mut self) -> Outcome<()> {
        for task in self.tasks().await? {
            let seen = (task.state.phase, task.state.execution_no);
            if self.shown.insert(task.id().clone(), seen) != Some(seen) {
                let note =
                    task.state.last_error.as_deref().filter(|_| task.state.phase != Phase::Succeeded).unwrap_or("");
                eprintln!("  {:<12} {:<16} {note}", task.id().as_str(), task.state.phase.as_str());
            }
        }
        Ok(())
    }

    async fn print_table(&self) -> Outcome<()> {
        let titles = match self.lang {
            Lang::En => ["TASK", "TYPE", "PHASE", "ATTEMPTS", "REASON"],
            Lang::Ja => ["タスク", "種別", "フェーズ", "試行", "理由"],
        };
        println!();
        println!("{}", row(titles));
        for task in self.tasks().await? {
            let attempts = format!("{}/{}", task.state.attempts, task.spec.policy.attempts_max);
            let reason = task.state.reason.map_or("", |reason| reason.as_str());
            println!(
                "{}",
                row([
                    task.id().as_str(),
                    task.spec.envelope.task_type.as_str(),
                    task.state.phase.as_str(),
                    &attempts,
                    reason
                ])
            );
        }
        Ok(())
    }
}

/// What the demo's handlers do.
fn execute(task: &Task) -> Event {
    let token = Token(task.state.execution_no);
    let fail = |kind, error: &str| Event::Failed { token, kind, error: Arc::from(error) };
    match task.spec.envelope.task_type.as_str() {
        "fails-twice" if task.state.attempts < 3 => fail(FailureKind::Retryable, "the service did not answer"),
        "never-works" => fail(FailureKind::Permanent, "no such address"),
        _ => Event::Succeeded { token, result: None },
    }
}

/// Cells padded to columns; Japanese characters are two columns wide.
fn row(cells: [&str; 5]) -> String {
    let width = |text: &str| text.chars().map(|c| if c.is_ascii() { 1 } else { 2 }).sum::<usize>();
    let padded = cells
        .iter()
        .zip([13, 13, 17, 10, 0])
        .map(|(cell, column)| format!("{cell}{}", " ".repeat(column.max(width(cell)) - width(cell))));
    padded.collect::<String>().trim_end().to_owned()
}
