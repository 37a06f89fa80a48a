//! Checks docs/security.md against the tests: every row of its table names at least one test, and every test that it
//! names exists. What a row promises in prose is not checked here.

use super::requirements::{canonical, tests_of};
use super::{code_spans, document};
use crate::repo::TextFile;
use crate::report::Finding;

const DOCUMENT: &str = "docs/security.md";

const WHY: &str = "a promise about security counts only while a test holds it";

pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let text = match document(files, DOCUMENT, WHY) {
        Ok(file) => &file.text,
        Err(missing) => return vec![missing],
    };
    let tests: Vec<_> = files.iter().filter(|file| file.is_rust()).flat_map(tests_of).collect();
    let mut findings = Vec::new();
    let mut rows = 0;
    for (index, line) in text.lines().enumerate().filter(|(_, line)| is_row(line)) {
        rows += 1;
        let names: Vec<_> = code_spans(last_cell(line)).map(canonical).collect();
        if names.is_empty() {
            findings.push(Finding::new(DOCUMENT, index + 1, "this row names no test", WHY));
        }
        let unknown = names.iter().filter(|name| !tests.iter().any(|test| test.name == **name));
        findings
            .extend(unknown.map(|name| Finding::new(DOCUMENT, index + 1, format!("there is no test `{name}`"), WHY)));
    }
    if rows == 0 {
        findings.push(Finding::new(DOCUMENT, 1, "has no rows `| S1 | promise | to whom | tests |`", WHY));
    }
    findings
}

/// A row of the table begins with its id: `| S1 |`.
fn is_row(line: &str) -> bool {
    let id = line.strip_prefix("| S").and_then(|rest| rest.split_once(' '));
    id.is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn last_cell(line: &str) -> &str {
    line.trim_end().trim_end_matches('|').rsplit('|').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: &str = "#[test]\nfn strangers_read_nothing() {}\n";

    #[track_caller]
    fn findings(document: &str) -> Vec<String> {
        let files = [TextFile::new(DOCUMENT, document), TextFile::new("crates/server/tests/tokens.rs", TEST)];
        check(&files).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_row_names_tests_that_exist() {
        assert_eq!(findings("| S1 | a | b | `server::tokens::strangers_read_nothing` |\n"), Vec::<String>::new());
        let wrong = findings("| S1 | a | b | `server::tokens::gone` |\n");
        assert!(wrong.len() == 1 && wrong[0].contains("no test `server::tokens::gone`"), "{wrong:#?}");
    }

    #[test]
    fn a_row_or_a_table_without_tests_is_found() {
        assert!(findings("| S1 | `a` | b | soon |\n")[0].contains("names no test"));
        assert!(findings("# Security\n")[0].contains("has no rows"));
    }
}
