//! `ekiden config`: what every setting is, and who set it.

use std::process::ExitCode;

use clap::Subcommand;
use serde::Serialize;

use crate::Outcome;
use crate::config::{Config, Shown};
use crate::language::Lang;
use crate::output::{self, Form, Show};

#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show every setting; secrets only as being set.
    Show {
        /// Say also where each value comes from
        #[arg(long)]
        origin: bool,
    },
}

/// Carries a command out.
pub(crate) fn run(command: &ConfigCommand, config: &Config, form: Form, lang: Lang) -> Outcome<ExitCode> {
    let ConfigCommand::Show { origin } = command;
    let lines: Vec<Line> = config.shown().into_iter().map(|shown| Line::new(shown, *origin, lang)).collect();
    let titles: &[&str] = match (lang, origin) {
        (Lang::En, false) => &["SETTING", "VALUE", "MEANING"],
        (Lang::En, true) => &["SETTING", "VALUE", "ORIGIN", "MEANING"],
        (Lang::Ja, false) => &["設定", "値", "意味"],
        (Lang::Ja, true) => &["設定", "値", "出どころ", "意味"],
    };
    output::list(&lines, titles, form)?;
    Ok(ExitCode::SUCCESS)
}

/// A setting as it is shown.
#[derive(Serialize)]
struct Line {
    key: &'static str,
    value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    about: &'static str,
}

impl Line {
    fn new(shown: Shown, origin: bool, lang: Lang) -> Self {
        let about = lang.pick(shown.about.0, shown.about.1);
        Self { key: shown.key, value: shown.value, origin: origin.then_some(shown.origin), about }
    }
}

impl Show for Line {
    fn id(&self) -> &str {
        self.key
    }

    fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.key.to_owned(), self.value.clone()];
        cells.extend(self.origin.clone());
        cells.push(self.about.to_owned());
        cells
    }
}
