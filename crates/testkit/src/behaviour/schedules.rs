//! Schedules: each tick hands in one task, whoever looks and however often.

use std::sync::Arc;

use ekiden::core::{Every, Millis, Missed, Overlap, Priority, ReasonCode, Schedule, ScheduleId, Stage, Timestamp};
use ekiden::{NewSchedule, NewTask, TaskState, When};

use super::lab::{Lab, RUNNER, code};

fn cron(expression: &str, time_zone: &str) -> Every {
    Every::Cron { expression: expression.to_owned(), time_zone: time_zone.to_owned() }
}

async fn set(lab: &Lab, schedule: NewSchedule) -> Arc<Schedule> {
    lab.queue.set_schedule(schedule).await.expect("a schedule that can tick is taken")
}

/// A minute begins, so that the ticks of a test are where it says.
fn align(lab: &Lab) {
    let over = u64::try_from(lab.now().as_millis() % 60_000).unwrap_or(0);
    lab.pass_ms(60_000 - over);
}

async fn open_tasks(lab: &Lab) -> u64 {
    lab.count(TaskState::Queued).await
}

/// R21
pub async fn an_interval_hands_in_a_task_each_time(lab: Lab) {
    align(&lab);
    set(&lab, lab.every("s", 60)).await;
    for tick in 1..=3 {
        lab.pass_ms(59_999);
        lab.beat(RUNNER).await;
        lab.settle_down().await;
        lab.nothing_to_take().await;
        lab.pass_ms(1);
        assert_eq!(lab.settle_down().await.ticked, 1, "tick {tick}");
        lab.succeed(&lab.take().await).await;
    }
}

/// R21
pub async fn each_tick_is_a_task_like_its_template(lab: Lab) {
    align(&lab);
    let task = NewTask { priority: Priority::HIGH, title: Some("T".into()), ..lab.plain("template") };
    set(&lab, NewSchedule { task, ..lab.every("s", 60) }).await;
    lab.gone("template").await;
    lab.pass(60);
    lab.settle_down().await;
    let leased = lab.take().await;
    let record = lab.get(leased.lease.task.id.as_str()).await;
    assert_eq!((record.priority, record.title.as_deref(), record.created_at), (10, Some("T"), lab.now()));
    assert_eq!(record.envelope, lab.plain("template").envelope);
}

/// R21
pub async fn a_template_with_a_delay_delays_each_tick(lab: Lab) {
    align(&lab);
    let task = NewTask { when: When::After(Millis::from_secs(5)), ..lab.plain("template") };
    set(&lab, NewSchedule { task, ..lab.every("s", 60) }).await;
    lab.pass(60);
    lab.settle_down().await;
    lab.nothing_to_take().await;
    lab.pass(5);
    lab.take().await;
}

/// R21
pub async fn cron_is_read_in_its_time_zone(lab: Lab) {
    let every = cron("30 9 * * *", "Asia/Tokyo");
    let schedule = set(&lab, NewSchedule { every, ..lab.every("s", 60) }).await;
    let next_at = schedule.next_at.expect("it ticks every day");
    let minutes = next_at.as_millis() / 60_000;
    assert_eq!((next_at.as_millis() % 60_000, minutes % (24 * 60)), (0, 30), "half past nine is 00:30 UTC");
    assert!(next_at > lab.now());
    lab.pass_until(next_at - Millis::new(1));
    assert_eq!(lab.settle_down().await.ticked, 0);
    lab.pass_ms(1);
    assert_eq!(lab.settle_down().await.ticked, 1);
}

/// R21
pub async fn schedules_that_cannot_tick_are_refused(lab: Lab) {
    let wrong = [
        cron("not a cron", "UTC"),
        cron("99 * * * *", "UTC"),
        cron("* * * * *", "Moon/Crater"),
        cron("0 0 30 2 *", "UTC"),
    ];
    for every in wrong {
        let answer = lab.queue.set_schedule(NewSchedule { every: every.clone(), ..lab.every("s", 60) }).await;
        assert_eq!(code(answer), ReasonCode::ScheduleInvalid, "{every:?}");
    }
    let none = Every::Interval { period: Millis::ZERO, anchor: Timestamp::ZERO };
    let answer = lab.queue.set_schedule(NewSchedule { every: none, ..lab.every("s", 60) }).await;
    assert_eq!(code(answer), ReasonCode::DurationInvalid);
    assert!(lab.queue.schedules(lab.namespace()).await.expect("schedules can be listed").is_empty());
}

/// Ten ticks come, and nobody looks before the last of them is two minutes old.
async fn missed(lab: &Lab, missed: Missed) -> u64 {
    align(lab);
    let hour = Every::Interval { period: Millis::from_secs(3_600), anchor: lab.now() };
    set(lab, NewSchedule { missed, overlap: Overlap::Allow, every: hour, ..lab.every("s", 60) }).await;
    lab.pass(10 * 3_600 + 120);
    let ticked = lab.settle_down().await.ticked;
    assert_eq!(open_tasks(lab).await, ticked);
    ticked
}

/// R21
pub async fn of_missed_ticks_the_latest_is_made_up_for(lab: Lab) {
    assert_eq!(missed(&lab, Missed::Latest).await, 1);
}

/// R21
pub async fn missed_ticks_are_left_out_where_the_schedule_says_so(lab: Lab) {
    assert_eq!(missed(&lab, Missed::Skip).await, 0);
    lab.pass(3_600);
    assert_eq!(lab.settle_down().await.ticked, 1, "a tick that is seen in time is not a missed one");
}

/// R21
pub async fn all_missed_ticks_are_made_up_for_where_the_schedule_says_so(lab: Lab) {
    assert_eq!(missed(&lab, Missed::All).await, 10);
    assert!(lab.maintain().await.is_idle());
}

