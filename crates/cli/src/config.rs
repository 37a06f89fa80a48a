//! Settings and where each comes from: a flag, an `EKIDEN_*` variable, `./ekiden.toml`, the user's own file, or the default,
//! in this order.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use ekiden::core::{ReasonCode, Refusal};

use crate::nearest::nearest;

/// One setting: its name in files, its variable, and what it is if nobody says.
struct Setting {
    key: &'static str,
    variable: &'static str,
    default: Option<&'static str>,
    about: (&'static str, &'static str),
}

/// Every setting there is. `config show` and the files know no other.
const SETTINGS: [Setting; 9] = [
    Setting {
        key: "url",
        variable: "EKIDEN_URL",
        default: Some("local:./ekiden-data"),
        about: ("the store, or the server at http://HOST:PORT", "ストア、または http://HOST:PORT のサーバー"),
    },
    Setting {
        key: "namespace",
        variable: "EKIDEN_NAMESPACE",
        default: Some("default"),
        about: ("the namespace that commands mean", "コマンドの対象となる名前空間"),
    },
    Setting {
        key: "token",
        variable: "EKIDEN_TOKEN",
        default: None,
        about: ("the token for a server that asks for one", "サーバーに渡すトークン"),
    },
    Setting {
        key: "lang",
        variable: "EKIDEN_LANG",
        default: None,
        about: (
            "the language of messages, en or ja; LANG decides otherwise",
            "メッセージの言語（en / ja）。なければ LANG",
        ),
    },
    Setting {
        key: "serve.listen",
        variable: "EKIDEN_LISTEN",
        default: Some("127.0.0.1:7707"),
        about: ("the address that the server listens on", "サーバーが待ち受けるアドレス"),
    },
    Setting {
        key: "serve.hosts",
        variable: "EKIDEN_HOSTS",
        default: Some(""),
        about: ("further host names that the server answers for", "サーバーが応答する追加のホスト名"),
    },
    Setting {
        key: "serve.folder",
        variable: "EKIDEN_FOLDER",
        default: None,
        about: (
            "where tokens and logs are; the data folder, if there is one",
            "トークンとログの場所。既定はデータフォルダー",
        ),
    },
    Setting {
        key: "log.level",
        variable: "EKIDEN_LOG",
        default: Some("info"),
        about: ("error, warn, info, debug or trace", "error、warn、info、debug、trace のいずれか"),
    },
    Setting {
        key: "log.format",
        variable: "EKIDEN_LOG_FORMAT",
        default: Some("text"),
        about: ("text or json", "text または json"),
    },
];

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Flag,
    Variable(&'static str),
    File(PathBuf),
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Variable(name) => f.write_str(name),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) text: String,
    pub(crate) origin: Origin,
}

/// What all settings are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    values: BTreeMap<&'static str, Value>,
}

/// A setting as it is shown: no secret among them.
pub(crate) struct Shown {
    pub(crate) key: &'static str,
    pub(crate) value: String,
    pub(crate) origin: String,
    pub(crate) about: (&'static str, &'static str),
}

