//! A Redis list, synced at each write: LPUSH, BLMOVE to a list of what is being done, LREM from it.

use std::process::Command;

use super::{Consumer, Line, Producer, Server, WAIT, Wire, number};
use crate::Outcome;

/// How a consumer acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// It waits for the answer, then asks for the next job.
    Apart,
    /// It sends both at once.
    Pipelined,
}

/// A Redis server with `appendfsync always`.
pub struct Redis {
    server: Server,
    acks: Acks,
}

impl Redis {
    /// Starts one.
    pub fn start(acks: Acks) -> Outcome<Self> {
        let server = Server::start("redis", |folder, port| {
            let mut command = Command::new("redis-server");
            command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--dir"]).arg(folder);
            command.args(["--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
            command
        })?;
        Ok(Self { server, acks })
    }
}

impl Line for Redis {
    fn producer(&self) -> Outcome<Box<dyn Producer>> {
        Ok(Box::new(Pusher(Wire::connect(&self.server.address)?)))
    }

    fn consumer(&self, number: usize) -> Outcome<Box<dyn Consumer>> {
        let wire = Wire::connect(&self.server.address)?;
        Ok(Box::new(Mover { wire, doing: format!("doing-{number}"), held: Vec::new(), acks: self.acks }))
    }
}

fn command(out: &mut Vec<u8>, parts: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", parts.len()).as_bytes());
    for part in parts {
        out.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
}

/// A reply that is a number.
fn integer(wire: &mut Wire) -> Outcome<i64> {
    match wire.read_line()?.split_first() {
        Some((b':', rest)) => number(rest),
        _ => Err(format!("unexpected reply {:?}", String::from_utf8_lossy(&wire.line)).into()),
    }
}

/// A reply that is bytes, or nothing.
fn bulk(wire: &mut Wire) -> Outcome<Option<Vec<u8>>> {
    let length: i64 = match wire.read_line()?.split_first() {
        Some((b'$' | b'*', rest)) => number(rest)?,
        _ => return Err(format!("unexpected reply {:?}", String::from_utf8_lossy(&wire.line)).into()),
    };
    let Ok(length) = usize::try_from(length) else { return Ok(None) };
    let bytes = wire.read_exact(length + 2)?;
    Ok(Some(bytes.get(..length).unwrap_or_default().to_vec()))
}

struct Pusher(Wire);

impl Producer for Pusher {
    fn put(&mut self, jobs: &[Vec<u8>]) -> Outcome<()> {
        let mut parts: Vec<&[u8]> = vec![b"LPUSH", b"jobs"];
        parts.extend(jobs.iter().map(Vec::as_slice));
        command(&mut self.0.out, &parts);
        self.0.send()?;
        integer(&mut self.0).map(drop)
    }
}

struct Mover {
    wire: Wire,
    doing: String,
    held: Vec<Vec<u8>>,
    acks: Acks,
}

impl Consumer for Mover {
    fn next(&mut self, limit: usize, taken: &mut dyn FnMut(&[u8])) -> Outcome<usize> {
        let held = std::mem::take(&mut self.held);
        for job in &held {
            command(&mut self.wire.out, &[b"LREM", self.doing.as_bytes(), b"1", job]);
        }
        if self.acks == Acks::Apart && !held.is_empty() {
            self.wire.send()?;
            for _ in &held {
                integer(&mut self.wire)?;
            }
        }
        // The first waits; the others of a batch take what is there.
        let wait = WAIT.as_secs().to_string();
        let doing = self.doing.as_bytes();
        command(&mut self.wire.out, &[b"BLMOVE", b"jobs", doing, b"RIGHT", b"LEFT", wait.as_bytes()]);
        for _ in 1..limit {
            command(&mut self.wire.out, &[b"LMOVE", b"jobs", doing, b"RIGHT", b"LEFT"]);
        }
        self.wire.send()?;
        if self.acks == Acks::Pipelined {
            for _ in &held {
                integer(&mut self.wire)?;
            }
        }
        for _ in 0..limit {
            if let Some(job) = bulk(&mut self.wire)? {
                taken(&job);
                self.held.push(job);
            }
        }
        Ok(held.len())
    }
}
