//! `ekiden pool`: what the lines of tasks are set to, and pausing them.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use ekiden::Client;
use ekiden::core::{Concurrency, Jitter, Keep, Millis, Policy, PoolName, PoolSettings, RetryPolicy, Timeout};
use ekiden_wire as wire;
use serde::Serialize;

use crate::Outcome;
use crate::config::Config;
use crate::exit::Exit;
use crate::language::Lang;
use crate::output::{self, Form, Show};
use crate::reach::{Missing, Reached, visit};
use crate::say;
use crate::task::{span, span_text};

const SET_EXAMPLES: &str = "\
Examples:
  ekiden pool set mail --running-max 3 --attempts 8 --retry 1s..10m
  ekiden pool set agents --timeout 2h --retry never --keep 30d
  ekiden pool set mail --running-max none

What is not named stays as it is. New tasks take the rules along that hold when they are handed in.";

#[derive(Subcommand)]
pub(crate) enum PoolCommand {
    /// List the pools that somebody set.
    List,
    /// Show what a pool is set to, by itself or by default.
    Get {
        /// Its name
        name: String,
    },
    /// Set a pool.
    #[command(after_long_help = SET_EXAMPLES)]
    Set(Box<Set>),
    /// Let no task of a pool start. Holds within two seconds; what runs goes on.
    Pause {
        /// Its name
        name: String,
    },
    /// Let tasks of a pool start again.
    Resume {
        /// Its name
        name: String,
    },
}

#[derive(Args)]
pub(crate) struct Set {
    /// Its name
    name: String,
    /// How many tasks may run at once, over all runners; none for no limit
    #[arg(long, value_name = "N|none", value_parser = count_or_none)]
    running_max: Option<Limit>,
    /// How many tasks a runner executes at once, unless it says otherwise; cores for one a processor core
    #[arg(long, value_name = "N|cores", value_parser = concurrency)]
    concurrency: Option<Concurrency>,
    /// How long a runner may be silent before others take its tasks over
    #[arg(long, value_name = "SPAN", value_parser = span)]
    lease: Option<Millis>,
    /// How often a runner looks when nothing wakes it
    #[arg(long, value_name = "SPAN", value_parser = span)]
    poll: Option<Millis>,
    /// How many attempts new tasks have
    #[arg(long, value_name = "N")]
    attempts: Option<u32>,
    /// How many crashes kill a task, whatever its attempts; none for no limit
    #[arg(long, value_name = "N|none", value_parser = count_or_none)]
    crashes: Option<Limit>,
    /// The waits between attempts: never (no retry), 5s (always), 1s,5s,1m (in turn) or 1s..5m (doubling)
    #[arg(long, value_name = "WAITS", value_parser = retry)]
    retry: Option<RetryPolicy>,
    /// The limit of one attempt; never for none
    #[arg(long, value_name = "SPAN|never", value_parser = timeout)]
    timeout: Option<Timeout>,
    /// How long succeeded and cancelled tasks stay
    #[arg(long, value_name = "SPAN|forever", value_parser = keep)]
    keep: Option<Keep>,
    /// How long dead tasks stay
    #[arg(long, value_name = "SPAN|forever", value_parser = keep)]
    keep_dead: Option<Keep>,
    /// Whether a dead task can run again as itself
    #[arg(long, value_name = "BOOL")]
    reopen: Option<bool>,
}

/// A number that may be none. Its own type, as an option of an option means something else to clap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit(Option<u32>);

/// Carries a command out.
pub(crate) fn run(command: PoolCommand, config: &Config, form: Form, lang: Lang) -> Outcome<ExitCode> {
    // A pool may be set before its first task is handed in.
    let missing = if matches!(command, PoolCommand::Set(_)) { Missing::Make } else { Missing::Refuse };
    visit(config, missing, async |reached| carry_out(command, reached, form, lang).await)
}

