//! Tokens: who may use a server from outside. A file of names and hashes in the server's folder; the tokens themselves are
//! shown once, when they are made, and kept nowhere. A running server sees changes of the file within a second.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ekiden::files::{self, Trust};
use ekiden_core::id::Namespace;
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::access::{Caller, Grant, Scope};
use crate::limits;

/// The file in the server's folder.
const FILE: &str = "tokens.json";

/// 8 MiB: more than the greatest number of tokens takes, each with a long name and many namespaces.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// What every token begins with, so that people and scanners recognise one.
const PREFIX: &str = "ekd_";

/// 128 bytes: a name is for people, in a list.
const NAME_BYTES_MAX: usize = 128;

/// The tokens of a server's folder.
#[derive(Clone, Debug)]
pub struct Tokens {
    folder: PathBuf,
}

/// A token, without the secret itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenInfo {
    /// Its name.
    pub name: String,
    /// What it allows.
    pub scope: Scope,
    /// Where; everywhere if there are none.
    #[serde(default)]
    pub namespaces: Vec<Namespace>,
    /// When it was made.
    pub created_at: Timestamp,
    /// The SHA-256 of the token, in hexadecimal digits.
    pub sha256: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    version: u32,
    tokens: Vec<TokenInfo>,
}

impl Tokens {
    /// The tokens of this folder, which need not exist yet.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Makes a token and returns it. It is not shown again.
    pub fn create(
        &self,
        name: &str,
        scope: Scope,
        namespaces: Vec<Namespace>,
        now: Timestamp,
    ) -> Result<String, Refusal> {
        let why = match name {
            "" => Some("empty"),
            name if name.len() > NAME_BYTES_MAX => Some("longer than 128 bytes"),
            name if name.chars().any(char::is_control) => Some("control character"),
            _ => None,
        };
        if let Some(why) = why {
            return Err(Refusal::new(ReasonCode::IdInvalid).with("field", "name").with("why", why));
        }
        let token = draw()?;
        self.change(|tokens| {
            if tokens.iter().any(|token| token.name == name) {
                let refusal = Refusal::new(ReasonCode::ConfigInvalid).with("field", "name");
                return Err(refusal.with("why", "a token of this name exists"));
            }
            if tokens.len() >= limits::TOKENS_MAX {
                let refusal = Refusal::new(ReasonCode::NumberOutOfRange).with("field", "tokens");
                return Err(refusal.with("limit", limits::TOKENS_MAX));
            }
            let sha256 = hex(&hash(&token));
            tokens.push(TokenInfo { name: name.to_owned(), scope, namespaces, created_at: now, sha256 });
            Ok(())
        })?;
        Ok(token)
    }

    /// Every token, in the order in which they were made.
    pub fn list(&self) -> Result<Vec<TokenInfo>, Refusal> {
        Ok(self.find()?.unwrap_or_default())
    }

    /// The same; `None` if there never was a token. The file stays when its last token is revoked, so that a server which had
    /// tokens is told from one which never asked for any.
    pub(crate) fn find(&self) -> Result<Option<Vec<TokenInfo>>, Refusal> {
        let path = self.path();
        match files::read(&path, Trust::Ours, FILE_BYTES_MAX) {
            Ok(bytes) => {
                let content: Content = serde_json::from_slice(&bytes).map_err(|error| unavailable(&path, error))?;
                Ok(Some(content.tokens))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(files::refusal(&path, &error)),
        }
    }

    /// Ends a token. A running server takes it no longer than a second.
    pub fn revoke(&self, name: &str) -> Result<(), Refusal> {
        self.change(|tokens| {
            let before = tokens.len();
            tokens.retain(|token| token.name != name);
            if tokens.len() == before {
                return Err(Refusal::new(ReasonCode::TokenNotFound).with("name", name));
            }
            Ok(())
        })
    }

    fn path(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// Reads, changes and replaces the file. A lock beside it keeps two that do so apart.
    fn change(&self, change: impl FnOnce(&mut Vec<TokenInfo>) -> Result<(), Refusal>) -> Result<(), Refusal> {
        let path = self.path();
        let failed = |error: io::Error| files::refusal(&path, &error);
        if !self.folder.exists() {
            fs::create_dir_all(&self.folder).map_err(failed)?;
            fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o700)).map_err(failed)?;
        }
        let lock = files::write(&self.folder.join("tokens.lock")).map_err(failed)?;
        lock.lock().map_err(failed)?;
        let mut tokens = self.list()?;
        change(&mut tokens)?;
        let content = Content { version: 1, tokens };
        let text = serde_json::to_vec_pretty(&content).map_err(|error| unavailable(&path, error))?;
        replace(&self.folder, &path, &text).map_err(failed)
    }
}

/// Writes a new file and puts it in the place of the old one, durable before it returns.
fn replace(folder: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = folder.join("tokens.json.new");
    let mut file = files::write(&new)?;
    file.set_len(0)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}

fn unavailable(path: &Path, why: impl ToString) -> Refusal {
    Refusal::new(ReasonCode::FileUnavailable).with("path", path.display()).with("why", why)
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// A token that nobody has guessed.
pub(crate) fn draw() -> Result<String, Refusal> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(|error| Refusal::new(ReasonCode::ServerFault).with("why", error))?;
    Ok(format!("{PREFIX}{}", hex(&random)))
}

