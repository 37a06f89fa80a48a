//! `cargo xtask tidy`: style as a test. Each check is a function from a file (or a few) to findings; this module only
//! gathers the files and hands them round.

mod architecture;
mod readme;
mod requirements;
mod security;
mod shape;
mod text;
mod wording;

use crate::repo::{self, TextFile};
use crate::report::{self, Failure, Finding};
use crate::source::Source;

pub(crate) fn run() -> Result<(), Failure> {
    let files = repo::text_files()?;
    report::conclude("tidy", check(&files))
}

fn check(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        findings.extend(text::check(file));
        if file.is_rust() {
            let source = Source::new(&file.text);
            findings.extend(shape::check(file, &source));
            findings.extend(wording::check(file, &source));
        }
    }
    findings.extend(shape::check_sizes(files, shape::LONG_FILES, shape::LONG_FUNCTIONS));
    findings.extend(architecture::check(files));
    findings.extend(requirements::check(files));
    findings.extend(readme::check(files));
    findings.extend(security::check(files));
    findings
}

/// The document that a check is about; its absence is a finding as well.
fn document<'a>(files: &'a [TextFile], path: &str, why: &'static str) -> Result<&'a TextFile, Finding> {
    files.iter().find(|file| file.path == path).ok_or_else(|| Finding::new(path, 1, "is missing", why))
}

/// The code spans of a line of Markdown: what stands between pairs of backticks.
fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_document_is_a_finding() {
        let findings = check(&[]);
        for path in ["ARCHITECTURE.md", "docs/requirements.md", "docs/security.md", "README.md"] {
            assert!(findings.iter().any(|finding| finding.to_string().starts_with(path)), "{path}: {findings:?}");
        }
    }

    #[test]
    fn code_spans_stand_between_backticks() {
        assert_eq!(code_spans("a `b` c `d::e`, f").collect::<Vec<_>>(), ["b", "d::e"]);
    }
}
