//! Requests that are nearly right: seeded mutations of HTTP/1.1 requests as bytes, from a flipped bit to a body that never ends.
//! Knows HTTP's shape and nothing of what is behind it.

use ekiden_store::entropy::Entropy;

/// A request before it is written.
#[derive(Clone, Debug)]
pub struct RawRequest {
    /// The method.
    pub method: String,
    /// Path and query.
    pub target: Vec<u8>,
    /// Names and values.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// The body.
    pub body: Vec<u8>,
}

/// Numbers that no program expects.
const NUMBERS: [&str; 8] = [
    "-1",
    "0",
    "18446744073709551616",
    "-9223372036854775809",
    "1e400",
    "0.1",
    "99999999999999999999999999999999999999999999",
    "2147483648",
];

/// Values that are not what a field holds.
const VALUES: [&str; 9] =
    ["null", "true", "[]", "{}", "\"\"", "\"\\ud800\"", "\"\\u0000\"", "1e999", "{\"a\":{\"a\":{\"a\":[[[]]]}}}"];

const METHODS: [&str; 8] = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "BREW"];

const ESCAPES: [&str; 8] = ["%", "%zz", "%00", "%ff%fe", "%2f..%2f", "%c0%af", "?%", "#"];

const CONTENT_TYPES: [&str; 4] = ["", "text/plain", "application/json; charset=utf-9", "application/octet-stream"];

/// 2,000 levels: far deeper than any JSON that is meant.
const DEEP: usize = 2_000;

impl RawRequest {
    /// A request with the headers that every one has.
    pub fn new(method: &str, target: &str, host: &str, body: &str) -> Self {
        let header = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        let mut headers = vec![header("host", host), header("content-length", &body.len().to_string())];
        if !body.is_empty() {
            headers.push(header("content-type", "application/json"));
        }
        Self { method: method.to_owned(), target: target.as_bytes().to_vec(), headers, body: body.as_bytes().to_vec() }
    }

    /// The bytes, as they go over the line.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = [self.method.as_bytes(), b" ", &self.target, b" HTTP/1.1\r\n"].concat();
        for (name, value) in &self.headers {
            bytes.extend([name.as_slice(), b": ", value, b"\r\n"].concat());
        }
        bytes.extend(b"\r\n");
        bytes.extend(&self.body);
        bytes
    }

    /// The bytes of this request with one to three things wrong.
    pub fn mutated(&self, entropy: &mut Entropy) -> Vec<u8> {
        let mut request = self.clone();
        for _ in 0..1 + entropy.below(2) {
            request.mutate(entropy);
        }
        let mut bytes = request.bytes();
        if entropy.chance(35) {
            mutate_bytes(&mut bytes, entropy);
        }
        bytes
    }

    fn mutate(&mut self, entropy: &mut Entropy) {
        match entropy.below(13) {
            0 => self.method = (*entropy.pick(&METHODS)).to_owned(),
            1 => insert(&mut self.target, entropy.pick(&ESCAPES).as_bytes(), entropy),
            2 => self.target.extend(vec![b'a'; entropy.below(20_000)]),
            3 => self.double_a_header(entropy),
            4 => self.garble_a_header(entropy),
            5 => self.set("content-length", entropy.pick(&NUMBERS).as_bytes()),
            6 => self.set("content-type", entropy.pick(&CONTENT_TYPES).as_bytes()),
            7 => self.headers.push((b"x-large".to_vec(), vec![b'v'; entropy.below(40_000)])),
            8 => self.chunk(entropy),
            9 => {
                let open = *entropy.pick(&["[", "{\"a\":", "[{\"payload\":"]);
                self.set_body(open.repeat(DEEP).into_bytes());
            }
            10 => {
                let number = entropy.pick(&NUMBERS).as_bytes().to_vec();
                replace_token(&mut self.body, |byte| byte.is_ascii_digit(), &number, entropy);
                self.set_length();
            }
            11 => {
                let value = entropy.pick(&VALUES).as_bytes().to_vec();
                replace_token(&mut self.body, |byte| byte.is_ascii_alphanumeric() || *byte == b'"', &value, entropy);
                self.set_length();
            }
            _ => {
                mutate_bytes(&mut self.body, entropy);
                self.set_length();
            }
        }
    }

    fn double_a_header(&mut self, entropy: &mut Entropy) {
        let mut header = entropy.pick(&self.headers).clone();
        if entropy.chance(50) {
            mutate_bytes(&mut header.1, entropy);
        }
        self.headers.push(header);
    }

    fn garble_a_header(&mut self, entropy: &mut Entropy) {
        let at = entropy.below(self.headers.len());
        let name = entropy.chance(50);
        if let Some(header) = self.headers.get_mut(at) {
            mutate_bytes(if name { &mut header.0 } else { &mut header.1 }, entropy);
        }
    }

    /// A body in chunks, of which few are right.
    fn chunk(&mut self, entropy: &mut Entropy) {
        self.headers.retain(|(name, _)| name != b"content-length" || entropy.chance(20));
        self.headers.push((b"transfer-encoding".to_vec(), b"chunked".to_vec()));
        let size = *entropy.pick(&["5", "ffffffffffffffff", "-1", "zz", "0", "1;ext=\x01", ""]);
        self.body = [size.as_bytes(), b"\r\n", &self.body, b"\r\n0\r\n\r\n"].concat();
    }

    fn set_body(&mut self, body: Vec<u8>) {
        self.body = body;
        self.set_length();
        self.set("content-type", b"application/json");
    }

    fn set_length(&mut self) {
        let length = self.body.len().to_string();
        self.set("content-length", length.as_bytes());
    }

    fn set(&mut self, name: &str, value: &[u8]) {
        self.headers.retain(|(other, _)| other != name.as_bytes());
        self.headers.push((name.as_bytes().to_vec(), value.to_vec()));
    }
}

