//! Commands as handlers: what they get, what they say, how they end. Real processes under the real supervisor.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod commanding;

use std::time::Duration;

use commanding::{Post, happened, in_time, start, supervisor, until};
use ekiden::core::{EventName, Millis, Outcome, ReasonCode, RetryPolicy, Stage};
use ekiden::exec::{CommandHandler, Directory};
use ekiden::{AttemptRef, Logs as _, TaskState};
use ekiden_testkit::rig::trees;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

/// X1, X2: the payload is on stdin, the facts are variables, the result is a file, output is in the log.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_gets_its_payload_and_facts_and_leaves_a_result() {
    let post = Post::new();
    let line = r#"cat > "$EKIDEN_RESULT"; echo out $EKIDEN_TASK_ID $EKIDEN_EXECUTION_NO $EKIDEN_TASK_TYPE $EKIDEN_POOL \
        $EKIDEN_NAMESPACE $EKIDEN_ATTEMPT "$EKIDEN_PROMPT"; echo err >&2; pwd; touch here"#;
    let record = post.run(post.shell(line), json!({"prompt": "say  hello"})).await;
    assert_eq!(record.state, TaskState::Succeeded, "{:?}", record.last_error);
    assert_eq!(record.result.as_deref(), Some(&br#"{"prompt":"say  hello"}"#[..]));
    let log = post.log(&record.id, 1).await;
    let facts = format!("out {} 1 c default default 1 say  hello\n", record.id);
    assert!(log.contains(&facts) && log.contains("err\n") && log.contains("/attempts/"), "{log}");
    let left: Vec<_> = std::fs::read_dir(post.folder.path().join("attempts")).unwrap().collect();
    assert!(left.is_empty(), "its folder is gone: {left:?}");
}

/// X1: arguments are taken as they are; no shell looks at them. A command that reads nothing of its stdin is no error.
#[tokio::test(flavor = "multi_thread")]
async fn no_shell_looks_at_arguments() {
    let post = Post::new();
    let handler = CommandHandler::new("c", ["printf", "%s|", "$HOME", "a b", "`id`"], supervisor());
    let handler = post.furnish(handler).directory(Directory::At(post.folder.path().to_owned()));
    let record = post.run(handler, json!({"large": "x".repeat(200_000)})).await;
    assert_eq!(record.state, TaskState::Succeeded, "{:?}", record.last_error);
    assert_eq!(post.log(&record.id, 1).await, "$HOME|a b|`id`|");
}

/// X1: output is readable while the command runs, from any offset.
#[tokio::test(flavor = "multi_thread")]
async fn output_is_readable_while_the_command_runs() {
    let post = Post::new();
    let runner = post.start(
        post.shell("echo one; echo two; while [ ! -e go ]; do sleep 0.02; done; echo three")
            .directory(Directory::At(post.folder.path().to_owned())),
    );
    let id = post.add(json!(null)).await;
    let attempt = AttemptRef { task: post.client.task(&id), execution_no: 1 };
    let part = in_time(async {
        loop {
            // The first line may be there before the second.
            if let Ok(part) = post.logs.read(attempt.clone(), 4, 100).await
                && !part.bytes.is_empty()
            {
                return part;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!((&*part.bytes, post.status(&id).await.state), (&b"two\n"[..], TaskState::Running));
    std::fs::write(post.folder.path().join("go"), "").unwrap();
    in_time(post.client.wait(&id)).await.unwrap();
    assert_eq!(post.log(&id, 1).await, "one\ntwo\nthree\n");
    runner.end().await;
}

/// X2: every exit is what the table says; a command that was killed has crashed, and has not failed.
#[tokio::test(flavor = "multi_thread")]
async fn exits_mean_what_the_table_says() {
    for (line, outcome, reason, error) in [
        ("exit 0", Outcome::Succeeded, None, None),
        ("echo no >&2; exit 1", Outcome::Failed, Some(ReasonCode::AttemptsExhausted), Some("exit code 1: no")),
        ("exit 75", Outcome::Failed, Some(ReasonCode::AttemptsExhausted), Some("exit code 75")),
        ("exit 65", Outcome::Failed, Some(ReasonCode::PermanentFailure), Some("exit code 65")),
        (
            "exit 3",
            Outcome::Failed,
            Some(ReasonCode::AttemptsExhausted),
            Some("exit code 3, but no question was asked"),
        ),
        ("kill -9 $$", Outcome::Crashed, Some(ReasonCode::AttemptsExhausted), Some("killed by signal 9 (KILL)")),
        ("kill -SEGV $$", Outcome::Crashed, Some(ReasonCode::AttemptsExhausted), Some("killed by signal 11 (SEGV)")),
    ] {
        let post = Post::new();
        let record = post.run(post.shell(line), json!(null)).await;
        assert_eq!(record.recent[0].outcome, Some(outcome), "{line}: {:?}", record.last_error);
        assert_eq!((record.reason, record.last_error.as_deref()), (reason, error), "{line}");
    }
    let post = Post::new();
    let missing = post.furnish(CommandHandler::new("c", ["/no/such/program"], supervisor()));
    let record = post.run(missing, json!(null)).await;
    let error = record.last_error.unwrap();
    assert!(error.contains("/no/such/program") && error.contains("No such file"), "{error}");
    assert_eq!(record.recent[0].outcome, Some(Outcome::Failed));
}

/// X2: a permanent failure is not tried again, a crash is.
#[tokio::test(flavor = "multi_thread")]
async fn crashes_are_tried_again_up_to_their_own_limit() {
    let post = Post::new();
    let retry = RetryPolicy::Fixed { delay: Millis::new(1) };
    let id = post.client.enqueue_json("c", &json!(null)).max_attempts(50).retry(retry).await.unwrap().id;
    let runner = post.start(post.shell("kill -9 $$"));
    let record = in_time(post.client.wait(&id)).await.unwrap();
    assert_eq!((record.reason, record.outcomes.crashed), (Some(ReasonCode::CrashLimit), 3));
    runner.end().await;
}

/// X2, R18: a result beyond its limit is told, and nothing of it is kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_is_too_large_is_told() {
    let post = Post::new();
    let record = post.run(post.shell("head -c 100000 /dev/zero > \"$EKIDEN_RESULT\""), json!(null)).await;
    assert_eq!((record.state, record.result), (TaskState::Dead, None));
    assert!(record.last_error.unwrap().contains("longer than"));
}

/// X3: progress and results come by the side channel; what is not understood does no harm.
#[tokio::test(flavor = "multi_thread")]
async fn events_are_heard_and_garbage_is_noted() {
    let post = Post::new();
    let line = r#"exec 5> "$EKIDEN_EVENTS"; echo garbage >&5; echo '{"type":"progress","done":3,"total":10,"note":"reading"}' >&5
        read -r answer < go; echo '{"type":"result","value":{"n":7}}' >&5"#;
    let handler = post.shell(line).directory(Directory::At(post.folder.path().to_owned()));
    rustix::fs::mknodat(
        rustix::fs::CWD,
        post.folder.path().join("go"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let runner = post.start(handler);
    let id = post.add(json!(null)).await;
    let record = until(&post.client, &id, |record| record.progress.is_some()).await;
    let progress = record.progress.unwrap();
    assert_eq!((progress.done, progress.total, progress.note.as_deref()), (3, Some(10), Some("reading")));
    let path = post.folder.path().join("go");
    tokio::task::spawn_blocking(move || std::fs::write(path, "on\n")).await.unwrap().unwrap();
    let record = in_time(post.client.wait(&id)).await.unwrap();
    assert_eq!(record.result.as_deref(), Some(&br#"{"n":7}"#[..]));
    assert!(post.log(&id, 1).await.contains("[ekiden] a line of $EKIDEN_EVENTS was not understood"));
    runner.end().await;
}

/// X3: a command that says nothing for too long is stopped, where somebody asked for that. A heartbeat keeps it alive.
#[tokio::test(flavor = "multi_thread")]
async fn silence_ends_a_command_and_heartbeats_do_not() {
    let post = Post::new();
    let record = post.run(post.shell("sleep 600").silence_max(Duration::from_millis(200)), json!(null)).await;
    assert_eq!(record.last_error.as_deref(), Some("gave no sign of life for 200 ms"));
    let beats = r#"for i in 1 2 3 4 5 6 7 8; do echo '{"type":"heartbeat"}' > "$EKIDEN_EVENTS"; sleep 0.3; done"#;
    let record = post.run(post.shell(beats).silence_max(Duration::from_millis(1_500)), json!(null)).await;
    assert_eq!(record.state, TaskState::Succeeded, "{:?}", record.last_error);
}

/// X4: a question parks the task and frees the slot; the answer starts the next attempt, which counts nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_parks_the_task_and_its_answer_starts_the_next_attempt() {
    let post = Post::new();
    let line = r#"if [ -z "$EKIDEN_ANSWER" ]; then
            echo '{"type":"question","text":"which?","choices":["red","blue"],"deadline_ms":3600000,"default":"red"}' > "$EKIDEN_EVENTS"
            exit 3
        fi
        printf '"%s"' "$EKIDEN_ANSWER" > "$EKIDEN_RESULT""#;
    let runner = start(post.runner(post.shell(line)).concurrency(1));
    let id = post.client.enqueue_json("c", &json!(null)).max_attempts(1).await.unwrap().id;
    let record = until(&post.client, &id, |record| record.state == TaskState::NeedsInput).await;
    let question = record.question.unwrap();
    assert_eq!((&*question.text, question.choices.len(), question.default.as_deref()), ("which?", 2, Some("red")));
    assert!(question.deadline.is_some());
    // The only slot is free: another task asks too.
    let other = post.add(json!(null)).await;
    until(&post.client, &other, |record| record.state == TaskState::NeedsInput).await;
    post.client.answer(&id, &question.id, "blue").await.unwrap();
    let record = in_time(post.client.wait(&id)).await.unwrap();
    assert_eq!((record.state, record.attempts, record.execution_no), (TaskState::Succeeded, 1, 2));
    assert_eq!(record.result.as_deref(), Some(&br#""blue""#[..]));
    runner.end().await;
}

/// X4: a question that nobody answers in time goes on with its default.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_expires_goes_on_with_its_default() {
    let post = Post::new();
    let line = r#"if [ -z "$EKIDEN_ANSWER" ]; then
            echo '{"type":"question","text":"which?","deadline_ms":50,"default":"red"}' > "$EKIDEN_EVENTS"; exit 3
        fi
        printf '"%s"' "$EKIDEN_ANSWER" > "$EKIDEN_RESULT""#;
    let record = post.run(post.shell(line), json!(null)).await;
    assert_eq!(record.result.as_deref(), Some(&br#""red""#[..]));
}

/// X5, Q11: a cancel stops the tree; TERM comes first, and whoever listens may clean up.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_command_hears_term_and_its_stages_are_seen() {
    let post = Post::new();
    let mut changes = post.client.subscribe().await.unwrap();
    let line = format!("trap 'echo cleaning; exit 0' TERM; {}", trees::line("GROWN; while :; do sleep 0.05; done"));
    let runner = post.start(post.shell(&line).grace(Duration::from_secs(60)));
    let id = post.add(json!(null)).await;
    commanding::grown(&post.client, &id).await;
    post.client.cancel(&id).await.unwrap();
    happened(&mut changes, &id, EventName::AttemptEnded).await;
    let record = until(&post.client, &id, |record| record.recent[0].outcome.is_some()).await;
    assert_eq!((record.recent[0].outcome, record.recent[0].stage), (Some(Outcome::Cancelled), Some(Stage::Verified)));
    let ends = record.history.iter().filter(|line| line.event == EventName::AttemptEnded).count();
    assert_eq!(ends, 3, "signalled, exited, verified: {:?}", record.history);
    assert!(post.log(&id, 1).await.contains("cleaning"));
    runner.end().await;
}

/// X5, R16: a timeout kills the whole tree before the attempt is settled, and is an outcome of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_kills_the_tree_before_it_is_settled() {
    let post = Post::new();
    let runner = start(
        post.runner(post.shell("trap '' TERM; setsid sleep 600 & sleep 601").grace(Duration::from_millis(50)))
            .pool(unique("late")),
    );
    let task = post.client.enqueue_json("c", &json!(null)).pool(unique("late")).timeout(Duration::from_millis(500));
    let mut changes = post.client.subscribe().await.unwrap();
    let id = task.max_attempts(1).await.unwrap().id;
    happened(&mut changes, &id, EventName::TimedOut).await;
    assert_eq!(trees::living(&word("late")), Vec::<i32>::new(), "all were gone before");
    assert_eq!(post.status(&id).await.recent[0].outcome, Some(Outcome::TimedOut));
    runner.end().await;

    let own = post.run(post.shell("sleep 600").time_max(Duration::from_millis(100)), json!(null)).await;
    assert_eq!(own.recent[0].outcome, Some(Outcome::TimedOut), "the handler's own limit");
}

/// X5: what a command leaves behind when it ends goes with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_natural_end_takes_stragglers_along() {
    let post = Post::new();
    let line = "setsid -f sleep 600; (trap '' TERM; sleep 601 &); echo done";
    let runner = start(post.runner(post.shell(line)).pool(unique("stragglers")));
    let id = post.client.enqueue_json("c", &json!(null)).pool(unique("stragglers")).await.unwrap().id;
    let record = in_time(post.client.wait(&id)).await.unwrap();
    assert_eq!((record.state, trees::living(&word("stragglers"))), (TaskState::Succeeded, Vec::new()));
    runner.end().await;
}

/// R17: a runner that ends stops its commands and hands their tasks back; no attempt is spent.
#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_ends_hands_its_commands_back() {
    let post = Post::new();
    let runner = start(post.runner(post.shell(&trees::line("GROWN; sleep 600"))).pool(unique("ends")));
    let id = post.client.enqueue_json("c", &json!(null)).pool(unique("ends")).await.unwrap().id;
    commanding::grown(&post.client, &id).await;
    let ended = runner.end_at_once().await;
    assert_eq!(ended.handed_back, std::slice::from_ref(&id));
    let record = post.status(&id).await;
    assert_eq!((record.state, record.attempts, record.outcomes.interrupted), (TaskState::Queued, 0, 1));
    assert_eq!(trees::living(&word("ends")), Vec::<i32>::new());
}

/// X5, R17: a command that has ended by itself has ended, although its runner shuts down while what it left behind is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_has_ended_does_not_run_again_after_a_shutdown() {
    let post = Post::new();
    let (path, ready) = (post.folder.path().join("heard"), post.folder.path().join("ready"));
    // What is left behind hears TERM when the end of the command was told, and does not end: that takes half a second.
    let deaf = format!("trap 'echo > {}' TERM; echo > {}; while :; do sleep 1; done", path.display(), ready.display());
    let line = format!("sh -c \"{deaf}\" & while ! [ -e {} ]; do sleep 0.01; done", ready.display());
    let id = post.add(json!(null)).await;
    let runner = post.start(post.shell(&line));
    in_time(async {
        while !path.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let ended = runner.end_at_once().await;
    assert_eq!((ended.settled, ended.handed_back), (1, Vec::new()));
    assert_eq!(post.status(&id).await.state, TaskState::Succeeded);
}

/// X5: a supervisor that is killed itself leaves nothing behind that its runner can find: neither who stayed in its session
/// nor who left it.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_supervisor_leaves_is_found_and_killed() {
    let post = Post::new();
    let line = trees::line("sleep 600 & setsid -f sleep 601; echo $PPID; GROWN; sleep 602");
    let runner = start(post.runner(post.shell(&line)).pool(unique("orphans")));
    let id = post.client.enqueue_json("c", &json!(null)).pool(unique("orphans")).max_attempts(1).await.unwrap().id;
    commanding::grown(&post.client, &id).await;
    let pid = in_time(async {
        loop {
            if let Ok(pid) = post.log(&id, 1).await.trim().parse::<i32>() {
                return pid;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let record = in_time(post.client.wait(&id)).await.unwrap();
    assert_eq!(
        (record.recent[0].outcome, record.last_error.as_deref()),
        (Some(Outcome::Crashed), Some("its supervisor died"))
    );
    assert_eq!(trees::living(&word("orphans")), Vec::<i32>::new());
    runner.end().await;
}

/// X6: the command's environment is what is allowed, and facts; secrets of the payload are in no log and no error.
#[tokio::test(flavor = "multi_thread")]
async fn environments_are_scrubbed_and_secrets_are_not_written_down() {
    let post = Post::new();
    let record = post.run(post.shell("env; cat >&2; exit 65"), json!({"api_key": "sk-123456", "to": "aoi"})).await;
    let log = post.log(&record.id, 1).await;
    let names: Vec<&str> = log.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    let known = |name: &&str| {
        ekiden::exec::ALLOWED.contains(name)
            || name.starts_with("LC_")
            || name.starts_with("EKIDEN_")
            || ["PWD", "OLDPWD", "SHLVL", "_"].contains(name)
    };
    let strangers: Vec<_> = names.iter().filter(|name| !known(name)).collect();
    assert!(strangers.is_empty() && names.contains(&"EKIDEN_TASK_ID"), "{strangers:?}");
    assert!(!names.contains(&"CARGO_MANIFEST_DIR"), "which this test has");
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    assert!(log.contains("aoi") && log.contains("[redacted]") && !log.contains("sk-123456"), "{log}");
    let error = record.last_error.unwrap();
    assert!(error.contains("[redacted]") && !error.contains("sk-123456"), "{error}");
}

/// X6: a secret that is written in two pieces is masked, and what stands before it is shown meanwhile. So is one in the words of a
/// question and in a note about a line that was not understood; what goes back to the command stays as it is.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_in_pieces_notes_and_questions_are_not_written_down() {
    let post = Post::new();
    let line = r#"exec 5> "$EKIDEN_EVENTS"
        echo '{"type":"hunter\"22"}' >&5
        echo '{"type":"question","text":"is it hunter\"22?","default":"hunter\"22"}' >&5
        printf 'it is hunter'; read -r word < go; printf '"22 in\n'; cat; exit 3"#;
    let handler = post.shell(line).directory(Directory::At(post.folder.path().to_owned()));
    let go = post.folder.path().join("go");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &go, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let runner = post.start(handler);
    let id = post.add(json!({"password": "hunter\"22"})).await;
    let attempt = AttemptRef { task: post.client.task(&id), execution_no: 1 };
    in_time(async {
        while !post.logs.read(attempt.clone(), 0, 1_000).await.is_ok_and(|log| log.bytes.ends_with(b"it is ")) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    tokio::task::spawn_blocking(move || std::fs::write(go, "go\n")).await.unwrap().unwrap();
    let record = until(&post.client, &id, |record| record.state == TaskState::NeedsInput).await;
    let log = post.log(&id, 1).await;
    assert!(log.contains("it is [redacted] in\n{\"password\":\"[redacted]\"}"), "{log}");
    assert!(log.contains("not understood: unknown variant `[redacted]`") && !log.contains("hunter"), "{log}");
    let question = record.question.unwrap();
    assert_eq!((&*question.text, question.default.as_deref()), ("is it [redacted]?", Some("hunter\"22")));
    runner.end().await;
}

/// X1: a process that wants more memory than it may have does not get it.
#[tokio::test(flavor = "multi_thread")]
async fn memory_has_a_limit() {
    let post = Post::new();
    let line = "head -c 300M /dev/zero | tail -c 200M | wc -c > \"$EKIDEN_RESULT\"";
    let record = post.run(post.shell(line).memory_bytes_max(64 << 20), json!(null)).await;
    assert!(post.log(&record.id, 1).await.contains("memory"), "{}", post.log(&record.id, 1).await);
    assert_ne!(record.result.as_deref(), Some(&b"209715200\n"[..]));
}

/// A pool that no other run of these tests has.
fn unique(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// What the processes of such a pool have in their environment.
fn word(name: &str) -> String {
    format!("EKIDEN_POOL={}", unique(name))
}
