//! Streams of events, read line by line. Reconnecting is up to whoever reads.

use ekiden_core::reason::ReasonCode;
use ekiden_store::Happened;
use reqwest::Response;

use super::line::SILENCE_MAX;
use crate::error::{Error, Result};

/// 1 MiB: far beyond the largest event, so whoever sends more is no server of ours.
const EVENT_BYTES_MAX: usize = 1024 * 1024;

/// An event of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) data: String,
}

/// A stream that is open.
pub(super) struct Stream {
    response: Response,
    lines: Lines,
}

impl Stream {
    pub(super) fn new(response: Response) -> Self {
        Self { response, lines: Lines::default() }
    }

    /// The next event; `None` when the server has ended the stream.
    pub(super) async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.lines.event() {
                return Ok(Some(event));
            }
            let silent = || Error::told(ReasonCode::ReplyLost.into(), Happened::NotApplied, true);
            let chunk = tokio::time::timeout(SILENCE_MAX, self.response.chunk()).await.map_err(|_| silent())?;
            match chunk {
                Ok(Some(bytes)) if self.lines.rest.len() + bytes.len() <= EVENT_BYTES_MAX => self.lines.add(&bytes),
                Ok(None) => return Ok(None),
                Ok(Some(_)) | Err(_) => return Err(silent()),
            }
        }
    }
}

/// Bytes as they come, cut into events.
#[derive(Default)]
struct Lines {
    rest: Vec<u8>,
    /// How much of `rest` has been looked at for the end of a line.
    read: usize,
    event: Event,
}

impl Lines {
    fn add(&mut self, bytes: &[u8]) {
        self.rest.drain(..self.read);
        self.read = 0;
        self.rest.extend_from_slice(bytes);
    }

    fn event(&mut self) -> Option<Event> {
        loop {
            let unread = self.rest.get(self.read..)?;
            let end = unread.iter().position(|byte| *byte == b'\n')?;
            let line = String::from_utf8_lossy(unread.get(..end)?).trim_end_matches('\r').to_owned();
            self.read += end + 1;
            if line.is_empty() {
                let event = std::mem::take(&mut self.event);
                // An id alone says where a stream begins.
                if event != Event::default() {
                    return Some(event);
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => value.clone_into(&mut self.event.name),
                "data" if self.event.data.is_empty() => value.clone_into(&mut self.event.data),
                "data" => {
                    self.event.data.push('\n');
                    self.event.data.push_str(value);
                }
                "id" => self.event.id = Some(value.to_owned()),
                // A comment, or something newer than this.
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_however_the_bytes_come() {
        let text = ": hello\nid: i-0\n\n: sign\n\nid: i-1\nevent: change\ndata: {\"a\":\ndata: 1}\n\nevent:stop\r\ndata:\r\n\r\nevent: half";
        for size in 1..text.len() {
            let mut lines = Lines::default();
            let mut events = Vec::new();
            for part in text.as_bytes().chunks(size) {
                lines.add(part);
                while let Some(event) = lines.event() {
                    events.push(event);
                }
            }
            let begin = Event { id: Some("i-0".to_owned()), ..Event::default() };
            let change =
                Event { id: Some("i-1".to_owned()), name: "change".to_owned(), data: "{\"a\":\n1}".to_owned() };
            let stop = Event { id: None, name: "stop".to_owned(), data: String::new() };
            assert_eq!(events, [begin, change, stop], "in parts of {size}");
        }
    }
}
