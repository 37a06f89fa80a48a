//! Why a task does not run, or still runs: the reasons a person can act on, from what is known of its surroundings.

use crate::id::TaskId;
use crate::lane::Place;
use crate::lease::Until;
use crate::limits;
use crate::pool::PoolSettings;
use crate::reason::{ReasonCode, Refusal};
use crate::runner::Runner;
use crate::task::{Phase, Task};
use crate::time::{ClockLead, Timestamp};

/// What an explanation looks at beside the task itself.
#[derive(Clone, Debug)]
pub struct Surroundings<'a> {
    /// The moment.
    pub now: Timestamp,
    /// How far that is ahead of the machine's clock.
    pub lead: ClockLead,
    /// What the task's pool is set to.
    pub pool: &'a PoolSettings,
    /// How many tasks of the pool run, where the pool has a limit.
    pub running: i64,
    /// The runners of the namespace.
    pub runners: &'a [Runner],
    /// Who holds the places of the task's lane.
    pub ahead: &'a [TaskId],
}

/// Every reason why the task is where it is; the one that matters most first. Never empty.
pub fn reasons(task: &Task, around: &Surroundings<'_>) -> Vec<Refusal> {
    let mut reasons = match task.state.phase {
        Phase::Pending => vec![held(task)],
        Phase::Blocked => vec![blocked(task)],
        Phase::Queued | Phase::RetryScheduled => waiting(task, around),
        Phase::Running => vec![running(task, around)],
        Phase::NeedsInput => vec![asking(task)],
        Phase::Succeeded => vec![Refusal::new(ReasonCode::TaskFinal)],
        Phase::Dead => vec![Refusal::new(task.state.reason.unwrap_or(ReasonCode::TaskFinal))],
        Phase::Cancelled => cancelled(task),
    };
    for reason in &mut reasons {
        reason.context.insert("task_id".to_owned(), task.id().to_string());
        reason.context.insert("phase".to_owned(), task.state.phase.to_string());
        if let Some(error) = &task.state.last_error {
            reason.context.insert("last_error".to_owned(), error.to_string());
        }
    }
    reasons
}

fn held(task: &Task) -> Refusal {
    match (&task.spec.after_group, task.state.reason) {
        (Some(group), Some(reason)) => Refusal::new(reason).with("group", group),
        (Some(group), None) => Refusal::new(ReasonCode::GroupOpen).with("group", group),
        (None, _) => Refusal::new(ReasonCode::TaskHeld),
    }
}

fn blocked(task: &Task) -> Refusal {
    let code = task.state.reason.unwrap_or(ReasonCode::DependencyUnmet);
    let names: Vec<&str> = task.state.waits_for.iter().take(8).map(TaskId::as_str).collect();
    Refusal::new(code).with("waits_for", names.join(", ")).with("unmet", task.state.waits_for.len())
}

fn waiting(task: &Task, around: &Surroundings<'_>) -> Vec<Refusal> {
    let mut reasons = Vec::new();
    if task.state.next_run_at > around.now {
        reasons.push(Refusal::new(ReasonCode::NotDue).with("next_run_at", task.state.next_run_at));
        reasons.extend(clock(task, around));
    }
    if let Place::Waiting(number) = task.state.place {
        let ahead: Vec<&str> = around.ahead.iter().take(8).map(TaskId::as_str).collect();
        reasons.push(Refusal::new(ReasonCode::BehindLane).with("number", number).with("ahead", ahead.join(", ")));
    }
    if around.pool.paused {
        reasons.push(Refusal::new(ReasonCode::PoolPaused).with("pool", &task.spec.pool));
    }
    if let Some(limit) = around.pool.running_max.filter(|limit| around.running >= i64::from(*limit)) {
        let full = Refusal::new(ReasonCode::PoolFull).with("pool", &task.spec.pool);
        reasons.push(full.with("running", around.running).with("running_max", limit));
    }
    let serving = around.runners.iter().filter(|runner| runner.is_alive(around.now) && serves(runner, task)).count();
    if serving == 0 {
        let kind = &task.spec.envelope.task_type;
        reasons.push(Refusal::new(ReasonCode::NoHandler).with("task_type", kind).with("pool", &task.spec.pool));
    }
    if reasons.is_empty() {
        reasons.push(Refusal::new(ReasonCode::WaitsForRunner).with("runners", serving));
    }
    reasons
}

