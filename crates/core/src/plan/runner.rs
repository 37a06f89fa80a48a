//! A runner's record: hello, beat, goodbye, and being declared dead.

use std::sync::Arc;

use crate::key::Key;
use crate::plan::draft::Draft;
use crate::plan::{Plan, Stop};
use crate::reason::{ReasonCode, Refusal};
use crate::record::Record;
use crate::runner::{Runner, Silence};

/// A sign of life; the first one creates the record.
#[derive(Clone, Debug)]
pub struct Beat {
    /// The record to create if there is none.
    pub runner: Runner,
}

impl Plan for Beat {
    type Done = Arc<Runner>;

    fn draft(&self, draft: &mut Draft<'_>) -> Result<Arc<Runner>, Stop> {
        let key = Key::runner(&self.runner.namespace, &self.runner.id);
        let current = match draft.record(&key)? {
            Some(Record::Runner(current)) => current,
            _ => Arc::new(self.runner.clone()),
        };
        write(draft, key, current.beat(draft.now())?)
    }
}

/// A clean end.
#[derive(Clone, Debug)]
pub struct Goodbye {
    /// The runner.
    pub runner: Key,
}

impl Plan for Goodbye {
    type Done = Arc<Runner>;

    fn draft(&self, draft: &mut Draft<'_>) -> Result<Arc<Runner>, Stop> {
        let stopped = read(draft, &self.runner)?.stop(draft.now())?;
        write(draft, self.runner.clone(), stopped)
    }
}

/// Declares a silent runner dead. Guarded and final: its next beat conflicts, and it starts a new incarnation.
#[derive(Clone, Debug)]
pub struct DeclareDead {
    /// The runner.
    pub runner: Key,
    /// How its silence was measured.
    pub silence: Silence,
}

impl Plan for DeclareDead {
    type Done = Arc<Runner>;

    fn draft(&self, draft: &mut Draft<'_>) -> Result<Arc<Runner>, Stop> {
        let dead = read(draft, &self.runner)?.declare_dead(self.silence, draft.now())?;
        write(draft, self.runner.clone(), dead)
    }
}

/// Notes that nothing held by a dead runner was found; twice, one lease apart, and it leaves the due index.
#[derive(Clone, Debug)]
pub struct ClearDead {
    /// The runner.
    pub runner: Key,
}

impl Plan for ClearDead {
    type Done = Arc<Runner>;

    fn draft(&self, draft: &mut Draft<'_>) -> Result<Arc<Runner>, Stop> {
        let current = read(draft, &self.runner)?;
        match current.note_cleared(draft.now()) {
            Some(cleared) => write(draft, self.runner.clone(), cleared),
            None => Ok(current),
        }
    }
}

fn read(draft: &Draft<'_>, key: &Key) -> Result<Arc<Runner>, Stop> {
    match draft.record(key)? {
        Some(Record::Runner(runner)) => Ok(runner),
        _ => Err(Refusal::new(ReasonCode::RunnerNotFound).with("runner_id", &key.name).into()),
    }
}

fn write(draft: &mut Draft<'_>, key: Key, runner: Runner) -> Result<Arc<Runner>, Stop> {
    let runner = Arc::new(runner);
    draft.put(key, Record::Runner(runner.clone()));
    Ok(runner)
}
