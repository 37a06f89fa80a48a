//! Ekiden on the local store, every answer synced: lives a second beside a raw log that writes the same batches, what a
//! million waiting tasks cost in memory, at a claim and at a reopen after a kill. `bench/README.md` says what each figure means.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Instant;

use ekiden_bench::Outcome;
use ekiden_bench::arguments::{Arguments, USAGE};
use ekiden_bench::machine::Machine;
use ekiden_bench::ours::{Backlog, lives_a_second};
use ekiden_bench::raw::{self, NotingDisk};
use ekiden_bench::report::{Figure, Report};
use ekiden_bench::sample::{interleave, median, nanos};
use ekiden_store::Store;
use ekiden_store_local::{LocalStore, Options};

const RAW: &str = "raw log, same batches";

/// 16 tasks a claim: what a runner with 16 free slots asks for.
const CLAIM_LIMIT: usize = 16;

/// 256 tasks a call: filling is not what is measured.
const FILL_AT_ONCE: usize = 256;

/// 250,000 ended tasks between two looks at how far it is.
const PREPARE_AT_ONCE: usize = 250_000;

/// The payload of every task, which is not in memory but is taken off all the same.
const PAYLOAD_BYTES: f64 = 100.0;

/// What `--help` prints behind the flags of every benchmark.
const PREPARED: &str = "
  --prepare FOLDER   only carry the ended tasks of a long run through their lives, in a folder that stays; repeat it to go on
  --prepared FOLDER  a long run with what is in that folder, which it uses up";

/// How much is measured.
struct Effort {
    /// Rounds that count, odd so that the median is one of them.
    rounds: usize,
    /// Lives with 64 callers, and with one.
    lives: [usize; 2],
    /// Tasks that wait.
    waiting: usize,
    /// Tasks that ended before, in a second store with as many waiting ones.
    ended: usize,
    /// Claims of a try.
    claims: usize,
}

const FULL: Effort = Effort { rounds: 5, lives: [100_000, 2_000], waiting: 1_000_000, ended: 0, claims: 500 };
const QUICK: Effort = Effort { rounds: 1, lives: [20_000, 500], waiting: 50_000, ended: 0, claims: 100 };
const LONG: Effort = Effort { ended: 10_000_000, ..FULL };

fn main() -> ExitCode {
    let flags: Vec<_> = std::env::args_os().skip(1).collect();
    let outcome = match flags.as_slice() {
        [mode, folder, rest @ ..] if mode == "--fill" => fill(Path::new(folder), rest).map(|()| ExitCode::SUCCESS),
        [mode, folder, rest @ ..] if mode == "--open" => open(Path::new(folder), rest).map(|()| ExitCode::SUCCESS),
        [mode, folder] if mode == "--prepare" => prepare(Path::new(folder), LONG.ended).map(|()| ExitCode::SUCCESS),
        [mode, folder, rest @ ..] if mode == "--prepared" => match Arguments::parse(rest.iter().cloned()) {
            Ok(arguments) => run(&Arguments { long: true, ..arguments }, Some(Path::new(folder))),
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::from(2);
            }
        },
        _ => match Arguments::parse(flags) {
            Ok(arguments) => run(&arguments, None),
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::from(2);
            }
        },
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

fn runtime() -> Outcome<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_time().build()?)
}

