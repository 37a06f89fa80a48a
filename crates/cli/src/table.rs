//! Draws tasks: as a table for people, and as one line for each change. Knows nothing of terminals.
//!
//! Only characters of a known width are drawn: lines and blocks are two columns wide on some Japanese terminals.

use comfy_table::{Attribute, Cell, Color, ColumnConstraint, ContentArrangement, Row as Line, Table, Width, presets};
use ekiden::TaskState;
use ekiden::core::{Millis, Progress, Timestamp};

use crate::language::Lang;
use crate::row::Row;

/// Below this the columns that matter leave no room for a note.
pub(crate) const WIDTH_MIN: u16 = 64;

/// Blanks between columns.
const GAP: u16 = 2;

/// The columns whose content changes, without their gap: fixed, so that nothing jumps. `retry_scheduled` is the longest
/// state; a bar with its percentage is the longest progress.
const STATE_WIDTH: u16 = 15;
const ATTEMPT_WIDTH: u16 = 7;
const PROGRESS_WIDTH: u16 = 16;

/// The last column takes what is left.
const NOTE: usize = 4;

/// The marks of a full bar.
const BAR: u64 = 8;

/// How much room a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// So many columns: notes are clipped, every task is one line.
    Columns(u16),
    /// As much as it needs.
    Any,
}

/// The table, with colours; whoever prints it takes them away where they are not wanted.
pub(crate) fn draw(rows: &[Row], now: Timestamp, lang: Lang, room: Room) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).enforce_styling();
    table.style_text_only();
    let titles = match lang {
        Lang::En => ["TASK", "STATE", "ATTEMPT", "PROGRESS", "NOTE"],
        Lang::Ja => ["タスク", "状態", "試行", "進捗", "メモ"],
    };
    table.set_header(titles.map(|title| Cell::new(title).add_attribute(Attribute::Bold)));
    for row in rows {
        table.add_row(line(row, now, lang));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, GAP));
    }
    if let Some(notes) = table.column_mut(NOTE) {
        notes.set_padding((0, 0));
    }
    table.set_content_arrangement(ContentArrangement::Disabled);
    if let Room::Columns(width) = room {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        for (index, fixed) in [(1, STATE_WIDTH), (2, ATTEMPT_WIDTH), (3, PROGRESS_WIDTH)] {
            if let Some(column) = table.column_mut(index) {
                column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(fixed + GAP)));
            }
        }
        if let Some(names) = table.column_mut(0) {
            names.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table.trim_fmt()
}

fn line(row: &Row, now: Timestamp, lang: Lang) -> Line {
    let state = row.state.unwrap_or(TaskState::Pending);
    let color = color(state);
    let mut line = Line::from([
        Cell::new(row.id.as_str()),
        Cell::new(state_word(state, lang)).fg(color),
        Cell::new(attempt(row)),
        Cell::new(progress(row, now, lang)).fg(color),
        Cell::new(row.open_error().unwrap_or(&row.title)),
    ]);
    line.max_height(1);
    line
}

/// A change as one line of `name=value`. The names and states are the same in every language.
pub(crate) fn change(row: &Row, since_start: Millis, now: Timestamp) -> String {
    let state = row.state.unwrap_or(TaskState::Pending);
    let mut line = format!("t={} task={} state={state} attempt={}", tenths(since_start), row.id, attempt(row));
    if let Some(wait) = row.waits(now).filter(|_| !row.is_final()) {
        line.push_str(&format!(" in={}", tenths(wait)));
    }
    match row.open_error().filter(|_| state != TaskState::Running) {
        Some(error) => line.push_str(&format!(" error={error:?}")),
        None if row.attempt == 0 => line.push_str(&format!(" note={:?}", row.title)),
        None => {}
    }
    line
}

fn attempt(row: &Row) -> String {
    format!("{}/{}", row.attempt, row.attempts_max)
}

/// A bar while it runs, a countdown while it waits, and in the end how long it took.
fn progress(row: &Row, now: Timestamp, lang: Lang) -> String {
    if let Some(took) = row.took() {
        return format!("{} {}", tenths(took), lang.pick("s", "秒"));
    }
    match (row.state, &row.progress, row.waits(now)) {
        (Some(TaskState::Running), Some(progress), _) => bar(progress),
        (Some(TaskState::RetryScheduled), _, Some(wait)) => countdown(wait, lang, "retry in"),
        (Some(TaskState::Queued), _, Some(wait)) => countdown(wait, lang, "starts in"),
        _ => String::new(),
    }
}