impl Config {
    /// Reads everything: flags as given, then variables, `./ekiden.toml` and the user's file.
    pub(crate) fn load(flags: &[(&'static str, Option<String>)]) -> Result<Self, Refusal> {
        let files = [Some(PathBuf::from("ekiden.toml")), user_file()];
        Self::gather(
            flags,
            |name| std::env::var(name).ok().filter(|value| !value.is_empty()),
            files.into_iter().flatten(),
        )
    }

    fn gather(
        flags: &[(&'static str, Option<String>)],
        variable: impl Fn(&str) -> Option<String>,
        files: impl IntoIterator<Item = PathBuf>,
    ) -> Result<Self, Refusal> {
        let mut config = Self::default();
        for (key, value) in flags {
            if let Some(text) = value {
                config.set(key, text.clone(), Origin::Flag);
            }
        }
        for setting in &SETTINGS {
            if let Some(text) = variable(setting.variable) {
                config.set(setting.key, text, Origin::Variable(setting.variable));
            }
        }
        for file in files {
            for (key, text) in read(&file)? {
                config.set(key, text, Origin::File(file.clone()));
            }
        }
        for setting in &SETTINGS {
            if let Some(text) = setting.default {
                config.set(setting.key, text.to_owned(), Origin::Default);
            }
        }
        Ok(config)
    }

    /// Whoever comes first is heard.
    fn set(&mut self, key: &'static str, text: String, origin: Origin) {
        self.values.entry(key).or_insert(Value { text, origin });
    }

    /// A setting that may be missing.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(|value| value.text.as_str())
    }

    /// A setting that has a default.
    pub(crate) fn require(&self, key: &str) -> Result<&str, Refusal> {
        self.get(key).ok_or_else(|| self.wrong(key, "it is not set"))
    }

    /// Who set it.
    pub(crate) fn origin(&self, key: &str) -> Origin {
        self.values.get(key).map_or(Origin::Default, |value| value.origin.clone())
    }

    /// The refusal of a value.
    pub(crate) fn wrong(&self, key: &str, why: impl ToString) -> Refusal {
        Refusal::new(ReasonCode::ConfigInvalid).with("field", key).with("origin", self.origin(key)).with("why", why)
    }

    /// Every setting with its value and its origin.
    pub(crate) fn shown(&self) -> Vec<Shown> {
        let show = |setting: &Setting| {
            let value = match (setting.key, self.get(setting.key)) {
                // Whoever looks over a shoulder learns that there is one, and no more.
                ("token", Some(_)) => "(set)".to_owned(),
                (_, Some(text)) => text.to_owned(),
                (_, None) => String::new(),
            };
            let origin = match self.get(setting.key) {
                Some(_) => self.origin(setting.key).to_string(),
                None => "-".to_owned(),
            };
            Shown { key: setting.key, value, origin, about: setting.about }
        };
        SETTINGS.iter().map(show).collect()
    }
}

/// `$XDG_CONFIG_HOME/ekiden/config.toml`, or the same below `~/.config`.
fn user_file() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(folder.join("ekiden").join("config.toml"))
}

/// The settings of a file; none if there is no file.
fn read(path: &Path) -> Result<Vec<(&'static str, String)>, Refusal> {
    let wrong = |field: &str, why: String| {
        Refusal::new(ReasonCode::ConfigInvalid).with("origin", path.display()).with("field", field).with("why", why)
    };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(wrong("-", error.to_string())),
    };
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| wrong("-", error.message().to_owned()))?;
    let mut found = Vec::new();
    flatten("", &table, &mut |key, value| {
        // Commands for kinds are read by those who run them.
        if key.starts_with("handlers.") {
            return Ok(());
        }
        let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key) else {
            return Err(wrong(key, unknown(key)));
        };
        found.push((setting.key, plain(value).ok_or_else(|| wrong(key, "a text, or a list of texts".to_owned()))?));
        Ok(())
    })?;
    Ok(found)
}

fn flatten(
    prefix: &str,
    table: &toml::Table,
    found: &mut impl FnMut(&str, &toml::Value) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    for (name, value) in table {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            toml::Value::Table(table) => flatten(&key, table, found)?,
            value => found(&key, value)?,
        }
    }
    Ok(())
}

fn plain(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Array(items) => {
            items.iter().map(toml::Value::as_str).collect::<Option<Vec<_>>>().map(|items| items.join(","))
        }
        _ => None,
    }
}

/// What to say of a name that is not known: the one that was probably meant.
fn unknown(key: &str) -> String {
    match nearest(key, SETTINGS.iter().map(|setting| setting.key)) {
        Some(meant) => format!("there is no such setting; did you mean {meant}?"),
        None => "there is no such setting".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gather(flag: Option<&str>, variable: Option<&str>, text: &str) -> Result<Config, Refusal> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ekiden.toml");
        std::fs::write(&file, text).unwrap();
        let variable = |name: &str| variable.filter(|_| name == "EKIDEN_URL").map(str::to_owned);
        Config::gather(&[("url", flag.map(str::to_owned))], variable, [file, folder.path().join("none.toml")])
    }

    #[test]
    fn a_flag_beats_a_variable_beats_a_file_beats_the_default() {
        let file = "url = \"f\"";
        let url = |config: Config| config.get("url").unwrap().to_owned();
        assert_eq!(url(gather(Some("a"), Some("b"), file).unwrap()), "a");
        assert_eq!(url(gather(None, Some("b"), file).unwrap()), "b");
        assert_eq!(url(gather(None, None, file).unwrap()), "f");
        let plain = gather(None, None, "").unwrap();
        assert_eq!((plain.get("url"), plain.origin("url")), (Some("local:./ekiden-data"), Origin::Default));
    }

    #[test]
    fn tables_and_lists_are_read_and_secrets_are_not_shown() {
        let config =
            gather(None, None, "token = \"s3cret\"\n[serve]\nhosts = [\"a\", \"b\"]\n[log]\nlevel = \"warn\"").unwrap();
        assert_eq!((config.get("serve.hosts"), config.get("log.level")), (Some("a,b"), Some("warn")));
        assert!(config.shown().iter().all(|shown| !shown.value.contains("s3cret")));
        assert!(matches!(config.origin("token"), Origin::File(_)));
    }

    #[test]
    fn a_name_that_is_not_known_is_told_with_the_one_that_was_meant() {
        let refusal = gather(None, None, "[serve]\nlisten_ = \"x\"").unwrap_err();
        assert_eq!(refusal.code, ReasonCode::ConfigInvalid);
        assert!(refusal.context.get("why").unwrap().contains("did you mean serve.listen?"), "{refusal}");
        for wrong in ["url = 3", "url = [1]", "= x"] {
            assert_eq!(gather(None, None, wrong).unwrap_err().code, ReasonCode::ConfigInvalid, "{wrong}");
        }
    }
}
