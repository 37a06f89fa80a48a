//! What all requests of a server share.

use std::sync::Arc;
use std::time::Duration;

use ekiden::store::{Clock, Entropy, Spring};
use ekiden::{Chime, Logs, Queue};
use ekiden_core::id::{OpId, TaskId};
use ekiden_core::reason::{ReasonCode, Refusal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::events::Events;
use crate::limits;
use crate::metrics::Metrics;
use crate::namespaces::Namespaces;
use crate::room::Rooms;
use crate::token::Desk;

/// What all requests of a server share.
pub(crate) struct Shared {
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Ids,
    pub(crate) options: Options,
    pub(crate) events: Arc<Events>,
    pub(crate) logs: Option<Arc<dyn Logs>>,
    /// Rings when somebody wrote to a log.
    pub(crate) logged: Chime,
    pub(crate) tokens: Desk,
    pub(crate) metrics: Metrics,
    pub(crate) rooms: Rooms,
    pub(crate) namespaces: Namespaces,
    pub(crate) streams: Arc<Semaphore>,
    /// Rings out when the server is to end: streams and waiting claims do so at once.
    pub(crate) stop: CancellationToken,
    /// What goes on although nobody waits for it.
    pub(crate) rest: TaskTracker,
}

/// What can be chosen about a server.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) hosts: Vec<String>,
    pub(crate) headers_within: Duration,
    pub(crate) rests_for: Duration,
    pub(crate) body_within: Duration,
    pub(crate) finish_within: Duration,
    pub(crate) connections_max: usize,
    pub(crate) streams_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            headers_within: limits::HEADERS_WITHIN,
            rests_for: limits::RESTS_FOR,
            body_within: limits::BODY_WITHIN,
            finish_within: limits::FINISH_WITHIN,
            connections_max: limits::CONNECTIONS_MAX,
            streams_max: limits::STREAMS_MAX,
        }
    }
}

impl Shared {
    /// A place for one more stream.
    pub(crate) fn stream(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        if self.stop.is_cancelled() {
            return Err(Refusal::new(ReasonCode::ServerStopping));
        }
        let busy = |_| Refusal::new(ReasonCode::ServerBusy).with("streams", self.options.streams_max);
        self.streams.clone().try_acquire_owned().map_err(busy)
    }
}

/// Makes ids, by the clock that the server was given.
pub(crate) struct Ids {
    clock: Arc<dyn Clock>,
    spring: Spring,
}

impl Ids {
    pub(crate) fn new(clock: Arc<dyn Clock>, entropy: Entropy) -> Self {
        Self { clock, spring: Spring::from(entropy) }
    }

    pub(crate) fn op(&self) -> OpId {
        self.spring.op_id(self.clock.now())
    }

    pub(crate) fn task(&self) -> TaskId {
        self.spring.task_id(self.clock.now())
    }

    pub(crate) fn number(&self) -> u64 {
        self.spring.next_u64()
    }
}
