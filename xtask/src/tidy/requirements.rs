//! Checks docs/requirements.md against the tests, both ways: every requirement has one row, every test that a row names
//! exists and cites the requirement, and every citation in a test's doc comment is in its row.
//!
//! A test is a function with a test attribute, or any function of a suite (see `source::is_test_file`); it cites by a
//! doc line that begins with ids: `/// R8` or `/// R8, R13: why`.

use std::collections::{BTreeMap, BTreeSet};

use super::{code_spans, document};
use crate::repo::TextFile;
use crate::report::Finding;
use crate::source::{self, Function, Source};

const DOCUMENT: &str = "docs/requirements.md";

/// How many requirements each letter has. Fixed: an id is never reused and none is dropped.
const LETTERS: [(char, usize); 6] = [('R', 22), ('Q', 15), ('W', 14), ('M', 10), ('L', 14), ('X', 6)];

/// What a row without tests holds in their place.
const NO_TESTS: &str = "–";

const WHY: &str = "the table is how anybody learns what holds today; it must be true";

pub(super) fn check(files: &[TextFile]) -> Vec<Finding> {
    let table = match document(files, DOCUMENT, WHY) {
        Ok(file) => &file.text,
        Err(missing) => return vec![missing],
    };
    let tests: Vec<Test> = files.iter().filter(|file| file.is_rust()).flat_map(tests_of).collect();
    let (rows, mut findings) = parse(table);
    findings.extend(complete(&rows));
    for row in &rows {
        findings.extend(status(row));
        findings.extend(named_tests(row, &tests));
    }
    findings.extend(citations(&rows, &tests));
    findings
}

/// One line of the table.
struct Row {
    line: usize,
    id: String,
    tests: Vec<String>,
    status: String,
}

/// A function that can prove a requirement, with the ids that its doc comment cites.
pub(super) struct Test {
    path: String,
    line: usize,
    /// `core::retry::delay_is_capped`: crate folder, file, inline modules, function; `tests` modules left out.
    pub(super) name: String,
    cites: BTreeSet<String>,
}

fn parse(text: &str) -> (Vec<Row>, Vec<Finding>) {
    let (mut rows, mut findings) = (Vec::new(), Vec::new());
    for (index, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with('|')) {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let Some(id) = cells.first().filter(|cell| is_id(cell)) else { continue };
        match cells.as_slice() {
            [_, _, tests, status] => {
                let names: Vec<_> = code_spans(tests).map(canonical).collect();
                if names.is_empty() && *tests != NO_TESTS {
                    let what = format!("{id}: tests are names in backticks, or {NO_TESTS} for none");
                    findings.push(Finding::new(DOCUMENT, index + 1, what, WHY));
                }
                rows.push(Row { line: index + 1, id: (*id).to_owned(), tests: names, status: (*status).to_owned() });
            }
            _ => {
                let what = format!("{id} has {} cells, a row has four: id, requirement, tests, status", cells.len());
                findings.push(Finding::new(DOCUMENT, index + 1, what, WHY));
            }
        }
    }
    (rows, findings)
}

/// Every id has exactly one row, and there is no row of an id that does not exist.
fn complete(rows: &[Row]) -> Vec<Finding> {
    let known = ids();
    let mut seen = BTreeMap::new();
    let mut findings = Vec::new();
    for row in rows {
        if !known.contains(&row.id) {
            findings.push(Finding::new(DOCUMENT, row.line, format!("{} is not a requirement", row.id), WHY));
        }
        if let Some(first) = seen.insert(&row.id, row.line) {
            let what = format!("{} has a second row, the first is on line {first}", row.id);
            findings.push(Finding::new(DOCUMENT, row.line, what, WHY));
        }
    }
    let missing = known.iter().filter(|id| !seen.contains_key(id));
    findings.extend(missing.map(|id| Finding::new(DOCUMENT, 1, format!("{id} has no row"), WHY)));
    findings
}

fn status(row: &Row) -> Option<Finding> {
    let what = match (row.status.as_str(), row.tests.is_empty()) {
        ("done" | "partly", false) | ("open", true) => return None,
        ("done" | "partly", true) => format!("{} is {} but names no test", row.id, row.status),
        ("open", false) => format!("{} is open but names a test; it is partly or done", row.id),
        _ => format!("{} has status \"{}\"; it is done, partly or open", row.id, row.status),
    };
    Some(Finding::new(DOCUMENT, row.line, what, WHY))
}

