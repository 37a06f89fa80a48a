//! What a command writes, on its way to the attempt's log: in order of arrival, in batches, without the secrets of its payload.
//!
//! While a batch is being written nothing more is read, so a command that writes faster than its log takes waits for it, and
//! memory stays flat. A log that cannot be written holds nobody up for ever: what it missed is counted, and noted in it when it
//! can be written again. A watcher that takes nothing more is waited for until the attempt is told to stop, and a second longer.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use ekiden_core::reason::ReasonCode;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::redact::{RedactedStream, Redactor};
use crate::logs::{AttemptRef, Logs};

/// 64 KiB: as much as a pipe holds, and as long as a line may become before it is cut.
const READ_BYTES: usize = 64 * 1024;

/// 256 KiB a batch: few writes for a flood.
const BATCH_BYTES: usize = 256 * 1024;

/// A fifth of a second: how late a reader sees what was written.
const LATE: Duration = Duration::from_millis(200);

/// One second after the tree is empty: whoever still holds the pipe then was never a part of it.
const LAST_BYTES: Duration = Duration::from_secs(1);

/// 1 MiB: the largest pipe that a command can make by itself. So much is still read of each pipe when its time is over.
const PIPE_BYTES: usize = 1024 * 1024;

/// 20 ms for a read of a pipe that may be empty.
const GLANCE: Duration = Duration::from_millis(20);

/// One second for a watcher to take what it is shown after the attempt was told to stop.
const UNHEARD: Duration = Duration::from_secs(1);

/// 400 bytes of the last line of stderr go into the error of a failed attempt.
const TAIL_BYTES: usize = 400;

/// Which of a command's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Its stdout.
    Stdout,
    /// Its stderr.
    Stderr,
}

/// Somebody who watches commands from inside the runner's process.
#[async_trait]
pub trait Watch: Send + Sync + 'static {
    /// A command wrote something. The command waits as long as this does, so this must not block its thread; it is dropped, and
    /// not called again for the attempt, when it still waits one second after the attempt was told to stop.
    async fn wrote(&self, stream: Stream, bytes: &[u8]);

    /// A command ended.
    fn exited(&self, exit: super::Exit);
}

/// The output of one attempt.
pub(super) struct Output {
    pub(super) logs: Option<Arc<dyn Logs>>,
    pub(super) attempt: AttemptRef,
    pub(super) redactor: Redactor,
    pub(super) watch: Option<Arc<dyn Watch>>,
    /// Cancelled when the attempt is told to stop.
    pub(super) stopped: CancellationToken,
}

/// One stream and the line that it is in the middle of.
struct Source<R> {
    reader: R,
    stream: Stream,
    buffer: BytesMut,
    is_open: bool,
}

impl<R: AsyncRead + Unpin> Source<R> {
    fn new(reader: R, stream: Stream) -> Self {
        Self { reader, stream, buffer: BytesMut::new(), is_open: true }
    }

    /// May be dropped and asked again.
    async fn read(&mut self) {
        self.buffer.reserve(READ_BYTES);
        self.is_open = self.reader.read_buf(&mut self.buffer).await.is_ok_and(|read| read > 0);
    }

    /// The whole lines that are there. What has no end yet waits, unless it is long or the stream has ended.
    fn lines(&mut self) -> BytesMut {
        let end = match self.buffer.iter().rposition(|byte| *byte == b'\n') {
            _ if !self.is_open => self.buffer.len(),
            Some(at) => at + 1,
            None if self.buffer.len() >= READ_BYTES => self.buffer.len(),
            None => 0,
        };
        self.buffer.split_to(end)
    }

    fn rest(&mut self) -> BytesMut {
        self.buffer.split()
    }
}

/// What is to be written next, and where.
struct Pen {
    output: Output,
    stdout: RedactedStream,
    stderr: RedactedStream,
    offset: u64,
    batch: Vec<u8>,
    /// Running while there is something to write.
    due: Option<Pin<Box<Sleep>>>,
    /// Bytes that could not be written.
    lost: u64,
    /// The stream that was written to the log last, if it is in the middle of a line.
    midline: Option<Stream>,
    /// The last line of stderr.
    tail: Vec<u8>,
    /// Ends when a watcher is not waited for any more.
    patience: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Output {
    /// Reads both streams to their end and writes them down. Returns the last line of stderr.
    pub(super) async fn carry(
        self,
        stdout: impl AsyncRead + Unpin,
        stderr: impl AsyncRead + Unpin,
        mut notes: mpsc::Receiver<String>,
        empty: CancellationToken,
    ) -> String {
        let (mut out, mut err) = (Source::new(stdout, Stream::Stdout), Source::new(stderr, Stream::Stderr));
        let mut pen = Pen::new(self);
        let over = async {
            empty.cancelled().await;
            sleep(LAST_BYTES).await;
        };
        tokio::pin!(over);
        while out.is_open || err.is_open {
            tokio::select! {
                () = out.read(), if out.is_open => {}
                () = err.read(), if err.is_open => {}
                Some(note) = notes.recv() => pen.note(&note),
                () = pen.due() => {
                    // What has waited long enough for the end of its line is shown without it.
                    pen.take(&out.rest(), out.stream).await;
                    pen.take(&err.rest(), err.stream).await;
                    pen.write().await;
                }
                () = &mut over => break,
            }
            pen.take(&out.lines(), out.stream).await;
            pen.take(&err.lines(), err.stream).await;
            if pen.batch.len() >= BATCH_BYTES {
                pen.write().await;
            } else if pen.due.is_none() && !(pen.batch.is_empty() && out.buffer.is_empty() && err.buffer.is_empty()) {
                pen.due = Some(Box::pin(sleep(LATE)));
            }
        }
        pen.take_last(&mut out).await;
        pen.take_last(&mut err).await;
        while let Ok(note) = notes.try_recv() {
            pen.note(&note);
        }
        pen.write().await;
        pen.last_line()
    }
}

impl Pen {
    fn new(output: Output) -> Self {
        let stream = || RedactedStream::new(output.redactor.clone());
        let stopped = output.stopped.clone();
        let patience = Box::pin(async move {
            stopped.cancelled().await;
            sleep(UNHEARD).await;
        });
        let mut pen = Self {
            stdout: stream(),
            stderr: stream(),
            output,
            offset: 0,
            batch: Vec::new(),
            due: None,
            lost: 0,
            midline: None,
            tail: Vec::new(),
            patience,
        };
        if pen.output.redactor.hides_everything() {
            pen.note("the output is not shown: the payload has more secrets than can be looked for in it");
        }
        pen
    }

