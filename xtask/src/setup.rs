//! `cargo xtask setup`: makes sure that the pinned toolchain, its components, the test runner, the OpenAPI fuzzer, the foreign program of the
//! DynamoDB store and the programs of the fault rigs are there, and installs what is not. Asks six programs for their version when all is well, so `test` can call it every time.

use crate::boto3;
use crate::command;
use crate::fuzzer;
use crate::repo;
use crate::report::Failure;
use crate::rigs;

/// One version for everybody, so that a test run means the same on every machine; raise it on purpose.
const NEXTEST_VERSION: &str = "0.9.143";

pub(crate) fn run() -> Result<(), Failure> {
    let manifest = std::fs::read_to_string(repo::root().join("rust-toolchain.toml")).map_err(|error| {
        Failure::broken("cannot read rust-toolchain.toml", error.to_string(), "restore the file from git")
    })?;
    let channel = channel(&manifest).ok_or_else(|| {
        Failure::broken(
            "rust-toolchain.toml names no channel",
            "the toolchain is pinned there and nowhere else",
            "add `channel = \"1.x.y\"` under [toolchain]",
        )
    })?;
    toolchain(channel)?;
    component("rustfmt", &["fmt", "--version"], channel)?;
    component("clippy", &["clippy", "--version"], channel)?;
    nextest()?;
    rigs::setup()?;
    fuzzer::setup()?;
    boto3::setup()
}

/// The pinned version: the value of the first `channel = "…"` line.
fn channel(manifest: &str) -> Option<&str> {
    manifest.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "channel").then(|| value.trim().trim_matches('"'))
    })
}

fn toolchain(channel: &str) -> Result<(), Failure> {
    let version = command::output(command::at_root("rustc", &["--version"]))?;
    if version.split_whitespace().nth(1) == Some(channel) {
        return Ok(());
    }
    Err(Failure::broken(
        format!("the compiler in use is \"{}\", not {channel}", version.trim()),
        "lints and formatting differ between versions, so everybody uses the one in rust-toolchain.toml",
        format!("run `rustup toolchain install {channel}`, and call cargo without `+toolchain` and RUSTUP_TOOLCHAIN"),
    ))
}

fn component(name: &str, probe: &[&str], channel: &str) -> Result<(), Failure> {
    if command::output(command::cargo(probe)).is_ok() {
        return Ok(());
    }
    println!("setup: installing {name}");
    command::run(command::at_root("rustup", &["component", "add", name, "--toolchain", channel]))
}

fn nextest() -> Result<(), Failure> {
    if command::output(command::cargo(&["nextest", "--version"])).is_ok() {
        return Ok(());
    }
    println!("setup: installing cargo-nextest {NEXTEST_VERSION}, once for this machine; it takes some minutes");
    command::run(command::cargo(&["install", "--locked", "cargo-nextest", "--version", NEXTEST_VERSION]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_channel_is_read_from_the_manifest() {
        assert_eq!(channel("[toolchain]\nchannel = \"1.95.0\"\ncomponents = []\n"), Some("1.95.0"));
    }

    #[test]
    fn a_manifest_without_a_channel_is_noticed() {
        assert_eq!(channel("[toolchain]\nprofile = \"minimal\"\n"), None);
    }
}
