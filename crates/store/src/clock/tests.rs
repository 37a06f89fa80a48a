//! Laws of the time of a process, with a source that is moved by hand.

use super::*;

const NOON: Timestamp = Timestamp::from_millis(1_767_268_800_000);
const DAY: Millis = Millis::from_days(1);
const HOUR: Millis = Millis::from_secs(3_600);

fn clock() -> (Arc<ManualClock>, SteadyClock) {
    let source = Arc::new(ManualClock::new(NOON));
    (source.clone(), SteadyClock::new(source))
}

/// The source is set, by so much from what it shows.
fn jump(source: &ManualClock, by_ms: i64) {
    source.set(Timestamp::from_millis(source.now().as_millis() + by_ms));
}

fn ms(span: Millis) -> i64 {
    i64::try_from(span.as_u64()).unwrap()
}

#[test]
fn it_shows_what_its_source_shows_as_long_as_that_is_not_set() {
    let (source, clock) = clock();
    for step in [0, 1, 99, 100, 101, 60_000, 86_400_000] {
        source.advance(Millis::new(step));
        assert_eq!((clock.now(), clock.lead()), (source.now(), ClockLead::NONE));
    }
}

#[test]
fn it_follows_at_once_when_the_source_is_set_forward() {
    let (source, clock) = clock();
    jump(&source, ms(DAY));
    assert_eq!((clock.now(), clock.lead()), (NOON + DAY, ClockLead::NONE));
}

/// R22: a wait of an hour takes an hour and three minutes at most, wherever the source was set to meanwhile.
#[test]
fn it_goes_on_by_the_monotonic_clock_when_the_source_is_set_back() {
    let (source, clock) = clock();
    source.advance(HOUR);
    jump(&source, -ms(DAY));
    assert_eq!((clock.now(), clock.lead()), (NOON + HOUR, ClockLead::new(DAY)));
    let mut latest = clock.now();
    for _ in 0..3_600 {
        source.advance(Millis::from_secs(1));
        assert!(clock.now() > latest);
        latest = clock.now();
    }
    let made_up = Millis::new(HOUR.as_u64() / limits::CLOCK_SLEW);
    assert_eq!(latest, NOON + HOUR + HOUR - made_up);
}

#[test]
fn both_show_the_same_again_after_twenty_times_the_step() {
    let (source, clock) = clock();
    jump(&source, -ms(HOUR));
    clock.now();
    for _ in 0..20 {
        assert_ne!(clock.lead(), ClockLead::NONE);
        source.advance(HOUR);
        clock.now();
    }
    assert_eq!((clock.now(), clock.lead()), (source.now(), ClockLead::NONE));
}

#[test]
fn a_step_that_is_taken_back_leaves_nothing_behind() {
    for by_ms in [-ms(DAY), ms(HOUR)] {
        let (source, clock) = clock();
        jump(&source, by_ms);
        let between = clock.now();
        jump(&source, -by_ms);
        assert_eq!(clock.now(), between, "no moment comes twice");
        let lead = if by_ms > 0 { ClockLead::new(HOUR) } else { ClockLead::NONE };
        assert_eq!(clock.lead(), lead);
    }
}

#[test]
fn steps_add_up() {
    let (source, clock) = clock();
    for _ in 0..3 {
        jump(&source, -ms(HOUR));
        clock.now();
    }
    assert_eq!((clock.now(), clock.lead()), (NOON, ClockLead::new(Millis::new(3 * HOUR.as_u64()))));
}

#[test]
fn a_step_below_a_second_makes_it_stand_and_not_go_back() {
    let (source, clock) = clock();
    source.advance(HOUR);
    let before = clock.now();
    jump(&source, -999);
    assert_eq!((clock.now(), clock.lead()), (before, ClockLead::NONE));
    source.advance(Millis::from_secs(1));
    assert_eq!(clock.now(), source.now());
}

/// Two clocks that drift apart by a millisecond a second, as they may where the system corrects one of them only.
#[test]
fn drift_is_no_step() {
    let (source, clock) = clock();
    for _ in 0..7_200 {
        source.advance(Millis::from_secs(1));
        jump(&source, -1);
        clock.now();
    }
    assert_eq!(clock.lead(), ClockLead::NONE);
}

#[test]
fn it_follows_a_source_that_was_wrong_by_more_than_a_week() {
    let (source, clock) = clock();
    jump(&source, -ms(Millis::from_days(3_650)));
    assert_eq!((clock.now(), clock.lead()), (source.now(), ClockLead::NONE));
}

#[test]
fn among_several_machines_it_shows_what_the_source_shows() {
    let source = Arc::new(ManualClock::new(NOON));
    let clock = SteadyClock::following(source.clone());
    for by_ms in [-ms(DAY), ms(HOUR), -500] {
        source.advance(HOUR);
        jump(&source, by_ms);
        assert_eq!((clock.now(), clock.lead()), (source.now(), ClockLead::NONE));
    }
}

#[test]
fn threads_that_ask_at_once_see_no_moment_before_the_step_come_again() {
    let (source, clock) = clock();
    jump(&source, -ms(DAY));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut latest = NOON;
                for _ in 0..10_000 {
                    let now = clock.now();
                    assert!(now >= latest, "{now} after {latest}");
                    latest = now;
                }
            });
        }
        for _ in 0..1_000 {
            source.advance(Millis::from_secs(1));
        }
    });
}
