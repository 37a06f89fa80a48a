//! Finds the values of secret keys in a payload, in every form in which a program may print them. Knows nothing of logs.
//!
//! The reader takes more than a JSON parser does. The program that gets the payload may use a parser which keeps the first of
//! two equal keys, takes lone surrogates or nests without limit, and a secret that only it can read would stay in the log.

use std::collections::BTreeSet;

/// What makes a key's value a secret, wherever in the key it stands. Compared in small letters, without punctuation and spaces.
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

/// 4 bytes: a shorter value is no secret, and would blacken half of a log.
const SECRET_BYTES_MIN: usize = 4;

/// 8 bytes: a shorter line of a longer secret says too little, and stands in too many logs.
const LINE_BYTES_MIN: usize = 8;

/// 1 MiB: the largest payload as one secret in four forms. A search for that much takes about 30 MiB.
const FORMS_BYTES_MAX: usize = 1024 * 1024;

/// All forms of all secrets.
#[derive(Debug, Default)]
pub(super) struct Forms {
    texts: BTreeSet<Vec<u8>>,
    bytes: usize,
    /// The secrets that were read, with their levels: a repeated one costs nothing.
    known: BTreeSet<(usize, Vec<u8>)>,
}

/// What of a value is secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Secrecy {
    Nothing,
    /// Everything but a number that stands there itself or in a list: `max_tokens` has a count.
    AllButCounts,
    Everything,
}

impl Secrecy {
    /// What is secret of the value of this key.
    pub(super) fn of_key(key: &str) -> Self {
        let plain: String = key.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
        let is_secret = |text: &str| SECRET.iter().any(|secret| text.contains(secret));
        match plain.strip_suffix("tokens") {
            Some(rest) if !is_secret(rest) => Self::AllButCounts,
            _ if is_secret(&plain) => Self::Everything,
            _ => Self::Nothing,
        }
    }

    /// What is secret of the values of an object that is such a value.
    const fn in_object(self) -> Self {
        match self {
            Self::AllButCounts => Self::Everything,
            other => other,
        }
    }
}

impl Forms {
    /// The secrets of a payload. `None` if they are more than can be searched for.
    pub(super) fn of(payload: &[u8]) -> Option<Self> {
        let mut forms = Self::default();
        // A string may hold JSON itself. Each level escapes the quotes of the next, so levels shrink.
        let mut nested = vec![(payload.to_vec(), 0)];
        while let Some((text, level)) = nested.pop() {
            forms.read(&text, level, &mut nested);
            if forms.is_full() {
                return None;
            }
        }
        Some(forms)
    }

    pub(super) fn texts(&self) -> impl Iterator<Item = &[u8]> {
        self.texts.iter().map(Vec::as_slice)
    }

    fn is_full(&self) -> bool {
        self.bytes > FORMS_BYTES_MAX
    }

    fn read(&mut self, text: &[u8], level: usize, nested: &mut Vec<(Vec<u8>, usize)>) {
        let mut tokens = Tokens { text, at: 0 }.peekable();
        // What is secret in each open object and list.
        let mut open: Vec<Secrecy> = Vec::new();
        let mut next = Secrecy::Nothing;
        while let Some(token) = tokens.next() {
            let here = open.last().copied().unwrap_or(Secrecy::Nothing);
            match token {
                Token::Object => {
                    next = next.in_object();
                    open.push(next);
                }
                Token::List => open.push(next),
                Token::Close => {
                    open.pop();
                    next = open.last().copied().unwrap_or(Secrecy::Nothing);
                }
                Token::Comma => next = here,
                Token::Colon => {}
                Token::Text(raw) => {
                    let units = unescaped(raw);
                    if tokens.peek() == Some(&Token::Colon) {
                        next = here.max(Secrecy::of_key(&String::from_utf16_lossy(&units)));
                    } else if next != Secrecy::Nothing {
                        self.add_text(raw, &units, level);
                    } else if raw.contains(&b'\\') && raw.contains(&b':') {
                        nested.push((utf8(&units), level + 1));
                    }
                }
                Token::Word(raw) if next == Secrecy::Everything => self.add_word(raw),
                Token::Word(_) => {}
            }
            if self.is_full() {
                return;
            }
        }
    }

