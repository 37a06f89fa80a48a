//! Checks that the two READMEs say the same: as many headings, and the same code blocks in the same order. What they
//! say in prose nobody checks.

use super::document;
use crate::repo::TextFile;
use crate::report::Finding;

const ENGLISH: &str = "README.md";
const JAPANESE: &str = "README.ja.md";

pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let why = "the project speaks English and Japanese";
    let (english, japanese) = match (document(files, ENGLISH, why), document(files, JAPANESE, why)) {
        (Ok(english), Ok(japanese)) => (Outline::of(&english.text), Outline::of(&japanese.text)),
        (english, japanese) => return [english.err(), japanese.err()].into_iter().flatten().collect(),
    };
    compare(&english, &japanese)
}

/// What both must share. Headings by level, blocks with the line they start at.
#[derive(Default)]
struct Outline {
    headings: Vec<usize>,
    blocks: Vec<(usize, String)>,
}

impl Outline {
    fn of(text: &str) -> Self {
        let mut outline = Self::default();
        let mut open: Option<(usize, String)> = None;
        for (index, line) in text.lines().enumerate() {
            let is_fence = line.trim_start().starts_with("```");
            match open.take() {
                Some(block) if is_fence => outline.blocks.push(block),
                Some((start, block)) => open = Some((start, format!("{block}\n{line}"))),
                None if is_fence => open = Some((index + 1, line.trim().to_owned())),
                None if line.starts_with('#') => outline.headings.push(line.bytes().take_while(|&b| b == b'#').count()),
                None => {}
            }
        }
        outline.blocks.extend(open);
        outline
    }
}

fn compare(english: &Outline, japanese: &Outline) -> Vec<Finding> {
    let why = "who reads one README must not miss what the other says";
    let mut findings = Vec::new();
    if english.headings != japanese.headings {
        let what = format!("headings differ from {ENGLISH}: {:?} against {:?}", japanese.headings, english.headings);
        findings.push(Finding::new(JAPANESE, 1, what, why));
    }
    if english.blocks.len() != japanese.blocks.len() {
        let what = format!("{} code blocks, {ENGLISH} has {}", japanese.blocks.len(), english.blocks.len());
        findings.push(Finding::new(JAPANESE, 1, what, why));
    }
    for ((line, ours), (other, theirs)) in japanese.blocks.iter().zip(&english.blocks) {
        if ours != theirs {
            findings.push(Finding::new(JAPANESE, *line, format!("code block differs from {ENGLISH}:{other}"), why));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(english: &str, japanese: &str) -> usize {
        check(&[TextFile::new(ENGLISH, english), TextFile::new(JAPANESE, japanese)]).len()
    }

    const ENGLISH_TEXT: &str = "# A\ntext\n```sh\n# run\ncargo run\n```\n## B\n";

    #[test]
    fn the_same_outline_in_two_languages_passes() {
        assert_eq!(found(ENGLISH_TEXT, "# あ\n文\n```sh\n# run\ncargo run\n```\n## い\n"), 0);
    }

    #[test]
    fn a_missing_heading_a_missing_block_and_a_changed_command_are_found() {
        assert_eq!(found(ENGLISH_TEXT, "# あ\n```sh\n# run\ncargo run\n```\n"), 1);
        assert_eq!(found(ENGLISH_TEXT, "# あ\n## い\n"), 1);
        assert_eq!(found(ENGLISH_TEXT, "# あ\n```sh\n# run\ncargo test\n```\n## い\n"), 1);
    }

    #[test]
    fn a_missing_readme_is_found() {
        assert_eq!(check(&[TextFile::new(ENGLISH, "")]).len(), 1);
    }
}