/// Measures, prints, writes.
fn run(arguments: &Arguments, prepared: Option<&Path>) -> Outcome<ExitCode> {
    if arguments.help {
        println!("local {USAGE}{PREPARED}");
        return Ok(ExitCode::SUCCESS);
    }
    let effort = match (arguments.quick, arguments.long) {
        (true, _) => QUICK,
        (false, true) => LONG,
        (false, false) => FULL,
    };
    let machine = Machine::here();
    let mut figures = Vec::new();
    figures.extend(lives(&effort)?);
    figures.extend(many(&effort, prepared)?);
    let report = Report::new(machine, arguments.quick, figures);
    print!("{}", report.table());
    if let Some(file) = &arguments.json {
        report.write(file)?;
    }
    let failed = arguments.strict && report.missed().next().is_some();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A folder for one try, on the disk that the repository is on: what is in memory cannot be synced.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Outcome<Self> {
        let path = std::env::current_exe()?.with_file_name(format!("bench-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn lives(effort: &Effort) -> Outcome<[Figure; 3]> {
    let [mut many, mut many_raw, mut one, mut one_raw, mut shared] = [const { Vec::new() }; 5];
    for _ in 0..effort.rounds {
        let [with_64, with_1] = effort.lives;
        let (ours, raw, syncs) = one_try(64, with_64)?;
        many.push(ours);
        many_raw.push(raw);
        shared.push(syncs);
        let (ours, raw, _) = one_try(1, with_1)?;
        one.push(1e6 / ours);
        one_raw.push(1e6 / raw);
    }
    let (many, many_raw, one, one_raw) = (median(&many), median(&many_raw), median(&one), median(&one_raw));
    Ok([
        Figure::new("lifecycle.64", many, "tasks/s").beside(RAW, many_raw).held_to("≥ 0.25", many >= 0.25 * many_raw),
        Figure::new("lifecycle.1", one, "µs").beside(RAW, one_raw).held_to("≤ 2.5", one <= 2.5 * one_raw),
        Figure::new("syncs.64", median(&shared), "lives a sync"),
    ])
}

/// Lives a second with so many callers, those that the raw log reaches with the same batches, and lives a sync.
fn one_try(callers: usize, tasks: usize) -> Outcome<(f64, f64, f64)> {
    eprintln!("measuring lifecycle.{callers} …");
    let folder = Folder::new("lives")?;
    let disk = Arc::new(NotingDisk::default());
    let options = Options { disk: disk.clone(), ..Options::default() };
    let store: Arc<dyn Store> = Arc::new(LocalStore::open(&folder.0.join("data"), options)?);
    let runtime = runtime()?;
    // Threads and memory are there when it begins.
    runtime.block_on(lives_a_second(store.clone(), callers, tasks / 10))?;
    disk.take();
    let ours = runtime.block_on(lives_a_second(store.clone(), callers, tasks))?;
    let batches = disk.take();
    runtime.block_on(store.close())?;
    let raw = raw::replay(&folder.0, &batches)?;
    #[expect(clippy::cast_precision_loss, reason = "a count of tasks is far below 2^52")]
    Ok((ours, tasks as f64 / raw.as_secs_f64(), tasks as f64 / batches.len() as f64))
}

/// What a number of waiting tasks costs.
struct Cost {
    /// Bytes of memory a task.
    memory: f64,
    /// Seconds to open after a kill.
    reopen: f64,
    /// Nanoseconds a claim, the median.
    claim: f64,
}

impl Cost {
    fn figures(&self, claim_1k: f64) -> [Figure; 4] {
        let Self { memory, reopen, claim } = *self;
        [
            Figure::new("memory.task", memory, "bytes").held_to("≤ 400", memory <= 400.0),
            Figure::new("reopen.1m", reopen, "s").held_to("≤ 3", reopen <= 3.0),
            Figure::new("claim.1k", claim_1k, "ns"),
            Figure::new("claim.1m", claim, "ns").held_to("≤ 1.3 × claim.1k", claim <= 1.3 * claim_1k),
        ]
    }

    /// The same beside a store without ended tasks: none may be worse by more than a third.
    fn figures_beside(&self, plain: &Self) -> [Figure; 3] {
        let figure = |id, ours: f64, unit, theirs: f64| {
            Figure::new(id, ours, unit).beside(WITHOUT_ENDED, theirs).held_to("≤ 1.33", ours <= theirs * 4.0 / 3.0)
        };
        [
            figure("memory.task.10m_ended", self.memory, "bytes", plain.memory),
            figure("reopen.1m.10m_ended", self.reopen, "s", plain.reopen),
            figure("claim.1m.10m_ended", self.claim, "ns", plain.claim),
        ]
    }
}

const WITHOUT_ENDED: &str = "the same without ended tasks";

/// The cost of many waiting tasks, beside a thousand; in a long run once more behind ended tasks. Those are carried through
/// their lives by a process that ends, so that what it leaves in memory is in no figure.
fn many(effort: &Effort, prepared: Option<&Path>) -> Outcome<Vec<Figure>> {
    let (thousand, million) = (Folder::new("thousand")?, Folder::new("million")?);
    let mut folders = vec![(thousand.0.as_path(), 1_000), (million.0.as_path(), effort.waiting)];
    let ended = if effort.ended > 0 && prepared.is_none() { Some(Folder::new("ended")?) } else { None };
    if let Some(folder) = &ended {
        prepare(&folder.0, effort.ended)?;
    }
    let behind = prepared.filter(|_| effort.ended > 0).or(ended.as_ref().map(|folder| folder.0.as_path()));
    folders.extend(behind.map(|folder| (folder, effort.waiting)));
    let costs = costs(&folders, effort)?;
    let mut figures = Vec::new();
    if let [thousand, million, ..] = costs.as_slice() {
        figures.extend(million.figures(thousand.claim));
    }
    if let [_, million, ended] = costs.as_slice() {
        figures.extend(ended.figures_beside(million));
    }
    Ok(figures)
}

/// Fills stores, each in a process of its own, kills those, and opens the stores in others, which claim. A claim waits for a sync, and
/// how long one takes changes with the hour: so all stores are opened and claimed from in turns.
fn costs(folders: &[(&Path, usize)], effort: &Effort) -> Outcome<Vec<Cost>> {
    let mut memory = Vec::new();
    for (folder, waiting) in folders {
        eprintln!("filling a store with {waiting} waiting tasks …");
        let (mut child, lines) = start("--fill", folder, &[*waiting])?;
        child.kill()?;
        child.wait()?;
        let [bytes] = numbers(&lines)?;
        memory.push(bytes - PAYLOAD_BYTES);
    }
    let mut reopened = vec![None; folders.len()];
    let turns: Vec<usize> = (0..folders.len()).collect();
    let claims = interleave(effort.rounds, &turns, |at| {
        let (folder, waiting) = folders.get(at).ok_or("every turn has its folder")?;
        eprintln!("measuring with {waiting} waiting tasks …");
        let (mut child, lines) = start("--open", folder, &[effort.claims])?;
        child.wait()?;
        let [reopen, claim] = numbers(&lines)?;
        // Only the first opens what a kill left behind.
        reopened.get_mut(at).ok_or("every turn has its folder")?.get_or_insert(reopen);
        Ok(claim)
    })?;
    let reopened = reopened.into_iter().map(Option::unwrap_or_default);
    let costs = memory.into_iter().zip(reopened).zip(&claims);
    Ok(costs.map(|((memory, reopen), claims)| Cost { memory, reopen, claim: median(claims) }).collect())
}

/// Carries tasks through their lives until so many have ended.
fn prepare(folder: &Path, ended: usize) -> Outcome<()> {
    let store = Arc::new(LocalStore::open(&folder.join("data"), Options::default())?);
    let runtime = runtime()?;
    let mut backlog = Backlog::on(store.clone())?;
    let start = Instant::now();
    loop {
        let there = runtime.block_on(backlog.ended())?;
        eprintln!("{there} of {ended} tasks have ended, {:.0} s", start.elapsed().as_secs_f64());
        if there >= ended {
            break;
        }
        runtime.block_on(backlog.finish((ended - there).min(PREPARE_AT_ONCE), FILL_AT_ONCE))?;
    }
    Ok(runtime.block_on(store.close())?)
}

/// Starts this program once more, and reads the line that it prints when it is done.
fn start(mode: &str, folder: &Path, numbers: &[usize]) -> Outcome<(Child, String)> {
    let mut program = Command::new(std::env::current_exe()?);
    program.arg(mode).arg(folder).args(numbers.iter().map(usize::to_string));
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("the child has an output")?).read_line(&mut line)?;
    Ok((child, line))
}

fn numbers<const N: usize>(line: &str) -> Outcome<[f64; N]> {
    let numbers: Vec<f64> =
        serde_json::from_str(line).map_err(|error| format!("the child printed {line:?}: {error}"))?;
    numbers.try_into().map_err(|_| format!("the child printed {line:?}").into())
}

fn number(from: &[OsString], at: usize) -> Outcome<usize> {
    Ok(from.get(at).and_then(|text| text.to_str()).ok_or("a number is missing")?.parse()?)
}

/// Fills a store, says what a waiting task takes of memory, and waits to be killed.
fn fill(folder: &Path, rest: &[OsString]) -> Outcome<()> {
    let waiting = number(rest, 0)?;
    let store = Arc::new(LocalStore::open(&folder.join("data"), Options::default())?);
    let runtime = runtime()?;
    let mut backlog = Backlog::on(store)?;
    let before = resident_bytes()?;
    runtime.block_on(backlog.add(waiting, FILL_AT_ONCE))?;
    // The checkpoint follows within some hundred milliseconds, and lets memory go.
    std::thread::sleep(std::time::Duration::from_secs(3));
    #[expect(clippy::cast_precision_loss, reason = "bytes of memory are far below 2^52")]
    let bytes = resident_bytes()?.saturating_sub(before) as f64 / waiting as f64;
    println!("[{bytes}]");
    std::io::stdout().flush()?;
    // Until somebody kills this process.
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// Opens a store and claims from it.
fn open(folder: &Path, rest: &[OsString]) -> Outcome<()> {
    let claims = number(rest, 0)?;
    let start = Instant::now();
    let store = Arc::new(LocalStore::open(&folder.join("data"), Options::default())?);
    let opened = start.elapsed().as_secs_f64();
    let times = runtime()?.block_on(Backlog::on(store)?.claim_times(claims, CLAIM_LIMIT))?;
    println!("{}", serde_json::to_string(&[opened, median(&nanos(&times))])?);
    Ok(())
}

/// What of this process is in memory.
fn resident_bytes() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("the kernel tells what is resident")?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes * 1_024)
}
