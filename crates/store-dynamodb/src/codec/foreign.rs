//! Items that another program wrote, with nothing but the documented attributes (Q6): a task of kind `prompt`, in the default
//! pool, with one attempt.

use std::sync::Arc;

use ekiden_core::id::{GroupId, Kind, OpId, PoolName, RunnerId, SessionId, TaskId};
use ekiden_core::key::Key;
use ekiden_core::lease::{Lease, Token, Until};
use ekiden_core::newer::Newer;
use ekiden_core::pool::{PROMPT, Profile};
use ekiden_core::task::{JSON, Origin, Phase, Spec, Task, TaskEnvelope};
use ekiden_core::time::Timestamp;
use ekiden_core::transition::{Start, birth};

use super::attributes as at;
use super::task::payload_of_prompt;
use super::words;
use super::{Item, Unreadable, get_text};

/// The pool that it stands in.
const DEFAULT_POOL: &str = "default";

pub(super) fn decode(key: &Key, item: &Item) -> Result<Task, Unreadable> {
    let wrong = |refusal: ekiden_core::reason::Refusal| Unreadable::Content(refusal.to_string());
    let id = TaskId::new(&*key.name).map_err(wrong)?;
    // Q14: any width and offset is read; a moment that is none counts as long ago.
    let moment = |name| get_text(item, name).and_then(|text| Timestamp::parse(text).ok()).unwrap_or(Timestamp::ZERO);
    let status = get_text(item, at::STATUS).ok_or(Unreadable::Missing(at::STATUS))?;
    let phase = words::phase_of(status).ok_or_else(|| Unreadable::Content(format!("unknown status {status:?}")))?;
    let kind = Kind::new(PROMPT).map_err(wrong)?;
    let envelope = TaskEnvelope {
        task_type: kind,
        payload: payload_of_prompt(get_text(item, at::PROMPT).unwrap_or_default()),
        content_type: Arc::from(JSON),
        newer: Newer::NONE,
    };
    let policy = Profile::DynamoPrompt.settings().policy;
    let pool = PoolName::new(DEFAULT_POOL).map_err(wrong)?;
    let mut spec = Spec::new(key.namespace.clone(), pool, id, envelope, policy, moment(at::CREATED_AT));
    let named = |name| get_text(item, name).filter(|text| *text != &*key.name);
    spec.group = named(at::GROUP).and_then(|text| GroupId::new(text).ok());
    spec.session = named(at::SESSION).and_then(|text| SessionId::new(text).ok());
    spec.origin = Origin::Foreign;
    let start = if phase == Phase::Pending { Start::Held } else { Start::Released };
    let mut state = birth(&spec, start, Vec::new(), spec.created_at).state;
    if !matches!(phase, Phase::Pending | Phase::Queued) {
        let updated_at = moment(at::UPDATED_AT);
        (state.phase, state.promoted, state.updated_at) = (phase, false, updated_at);
        (state.attempts, state.execution_no) = (1, 1);
        state.finished_at = phase.is_final().then_some(updated_at);
        state.last_error = get_text(item, at::ERROR_MESSAGE).map(Arc::from);
        let holder = get_text(item, at::CLAIMED_BY).and_then(|text| RunnerId::new(text).ok());
        state.lease = holder.filter(|_| phase == Phase::Running).map(|holder| Lease {
            holder,
            claim: OpId::from_bits(0),
            token: Token(1),
            until: Until::Foreign,
            counted: false,
            newer: Newer::NONE,
        });
    }
    Ok(Task { spec: spec.into(), state })
}
