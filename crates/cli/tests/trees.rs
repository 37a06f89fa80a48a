//! Kills with proof: a hundred trees of processes that do not want to die, and fifty runners that die without a word.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod commanding;
mod running;

use std::path::Path;
use std::time::Duration;

use commanding::{Post, grown, in_time, start, until};
use ekiden::core::{Outcome, TaskId};
use ekiden::{Client, Ekiden, TaskState};
use ekiden_testkit::rig::trees::{self, TREES};
use running::Running;
use rustix::process::Signal;
use serde_json::json;

/// Between TERM and KILL in these tests.
const GRACE: Duration = Duration::from_millis(300);

/// Trees at once: enough to get in each other's way, few enough for a small machine.
const AT_ONCE: usize = 5;

/// X5: a hundred trees, nested, in sessions of their own, deaf to TERM, flooding, of two hundred processes and ever growing:
/// nothing of them lives a second after the grace, nothing unburied, nothing open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_cancelled_trees_leave_nothing() {
    let mut killed = 0;
    let mut files = None;
    for (name, tree) in TREES {
        let post = Post::new();
        let name = &unique(name);
        let runner = start(post.runner(post.shell(&trees::line(tree)).grace(GRACE)).pool(name));
        for batch in 0..4 {
            let rest = 100_usize.saturating_sub(killed).min(if batch < 3 { AT_ONCE } else { 2 });
            if rest == 0 {
                break;
            }
            let ids = grow(&post.client, name, rest).await;
            cancel(&post.client, &ids, name).await;
            killed += ids.len();
        }
        assert!(runner.end().await.unsettled.is_empty());
        // What the first runner left open (the runtime's own) is there for good; a thread that ends closes what it had soon.
        let files = *files.get_or_insert_with(trees::open_files);
        let closed = trees::until(Duration::from_secs(10), || trees::open_files() <= files);
        assert!(closed.is_some(), "{name}: {} files are open, {files} were", trees::open_files());
        assert_eq!(trees::zombies(), Vec::<i32>::new(), "{name}");
    }
    assert_eq!(killed, 100);
}

/// A pool that no other run of these tests has, so that what one of them left is not taken for another's.
fn unique(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

async fn grow(client: &Client, name: &str, count: usize) -> Vec<TaskId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(client.enqueue_json("c", &json!(null)).pool(name).await.unwrap().id);
    }
    for id in &ids {
        grown(client, id).await;
    }
    ids
}

async fn cancel(client: &Client, ids: &[TaskId], name: &str) {
    let word = format!("EKIDEN_POOL={name}");
    assert!(trees::living(&word).len() > 2 * ids.len(), "{name}: the trees are there");
    for id in ids {
        client.cancel(id).await.unwrap();
    }
    let gone = tokio::task::spawn_blocking({
        let word = word.clone();
        move || trees::until(GRACE + Duration::from_secs(1), || trees::living(&word).is_empty())
    });
    let gone = gone.await.unwrap();
    assert!(gone.is_some(), "{name}: survivors {:?}", trees::living(&word));
    for id in ids {
        let record = until(client, id, |record| record.recent[0].outcome.is_some()).await;
        assert_eq!(record.recent[0].outcome, Some(Outcome::Cancelled));
    }
}

/// A server of the real binary, over memory, and a client of it.
async fn served() -> (Running, String, Client) {
    let mut server = Running::start(&["serve", "--listen", "127.0.0.1:0", "--url", "memory:"]);
    server.wait_for("stop:");
    let at = server.seen.find("http://").unwrap();
    let url = server.seen.get(at..).unwrap().split_whitespace().next().unwrap().to_owned();
    let client = Ekiden::connect(&url, None).await.unwrap().namespace("default").unwrap();
    (server, url, client)
}

