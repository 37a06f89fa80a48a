//! A foreign program in the same table: another client that knows nothing but the document.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod ward;

use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use ekiden_core::attempt::Stage;
use ekiden_core::commit::{Commit, Expect, Write};
use ekiden_core::event::Event;
use ekiden_core::id::{OpId, QuestionId, RunnerId};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::lease::{Token, Until};
use ekiden_core::reason::ReasonCode;
use ekiden_core::retry::FailureKind;
use ekiden_core::task::{Origin, Phase, Question};
use ekiden_core::time::Millis;
use ekiden_store::{Answer, RecordQuery, Store, StoreExt};

use ward::{Bench, key, ns};

fn word<'a>(words: &'a ward::Words, name: &str) -> Option<&'a str> {
    words.get(name).map(String::as_str)
}

/// Q3, Q6: adopted, run and finished, in the words of the document, and nothing of theirs is lost.
#[tokio::test]
async fn a_foreign_item_is_adopted_run_and_finished() {
    let bench = Bench::open().await;
    bench.foreign_put("n", "task-001", "QUEUED").await;
    let task = bench.claim("n").await.expect("it is adopted and given");
    assert_eq!((task.id().as_str(), task.spec.origin), ("task-001", Origin::Foreign));
    assert_eq!(&task.spec.envelope.payload[..], br#"{"prompt":"do it"}"#);
    let words = bench.foreign_get("n", "task-001").await;
    assert_eq!((word(&words, "status"), word(&words, "claimed_by")), (Some("RUNNING"), Some("our-runner")));
    bench.happen("n", "task-001", Event::Succeeded { token: Token(1), result: None }).await;
    let words = bench.foreign_get("n", "task-001").await;
    assert_eq!((word(&words, "status"), word(&words, "claimed_by")), (Some("COMPLETE"), None));
    assert_eq!((word(&words, "task_group_id"), word(&words, "prompt")), (Some("their-group"), Some("do it")));
}

/// Q6: an item that fails has one attempt and ends in ERROR, with the message.
#[tokio::test]
async fn a_foreign_item_that_fails_is_an_error_at_once() {
    let bench = Bench::open().await;
    bench.foreign_put("n", "theirs", "QUEUED").await;
    bench.claim("n").await.unwrap();
    let event = Event::Failed { token: Token(1), kind: FailureKind::Retryable, error: Arc::from("broke") };
    bench.happen("n", "theirs", event).await;
    let words = bench.foreign_get("n", "theirs").await;
    assert_eq!((word(&words, "status"), word(&words, "error_message")), (Some("ERROR"), Some("broke")));
}

/// Q6: also a queue of foreign items that is longer than one page of the look for them.
#[tokio::test]
async fn every_foreign_item_is_adopted_in_the_end() {
    let bench = Bench::open().await;
    for number in 0..40 {
        bench.foreign_put("n", &format!("theirs-{number:02}"), "QUEUED").await;
        bench.foreign_put("other", &format!("theirs-{number:02}"), "QUEUED").await;
    }
    let mut taken = std::collections::BTreeSet::new();
    for _ in 0..100 {
        taken.extend(bench.claim("n").await.map(|task| task.id().to_string()));
    }
    assert_eq!(taken.len(), 40, "each of the forty was given once");
    let words = bench.foreign_get("other", "theirs-00").await;
    assert_eq!(word(&words, "status"), Some("QUEUED"), "Q12: what others have is left alone");
    assert_eq!(word(&words, "ek_place"), None);
}

/// Q6: a task of ours that another program claimed is never run by us, and its end is believed.
#[tokio::test]
async fn a_task_that_another_program_claimed_is_never_given() {
    let bench = Bench::open().await;
    let id = bench.enqueue("n").await;
    assert!(bench.foreign_set("n", id.as_str(), "QUEUED", "RUNNING").await, "ours can be claimed as documented");
    assert!(bench.claim("n").await.is_none());
    let task = bench.task("n", id.as_str()).await;
    let lease = task.state.lease.as_ref().unwrap();
    assert_eq!((task.state.phase, lease.until), (Phase::Running, Until::Foreign));
    assert_eq!(lease.holder.as_str(), "their-runner");
    let words = bench.foreign_get("n", id.as_str()).await;
    assert_eq!((word(&words, "status"), word(&words, "claimed_by")), (Some("RUNNING"), Some("their-runner")));
    assert!(bench.foreign_set("n", id.as_str(), "RUNNING", "COMPLETE").await);
    assert_eq!(bench.task("n", id.as_str()).await.state.phase, Phase::Succeeded);
    assert_eq!(word(&bench.foreign_get("n", id.as_str()).await, "status"), Some("COMPLETE"));
    assert!(bench.claim("n").await.is_none());
}

/// Q4: `status` wins, also when several words went by since we last looked.
#[tokio::test]
async fn a_task_that_another_program_ran_between_two_looks_has_ended() {
    for (end, phase) in [("COMPLETE", Phase::Succeeded), ("ERROR", Phase::Dead), ("CANCELLED", Phase::Cancelled)] {
        let bench = Bench::open().await;
        let id = bench.enqueue("n").await;
        assert!(bench.foreign_set("n", id.as_str(), "QUEUED", "RUNNING").await);
        assert!(bench.foreign_set("n", id.as_str(), "RUNNING", end).await);
        assert!(bench.claim("n").await.is_none());
        assert_eq!(bench.task("n", id.as_str()).await.state.phase, phase);
        assert_eq!(
            word(&bench.foreign_get("n", id.as_str()).await, "status"),
            Some(end),
            "and nothing was overwritten"
        );
    }
}

/// Q6: an item that a foreign runner runs is never run again, whatever became of that runner.
#[tokio::test]
async fn a_foreign_running_item_is_never_given() {
    let bench = Bench::open().await;
    bench.foreign_put("n", "theirs", "RUNNING").await;
    for _ in 0..4 {
        assert!(bench.claim("n").await.is_none());
    }
    let words = bench.foreign_get("n", "theirs").await;
    assert_eq!((word(&words, "status"), word(&words, "ek_place")), (Some("RUNNING"), None), "nobody touched it");
    assert_eq!(bench.task("n", "theirs").await.state.lease.as_ref().unwrap().until, Until::Foreign);
}

/// Q11: a foreign cancel of a running task reaches its runner with the next look for signals.
#[tokio::test]
async fn a_foreign_cancel_signals_the_runner() {
    let bench = Bench::open().await;
    let id = bench.enqueue("n").await;
    let task = bench.claim("n").await.unwrap();
    let runner = RunnerId::new("our-runner").unwrap();
    let signals = async || {
        let query = RecordQuery {
            namespace: ns("n"),
            kind: RecordKind::Signal,
            prefix: Key::prefix(runner.as_str()),
            cursor: None,
            limit: 10,
        };
        bench.store.records(query).await.unwrap().items.len()
    };
    assert_eq!(signals().await, 0);
    assert!(bench.foreign_set("n", id.as_str(), "RUNNING", "CANCELLED").await);
    assert_eq!(signals().await, 1, "the first look after the write finds it");
    assert_eq!(bench.task("n", id.as_str()).await.state.phase, Phase::Cancelled);
    let token = Token(task.state.execution_no);
    bench.happen("n", id.as_str(), Event::AttemptEnded { token, stage: Stage::Verified }).await;
    assert_eq!(word(&bench.foreign_get("n", id.as_str()).await, "status"), Some("CANCELLED"));
}

/// Q5: between two attempts the item stays RUNNING and keeps its runner, so no foreign program can claim it.
#[tokio::test]
async fn a_task_between_attempts_cannot_be_claimed_by_others() {
    let token = Token(1);
    let failed = Event::Failed { token, kind: FailureKind::RetryAfter(Millis::ZERO), error: Arc::from("again") };
    for event in [failed, Event::Interrupted { token }] {
        let bench = Bench::open().await;
        let id = bench.enqueue("n").await;
        bench.claim("n").await.unwrap();
        bench.happen("n", id.as_str(), event).await;
        let words = bench.foreign_get("n", id.as_str()).await;
        assert_eq!((word(&words, "status"), word(&words, "claimed_by")), (Some("RUNNING"), Some("our-runner")));
        assert!(!bench.foreign_set("n", id.as_str(), "QUEUED", "RUNNING").await);
        let again = bench.claim("n").await.expect("our own index offers it again");
        assert_eq!(again.state.execution_no, 2);
    }
}

/// Q4, Q6: a status that nobody knows is left alone, and such a task is given to nobody.
#[tokio::test]
async fn a_task_with_an_unknown_status_is_left_alone() {
    let bench = Bench::open().await;
    let id = bench.enqueue("n").await;
    assert!(bench.foreign_set("n", id.as_str(), "QUEUED", "PAUSED").await);
    assert!(bench.claim("n").await.is_none());
    assert_eq!(word(&bench.foreign_get("n", id.as_str()).await, "status"), Some("PAUSED"));
    assert!(bench.foreign_set("n", id.as_str(), "PAUSED", "QUEUED").await);
    assert_eq!(bench.claim("n").await.expect("it is as it was").id(), &id);
}

/// Q4: what may not run yet is HELD, which no foreign program claims, and QUEUED when its time has come.
#[tokio::test]
async fn a_delayed_task_is_held_until_it_may_run() {
    let bench = Bench::open().await;
    let later = bench.now() + Millis::from_secs(3_600);
    let id = bench.enqueue_with("n", |spec| spec.run_at = Some(later)).await;
    assert_eq!(word(&bench.foreign_get("n", id.as_str()).await, "status"), Some("HELD"));
    assert!(!bench.foreign_set("n", id.as_str(), "QUEUED", "RUNNING").await);
    let claim = ekiden_core::claim::Claim { now: later, ..bench.claim_of("n") };
    assert_eq!(bench.store.claim(claim).await.unwrap().tasks.len(), 1);
}

/// Q5: a question is AWAITING_RESPONSE; a foreign program that appends an answer and writes RUNNING has answered.
#[tokio::test]
async fn a_foreign_answer_resumes_the_task() {
    let bench = Bench::open().await;
    let id = bench.enqueue("n").await;
    let task = bench.claim("n").await.unwrap();
    let question = Question {
        id: QuestionId::new("q-1").unwrap(),
        text: Arc::from("which one?"),
        choices: Vec::new(),
        deadline: None,
        default: None,
    };
    let asked = Event::Asked { token: Token(task.state.execution_no), question: Box::new(question) };
    bench.happen("n", id.as_str(), asked).await;
    let words = bench.foreign_get("n", id.as_str()).await;
    assert_eq!(
        (word(&words, "status"), word(&words, "clarification")),
        (Some("AWAITING_RESPONSE"), Some("which one?"))
    );
    bench.foreign_answer("n", id.as_str(), "the blue one").await;
    let heard = bench.task("n", id.as_str()).await;
    assert_eq!(heard.state.phase, Phase::Queued);
    assert_eq!(heard.state.answer.as_ref().map(|answer| &*answer.content), Some("the blue one"));
    assert_eq!(bench.claim("n").await.expect("it goes on").state.execution_no, 2);
}

/// Q15: a write that has not seen a foreign change is a conflict, and changes nothing.
#[tokio::test]
async fn a_write_that_has_not_seen_a_foreign_change_conflicts() {
    let bench = Bench::open().await;
    let id = bench.enqueue("n").await;
    let seen = bench.store.get_one(key("n", id.as_str())).await.unwrap().unwrap();
    assert!(bench.foreign_set("n", id.as_str(), "QUEUED", "RUNNING").await);
    let write = Write::put(seen.key.clone(), Expect::At(seen.revision), seen.record);
    let commit = Commit::new(OpId::from_bits(77), vec![write]).unwrap();
    let answer = bench.store.commit(commit).await.unwrap();
    assert!(matches!(answer, Answer::Conflict(_)), "{answer:?}");
    assert_eq!(word(&bench.foreign_get("n", id.as_str()).await, "claimed_by"), Some("their-runner"));
}

/// Q3: attributes that we do not know survive all our writes.
#[tokio::test]
async fn attributes_of_other_programs_survive() {
    let bench = Bench::open().await;
    bench.foreign_put("n", "theirs", "QUEUED").await;
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let update = bench.foreign.update_item().table_name(bench.queue());
    let update = update.key("namespace", text("n")).key("task_id", text("theirs"));
    let update = update.update_expression("SET their_note = :n").expression_attribute_values(":n", text("mine"));
    update.send().await.unwrap();
    bench.claim("n").await.unwrap();
    bench.happen("n", "theirs", Event::Succeeded { token: Token(1), result: None }).await;
    assert_eq!(word(&bench.foreign_get("n", "theirs").await, "their_note"), Some("mine"));
}

/// Q11: a cancel of ours is what the document says, at once.
#[tokio::test]
async fn a_cancel_of_ours_is_read_by_others_at_once() {
    let bench = Bench::open().await;
    let id = bench.enqueue("n").await;
    bench.claim("n").await.unwrap();
    let event = Event::CancelRequested { reason: ReasonCode::CancelRequested, note: None };
    bench.happen("n", id.as_str(), event).await;
    let words = bench.foreign_get("n", id.as_str()).await;
    assert_eq!((word(&words, "status"), word(&words, "claimed_by")), (Some("CANCELLED"), None));
}

/// Q6: two claimers, one of them foreign: nobody gets a task that the other has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_contended_task_goes_to_one_of_us() {
    let bench = Arc::new(Bench::open().await);
    let mut ids = Vec::new();
    for _ in 0..100 {
        ids.push(bench.enqueue("n").await);
    }
    let theirs = tokio::spawn({
        let (bench, ids) = (bench.clone(), ids.clone());
        async move {
            let mut theirs = Vec::new();
            for id in ids {
                if bench.foreign_set("n", id.as_str(), "QUEUED", "RUNNING").await {
                    theirs.push(id);
                }
            }
            theirs
        }
    });
    let mut ours = Vec::new();
    let mut idle = 0;
    while idle < 3 {
        match bench.claim("n").await {
            Some(task) => ours.push(task.id().clone()),
            None => idle += 1,
        }
    }
    let theirs = theirs.await.unwrap();
    let mut all: Vec<_> = ours.iter().chain(&theirs).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), ours.len() + theirs.len(), "no task has two runners");
    assert_eq!(all.len(), 100, "and every task has one");
}
