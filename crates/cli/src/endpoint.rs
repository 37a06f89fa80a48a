//! `endpoint.json` in a data folder: where the server that owns the folder listens, so that other commands find it.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// 4 KiB: the file has one line; more was not written by a server.
const BYTES_MAX: u64 = 4 * 1024;

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
    path: PathBuf,
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
        Ok(Posted { path })
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        // What stays behind leads to nobody, which readers expect.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_there_while_it_is_posted_and_garbage_is_none() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Endpoint::read(folder.path()), None);
        let endpoint = Endpoint { url: "http://127.0.0.1:1".to_owned(), pid: 1, version: "0".to_owned(), token: None };
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
