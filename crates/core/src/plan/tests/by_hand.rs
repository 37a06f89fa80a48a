//! Laws of what people ask for by hand: a release lets go what nobody waits for, a retry runs, and words have a limit.

use super::*;
use crate::id::QuestionId;
use crate::retry::FailureKind;
use crate::task::Question;

/// 5 MiB: more than any text may have.
const HUGE: usize = 5 * 1024 * 1024;

fn reopens(spec: &mut Spec) {
    Arc::make_mut(&mut spec.policy).reopen = true;
}

impl Shelf {
    fn die(&mut self, id: &str) {
        let token = self.claim(id);
        self.happen(id, Event::Failed { token, kind: FailureKind::Permanent, error: "no".into() }).unwrap();
    }

    fn retry(&mut self, id: &str) {
        self.run(&Retry { task: key(id), new_id: TaskId::new("new").unwrap() }).unwrap();
    }
}

/// R21, W8
#[test]
fn a_child_is_not_released_while_its_reopened_parent_runs() {
    let mut shelf = Shelf::default();
    for parent in ["p", "q"] {
        shelf.enqueue(parent, reopens);
    }
    shelf.enqueue_after(spec("child"), &["p", "q"]);
    shelf.die("p");
    shelf.release_step("p");
    assert_eq!(shelf.task("child").state.reason, Some(ReasonCode::DependencyFailed));
    shelf.retry("p");
    assert_eq!(shelf.happen("child", Event::Released), Err(ReasonCode::DependencyUnmet));
    shelf.finish("p");
    shelf.release_step("p");
    assert_eq!(
        shelf.happen("child", Event::Released),
        Err(ReasonCode::DependencyUnmet),
        "it waits for q, which is open"
    );
    shelf.die("q");
    assert!(shelf.happen("child", Event::Released).is_ok(), "a failed parent stands");
    assert_eq!(shelf.task("child").state.phase, Phase::Queued);
}

/// R21
#[test]
fn an_expired_task_that_is_retried_does_not_expire_again() {
    let mut shelf = Shelf::default();
    shelf.enqueue("t", |spec| {
        reopens(spec);
        spec.expires_at = Some(NOON + Millis::from_secs(1));
    });
    shelf.now = Some(NOON + Millis::from_secs(5));
    shelf.happen("t", Event::Expired).unwrap();
    assert_eq!(shelf.task("t").state.phase, Phase::Dead);
    shelf.retry("t");
    shelf.happen("t", Event::Expired).unwrap();
    assert_eq!(shelf.task("t").state.phase, Phase::Queued, "somebody asked for it after it had expired");
    shelf.finish("t");
    assert_eq!(shelf.task("t").state.phase, Phase::Succeeded);
}

/// No word that comes with an event makes a task much larger than it may be: it is refused or cut.
#[test]
fn texts_of_events_are_bounded() {
    let text: Arc<str> = "x".repeat(HUGE).into();
    let question = |text: &Arc<str>, default: Option<Arc<str>>| {
        let id = QuestionId::new("q").unwrap();
        Box::new(Question { id, text: text.clone(), choices: Vec::new(), deadline: None, default })
    };
    let token = Token(1);
    let small: Arc<str> = "?".into();
    let events = [
        Event::Failed { token, kind: FailureKind::Retryable, error: text.clone() },
        Event::Succeeded { token, result: Some(text.to_string().into()) },
        Event::Asked { token, question: question(&text, None) },
        Event::Asked { token, question: question(&small, Some(text.clone())) },
        Event::CancelRequested { reason: ReasonCode::CancelRequested, note: Some(text.clone()) },
    ];
    for event in events {
        let mut shelf = Shelf::default();
        shelf.enqueue("t", |_| {});
        shelf.claim("t");
        let told = shelf.happen("t", event.clone());
        let bytes = serde_json::to_vec(&*shelf.task("t")).unwrap().len();
        assert!(bytes < limits::RESULT_BYTES_MAX, "{} left {bytes} bytes: {}", event.name().as_str(), told.is_ok());
    }
}
