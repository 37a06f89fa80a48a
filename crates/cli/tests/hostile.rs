//! Commands that turn against their runner: they leave traps in the place of files, read what is not theirs, stop and kill
//! their supervisor. Real processes, the real binary, and never as root where another user can be had.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod commanding;
mod running;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use commanding::{Post, in_time, start, until};
use ekiden::core::{Outcome, ReasonCode, Stage, TaskId};
use ekiden::{Client, Ekiden, TaskRecord, TaskState};
use ekiden_testkit::rig::{self, Missing, trees};
use running::Running;
use rustix::process::Signal;
use serde_json::json;

/// The user `nobody`, whom these tests become where they are root: root may read and kill everything.
const NOBODY: u32 = 65534;

/// A server of the real binary over memory, and room for workers that may run as another user.
struct Site {
    server: Option<Running>,
    url: String,
    client: Client,
    folder: tempfile::TempDir,
}

impl Site {
    async fn open() -> Self {
        let mut server = Running::start(&["serve", "--listen", "127.0.0.1:0", "--url", "memory:"]);
        server.wait_for("stop:");
        let at = server.seen.find("http://").unwrap();
        let url = server.seen.get(at..).unwrap().split_whitespace().next().unwrap().to_owned();
        let client = Ekiden::connect(&url, None).await.unwrap().namespace("default").unwrap();
        let folder = tempfile::tempdir().unwrap();
        if is_root() {
            chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        // Where the binary was built another user may not look. Another process copies it: what this one has open to write
        // while a test beside this one forks could not be started.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_ekiden")).arg(folder.path().join("program")).status();
        assert!(copied.unwrap().success());
        Self { server: Some(server), url, client, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `ekiden work` for tasks of type `c`, as `nobody` where these tests are root, with a line for a shell.
    fn worker(&self, line: &str) -> Command {
        let mut worker = self.worker_behind(&[], line);
        if is_root() {
            worker.uid(NOBODY).gid(NOBODY);
        }
        worker
    }

    /// The same as an argument of another program, which starts it, as whatever user it likes.
    fn worker_behind(&self, launcher: &[&str], line: &str) -> Command {
        let program = self.path("program");
        let own = [program.to_str().unwrap(), "work", "--url", &self.url, "--kind", "c", "--concurrency", "2"];
        let words = [launcher, &own, &["--shell", "--exec", line]].concat();
        let mut worker = running::program(words[0], &words[1..]);
        worker.current_dir(self.folder.path());
        for folder in ["TMPDIR", "HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"] {
            worker.env(folder, self.folder.path());
        }
        worker
    }

    fn start(&self, line: &str) -> Running {
        let mut worker = Running::spawn(&mut self.worker(line));
        worker.wait_for("Working for");
        worker
    }

    /// Where workers have the folders of their attempts.
    fn root(&self) -> PathBuf {
        let uid = if is_root() { NOBODY } else { rustix::process::geteuid().as_raw() };
        self.path(&format!("ekiden-{uid}"))
    }

    async fn add(&self, prompt: &str) -> TaskId {
        self.client.enqueue_json("c", &json!({ "prompt": prompt })).max_attempts(1).await.unwrap().id
    }

    /// Adds a task that begins when those before it in its lane have ended.
    async fn add_to(&self, lane: &str, prompt: &str) -> TaskId {
        let task = self.client.enqueue_json("c", &json!({ "prompt": prompt })).serial_key(lane);
        task.max_attempts(1).await.unwrap().id
    }

    async fn ended(&self, id: &TaskId) -> TaskRecord {
        until(&self.client, id, |record| record.state.is_final() && record.recent[0].outcome.is_some()).await
    }

    fn close(mut self) {
        end(self.server.take().unwrap());
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn end(running: Running) -> String {
    running::send(Signal::TERM, &running.child);
    let (status, log, _) = running.end();
    assert!(status.success(), "{log}");
    log
}

/// X2: whatever a command leaves in the place of its result, its attempt fails and says what was there; the runner, with
/// one place for attempts and one thread, goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_a_command_leaves_in_the_place_of_its_result_freezes_nobody() {
    let traps = [
        (r#"mkfifo "$EKIDEN_RESULT""#, "a FIFO"),
        (r#"ln -s /dev/zero "$EKIDEN_RESULT""#, "a symbolic link"),
        (r#"ln -s /etc/passwd "$EKIDEN_RESULT""#, "a symbolic link"),
        (r#"mkdir "$EKIDEN_RESULT""#, "a folder"),
        (r#"d="${EKIDEN_RESULT%/result}"; mv "$d" "$d-away"; mkfifo "$d""#, "a FIFO"),
        (
            r#"d="${EKIDEN_RESULT%/result}"; mv "$d" "$d-away"; ln -s "$d-away" "$d"; echo 1 > "$EKIDEN_RESULT""#,
            "a symbolic link",
        ),
        (r#"rm "$EKIDEN_EVENTS"; mkfifo "$EKIDEN_EVENTS" "$EKIDEN_RESULT""#, "a FIFO"),
    ];
    for (trap, found) in traps {
        let post = Post::new();
        let line = format!("if [ \"$EKIDEN_PROMPT\" = trap ]; then {trap}; else echo 7 > \"$EKIDEN_RESULT\"; fi");
        let runner = start(post.runner(post.shell(&line)).concurrency(1));
        let add = async |prompt| {
            post.client.enqueue_json("c", &json!({ "prompt": prompt })).max_attempts(1).await.unwrap().id
        };
        let (trapped, next) = (add("trap").await, add("good").await);
        let trapped = in_time(post.client.wait(&trapped)).await.unwrap();
        let error = trapped.last_error.as_deref().unwrap_or_default();
        assert_eq!((trapped.state, trapped.recent[0].outcome), (TaskState::Dead, Some(Outcome::Failed)), "{trap}");
        assert!(error.starts_with("FILE_UNSAFE") && error.contains(found), "{trap}: {error}");
        let next = in_time(post.client.wait(&next)).await.unwrap();
        assert_eq!((next.state, next.result.as_deref()), (TaskState::Succeeded, Some(&b"7\n"[..])), "{trap}");
        runner.end().await;
    }
}

/// X1: a FIFO or a link in the place of a log's file holds up neither who writes it nor who reads it.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_trap_in_the_place_of_a_log_is_refused() {
    use ekiden::{AttemptRef, Logs as _};
    let post = Post::new();
    let record = post.run(post.shell("echo one"), json!(null)).await;
    let attempt = AttemptRef { task: post.client.task(&record.id), execution_no: 1 };
    let file = found(&post.folder.path().join("logs"), ".log");
    fs::remove_file(&file).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let appended = in_time(post.logs.append(attempt.clone(), 0, b"two"[..].into())).await.unwrap_err();
    assert_eq!((appended.code(), appended.refusal().context["found"].as_str()), (ReasonCode::FileUnsafe, "a FIFO"));
    let target = post.folder.path().join("target");
    fs::write(&target, "a secret").unwrap();
    fs::remove_file(&file).unwrap();
    symlink(&target, &file).unwrap();
    let read = in_time(post.logs.read(attempt, 0, 100)).await.unwrap_err();
    assert_eq!((read.code(), read.refusal().context["found"].as_str()), (ReasonCode::FileUnsafe, "a symbolic link"));
}

/// The only file below a folder whose name ends so.
fn found(folder: &Path, ends: &str) -> PathBuf {
    let mut next = vec![folder.to_owned()];
    while let Some(path) = next.pop() {
        if path.is_dir() {
            next.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.to_string_lossy().ends_with(ends) {
            return path;
        }
    }
    panic!("no {ends} below {}", folder.display());
}

/// X6: a FIFO in the place of settings, of the file that says where a server is, or of tokens, is told and not waited for.
#[test]
fn a_fifo_in_the_place_of_a_file_of_settings_is_told() {
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let fifo = |path: &Path| {
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    };
    let folder = tempfile::tempdir().unwrap();
    fifo(&folder.path().join("ekiden.toml"));
    let refused = running::command(&["config", "show"]).current_dir(folder.path()).output().unwrap();
    let said = running::text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("CONFIG_INVALID") && said.contains("a FIFO"), "{said}");

    let folder = tempfile::tempdir().unwrap();
    let here = |arguments: &[&str]| running::command(arguments).current_dir(folder.path()).output().unwrap();
    let data = folder.path().join("ekiden-data");
    assert!(here(&["store", "init", "local:./ekiden-data"]).status.success());
    fifo(&data.join("endpoint.json"));
    let listed = here(&["task", "list"]);
    assert!(listed.status.success(), "{}", running::text(&listed.stderr));
    fifo(&data.join("tokens.json"));
    let refused = here(&["token", "list"]);
    let said = running::text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("FILE_UNSAFE") && said.contains("a FIFO"), "{said}");
}

/// X6: a command of the same user finds the runner's token in no environment and on no command line, and can open neither
/// memory, environment nor open files of its runner and its supervisor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_cannot_read_the_secrets_of_its_runner() {
    let site = Site::open().await;
    let line = r#"
        runner=$(cut -d' ' -f4 /proc/$PPID/stat)
        echo "looked at $runner as $(id -u)" > "$EKIDEN_RESULT"
        for pid in $runner $PPID; do
            for name in environ mem maps auxv fd; do
                case $name in fd) look=ls;; *) look='head -c 1';; esac
                if $look /proc/$pid/$name > /dev/null 2> why || ! grep -q 'Permission denied' why; then
                    echo "opened $name" >> "$EKIDEN_RESULT"
                fi
            done
        done
        grep -l -s -a "$MARK-in-th[e]-environment" /proc/[0-9]*/environ /proc/[0-9]*/cmdline >> "$EKIDEN_RESULT"
        env | grep -e ^EKIDEN_TOKEN= -e ^AWS_ >> "$EKIDEN_RESULT"
        :"#;
    let mark = format!("secret-{}", std::process::id());
    let secret = format!("{mark}-in-the-environment");
    let mut worker = site.worker(&format!("MARK={mark}{line}"));
    worker.env("EKIDEN_TOKEN", &secret).env("AWS_SECRET_ACCESS_KEY", &secret).env("AWS_SESSION_TOKEN", &secret);
    let mut worker = Running::spawn(&mut worker);
    worker.wait_for("Working for");
    let id = site.add("").await;
    let record = site.ended(&id).await;
    let result = record.result.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
    let uid = if is_root() { NOBODY } else { rustix::process::geteuid().as_raw() };
    assert_eq!(result, format!("looked at {} as {uid}\n", worker.child.id()), "{:?}", record.last_error);
    end(worker);
    site.close();
}

/// X6: a command has the three standard streams and no other open file, whatever its runner has open or was started with.
#[test]
fn a_command_gets_no_open_file_but_its_three_streams() {
    let folder = tempfile::tempdir().unwrap();
    let line = "exec ls -l /proc/self/fd > fds";
    // A shell that starts it with open files of its own, as service managers and builds do.
    let shell = r#"exec 3< /etc/passwd 7> leaked 9<&0; exec "$0" run --url local:./data -- sh -c "$1""#;
    let arguments = ["-c", shell, env!("CARGO_BIN_EXE_ekiden"), line];
    let output = running::program("sh", &arguments).current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", running::text(&output.stderr));
    let fds = fs::read_to_string(folder.path().join("fds")).unwrap();
    // `ls` itself has the folder open.
    let open = fds.lines().filter_map(|line| line.split_once(" -> ")).filter(|(_, file)| !file.starts_with("/proc/"));
    let given: Vec<&str> = open.filter_map(|(line, _)| line.rsplit(' ').next()).collect();
    assert_eq!(given, ["0", "1", "2"], "{fds}");
}

/// What a command does to its supervisor `$S`. `MARK` is a number that its processes have on their command lines, and that
/// no other process has.
const ATTACKS: [(&str, &str); 11] = [
    ("stops", "kill -STOP $S; GROWN; trap '' TERM; sleep 600.MARK"),
    ("stops-always", "(trap '' TERM; while :; do kill -STOP $S; done) & GROWN; sleep 600.MARK"),
    (
        "stops-and-forks",
        "storm() { while :; do (setsid sleep 0.02 & kill -STOP $S &); done; }; storm & storm & GROWN; wait; sleep 600.MARK",
    ),
    // Its first thread ends, another goes on.
    (
        "is-a-zombie-with-a-thread",
        r#"trap '' TERM; exec python3 -c 'import ctypes, os, threading, time
def go_on():
    while open("/proc/self/stat").read().rpartition(")")[2].split()[0] != "Z": pass
    os.write(os.open(os.environ["EKIDEN_EVENTS"], os.O_WRONLY), b"{\"type\":\"progress\",\"done\":1}\n")
    time.sleep(600.MARK)
threading.Thread(target=go_on).start()
ctypes.CDLL(None).pthread_exit(None)'"#,
    ),
    // The kernel cuts its name inside a character.
    (
        "has-a-name-of-half-characters",
        "printf aaバックアップ > /proc/self/comm; trap '' TERM; mkfifo never; GROWN; read -r x <> never; : MARK",
    ),
    // Its supervisor can open nothing any more, so it does not see what it should kill.
    ("lowers-a-limit", "prlimit --pid $S --nofile=0:0; trap '' TERM; GROWN; sleep 600.MARK"),
    // Where `/proc` hides what a process may not trace, it hides these.
    (
        "is-not-dumpable",
        r#"trap '' TERM; exec python3 -c 'import ctypes, os, time
ctypes.CDLL(None).prctl(4, 0)
os.write(os.open(os.environ["EKIDEN_EVENTS"], os.O_WRONLY), b"{\"type\":\"progress\",\"done\":1}\n")
time.sleep(600.MARK)'"#,
    ),
    (
        "kills-and-is-not-dumpable",
        r#"setsid -f env -i PATH="$PATH" python3 -c 'import ctypes, os, time
ctypes.CDLL(None).prctl(4, 0)
os.mkdir("hidden")
time.sleep(600.MARK)'
until [ -e hidden ]; do sleep 0.02; done; GROWN; kill -KILL $S; sleep 600.MARK"#,
    ),
    ("kills", "sleep 601.MARK & GROWN; kill -KILL $S; sleep 600.MARK"),
    (
        "kills-and-hides",
        "setsid -f env -i sleep 601.MARK; setsid -f env -i sh -c 'sleep 602.MARK; :'; GROWN; kill -KILL $S; sleep 600.MARK",
    ),
    (
        "kills-and-forks",
        "setsid -f env -i sh -c ': MARK; while :; do (sleep 0.03 &); done'; GROWN; kill -KILL $S; sleep 600.MARK",
    ),
];

/// X5: a command that stops its supervisor, once, always, or while it forks, that kills it, or whose processes are hard to
/// see, is killed with everything that it started. Its attempt is verified only then, and the next of its lane begins only
/// then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_stops_or_kills_its_supervisor_is_killed_from_outside() {
    let site = Site::open().await;
    let worker = site.start(ATTACKED);
    attack(&site, &ATTACKS).await;
    end(worker);
    site.close();
}

/// Mounts a `/proc` that hides what a process may not trace, for itself alone, and goes on as `nobody`.
const HIDING: &str = "mount -t proc -o hidepid=2 proc /proc && \
    exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";

/// X5: the same where `/proc` hides the supervisor from its runner, and some of the processes from both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_is_killed_with_its_tree_where_proc_hides_processes() {
    let launcher = ["unshare", "--mount", "sh", "-c", HIDING, "sh"];
    let todo = "run the tests as root, in a container with `--privileged`";
    let Some(launcher) = rig::provide(tried(&launcher, todo)) else { return };
    let site = Site::open().await;
    let mut worker = Running::spawn(&mut site.worker_behind(launcher, ATTACKED));
    worker.wait_for("Working for");
    attack(&site, &ATTACKS).await;
    end(worker);
    site.close();
}

/// Makes the kernel refuse `pidfd_open`, as filters of system calls do in containers, and goes on as `nobody` if it is root.
const REFUSING: &str = r#"
import ctypes, os, struct, sys
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 434), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
filter = ctypes.create_string_buffer(struct.pack("HP", 4, ctypes.addressof(code)))
prctl = lambda *given: ctypes.CDLL(None).prctl(*map(ctypes.c_ulong, given), 0, 0) and sys.exit("prctl failed")
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
prctl(38, 1, 0)
prctl(22, 2, ctypes.addressof(filter))
os.execvp(sys.argv[1], sys.argv[1:])"#;

/// X5: the same where the kernel gives no handles of processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_is_killed_with_its_tree_where_no_handles_of_processes_are_given() {
    let launcher = ["python3", "-c", REFUSING];
    let todo = "run the tests on a kernel with `CONFIG_SECCOMP_FILTER`";
    let Some(launcher) = rig::provide(tried(&launcher, todo)) else { return };
    let site = Site::open().await;
    let mut worker = Running::spawn(&mut site.worker_behind(launcher, ATTACKED));
    worker.wait_for("Working for");
    attack(&site, &ATTACKS).await;
    end(worker);
    site.close();
}

/// X5: what ran beside a worker before it began is not taken for what a killed supervisor left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_a_worker_had_when_it_began_is_left_alone() {
    let site = Site::open().await;
    let beside = format!("700.{}", std::process::id());
    let script = format!("sleep {beside} > /dev/null 2>&1 & exec \"$@\"");
    let mut worker = site.worker_behind(&["sh", "-c", &script, "sh"], ATTACKED);
    if is_root() {
        worker.uid(NOBODY).gid(NOBODY);
    }
    let mut worker = Running::spawn(&mut worker);
    worker.wait_for("Working for");
    let [child] = marked(&beside)[..] else { panic!("the child was started") };
    let kills: Vec<_> = ATTACKS.into_iter().filter(|(name, _)| name.starts_with("kills")).collect();
    attack(&site, &kills).await;
    assert_eq!(marked(&beside), [child]);
    rustix::process::kill_process(rustix::process::Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
    end(worker);
    site.close();
}

/// A launcher, if it can start a program on this machine.
fn tried<'a>(launcher: &'a [&'a str], todo: &'static str) -> Result<&'a [&'a str], Missing> {
    let output = Command::new(launcher[0]).args(&launcher[1..]).arg("true").output();
    let why = match output {
        Ok(output) if output.status.success() => return Ok(launcher),
        Ok(output) => running::text(&output.stderr),
        Err(error) => error.to_string(),
    };
    Err(Missing { what: format!("`{}` failed: {}", launcher[0], why.trim()), todo })
}

