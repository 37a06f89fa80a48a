//! The output of commands on its way to the log: whole lines, no secrets, slow watchers, and logs that are away.

use std::sync::atomic::{AtomicUsize, Ordering};

use ekiden_core::id::{Namespace, TaskId};
use tokio::time::{Interval, interval};

use super::*;
use crate::logs::FolderLogs;
use crate::port::TaskRef;

fn output(folder: &std::path::Path, payload: &[u8]) -> (Output, FolderLogs, AttemptRef) {
    let task = TaskRef { namespace: Namespace::new("n").unwrap(), id: TaskId::new("t").unwrap() };
    let attempt = AttemptRef { task, execution_no: 1 };
    let logs = FolderLogs::at(folder);
    let redactor = Redactor::of(payload);
    (
        Output {
            logs: Some(Arc::new(logs.clone())),
            attempt: attempt.clone(),
            redactor,
            watch: None,
            stopped: CancellationToken::new(),
            refused: Box::new(|_| {}),
        },
        logs,
        attempt,
    )
}

/// X1, X6: both streams are in the log, line by line, and what the payload calls a secret is not.
#[tokio::test]
async fn lines_of_both_streams_are_written_whole_and_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let (output, logs, attempt) = output(folder.path(), br#"{"password":"hunter22"}"#);
    let (_nobody, notes) = mpsc::channel(1);
    let stdout: &[u8] = b"one\ntwo hunter22\nno end";
    let tail = output.carry(stdout, &b"bad hunter22\n\n"[..], notes, CancellationToken::new()).await;
    assert_eq!(tail, "bad [redacted]");
    let log = logs.read(attempt, 0, 1_000).await.unwrap().bytes;
    let text = String::from_utf8(log.to_vec()).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["", "bad [redacted]", "no end", "one", "two [redacted]"]);
}

/// Gives out one piece a read, each after the last one was shown.
struct Pieces {
    rest: std::collections::VecDeque<&'static [u8]>,
    pause: Interval,
}

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::ready!(self.pause.poll_tick(context));
        buffer.put_slice(self.rest.pop_front().unwrap_or_default());
        std::task::Poll::Ready(Ok(()))
    }
}

/// X6: a secret that is written in pieces, each long after the other and in the middle of a line, is masked like any other, and
/// everything around it is shown.
#[tokio::test(start_paused = true)]
async fn a_secret_that_is_written_in_pieces_is_not_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let (output, logs, attempt) = output(folder.path(), br#"{"password":"hunter22"}"#);
    let (_nobody, notes) = mpsc::channel(1);
    let pieces: [&[u8]; 5] = [b"see hun", b"ter", b"22 and hunt", b"ing hunter2", b"2"];
    let stdout = Pieces { rest: pieces.into(), pause: interval(3 * LATE) };
    output.carry(stdout, &b""[..], notes, CancellationToken::new()).await;
    let log = logs.read(attempt, 0, 1_000).await.unwrap().bytes;
    assert_eq!(String::from_utf8_lossy(&log), "see [redacted] and hunting [redacted]");
}

/// X6: secrets that are too many to look for leave a log that says so, and nothing else.
#[tokio::test]
async fn output_beside_more_secrets_than_can_be_looked_for_is_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    // Quotes, of which every form has a different number of backslashes.
    let payload = format!(r#"{{"token":"{}"}}"#, r#"\""#.repeat(120_000));
    let (output, logs, attempt) = output(folder.path(), payload.as_bytes());
    let (_nobody, notes) = mpsc::channel(1);
    let tail = output.carry(&b"out\n"[..], &b"err\n"[..], notes, CancellationToken::new()).await;
    let log = logs.read(attempt, 0, 1_000).await.unwrap().bytes;
    assert!(log.starts_with(b"[ekiden] the output is not shown"), "{}", String::from_utf8_lossy(&log));
    assert_eq!((tail.as_str(), log.iter().filter(|byte| **byte == b'\n').count()), ("", 1));
}

/// X1: what the log has by now, and the output does not know of, is no reason to lose anything.
#[tokio::test]
async fn a_log_that_is_longer_than_known_is_written_at_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let (output, logs, attempt) = output(folder.path(), b"");
    logs.append(attempt.clone(), 0, Bytes::from_static(b"before\n")).await.unwrap();
    let (_nobody, notes) = mpsc::channel(1);
    output.carry(&b"after\n"[..], &b""[..], notes, CancellationToken::new()).await;
    assert_eq!(&*logs.read(attempt, 0, 100).await.unwrap().bytes, b"before\nafter\n");
}

/// Takes what it is shown, one piece in three seconds, or nothing at all.
struct Slow {
    pace: Duration,
    seen: AtomicUsize,
}

#[async_trait]
impl Watch for Slow {
    async fn wrote(&self, _: Stream, bytes: &[u8]) {
        let _ = timeout(self.pace, std::future::pending::<()>()).await;
        self.seen.fetch_add(bytes.len(), Ordering::Relaxed);
    }

