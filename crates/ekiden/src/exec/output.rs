//! What a command writes, on its way to the attempt's log: in order of arrival, in batches, without the secrets of its payload.
//!
//! While a batch is being written nothing more is read, so a command that writes faster than its log takes waits for it, and
//! memory stays flat. A log that cannot be written holds nobody up for ever: what it missed is counted, and noted in it when it
//! can be written again.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ekiden_core::reason::ReasonCode;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep};
use tokio_util::sync::CancellationToken;

use super::redact::Redactor;
use crate::logs::{AttemptRef, Logs};

/// 64 KiB: as much as a pipe holds, and as long as a line may become before it is cut.
const READ_BYTES: usize = 64 * 1024;

/// 256 KiB a batch: few writes for a flood.
const BATCH_BYTES: usize = 256 * 1024;

/// A fifth of a second: how late a reader sees what was written.
const LATE: Duration = Duration::from_millis(200);

/// One second after the tree is empty: whoever still holds the pipe then was never a part of it.
const LAST_BYTES: Duration = Duration::from_secs(1);

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
pub trait Watch: Send + Sync + 'static {
    /// A command wrote something. Must not wait.
    fn wrote(&self, stream: Stream, bytes: &[u8]);

    /// A command ended.
    fn exited(&self, exit: super::Exit);
}

/// The output of one attempt.
pub(super) struct Output {
    pub(super) logs: Option<Arc<dyn Logs>>,
    pub(super) attempt: AttemptRef,
    pub(super) redactor: Arc<Redactor>,
    pub(super) watch: Option<Arc<dyn Watch>>,
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
        let mut pen =
            Pen { output: self, offset: 0, batch: Vec::new(), due: None, lost: 0, midline: None, tail: Vec::new() };
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
                    pen.take(&out.rest(), out.stream);
                    pen.take(&err.rest(), err.stream);
                    pen.write().await;
                }
                () = &mut over => break,
            }
            pen.take(&out.lines(), out.stream);
            pen.take(&err.lines(), err.stream);
            if pen.batch.len() >= BATCH_BYTES {
                pen.write().await;
            } else if pen.due.is_none() && !(pen.batch.is_empty() && out.buffer.is_empty() && err.buffer.is_empty()) {
                pen.due = Some(Box::pin(sleep(LATE)));
            }
        }
        pen.take(&out.rest(), out.stream);
        pen.take(&err.rest(), err.stream);
        while let Ok(note) = notes.try_recv() {
            pen.note(&note);
        }
        pen.write().await;
        pen.last_line()
    }
}

impl Pen {
    async fn due(&mut self) {
        match &mut self.due {
            Some(due) => due.await,
            None => std::future::pending().await,
        }
    }

    fn take(&mut self, bytes: &[u8], stream: Stream) {
        if bytes.is_empty() {
            return;
        }
        let clean = self.output.redactor.clean(bytes);
        if let Some(watch) = &self.output.watch {
            watch.wrote(stream, &clean);
        }
        if stream == Stream::Stderr {
            self.tail.extend_from_slice(&clean);
            let too_much = self.tail.len().saturating_sub(4 * TAIL_BYTES);
            self.tail.drain(..too_much);
        }
        if self.output.logs.is_some() {
            // Half a line of one stream and a line of the other are not one line.
            if self.midline.is_some_and(|other| other != stream) {
                self.batch.push(b'\n');
            }
            self.midline = (!clean.ends_with(b"\n")).then_some(stream);
            self.batch.extend_from_slice(&clean);
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
    use ekiden_core::id::{Namespace, TaskId};

    use super::*;
    use crate::logs::FolderLogs;
    use crate::port::TaskRef;

    fn output(folder: &std::path::Path, payload: &[u8]) -> (Output, FolderLogs, AttemptRef) {
        let task = TaskRef { namespace: Namespace::new("n").unwrap(), id: TaskId::new("t").unwrap() };
        let attempt = AttemptRef { task, execution_no: 1 };
        let logs = FolderLogs::at(folder);
        let redactor = Arc::new(Redactor::of(payload));
        (Output { logs: Some(Arc::new(logs.clone())), attempt: attempt.clone(), redactor, watch: None }, logs, attempt)
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
}
