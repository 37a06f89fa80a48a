//! Data on stdout, in the form that was asked for: a table for people, tabs for pipes, JSON for programs, ids for shells.

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::{Attribute, Cell, Color, ColumnConstraint, ContentArrangement, Row, Table, presets};
use serde::Serialize;

use crate::Outcome;

/// How data is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// Columns; with tabs between them where nobody looks
    Table,
    /// One JSON document
    Json,
    /// One JSON document a line
    Jsonl,
    /// Only the ids, one a line
    Id,
}

/// Something that can be shown in every form.
pub(crate) trait Show: Serialize {
    /// What names it.
    fn id(&self) -> &str;
    /// Its cells, as many as there are titles.
    fn cells(&self) -> Vec<String>;
    /// The cell that has a colour on a terminal, and which.
    fn tint(&self) -> Option<(usize, Color)> {
        None
    }
}

/// Writes a list.
pub(crate) fn list<T: Show>(items: &[T], titles: &[&str], form: Form) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    let written = match form {
        Form::Table if io::stdout().is_terminal() => writeln!(out, "{}", table(items, titles, width())),
        Form::Table => tabs(&mut out, items),
        Form::Json => json(&mut out, &items),
        Form::Jsonl => items.iter().try_for_each(|item| json(&mut out, item)),
        Form::Id => items.iter().try_for_each(|item| writeln!(out, "{}", item.id())),
    };
    while_read(written.and_then(|()| out.flush()))
}

/// Writes one thing; as a table, its facts one a line.
pub(crate) fn one<T: Show>(item: &T, facts: &[(&str, String)], form: Form) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    let written = match form {
        Form::Table if facts.is_empty() => Ok(()),
        Form::Table if io::stdout().is_terminal() => writeln!(out, "{}", pairs(facts)),
        Form::Table => facts.iter().try_for_each(|(name, value)| writeln!(out, "{name}\t{}", cell(value))),
        Form::Json => pretty(&mut out, item),
        Form::Jsonl => json(&mut out, item),
        Form::Id => writeln!(out, "{}", item.id()),
    };
    while_read(written.and_then(|()| out.flush()))
}

/// Every column as wide as it needs, but the last, which takes what is left: ids can be copied whole, and every item is
/// one line.
fn table<T: Show>(items: &[T], titles: &[&str], width: Option<u16>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(titles.iter().map(|title| Cell::new(title).add_attribute(Attribute::Bold)));
    for item in items {
        let tint = |index: usize| item.tint().filter(|(tinted, _)| *tinted == index).map(|(_, color)| color);
        let cells = item.cells().into_iter().enumerate().map(|(index, text)| match tint(index) {
            Some(color) => Cell::new(cell(&text)).fg(color),
            None => Cell::new(cell(&text)),
        });
        let mut row = Row::from(cells.collect::<Vec<_>>());
        row.max_height(1);
        table.add_row(row);
    }
    let last = titles.len().saturating_sub(1);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if index == last { 0 } else { 2 }));
        if index != last {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    table.trim_fmt()
}

/// Names and values in two columns; a long value goes on below itself.
fn pairs(facts: &[(&str, String)]) -> String {
    let wide = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| format!("{name:wide$}  {}", cell(value));
    facts.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The columns of the terminal.
fn width() -> Option<u16> {
    rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| size.ws_col).filter(|columns| *columns > 0)
}

fn tabs<T: Show>(out: &mut impl Write, items: &[T]) -> io::Result<()> {
    for item in items {
        let cells: Vec<String> = item.cells().iter().map(|text| cell(text)).collect();
        writeln!(out, "{}", cells.join("\t"))?;
    }
    Ok(())
}

fn json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    writeln!(out)
}

fn pretty(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

/// Writes a line of its own.
pub(crate) fn line(text: &str) -> io::Result<()> {
    while_read(put(text))
}

/// Writes a line of many, where a reader that has gone is worth knowing.
pub(crate) fn put(text: &str) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush())
}

/// Writes something that is no task and no list as one JSON document, or its text.
pub(crate) fn document(value: &impl Serialize, text: &str, form: Form) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    let written = match form {
        Form::Json => pretty(&mut out, value),
        Form::Jsonl => json(&mut out, value),
        Form::Table | Form::Id => write!(out, "{text}"),
    };
    while_read(written.and_then(|()| out.flush()))
}

/// One line without anything that moves a cursor or turns the direction of the text behind it.
pub(crate) fn cell(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_turn(c) { ' ' } else { c }).collect()
}

/// Whether a character is a mark of direction: what is shown behind it stands in another order than it is.
const fn is_turn(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A reader that has seen enough, such as `head`, is no error.
fn while_read(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// The same, where other things can go wrong too.
pub(crate) fn unless_closed(outcome: Outcome<()>) -> Outcome<()> {
    match outcome {
        Err(error) if is_closed(&*error) => Ok(()),
        outcome => outcome,
    }
}

/// Whether the reader of the data has gone.
pub(crate) fn is_closed(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Item(&'static str, &'static str);

    const LAST: &str = "last, and rather long for a terminal that has only so many columns";

    impl Show for Item {
        fn id(&self) -> &str {
            self.0
        }

        fn cells(&self) -> Vec<String> {
            vec![self.0.to_owned(), self.1.to_owned(), LAST.to_owned()]
        }
    }

    fn columns(text: &str) -> usize {
        text.chars().map(|c| if c.is_ascii() { 1 } else { 2 }).sum()
    }

    #[test]
    fn columns_align_whatever_the_language_and_the_last_one_is_cut() {
        let items =
            [Item("襷リレー", "実行中"), Item("a-rather-long-id", "running"), Item("x", "a\tb\u{1b}[31m\u{202e}")];
        let drawn = table(&items, &["ID", "状態", "NOTE"], None);
        let plain = anstream::adapter::strip_str(&drawn).to_string();
        let starts: Vec<usize> =
            plain.lines().skip(1).map(|line| columns(line.split_once("last").unwrap().0)).collect();
        assert!(starts.windows(2).all(|pair| pair[0] == pair[1]), "{plain}");
        assert!(!drawn.contains("\u{1b}[31m"), "what tasks say moves no cursor");
        assert!(!drawn.contains('\u{202e}'), "and turns no text around");
        let narrow = anstream::adapter::strip_str(&table(&items, &["ID", "状態", "NOTE"], Some(60))).to_string();
        assert_eq!(narrow.lines().count(), items.len() + 1, "one line an item:\n{narrow}");
        assert!(narrow.lines().all(|line| columns(line) <= 60), "{narrow}");
        assert!(narrow.contains("a-rather-long-id"), "ids are whole:\n{narrow}");
    }
}
