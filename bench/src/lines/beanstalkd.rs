//! beanstalkd with its log synced at each write: put, reserve, delete.

use std::process::Command;

use super::{Consumer, Line, Producer, Server, WAIT, Wire, number};
use crate::Outcome;

/// A beanstalkd server with `-f0`.
pub struct Beanstalkd {
    server: Server,
}

impl Beanstalkd {
    /// Starts one.
    pub fn start() -> Outcome<Self> {
        let server = Server::start("beanstalkd", |folder, port| {
            let mut command = Command::new("beanstalkd");
            command.args(["-l", "127.0.0.1", "-p", &port.to_string(), "-f", "0", "-b"]).arg(folder);
            command
        })?;
        Ok(Self { server })
    }
}

impl Line for Beanstalkd {
    fn producer(&self) -> Outcome<Box<dyn Producer>> {
        Ok(Box::new(Putter(Wire::connect(&self.server.address)?)))
    }

    fn consumer(&self, _number: usize) -> Outcome<Box<dyn Consumer>> {
        Ok(Box::new(Reserver { wire: Wire::connect(&self.server.address)?, held: None }))
    }
}

fn unexpected(wire: &Wire) -> Box<dyn std::error::Error + Send + Sync> {
    format!("unexpected reply {:?}", String::from_utf8_lossy(&wire.line)).into()
}

struct Putter(Wire);

impl Producer for Putter {
    fn put(&mut self, jobs: &[Vec<u8>]) -> Outcome<()> {
        for job in jobs {
            self.0.out.extend_from_slice(format!("put 0 0 60 {}\r\n", job.len()).as_bytes());
            self.0.out.extend_from_slice(job);
            self.0.out.extend_from_slice(b"\r\n");
        }
        self.0.send()?;
        for _ in jobs {
            if !self.0.read_line()?.starts_with(b"INSERTED") {
                return Err(unexpected(&self.0));
            }
        }
        Ok(())
    }
}

struct Reserver {
    wire: Wire,
    held: Option<u64>,
}

impl Consumer for Reserver {
    /// One at a time: there is no way to take several.
    fn next(&mut self, _limit: usize, taken: &mut dyn FnMut(&[u8])) -> Outcome<usize> {
        let acked = match self.held.take() {
            Some(id) => {
                self.wire.out.extend_from_slice(format!("delete {id}\r\n").as_bytes());
                self.wire.send()?;
                if self.wire.read_line()? != b"DELETED" {
                    return Err(unexpected(&self.wire));
                }
                1
            }
            None => 0,
        };
        self.wire.out.extend_from_slice(format!("reserve-with-timeout {}\r\n", WAIT.as_secs()).as_bytes());
        self.wire.send()?;
        let line = self.wire.read_line()?;
        let Some(rest) = line.strip_prefix(b"RESERVED ") else {
            return if line == b"TIMED_OUT" { Ok(acked) } else { Err(unexpected(&self.wire)) };
        };
        let mut words = rest.split(|byte| *byte == b' ');
        let id = number(words.next().unwrap_or_default())?;
        let bytes: usize = number(words.next().unwrap_or_default())?;
        taken(self.wire.read_exact(bytes + 2)?.get(..bytes).unwrap_or_default());
        self.held = Some(id);
        Ok(acked)
    }
}
