//! How far long work is, on a terminal: a bar where the end is known, a spinner where it is not. Anywhere else, silence.

use std::borrow::Cow;
use std::io::{self, IsTerminal};
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use ekiden::store::transfer::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Ten times a second: enough to be seen moving.
const TICK: Duration = Duration::from_millis(100);

/// A bar on stderr, gone when it is dropped.
pub(crate) struct Bar {
    bar: ProgressBar,
}

impl Bar {
    /// A spinner with what is being done. Becomes a bar when a total is heard of.
    pub(crate) fn start(what: impl Into<Cow<'static, str>>) -> Self {
        let stderr = io::stderr();
        // A terminal without cursor control gets nothing, like a pipe.
        let is_wanted = stderr.is_terminal() && AutoStream::choice(&stderr) != ColorChoice::Never;
        if !is_wanted {
            return Self { bar: ProgressBar::hidden() };
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(style("{spinner} {msg} {pos}"));
        bar.set_message(what);
        bar.enable_steady_tick(TICK);
        bar.tick();
        Self { bar }
    }

    /// Hears how far a transfer is. Its tasks are counted; other records come with them.
    pub(crate) fn hear(&self, progress: &Progress) {
        self.set(progress.moved.tasks + progress.moved.skipped, progress.tasks_total.unwrap_or(0));
    }

    /// So much is done of a total, which is 0 where it is not known.
    pub(crate) fn set(&self, done: u64, total: u64) {
        if total > 0 && self.bar.length() != Some(total) {
            self.bar.set_length(total);
            self.bar.set_style(style("{spinner} {msg} [{bar:24}] {pos}/{len} {eta}"));
        }
        self.bar.set_position(done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Only characters of a known width are drawn: blocks are two columns wide on some Japanese terminals.
fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("=>-").tick_chars("|/-\\ ")
}
