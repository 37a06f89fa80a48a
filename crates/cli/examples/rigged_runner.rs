//! The child of the rig that kills runners: a real runner over HTTP, for the server that its errand names.

use std::process::ExitCode;

use ekiden_testkit::rig;

fn main() -> ExitCode {
    rig::serve_runner()
}
