//! Trees of processes that are hard to kill, and a look at what is left of them that shares nothing with the code under test:
//! processes are known by a word in their environment or on their command line.

use std::fs;
use std::sync::mpsc;
use std::time::Duration;

use ekiden_store::clock::{Clock, SystemClock};

/// 5 ms between two looks.
const AGAIN: Duration = Duration::from_millis(5);

/// Trees as lines for a shell: each says progress when it has grown, and then goes on until it is killed.
pub const TREES: [(&str, &str); 6] = [
    ("nested", "sh -c 'sh -c \"sleep 600 & sleep 601\" & sh -c \"sh -c \\\"sleep 602\\\"\" & sleep 603' & GROWN; wait"),
    (
        "sessions",
        "setsid sleep 600 & setsid -f sh -c 'setsid -f sleep 601; sleep 602'; (setsid sleep 603 &); GROWN; wait; sleep 604",
    ),
    ("deaf", "trap '' TERM INT HUP; sleep 600 & (sleep 601 &) ; setsid sleep 602 & GROWN; wait; sleep 603"),
    ("flooding", "yes 'a line that nobody reads to its end' & (yes >&2 &); GROWN; wait"),
    ("many", "i=0; while [ $i -lt 190 ]; do sleep 600 & i=$((i+1)); done; GROWN; wait"),
    ("storm", "storm() { while :; do (setsid sleep 0.02 & setsid sleep 0.03 &); done; }; storm & storm & GROWN; wait"),
];

/// A tree's line, with what it says when it has grown.
pub fn line(tree: &str) -> String {
    tree.replace("GROWN", "echo '{\"type\":\"progress\",\"done\":1}' > \"$EKIDEN_EVENTS\"")
}

/// Every living process that has this word, as in `NAME=value`, in its environment.
pub fn living(word: &str) -> Vec<i32> {
    let has = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == word.as_bytes())
            && state(*pid).is_some_and(|s| s != 'Z')
    };
    everybody().filter(has).collect()
}

/// The children of this very process that have ended and were not waited for.
pub fn zombies() -> Vec<i32> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    everybody().filter(|pid| state(*pid) == Some('Z') && parent(*pid) == Some(own)).collect()
}

/// How many descriptors this very process has open.
pub fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Waits until something is so, and says how long that took; `None` if it is not so in time.
pub fn until(limit: Duration, is_so: impl Fn() -> bool) -> Option<Duration> {
    let begin = SystemClock.monotonic();
    let (_open, nobody) = mpsc::channel::<()>();
    loop {
        let so = is_so();
        let took = SystemClock.monotonic().saturating_sub(begin);
        if so {
            return Some(took);
        }
        if took > limit {
            return None;
        }
        let _ = nobody.recv_timeout(AGAIN);
    }
}

fn everybody() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn behind_name(pid: i32) -> Option<String> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    String::from_utf8_lossy(&stat).rsplit_once(')').map(|(_, rest)| rest.to_owned())
}

fn state(pid: i32) -> Option<char> {
    behind_name(pid)?.trim_start().chars().next()
}

fn parent(pid: i32) -> Option<i32> {
    behind_name(pid)?.split_whitespace().nth(1)?.parse().ok()
}
