//! Which language a person reads, and the few texts of this command in both.

use clap::ValueEnum;
use ekiden::core::{Language, Refusal};

use crate::config::Config;

/// A language of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Lang {
    /// English.
    En,
    /// Japanese.
    Ja,
}

impl Lang {
    /// By `LC_ALL`, `LC_MESSAGES` or `LANG`, in this order; English where none is Japanese.
    pub(crate) fn from_environment() -> Self {
        let set = ["LC_ALL", "LC_MESSAGES", "LANG"]
            .iter()
            .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
        if set.is_some_and(|value| value.starts_with("ja")) { Self::Ja } else { Self::En }
    }

    /// The language that the settings name, or that of the environment.
    pub(crate) fn of(config: &Config) -> Result<Self, Refusal> {
        match config.get("lang") {
            None => Ok(Self::from_environment()),
            Some(code) => [Self::En, Self::Ja]
                .into_iter()
                .find(|lang| lang.code() == code)
                .ok_or_else(|| config.wrong("lang", "en or ja")),
        }
    }

    /// Its short name.
    pub(crate) const fn code(self) -> &'static str {
        self.pick("en", "ja")
    }

    /// The same for texts that belong to reason codes.
    pub(crate) const fn of_messages(self) -> Language {
        match self {
            Self::En => Language::En,
            Self::Ja => Language::Ja,
        }
    }

    /// The text of this language.
    pub(crate) const fn pick(self, en: &'static str, ja: &'static str) -> &'static str {
        match self {
            Self::En => en,
            Self::Ja => ja,
        }
    }
}