    async fn due(&mut self) {
        match &mut self.due {
            Some(due) => due.await,
            None => std::future::pending().await,
        }
    }

    fn redacted(&mut self, stream: Stream) -> &mut RedactedStream {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    async fn take(&mut self, bytes: &[u8], stream: Stream) {
        if !bytes.is_empty() {
            let clean = self.redacted(stream).push(bytes);
            self.show(&clean, stream).await;
        }
    }

    /// Takes what is in a pipe at this moment, also if somebody still holds it, and shows what was held back of it.
    async fn take_last<R: AsyncRead + Unpin>(&mut self, source: &mut Source<R>) {
        let mut left = PIPE_BYTES;
        while source.is_open && left > 0 {
            let before = source.buffer.len();
            if timeout(GLANCE, source.read()).await.is_err() {
                break;
            }
            left = left.saturating_sub(source.buffer.len() - before);
            self.take(&source.lines(), source.stream).await;
            if self.batch.len() >= BATCH_BYTES {
                self.write().await;
            }
        }
        self.take(&source.rest(), source.stream).await;
        let held_back = self.redacted(source.stream).end();
        self.show(&held_back, source.stream).await;
    }

    async fn show(&mut self, clean: &[u8], stream: Stream) {
        if clean.is_empty() {
            return;
        }
        if let Some(watch) = self.output.watch.clone() {
            tokio::select! {
                () = watch.wrote(stream, clean) => {}
                () = &mut self.patience => self.output.watch = None,
            }
        }
        if stream == Stream::Stderr {
            self.tail.extend_from_slice(clean);
            let too_much = self.tail.len().saturating_sub(4 * TAIL_BYTES);
            self.tail.drain(..too_much);
        }
        if self.output.logs.is_some() {
            // Half a line of one stream and a line of the other are not one line.
            if self.midline.is_some_and(|other| other != stream) {
                self.batch.push(b'\n');
            }
            self.midline = (!clean.ends_with(b"\n")).then_some(stream);
            self.batch.extend_from_slice(clean);
        }
    }

    fn note(&mut self, note: &str) {
        if self.output.logs.is_some() {
            if self.midline.take().is_some() {
                self.batch.push(b'\n');
            }
            self.batch.extend_from_slice(format!("[ekiden] {note}\n").as_bytes());
        }
    }

    async fn write(&mut self) {
        self.due = None;
        let Some(logs) = self.output.logs.clone() else { return };
        if self.batch.is_empty() {
            return;
        }
        let mut batch = std::mem::take(&mut self.batch);
        let length = batch.len() as u64;
        if self.lost > 0 {
            let note = format!("[ekiden] {} bytes of output are missing here: they could not be written\n", self.lost);
            batch.splice(..0, note.into_bytes());
        }
        let bytes = Bytes::from(batch);
        // A second try if the log is longer than was known here.
        for _ in 0..2 {
            let error = match logs.append(self.output.attempt.clone(), self.offset, bytes.clone()).await {
                Ok(end) => {
                    (self.offset, self.lost) = (end, 0);
                    return;
                }
                Err(error) => error,
            };
            let end = error.refusal().context.get("end").and_then(|end| end.to_string().parse::<u64>().ok());
            match (error.code(), end) {
                // The answer to the first try got lost.
                (ReasonCode::LogOffsetWrong, Some(end)) if end == self.offset + bytes.len() as u64 => {
                    (self.offset, self.lost) = (end, 0);
                    return;
                }
                (ReasonCode::LogOffsetWrong, Some(end)) => self.offset = end,
                (ReasonCode::LeaseLost | ReasonCode::TaskNotFound | ReasonCode::TaskNotRunning, _) => {
                    // The attempt is another's now, or nobody's: nobody takes its output any more.
                    self.output.logs = None;
                    return;
                }
                _ => {
                    let task_id = self.output.attempt.task.id.as_str();
                    tracing::warn!(task_id, %error, "cannot write the output of a command");
                    break;
                }
            }
        }
        self.lost += length;
    }

    fn last_line(&self) -> String {
        let text = String::from_utf8_lossy(&self.tail);
        let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        line.get(..line.floor_char_boundary(TAIL_BYTES)).unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
mod tests {
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
}
