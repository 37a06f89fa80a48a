//! Payloads and results on the wire. JSON stands as it is, byte for byte; other text is a string, other bytes are base64, and
//! a field beside it says which.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ekiden_core::reason::{ReasonCode, Refusal};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// How bytes stand in a JSON document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// They are JSON, and stand as they are.
    #[default]
    Json,
    /// They are text, in a string.
    Text,
    /// They are base64, in a string.
    Base64,
}

impl Encoding {
    pub(crate) fn is_json(&self) -> bool {
        *self == Self::Json
    }
}

/// Bytes of a content type as they stand in a document.
pub fn encode(bytes: &Bytes, content_type: &str) -> (Box<RawValue>, Encoding) {
    let Ok(text) = std::str::from_utf8(bytes) else { return (string(&STANDARD.encode(bytes)), Encoding::Base64) };
    match value(text) {
        Some(value) if is_json(content_type) => (value.to_owned(), Encoding::Json),
        _ => (string(text), Encoding::Text),
    }
}

/// Bytes that can stand in a document as they are.
pub(crate) fn as_json(bytes: &[u8]) -> Option<&str> {
    value(std::str::from_utf8(bytes).ok()?).map(RawValue::get)
}

/// Space around a value would be lost, and bytes come back as they were sent.
fn value(text: &str) -> Option<&RawValue> {
    serde_json::from_str::<&RawValue>(text).ok().filter(|value| value.get().len() == text.len())
}

/// The bytes that stand in a document; a field that was left out stands for `null`.
pub fn decode(field: &str, value: Option<Box<RawValue>>, encoding: Encoding) -> Result<Bytes, Refusal> {
    let Some(value) = value else { return Ok(Bytes::from_static(b"null")) };
    let wrong = |why: &str| Refusal::new(ReasonCode::PayloadInvalid).with("field", field).with("why", why);
    let text = |value: &RawValue| {
        serde_json::from_str::<String>(value.get()).map_err(|_| wrong("text and base64 stand in a string"))
    };
    match encoding {
        Encoding::Json => Ok(Bytes::from(String::from(Box::<str>::from(value)))),
        Encoding::Text => text(&value).map(Bytes::from),
        Encoding::Base64 => STANDARD.decode(text(&value)?).map(Bytes::from).map_err(|_| wrong("not base64")),
    }
}

/// Reads a field that holds any JSON. `null` is a value there, which serde would take for a field that was left out.
pub(crate) fn any_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::deserialize(deserializer).map(Some)
}

fn is_json(content_type: &str) -> bool {
    content_type == "application/json" || content_type.ends_with("+json")
}

fn string(text: &str) -> Box<RawValue> {
    serde_json::value::to_raw_value(text).expect("a string is a JSON value")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(bytes: &[u8], content_type: &str) -> (String, Encoding) {
        let (value, encoding) = encode(&Bytes::copy_from_slice(bytes), content_type);
        let shown = value.get().to_owned();
        assert_eq!(decode("payload", Some(value), encoding).unwrap(), bytes);
        (shown, encoding)
    }

    #[test]
    fn json_stands_as_it_is_and_everything_else_survives() {
        let json = "application/json";
        assert_eq!(there_and_back(br#"{"a": 1}"#, json), (r#"{"a": 1}"#.to_owned(), Encoding::Json));
        assert_eq!(there_and_back(b" 1", json).1, Encoding::Text, "space around a value is kept");
        assert_eq!(there_and_back(b"{", json).1, Encoding::Text);
        assert_eq!(there_and_back(b"", json).1, Encoding::Text);
        assert_eq!(there_and_back(b"1", "text/plain"), (r#""1""#.to_owned(), Encoding::Text));
        assert_eq!(there_and_back(&[0xff, 0], "image/png").1, Encoding::Base64);
    }

    #[test]
    fn an_encoding_that_does_not_fit_is_refused() {
        for (value, encoding) in [("1", Encoding::Text), ("{}", Encoding::Base64), ("\"ä\"", Encoding::Base64)] {
            let value = RawValue::from_string(value.to_owned()).unwrap();
            assert_eq!(decode("payload", Some(value), encoding).unwrap_err().code, ReasonCode::PayloadInvalid);
        }
        assert_eq!(decode("payload", None, Encoding::Json).unwrap(), "null");
    }
}
