//! The OpenAPI fuzzer of the server's tests: schemathesis from PyPI, in an environment of its own below `target`, so that it
//! touches nothing else on the machine. Where it cannot be installed the test says so, and in CI it fails.

use crate::command;
use crate::repo;
use crate::report::Failure;

/// One version for everybody, so that a test run means the same on every machine; raise it on purpose.
const VERSION: &str = "4.32.5";

/// Installs it, if it is not there and Python is.
pub(crate) fn setup() -> Result<(), Failure> {
    let folder = repo::root().join("target/schemathesis");
    let program = |name: &str| folder.join("bin").join(name).to_string_lossy().into_owned();
    let installed = command::output(command::at_root(&program("schemathesis"), &["--version"]));
    if installed.is_ok_and(|version| version.contains(VERSION)) {
        return Ok(());
    }
    let place = folder.to_string_lossy();
    println!("setup: installing schemathesis {VERSION} below target");
    let wanted = format!("schemathesis=={VERSION}");
    let done = command::output(command::at_root("python3", &["-m", "venv", &place])).and_then(|_| {
        command::output(command::at_root(
            &program("pip"),
            &["install", "--quiet", "--disable-pip-version-check", &wanted],
        ))
    });
    if let Err(failure) = done {
        // Its test tells again; everything else can run.
        println!("setup: no schemathesis: {failure}");
    }
    Ok(())
}
