//! The flags that every benchmark understands.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

/// What `--help` prints behind the program's name.
pub const USAGE: &str = "[--quick] [--long] [--json FILE] [--strict]

  --quick      a short run that shows it works; its figures mean little
  --long       a run of many minutes with much more data, where a benchmark has one
  --json FILE  write the figures to FILE as well
  --strict     end with exit code 1 if a bar is missed
  --help       print this";

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// A short run.
    pub quick: bool,
    /// A long run.
    pub long: bool,
    /// Where to write the figures as JSON.
    pub json: Option<PathBuf>,
    /// Whether a missed bar is a failure.
    pub strict: bool,
    /// Whether only the usage is wanted.
    pub help: bool,
}

/// Why the flags were not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgumentError {
    /// No such flag.
    Unknown(String),
    /// `--json` at the end of the line.
    NoFile,
}

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(flag) => write!(f, "unknown argument \"{flag}\"; `--help` lists what there is"),
            Self::NoFile => write!(f, "`--json` needs a file name behind it"),
        }
    }
}

impl std::error::Error for ArgumentError {}

impl Arguments {
    /// Reads the flags; the program's own name is not among them.
    pub fn parse(flags: impl IntoIterator<Item = OsString>) -> Result<Self, ArgumentError> {
        let mut arguments = Self::default();
        let mut flags = flags.into_iter();
        while let Some(flag) = flags.next() {
            match flag.to_str() {
                Some("--quick") => arguments.quick = true,
                Some("--long") => arguments.long = true,
                Some("--strict") => arguments.strict = true,
                Some("--help" | "-h") => arguments.help = true,
                Some("--json") => arguments.json = Some(flags.next().ok_or(ArgumentError::NoFile)?.into()),
                _ => return Err(ArgumentError::Unknown(flag.to_string_lossy().into_owned())),
            }
        }
        Ok(arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, ArgumentError> {
        Arguments::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn flags_are_read_in_any_order() {
        let wanted =
            Arguments { quick: true, json: Some(PathBuf::from("a.json")), strict: true, ..Arguments::default() };
        assert_eq!(parse("--json a.json --strict --quick"), Ok(wanted));
        assert_eq!(parse(""), Ok(Arguments::default()));
    }

    #[test]
    fn a_wrong_flag_is_named() {
        assert_eq!(parse("--quik"), Err(ArgumentError::Unknown("--quik".to_owned())));
        assert_eq!(parse("--quick --json"), Err(ArgumentError::NoFile));
        assert!(parse("--quik").unwrap_err().to_string().contains("\"--quik\""));
    }
}
