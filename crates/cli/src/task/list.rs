//! `ekiden task list`: a page of tasks, newest first.

use std::process::ExitCode;

use clap::Args;
use ekiden::core::Millis;
use ekiden::store::{Clock, SystemClock};

use super::filters::Filters;
use super::shown::{Shown, titles};
use super::words::span;
use crate::Outcome;
use crate::exit::Exit;
use crate::language::Lang;
use crate::output::{self, Form};
use crate::reach::Reached;

pub(super) const EXAMPLES: &str = "\
Examples:
  ekiden task list --state running,retry_scheduled
  ekiden task list --since 2h --pool mail -o json
  ekiden task list --state dead -o id | xargs ekiden task retry";

#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    filters: Filters,
    /// Only handed in since then, as in 30m or 2h
    #[arg(long, value_parser = span, value_name = "SPAN")]
    since: Option<Millis>,
    /// How many at most
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Go on from where the page before ended
    #[arg(long)]
    cursor: Option<String>,
}

/// Lists.
pub(super) async fn run(reached: &Reached, wish: List, form: Form, lang: Lang) -> Outcome<ExitCode> {
    let client = &reached.client;
    let filter = wish.filters.of(client)?;
    let since = wish.since.map(|span| SystemClock.now() - span);
    let limit = usize::from(wish.limit);
    let (mut shown, mut cursor) = (Vec::new(), wish.cursor);
    // A page of a filtered listing may be short although more follow.
    loop {
        let page = client.list(filter.clone(), cursor, limit - shown.len()).await?;
        let found = page.items.len();
        // The newest come first: behind the first that is too old, all are.
        let young = page.items.into_iter().take_while(|task| since.is_none_or(|since| task.created_at >= since));
        let before = shown.len();
        shown.extend(young.map(|record| Shown::new(record, lang)));
        let reached_the_old = shown.len() - before < found;
        cursor = page.cursor.filter(|_| !reached_the_old);
        if cursor.is_none() || shown.len() >= limit {
            break;
        }
    }
    output::list(&shown, &titles(lang), form)?;
    if let Some(cursor) = cursor {
        crate::say(&match lang {
            Lang::En => format!("More follow: --cursor {cursor}"),
            Lang::Ja => format!("続きがあります: --cursor {cursor}"),
        });
    }
    Ok(Exit::Success.into())
}