/// R21
pub async fn a_finite_schedule_makes_its_last_tick_and_rests(lab: Lab) {
    lab.pass_until(Timestamp::parse("2031-05-01T08:59:00Z").expect("a moment"));
    let every = cron("0 0 9,10 1 5 * 2031", "UTC");
    set(&lab, NewSchedule { every, overlap: Overlap::Allow, ..lab.every("s", 60) }).await;
    for (seconds, ticked) in [(60, 1), (3_600, 1), (86_400, 0)] {
        lab.pass(seconds);
        assert_eq!(lab.settle_down().await.ticked, ticked, "after {seconds} s");
    }
    let listed = lab.queue.schedules(lab.namespace()).await.expect("schedules can be listed");
    assert_eq!(listed.first().map(|schedule| schedule.next_at), Some(None));
}

/// R21
pub async fn a_task_with_the_id_of_a_tick_stops_no_schedule(lab: Lab) {
    align(&lab);
    let schedule = set(&lab, NewSchedule { overlap: Overlap::Allow, ..lab.every("s", 60) }).await;
    let tick = schedule.tick_id(lab.now() + Millis::from_secs(60)).expect("a tick has an id");
    lab.add(lab.plain(tick.as_str())).await;
    for open in 1..=3 {
        lab.pass(60);
        lab.settle_down().await;
        assert_eq!(open_tasks(&lab).await, open);
    }
}

/// R21
pub async fn a_cancelled_task_that_still_runs_holds_up_the_next_tick(lab: Lab) {
    align(&lab);
    set(&lab, lab.every("s", 60)).await;
    lab.pass(60);
    lab.settle_down().await;
    let leased = lab.take().await;
    lab.cancel(leased.lease.task.id.as_str()).await;
    lab.live_on(60).await;
    assert_eq!(lab.settle_down().await.ticked, 0);
    lab.stopped(&leased, Stage::Verified).await;
    lab.live_on(60).await;
    assert_eq!(lab.settle_down().await.ticked, 1);
}

/// R21
pub async fn a_tick_is_left_out_while_the_one_before_is_open(lab: Lab) {
    align(&lab);
    set(&lab, lab.every("s", 60)).await;
    lab.pass(60);
    lab.settle_down().await;
    lab.pass(60);
    lab.settle_down().await;
    assert_eq!(open_tasks(&lab).await, 1);
    lab.succeed(&lab.take().await).await;
    lab.pass(60);
    assert_eq!(lab.settle_down().await.ticked, 1);
}

/// R21
pub async fn ticks_overlap_where_the_schedule_says_so(lab: Lab) {
    align(&lab);
    set(&lab, NewSchedule { overlap: Overlap::Allow, ..lab.every("s", 60) }).await;
    for _ in 0..3 {
        lab.pass(60);
        lab.settle_down().await;
    }
    assert_eq!(open_tasks(&lab).await, 3);
}

/// R21
pub async fn maintainers_at_once_make_one_task_a_tick(lab: Lab) {
    align(&lab);
    set(&lab, NewSchedule { overlap: Overlap::Allow, ..lab.every("s", 60) }).await;
    for tick in 1..=5 {
        lab.pass(60);
        let rounds = (0..4).map(|_| {
            let lab = lab.clone();
            tokio::spawn(async move { lab.maintain().await.ticked })
        });
        for round in rounds.collect::<Vec<_>>() {
            round.await.expect("maintenance does not panic");
        }
        assert_eq!(open_tasks(&lab).await, tick);
    }
}

/// R21
pub async fn a_paused_schedule_rests_and_goes_on_when_it_is_set_again(lab: Lab) {
    align(&lab);
    set(&lab, NewSchedule { paused: true, ..lab.every("s", 60) }).await;
    lab.pass(600);
    assert_eq!(lab.settle_down().await.ticked, 0);
    set(&lab, lab.every("s", 60)).await;
    assert_eq!(lab.settle_down().await.ticked, 0, "nothing is made up for that came while it rested");
    lab.pass(60);
    assert_eq!(lab.settle_down().await.ticked, 1);
}

/// R21
pub async fn a_removed_schedule_ticks_no_more_and_its_tasks_stay(lab: Lab) {
    align(&lab);
    set(&lab, lab.every("s", 60)).await;
    lab.pass(60);
    lab.settle_down().await;
    let name = ScheduleId::new("s").expect("a letter is a name");
    lab.queue.remove_schedule(lab.namespace(), name.clone()).await.expect("a schedule can be removed");
    lab.succeed(&lab.take().await).await;
    lab.pass(600);
    assert_eq!(lab.settle_down().await.ticked, 0);
    let again = lab.queue.remove_schedule(lab.namespace(), name).await;
    assert_eq!(code(again), ReasonCode::ScheduleNotFound);
}

/// R21
pub async fn a_schedule_that_is_set_again_is_one_schedule(lab: Lab) {
    align(&lab);
    let first = set(&lab, lab.every("s", 60)).await;
    lab.pass(30);
    let second = set(&lab, NewSchedule { missed: Missed::All, ..lab.every("s", 60) }).await;
    assert_eq!(first.next_at, second.next_at, "equal times keep the next tick");
    let listed = lab.queue.schedules(lab.namespace()).await.expect("schedules can be listed");
    assert_eq!(listed, [second]);
}

/// R21
pub async fn schedules_are_listed_by_name(lab: Lab) {
    for name in ["b", "a", "c"] {
        set(&lab, lab.every(name, 60)).await;
    }
    let listed = lab.queue.schedules(lab.namespace()).await.expect("schedules can be listed");
    let names: Vec<&str> = listed.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
}