fn countdown(wait: Millis, lang: Lang, what: &str) -> String {
    match lang {
        Lang::En => format!("{what} {} s", tenths(wait)),
        Lang::Ja => format!("あと {} 秒", tenths(wait)),
    }
}

fn bar(progress: &Progress) -> String {
    let Some(total) = progress.total.filter(|&total| total > 0) else { return progress.done.to_string() };
    let done = progress.done.min(total);
    let full = usize::try_from(done.saturating_mul(BAR) / total).unwrap_or(0);
    let rest = usize::try_from(BAR).unwrap_or(0).saturating_sub(full);
    format!("[{}{}] {:>3} %", "=".repeat(full), "-".repeat(rest), done.saturating_mul(100) / total)
}

/// Seconds with one decimal.
fn tenths(span: Millis) -> String {
    let tenths = span.as_u64().div_ceil(100);
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// The eight colours that every terminal has and themes choose for its background; the bright ones vanish on white.
pub(crate) const fn color(state: TaskState) -> Color {
    match state {
        TaskState::Running => Color::DarkCyan,
        TaskState::RetryScheduled | TaskState::NeedsInput => Color::DarkYellow,
        TaskState::Succeeded => Color::DarkGreen,
        TaskState::Dead => Color::DarkRed,
        TaskState::Pending | TaskState::Blocked | TaskState::Queued | TaskState::Cancelled => Color::DarkGrey,
    }
}

pub(crate) const fn state_word(state: TaskState, lang: Lang) -> &'static str {
    state.word(lang.of_messages())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ekiden::core::TaskId;

    use super::*;

    fn row(id: &str, title: &str) -> Row {
        Row::new(TaskId::new(id).unwrap(), Arc::from(title), 5)
    }

    fn columns(text: &str) -> usize {
        text.chars().map(|c| if c.is_ascii() { 1 } else { 2 }).sum()
    }

    #[test]
    fn a_table_stays_inside_its_room_and_in_its_columns_in_both_languages() {
        let rows = [
            row("resize-photos", "a note that is much too long for a terminal as narrow as this one is"),
            row("襷リレー", "この端末の幅にはとても収まりきらないくらい長い説明文"),
        ];
        for lang in [Lang::En, Lang::Ja] {
            let drawn = draw(&rows, Timestamp::ZERO, lang, Room::Columns(WIDTH_MIN));
            let plain = anstream::adapter::strip_str(&drawn).to_string();
            assert_eq!(plain.lines().count(), rows.len() + 1, "one line a task:\n{plain}");
            for line in plain.lines() {
                assert!(columns(line) <= usize::from(WIDTH_MIN), "{line}");
            }
            let attempts = plain.lines().skip(1).map(|line| columns(line.split_once("0/5").unwrap().0));
            assert_eq!(attempts.collect::<Vec<_>>(), [32, 32], "{plain}");
            assert_eq!(plain.matches("...").count(), rows.len(), "what is clipped says so:\n{plain}");
        }
    }

    #[test]
    fn a_bar_is_as_long_when_empty_as_when_full() {
        let drawn = |done, total| bar(&Progress { done, total: Some(total), note: None });
        assert_eq!(drawn(0, 16), "[--------]   0 %");
        assert_eq!(drawn(8, 16), "[====----]  50 %");
        assert_eq!(drawn(16, 16), "[========] 100 %");
        assert_eq!(drawn(20, 16), "[========] 100 %", "more than all is all");
        assert_eq!(drawn(3, 0), "3", "of an unknown total only the count is known");
        assert_eq!(drawn(8, 16).len(), usize::from(PROGRESS_WIDTH));
    }

    #[test]
    fn a_countdown_never_shows_zero() {
        assert_eq!(countdown(Millis::new(1), Lang::En, "retry in"), "retry in 0.1 s");
        assert_eq!(countdown(Millis::new(1_400), Lang::Ja, "retry in"), "あと 1.4 秒");
    }
}
