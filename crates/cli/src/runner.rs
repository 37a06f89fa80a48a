//! `ekiden runner`: who runs tasks, and whether it lives.

use std::process::ExitCode;

use clap::Subcommand;
use ekiden::Client;
use ekiden::core::{Kind, PoolName, Runner, RunnerStatus, Timestamp};
use ekiden::store::{Clock, SystemClock};
use ekiden_wire as wire;
use serde::Serialize;

use crate::Outcome;
use crate::config::Config;
use crate::exit::Exit;
use crate::language::Lang;
use crate::output::{self, Form, Show};
use crate::reach::{Missing, visit};

#[derive(Subcommand)]
pub(crate) enum RunnerCommand {
    /// List runners, alive or not.
    List,
}

/// Carries a command out.
pub(crate) fn run(command: &RunnerCommand, config: &Config, form: Form, lang: Lang) -> Outcome<ExitCode> {
    let RunnerCommand::List = command;
    visit(config, Missing::Refuse, async |reached| {
        output::list(&all(&reached.client, lang).await?, &titles(lang), form)?;
        Ok(Exit::Success.into())
    })
}

/// Every runner of the namespace, the latest sign of life first.
pub(crate) async fn all(client: &Client, lang: Lang) -> ekiden::Result<Vec<Shown>> {
    let now = SystemClock.now();
    let mut runners = client.runners().await?;
    runners.sort_by_key(|runner| std::cmp::Reverse(runner.last_heartbeat));
    Ok(runners.into_iter().map(|runner| Shown::new(runner, now, lang)).collect())
}

/// A runner as it is shown.
#[derive(Serialize)]
#[serde(transparent)]
pub(crate) struct Shown {
    runner: wire::Runner,
    #[serde(skip)]
    state: &'static str,
}

impl Shown {
    fn new(runner: Runner, now: Timestamp, lang: Lang) -> Self {
        let state = match runner.status {
            RunnerStatus::Running if runner.is_alive(now) => lang.pick("alive", "稼働中"),
            RunnerStatus::Running | RunnerStatus::Stopped => lang.pick("stopped", "停止"),
            RunnerStatus::Dead { .. } => lang.pick("dead", "消失"),
        };
        Self { runner: runner.into(), state }
    }
}

impl Show for Shown {
    fn id(&self) -> &str {
        self.runner.id.as_str()
    }

    fn cells(&self) -> Vec<String> {
        let runner = &self.runner;
        vec![
            runner.id.to_string(),
            self.state.to_owned(),
            runner.last_heartbeat.to_string(),
            names(runner.pools.iter().map(PoolName::as_str)),
            names(runner.task_types.iter().map(Kind::as_str)),
        ]
    }
}

/// The titles of a list of runners.
pub(crate) const fn titles(lang: Lang) -> [&'static str; 5] {
    match lang {
        Lang::En => ["RUNNER", "STATE", "LAST SIGN OF LIFE", "POOLS", "TYPES"],
        Lang::Ja => ["ランナー", "状態", "最後の応答", "プール", "種類"],
    }
}

/// A runner that names none serves all.
fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "*".to_owned() } else { names.join(",") }
}
