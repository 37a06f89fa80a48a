//! `ekiden token`: who may use a server from outside. Works on the server's folder, whether it runs or not.

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use ekiden::core::{Namespace, Timestamp};
use ekiden::store::{Clock, SystemClock};
use ekiden_server::{Scope, TokenInfo, Tokens};
use serde::Serialize;

use crate::Outcome;
use crate::config::Config;
use crate::language::Lang;
use crate::output::{self, Form, Show};
use crate::say;

#[derive(Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print it. It is not shown again.
    Create {
        /// Its name, for lists and for revoking it
        name: String,
        /// What it allows
        #[arg(long, value_enum, default_value = "run")]
        scope: Allowed,
        /// Only in this namespace; repeat it for more
        #[arg(long = "only", value_name = "NAMESPACE")]
        only: Vec<String>,
    },
    /// List tokens, without the secrets.
    List,
    /// End a token. A running server refuses it within a second.
    Revoke {
        /// Its name
        name: String,
    },
}

/// What a token allows; each includes those before it.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Allowed {
    /// To look
    Read,
    /// To hand in, run and settle tasks
    Run,
    /// To set pools and schedules, and to command many tasks
    Admin,
}

/// Carries a command out.
pub(crate) fn run(command: TokenCommand, config: &Config, form: Form, lang: Lang) -> Outcome<ExitCode> {
    let address = config.address()?;
    let Some(folder) = crate::serve::folder(config, &address) else {
        let why = "tokens are kept in a folder; name it, or use a store that has one";
        return Err(ekiden::Error::from(config.wrong("serve.folder", why)).into());
    };
    let tokens = Tokens::at(folder);
    match command {
        TokenCommand::Create { name, scope, only } => {
            let scope = match scope {
                Allowed::Read => Scope::Read,
                Allowed::Run => Scope::Run,
                Allowed::Admin => Scope::Admin,
            };
            let only = only.into_iter().map(Namespace::new).collect::<Result<_, _>>().map_err(ekiden::Error::from)?;
            let token = tokens.create(&name, scope, only, SystemClock.now()).map_err(ekiden::Error::from)?;
            say(lang.pick(
                "Keep this token now: it is not shown again.",
                "このトークンは今だけ表示されます。安全な場所に保存してください。",
            ));
            output::one(&Made { name, token }, &[], if form == Form::Table { Form::Id } else { form })?;
        }
        TokenCommand::List => {
            let titles = match lang {
                Lang::En => ["NAME", "SCOPE", "NAMESPACES", "CREATED"],
                Lang::Ja => ["名前", "権限", "名前空間", "作成"],
            };
            let listed: Vec<Listed> =
                tokens.list().map_err(ekiden::Error::from)?.into_iter().map(Listed::from).collect();
            output::list(&listed, &titles, form)?;
        }
        TokenCommand::Revoke { name } => {
            tokens.revoke(&name).map_err(ekiden::Error::from)?;
            say(&match lang {
                Lang::En => format!("Revoked {name}."),
                Lang::Ja => format!("{name} を取り消しました。"),
            });
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A token that was made, with its secret.
#[derive(Serialize)]
struct Made {
    name: String,
    token: String,
}

impl Show for Made {
    fn id(&self) -> &str {
        &self.token
    }

    fn cells(&self) -> Vec<String> {
        vec![self.name.clone(), self.token.clone()]
    }
}

/// A token in a list: nothing that helps to guess it.
#[derive(Serialize)]
struct Listed {
    name: String,
    scope: &'static str,
    namespaces: Vec<Namespace>,
    created_at: String,
}

impl From<TokenInfo> for Listed {
    fn from(token: TokenInfo) -> Self {
        let created_at: Timestamp = token.created_at;
        Self {
            name: token.name,
            scope: token.scope.as_str(),
            namespaces: token.namespaces,
            created_at: created_at.to_string(),
        }
    }
}

impl Show for Listed {
    fn id(&self) -> &str {
        &self.name
    }

    fn cells(&self) -> Vec<String> {
        let only: Vec<&str> = self.namespaces.iter().map(Namespace::as_str).collect();
        let only = if only.is_empty() { "*".to_owned() } else { only.join(",") };
        vec![self.name.clone(), self.scope.to_owned(), only, self.created_at.clone()]
    }
}
