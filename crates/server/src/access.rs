//! Who may do what: scopes, and the caller of a request.

use std::sync::{Arc, OnceLock};

use ekiden_core::id::Namespace;
use ekiden_core::reason::{ReasonCode, Refusal};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::budget::Of;

/// What a route needs, or a token allows. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Nothing: a route that tells nothing secret.
    Open,
    /// To look.
    Read,
    /// To hand in, run and settle tasks.
    Run,
    /// To set pools and schedules, and to command many tasks.
    Admin,
}

impl Scope {
    /// The stable text form.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Run => "run",
            Self::Admin => "admin",
        }
    }

    /// The scope of this text form; a token cannot be open.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Read, Self::Run, Self::Admin].into_iter().find(|scope| scope.as_str() == text)
    }
}

/// Who sent a request.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// Anybody, where no tokens are asked for.
    Trusted,
    /// Somebody without a token, where tokens are asked for.
    Unknown,
    /// The holder of a token.
    Holder(Arc<Grant>),
}

/// What a token allows.
#[derive(Debug)]
pub(crate) struct Grant {
    /// How far it goes.
    pub(crate) scope: Scope,
    /// Where it goes; everywhere if there are none.
    pub(crate) namespaces: Vec<Namespace>,
    /// Cancelled when the token is revoked or changed: what stays open for its holder ends then.
    pub(crate) ended: CancellationToken,
    /// What its holder may hold of what all share.
    pub(crate) parts: Parts,
}

/// What is left to the holder of a token of each budget that it has touched.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    bodies: OnceLock<Arc<Semaphore>>,
    answers: OnceLock<Arc<Semaphore>>,
    streams: OnceLock<Arc<Semaphore>>,
}

impl Parts {
    pub(crate) const fn of(&self, budget: Of) -> &OnceLock<Arc<Semaphore>> {
        match budget {
            Of::Bodies => &self.bodies,
            Of::Answers => &self.answers,
            Of::Streams => &self.streams,
        }
    }
}

impl Grant {
    /// What a new token allows.
    pub(crate) fn new(scope: Scope, namespaces: Vec<Namespace>) -> Self {
        Self { scope, namespaces, ended: CancellationToken::new(), parts: Parts::default() }
    }

    /// Whether both allow the same.
    pub(crate) fn allows_same_as(&self, other: &Self) -> bool {
        self.scope == other.scope && self.namespaces == other.namespaces
    }
}

impl Caller {
    /// Refuses what the caller may not do.
    pub(crate) fn check(&self, needs: Scope, namespace: Option<&Namespace>) -> Result<(), Refusal> {
        let grant = match self {
            _ if needs == Scope::Open => return Ok(()),
            Self::Trusted => return Ok(()),
            Self::Unknown => return Err(Refusal::new(ReasonCode::TokenMissing)),
            Self::Holder(grant) => grant,
        };
        if grant.scope < needs {
            return Err(Refusal::new(ReasonCode::ScopeMissing).with("needs", needs.as_str()));
        }
        match namespace {
            Some(namespace) if !self.sees(namespace) => {
                Err(Refusal::new(ReasonCode::ScopeMissing).with("needs", needs.as_str()).with("namespace", namespace))
            }
            _ => Ok(()),
        }
    }

    /// Whether a namespace is any of the caller's business.
    pub(crate) fn sees(&self, namespace: &Namespace) -> bool {
        match self {
            Self::Holder(grant) => grant.namespaces.is_empty() || grant.namespaces.contains(namespace),
            Self::Trusted | Self::Unknown => true,
        }
    }

    /// Tells the holder of one token from those of others. Zero where there is no token.
    pub(crate) fn token(&self) -> usize {
        match self {
            Self::Holder(grant) => Arc::as_ptr(grant).addr(),
            Self::Trusted | Self::Unknown => 0,
        }
    }

    /// The namespaces that the caller is bound to, if it is.
    pub(crate) fn bound_to(&self) -> Option<&[Namespace]> {
        match self {
            Self::Holder(grant) if !grant.namespaces.is_empty() => Some(&grant.namespaces),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_allows_its_scope_and_those_below_in_its_namespaces() {
        let (ours, theirs) = (Namespace::new("ours").unwrap(), Namespace::new("theirs").unwrap());
        let caller = Caller::Holder(Arc::new(Grant::new(Scope::Run, vec![ours.clone()])));
        assert!(caller.check(Scope::Read, Some(&ours)).is_ok());
        assert!(caller.check(Scope::Run, None).is_ok());
        assert_eq!(caller.check(Scope::Admin, Some(&ours)).unwrap_err().code, ReasonCode::ScopeMissing);
        assert_eq!(caller.check(Scope::Read, Some(&theirs)).unwrap_err().code, ReasonCode::ScopeMissing);
        assert_eq!(Caller::Unknown.check(Scope::Read, None).unwrap_err().code, ReasonCode::TokenMissing);
        assert!(Caller::Unknown.check(Scope::Open, None).is_ok());
    }
}
