//! What a supervisor left behind when it was killed itself. A process that adopts orphans gets all of it as children of its
//! own. Elsewhere its processes are nobody's children any more; they are known by the session that it led, and by a word that
//! only this attempt's environment has.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, waitpid};

use super::tree::{self, Process};

/// 20 ms between two rounds: what was killed needs a moment to be gone.
const AGAIN: Duration = Duration::from_millis(20);

/// 100 rounds, two seconds and more: what has not died by then is not going to soon.
const ROUNDS_MAX: u32 = 100;

/// One second between rounds for what does not die.
const AGAIN_STUCK: Duration = Duration::from_secs(1);

/// What is known of this process's children. Held while one is started, so that a new one is never taken for an orphan.
static CHILDREN: Mutex<Children> = Mutex::new(Children { supervisors: BTreeSet::new(), earlier: None });

/// Held while orphans are killed and waited for, so that none is waited for while another thread kills it by its number.
static ROUND: Mutex<()> = Mutex::new(());

/// The children of this process that are no orphans.
struct Children {
    /// The supervisors that this process started and that were not waited for yet.
    supervisors: BTreeSet<i32>,
    /// The children that this process had when it began to adopt orphans; `None` if it does not adopt. Nobody waits for
    /// them, so that their numbers stay their own.
    earlier: Option<BTreeSet<i32>>,
}

/// Makes this process adopt what a killed supervisor leaves behind, so that all of it is found and killed, whatever it did to
/// its session and its environment.
///
/// For programs that start no processes but commands of tasks: a child that comes later is taken for an orphan, and killed
/// when a supervisor dies. Children that are there already, as those of a script that becomes this program by `exec`, are left
/// alone; what they leave behind themselves is not.
pub fn adopt_orphans() -> io::Result<()> {
    let mut known = children();
    if known.earlier.is_none() {
        set_child_subreaper(Some(getpid()))?;
        let mut earlier: BTreeSet<i32> = tree::children(getpid())?.into_iter().map(number).collect();
        earlier.retain(|child| !known.supervisors.contains(child));
        known.earlier = Some(earlier);
    }
    Ok(())
}

/// Whether this process adopts orphans.
pub(super) fn are_adopted() -> bool {
    children().earlier.is_some()
}

fn children() -> MutexGuard<'static, Children> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}

/// Starts a supervisor, whose number the caller finds in what was started.
pub(super) fn starting<T>(
    start: impl FnOnce() -> io::Result<T>,
    number: impl FnOnce(&T) -> Option<i32>,
) -> io::Result<T> {
    let mut known = children();
    let started = start()?;
    known.supervisors.extend(number(&started));
    Ok(started)
}

/// Forgets a supervisor that was waited for.
pub(super) fn ended(number: i32) {
    children().supervisors.remove(&number);
}

/// Kills everything that a supervisor left behind: the orphans of this process, and what has a session or a word as in
/// `NAME=value` in its environment. Returns when it was seen that none of it is alive, and says how many were.
pub(super) async fn kill(session: Option<i32>, word: String) -> usize {
    let (mut killed, mut rounds) = (0, 0_u32);
    loop {
        let word = word.clone();
        let round = tokio::task::spawn_blocking(move || kill_once(session, &word)).await;
        let found = match round {
            Ok(None) => return killed,
            Ok(Some(found)) => found,
            // It did not look to the end.
            Err(_) => Vec::new(),
        };
        killed = killed.max(found.len());
        rounds = rounds.saturating_add(1);
        if rounds == ROUNDS_MAX {
            tracing::error!(pids = ?found, "processes of a command do not die");
        }
        tokio::time::sleep(if rounds < ROUNDS_MAX { AGAIN } else { AGAIN_STUCK }).await;
    }
}

/// Kills what is there now, and says what that was. `None` if it was seen that nothing is left.
fn kill_once(session: Option<i32>, word: &str) -> Option<Vec<i32>> {
    let _round = ROUND.lock().unwrap_or_else(PoisonError::into_inner);
    // A hidden orphan that has ended looks alive until it was waited for.
    bury();
    let marked = || marked(session, word);
    let is_empty = marked().is_ok_and(|marked| marked.is_empty()) && tree::are_dead(orphans).unwrap_or(false);
    if is_empty {
        bury();
        return None;
    }
    let look = || [of_orphans(), marked().unwrap_or_default()].concat();
    let found = look();
    tree::kill_all(look);
    bury();
    Some(found.into_iter().map(Process::number).collect())
}

/// The children of this process that it did not start itself.
fn orphans() -> io::Result<Vec<Pid>> {
    let known = children();
    let Some(earlier) = &known.earlier else { return Ok(Vec::new()) };
    let mut orphans = tree::children(getpid())?;
    orphans.retain(|child| !known.supervisors.contains(&number(*child)) && !earlier.contains(&number(*child)));
    Ok(orphans)
}

/// Waits for the orphans that have ended: nobody else does.
fn bury() {
    for orphan in orphans().unwrap_or_default() {
        let _ = waitpid(Some(orphan), WaitOptions::NOHANG);
    }
}

/// The orphans that live, and what lives below them.
fn of_orphans() -> Vec<Process> {
    let orphans = orphans().unwrap_or_default().into_iter();
    orphans.flat_map(|orphan| tree::living_child(orphan).into_iter().chain(tree::descendants(orphan))).collect()
}

/// What lives and has the session or the word. Hidden processes have neither that could be seen.
fn marked(session: Option<i32>, word: &str) -> io::Result<Vec<Process>> {
    let mut marked = Vec::new();
    for (pid, stat) in tree::everybody()? {
        if pid != getpid() && stat.is_alive() && (session == Some(stat.session) || has(pid, word)?) {
            marked.push(stat.process);
        }
    }
    Ok(marked)
}

/// Whether a process has this word in its environment; not if that is another user's, or gone.
fn has(pid: Pid, word: &str) -> io::Result<bool> {
    match fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())) {
        Ok(environment) => Ok(environment.split(|byte| *byte == 0).any(|entry| entry == word.as_bytes())),
        Err(error) if tree::is_hidden(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    /// X5: what came after this process began to adopt is killed, a child from before is not, and nothing is taken for gone
    /// that could not be looked at. This test has a process of its own.
    #[test]
    fn orphans_are_killed_when_they_can_be_seen_and_earlier_children_are_not() {
        let mut earlier = Command::new("sleep").arg("600").spawn().unwrap();
        adopt_orphans().unwrap();
        let mut left = Command::new("sh").args(["-c", "sleep 600 & exec sleep 600"]).spawn().unwrap();
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum: before.maximum }).unwrap();
        let unseen = kill_once(None, "NAME=value");
        setrlimit(Resource::Nofile, before).unwrap();
        assert!(unseen.is_some() && left.try_wait().unwrap().is_none());
        while kill_once(None, "NAME=value").is_some() {
            std::thread::yield_now();
        }
        assert!(left.wait().is_err(), "it was waited for with the other orphan");
        // Asked again, it knows what came since.
        adopt_orphans().unwrap();
        assert!(earlier.try_wait().unwrap().is_none());
        earlier.kill().unwrap();
        earlier.wait().unwrap();
    }
}
