//! Settings and where each comes from: a flag, an `EKIDEN_*` variable, `./ekiden.toml`, the user's own file, or the default,
//! in this order.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use ekiden::core::{ReasonCode, Refusal};
use ekiden::files::{self, Trust};
use ekiden::store::Address;

use crate::nearest::nearest;

/// 1 MiB: far more than all settings and handlers take.
pub(crate) const FILE_BYTES_MAX: u64 = 1024 * 1024;

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
    /// The address that the token was set for, if one was set with it.
    token_for: Option<String>,
    /// Whether the current folder says where the queue is.
    is_led_by_folder: bool,
}

/// Where a server's address comes from, when no setting names the server itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'a> {
    /// The file that a server wrote.
    pub(crate) file: &'a Path,
    /// The token that it left there for its owner.
    pub(crate) token: Option<&'a str>,
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
        Self::gather(
            flags,
            |name| std::env::var(name).ok().filter(|value| !value.is_empty()),
            &PathBuf::from("ekiden.toml"),
            user_file().as_deref(),
        )
    }

    fn gather(
        flags: &[(&'static str, Option<String>)],
        variable: impl Fn(&str) -> Option<String>,
        project_file: &Path,
        user_file: Option<&Path>,
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
        let mut file_urls = Vec::new();
        for file in [Some(project_file), user_file].into_iter().flatten() {
            let settings = read(file)?;
            let url = settings.iter().find(|(key, _)| *key == "url").map(|(_, url)| url.clone());
            file_urls.push((Origin::File(file.to_owned()), url));
            for (key, text) in settings {
                config.set(key, text, Origin::File(file.to_owned()));
            }
        }
        // A token in a file is for the address in the same file. One in the environment is for the address in the environment,
        // on the command line or in the user's own file, and never for one that the current folder names.
        let url_of =
            |wanted: &Origin| file_urls.iter().find(|(file, _)| file == wanted).and_then(|(_, url)| url.clone());
        config.token_for = match config.origin("token") {
            token @ Origin::File(_) => url_of(&token),
            _ => variable("EKIDEN_URL")
                .or_else(|| flags.iter().find(|(key, _)| *key == "url").and_then(|(_, url)| url.clone()))
                .or_else(|| url_of(&Origin::File(user_file?.to_owned()))),
        };
        config.is_led_by_folder = config.origin("url") == Origin::File(project_file.to_owned());
        for setting in &SETTINGS {
            if let Some(text) = setting.default {
                config.set(setting.key, text.to_owned(), Origin::Default);
            }
        }
        Ok(config)
    }

    /// The token for the server at this address. A token is sent only to the scheme, host and port that it was set for: the
    /// current folder may belong to someone else, and must not lead the user's token to another server.
    pub(crate) fn token_for<'a>(&'a self, url: &str, found: Option<Found<'a>>) -> Result<Option<&'a str>, Refusal> {
        let own = found.and_then(|found| found.token);
        // An empty token says that the server takes none.
        let Some(token) = self.get("token").filter(|token| !token.is_empty()) else { return Ok(own) };
        let server = ekiden::server_origin(url).map_err(|error| error.refusal().clone())?;
        match self.token_for.as_deref().and_then(|url| ekiden::server_origin(url).ok()) {
            Some(meant) if meant == server => return Ok(Some(token)),
            // The token is for another server, and this one brings its own.
            Some(_) if own.is_some() => return Ok(own),
            _ => {}
        }
        let server_from =
            found.map_or_else(|| self.origin("url").to_string(), |found| found.file.display().to_string());
        let refusal = Refusal::new(ReasonCode::TokenForOtherServer)
            .with("token_from", self.origin("token"))
            .with("token_for", self.token_for.as_deref().unwrap_or("-"));
        Err(refusal.with("server", url).with("server_from", server_from))
    }

    /// The store that the settings name. The current folder may belong to someone else, and must not lead the user's AWS keys to
    /// a server of theirs.
    pub(crate) fn address(&self) -> ekiden::Result<Address> {
        let address: Address = self.require("url")?.parse()?;
        match address.gets_keys().filter(|_| self.is_led_by_folder) {
            None => Ok(address),
            Some(server) => Err(Refusal::new(ReasonCode::TokenForOtherServer)
                .with("token_from", "AWS keys of this user")
                .with("token_for", "-")
                .with("server", server)
                .with("server_from", self.origin("url"))
                .into()),
        }
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
                ("token", Some(token)) if !token.is_empty() => "(set)".to_owned(),
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
    // It may be a link into a folder of settings, and in a shared folder another user's.
    let text = match files::read_text(path, Trust::Named, FILE_BYTES_MAX) {
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
        Config::gather(&[("url", flag.map(str::to_owned))], variable, &file, Some(&folder.path().join("none.toml")))
    }

    /// What is set where, as in `flag url=U` or `user token=T`.
    fn with_sources(sources: &[(&str, &str, &str)]) -> Config {
        let folder = tempfile::tempdir().unwrap();
        let of = |source: &str, key: &str| {
            let found = sources.iter().find(|(from, name, _)| *from == source && *name == key);
            found.map(|(_, _, text)| (*text).to_owned())
        };
        let file = |source: &str| {
            let path = folder.path().join(source);
            let line = |key: &str| of(source, key).map(|text| format!("{key} = \"{text}\"\n"));
            let lines: String = ["url", "token"].into_iter().filter_map(line).collect();
            std::fs::write(&path, lines).unwrap();
            path
        };
        let variable = |name: &str| match name {
            "EKIDEN_URL" => of("env", "url"),
            "EKIDEN_TOKEN" => of("env", "token"),
            _ => None,
        };
        let (project, user) = (file("project"), file("user"));
        Config::gather(&[("url", of("flag", "url"))], variable, &project, Some(&user)).unwrap()
    }

    const A: &str = "http://jobs.example.com:7707";
    const B: &str = "http://127.0.0.1:7707";

    /// What a command does that means the address of its settings.
    fn sent(sources: &[(&str, &str, &str)]) -> Result<Option<String>, ReasonCode> {
        let config = with_sources(sources);
        let token = config.token_for(config.get("url").unwrap(), None);
        token.map(|token| token.map(str::to_owned)).map_err(|refusal| refusal.code)
    }

    #[test]
    fn a_token_goes_to_the_server_that_was_set_with_it() {
        for sources in [
            &[("env", "token", "t"), ("env", "url", A)][..],
            &[("env", "token", "t"), ("flag", "url", A)],
            &[("env", "token", "t"), ("user", "url", A)],
            &[("user", "token", "t"), ("user", "url", A)],
            &[("project", "token", "t"), ("project", "url", A)],
            // Another place names the same server.
            &[("env", "token", "t"), ("env", "url", A), ("project", "url", "http://evil:1")],
            &[("user", "token", "t"), ("user", "url", A), ("flag", "url", "HTTP://JOBS.example.com:7707/")],
            &[
                ("user", "token", "t"),
                ("user", "url", "http://jobs.example.com"),
                ("env", "url", "http://jobs.example.com:80"),
            ],
            &[("user", "token", "t"), ("user", "url", A), ("project", "url", A)],
            &[("env", "token", "t"), ("user", "url", A), ("project", "url", A)],
        ] {
            assert_eq!(sent(sources), Ok(Some("t".to_owned())), "{sources:?}");
        }
        assert_eq!(sent(&[("project", "url", A)]), Ok(None));
        let none = [("project", "url", B), ("project", "token", ""), ("user", "url", A), ("user", "token", "t")];
        assert_eq!(sent(&none), Ok(None), "a project says that its server takes no token");
    }

    #[test]
    fn a_token_goes_to_no_server_that_another_place_names() {
        for sources in [
            &[("env", "token", "t"), ("project", "url", A)][..],
            &[("env", "token", "t"), ("user", "url", A), ("project", "url", B)],
            &[("user", "token", "t"), ("user", "url", A), ("project", "url", B)],
            &[("user", "token", "t"), ("project", "url", B)],
            &[("user", "token", "t"), ("user", "url", A), ("env", "url", B)],
            &[("user", "token", "t"), ("user", "url", A), ("flag", "url", B)],
            &[("user", "token", "t"), ("flag", "url", A)],
            &[("env", "token", "t"), ("env", "url", A), ("flag", "url", B)],
            &[("project", "token", "t"), ("user", "url", A)],
            &[("env", "token", "t"), ("env", "url", "local:./data"), ("flag", "url", B)],
            // The same machine under another name, port or scheme.
            &[("user", "token", "t"), ("user", "url", "http://localhost:7707"), ("project", "url", B)],
            &[("user", "token", "t"), ("user", "url", B), ("project", "url", "http://127.0.0.1:7708")],
        ] {
            assert_eq!(sent(sources), Err(ReasonCode::TokenForOtherServer), "{sources:?}");
        }
        let https = [("user", "token", "t"), ("user", "url", A), ("project", "url", "https://jobs.example.com:7707")];
        assert_eq!(sent(&https), Err(ReasonCode::UrlInvalid), "no other scheme is spoken");
        let config = with_sources(&[("user", "token", "t"), ("user", "url", A), ("project", "url", B)]);
        let refusal = config.token_for(B, None).unwrap_err();
        let fact = |name: &str| refusal.context.get(name).map(String::as_str).unwrap_or_default();
        assert_eq!((fact("token_for"), fact("server")), (A, B), "it names both");
        assert!(fact("token_from").ends_with("user") && fact("server_from").ends_with("project"), "{refusal}");
    }

    #[test]
    fn a_server_that_was_found_by_its_file_gets_its_own_token_and_no_other() {
        let found = |token| Some(Found { file: Path::new("data/endpoint.json"), token });
        let token = |sources: &[(&str, &str, &str)], left: Option<&'static str>| {
            let config = with_sources(sources);
            let token = config.token_for(B, found(left));
            token.map(|token| token.map(str::to_owned)).map_err(|refusal| refusal.code)
        };
        let (own, foreign) = (Ok(Some("own".to_owned())), Err(ReasonCode::TokenForOtherServer));
        assert_eq!(token(&[], Some("own")), own);
        assert_eq!(token(&[], None), Ok(None));
        let elsewhere = [("user", "url", A), ("user", "token", "t"), ("flag", "url", "local:./data")];
        assert_eq!(token(&elsewhere, Some("own")), own);
        assert_eq!(token(&elsewhere, None), foreign);
        assert_eq!(token(&[("env", "token", "t")], Some("own")), foreign, "nothing says whose token it is");
        let here = [("env", "url", B), ("env", "token", "t"), ("flag", "url", "local:./data")];
        assert_eq!(token(&here, Some("own")), Ok(Some("t".to_owned())));
    }

    /// S6
    #[test]
    fn aws_keys_go_to_no_server_that_the_current_folder_names() {
        const OTHER: &str = "dynamodb:?endpoint=https://dynamodb.example.com";
        fn code(sources: &[(&str, &str, &str)]) -> Option<ReasonCode> {
            with_sources(sources).address().err().map(|error| error.code())
        }
        assert_eq!(code(&[("project", "url", OTHER)]), Some(ReasonCode::TokenForOtherServer));
        assert_eq!(code(&[("user", "url", A), ("project", "url", OTHER)]), Some(ReasonCode::TokenForOtherServer));
        for own in ["flag", "env", "user"] {
            assert_eq!(code(&[(own, "url", OTHER)]), None, "{own}");
        }
        for without_keys in
            ["dynamodb:", "dynamodb:?endpoint=http://127.0.0.1:8000", "dynamodb://eu-central-1?live=true"]
        {
            assert_eq!(code(&[("project", "url", without_keys)]), None, "{without_keys}");
        }
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
