//! Commands on many tasks.

use ekiden_core::id::{Namespace, SweepId};
use ekiden_core::sweep as core;
use ekiden_core::sweep::SweepWork;
use ekiden_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::moment;
use crate::task::Filter;

/// What is done to each task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SweepAction {
    /// Cancels what matches and has not ended.
    Cancel,
    /// Runs again what matches and can.
    Retry,
    /// Removes what matches and has ended.
    Purge,
}

/// A command on many tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewSweep {
    /// The caller's name for it. The same again, after a lost reply, starts nothing new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Id>))]
    pub id: Option<SweepId>,
    /// What is done.
    pub action: SweepAction,
    /// Which tasks are meant. `{}` means all of the namespace, and has to be said.
    pub filter: Filter,
    /// Only tells how many tasks match.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// A command that was started, or what it would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum Started {
    /// It was started.
    Sweep(Sweep),
    /// It was not, as asked.
    Preview(Preview),
}

/// What a command would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Preview {
    /// How many tasks match and would change, as far as was counted.
    pub matches: u64,
    /// Whether there may be more.
    pub more: bool,
}

/// A command on many tasks, under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Sweep {
    /// Its name.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub id: SweepId,
    /// What is done.
    pub action: SweepAction,
    /// Which tasks are meant.
    pub filter: Filter,
    /// Tasks changed so far.
    pub changed: u64,
    /// Tasks looked at so far and left alone.
    pub passed: u64,
    /// Where it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// When it was started.
    #[serde(with = "moment")]
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Moment))]
    pub created_at: Timestamp,
}

impl Sweep {
    /// A command of a person; `None` for what the system started for itself.
    pub fn of(sweep: &core::Sweep) -> Option<Self> {
        let (action, filter) = match &sweep.work {
            SweepWork::Cancel(filter) => (SweepAction::Cancel, filter),
            SweepWork::Retry(filter) => (SweepAction::Retry, filter),
            SweepWork::Purge(filter) => (SweepAction::Purge, filter),
            SweepWork::Release { .. } | SweepWork::Admit { .. } | SweepWork::Await { .. } | SweepWork::Link { .. } => {
                return None;
            }
        };
        Some(Self {
            id: sweep.id.clone(),
            action,
            filter: Filter::from(filter),
            changed: sweep.changed,
            passed: sweep.passed,
            cursor: sweep.cursor.clone(),
            created_at: sweep.created_at,
        })
    }

    /// The same in the words of core.
    pub fn into_core(self, namespace: Namespace) -> core::Sweep {
        let filter = self.filter.into_core(namespace);
        let work = match self.action {
            SweepAction::Cancel => SweepWork::Cancel(filter),
            SweepAction::Retry => SweepWork::Retry(filter),
            SweepAction::Purge => SweepWork::Purge(filter),
        };
        core::Sweep {
            cursor: self.cursor,
            changed: self.changed,
            passed: self.passed,
            ..core::Sweep::new(self.id, work, self.created_at)
        }
    }
}
