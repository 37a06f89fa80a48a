//! `ekiden status` and `ekiden counts`: the whole of a namespace at a glance.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Args;
use ekiden::core::PoolName;
use ekiden::store::{CountScope, Counts};
use ekiden_wire as wire;
use serde::Serialize;

use crate::Outcome;
use crate::config::Config;
use crate::exit::Exit;
use crate::language::Lang;
use crate::output::{self, Form, Show};
use crate::reach::{Missing, Reached, visit};
use crate::table::state_word;
use crate::{pool, runner};

#[derive(Args)]
pub(crate) struct CountWish {
    /// Only tasks of this pool
    #[arg(long)]
    pool: Option<String>,
}

/// How many tasks there are in each state.
pub(crate) fn counts(wish: CountWish, config: &Config, form: Form, lang: Lang) -> Outcome<ExitCode> {
    visit(config, Missing::Refuse, async |reached| {
        let pool = wish.pool.map(PoolName::new).transpose()?;
        let counts = count(reached, pool).await?;
        let lines = lines(&counts, lang);
        match form {
            Form::Json | Form::Jsonl => output::document(&ekiden::wire::counts_into(counts), "", form)?,
            Form::Table | Form::Id => output::list(&lines, &titles(lang), form)?,
        }
        Ok(Exit::Success.into())
    })
}

/// Counts, pools and runners.
pub(crate) fn run(config: &Config, form: Form, lang: Lang) -> Outcome<ExitCode> {
    visit(config, Missing::Refuse, async |reached| {
        let client = &reached.client;
        let info = client.queue().info();
        let counts = count(reached, None).await?;
        let (lines, pools) = (lines(&counts, lang), pool::all(client, lang).await?);
        let runners = runner::all(client, lang).await?;
        if matches!(form, Form::Json | Form::Jsonl) {
            let (namespace, store) = (client.namespace().as_str(), info.store.as_str());
            let counts = ekiden::wire::counts_into(counts);
            output::document(&Overview { namespace, store, counts, pools, runners }, "", form)?;
            return Ok(Exit::Success.into());
        }
        if std::io::stdout().is_terminal() {
            output::line(&heading(client.namespace().as_str(), &info.store, lang))?;
        }
        section("state", &lines, &titles(lang), form)?;
        section("pool", &pools, &pool::titles(lang), form)?;
        section("runner", &runners, &runner::titles(lang), form)?;
        Ok(Exit::Success.into())
    })
}

async fn count(reached: &Reached, pool: Option<PoolName>) -> ekiden::Result<Counts> {
    let namespace = reached.client.namespace().clone();
    reached.client.queue().counts_by_state(CountScope { namespace, pool }).await
}

fn heading(namespace: &str, store: &str, lang: Lang) -> String {
    match lang {
        Lang::En => format!("namespace {namespace}, store {store}"),
        Lang::Ja => format!("名前空間 {namespace}、ストア {store}"),
    }
}

/// One of several lists: with its titles on a terminal, and with what it is in front of each line anywhere else.
fn section<T: Show>(what: &str, items: &[T], titles: &[&str], form: Form) -> Outcome<()> {
    if form == Form::Table && std::io::stdout().is_terminal() {
        if !items.is_empty() {
            output::line("")?;
            output::list(items, titles, form)?;
        }
        return Ok(());
    }
    for item in items {
        let line = match form {
            Form::Id => format!("{what}\t{}", item.id()),
            _ => {
                let cells: Vec<String> = item.cells().iter().map(|text| output::cell(text)).collect();
                format!("{what}\t{}", cells.join("\t"))
            }
        };
        output::line(&line)?;
    }
    Ok(())
}

/// Everything at a glance, for programs.
#[derive(Serialize)]
struct Overview<'a> {
    namespace: &'a str,
    store: &'a str,
    counts: wire::Counts,
    pools: Vec<pool::Shown>,
    runners: Vec<runner::Shown>,
}

/// A state and how many tasks are in it.
#[derive(Serialize)]
struct Line {
    state: &'static str,
    tasks: u64,
    #[serde(skip)]
    word: &'static str,
}

fn lines(counts: &Counts, lang: Lang) -> Vec<Line> {
    let line = |(state, tasks): (&ekiden::TaskState, &u64)| Line {
        state: state.as_str(),
        tasks: *tasks,
        word: state_word(*state, lang),
    };
    counts.by_phase.iter().map(line).collect()
}

const fn titles(lang: Lang) -> [&'static str; 2] {
    match lang {
        Lang::En => ["STATE", "TASKS"],
        Lang::Ja => ["状態", "タスク数"],
    }
}

impl Show for Line {
    fn id(&self) -> &str {
        self.state
    }

    fn cells(&self) -> Vec<String> {
        vec![self.word.to_owned(), self.tasks.to_string()]
    }
}
