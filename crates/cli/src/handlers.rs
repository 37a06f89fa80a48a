//! Which command runs which kind: the table `[handlers.KIND]` of `ekiden.toml`, or what a command line says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ekiden::Logs;
use ekiden::core::{ReasonCode, Refusal};
use ekiden::exec::{CommandHandler, Directory, Supervisor};
use ekiden::files::{self, Trust};
use serde::Deserialize;

use crate::config::FILE_BYTES_MAX;
use crate::task::span;

/// The file that the table stands in.
const FILE: &str = "ekiden.toml";

/// How a kind's tasks are run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recipe {
    /// The program and its arguments.
    #[serde(default)]
    pub(crate) command: Vec<String>,
    /// A line for a shell, instead.
    #[serde(default)]
    pub(crate) shell: Option<String>,
    /// The limit of one attempt, beside the task's own.
    #[serde(default, deserialize_with = "length")]
    pub(crate) timeout: Option<Duration>,
    /// Between TERM and KILL.
    #[serde(default, deserialize_with = "length")]
    pub(crate) grace: Option<Duration>,
    /// The longest silence in the events.
    #[serde(default, deserialize_with = "length")]
    pub(crate) silence: Option<Duration>,
    /// Variables that get through.
    #[serde(default)]
    pub(crate) env: Vec<String>,
    /// The memory of each process.
    #[serde(default, deserialize_with = "size")]
    pub(crate) memory: Option<u64>,
    /// Where it works, instead of a folder of its own.
    #[serde(default)]
    pub(crate) dir: Option<PathBuf>,
    /// Whether the folders of attempts stay.
    #[serde(default)]
    pub(crate) keep_dir: bool,
    /// How many run at once.
    #[serde(default)]
    pub(crate) concurrency: Option<usize>,
}

impl Recipe {
    /// The handler of a kind.
    pub(crate) fn handler(&self, kind: &str, logs: Option<Arc<dyn Logs>>) -> Result<CommandHandler, Refusal> {
        let wrong = |why: &str| {
            let refusal = Refusal::new(ReasonCode::ConfigInvalid).with("field", format!("handlers.{kind}"));
            refusal.with("why", why)
        };
        let supervisor = Supervisor::this_program();
        let mut handler = match (&self.shell, self.command.split_first()) {
            (Some(line), None) => CommandHandler::shell(kind, line, supervisor),
            (None, Some((program, arguments))) => {
                let program = found(program).map_err(|why| wrong(&why.to_string()))?;
                CommandHandler::new(kind, std::iter::once(program).chain(arguments.iter().cloned()), supervisor)
            }
            (Some(_), Some(_)) => return Err(wrong("a command or a line for a shell, not both")),
            (None, None) => return Err(wrong("a command is missing")),
        };
        for name in &self.env {
            handler = handler.keep_variable(name);
        }
        if let Some(path) = &self.dir {
            let path = std::path::absolute(path).map_err(|why| wrong(&why.to_string()))?;
            if !path.is_dir() {
                return Err(wrong("dir is no folder").with("path", path.display()));
            }
            handler = handler.directory(Directory::At(path));
        }
        // A wish that was not made is not passed on.
        macro_rules! pass_on {
            ($($wish:ident => $method:ident,)+) => {
                $(if let Some(value) = self.$wish { handler = handler.$method(value); })+
            };
        }
        pass_on! { timeout => time_max, grace => grace, silence => silence_max, memory => memory_bytes_max, }
        if let Some(logs) = logs {
            handler = handler.logs(logs);
        }
        Ok(if self.keep_dir { handler.keep_folders() } else { handler })
    }
}

/// A program with a path is meant from here; the command itself works elsewhere.
fn found(program: &str) -> std::io::Result<String> {
    if !program.contains('/') {
        return Ok(program.to_owned());
    }
    Ok(std::path::absolute(program)?.to_string_lossy().into_owned())
}

/// The table of `./ekiden.toml`; empty if there is none.
pub(crate) fn table() -> Result<BTreeMap<String, Recipe>, Refusal> {
    read(Path::new(FILE))
}

fn read(path: &Path) -> Result<BTreeMap<String, Recipe>, Refusal> {
    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        handlers: BTreeMap<String, Recipe>,
    }
    let wrong = |why: String| {
        let refusal = Refusal::new(ReasonCode::ConfigInvalid).with("origin", path.display());
        refusal.with("field", "handlers").with("why", why)
    };
    let text = match files::read_text(path, Trust::Named, FILE_BYTES_MAX) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(wrong(error.to_string())),
    };
    toml::from_str::<File>(&text).map(|file| file.handlers).map_err(|error| wrong(error.message().to_owned()))
}

fn length<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    span(&text).map(|span| Some(span.as_duration())).map_err(serde::de::Error::custom)
}

fn size<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    bytes(&text).map(Some).map_err(serde::de::Error::custom)
}

/// A length of time, for flags.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    span(text).map(|span| span.as_duration())
}

/// A number of bytes, as in `512MiB` or `2GiB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let number: u64 = number.parse().map_err(|_| "a number of bytes, as in 512MiB".to_owned())?;
    let unit = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err("the unit is B, KiB, MiB or GiB".to_owned()),
    };
    number.checked_mul(unit).ok_or_else(|| "more than there is".to_owned())
}

/// The words of a text, as a shell would see them, but nothing is expanded: quotes keep together, a backslash takes the next
/// character as it is.
pub(crate) fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => {
                word.get_or_insert_default().extend(characters.next());
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed".to_owned());
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_split_as_a_shell_would_and_nothing_is_expanded() {
        let split = |text| words(text).unwrap();
        assert_eq!(split("my-agent --task -"), ["my-agent", "--task", "-"]);
        assert_eq!(split(r#"a 'b c' "d \" e" f\ g '' $HOME"#), ["a", "b c", "d \" e", "f g", "", "$HOME"]);
        assert_eq!(split("  "), Vec::<String>::new());
        assert!(words("'open").is_err());
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!((bytes("512MiB"), bytes("7")), (Ok(512 << 20), Ok(7)));
        for wrong in ["", "MiB", "5MB", "99999999999GiB"] {
            assert!(bytes(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_table_is_read_and_what_it_does_not_know_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        assert_eq!(read(&file).unwrap(), BTreeMap::new());
        let text =
            "url = \"x\"\n[handlers.echo]\ncommand = [\"cat\"]\ngrace = \"5s\"\nmemory = \"1GiB\"\nenv = [\"A\"]";
        std::fs::write(&file, text).unwrap();
        let table = read(&file).unwrap();
        let recipe = &table["echo"];
        assert_eq!((recipe.grace, recipe.memory), (Some(Duration::from_secs(5)), Some(1 << 30)));
        assert!(recipe.handler("echo", None).is_ok());
        assert!(Recipe::default().handler("x", None).is_err(), "no command");
        std::fs::write(&file, "[handlers.echo]\ncomand = [\"cat\"]").unwrap();
        let refusal = read(&file).unwrap_err();
        assert!(refusal.context.get("why").unwrap().contains("comand"), "{refusal}");
    }
}
