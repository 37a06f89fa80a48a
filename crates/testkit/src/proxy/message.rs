//! HTTP/1.1 as far as a proxy for DynamoDB needs it: whole messages with a length, their headers, and bodies that are JSON.

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt};

/// 64 KiB a read: most messages come with one.
const CHUNK_BYTES: usize = 64 << 10;

/// A request or an answer, whole.
pub(super) struct Message {
    head: String,
    body: Vec<u8>,
}

impl Message {
    /// Reads the next one. `None` is the end of the connection.
    pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> Option<Self> {
        let mut bytes = Vec::new();
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut wanted = None;
        loop {
            if wanted.is_none()
                && let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n")
            {
                let head = String::from_utf8_lossy(bytes.get(..at)?).into_owned();
                let length = header(&head, "content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
                wanted = Some((head, at + 4, at + 4 + length));
            }
            if let Some((head, body_at, end)) = wanted.take_if(|(_, _, end)| bytes.len() >= *end) {
                let body = bytes.get(body_at..end)?.to_vec();
                return Some(Self { head, body });
            }
            let count = from.read(&mut chunk).await.ok().filter(|count| *count > 0)?;
            bytes.extend_from_slice(chunk.get(..count)?);
        }
    }

    /// An answer that refuses, as the service does.
    pub(super) fn refusal(code: &str, mut more: Value) -> Self {
        let kind = format!("com.amazonaws.dynamodb.v20120810#{code}");
        if let Some(fields) = more.as_object_mut() {
            fields.insert("__type".to_owned(), kind.into());
            fields.insert("message".to_owned(), "planted".into());
        }
        let head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/x-amz-json-1.0".to_owned();
        Self { head, body: more.to_string().into_bytes() }
    }

    /// What the request asks for, such as `UpdateItem`.
    pub(super) fn operation(&self) -> String {
        let target = header(&self.head, "x-amz-target").unwrap_or_default();
        target.rsplit('.').next().unwrap_or_default().to_owned()
    }

    /// Whether an answer is what was asked for, and no refusal.
    pub(super) fn is_ok(&self) -> bool {
        self.head.split_whitespace().nth(1) == Some("200")
    }

    /// The body; null if it is no JSON.
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The same with another body.
    #[must_use]
    pub(super) fn with(self, body: &Value) -> Self {
        Self { head: self.head, body: body.to_string().into_bytes() }
    }

    /// As it is sent on. Length and checksum are those of the body that it has now.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let stale = |line: &&str| {
            let name = line.split(':').next().unwrap_or_default();
            ["content-length", "x-amz-crc32"].iter().any(|header| name.eq_ignore_ascii_case(header))
        };
        let mut text: String = self.head.lines().filter(|line| !stale(line)).flat_map(|line| [line, "\r\n"]).collect();
        text.push_str(&format!("content-length: {}\r\n\r\n", self.body.len()));
        [text.as_bytes(), &self.body].concat()
    }
}

fn header(head: &str, wanted: &str) -> Option<String> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim().to_owned())
}
