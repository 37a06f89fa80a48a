//! `endpoint.json`: where a server listens, so that other commands find it. In a data folder it is the server that owns the
//! folder; in the user's own runtime folder it is the server of `ekiden dev`.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ekiden::core::{ReasonCode, Refusal};
use ekiden::files::{self, Trust};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

/// 4 KiB: the file has one line; more was not written by a server.
const BYTES_MAX: u64 = 4 * 1024;

/// Half a second: a server of this machine takes a connection at once, or is not there.
const CONNECT_WITHIN: Duration = Duration::from_millis(500);

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(Debug))]
pub(crate) struct Endpoint {
    /// Its address.
    pub(crate) url: String,
    /// Its process.
    pub(crate) pid: u32,
    /// Its version.
    pub(crate) version: String,
    /// The token of whoever started it, who is whoever may read this file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
}

/// The file, for as long as the server runs.
pub(crate) struct Posted {
    folder: PathBuf,
    endpoint: Endpoint,
}

pub(crate) fn path(folder: &Path) -> PathBuf {
    folder.join("endpoint.json")
}

impl Endpoint {
    /// The server of a folder, if one says so. It may be long gone: only an answer proves it.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        let file = files::open(&path(folder), Trust::Ours).ok()?;
        let is_private = file.metadata().ok()?.mode() & 0o077 == 0;
        let mut line = Vec::new();
        file.take(BYTES_MAX).read_to_end(&mut line).ok()?;
        let endpoint: Self = serde_json::from_slice(&line).ok()?;
        Some(Self { token: endpoint.token.filter(|_| is_private), ..endpoint })
    }

    /// Says where this server listens.
    fn post(&self, folder: &Path) -> Result<Posted, Refusal> {
        let path = path(folder);
        let failed = |error: io::Error| {
            Refusal::new(ReasonCode::FileUnavailable).with("path", path.display()).with("why", error)
        };
        let mut line = serde_json::to_vec(self).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        let draft = path.with_extension("json.draft");
        // A crash may have left one, and a foreign link of this name must not be written through.
        let _ = fs::remove_file(&draft);
        let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft);
        // Replaced in one step, so that nobody reads half of it. Nothing is lost if it does not survive a power cut.
        let placed = made.and_then(|mut file| file.write_all(&line)).and_then(|()| fs::rename(&draft, &path));
        placed.map_err(|error| {
            let _ = fs::remove_file(&draft);
            failed(error)
        })?;
        Ok(Posted { folder: folder.to_owned(), endpoint: self.clone() })
    }

    /// The same in the data folder that this server owns. The file only helps commands to find the server, so a full or
    /// read-only disk is no reason not to serve.
    pub(crate) fn post_if_possible(&self, folder: &Path) -> Option<Posted> {
        match self.post(folder) {
            Ok(posted) => Some(posted),
            Err(refusal) => {
                tracing::warn!(%refusal, "commands do not find this server by its folder and need --url {}", self.url);
                // What an earlier server left would lead commands to an address that is not ours.
                let _ = fs::remove_file(path(folder));
                None
            }
        }
    }

    /// Says where the server of `ekiden dev` listens. The one that started last is the one that is found.
    pub(crate) fn post_as_dev(&self) -> Result<Option<Posted>, Refusal> {
        let Some(folder) = dev_folder() else { return Ok(None) };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(|error| {
            Refusal::new(ReasonCode::FileUnavailable).with("path", folder.display()).with("why", error)
        })?;
        self.post(&folder).map(Some)
    }

    /// Whether its process is there and takes connections. One that was killed has left its file behind, and another
    /// program may have its port by now.
    pub(crate) fn is_alive(&self) -> bool {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let runs = pid.is_some_and(|pid| !matches!(test_kill_process(pid), Err(Errno::SRCH)));
        let address = self.url.strip_prefix("http://").and_then(|address| address.parse::<SocketAddr>().ok());
        runs && address.is_some_and(|address| TcpStream::connect_timeout(&address, CONNECT_WITHIN).is_ok())
    }
}

/// The server of `ekiden dev`, if this user has one that lives, and the folder whose file tells of it.
pub(crate) fn of_dev() -> Option<(Endpoint, PathBuf)> {
    let folder = dev_folder()?;
    Some((Endpoint::read(&folder).filter(Endpoint::is_alive)?, folder))
}

/// `$XDG_STATE_HOME/ekiden`, or the same below `~/.local/state`: what is this user's and belongs to no data folder.
pub(crate) fn state_folder() -> Option<PathBuf> {
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join("ekiden"))
}