/// Where a running server checks tokens.
#[derive(Debug)]
pub(crate) struct Desk {
    tokens: Option<Tokens>,
    known: Mutex<Known>,
    /// The token of whoever started the server, good for as long as it runs.
    owner: Option<([u8; 32], Arc<Grant>)>,
    /// Whether a token is asked for. Once it is, it stays so until the server ends: no open door by revoking the last one.
    asks: AtomicBool,
    /// Whether the operator made callers without a token admins as long as no token exists.
    allows_anonymous_admin: bool,
    /// Cancelled when a token is asked for: what stays open for somebody without one ends then.
    closed: CancellationToken,
}

#[derive(Debug, Default)]
struct Known {
    looked_at: Option<Duration>,
    stamp: Option<Stamp>,
    /// Whether the last look found a file that cannot be read, so that it is reported once.
    is_unreadable: bool,
    grants: Vec<([u8; 32], Arc<Grant>)>,
}

/// What changes when the file is replaced.
type Stamp = (i64, i64, u64, u64);

impl Desk {
    /// Tokens of a folder, if there is one; asked for if there ever were any, or if others can reach the server.
    pub(crate) fn new(tokens: Option<Tokens>, reachable: bool) -> Self {
        Self {
            tokens,
            known: Mutex::default(),
            owner: None,
            asks: AtomicBool::new(reachable),
            allows_anonymous_admin: false,
            closed: CancellationToken::new(),
        }
    }

    /// The same; callers without a token are admins until there is a token.
    pub(crate) fn with_anonymous_admin(self) -> Self {
        Self { asks: AtomicBool::new(false), allows_anonymous_admin: true, ..self }
    }

    /// The same with a token that allows everything.
    pub(crate) fn with_owner(self, token: &str) -> Self {
        let grant = Grant::new(Scope::Admin, Vec::new());
        Self { owner: Some((hash(token), Arc::new(grant))), ..self }
    }

    /// Who sends this header.
    pub(crate) fn caller(&self, authorization: Option<&[u8]>, now: Duration) -> Result<Caller, Refusal> {
        let known = self.known(now);
        let Some(authorization) = authorization else {
            return Ok(if self.asks.load(Ordering::Relaxed) { Caller::Unknown } else { Caller::Trusted });
        };
        let invalid = || Refusal::new(ReasonCode::TokenInvalid);
        let token = std::str::from_utf8(authorization).ok().and_then(|text| {
            let (scheme, token) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        });
        let hashed = hash(token.ok_or_else(invalid)?);
        // Each is compared, and each to its end, so that time tells nothing.
        let mut found = None;
        for (known, grant) in known.grants.iter().chain(&self.owner) {
            let differs = known.iter().zip(&hashed).fold(0, |differs, (one, other)| differs | (one ^ other));
            if std::hint::black_box(differs) == 0 {
                found = Some(grant.clone());
            }
        }
        match found {
            Some(grant) => Ok(Caller::Holder(grant)),
            // A client that always sends its token is welcome where none is asked for.
            None if !self.asks.load(Ordering::Relaxed) => Ok(Caller::Trusted),
            None => Err(invalid()),
        }
    }

