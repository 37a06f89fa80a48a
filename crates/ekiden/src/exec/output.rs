//! What a command writes, on its way to the attempt's log: in order of arrival, in batches, without the secrets of its payload.
//!
//! While a batch is being written nothing more is read, so a command that writes faster than its log takes waits for it, and
//! memory stays flat. A batch that cannot be written now is tried again, and the last one waits for its log as the settlement
//! behind it does. A full batch makes room after one try: what the log missed is counted, and noted in it when it can be written
//! again. A watcher that takes nothing more is waited for until the attempt is told to stop, and a second longer.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Buf as _, Bytes, BytesMut};
use ekiden_core::reason::{Category, ReasonCode};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::redact::{RedactedStream, Redactor};
use crate::error::Error;
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

/// The wait before a batch is tried again; it doubles up to [`AGAIN_MAX`].
const AGAIN: Duration = Duration::from_millis(200);

/// Five seconds: a log is written soon after its server is back.
const AGAIN_MAX: Duration = Duration::from_secs(5);

/// Five seconds for the last batch after the attempt was told to stop.
const LAST_BATCH: Duration = Duration::from_secs(5);

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
    /// Learns of refusals that say that the attempt has no lease.
    pub(super) refused: Box<dyn Fn(&Error) + Send + Sync>,
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
    /// How long the next batch that fails waits.
    again: Duration,
    /// How much of the batch may be in the log already: the answer to a try got lost.
    unsure: usize,
    /// Bytes that could not be written.
    lost: u64,
    /// How many of them the batch begins with a note about, and how long that is.
    noted: (u64, usize),
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
        pen.write_last().await;
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
            again: AGAIN,
            unsure: 0,
            lost: 0,
            noted: (0, 0),
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

    /// Writes the batch. One that cannot be written now is kept for another try.
    async fn write(&mut self) {
        self.due = None;
        let Some(logs) = self.output.logs.clone() else { return };
        if self.batch.is_empty() {
            return;
        }
        self.note_lost();
        let mut bytes = Bytes::from(std::mem::take(&mut self.batch));
        // A second try if the log is longer than was known here.
        for _ in 0..2 {
            let error = match logs.append(self.output.attempt.clone(), self.offset, bytes.clone()).await {
                Ok(end) => return self.written_to(end),
                Err(error) => error,
            };
            let end = error.refusal().context.get("end").and_then(|end| end.parse::<u64>().ok());
            match (error.code(), end) {
                (ReasonCode::LogOffsetWrong, Some(end)) => {
                    // The answer to an earlier try got lost: that much is there.
                    let ahead = usize::try_from(end.saturating_sub(self.offset)).unwrap_or(usize::MAX);
                    let is_there = ahead == bytes.len() || ahead <= self.unsure;
                    bytes.advance(if is_there { ahead.min(bytes.len()) } else { 0 });
                    (self.offset, self.unsure) = (end, 0);
                    if bytes.is_empty() {
                        return self.written_to(end);
                    }
                }
                (ReasonCode::LeaseLost | ReasonCode::TaskNotFound | ReasonCode::TaskNotRunning, _) => {
                    // The attempt is another's now, or nobody's: nobody takes its output any more.
                    (self.output.refused)(&error);
                    self.output.logs = None;
                    return;
                }
                _ => return self.not_written(bytes, &error),
            }
        }
        self.lose(bytes.len());
    }

    /// Begins the batch with a note about what is missing before it.
    fn note_lost(&mut self) {
        if self.lost > 0 {
            let note = format!("[ekiden] {} bytes of output are missing here: they could not be written\n", self.lost);
            self.noted = (std::mem::take(&mut self.lost), note.len());
            self.batch.splice(..0, note.into_bytes());
        }
    }

    fn written_to(&mut self, end: u64) {
        (self.offset, self.unsure, self.noted, self.again) = (end, 0, (0, 0), AGAIN);
    }

    /// Keeps a batch that may be taken later. A full one has to make room.
    fn not_written(&mut self, bytes: Bytes, error: &Error) {
        let task_id = self.output.attempt.task.id.as_str();
        let may_pass = error.is_retryable()
            || error.is_unknown()
            || matches!(error.code().category(), Category::Access | Category::Server);
        if !may_pass || bytes.len() >= BATCH_BYTES {
            tracing::warn!(task_id, %error, "cannot write the output of a command");
            return self.lose(bytes.len());
        }
        tracing::warn!(task_id, %error, "cannot write the output of a command, trying again");
        if error.is_unknown() {
            self.unsure = bytes.len();
        }
        self.batch = bytes.into();
        self.due = Some(Box::pin(sleep(self.again)));
        self.again = AGAIN_MAX.min(self.again * 2);
    }

    fn lose(&mut self, length: usize) {
        let (noted, note_length) = std::mem::take(&mut self.noted);
        self.lost += noted + length.saturating_sub(note_length) as u64;
        self.unsure = 0;
    }

    /// Writes the last batch, however long its log is away: what comes after it is written to the same server. An attempt that was
    /// told to stop waits no longer than a few seconds.
    async fn write_last(&mut self) {
        let stopped = self.output.stopped.clone();
        let task_id = self.output.attempt.task.id.clone();
        let writes = async {
            loop {
                self.write().await;
                // Only a batch that was kept has a next try.
                let Some(again) = self.due.take() else { return };
                again.await;
            }
        };
        tokio::select! {
            () = writes => {}
            () = async { stopped.cancelled().await; sleep(LAST_BATCH).await } => {
                tracing::warn!(task_id = task_id.as_str(), "the last output of a command is missing in its log");
            }
        }
    }

    fn last_line(&self) -> String {
        let text = String::from_utf8_lossy(&self.tail);
        let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        line.get(..line.floor_char_boundary(TAIL_BYTES)).unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
mod tests;
