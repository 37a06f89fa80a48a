//! A server that was started with room for few files, as shells and services start programs, has room for many connections.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use ekiden_testkit::rig::{Port, Program, Scratch, Served};

/// 400 connections that say nothing, where the shell allows 200 files.
const SILENT: usize = 400;
const FILES: usize = 200;

/// Ten seconds: an answer comes at once, or not before the silent ones are closed.
const LIMIT: Duration = Duration::from_secs(10);

#[test]
fn silent_connections_do_not_use_up_the_files_of_a_server() {
    let scratch = Scratch::new().unwrap();
    let script = scratch.path().join("few-files");
    std::fs::write(
        &script,
        format!("#!/bin/sh\nulimit -Sn {FILES} && exec '{}' \"$@\"\n", env!("CARGO_BIN_EXE_ekiden")),
    )
    .unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let port = Port::free();
    let server = Served::start(&Program::at(script), None, port);
    server.wait_ready().unwrap();
    let silent: Vec<TcpStream> = (0..SILENT).map(|_| TcpStream::connect(port.address()).unwrap()).collect();

    let mut stream = TcpStream::connect(port.address()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(stream, "GET /health HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", port.address()).unwrap();
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    assert!(read.is_ok() && answer.contains("alive"), "{read:?} {answer}\n{}", server.log());
    drop(silent);
}
