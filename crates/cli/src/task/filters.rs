//! Which tasks are meant, by flags: the same for lists, for watching and for commands on many tasks.

use std::sync::Arc;

use clap::Args;
use ekiden::core::{GroupId, Kind, PoolName, Refusal, SessionId, TaskFilter};
use ekiden::{Client, TaskRecord, TaskState};

use super::words::states;

/// Flags that narrow a choice of tasks down.
#[derive(Args, Default)]
pub(crate) struct Filters {
    /// Only in these states, as in running,retry_scheduled
    #[arg(long, value_delimiter = ',', value_parser = states())]
    pub(crate) state: Vec<TaskState>,
    /// Only of this pool
    #[arg(long)]
    pool: Option<String>,
    /// Only of this type
    #[arg(long = "type", value_name = "TYPE")]
    task_type: Option<String>,
    /// Only of this group
    #[arg(long)]
    group: Option<String>,
    /// Only of this session
    #[arg(long)]
    session: Option<String>,
    /// Only with this text in id, title, error or payload
    #[arg(long)]
    text: Option<String>,
}

impl Filters {
    /// The same in the words of the port.
    pub(crate) fn of(self, client: &Client) -> Result<TaskFilter, Refusal> {
        let mut filter = client.all();
        filter.phases = self.state;
        filter.pool = self.pool.map(PoolName::new).transpose()?;
        filter.kind = self.task_type.map(Kind::new).transpose()?;
        filter.group = self.group.map(GroupId::new).transpose()?;
        filter.session = self.session.map(SessionId::new).transpose()?;
        filter.text = self.text.map(Arc::from);
        Ok(filter)
    }
}

/// Whether a task is meant, whatever its state: for who hears of tasks one by one.
pub(crate) fn is_meant(filter: &TaskFilter, task: &TaskRecord) -> bool {
    let mentions = |text: &Arc<str>| {
        let payload = std::str::from_utf8(&task.envelope.payload).unwrap_or_default();
        let texts = [Some(task.id.as_str()), task.title.as_deref(), task.last_error.as_deref(), Some(payload)];
        texts.into_iter().flatten().any(|part| part.contains(&**text))
    };
    filter.pool.as_ref().is_none_or(|pool| *pool == task.pool)
        && filter.kind.as_ref().is_none_or(|kind| *kind == task.envelope.task_type)
        && filter.group.as_ref().is_none_or(|group| task.group.as_ref() == Some(group))
        && filter.session.as_ref().is_none_or(|session| task.session.as_ref() == Some(session))
        && filter.text.as_ref().is_none_or(mentions)
}
