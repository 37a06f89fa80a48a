//! The server and the commands that speak to it, as people use them: real processes, a real folder, real sockets.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod running;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Output;

use ekiden_testkit::rig::{self, SmallDisk};
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
        let token = if token.is_empty() { String::new() } else { format!("authorization: Bearer {token}\r\n") };
        ask(&self.address, &format!("GET {path}"), &token, "")
    }
}

fn ask(address: &str, what: &str, headers: &str, body: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    let head = format!("{what} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}");
    socket.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
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

/// Whatever names the address or the host: a flag, a variable or a file; and `ekiden dev` is no way around it.
#[test]
fn a_server_without_a_live_token_opens_to_others_only_with_the_flag_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let url = local(folder.path());
    let data = folder.path().join("data");
    let refused = |arguments: &[&str], variables: &[(&str, &str)]| {
        let variables = variables.iter().copied();
        let mut server = Running::spawn(command(arguments).current_dir(folder.path()).envs(variables));
        while !server.seen.contains("BIND_UNSAFE") {
            server.wait_for_more();
            assert!(!server.seen.contains("stop:"), "it serves: {}", server.seen);
        }
    };
    let serve = ["serve", "--listen", "127.0.0.1:0", "--url", &url];
    refused(&serve, &[("EKIDEN_HOSTS", "jobs.example.com")]);
    refused(&["serve", "--url", &url], &[("EKIDEN_LISTEN", "0.0.0.0:0")]);
    refused(&["dev", "--no-open"], &[("EKIDEN_LISTEN", "0.0.0.0:0")]);
    std::fs::write(folder.path().join("ekiden.toml"), "[serve]\nhosts = [\"jobs.example.com\"]\n").unwrap();
    refused(&serve, &[]);
    std::fs::remove_file(folder.path().join("ekiden.toml")).unwrap();

    for arguments in [["create", "ci", "--scope=admin"], ["revoke", "ci", "--lang=en"]] {
        let done = command(&[&["token", "--url", &url][..], &arguments].concat()).output().unwrap();
        assert!(done.status.success(), "{}", text(&done.stderr));
    }
    refused(&serve, &[]);
    refused(&["dev", "--no-open", "--data", data.to_str().unwrap()], &[("EKIDEN_LISTEN", "127.0.0.1:0")]);
    for _ in 0..2 {
        let mut server = Running::start(&[&serve[..], &["--allow-anonymous-admin"]].concat());
        server.wait_for("WARNING: --allow-anonymous-admin");
        running::send(Signal::TERM, &server.child);
        assert!(server.end().0.success());
    }
}

/// Where a command must not connect to.
struct Trap {
    listener: TcpListener,
    url: String,
}

