//! `ekiden dev`: a server, a runner and a handful of demo tasks in one command, in memory or in a folder.

use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ekiden::store::Address;
use ekiden::{Client, Ekiden, Ended, Heard, Subscription, TaskChange, TaskState};
use ekiden_server::Events;
use tokio::time::MissedTickBehavior;

use crate::config::{Config, Origin};
use crate::demo::{self, Extent};
use crate::exit::Exit;
use crate::front::{Front, Served};
use crate::interrupt::Interrupts;
use crate::language::Lang;
use crate::row::Row;
use crate::screen::Screen;
use crate::table::state_word;
use crate::{Outcome, browser, reference};

pub(crate) const EXAMPLES: &str = "\
Examples:
  ekiden dev                    # in memory, gone at the end
  ekiden dev --data ./data      # kept, and there again with the next start
  ekiden dev --once             # ends when the demo tasks have";

/// Ten frames a second: a countdown in tenths needs no more.
const FRAME: Duration = Duration::from_millis(100);

/// 200 tasks are shown beside the demo's; the oldest go first.
const GUESTS_MAX: usize = 200;

#[derive(Args, Default)]
pub(crate) struct DevWish {
    /// Keep the tasks in this folder; without it they are in memory, and gone at the end
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// End when the demo tasks have ended
    #[arg(long)]
    once: bool,
    /// Open no browser
    #[arg(long)]
    no_open: bool,
}

/// Serves and runs until somebody interrupts it, or once through the demo.
pub(crate) fn run(wish: DevWish, config: &Config, lang: Lang) -> Outcome<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let address = wish.data.clone().map_or(Address::Memory, Address::Local);
    let dev = Dev { lang, address, wish, config, screen: Screen::new(lang), rows: Vec::new(), demo_rows: 0 };
    runtime.block_on(dev.run())
}

struct Dev<'a> {
    lang: Lang,
    address: Address,
    wish: DevWish,
    config: &'a Config,
    screen: Screen,
    /// The demo's tasks, and behind them what others hand in.
    rows: Vec<Row>,
    demo_rows: usize,
}

