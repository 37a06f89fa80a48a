//! Secrets in payloads, known by the names of their keys, and their removal from what is written down.

use std::borrow::Cow;

use serde_json::Value;

/// What makes a key's value a secret, wherever in the key it stands. Compared in small letters, without `-` and `_`.
const SECRET: [&str; 11] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "authorization",
    "credential",
    "privatekey",
    "accesskey",
    "cookie",
];

/// What stands in a secret's place.
const MASK: &str = "[redacted]";

/// 4 bytes: a shorter value is no secret, and would blacken half of a log.
const SECRET_BYTES_MIN: usize = 4;

/// 64 secrets of a payload are looked for.
const SECRETS_MAX: usize = 64;

/// A payload as it may be shown: values of secret keys are masked. What is not JSON is not shown at all.
pub fn redacted(payload: &[u8]) -> String {
    match serde_json::from_slice::<Value>(payload) {
        Ok(mut value) => {
            mask(&mut value);
            value.to_string()
        }
        Err(_) => format!("[{} bytes]", payload.len()),
    }
}

fn is_secret(key: &str) -> bool {
    let plain: String = key.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect();
    SECRET.iter().any(|secret| plain.contains(secret))
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if is_secret(key) {
                    *value = Value::String(MASK.to_owned());
                } else {
                    mask(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        _ => {}
    }
}

/// Masks the secrets of one payload wherever they are about to be written down.
#[derive(Debug, Default)]
pub(super) struct Redactor {
    /// Longest first, so that one which is a part of another does not spoil it.
    secrets: Vec<String>,
}

impl Redactor {
    /// The secrets of a payload; none of one that is not JSON.
    pub(super) fn of(payload: &[u8]) -> Self {
        let mut secrets = Vec::new();
        if let Ok(value) = serde_json::from_slice(payload) {
            collect(&value, false, &mut secrets);
        }
        secrets.sort_unstable_by_key(|secret: &String| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        secrets.truncate(SECRETS_MAX);
        Self { secrets }
    }

    /// The same bytes without secrets.
    pub(super) fn clean<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let mut clean = Cow::Borrowed(bytes);
        for secret in &self.secrets {
            if let Some(changed) = replaced(&clean, secret.as_bytes()) {
                clean = Cow::Owned(changed);
            }
        }
        clean
    }

    /// The same text without secrets.
    pub(super) fn clean_text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.clean(text.as_bytes())).into_owned()
    }
}

fn collect(value: &Value, secret: bool, secrets: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| collect(value, secret || is_secret(key), secrets));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, secret, secrets)),
        Value::String(text) if secret && text.len() >= SECRET_BYTES_MIN => secrets.push(text.clone()),
        Value::Number(number) if secret && number.to_string().len() >= SECRET_BYTES_MIN => {
            secrets.push(number.to_string());
        }
        _ => {}
    }
}

fn replaced(bytes: &[u8], secret: &[u8]) -> Option<Vec<u8>> {
    let find = |from: &[u8]| from.windows(secret.len()).position(|window| window == secret);
    let mut at = find(bytes)?;
    let mut rest = bytes;
    let mut clean = Vec::with_capacity(bytes.len());
    loop {
        clean.extend_from_slice(rest.get(..at).unwrap_or_default());
        clean.extend_from_slice(MASK.as_bytes());
        rest = rest.get(at + secret.len()..).unwrap_or_default();
        match find(rest) {
            Some(next) => at = next,
            None => {
                clean.extend_from_slice(rest);
                return Some(clean);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// X6: secrets are known by key, at any depth, and gone from whatever is written down.
    #[test]
    fn secrets_are_masked_by_key_in_payloads_and_in_what_is_written() {
        let payload =
            br#"{"user":"aoi","Api-Key":"k-12345","in":[{"db_password":"pw12345678","n":1}],"token":{"x":"deep-one"}}"#;
        let shown = redacted(payload);
        assert!(shown.contains("aoi") && !shown.contains("k-12345") && !shown.contains("deep"), "{shown}");
        assert_eq!(redacted(b"\xff\xfe"), "[2 bytes]");
        let redactor = Redactor::of(payload);
        let clean = redactor.clean_text("aoi k-12345 pw12345678 xdeep-onex k-12345");
        assert_eq!(clean, "aoi [redacted] [redacted] x[redacted]x [redacted]");
        assert!(matches!(redactor.clean(b"nothing here"), Cow::Borrowed(_)));
        assert_eq!(Redactor::of(br#"{"token":"abc"}"#).clean_text("abc"), "abc", "too short to be one");
    }
}
