//! Checks ARCHITECTURE.md: short enough to be read in one sitting, and every path that it names exists.

use super::{code_spans, document};
use crate::repo::TextFile;
use crate::report::Finding;

const DOCUMENT: &str = "ARCHITECTURE.md";

/// What a newcomer reads in half an hour.
const LINES_MAX: usize = 400;

/// A code span that begins like this names a place in the repository.
const FOLDERS: [&str; 7] = ["crates/", "docs/", "xtask/", "ui/", "bench/", "tests/", ".ci/"];

pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let text = match document(files, DOCUMENT, "it is the map for whoever comes new") {
        Ok(file) => &file.text,
        Err(missing) => return vec![missing],
    };
    let mut findings = Vec::new();
    let lines = text.lines().count();
    if lines > LINES_MAX {
        let what = format!("{lines} lines, at most {LINES_MAX} are allowed");
        findings.push(Finding::new(DOCUMENT, lines, what, "a map that is too long is not read"));
    }
    for (index, line) in text.lines().enumerate() {
        for path in code_spans(line).filter_map(repository_path) {
            if !exists(files, path) {
                let why = "whoever follows the map must arrive";
                findings.push(Finding::new(DOCUMENT, index + 1, format!("`{path}` does not exist"), why));
            }
        }
    }
    findings
}

/// The path inside a code span, without `:line` or a closing slash. A pattern (`*`, `{a,b}`, `<name>`, `…`) names no
/// one place, and a command has blanks: neither is a path.
fn repository_path(span: &str) -> Option<&str> {
    let is_pattern = span.contains(['*', '{', '<', '…', ' ']);
    let is_place = FOLDERS.iter().any(|folder| span.starts_with(folder));
    let path = span.split([':', '#']).next()?.trim_end_matches('/');
    (is_place && !is_pattern).then_some(path)
}

fn exists(files: &[TextFile], path: &str) -> bool {
    files.iter().any(|file| file.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_count(text: &str, expect: usize) {
        let files = [TextFile::new(DOCUMENT, text), TextFile::new("crates/core/src/lease.rs", "")];
        let findings = check(&files);
        assert_eq!(findings.len(), expect, "{findings:?}");
    }

    #[test]
    fn a_path_that_does_not_exist_is_found() {
        check_count("see `crates/core/src/lease.rs`, `crates/core/` and `crates/core/src/lease.rs:12`\n", 0);
        check_count("see `crates/core/src/lock.rs` and `crates/co`\n", 2);
    }

    #[test]
    fn patterns_words_and_commands_are_no_paths() {
        check_count("`crates/store-*`, `crates/<name>/src`, `a/b`, `docs/x y`, crates/none\n", 0);
    }

    #[test]
    fn a_long_document_is_found() {
        check_count(&"a\n".repeat(LINES_MAX), 0);
        check_count(&"a\n".repeat(LINES_MAX + 1), 1);
    }
}
