//! `cargo xtask bench`: lists the benchmarks of the `bench/` workspace or runs one of them in release mode. Measuring
//! is the benchmark's own business; this only finds it and passes the flags on.

use std::path::Path;

use cargo_metadata::{MetadataCommand, TargetKind};

use crate::command;
use crate::repo;
use crate::report::Failure;

const MANIFEST: &str = "bench/Cargo.toml";

pub(crate) fn run(name: Option<&str>, quick: bool, json: Option<&Path>) -> Result<(), Failure> {
    let manifest = repo::root().join(MANIFEST);
    if !manifest.exists() {
        return Err(Failure::Nothing(format!("no benchmarks yet: {MANIFEST} does not exist")));
    }
    let metadata =
        MetadataCommand::new().manifest_path(manifest).no_deps().exec().map_err(|error| {
            Failure::broken(format!("cannot read {MANIFEST}"), error.to_string(), "mend the manifest")
        })?;
    let targets: Vec<_> = metadata.packages.iter().flat_map(|package| &package.targets).collect();
    let Some(name) = name else {
        for target in targets.iter().filter(|target| target.is_bin() || target.is_bench()) {
            println!("{}", target.name);
        }
        return Ok(());
    };
    let Some(target) = targets.iter().find(|target| target.name == name) else {
        return Err(Failure::Nothing(format!("no benchmark \"{name}\"; `cargo xtask bench` lists them")));
    };
    let kind: &[&str] = match target.kind.contains(&TargetKind::Bench) {
        true => &["bench", "--manifest-path", MANIFEST, "--bench", name, "--"],
        false => &["run", "--release", "--manifest-path", MANIFEST, "--bin", name, "--"],
    };
    let mut cargo = command::cargo(kind);
    if quick {
        cargo.arg("--quick");
    }
    if let Some(file) = json {
        cargo.arg("--json").arg(file);
    }
    command::run(cargo)
}
