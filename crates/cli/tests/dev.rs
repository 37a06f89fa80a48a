//! `ekiden dev` as a person runs it: the real binary, its output, its end.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::process::{Command, Output};

fn ekiden(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ekiden"))
        .args(arguments)
        .env("LC_ALL", "C")
        .output()
        .expect("the binary can be run")
}

fn table(output: &Output) -> Vec<Vec<String>> {
    let text = String::from_utf8(output.stdout.clone()).expect("the output is text");
    let rows = text.lines().filter(|line| !line.is_empty());
    let mut rows: Vec<Vec<String>> = rows.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect();
    rows[1..].sort();
    rows
}

#[test]
fn dev_carries_every_demo_task_to_its_end() {
    let output = ekiden(&["dev"]);
    assert!(output.status.success());
    let rows = table(&output);
    let expected = [
        "TASK TYPE PHASE ATTEMPTS REASON",
        "after-flaky succeeds succeeded 1/5",
        "flaky fails-twice succeeded 3/5",
        "greet succeeds succeeded 1/5",
        "hopeless never-works dead 1/5 PERMANENT_FAILURE",
        "lane-1 succeeds succeeded 1/5",
        "lane-2 succeeds succeeded 1/5",
        "lane-3 succeeds succeeded 1/5",
        "later succeeds succeeded 1/5",
    ];
    assert_eq!(rows.iter().map(|row| row.join(" ")).collect::<Vec<_>>(), expected);
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = |text: &str| {
        log.lines().position(|line| line.split_whitespace().collect::<Vec<_>>().join(" ").starts_with(text))
    };
    assert!(line("lane-1 succeeded") < line("lane-2 running"), "a lane runs one at a time:\n{log}");
    assert!(line("flaky succeeded") < line("after-flaky running"), "a child waits for its parent:\n{log}");
}

#[test]
fn dev_speaks_japanese_when_asked() {
    let output = ekiden(&["--lang", "ja"]);
    assert_eq!(table(&output)[0].join(" "), "タスク 種別 フェーズ 試行 理由");
    assert!(String::from_utf8_lossy(&output.stderr).contains("メモリ上のデモタスク"));
}

#[test]
fn a_typo_is_answered_with_the_right_word_and_exit_code_2() {
    let output = ekiden(&["de"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("'dev'"));
    assert!(output.stdout.is_empty(), "data goes to stdout, everything else to stderr");
}
