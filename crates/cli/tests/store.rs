//! `ekiden store` as a person runs it: the real binary, files, pipes and exit codes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod running;
mod terminal;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Output, Stdio};

use ekiden::Ekiden;

use running::{command, ekiden, text};
use terminal::Terminal;

struct Folder {
    root: tempfile::TempDir,
}

impl Folder {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> String {
        self.root.path().join(name).to_str().unwrap().to_owned()
    }

    fn url(&self, name: &str) -> String {
        format!("local:{}", self.path(name))
    }

    /// A store with some tasks of two namespaces.
    fn store(&self, name: &str, tasks: usize) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let ekiden = Ekiden::open(&self.url(name)).await.unwrap();
            for namespace in ["default", "受信箱"] {
                let client = ekiden.namespace(namespace).unwrap();
                let task = |n| client.enqueue_raw("greet", "text/plain", "襷\n\"x\"").id(format!("t-{n}"));
                for enqueued in client.enqueue_all((0..tasks).map(task)).await {
                    enqueued.unwrap();
                }
            }
            ekiden.close().await.unwrap();
        });
        self.url(name)
    }
}

fn store(arguments: &[&str]) -> Output {
    ekiden(&[&["store"], arguments].concat())
}

#[track_caller]
fn expect(output: &Output, code: i32, says: &str) {
    let log = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{log}");
    assert!(log.contains(says), "expected {says:?} in:\n{log}");
    assert!(!log.contains('\x1b'), "a pipe gets no bar:\n{log}");
}