    fn exited(&self, _: super::super::Exit) {}
}

/// Carries ten pieces that are in a pipe which somebody holds open, with nothing left of the command.
async fn carry_to(slow: &Arc<Slow>, stopped: CancellationToken) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let (mut output, logs, attempt) = output(folder.path(), b"");
    output.watch = Some(slow.clone());
    output.stopped = stopped;
    let (mut held, stdout) = tokio::io::duplex(10 * READ_BYTES);
    tokio::io::AsyncWriteExt::write_all(&mut held, &vec![b'x'; 10 * READ_BYTES]).await.unwrap();
    let (_nobody, notes) = mpsc::channel(1);
    let empty = CancellationToken::new();
    empty.cancel();
    output.carry(stdout, &b""[..], notes, empty).await;
    logs.read(attempt, 0, 20 * READ_BYTES).await.unwrap().bytes.len()
}

/// X1: the last output of a command is shown to the end, however slow it is taken, also when its pipe is still held.
#[tokio::test(start_paused = true)]
async fn a_slow_watcher_gets_what_is_in_a_pipe_that_is_held() {
    let slow = Arc::new(Slow { pace: 3 * LAST_BYTES, seen: AtomicUsize::new(0) });
    let logged = carry_to(&slow, CancellationToken::new()).await;
    assert_eq!((slow.seen.load(Ordering::Relaxed), logged), (10 * READ_BYTES, 10 * READ_BYTES));
}

/// S20: a watcher that takes nothing holds up no attempt that was told to stop, and the log has everything.
#[tokio::test(start_paused = true)]
async fn a_watcher_that_takes_nothing_is_left_when_the_attempt_is_stopped() {
    let slow = Arc::new(Slow { pace: Duration::MAX, seen: AtomicUsize::new(0) });
    let stopped = CancellationToken::new();
    stopped.cancel();
    let logged = timeout(UNHEARD + 2 * LAST_BYTES, carry_to(&slow, stopped)).await.unwrap();
    assert_eq!((slow.seen.load(Ordering::Relaxed), logged), (0, 10 * READ_BYTES));
}

/// A log that is away for so many tries, of which some are carried out and lose their answer.
struct Away {
    inner: FolderLogs,
    tries: AtomicUsize,
    lost_replies: bool,
}

#[async_trait]
impl Logs for Away {
    async fn append(&self, attempt: AttemptRef, offset: u64, bytes: Bytes) -> crate::Result<u64> {
        let is_away = self.tries.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        if !is_away {
            return self.inner.append(attempt, offset, bytes).await;
        }
        if self.lost_replies {
            // Refused when it is there already, and that answer is lost too.
            let _ = self.inner.append(attempt, offset, bytes).await;
            return Err(ReasonCode::ServerFault.into());
        }
        Err(ReasonCode::ServerUnreachable.into())
    }

    async fn read(&self, attempt: AttemptRef, offset: u64, limit: usize) -> crate::Result<crate::logs::LogPart> {
        self.inner.read(attempt, offset, limit).await
    }

    async fn remove(&self, task: TaskRef) -> crate::Result<()> {
        self.inner.remove(task).await
    }

    async fn tasks(&self, after: Option<TaskRef>, limit: usize) -> crate::Result<Vec<TaskRef>> {
        self.inner.tasks(after, limit).await
    }
}

/// X1: a log that is away when a command ends gets its last output when it is back, once, and nothing of it is missing.
#[tokio::test(start_paused = true)]
async fn the_last_output_waits_for_its_log() {
    for lost_replies in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (mut output, logs, attempt) = output(folder.path(), b"");
        output.logs = Some(Arc::new(Away { inner: logs.clone(), tries: AtomicUsize::new(20), lost_replies }));
        let (_nobody, notes) = mpsc::channel(1);
        let pieces: [&[u8]; 4] = [b"one\n", b"two\n", b"three\n", b"four\n"];
        let stdout = Pieces { rest: pieces.into(), pause: interval(3 * LATE) };
        output.carry(stdout, &b""[..], notes, CancellationToken::new()).await;
        let log = logs.read(attempt, 0, 1_000).await.unwrap().bytes;
        assert_eq!(String::from_utf8_lossy(&log), "one\ntwo\nthree\nfour\n", "{lost_replies}");
    }
}

/// S20, X1: an attempt that was told to stop does not wait for a log that is away.
#[tokio::test(start_paused = true)]
async fn the_last_output_of_a_stopped_attempt_waits_for_seconds_only() {
    let folder = tempfile::tempdir().unwrap();
    let (mut output, logs, _) = output(folder.path(), b"");
    output.logs = Some(Arc::new(Away { inner: logs, tries: AtomicUsize::new(usize::MAX), lost_replies: false }));
    output.stopped.cancel();
    let (_nobody, notes) = mpsc::channel(1);
    let carried = output.carry(&b"out\n"[..], &b""[..], notes, CancellationToken::new());
    timeout(2 * LAST_BATCH, carried).await.unwrap();
}
