//! Runs every example and looks at what it comes to. The sources are included, so that no test depends on which binaries
//! were built before.

use ekiden::TaskState;

#[path = "../examples/embedded_service.rs"]
#[expect(dead_code, reason = "a test calls run, not main")]
mod embedded_service;
#[path = "../examples/graceful_shutdown.rs"]
#[expect(dead_code, reason = "a test calls run, not main")]
mod graceful_shutdown;
#[path = "../examples/retry_policy.rs"]
#[expect(dead_code, reason = "a test calls run, not main")]
mod retry_policy;
#[path = "../examples/schedule.rs"]
#[expect(dead_code, reason = "a test calls run, not main")]
mod schedule;
#[path = "../examples/workflow.rs"]
#[expect(dead_code, reason = "a test calls run, not main")]
mod workflow;

#[test]
fn every_example_has_a_test() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let entries = std::fs::read_dir(folder).expect("the examples stand beside the tests");
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap().replace(".rs", "")).collect();
    names.sort();
    assert_eq!(names, ["embedded_service", "graceful_shutdown", "retry_policy", "schedule", "workflow"]);
}

#[tokio::test]
async fn the_embedded_service_makes_an_invoice_for_each_order() {
    assert_eq!(embedded_service::run().await.unwrap(), ["invoice 7", "invoice 8", "invoice 9"]);
}

#[tokio::test]
async fn each_kind_of_failure_has_its_own_end() {
    let records = retry_policy::run().await.unwrap();
    let ends: Vec<_> = records.iter().map(|record| (record.title.as_deref(), record.state, record.attempts)).collect();
    let expected = [
        (Some("missing"), TaskState::Dead, 1),
        (Some("busy"), TaskState::Succeeded, 2),
        (Some("unfinished"), TaskState::Succeeded, 1),
        (Some("flaky"), TaskState::Succeeded, 3),
    ];
    assert_eq!(ends, expected);
}

#[tokio::test]
async fn a_shutdown_lets_the_quick_finish_and_hands_the_slow_back() {
    let (ended, quick, slow) = graceful_shutdown::run().await.unwrap();
    assert_eq!(quick.state, TaskState::Succeeded);
    assert_eq!((slow.state, slow.attempts), (TaskState::Queued, 0));
    assert_eq!(ended.handed_back, [slow.id]);
    assert!(ended.unsettled.is_empty());
}

#[tokio::test]
async fn a_schedule_ticks_twice_with_two_names() {
    let tasks = schedule::run().await.unwrap();
    assert_eq!(tasks.len(), 2);
    assert_ne!(tasks.first(), tasks.last());
    assert!(tasks.iter().all(|task| task.as_str().starts_with("tick/clean-up@")), "{tasks:?}");
}

#[tokio::test]
async fn a_workflow_runs_in_the_order_of_its_dependencies() {
    let steps = workflow::run().await.unwrap();
    assert_eq!(steps, ["download", "resize to 640", "resize to 320", "publish"]);
}
