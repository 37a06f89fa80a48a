//! The logs of attempts behind a server: the same port as a folder's, spoken over HTTP.

use async_trait::async_trait;
use bytes::Bytes;
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_store::Happened;
use ekiden_wire as wire;
use reqwest::Response;
use reqwest::header::{HeaderMap, HeaderName};

use super::line::Line;
use super::path::{self, Path};
use crate::error::{Error, Result};
use crate::logs::{AttemptRef, LogPart, Logs};
use crate::port::TaskRef;

const START: HeaderName = HeaderName::from_static("ekiden-log-start");
const END: HeaderName = HeaderName::from_static("ekiden-log-end");

/// Logs behind a server. Only who holds an attempt may write to its log, by the attempt's number as its token.
#[derive(Clone)]
pub struct HttpLogs {
    line: Line,
}

impl HttpLogs {
    /// The logs of the server at this address. Nothing is asked of it yet.
    pub fn connect(url: &str, token: Option<&str>) -> Result<Self> {
        Ok(Self { line: Line::new(url, token)? })
    }

    /// All that comes from an offset on, until the attempt has ended.
    pub async fn follow(&self, attempt: &AttemptRef, offset: u64) -> Result<LogStream> {
        let path = of_log(attempt).with("offset", offset).with("follow", true);
        let response = self.line.open(&path, "*/*").await?;
        let start = number(response.headers(), &START)?;
        Ok(LogStream { response, next: offset.max(start) })
    }
}

/// A log that is being followed.
pub struct LogStream {
    response: Response,
    next: u64,
}

impl LogStream {
    /// Where the next bytes begin; whoever loses the line goes on from there.
    pub const fn offset(&self) -> u64 {
        self.next
    }

    /// The next bytes; `None` when the attempt has ended and all was read. A line that breaks is told, and can be opened anew.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let lost = |_| Error::told(ReasonCode::ReplyLost.into(), Happened::NotApplied, true);
        let bytes = self.response.chunk().await.map_err(lost)?;
        self.next += bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        Ok(bytes)
    }
}

impl std::fmt::Debug for LogStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogStream").field("next", &self.next).finish_non_exhaustive()
    }
}

#[async_trait]
impl Logs for HttpLogs {
    async fn append(&self, attempt: AttemptRef, offset: u64, bytes: Bytes) -> Result<u64> {
        let path = of_log(&attempt).with("offset", offset).with("token", attempt.execution_no);
        let appended: wire::LogAppended = self.line.send_octets(&path, bytes).await?;
        Ok(appended.end)
    }

    async fn read(&self, attempt: AttemptRef, offset: u64, limit: usize) -> Result<LogPart> {
        let path = of_log(&attempt).with("offset", offset).with("limit", limit);
        let (headers, bytes) = self.line.read_octets(&path).await?;
        let (start, end) = (number(&headers, &START)?, number(&headers, &END)?);
        Ok(LogPart { start, end, offset: offset.max(start), bytes })
    }

    async fn remove(&self, _: TaskRef) -> Result<()> {
        Err(only_the_server())
    }

    async fn tasks(&self, _: Option<TaskRef>, _: usize) -> Result<Vec<TaskRef>> {
        Err(only_the_server())
    }
}

fn of_log(attempt: &AttemptRef) -> Path {
    let task = path::of(&attempt.task.namespace).plain("tasks").name(attempt.task.id.as_str());
    task.plain("attempts").name(&attempt.execution_no.to_string()).plain("log")
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Result<u64> {
    let value = headers.get(name).and_then(|value| value.to_str().ok()?.parse().ok());
    Ok(value.ok_or_else(|| Refusal::new(ReasonCode::ServerForeign).with("why", format!("no header {name}")))?)
}

/// A server looks after its logs itself.
fn only_the_server() -> Error {
    Refusal::new(ReasonCode::StoreCannot).with("why", "the server removes logs itself").into()
}

impl std::fmt::Debug for HttpLogs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpLogs").finish_non_exhaustive()
    }
}
