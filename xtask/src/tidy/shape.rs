//! Checks of a source file's shape: its opening comment, its name, its length and the length of its functions.

use crate::repo::TextFile;
use crate::report::Finding;
use crate::source::Source;

/// Beyond this a file has more than one subject.
const FILE_LINES_MAX: usize = 1_000;

/// One screen; what does not fit is no longer seen whole.
const FUNCTION_LINES_MAX: usize = 70;

/// Names that say nothing about what the file holds.
const EMPTY_NAMES: [&str; 5] = ["utils", "common", "helpers", "types", "misc"];

/// A file that may be longer, and why.
pub(super) struct LongFile {
    pub(super) path: &'static str,
    pub(super) reason: &'static str,
}

/// A function that may be longer, up to `lines`, and why. The number is a ratchet: it only goes down.
pub(super) struct LongFunction {
    pub(super) path: &'static str,
    pub(super) name: &'static str,
    pub(super) lines: usize,
    pub(super) reason: &'static str,
}

pub(super) const LONG_FILES: &[LongFile] = &[];

pub(super) const LONG_FUNCTIONS: &[LongFunction] = &[];

/// Where the allow lists stand, for findings about their entries.
const HERE: &str = "xtask/src/tidy/shape.rs";

pub(super) fn check(file: &TextFile, source: &Source<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if opens_a_module(&file.path) && !source.text.starts_with("//!") {
        let why = "a reader learns first what the module owns and what it does not";
        findings.push(Finding::new(&file.path, 1, "does not open with a `//!` comment", why));
    }
    let names = file.path.trim_end_matches(".rs").split('/');
    for name in names.filter(|name| EMPTY_NAMES.contains(name)) {
        let why = "a file is named after the noun that it defines";
        findings.push(Finding::new(&file.path, 1, format!("\"{name}\" is no name for a file"), why));
    }
    findings
}

fn opens_a_module(path: &str) -> bool {
    let mut parts = path.split('/');
    match parts.next() {
        Some("crates") => parts.nth(1) == Some("src"),
        Some("xtask") => parts.next() == Some("src"),
        _ => false,
    }
}

/// Lengths are checked over all files at once, so that an entry of an allow list that nothing needs is noticed.
pub(super) fn check_sizes(files: &[TextFile], long: &[LongFile], long_functions: &[LongFunction]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut files_used = vec![false; long.len()];
    let mut functions_used = vec![false; long_functions.len()];
    for file in files.iter().filter(|file| file.is_rust()) {
        findings.extend(file_length(file, long, &mut files_used));
        findings.extend(function_lengths(file, long_functions, &mut functions_used));
    }
    let stale_files = long.iter().zip(files_used).filter(|(_, used)| !used).map(|(entry, _)| entry.path.to_owned());
    let stale_functions = long_functions
        .iter()
        .zip(functions_used)
        .filter(|(_, used)| !used)
        .map(|(entry, _)| format!("{} in {}", entry.name, entry.path));
    for entry in stale_files.chain(stale_functions) {
        let why = "what became short stays short; remove the entry";
        findings.push(Finding::new(HERE, 1, format!("the allow list needs no entry for {entry}"), why));
    }
    findings.extend(entries_without_reason(long, long_functions));
    findings
}

fn entries_without_reason(long: &[LongFile], long_functions: &[LongFunction]) -> Vec<Finding> {
    let files = long.iter().map(|entry| (entry.path, entry.reason));
    let functions = long_functions.iter().map(|entry| (entry.name, entry.reason));
    let silent = files.chain(functions).filter(|(_, reason)| reason.trim().is_empty());
    let why = "an exception without a reason is a habit";
    silent.map(|(name, _)| Finding::new(HERE, 1, format!("the entry for {name} gives no reason"), why)).collect()
}

fn file_length(file: &TextFile, long: &[LongFile], used: &mut [bool]) -> Option<Finding> {
    let lines = file.text.lines().count();
    if lines <= FILE_LINES_MAX {
        return None;
    }
    if mark(used, long.iter().position(|entry| entry.path == file.path)) {
        return None;
    }
    let what = format!("{lines} lines, at most {FILE_LINES_MAX} are allowed");
    Some(Finding::new(&file.path, lines, what, "a long file has more than one subject; split it by noun"))
}

