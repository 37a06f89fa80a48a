//! Payload bytes inside stored records: text when they are UTF-8, hexadecimal when they are not, never an array of numbers.

use bytes::Bytes;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Stored<'a> {
    Text(std::borrow::Cow<'a, str>),
    Binary { hex: String },
}

/// For `#[serde(serialize_with)]`.
pub(crate) fn serialize<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Stored::Text(text.into()).serialize(serializer),
        Err(_) => {
            Stored::Binary { hex: bytes.iter().map(|byte| format!("{byte:02x}")).collect() }.serialize(serializer)
        }
    }
}

/// For `#[serde(deserialize_with)]`.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    match Stored::deserialize(deserializer)? {
        Stored::Text(text) => Ok(Bytes::from(text.into_owned())),
        Stored::Binary { hex } => from_hex(&hex).ok_or_else(|| D::Error::custom("payload is not hexadecimal")),
    }
}

pub(crate) fn from_hex(hex: &str) -> Option<Bytes> {
    let digits: Vec<u8> =
        hex.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

/// The same for an optional field.
pub(crate) mod optional {
    use super::{Bytes, Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Wrapped(#[serde(with = "super")] Bytes);

    pub(crate) fn serialize<S: Serializer>(bytes: &Option<Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
        bytes.clone().map(Wrapped).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Bytes>, D::Error> {
        Ok(Option::<Wrapped>::deserialize(deserializer)?.map(|wrapped| wrapped.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Holder(#[serde(with = "super")] Bytes);

    #[test]
    fn text_stays_text_and_bytes_survive() {
        for (bytes, json) in [(&b"{\"a\":1}"[..], r#""{\"a\":1}""#), (&[0xff, 0x00][..], r#"{"hex":"ff00"}"#)] {
            let text = serde_json::to_string(&Holder(Bytes::copy_from_slice(bytes))).unwrap();
            assert_eq!(text, json);
            assert_eq!(serde_json::from_str::<Holder>(&text).unwrap().0, bytes);
        }
        for broken in [r#"{"hex":"f"}"#, r#"{"hex":"zz"}"#] {
            assert!(serde_json::from_str::<Holder>(broken).is_err());
        }
    }
}
