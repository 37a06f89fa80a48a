//! The logs of attempts behind a server: written by runners that are elsewhere, read and followed by anybody.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_store::Happened;
use ekiden_wire as wire;
use reqwest::Response;
use reqwest::header::HeaderMap;

use super::line::Line;
use super::path::{self, Path};
use crate::error::{Error, Result};
use crate::logs::{AttemptRef, LogPart, Logs};
use crate::port::TaskRef;

/// Logs behind a server. Cheap to clone.
#[derive(Clone)]
pub struct HttpLogs {
    line: Arc<Line>,
}

impl HttpLogs {
    /// The logs of the server at this address, as in `http://127.0.0.1:7707`. Whether it is there shows the first request.
    pub fn connect(url: &str, token: Option<&str>) -> Result<Self> {
        Ok(Self { line: Arc::new(Line::new(url, token)?) })
    }

    /// All that comes from an offset on, until the attempt has ended.
    pub async fn follow(&self, attempt: &AttemptRef, offset: u64) -> Result<LogStream> {
        let response = self.line.open(&of(attempt).with("offset", offset).with("follow", true), "*/*").await?;
        let start = header(response.headers(), "ekiden-log-start").unwrap_or(0);
        Ok(LogStream { response, next: offset.max(start) })
    }
}

/// A log that is being followed.
pub struct LogStream {
    response: Response,
    next: u64,
}

impl LogStream {
    /// Where the next bytes begin; whoever loses the line goes on from here.
    pub const fn offset(&self) -> u64 {
        self.next
    }

    /// The next bytes; `None` when the attempt has ended and all was read. A line that breaks is told, and may be opened again.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        match self.response.chunk().await {
            Ok(Some(bytes)) => {
                self.next += bytes.len() as u64;
                Ok(Some(bytes))
            }
            Ok(None) => Ok(None),
            Err(_) => Err(Error::told(ReasonCode::ReplyLost.into(), Happened::NotApplied, true)),
        }
    }
}

fn of(attempt: &AttemptRef) -> Path {
    let task = path::of(&attempt.task.namespace).plain("tasks").name(attempt.task.id.as_str());
    task.plain("attempts").name(&attempt.execution_no.to_string()).plain("log")
}

fn header(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

/// Which logs are there, and which go, is the server's own business.
fn elsewhere() -> Error {
    Refusal::new(ReasonCode::StoreCannot).with("why", "a server looks after its logs by itself").into()
}

#[async_trait]
impl Logs for HttpLogs {
    async fn append(&self, attempt: AttemptRef, offset: u64, bytes: Bytes) -> Result<u64> {
        let path = of(&attempt).with("offset", offset).with("token", attempt.execution_no);
        let appended: wire::LogAppended = self.line.send_bytes(&path, bytes).await?;
        Ok(appended.end)
    }

    async fn read(&self, attempt: AttemptRef, offset: u64, limit: usize) -> Result<LogPart> {
        let (headers, bytes) = self.line.read_bytes(&of(&attempt).with("offset", offset).with("limit", limit)).await?;
        let start = header(&headers, "ekiden-log-start").unwrap_or(0);
        let offset = offset.max(start);
        let end = header(&headers, "ekiden-log-end").unwrap_or(offset + bytes.len() as u64);
        Ok(LogPart { start, end, offset, bytes })
    }

    async fn remove(&self, _: TaskRef) -> Result<()> {
        Err(elsewhere())
    }

    async fn tasks(&self, _: Option<TaskRef>, _: usize) -> Result<Vec<TaskRef>> {
        Err(elsewhere())
    }
}
