//! `ekiden schedule`: tasks that are handed in by themselves.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};
use ekiden::core::{Every, Millis, Missed, Overlap, Schedule};
use ekiden_wire as wire;
use serde::Serialize;

use crate::Outcome;
use crate::config::Config;
use crate::exit::Exit;
use crate::language::Lang;
use crate::output::{self, Form, Show};
use crate::reach::{Missing, Reached, visit};
use crate::say;
use crate::task::{Wish, span, span_text};

const SET_EXAMPLES: &str = "\
Examples:
  ekiden schedule set daily --cron '0 9 * * *' --tz Asia/Tokyo report '{\"of\": \"yesterday\"}'
  ekiden schedule set heartbeat --every 5m ping --overlap allow
  ekiden schedule set daily --cron '0 9 * * *' --paused report";

#[derive(Subcommand)]
pub(crate) enum ScheduleCommand {
    /// List schedules.
    List,
    /// Set a schedule, new or not. It ticks wherever a server or a runner is.
    #[command(after_long_help = SET_EXAMPLES)]
    Set(Box<Set>),
    /// Remove a schedule. Tasks that it handed in stay.
    Remove {
        /// Its name
        name: String,
    },
}

#[derive(Args)]
pub(crate) struct Set {
    /// Its name
    name: String,
    /// When it ticks: a cron expression of five fields, or six with seconds
    #[arg(long, value_name = "EXPRESSION", required_unless_present = "every", conflicts_with = "every")]
    cron: Option<String>,
    /// The time zone of --cron, by its IANA name
    #[arg(long = "tz", value_name = "ZONE", default_value = "UTC", requires = "cron")]
    time_zone: String,
    /// How often it ticks, as in 5m; counted from 1970, so that everybody means the same moments
    #[arg(long, value_name = "SPAN", value_parser = span)]
    every: Option<Millis>,
    /// What happens with ticks that nobody was there to see
    #[arg(long, value_enum, default_value = "latest")]
    missed: MissedWord,
    /// What happens when the task of the tick before has not ended
    #[arg(long, value_enum, default_value = "skip")]
    overlap: OverlapWord,
    /// Let it rest until it is set again
    #[arg(long)]
    paused: bool,
    #[command(flatten)]
    wish: Wish,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum MissedWord {
    /// Only the latest is made up for
    Latest,
    /// None is made up for
    Skip,
    /// Each is made up for, up to a limit
    All,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OverlapWord {
    /// The tick is left out
    Skip,
    /// Both run
    Allow,
}

/// Carries a command out.
pub(crate) fn run(command: ScheduleCommand, config: &Config, form: Form, lang: Lang) -> Outcome<ExitCode> {
    let missing = if matches!(command, ScheduleCommand::Set(_)) { Missing::Make } else { Missing::Refuse };
    visit(config, missing, async |reached| carry_out(command, reached, form, lang).await)
}

async fn carry_out(command: ScheduleCommand, reached: &Reached, form: Form, lang: Lang) -> Outcome<ExitCode> {
    let client = &reached.client;
    match command {
        ScheduleCommand::List => {
            let schedules: Vec<Shown> =
                client.schedules().await?.into_iter().map(|one| Shown::new(one, lang)).collect();
            output::list(&schedules, &titles(lang), form)?;
        }
        ScheduleCommand::Set(set) => {
            let shown = Shown::new(set.hand_in(reached).await?, lang);
            let facts: Vec<(&str, String)> = NAMES.into_iter().zip(shown.cells()).collect();
            output::one(&shown, &facts, form)?;
        }
        ScheduleCommand::Remove { name } => {
            client.remove_schedule(&name).await?;
            say(&match lang {
                Lang::En => format!("Removed {name}."),
                Lang::Ja => format!("{name} を削除しました。"),
            });
        }
    }
    Ok(Exit::Success.into())
}

impl Set {
    async fn hand_in(self, reached: &Reached) -> Outcome<Arc<Schedule>> {
        let client = &reached.client;
        let mut schedule = client.schedule(&self.name, self.wish.task(client)?);
        if let Some(period) = self.every {
            schedule = schedule.every(period.as_duration());
        }
        if let Some(expression) = self.cron {
            schedule = schedule.cron(expression, self.time_zone);
        }
        schedule = schedule.missed(match self.missed {
            MissedWord::Latest => Missed::Latest,
            MissedWord::Skip => Missed::Skip,
            MissedWord::All => Missed::All,
        });
        schedule = schedule.overlap(match self.overlap {
            OverlapWord::Skip => Overlap::Skip,
            OverlapWord::Allow => Overlap::Allow,
        });
        if self.paused {
            schedule = schedule.paused();
        }
        Ok(schedule.await?)
    }
}

/// A schedule as it is shown.
#[derive(Serialize)]
#[serde(transparent)]
struct Shown {
    schedule: wire::Schedule,
    #[serde(skip)]
    every: String,
    #[serde(skip)]
    lang: Lang,
}

impl Shown {
    fn new(schedule: Arc<Schedule>, lang: Lang) -> Self {
        let every = match &schedule.every {
            Every::Cron { expression, time_zone } => format!("{expression} {time_zone}"),
            Every::Interval { period, .. } => span_text(*period),
        };
        Self { schedule: (&*schedule).into(), every, lang }
    }
}

/// The names of its facts, in the order of its cells.
const NAMES: [&str; 6] = ["schedule", "every", "state", "next", "type", "last"];

const fn titles(lang: Lang) -> [&'static str; 6] {
    match lang {
        Lang::En => ["SCHEDULE", "EVERY", "STATE", "NEXT", "TYPE", "LAST TASK"],
        Lang::Ja => ["スケジュール", "間隔", "状態", "次回", "種類", "前回のタスク"],
    }
}

impl Show for Shown {
    fn id(&self) -> &str {
        self.schedule.id.as_str()
    }

    fn cells(&self) -> Vec<String> {
        let schedule = &self.schedule;
        let state = if schedule.paused {
            self.lang.pick("paused", "一時停止中")
        } else {
            self.lang.pick("active", "有効")
        };
        vec![
            schedule.id.to_string(),
            self.every.clone(),
            state.to_owned(),
            schedule.next_at.map_or_else(|| "-".to_owned(), |next_at| next_at.to_string()),
            schedule.task.task_type.to_string(),
            schedule.last.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
        ]
    }
}
