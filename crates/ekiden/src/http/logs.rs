//! The logs of attempts behind a server: the same port as a folder's, spoken over HTTP.

use async_trait::async_trait;
use bytes::Bytes;
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_wire as wire;
use reqwest::header::{HeaderMap, HeaderName};

use super::line::Line;
use super::path::{self, Path};
use crate::error::Result;
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
fn only_the_server() -> crate::error::Error {
    Refusal::new(ReasonCode::StoreCannot).with("why", "the server removes logs itself").into()
}

impl std::fmt::Debug for HttpLogs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpLogs").finish_non_exhaustive()
    }
}
