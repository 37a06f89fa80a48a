//! Lines of jobs behind a socket, each with the leanest client that its protocol allows: one blocking connection a caller,
//! one buffer for what is sent, one for what comes back. Whoever is measured, the client is no heavier than the others'.

mod beanstalkd;
mod ekiden;
mod redis;

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub use beanstalkd::Beanstalkd;
pub use ekiden::Ekiden;
pub use redis::{Acks, Redis};

use crate::Outcome;

/// Somebody who keeps jobs, in a process of its own.
pub trait Line: Sync {
    /// A new connection that hands jobs in.
    fn producer(&self) -> Outcome<Box<dyn Producer>>;
    /// A new connection that takes jobs.
    fn consumer(&self, number: usize) -> Outcome<Box<dyn Consumer>>;
}

/// Hands jobs in.
pub trait Producer: Send {
    /// Returns when all of them are durable.
    fn put(&mut self, jobs: &[Vec<u8>]) -> Outcome<()>;
}

/// Takes jobs.
pub trait Consumer: Send {
    /// Acknowledges what it took before, and takes up to so many more; waits a second at most if there are none. Says how
    /// many were acknowledged, and passes each new job's bytes on.
    fn next(&mut self, limit: usize, taken: &mut dyn FnMut(&[u8])) -> Outcome<usize>;
}

/// How long a consumer waits for a first job: short, so that a try ends soon.
pub(crate) const WAIT: Duration = Duration::from_secs(1);

/// A server of somebody's, on a port and in a folder of its own; it goes with this.
pub(crate) struct Server {
    child: Child,
    folder: PathBuf,
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn start(name: &str, command: impl FnOnce(&Path, u16) -> Command) -> Outcome<Self> {
        let folder = std::env::current_exe()?.with_file_name(format!("bench-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = command(&folder, port);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(|error| {
                let program = command.get_program().to_string_lossy().into_owned();
                format!("cannot start {program}: {error}; `apt-get install redis-server beanstalkd` has the peers")
            })?;
        let server = Self { child, folder, address: format!("127.0.0.1:{port}") };
        let began = Instant::now();
        while TcpStream::connect(&server.address).is_err() {
            if began.elapsed() > Duration::from_secs(20) {
                return Err(format!("{name} does not listen on {}", server.address).into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// One connection with its two buffers.
pub(crate) struct Wire {
    socket: BufReader<TcpStream>,
    /// What is sent next.
    pub(crate) out: Vec<u8>,
    /// What came last.
    pub(crate) line: Vec<u8>,
}

impl Wire {
    pub(crate) fn connect(address: &str) -> Outcome<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        Ok(Self { socket: BufReader::with_capacity(64 * 1024, socket), out: Vec::new(), line: Vec::new() })
    }

    /// Sends what was gathered, in one write.
    pub(crate) fn send(&mut self) -> Outcome<()> {
        self.socket.get_mut().write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// The next line, without its end.
    pub(crate) fn read_line(&mut self) -> Outcome<&[u8]> {
        use std::io::BufRead as _;
        self.line.clear();
        if self.socket.read_until(b'\n', &mut self.line)? == 0 {
            return Err("the connection was closed".into());
        }
        Ok(self.line.strip_suffix(b"\r\n").unwrap_or(&self.line))
    }

    /// So many bytes.
    pub(crate) fn read_exact(&mut self, count: usize) -> Outcome<&[u8]> {
        self.line.resize(count, 0);
        self.socket.read_exact(&mut self.line)?;
        Ok(&self.line)
    }
}

/// The number that a line says.
pub(crate) fn number<T: std::str::FromStr>(text: &[u8]) -> Outcome<T> {
    let text = std::str::from_utf8(text)?.trim();
    text.parse().map_err(|_| format!("\"{text}\" is no number").into())
}