/// One thing wrong with bytes of any sort.
fn mutate_bytes(bytes: &mut Vec<u8>, entropy: &mut Entropy) {
    let at = entropy.below(bytes.len().max(1));
    match entropy.below(6) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << entropy.below(8);
            }
        }
        1 => bytes.truncate(at),
        2 => insert(bytes, &[0], entropy),
        3 => insert(bytes, b"\xff\xfe\xc0", entropy),
        4 => insert(bytes, b"\r\n", entropy),
        _ => {
            let piece = bytes.get(at..).unwrap_or_default().iter().take(64).copied().collect::<Vec<u8>>();
            insert(bytes, &piece, entropy);
        }
    }
}

fn insert(bytes: &mut Vec<u8>, piece: &[u8], entropy: &mut Entropy) {
    let at = entropy.below(bytes.len() + 1);
    bytes.splice(at..at, piece.iter().copied());
}

/// Replaces a run of bytes of one sort, if there is one behind a place that chance picks.
fn replace_token(bytes: &mut Vec<u8>, is_part: impl Fn(&u8) -> bool, with: &[u8], entropy: &mut Entropy) {
    let from = entropy.below(bytes.len().max(1));
    let Some(start) = bytes.iter().skip(from).position(&is_part).map(|at| at + from) else { return };
    let length = bytes.iter().skip(start).take_while(|byte| is_part(byte)).count();
    bytes.splice(start..start + length, with.iter().copied());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_requests_and_most_are_wrong() {
        let request = RawRequest::new("POST", "/a/b?c=1", "h", "{\"a\":[1,2]}");
        let all = |seed| {
            let mut entropy = Entropy::from_seed(seed);
            (0..200).map(|_| request.mutated(&mut entropy)).collect::<Vec<_>>()
        };
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
        let wrong = all(1).iter().filter(|bytes| **bytes != request.bytes()).count();
        assert!(wrong > 180, "{wrong} of 200 differ from what is right");
    }
}
