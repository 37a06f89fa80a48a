//! Ekiden over HTTP, on the local store: one request hands in, one acknowledges and takes the next.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Consumer, Line, Producer, Server, WAIT, Wire, number};
use crate::Outcome;

/// `ekiden serve`, as users run it.
pub struct Ekiden {
    server: Server,
}

impl Ekiden {
    /// Builds the command, which takes a while the first time. Its path. `EKIDEN_PROGRAM` names one that was built already.
    pub fn build() -> Outcome<PathBuf> {
        if let Some(built) = std::env::var_os("EKIDEN_PROGRAM") {
            return Ok(built.into());
        }
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["build", "--release", "--package", "ekiden-cli", "--message-format", "json", "--manifest-path"])
            .arg(manifest)
            .stderr(std::process::Stdio::inherit())
            .output()?;

        #[derive(Deserialize)]
        struct Message {
            executable: Option<PathBuf>,
        }

        let lines = built.stdout.split(|byte| *byte == b'\n');
        let programs = lines.filter_map(|line| serde_json::from_slice::<Message>(line).ok()?.executable);
        programs.into_iter().next_back().ok_or_else(|| "the ekiden command cannot be built".into())
    }

    /// Starts a server.
    pub fn start(program: &Path) -> Outcome<Self> {
        let server = Server::start("ekiden", |folder, port| {
            let mut command = Command::new(program);
            command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--url"]);
            command.arg(format!("local:{}", folder.join("data").display())).env("EKIDEN_LOG", "error");
            command
        })?;
        Ok(Self { server })
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.server.address
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }
}

impl Line for Ekiden {
    fn producer(&self) -> Outcome<Box<dyn Producer>> {
        Ok(Box::new(Adder { http: Http::connect(&self.server.address)?, body: Vec::new() }))
    }

    fn consumer(&self, number: usize) -> Outcome<Box<dyn Consumer>> {
        let mut http = Http::connect(&self.server.address)?;
        let runner = format!("bench-{number}");
        // A lease longer than any try, so that one sign of life is enough.
        http.send("PUT", &format!("/runners/{runner}"), br#"{"lease_ms":3600000,"task_types":["job"]}"#)?;
        Ok(Box::new(Taker { http, runner, held: Vec::new(), body: Vec::new() }))
    }
}

/// The least of HTTP: one connection that stays open, bodies of a known length.
struct Http {
    wire: Wire,
    host: String,
}

impl Http {
    fn connect(address: &str) -> Outcome<Self> {
        Ok(Self { wire: Wire::connect(address)?, host: address.to_owned() })
    }

    fn send(&mut self, method: &str, path: &str, body: &[u8]) -> Outcome<&[u8]> {
        let head = format!(
            "{method} /api/v1/namespaces/default{path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.host,
            body.len()
        );
        self.wire.out.extend_from_slice(head.as_bytes());
        self.wire.out.extend_from_slice(body);
        self.wire.send()?;
        let is_well = self.wire.read_line()?.get(9..10) == Some(b"2");
        let mut length = 0;
        loop {
            let line = self.wire.read_line()?;
            if line.is_empty() {
                break;
            }
            let name = line.get(..15).unwrap_or_default();
            if name.eq_ignore_ascii_case(b"content-length:") {
                length = number(line.get(15..).unwrap_or_default())?;
            }
        }
        let body = self.wire.read_exact(length)?;
        if is_well { Ok(body) } else { Err(format!("refused: {}", String::from_utf8_lossy(body)).into()) }
    }
}

struct Adder {
    http: Http,
    body: Vec<u8>,
}

impl Producer for Adder {
    fn put(&mut self, jobs: &[Vec<u8>]) -> Outcome<()> {
        let task = |body: &mut Vec<u8>, job: &[u8]| {
            body.extend_from_slice(br#"{"task_type":"job","payload":"#);
            body.extend_from_slice(job);
            body.push(b'}');
        };
        self.body.clear();
        if let [job] = jobs {
            task(&mut self.body, job);
            return self.http.send("POST", "/tasks", &self.body).map(drop);
        }
        self.body.extend_from_slice(br#"{"tasks":["#);
        for (at, job) in jobs.iter().enumerate() {
            if at > 0 {
                self.body.push(b',');
            }
            task(&mut self.body, job);
        }
        self.body.extend_from_slice(b"]}");
        let answer = self.http.send("POST", "/tasks/batch", &self.body)?;
        if answer.windows(7).any(|part| part == b"\"error\"") {
            return Err(format!("a task was refused: {}", String::from_utf8_lossy(answer)).into());
        }
        Ok(())
    }
}

struct Taker {
    http: Http,
    runner: String,
    held: Vec<(String, u64)>,
    body: Vec<u8>,
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    settled: Vec<Settled<'a>>,
    #[serde(borrow, default)]
    tasks: Vec<Leased<'a>>,
}

#[derive(Deserialize)]
struct Settled<'a> {
    #[serde(borrow)]
    state: Option<&'a str>,
}

#[derive(Deserialize)]
struct Leased<'a> {
    token: u64,
    #[serde(borrow)]
    task: Task<'a>,
}

#[derive(Deserialize)]
struct Task<'a> {
    id: &'a str,
    #[serde(borrow)]
    payload: &'a RawValue,
}

impl Consumer for Taker {
    fn next(&mut self, limit: usize, taken: &mut dyn FnMut(&[u8])) -> Outcome<usize> {
        use std::io::Write as _;
        let held = std::mem::take(&mut self.held);
        self.body.clear();
        self.body.extend_from_slice(br#"{"settlements":["#);
        for (at, (id, token)) in held.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(self.body, r#"{comma}{{"task_id":"{id}","token":{token},"verdict":{{"outcome":"succeeded"}}}}"#)?;
        }
        write!(
            self.body,
            r#"],"claim":{{"runner":"{}","task_types":["job"],"limit":{limit},"wait_ms":{}}}}}"#,
            self.runner,
            WAIT.as_millis()
        )?;
        let answer: Answer<'_> = serde_json::from_slice(self.http.send("POST", "/settlements", &self.body)?)?;
        if answer.settled.len() != held.len() || answer.settled.iter().any(|one| one.state != Some("succeeded")) {
            return Err("a settlement was refused".into());
        }
        for leased in &answer.tasks {
            taken(leased.task.payload.get().as_bytes());
            self.held.push((leased.task.id.to_owned(), leased.token));
        }
        Ok(held.len())
    }
}
