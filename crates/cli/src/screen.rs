//! Where tasks are seen: a table redrawn in place on a terminal, or one line a change anywhere else.

use std::io::{self, IsTerminal, Write};

use anstream::{AutoStream, ColorChoice};
use ekiden::core::Timestamp;
use ekiden::store::{Clock, SystemClock};

use crate::language::Lang;
use crate::row::Row;
use crate::table::{self, Room, WIDTH_MIN};

/// Besides the tasks: the header, and the line that the cursor stands on.
const EXTRA_LINES: usize = 2;

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// A terminal or a file, with the language of its reader.
pub(crate) struct Screen {
    lang: Lang,
    start: Timestamp,
    live: Option<Live>,
}

impl Screen {
    /// Redraws in place where that is possible and wanted: not in a pipe, with `NO_COLOR` or on a dumb terminal.
    pub(crate) fn new(lang: Lang) -> Self {
        let stdout = io::stdout();
        let is_wanted = stdout.is_terminal() && AutoStream::choice(&stdout) != ColorChoice::Never;
        Self { lang, start: SystemClock.now(), live: is_wanted.then(Live::default) }
    }

    /// Says something beside the data.
    pub(crate) fn say(&self, text: &str) {
        // Whoever does not listen any more misses nothing.
        let _ = writeln!(anstream::stderr(), "{text}");
    }

    /// Begins to show these tasks, and others that come. A terminal too small for them gets lines.
    pub(crate) fn begin(&mut self, rows: &[Row]) -> io::Result<()> {
        let fits = |(columns, lines)| columns >= WIDTH_MIN && usize::from(lines) >= rows.len().max(1) + EXTRA_LINES;
        match &mut self.live {
            Some(live) if size().is_some_and(fits) => live.hide_cursor(),
            _ => {
                self.live = None;
                Ok(())
            }
        }
    }

    /// Gives lines, whatever the terminal can do.
    pub(crate) fn be_plain(&mut self) {
        self.live = None;
    }

    pub(crate) fn is_live(&self) -> bool {
        self.live.is_some()
    }

    /// Something new happened to a task. In a table the next frame shows it.
    pub(crate) fn tell(&self, row: &Row) {
        if !self.is_live() {
            let now = SystemClock.now();
            self.say(&table::change(row, now.since(self.start), now));
        }
    }

    /// Shows the tasks as they are now, where the table is redrawn.
    pub(crate) fn draw(&mut self, rows: &[Row]) -> io::Result<()> {
        match (&mut self.live, size()) {
            (Some(live), Some((columns, lines))) => {
                let room = usize::from(lines).saturating_sub(EXTRA_LINES);
                let rows = most_telling(rows, room);
                live.draw(columns, &table::draw(&rows, SystemClock.now(), self.lang, Room::Columns(columns)))
            }
            _ => Ok(()),
        }
    }

    /// Shows the tasks for the last time.
    pub(crate) fn end(&mut self, rows: &[Row]) -> io::Result<()> {
        if self.is_live() {
            self.draw(rows)?;
            self.live = None;
            return Ok(());
        }
        let table = table::draw(rows, SystemClock.now(), self.lang, Room::Any);
        match writeln!(anstream::stdout(), "{table}") {
            // A reader that has seen enough, such as `head`, is no fault.
            Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            outcome => outcome,
        }
    }
}

/// As many tasks as there is room for: those that have not ended, then the latest, in their order.
fn most_telling(rows: &[Row], room: usize) -> Vec<Row> {
    let mut order: Vec<usize> = (0..rows.len()).rev().collect();
    order.sort_by_key(|&at| rows.get(at).is_some_and(Row::is_final));
    let mut kept: Vec<usize> = order.into_iter().take(room).collect();
    kept.sort_unstable();
    kept.into_iter().filter_map(|at| rows.get(at).cloned()).collect()
}

/// Columns and lines of the terminal.
fn size() -> Option<(u16, u16)> {
    rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| (size.ws_col, size.ws_row))
}

/// A table on a terminal. The cursor is hidden while it lives, and comes back however it ends.
#[derive(Default)]
struct Live {
    columns: u16,
    shown: String,
    hides_cursor: bool,
}

impl Live {
    fn hide_cursor(&mut self) -> io::Result<()> {
        self.hides_cursor = true;
        put(HIDE_CURSOR)
    }

    /// Writes the new table over the old one, line by line and in one piece, so that nothing flickers.
    fn draw(&mut self, columns: u16, table: &str) -> io::Result<()> {
        if columns == self.columns && table == self.shown {
            return Ok(());
        }
        let mut frame = String::from("\r");
        // A terminal that changed its width has broken the old lines anew: nobody knows where they began.
        let above = self.shown.lines().count();
        if columns == self.columns && above > 0 {
            frame.push_str(&format!("\x1b[{above}A"));
        }
        for line in table.lines() {
            frame.push_str(line);
            frame.push_str(CLEAR_LINE);
            frame.push('\n');
        }
        frame.push_str(CLEAR_BELOW);
        put(&frame)?;
        table.clone_into(&mut self.shown);
        self.columns = columns;
        Ok(())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.hides_cursor {
            // A terminal that is gone has no cursor.
            let _ = put(SHOW_CURSOR);
        }
    }
}

fn put(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
