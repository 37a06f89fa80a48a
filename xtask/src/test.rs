//! `cargo xtask test`: everything CI runs, in order. A failing step does not stop the later ones, so that one run tells
//! everything; the summary at the end names what failed. One target folder and the dev profile serve every step.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::command::{self, cargo};
use crate::report::Failure;
use crate::{dynamodb_local, layers, repo, rigs, setup, tidy};

/// Randomized tests carry this word in their path, so that `--replay` finds them all.
const RANDOM_TESTS: &str = "test(random)";

/// Where the results of long runs are kept, a line a rig.
const RESULTS: &str = "bench/results/rigs.txt";

/// How long the fault rigs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// Seconds each.
    Short,
    /// Many minutes: thousands of kills and power cuts.
    Long,
}

pub(crate) fn run(replay: Option<&str>, length: Length, filters: &[String]) -> Result<(), Failure> {
    let mut summary = Summary::default();
    summary.step("setup", setup::run);
    summary.step("rigs", rigs::probe);
    if length == Length::Long {
        // The lines of this run only; a file that was not there is no loss.
        let _ = std::fs::remove_file(repo::root().join(RESULTS));
    }
    if replay.is_some() || !filters.is_empty() {
        summary.step("nextest", || command::run(some_tests(replay, length, filters)));
    } else {
        everything(&mut summary, length);
    }
    if length == Length::Long {
        summary.step("results", || command::output(command::at_root("cat", &[RESULTS])).map(|text| print!("{text}")));
    }
    summary.conclude(std::env::var_os("CI").is_some())
}

/// The tests of the DynamoDB store on Amazon's own emulator, which is stricter in places than the server that they start.
pub(crate) fn run_on_dynamodb_local(filters: &[String]) -> Result<(), Failure> {
    let mut summary = Summary::default();
    summary.step("setup", setup::run);
    summary.step("nextest", || {
        let server = dynamodb_local::Server::start()?;
        command::run(tests_at(&server.endpoint, filters))
    });
    summary.conclude(true)
}

fn tests_at(endpoint: &str, filters: &[String]) -> Command {
    // Time limits as for long runs: it answers more slowly than the server that tests start.
    let mut nextest = cargo(&["nextest", "run", "--package", "ekiden-store-dynamodb", "--profile", "long"]);
    nextest.args(filters).env("EKIDEN_DYNAMODB_ENDPOINT", endpoint);
    nextest
}

/// Tests of so much length, in all crates.
fn tests(length: Length) -> Command {
    let mut nextest = cargo(&["nextest", "run", "--workspace"]);
    if length == Length::Long {
        nextest.args(["--profile", "long"]).env("EKIDEN_LONG", "1").env("EKIDEN_RESULTS", repo::root().join(RESULTS));
    }
    nextest
}

fn everything(summary: &mut Summary, length: Length) {
    summary.step("fmt", || command::run(cargo(&["fmt", "--all", "--check"])));
    // Of the benchmarks only the format: building the peers would cost every run more than it tells.
    summary.step("benches", || command::run(cargo(&["fmt", "--manifest-path", "bench/Cargo.toml", "--check"])));
    summary.step("clippy", || command::run(cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])));
    summary.step("doc", || {
        let mut doc = cargo(&["doc", "--no-deps", "--workspace"]);
        doc.env("RUSTDOCFLAGS", "-D warnings");
        command::run(doc)
    });
    summary.step("nextest", || command::run(tests(length)));
    summary.step("doctest", || command::run(cargo(&["test", "--doc", "--workspace"])));
    summary.step("tidy", tidy::run);
    summary.step("layers", layers::run);
}

fn some_tests(replay: Option<&str>, length: Length, filters: &[String]) -> Command {
    let mut nextest = tests(length);
    if let Some(seed) = replay {
        nextest.env("EKIDEN_SEED", seed).args(["-E", RANDOM_TESTS]);
    }
    nextest.args(filters);
    nextest
}

/// What each step came to, in the order they ran.
#[derive(Default)]
struct Summary {
    steps: Vec<(&'static str, Duration, Result<(), Failure>)>,
}

impl Summary {
    #[expect(clippy::disallowed_methods, reason = "measures how long a step took; nothing depends on it")]
    fn step(&mut self, name: &'static str, work: impl FnOnce() -> Result<(), Failure>) {
        println!("==> {name}");
        let start = Instant::now();
        let outcome = work();
        self.steps.push((name, start.elapsed(), outcome));
        if let Some((name, took, outcome)) = self.steps.last() {
            println!("{}", line(name, *took, outcome));
        }
    }

