//! The port over HTTP: the same words, spoken to a server. Every request may be repeated, because whatever it writes has an
//! id that was made here; nothing is decided on this side.

mod batch;
mod hints;
mod line;
#[cfg(unix)]
mod logs;
mod path;
mod queue;
mod stream;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ekiden_core::id::OpId;
use ekiden_core::time::Timestamp;
use ekiden_store::clock::{Clock, SystemClock};
use ekiden_store::entropy::{Entropy, Spring};
use ekiden_wire as wire;

use crate::error::Result;
use crate::port::QueueInfo;
#[cfg(unix)]
pub use logs::{HttpLogs, LogStream};

pub use line::server_origin;

use hints::Bells;
use line::Line;

/// A queue behind a server.
///
/// It reconnects by itself, repeats what a broken connection left open under the same ids, and hears of new work over a
/// stream of hints, so that a runner over it starts tasks as soon as one beside the store.
pub struct HttpQueue {
    line: Line,
    info: QueueInfo,
    spring: Spring,
    clock: SystemClock,
    bells: Arc<Bells>,
}

impl HttpQueue {
    /// A queue behind the server at this address, as in `http://127.0.0.1:7707`, which must be up. Servers that ask for a
    /// token refuse those who bring none.
    pub async fn connect(url: &str, token: Option<&str>) -> Result<Self> {
        let line = Line::new(url, token)?;
        let info: wire::Info = line.read(&path::root()).await?;
        let bells = Arc::new(Bells::new(line.clone()));
        Ok(Self {
            line,
            info: QueueInfo { store: info.store, durable: info.durable, near: false },
            spring: Entropy::from_system().into(),
            clock: SystemClock,
            bells,
        })
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn op_id(&self) -> OpId {
        self.spring.op_id(self.now())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
