//! How values of flags are read: lengths of time, moments, labels, states.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use ekiden::TaskState;
use ekiden::core::{Millis, Priority, Timestamp};

/// A length of time, as in `1500ms`, `90s`, `5m`, `2h` or `7d`.
pub(crate) fn span(text: &str) -> Result<Millis, String> {
    let at = text.find(|c: char| !c.is_ascii_digit()).ok_or("a unit is missing, as in 90s, 5m or 2h")?;
    let (number, unit) = text.split_at(at);
    let number: u64 = number.parse().map_err(|_| "a whole number with a unit, as in 90s, 5m or 2h".to_owned())?;
    let unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("the unit is ms, s, m, h or d".to_owned()),
    };
    number.checked_mul(unit).map(Millis::new).ok_or_else(|| "longer than time lasts".to_owned())
}

/// A length of time as [`span`] reads it, in the largest unit that says it exactly.
pub(crate) fn span_text(span: Millis) -> String {
    let millis = span.as_u64();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let exact = units.into_iter().find(|(unit, _)| millis > 0 && millis.is_multiple_of(*unit));
    exact.map_or_else(|| format!("{millis}ms"), |(unit, name)| format!("{}{name}", millis / unit))
}

/// A moment with its offset.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text).map_err(|_| "a moment with its offset, as in 2026-11-20T09:00:00+09:00".to_owned())
}

/// A name and a value.
pub(crate) fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a name and a value, as in team=blue")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// A priority by its name or number.
pub(crate) fn priority(text: &str) -> Result<i32, String> {
    match text {
        "low" => Ok(Priority::LOW.get()),
        "normal" => Ok(Priority::NORMAL.get()),
        "high" => Ok(Priority::HIGH.get()),
        "urgent" => Ok(Priority::URGENT.get()),
        _ => text.parse().map_err(|_| "low, normal, high, urgent, or a number from -100 to 100".to_owned()),
    }
}

/// The states by their names, so that help lists them and a typo is answered with the right one.
pub(crate) fn states() -> impl TypedValueParser<Value = TaskState> {
    PossibleValuesParser::new(TaskState::ALL.map(TaskState::as_str)).map(|name| {
        let state = TaskState::ALL.into_iter().find(|state| state.as_str() == name);
        state.expect("only names of states come through")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_a_unit_and_nothing_else() {
        assert_eq!(span("90s"), Ok(Millis::from_secs(90)));
        assert_eq!(span("1500ms"), Ok(Millis::new(1_500)));
        assert_eq!(span("7d"), Ok(Millis::from_days(7)));
        for wrong in ["", "5", "m", "-5m", "1.5h", "5 m", "99999999999999999999s", "18446744073709551615d"] {
            assert!(span(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn spans_are_written_as_they_are_read() {
        for text in ["0ms", "1ms", "1500ms", "90s", "5m", "2h", "7d"] {
            assert_eq!(span_text(span(text).unwrap()), text);
        }
        assert_eq!(span_text(Millis::from_secs(120)), "2m");
    }
}
