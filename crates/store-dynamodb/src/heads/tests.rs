//! The heads of lines without a store: what is read again when, and who gets what.

use ekiden_core::id::{Namespace, OpId, PoolName, TaskId};
use ekiden_core::pool::Profile;
use ekiden_core::record::{Record, Revision};
use ekiden_core::task::{Spec, Task, TaskEnvelope};
use ekiden_core::time::Timestamp;
use ekiden_core::transition::{Start, birth};

use super::*;

const ZERO: Duration = Duration::ZERO;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn key(name: &str) -> Key {
    Key::task(&Namespace::new("n").unwrap(), &TaskId::new(name).unwrap())
}

/// A task as this process wrote it.
fn written(name: &str) -> Versioned {
    let envelope = TaskEnvelope::json(ekiden_core::id::Kind::new("k").unwrap(), "{}");
    let (namespace, pool) = (Namespace::new("n").unwrap(), PoolName::new("p").unwrap());
    let policy = Profile::DynamoOther.settings().policy;
    let spec = Spec::new(namespace, pool, TaskId::new(name).unwrap(), envelope, policy, Timestamp::ZERO);
    let state = birth(&spec, Start::Released, Vec::new(), Timestamp::ZERO).state;
    let record = Record::from(Task { spec: Arc::new(spec), state });
    let (created_by, last) = (OpId::from_bits(1), OpId::from_bits(1));
    Versioned { key: key(name), record, revision: Revision::text("r"), created_by, last }
}

/// One part of a line, and what the index has of it.
struct Line {
    heads: Mutex<Heads>,
    place: Arc<str>,
}

impl Line {
    fn new() -> Self {
        Self { heads: Mutex::default(), place: Arc::from("ready") }
    }

    fn lack(&self, since: Duration, now: Duration) -> Lack {
        lock(&self.heads).lack(&self.place, since, now)
    }

    /// Somebody looks, and the index shows these, each under its own name.
    fn look(&self, names: &[&str], is_end: bool, sent: Duration) {
        let lack = self.lack(sent, sent);
        assert_ne!(lack, Lack::Nothing);
        let listed = names.iter().map(|name| ((*name).to_owned(), key(name))).collect();
        lock(&self.heads).found(&self.place, &lack, listed, is_end, sent);
    }

    fn enter(&self, name: &str, now: Duration) {
        lock(&self.heads).enter(&self.place, name.to_owned(), key(name), Some(written(name)), now);
    }

    fn picks(&self) -> Picks<'_> {
        Picks::from(&self.heads)
    }

    /// Picks so many and gives their names, each with whether it has to be read.
    fn pick(&self, picks: &mut Picks<'_>, want: usize, now: Duration) -> Vec<(String, bool)> {
        let numbers = picks.more(&[(0, self.place.clone())], want, now);
        let pick = |number: usize| {
            let is_unknown = picks.unknown(number).is_some();
            let (_, key, _) = picks.get_mut(number).unwrap().take();
            (key.name.to_string(), is_unknown)
        };
        numbers.into_iter().map(pick).collect()
    }
}

fn unread(names: &[&str]) -> Vec<(String, bool)> {
    names.iter().map(|name| ((*name).to_owned(), true)).collect()
}

/// "Nothing in the index" never means that nothing is there: whoever finds nothing has asked for itself.
#[test]
fn a_claim_that_finds_nothing_has_asked_the_index() {
    let line = Line::new();
    assert_eq!(line.lack(ZERO, ZERO), Lack::All);
    line.look(&[], true, ms(1));
    assert_eq!(line.lack(ms(1), ms(2)), Lack::Nothing, "a claim that began before the look shares its answer");
    assert_eq!(line.lack(ms(2), ms(2)), Lack::All, "one that began later asks again");
}

#[test]
fn one_look_serves_many_claims_for_a_moment() {
    let line = Line::new();
    line.look(&["a", "b", "c"], true, ms(1));
    let (mut one, mut other) = (line.picks(), line.picks());
    assert_eq!(line.lack(ms(2), ms(50)), Lack::Nothing);
    assert_eq!(line.pick(&mut one, 1, ms(50)), unread(&["a"]));
    assert_eq!(line.pick(&mut other, 1, ms(50)), unread(&["b"]), "what one picked the other leaves alone");
    assert_eq!(line.lack(ms(2), ms(101)), Lack::All, "an old look is not believed");
    assert_eq!(line.lack(ms(1), ms(101)), Lack::Nothing, "but by a claim that began before it");
}

