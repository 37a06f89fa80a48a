//! `ekiden dev`: a handful of demo tasks, in memory or in a folder, carried by the real runner before one's eyes.

use std::error::Error;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use ekiden::store::Address;
use ekiden::{Client, Ekiden, Ended, Heard, Subscription, TaskState};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;

use crate::demo;
use crate::language::Lang;
use crate::row::Row;
use crate::screen::Screen;
use crate::table::state_word;

/// Ten frames a second: a countdown in tenths needs no more.
const FRAME: Duration = Duration::from_millis(100);

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Runs the demo until every task has ended, or until somebody interrupts it.
pub(crate) fn run(data: Option<PathBuf>, lang: Lang) -> Outcome<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let address = data.map_or(Address::Memory, Address::Local);
    runtime.block_on(Dev::new(address, lang)?.run())
}

struct Dev {
    lang: Lang,
    address: Address,
    screen: Screen,
    rows: Vec<Row>,
}

impl Dev {
    fn new(address: Address, lang: Lang) -> Outcome<Self> {
        Ok(Self { lang, address, screen: Screen::new(lang), rows: Vec::new() })
    }

    async fn run(mut self) -> Outcome<ExitCode> {
        let mut interrupts = Interrupts::listen()?;
        let ekiden = Ekiden::builder(self.address.open().await?).build();
        self.screen.say(&self.greeting());
        let client = ekiden.namespace("dev")?;
        self.say_counts(&client, "Still there from earlier", "前回までのタスク").await?;
        let mut changes = client.subscribe().await?;
        self.rows = demo::hand_in(&client, self.lang).await?;
        self.screen.begin(&self.rows)?;

        let runner = demo::runner(&client)?;
        let stop = runner.stop();
        let mut run = pin!(runner.run_until_stopped());
        let mut frames = tokio::time::interval(FRAME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut interrupt = None;
        let ended = loop {
            tokio::select! {
                ended = &mut run => break ended?,
                heard = changes.next() => self.hear(heard, &client).await?,
                // However often it is asked: the runner hands back what it holds, which takes a moment, and ends.
                caught = interrupts.next() => {
                    interrupt.get_or_insert(caught);
                    stop.at_once();
                }
                _ = frames.tick(), if self.screen.is_live() => self.screen.draw(&self.rows)?,
            }
            if self.rows.iter().all(Row::is_final) {
                stop.gently();
            }
        };
        self.hear_the_rest(&mut changes, &client).await?;
        self.screen.end(&self.rows)?;
        let code = self.conclude(interrupt, &ended);
        if self.address != Address::Memory {
            self.say_counts(&client, "Kept", "保存済み").await?;
        }
        ekiden.close().await?;
        Ok(code)
    }

    fn greeting(&self) -> String {
        match (&self.address, self.lang) {
            (Address::Memory, Lang::En) => "ekiden dev: demo tasks in memory, nothing is kept. Ctrl-C ends.".to_owned(),
            (Address::Memory, Lang::Ja) => {
                "ekiden dev: メモリ上のデモタスクです（保存されません）。Ctrl-C で終了します。".to_owned()
            }
            (kept, Lang::En) => format!("ekiden dev: demo tasks, kept in {kept}. Ctrl-C ends."),
            (kept, Lang::Ja) => format!("ekiden dev: {kept} に保存されるデモタスクです。Ctrl-C で終了します。"),
        }
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
            Some(Heard::Change(change)) => {
                if let Some(row) = self.rows.iter_mut().find(|row| row.id == change.id)
                    && row.hear(&change)
                {
                    self.screen.tell(row);
                }
            }
            Some(Heard::Missed(_)) => {
                for row in &mut self.rows {
                    row.catch_up(&client.get_status(&row.id).await?);
                }
            }
            // The queue lives as long as the client does.
            None => {}
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

    fn conclude(&self, interrupt: Option<Interrupt>, ended: &Ended) -> ExitCode {
        if let Some(interrupt) = interrupt {
            self.screen.say(&self.handed_back(ended));
            return interrupt.exit_code();
        }
        if !self.rows.iter().all(Row::is_final) {
            self.screen.say(self.lang.pick(
                "ekiden: the runner ended before its tasks did",
                "ekiden: タスクが終わる前にランナーが終了しました",
            ));
            return ExitCode::FAILURE;
        }
        let count = |state| self.rows.iter().filter(|row| row.state == Some(state)).count();
        let (succeeded, dead) = (count(TaskState::Succeeded), count(TaskState::Dead));
        self.screen.say(&match self.lang {
            Lang::En => format!(
                "All have ended, as they should: {succeeded} succeeded, {dead} dead.\n\
                 Next: press Ctrl-C halfway and see what is handed back, or write your own: cargo doc -p ekiden --open"
            ),
            Lang::Ja => format!(
                "すべて予定どおり終了しました（成功 {succeeded}、失敗 {dead}）。\n\
                 次は、途中で Ctrl-C を押してタスクがキューに戻る様子を見るか、自分のタスクを書いてみてください: cargo doc -p ekiden --open"
            ),
        });
        ExitCode::SUCCESS
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

/// A signal that asked the command to end.
#[derive(Clone, Copy, Debug)]
enum Interrupt {
    Keyboard,
    Terminate,
}

impl Interrupt {
    /// 128 and the signal's number, as shells have it.
    fn exit_code(self) -> ExitCode {
        match self {
            Self::Keyboard => ExitCode::from(130),
            Self::Terminate => ExitCode::from(143),
        }
    }
}

struct Interrupts {
    keyboard: Signal,
    terminate: Signal,
}

impl Interrupts {
    fn listen() -> Outcome<Self> {
        Ok(Self { keyboard: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) -> Interrupt {
        tokio::select! {
            _ = self.keyboard.recv() => Interrupt::Keyboard,
            _ = self.terminate.recv() => Interrupt::Terminate,
        }
    }
}