async fn carry_out(command: PoolCommand, reached: &Reached, form: Form, lang: Lang) -> Outcome<ExitCode> {
    let client = &reached.client;
    match command {
        PoolCommand::List => {
            let pools = all(client, lang).await?;
            output::list(&pools, &titles(lang), form)?;
            if pools.is_empty() {
                say(lang.pick(
                    "No pool has settings of its own; every pool exists by being named.",
                    "独自の設定を持つプールはありません（プールは名前を使うだけで存在します）。",
                ));
            }
        }
        PoolCommand::Get { name } => show(client, &name, form, lang).await?,
        PoolCommand::Set(wish) => {
            let name = wish.name.clone();
            let settings = wish.applied_to(client.pool(&name).await?);
            client.set_pool(&name, settings).await?;
            show(client, &name, form, lang).await?;
        }
        PoolCommand::Pause { name } => pause(client, &name, true, form, lang).await?,
        PoolCommand::Resume { name } => pause(client, &name, false, form, lang).await?,
    }
    Ok(Exit::Success.into())
}

async fn pause(client: &Client, name: &str, paused: bool, form: Form, lang: Lang) -> Outcome<()> {
    let settings = client.pool(name).await?;
    client.set_pool(name, PoolSettings { paused, ..settings }).await?;
    show(client, name, form, lang).await
}

async fn show(client: &Client, name: &str, form: Form, lang: Lang) -> Outcome<()> {
    let pool = Shown::new(PoolName::new(name)?, client.pool(name).await?, lang);
    Ok(output::one(&pool, &pool.facts(), form)?)
}

/// Every pool that somebody set.
pub(crate) async fn all(client: &Client, lang: Lang) -> ekiden::Result<Vec<Shown>> {
    let (mut pools, mut cursor) = (Vec::new(), None);
    loop {
        let page = client.queue().pools(client.namespace().clone(), cursor, 100).await?;
        pools.extend(page.items.into_iter().map(|pool| Shown::new(pool.name, pool.settings, lang)));
        cursor = page.cursor;
        if cursor.is_none() {
            return Ok(pools);
        }
    }
}

impl Set {
    fn applied_to(self, mut settings: PoolSettings) -> PoolSettings {
        let policy: &mut Policy = Arc::make_mut(&mut settings.policy);
        assign(&mut policy.attempts_max, self.attempts);
        assign(&mut policy.crashes_max, self.crashes.map(|limit| limit.0));
        assign(&mut policy.retry, self.retry);
        assign(&mut policy.timeout, self.timeout);
        assign(&mut policy.keep, self.keep);
        assign(&mut policy.keep_dead, self.keep_dead);
        assign(&mut policy.reopen, self.reopen);
        assign(&mut settings.running_max, self.running_max.map(|limit| limit.0));
        assign(&mut settings.concurrency, self.concurrency);
        assign(&mut settings.lease, self.lease);
        assign(&mut settings.poll, self.poll);
        settings
    }
}

/// What is not named stays as it is.
fn assign<T>(place: &mut T, wish: Option<T>) {
    if let Some(wish) = wish {
        *place = wish;
    }
}

/// A pool as it is shown.
#[derive(Serialize)]
#[serde(transparent)]
pub(crate) struct Shown {
    pool: wire::Pool,
    #[serde(skip)]
    settings: PoolSettings,
    #[serde(skip)]
    lang: Lang,
}

impl Shown {
    fn new(name: PoolName, settings: PoolSettings, lang: Lang) -> Self {
        Self { pool: wire::Pool { name, settings: (&settings).into() }, settings, lang }
    }

    /// Their names are those of the flags that set them.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let (settings, policy) = (&self.settings, &self.settings.policy);
        vec![
            ("pool", self.pool.name.to_string()),
            ("state", paused_word(settings.paused, self.lang).to_owned()),
            ("running-max", or_none(settings.running_max)),
            ("concurrency", concurrency_text(settings.concurrency)),
            ("lease", span_text(settings.lease)),
            ("poll", span_text(settings.poll)),
            ("attempts", policy.attempts_max.to_string()),
            ("crashes", or_none(policy.crashes_max)),
            ("retry", retry_text(&policy.retry)),
            ("timeout", timeout_text(policy.timeout)),
            ("keep", keep_text(policy.keep)),
            ("keep-dead", keep_text(policy.keep_dead)),
            ("reopen", policy.reopen.to_string()),
        ]
    }
}

impl Show for Shown {
    fn id(&self) -> &str {
        self.pool.name.as_str()
    }

    fn cells(&self) -> Vec<String> {
        let policy = &self.settings.policy;
        vec![
            self.pool.name.to_string(),
            paused_word(self.settings.paused, self.lang).to_owned(),
            or_none(self.settings.running_max),
            policy.attempts_max.to_string(),
            retry_text(&policy.retry),
            timeout_text(policy.timeout),
            keep_text(policy.keep),
        ]
    }
}

