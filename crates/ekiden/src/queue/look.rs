//! What a caller sees: one task, pages of them, runners, and why a task is where it is; and commands on one task.

use std::sync::Arc;

use ekiden_core::event::Event;
use ekiden_core::explain::{self, Surroundings};
use ekiden_core::id::{Namespace, QuestionId};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::limits;
use ekiden_core::plan::{self, Happen, Happened, Retry, Told};
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_core::record::{Record, Versioned};
use ekiden_core::runner::Runner;
use ekiden_core::task::Task;
use ekiden_store::{Page, RecordQuery, TaskQuery};

use super::StoreQueue;
use crate::error::Result;
use crate::port::{Explanation, TaskRef};
use crate::record::TaskRecord;

impl StoreQueue {
    pub(super) async fn task(&self, task: &TaskRef) -> Result<Arc<Task>> {
        let found = self.records(vec![task.key()]).await?.pop().flatten();
        let task_found = found.and_then(|found| found.record.as_task().cloned());
        task_found.ok_or_else(|| Refusal::new(ReasonCode::TaskNotFound).with("task_id", &task.id).into())
    }

    pub(super) async fn records(&self, keys: Vec<Key>) -> Result<Vec<Option<Versioned>>> {
        self.read(|| self.store().get(keys.clone())).await
    }

    pub(super) async fn page(&self, query: TaskQuery) -> Result<Page<TaskRecord>> {
        let page = self.read(|| self.store().tasks(query.clone())).await?;
        let records = page.items.iter().filter_map(|found| Some(TaskRecord::from(&**found.record.as_task()?)));
        Ok(Page { items: records.collect(), cursor: page.cursor })
    }

    /// The first records of a kind; more than a page of runners or schedules in one namespace is not listed.
    pub(super) async fn listed(&self, namespace: &Namespace, kind: RecordKind) -> Result<Vec<Record>> {
        let query = RecordQuery {
            namespace: namespace.clone(),
            kind,
            prefix: String::new(),
            cursor: None,
            limit: limits::PAGE_ITEMS_MAX,
        };
        let page = self.read(|| self.store().records(query.clone())).await?;
        Ok(page.items.into_iter().map(|found| found.record).collect())
    }

    pub(super) async fn all_runners(&self, namespace: &Namespace) -> Result<Vec<Runner>> {
        let listed = self.listed(namespace, RecordKind::Runner).await?;
        Ok(listed.iter().filter_map(Record::as_runner).map(|runner| Runner::clone(runner)).collect())
    }

    pub(super) async fn reasons(&self, task: &TaskRef) -> Result<Explanation> {
        let found = self.task(task).await?;
        let (pool, _) = self.settings(&task.namespace, &found.spec.pool).await?;
        let runners = self.all_runners(&task.namespace).await?;
        let mut keys = vec![Key::running(&task.namespace, &found.spec.pool)];
        keys.extend(found.spec.lane.as_ref().map(|lane| Key::lane(&task.namespace, &lane.key)));
        let around = self.records(keys).await?;
        let mut around = around.into_iter().map(|found| found.map(|found| found.record));
        let running = around.next().flatten().and_then(|counter| counter.as_counter()).unwrap_or(0);
        let ahead = match around.next().flatten() {
            Some(Record::Lane(lane)) => lane.places.clone(),
            _ => Vec::new(),
        };
        let (now, lead) = (self.now(), self.clock.lead());
        let surroundings = Surroundings { now, lead, pool: &pool, running, runners: &runners, ahead: &ahead };
        let reasons = explain::reasons(&found, &surroundings);
        Ok(Explanation { record: TaskRecord::from(&*found), reasons })
    }

    pub(super) async fn request_cancel(&self, task: &TaskRef, note: Option<Arc<str>>) -> Result<TaskRecord> {
        let event = Event::CancelRequested { reason: ReasonCode::CancelRequested, note };
        let happened = self.carry_out(&Happen { task: task.key(), event }).await?;
        if happened.task().state.lease.is_some() {
            self.notifiers.with(&task.namespace, |bell| bell.stop.ring());
        }
        Ok(self.happened(happened))
    }

    pub(super) async fn let_go(&self, task: &TaskRef) -> Result<TaskRecord> {
        let plan = Happen { task: task.key(), event: Event::Released };
        Ok(self.happened(self.carry_out(&plan).await?))
    }

    pub(super) async fn take_answer(
        &self,
        task: &TaskRef,
        question: QuestionId,
        content: Arc<str>,
    ) -> Result<TaskRecord> {
        let plan = Happen { task: task.key(), event: Event::Answered { question, content } };
        Ok(self.happened(self.carry_out(&plan).await?))
    }

    pub(super) async fn run_again(&self, task: &TaskRef) -> Result<TaskRecord> {
        let plan = Retry { task: task.key(), new_id: self.task_id() };
        let (enqueued, told) = self.carry_out(&Told(plan)).await?;
        for task in &told {
            self.announce(task);
        }
        let again = match &enqueued {
            plan::Enqueued::New(task) => task.clone(),
            plan::Enqueued::Existing(id) => {
                self.task(&TaskRef { namespace: task.namespace.clone(), id: id.clone() }).await?
            }
        };
        Ok(TaskRecord::from(&*again))
    }

    fn happened(&self, happened: Happened) -> TaskRecord {
        if let Happened::Changed(task) = &happened {
            self.announce(task);
        }
        TaskRecord::from(&**happened.task())
    }
}
