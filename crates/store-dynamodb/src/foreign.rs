//! Other programs in the same tables (Q4–Q7, Q11). What they changed of our tasks is heard whenever such a task is read: core
//! decides what it means, and a guarded write makes it so. What they put is adopted by a look beside each claim.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ekiden_core::claim::{Claim, Kinds};
use ekiden_core::commit::{Commit, Expect, Write};
use ekiden_core::event::Event;
use ekiden_core::id::{Namespace, RunnerId};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::plan::{Draft, Lanes, Need, Plan, Stop, View};
use ekiden_core::pool::PROMPT;
use ekiden_core::record::Versioned;
use ekiden_core::time::{Millis, Timestamp};
use ekiden_store::{Answer, DueEntry, DueQuery, RecordQuery, StoreError};

use crate::client::Range;
use crate::codec::said::Said;
use crate::codec::{self, Item, attributes as at, get_text, places, text};
use crate::shared::{Shared, lock};
use crate::tables::{PLACE_INDEX, STATUS_INDEX};

/// 25 items that one look for foreign items reads: some read units a poll, and a queue of thousands is adopted in minutes.
const ADOPT_ITEMS: usize = 25;

/// Five minutes: what is younger is looked at every other time, so that a new item waits for two polls and not for a whole round.
const YOUNG: Millis = Millis::from_secs(300);

/// 4 rounds of hearing one task: each is a change that another program made meanwhile.
const ROUNDS_MAX: usize = 4;

/// Five seconds between two looks at what only other programs bring further: an answer to a question waits no longer.
const ROUND: Duration = Duration::from_secs(5);

/// 100 tasks a look: as many as one batched read takes.
const ROUND_ITEMS: usize = 100;

/// 16 readings for one plan: a task, its lane, its unique key, its children.
const READINGS_MAX: usize = 16;

/// The pool of what other programs put.
const POOL: &str = "default";

/// A record as read, with what another program said of it and core did not accept.
pub(crate) struct Found {
    pub(crate) versioned: Versioned,
    pub(crate) disputed: bool,
}

/// What this process remembers of other programs.
#[derive(Default)]
pub(crate) struct Foreign {
    /// Where the look at all foreign items goes on.
    cursor: Option<Item>,
    /// Whether the next look is at the young ones.
    old_next: bool,
    /// Held by the claim that looks for items of these namespaces.
    looks: HashMap<Vec<Namespace>, Arc<tokio::sync::Mutex<()>>>,
    /// What runners hold by claims of this process.
    held: HashMap<(Namespace, RunnerId), HashSet<Key>>,
    /// When a namespace's tasks that are with others are looked at next, and behind which.
    rounds: HashMap<Namespace, (Duration, Option<String>)>,
}

/// Events that another program reported, one after the other.
struct Heard<'a> {
    task: &'a Key,
    events: &'a [Event],
}

impl Plan for Heard<'_> {
    type Done = ();

    fn draft(&self, draft: &mut Draft<'_>) -> Result<(), Stop> {
        for event in self.events {
            draft.happen(self.task, event)?;
        }
        Ok(())
    }
}

impl Shared {
    /// Records in the order of the keys, after everything that other programs said was heard.
    pub(crate) async fn look(&self, keys: &[Key]) -> Result<Vec<Option<Found>>, StoreError> {
        let mut all = Vec::with_capacity(keys.len());
        for (key, found) in keys.iter().zip(self.get_said(keys).await?) {
            all.push(match found {
                Some((versioned, None)) => Some(Found { versioned, disputed: false }),
                Some((versioned, Some(said))) => self.hear(key, versioned, said).await?,
                None => None,
            });
        }
        Ok(all)
    }

    /// The same, for those who need nothing but the records.
    pub(crate) async fn get(&self, keys: &[Key]) -> Result<Vec<Option<Versioned>>, StoreError> {
        let found = self.look(keys).await?.into_iter();
        Ok(found.map(|found| found.map(|found| found.versioned)).collect())
    }

    async fn hear(&self, key: &Key, found: Versioned, said: Said) -> Result<Option<Found>, StoreError> {
        let (mut found, mut said) = (found, said);
        for _ in 0..ROUNDS_MAX {
            if said.events.is_empty() || !self.carry_out(&found, &said).await? {
                break;
            }
            match self.get_said(std::slice::from_ref(key)).await?.pop().flatten() {
                None => return Ok(None),
                Some((versioned, None)) => return Ok(Some(Found { versioned, disputed: false })),
                Some((versioned, Some(more))) => (found, said) = (versioned, more),
            }
        }
        tracing::warn!(task = %key, status = said.word, "another program wrote a status that cannot follow; left alone");
        Ok(Some(Found { versioned: found, disputed: true }))
    }

