//! Figures, for people as a table and for programs as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use crate::Outcome;
use crate::machine::{self, Machine};

/// One measured number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Its name, which stays the same over versions.
    pub id: &'static str,
    /// Ours.
    pub value: f64,
    /// What it counts.
    pub unit: &'static str,
    /// Whose number stands beside it.
    pub peer: Option<&'static str>,
    /// Theirs.
    pub peer_value: Option<f64>,
    /// Ours divided by theirs, whether more or less is better.
    pub ratio: Option<f64>,
    /// What we hold ourselves to, in words.
    pub bar: Option<&'static str>,
    /// Whether we did.
    pub ok: Option<bool>,
}

impl Figure {
    /// A number that stands alone.
    pub fn new(id: &'static str, value: f64, unit: &'static str) -> Self {
        Self { id, value: rounded(value), unit, peer: None, peer_value: None, ratio: None, bar: None, ok: None }
    }

    /// With a peer's number beside it.
    #[must_use]
    pub fn beside(mut self, peer: &'static str, peer_value: f64) -> Self {
        self.peer = Some(peer);
        self.peer_value = Some(rounded(peer_value));
        self.ratio = (peer_value > 0.0).then(|| rounded(self.value / peer_value));
        self
    }

    /// With what we hold ourselves to.
    #[must_use]
    pub const fn held_to(mut self, bar: &'static str, ok: bool) -> Self {
        self.bar = Some(bar);
        self.ok = Some(ok);
        self
    }
}

/// Three places are more than any of these figures is worth.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Half a thread's worth of other work: from here on figures are noticeably worse than they could be.
const BUSY: f64 = 0.5;

/// All figures of a run, with what they were measured on.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    machine: Machine,
    versions: BTreeMap<&'static str, String>,
    /// A short run, whose figures mean little.
    quick: bool,
    figures: Vec<Figure>,
}

impl Report {
    /// A report of figures that were measured on this machine.
    pub fn new(machine: Machine, quick: bool, figures: Vec<Figure>) -> Self {
        Self { machine, versions: machine::versions(), quick, figures }
    }

    /// The figures whose bar was missed.
    pub fn missed(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().filter(|figure| figure.ok == Some(false))
    }

    /// A table, then the bars that were missed.
    pub fn table(&self) -> String {
        let titles = ["figure", "value", "unit", "peer", "theirs", "ratio", "bar", ""].map(str::to_owned);
        let mut rows = vec![titles];
        rows.extend(self.figures.iter().map(cells));
        let mut text = aligned(&rows);
        for figure in self.missed() {
            let (value, bar) = (number(figure.value), figure.bar.unwrap_or_default());
            let ratio = figure.ratio.map(|ratio| format!(" ({ratio:.2} of the peer)")).unwrap_or_default();
            let _ = writeln!(text, "MISSED: {} is {value} {}{ratio}, the bar is {bar}", figure.id, figure.unit);
        }
        if self.missed().next().is_none() {
            text.push_str("no bar missed\n");
        }
        if let Some(load) = self.machine.load.filter(|load| *load > BUSY) {
            let _ = writeln!(text, "NOTE: the machine was busy before (load {load:.1}); repeat this when it is quiet");
        }
        text
    }

    /// Writes the report as JSON.
    pub fn write(&self, file: &Path) -> Outcome<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(file, text).map_err(|error| format!("cannot write \"{}\": {error}", file.display()).into())
    }
}

fn cells(figure: &Figure) -> [String; 8] {
    let verdict = figure.ok.map(|ok| if ok { "ok" } else { "MISSED" });
    [
        figure.id.to_owned(),
        number(figure.value),
        figure.unit.to_owned(),
        figure.peer.unwrap_or_default().to_owned(),
        figure.peer_value.map(number).unwrap_or_default(),
        figure.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
        figure.bar.unwrap_or_default().to_owned(),
        verdict.unwrap_or_default().to_owned(),
    ]
}

/// Columns of numbers end alike, columns of words begin alike.
fn aligned(rows: &[[String; 8]]) -> String {
    const IS_NUMBER: [bool; 8] = [false, true, false, false, true, true, false, false];
    let mut widths = [0; 8];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for ((cell, width), is_number) in row.iter().zip(widths).zip(IS_NUMBER) {
            let _ = if is_number { write!(line, "{cell:>width$}  ") } else { write!(line, "{cell:<width$}  ") };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// Thousands set apart, one decimal where there are few digits.
fn number(value: f64) -> String {
    if value < 1_000.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let figures = vec![
            Figure::new("fast", 1_234_567.0, "tasks/s").beside("peer", 2_469_134.0).held_to("≥ 0.25", true),
            Figure::new("slow", 60.0, "µs").held_to("≤ 50 µs", false),
            Figure::new("plain", 1.0, "s"),
        ];
        Report::new(Machine::here(), true, figures)
    }

    #[test]
    fn the_table_shows_ratio_and_missed_bars() {
        let table = report().table();
        let fast = table.lines().nth(1).unwrap();
        assert_eq!(fast, "fast    1,234,567  tasks/s  peer  2,469,134   0.50  ≥ 0.25   ok");
        assert!(table.contains("\nMISSED: slow is 60.0 µs, the bar is ≤ 50 µs\n"), "{table}");
    }

    #[test]
    fn what_does_not_apply_is_null_in_json() {
        let json = serde_json::to_value(report()).unwrap();
        let plain = &json["figures"][2];
        for field in ["peer", "peer_value", "ratio", "bar", "ok"] {
            assert!(plain.as_object().unwrap().contains_key(field) && plain[field].is_null(), "{field}");
        }
        assert_eq!(json["figures"][0]["ratio"], 0.5);
        assert!(json["machine"].get("host").is_none());
    }
}