impl Dev<'_> {
    async fn run(mut self) -> Outcome<ExitCode> {
        let mut interrupts = Interrupts::listen()?;
        let events = Arc::new(Events::new());
        let ekiden = Ekiden::builder(self.address.open().await?).observer(events.clone()).build();
        let served = match Front::listen(self.config, &ekiden, events, &self.address).await {
            Ok(front) => front.serve(),
            Err(error) => {
                ekiden.close().await?;
                return Err(error);
            }
        };
        let client = ekiden.namespace(self.config.require("namespace")?)?;
        self.screen.say(&self.greeting(served.url()));
        self.say_counts(&client, "Still there from earlier", "前回までのタスク").await?;
        if !self.wish.no_open && !self.wish.once {
            browser::open(served.url());
        }
        let ended = self.carry(&client, &mut interrupts).await;
        let code = self.leave(ended, &client, served).await;
        ekiden.close().await?;
        code
    }

    /// Runs tasks until it is enough. Says also which signal it was, if it was one.
    async fn carry(&mut self, client: &Client, interrupts: &mut Interrupts) -> Outcome<(Ended, Option<Exit>)> {
        let mut changes = client.subscribe().await?;
        let extent = if self.wish.once { Extent::WithoutQuestions } else { Extent::All };
        self.rows = demo::hand_in(client, extent, self.lang).await?;
        self.demo_rows = self.rows.len();
        self.screen.begin(&self.rows)?;
        let runner = demo::runner(client)?;
        let stop = runner.stop();
        let mut run = pin!(runner.run_until_stopped());
        let mut frames = tokio::time::interval(FRAME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut interrupt = None;
        let ended = loop {
            tokio::select! {
                ended = &mut run => break ended?,
                heard = changes.next() => self.hear(heard, client).await?,
                // However often it is asked: the runner hands back what it holds, which takes a moment, and ends.
                caught = interrupts.next() => {
                    interrupt.get_or_insert(caught);
                    stop.at_once();
                }
                _ = frames.tick(), if self.screen.is_live() => self.screen.draw(&self.rows)?,
            }
            if self.wish.once && self.has_ended() {
                stop.gently();
            }
        };
        self.hear_the_rest(&mut changes, client).await?;
        self.screen.end(&self.rows)?;
        Ok((ended, interrupt))
    }

    /// Says how it ended, and lets everybody go.
    async fn leave(&self, ended: Outcome<(Ended, Option<Exit>)>, client: &Client, served: Served) -> Outcome<ExitCode> {
        let code = match ended {
            Ok((ended, interrupt)) => {
                let code = self.conclude(interrupt, &ended);
                if self.address != Address::Memory {
                    self.say_counts(client, "Kept", "保存済み").await?;
                }
                Ok(code.into())
            }
            Err(error) => Err(error),
        };
        served.end().await;
        code
    }

    fn has_ended(&self) -> bool {
        self.rows.iter().take(self.demo_rows).all(Row::is_final)
    }

    /// The address, and what to do next: commands that can be copied.
    fn greeting(&self, url: &str) -> String {
        let ekiden = reference::called();
        // Commands that are told another place have to be told of this one.
        let flag = if self.config.origin("url") == Origin::Default { String::new() } else { format!(" --url {url}") };
        let place = match (&self.address, self.lang) {
            (Address::Memory, Lang::En) => format!("ekiden dev: {url}, in memory, nothing is kept"),
            (Address::Memory, Lang::Ja) => format!("ekiden dev: {url}（メモリ上、保存されません）"),
            (kept, Lang::En) => format!("ekiden dev: {url}, kept in {kept}"),
            (kept, Lang::Ja) => format!("ekiden dev: {url}（{kept} に保存）"),
        };
        if self.wish.once {
            return place;
        }
        // Padded by hand: a letter of Japanese is two columns wide.
        let words = match self.lang {
            Lang::En => ["list:  ", "add:   ", "why:   ", "retry: ", "answer:", "API:   ", "stop:  "],
            Lang::Ja => ["一覧:  ", "追加:  ", "理由:  ", "再試行:", "回答:  ", "API:   ", "終了:  "],
        };
        let steps = [
            format!("{ekiden} task list{flag}"),
            format!("{ekiden} task add leg '{{\"steps\": 30}}' --follow{flag}"),
            format!("{ekiden} task explain send-mail{flag}"),
            format!("{ekiden} task retry send-mail{flag}"),
            format!("{ekiden} task answer ship-it yes{flag}"),
            format!("{url}/docs"),
            "Ctrl-C".to_owned(),
        ];
        words.into_iter().zip(steps).fold(place, |text, (word, step)| format!("{text}\n  {word} {step}"))
    }

    /// How many tasks the store has, by state; nothing if it has none.
    async fn say_counts(&self, client: &Client, en: &str, ja: &str) -> Outcome<()> {
        let counts = client.counts_by_state().await?;
        let states = counts.by_phase.iter().filter(|(_, count)| **count > 0);
        let states: Vec<_> =
            states.map(|(state, count)| format!("{} {count}", state_word(*state, self.lang))).collect();
        if !states.is_empty() {
            self.screen.say(&match self.lang {
                Lang::En => format!("{en}: {}", states.join(", ")),
                Lang::Ja => format!("{ja}: {}", states.join("、")),
            });
        }
        Ok(())
    }

    async fn hear(&mut self, heard: Option<Heard>, client: &Client) -> Outcome<()> {
        match heard {
            Some(Heard::Change(change)) => self.hear_change(&change, client).await,
            Some(Heard::Missed(_)) => {
                for row in &mut self.rows {
                    row.catch_up(&client.get_status(&row.id).await?);
                }
                Ok(())
            }
            // The queue lives as long as the client does.
            None => Ok(()),
        }
    }

    async fn hear_change(&mut self, change: &TaskChange, client: &Client) -> Outcome<()> {
        if !self.rows.iter().any(|row| row.id == change.id) {
            let Ok(record) = client.get_status(&change.id).await else { return Ok(()) };
            let title = record.title.clone().unwrap_or_else(|| Arc::from(record.envelope.task_type.as_str()));
            self.rows.push(Row::new(record.id.clone(), title, record.max_attempts));
            if self.rows.len() > self.demo_rows + GUESTS_MAX {
                self.rows.remove(self.demo_rows);
            }
        }
        if let Some(row) = self.rows.iter_mut().find(|row| row.id == change.id)
            && row.hear(change)
        {
            self.screen.tell(row);
        }
        Ok(())
    }

    /// What happened before the runner ended has been told already; nothing is waited for.
    async fn hear_the_rest(&mut self, changes: &mut Subscription, client: &Client) -> Outcome<()> {
        loop {
            tokio::select! {
                biased;
                heard = changes.next() => self.hear(heard, client).await?,
                () = std::future::ready(()) => return Ok(()),
            }
        }
    }

    fn conclude(&self, interrupt: Option<Exit>, ended: &Ended) -> Exit {
        if let Some(exit) = interrupt {
            self.screen.say(&self.handed_back(ended));
            return exit;
        }
        if !self.has_ended() {
            self.screen.say(self.lang.pick(
                "ekiden: the runner ended before its tasks did",
                "ekiden: タスクが終わる前にランナーが終了しました",
            ));
            return Exit::Failure;
        }
        let count = |state| self.rows.iter().take(self.demo_rows).filter(|row| row.state == Some(state)).count();
        let (succeeded, dead) = (count(TaskState::Succeeded), count(TaskState::Dead));
        self.screen.say(&match self.lang {
            Lang::En => format!("All have ended, as they should: {succeeded} succeeded, {dead} dead."),
            Lang::Ja => format!("すべて予定どおり終了しました（成功 {succeeded}、失敗 {dead}）。"),
        });
        Exit::Success
    }

    /// In the order of the screen.
    fn handed_back(&self, ended: &Ended) -> String {
        let ids = self.rows.iter().map(|row| &row.id).filter(|id| ended.handed_back.contains(id));
        let names: Vec<&str> = ids.map(|id| id.as_str()).collect();
        match (self.lang, names.is_empty()) {
            (Lang::En, true) => "Stopped. Nothing was running.".to_owned(),
            (Lang::En, false) => format!("Stopped. Handed back unfinished: {}", names.join(", ")),
            (Lang::Ja, true) => "中断しました。実行中のタスクはありませんでした。".to_owned(),
            (Lang::Ja, false) => format!("中断しました。キューに戻したタスク: {}", names.join(", ")),
        }
    }
}