fn named_tests(row: &Row, tests: &[Test]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in &row.tests {
        let matching: Vec<_> = tests.iter().filter(|test| test.name == *name).collect();
        let what = if matching.is_empty() {
            let function = name.rsplit("::").next().unwrap_or(name);
            let namesake = tests.iter().find(|test| test.name.rsplit("::").next() == Some(function));
            let hint = namesake.map_or(String::new(), |test| format!("; there is `{}`", test.name));
            format!("{}: no test `{name}`{hint}", row.id)
        } else if matching.iter().any(|test| test.cites.contains(&row.id)) {
            continue;
        } else {
            format!("{}: `{name}` does not cite it; write `/// {}` above the function", row.id, row.id)
        };
        findings.push(Finding::new(DOCUMENT, row.line, what, WHY));
    }
    findings
}

fn citations(rows: &[Row], tests: &[Test]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for test in tests {
        for id in &test.cites {
            let row = rows.iter().find(|row| row.id == *id);
            if row.is_some_and(|row| row.tests.contains(&test.name)) {
                continue;
            }
            let what = match ids().contains(id) {
                true => format!("cites {id}, whose row in {DOCUMENT} does not name `{}`", test.name),
                false => format!("cites {id}, which is not a requirement"),
            };
            findings.push(Finding::new(&test.path, test.line, what, WHY));
        }
    }
    findings
}

pub(super) fn tests_of(file: &TextFile) -> Vec<Test> {
    let source = Source::new(&file.text);
    let lines: Vec<_> = file.text.lines().collect();
    let mut tests = Vec::new();
    for function in source.functions() {
        let line = source.line(function.start);
        let (docs, attributes) = above(&lines, line);
        if !source::is_test_file(&file.path) && !attributes.iter().any(|attribute| is_test_attribute(attribute)) {
            continue;
        }
        let cites = docs.iter().flat_map(|doc| cited(doc)).collect();
        tests.push(Test { path: file.path.clone(), line, name: test_name(&file.path, &source, &function), cites });
    }
    tests
}

/// The doc lines and the attributes that stand directly above a line, nearest first.
fn above<'a>(lines: &[&'a str], line: usize) -> (Vec<&'a str>, Vec<&'a str>) {
    let (mut docs, mut attributes) = (Vec::new(), Vec::new());
    let mut in_attribute = false;
    for text in lines.iter().take(line - 1).rev().map(|text| text.trim()) {
        if let Some(doc) = text.strip_prefix("///") {
            docs.push(doc.trim());
        } else if let Some(attribute) = text.strip_prefix("#[") {
            attributes.push(attribute);
            in_attribute = false;
        } else if in_attribute || text.ends_with(")]") {
            // The end or the middle of an attribute that spans lines.
            in_attribute = true;
        } else {
            break;
        }
    }
    (docs, attributes)
}

/// `test]`, `tokio::test(…)]`, `rstest]`, `test_case(…)]`; not `cfg(test)]`.
fn is_test_attribute(attribute: &str) -> bool {
    let path = attribute.split(['(', ']', ' ']).next().unwrap_or_default();
    path.rsplit("::").next().is_some_and(|name| name.contains("test"))
}

/// The ids at the beginning of a doc line. Contract rules (`C4`) may stand among them and are passed over.
fn cited(doc: &str) -> Vec<String> {
    let words = doc.split([',', ' ']).filter(|word| !word.is_empty());
    let mut ids = Vec::new();
    for word in words {
        let id = word.trim_end_matches([':', '.', ';']);
        if !is_id(id) {
            break;
        }
        if LETTERS.iter().any(|(letter, _)| id.starts_with(*letter)) {
            ids.push(id.to_owned());
        }
        if id != word {
            break;
        }
    }
    ids
}

fn is_id(word: &str) -> bool {
    let mut characters = word.chars();
    let letter = characters.next().is_some_and(|letter| letter.is_ascii_uppercase());
    letter && word.len() > 1 && characters.all(|digit| digit.is_ascii_digit())
}

fn ids() -> BTreeSet<String> {
    LETTERS.iter().flat_map(|(letter, count)| (1..=*count).map(move |number| format!("{letter}{number}"))).collect()
}

fn test_name(path: &str, source: &Source<'_>, function: &Function) -> String {
    let stem = path.trim_end_matches(".rs");
    let file = stem.split('/').filter(|part| !matches!(*part, "crates" | "src" | "lib" | "main" | "mod"));
    let modules = source.modules_around(function.start);
    let parts: Vec<_> = file.chain(modules).chain([function.name.as_str()]).collect();
    canonical(&parts.join("::").replace('-', "_"))
}