    /// Looks for changes of the file for ever, so that what stays open for a token ends soon after it also while no request comes.
    pub(crate) async fn watch(&self) {
        let Some(tokens) = &self.tokens else { return std::future::pending().await };
        loop {
            tokio::time::sleep(limits::TOKENS_WATCH).await;
            self.refresh(tokens, &mut self.known.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Why a caller that was let in would not be let in again, if it would not.
    pub(crate) fn has_ended(&self, caller: &Caller) -> Option<Refusal> {
        let (ended, reason) = self.end_of(caller)?;
        ended.is_cancelled().then(|| Refusal::new(reason))
    }

    /// Waits until a caller that was let in would not be let in again, or not for the same. Says why.
    pub(crate) async fn ended(&self, caller: &Caller) -> Refusal {
        let Some((ended, reason)) = self.end_of(caller) else { return std::future::pending().await };
        ended.cancelled().await;
        Refusal::new(reason)
    }

    /// What a caller's right ends with. Whoever needed none keeps none.
    fn end_of<'a>(&'a self, caller: &'a Caller) -> Option<(&'a CancellationToken, ReasonCode)> {
        match caller {
            Caller::Holder(grant) => Some((&grant.ended, ReasonCode::TokenInvalid)),
            Caller::Trusted => Some((&self.closed, ReasonCode::TokenMissing)),
            Caller::Unknown => None,
        }
    }

    /// From now on a token is asked for.
    fn ask(&self) {
        self.asks.store(true, Ordering::Relaxed);
        self.closed.cancel();
    }

    /// The tokens as they were within the last second.
    fn known(&self, now: Duration) -> std::sync::MutexGuard<'_, Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(tokens) = &self.tokens else { return known };
        if known.looked_at.is_some_and(|looked| now.saturating_sub(looked) < limits::TOKENS_LOOK) {
            return known;
        }
        known.looked_at = Some(now);
        self.refresh(tokens, &mut known);
        known
    }

    /// Reads the file again if it was replaced.
    fn refresh(&self, tokens: &Tokens, known: &mut Known) {
        let stamp =
            fs::metadata(tokens.path()).ok().map(|found| (found.mtime(), found.mtime_nsec(), found.len(), found.ino()));
        if stamp == known.stamp {
            return;
        }
        match tokens.list() {
            Ok(listed) => {
                (known.stamp, known.is_unreadable) = (stamp, false);
                known.replace(listed.into_iter().filter_map(grant).collect());
                let had_tokens = stamp.is_some() && !self.allows_anonymous_admin;
                if had_tokens || !known.grants.is_empty() {
                    self.ask();
                }
            }
            // What cannot be read allows nothing.
            Err(error) => {
                if !std::mem::replace(&mut known.is_unreadable, true) {
                    tracing::error!(%error, "tokens cannot be read");
                }
                known.replace(Vec::new());
                known.stamp = None;
                self.ask();
            }
        }
    }
}

impl Known {
    /// Keeps the grants that stay as they were, and ends the others.
    fn replace(&mut self, mut grants: Vec<([u8; 32], Arc<Grant>)>) {
        for (hash, old) in std::mem::take(&mut self.grants) {
            let same = grants.iter_mut().find(|(other, grant)| *other == hash && grant.allows_same_as(&old));
            match same {
                Some((_, grant)) => *grant = old,
                None => old.ended.cancel(),
            }
        }
        self.grants = grants;
    }
}

fn grant(token: TokenInfo) -> Option<([u8; 32], Arc<Grant>)> {
    Some((unhex(&token.sha256)?, Arc::new(Grant::new(token.scope, token.namespaces))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_kept_hashed_and_private_and_can_be_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::at(folder.path().join("server"));
        assert_eq!(tokens.list().unwrap(), []);
        let token = tokens.create("ci", Scope::Run, vec![], Timestamp::ZERO).unwrap();
        assert!(token.starts_with(PREFIX) && token.len() == PREFIX.len() + 64, "{token}");
        let text = fs::read_to_string(tokens.path()).unwrap();
        assert!(!text.contains(token.strip_prefix(PREFIX).unwrap()));
        assert_eq!(fs::metadata(tokens.path()).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&tokens.folder).unwrap().permissions().mode() & 0o777, 0o700);
        let again = tokens.create("ci", Scope::Run, vec![], Timestamp::ZERO).unwrap_err();
        assert_eq!(again.code, ReasonCode::ConfigInvalid);
        assert_eq!(tokens.create("", Scope::Run, vec![], Timestamp::ZERO).unwrap_err().code, ReasonCode::IdInvalid);
        tokens.revoke("ci").unwrap();
        assert_eq!(tokens.revoke("ci").unwrap_err().code, ReasonCode::TokenNotFound);
    }

    #[test]
    fn a_desk_sees_changes_within_a_second_and_stays_closed() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::at(folder.path());
        let desk = Desk::new(Some(tokens.clone()), false);
        let at = Duration::from_secs;
        assert!(matches!(desk.caller(None, at(1)).unwrap(), Caller::Trusted));
        let token = tokens.create("ci", Scope::Read, vec![], Timestamp::ZERO).unwrap();
        let header = format!("Bearer {token}");
        assert!(matches!(desk.caller(Some(header.as_bytes()), at(3)).unwrap(), Caller::Holder(_)));
        assert!(matches!(desk.caller(None, at(3)).unwrap(), Caller::Unknown));
        for wrong in ["Bearer ekd_00", "Basic eDp5", "Bearer", "", "Bearer "] {
            let refusal = desk.caller(Some(wrong.as_bytes()), at(3)).unwrap_err();
            assert_eq!(refusal.code, ReasonCode::TokenInvalid, "{wrong}");
        }
        tokens.revoke("ci").unwrap();
        assert_eq!(desk.caller(Some(header.as_bytes()), at(5)).unwrap_err().code, ReasonCode::TokenInvalid);
        assert!(matches!(desk.caller(None, at(5)).unwrap(), Caller::Unknown));
    }

    #[test]
    fn a_server_whose_tokens_are_all_revoked_asks_for_one() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::at(folder.path());
        tokens.create("ci", Scope::Read, vec![], Timestamp::ZERO).unwrap();
        tokens.revoke("ci").unwrap();
        let desk = Desk::new(Some(tokens.clone()), false);
        assert!(matches!(desk.caller(None, Duration::ZERO).unwrap(), Caller::Unknown));
        let open = Desk::new(Some(tokens), true).with_anonymous_admin();
        assert!(matches!(open.caller(None, Duration::ZERO).unwrap(), Caller::Trusted), "the operator allowed it");
    }

    #[test]
    fn a_file_that_cannot_be_read_allows_nothing() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), b"{").unwrap();
        let desk = Desk::new(Some(Tokens::at(folder.path())), false);
        assert!(matches!(desk.caller(None, Duration::ZERO).unwrap(), Caller::Unknown));
    }
}