    /// Prints all steps once more. What the machine lacks counts as a failure only where a machine is meant to be
    /// complete: in CI.
    fn conclude(self, in_ci: bool) -> Result<(), Failure> {
        println!("\n==> summary");
        let mut failed = Vec::new();
        for (name, took, outcome) in &self.steps {
            println!("{}", line(name, *took, outcome));
            match outcome {
                Ok(()) => {}
                Err(Failure::Missing { .. }) if !in_ci => println!("!!! {name} DID NOT RUN; CI will run it"),
                Err(_) => failed.push(*name),
            }
        }
        if failed.is_empty() {
            return Ok(());
        }
        Err(Failure::broken(
            format!("failed: {}", failed.join(", ")),
            "see the lines above and the output of each step",
            "mend it and run `cargo xtask test` again; `cargo xtask test FILTER` runs single tests",
        ))
    }
}

fn line(name: &str, took: Duration, outcome: &Result<(), Failure>) -> String {
    let seconds = took.as_secs_f64();
    match outcome {
        Ok(()) => format!("ok      {name:<8} {seconds:>7.1} s"),
        Err(failure @ Failure::Missing { .. }) => format!("MISSING {name:<8} {seconds:>7.1} s  {failure}"),
        Err(failure) => format!("FAILED  {name:<8} {seconds:>7.1} s  {failure}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing() -> Result<(), Failure> {
        Err(Failure::Missing { what: "no database".to_owned(), todo: "start one".to_owned() })
    }

    #[test]
    fn a_failed_step_fails_the_run_and_later_steps_still_run() {
        let mut summary = Summary::default();
        let mut later_ran = false;
        summary.step("first", || Err(Failure::broken("broken", "because", "mend")));
        summary.step("second", || {
            later_ran = true;
            Ok(())
        });
        let failure = summary.conclude(false).unwrap_err().to_string();
        assert!(later_ran);
        assert!(failure.contains("failed: first\n"), "{failure}");
    }

    #[test]
    fn what_is_missing_fails_in_ci_and_only_there() {
        let mut on_a_laptop = Summary::default();
        on_a_laptop.step("service", missing);
        assert!(on_a_laptop.conclude(false).is_ok());

        let mut in_ci = Summary::default();
        in_ci.step("service", missing);
        assert!(in_ci.conclude(true).is_err());
    }

    #[test]
    fn replay_sets_the_seed_and_keeps_to_seeded_tests() {
        let nextest = some_tests(Some("42"), Length::Short, &["memory".to_owned()]);
        let arguments: Vec<_> = nextest.get_args().map(|argument| argument.to_string_lossy()).collect();
        assert_eq!(arguments, ["nextest", "run", "--workspace", "-E", "test(random)", "memory"]);
        assert!(nextest.get_envs().any(|(key, value)| key == "EKIDEN_SEED" && value.is_some_and(|seed| seed == "42")));
    }

    #[test]
    fn tests_on_dynamodb_local_go_to_its_endpoint_and_keep_to_its_store() {
        let nextest = tests_at("http://127.0.0.1:8000", &["foreign".to_owned()]);
        let arguments: Vec<_> = nextest.get_args().map(|argument| argument.to_string_lossy()).collect();
        assert_eq!(arguments, ["nextest", "run", "--package", "ekiden-store-dynamodb", "--profile", "long", "foreign"]);
        let at = |key: &std::ffi::OsStr| key == "EKIDEN_DYNAMODB_ENDPOINT";
        assert!(
            nextest.get_envs().any(|(key, value)| at(key) && value.is_some_and(|at| at == "http://127.0.0.1:8000"))
        );
    }

    #[test]
    fn a_long_run_says_so_to_the_rigs_and_gives_them_time() {
        let named =
            |command: &Command, name: &str| command.get_envs().any(|(key, value)| key == name && value.is_some());
        let (short, long) = (tests(Length::Short), tests(Length::Long));
        assert!(named(&long, "EKIDEN_LONG") && named(&long, "EKIDEN_RESULTS"));
        assert!(!named(&short, "EKIDEN_LONG"));
        assert!(long.get_args().any(|argument| argument == "long"));
    }
}
