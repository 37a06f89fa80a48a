//! Laws of ticks: their policy, their clocks, and where each lies.

use std::ops::Range;

use super::*;
use crate::fixtures;
use proptest::prelude::*;

fn cron(expression: &str, time_zone: &str) -> Every {
    Every::Cron { expression: expression.to_owned(), time_zone: time_zone.to_owned() }
}

fn next(every: &Every, after: Timestamp) -> Timestamp {
    every.next(after).unwrap().unwrap()
}

fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

fn schedule(every: Every, missed: Missed, next_at: Timestamp) -> Schedule {
    let template = Arc::clone(&fixtures::task("template").spec);
    Schedule {
        id: ScheduleId::new("s").unwrap(),
        every,
        missed,
        overlap: Overlap::Skip,
        paused: false,
        template,
        next_at: Some(next_at),
        last: None,
        newer: Newer::NONE,
    }
}

#[test]
fn cron_follows_the_time_zone_and_its_daylight_saving() {
    let tokyo = cron("0 9 * * *", "Asia/Tokyo");
    assert_eq!(next(&tokyo, at("2026-11-16T23:59:00Z")), at("2026-11-17T00:00:00Z"));
    let berlin = cron("30 2 * * *", "Europe/Berlin");
    // 2026-03-29 02:30 does not exist in Berlin; the tick comes when the clock has jumped.
    let skipped = next(&berlin, at("2026-03-28T12:00:00Z"));
    assert_eq!(skipped, at("2026-03-29T01:00:00Z"));
    assert_eq!(next(&berlin, skipped), at("2026-03-30T00:30:00Z"));
}

#[test]
fn an_hour_that_comes_twice_ticks_once_for_a_fixed_time() {
    let berlin = cron("30 2 * * *", "Europe/Berlin");
    let first = next(&berlin, at("2026-10-24T12:00:00Z"));
    assert_eq!(first, at("2026-10-25T00:30:00Z"));
    assert_eq!(next(&berlin, first), at("2026-10-26T01:30:00Z"));
}

#[test]
fn intervals_keep_their_anchor() {
    let every = Every::Interval { period: Millis::from_secs(60), anchor: at("2026-01-01T00:00:30Z") };
    assert_eq!(next(&every, at("2026-01-01T00:00:00Z")), at("2026-01-01T00:00:30Z"));
    assert_eq!(next(&every, at("2026-01-01T00:00:30Z")), at("2026-01-01T00:01:30Z"));
    assert_eq!(next(&every, at("2026-01-01T09:10:11Z")), at("2026-01-01T09:10:30Z"));
}

#[test]
fn missed_ticks_follow_their_policy() {
    let every = Every::Interval { period: Millis::from_secs(60), anchor: Timestamp::ZERO };
    let now = Timestamp::from_millis(200_000);
    let ticks =
        |missed| schedule(every.clone(), missed, Timestamp::from_millis(60_000)).due(now, ClockLead::NONE).unwrap();
    let minute = |n: i64| Timestamp::from_millis(n * 60_000);
    assert_eq!(ticks(Missed::All), (vec![minute(1), minute(2), minute(3)], Some(minute(4))));
    assert_eq!(ticks(Missed::Latest), (vec![minute(3)], Some(minute(4))));
    let punctual = schedule(every.clone(), Missed::Skip, minute(3)).due(now, ClockLead::NONE).unwrap();
    assert_eq!(punctual, (vec![minute(3)], Some(minute(4))));
}

/// A schedule whose process is ahead of its machine's clock, looked at now and then: the ticks, by that clock.
fn ticks_by_the_wall(
    every: Every,
    next_at: Timestamp,
    back: Millis,
    looks: std::iter::StepBy<Range<u64>>,
) -> Vec<Timestamp> {
    let (start, mut found) = (at("2026-11-17T12:00:00Z"), schedule(every, Missed::All, next_at));
    let (mut ticks, mut names) = (Vec::new(), std::collections::BTreeSet::new());
    for second in looks {
        let (passed, lead) = (Millis::from_secs(second), ClockLead::new(back));
        let lead = lead.after(passed);
        let shown = start - back + passed;
        let now = shown + lead.as_millis();
        found.next_at = found.moved(now, lead).unwrap().or(found.next_at);
        assert_eq!(found.moved(now, lead).unwrap(), None, "what was moved stays there");
        if found.next_at.is_some_and(|next| next <= now) {
            let (made, next) = found.due(now, lead).unwrap();
            assert!(next.is_some_and(|next| next > now), "{next:?} is over at {now}");
            found.next_at = next;
            for tick in made {
                assert!(names.insert(found.tick_id(tick).unwrap()), "{tick} comes twice");
                ticks.push(shown);
            }
        }
    }
    ticks
}

