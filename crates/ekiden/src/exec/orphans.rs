//! What a supervisor left behind when it was killed itself. Its processes are nobody's children any more; they are known by
//! the session that it led, and by a word that only this attempt's environment has.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid};

use super::tree;

/// 100 rounds, two seconds and more: what was killed needs a moment to be gone.
const ROUNDS_MAX: usize = 100;
const AGAIN: Duration = Duration::from_millis(20);

/// Kills everything that belongs to a session or has this word, as in `NAME=value`, in its environment. A process that left
/// the session and wiped its environment is not found. Says how many were.
pub(super) async fn kill(session: Option<u32>, word: String) -> usize {
    let mut killed = 0;
    for _ in 0..ROUNDS_MAX {
        let word = word.clone();
        let found = tokio::task::spawn_blocking(move || find(session, &word)).await.unwrap_or_default();
        if found.is_empty() {
            break;
        }
        killed = killed.max(found.len());
        tree::signal(&found, Signal::STOP);
        tree::signal(&found, Signal::KILL);
        tokio::time::sleep(AGAIN).await;
    }
    killed
}

fn find(session: Option<u32>, word: &str) -> Vec<Pid> {
    let session = session.and_then(|session| i32::try_from(session).ok());
    let lives = |pid: Pid| !state(pid).is_some_and(|state| state == 'Z' || state == 'X');
    let is_ours = |pid: &Pid| {
        *pid != getpid() && lives(*pid) && (session.is_some() && tree::field(*pid, 6) == session || has(*pid, word))
    };
    tree::everybody().filter(is_ours).collect()
}

fn has(pid: Pid, word: &str) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|entry| entry == word.as_bytes())
}

fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.get(stat.rfind(')')? + 1..)?.trim_start().chars().next()
}
