//! A log of a million lines: followed while it grows, paged from its middle, and its tail, in flat memory.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod commanding;
mod running;

use commanding::in_time;
use ekiden::exec::CommandHandler;
use ekiden::{AttemptRef, Ekiden, HttpLogs, Logs as _, Runner};
use running::Running;
use rustix::process::Signal;
use serde_json::json;
use std::sync::Arc;

const LINES: usize = 1_000_000;

/// `line 000000000007 of a million, …`: every line is as long as every other, so that offsets are easy to know.
const LINE: &str = "line %012.f of a million, which say so again and again";

fn line(number: usize) -> String {
    format!("line {number:012} of a million, which say so again and again\n")
}

/// Reads a page from the middle and the last whole line, of a log of which so much was followed.
async fn look_inside(logs: &HttpLogs, attempt: &AttemptRef, followed: usize) {
    let length = line(1).len();
    let middle = LINES / 2;
    let part = logs.read(attempt.clone(), (middle * length) as u64, 3 * length).await.unwrap();
    let expected = [line(middle + 1), line(middle + 2), line(middle + 3)].concat();
    assert_eq!(String::from_utf8_lossy(&part.bytes), expected);
    let last = usize::try_from(part.end).unwrap() / length;
    assert!(last * length + length > followed, "the end is not behind what was followed");
    let tail = logs.read(attempt.clone(), ((last - 1) * length) as u64, length).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&tail.bytes), line(last));
}

/// The most memory that a process has had, in KiB.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").trim().parse().unwrap()
}

/// X1: sixty megabytes go from a command through a runner and a server to a reader, and nobody's memory grows with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_lines_are_followed_paged_and_tailed_in_flat_memory() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("local:{}", folder.path().join("data").display());
    let mut server = Running::start(&["serve", "--listen", "127.0.0.1:0", "--url", &url]);
    server.wait_for("stop:");
    let at = server.seen.find("http://").unwrap();
    let url = server.seen.get(at..).unwrap().split_whitespace().next().unwrap().to_owned();
    let client = Ekiden::connect(&url, None).await.unwrap().namespace("default").unwrap();
    let logs = HttpLogs::connect(&url, None).unwrap();
    let handler = CommandHandler::new("c", ["seq", "-f", LINE, "1", &LINES.to_string()], commanding::supervisor());
    let handler = handler.logs(Arc::new(logs.clone())).folders(folder.path().join("attempts"));
    let (before, own) = (peak(server.child.id()), peak(std::process::id()));

    let id = client.enqueue_json("c", &json!(null)).await.unwrap().id;
    let runner = commanding::start(Runner::builder(&client).task_handler(handler));
    let attempt = AttemptRef { task: client.task(&id), execution_no: 1 };
    let length = line(1).len();
    let followed = in_time(async {
        commanding::until(&client, &id, |record| record.execution_no == 1).await;
        let mut stream = logs.follow(&attempt, 0).await.unwrap();
        let (mut bytes, mut lines, mut looked) = (0, 0, false);
        while let Some(piece) = stream.next().await.unwrap() {
            bytes += piece.len();
            lines += piece.iter().filter(|byte| **byte == b'\n').count();
            if !looked && bytes > (LINES / 2 + 3) * length {
                look_inside(&logs, &attempt, bytes).await;
                looked = true;
            }
        }
        (bytes, lines)
    })
    .await;
    assert_eq!(followed, (LINES * length, LINES), "all of it, to the end of the attempt");

    look_inside(&logs, &attempt, LINES * length).await;
    let shown = running::ekiden(&["task", "logs", id.as_str(), "--tail", "2", "--url", &url]);
    assert_eq!(running::text(&shown.stdout), [line(LINES - 1), line(LINES)].concat(), "the same for people");

    // A log of 60 MB: 24 MiB is what a few pieces on their way need, with room to spare.
    let grown = |pid, before| peak(pid).saturating_sub(before);
    let (server_kib, own_kib) = (grown(server.child.id(), before), grown(std::process::id(), own));
    assert!(server_kib < 24 * 1024 && own_kib < 24 * 1024, "server {server_kib} KiB, runner and reader {own_kib} KiB");
    runner.end().await;
    running::send(Signal::TERM, &server.child);
    assert!(server.end().0.success());
}