#[test]
fn a_cron_expression_follows_the_clock_that_was_set_back_and_repeats_no_tick() {
    let (day, hour) = (86_400, 3_600);
    // It ticked at 09:00 today, and the clock goes back nine hours: not again today, and tomorrow at 09:00.
    let daily = || cron("0 9 * * *", "UTC");
    let ticks =
        ticks_by_the_wall(daily(), at("2026-11-18T09:00:00Z"), Millis::from_secs(9 * hour), (0..3 * day).step_by(60));
    assert_eq!(ticks.len(), 2, "{ticks:?}");
    for (tick, wanted) in ticks.iter().zip(["2026-11-18T09:00:00Z", "2026-11-19T09:00:00Z"]) {
        assert!(tick.since(at(wanted)) <= Millis::from_secs(60) && *tick >= at(wanted), "{tick}");
    }
    // A whole day: the next morning comes after 21 hours by either clock.
    let ticks =
        ticks_by_the_wall(daily(), at("2026-11-18T09:00:00Z"), Millis::from_secs(day), (0..2 * day).step_by(60));
    assert!(ticks[0] >= at("2026-11-17T09:00:00Z") && ticks[0] < at("2026-11-17T09:01:01Z"), "{ticks:?}");
    assert_eq!(ticks.len(), 2);
}

#[test]
fn a_cron_expression_of_every_minute_goes_on_every_minute() {
    for back in [2, 30, 3_599, 32_417, 86_400] {
        let ticks = ticks_by_the_wall(
            cron("* * * * *", "UTC"),
            at("2026-11-17T12:01:00Z"),
            Millis::from_secs(back),
            (0..7_200).step_by(1),
        );
        assert_eq!(ticks.len(), 119, "{} after {back} s", ticks.len());
        assert!(ticks.iter().all(|tick| tick.as_millis() % 60_000 <= 2_000), "{back}");
    }
}

#[test]
fn an_interval_counts_the_time_of_the_process() {
    let every = Every::Interval { period: Millis::from_secs(60), anchor: at("2026-11-17T12:00:00Z") };
    let ticks = ticks_by_the_wall(every, at("2026-11-17T12:01:00Z"), Millis::from_days(1), (0..3_600).step_by(1));
    assert_eq!(ticks.len(), 57 - 1, "an hour is 57 minutes for a process that slows down by a twentieth");
}

#[test]
fn a_tick_has_one_key_in_every_process() {
    let every = Every::Interval { period: Millis::from_secs(60), anchor: Timestamp::ZERO };
    let a = schedule(every.clone(), Missed::All, Timestamp::ZERO);
    assert_eq!(a.tick_key(Timestamp::from_millis(60_000)).unwrap().as_str(), "tick/s@1970-01-01T00:01:00.000Z");
}

#[test]
fn garbage_is_refused_with_its_reason() {
    for every in [cron("", "UTC"), cron("61 * * * *", "UTC"), cron("* * * * *", "Mars/Olympus")] {
        assert_eq!(every.next(Timestamp::ZERO).unwrap_err().code, ReasonCode::ScheduleInvalid);
    }
    let zero = Every::Interval { period: Millis::ZERO, anchor: Timestamp::ZERO };
    assert_eq!(zero.next(Timestamp::ZERO).unwrap_err().code, ReasonCode::DurationInvalid);
    let long = cron(&format!("{}0 * * * *", "0,".repeat(limits::CRON_BYTES_MAX / 2)), "UTC");
    let refusal = long.next(Timestamp::ZERO).unwrap_err();
    assert_eq!((refusal.code, refusal.context["expression"].len()), (ReasonCode::ScheduleInvalid, 128));
    // A date that never comes ends with a refusal, not with a loop.
    let never = schedule(cron("0 0 30 2 *", "UTC"), Missed::Latest, Timestamp::ZERO);
    assert_eq!(never.check(Timestamp::ZERO).unwrap_err().code, ReasonCode::ScheduleInvalid);
}