/// The worker's line: every task brings its own.
const ATTACKED: &str = r#"exec sh -c "$EKIDEN_PROMPT""#;

/// Runs attacks one after the other. After each nothing of it lives, and the next attempt of its lane overlapped with nothing.
async fn attack(site: &Site, attacks: &[(&str, &str)]) {
    for (at, (name, attack)) in attacks.iter().enumerate() {
        let mark = format!("{}{at}", std::process::id());
        let attack = trees::line(attack).replace("MARK", &mark);
        let first = site.add_to(name, &format!("S=$PPID; {attack}")).await;
        // Its own command lines have the mark in another form.
        let look =
            format!("grep -l -s -a '[{}]{}' /proc/[0-9]*/task/*/cmdline > $EKIDEN_RESULT; :", &mark[..1], &mark[1..]);
        let second = site.add_to(name, &look).await;
        until(&site.client, &first, |record| record.progress.is_some() || record.state.is_final()).await;
        let is_cancelled = !name.starts_with("kills");
        if is_cancelled {
            site.client.cancel(&first).await.unwrap();
        }
        let record = site.ended(&first).await;
        assert_eq!(marked(&mark), Vec::<i32>::new(), "{name}: survivors");
        if is_cancelled {
            let last = &record.recent[0];
            assert_eq!((last.outcome, last.stage), (Some(Outcome::Cancelled), Some(Stage::Verified)), "{name}");
        } else {
            assert_eq!(record.recent[0].outcome, Some(Outcome::Crashed), "{name}");
        }
        let second = site.ended(&second).await;
        assert_eq!((second.state, second.result.as_deref()), (TaskState::Succeeded, None), "{name}: they overlap");
    }
}

