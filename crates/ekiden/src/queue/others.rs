//! Programs of others in the same store, as far as this process met them: a namespace with a runner of theirs takes prompts only.

use std::time::Duration;

use ekiden_core::id::{Kind, Namespace, RunnerId};
use ekiden_core::pool;
use ekiden_core::record::Versioned;
use ekiden_store::Others;
use hashbrown::HashMap;

use super::{StoreQueue, locked};
use crate::error::Result;

/// Five seconds: how old the news may be. A runner of another program that comes meanwhile may be offered what was handed in before.
const KNOWN_FOR: Duration = Duration::from_secs(5);

/// 4,096 namespaces: a cache, not a list; beyond it everything is read again.
const KNOWN_MAX: usize = 4_096;

/// Who stands for programs that were announced and not seen.
const ANNOUNCED: &str = "announced";

/// The runner of another program that was met in a namespace, and when it was looked for.
pub(super) type Met = HashMap<Namespace, (Option<RunnerId>, Duration)>;

impl StoreQueue {
    /// Q6: refuses a kind that another program in the namespace would run as a prompt.
    pub(super) async fn admit(&self, namespace: &Namespace, kind: &Kind) -> Result<()> {
        let others = self.store().info().others;
        if others == Others::Never || kind.as_str() == pool::PROMPT {
            return Ok(());
        }
        // Rare, and large: the usual way stays small.
        Box::pin(self.admit_among_others(others, namespace, kind)).await
    }

    async fn admit_among_others(&self, others: Others, namespace: &Namespace, kind: &Kind) -> Result<()> {
        let met = match others {
            Others::Certain => Some(RunnerId::new(ANNOUNCED)?),
            Others::Possible | Others::Never => self.who_is_met(namespace).await?,
        };
        Ok(pool::admit(namespace, kind, met.as_ref())?)
    }

    async fn who_is_met(&self, namespace: &Namespace) -> Result<Option<RunnerId>> {
        let now = self.clock.monotonic();
        let known = locked(&self.met).get(namespace).cloned();
        if let Some((met, read_at)) = known
            && now.saturating_sub(read_at) < KNOWN_FOR
        {
            return Ok(met);
        }
        let all = self.runner_records(namespace).await?;
        Ok(self.met_in(namespace, &all))
    }

    /// Notes whether any of these runners belongs to another program.
    pub(super) fn met_in(&self, namespace: &Namespace, runners: &[Versioned]) -> Option<RunnerId> {
        let foreign = runners.iter().filter(|found| found.is_foreign());
        let met = foreign.filter_map(|found| found.record.as_runner()).map(|runner| runner.id.clone()).next();
        let mut known = locked(&self.met);
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(namespace.clone(), (met.clone(), self.clock.monotonic()));
        met
    }
}