#[test]
fn an_expression_with_years_ticks_until_its_last() {
    let new_year = cron("0 0 0 1 1 * 2027,2029", "UTC");
    let (first, last) = (at("2027-01-01T00:00:00Z"), at("2029-01-01T00:00:00Z"));
    assert_eq!((next(&new_year, at("2026-11-17T12:00:00Z")), next(&new_year, first)), (first, last));
    assert_eq!(new_year.next(last).unwrap(), None);
    let late = schedule(new_year, Missed::All, first).due(at("2040-01-01T00:00:00Z"), ClockLead::NONE).unwrap();
    assert_eq!(late, (vec![first, last], None));
}

#[test]
fn every_time_of_a_list_comes_once_on_each_day() {
    let berlin = cron("0,30 2,3 * * *", "Europe/Berlin");
    let ticks = |from: &str, to: &str| {
        let first = next(&berlin, at(from));
        std::iter::successors(Some(first), |tick| Some(next(&berlin, *tick))).take_while(|tick| *tick <= at(to)).count()
    };
    assert_eq!(
        ticks("2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z"),
        2,
        "the clock jumps from 02:00 to 03:00 and 03:30"
    );
    assert_eq!(ticks("2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z"), 4, "02:00 and 02:30 come twice, and tick once");
    // In Greenland the jump ends the day: what it jumps over belongs to Saturday, and comes on Sunday at 00:00.
    let nuuk = cron("30 23 * * 6", "America/Nuuk");
    assert_eq!(next(&nuuk, at("2026-03-28T12:00:00Z")), at("2026-03-29T01:00:00Z"));
}

#[test]
fn the_newest_of_many_missed_ticks_are_made_up_for() {
    let every = cron("*/20 * 9 * * *", "UTC");
    let (first, now) = (at("2026-01-01T09:00:00Z"), at("2026-11-17T09:10:07Z"));
    let (made, next) = schedule(every, Missed::All, first).due(now, ClockLead::NONE).unwrap();
    assert_eq!((made.len(), next), (limits::MISSED_TICKS_MAX, Some(at("2026-11-17T09:10:20Z"))));
    assert_eq!(made.last(), Some(&at("2026-11-17T09:10:00Z")));
    // 31 today, five days of 180 before, and 69 of the day before these.
    assert_eq!(made.first(), Some(&at("2026-11-11T09:37:00Z")));
}

/// A day on which a clock jumps, or goes back, and where.
const JUMPS: [(&str, &str); 8] = [
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2026-10-25"),
    ("America/Nuuk", "2026-03-29"),
    ("Africa/Cairo", "2026-04-24"),
    ("Africa/Cairo", "2026-10-30"),
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Australia/Lord_Howe", "2026-10-04"),
    ("Antarctica/Troll", "2026-03-29"),
];

/// What clocks of a zone show each minute of four days around a jump: the moment, and the time of day as minutes.
fn shown(zone: &jiff::tz::TimeZone, day: &str) -> Vec<(Timestamp, i64)> {
    let start = at(&format!("{day}T00:00:00Z")) - Millis::from_days(2);
    let minute = |n: u64| start + Millis::from_secs(60 * n);
    let shows = |moment: Timestamp| {
        let shown = zone.to_datetime(jiff::Timestamp::from_millisecond(moment.as_millis()).unwrap());
        (moment, i64::from(shown.hour()) * 60 + i64::from(shown.minute()))
    };
    (0..4 * 24 * 60).map(|n| shows(minute(n))).collect()
}

/// The ticks at times of the day that are named one by one, by a walk from minute to minute.
fn named(shown: &[(Timestamp, i64)], times: &[i64]) -> Vec<Timestamp> {
    let mut ticks = Vec::new();
    let mut furthest: i64 = shown[0].1;
    for pair in shown.windows(2) {
        let ((_, before), (now, after)) = (pair[0], pair[1]);
        let after = if after < before && before - after > 12 * 60 { after + 24 * 60 } else { after };
        let passed = furthest.max(before) + 1..=after;
        if times.iter().any(|time| passed.contains(time) || passed.contains(&(time + 24 * 60))) {
            ticks.push(now);
        }
        furthest = if after >= 24 * 60 { after - 24 * 60 } else { furthest.max(after) };
    }
    ticks
}