/// X5: a supervisor that was stopped is continued, so that its command's end is seen; a command that goes on stopping it is
/// ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_supervisor_is_continued_and_one_that_is_kept_stopped_is_not_waited_for() {
    let post = Post::new();
    let once = post.run(post.shell("kill -STOP $PPID; echo 7 > $EKIDEN_RESULT"), json!(null)).await;
    assert_eq!((once.state, once.result.as_deref()), (TaskState::Succeeded, Some(&b"7\n"[..])));
    let line = "kill -STOP $PPID; while grep -q '^State:.T' /proc/$PPID/status; do :; done; echo 8 > $EKIDEN_RESULT";
    let seen = post.run(post.shell(line), json!(null)).await;
    assert_eq!((seen.state, seen.result.as_deref()), (TaskState::Succeeded, Some(&b"8\n"[..])));
    assert!(post.log(&seen.id, 1).await.contains("was stopped, and continued"));
    let always = post.run(post.shell("while :; do kill -STOP $PPID; done"), json!(null)).await;
    assert_eq!(always.recent[0].outcome, Some(Outcome::Crashed), "{:?}", always.last_error);
    assert!(always.last_error.unwrap().contains("stopped again and again"));
}

/// X5: what a command leaves behind that took its supervisor the means to look is killed from outside.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_supervisor_that_its_command_made_blind_is_helped_from_outside() {
    let post = Post::new();
    let mark = format!("600.{}", std::process::id());
    let line = format!("prlimit --pid $PPID --nofile=0:0; setsid sleep {mark} & echo 7 > $EKIDEN_RESULT");
    let record = post.run(post.shell(&line), json!(null)).await;
    assert_eq!((record.state, record.result.as_deref()), (TaskState::Succeeded, Some(&b"7\n"[..])));
    assert_eq!(marked(&mark), Vec::<i32>::new());
}

