//! What streams tell: changes of tasks, and that some were missed.

use std::sync::Arc;

use ekiden_core::event::EventName;
use ekiden_core::id::{Kind, Namespace, PoolName, TaskId};
use ekiden_core::task::Phase;
use ekiden_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::moment;
use crate::task::Progress;

/// Something happened to a task. The stream's event is `change`, its id the cursor to go on from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TaskChange {
    /// The namespace.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub namespace: Namespace,
    /// The task.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub id: TaskId,
    /// Its type.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub task_type: Kind,
    /// Its pool.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub pool: PoolName,
    /// What happened; absent for a report of progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::EventName>))]
    pub event: Option<EventName>,
    /// Where it is now.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::TaskState))]
    pub state: Phase,
    /// The number of its latest attempt; 0 before the first.
    pub attempt: u64,
    /// What went wrong, where something did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub error: Option<Arc<str>>,
    /// When it runs again, where it waits for that.
    #[serde(default, with = "moment::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Moment>))]
    pub next_run_at: Option<Timestamp>,
    /// How far the attempt is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// When it happened.
    #[serde(with = "moment")]
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Moment))]
    pub at: Timestamp,
}

/// Changes were missed: look at the tasks themselves, and go on from here. The stream's event is `reset`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Reset {
    /// Why: `UNKNOWN_CURSOR` or `TOO_SLOW`.
    pub reason_code: String,
    /// How many were missed, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
}