    /// Says whether something was written, by us or by somebody quicker. What was said belongs to the task as it was found: read
    /// again, it may have been said otherwise meanwhile, and a program's COMPLETE would be overwritten by its own RUNNING.
    async fn carry_out(&self, found: &Versioned, said: &Said) -> Result<bool, StoreError> {
        let key = &found.key;
        let plan = Heard { task: key, events: &said.events };
        let (id, mut view) = (self.op_id(said.at), View::default().with(found.clone()));
        for _ in 0..READINGS_MAX {
            let needs = match Draft::of(&plan, id, &view, said.at, Lanes::Admit) {
                Ok((_, Some(commit))) => {
                    self.commit(&commit).await?;
                    return Ok(true);
                }
                Ok((_, None)) => return Ok(false),
                Err(Stop::Refused(refusal)) => {
                    tracing::warn!(task = %key, %refusal, "a foreign change is refused");
                    return Ok(false);
                }
                Err(Stop::Need(needs)) => needs,
            };
            for need in needs {
                match need {
                    Need::Record(key) => {
                        let found = self.get_raw(std::slice::from_ref(&key)).await?.pop().flatten();
                        view.insert(key, found);
                    }
                    Need::Page(need) => {
                        let query = RecordQuery {
                            namespace: need.namespace.clone(),
                            kind: need.kind,
                            prefix: need.prefix.clone(),
                            cursor: None,
                            limit: need.limit,
                        };
                        let page = self.records(&query).await?;
                        view.insert_page(need, page.items);
                    }
                }
            }
        }
        Err(StoreError::unavailable("a foreign change needs more than can be read at once"))
    }

    /// Q6: takes in what other programs queued, at most one page a claim. Only claims that could get such a task look.
    pub(crate) async fn adopt(&self, claim: &Claim) {
        let wants = match &claim.kinds {
            Kinds::Any => true,
            Kinds::Only(kinds) => kinds.iter().any(|kind| kind.as_str() == PROMPT),
        };
        let mut namespaces: Vec<&Namespace> =
            claim.pools.iter().filter(|pool| pool.pool.as_str() == POOL).map(|pool| &pool.namespace).collect();
        namespaces.dedup();
        if !wants || namespaces.is_empty() {
            return;
        }
        // Claims of this process that come together need one look, not one each.
        let asked: Vec<Namespace> = namespaces.iter().copied().cloned().collect();
        let looking = lock(&self.foreign).looks.entry(asked).or_default().clone();
        if let Ok(_alone) = looking.try_lock() {
            // The claim has its own tasks to look for, so what fails here is left for the next poll.
            if let Err(error) = self.adopt_page(&namespaces, claim.now).await {
                tracing::warn!(%error, "the look for items of other programs failed");
            }
        }
    }

    async fn adopt_page(&self, namespaces: &[&Namespace], now: Timestamp) -> Result<(), StoreError> {
        let queued = Range::of(&self.names.queue, Some(STATUS_INDEX), at::STATUS, text("QUEUED"));
        let (young, cursor) = {
            let mut foreign = lock(&self.foreign);
            foreign.old_next = !foreign.old_next;
            (foreign.old_next, foreign.cursor.clone())
        };
        let range = if young {
            queued.only(at::CREATED_AT, ">=", text((now - YOUNG).to_string()))
        } else {
            Range { after: cursor, ..queued }
        };
        let items = self.query(&range, ADOPT_ITEMS).await?;
        if !young {
            let last = items.last().filter(|_| items.len() == ADOPT_ITEMS);
            lock(&self.foreign).cursor = last.map(index_key);
        }
        for item in items.iter().filter(|item| !item.contains_key(at::STATE)) {
            let Some(key) = codec::parse_key(RecordKind::Task, item) else { continue };
            if namespaces.contains(&&key.namespace) {
                self.adopt_one(key).await?;
            }
        }
        Ok(())
    }