/// What the clock has to do with a wait that has not passed.
fn clock(task: &Task, around: &Surroundings<'_>) -> Option<Refusal> {
    let behind = task.state.updated_at.since(around.now);
    let (code, by) = if behind >= limits::CLOCK_STEP_MIN {
        (ReasonCode::ClockBehind, behind)
    } else if around.lead != ClockLead::NONE {
        (ReasonCode::ClockSetBack, around.lead.as_millis())
    } else {
        return None;
    };
    let wait = task.state.next_run_at.since(around.now);
    Some(Refusal::new(code).with("clock_back_ms", by.as_u64()).with("wait_ms", wait.as_u64()))
}

/// A runner without a list serves all there is.
fn serves(runner: &Runner, task: &Task) -> bool {
    (runner.pools.is_empty() || runner.pools.contains(&task.spec.pool))
        && (runner.kinds.is_empty() || runner.kinds.contains(&task.spec.envelope.task_type))
}

fn running(task: &Task, around: &Surroundings<'_>) -> Refusal {
    let Some(lease) = &task.state.lease else { return Refusal::new(ReasonCode::AttemptRunning) };
    let holder = around.runners.iter().find(|runner| runner.id == lease.holder);
    let silent = match lease.until {
        Until::Heartbeat => holder.is_some_and(|runner| !runner.is_alive(around.now)),
        Until::At(deadline) => deadline <= around.now,
        Until::Foreign => false,
    };
    let code = if silent { ReasonCode::RunnerSilent } else { ReasonCode::AttemptRunning };
    let mut reason = Refusal::new(code).with("runner_id", &lease.holder).with("execution_no", lease.token);
    if let Some(runner) = holder {
        reason = reason.with("last_heartbeat", runner.last_heartbeat);
    }
    match task.state.running_attempt() {
        Some(attempt) => reason.with("since", attempt.started_at),
        None => reason,
    }
}

fn asking(task: &Task) -> Refusal {
    let reason = Refusal::new(ReasonCode::NeedsInput);
    match &task.state.question {
        Some(question) => reason.with("question", &question.id).with("text", &question.text),
        None => reason,
    }
}

