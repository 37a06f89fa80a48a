//! What the figures were measured on and with. Never whose machine it is: no host name, no user, no path.

use std::collections::BTreeMap;

use serde::Serialize;

/// The machine, as far as it explains a figure.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// How many threads run at once.
    pub cores: usize,
    /// Memory in MiB, if known.
    pub memory_mib: Option<u64>,
    /// The kernel's release, if known.
    pub kernel: Option<String>,
    /// The processor's model, if known.
    pub cpu_model: Option<String>,
    /// How many threads wanted to run in the last minute, if known. Asked before measuring, so all of it is others' work.
    pub load: Option<f64>,
}

impl Machine {
    /// Asks the operating system. What it does not tell (elsewhere than on Linux) stays unknown.
    pub fn here() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let kib = memory.and_then(|text| text.trim_end_matches("kB").trim().parse::<u64>().ok());
        let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: kib.map(|kib| kib / 1024),
            kernel: (!kernel.is_empty()).then_some(kernel),
            cpu_model: field(&read("/proc/cpuinfo"), "model name"),
            load: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()),
        }
    }
}

/// The first line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let values = text.lines().filter_map(|line| line.split_once(':'));
    values.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned()).next()
}

/// The versions that the lock file pins, and the compiler.
pub fn versions() -> BTreeMap<&'static str, String> {
    const LOCK: &str = include_str!("../Cargo.lock");
    let packages =
        [("ekiden", "ekiden-store"), ("apalis", "apalis-core"), ("dynoxide", "dynoxide-rs"), ("tokio", "tokio")];
    let mut versions: BTreeMap<_, _> = packages
        .into_iter()
        .map(|(name, package)| (name, locked(LOCK, package).unwrap_or("unknown").to_owned()))
        .collect();
    versions.insert("rustc", env!("BENCH_RUSTC").trim_start_matches("rustc ").to_owned());
    versions
}

fn locked<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    lines.nth(1)?.strip_prefix("version = \"")?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_known() {
        let versions = versions();
        assert_eq!(versions.keys().copied().collect::<Vec<_>>(), ["apalis", "ekiden", "rustc", "tokio"]);
        assert!(versions.values().all(|version| version != "unknown"), "{versions:?}");
    }

    #[test]
    fn fields_are_found_by_name() {
        let text = "processor\t: 0\nmodel name\t: Some CPU\nmodel name\t: Other\n";
        assert_eq!(field(text, "model name").as_deref(), Some("Some CPU"));
        assert_eq!(field(text, "model"), None);
    }
}
