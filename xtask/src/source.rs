//! Reads Rust source just well enough for style checks: tells code from comments and literals, finds functions, modules
//! and test code by matching braces. Knows no types and expands no macros.

use std::ops::Range;

/// A source text with two views of the same length, so that an offset means the same place in all three.
pub(crate) struct Source<'a> {
    pub(crate) text: &'a str,
    /// Comments and the insides of literals are blank.
    pub(crate) code: String,
    /// The insides of literals are blank, comments stay.
    pub(crate) prose: String,
}

/// A function with a body. `start` is at the `fn` keyword, `end` after the closing brace.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl<'a> Source<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let (mut code, mut prose) = (text.as_bytes().to_vec(), text.as_bytes().to_vec());
        for span in spans(text.as_bytes()) {
            match span {
                Span::Comment(range) => blank(&mut code, range),
                Span::Literal(range) => {
                    blank(&mut code, range.clone());
                    blank(&mut prose, range);
                }
            }
        }
        // Whole characters are blanked, so both stay valid; lossy only spares a panic if that were ever wrong.
        let [code, prose] = [code, prose].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Self { text, code, prose }
    }

    /// The line, counted from 1, that holds this offset.
    pub(crate) fn line(&self, offset: usize) -> usize {
        line_at(self.text, offset)
    }

    pub(crate) fn functions(&self) -> Vec<Function> {
        let mut functions = Vec::new();
        for start in words(&self.code, "fn") {
            let name = identifier_at(&self.code, start + "fn".len());
            // Without a name it is a function pointer type, without a body a declaration.
            if let Some(body) = self.body_after(start)
                && !name.is_empty()
            {
                functions.push(Function { name: name.to_owned(), start, end: body.end });
            }
        }
        functions
    }

    /// The names of the inline modules around this offset, outermost first.
    pub(crate) fn modules_around(&self, offset: usize) -> Vec<&str> {
        let around = words(&self.code, "mod")
            .into_iter()
            .filter(|&start| start < offset && self.body_after(start).is_some_and(|body| body.contains(&offset)));
        around.map(|start| identifier_at(&self.code, start + "mod".len())).collect()
    }

    /// The items behind `#[cfg(test)]` and its kin. A file that is all test code is told by its path, not here.
    pub(crate) fn test_code(&self) -> Vec<Range<usize>> {
        let mut ranges = Vec::new();
        for start in find_all(&self.code, "#[cfg(") {
            let attribute_end = self.code.get(start..).and_then(|rest| rest.find(']')).map_or(start, |at| start + at);
            let condition = self.code.get(start..attribute_end).unwrap_or_default();
            if !words(condition, "test").is_empty() && !condition.contains("not(test)") {
                ranges.push(start..self.body_after(attribute_end + 1).map_or(attribute_end, |body| body.end));
            }
        }
        ranges
    }

    /// The braces of the item that begins here, or nothing if a semicolon ends it first.
    fn body_after(&self, start: usize) -> Option<Range<usize>> {
        let mut brackets = 0_i32;
        let mut braces = 0_i32;
        let mut open = None;
        for (offset, byte) in self.code.bytes().enumerate().skip(start) {
            match byte {
                b'(' | b'[' if open.is_none() => brackets += 1,
                b')' | b']' if open.is_none() => brackets -= 1,
                b';' if open.is_none() && brackets == 0 => return None,
                b'{' if brackets == 0 || open.is_some() => {
                    open.get_or_insert(offset);
                    braces += 1;
                }
                b'}' if open.is_some() => {
                    braces -= 1;
                    if braces == 0 {
                        return open.map(|open| open..offset + 1);
                    }
                }
                // The enclosing item ended: there was no body.
                b'}' if brackets == 0 => return None,
                _ => {}
            }
        }
        None
    }
}

/// True for files that hold nothing but test code. The conformance suite and the test kit are libraries for the
/// compiler and tests for the reader.
pub(crate) fn is_test_file(path: &str) -> bool {
    path.starts_with("crates/testkit/")
        || path.split('/').any(|part| matches!(part, "tests" | "tests.rs" | "conformance" | "conformance.rs"))
}

/// Every place where `needle` stands.
pub(crate) fn find_all(text: &str, needle: &str) -> Vec<usize> {
    text.match_indices(needle).map(|(offset, _)| offset).collect()
}

/// Every place where `needle` stands as a whole word.
pub(crate) fn words(text: &str, needle: &str) -> Vec<usize> {
    let whole = |&offset: &usize| {
        let before = text.get(..offset).and_then(|head| head.chars().next_back());
        let after = text.get(offset + needle.len()..).and_then(|tail| tail.chars().next());
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    };
    find_all(text, needle).into_iter().filter(whole).collect()
}

/// The line, counted from 1, that holds this offset of the text.
pub(crate) fn line_at(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|&byte| byte == b'\n').count() + 1
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The name that follows this offset; a macro's `$name` counts as one.
fn identifier_at(code: &str, offset: usize) -> &str {
    let rest = code.get(offset..).unwrap_or_default().trim_start();
    let end = rest.find(|character| !is_word(character) && character != '$').unwrap_or(rest.len());
    rest.get(..end).unwrap_or_default()
}

