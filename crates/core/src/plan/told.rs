//! A plan, and to which tasks something happened by it: for those who tell others.

use std::sync::Arc;

use crate::key::Key;
use crate::plan::draft::Draft;
use crate::plan::{Plan, Stop};
use crate::task::Task;

/// A plan that also names the tasks to which something happened, as they are after it.
#[derive(Clone, Debug)]
pub struct Told<P>(pub P);

impl<P: Plan> Plan for Told<P> {
    type Done = (P::Done, Vec<Arc<Task>>);

    fn reads(&self) -> Vec<Key> {
        self.0.reads()
    }

    fn draft(&self, draft: &mut Draft<'_>) -> Result<Self::Done, Stop> {
        let done = self.0.draft(draft)?;
        Ok((done, draft.happened()))
    }
}
