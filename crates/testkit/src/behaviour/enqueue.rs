//! Tasks are handed in: kept to the byte, or refused without a trace.

use ekiden_core::newer::Newer;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use ekiden::core::{
    Hold, LaneSpec, Millis, Priority, ReasonCode, RetryPolicy, SessionId, TaskEnvelope, TaskId, Timeout, Timestamp,
    Unique, UniqueHold, UniqueKey, limits,
};
use ekiden::{Enqueued, NewTask, TaskState, When, Wishes};

use super::lab::{Lab, code, group, kind, lane_key, pool};

/// R2, R12
pub async fn an_envelope_comes_back_byte_for_byte(lab: Lab) {
    let payload = Bytes::from_static("{\"a\" :  [1,2 ],\"ü\":\"é\\u0000\"}".as_bytes());
    let envelope =
        TaskEnvelope { task_type: kind("work"), payload, content_type: "application/json".into(), newer: Newer::NONE };
    lab.add(NewTask { envelope: envelope.clone(), ..lab.plain("a") }).await;
    assert_eq!(lab.get("a").await.envelope, envelope);
    assert_eq!(lab.take().await.spec.envelope, envelope);
}

/// R2
pub async fn a_payload_may_be_any_bytes_of_any_content_type(lab: Lab) {
    let payload: Bytes = (0..=255_u8).collect();
    let envelope = TaskEnvelope {
        task_type: kind("work"),
        payload,
        content_type: "image/x-odd; q=\"1\"".into(),
        newer: Newer::NONE,
    };
    lab.add(NewTask { envelope: envelope.clone(), ..lab.plain("a") }).await;
    assert_eq!(lab.get("a").await.envelope, envelope);
}

/// R2
pub async fn an_empty_payload_stays_empty(lab: Lab) {
    lab.add(NewTask { envelope: TaskEnvelope::json(kind("work"), Bytes::new()), ..lab.plain("a") }).await;
    assert!(lab.take().await.spec.envelope.payload.is_empty());
}

/// R4, R9
pub async fn a_new_task_shows_all_that_was_said(lab: Lab) {
    let labels: BTreeMap<Arc<str>, Arc<str>> = [("team".into(), "ink".into())].into();
    let said = NewTask {
        title: Some("A title".into()),
        priority: Priority::HIGH,
        group: Some(group("g")),
        session: SessionId::new("s").ok(),
        labels: labels.clone(),
        ..lab.plain("a")
    };
    let now = lab.now();
    lab.add(said).await;
    let record = lab.get("a").await;
    assert_eq!((record.title.as_deref(), record.priority), (Some("A title"), 10));
    assert_eq!((record.group, record.session), (Some(group("g")), SessionId::new("s").ok()));
    assert_eq!((record.labels, record.pool, record.namespace), (labels, pool("default"), lab.namespace()));
    assert_eq!((record.created_at, record.updated_at, record.next_run_at), (now, now, Some(now)));
}

/// R4, R7
pub async fn a_new_task_has_run_never_and_may_run_five_times(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let record = lab.get("a").await;
    assert_eq!((record.state, record.attempts, record.max_attempts), (TaskState::Queued, 0, 5));
    assert_eq!((record.execution_no, record.last_error, record.started_at), (0, None, None));
    assert_eq!((record.finished_at, record.result, record.runner), (None, None, None));
    assert!(record.recent.is_empty());
}

/// R11
pub async fn an_id_is_taken_once(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let before = lab.get("a").await;
    let other = NewTask { priority: Priority::URGENT, ..lab.plain("a") };
    assert_eq!(lab.refused(other).await, ReasonCode::TaskExists);
    assert_eq!(lab.get("a").await, before);
    assert_eq!(lab.count(TaskState::Queued).await, 1);
}

/// R11
pub async fn an_id_stays_taken_after_its_task_ended(lab: Lab) {
    lab.add_succeeded("a").await;
    assert_eq!(lab.refused(lab.plain("a")).await, ReasonCode::TaskExists);
    assert_eq!(lab.state("a").await, TaskState::Succeeded);
}

/// R11
pub async fn one_of_many_equal_ids_at_once_is_taken(lab: Lab) {
    let racers = (0..8).map(|_| {
        let lab = lab.clone();
        tokio::spawn(async move { lab.try_add(lab.plain("a")).await.is_ok() })
    });
    let mut taken = 0;
    for racer in racers.collect::<Vec<_>>() {
        taken += usize::from(racer.await.expect("a racer does not panic"));
    }
    assert_eq!((taken, lab.count(TaskState::Queued).await), (1, 1));
}