fn work(url: &str, pool: &str, tree: &str, folder: &Path) -> Running {
    let line = trees::line(tree);
    let arguments = ["work", "--url", url, "--pool", pool, "--kind", "c", "--shell", "--exec", &line];
    Running::spawn(running::command(&arguments).env("TMPDIR", folder))
}

/// X5: fifty runners are killed in mid-work; a second later nothing of what they ran lives, and their folders are gone too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_killed_runners_leave_no_orphan() {
    let (server, url, client) = served().await;
    let folder = tempfile::tempdir().unwrap();
    let trees: Vec<_> = TREES.iter().cycle().take(50).enumerate().collect();
    for batch in trees.chunks(AT_ONCE) {
        let mut runners = Vec::new();
        for (number, (name, tree)) in batch {
            // The largest trees would need most of the time, and show nothing more here.
            let tree = tree.replace("190", "20");
            let pool = format!("{}-{number}", unique(name));
            let id = client.enqueue_json("c", &json!(null)).pool(&pool).await.unwrap().id;
            runners.push((work(&url, &pool, &tree, folder.path()), pool, id));
        }
        for (_, _, id) in &runners {
            grown(&client, id).await;
        }
        for (mut runner, pool, _) in runners {
            let word = format!("EKIDEN_POOL={pool}");
            assert!(trees::living(&word).len() > 2, "{pool}: the tree is there");
            runner.child.kill().unwrap();
            let gone = trees::until(Duration::from_secs(1), || trees::living(&word).is_empty());
            assert!(gone.is_some(), "{pool}: orphans {:?}", trees::living(&word));
            runner.child.wait().unwrap();
        }
    }
    let left =
        || std::fs::read_dir(folder.path()).unwrap().flatten().flat_map(|root| std::fs::read_dir(root.path()).unwrap());
    let empty = trees::until(Duration::from_secs(10), || left().count() == 0);
    assert!(empty.is_some(), "left behind: {:?}", left().collect::<Vec<_>>());
    end(server);
}

/// Q11, X5: a cancel that comes over HTTP has killed the whole tree two seconds later, though it is deaf to TERM.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_over_http_kills_within_two_seconds() {
    let (server, url, client) = served().await;
    let (_, deaf) = TREES.iter().find(|(name, _)| *name == "deaf").unwrap();
    let (pool, folder) = (unique("remote"), tempfile::tempdir().unwrap());
    let word = format!("EKIDEN_POOL={pool}");
    let runner = work(&url, &pool, deaf, folder.path());
    for _ in 0..3 {
        let id = client.enqueue_json("c", &json!(null)).pool(&pool).await.unwrap().id;
        grown(&client, &id).await;
        client.cancel(&id).await.unwrap();
        let gone = trees::until(Duration::from_secs(2), || trees::living(&word).is_empty());
        assert!(gone.is_some(), "survivors {:?}", trees::living(&word));
        let record = until(&client, &id, |record| record.recent[0].outcome.is_some()).await;
        assert_eq!(record.state, TaskState::Cancelled);
    }
    end(runner);
    end(server);
}

/// Q11, X5: the same in one process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_in_process_kills_within_two_seconds() {
    let post = Post::new();
    let (_, deaf) = TREES.iter().find(|(name, _)| *name == "deaf").unwrap();
    let pool = unique("near");
    let word = format!("EKIDEN_POOL={pool}");
    let runner = start(post.runner(post.shell(&trees::line(deaf))).pool(&pool));
    let id = post.client.enqueue_json("c", &json!(null)).pool(&pool).await.unwrap().id;
    grown(&post.client, &id).await;
    post.client.cancel(&id).await.unwrap();
    let gone = trees::until(Duration::from_secs(2), || trees::living(&word).is_empty());
    assert!(gone.is_some(), "survivors {:?}", trees::living(&word));
    in_time(runner.end()).await;
}

fn end(running: Running) {
    running::send(Signal::TERM, &running.child);
    let (status, log, _) = running.end();
    assert!(status.success(), "{log}");
}
