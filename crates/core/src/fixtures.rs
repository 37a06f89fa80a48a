//! Tasks for the tests of this crate.

use std::sync::Arc;

use crate::id::{Kind, Namespace, PoolName, TaskId};
use crate::pool::Profile;
use crate::task::{Spec, Task, TaskEnvelope};
use crate::time::Timestamp;
use crate::transition::{Start, birth};

/// The moment at which these tasks are made.
pub(crate) const NOON: Timestamp = Timestamp::from_millis(1_763_208_000_000);

/// What every task of the tests asks for.
pub(crate) fn spec(id: &str) -> Spec {
    let envelope = TaskEnvelope::json(Kind::new("greet").unwrap(), "{\"name\":\"Aoi\"}");
    let policy = Profile::Embedded.settings().policy;
    let [namespace, pool] = ["default", "pool"];
    Spec::new(
        Namespace::new(namespace).unwrap(),
        PoolName::new(pool).unwrap(),
        TaskId::new(id).unwrap(),
        envelope,
        policy,
        NOON,
    )
}

/// A task that was just enqueued.
pub(crate) fn task(id: &str) -> Task {
    born(spec(id))
}

/// The same from a spec.
pub(crate) fn born(spec: Spec) -> Task {
    let state = birth(&spec, Start::Released, vec![], NOON).state;
    Task { spec: Arc::new(spec), state }
}
