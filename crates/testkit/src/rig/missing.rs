//! What a machine lacks for a rig, and how a test treats that: no rig is passed over in silence.

use std::fmt;
use std::io::{self, Write};
use std::process::Command;

/// Something that a rig needs and the machine does not give.
#[derive(Clone, Debug)]
pub struct Missing {
    /// What was tried and what came of it.
    pub what: String,
    /// What to do about it.
    pub todo: &'static str,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  do:  {}", self.what, self.todo)
    }
}

/// What a rig needs. With `CI` set its absence fails the test; elsewhere it is a loud line, and `cargo xtask test` says in its
/// summary which rigs did not run.
#[track_caller]
pub fn provide<T>(found: Result<T, Missing>) -> Option<T> {
    match found {
        Ok(found) => Some(found),
        Err(missing) if std::env::var_os("CI").is_some() => panic!("a fault rig cannot run here: {missing}"),
        Err(missing) => {
            let _ = writeln!(io::stderr(), "!!! A FAULT RIG DID NOT RUN; CI will run it: {missing}");
            None
        }
    }
}

/// Runs one of the machine's programs to its end, and gives what it printed.
pub(super) fn tool(program: &str, arguments: &[&str], todo: &'static str) -> Result<String, Missing> {
    let missing = |why: String| Missing { what: format!("`{program} {}` failed: {why}", arguments.join(" ")), todo };
    let output = Command::new(program).args(arguments).env("PATH", path()).output();
    let output = output.map_err(|error| missing(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(missing(format!("{}, {}", output.status, String::from_utf8_lossy(&output.stderr).trim())))
}

/// Users other than root often have no `sbin` in their path.
fn path() -> String {
    format!("{}:/usr/local/sbin:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}