fn listed(numbers: &std::collections::BTreeSet<u32>) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn all_ticks(every: &Every, after: Timestamp, to: Timestamp) -> Vec<Timestamp> {
    let every = Ticks::of(every).unwrap();
    let ticks = std::iter::successors(every.next(after), |tick| every.next(*tick));
    ticks.take_while(|tick| *tick <= to).collect()
}

/// A schedule, and how long a round of it may be: a few thousand ticks for each.
fn schedules() -> impl Strategy<Value = (Every, u64)> {
    let berlin = |expression: String| cron(&expression, "Europe/Berlin");
    let minute = 60_000;
    prop_oneof![
        (1u64..200_000).prop_map(|ms| {
            (Every::Interval { period: Millis::new(ms), anchor: at("2026-03-27T00:00:00Z") }, ms * 3_000)
        }),
        (1u32..60, 0u32..24).prop_map(move |(m, h)| (berlin(format!("{m} {h} * * *")), 2_000 * minute)),
        (1u32..30).prop_map(move |step| (berlin(format!("*/{step} * * * * *")), 30 * minute)),
        (1u32..30).prop_map(move |step| (berlin(format!("*/{step} 1-4 * * *")), 2_000 * minute)),
        (0u32..24, 27u32..31).prop_map(move |(h, d)| (berlin(format!("0 0,30 {h} {d} 3 * 2026")), 2_000 * minute)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(32) })]

    #[test]
    fn named_times_come_once_a_day_and_wildcards_whenever_the_clock_shows_them(
        jump in 0..JUMPS.len(),
        hours in proptest::collection::btree_set(0u32..24, 1..4),
        minutes in proptest::collection::btree_set(0u32..60, 1..4),
    ) {
        let (zone, day) = JUMPS[jump];
        let shown = shown(&jiff::tz::TimeZone::get(zone).unwrap(), day);
        let (start, end) = (shown[0].0, shown[shown.len() - 1].0);
        let times: Vec<i64> =
            hours.iter().flat_map(|hour| minutes.iter().map(move |minute| i64::from(hour * 60 + minute))).collect();
        let every = cron(&format!("{} {} * * *", listed(&minutes), listed(&hours)), zone);
        prop_assert_eq!(all_ticks(&every, start, end), named(&shown, &times), "{:?}", every);

        let every = cron(&format!("{} * * * *", listed(&minutes)), zone);
        let matching = shown[1..].iter().filter(|(_, time)| minutes.iter().any(|minute| i64::from(*minute) == time % 60));
        prop_assert_eq!(all_ticks(&every, start, end), matching.map(|(at, _)| *at).collect::<Vec<_>>(), "{:?}", every);
    }

    #[test]
    fn rounds_of_any_length_make_what_the_policy_says(
        (every, longest) in schedules(),
        rounds in proptest::collection::vec(prop_oneof![100u64..5_000, 1_000u64..100_000, any::<u64>()], 1..8),
    ) {
        let start = at("2026-03-28T12:00:00Z");
        for missed in [Missed::Latest, Missed::Skip, Missed::All] {
            let mut found = schedule(every.clone(), missed, start);
            found.next_at = every.next(start).unwrap();
            let mut now = start;
            for round in &rounds {
                let (before, seen) = (now, now + Millis::new(round % longest));
                now = seen;
                let (made, next) = found.due(now, ClockLead::NONE).unwrap();
                prop_assert_eq!(next, every.next(now).unwrap(), "the next tick is the first that has not come");
                found.next_at = next;
                let due = all_ticks(&every, before, now);
                let newest = due.len().saturating_sub(limits::MISSED_TICKS_MAX);
                let latest = due.last().copied();
                let expected: Vec<Timestamp> = match missed {
                    Missed::All => due[newest..].to_vec(),
                    Missed::Latest => latest.into_iter().collect(),
                    Missed::Skip => latest
                        .filter(|tick| due.len() == 1 || now.since(*tick) <= limits::TICK_SEEN_WITHIN)
                        .into_iter()
                        .collect(),
                };
                prop_assert_eq!(made, expected, "{:?} of {} due", missed, due.len());
            }
        }
    }
}
