//! The foreign program of the DynamoDB store's tests: Python with boto3 from PyPI, in an environment of its own below `target`.
//! Where it cannot be installed its tests say so, and in CI they fail.

use crate::command;
use crate::repo;
use crate::report::Failure;

/// One version for everybody, so that a test run means the same on every machine; raise it on purpose.
const VERSION: &str = "1.44.3";

/// Installs it, if it is not there and Python is.
pub(crate) fn setup() -> Result<(), Failure> {
    let folder = repo::root().join("target/boto3");
    let program = |name: &str| folder.join("bin").join(name).to_string_lossy().into_owned();
    let ask = ["-c", "import importlib.metadata as m; print(m.version('boto3'))"];
    let installed = command::output(command::at_root(&program("python3"), &ask));
    if installed.is_ok_and(|version| version.trim() == VERSION) {
        return Ok(());
    }
    let place = folder.to_string_lossy();
    println!("setup: installing boto3 {VERSION} below target");
    let wanted = format!("boto3=={VERSION}");
    let done = command::output(command::at_root("python3", &["-m", "venv", &place])).and_then(|_| {
        command::output(command::at_root(
            &program("pip"),
            &["install", "--quiet", "--disable-pip-version-check", &wanted],
        ))
    });
    if let Err(failure) = done {
        // Its tests tell again; everything else can run.
        println!("setup: no boto3: {failure}");
    }
    Ok(())
}
