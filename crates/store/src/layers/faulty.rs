//! Makes a store fail as real ones do: refuse, lose a reply before or after the work was done, be slow. Repeatable by seed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ekiden_core::id::Namespace;
use ekiden_core::key::Key;
use ekiden_core::record::Versioned;
use tokio::sync::broadcast;

use super::one_by_one;
use crate::entropy::Entropy;
use crate::error::StoreError;
use crate::op::{Op, Outcome};
use crate::query::{CountScope, Counts, DueEntry, DueQuery, Page, RecordQuery, TaskQuery};
use crate::store::{CheckDepth, Finding, Hint, Info, Store};

/// How often what goes wrong, in percent of the requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The op is refused before anything happened.
    pub refused: u32,
    /// The op is carried out, but its reply is lost.
    pub reply_lost: u32,
    /// The request is lost; the caller cannot tell that from a lost reply.
    pub request_lost: u32,
    /// A read fails.
    pub read_failed: u32,
    /// The longest that a call is delayed; the time is chosen at random.
    pub delay_max: Duration,
}

/// What becomes of one op.
enum Fate {
    Fine,
    Refused,
    ReplyLost,
    RequestLost,
}

/// A store that fails now and then.
#[derive(Debug)]
pub struct Faulty<S> {
    inner: S,
    faults: Faults,
    entropy: Mutex<Entropy>,
}

impl<S: Store> Faulty<S> {
    /// Puts the layer around a store.
    pub fn new(inner: S, faults: Faults, seed: u64) -> Self {
        Self { inner, faults, entropy: Mutex::new(Entropy::from_seed(seed)) }
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut Entropy) -> T) -> T {
        draw(&mut self.entropy.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn fate(&self) -> Fate {
        let Faults { refused, reply_lost, request_lost, .. } = self.faults;
        let dice = self.draw(|entropy| u32::try_from(entropy.below(100)).unwrap_or(0));
        match dice {
            dice if dice < refused => Fate::Refused,
            dice if dice < refused + reply_lost => Fate::ReplyLost,
            dice if dice < refused + reply_lost + request_lost => Fate::RequestLost,
            _ => Fate::Fine,
        }
    }

    async fn delay(&self) {
        let longest = usize::try_from(self.faults.delay_max.as_micros()).unwrap_or(usize::MAX);
        if longest > 0 {
            let micros = self.draw(|entropy| entropy.below(longest));
            tokio::time::sleep(Duration::from_micros(u64::try_from(micros).unwrap_or(0))).await;
        }
    }

    async fn read(&self) -> Result<(), StoreError> {
        self.delay().await;
        let failed = self.draw(|entropy| entropy.chance(self.faults.read_failed));
        if failed { Err(StoreError::unavailable("injected: read failed")) } else { Ok(()) }
    }

    async fn one(&self, op: Op) -> Outcome {
        self.delay().await;
        let no_answer = || Err(StoreError::unknown("injected: the store gave no answer"));
        match self.fate() {
            Fate::Refused => Err(StoreError::unavailable("injected: refused")),
            Fate::RequestLost => Err(StoreError::unknown("injected: the request got lost")),
            Fate::ReplyLost => {
                let outcome = self.inner.apply(vec![op]).await.pop().unwrap_or_else(no_answer);
                outcome.and_then(|_| Err(StoreError::unknown("injected: the reply got lost")))
            }
            Fate::Fine => self.inner.apply(vec![op]).await.pop().unwrap_or_else(no_answer),
        }
    }
}

#[async_trait]
impl<S: Store> Store for Faulty<S> {
    fn info(&self) -> Info {
        self.inner.info()
    }

    async fn apply(&self, ops: Vec<Op>) -> Vec<Outcome> {
        one_by_one(ops, |op| self.one(op)).await
    }

    async fn get(&self, keys: Vec<Key>) -> Result<Vec<Option<Versioned>>, StoreError> {
        self.read().await?;
        self.inner.get(keys).await
    }

    async fn due(&self, query: DueQuery) -> Result<Vec<DueEntry>, StoreError> {
        self.read().await?;
        self.inner.due(query).await
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<Versioned>, StoreError> {
        self.read().await?;
        self.inner.tasks(query).await
    }

    async fn records(&self, query: RecordQuery) -> Result<Page<Versioned>, StoreError> {
        self.read().await?;
        self.inner.records(query).await
    }

    async fn counts(&self, scope: CountScope) -> Result<Counts, StoreError> {
        self.read().await?;
        self.inner.counts(scope).await
    }

    async fn namespaces(&self, after: Option<Namespace>, limit: usize) -> Result<Page<Namespace>, StoreError> {
        self.read().await?;
        self.inner.namespaces(after, limit).await
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        self.inner.watch()
    }

    async fn check(&self, depth: CheckDepth) -> Result<Vec<Finding>, StoreError> {
        self.inner.check(depth).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}
