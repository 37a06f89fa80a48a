//! Seeded schedules of several runners on one DynamoDB server: each is a process of its own to the store, with its own way
//! through a bad line, and is killed at some of its requests and begun anew. What they saw is held against the laws.
//!
//! A killed process is all its futures dropped at once, between a request that was carried out and its answer. Time is
//! virtual and moved by the load; the requests are real.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ekiden_core::id::{Namespace, PoolName};
use ekiden_core::key::Key;
use ekiden_store::entropy::Entropy;
use ekiden_store::{Store, StoreExt};

use super::tally::Tally;
use crate::checker::check;
use crate::proxy::{Faults, Proxy};
use crate::workload::{Apart, Options};

/// Two minutes: far longer than a schedule takes, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// 400 requests between two kills at most: about a third of what a runner sends in a schedule.
const REQUESTS_MAX: usize = 400;

/// Opens the store under test.
#[async_trait]
pub trait Opener: Send + Sync {
    /// On the tables of a schedule, by the server at an endpoint.
    async fn open(&self, endpoint: &str, tables: &str) -> Arc<dyn Store>;
}

/// How many, how much, how bad.
#[derive(Clone, Copy, Debug)]
pub struct Schedules {
    /// The first seed; each schedule has the next one.
    pub seed: u64,
    /// How many schedules.
    pub count: usize,
    /// How many runners each has.
    pub runners: usize,
    /// How many tasks they hand in, all together and about.
    pub tasks: usize,
    /// How often each of them is killed.
    pub kills_each: usize,
    /// How bad the line is.
    pub faults: Faults,
}

impl Default for Schedules {
    fn default() -> Self {
        Self { seed: 0, count: 1, runners: 4, tasks: 24, kills_each: 1, faults: Faults::SOME }
    }
}

/// Runs the schedules one after another. `server` is the server's own endpoint.
pub async fn schedules(server: &str, opener: &dyn Opener, plan: &Schedules) -> Tally {
    let mut tally = Tally::begin(format!("kills of {} runners on a bad line to DynamoDB", plan.runners));
    let mut faults = 0;
    for seed in (plan.seed..).take(plan.count) {
        let one = Schedule { server, opener, plan, seed };
        let ended = tokio::time::timeout(LIMIT, one.run(&mut tally)).await;
        faults += ended.unwrap_or_else(|_| panic!("the schedule of seed {seed} does not come to rest"));
    }
    tally.remark(&format!(", {faults} faults of the line"));
    tally.end()
}

struct Schedule<'a> {
    server: &'a str,
    opener: &'a dyn Opener,
    plan: &'a Schedules,
    seed: u64,
}

impl Schedule<'_> {
    /// Says how many faults the line had.
    async fn run(&self, tally: &mut Tally) -> u64 {
        let tables = format!("s{:016x}-", Entropy::from_system().next_u64());
        let store = self.opener.open(self.server, &tables).await;
        let options = Options { seed: self.seed, clients: self.plan.runners, tasks: self.plan.tasks };
        let load = Apart::new(store.clone(), options);
        let lives = (0..self.plan.runners).map(|number| self.live(&load, &tables, number));
        let lives = futures(lives).await;
        let faults = lives.iter().map(|(_, faults)| faults).sum();
        tally.faults += lives.iter().map(|(kills, _)| kills).sum::<usize>();
        let (history, last) = load.come_to_rest().await;
        tally.count(&history);
        tally.tasks += last.tasks.len();
        tally.seeds.push(self.seed);
        tally.violations.extend(check(&history, &last));
        let limited = Key::running(&word(Namespace::new("default")), &word(PoolName::new("limited")));
        let running = store.get_one(limited).await.expect("the server itself answers");
        let running = running.and_then(|found| found.record.as_counter()).unwrap_or(0);
        if self.plan.faults.unguarded_claims {
            return faults;
        }
        assert_eq!(running, 0, "seed {}: nobody runs, so the limited pool counts nobody", self.seed);
        faults
    }

    /// One runner from its first incarnation to its last: how often it was killed, and the faults that it met.
    async fn live(&self, load: &Apart, tables: &str, number: usize) -> (usize, u64) {
        let stream = u64::try_from(number).unwrap_or(0);
        let mut entropy = Entropy::from_seed(self.seed.wrapping_mul(31).wrapping_add(stream));
        let mut faults = 0;
        for incarnation in 0..=self.plan.kills_each {
            let proxy = Proxy::start(self.server, self.plan.faults, entropy.next_u64()).await;
            let proxy = proxy.expect("the loopback has a free port");
            if incarnation < self.plan.kills_each {
                proxy.kill_at(u64::try_from(1 + entropy.below(REQUESTS_MAX)).unwrap_or(1));
            }
            let life = async {
                let store = self.opener.open(proxy.endpoint(), tables).await;
                load.work(store, number + incarnation * self.plan.runners).await;
            };
            let killed = tokio::select! {
                () = life => false,
                () = proxy.killed() => true,
            };
            faults += proxy.seen().values().sum::<u64>();
            if !killed {
                return (incarnation, faults);
            }
        }
        (self.plan.kills_each, faults)
    }
}

fn word<T, E: std::fmt::Debug>(word: Result<T, E>) -> T {
    word.expect("a plain word is a valid id")
}

/// All of them side by side.
async fn futures<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<_> = all.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut ready = true;
        for (future, done) in &mut all {
            if done.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(output) => *done = Some(output),
                    std::task::Poll::Pending => ready = false,
                }
            }
        }
        if ready { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    all.into_iter().filter_map(|(_, done)| done).collect()
}
