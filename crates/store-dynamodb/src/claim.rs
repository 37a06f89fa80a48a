//! Claims: the heads of the asked lines are merged, so the cost follows the lines, not the backlog. An index only says where to
//! look; a task is taken by a conditional write to its own item.

use std::sync::Arc;
use std::time::Duration;

use ekiden_core::claim::{Claim, ClaimPool, Kinds};
use ekiden_core::commit::Expect;
use ekiden_core::hash;
use ekiden_core::id::{Kind, OpId};
use ekiden_core::index::Index;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::limits;
use ekiden_core::record::{Record, Versioned};
use ekiden_core::task::Task;
use ekiden_store::{Answer, Claimed, Happened, Hint, Outcome, StoreError};

use crate::client::Range;
use crate::codec::{self, attributes as at, get_text, places, text};
use crate::error::Failure;
use crate::expression::{Change, expected};
use crate::foreign::Found;
use crate::heads::{Lack, Pick, Picks};
use crate::shared::{Shared, lock};
use crate::tables::PLACE_INDEX;
use crate::waiting;

/// 15 entries more than a claim wants: those at the head are often gone before it comes to them, or serve other claims of this
/// process. So many still cost half a read unit.
const HEADS_SPARE: usize = 15;

/// 64 entries that one look at a line asks for at most.
const HEADS_MAX: usize = 64;

/// 64 tasks that a claim may lose to others before it goes home with what it has.
const LOSSES_MAX: usize = 64;

/// 256 rounds of picking and reading on: each picks something, or finds that another claim of this process did.
const ROUNDS_MAX: usize = 256;

/// A line that the claim asks for: its pool (by place in the claim), its kind, how many parts it has.
struct Asked {
    pool: usize,
    kind: Kind,
    parts: u32,
    passed: usize,
}

/// What came of writing one task.
pub(crate) enum Written {
    Taken(Box<Versioned>),
    /// Somebody else was quicker.
    Lost,
    /// The pool has no room left.
    Full,
}

impl Shared {
    pub(crate) async fn claim(&self, claim: &Claim) -> Outcome {
        claim.check()?;
        if let Some(before) = self.taken_before(claim).await? {
            let visited = before.len();
            return Ok(Answer::Claimed(Claimed { tasks: before, visited }));
        }
        self.adopt(claim).await;
        let rooms = self.rooms(claim).await?;
        let mut asked = self.asked(claim, &rooms).await?;
        let mut visited = asked.len();
        visited += self.promote(claim, &asked).await?;
        let tasks = self.take_best(claim, rooms, &mut asked, &mut visited).await?;
        Ok(Answer::Claimed(Claimed { tasks, visited }))
    }

    /// C14, C26: what this claim took before and still holds, in the order of a claim, as far as it asks for it. `None` if its
    /// holder has nothing under its id where it asks.
    async fn taken_before(&self, claim: &Claim) -> Result<Option<Vec<Versioned>>, StoreError> {
        let mut keys = self.taken_by(claim);
        keys.retain(|key| claim.asks_in(&key.namespace));
        if keys.is_empty() {
            return Ok(None);
        }
        let mut tasks: Vec<Versioned> = self.get(&keys).await?.into_iter().flatten().collect();
        tasks.retain(|found| is_held_by(found, claim));
        if tasks.is_empty() {
            return Ok(None);
        }
        tasks.retain(|found| found.record.as_task().is_some_and(|task| claim.asks_for(&task.spec)));
        tasks.sort_by_key(|found| found.record.as_task().map(|task| task.spec.order()));
        tasks.dedup_by(|one, other| one.key == other.key);
        Ok(Some(tasks))
    }

    /// How many tasks each pool has room for.
    async fn rooms(&self, claim: &Claim) -> Result<Vec<usize>, StoreError> {
        let counters: Vec<Key> = claim.pools.iter().filter_map(ClaimPool::counter).collect();
        let mut found = if counters.is_empty() { Vec::new() } else { self.get_raw(&counters).await? }.into_iter();
        let mut running = |pool: &ClaimPool| {
            let counter = pool.counter().and_then(|_| found.next()).flatten();
            counter.and_then(|counter| counter.record.as_counter()).unwrap_or(0)
        };
        Ok(claim.pools.iter().map(|pool| pool.room(running(pool))).collect())
    }

