//! `ekiden serve`: a store, its queue and a server in front of it, until somebody says that it is enough.

use std::io::IsTerminal;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use ekiden::core::{ReasonCode, Refusal};
use ekiden::store::Address;
use ekiden::{Ekiden, FolderLogs};
use ekiden_server::{Events, Server, Tokens};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

use crate::Outcome;
use crate::config::Config;
use crate::endpoint::Endpoint;
use crate::language::Lang;
use crate::log;
use crate::say;

pub(crate) const EXAMPLES: &str = "\
Examples:
  ekiden serve                                          # ./ekiden-data at 127.0.0.1:7707
  ekiden serve --url local:/var/lib/ekiden --listen 127.0.0.1:0
  ekiden token create ci --scope run && ekiden serve --listen 0.0.0.0:7707 --host jobs.example.com";

/// 16,384 files: every connection that the server takes, and the store's and whatever else is open with room to spare.
const FILES: u64 = 16_384;

/// Flags of the command; each is a setting, see `ekiden config show`.
#[derive(Args)]
pub(crate) struct Serve {
    /// The address to listen on; port 0 takes any that is free (EKIDEN_LISTEN)
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// A further host name to answer for, as behind a proxy (EKIDEN_HOSTS)
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Where tokens and logs are; by default the data folder (EKIDEN_FOLDER)
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Serve although there is no token and others may reach it: EVERYONE who does may do EVERYTHING. A token closes it again
    #[arg(long)]
    allow_anonymous_admin: bool,
}

impl Serve {
    /// The settings that its flags make.
    pub(crate) fn flags(&self) -> [(&'static str, Option<String>); 3] {
        [
            ("serve.listen", self.listen.clone()),
            ("serve.hosts", (!self.hosts.is_empty()).then(|| self.hosts.join(","))),
            ("serve.folder", self.folder.as_ref().map(|folder| folder.display().to_string())),
        ]
    }
}

/// Serves until it is interrupted.
pub(crate) fn run(wish: &Serve, config: &Config, lang: Lang) -> Outcome<ExitCode> {
    start_logging(config)?;
    make_room_for_connections();
    runtime()?.block_on(serve(wish, config, lang))
}

/// With two processors the store's threads and whoever asks need the other one: a single thread then answers more, because
/// nothing is handed from thread to thread (decision 0019). With more of them, so many threads answer.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    let few = std::thread::available_parallelism().is_ok_and(|processors| processors.get() <= 2);
    let mut builder =
        if few { tokio::runtime::Builder::new_current_thread() } else { tokio::runtime::Builder::new_multi_thread() };
    builder.enable_all().build()
}

async fn serve(wish: &Serve, config: &Config, lang: Lang) -> Outcome<ExitCode> {
    let address = config.address().map_err(|error: ekiden::Error| {
        if config.get("url").is_some_and(|url| url.starts_with("http")) {
            config.wrong("url", "a server needs a store of its own, as in local:./data").into()
        } else {
            error
        }
    })?;
    let folder = folder(config, &address);
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let events = Arc::new(Events::new());
    let ekiden = Ekiden::builder(address.open().await?).observer(events.clone()).build();
    let listening = listen(wish, config, &ekiden, events, folder.as_deref()).await;
    let server = match listening {
        Ok(server) => server,
        Err(error) => {
            ekiden.close().await?;
            return Err(error);
        }
    };
    let url = format!("http://{}", server.local_addr());
    let posted = match &address {
        Address::Local(folder) => endpoint(&url, server.owner_token()).post_if_possible(folder),
        _ => None,
    };
    say(&greeting(&url, &address, lang));
    if wish.allow_anonymous_admin {
        say(lang.pick(
            "WARNING: --allow-anonymous-admin: as long as there is no token, EVERYONE who reaches this server may do EVERYTHING.",
            "警告: --allow-anonymous-admin が指定されています。トークンがない間、このサーバーに接続できる人は誰でもすべての操作を行えます。",
        ));
    }
    notify(&[sd_notify::NotifyState::Ready]);
    server
        .serve(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            notify(&[sd_notify::NotifyState::Stopping]);
            say(lang.pick("Stopping: finishing what is under way …", "停止中: 処理中のリクエストを終えています…"));
        })
        .await;
    drop(posted);
    ekiden.close().await?;
    say(lang
        .pick("Stopped. Everything acknowledged is kept.", "停止しました。受け付けたものはすべて保存されています。"));
    Ok(ExitCode::SUCCESS)
}

