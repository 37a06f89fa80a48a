//! The tour of the READMEs, typed as it is printed: what stays runs beside, everything else is compared word for word.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::running::{Running, command, send, text};

/// X1, X4: the tour in English does what it says.
#[test]
fn the_tour_of_the_english_readme_works_as_printed() {
    tour(include_str!("../../../../README.md"), "## A tour", "en");
}

/// X1, X4: the tour in Japanese does what it says.
#[test]
fn the_tour_of_the_japanese_readme_works_as_printed() {
    tour(include_str!("../../../../README.ja.md"), "## ひとまわり", "ja");
}

fn tour(readme: &str, heading: &str, lang: &str) {
    let folder = tempfile::tempdir().unwrap();
    let programs = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ekiden"), programs.path().join("ekiden")).unwrap();
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap());
    let shell = |line: &str| shell(line, folder.path(), &path, lang);
    let mut staying = Vec::new();
    let mut typed = 0;
    for block in blocks(readme, heading) {
        match block {
            // What stays says when it is ready: a server where it is, a worker that it works.
            Block::Shell(line) if line.starts_with("ekiden ") => {
                let mut running = Running::spawn(&mut shell(&format!("exec {line}")));
                running.wait_for(if line.starts_with("ekiden dev") { "Ctrl-C" } else { "\n" });
                staying.push(running);
            }
            Block::Shell(script) => assert!(shell(&script).status().unwrap().success(), "{script}"),
            Block::Console(lines) => {
                for (line, expected) in lines {
                    let output = shell(&line).stderr(Stdio::piped()).output().unwrap();
                    let (out, err) = (text(&output.stdout), text(&output.stderr));
                    assert_eq!(squeezed(&out), squeezed(&expected), "$ {line}\n{out}{err}");
                    typed += 1;
                }
            }
        }
    }
    assert!(typed > 10 && staying.len() == 2, "the tour was found: {typed} commands, {} that stay", staying.len());
    for running in staying.into_iter().rev() {
        send(Signal::INT, &running.child);
        running.end();
    }
}

/// A shell as a person has it, in the tour's folder.
fn shell(line: &str, folder: &Path, path: &str, lang: &str) -> Command {
    let mut shell = Command::new("sh");
    for (name, value) in command(&[]).get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.arg("-c").arg(line).current_dir(folder).env("PATH", path).env("EKIDEN_LANG", lang);
    shell
}

enum Block {
    /// Typed as a whole.
    Shell(String),
    /// Commands with what each prints.
    Console(Vec<(String, String)>),
}

/// The code blocks of a section.
fn blocks(readme: &str, heading: &str) -> Vec<Block> {
    let section = readme.split_once(&format!("{heading}\n")).unwrap().1;
    let section = section.split("\n## ").next().unwrap();
    let mut parts = section.split("```").skip(1);
    let mut blocks = Vec::new();
    while let Some(part) = parts.next() {
        parts.next();
        let (kind, body) = part.split_once('\n').unwrap();
        blocks.push(match kind {
            "sh" => Block::Shell(body.trim_end().to_owned()),
            "console" => Block::Console(commands(body)),
            other => panic!("a block of {other:?}"),
        });
    }
    blocks
}

fn commands(body: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in body.lines() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_owned(), String::new())),
            (None, Some((_, expected))) => expected.push_str(&format!("{line}\n")),
            (None, None) => panic!("output before a command: {line}"),
        }
    }
    commands
}

/// Columns are as wide as a terminal has them, and tabs in a pipe.
fn squeezed(text: &str) -> String {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join("\n")
}