fn function_lengths(file: &TextFile, long: &[LongFunction], used: &mut [bool]) -> Vec<Finding> {
    let source = Source::new(&file.text);
    let mut findings = Vec::new();
    for function in source.functions() {
        let first = source.line(function.start);
        let lines = source.line(function.end) - first + 1;
        if lines <= FUNCTION_LINES_MAX {
            continue;
        }
        let entry = long.iter().position(|entry| entry.path == file.path && entry.name == function.name);
        mark(used, entry);
        let what = match entry.and_then(|index| long.get(index)) {
            None => format!("fn {} has {lines} lines, at most {FUNCTION_LINES_MAX} are allowed", function.name),
            Some(entry) if lines > entry.lines => {
                format!("fn {} grew to {lines} lines, its entry allows {}", function.name, entry.lines)
            }
            Some(entry) if lines < entry.lines => {
                format!("fn {} shrank to {lines} lines, lower its entry of {}", function.name, entry.lines)
            }
            Some(_) => continue,
        };
        let why = "what does not fit on a screen is not seen whole; branch in the caller, straight lines below";
        findings.push(Finding::new(&file.path, first, what, why));
    }
    findings
}

/// Notes that an entry of an allow list was needed; false if there is none.
fn mark(used: &mut [bool], entry: Option<usize>) -> bool {
    match entry.and_then(|index| used.get_mut(index)) {
        Some(flag) => {
            *flag = true;
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(path: &str, text: &str) -> usize {
        let file = TextFile::new(path, text);
        check(&file, &Source::new(text)).len()
    }

    fn function(lines: usize) -> TextFile {
        TextFile::new("crates/core/src/a.rs", &format!("//! A.\nfn a() {{\n{}}}\n", "    b();\n".repeat(lines - 2)))
    }

    fn entry(lines: usize) -> LongFunction {
        LongFunction { path: "crates/core/src/a.rs", name: "a", lines, reason: "a table" }
    }

    #[test]
    fn a_module_without_an_opening_comment_is_found() {
        assert_eq!(shape("crates/core/src/lease.rs", "//! Leases.\n"), 0);
        assert_eq!(shape("crates/core/src/lease.rs", "use std::fmt;\n"), 1);
        assert_eq!(shape("crates/core/tests/lease.rs", "use std::fmt;\n"), 0);
        assert_eq!(shape("xtask/src/main.rs", ""), 1);
    }

    #[test]
    fn a_name_that_says_nothing_is_found() {
        assert_eq!(shape("crates/core/src/utils.rs", "//! A.\n"), 1);
        assert_eq!(shape("crates/core/tests/common/mod.rs", "//! A.\n"), 1);
        assert_eq!(shape("crates/core/src/completer.rs", "//! A.\n"), 0);
    }

    #[test]
    fn a_long_file_needs_an_entry_and_a_short_one_must_not_have_one() {
        let long = TextFile::new("a.rs", &"x\n".repeat(FILE_LINES_MAX + 1));
        let short = TextFile::new("a.rs", &"x\n".repeat(FILE_LINES_MAX));
        let allowed = [LongFile { path: "a.rs", reason: "a table" }];
        let silent = [LongFile { path: "a.rs", reason: "" }];
        assert_eq!(check_sizes(std::slice::from_ref(&long), &[], &[]).len(), 1);
        assert_eq!(check_sizes(std::slice::from_ref(&long), &allowed, &[]).len(), 0);
        assert_eq!(check_sizes(std::slice::from_ref(&long), &silent, &[]).len(), 1);
        assert_eq!(check_sizes(std::slice::from_ref(&short), &[], &[]).len(), 0);
        assert_eq!(check_sizes(std::slice::from_ref(&short), &allowed, &[]).len(), 1);
    }

    #[test]
    fn a_long_function_is_held_to_its_entry() {
        let found = |lines, entries: &[LongFunction]| check_sizes(&[function(lines)], &[], entries).len();
        assert_eq!(found(FUNCTION_LINES_MAX, &[]), 0);
        assert_eq!(found(FUNCTION_LINES_MAX + 1, &[]), 1);
        assert_eq!(found(80, &[entry(80)]), 0);
        assert_eq!(found(81, &[entry(80)]), 1, "grew");
        assert_eq!(found(79, &[entry(80)]), 1, "shrank");
        assert_eq!(found(60, &[entry(80)]), 1, "stale");
    }
}