fn cancelled(task: &Task) -> Vec<Refusal> {
    let ending = task.state.lease.as_ref();
    let ending = ending.map(|lease| Refusal::new(ReasonCode::AttemptEnding).with("runner_id", &lease.holder));
    let why = Refusal::new(task.state.reason.unwrap_or(ReasonCode::CancelRequested));
    ending.into_iter().chain([why]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::fixtures::{NOON, born, spec};
    use crate::id::{GroupId, Kind, OpId, PoolName, RunnerId};
    use crate::newer::Newer;
    use crate::pool::Profile;
    use crate::runner::RunnerStatus;
    use crate::time::Millis;
    use crate::transition::{Decision, Start, birth, decide};

    fn runner(kind: &str, last_heartbeat: Timestamp) -> Runner {
        Runner {
            namespace: spec("x").namespace,
            id: RunnerId::new("r").unwrap(),
            started_at: NOON,
            last_heartbeat,
            status: RunnerStatus::Running,
            lease: Millis::from_secs(30),
            project_root: String::new(),
            pools: vec![PoolName::new("pool").unwrap()],
            kinds: vec![Kind::new(kind).unwrap()],
            newer: Newer::NONE,
        }
    }

    fn codes(task: &Task, pool: &PoolSettings, running: i64, runners: &[Runner], now: Timestamp) -> Vec<ReasonCode> {
        let around = Surroundings { now, lead: ClockLead::NONE, pool, running, runners, ahead: &[] };
        reasons(task, &around).into_iter().map(|reason| reason.code).collect()
    }

    fn claimed(task: &Task) -> Task {
        let holder = RunnerId::new("r").unwrap();
        let event = Event::Claimed { claim: OpId::from_bits(1), holder, until: Until::Heartbeat, counted: false };
        match decide(task, &event, NOON) {
            Ok(Decision::Change(change)) => Task { spec: task.spec.clone(), state: change.state },
            other => panic!("{other:?}"),
        }
    }

    /// R22
    #[test]
    fn a_type_that_no_living_runner_handles_has_no_handler() {
        let (task, pool) = (born(spec("a")), Profile::Embedded.settings());
        let alone = [ReasonCode::NoHandler];
        assert_eq!(codes(&task, &pool, 0, &[], NOON), alone);
        assert_eq!(codes(&task, &pool, 0, &[runner("other", NOON)], NOON), alone);
        assert_eq!(codes(&task, &pool, 0, &[runner("greet", NOON - Millis::from_secs(30))], NOON), alone);
        assert_eq!(codes(&task, &pool, 0, &[runner("greet", NOON)], NOON), [ReasonCode::WaitsForRunner]);
    }

    #[test]
    fn every_obstacle_is_named() {
        let mut wish = spec("a");
        wish.run_at = Some(NOON + Millis::from_secs(1));
        let pool = PoolSettings { paused: true, running_max: Some(2), ..Profile::Embedded.settings() };
        let all = [ReasonCode::NotDue, ReasonCode::PoolPaused, ReasonCode::PoolFull, ReasonCode::NoHandler];
        assert_eq!(codes(&born(wish), &pool, 2, &[], NOON), all);
    }

    #[test]
    fn a_wait_tells_of_a_clock_that_was_set_back_or_is_behind() {
        let mut wish = spec("a");
        wish.run_at = Some(NOON + Millis::from_secs(60));
        let (task, pool) = (born(wish), Profile::Embedded.settings());
        let told = |now, lead| {
            let around =
                Surroundings { now, lead, pool: &pool, running: 0, runners: &[runner("greet", now)], ahead: &[] };
            let reasons = reasons(&task, &around);
            let told = reasons.get(1).map(|reason| (reason.code, reason.context["clock_back_ms"].clone()));
            (reasons[0].code, told)
        };
        let (day, behind) = (Millis::from_days(1), Some((ReasonCode::ClockBehind, "86400000".to_owned())));
        let set_back = Some((ReasonCode::ClockSetBack, "86400000".to_owned()));
        assert_eq!(told(NOON, ClockLead::NONE), (ReasonCode::NotDue, None));
        assert_eq!(told(NOON, ClockLead::new(day)), (ReasonCode::NotDue, set_back));
        assert_eq!(told(NOON - day, ClockLead::NONE), (ReasonCode::NotDue, behind));
        let late = NOON + Millis::from_secs(60);
        assert_eq!(told(late, ClockLead::new(day)), (ReasonCode::WaitsForRunner, None), "it waits for no clock");
    }

    #[test]
    fn a_running_task_tells_whether_its_runner_lives() {
        let (task, pool) = (claimed(&born(spec("a"))), Profile::Embedded.settings());
        let late = NOON + Millis::from_secs(30);
        assert_eq!(codes(&task, &pool, 0, &[runner("greet", NOON)], NOON), [ReasonCode::AttemptRunning]);
        assert_eq!(codes(&task, &pool, 0, &[runner("greet", NOON)], late), [ReasonCode::RunnerSilent]);
    }

    #[test]
    fn what_is_held_says_for_what() {
        let pool = Profile::Embedded.settings();
        let held = |change: fn(&mut crate::task::Spec)| {
            let mut wish = spec("a");
            change(&mut wish);
            let state = birth(&wish, Start::Held, vec![], NOON).state;
            codes(&Task { spec: wish.into(), state }, &pool, 0, &[], NOON)
        };
        assert_eq!(held(|_| {}), [ReasonCode::TaskHeld]);
        assert_eq!(held(|wish| wish.after_group = GroupId::new("g").ok()), [ReasonCode::GroupOpen]);
    }
}
