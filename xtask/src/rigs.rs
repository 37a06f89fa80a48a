//! What the fault rigs need of the machine: to mount ext4 behind a loop device, to cut its power, to mount a tmpfs, and to set a program's clock. Tried for
//! real, in a moment; the tests themselves only say that they could not run, and nobody reads what passing tests say.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command;
use crate::report::Failure;

/// The programs, each with the Debian package that has it.
const PROGRAMS: [(&str, &str); 5] = [
    ("mkfs.ext4", "e2fsprogs"),
    ("mount", "mount"),
    ("umount", "mount"),
    ("perl", "perl-base"),
    ("faketime", "faketime"),
];

const TODO: &str = "run as root, in a container with `--privileged` and loop devices; \
                    programs: `apt-get install e2fsprogs mount perl-base faketime`";

/// Installs the programs that are missing, where that is possible without asking anybody. What is not is told by `probe`.
pub(crate) fn setup() -> Result<(), Failure> {
    let missing: Vec<&str> =
        PROGRAMS.iter().filter(|(program, _)| !is_there(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() || !is_there("apt-get") || !is_root() {
        return Ok(());
    }
    println!("setup: installing {} for the fault rigs", missing.join(", "));
    let install = || {
        command::run(command::at_root(
            "apt-get",
            &[&["install", "--yes", "--no-install-recommends"], &missing[..]].concat(),
        ))
    };
    // A fresh machine may have no list of packages, or an old one: then the list is fetched, once.
    install().or_else(|_| {
        command::run(command::at_root("apt-get", &["update"]))?;
        install()
    })
}

/// Tries everything that a rig does, once.
pub(crate) fn probe() -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("ekiden-probe-{}", std::process::id()));
    let tried =
        std::fs::create_dir_all(folder.join("mnt")).map_err(|error| error.to_string()).and_then(|()| try_in(&folder));
    let _ = std::fs::remove_dir_all(&folder);
    tried.map_err(|why| Failure::Missing {
        what: format!("the rigs for power cuts and full disks cannot run here: {why}"),
        todo: TODO.to_owned(),
    })
}

fn try_in(folder: &Path) -> Result<(), String> {
    let [image, point] = ["image", "mnt"].map(|name| folder.join(name).to_string_lossy().into_owned());
    std::fs::File::create(&image).and_then(|file| file.set_len(16 * 1024 * 1024)).map_err(|error| error.to_string())?;
    tool("mkfs.ext4", &["-q", "-F", &image])?;
    tool("mount", &["-t", "ext4", "-o", "loop", &image, &point])?;
    let cut = tool("perl", &["-e", CUT, &point]);
    tool("umount", &[&point])?;
    cut?;
    tool("mount", &["-t", "tmpfs", "-o", "size=1m", "ekiden-probe", &point])?;
    tool("umount", &[&point])
}

/// The same request to go down at once that the rig makes (`crates/testkit/src/rig/power.rs`).
const CUT: &str =
    "open(my $root, '<', $ARGV[0]) or die $!; my $flags = pack('L', 2); ioctl($root, 0x8004587d, $flags) or die $!;";

fn tool(program: &str, arguments: &[&str]) -> Result<(), String> {
    let failed = |why: String| format!("`{program}` failed: {}", why.trim());
    let output = Command::new(program).args(arguments).env("PATH", path()).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.success() { Ok(()) } else { Err(failed(String::from_utf8_lossy(&output.stderr).into_owned())) }
}

/// Users other than root often have no `sbin` in their path.
fn path() -> String {
    format!("{}:/usr/local/sbin:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

fn is_there(program: &str) -> bool {
    path().split(':').map(PathBuf::from).any(|folder| folder.join(program).is_file())
}

fn is_root() -> bool {
    command::output(command::at_root("id", &["-u"])).is_ok_and(|id| id.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_on_the_path_or_not() {
        assert!(is_there("sh"));
        assert!(!is_there("no-such-program-here"));
    }

    #[test]
    fn a_tool_that_fails_says_why() {
        let why = tool("sh", &["-c", "echo not allowed >&2; exit 1"]).unwrap_err();
        assert_eq!(why, "`sh` failed: not allowed");
    }
}
