//! Concurrency, per runner, pool, kind and key: never exceeded, fully used; and what is kept, for how long.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use std::sync::{Arc, Mutex};

use ekiden::core::{Keep, Millis};
use ekiden::{Context, RunnerBuilder, TaskState};
use lab::{Gauge, Job, Lab, Other, lab, ms, nothing, passes, secs, start, while_running};

/// A handler that works for a second, and a gauge of how many do.
fn measured(builder: RunnerBuilder, gauge: &Gauge) -> RunnerBuilder {
    let gauge = gauge.clone();
    builder.handler(move |_: Job, _: Context| {
        let inside = gauge.enter();
        async move {
            passes(secs(1)).await;
            drop(inside);
        }
    })
}

async fn jobs(lab: &Lab, count: u64) {
    for n in 0..count {
        lab.job(n).await;
    }
}

/// R20: a runner's own concurrency.
#[tokio::test(start_paused = true)]
async fn a_runner_runs_as_many_as_it_may() {
    let lab = lab();
    let gauge = Gauge::default();
    jobs(&lab, 40).await;
    while_running(measured(lab.runner().concurrency(4), &gauge), lab.until_count(TaskState::Succeeded, 40)).await;
    assert_eq!((gauge.most(), gauge.all(), lab.ms()), (4, 40, 10_000), "ten rounds of four");
}

/// R20: a pool's limit over all runners, in two processes.
#[tokio::test(start_paused = true)]
async fn a_pool_runs_as_many_as_it_may_over_all_runners() {
    let lab = lab();
    let mut settings = lab.client.pool("default").await.unwrap();
    settings.running_max = Some(3);
    lab.client.set_pool("default", settings).await.unwrap();
    let gauge = Gauge::default();
    jobs(&lab, 30).await;
    let other = lab.process(8);
    let runners =
        [start(measured(lab.runner().concurrency(5), &gauge)), start(measured(other.runner().concurrency(5), &gauge))];
    lab.until_count(TaskState::Succeeded, 30).await;
    assert_eq!((gauge.most(), gauge.all()), (3, 30));
    assert!(lab.ms() < 13_000, "{} ms for ten rounds of three", lab.ms());
    for runner in runners {
        runner.end().await;
    }
}

/// R20: a limit for one kind, which leaves the other slots to the other kinds.
#[tokio::test(start_paused = true)]
async fn a_kind_runs_as_many_as_it_may() {
    let lab = lab();
    let (limited, open) = (Gauge::default(), Gauge::default());
    jobs(&lab, 10).await;
    for n in 0..40 {
        lab.client.enqueue(Other { n }).await.unwrap();
    }
    let inside = open.clone();
    let runner =
        measured(lab.runner().concurrency(6).limit("job", 2), &limited).handler(move |_: Other, _: Context| {
            let inside = inside.enter();
            async move {
                passes(secs(1)).await;
                drop(inside);
            }
        });
    while_running(runner, lab.until_count(TaskState::Succeeded, 50)).await;
    assert_eq!((limited.most(), limited.all(), open.all()), (2, 10, 40));
    assert!((4..=6).contains(&open.most()), "{}", open.most());
    assert!(lab.ms() <= 10_000, "{} ms", lab.ms());
}

/// R20: a backlog of one kind does not starve another, whatever the numbers are.
#[tokio::test(start_paused = true)]
async fn no_kind_starves_behind_the_backlog_of_another() {
    for concurrency in 1..=4 {
        let lab = lab();
        let gauge = Gauge::default();
        for n in 0..400 {
            lab.client.enqueue(Other { n }).await.unwrap();
        }
        jobs(&lab, 4).await;
        let runner = measured(lab.runner().concurrency(concurrency).limit("job", 1), &gauge);
        let runner = runner.handler(|_: Other, _: Context| passes(secs(1)));
        let runner = start(runner);
        let done = async {
            while gauge.all() < 4 || gauge.inside() > 0 {
                passes(ms(100)).await;
            }
        };
        tokio::time::timeout(secs(30), done).await.unwrap_or_else(|_| panic!("starved with {concurrency} slots"));
        runner.end_at_once().await;
    }
}

/// R20, R21: tasks with one serial key run one at a time, in the order in which they came; other keys beside them.
#[tokio::test(start_paused = true)]
async fn a_serial_key_is_one_at_a_time_in_order() {
    let lab = lab();
    let ran: Arc<Mutex<Vec<u64>>> = Arc::default();
    let (all, own) = (Gauge::default(), [Gauge::default(), Gauge::default(), Gauge::default()]);
    for n in 0..30 {
        passes(ms(1)).await;
        lab.client.enqueue(Job { n }).serial_key(format!("key {}", n % 3)).await.unwrap();
    }
    let before = lab.ms();
    let (seen, every, keyed) = (ran.clone(), all.clone(), own.clone());
    let runner = lab.runner().concurrency(10).handler(move |job: Job, context: Context| {
        seen.lock().unwrap().push(job.n);
        let inside = (every.enter(), keyed[usize::try_from(job.n % 3).unwrap()].enter());
        async move {
            passes(secs(1)).await;
            drop(inside);
            // One failure in between: its lane waits for it.
            if job.n == 3 && context.attempt() == 1 {
                Err(ekiden::TaskError::retry_after(secs(5), "once"))
            } else {
                Ok(())
            }
        }
    });
    while_running(runner, lab.until_count(TaskState::Succeeded, 30)).await;
    assert!(own.iter().all(|gauge| gauge.most() == 1));
    assert_eq!(all.most(), 3, "the keys ran beside each other");
    let ran = ran.lock().unwrap().clone();
    for key in 0..3 {
        let mut order: Vec<_> = ran.iter().copied().filter(|n| n % 3 == key).collect();
        order.dedup();
        assert_eq!(order, (0..30).filter(|n| n % 3 == key).collect::<Vec<_>>());
    }
    assert!(lab.ms() - before < 18_000, "{} ms: no poll between two of a lane", lab.ms() - before);
}

