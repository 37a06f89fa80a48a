//! Checks of words in Rust source that promise work instead of doing it, hide a test, wait by the clock, or state an
//! invariant too briefly to be one. Literals are not read, so a text may speak of any of these.

use crate::repo::TextFile;
use crate::report::Finding;
use crate::source::{self, Source};

/// Words in code or comments, each with what is wrong with it. The last two are split so that this file passes.
const FORBIDDEN: [(&str, &str); 4] = [
    ("todo!", "unfinished work is an issue, not a panic"),
    ("unimplemented!", "unfinished work is an issue, not a panic"),
    (concat!("FIX", "ME"), "a known fault is mended or is an issue"),
    (concat!("XX", "X"), "a known fault is mended or is an issue"),
];

/// Fewer words cannot say what holds and why.
const INVARIANT_WORDS_MIN: usize = 3;

pub(super) fn check(file: &TextFile, source: &Source<'_>) -> Vec<Finding> {
    let mut findings = forbidden_words(file, source);
    findings.extend(ignored_tests(file, source));
    findings.extend(sleeping_tests(file, source));
    findings.extend(short_invariants(file, source));
    findings
}

fn forbidden_words(file: &TextFile, source: &Source<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (word, why) in FORBIDDEN {
        // A macro's name counts in code only: comments may speak of it.
        let view = if word.ends_with('!') { &source.code } else { &source.prose };
        for offset in source::words(view, word) {
            findings.push(Finding::new(&file.path, source.line(offset), format!("`{word}`"), why));
        }
    }
    findings
}

fn ignored_tests(file: &TextFile, source: &Source<'_>) -> Vec<Finding> {
    let places = ["#[ignore", "ignore)]"].into_iter().flat_map(|form| source::find_all(&source.code, form));
    let why = "no test is skipped in silence; mend it or delete it";
    places.map(|offset| Finding::new(&file.path, source.line(offset), "an ignored test", why)).collect()
}

fn sleeping_tests(file: &TextFile, source: &Source<'_>) -> Vec<Finding> {
    let tests = source.test_code();
    let is_test = |offset| source::is_test_file(&file.path) || tests.iter().any(|range| range.contains(&offset));
    let sleeps = |&offset: &usize| {
        let before = source.code.get(..offset).unwrap_or_default();
        let after = source.code.get(offset + "sleep".len()..).unwrap_or_default();
        let from_a_clock = before.ends_with("thread::") || before.ends_with("time::");
        let called_bare = after.starts_with('(') && !before.ends_with(['.', ':']) && !before.ends_with("fn ");
        from_a_clock || called_bare
    };
    let places = source::find_all(&source.code, "sleep").into_iter().filter(sleeps).filter(|&offset| is_test(offset));
    let why = "sleeping tests are slow and still flaky; use virtual time or wait for a signal";
    places.map(|offset| Finding::new(&file.path, source.line(offset), "a test sleeps", why)).collect()
}

fn short_invariants(file: &TextFile, source: &Source<'_>) -> Vec<Finding> {
    if source::is_test_file(&file.path) {
        return Vec::new();
    }
    let tests = source.test_code();
    let mut findings = Vec::new();
    for offset in source::find_all(&source.code, ".expect(") {
        let message = literal_at(source, offset + ".expect(".len());
        let is_test = tests.iter().any(|range| range.contains(&offset));
        if let Some(message) = message
            && !is_test
            && message.split_whitespace().count() < INVARIANT_WORDS_MIN
        {
            let what = format!("expect(\"{message}\") states no invariant");
            let why = "whoever meets the panic must learn what was believed to hold; three words or more";
            findings.push(Finding::new(&file.path, source.line(offset), what, why));
        }
    }
    findings
}

/// The string literal that begins here, white space aside; nothing if something else does.
fn literal_at<'a>(source: &Source<'a>, offset: usize) -> Option<&'a str> {
    let rest = source.code.get(offset..)?;
    let open = rest.find('"')?;
    if !rest.get(..open)?.chars().all(|before| before.is_whitespace() || before == 'r' || before == '#') {
        return None;
    }
    let start = offset + open + 1;
    let length = source.code.get(start..)?.find('"')?;
    source.text.get(start..start + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_count(path: &str, text: &str, expect: usize) {
        let findings = check(&TextFile::new(path, text), &Source::new(text));
        assert_eq!(findings.len(), expect, "{text}: {findings:?}");
    }

    const SRC: &str = "crates/core/src/a.rs";

    #[test]
    fn promises_are_found_in_code_and_comments_but_not_in_literals() {
        check_count(SRC, "fn a() { todo!() }", 1);
        check_count(SRC, "fn a() { unimplemented!(\"x\") }", 1);
        check_count(SRC, concat!("// FIX", "ME later"), 1);
        check_count(SRC, concat!("// XX", "X later"), 1);
        check_count(SRC, "fn a() { b(\"todo! FIXME XXX\") } // no todo! here", 0);
        check_count(SRC, concat!("// id of the form XX", "XX"), 0);
    }

    #[test]
    fn an_ignored_test_is_found() {
        check_count(SRC, "#[test]\n#[ignore]\nfn a() {}", 1);
        check_count(SRC, "#[test]\n#[ignore = \"slow\"]\nfn a() {}", 1);
        check_count(SRC, "#[cfg_attr(miri, ignore)]\nfn a() {}", 1);
        check_count(SRC, "#[test]\nfn a() {}", 0);
    }

    #[test]
    fn sleep_is_found_in_tests_only() {
        check_count("crates/core/tests/a.rs", "fn a() { std::thread::sleep(d); }", 1);
        check_count("crates/core/tests/a.rs", "use tokio::time::sleep;", 1);
        check_count("crates/core/tests/a.rs", "use tokio::time::{self, sleep};\nfn a() { sleep(d) }", 1);
        check_count("crates/core/tests/a.rs", "fn a() { clock.sleep(d); }", 0);
        check_count(SRC, "#[cfg(test)]\nmod tests { fn a() { tokio::time::sleep(d).await; } }", 1);
        check_count(SRC, "fn a() { tokio::time::sleep(d).await; }", 0);
    }

    #[test]
    fn a_short_invariant_is_found_outside_tests_only() {
        check_count(SRC, "fn a() { b.expect(\"works\"); }", 1);
        check_count(SRC, "fn a() { b.expect(\n  \"it works\"\n); }", 1);
        check_count(SRC, "fn a() { b.expect(\"ready index holds only live tasks\"); }", 0);
        check_count(SRC, "fn a() { parser.expect(Token::Comma, \"x\"); }", 0);
        check_count(SRC, "#[cfg(test)]\nmod tests { fn a() { b.expect(\"works\"); } }", 0);
        check_count("crates/core/tests/a.rs", "fn a() { b.expect(\"works\"); }", 0);
    }
}
