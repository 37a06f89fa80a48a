//! Tries in processes of their own. A try leaves freed memory behind, in many small pieces, that the allocator sorts
//! during whatever runs next; in one process the peers were twice and more as slow behind ours as alone.

use std::ffi::OsString;
use std::fmt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::sample::micros;
use crate::{Outcome, ours, peers};

/// The flag that makes a benchmark carry out one try and print its numbers, for the process that started it.
const FLAG: &str = "--try";

/// A tenth goes ahead of each throughput try, so that threads and memory are there when it begins.
const WARM_UP: usize = 10;

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// Ekiden.
    Ours,
    /// tokio's channel.
    Mpsc,
    /// apalis with one worker for all consumers.
    ApalisOne,
    /// apalis with a worker for each consumer.
    ApalisEach,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// So many tasks through as many producers as consumers; one number, tasks a second.
    Lifecycle {
        /// Producers, and consumers.
        width: usize,
        /// Tasks in all.
        tasks: usize,
    },
    /// Tasks handed in at a pace; a number each, microseconds until it started.
    Start {
        /// Tasks in all.
        tasks: usize,
        /// Milliseconds between two.
        pace_millis: usize,
    },
}

/// One try of one contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Try {
    /// Who.
    pub contender: Contender,
    /// What.
    pub work: Work,
}

impl Try {
    /// The try that this process was started for, if it was.
    pub fn asked(arguments: &[OsString]) -> Option<Self> {
        match arguments {
            [flag, spelled] if flag == FLAG => Self::read(spelled.to_str()?),
            _ => None,
        }
    }

    /// Starts this program once more, for this try alone, and gives its numbers.
    pub fn run_apart(self) -> Outcome<Vec<f64>> {
        let mut program = Command::new(std::env::current_exe()?);
        let output = program.args([FLAG, &self.to_string()]).stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(format!("the try \"{self}\" failed").into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Carries it out in this process.
    pub async fn run_here(self) -> Outcome<Vec<f64>> {
        match self.work {
            Work::Lifecycle { width, tasks } => {
                self.contender.lifecycle(width, tasks / WARM_UP).await?;
                Ok(vec![self.contender.lifecycle(width, tasks).await?])
            }
            Work::Start { tasks, pace_millis } => {
                let pace = Duration::from_millis(u64::try_from(pace_millis)?);
                Ok(micros(&match self.contender {
                    Contender::Ours => ours::start_latencies(tasks, pace).await?,
                    Contender::Mpsc => peers::mpsc::start_latencies(tasks, pace).await?,
                    _ => return Err("nobody measures when apalis starts".into()),
                }))
            }
        }
    }

    fn read(spelled: &str) -> Option<Self> {
        let words: Vec<&str> = spelled.split(':').collect();
        let [work, contender, one, two] = words.as_slice() else { return None };
        let contender = *CONTENDERS.iter().find(|(name, _)| name == contender).map(|(_, contender)| contender)?;
        let (one, two) = (one.parse().ok()?, two.parse().ok()?);
        let work = match *work {
            "lifecycle" => Work::Lifecycle { width: one, tasks: two },
            "start" => Work::Start { tasks: one, pace_millis: two },
            _ => return None,
        };
        Some(Self { contender, work })
    }
}

const CONTENDERS: [(&str, Contender); 4] = [
    ("ours", Contender::Ours),
    ("mpsc", Contender::Mpsc),
    ("apalis-one", Contender::ApalisOne),
    ("apalis-each", Contender::ApalisEach),
];

impl Contender {
    async fn lifecycle(self, width: usize, tasks: usize) -> Outcome<f64> {
        match self {
            Self::Ours => ours::lifecycle(width, width, tasks).await,
            Self::Mpsc => peers::mpsc::lifecycle(width, tasks).await,
            Self::ApalisOne => peers::apalis::lifecycle(width, 1, tasks).await,
            Self::ApalisEach => peers::apalis::lifecycle(width, width, tasks).await,
        }
    }
}

impl fmt::Display for Try {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = CONTENDERS.iter().find(|(_, contender)| *contender == self.contender).map_or("", |(name, _)| name);
        match self.work {
            Work::Lifecycle { width, tasks } => write!(f, "lifecycle:{name}:{width}:{tasks}"),
            Work::Start { tasks, pace_millis } => write!(f, "start:{name}:{tasks}:{pace_millis}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_try_is_read_as_it_was_spelled() {
        for (_, contender) in CONTENDERS {
            for work in [Work::Lifecycle { width: 16, tasks: 100 }, Work::Start { tasks: 5, pace_millis: 10 }] {
                let wanted = Try { contender, work };
                assert_eq!(Try::asked(&[FLAG.into(), wanted.to_string().into()]), Some(wanted));
            }
        }
    }

    #[test]
    fn other_arguments_ask_for_no_try() {
        for arguments in [&["--quick"][..], &["--try"], &["--try", "start:nobody:1:1"], &["--try", "start:ours:1"]] {
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            assert_eq!(Try::asked(&arguments), None, "{arguments:?}");
        }
    }
}