/// Living processes with this word on their command line. Where the first thread has ended, the others have it.
fn marked(word: &str) -> Vec<i32> {
    let is_marked = |pid: &i32| {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let mut lines = threads.filter_map(|thread| fs::read(thread.path().join("cmdline")).ok());
        lines.any(|line| line.windows(word.len()).any(|window| window == word.as_bytes()))
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_marked).collect()
}

/// X6, R17: a folder for temporary files that is another user's, that others can change, or that is a link is refused before
/// anything is claimed: the worker does not start, says why, and no attempt is spent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_temporary_folder_of_another_user_is_refused_before_anything_is_claimed() {
    let site = Site::open().await;
    let id = site.add("").await;
    let root = site.root();
    let spoil: [(&str, &dyn Fn()); 4] = [
        ("writable by other users", &|| fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap()),
        ("a symbolic link", &|| {
            fs::remove_dir(&root).unwrap();
            symlink("/tmp", &root).unwrap();
        }),
        ("a file", &|| fs::write(&root, "").unwrap()),
        ("owned by user", &|| {
            if is_root() {
                chown(&root, Some(12_345), None).unwrap();
            } else {
                // Without root no other user can be had: root's own folder stands for one.
                fs::remove_dir(&root).unwrap();
                symlink("/root", &root).unwrap();
            }
        }),
    ];
    for (found, spoil) in spoil {
        let _ = fs::remove_file(&root);
        let _ = fs::remove_dir_all(&root);
        if found != "a file" {
            fs::create_dir(&root).unwrap();
            if is_root() {
                chown(&root, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        spoil();
        let refused = in_time(async { site.worker("true").output().unwrap() }).await;
        let said = running::text(&refused.stderr);
        let found = if is_root() || found != "owned by user" { found } else { "a symbolic link" };
        assert!(!refused.status.success() && said.contains("FOLDER_UNSAFE") && said.contains(found), "{found}: {said}");
        let record = site.client.get_status(&id).await.unwrap();
        assert_eq!((record.state, record.attempts, record.execution_no), (TaskState::Queued, 0, 0), "{found}");
    }
    // Also the command that is a task by itself: nothing of it stays in the queue.
    let mut run = running::program(site.path("program"), &["run", "--url", &site.url, "--", "true"]);
    run.env("TMPDIR", site.folder.path()).current_dir(site.folder.path());
    if is_root() {
        run.uid(NOBODY).gid(NOBODY);
    }
    let said = running::text(&in_time(async { run.output().unwrap() }).await.stderr);
    assert!(said.contains("FOLDER_UNSAFE"), "{said}");
    assert_eq!(site.client.counts_by_state().await.unwrap().by_phase.values().sum::<u64>(), 1);
    site.close();
}

/// X6, R17: a folder that goes bad while a worker runs ends the worker with the reason; the task goes back, and no attempt of
/// it is spent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_temporary_folder_that_goes_bad_costs_no_attempt() {
    let site = Site::open().await;
    let worker = site.start("true");
    let good = site.add("").await;
    assert_eq!(site.ended(&good).await.state, TaskState::Succeeded);
    fs::set_permissions(site.root(), fs::Permissions::from_mode(0o777)).unwrap();
    let id = site.add("").await;
    let (status, log, _) = tokio::task::spawn_blocking(|| worker.end()).await.unwrap();
    assert!(!status.success() && log.contains("FOLDER_UNSAFE") && log.contains("writable by other users"), "{log}");
    let record = site.client.get_status(&id).await.unwrap();
    assert_eq!((record.state, record.attempts, record.outcomes.failed), (TaskState::Queued, 0, 0), "{record:?}");
    // Repaired, it goes on.
    fs::set_permissions(site.root(), fs::Permissions::from_mode(0o700)).unwrap();
    let worker = site.start("true");
    let record = site.ended(&id).await;
    assert_eq!((record.state, record.attempts), (TaskState::Succeeded, 1));
    end(worker);
    site.close();
}

/// X6: where no folder can be made for an attempt, the task waits, and nothing of it is spent.
#[tokio::test]
async fn a_temporary_folder_without_room_costs_no_attempt() {
    let site = Site::open().await;
    // A path so long that there is room for the folder of all attempts, and for none below it.
    let mut long = site.folder.path().to_owned();
    while long.as_os_str().len() < 4_070 {
        let left = 4_070 - long.as_os_str().len();
        long.push("x".repeat(left.saturating_sub(1).clamp(1, 200)));
    }
    fs::create_dir_all(&long).unwrap();
    if is_root() {
        chown(&long, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let mut worker = Running::spawn(site.worker("true").env("TMPDIR", &long));
    worker.wait_for("Working for");
    let id = site.add("").await;
    let record = until(&site.client, &id, |record| record.outcomes.snoozed > 0).await;
    assert_eq!((record.state, record.attempts, record.outcomes.failed), (TaskState::Queued, 0, 0), "{record:?}");
    end(worker);
    let worker = site.start("true");
    let record = site.ended(&id).await;
    assert_eq!((record.state, record.attempts), (TaskState::Succeeded, 1));
    end(worker);
    site.close();
}