fn blank(bytes: &mut [u8], range: Range<usize>) {
    for byte in bytes.get_mut(range).into_iter().flatten().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

/// A stretch that is not code. A literal's range leaves its quotes out.
enum Span {
    Comment(Range<usize>),
    Literal(Range<usize>),
}

fn spans(bytes: &[u8]) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let in_word = at > 0 && bytes.get(at - 1).is_some_and(|&byte| is_word(char::from(byte)));
        let (length, literal) = match rest {
            [b'/', b'/', ..] => (line_comment(rest), None),
            [b'/', b'*', ..] => (block_comment(rest), None),
            [b'"', ..] => quoted(rest, b'"'),
            [b'\'', ..] => character(rest),
            [b'r', ..] if !in_word => raw_string(rest),
            [b'b' | b'c', b'r', ..] if !in_word => raw_string(rest),
            _ => (1, Some(0..0)),
        };
        match literal {
            None => spans.push(Span::Comment(at..at + length)),
            Some(inside) if !inside.is_empty() => spans.push(Span::Literal(at + inside.start..at + inside.end)),
            Some(_) => {}
        }
        at += length.max(1);
    }
    spans
}

fn line_comment(rest: &[u8]) -> usize {
    rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len())
}

/// Block comments nest.
fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while let Some(pair) = rest.get(at..at + 2) {
        match pair {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// The whole length, and where the inside lies.
fn quoted(rest: &[u8], quote: u8) -> (usize, Option<Range<usize>>) {
    let mut at = 1;
    while let Some(&byte) = rest.get(at) {
        match byte {
            b'\\' => at += 2,
            _ if byte == quote => return (at + 1, Some(1..at)),
            _ => at += 1,
        }
    }
    (rest.len(), Some(1..rest.len()))
}

/// A quote opens a character only if one stands before the next quote; otherwise it is a lifetime.
fn character(rest: &[u8]) -> (usize, Option<Range<usize>>) {
    let width = match rest.get(1) {
        Some(b'\\') => return quoted(rest, b'\''),
        Some(byte) if *byte < 0x80 => 1,
        Some(byte) => usize::try_from(byte.leading_ones()).unwrap_or(1),
        None => return (1, Some(0..0)),
    };
    match rest.get(1 + width) {
        Some(b'\'') => (width + 2, Some(1..1 + width)),
        _ => (1, Some(0..0)),
    }
}

/// `r"…"`, `br##"…"##` and so on; a plain word that begins with r is one byte of code.
fn raw_string(rest: &[u8]) -> (usize, Option<Range<usize>>) {
    let prefix = rest.iter().take_while(|byte| byte.is_ascii_lowercase()).count();
    let hashes = rest.iter().skip(prefix).take_while(|&&byte| byte == b'#').count();
    let open = prefix + hashes;
    let is_raw = matches!(rest.get(..prefix), Some(b"r" | b"br" | b"cr")) && rest.get(open) == Some(&b'"');
    if !is_raw {
        return (1, Some(0..0));
    }
    let mut closing = vec![b'#'; hashes + 1];
    if let Some(first) = closing.first_mut() {
        *first = b'"';
    }
    let inside = rest.get(open + 1..).unwrap_or_default();
    match inside.windows(closing.len()).position(|window| window == closing) {
        Some(length) => (open + 1 + length + closing.len(), Some(open + 1..open + 1 + length)),
        None => (rest.len(), Some(open + 1..rest.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_code(text: &str, expect: &str) {
        assert_eq!(Source::new(text).code.trim_end(), expect);
    }

    #[test]
    fn comments_and_literals_are_blank_in_code() {
        check_code("a // b\nc", "a     \nc");
        check_code("a /* b /* c */ d */ e", "a                   e");
        check_code(r#"f("a \" b{")"#, r#"f("       ")"#);
        check_code("r#\"a\" {\"# }", "r#\"    \"# }");
        check_code("br\"{\" x", "br\" \" x");
        check_code("'{' '\\'' 'あ' &'a str", "' ' '  ' '   ' &'a str");
        check_code("r#fn bar\"{\"", "r#fn bar\" \"");
    }

    #[test]
    fn prose_keeps_comments_and_blanks_literals() {
        assert_eq!(Source::new("\"x\" // y").prose, "\" \" // y");
    }

    #[test]
    fn functions_are_found_with_their_whole_body() {
        let text = "trait T { fn declared(); }\nfn a(f: fn(u8)) -> [u8; { 2 }] {\n  if x { '}' }\n}\nfn $b() {}\n";
        let source = Source::new(text);
        let found: Vec<_> =
            source.functions().into_iter().map(|f| (f.name, source.line(f.start), source.line(f.end - 1))).collect();
        assert_eq!(found, [("a".to_owned(), 2, 4), ("$b".to_owned(), 5, 5)]);
    }

    #[test]
    fn modules_around_a_place_are_named_outermost_first() {
        let source = Source::new("mod a { mod b { fn f() {} } mod c {} }");
        let function = source.functions().pop().unwrap();
        assert_eq!(source.modules_around(function.start), ["a", "b"]);
    }

    #[test]
    fn test_code_ends_with_its_item() {
        let source = Source::new("#[cfg(test)]\nmod tests { fn a() {} }\n#[cfg(not(test))]\nfn b() {}\n");
        let ranges = source.test_code();
        assert_eq!(ranges.len(), 1);
        assert!(ranges[0].contains(&source.text.find("fn a").unwrap()));
        assert!(!ranges[0].contains(&source.text.find("fn b").unwrap()));
    }

    #[test]
    fn suites_and_kits_are_test_files() {
        assert!(is_test_file("crates/core/tests/table.rs"));
        assert!(is_test_file("crates/store/src/conformance/claim.rs"));
        assert!(is_test_file("crates/testkit/src/history.rs"));
        assert!(!is_test_file("crates/store/src/memory.rs"));
    }
}
