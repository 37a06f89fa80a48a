//! The tree of processes below one process, as `/proc` shows it. A subreaper's tree is complete: who leaves its parents, by a
//! double fork or a session of its own, comes back as a child of the subreaper.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// 64 looks at a tree that grows while it is frozen. Every look freezes what it finds, so that only a tree which grows faster
/// than it is read needs more, and that one is frozen further the next time.
const LOOKS_MAX: usize = 64;

/// Every process below this one, parents before their children.
pub(super) fn descendants(root: Pid) -> Vec<Pid> {
    let children = if fs::exists("/proc/thread-self/children").unwrap_or(false) { listed } else { scanned };
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for child in children(parent) {
            if known.insert(child.as_raw_nonzero()) {
                found.push(child);
                next.push(child);
            }
        }
    }
    found
}

/// Tells all of them something. Who is gone by now, or is somebody else's, is passed over.
pub(super) fn signal(pids: &[Pid], signal: Signal) {
    for pid in pids {
        let _ = kill_process(*pid, signal);
    }
}

/// Asks everything below a process to end. What was stopped is continued, so that it can.
pub(super) fn terminate(root: Pid) {
    let all = descendants(root);
    signal(&all, Signal::TERM);
    signal(&all, Signal::CONT);
}

/// Kills everything below a process. First all are frozen, so that nobody forks while the others die.
pub(super) fn kill(root: Pid) {
    let mut frozen = BTreeSet::new();
    let mut all = Vec::new();
    for _ in 0..LOOKS_MAX {
        let mut fresh = descendants(root);
        fresh.retain(|pid| frozen.insert(pid.as_raw_nonzero()));
        if fresh.is_empty() {
            break;
        }
        signal(&fresh, Signal::STOP);
        all.append(&mut fresh);
    }
    signal(&all, Signal::KILL);
}

/// The children of all threads of a process, from the kernel's own lists.
fn listed(parent: Pid) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{}/task", parent.as_raw_nonzero())) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_ascii_whitespace().filter_map(pid).collect::<Vec<_>>()).collect()
}

/// The same where the kernel keeps no lists: everybody is asked who their parent is.
fn scanned(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_nonzero().get();
    everybody().filter(|pid| field(*pid, 4).is_some_and(|found| found == parent)).collect()
}

/// Every process that there is.
pub(super) fn everybody() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| pid(entry.file_name().to_str()?))
}

/// A field of a process's `stat`, counted from 1 as its manual does; 4 is the parent, 6 the session. None before the third:
/// the second is a name that may hold anything.
pub(super) fn field(pid: Pid, number: usize) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let behind_name = stat.get(stat.rfind(')')? + 1..)?;
    behind_name.split_ascii_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

fn pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// X5: both ways of looking find a grandchild.
    #[test]
    fn children_of_children_are_found_with_and_without_the_kernels_lists() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 600 & cat; kill $!"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut shell = shell.spawn().unwrap();
        let root = rustix::process::getpid();
        let parent = Pid::from_child(&shell);
        // The shell needs a moment to fork; every look is a real one.
        let found = loop {
            let found = descendants(root);
            if found.iter().filter(|pid| field(**pid, 4) == Some(parent.as_raw_nonzero().get())).count() >= 2 {
                break found;
            }
            std::thread::yield_now();
        };
        assert!(found.contains(&parent));
        let by_scan: BTreeSet<_> = scanned(parent).into_iter().map(Pid::as_raw_nonzero).collect();
        let by_list: BTreeSet<_> = listed(parent).into_iter().map(Pid::as_raw_nonzero).collect();
        assert_eq!(by_scan, by_list);
        drop(shell.stdin.take());
        assert!(shell.wait().unwrap().success());
    }
}
