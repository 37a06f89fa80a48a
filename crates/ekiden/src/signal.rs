//! SIGINT and SIGTERM, as often as they come.

use ekiden_core::reason::{ReasonCode, Refusal};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{Error, Result};

/// The two signals that ask a program to end.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Self> {
        let listen = |kind: SignalKind| {
            signal(kind).map_err(|why| {
                let refusal = Refusal::new(ReasonCode::RunnerInvalid);
                Error::from(refusal.with("why", format!("cannot listen for signals: {why}")))
            })
        };
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
