//! Ekiden: a job runtime. Tasks that must not be lost, run twice or hang, on whatever store you have.
//!
//! Start with [`Ekiden::open`], hand tasks in with a [`Client`], run them with a [`Runner`].

mod address;
mod backoff;
mod bell;
mod change;
mod client;
mod context;
mod enqueue;
mod error;
#[cfg(all(feature = "exec", target_os = "linux"))]
pub mod exec;
#[cfg(unix)]
pub mod files;
mod handler;
#[cfg(feature = "http")]
mod http;
mod io;
#[cfg(unix)]
mod logs;
mod port;
mod queue;
mod record;
mod registry;
mod runner;
mod schedule;
#[cfg(unix)]
mod signal;
mod stand;
pub mod testing;
#[cfg(feature = "wire")]
pub mod wire;

pub use bell::{Bell, Chime, Heard as HeardChime};
pub use change::{Heard, Observer, Subscription, TaskChange};
pub use client::{Client, Ekiden, EkidenBuilder};
pub use context::Context;
pub use enqueue::EnqueueBuilder;
pub use error::{Error, Result};
pub use handler::{Done, IntoDone, Payload, TaskError, TaskHandler, Undecodable};
#[cfg(all(feature = "http", unix))]
pub use http::{HttpLogs, LogStream};
#[cfg(feature = "http")]
pub use http::{HttpQueue, server_origin};
pub use io::Io;
#[cfg(unix)]
pub use logs::{AttemptRef, FolderLogs, LogPart, Logs};
pub use port::{
    Ask, Bulk, Enqueued, Explanation, Failure, LeaseRef, Leased, Maintained, NewSchedule, NewTask, Queue, QueueInfo,
    Settled, SettledAndLeased, Settlement, TaskRef, Verdict, When, Wishes,
};
pub use queue::StoreQueue;
pub use record::{TaskRecord, TaskState};
pub use registry::Registry;
pub use runner::{Ended, Runner, RunnerBuilder, Stop, StopReason};
pub use schedule::ScheduleBuilder;
pub use stand::{Stand, Stands};

/// The words of the core that the port speaks.
pub mod core {
    pub use ekiden_core::attempt::{Attempt, HistoryLine, Outcome, OutcomeCounts, Stage};
    pub use ekiden_core::dependency::OnParentFailure;
    pub use ekiden_core::event::EventName;
    pub use ekiden_core::filter::TaskFilter;
    pub use ekiden_core::id::{
        GroupId, IdempotencyKey, Kind, LaneKey, Namespace, OpId, PoolName, QuestionId, RunnerId, ScheduleId, SessionId,
        SweepId, TaskId, UniqueKey,
    };
    pub use ekiden_core::lane::{Hold, LaneSpec};
    pub use ekiden_core::lease::Token;
    pub use ekiden_core::limits;
    pub use ekiden_core::order::Priority;
    pub use ekiden_core::pool::{Concurrency, Keep, Policy, PoolSettings, Profile, Timeout};
    pub use ekiden_core::reason::{Language, Message, ReasonCode, Refusal};
    pub use ekiden_core::record::{Pool, Signal};
    pub use ekiden_core::retry::{FailureKind, Jitter, RetryPolicy};
    pub use ekiden_core::runner::{Runner, RunnerStatus};
    pub use ekiden_core::schedule::{Every, Missed, Overlap, Schedule};
    pub use ekiden_core::sweep::{Sweep, SweepWork};
    pub use ekiden_core::task::{Progress, Question, QuestionAnswer, Spec, TaskEnvelope};
    pub use ekiden_core::time::{ClockLead, Millis, Timestamp};
    pub use ekiden_core::transition::Start;
    pub use ekiden_core::unique::{Unique, UniqueHold};
}

/// Stores, clocks and layers, for those who bring their own.
pub mod store {
    pub use ekiden_store::clock::{Clock, ManualClock, SteadyClock, SystemClock, TokioClock};
    pub use ekiden_store::entropy::{Entropy, Spring};
    pub use ekiden_store::layers;
    pub use ekiden_store::transfer;
    pub use ekiden_store::{
        CheckDepth, CountScope, Counts, Finding, ListOrder, MemoryStore, Page, Store, StoreError, TaskQuery,
    };
    #[cfg(feature = "local")]
    pub use ekiden_store_local::{Compacted, LocalStore, Options as LocalOptions};

    pub use crate::address::Address;
}

/// The README's programs are compiled and run like every other example.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
