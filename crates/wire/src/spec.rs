//! What was asked for: a task to hand in, and the part of a task that never changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use ekiden_core::dependency::OnParentFailure;
use ekiden_core::id::{
    GroupId, IdempotencyKey, Kind, LaneKey, Namespace, OpId, PoolName, SessionId, TaskId, UniqueKey,
};
use ekiden_core::lane::{Hold, LaneSpec};
use ekiden_core::limits;
use ekiden_core::order::Rank;
use ekiden_core::reason::Refusal;
use ekiden_core::task::{JSON, TaskEnvelope};
use ekiden_core::time::{Millis, Timestamp};
use ekiden_core::{task as core, unique};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::bounded;
use crate::content::{self, Encoding};
use crate::moment;
use crate::pool::{Keep, Policy, Timeout};
use crate::retry::Retry;

/// A task to hand in.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewTask {
    /// Its id. Made by the caller, so that a repeated request is recognised; made by the server if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Id>))]
    pub id: Option<TaskId>,
    /// The caller's name for the request. The same again, after a lost reply, makes no second task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::OpId>))]
    pub op_id: Option<OpId>,
    /// Selects the handler.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub task_type: Kind,
    /// What the handler gets; `null` if this is left out.
    #[serde(default, deserialize_with = "content::any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Json))]
    pub payload: Option<Box<RawValue>>,
    /// How the payload stands here.
    #[serde(default, skip_serializing_if = "Encoding::is_json")]
    pub payload_encoding: Encoding,
    /// The payload's media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub content_type: Option<Arc<str>>,
    /// The line that it stands in; `default` if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Id>))]
    pub pool: Option<PoolName>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub title: Option<Arc<str>>,
    /// May run this long after it was handed in. Not together with `run_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Delay>))]
    pub delay_ms: Option<u64>,
    /// May run from this moment on. Not together with `delay_ms`.
    #[serde(default, with = "moment::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Moment>))]
    pub run_at: Option<Timestamp>,
    /// How long after being handed in it may still start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Span>))]
    pub expires_after_ms: Option<u64>,
    /// Whether it is held until somebody releases it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// Higher runs first.
    #[serde(default, skip_serializing_if = "is_normal")]
    #[cfg_attr(feature = "schema", schema(minimum = -100, maximum = 100))]
    pub priority: i32,
    /// The lane that it runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<Lane>,
    /// The key that no other task may have meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<Unique>,
    /// A repeated request with this key finds the first one's task, for a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Id>))]
    pub idempotency_key: Option<IdempotencyKey>,
    /// The tasks that it waits for.
    #[serde(
        default,
        deserialize_with = "bounded::capped::<_, _, { limits::PARENTS_MAX }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<crate::schema::Id>, max_items = 256))]
    pub depends_on: Vec<TaskId>,
    /// The group that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Id>))]
    pub after_group: Option<GroupId>,
    /// What becomes of it when something that it waits for does not succeed.
    #[serde(default, skip_serializing_if = "is_block")]
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::OnParentFailure))]
    pub on_parent_failure: OnParentFailure,
    /// Its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Id>))]
    pub group: Option<GroupId>,
    /// Its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Id>))]
    pub session: Option<SessionId>,
    /// Free text by name.
    #[serde(
        default,
        deserialize_with = "bounded::capped_texts::<_, { limits::LABELS_MAX }>",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, String>))]
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// What it says differently from its pool.
    #[serde(default, skip_serializing_if = "Wishes::is_empty")]
    pub policy: Wishes,
}

impl NewTask {
    /// The payload with its type.
    pub fn envelope(&mut self) -> Result<TaskEnvelope, Refusal> {
        let payload = content::decode("payload", self.payload.take(), self.payload_encoding)?;
        Ok(envelope(self.task_type.clone(), payload, self.content_type.take()))
    }
}

/// What a task says differently from its pool.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Wishes {
    /// The budget of attempts, the first one included.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1000))]
    pub attempts_max: Option<u32>,
    /// The waits between attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// The limit of one attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Timeout>,
    /// How long it stays after success or cancellation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<Keep>,
    /// How long it stays when dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_dead: Option<Keep>,
}

impl Wishes {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The lane that a task runs in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Lane {
    /// Its key.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub key: LaneKey,
    /// How many of its tasks may hold a place at once.
    #[serde(default = "one")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 256))]
    pub width: u32,
    /// How long a task holds its place: `until_final`, or `while_running`.
    #[serde(default = "until_final")]
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Hold))]
    pub hold: Hold,
}

const fn one() -> u32 {
    1
}

const fn until_final() -> Hold {
    Hold::UntilFinal
}

/// A key that no two tasks have at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Unique {
    /// The key.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub key: UniqueKey,
    /// How long the key is taken.
    #[serde(default)]
    pub hold: UniqueHold,
}

/// How long a unique key is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum UniqueHold {
    /// Until the task has ended.
    #[default]
    WhileOpen,
    /// This long.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Span))]
    ForMs(u64),
    /// Until the task is purged.
    WhileKept,
}

