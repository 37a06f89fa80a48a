//! What a subcommand can say when something is wrong: a `Finding` points at a line of the repository, a `Failure` ends
//! a step. Every failure says what happened, why, and what to do.

use std::fmt;

/// One breach of a rule, printed as `file:line: what (why)` so that editors can jump to it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    what: String,
    why: &'static str,
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, what: impl Into<String>, why: &'static str) -> Self {
        Self { path: path.to_owned(), line, what: what.into(), why }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {} ({})", self.path, self.line, self.what, self.why)
    }
}

/// Why a step did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The step ran and found something wrong, or could not run although nothing is missing.
    Broken { what: String, why: String, todo: String },
    /// The machine lacks something that a step needs. A failure with `CI` set, a loud line elsewhere.
    Missing { what: String, todo: String },
    /// There is nothing to do; exit code 2, so that a script can tell it from a failure.
    Nothing(String),
}

impl Failure {
    pub(crate) fn broken(what: impl Into<String>, why: impl Into<String>, todo: impl Into<String>) -> Self {
        Self::Broken { what: what.into(), why: why.into(), todo: todo.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken { what, why, todo } => write!(out, "{what}\n  why: {why}\n  do:  {todo}"),
            Self::Missing { what, todo } => write!(out, "{what}\n  do:  {todo}"),
            Self::Nothing(what) => write!(out, "{what}"),
        }
    }
}

/// Prints the findings in order and turns them into the outcome of the check that made them.
pub(crate) fn conclude(check: &str, mut findings: Vec<Finding>) -> Result<(), Failure> {
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        return Ok(());
    }
    Err(Failure::broken(
        format!("{check} has {} finding(s)", findings.len()),
        "each line above names a place and the reason of its rule",
        format!("mend them and run `cargo xtask {check}` again"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_reads_as_place_breach_reason() {
        let finding = Finding::new("crates/core/src/lib.rs", 7, "too long", "long functions hide branches");
        assert_eq!(finding.to_string(), "crates/core/src/lib.rs:7: too long (long functions hide branches)");
    }

    #[test]
    fn findings_fail_the_check_and_none_pass_it() {
        assert!(conclude("tidy", vec![]).is_ok());
        assert!(conclude("tidy", vec![Finding::new("a", 1, "b", "c")]).is_err());
    }
}