/// A name as it is compared: crate folder or package name, with or without its `tests` modules.
pub(super) fn canonical(name: &str) -> String {
    let name = name.strip_prefix("ekiden_").unwrap_or(name);
    name.split("::").filter(|part| *part != "tests").collect::<Vec<_>>().join("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST_FILE: &str =
        "#[cfg(test)]\nmod tests {\n    /// R8, C2: capped.\n    #[test]\n    fn delay_is_capped() {}\n}\n";

    /// The table with every id open, but for one row.
    fn table(id: &str, tests: &str, status: &str) -> String {
        let rows = ids().into_iter().map(|row| match row == id {
            true => format!("| {row} | text | {tests} | {status} |\n"),
            false => format!("| {row} | text | – | open |\n"),
        });
        rows.collect()
    }

    fn findings(table: &str, source: &str) -> Vec<String> {
        let files = [TextFile::new(DOCUMENT, table), TextFile::new("crates/core/src/retry.rs", source)];
        check(&files).iter().map(Finding::to_string).collect()
    }

    #[track_caller]
    fn check_one(table: &str, source: &str, expect: &str) {
        let findings = findings(table, source);
        assert!(findings.len() == 1 && findings[0].contains(expect), "expected \"{expect}\": {findings:#?}");
    }

    #[test]
    fn rows_and_citations_that_agree_pass() {
        for name in ["core::retry::delay_is_capped", "ekiden_core::retry::tests::delay_is_capped"] {
            assert_eq!(findings(&table("R8", &format!("`{name}`"), "partly"), TEST_FILE), Vec::<String>::new());
        }
        assert_eq!(findings(&table("R8", "–", "open"), ""), Vec::<String>::new());
    }

    #[test]
    fn missing_double_and_unknown_rows_are_found() {
        let good = table("", "", "");
        check_one(&good.replace("| X6 | text | – | open |\n", ""), "", "X6 has no row");
        check_one(&format!("{good}| X6 | text | – | open |\n"), "", "X6 has a second row");
        check_one(&format!("{good}| X7 | text | – | open |\n"), "", "X7 is not a requirement");
    }

    #[test]
    fn status_and_tests_must_agree() {
        check_one(&table("R8", "–", "done"), "", "names no test");
        check_one(&table("R8", "–", "almost"), "", "has status");
        check_one(&table("R8", "`core::retry::delay_is_capped`", "open"), TEST_FILE, "open but names a test");
        check_one(&table("R8", "soon", "open"), "", "names in backticks");
    }

    #[test]
    fn a_named_test_must_exist_and_cite() {
        let row = table("R8", "`core::retry::delay_is_capped`", "done");
        check_one(&row, "", "no test `core::retry::delay_is_capped`");
        check_one(&row, "#[test]\nfn delay_is_capped() {}\n", "does not cite it");
        check_one(&row, "// fn delay_is_capped() {}\nconst A: &str = \"fn delay_is_capped() {}\";\n", "no test");
        let elsewhere = table("R8", "`core::delay::delay_is_capped`", "done");
        let hint = "there is `core::retry::delay_is_capped`";
        assert!(findings(&elsewhere, TEST_FILE).iter().any(|finding| finding.contains(hint)));
    }

    #[test]
    fn a_citation_must_be_in_its_row() {
        check_one(&table("", "", ""), TEST_FILE, "cites R8, whose row");
        check_one(&table("", "", ""), "/// R99\n#[test]\nfn a() {}\n", "R99, which is not");
        assert_eq!(findings(&table("", "", ""), "/// R8: not a test.\nfn a() {}\n"), Vec::<String>::new());
    }

    #[test]
    fn citations_are_read_through_attributes() {
        let text = "/// Text.\n///\n/// R8\n#[test_case(\n    1, 2\n)]\n#[tokio::test(start_paused = true)]\nasync fn a() {}\n";
        assert_eq!(findings(&table("R8", "`core::retry::a`", "done"), text), Vec::<String>::new());
    }

    #[test]
    fn ids_are_read_from_the_beginning_of_a_line() {
        assert_eq!(cited("R8, R13: why"), ["R8", "R13"]);
        assert_eq!(cited("C3, Q7"), ["Q7"]);
        assert_eq!(cited("R8: R9 is another"), ["R8"]);
        assert_eq!(cited("see R8"), Vec::<String>::new());
    }
}