    /// Gives an item our attributes. Its own stay as they are.
    async fn adopt_one(&self, key: Key) -> Result<(), StoreError> {
        // The index may be behind, so the item itself is asked.
        let found = match self.get_raw(std::slice::from_ref(&key)).await {
            Ok(mut found) => found.pop().flatten(),
            Err(error) if !error.retryable => {
                tracing::warn!(task = %key, %error, "an item of another program cannot be read; left alone");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let Some(found) = found else { return Ok(()) };
        let write = Write::put(key.clone(), Expect::At(found.revision), found.record);
        let commit = Commit::new(self.op_id(self.clock.now()), vec![write])?;
        if let Answer::Applied(_) = self.commit(&commit).await? {
            tracing::info!(task = %key, "an item of another program was adopted");
        }
        Ok(())
    }

    /// Notes who holds a task by a claim of this process, or that nobody does any more.
    pub(crate) fn note_holder(&self, key: &Key, holder: Option<&RunnerId>) {
        let held = &mut lock(&self.foreign).held;
        match holder {
            Some(holder) => drop(held.entry((key.namespace.clone(), holder.clone())).or_default().insert(key.clone())),
            None => held.retain(|_, keys| {
                keys.remove(key);
                !keys.is_empty()
            }),
        }
    }

    /// Q11: a runner that asks for its signals gets those of foreign cancels too, because its tasks are read first.
    pub(crate) async fn hear_of_held(&self, namespace: &Namespace, prefix: &str) -> Result<(), StoreError> {
        let runner = prefix.strip_suffix(ekiden_core::key::SEPARATOR).and_then(|name| RunnerId::new(name).ok());
        let Some(runner) = runner else { return Ok(()) };
        let held = lock(&self.foreign).held.get(&(namespace.clone(), runner.clone())).cloned();
        let keys: Vec<Key> = match held {
            Some(held) => held.into_iter().take(ekiden_core::limits::GET_KEYS_MAX).collect(),
            // Its claims went through another process, or through this one before it was started anew.
            None => self.keys_in(places::held(namespace, &runner)).await?,
        };
        if !keys.is_empty() {
            self.look(&keys).await?;
        }
        Ok(())
    }
}

impl Shared {
    /// Tasks that only other programs bring further, and that one of them did. A page every few seconds, in turns.
    pub(crate) async fn changed_by_others(&self, query: &DueQuery) -> Result<Vec<DueEntry>, StoreError> {
        let (namespace, now) = (&query.namespace, self.clock.monotonic());
        let after = {
            let mut foreign = lock(&self.foreign);
            let (next, after) = foreign.rounds.entry(namespace.clone()).or_default();
            if now < *next {
                return Ok(Vec::new());
            }
            *next = now + ROUND;
            after.clone()
        };
        let place = places::with_others(namespace);
        let range = Range::of(&self.names.queue, Some(PLACE_INDEX), at::PLACE, text(place));
        let range = match &after {
            Some(after) => range.only(at::PLACE_ORDER, ">", text(after)),
            None => range,
        };
        let items = self.query(&range, ROUND_ITEMS).await?;
        let last = items.last().filter(|_| items.len() == ROUND_ITEMS);
        let after = last.and_then(|item| get_text(item, at::PLACE_ORDER)).map(str::to_owned);
        if let Some(round) = lock(&self.foreign).rounds.get_mut(namespace) {
            round.1 = after;
        }
        let keys: Vec<Key> = items.iter().filter_map(|item| codec::parse_key(RecordKind::Task, item)).collect();
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.get_said(&keys).await?.into_iter().flatten();
        let changed = found.filter_map(|(versioned, said)| {
            let said = said.filter(|said| !said.events.is_empty())?;
            Some(DueEntry { key: versioned.key, at: said.at })
        });
        Ok(changed.collect())
    }

    async fn keys_in(&self, place: String) -> Result<Vec<Key>, StoreError> {
        let range = Range::of(&self.names.queue, Some(PLACE_INDEX), at::PLACE, text(place));
        let items = self.query(&range, ROUND_ITEMS).await?;
        Ok(items.iter().filter_map(|item| codec::parse_key(RecordKind::Task, item)).collect())
    }
}

/// Where a query of the documented index goes on behind an item.
fn index_key(item: &Item) -> Item {
    let names = [at::NAMESPACE, at::TASK_ID, at::STATUS, at::CREATED_AT];
    names.into_iter().filter_map(|name| Some((name.to_owned(), item.get(name)?.clone()))).collect()
}
