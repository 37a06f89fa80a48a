//! `endpoint.json`: where a server listens, so that other commands find it. In a data folder it is the server that owns the
//! folder; in the user's own runtime folder it is the server of `ekiden dev`.

use std::fs;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

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

fn path(folder: &Path) -> PathBuf {
    folder.join("endpoint.json")
}

impl Endpoint {
    /// The server of a folder, if one says so. It may be long gone: only an answer proves it.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        let path = path(folder);
        if fs::metadata(&path).ok()?.len() > BYTES_MAX {
            return None;
        }
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// Says where this server listens.
    pub(crate) fn post(&self, folder: &Path) -> io::Result<Posted> {
        let path = path(folder);
        let draft = path.with_extension("json.draft");
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        file.write_all(&line)?;
        // Replaced in one step, so that nobody reads half of it. Nothing is lost if it does not survive a power cut.
        fs::rename(&draft, &path)?;
        Ok(Posted { folder: folder.to_owned(), endpoint: self.clone() })
    }

    /// Says where the server of `ekiden dev` listens. The one that started last is the one that is found.
    pub(crate) fn post_as_dev(&self) -> io::Result<Option<Posted>> {
        let Some(folder) = dev_folder() else { return Ok(None) };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
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

/// The server of `ekiden dev`, if this user has one that lives.
pub(crate) fn of_dev() -> Option<Endpoint> {
    Endpoint::read(&dev_folder()?).filter(Endpoint::is_alive)
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
