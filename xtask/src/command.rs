//! Starts other programs, always from the repository root. Says what was run when it fails.

use std::process::{Command, Stdio};

use crate::repo;
use crate::report::Failure;

/// A command at the repository root, not started yet.
pub(crate) fn at_root(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(repo::root());
    command
}

/// Cargo itself: the one that started us, so that the toolchain stays the same.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    at_root(&program, arguments)
}

/// Runs to the end with our terminal; anything but exit code 0 is a failure.
pub(crate) fn run(mut command: Command) -> Result<(), Failure> {
    let status = command.status().map_err(|error| cannot_start(&command, &error))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::broken(
        format!("`{}` failed", spell(&command)),
        format!("it ended with {status}"),
        "read its output above",
    ))
}

/// Runs to the end and returns what it printed; anything but exit code 0 is a failure that quotes its complaint.
pub(crate) fn output(mut command: Command) -> Result<String, Failure> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| cannot_start(&command, &error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Failure::broken(
        format!("`{}` failed", spell(&command)),
        format!("it ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()),
        "run it by hand to see more",
    ))
}

fn cannot_start(command: &Command, error: &std::io::Error) -> Failure {
    Failure::broken(
        format!("cannot start `{}`", spell(command)),
        error.to_string(),
        "install the program or put it on PATH",
    )
}

/// The command as one would type it, with the program's bare name.
fn spell(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_command_is_named_with_its_exit_code() {
        let failure = run(at_root("false", &["--now"])).unwrap_err().to_string();
        assert!(failure.contains("`false --now` failed") && failure.contains("exit status: 1"), "{failure}");
    }

    #[test]
    fn a_program_that_does_not_exist_is_a_failure_and_not_a_panic() {
        let failure = output(at_root("no-such-program-here", &[])).unwrap_err().to_string();
        assert!(failure.contains("cannot start `no-such-program-here`"), "{failure}");
    }
}
