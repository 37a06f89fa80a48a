//! How many files the process may have open. A connection is a file too, and the store, its log and the logs of attempts need theirs first.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// 256 files that connections leave to everything else: some 20 for the store, one for each attempt whose log is written, and the rest for
/// what runs in the same process.
const RESERVE: u64 = 256;

/// Raises the soft limit as far as so many connections need it and the hard limit allows. Says how many connections there may be.
pub(crate) fn connections_within(wanted: usize) -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let needed = u64::try_from(wanted).unwrap_or(u64::MAX).saturating_add(RESERVE);
    let allowed = maximum.map_or(needed, |maximum| needed.min(maximum));
    if current.is_some_and(|current| current < allowed)
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), maximum })
    {
        tracing::warn!(%error, allowed, "the limit of open files cannot be raised");
    }
    let places = places(getrlimit(Resource::Nofile).current, wanted);
    if places < wanted {
        tracing::warn!(places, wanted, "the limit of open files allows fewer connections than the server would take");
    }
    places
}

/// Where there are few files, connections have half of them.
fn places(limit: Option<u64>, wanted: usize) -> usize {
    let Some(limit) = limit else { return wanted };
    let places = limit - RESERVE.min(limit / 2);
    usize::try_from(places).unwrap_or(usize::MAX).min(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_to_everything_else() {
        assert_eq!(places(None, 4_096), 4_096);
        assert_eq!(places(Some(1 << 20), 4_096), 4_096);
        assert_eq!(places(Some(4_096 + RESERVE), 4_096), 4_096);
        assert_eq!(places(Some(1_024), 4_096), 768);
        assert_eq!(places(Some(64), 4_096), 32);
        assert_eq!(places(Some(1_024), 10), 10);
    }
}
