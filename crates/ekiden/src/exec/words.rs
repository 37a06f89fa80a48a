//! What runner and supervisor say to each other, a line of JSON each. Both are the same program, so there is one version.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::exit::Exit;

/// What the runner says first. As many bytes of payload as it names follow its line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    /// The program and its arguments.
    pub(super) argv: Vec<String>,
    /// How long the payload is that follows; it becomes the command's stdin.
    pub(super) payload_bytes: usize,
    /// The memory that each process may have for its data.
    pub(super) memory_bytes: Option<u64>,
    /// The attempt's folder, to be removed if the runner cannot do it any more.
    pub(super) folder: Option<PathBuf>,
}

/// What the runner says while the command runs. The end of the line says: the runner is gone, kill everything.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    /// End everything: first with TERM, and after this grace with KILL.
    Stop { grace_ms: u64 },
    /// All was heard to the last report; the supervisor may go.
    Farewell,
}

/// What the supervisor says.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// The command runs.
    Started { pid: i32 },
    /// The command could not be started.
    NotStarted { why: String },
    /// The command's main process is gone.
    Exited(Exit),
    /// Nothing of it is left.
    Verified,
    /// These do not die, whatever is done: they belong to somebody else, or wait inside the kernel.
    Stuck { pids: Vec<i32> },
}