    /// The lines of the asked kinds, in pools that have room.
    async fn asked(&self, claim: &Claim, rooms: &[usize]) -> Result<Vec<Asked>, StoreError> {
        let mut asked = Vec::new();
        for (at, (pool, _)) in claim.pools.iter().zip(rooms).enumerate().filter(|(_, (_, room))| **room > 0) {
            let lines = self.lines_of(&pool.namespace).await?;
            let mine: Vec<(&Kind, u32)> = match &claim.kinds {
                Kinds::Any => {
                    let all = lines.iter().filter(|((of, _), _)| *of == pool.pool);
                    some_of(all.map(|((_, kind), parts)| (kind, *parts)).collect(), claim.id)
                }
                Kinds::Only(kinds) => {
                    let parts = |kind: &Kind| lines.get(&(pool.pool.clone(), kind.clone())).copied();
                    kinds.iter().filter_map(|kind| Some((kind, parts(kind)?))).collect()
                }
            };
            let line = |(kind, parts): (&Kind, u32)| Asked { pool: at, kind: kind.clone(), parts, passed: 0 };
            asked.extend(mine.into_iter().map(line));
        }
        Ok(asked)
    }

    /// C15: what became due in the asked lines gets its ready entry. Says how much was looked at.
    async fn promote(&self, claim: &Claim, asked: &[Asked]) -> Result<usize, StoreError> {
        let mut due = 0;
        for line in asked {
            let Some(pool) = claim.pools.get(line.pool) else { continue };
            let place = places::waiting(&pool.namespace, &pool.pool, &line.kind);
            due += self.promote_line(claim, place, waiting::left_of(due)).await?;
        }
        Ok(due)
    }

    async fn take_best(
        &self,
        claim: &Claim,
        mut rooms: Vec<usize>,
        asked: &mut [Asked],
        visited: &mut usize,
    ) -> Result<Vec<Versioned>, StoreError> {
        let (parts, since) = (parts_of(claim, asked), self.clock.monotonic());
        // Claims that fight for the same head lose most of their writes, so what one picks the others leave alone.
        let mut picks = Picks::from(&self.heads);
        let (mut tasks, mut losses) = (Vec::new(), 0);
        for _ in 0..ROUNDS_MAX {
            let want = claim.limit - tasks.len();
            if want == 0 || losses >= LOSSES_MAX {
                break;
            }
            let open: Vec<_> = parts.iter().filter(|(line, _)| is_open(asked.get(*line), &rooms)).cloned().collect();
            *visited += self.read_heads(claim, &open, since).await?;
            let picked = picks.more(&open, want, self.clock.monotonic());
            if picked.is_empty() && self.is_read(&open, since) {
                break;
            }
            *visited += picked.len();
            self.look_at(&mut picks, &picked).await?;
            for number in picked {
                let Some((line, key, found)) = picks.get_mut(number).map(Pick::take) else { continue };
                let Some(line) = asked.get_mut(line) else { continue };
                let (Some(room), Some(pool)) = (rooms.get_mut(line.pool), claim.pools.get(line.pool)) else { continue };
                if *room == 0 {
                    continue;
                }
                let (found, task) = match found.map(|found| takeable(claim, pool, found)) {
                    Some(Judged::Takeable(both)) => *both,
                    // By a faster clock; another claim may be later.
                    Some(Judged::NotYet) => {
                        line.passed += 1;
                        continue;
                    }
                    Some(Judged::No) | None => {
                        line.passed += 1;
                        picks.spend(number);
                        picks.doubt(number, since);
                        continue;
                    }
                };
                self.note_taken(claim, &key);
                match self.write_task(claim, Some(pool), &found, task).await? {
                    Written::Taken(taken) => {
                        tasks.push(*taken);
                        *room -= 1;
                        picks.spend(number);
                    }
                    Written::Lost => {
                        losses += 1;
                        picks.spend(number);
                        picks.doubt(number, since);
                    }
                    Written::Full => *room = 0,
                }
            }
        }
        Ok(tasks)
    }

