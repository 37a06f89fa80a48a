//! What a command says while it runs: lines of JSON through the pipe `$EKIDEN_EVENTS`. Nothing that it says there can do harm:
//! lines have a maximum, and what is not understood is noted in the log.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::{ioctl_fionread, read};
use serde::Deserialize;
use tokio::net::unix::pipe::Receiver;

/// 128 KiB a line: a result in words, with room to spare.
const LINE_BYTES_MAX: usize = 128 * 1024;

/// 64 KiB a read: as much as a pipe holds.
const READ_BYTES: usize = 64 * 1024;

/// Something that a command said.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Event {
    /// How far it is.
    Progress {
        done: u64,
        #[serde(default)]
        total: Option<u64>,
        #[serde(default)]
        note: Option<Arc<str>>,
    },
    /// That it lives.
    Heartbeat,
    /// What it needs to know; counts if it then ends with the exit code for that.
    Question {
        text: Arc<str>,
        #[serde(default)]
        choices: Vec<Arc<str>>,
        /// How long to wait for the answer.
        #[serde(default)]
        deadline_ms: Option<u64>,
        /// The answer that counts when nobody answers in time.
        #[serde(default)]
        default: Option<Arc<str>>,
    },
    /// What came of it; a result in the file goes before it.
    Result { value: serde_json::Value },
}

/// A line as it was understood.
#[derive(Debug, PartialEq)]
pub(super) enum Said {
    Event(Event),
    /// A line that makes no sense, and why.
    Nonsense(String),
}

/// The reading end.
pub(super) struct Events {
    pipe: Receiver,
    lines: Lines,
    buffer: Vec<u8>,
}

/// Bytes on their way to become lines.
#[derive(Default)]
struct Lines {
    rest: Vec<u8>,
    /// Whether the beginning of this line was too long and is gone.
    skips: bool,
    said: VecDeque<Said>,
}

impl Events {
    /// Reads from a pipe that does not block. It is open for writing too, so that it does not end when a writer goes.
    pub(super) fn of(pipe: OwnedFd) -> io::Result<Self> {
        let pipe = Receiver::from_owned_fd_unchecked(pipe)?;
        Ok(Self { pipe, lines: Lines::default(), buffer: vec![0; READ_BYTES] })
    }

    /// The next thing that was said. May be dropped and asked again.
    pub(super) async fn next(&mut self) -> Said {
        loop {
            if let Some(said) = self.lines.said.pop_front() {
                return said;
            }
            // A writer that never pauses and never ends a line must not keep the thread from everything else.
            tokio::task::consume_budget().await;
            if self.pipe.readable().await.is_err() {
                // A pipe that fails says nothing more.
                return std::future::pending().await;
            }
            let read = self.pipe.try_read(&mut self.buffer).unwrap_or(0);
            self.lines.add(self.buffer.get(..read).unwrap_or_default());
        }
    }

    /// What was said by now. Only what the pipe holds at this moment is read: other commands of the user may write to it for
    /// ever.
    pub(super) fn rest(&mut self) -> VecDeque<Said> {
        let held = ioctl_fionread(&self.pipe).unwrap_or(0);
        let mut left = usize::try_from(held).unwrap_or(0);
        while left > 0 {
            let bytes_max = left.min(READ_BYTES);
            let read = self.buffer.get_mut(..bytes_max).map_or(0, |buffer| read(&self.pipe, buffer).unwrap_or(0));
            if read == 0 {
                break;
            }
            left -= read;
            self.lines.add(self.buffer.get(..read).unwrap_or_default());
        }
        std::mem::take(&mut self.lines.said)
    }
}

impl Lines {
    fn add(&mut self, bytes: &[u8]) {
        let mut parts = bytes.split(|byte| *byte == b'\n');
        let Some(first) = parts.next() else { return };
        self.extend(first);
        for part in parts {
            self.end();
            self.extend(part);
        }
    }

    fn extend(&mut self, part: &[u8]) {
        if self.rest.len() + part.len() > LINE_BYTES_MAX {
            self.rest.clear();
            self.skips = true;
        }
        if !self.skips {
            self.rest.extend_from_slice(part);
        }
    }

    fn end(&mut self) {
        let line = std::mem::take(&mut self.rest);
        if std::mem::take(&mut self.skips) {
            self.said.push_back(Said::Nonsense(format!("longer than {LINE_BYTES_MAX} bytes")));
        } else if !line.trim_ascii().is_empty() {
            self.said.push_back(match serde_json::from_slice(&line) {
                Ok(event) => Said::Event(event),
                Err(why) => Said::Nonsense(why.to_string()),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, openat};

    use super::*;

    const HEARTBEAT: &[u8] = b"{\"type\":\"heartbeat\"}\n";

    fn said(pieces: &[&[u8]]) -> Vec<Said> {
        let mut lines = Lines::default();
        pieces.iter().for_each(|piece| lines.add(piece));
        lines.said.into()
    }

    /// X3: another command of the user may write to the pipe for ever. What it held at the end is heard, and nothing waits for
    /// more.
    #[tokio::test]
    async fn a_pipe_that_is_written_to_for_ever_has_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let how = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut events = Events::of(openat(CWD, &path, how, Mode::empty()).unwrap()).unwrap();
        let mut writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        writer.write_all(HEARTBEAT).unwrap();
        assert_eq!(events.rest(), [Said::Event(Event::Heartbeat)]);
        let over = Arc::new(AtomicBool::new(false));
        let lines = HEARTBEAT.repeat(150);
        let writers: Vec<_> = (0..4)
            .map(|_| {
                let (mut writer, over, lines) = (writer.try_clone().unwrap(), over.clone(), lines.clone());
                std::thread::spawn(move || while !over.load(Ordering::Relaxed) && writer.write_all(&lines).is_ok() {})
            })
            .collect();
        for _ in 0..20 {
            let said = events.rest().len();
            assert!(said <= READ_BYTES / HEARTBEAT.len() + 1, "{said} heartbeats are more than a pipe holds");
        }
        over.store(true, Ordering::Relaxed);
        // A writer that waits for room goes on when the reading end is gone.
        drop(events);
        for writer in writers {
            writer.join().unwrap();
        }
    }

    /// X3: lines come in any pieces; garbage and endless lines harm nobody.
    #[test]
    fn lines_are_understood_in_any_pieces_and_garbage_is_told() {
        let whole = b"{\"type\":\"heartbeat\"}\n\nnonsense\n{\"type\":\"progress\",\"done\":3,\"total\":10}\n{\"type\":\"x\"}\n";
        let expected = said(&[whole]);
        assert_eq!(expected.len(), 4, "{expected:?}");
        assert_eq!(expected[0], Said::Event(Event::Heartbeat));
        assert_eq!(expected[2], Said::Event(Event::Progress { done: 3, total: Some(10), note: None }));
        assert!(matches!((&expected[1], &expected[3]), (Said::Nonsense(_), Said::Nonsense(_))));
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(said(&bytes), expected);
        let endless = vec![b'x'; 3 * LINE_BYTES_MAX];
        let found = said(&[&endless, &endless, b"\n{\"type\":\"heartbeat\"}\n"]);
        assert!(matches!(found.as_slice(), [Said::Nonsense(_), Said::Event(Event::Heartbeat)]), "{}", found.len());
    }
}
