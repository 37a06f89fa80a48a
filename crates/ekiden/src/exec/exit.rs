//! What a command's end means. One table for the handler, the documentation and `--help`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    /// The code that shells show: 128 and the signal's number where it was killed.
    pub fn shell_code(self) -> u8 {
        match self {
            Self::Code(code) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
            Self::Signal(signal) => u8::try_from(128 + (signal & 0x7f)).unwrap_or(u8::MAX),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "killed by signal {signal} ({name})"),
                None => write!(f, "killed by signal {signal}"),
            },
        }
    }
}

/// The names that people meet; others are told by their number.
fn signal_name(signal: i32) -> Option<&'static str> {
    const NAMES: [(i32, &str); 10] = [
        (1, "HUP"),
        (2, "INT"),
        (3, "QUIT"),
        (4, "ILL"),
        (6, "ABRT"),
        (7, "BUS"),
        (8, "FPE"),
        (9, "KILL"),
        (11, "SEGV"),
        (15, "TERM"),
    ];
    NAMES.iter().find(|(number, _)| *number == signal).map(|(_, name)| *name)
}

/// What an exit makes of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Succeeded,
    /// The question stands in the events.
    Asked,
    Retry,
    Permanent,
    Failed,
    Crashed,
}

/// 3: a question was asked, and the answer is needed to go on.
const NEEDS_INPUT: i32 = 3;
/// 65: `EX_DATAERR` of sysexits.h.
const DATA_ERROR: i32 = 65;
/// 75: `EX_TEMPFAIL` of sysexits.h.
const TEMPORARY: i32 = 75;

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitRow {
    /// The exit code, or what stands in its place.
    pub code: &'static str,
    /// The outcome of the attempt.
    pub outcome: &'static str,
    /// What happens then.
    pub then: &'static str,
}

/// What each exit of a command means.
pub const TABLE: [ExitRow; 6] = [
    ExitRow { code: "0", outcome: "succeeded", then: "the result is what the command wrote to $EKIDEN_RESULT" },
    ExitRow { code: "3", outcome: "asked", then: "waits for the answer to the question in $EKIDEN_EVENTS" },
    ExitRow { code: "65", outcome: "failed", then: "never tried again" },
    ExitRow { code: "75", outcome: "failed", then: "tried again, within the budget" },
    ExitRow { code: "other", outcome: "failed", then: "tried again, within the budget" },
    ExitRow {
        code: "signal",
        outcome: "crashed",
        then: "tried again, within the budget and the limit of crashes in a row",
    },
];

pub(super) const fn meaning(exit: Exit) -> Meaning {
    match exit {
        Exit::Code(0) => Meaning::Succeeded,
        Exit::Code(NEEDS_INPUT) => Meaning::Asked,
        Exit::Code(DATA_ERROR) => Meaning::Permanent,
        Exit::Code(TEMPORARY) => Meaning::Retry,
        Exit::Code(_) => Meaning::Failed,
        Exit::Signal(_) => Meaning::Crashed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// X2: every row of the table is what the handler makes of it.
    #[test]
    fn the_table_says_what_is_done() {
        for row in TABLE {
            let exit = match row.code {
                "signal" => Exit::Signal(9),
                "other" => Exit::Code(1),
                code => Exit::Code(code.parse().unwrap()),
            };
            let outcome = match meaning(exit) {
                Meaning::Succeeded => "succeeded",
                Meaning::Asked => "asked",
                Meaning::Retry | Meaning::Permanent | Meaning::Failed => "failed",
                Meaning::Crashed => "crashed",
            };
            assert_eq!(outcome, row.outcome, "{row:?}");
            assert_eq!(meaning(exit) == Meaning::Permanent, row.then.starts_with("never"), "{row:?}");
        }
    }

    /// X2: what is documented is what is done.
    #[test]
    fn the_documentation_has_the_table() {
        let page = include_str!("../../../../docs/commands.md");
        for ExitRow { code, outcome, then } in TABLE {
            assert!(page.contains(&format!("| {code} | {outcome} | {then} |\n")), "docs/commands.md lacks {code}");
        }
    }

    #[test]
    fn exits_are_told_as_shells_do() {
        assert_eq!((Exit::Code(7).shell_code(), Exit::Signal(9).shell_code()), (7, 137));
        assert_eq!(Exit::Signal(9).to_string(), "killed by signal 9 (KILL)");
        assert_eq!(Exit::Signal(60).to_string(), "killed by signal 60");
        assert_eq!(Exit::Code(2).to_string(), "exit code 2");
    }
}