/// `$XDG_RUNTIME_DIR/ekiden/dev`, which goes when the user logs out, or the same below the state folder.
fn dev_folder() -> Option<PathBuf> {
    let runtime = set("XDG_RUNTIME_DIR").map(|folder| folder.join("ekiden"));
    Some(runtime.or_else(state_folder)?.join("dev"))
}

/// A folder that a variable names.
fn set(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

impl Drop for Posted {
    fn drop(&mut self) {
        // Somebody else may have posted there meanwhile. What stays behind leads to nobody, which readers expect.
        if Endpoint::read(&self.folder).is_some_and(|posted| posted == self.endpoint) {
            let _ = fs::remove_file(path(&self.folder));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(port: u16, pid: u32) -> Endpoint {
        Endpoint { url: format!("http://127.0.0.1:{port}"), pid, version: "0".to_owned(), token: None }
    }

    #[test]
    fn only_a_process_that_lives_and_listens_is_alive() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        assert!(endpoint(port, std::process::id()).is_alive());
        assert!(!endpoint(port, gone.id()).is_alive(), "another program has the port by now");
        drop(listener);
        assert!(!endpoint(port, std::process::id()).is_alive());
    }

    #[test]
    fn who_ends_takes_away_only_what_is_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let first = endpoint(1, 1).post(folder.path()).unwrap();
        let second = endpoint(2, 2).post(folder.path()).unwrap();
        drop(first);
        assert_eq!(Endpoint::read(folder.path()), Some(endpoint(2, 2)));
        drop(second);
        assert_eq!(Endpoint::read(folder.path()), None);
    }

    #[test]
    fn a_token_counts_only_in_a_file_of_ones_own_that_others_cannot_read() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let endpoint = Endpoint { token: Some("ekd_owner".to_owned()), ..endpoint(1, 1) };
        let _posted = endpoint.post(folder.path()).unwrap();
        assert_eq!(Endpoint::read(folder.path()), Some(endpoint.clone()));
        fs::set_permissions(path(folder.path()), fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(Endpoint::read(folder.path()), Some(Endpoint { token: None, ..endpoint }));
    }

    #[test]
    fn links_and_pipes_in_its_place_are_neither_read_nor_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, serde_json::to_vec(&endpoint(1, 1)).unwrap()).unwrap();
        std::os::unix::fs::symlink(&elsewhere, path(folder.path())).unwrap();
        assert_eq!(Endpoint::read(folder.path()), None);
        fs::remove_file(path(folder.path())).unwrap();
        let pipe = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, path(folder.path()), pipe, rustix::fs::Mode::RUSR, 0).unwrap();
        assert_eq!(Endpoint::read(folder.path()), None);
        let draft = path(folder.path()).with_extension("json.draft");
        std::os::unix::fs::symlink(&elsewhere, draft).unwrap();
        let before = fs::read(&elsewhere).unwrap();
        let _posted = endpoint(2, 2).post(folder.path()).unwrap();
        assert_eq!((fs::read(&elsewhere).unwrap(), Endpoint::read(folder.path())), (before, Some(endpoint(2, 2))));
    }

    #[test]
    fn an_endpoint_that_cannot_be_posted_names_its_file_and_leaves_no_older_one() {
        let folder = tempfile::tempdir().unwrap();
        let _older = endpoint(1, 1).post(folder.path()).unwrap();
        // A folder of the draft's name stands in the way for root too.
        fs::create_dir(path(folder.path()).with_extension("json.draft")).unwrap();
        let refusal = endpoint(2, 2).post(folder.path()).err().unwrap();
        assert_eq!(refusal.code, ReasonCode::FileUnavailable);
        assert_eq!(refusal.context.get("path").map(String::as_str), path(folder.path()).to_str());
        assert!(endpoint(2, 2).post_if_possible(folder.path()).is_none());
        assert_eq!(Endpoint::read(folder.path()), None);
    }

    #[test]
    fn an_endpoint_is_there_while_it_is_posted_and_garbage_is_none() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Endpoint::read(folder.path()), None);
        let endpoint = endpoint(1, 1);
        let posted = endpoint.post(folder.path()).unwrap();
        assert_eq!(Endpoint::read(folder.path()), Some(endpoint));
        drop(posted);
        assert_eq!(Endpoint::read(folder.path()), None);
        fs::write(path(folder.path()), "{").unwrap();
        assert_eq!(Endpoint::read(folder.path()), None);
        fs::write(path(folder.path()), vec![b' '; 8 * 1024]).unwrap();
        assert_eq!(Endpoint::read(folder.path()), None);
    }
}