    fn add(&mut self, form: Vec<u8>) {
        let bytes = form.len();
        if bytes >= SECRET_BYTES_MIN && self.texts.insert(form) {
            self.bytes += bytes;
        }
    }

    fn add_text(&mut self, raw: &[u8], units: &[u16], level: usize) {
        let plain = utf8(units);
        if plain.len() < SECRET_BYTES_MIN || !self.known.insert((level, raw.to_vec())) {
            return;
        }
        // A private key has several lines, and programs print them one by one.
        let lines = plain.split(|byte| matches!(byte, b'\n' | b'\r')).map(<[u8]>::trim_ascii);
        for line in lines.filter(|line| line.len() >= LINE_BYTES_MIN) {
            self.add(line.to_vec());
        }
        for style in &STYLES {
            self.add(style.escaped(units));
        }
        // As it stands in the texts around it, and in a log of JSON lines that has the outermost one as a string.
        let mut forms = [raw.to_vec(), STYLES[0].escaped(units)];
        for _ in 0..=level {
            // What has something to escape becomes twice as long with each level, and a payload has hundreds of them.
            if self.is_full() {
                return;
            }
            let escaped = forms.each_ref().map(|form| STYLES[0].escaped(&utf16(form)));
            if escaped == forms {
                break;
            }
            escaped.iter().for_each(|form| self.add(form.clone()));
            forms = escaped;
        }
        let text = String::from_utf16_lossy(units);
        // As Rust's errors quote it, also our own about a line that was not understood.
        let quoted = format!("{text:?}");
        self.add(quoted.as_bytes().get(1..quoted.len() - 1).unwrap_or_default().to_vec());
        self.add(text.into_bytes());
        self.add(raw.to_vec());
        self.add(plain);
    }

    /// A number as it stands there, and as parsers print it. Nothing of `true`, `false` and `null`, which say nothing.
    fn add_word(&mut self, raw: &[u8]) {
        let Some(number) = std::str::from_utf8(raw).ok().and_then(|raw| raw.parse::<f64>().ok()) else { return };
        if raw.len() >= SECRET_BYTES_MIN && raw.iter().any(u8::is_ascii_digit) {
            self.add(raw.to_vec());
            self.add(number.to_string().into_bytes());
        }
    }
}

/// A part of a JSON text.
#[derive(PartialEq, Eq)]
enum Token<'a> {
    /// An object begins.
    Object,
    /// A list begins.
    List,
    /// One of them ends.
    Close,
    Comma,
    Colon,
    /// A string as it stands there, without its quotes.
    Text(&'a [u8]),
    /// Anything else up to the next sign or space.
    Word(&'a [u8]),
}

struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Tokens<'a> {
    /// What stands from here to the first byte that `ends` it, or to the end of the text.
    fn until(&mut self, mut ends: impl FnMut(u8) -> bool) -> &'a [u8] {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|byte| ends(*byte)).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or_default()
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        self.until(|byte| !byte.is_ascii_whitespace());
        let first = *self.text.get(self.at)?;
        let is_sign = |byte: u8| matches!(byte, b'{' | b'}' | b'[' | b']' | b',' | b':' | b'"');
        if !is_sign(first) {
            return Some(Token::Word(self.until(|byte| is_sign(byte) || byte.is_ascii_whitespace())));
        }
        self.at += 1;
        Some(match first {
            b'{' => Token::Object,
            b'[' => Token::List,
            b'}' | b']' => Token::Close,
            b',' => Token::Comma,
            b':' => Token::Colon,
            _ => {
                let mut is_escaped = false;
                let text = self.until(|byte| {
                    let ends = byte == b'"' && !is_escaped;
                    is_escaped = byte == b'\\' && !is_escaped;
                    ends
                });
                self.at += 1;
                Token::Text(text)
            }
        })
    }
}

