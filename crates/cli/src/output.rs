//! Data on stdout, in the form that was asked for: a table for people, tabs for pipes, JSON for programs, ids for shells.

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::{Attribute, Cell, ContentArrangement, Table, presets};
use serde::Serialize;

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
}

/// Writes a list.
pub(crate) fn list<T: Show>(items: &[T], titles: &[&str], form: Form) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    let written = match form {
        Form::Table if io::stdout().is_terminal() => writeln!(out, "{}", table(items, titles)),
        Form::Table => tabs(&mut out, items),
        Form::Json => json(&mut out, &items),
        Form::Jsonl => items.iter().try_for_each(|item| json(&mut out, item)),
        Form::Id => items.iter().try_for_each(|item| writeln!(out, "{}", item.id())),
    };
    unless_closed(written.and_then(|()| out.flush()))
}

/// Writes one thing; as a table, its facts one a line.
pub(crate) fn one<T: Show>(item: &T, facts: &[(&str, String)], form: Form) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    let written = match form {
        Form::Table => facts.iter().try_for_each(|(name, value)| writeln!(out, "{name}\t{}", cell(value))),
        Form::Json => pretty(&mut out, item),
        Form::Jsonl => json(&mut out, item),
        Form::Id => writeln!(out, "{}", item.id()),
    };
    unless_closed(written.and_then(|()| out.flush()))
}

fn table<T: Show>(items: &[T], titles: &[&str]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(titles.iter().map(|title| Cell::new(title).add_attribute(Attribute::Bold)));
    for item in items {
        table.add_row(item.cells().iter().map(|text| cell(text)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
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

/// One line without anything that moves a cursor.
fn cell(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A reader that has seen enough, such as `head`, is no error.
fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