/// What was asked for. It never changes after the enqueue.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Spec {
    /// The task's id.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub id: TaskId,
    /// The line that it stands in.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub pool: PoolName,
    /// Selects the handler.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub task_type: Kind,
    /// What the handler gets.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Json))]
    pub payload: Box<RawValue>,
    /// How the payload stands here.
    #[serde(default, skip_serializing_if = "Encoding::is_json")]
    pub payload_encoding: Encoding,
    /// The payload's media type, unless it is JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub content_type: Option<Arc<str>>,
    /// When it was handed in.
    #[serde(with = "moment")]
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Moment))]
    pub created_at: Timestamp,
    /// Higher runs first.
    #[serde(default, skip_serializing_if = "is_normal")]
    pub priority: i32,
    /// The rules that it took along.
    #[serde(default, skip_serializing_if = "Policy::is_usual")]
    pub policy: Policy,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub title: Option<Arc<str>>,
    /// Never run before this.
    #[serde(default, with = "moment::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Moment>))]
    pub run_at: Option<Timestamp>,
    /// Never started after this.
    #[serde(default, with = "moment::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Moment>))]
    pub expires_at: Option<Timestamp>,
    /// The lane that it runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<Lane>,
    /// The key that no other task may have meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<Unique>,
    /// What becomes of it when something that it waits for does not succeed.
    #[serde(default, skip_serializing_if = "is_block")]
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::OnParentFailure))]
    pub on_parent_failure: OnParentFailure,
    /// Its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Id>))]
    pub group: Option<GroupId>,
    /// The group that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Id>))]
    pub after_group: Option<GroupId>,
    /// Its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Id>))]
    pub session: Option<SessionId>,
    /// Free text by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, String>))]
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// The task that this one repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Id>))]
    pub retry_of: Option<TaskId>,
}

impl From<&core::Spec> for Spec {
    fn from(spec: &core::Spec) -> Self {
        let envelope = &spec.envelope;
        let (payload, payload_encoding) = content::encode(&envelope.payload, &envelope.content_type);
        Self {
            id: spec.id.clone(),
            pool: spec.pool.clone(),
            task_type: envelope.task_type.clone(),
            payload,
            payload_encoding,
            content_type: unless_json(&envelope.content_type),
            created_at: spec.created_at,
            priority: spec.rank.0.saturating_neg(),
            policy: Policy::from(&*spec.policy),
            title: spec.title.clone(),
            run_at: spec.run_at,
            expires_at: spec.expires_at,
            lane: spec.lane.as_deref().map(Lane::from),
            unique: spec.unique.as_deref().map(Unique::from),
            on_parent_failure: spec.on_parent_failure,
            group: spec.group.clone(),
            after_group: spec.after_group.clone(),
            session: spec.session.clone(),
            labels: spec.labels.clone(),
            retry_of: spec.retry_of.clone(),
        }
    }
}

impl Spec {
    /// The same in the words of core.
    pub fn into_core(self, namespace: Namespace) -> Result<core::Spec, Refusal> {
        let payload = content::decode("payload", Some(self.payload), self.payload_encoding)?;
        let envelope = envelope(self.task_type, payload, self.content_type);
        let plain =
            core::Spec::new(namespace, self.pool, self.id, envelope, Arc::new(self.policy.into()), self.created_at);
        Ok(core::Spec {
            rank: Rank(self.priority.saturating_neg()),
            title: self.title,
            run_at: self.run_at,
            expires_at: self.expires_at,
            lane: self.lane.map(|lane| Arc::new(lane.into())),
            unique: self.unique.map(|unique| Arc::new(unique.into())),
            on_parent_failure: self.on_parent_failure,
            group: self.group,
            after_group: self.after_group,
            session: self.session,
            labels: self.labels,
            retry_of: self.retry_of,
            ..plain
        })
    }
}

fn envelope(task_type: Kind, payload: Bytes, content_type: Option<Arc<str>>) -> TaskEnvelope {
    let json = TaskEnvelope::json(task_type, payload);
    match content_type {
        Some(content_type) => TaskEnvelope { content_type, ..json },
        None => json,
    }
}

/// A media type, where it has to be told.
pub(crate) fn unless_json(content_type: &Arc<str>) -> Option<Arc<str>> {
    (**content_type != *JSON).then(|| content_type.clone())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) const fn is_normal(priority: &i32) -> bool {
    *priority == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_block(policy: &OnParentFailure) -> bool {
    *policy == OnParentFailure::Block
}

impl From<&LaneSpec> for Lane {
    fn from(lane: &LaneSpec) -> Self {
        Self { key: lane.key.clone(), width: lane.width, hold: lane.hold }
    }
}

impl From<Lane> for LaneSpec {
    fn from(lane: Lane) -> Self {
        Self { key: lane.key, width: lane.width, hold: lane.hold }
    }
}

impl From<&unique::Unique> for Unique {
    fn from(unique: &unique::Unique) -> Self {
        let hold = match unique.hold {
            unique::UniqueHold::WhileOpen => UniqueHold::WhileOpen,
            unique::UniqueHold::For(span) => UniqueHold::ForMs(span.as_u64()),
            unique::UniqueHold::WhileKept => UniqueHold::WhileKept,
        };
        Self { key: unique.key.clone(), hold }
    }
}

impl From<Unique> for unique::Unique {
    fn from(unique: Unique) -> Self {
        let hold = match unique.hold {
            UniqueHold::WhileOpen => unique::UniqueHold::WhileOpen,
            UniqueHold::ForMs(ms) => unique::UniqueHold::For(Millis::new(ms)),
            UniqueHold::WhileKept => unique::UniqueHold::WhileKept,
        };
        Self { key: unique.key, hold }
    }
}
