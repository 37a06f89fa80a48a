//! Where the runtime's own work happens: claims, settlements and signs of life. On a thread of its own, so that handlers
//! which block their threads never stall a beat.

use std::future::Future;
use std::sync::Arc;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Where store traffic and signs of life are driven.
#[derive(Clone, Debug, Default)]
pub enum Io {
    /// On a thread of Ekiden's own, started when it is first needed.
    #[default]
    OwnThread,
    /// On the runtime of whoever runs the runner. For tests with virtual time; blocking handlers stall everything there.
    Caller,
}

/// A place to spawn on; the thread ends when the last clone is gone.
#[derive(Clone, Debug)]
pub(crate) struct IoHandle {
    handle: Handle,
    _thread: Option<Arc<Thread>>,
}

#[derive(Debug)]
struct Thread {
    /// Dropping it ends the thread.
    _stop: oneshot::Sender<()>,
}

impl IoHandle {
    /// Starts the thread, or takes the caller's runtime.
    pub(crate) fn start(io: &Io) -> std::io::Result<Self> {
        match io {
            Io::Caller => Ok(Self { handle: Handle::current(), _thread: None }),
            Io::OwnThread => {
                let runtime = Builder::new_current_thread().enable_all().build()?;
                let handle = runtime.handle().clone();
                let (stop, stopped) = oneshot::channel::<()>();
                std::thread::Builder::new().name("ekiden-io".to_owned()).spawn(move || {
                    // An error says that the sender is gone, which is the sign to end.
                    let _ = runtime.block_on(stopped);
                })?;
                Ok(Self { handle, _thread: Some(Arc::new(Thread { _stop: stop })) })
            }
        }
    }

    pub(crate) fn spawn<F>(&self, work: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(work)
    }
}