/// R11
pub async fn a_batch_is_answered_in_order(lab: Lab) {
    let answers = lab.queue.enqueue(["a", "b", "c"].map(|name| lab.plain(name)).to_vec()).await;
    let ids: Vec<String> = answers.into_iter().map(|one| one.expect("each is taken").id.to_string()).collect();
    assert_eq!(ids, ["a", "b", "c"]);
    assert_eq!(lab.count(TaskState::Queued).await, 3);
}

/// R11
pub async fn a_bad_item_of_a_batch_stops_no_other(lab: Lab) {
    let bad = NewTask { lane: Some(LaneSpec { width: 0, ..LaneSpec::serial(lane_key("k")) }), ..lab.plain("bad") };
    let answers = lab.queue.enqueue(vec![lab.plain("a"), bad, lab.plain("a"), lab.plain("b")]).await;
    let codes: Vec<Option<ReasonCode>> = answers.into_iter().map(|one| one.err().map(|why| why.code())).collect();
    assert_eq!(codes, [None, Some(ReasonCode::LaneInvalid), Some(ReasonCode::TaskExists), None]);
    assert_eq!(lab.listed(lab.all()).await, ["a", "b"]);
}

/// R11
pub async fn an_empty_batch_has_no_answers(lab: Lab) {
    assert!(lab.queue.enqueue(Vec::new()).await.is_empty());
}

/// R11
pub async fn a_large_batch_is_taken_whole(lab: Lab) {
    let tasks: Vec<NewTask> = (0..300).map(|number| lab.plain(&format!("t-{number:03}"))).collect();
    assert!(lab.queue.enqueue(tasks).await.iter().all(Result::is_ok));
    assert_eq!(lab.count(TaskState::Queued).await, 300);
}

/// R2
pub async fn a_payload_at_the_limit_is_kept_and_one_byte_more_is_refused(lab: Lab) {
    let of = |bytes: usize| TaskEnvelope::json(kind("work"), vec![b'x'; bytes]);
    lab.add(NewTask { envelope: of(limits::PAYLOAD_BYTES_MAX), ..lab.plain("a") }).await;
    assert_eq!(lab.take().await.spec.envelope.payload.len(), limits::PAYLOAD_BYTES_MAX);
    let larger = NewTask { envelope: of(limits::PAYLOAD_BYTES_MAX + 1), ..lab.plain("b") };
    assert_eq!(lab.refused(larger).await, ReasonCode::PayloadTooLarge);
    lab.gone("b").await;
}

/// R4
pub async fn ids_of_any_script_are_kept_or_refused_by_name(lab: Lab) {
    let name = "仕事-ß-🏃";
    match lab.try_add(lab.plain(name)).await {
        Ok(_) => {
            assert_eq!(lab.get(name).await.id.as_str(), name);
            lab.take_this(name).await;
        }
        // Stores that make file names of ids are narrower.
        Err(error) => {
            assert_eq!(error.code(), ReasonCode::IdInvalid);
            assert_eq!(lab.counts().await.by_phase.values().sum::<u64>(), 0);
        }
    }
}

/// R4
pub async fn an_id_may_have_128_bytes(lab: Lab) {
    let name = "x".repeat(limits::ID_BYTES_MAX);
    lab.add(lab.plain(&name)).await;
    lab.succeed(&lab.take_this(&name).await).await;
    assert!(TaskId::new(name + "x").is_err());
}

/// R21
pub async fn labels_too_many_too_long_or_nameless_are_refused(lab: Lab) {
    let many = (0..=limits::LABELS_MAX).map(|number| (number.to_string().into(), "v".into())).collect();
    let long = [("k".into(), "v".repeat(limits::LABEL_BYTES_MAX + 1).into())].into();
    let nameless = [("".into(), "v".into())].into();
    for labels in [many, long, nameless] {
        assert_eq!(lab.refused(NewTask { labels, ..lab.plain("a") }).await, ReasonCode::LabelsInvalid);
    }
    lab.gone("a").await;
}