    /// Reads what is missing of the heads. Says how often it looked: a look costs the same whether it finds one entry or a page of
    /// them.
    async fn read_heads(
        &self,
        claim: &Claim,
        parts: &[(usize, Arc<str>)],
        since: Duration,
    ) -> Result<usize, StoreError> {
        let (page, mut looked) = ((claim.limit + HEADS_SPARE).min(HEADS_MAX), 0);
        for (_, place) in parts {
            let now = self.clock.monotonic();
            let looking = {
                let mut heads = lock(&self.heads);
                if heads.lack(place, since, now) == Lack::Nothing {
                    continue;
                }
                heads.looking(place, now)
            };
            let _alone = looking.lock().await;
            let sent = self.clock.monotonic();
            let lack = lock(&self.heads).lack(place, since, sent);
            let range = Range::of(&self.names.queue, Some(PLACE_INDEX), at::PLACE, text(&**place));
            let range = match &lack {
                // Somebody else looked meanwhile.
                Lack::Nothing => continue,
                Lack::All => range,
                Lack::Behind(last) => range.only(at::PLACE_ORDER, ">", text(last)),
            };
            let items = self.query(&range, page).await?;
            let entry = |item: &codec::Item| {
                let order = get_text(item, at::PLACE_ORDER)?.to_owned();
                Some((order, codec::parse_key(RecordKind::Task, item)?))
            };
            let found = items.iter().filter_map(entry).collect();
            lock(&self.heads).found(place, &lack, found, items.len() < page, sent);
            looked += 1;
        }
        Ok(looked)
    }

    /// Whether the heads are read to their ends.
    fn is_read(&self, parts: &[(usize, Arc<str>)], since: Duration) -> bool {
        let (mut heads, now) = (lock(&self.heads), self.clock.monotonic());
        parts.iter().all(|(_, place)| heads.lack(place, since, now) == Lack::Nothing)
    }