/// The titles of a list of pools.
pub(crate) const fn titles(lang: Lang) -> [&'static str; 7] {
    match lang {
        Lang::En => ["POOL", "STATE", "RUNNING-MAX", "ATTEMPTS", "RETRY", "TIMEOUT", "KEEP"],
        Lang::Ja => ["プール", "状態", "同時実行の上限", "試行", "再試行", "制限時間", "保存期間"],
    }
}

const fn paused_word(paused: bool, lang: Lang) -> &'static str {
    if paused { lang.pick("paused", "一時停止中") } else { lang.pick("open", "受付中") }
}

fn or_none(limit: Option<u32>) -> String {
    limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string())
}

fn count_or_none(text: &str) -> Result<Limit, String> {
    match text {
        "none" => Ok(Limit(None)),
        _ => text.parse().map(|count| Limit(Some(count))).map_err(|_| "a number, or none".to_owned()),
    }
}

fn concurrency(text: &str) -> Result<Concurrency, String> {
    match text {
        "cores" => Ok(Concurrency::Cores),
        _ => text.parse().map(Concurrency::Fixed).map_err(|_| "a number, or cores".to_owned()),
    }
}

fn concurrency_text(concurrency: Concurrency) -> String {
    match concurrency {
        Concurrency::Cores => "cores".to_owned(),
        Concurrency::Fixed(count) => count.to_string(),
    }
}

fn timeout(text: &str) -> Result<Timeout, String> {
    if text == "never" { Ok(Timeout::Never) } else { span(text).map(Timeout::After) }
}

fn timeout_text(timeout: Timeout) -> String {
    match timeout {
        Timeout::After(limit) => span_text(limit),
        Timeout::Never => "never".to_owned(),
    }
}

fn keep(text: &str) -> Result<Keep, String> {
    if text == "forever" { Ok(Keep::Forever) } else { span(text).map(Keep::For) }
}

fn keep_text(keep: Keep) -> String {
    match keep {
        Keep::For(time) => span_text(time),
        Keep::Forever => "forever".to_owned(),
    }
}

fn retry(text: &str) -> Result<RetryPolicy, String> {
    if text == "never" {
        return Ok(RetryPolicy::Never);
    }
    if let Some((base, cap)) = text.split_once("..") {
        let (base, cap) = (span(base)?, span(cap)?);
        return Ok(RetryPolicy::Exponential { base, factor_percent: 200, cap, jitter: Jitter::Equal });
    }
    let delays = text.split(',').map(span).collect::<Result<Vec<_>, _>>()?;
    Ok(match delays.as_slice() {
        [delay] => RetryPolicy::Fixed { delay: *delay },
        _ => RetryPolicy::Steps { delays },
    })
}

/// As the flag has it; a growth that the flag cannot say is named.
fn retry_text(retry: &RetryPolicy) -> String {
    match retry {
        RetryPolicy::Never => "never".to_owned(),
        RetryPolicy::Fixed { delay } => span_text(*delay),
        RetryPolicy::Steps { delays } => delays.iter().map(|delay| span_text(*delay)).collect::<Vec<_>>().join(","),
        RetryPolicy::Exponential { base, factor_percent: 200, cap, .. } => {
            format!("{}..{}", span_text(*base), span_text(*cap))
        }
        RetryPolicy::Exponential { base, factor_percent, cap, .. } => {
            format!("{}..{} ({factor_percent} %)", span_text(*base), span_text(*cap))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_written_as_they_are_read() {
        for text in ["never", "5s", "1s,5s,1m", "1s..5m"] {
            assert_eq!(retry_text(&retry(text).unwrap()), text);
        }
        for wrong in ["", "soon", "1s..", "1s,,2s", "5"] {
            assert!(retry(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn limits_are_written_as_they_are_read() {
        for text in ["none", "3"] {
            assert_eq!(or_none(count_or_none(text).unwrap().0), text);
        }
        for text in ["cores", "8"] {
            assert_eq!(concurrency_text(concurrency(text).unwrap()), text);
        }
        assert_eq!(timeout_text(timeout("never").unwrap()), "never");
        assert_eq!(keep_text(keep("forever").unwrap()), "forever");
        assert!(count_or_none("-1").is_err() && concurrency("many").is_err());
    }
}
