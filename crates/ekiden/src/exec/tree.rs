//! The tree of processes below one process, as `/proc` shows it. A subreaper's tree is complete: who leaves its parents, by a
//! double fork or a session of its own, comes back as a child of the subreaper.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal, test_kill_process,
};

/// 64 looks at a tree that grows while it is frozen. Every look freezes what it finds, so that only a tree which grows faster
/// than it is read needs more, and that one is frozen further the next time.
const LOOKS_MAX: usize = 64;

/// A process as it was found. Its number may be another process's later; number and start time together never are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Process {
    number: i32,
    /// Not known of a child of this process that was not waited for: no other process has its number.
    started: Option<u64>,
}

/// What the kernel says of a process.
pub(super) struct Stat {
    pub(super) process: Process,
    pub(super) state: char,
    parent: i32,
    pub(super) session: i32,
    /// How many of its threads there are, the ended first one among them until the process is waited for.
    threads: u32,
}

impl Process {
    /// Its number.
    pub(super) const fn number(self) -> i32 {
        self.number
    }

    /// A child of this process. Its number is its own until this process waits for it.
    pub(super) const fn child(pid: Pid) -> Self {
        Self { number: pid.as_raw_nonzero().get(), started: None }
    }

    /// Sends a signal to this process, and to no other that has its number by now.
    pub(super) fn signal(self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.number) else { return };
        // Opened before the look, so that it is a handle of the process that is seen there.
        let handle = pidfd_open(pid, PidfdFlags::empty());
        let is_this = || matches!(Stat::of(pid), Ok(Some(stat)) if stat.process == self);
        if self.started.is_some() && !is_this() {
            return;
        }
        // In vain for a process that is gone by now, or another user's.
        let _ = match handle.and_then(|handle| pidfd_send_signal(handle, signal)) {
            // Old kernels have no handles, filters of system calls refuse them, and there may be too many open files.
            Err(errno) if errno != Errno::SRCH => kill_process(pid, signal),
            sent => sent,
        };
    }
}

impl Stat {
    /// `None` for a process that is gone. One that cannot be seen is an error: `/proc` may hide it (`hidepid`).
    pub(super) fn of(pid: Pid) -> io::Result<Option<Self>> {
        let number = pid.as_raw_nonzero().get();
        match fs::read(format!("/proc/{number}/stat")) {
            Ok(stat) => Self::read(number, &stat).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into()),
            Err(_) if is_gone(pid) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads bytes and not text: the second field is a name that may hold anything, and is cut after 15 bytes.
    fn read(number: i32, stat: &[u8]) -> Option<Self> {
        let behind_name = stat.rsplit(|byte| *byte == b')').next()?;
        let fields: Vec<&str> = str::from_utf8(behind_name).ok()?.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number.checked_sub(3)?).copied();
        Some(Self {
            process: Process { number, started: Some(field(22)?.parse().ok()?) },
            state: field(3)?.chars().next()?,
            parent: field(4)?.parse().ok()?,
            session: field(6)?.parse().ok()?,
            threads: field(20)?.parse().ok()?,
        })
    }

    /// Whether it can still do something. A zombie only waits for its parent, unless its first thread alone has ended.
    pub(super) const fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X') || self.threads > 1
    }

    /// Whether somebody stopped it, or traces it.
    pub(super) const fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }
}

/// Every living process below this one that can be seen, parents before their children.
pub(super) fn descendants(root: Pid) -> Vec<Process> {
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for child in children(parent).unwrap_or_default() {
            if known.insert(child.as_raw_nonzero()) {
                next.push(child);
                found.extend(if parent == getpid() { living_child(child) } else { living(child) });
            }
        }
    }
    found
}

fn living(pid: Pid) -> Option<Process> {
    Stat::of(pid).ok().flatten().filter(Stat::is_alive).map(|stat| stat.process)
}

/// A child of this process, unless it is dead. One that cannot be seen is taken for living.
pub(super) fn living_child(child: Pid) -> Option<Process> {
    match Stat::of(child) {
        Ok(stat) => stat.filter(Stat::is_alive).map(|stat| stat.process),
        Err(_) => Some(Process::child(child)),
    }
}

