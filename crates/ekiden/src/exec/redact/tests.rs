//! Laws of the redactor: which values of a payload are secrets, in which forms they are found, and what it costs.

use ekiden_core::limits;
use ekiden_store::entropy::Entropy;

use super::*;

fn seed() -> u64 {
    std::env::var("EKIDEN_SEED").map_or(0, |seed| seed.parse().expect("seeds are numbers"))
}

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
    assert_eq!(redactor.clean_text("nothing here"), "nothing here");
    assert_eq!(Redactor::of(br#"{"token":"abc"}"#).clean_text("abc"), "abc", "too short to be one");
}

/// X6: whatever a payload looks like and however a program prints its secret, the secret is masked.
#[test]
fn secrets_are_masked_in_every_form_and_of_every_payload() {
    let deep = format!(r#"{}{{"password":"deep-down"}}{}"#, "[".repeat(120_000), "]".repeat(120_000));
    let deep_secret = format!(r#"{{"password":{}"deep-down"{}}}"#, "[".repeat(120_000), "]".repeat(120_000));
    let nested = r#"{"body":"{\"in\":\"{\\\"token\\\":\\\"nested\\\\\\\\one\\\"}\"}"}"#;
    for (payload, written) in [
        (r#"{"password":"a\"b\\c/d"}"#, r#"a"b\c/d|a\"b\\c/d|a\"b\\c\/d"#),
        (r#"{"password":"a\"b\\c/d"}"#, r#"a\\\"b\\\\c/d"#),
        (r#"{"p\u0061ssword":"caf\u00E9-\uD83E\uDD80"}"#, r"café-🦀|caf\u00e9-\ud83e\udd80|caf\u00E9-\uD83E\uDD80"),
        (r#"{"token":"<a&b>+1"}"#, r"<a&b>+1|\u003ca\u0026b\u003e+1|\u003Ca\u0026b\u003E\u002B1"),
        (r#"{"token":"c2Vj'b>A=="}"#, r"c2Vj'b>A==|c2Vj\u0027b\u003eA\u003d\u003d"),
        (r#"{"password":"first","password":"second"}"#, "first|second"),
        (r#"{"password":"nul-\u0000-\u001b-\u200b"}"#, r"nul-\0-\u{1b}-\u{200b}|nul-\u0000-\u001b-\u200b"),
        (r#"{"password":"lone-\ud800","n":1}"#, r"lone-�|lone-\ud800"),
        (r#"{"token":["list-1",{"in":"object"},12345678,1.50]}"#, "list-1|object|12345678|1.50"),
        (r#"{"token": 12345678.0}"#, "12345678.0|12345678"),
        (r#"{"access key":"with-space","x.api.key":"with-dots"}"#, "with-space|with-dots"),
        (
            r#"{"secret":"line number one\nline number two"}"#,
            "line number one|line number two|line number one\\nline number two",
        ),
        (r#"{"token":"cut off, {"#, "cut off, {"),
        (r#"{"token":"json lines"}{"token":"the next"}"#, "json lines|the next"),
        (&deep, "deep-down"),
        (&deep_secret, "deep-down"),
        (nested, r#"nested\one|nested\\one"#),
    ] {
        let shown: String = payload.chars().take(80).collect();
        let redactor = Redactor::of(payload.as_bytes());
        for form in written.split('|') {
            assert_eq!(redactor.clean_text(&format!("<< {form} >>")), "<< [redacted] >>", "{shown}");
        }
    }
    // Bytes that no text has.
    let mut stream = RedactedStream::new(Redactor::of(br#"{"password":"lone-\ud800"}"#));
    assert_eq!(&*stream.push(b"<lone-\xed\xa0\x80>"), b"<[redacted]>");
    let redactor = Redactor::of(b"{\"password\":\"raw-\xff-raw\"}");
    assert_eq!(&*RedactedStream::new(redactor).push(b"<raw-\xff-raw>"), b"<[redacted]>");
    assert_eq!(Redactor::of(br#"{"token":true,"password":null}"#).clean_text("true null"), "true null");
    let shown = redacted(nested.as_bytes());
    assert!(!shown.contains("one"), "{shown}");
}

/// JSON in strings of JSON, so many levels deep, each quote and backslash written so that it takes five bytes more a level.
fn nested(json: &str, levels: usize) -> String {
    (0..levels).fold(json.to_owned(), |inner, _| {
        format!(r#"{{"body":"{}"}}"#, inner.replace('\\', r"\u005c").replace('"', r"\u0022"))
    })
}

/// X6: a form becomes twice as long with each level of JSON in JSON. What does not fit is not shown, and takes neither memory
/// nor time.
#[test]
fn secrets_far_down_in_json_in_json_take_no_more_than_the_budget() {
    let secret = r#"{"password":"a\"b\\c"}"#;
    let redactor = Redactor::of(nested(secret, 4).as_bytes());
    for form in [r#"a"b\c"#, r#"a\"b\\c"#, r#"a\\\"b\\\\c"#] {
        assert_eq!(redactor.clean_text(form), MASK, "{form}");
    }
    let many = format!(r#"{{"password":[{}]}}"#, [r#""a\"bc""#; 400].join(","));
    for (payload, shown) in [
        (nested(secret, 30), MASK),
        (nested(secret, 150), MASK),
        (nested(&many, 20), MASK),
        // All forms of one secret fit, however often it is there.
        (nested(&many, 14), "anything"),
    ] {
        assert!(payload.len() <= limits::PAYLOAD_BYTES_MAX, "{}", payload.len());
        assert_eq!(Redactor::of(payload.as_bytes()).clean_text("anything"), shown);
    }
    let plain = nested(r#"{"password":"nothing to escape"}"#, 150);
    assert_eq!(Redactor::of(plain.as_bytes()).clean_text("it is nothing to escape."), "it is [redacted].");
}

/// X6: what counts tokens is no secret, so the numbers of a log stay; text beside it is one.
#[test]
fn a_number_of_tokens_is_shown_and_a_text_is_not() {
    let payload =
        br#"{"max_tokens":4096,"maxOutputTokens":[8192,"text-1"],"tokens":{"of":16384},"api_key_tokens":32768,
        "argv":["{\"max_tokens\":65536,\"token\":131072}"],"secret":{"max_tokens":262144}}"#;
    let written = "4096 8192 text-1 16384 32768 65536 131072 262144";
    let clean = "4096 8192 [redacted] [redacted] [redacted] 65536 [redacted] [redacted]";
    assert_eq!(Redactor::of(payload).clean_text(written), clean);
    let shown = redacted(payload);
    for (number, is_shown) in [("4096", true), ("8192", true), ("65536", true), ("16384", false), ("262144", false)] {
        assert_eq!(shown.contains(number), is_shown, "{number} in {shown}");
    }
}

/// X6: secrets that overlap are masked together, and nothing of either is left.
#[test]
fn secrets_that_overlap_leave_nothing_of_each_other() {
    let redactor = Redactor::of(br#"{"token":["abcdef","defghi","hijk","bcde"]}"#);
    assert_eq!(redactor.clean_text("-abcdefghijk-abcdefghix-"), "-[redacted]-[redacted]x-");
    for cut in 0.."-abcdefghijk-".len() {
        let mut stream = RedactedStream::new(redactor.clone());
        let (first, second) = "-abcdefghijk-".split_at(cut);
        let shown = [&*stream.push(first.as_bytes()), &*stream.push(second.as_bytes()), &*stream.end()].concat();
        assert_eq!(String::from_utf8(shown).unwrap(), "-[redacted]-", "cut at {cut}");
    }
}

/// X6: an end that may become a secret is all that is held back, so what a program shows is seen at once.
#[test]
fn a_stream_holds_back_no_more_than_the_beginning_of_a_secret() {
    let payload = format!(r#"{{"password":"hunter22","token":"{}"}}"#, "0123456789".repeat(1_000));
    let mut stream = RedactedStream::new(Redactor::of(payload.as_bytes()));
    assert_eq!(&*stream.push(b"no end of line"), b"no end of line");
    assert_eq!(&*stream.push(b"so hun"), b"so ");
    assert_eq!(&*stream.push(b"gry"), b"hungry");
    let long = "0123456789".repeat(999);
    let shown = stream.push(long.as_bytes()).len();
    assert!(shown <= MASK.len() && stream.held.len() < PIECE_BYTES, "{shown}, {}", stream.held.len());
    assert!(stream.push(b".").ends_with(b"."));
    assert_eq!(&*stream.push(b"hunter2"), b"");
    assert_eq!(stream.end(), b"hunter2", "the beginning alone is no secret");
}

/// A text of signs that JSON escapes and signs that it does not, of letters that no other part of a test has.
fn secret(entropy: &mut Entropy) -> String {
    let signs = ['q', 'w', 'x', '"', '\\', '/', '\n', 'é', '漢', '🦀', '<', '\u{1}'];
    let length = *entropy.pick(&[4, 5, 8, 20, 300, 700]);
    (0..length).map(|_| *entropy.pick(&signs)).collect()
}

/// X6: whatever the secrets are, in whatever pieces and forms they are written: they are not in what is kept, and what stands between
/// them is, byte for byte.
#[test]
fn random_secrets_are_masked_and_random_text_comes_through_in_any_pieces() {
    for number in 0..200 {
        let entropy = &mut Entropy::from_seed(seed() ^ number << 20);
        let secrets: Vec<String> = (0..1 + entropy.below(4)).map(|_| secret(entropy)).collect();
        let fields: Vec<String> = secrets
            .iter()
            .map(|secret| {
                let value = serde_json::to_string(secret).unwrap();
                let depth = entropy.below(3);
                format!(r#""password":{}{value}{}"#, "[".repeat(depth), "]".repeat(depth))
            })
            .collect();
        let payload = format!("{{{}}}", fields.join(","));
        let (mut written, mut plain) = (Vec::new(), Vec::new());
        for _ in 0..entropy.below(12) {
            let length = entropy.below(40);
            let between: Vec<u8> = (0..length).map(|_| *entropy.pick(b"abc \r{}[]:,.0\x00\xff\xe6")).collect();
            written.extend_from_slice(&between);
            plain.extend_from_slice(&between);
            // Never two in a row: they would be one mask.
            written.push(b'|');
            plain.push(b'|');
            let secret = entropy.pick(&secrets).clone();
            let form = match entropy.below(4) {
                0 => {
                    let text = serde_json::to_string(&secret).unwrap();
                    text[1..text.len() - 1].to_owned()
                }
                1 => secret.encode_utf16().fold(String::new(), |form, unit| match unit {
                    0x20..0x7f if !matches!(unit, 0x22 | 0x5c) => {
                        form + &char::from_u32(unit.into()).unwrap().to_string()
                    }
                    0x0a => form + "\\n",
                    0x22 => form + "\\\"",
                    0x5c => form + "\\\\",
                    _ => form + &format!("\\u{unit:04x}"),
                }),
                _ => secret,
            };
            written.extend_from_slice(form.as_bytes());
            plain.extend_from_slice(MASK.as_bytes());
        }
        let mut stream = RedactedStream::new(Redactor::of(payload.as_bytes()));
        let (mut shown, mut rest) = (Vec::new(), written.as_slice());
        while !rest.is_empty() {
            let most = rest.len().min(*entropy.pick(&[3, 64, 4_096]));
            let (piece, after) = rest.split_at(1 + entropy.below(most));
            shown.extend_from_slice(&stream.push(piece));
            rest = after;
        }
        shown.extend_from_slice(&stream.end());
        assert_eq!(
            String::from_utf8_lossy(&shown),
            String::from_utf8_lossy(&plain),
            "seed {} number {number}: {payload}\n{}",
            seed(),
            written.escape_ascii()
        );
    }
}