fn with_input(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = command(&[&["store"], arguments].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses its input may be gone before it has read all.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

#[test]
fn what_is_exported_through_a_pipe_is_imported_from_one_to_the_letter() {
    let folder = Folder::new();
    let from = folder.store("from", 300);
    let exported = store(&["export", &from]);
    expect(&exported, 0, "Exported records: 600 (tasks: 600), namespaces: 2.");
    assert_eq!(text(&exported.stdout).lines().count(), 602, "one line a record, a first and a last");
    let imported = with_input(&["import", &folder.url("to")], &exported.stdout);
    expect(&imported, 0, "Imported records: 600 (tasks: 600), namespaces: 2.");
    assert!(imported.stdout.is_empty(), "data goes to stdout, and there is none");
    assert_eq!(store(&["export", &folder.url("to"), "-"]).stdout, exported.stdout);
}

#[test]
fn a_file_is_there_only_when_it_is_whole_and_is_its_owners() {
    let folder = Folder::new();
    let (from, file) = (folder.store("from", 3), folder.path("all.jsonl"));
    expect(
        &store(&["--lang", "ja", "export", &from, &file]),
        0,
        "エクスポートしました: レコード 6（タスク 6）、名前空間 2",
    );
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!std::fs::exists(folder.path("all.jsonl.partial")).unwrap());
    expect(&store(&["export", &from, &folder.path("no/such/folder")]), 1, "FILE_UNAVAILABLE");
    expect(&store(&["--lang", "ja", "import", &folder.url("to"), &file]), 0, "インポートしました: レコード 6");
    expect(&store(&["import", &folder.url("to2"), &folder.path("none")]), 1, "FILE_UNAVAILABLE");
    assert!(!std::fs::exists(folder.path("to2")).unwrap(), "no store is made for a file that is missing");
}

#[test]
fn a_namespace_that_has_something_is_refused_unless_it_is_to_be_skipped() {
    let folder = Folder::new();
    let (from, to) = (folder.store("from", 5), folder.store("to", 2));
    let lines = store(&["export", &from]).stdout;
    let refused = with_input(&["import", &to], &lines);
    expect(&refused, 1, "IMPORT_EXISTS: Namespace is not empty (line: 2, namespace: default)");
    expect(&refused, 1, "Records that went through before: 0");
    expect(&with_input(&["--lang", "ja", "import", &to], &lines), 1, "IMPORT_EXISTS: 名前空間が空ではありません");
    let skipped = with_input(&["import", &to, "--skip-existing"], &lines);
    expect(&skipped, 0, "Imported records: 6 (tasks: 6), namespaces: 2.");
    expect(&skipped, 0, "Already there and kept: 4, of which 4 have another content.");
}

#[test]
fn bad_input_is_refused_with_its_line() {
    let folder = Folder::new();
    let from = folder.store("from", 2);
    let lines = text(&store(&["export", &from]).stdout);
    let cut: Vec<&str> = lines.lines().take(3).collect();
    for (n, (input, says)) in [
        ("garbage".to_owned(), "IMPORT_CUT: Import ends too early (line: 1"),
        ("garbage\n".to_owned(), "IMPORT_INVALID: Unreadable import (line: 1"),
        (format!("{}\n", cut.join("\n")), "IMPORT_CUT: Import ends too early (line: 4"),
        (lines.replacen("\"min_reader\":1", "\"min_reader\":7", 1), "IMPORT_TOO_NEW: Import is too new (line: 1"),
    ]
    .into_iter()
    .enumerate()
    {
        let to = folder.url(&format!("to-{n}"));
        expect(&with_input(&["import", &to], input.as_bytes()), 1, says);
        let left = store(&["export", &to]);
        assert_eq!(text(&left.stdout).lines().count(), 2, "nothing was imported: {}", text(&left.stdout));
    }
}

#[test]
fn a_sound_store_is_checked_copied_and_compacted() {
    let folder = Folder::new();
    let url = folder.store("data", 20);
    for arguments in [vec!["check", &url], vec!["check", "--full", &url]] {
        let checked = store(&arguments);
        expect(&checked, 0, "Nothing was found: the store is sound.");
        assert!(checked.stdout.is_empty());
    }
    let before = store(&["export", &url]).stdout;
    let copy = folder.path("copy");
    expect(&store(&["backup", &url, &copy]), 0, &format!("Copied to {copy}."));
    expect(&store(&["backup", &url, &copy]), 1, "BACKUP_EXISTS");
    expect(&store(&["compact", &url]), 0, "Compacted: ");
    expect(&store(&["--lang", "ja", "compact", &folder.url("copy")]), 0, "圧縮しました: ");
    assert_eq!(store(&["export", &url]).stdout, before);
    assert_eq!(store(&["export", &folder.url("copy")]).stdout, before);
}

#[test]
fn a_damaged_store_is_a_finding_or_an_error_and_never_sound() {
    let folder = Folder::new();
    let url = folder.store("data", 50);
    let file = folder.path("data/checkpoint.redb");
    let mut bytes = std::fs::read(&file).unwrap();
    let places: Vec<usize> = bytes.windows(4).enumerate().filter(|(_, at)| *at == b"t-17").map(|(at, _)| at).collect();
    assert!(!places.is_empty(), "the task's name is in the file");
    for at in places {
        bytes[at + 3] = b'X';
    }
    std::fs::write(&file, bytes).unwrap();
    let checked = store(&["check", "--full", &url]);
    assert_eq!(checked.status.code(), Some(1), "{}", text(&checked.stderr));
    let told = format!("{}{}", text(&checked.stdout), text(&checked.stderr));
    assert!(told.contains("STORE_DAMAGED"), "{told}");
}

#[test]
fn no_command_but_import_makes_a_store() {
    let folder = Folder::new();
    let url = folder.url("none");
    for arguments in [vec!["export", &url], vec!["check", &url], vec!["compact", &url], vec!["backup", &url, "/tmp/x"]]
    {
        expect(&store(&arguments), 1, "STORE_NOT_FOUND: No store there");
    }
    assert!(!std::fs::exists(folder.path("none")).unwrap());
}

#[test]
fn commands_that_cannot_be_meant_have_exit_code_2() {
    expect(&store(&["check", "redis://localhost"]), 2, "URL_INVALID");
    expect(&store(&["compact", "memory:"]), 2, "STORE_CANNOT");
    expect(&store(&["check"]), 2, "<URL>");
    expect(&store(&["exprot", "memory:"]), 2, "'export'");
}

#[test]
fn a_reader_that_has_seen_enough_ends_an_export_quietly() {
    let folder = Folder::new();
    let url = folder.store("data", 500);
    let mut child = command(&["store", "export", &url]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(1), ""), "the export is not whole");
}

#[test]
fn on_a_terminal_long_work_shows_how_far_it_is_and_leaves_nothing_behind() {
    let folder = Folder::new();
    let (url, file) = (folder.store("data", 500), folder.path("all.jsonl"));
    let mut terminal = Terminal::run(command(&["store", "export", &url, &file]), 80);
    assert_eq!(terminal.wait().code(), Some(0));
    assert!(terminal.written.contains("exporting"), "{:?}", terminal.written);
    let screen = terminal.screen().join("\n");
    assert_eq!(screen.trim(), "Exported records: 1000 (tasks: 1000), namespaces: 2.", "{screen:?}");

    let mut plain = command(&["store", "import", &folder.url("to"), &file]);
    plain.env("NO_COLOR", "1");
    let mut terminal = Terminal::run(plain, 80);
    assert_eq!(terminal.wait().code(), Some(0));
    assert!(!terminal.written.contains('\x1b'), "{:?}", terminal.written);
}
