//! Laws of schedules that the plans keep: whatever one tick meets, the schedule goes on.

use super::settings::schedule;
use super::*;
use crate::attempt::Stage;
use crate::schedule::{Every, Missed, Overlap, Schedule};

fn minute(n: u64) -> Timestamp {
    NOON + Millis::from_secs(60 * n)
}

fn cron(expression: &str, time_zone: &str) -> Every {
    Every::Cron { expression: expression.to_owned(), time_zone: time_zone.to_owned() }
}

impl Shelf {
    /// Takes a task as a claim would.
    pub(super) fn claim(&mut self, id: &str) -> Token {
        let holder = RunnerId::new("r").unwrap();
        let event = Event::Claimed { claim: OpId::from_bits(1), holder, until: Until::Heartbeat, counted: false };
        Token(self.happen(id, event).unwrap().task().state.execution_no)
    }

    fn set_schedule(&mut self, change: impl FnOnce(&mut Schedule)) {
        self.run(&SetSchedule { schedule: schedule(change), lead: self.lead }).unwrap();
    }
}

#[test]
fn the_last_tick_of_a_finite_expression_is_made_and_no_other() {
    let mut shelf = Shelf::default();
    shelf.set_schedule(|schedule| schedule.every = cron("0 1,2 12 15 11 * 2025", "UTC"));
    for n in [1, 2] {
        let made = shelf.tick(minute(n));
        assert_eq!(made, [format!("tick/s@{}", minute(n))]);
        shelf.finish(&made[0]);
    }
    assert!(shelf.tick(minute(3)).is_empty());
}

#[test]
fn a_task_with_the_id_of_a_tick_does_not_stop_the_schedule() {
    let mut shelf = Shelf::default();
    shelf.set_schedule(|_| {});
    shelf.enqueue(&format!("tick/s@{}", minute(1)), |_| {});
    assert!(shelf.tick(minute(1)).is_empty(), "its id is taken");
    assert_eq!(shelf.tick(minute(2)).len(), 1);
}

#[test]
fn the_latest_of_thousands_of_missed_ticks_is_made_up_for() {
    let mut shelf = Shelf::default();
    shelf.set_schedule(|schedule| schedule.missed = Missed::Latest);
    assert_eq!(shelf.tick(minute(5_000) + Millis::from_secs(7)), [format!("tick/s@{}", minute(5_000))]);
}

#[test]
fn rounds_slower_than_the_period_still_tick_where_missed_ticks_are_left_out() {
    let mut shelf = Shelf::default();
    shelf.set_schedule(|schedule| {
        (schedule.missed, schedule.overlap) = (Missed::Skip, Overlap::Allow);
        schedule.every = Every::Interval { period: Millis::from_secs(1), anchor: Timestamp::ZERO };
    });
    let made: usize = (1..=20).map(|round| shelf.tick(NOON + Millis::new(2_700 * round)).len()).sum();
    assert_eq!(made, 20, "each round sees a tick that has just come");
}

#[test]
fn two_times_in_an_hour_that_does_not_exist_tick_when_the_clock_has_jumped() {
    let mut shelf = Shelf { now: Some(Timestamp::parse("2026-03-28T12:00:00Z").unwrap()), ..Shelf::default() };
    shelf.set_schedule(|schedule| schedule.every = cron("0,30 2 * * *", "Europe/Berlin"));
    assert_eq!(shelf.tick(Timestamp::parse("2026-03-29T01:00:00Z").unwrap()).len(), 1);
}

#[test]
fn a_cancelled_task_that_still_runs_holds_up_the_next_tick() {
    let mut shelf = Shelf::default();
    shelf.set_schedule(|_| {});
    let first = shelf.tick(minute(1)).pop().unwrap();
    let token = shelf.claim(&first);
    shelf.happen(&first, Event::CancelRequested { reason: ReasonCode::CancelRequested, note: None }).unwrap();
    assert!(shelf.tick(minute(2)).is_empty(), "its attempt has not ended");
    shelf.happen(&first, Event::AttemptEnded { token, stage: Stage::Verified }).unwrap();
    assert_eq!(shelf.tick(minute(3)).len(), 1);
}
