//! The child of the rigs' own tests: opens a durable store that is small enough to be obviously right, or one with a planted bug.

#[expect(dead_code, clippy::unwrap_used, reason = "one of its bugs is planted here; it is written for tests")]
#[path = "../../tests/broken/mod.rs"]
mod broken;
mod journal;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use broken::{Broken, Bug};
use ekiden_testkit::rig::{self, Opened};
use journal::{Care, Journal};

fn main() -> ExitCode {
    rig::serve(open)
}

async fn open(folder: PathBuf, word: String) -> Opened {
    let care = match word.as_str() {
        "sound" => Care::Full,
        "no-sync" => Care::NoSync,
        "ack-before-sync" => Care::AckBeforeSync,
        "ack-before-write" => Care::AckBeforeWrite,
        // In memory only: whoever is stopped does not lose it.
        "no-fencing" => return Ok(Arc::new(Broken::new(Bug::BelievesAnyToken, 0))),
        other => return Err(format!("no store is called \"{other}\"").into()),
    };
    Ok(Arc::new(Journal::open(&folder, care).await?))
}