/// A string without its escapes. In UTF-16, as escapes are: it has lone surrogates, and so has JSON.
fn unescaped(raw: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(raw);
    let mut units = Vec::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let plain = match c {
            '\\' => match rest.next() {
                Some('u') => {
                    let digits = rest.as_str().get(..4).unwrap_or_default();
                    if let Ok(unit) = u16::from_str_radix(digits, 16) {
                        units.push(unit);
                        rest = rest.as_str().get(4..).unwrap_or_default().chars();
                        continue;
                    }
                    'u'
                }
                Some('b') => '\u{8}',
                Some('f') => '\u{c}',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some(other) => other,
                None => '\\',
            },
            other => other,
        };
        units.extend_from_slice(plain.encode_utf16(&mut [0; 2]));
    }
    units
}

fn utf16(text: &[u8]) -> Vec<u16> {
    String::from_utf8_lossy(text).encode_utf16().collect()
}

/// The same as bytes. A lone surrogate has the three bytes that UTF-8 would have for it, as parsers write which let it pass.
fn utf8(units: &[u16]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(units.len());
    for part in char::decode_utf16(units.iter().copied()) {
        match part {
            Ok(c) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            Err(lone) => {
                let [high, low] = lone.unpaired_surrogate().to_be_bytes();
                bytes.extend_from_slice(&[
                    0xe0 | (high >> 4),
                    0x80 | ((high & 0xf) << 2) | (low >> 6),
                    0x80 | (low & 0x3f),
                ]);
            }
        }
    }
    bytes
}

/// How a writer of JSON escapes what it need not.
struct Style {
    /// What it writes as `\u` and four digits.
    is_coded: fn(char) -> bool,
    is_upper: bool,
    /// Whether it writes `\/`.
    has_slash: bool,
}

/// The escapes that the usual writers of JSON make.
const STYLES: [Style; 8] = [
    // JavaScript, Rust.
    Style { is_coded: |_| false, is_upper: false, has_slash: false },
    // Python.
    Style { is_coded: |c| !c.is_ascii(), is_upper: false, has_slash: false },
    // Java.
    Style { is_coded: |c| !c.is_ascii(), is_upper: true, has_slash: false },
    // PHP, plain and with its option for Unicode.
    Style { is_coded: |c| !c.is_ascii(), is_upper: false, has_slash: true },
    Style { is_coded: |_| false, is_upper: false, has_slash: true },
    // Go, Ruby on Rails.
    Style { is_coded: |c| matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}'), is_upper: false, has_slash: false },
    // Gson, unless it is told not to.
    Style {
        is_coded: |c| matches!(c, '<' | '>' | '&' | '=' | '\'' | '\u{2028}' | '\u{2029}'),
        is_upper: false,
        has_slash: false,
    },
    // .NET.
    Style {
        is_coded: |c| !c.is_ascii() || matches!(c, '"' | '\'' | '<' | '>' | '&' | '+' | '`'),
        is_upper: true,
        has_slash: false,
    },
];

impl Style {
    fn escaped(&self, units: &[u16]) -> Vec<u8> {
        let mut text = String::with_capacity(units.len());
        for part in char::decode_utf16(units.iter().copied()) {
            match part {
                Ok(c) if (self.is_coded)(c) => {
                    c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| self.code(*unit, &mut text));
                }
                Ok('"') => text.push_str("\\\""),
                Ok('\\') => text.push_str("\\\\"),
                Ok('/') if self.has_slash => text.push_str("\\/"),
                Ok('\u{8}') => text.push_str("\\b"),
                Ok('\u{c}') => text.push_str("\\f"),
                Ok('\n') => text.push_str("\\n"),
                Ok('\r') => text.push_str("\\r"),
                Ok('\t') => text.push_str("\\t"),
                Ok(c) if c < ' ' => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| self.code(*unit, &mut text)),
                Ok(c) => text.push(c),
                Err(lone) => self.code(lone.unpaired_surrogate(), &mut text),
            }
        }
        text.into_bytes()
    }

    fn code(&self, unit: u16, text: &mut String) {
        text.push_str(&if self.is_upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") });
    }
}