async fn listen(
    wish: &Serve,
    config: &Config,
    ekiden: &Ekiden,
    events: Arc<Events>,
    folder: Option<&Path>,
) -> Outcome<Server> {
    let mut builder = Server::builder(ekiden.queue().clone(), events).clock(ekiden.clock().clone());
    if wish.allow_anonymous_admin {
        builder = builder.allow_anonymous_admin();
    }
    for host in config.require("serve.hosts")?.split(',').map(str::trim).filter(|host| !host.is_empty()) {
        builder = builder.host(host);
    }
    if let Some(folder) = folder {
        builder = builder.tokens(Tokens::at(folder)).logs(Arc::new(logs(folder)));
    }
    Ok(builder.bind(listen_address(config)?).await.map_err(ekiden::Error::from)?)
}

/// Where tokens and logs are: said, or with the data.
pub(crate) fn folder(config: &Config, address: &Address) -> Option<PathBuf> {
    let said = config.get("serve.folder").map(PathBuf::from);
    said.or_else(|| match address {
        Address::Local(folder) => Some(folder.clone()),
        _ => None,
    })
}

/// The logs of attempts in such a folder.
pub(crate) fn logs(folder: &Path) -> FolderLogs {
    FolderLogs::at(folder.join("attempt-logs"))
}

/// The address that the settings name.
pub(crate) fn listen_address(config: &Config) -> Result<SocketAddr, ekiden::Error> {
    let text = config.require("serve.listen")?;
    let found = text.to_socket_addrs().map_err(|error| config.wrong("serve.listen", error))?.next();
    Ok(found.ok_or_else(|| config.wrong("serve.listen", "a host and a port, as in 127.0.0.1:7707"))?)
}

/// Where a server of this process listens.
pub(crate) fn endpoint(url: &str, token: &str) -> Endpoint {
    Endpoint {
        url: url.to_owned(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        token: Some(token.to_owned()),
    }
}

fn greeting(url: &str, address: &Address, lang: Lang) -> String {
    match lang {
        Lang::En => format!(
            "Ekiden serves {address} at {url}\n  API:      {url}/docs\n  add one:  ekiden task add hello '{{\"to\":\"you\"}}' --url {url}\n  stop:     Ctrl-C"
        ),
        Lang::Ja => format!(
            "Ekiden は {address} を {url} で提供しています\n  API:   {url}/docs\n  追加:  ekiden task add hello '{{\"to\":\"you\"}}' --url {url}\n  停止:  Ctrl-C"
        ),
    }
}

/// Tells systemd, where it listens. Elsewhere nobody does, and nothing is wrong with that.
fn notify(states: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot tell the service manager");
    }
}

/// Raises the soft limit of open files, which many shells and services leave at 1,024: every connection is one, and a crowd
/// that says nothing would keep everybody else out until its time is over. Where it cannot be raised there is room for fewer.
fn make_room_for_connections() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(FILES, |maximum| maximum.min(FILES));
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }) {
        tracing::warn!(%error, wanted, "cannot raise the limit of open files");
    }
}

pub(crate) fn start_logging(config: &Config) -> Outcome<()> {
    let level: tracing::Level = config
        .require("log.level")?
        .parse()
        .map_err(|_| config.wrong("log.level", "error, warn, info, debug or trace"))?;
    let events = tracing_subscriber::fmt().with_max_level(level).with_writer(|| log::Events);
    let started = match config.require("log.format")? {
        "text" => {
            events.with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()).try_init()
        }
        "json" => events.json().flatten_event(true).try_init(),
        _ => return Err(config.wrong("log.format", "text or json").into()),
    };
    started.map_err(|error| Refusal::new(ReasonCode::ConfigInvalid).with("why", error))?;
    Ok(log::start()?)
}