impl Trap {
    fn set() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        Self { listener, url }
    }

    fn is_untouched(&self) -> bool {
        self.listener.accept().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

#[test]
fn a_token_never_goes_to_a_server_that_the_current_folder_names() {
    let (folder, trap) = (tempfile::tempdir().unwrap(), Trap::set());
    let user = folder.path().join("user/ekiden");
    std::fs::create_dir_all(&user).unwrap();
    std::fs::write(folder.path().join("ekiden.toml"), format!("url = \"{}\"\n", trap.url)).unwrap();
    let list = |variable: Option<(&str, &str)>, lang: &str| {
        let mut list = command(&["task", "list", "--lang", lang]);
        list.current_dir(folder.path()).env("XDG_CONFIG_HOME", folder.path().join("user")).envs(variable);
        let output = list.output().unwrap();
        assert!(!output.status.success());
        text(&output.stderr)
    };
    let home = "http://jobs.example.com:7707";
    std::fs::write(user.join("config.toml"), format!("url = \"{home}\"\ntoken = \"ekd_users\"\n")).unwrap();
    for (variable, lang) in [(None, "en"), (None, "ja"), (Some(("EKIDEN_TOKEN", "ekd_env")), "en")] {
        let said = list(variable, lang);
        assert!(said.contains("TOKEN_FOR_OTHER_SERVER") && said.contains(home) && said.contains(&trap.url), "{said}");
        assert!(!said.contains("ekd_") && trap.is_untouched(), "{said}");
    }
    std::fs::remove_file(user.join("config.toml")).unwrap();
    assert!(list(Some(("EKIDEN_TOKEN", "ekd_env")), "en").contains("TOKEN_FOR_OTHER_SERVER"));
    assert!(trap.is_untouched());
}

/// A store that another command has open is found by the file beside it, which anybody may have put there.
#[test]
fn a_token_never_goes_to_a_server_that_a_foreign_endpoint_names() {
    let (served, trap) = (Served::start(), Trap::set());
    let endpoint = served.folder.path().join("data/endpoint.json");
    let line = format!("{{\"url\":\"{}\",\"pid\":1,\"version\":\"0\",\"token\":\"ekd_planted\"}}", trap.url);
    std::fs::write(endpoint, line).unwrap();
    let refused = command(&["task", "list", "--url", &served.url()]).env("EKIDEN_TOKEN", "ekd_env").output().unwrap();
    assert!(text(&refused.stderr).contains("TOKEN_FOR_OTHER_SERVER"), "{}", text(&refused.stderr));
    assert!(trap.is_untouched());
}

#[test]
fn a_redirect_takes_no_token_to_another_server() {
    let (trap, server) = (Trap::set(), TcpListener::bind("127.0.0.1:0").unwrap());
    let url = format!("http://{}", server.local_addr().unwrap());
    let answer =
        format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {}/api/v1\r\ncontent-length: 0\r\n\r\n", trap.url);
    let answering = std::thread::spawn(move || {
        let (mut socket, _) = server.accept().unwrap();
        let mut head = vec![0; 4_096];
        let read = socket.read(&mut head).unwrap();
        socket.write_all(answer.as_bytes()).unwrap();
        text(&head[..read])
    });
    let output = command(&["task", "list", "--url", &url]).env("EKIDEN_TOKEN", "ekd_env").output().unwrap();
    assert!(!output.status.success() && trap.is_untouched());
    assert!(answering.join().unwrap().contains("Bearer ekd_env"), "the server itself is told");
}

/// A server that was killed on a disk which then filled up starts again, ends what is there, and says why it is not ready.
#[test]
fn a_full_disk_keeps_no_server_from_starting_and_ready_says_that_tasks_are_refused() {
    let Some(disk) = rig::provide(SmallDisk::make(64)) else { return };
    let folder = disk.folder();
    std::fs::create_dir(&folder).unwrap();
    let (mut server, address) = serve(&folder);
    let tasks = "POST /api/v1/namespaces/default/tasks";
    let json = "content-type: application/json\r\n";
    let task = format!("{{\"task_type\":\"greet\",\"payload\":\"{}\"}}", "p".repeat(20_000));
    assert!(ask(&address, tasks, json, &task).contains("201 Created"));
    assert!(ask(&address, "GET /ready", "", "").contains("200 OK"));
    running::send(Signal::KILL, &server.child);
    server.child.wait().unwrap();
    disk.fill().unwrap();

    let (mut server, address) = serve(&folder);
    assert!(server.seen.contains("endpoint.json"), "{}", server.seen);
    while !ask(&address, tasks, json, &task).contains("STORE_FULL") {}
    let batch = ask(&address, &format!("{tasks}/batch"), json, &format!("{{\"tasks\":[{task}]}}"));
    assert!(batch.contains("200 OK") && batch.contains("STORE_FULL"), "{batch}");
    assert!(!batch.contains(disk.folder().to_str().unwrap()), "an item names no path either: {batch}");
    let ready = ask(&address, "GET /ready", "", "");
    assert!(ready.contains("503 Service Unavailable") && ready.contains("STORE_FULL"), "{ready}");
    assert!(!ready.contains(disk.folder().to_str().unwrap()), "an open route names no path: {ready}");
    assert!(ask(&address, "GET /health", "", "").contains("200 OK"));
    let claim = r#"{"runner":"r-1","task_types":["greet"]}"#;
    assert!(ask(&address, "POST /api/v1/namespaces/default/claims", json, claim).contains("200 OK"));
    disk.empty().unwrap();
    while !ask(&address, "GET /ready", "", "").contains("200 OK") {
        // Each refusal is a line of the log, and a server whose log nobody reads stands still.
        server.wait_for_more();
    }
    assert!(ask(&address, tasks, json, &task).contains("201 Created"));
    running::send(Signal::TERM, &server.child);
    assert!(server.end().0.success());
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
