//! What all requests of a server share: bytes of bodies and of answers, and places for streams. What a request holds of it, it
//! gives back when it is done. Half of each is all that one token may hold, so that its holder leaves as much to the others.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ekiden_core::reason::{ReasonCode, Refusal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::access::Caller;
use crate::limits;

/// What a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Bodies,
    Answers,
    Streams,
}

impl Of {
    /// As a refusal names it.
    const fn name(self) -> &'static str {
        match self {
            Self::Bodies => "body_bytes",
            Self::Answers => "answer_bytes",
            Self::Streams => "streams",
        }
    }
}

/// What is left for all requests.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    of: Of,
    left: Arc<Semaphore>,
    most: usize,
}

/// What a request holds, until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Share {
    /// Of the part of its token, if it has one.
    of_token: Option<OwnedSemaphorePermit>,
    of_all: Option<OwnedSemaphorePermit>,
}

impl Budget {
    pub(crate) fn new(of: Of, most: usize) -> Self {
        Self { of, left: Arc::new(Semaphore::new(most)), most }
    }

    /// Lets a share grow to so much, if there is as much left. What is larger than all that its caller may hold counts as that:
    /// alone, it passes.
    pub(crate) fn grow(&self, share: &mut Share, caller: &Caller, to: usize) -> Result<(), Refusal> {
        let (part, most) = self.part(caller);
        let more = permits(to.min(most).saturating_sub(share.held()));
        let of_token = part.map(|part| part.try_acquire_many_owned(more));
        let of_token = of_token.transpose().map_err(|_| self.spent(most))?;
        let of_all = self.left.clone().try_acquire_many_owned(more).map_err(|_| self.spent(most))?;
        add(&mut share.of_token, of_token);
        add(&mut share.of_all, Some(of_all));
        Ok(())
    }

    /// Waits its turn for so much, and not for ever. Callers of one token wait for each other first, and for nobody else.
    pub(crate) async fn wait(&self, caller: &Caller, wanted: usize, within: Duration) -> Result<Share, Refusal> {
        let (part, most) = self.part(caller);
        let wanted = permits(wanted.min(most));
        let acquire = async {
            let of_token = match part {
                Some(part) => Some(part.acquire_many_owned(wanted).await?),
                None => None,
            };
            let of_all = Some(self.left.clone().acquire_many_owned(wanted).await?);
            Ok::<_, tokio::sync::AcquireError>(Share { of_token, of_all })
        };
        match tokio::time::timeout(within, acquire).await {
            Ok(Ok(share)) => Ok(share),
            _ => Err(self.spent(most)),
        }
    }

    /// What is left to a caller's token, and the most that the caller may hold. Where no tokens are asked for there is nobody
    /// else to leave anything to.
    fn part(&self, caller: &Caller) -> (Option<Arc<Semaphore>>, usize) {
        let Caller::Holder(grant) = caller else { return (None, self.most) };
        let most = self.most / limits::A_TOKENS_PART;
        (Some(grant.parts.of(self.of).get_or_init(|| Arc::new(Semaphore::new(most))).clone()), most)
    }

    fn spent(&self, most: usize) -> Refusal {
        Refusal::new(ReasonCode::ServerBusy).with(self.of.name(), most)
    }
}

impl Share {
    fn held(&self) -> usize {
        self.of_all.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Gives back all but so much.
    pub(crate) fn shrink(&mut self, to: usize) {
        let more = self.held().saturating_sub(to);
        for permit in [&mut self.of_token, &mut self.of_all] {
            drop(permit.as_mut().and_then(|held| held.split(more)));
        }
    }

    /// Bytes that hold this share for as long as anybody has them.
    pub(crate) fn hold(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Held { bytes, _share: self })
    }
}

fn add(held: &mut Option<OwnedSemaphorePermit>, more: Option<OwnedSemaphorePermit>) {
    match (held, more) {
        (Some(held), Some(more)) => held.merge(more),
        (held, more) => *held = more,
    }
}

struct Held {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Budgets are far below four billion.
fn permits(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Grant, Scope};

    const SOMEBODY: Caller = Caller::Trusted;

    fn holder() -> Caller {
        Caller::Holder(Arc::new(Grant::new(Scope::Run, Vec::new())))
    }

    #[tokio::test]
    async fn what_is_held_is_given_back_by_whoever_drops_it_last() {
        let budget = Budget::new(Of::Bodies, 10);
        let mut share = Share::default();
        budget.grow(&mut share, &SOMEBODY, 4).unwrap();
        budget.grow(&mut share, &SOMEBODY, 10).unwrap();
        let refusal = budget.grow(&mut Share::default(), &SOMEBODY, 1).unwrap_err();
        assert_eq!((refusal.code, refusal.context["body_bytes"].as_str()), (ReasonCode::ServerBusy, "10"));
        share.shrink(3);
        let bytes = share.hold(Bytes::from_static(b"abc"));
        let part = bytes.slice(1..);
        drop(bytes);
        assert!(budget.wait(&SOMEBODY, 8, Duration::ZERO).await.is_err());
        drop(part);
        assert_eq!(budget.wait(&SOMEBODY, 99, Duration::ZERO).await.unwrap().held(), 10, "all there is");
    }

    #[tokio::test]
    async fn a_token_holds_at_most_half_and_waits_in_a_line_of_its_own() {
        let budget = Budget::new(Of::Answers, 10);
        let (ours, theirs) = (holder(), holder());
        let mut share = Share::default();
        budget.grow(&mut share, &theirs, 99).unwrap();
        assert_eq!(share.held(), 5, "what is larger counts as all that it may hold");
        budget.grow(&mut share, &theirs, 99).unwrap();
        let waiting = tokio::spawn({
            let (budget, theirs) = (budget.clone(), theirs.clone());
            async move { budget.wait(&theirs, 5, Duration::from_secs(60)).await.map(drop) }
        });
        tokio::task::yield_now().await;
        assert!(budget.grow(&mut Share::default(), &theirs, 1).is_err());
        let our_share = budget.wait(&ours, 99, Duration::ZERO).await.unwrap();
        assert_eq!(our_share.held(), 5);
        share.shrink(3);
        assert!(budget.grow(&mut Share::default(), &ours, 1).is_err(), "the other half is not ours");
        drop(share);
        waiting.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_gets_its_turn_or_hears_that_the_server_is_busy() {
        let budget = Budget::new(Of::Answers, 10);
        let all = budget.wait(&SOMEBODY, 10, Duration::ZERO).await.unwrap();
        let refused = budget.wait(&SOMEBODY, 1, Duration::from_secs(5)).await.unwrap_err();
        assert_eq!(refused.code, ReasonCode::ServerBusy);
        let waiting = tokio::spawn({
            let budget = budget.clone();
            async move { budget.wait(&SOMEBODY, 10, Duration::from_secs(5)).await.map(drop) }
        });
        tokio::task::yield_now().await;
        drop(all);
        waiting.await.unwrap().unwrap();
    }
}