/// Whether the children of a subreaper, and so everything below it, are dead. They were if all of those that were listed are,
/// and a second list has no other: what leaves its parents becomes a child of the subreaper. An error says that it is not
/// known.
pub(super) fn are_dead(children: impl Fn() -> io::Result<Vec<Pid>>) -> io::Result<bool> {
    let look =
        || children()?.into_iter().filter_map(|child| Stat::of(child).transpose()).collect::<io::Result<Vec<_>>>();
    let first = look()?;
    let second = look()?;
    let known: BTreeSet<Process> = first.iter().map(|stat| stat.process).collect();
    Ok(!first.iter().any(Stat::is_alive) && second.iter().all(|stat| known.contains(&stat.process)))
}

/// Tells all of them something. Processes that are gone by now are passed over.
pub(super) fn signal(processes: &[Process], signal: Signal) {
    processes.iter().for_each(|process| process.signal(signal));
}

/// Asks everything below a process to end. What was stopped is continued, so that it can.
pub(super) fn terminate(root: Pid) {
    let all = descendants(root);
    signal(&all, Signal::TERM);
    signal(&all, Signal::CONT);
}

/// Kills everything below a process. First all are frozen, so that nobody forks while the others die.
pub(super) fn kill(root: Pid) {
    kill_all(|| descendants(root));
}

/// Kills everything that a look finds, and what it finds after that was frozen.
pub(super) fn kill_all(look: impl Fn() -> Vec<Process>) {
    let mut frozen = BTreeSet::new();
    for _ in 0..LOOKS_MAX {
        let mut fresh = look();
        fresh.retain(|process| frozen.insert(*process));
        if fresh.is_empty() {
            break;
        }
        signal(&fresh, Signal::STOP);
    }
    frozen.into_iter().for_each(|process| process.signal(Signal::KILL));
}

/// The children of a process; who is gone has none. An error says that there may be others.
pub(super) fn children(parent: Pid) -> io::Result<Vec<Pid>> {
    let is_listed = fs::exists("/proc/thread-self/children").unwrap_or(false);
    let found = if is_listed { listed(parent) } else { scanned(parent) };
    found.or_else(|error| if is_gone(parent) { Ok(Vec::new()) } else { Err(error) })
}

/// The children of all threads of a process, from the kernel's own lists. The children of a thread that ends meanwhile become
/// another thread's, so they may be missing: that is an error too.
fn listed(parent: Pid) -> io::Result<Vec<Pid>> {
    let mut children = Vec::new();
    for thread in fs::read_dir(format!("/proc/{}/task", parent.as_raw_nonzero()))? {
        let list = fs::read_to_string(thread?.path().join("children"))?;
        children.extend(list.split_ascii_whitespace().filter_map(pid));
    }
    Ok(children)
}

/// The same where the kernel keeps no lists: everybody is asked who their parent is. Nothing tells of the parents of hidden
/// processes then.
fn scanned(parent: Pid) -> io::Result<Vec<Pid>> {
    let parent = parent.as_raw_nonzero().get();
    Ok(everybody()?.into_iter().filter(|(_, stat)| stat.parent == parent).map(|(pid, _)| pid).collect())
}