/// R21
pub async fn delays_beyond_ten_years_are_refused(lab: Lab) {
    let beyond = Millis::new(limits::DURATION_MAX.as_u64() + 1);
    for when in [When::After(beyond), When::At(lab.now() + beyond), When::At(Timestamp::MAX)] {
        assert_eq!(lab.refused(NewTask { when, ..lab.plain("a") }).await, ReasonCode::DurationInvalid);
    }
    for life in [Millis::ZERO, beyond] {
        let task = NewTask { expires_after: Some(life), ..lab.plain("a") };
        assert_eq!(lab.refused(task).await, ReasonCode::DurationInvalid);
    }
    lab.gone("a").await;
}

/// R20
pub async fn lanes_without_width_or_too_wide_are_refused(lab: Lab) {
    for width in [0, limits::LANE_WIDTH_MAX + 1] {
        let lane = Some(LaneSpec { key: lane_key("k"), width, hold: Hold::WhileRunning });
        assert_eq!(lab.refused(NewTask { lane, ..lab.plain("a") }).await, ReasonCode::LaneInvalid);
    }
    lab.gone("a").await;
}

/// R7, R8
pub async fn wishes_that_cannot_be_meant_are_refused(lab: Lab) {
    let wrong = [
        Wishes { attempts_max: Some(0), ..Wishes::default() },
        Wishes { attempts_max: Some(limits::ATTEMPTS_MAX + 1), ..Wishes::default() },
        Wishes { timeout: Some(Timeout::After(Millis::ZERO)), ..Wishes::default() },
        Wishes { retry: Some(RetryPolicy::Fixed { delay: Millis::ZERO }), ..Wishes::default() },
        Wishes { retry: Some(RetryPolicy::Steps { delays: vec![] }), ..Wishes::default() },
    ];
    for wishes in wrong {
        let code = lab.refused(NewTask { wishes: wishes.clone(), ..lab.plain("a") }).await;
        assert!(matches!(code, ReasonCode::NumberOutOfRange | ReasonCode::DurationInvalid), "{wishes:?}: {code}");
    }
    lab.gone("a").await;
}

/// R11
pub async fn a_refused_task_takes_no_key_and_no_place(lab: Lab) {
    let unique = || Unique { key: UniqueKey::new("u").expect("a letter is a key"), hold: UniqueHold::WhileOpen };
    let bad = NewTask {
        unique: Some(unique()),
        lane: super::lab::serial("k"),
        parents: vec![super::lab::id("nobody")],
        ..lab.plain("bad")
    };
    assert_eq!(lab.refused(bad).await, ReasonCode::DependencyUnknown);
    lab.add(NewTask { unique: Some(unique()), lane: super::lab::serial("k"), ..lab.plain("a") }).await;
    lab.take_this("a").await;
}

/// R9
pub async fn a_task_that_nobody_handed_in_is_not_found(lab: Lab) {
    lab.gone("a").await;
    assert_eq!(code(lab.queue.explain(lab.task("a")).await), ReasonCode::TaskNotFound);
    assert_eq!(code(lab.queue.cancel(lab.task("a"), None).await), ReasonCode::TaskNotFound);
    assert_eq!(code(lab.queue.release(lab.task("a")).await), ReasonCode::TaskNotFound);
    assert_eq!(code(lab.queue.retry(lab.task("a")).await), ReasonCode::TaskNotFound);
}

/// A reply that got lost is asked for again; whoever asks without the request's name hears that the id is taken.
pub async fn a_request_that_is_repeated_under_its_name_makes_one_task(lab: Lab) {
    let many: Vec<String> = (0..10).map(|n| format!("parent-{n}")).collect();
    for parent in &many {
        lab.add(lab.plain(parent)).await;
    }
    let plain = NewTask { op: Some(lab.op()), ..lab.plain("a") };
    let parents = many.iter().map(|parent| super::lab::id(parent)).collect();
    let child = NewTask { op: Some(lab.op()), parents, ..lab.plain("child") };
    for task in [plain, child] {
        for _ in 0..2 {
            let answer = lab.try_add(task.clone()).await.expect("a repeated request is recognised");
            assert_eq!(answer, Enqueued { id: task.task.id.clone(), is_new: true });
        }
        assert_eq!(lab.refused(NewTask { op: Some(lab.op()), ..task }).await, ReasonCode::TaskExists);
    }
    assert_eq!(lab.count(TaskState::Queued).await, 11);
    assert_eq!(lab.count(TaskState::Blocked).await, 1);
}
