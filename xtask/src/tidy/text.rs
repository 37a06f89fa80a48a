//! Checks that hold for every text file: line ends, trailing blanks, and no path of somebody's machine.

use crate::repo::TextFile;
use crate::report::Finding;

/// Spelled in two halves, so that this file passes its own check.
const MACHINE_FOLDERS: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

pub(super) fn check(file: &TextFile) -> Vec<Finding> {
    let mut findings = machine_paths(file);
    if !is_recorded(&file.path) {
        findings.extend(line_ends(file));
    }
    findings
}

/// Recorded output and fixtures are kept byte for byte, built files as the builder wrote them.
fn is_recorded(path: &str) -> bool {
    path.ends_with(".snap") || path.starts_with("ui/dist/") || path.split('/').any(|part| part == "fixtures")
}

fn line_ends(file: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in file.text.split('\n').enumerate() {
        if line.ends_with('\r') {
            let why = "one line end everywhere keeps diffs quiet";
            findings.push(Finding::new(&file.path, index + 1, "carriage return before the line end", why));
        } else if line.ends_with([' ', '\t']) {
            findings.push(Finding::new(&file.path, index + 1, "trailing whitespace", "it makes noise in diffs"));
        }
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        let lines = file.text.lines().count();
        findings.push(Finding::new(&file.path, lines, "no newline at the end", "tools that append need one"));
    }
    findings
}

fn machine_paths(file: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for folder in MACHINE_FOLDERS {
            // Behind a name it is the middle of a longer path, such as a URL's.
            let is_absolute = |(offset, _): (usize, &str)| {
                let before = line.get(..offset).and_then(|head| head.chars().next_back());
                !before.is_some_and(|before| before.is_alphanumeric() || "._-}>~*".contains(before))
            };
            if line.match_indices(folder).any(is_absolute) {
                let why = "it exists on one machine only; name it from the repository root";
                findings.push(Finding::new(&file.path, index + 1, format!("absolute path under {folder}"), why));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_lines(path: &str, text: &str, expect: &[usize]) {
        let findings = check(&TextFile::new(path, text));
        let expected: Vec<_> = expect.iter().map(|line| format!("{path}:{line}: ")).collect();
        assert_eq!(findings.len(), expected.len(), "{findings:?}");
        for (finding, start) in findings.iter().zip(expected) {
            assert!(finding.to_string().starts_with(&start), "{finding}");
        }
    }

    #[test]
    fn line_ends_and_trailing_blanks_are_found() {
        check_lines("a.md", "one\ntwo\n", &[]);
        check_lines("a.md", "", &[]);
        check_lines("a.md", "one \ntwo\t\n", &[1, 2]);
        check_lines("a.md", "one\r\ntwo\n", &[1]);
        check_lines("a.md", "one\ntwo", &[2]);
    }

    #[test]
    fn recorded_bytes_may_end_as_they_like() {
        check_lines("crates/cli/tests/snapshots/help.snap", "a  \n", &[]);
        check_lines("crates/core/fixtures/torn.jsonl", "{", &[]);
    }

    #[test]
    fn absolute_machine_paths_are_found_and_relative_ones_are_not() {
        for folder in MACHINE_FOLDERS {
            check_lines("a.rs", &format!("let a = \"{folder}x\";\n"), &[1]);
            check_lines("a.rs", &format!("let a = \"https://example.com{folder}x\";\n"), &[]);
            check_lines("a.rs", &format!("let a = \"docs{folder}x\";\n"), &[]);
        }
    }
}