    /// Reads the picked tasks that this process does not know.
    async fn look_at(&self, picks: &mut Picks<'_>, numbers: &[usize]) -> Result<(), StoreError> {
        let unknown: Vec<(usize, Key)> = numbers.iter().filter_map(|number| picks.unknown(*number)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let (numbers, keys): (Vec<usize>, Vec<Key>) = unknown.into_iter().unzip();
        for (number, found) in numbers.into_iter().zip(self.look(&keys).await?) {
            if let Some(pick) = picks.get_mut(number) {
                pick.found = found;
            }
        }
        Ok(())
    }

    /// Writes a task that the claim changed. With a pool it is taken, and the pool's counter goes up in the same write.
    pub(crate) async fn write_task(
        &self,
        claim: &Claim,
        pool: Option<&ClaimPool>,
        found: &Versioned,
        task: Task,
    ) -> Result<Written, StoreError> {
        let (key, record) = (&found.key, Record::Task(Arc::new(task)));
        let index = Index::of(key, &record);
        let (encoded, nonce) = (codec::encode(&record, &index, key, self.parts_of(&record)), self.nonce());
        let revision = codec::revision_of(&record, &nonce, &encoded);
        let Ok(guarded) = expected(key, &Expect::At(found.revision.clone())) else { return Ok(Written::Lost) };
        let place = encoded.place();
        let put = Change::put(self.table(key.kind).to_owned(), key, encoded, &nonce, claim.id, guarded);
        let counter = pool.and_then(|pool| Some((pool.counter()?, pool.running_max)));
        let sent = match counter {
            None => self.change(&put).await.map(drop),
            Some((counter, below)) => {
                let table = self.table(counter.kind).to_owned();
                let add = Change::add(table, &counter, 1, &self.nonce(), claim.id, below);
                self.transact(&[put, add]).await
            }
        };
        let mine = Versioned { revision, record, last: claim.id, ..found.clone() };
        let written = match sent {
            Ok(()) => Written::Taken(Box::new(mine)),
            Err(Failure::Unmet(unmet)) => {
                // A request that was repeated below may have met its own first try.
                let there = match unmet.found {
                    Some(mut item) => {
                        self.fetch_payloads(std::iter::once(&mut item)).await?;
                        codec::decode(key.clone(), &item).ok()
                    }
                    // A transaction does not show what it found.
                    None => self.get_raw(std::slice::from_ref(key)).await?.pop().flatten(),
                };
                match there.filter(|there| there.revision == mine.revision) {
                    Some(there) => Written::Taken(Box::new(there)),
                    None if unmet.places == [1] => Written::Full,
                    None => Written::Lost,
                }
            }
            Err(Failure::Failed(error)) if error.happened == Happened::Unknown => {
                let there = self.get_raw(std::slice::from_ref(key)).await.ok().and_then(|mut all| all.pop().flatten());
                let there = there.filter(|there| there.revision == mine.revision);
                Written::Taken(Box::new(there.ok_or(error)?))
            }
            Err(other) => return Err(other.into()),
        };
        if let Written::Taken(taken) = &written {
            self.wrote(found, taken, &index);
            if let Some(entry) = place {
                self.note_place(key, entry, Some(Versioned::clone(taken)));
            }
            if pool.is_some() {
                self.note_holder(key, Some(&claim.holder));
            }
        }
        Ok(written)
    }

    /// Counts and tells that a claim changed a task.
    fn wrote(&self, before: &Versioned, after: &Versioned, index: &Index) {
        let key = &after.key;
        let counted = |found: &Versioned, phase| Some((found.record.as_task()?.spec.pool.clone(), phase?));
        let phase_before = Index::of(key, &before.record).phase;
        self.count(&key.namespace, counted(before, phase_before), counted(after, index.phase));
        if index.ready.is_some() {
            self.hint(Hint::Ready(key.namespace.clone()));
        }
        self.hint(Hint::Changed(key.clone()));
    }
}

/// The parts of the asked lines, each with its line.
fn parts_of(claim: &Claim, asked: &[Asked]) -> Vec<(usize, Arc<str>)> {
    let mut all = Vec::new();
    for (at, line) in asked.iter().enumerate() {
        let Some(pool) = claim.pools.get(line.pool) else { continue };
        let place = |part| places::ready(&pool.namespace, &pool.pool, &line.kind, part);
        all.extend((0..line.parts).map(|part| (at, Arc::from(place(part)))));
    }
    all
}

/// Lines that were passed over too often and pools without room have nothing more to give.
fn is_open(line: Option<&Asked>, rooms: &[usize]) -> bool {
    let has_room = |line: &Asked| rooms.get(line.pool).is_some_and(|room| *room > 0);
    line.is_some_and(|line| line.passed < limits::CLAIM_SKIP_MAX && has_room(line))
}

/// Whether a claim may take a task.
enum Judged {
    /// The task as found, and as it would take it.
    Takeable(Box<(Versioned, Task)>),
    NotYet,
    No,
}

/// The task's own record decides, not the entry that led to it.
fn takeable(claim: &Claim, pool: &ClaimPool, found: Found) -> Judged {
    let Found { versioned, disputed } = found;
    let (Some(task), false) = (versioned.record.as_task(), disputed) else { return Judged::No };
    match Index::of(&versioned.key, &versioned.record).ready {
        None => return Judged::No,
        Some(ready) if ready.at > claim.now => return Judged::NotYet,
        Some(_) => {}
    }
    match claim.take(task, pool.counter().is_some()) {
        Ok(taken) => Judged::Takeable(Box::new((versioned, taken))),
        Err(_) => Judged::No,
    }
}

fn is_held_by(found: &Versioned, claim: &Claim) -> bool {
    let task = found.record.as_task();
    let lease = task.and_then(|task| task.state.lease.as_ref()).filter(|lease| claim.took(lease));
    lease.is_some() && Index::of(&found.key, &found.record).held
}

/// All kinds of a pool, up to the limit. Beyond it each claim begins at another place, so that no kind is left out for long.
fn some_of<T: Clone>(lines: Vec<T>, claim: OpId) -> Vec<T> {
    if lines.len() <= limits::KINDS_A_POOL_MAX {
        return lines;
    }
    let start = usize::try_from(hash::of_bytes(&claim.as_bits().to_be_bytes())).unwrap_or(0) % lines.len();
    lines.iter().cycle().skip(start).take(limits::KINDS_A_POOL_MAX).cloned().collect()
}