/// C13: a task that stands in the index unseen is overtaken by sixteen at most.
#[test]
fn a_look_gives_sixteen_tasks_at_most_to_later_claims() {
    let line = Line::new();
    let names: Vec<String> = (10..40).map(|number| number.to_string()).collect();
    line.look(&names.iter().map(String::as_str).collect::<Vec<_>>(), true, ms(1));
    let mut picks = line.picks();
    for _ in 0..limits::CLAIM_WINDOW_MAX {
        assert_eq!(line.lack(ms(2), ms(2)), Lack::Nothing);
        assert_eq!(line.pick(&mut picks, 1, ms(2)).len(), 1);
    }
    assert_eq!(line.lack(ms(2), ms(2)), Lack::All);
}

#[test]
fn what_this_process_made_ready_is_neither_looked_for_nor_read() {
    let line = Line::new();
    line.enter("early", ZERO);
    line.look(&["b"], true, ms(1));
    line.enter("a", ms(2));
    let mut picks = line.picks();
    assert_eq!(line.lack(ms(3), ms(3)), Lack::Nothing);
    let picked = line.pick(&mut picks, 3, ms(3));
    assert_eq!(picked, [("a".to_owned(), false), ("b".to_owned(), true)], "a line that nobody asked for is not kept");
    line.enter("a", ms(4));
    assert!(line.pick(&mut picks, 1, ms(4)).is_empty(), "it is being taken");
}

/// Q7: a write in vain costs more than a read.
#[test]
fn after_a_second_what_was_written_is_read_again() {
    let line = Line::new();
    line.look(&[], true, ms(1));
    line.enter("a", ms(2));
    line.look(&["a"], true, ms(900));
    assert_eq!(line.pick(&mut line.picks(), 1, ms(901)), [("a".to_owned(), false)]);
    line.look(&["a"], true, ms(1_100));
    assert_eq!(line.pick(&mut line.picks(), 1, ms(1_100)), unread(&["a"]));
}

#[test]
fn an_index_that_is_behind_does_not_hide_what_this_process_wrote() {
    let line = Line::new();
    line.look(&[], true, ms(1));
    line.enter("a", ms(2));
    line.look(&[], true, ms(200));
    assert_eq!(line.pick(&mut line.picks(), 1, ms(200)), [("a".to_owned(), false)]);
    line.look(&[], true, ms(1_100));
    assert!(line.pick(&mut line.picks(), 1, ms(1_100)).is_empty(), "after a second somebody else has it");
}

/// C13: what is entered never passes by what nobody has read.
#[test]
fn a_part_that_was_not_read_to_its_end_is_read_on_first() {
    let line = Line::new();
    line.look(&["b", "d"], false, ms(1));
    line.enter("a", ms(1));
    line.enter("e", ms(1));
    let mut picks = line.picks();
    let picked = line.pick(&mut picks, 9, ms(1));
    assert_eq!(picked.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a", "b", "d"]);
    assert_eq!(line.lack(ms(1), ms(1)), Lack::Behind("d".to_owned()));
    line.look(&["e"], true, ms(1));
    assert_eq!(line.pick(&mut picks, 9, ms(1)), unread(&["e"]));
}

#[test]
fn what_was_not_spent_goes_back() {
    let line = Line::new();
    line.look(&["a", "b"], true, ms(1));
    let mut picks = line.picks();
    assert_eq!(line.pick(&mut picks, 2, ms(1)), unread(&["a", "b"]));
    picks.spend(0);
    drop(picks);
    assert_eq!(line.pick(&mut line.picks(), 2, ms(1)), unread(&["b"]));
}

#[test]
fn a_loss_makes_an_older_look_worthless_and_leaves_a_newer_one() {
    let line = Line::new();
    line.look(&["a", "b"], true, ms(5));
    let mut picks = line.picks();
    line.pick(&mut picks, 1, ms(6));
    picks.doubt(0, ms(4));
    assert_eq!(line.lack(ms(4), ms(6)), Lack::Nothing);
    picks.doubt(0, ms(6));
    assert_eq!(line.lack(ms(4), ms(6)), Lack::All);
}

#[test]
fn a_head_and_their_number_have_a_maximum() {
    let line = Line::new();
    line.look(&[], true, ms(1));
    let names: Vec<String> = (100..200).map(|number| number.to_string()).collect();
    names.iter().for_each(|name| line.enter(name, ms(1)));
    assert_eq!(line.pick(&mut line.picks(), 100, ms(1)).len(), ENTRIES_MAX);
    let mut heads = Heads::default();
    for number in 0..2 * HEADS_KEPT {
        let now = ms(10 * u64::try_from(number).unwrap());
        heads.lack(&Arc::from(number.to_string()), now, now);
    }
    assert!(heads.by_place.len() <= HEADS_KEPT, "{} heads", heads.by_place.len());
}
