//! The trait that every store implements, and the rules that it promises to keep.

use async_trait::async_trait;
use ekiden_core::id::Namespace;
use ekiden_core::key::Key;
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::Versioned;
use tokio::sync::broadcast;

use crate::error::StoreError;
use crate::op::{Op, Outcome};
use crate::query::{CountScope, Counts, DueEntry, DueQuery, Page, RecordQuery, TaskQuery};

/// A place that keeps records.
///
/// A store compares revisions and keeps index entries; it never looks at a phase, a retry or a schedule to decide anything.
/// The rules below are the whole contract. Each is proved by cases of the conformance suite that cite its number.
///
/// **Commits**
/// - **C1** All writes of a commit happen, or none.
/// - **C2** `Absent` is met when there is no record, `At` when the record has exactly that revision, `Any` always. An
///   unmet expectation is answered by [`Conflict`](crate::Conflict) with the record found for every unmet key.
/// - **C3** A put replaces record and index entries. It changes the revision, even when the content stays the same. A key
///   never gets a revision again that it once had, also after its record was deleted and made anew.
/// - **C4** A record remembers the commit that created it and the op that put it last. Deleting forgets both.
/// - **C5** A repeated commit changes nothing and is answered Applied if any of its puts finds its id in `created_by` or
///   `last`, or if it holds only deletes and nothing is left to delete. Otherwise its expectations are looked at anew, and a
///   conflict then does not prove that the first try failed: the caller decides by the record. An id may be repeated for
///   two minutes ([`COMMIT_RETRY`](ekiden_core::limits::COMMIT_RETRY)).
/// - **C6** An add creates an absent counter with its number. It changes the revision, but neither `created_by` of an
///   existing counter nor `last`.
/// - **C7** A delete with `Any` of an absent record is applied; with `At`, in a commit that is not deletes alone (C5), it is
///   a conflict that found nothing.
///
/// **Apply**
/// - **C8** One answer an op, in order. Ops run in order, later commits see earlier ones, and a conflict or error of one op
///   stops no other. A claim sees an earlier commit of the same call if [`Info::exact_index`], otherwise soon.
/// - **C9** Applied means durable, in the sense of [`Info::durable`]. After a reopen everything applied is there, and
///   nothing else, but for ops that were answered `Unknown`.
/// - **C10** An error says whether it happened. `NotApplied` is certain. Contention inside the store is retried there, then
///   `NotApplied`; it is never a conflict. A call with too many ops is refused as a whole.
///
/// **Claims**
/// - **C11** A claim gives only tasks with a ready entry in a line that it asks for, whose `at` is not after the claim's
///   `now`. It writes what [`Claim::take`](ekiden_core::claim::Claim::take) says, and passes over what that refuses.
///   It may give fewer than it may when they are large.
/// - **C12** No task goes to two live claims.
/// - **C13** The smallest order first, over all lines that the claim asks for. Where several claim at once, a store may
///   let a task be overtaken by at most [`CLAIM_WINDOW_MAX`](ekiden_core::limits::CLAIM_WINDOW_MAX) others a claim.
/// - **C14** A repeated claim (C26) gives the tasks that it took and still holds, cancelled ones too until their attempt has
///   ended; while there are any, it takes no others. A store whose index lags may fail to find them and take others; a
///   holder therefore gives back what it holds and does not run.
/// - **C15** A claim promotes due entries of the lines that it asks for, at most 256 and as [`promote`] allows, before it
///   takes the first; a store may promote fewer, or take a due task directly.
/// - **C16** A pool with a limit never runs more than it: the counter is read and raised with each task's own write, by
///   claims only.
/// - **C17** What a claim looks at depends on pools, kinds and limit, never on how many tasks wait.
///
/// **Ids**
/// - **C26** An id grants nothing by itself. A claim repeats an earlier claim if both have the same id and the same holder and
///   ask in the same namespace; a holder's name belongs to its namespace. The repeated claim gives only tasks of namespaces,
///   pools and kinds that it asks for. For another holder, or in another namespace, the id is a new one. A store recognises a
///   repeated commit only by the records that the commit puts, and their keys name the namespace. Isolation does not rest on
///   secret ids. Callers still draw them from [`Entropy::from_system`](crate::entropy::Entropy::from_system): a caller that
///   guesses the id of a later commit, and may write one of its records, can make that commit look applied (C5).
///
/// **Reads**
/// - **C18** `get` and `records` see every applied commit. `get` answers in the order of the keys, `records` in the byte
///   order of names.
/// - **C19** `due` lists what its index entries say is due, oldest first. It is a hint: the record decides.
/// - **C20** `tasks` lists by creation time and id. A page reads a bounded number of records, and may end early
///   when its tasks are large; an empty page with a cursor is not the end. Following the cursors gives every task that matched all along exactly once.
/// - **C21** `counts` gives all nine phases at a cost that does not grow with the tasks, and says whether it is exact.
/// - **C22** Namespaces are isolated: no answer and no write crosses them, unless a caller names two.
/// - **C23** A hint may be lost or wrong; nothing depends on it. An applied commit gives one for each task that it makes
///   claimable and for each record that it changes.
/// - **C24** After `close` every call is refused with `STORE_CLOSED`, and nothing is written.
/// - **C25** `namespaces` lists every namespace that has a record of any kind, once, in byte order, behind the one that is
///   named, which need not be there. If [`Info::exact_index`], it lists no other; otherwise one that became empty may
///   stay. A page costs no more because there are more tasks or namespaces.
///
/// [`promote`]: ekiden_core::claim::promote
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// What kind of store this is.
    fn info(&self) -> Info;

    /// Carries out ops, in order, with one answer each (C1–C17).
    async fn apply(&self, ops: Vec<Op>) -> Vec<Outcome>;

    /// Reads records, in the order of the keys (C18).
    async fn get(&self, keys: Vec<Key>) -> Result<Vec<Option<Versioned>>, StoreError>;

    /// Lists what is due (C19).
    async fn due(&self, query: DueQuery) -> Result<Vec<DueEntry>, StoreError>;

    /// Lists tasks (C20).
    async fn tasks(&self, query: TaskQuery) -> Result<Page<Versioned>, StoreError>;

    /// Lists records of a kind (C18).
    async fn records(&self, query: RecordQuery) -> Result<Page<Versioned>, StoreError>;

    /// Counts tasks by phase (C21).
    async fn counts(&self, scope: CountScope) -> Result<Counts, StoreError>;

    /// Lists namespaces behind one (C25). The cursor of a page is its last name.
    async fn namespaces(&self, after: Option<Namespace>, limit: usize) -> Result<Page<Namespace>, StoreError>;

    /// Gives hints that something may be claimable or changed (C23).
    fn watch(&self) -> broadcast::Receiver<Hint>;

    /// Looks for damage, and for indexes and counts that disagree with the records.
    async fn check(&self, depth: CheckDepth) -> Result<Vec<Finding>, StoreError>;

    /// Ends the store's work; what was applied stays (C24).
    async fn close(&self) -> Result<(), StoreError>;
}

/// What kind of store it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its name, as in its URL.
    pub name: &'static str,
    /// What survives: a sentence for people, empty if nothing does.
    pub durable: &'static str,
    /// Whether several processes may use it at once.
    pub shared: bool,
    /// Whether a claim surely sees every commit applied before it.
    pub exact_index: bool,
    /// Whether programs that are not Ekiden write to it too.
    pub others: Others,
}

/// Programs that follow the document which a store's layout comes from, and nothing else that Ekiden knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// No such program can be there.
    Never,
    /// One may be there; its runners tell.
    Possible,
    /// Somebody said that there are some, whether their runners are seen or not.
    Certain,
}

/// Something may be worth a look. Never more than that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// A task of this namespace may be claimable.
    Ready(Namespace),
    /// This record changed.
    Changed(Key),
}

/// How thoroughly to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckDepth {
    /// What costs little however much there is.
    Quick,
    /// Every record and every index entry.
    Full,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The stable reason.
    pub code: ReasonCode,
    /// Where.
    pub key: Option<Key>,
    /// What, in a sentence.
    pub what: String,
}