/// R20: at most so many with one key.
#[tokio::test(start_paused = true)]
async fn a_key_runs_as_many_as_it_may() {
    let lab = lab();
    let gauge = Gauge::default();
    for n in 0..30 {
        lab.client.enqueue(Job { n }).at_most(3, "k").await.unwrap();
    }
    while_running(measured(lab.runner().concurrency(10), &gauge), lab.until_count(TaskState::Succeeded, 30)).await;
    assert_eq!((gauge.most(), gauge.all()), (3, 30));
    assert!(lab.ms() <= 11_000, "{} ms for ten rounds of three", lab.ms());
}

/// R20: a paused pool gives nothing out within two seconds, and goes on when it is let go.
#[tokio::test(start_paused = true)]
async fn a_paused_pool_rests() {
    let lab = lab();
    let runner = start(lab.runner().handler(nothing));
    let mut settings = lab.client.pool("default").await.unwrap();
    settings.paused = true;
    lab.client.set_pool("default", settings.clone()).await.unwrap();
    let id = lab.job(1).await;
    passes(secs(60)).await;
    assert_eq!(lab.state(&id).await, TaskState::Queued);
    settings.paused = false;
    lab.client.set_pool("default", settings).await.unwrap();
    let before = lab.ms();
    lab.until(&id, TaskState::Succeeded).await;
    assert_eq!(lab.ms(), before, "it is woken");
    runner.end().await;
}

/// R18: what has ended goes when its time is over; after ten thousand tasks nothing is left of them.
#[tokio::test(start_paused = true)]
async fn memory_does_not_grow_with_the_tasks_that_ended() {
    let lab = lab();
    let runner = start(lab.runner().concurrency(100).handler(nothing));
    let mut most = 0;
    for round in 0..20 {
        let tasks = (0..500).map(|n| {
            let task = lab.client.enqueue(Job { n: round * 500 + n }).keep_for(secs(600));
            // Some bring records of their own.
            if n % 10 == 0 { task.serial_key(format!("k{n}")).unique(format!("u{round}/{n}")).group("g") } else { task }
        });
        assert!(lab.client.enqueue_all(tasks.collect::<Vec<_>>()).await.iter().all(Result::is_ok));
        passes(secs(400)).await;
        let counts = lab.client.counts_by_state().await.unwrap();
        assert_eq!(counts.get(TaskState::Running) + counts.get(TaskState::Queued), 0);
        most = most.max(counts.get(TaskState::Succeeded));
    }
    assert!(most <= 1_500, "{most} were kept at once");
    runner.end().await;
    passes(secs(3 * 86_400)).await;
    while !lab.client.maintain().await.unwrap().is_idle() {}
    let left = lab.client.counts_by_state().await.unwrap();
    assert_eq!(left.by_phase.values().sum::<u64>(), 0);
    let kept = records(&lab).await;
    assert!(kept.len() <= 5, "{kept:?}");
    assert!(lab.store.check(ekiden_store::CheckDepth::Full).await.unwrap().is_empty());
}

/// R18: each kind of end has its own time; dead tasks stay unless the task says otherwise.
#[tokio::test(start_paused = true)]
async fn dead_tasks_stay() {
    let lab = lab();
    let mut settings = lab.client.pool("default").await.unwrap();
    Arc::make_mut(&mut settings.policy).keep = Keep::For(Millis::from_secs(600));
    lab.client.set_pool("default", settings).await.unwrap();
    let runner = start(lab.runner().handler(|job: Job, _: Context| async move {
        if job.n == 0 { Err(ekiden::TaskError::permanent("no")) } else { Ok(()) }
    }));
    let (dead, done) = (lab.job(0).await, lab.job(1).await);
    lab.until(&dead, TaskState::Dead).await;
    passes(secs(590)).await;
    assert_eq!(lab.state(&done).await, TaskState::Succeeded);
    passes(secs(20)).await;
    assert!(lab.client.get_status(&done).await.is_err(), "gone");
    runner.end().await;
    passes(secs(3_000 * 86_400)).await;
    while !lab.client.maintain().await.unwrap().is_idle() {}
    assert_eq!(lab.state(&dead).await, TaskState::Dead);
}

/// Every record that is no task.
async fn records(lab: &Lab) -> Vec<String> {
    use ekiden_core::key::RecordKind;
    let kinds = [
        RecordKind::Runner,
        RecordKind::Pool,
        RecordKind::Lane,
        RecordKind::LaneMember,
        RecordKind::Edge,
        RecordKind::Unique,
        RecordKind::Idempotency,
        RecordKind::Schedule,
        RecordKind::Sweep,
        RecordKind::Signal,
        RecordKind::Counter,
    ];
    let mut found = Vec::new();
    for kind in kinds {
        let query = ekiden_store::RecordQuery {
            namespace: lab.client.namespace().clone(),
            kind,
            prefix: String::new(),
            cursor: None,
            limit: 1_000,
        };
        let page = lab.store.records(query).await.unwrap();
        found.extend(page.items.iter().map(|item| format!("{:?} {}", item.key.kind, item.key.name)));
    }
    found
}
