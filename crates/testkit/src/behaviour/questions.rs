//! Questions: an attempt asks, somebody answers, and the next attempt reads the answer.

use ekiden::core::{Millis, Outcome, Question, ReasonCode, limits};
use ekiden::{TaskState, Verdict};

use super::lab::{Lab, code, question, question_id};

/// R5, X4
pub async fn a_question_ends_its_attempt_without_spending_it(lab: Lab) {
    let asked = Question { choices: vec!["red".into(), "blue".into()], ..question("q") };
    lab.add_asking("a", asked.clone()).await;
    let record = lab.get("a").await;
    assert_eq!((record.state, record.question, record.attempts), (TaskState::NeedsInput, Some(asked), 0));
    assert_eq!((record.recent[0].outcome, record.runner), (Some(Outcome::Asked), None));
    lab.live_on(3_600).await;
    lab.settle_down().await;
    lab.nothing_to_take().await;
}

/// R5, X4
pub async fn the_next_attempt_reads_the_answer(lab: Lab) {
    lab.add_asking("a", question("q")).await;
    lab.pass(5);
    let record = lab.queue.answer(lab.task("a"), question_id("q"), "blue".into()).await.expect("it was asked");
    assert_eq!((record.state, record.question, record.next_run_at), (TaskState::Queued, None, Some(lab.now())));
    let leased = lab.take().await;
    let answer = leased.answer.clone().expect("the answer comes along");
    assert_eq!((answer.question, &*answer.content, answer.at), (question_id("q"), "blue", lab.now()));
    assert_eq!((leased.attempts, leased.lease.token.0), (1, 2));
    lab.succeed(&leased).await;
}

/// X4
pub async fn an_answer_to_another_question_is_refused(lab: Lab) {
    lab.add_asking("a", question("q")).await;
    let wrong = lab.queue.answer(lab.task("a"), question_id("other"), "blue".into()).await;
    assert_eq!(code(wrong), ReasonCode::QuestionClosed);
    assert_eq!(lab.state("a").await, TaskState::NeedsInput);
}

/// X4
pub async fn the_same_answer_twice_is_done_and_another_is_refused(lab: Lab) {
    lab.add_asking("a", question("q")).await;
    for _ in 0..2 {
        lab.queue.answer(lab.task("a"), question_id("q"), "blue".into()).await.expect("the same answer is done");
    }
    let other = lab.queue.answer(lab.task("a"), question_id("q"), "red".into()).await;
    assert_eq!(code(other), ReasonCode::QuestionClosed);
    assert_eq!(lab.get("a").await.answer.map(|answer| answer.content), Some("blue".into()));
}

/// X4
pub async fn who_did_not_ask_gets_no_answer(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let answer = lab.queue.answer(lab.task("a"), question_id("q"), "blue".into()).await;
    assert_eq!(code(answer), ReasonCode::TaskNotAsking);
}

/// X4
pub async fn a_question_nobody_answers_in_time_is_death(lab: Lab) {
    let deadline = Some(lab.now() + Millis::from_secs(60));
    lab.add_asking("a", Question { deadline, ..question("q") }).await;
    lab.pass_ms(59_999);
    lab.settle_down().await;
    assert_eq!(lab.state("a").await, TaskState::NeedsInput);
    lab.pass_ms(1);
    lab.settle_down().await;
    let record = lab.get("a").await;
    assert_eq!((record.state, record.reason), (TaskState::Dead, Some(ReasonCode::QuestionExpired)));
    let late = lab.queue.answer(lab.task("a"), question_id("q"), "blue".into()).await;
    assert_eq!(code(late), ReasonCode::TaskNotAsking);
}

/// X4
pub async fn a_default_answer_counts_when_nobody_answers_in_time(lab: Lab) {
    let deadline = Some(lab.now() + Millis::from_secs(60));
    lab.add_asking("a", Question { deadline, default: Some("green".into()), ..question("q") }).await;
    lab.live_on(60).await;
    lab.settle_down().await;
    let leased = lab.take_this("a").await;
    assert_eq!(leased.answer.map(|answer| answer.content), Some("green".into()));
}

/// X4
pub async fn a_second_question_needs_its_own_answer(lab: Lab) {
    lab.add_asking("a", question("q-1")).await;
    lab.queue.answer(lab.task("a"), question_id("q-1"), "one".into()).await.expect("it was asked");
    let leased = lab.take().await;
    lab.settle(&leased, Verdict::Asked(Box::new(question("q-2")))).await.expect("a holder may ask again");
    let old = lab.queue.answer(lab.task("a"), question_id("q-1"), "late".into()).await;
    assert_eq!(code(old), ReasonCode::QuestionClosed);
    lab.queue.answer(lab.task("a"), question_id("q-2"), "two".into()).await.expect("it was asked");
    assert_eq!(lab.take().await.answer.map(|answer| answer.content), Some("two".into()));
}

/// X4
pub async fn questions_and_answers_too_large_are_refused(lab: Lab) {
    let large = "x".repeat(limits::QUESTION_BYTES_MAX + 1);
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    let asked = Question { text: large.as_str().into(), ..question("q") };
    assert_eq!(code(lab.settle(&leased, Verdict::Asked(Box::new(asked))).await), ReasonCode::PayloadTooLarge);
    let choices = vec!["c".into(); limits::QUESTION_CHOICES_MAX + 1];
    let asked = Question { choices, ..question("q") };
    assert_eq!(code(lab.settle(&leased, Verdict::Asked(Box::new(asked))).await), ReasonCode::NumberOutOfRange);
    assert_eq!(lab.state("a").await, TaskState::Running);
    lab.settle(&leased, Verdict::Asked(Box::new(question("q")))).await.expect("a small question is taken");
    let answer = lab.queue.answer(lab.task("a"), question_id("q"), large.as_str().into()).await;
    assert_eq!(code(answer), ReasonCode::PayloadTooLarge);
    assert_eq!(lab.state("a").await, TaskState::NeedsInput);
}
