//! What a rig and its child say to each other: an errand as the child's one argument, signals as lines of its standard output.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a child is sent to do, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errand {
    /// What to do.
    pub work: Work,
    /// Which of its stores to open: a word that the child knows, such as `sound` or the name of a planted bug.
    pub store: String,
    /// The folder of the store.
    pub folder: PathBuf,
    /// The file to which the child's history is appended.
    pub history: PathBuf,
    /// The name of the process in the history.
    pub process: String,
    /// Decides everything in the child that is left to chance.
    pub seed: u64,
    /// When its virtual time begins, in milliseconds; later than everything that the processes before it wrote.
    pub at: i64,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Go on with a load until the end of the process.
    Load {
        /// How many clients work at once.
        clients: usize,
    },
    /// Let everything come to rest and write down what is there.
    Rest,
    /// Hold tasks again and again while the process is stopped past their leases, then come to rest.
    Hold {
        /// How often.
        rounds: usize,
        /// How many tasks each time.
        tasks: usize,
        /// How long their leases last, in real milliseconds.
        lease_ms: u64,
    },
    /// Let real runners work until it is told that it is enough, then come to rest.
    Run {
        /// How long they may be silent, in real milliseconds.
        lease_ms: u64,
    },
}

/// What a child says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// The store is open, and what is in it was written down.
    Opened,
    /// So many operations were acknowledged so far.
    Acknowledged(u64),
    /// So many tasks are held.
    Holding(usize),
    /// What was held has been settled, late; what was given to others meanwhile, and how the settlements went.
    Settled {
        /// How many tasks had been given to another runner.
        given: usize,
        /// How many late settlements were refused.
        refused: usize,
        /// How many late settlements were accepted.
        accepted: usize,
    },
    /// Nothing is left to do, and what is there was written down.
    Rested,
    /// The errand cannot be done.
    Failed(String),
}
