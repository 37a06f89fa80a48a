//! Runners as items of the runner table (Q2, Q9). One of ours carries its whole record beside the documented attributes.

use ekiden_core::id::{Kind, RunnerId};
use ekiden_core::key::Key;
use ekiden_core::newer::Newer;
use ekiden_core::pool::PROMPT;
use ekiden_core::runner::{Runner, RunnerStatus};
use ekiden_core::time::{Millis, Timestamp};

use super::attributes as at;
use super::{Encoded, Item, Unreadable, get_text, pack, text, unpack};

/// The document's limit of silence.
const FOREIGN_LEASE: Millis = Millis::from_secs(120);

const RUNNING: &str = "running";
const STOPPED: &str = "stopped";

pub(super) fn encode(runner: &Runner, encoded: &mut Encoded) {
    let status = if runner.status == RunnerStatus::Running { RUNNING } else { STOPPED };
    encoded.put(at::STATUS, Some(text(status)));
    encoded.put(at::LAST_HEARTBEAT, Some(text(runner.last_heartbeat.to_string())));
    encoded.put(at::STARTED_AT, Some(text(runner.started_at.to_string())));
    encoded.put(at::PROJECT_ROOT, Some(text(&runner.project_root)));
    encoded.put(at::BODY, Some(pack(runner)));
}

pub(super) fn decode(key: &Key, item: &Item) -> Result<Runner, Unreadable> {
    if item.contains_key(at::BODY) {
        return unpack(item, at::BODY);
    }
    let id = RunnerId::new(&*key.name).map_err(|refusal| Unreadable::Content(refusal.to_string()))?;
    let moment = |name| get_text(item, name).and_then(|text| Timestamp::parse(text).ok()).unwrap_or(Timestamp::ZERO);
    let runs = get_text(item, at::STATUS).is_some_and(|status| status.eq_ignore_ascii_case(RUNNING));
    Ok(Runner {
        namespace: key.namespace.clone(),
        id,
        started_at: moment(at::STARTED_AT),
        last_heartbeat: moment(at::LAST_HEARTBEAT),
        status: if runs { RunnerStatus::Running } else { RunnerStatus::Stopped },
        lease: FOREIGN_LEASE,
        project_root: get_text(item, at::PROJECT_ROOT).unwrap_or_default().to_owned(),
        pools: Vec::new(),
        // It knows nothing else (Q6).
        kinds: Kind::new(PROMPT).into_iter().collect(),
        newer: Newer::NONE,
    })
}

/// Whether a runner of ours wrote the item; others are never written to.
pub(crate) fn is_ours(item: &Item) -> bool {
    item.contains_key(at::BODY)
}
