//! What stands behind the question mark of a request: names that the route knows, each once unless it may repeat.

use std::borrow::Cow;
use std::str::FromStr;

use ekiden_core::filter::TaskFilter;
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_core::task::Phase;

use crate::limits;
use crate::route::{Parameter, Values};

/// The decoded pairs of a query.
#[derive(Debug, Default)]
pub(crate) struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    /// Reads a query; a name that the route does not know, or that stands there twice, is told.
    pub(crate) fn parse(text: Option<&'a str>, known: &[Parameter]) -> Result<Self, Refusal> {
        let text = text.unwrap_or_default();
        let mut pairs: Vec<(Cow<'a, str>, Cow<'a, str>)> = Vec::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            let Some(parameter) = known.iter().find(|parameter| parameter.name == name) else {
                return Err(wrong(&name, "the route knows no such parameter"));
            };
            if !parameter.repeats && pairs.iter().any(|(other, _)| *other == name) {
                return Err(wrong(&name, "it stands there twice"));
            }
            if !value.is_empty() {
                check(parameter, &value)?;
            }
            pairs.push((name, value));
        }
        let is_said = |wanted: &str| pairs.iter().any(|(name, value)| name == wanted && !value.is_empty());
        match known.iter().find(|parameter| parameter.needed && !is_said(parameter.name)) {
            Some(missing) => Err(wrong(missing.name, "missing")),
            None => Ok(Self(pairs)),
        }
    }

    /// The text of this name; an empty one is none.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let named = self.0.iter().find(|(other, value)| other == name && !value.is_empty());
        named.map(|(_, value)| value.as_ref())
    }

    /// All texts of this name.
    pub(crate) fn all<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q str> {
        self.0.iter().filter(move |(other, value)| other == name && !value.is_empty()).map(|(_, value)| value.as_ref())
    }

    /// The number of this name.
    pub(crate) fn number<N: FromStr>(&self, name: &str) -> Result<Option<N>, Refusal> {
        let Some(text) = self.text(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| wrong(name, "not a number, or too large"))
    }

    /// Whether this name stands for yes.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.text(name) == Some("true")
    }

    /// The id of this name.
    pub(crate) fn id<I: TryFrom<String, Error = Refusal>>(&self, name: &str) -> Result<Option<I>, Refusal> {
        self.text(name).map(|text| I::try_from(text.to_owned())).transpose()
    }
}

/// Refuses what the description of a route does not allow.
fn check(parameter: &Parameter, value: &str) -> Result<(), Refusal> {
    let name = parameter.name;
    match parameter.values {
        Values::Text { chars_max } if value.chars().count() > chars_max => {
            Err(wrong(name, "too long").with("limit", chars_max))
        }
        Values::Number { min, max } => {
            let number: u64 = value.parse().map_err(|_| wrong(name, "not a number, or too large"))?;
            if (min..=max).contains(&number) {
                return Ok(());
            }
            let refusal = Refusal::new(ReasonCode::QueryInvalid).with("field", name).with("value", number);
            Err(refusal.with("min", min).with("max", max))
        }
        Values::Flag if !matches!(value, "true" | "false") => Err(wrong(name, "neither true nor false")),
        Values::Words(words) if !words.contains(&value) => {
            Err(wrong(name, "there is no such word").with("words", words.join(", ")))
        }
        // Ids and states are checked where they are made.
        Values::Text { .. } | Values::Id | Values::Words(_) | Values::States | Values::Flag => Ok(()),
    }
}

/// Refuses a filter with more text than anybody searches for, or more states than there are.
pub(crate) fn bounded(filter: TaskFilter) -> Result<TaskFilter, Refusal> {
    if filter.text.as_ref().is_some_and(|text| text.chars().count() > limits::FILTER_TEXT_CHARS_MAX) {
        return Err(wrong("text", "too long").with("limit", limits::FILTER_TEXT_CHARS_MAX));
    }
    if filter.phases.len() > Phase::ALL.len() {
        return Err(wrong("states", "too many").with("limit", Phase::ALL.len()));
    }
    Ok(filter)
}

/// A part of a request that cannot be read.
pub(crate) fn wrong(field: &str, why: impl ToString) -> Refusal {
    Refusal::new(ReasonCode::RequestInvalid).with("field", field.chars().take(128).collect::<String>()).with("why", why)
}
