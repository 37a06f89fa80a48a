//! The description of the API held against a real server by an OpenAPI fuzzer: whatever it sends, valid or not, is answered as
//! the description says, and never by a fault of the server.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::path::{Path, PathBuf};
use std::process::Command;

use ekiden_testkit::rig::{self, Missing, Port, Program, Scratch, Served};
use serde_json::{Value, json};

/// What every answer is held against.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance";

/// The fuzzer that `cargo xtask setup` installs below `target`.
fn fuzzer() -> Result<PathBuf, Missing> {
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().nth(3).unwrap();
    let program = target.join("schemathesis/bin/schemathesis");
    if program.exists() {
        return Ok(program);
    }
    let what = format!("{} is not there", program.display());
    Err(Missing { what, todo: "install python3 with its venv, and run `cargo xtask setup`" })
}

/// The description without what a fuzzer would wait for: streams, which do not end, and long polls.
fn bounded(mut description: Value) -> Value {
    let paths = description["paths"].as_object_mut().unwrap();
    paths.retain(|path, _| !path.ends_with("/events") && !path.ends_with("/hints") && !path.ends_with("/follow"));
    let wait = &mut description["components"]["schemas"]["Claim"]["properties"]["wait_ms"];
    assert!(wait.is_object(), "a claim says how long it waits");
    wait["maximum"] = json!(0);
    description
}

fn run(fuzzer: &Path, folder: &Path, url: &str, examples: usize) -> (bool, String) {
    let examples = examples.to_string();
    // One worker: Python 3.11 counts the depth of syntax trees for all threads together, and two that parse at once end in an error.
    let output = Command::new(fuzzer)
        .args(["run", "openapi.json", "--url", url, "--checks", CHECKS, "--max-examples", &examples, "--seed", "1"])
        .args(["--phases", "examples,coverage,fuzzing", "--workers", "1", "--request-timeout", "30"])
        .args(["--warnings", "off", "--no-shrink", "--continue-on-failure"])
        .current_dir(folder)
        .output()
        .unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn an_openapi_fuzzer_finds_nothing() {
    let Some(fuzzer) = rig::provide(fuzzer()) else { return };
    let scratch = Scratch::new().unwrap();
    let port = Port::free();
    let program = Program::at(env!("CARGO_BIN_EXE_ekiden"));
    let server = Served::start(&program, Some(&scratch.path().join("store")), port);
    server.wait_ready().unwrap();
    let description: Value = serde_json::from_str(include_str!("../../server/openapi.json")).unwrap();
    std::fs::write(scratch.path().join("openapi.json"), bounded(description.clone()).to_string()).unwrap();
    let (well, report) = run(&fuzzer, scratch.path(), &port.url(), rig::rounds(15));
    assert!(well, "{report}\n{}", server.log());
    assert!(!server.log().contains("panicked"), "{}", server.log());

    // It can fail: a description that promises something else of one answer.
    let mut wrong = bounded(description);
    wrong["paths"].as_object_mut().unwrap().retain(|path, _| path == "/api/v1");
    wrong["components"]["schemas"]["Info"]["required"] = json!(["what_no_server_says"]);
    std::fs::write(scratch.path().join("openapi.json"), wrong.to_string()).unwrap();
    let (well, report) = run(&fuzzer, scratch.path(), &port.url(), 1);
    assert!(!well && report.contains("violates schema"), "{report}");
}
