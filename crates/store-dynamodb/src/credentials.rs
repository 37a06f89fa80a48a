//! Who we are to the service: the variables and the shared file that every AWS tool reads. Nothing here asks the network.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, future};
use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider};
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_core::time::Timestamp;
use ekiden_store::clock::{Clock, SystemClock};

/// Whose keys sign requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Any: a local service wants a signature and looks at nothing in it.
    Any,
    /// Those of the environment, or of the shared credentials file.
    Usual,
}

/// Five minutes: how long keys are used before the file is read again, as whoever renews them writes there.
const READ_AGAIN: Duration = Duration::from_secs(300);

impl Keys {
    /// The provider of such keys. What is missing is told now, not with the first request.
    pub(crate) fn provider(self) -> Result<SharedCredentialsProvider, Refusal> {
        match self {
            Self::Any => Ok(SharedCredentialsProvider::new(Credentials::new("local", "local", None, None, "ekiden"))),
            Self::Usual => {
                let usual = Usual(Box::new(|name| std::env::var(name).ok().filter(|value| !value.is_empty())));
                usual.load(SystemClock.now())?;
                Ok(SharedCredentialsProvider::new(usual))
            }
        }
    }
}

/// Variables by their names.
type Variables = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Reads the environment, which a test gives as it likes.
struct Usual(Box<Variables>);

impl std::fmt::Debug for Usual {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Usual")
    }
}

impl ProvideCredentials for Usual {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        let found = self.load(SystemClock.now()).map_err(|refusal| CredentialsError::not_loaded(refusal.to_string()));
        future::ProvideCredentials::ready(found)
    }
}

impl Usual {
    fn load(&self, now: Timestamp) -> Result<Credentials, Refusal> {
        let Self(env) = self;
        if let (Some(id), Some(secret)) = (env("AWS_ACCESS_KEY_ID"), env("AWS_SECRET_ACCESS_KEY")) {
            return Ok(Credentials::new(id, secret, env("AWS_SESSION_TOKEN"), None, "environment"));
        }
        let profile = env("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
        let named = env("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from);
        let file = named.or_else(|| Some(Path::new(&env("HOME")?).join(".aws/credentials")));
        let missing = |why: String| Refusal::new(ReasonCode::CredentialsMissing).with("why", why);
        let file = file.ok_or_else(|| missing("there is neither AWS_ACCESS_KEY_ID nor a home folder".to_owned()))?;
        let text = std::fs::read_to_string(&file).map_err(|why| missing(format!("{}: {why}", file.display())))?;
        let found = section(&text, &profile);
        let key = |name: &str| found.get(name).cloned();
        match (key("aws_access_key_id"), key("aws_secret_access_key")) {
            (Some(id), Some(secret)) => {
                let until = std::time::UNIX_EPOCH + Duration::from_millis(now.as_millis().unsigned_abs()) + READ_AGAIN;
                Ok(Credentials::new(id, secret, key("aws_session_token"), Some(until), "shared file"))
            }
            _ => Err(missing(format!("{} has no keys for profile {profile}", file.display()))),
        }
    }
}

/// The settings of a section of the file.
fn section(text: &str, wanted: &str) -> HashMap<String, String> {
    let mut found = HashMap::new();
    let mut inside = false;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            inside = name.trim() == wanted;
        } else if let Some((name, value)) = line.split_once('=').filter(|_| inside) {
            found.insert(name.trim().to_owned(), value.trim().to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual(variables: &[(&str, String)]) -> Usual {
        let variables: HashMap<String, String> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        Usual(Box::new(move |name| variables.get(name).cloned()))
    }

    /// Q13: the variables first, then the profile of the file; what is missing says where it was looked for.
    #[test]
    fn keys_come_from_the_variables_or_the_shared_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("credentials");
        let content = "[default]\naws_access_key_id = one\n# no\naws_secret_access_key=s1\n\n[work]\naws_access_key_id=two\naws_secret_access_key = s2\naws_session_token= t2\n[bad]\n";
        std::fs::write(&file, content).unwrap();
        let named = ("AWS_SHARED_CREDENTIALS_FILE", file.display().to_string());
        let load = |variables: &[(&str, String)]| usual(variables).load(Timestamp::ZERO);
        let keys = load(std::slice::from_ref(&named)).unwrap();
        assert_eq!((keys.access_key_id(), keys.secret_access_key(), keys.session_token()), ("one", "s1", None));
        assert!(keys.expiry().is_some(), "the file is read again");
        let keys = load(&[named.clone(), ("AWS_PROFILE", "work".to_owned())]).unwrap();
        assert_eq!((keys.access_key_id(), keys.session_token()), ("two", Some("t2")));
        let own = [("AWS_ACCESS_KEY_ID", "three".to_owned()), ("AWS_SECRET_ACCESS_KEY", "s3".to_owned())];
        let keys = load(&[own[0].clone(), own[1].clone(), named.clone()]).unwrap();
        assert_eq!(keys.access_key_id(), "three");
        for wrong in [vec![], vec![named.clone(), ("AWS_PROFILE", "bad".to_owned())], vec![own[0].clone()]] {
            assert_eq!(load(&wrong).unwrap_err().code, ReasonCode::CredentialsMissing, "{wrong:?}");
        }
    }
}
