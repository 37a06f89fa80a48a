//! The server and the commands that speak to it, as people use them: real processes, a real folder, real sockets.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod running;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Output;

use running::{Running, command, text};
use rustix::process::Signal;

/// A server on any free port, over a new folder.
struct Served {
    folder: tempfile::TempDir,
    server: Running,
    address: String,
}

impl Served {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (server, address) = serve(folder.path());
        Self { folder, server, address }
    }

    fn url(&self) -> String {
        local(self.folder.path())
    }

    /// A command that means this server's folder.
    fn run(&self, arguments: &[&str]) -> Output {
        command(arguments).env("EKIDEN_URL", self.url()).env_remove("EKIDEN_TOKEN").output().unwrap()
    }

    /// What such a command prints, if it goes well.
    fn printed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout).trim_end().to_owned()
    }

    fn get(&self, path: &str, token: &str) -> String {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.address);
        let token = if token.is_empty() { String::new() } else { format!("authorization: Bearer {token}\r\n") };
        socket.write_all(format!("{head}{token}\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }
}

fn local(folder: &Path) -> String {
    format!("local:{}", folder.join("data").display())
}

fn serve(folder: &Path) -> (Running, String) {
    let mut server = Running::start(&["serve", "--listen", "127.0.0.1:0", "--url", &local(folder)]);
    server.wait_for("stop:");
    let at = server.seen.find("http://").unwrap() + "http://".len();
    let address = server.seen.get(at..).unwrap().split_whitespace().next().unwrap().to_owned();
    (server, address)
}

#[test]
fn commands_find_the_server_that_owns_a_folder_and_the_folder_when_it_has_ended() {
    let served = Served::start();
    let id = served.printed(&["task", "add", "greet", r#"{"name":"you"}"#, "--title", "挨拶", "--hold"]);
    assert!(served.printed(&["task", "list", "--state", "pending"]).contains(&id));
    assert_eq!(served.printed(&["task", "list", "--state", "running"]), "");
    assert_eq!(served.printed(&["task", "list", "-o", "id"]), id);
    assert!(served.printed(&["task", "get", &id]).contains("payload\t{\"name\":\"you\"}"));
    assert_eq!(served.printed(&["task", "cancel", &id, "--note", "enough"]), format!("{id}\tcancelled"));
    let again = served.printed(&["task", "retry", &id, "-o", "id"]);
    assert_ne!(again, id, "an ended task is retried as a new one");
    let endpoint = served.folder.path().join("data/endpoint.json");
    assert!(endpoint.exists());

    running::send(Signal::TERM, &served.server.child);
    let Served { folder, server, .. } = served;
    let (status, log, _) = server.end();
    assert!(status.success() && log.contains("Stopped."), "{log}");
    assert!(!endpoint.exists(), "a server that ended leads nobody astray");
    let direct = command(&["task", "get", &again, "--url", &local(folder.path())]).output().unwrap();
    assert!(text(&direct.stdout).contains("挨拶"), "{}", text(&direct.stderr));
}

#[test]
fn a_server_that_was_killed_leaves_everything_and_an_endpoint_that_leads_nowhere() {
    let served = Served::start();
    let id = served.printed(&["task", "add", "greet"]);
    running::send(Signal::KILL, &served.server.child);
    let Served { folder, mut server, .. } = served;
    server.child.wait().unwrap();
    let listed = command(&["task", "list", "-o", "id", "--url", &local(folder.path())]).output().unwrap();
    assert_eq!(text(&listed.stdout).trim_end(), id, "{}", text(&listed.stderr));
    let (server, _) = serve(folder.path());
    running::send(Signal::TERM, &server.child);
    assert!(server.end().0.success());
}

#[test]
fn once_there_is_a_token_others_need_one_and_the_owner_of_the_folder_does_not() {
    let served = Served::start();
    assert!(served.get("/api/v1/namespaces", "").contains("200 OK"));
    let token = served.printed(&["token", "create", "ci", "--scope", "read", "--only", "default"]);
    assert!(token.starts_with("ekd_"));
    assert!(served.printed(&["token", "list"]).starts_with("ci\tread\tdefault\t"));
    assert!(!served.printed(&["token", "list", "-o", "json"]).contains("sha256"));
    // The server looks at most once a second.
    while !served.get("/api/v1/namespaces", "").contains("TOKEN_MISSING") {
        std::thread::yield_now();
    }
    assert!(served.get("/api/v1/namespaces/default/tasks", &token).contains("200 OK"));
    assert!(served.get("/api/v1/namespaces/other/tasks", &token).contains("SCOPE_MISSING"));
    served.printed(&["task", "add", "greet"]);

    let elsewhere = |token: &str| {
        let url = format!("http://{}", served.address);
        command(&["task", "add", "greet", "--url", &url]).env("EKIDEN_TOKEN", token).output().unwrap()
    };
    let refused = elsewhere(&token);
    assert!(text(&refused.stderr).contains("SCOPE_MISSING"), "{}", text(&refused.stderr));
    assert!(text(&elsewhere("ekd_wrong").stderr).contains("TOKEN_INVALID"));
    served.printed(&["token", "revoke", "ci"]);
    while !served.get("/api/v1/namespaces/default/tasks", &token).contains("TOKEN_INVALID") {
        std::thread::yield_now();
    }
}

#[test]
fn what_cannot_be_served_is_refused_with_its_reason() {
    let served = Served::start();
    let refused = |arguments: &[&str], code: &str| {
        let output = command(arguments).output().unwrap();
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains(code), "{arguments:?}: {error}");
    };
    refused(&["serve", "--url", &served.url()], "STORE_IN_USE");
    refused(&["serve", "--url", "memory:", "--listen", &served.address], "ADDRESS_TAKEN");
    refused(&["serve", "--url", "memory:", "--listen", "0.0.0.0:0"], "BIND_UNSAFE");
    refused(&["serve", "--url", "memory:", "--listen", "nowhere"], "CONFIG_INVALID");
    refused(&["serve", "--url", "http://127.0.0.1:1"], "CONFIG_INVALID");
    refused(&["token", "create", "x", "--url", "memory:"], "CONFIG_INVALID");
    refused(&["task", "list", "--url", "local:/nowhere/at/all"], "STORE_NOT_FOUND");
    refused(&["task", "add", "x", "{", "--url", "memory:"], "PAYLOAD_INVALID");
    refused(&["task", "list", "--url", "https://example.com"], "URL_INVALID");
}

#[test]
fn settings_are_shown_with_their_origin_and_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ekiden.toml"), "namespace = \"blue\"\ntoken = \"s3cret\"\n").unwrap();
    let shown = command(&["config", "show", "--origin", "--url", "memory:"])
        .current_dir(folder.path())
        .env("EKIDEN_LOG", "debug")
        .env("XDG_CONFIG_HOME", folder.path())
        .output()
        .unwrap();
    let shown = text(&shown.stdout);
    for line in ["url\tmemory:\tflag", "namespace\tblue\tekiden.toml", "token\t(set)\t", "log.level\tdebug\tEKIDEN_LOG"]
    {
        assert!(shown.contains(line), "{line:?} in\n{shown}");
    }
    assert!(!shown.contains("s3cret"));
}
