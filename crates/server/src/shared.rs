//! What all requests of a server share.

use std::sync::Arc;
use std::time::Duration;

use ekiden::store::{Clock, Entropy, Spring};
use ekiden::{Chime, Logs, Queue};
use ekiden_core::id::{OpId, TaskId};
use ekiden_core::reason::{ReasonCode, Refusal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::Caller;
use crate::body::Pace;
use crate::budget::{Budget, Share};
use crate::events::Events;
use crate::limits;
use crate::metrics::Metrics;
use crate::room::Rooms;
use crate::token::Desk;
use crate::watched::Patience;

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
    /// Places for streams.
    pub(crate) streams: Budget,
    /// What bodies hold that are not carried out yet.
    pub(crate) bodies: Budget,
    /// What answers hold that are not sent yet.
    pub(crate) answers: Budget,
    /// Rings out when the server is to end: streams and waiting claims do so at once.
    pub(crate) stop: CancellationToken,
    /// What goes on although nobody waits for it.
    pub(crate) rest: TaskTracker,
}

/// What can be chosen about a server.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) hosts: Vec<String>,
    pub(crate) patience: Patience,
    pub(crate) pace: Pace,
    pub(crate) finish_within: Duration,
    pub(crate) connections_max: usize,
    pub(crate) streams_max: usize,
    pub(crate) bodies_bytes_max: usize,
    pub(crate) answers_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            patience: Patience {
                headers_within: limits::HEADERS_WITHIN,
                write_within: limits::WRITE_WITHIN,
                rests_for: limits::RESTS_FOR,
            },
            pace: Pace { within: limits::BODY_WITHIN, step_within: limits::BODY_STEP_WITHIN },
            bodies_bytes_max: limits::BODIES_BYTES_MAX,
            answers_bytes_max: limits::ANSWERS_BYTES_MAX,
            finish_within: limits::FINISH_WITHIN,
            connections_max: limits::CONNECTIONS_MAX,
            streams_max: limits::STREAMS_MAX,
        }
    }
}

impl Shared {
    /// A place for one more stream.
    pub(crate) fn stream(&self, caller: &Caller) -> Result<Share, Refusal> {
        if self.stop.is_cancelled() {
            return Err(Refusal::new(ReasonCode::ServerStopping));
        }
        let mut place = Share::default();
        self.streams.grow(&mut place, caller, 1)?;
        Ok(place)
    }
}

/// Makes ids, by the clock that the server was given.
pub(crate) struct Ids {
    clock: Arc<dyn Clock>,
    spring: Spring,
    /// For the names of requests. Every answer publishes one, refusals too, so ids have a stream of their own.
    requests: Spring,
}

impl Ids {
    pub(crate) fn new(clock: Arc<dyn Clock>, mut entropy: Entropy) -> Self {
        let requests = entropy.another().into();
        Self { clock, spring: Spring::from(entropy), requests }
    }

    pub(crate) fn op(&self) -> OpId {
        self.spring.op_id(self.clock.now())
    }

    pub(crate) fn task(&self) -> TaskId {
        self.spring.task_id(self.clock.now())
    }

    /// Names a request.
    pub(crate) fn request(&self) -> u64 {
        self.requests.next_u64()
    }
}
