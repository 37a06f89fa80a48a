//! A runner as it is stored: flat, with the fields of its status beside its own. Written out, because only a structure that
//! lists all its fields can tell which ones it does not know.

use serde::{Deserialize, Serialize};

use super::{Runner, RunnerStatus};
use crate::id::{Kind, Namespace, PoolName, RunnerId};
use crate::newer::Newer;
use crate::time::{Millis, Timestamp};

#[derive(Serialize, Deserialize)]
pub(super) struct Stored {
    namespace: Namespace,
    id: RunnerId,
    started_at: Timestamp,
    last_heartbeat: Timestamp,
    status: Word,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cleared: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    check_at: Option<Timestamp>,
    lease: Millis,
    #[serde(default)]
    project_root: String,
    #[serde(default)]
    pools: Vec<PoolName>,
    #[serde(default)]
    kinds: Vec<Kind>,
    #[serde(default, rename = "~", skip_serializing_if = "Newer::is_none")]
    newer: Newer,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Running,
    Stopped,
    Dead,
}

impl From<Runner> for Stored {
    fn from(runner: Runner) -> Self {
        let (status, dead) = match runner.status {
            RunnerStatus::Running => (Word::Running, None),
            RunnerStatus::Stopped => (Word::Stopped, None),
            RunnerStatus::Dead { since, cleared, check_at } => (Word::Dead, Some((since, cleared, check_at))),
        };
        Self {
            namespace: runner.namespace,
            id: runner.id,
            started_at: runner.started_at,
            last_heartbeat: runner.last_heartbeat,
            status,
            since: dead.map(|(since, _, _)| since),
            cleared: dead.map(|(_, cleared, _)| cleared),
            check_at: dead.map(|(_, _, check_at)| check_at),
            lease: runner.lease,
            project_root: runner.project_root,
            pools: runner.pools,
            kinds: runner.kinds,
            newer: runner.newer,
        }
    }
}

impl TryFrom<Stored> for Runner {
    type Error = &'static str;

    fn try_from(stored: Stored) -> Result<Self, Self::Error> {
        let status = match (stored.status, stored.since, stored.cleared, stored.check_at) {
            (Word::Running, ..) => RunnerStatus::Running,
            (Word::Stopped, ..) => RunnerStatus::Stopped,
            (Word::Dead, Some(since), Some(cleared), Some(check_at)) => RunnerStatus::Dead { since, cleared, check_at },
            (Word::Dead, ..) => return Err("a dead runner has `since`, `cleared` and `check_at`"),
        };
        Ok(Self {
            namespace: stored.namespace,
            id: stored.id,
            started_at: stored.started_at,
            last_heartbeat: stored.last_heartbeat,
            status,
            lease: stored.lease,
            project_root: stored.project_root,
            pools: stored.pools,
            kinds: stored.kinds,
            newer: stored.newer,
        })
    }
}
