//! The 100 bytes that every task carries, for us and for the peers alike: JSON text with the task's number in it.

use bytes::Bytes;

/// The size that published figures of queues mostly use.
pub const PAYLOAD_BYTES: usize = 100;

const HEAD: &str = r#"{"n":""#;
const DIGITS: usize = 10;

/// The payload of a task. One allocation, as a real producer's would be.
pub fn of(number: usize) -> Bytes {
    let mut text = String::with_capacity(PAYLOAD_BYTES);
    let digits = format_digits(number);
    text.push_str(HEAD);
    text.push_str(std::str::from_utf8(&digits).unwrap_or_default());
    text.push_str(r#"","pad":""#);
    while text.len() < PAYLOAD_BYTES - 2 {
        text.push('x');
    }
    text.push_str(r#""}"#);
    Bytes::from(text)
}

/// The number in a payload; `None` if it is not one of ours.
pub fn number(payload: &[u8]) -> Option<usize> {
    let digits = payload.get(HEAD.len()..HEAD.len() + DIGITS)?;
    digits.iter().try_fold(0, |sum, digit| Some(sum * 10 + usize::from(digit.checked_sub(b'0')?)))
}

/// By hand, because `format!` would cost as much as a channel's whole send.
fn format_digits(mut number: usize) -> [u8; DIGITS] {
    let mut digits = [b'0'; DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit += u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_a_hundred_bytes_of_json_and_carries_its_number() {
        for wanted in [0, 7, 1_234_567, 9_999_999_999] {
            let payload = of(wanted);
            assert_eq!(payload.len(), PAYLOAD_BYTES);
            assert_eq!(number(&payload), Some(wanted));
            assert!(serde_json::from_slice::<serde_json::Value>(&payload).is_ok());
        }
    }

    #[test]
    fn other_bytes_have_no_number() {
        assert_eq!(number(b"{}"), None);
        assert_eq!(number(&[0; PAYLOAD_BYTES]), None);
    }
}