/// Every process that is not hidden.
pub(super) fn everybody() -> io::Result<Vec<(Pid, Stat)>> {
    let mut everybody = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(pid) else { continue };
        match Stat::of(pid) {
            Ok(stat) => everybody.extend(stat.map(|stat| (pid, stat))),
            Err(error) if is_hidden(&error) => {}
            Err(error) => return Err(error),
        }
    }
    // Who does not find itself reads something else than the list of processes.
    let is_list = everybody.iter().any(|(pid, _)| *pid == getpid());
    if is_list { Ok(everybody) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// How `/proc` says that a process is not for this one's eyes, or is gone.
pub(super) fn is_hidden(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
        || Errno::from_io_error(error) == Some(Errno::SRCH)
}

/// Whether no process has this number. Asked without `/proc`, which may hide one.
fn is_gone(pid: Pid) -> bool {
    test_kill_process(pid) == Err(Errno::SRCH)
}

fn pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    /// X5: both ways of looking find a grandchild.
    #[test]
    fn children_of_children_are_found_with_and_without_the_kernels_lists() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 600 & cat; kill $!"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut shell = shell.spawn().unwrap();
        let root = getpid();
        let parent = Pid::from_child(&shell);
        // The shell needs a moment to fork; every look is a real one.
        while children(parent).unwrap().len() < 2 {
            std::thread::yield_now();
        }
        let found: Vec<i32> = descendants(root).into_iter().map(Process::number).collect();
        let below = children(parent).unwrap().into_iter().chain([parent]).map(|pid| pid.as_raw_nonzero().get());
        assert!(below.into_iter().all(|number| found.contains(&number)), "{found:?}");
        let by_scan: BTreeSet<_> = scanned(parent).unwrap().into_iter().map(Pid::as_raw_nonzero).collect();
        let by_list: BTreeSet<_> = listed(parent).unwrap().into_iter().map(Pid::as_raw_nonzero).collect();
        assert_eq!(by_scan, by_list);
        drop(shell.stdin.take());
        assert!(shell.wait().unwrap().success());
    }

    /// X5: what a process is called says nothing of whether it lives, and neither does the state of its first thread alone.
    #[test]
    fn a_process_lives_whatever_its_name_and_while_a_thread_does() {
        let read = |name: &[u8], state: &str, threads: u32| {
            let fields = format!(") {state} 3 4 5 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 {threads} 0 8901 0 0");
            Stat::read(7, &[b"7 (", name, fields.as_bytes()].concat()).unwrap()
        };
        let names = [&b"sh"[..], b"", b") Z 1 1 (", b"\n", "aaバックアップ".as_bytes().get(..15).unwrap(), &[0xff; 15]];
        for name in names {
            for (state, threads, is_alive) in
                [("S", 1, true), ("Z", 2, true), ("X", 2, true), ("Z", 1, false), ("X", 0, false)]
            {
                let stat = read(name, state, threads);
                assert_eq!((stat.process.number, stat.process.started), (7, Some(8901)), "{name:?}");
                assert_eq!((stat.parent, stat.session), (3, 5), "{name:?}");
                assert_eq!(stat.is_alive(), is_alive, "{name:?} {state} {threads}");
            }
        }
        let cut = b"7 (sh) S 3 4 5";
        assert!(Stat::read(7, cut).is_none() && Stat::read(7, b"").is_none());
    }

    /// X5: a signal reaches the process that was found, and not another one that has its number by now.
    #[test]
    fn a_signal_is_for_the_process_that_was_found() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let found = Stat::of(Pid::from_child(&child)).unwrap().unwrap().process;
        Process { started: found.started.map(|started| started + 1), ..found }.signal(Signal::KILL);
        assert!(child.try_wait().unwrap().is_none(), "its number alone is not enough");
        found.signal(Signal::KILL);
        child.wait().unwrap();
        // Nobody has the number, or somebody else does.
        found.signal(Signal::KILL);
    }

    /// X5: where nothing can be looked at, nothing is taken for dead, and a child is killed all the same. This test has a
    /// process of its own, which may open no more files for a moment.
    #[test]
    fn what_cannot_be_looked_at_is_not_taken_for_dead() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum: before.maximum }).unwrap();
        let unknown = [
            Stat::of(pid).is_err(),
            everybody().is_err(),
            are_dead(|| children(getpid())).is_err(),
            are_dead(|| Ok(vec![pid])).is_err(),
            living_child(pid) == Some(Process::child(pid)),
        ];
        Process::child(pid).signal(Signal::KILL);
        setrlimit(Resource::Nofile, before).unwrap();
        assert_eq!(unknown, [true; 5]);
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert!(Stat::of(pid).unwrap().is_none() && children(pid).unwrap().is_empty(), "what is gone is known to be");
    }
}
