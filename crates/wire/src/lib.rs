//! What goes over HTTP between a server and whoever talks to it: plain data, with its translation to and from the words of
//! core. Knows no store, no socket and no status code.
//!
//! Moments are text of 24 characters, durations are numbers whose names end in `_ms`. Requests refuse fields that they do
//! not know, so that a typo is told; answers may grow new ones.

mod bounded;
mod content;
mod error;
mod event;
mod glance;
mod lease;
mod moment;
mod pool;
mod retry;
mod runner;
mod schedule;
#[cfg(feature = "schema")]
pub mod schema;
mod spec;
mod sweep;
mod task;
mod text;

pub use bounded::{BATCH_BYTES_MAX, BATCH_TASKS_MAX, SETTLEMENTS_MAX};
pub use content::{Encoding, decode, encode};
pub use error::{ErrorBody, ErrorDetail, Happened};
pub use event::{Reset, TaskChange};
pub use glance::Glance;
pub use lease::{
    Claim, Claimed, Held, HeldLease, LeasedTask, LogAppended, Progressed, Settle, SettleAnswer, Settled,
    SettledOrError, Settlement, Verdict,
};
pub use pool::{Concurrency, Keep, Policy, Pool, PoolPage, PoolSettings, Timeout};
pub use retry::Retry;
pub use runner::{Beat, Runner, RunnerList, RunnerState, Signal, SignalList};
pub use schedule::{Every, NewSchedule, Schedule, ScheduleList};
pub use spec::{Lane, NewTask, Spec, Unique, UniqueHold, Wishes};
pub use sweep::{NewSweep, Preview, Started, Sweep, SweepAction};
pub use task::{
    Answer, AnswerGiven, Attempt, AttemptList, Cancel, Counts, Due, EnqueueBatch, EnqueueBatchAnswer, Enqueued,
    EnqueuedOrError, Explanation, Filter, HistoryLine, HistoryList, Info, Maintained, NamespacePage, Progress,
    Question, Reason, Task, TaskPage,
};
pub use text::Text;
