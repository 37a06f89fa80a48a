//! Ids as names of files. An id may hold anything but control characters, a file name may not: what is not plain is escaped,
//! and what gets too long by that is written in base 32, so that every id has one name and every name one id.

/// 240 bytes: a name ends at 255 on every file system that we know.
const NAME_BYTES_MAX: usize = 240;

/// What names in base 32 begin with; it is escaped in all others.
const PACKED: char = '=';

const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// The name of an id.
pub(super) fn encode(id: &str) -> String {
    let mut name = String::with_capacity(id.len());
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02x}"));
        }
    }
    if name.len() <= NAME_BYTES_MAX { name } else { pack(id) }
}

/// The id of a name; `None` for a name that no id has.
pub(super) fn decode(name: &str) -> Option<String> {
    let bytes = match name.strip_prefix(PACKED) {
        Some(packed) => unpack(packed)?,
        None => unescape(name)?,
    };
    let id = String::from_utf8(bytes).ok()?;
    (encode(&id) == name).then_some(id)
}

fn unescape(name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    Some(bytes)
}

fn pack(id: &str) -> String {
    let mut name = String::from(PACKED);
    let (mut bits, mut count) = (0_u32, 0);
    let mut digit = |bits: u32| {
        let digit = usize::try_from(bits & 31).ok().and_then(|at| DIGITS.get(at));
        name.push(char::from(*digit.expect("five bits have 32 values")));
    };
    for byte in id.bytes() {
        bits = bits << 8 | u32::from(byte);
        count += 8;
        while count >= 5 {
            count -= 5;
            digit(bits >> count);
        }
    }
    if count > 0 {
        digit(bits << (5 - count));
    }
    name
}

fn unpack(packed: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(packed.len());
    let (mut bits, mut count) = (0_u32, 0);
    for digit in packed.bytes() {
        let value = DIGITS.iter().position(|known| *known == digit)?;
        bits = bits << 5 | u32::try_from(value).ok()?;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_has_a_name_of_its_own_that_is_safe() {
        let long = "受".repeat(42);
        let dots = ".".repeat(128);
        let mut names = std::collections::BTreeSet::new();
        let ids = ["a", "A", "..", ".", "a/b", "../../etc", "%2e", "=", "受信箱 #1", &long, &dots, "task-0190", "a b"];
        for id in ids {
            let name = encode(id);
            assert!(name.len() <= 255, "{}", name.len());
            assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_%=".contains(&byte)), "{name}");
            assert_eq!(decode(&name).as_deref(), Some(id));
            names.insert(name);
        }
        assert_eq!(names.len(), ids.len());
        for other in ["%", "%2", "%zz", "a.b", "=a", "%41", "=ü"] {
            assert_eq!(decode(other), None, "{other}");
        }
    }
}
