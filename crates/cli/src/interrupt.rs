//! Signals that ask a command to end, while it waits for something else.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Exit;

/// Hears the signals that end a command.
pub(crate) struct Interrupts {
    keyboard: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// From now on a signal ends nothing by itself.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { keyboard: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// The next signal, as the exit code that goes with it.
    pub(crate) async fn next(&mut self) -> Exit {
        tokio::select! {
            _ = self.keyboard.recv() => Exit::Keyboard,
            _ = self.terminate.recv() => Exit::Terminated,
        }
    }
}
