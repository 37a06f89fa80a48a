//! Ekiden inside one process, on the memory store: tasks a second, time until a handler starts, and what a claim costs in
//! a long line. `bench/README.md` says what each figure means.

use std::process::ExitCode;

use ekiden_bench::Outcome;
use ekiden_bench::apart::{Contender, Try, Work};
use ekiden_bench::arguments::{Arguments, USAGE};
use ekiden_bench::machine::Machine;
use ekiden_bench::ours::Backlog;
use ekiden_bench::report::{Figure, Report};
use ekiden_bench::sample::{interleave, median, nanos, percentile};

const APALIS_ONE: &str = "apalis memory, one worker";
const APALIS_EACH: &str = "apalis memory, worker each";
const MPSC: &str = "tokio mpsc";

/// 16 tasks a claim: what a runner with 16 free slots asks for.
const CLAIM_LIMIT: usize = 16;

/// 100 tasks a second: a machine that is awake but not busy, so that waking up is part of the wait.
const PACE_MILLIS: usize = 10;

/// How much is measured.
struct Effort {
    /// Rounds that count, odd so that the median is one of them.
    rounds: usize,
    /// Tasks of a throughput try.
    tasks: usize,
    /// Tasks of a latency try.
    paced: usize,
    /// Claims of a try.
    claims: usize,
}

const FULL: Effort = Effort { rounds: 9, tasks: 200_000, paced: 500, claims: 2_000 };
const QUICK: Effort = Effort { rounds: 3, tasks: 30_000, paced: 100, claims: 300 };

fn main() -> ExitCode {
    let flags: Vec<_> = std::env::args_os().skip(1).collect();
    let outcome = match (Try::asked(&flags), Arguments::parse(flags)) {
        (Some(asked), _) => try_here(asked).map(|()| ExitCode::SUCCESS),
        (None, Ok(arguments)) => run(&arguments),
        (None, Err(error)) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

/// One try, for the process that started this one.
fn try_here(asked: Try) -> Outcome<()> {
    let numbers = runtime()?.block_on(asked.run_here())?;
    println!("{}", serde_json::to_string(&numbers)?);
    Ok(())
}

fn runtime() -> Outcome<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_time().build()?)
}

/// Measures, prints, writes.
fn run(arguments: &Arguments) -> Outcome<ExitCode> {
    if arguments.help {
        println!("inproc {USAGE}");
        return Ok(ExitCode::SUCCESS);
    }
    let effort = if arguments.quick { QUICK } else { FULL };
    let machine = Machine::here();
    let report = Report::new(machine, arguments.quick, measure(&effort)?);
    print!("{}", report.table());
    if let Some(file) = &arguments.json {
        report.write(file)?;
    }
    let failed = arguments.strict && report.missed().next().is_some();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn measure(effort: &Effort) -> Outcome<Vec<Figure>> {
    let mut figures = Vec::new();
    figures.extend(lifecycle_1x1(effort)?);
    figures.extend(lifecycle_16x16(effort)?);
    figures.extend(start(effort)?);
    figures.extend(claim(effort)?);
    Ok(figures)
}

fn lifecycle_1x1(effort: &Effort) -> Outcome<[Figure; 2]> {
    // With a single consumer both shapes of apalis are the same.
    let contenders = [Contender::Ours, Contender::Mpsc, Contender::ApalisOne];
    let [ours, mpsc, apalis] = lifecycle(effort, 1, contenders)?;
    Ok([
        Figure::new("lifecycle.1x1", ours, "tasks/s").beside(APALIS_ONE, apalis),
        Figure::new("ceiling.1x1", ours, "tasks/s").beside(MPSC, mpsc),
    ])
}

fn lifecycle_16x16(effort: &Effort) -> Outcome<[Figure; 3]> {
    let contenders = [Contender::Ours, Contender::Mpsc, Contender::ApalisOne, Contender::ApalisEach];
    let [ours, mpsc, one, each] = lifecycle(effort, 16, contenders)?;
    // One worker is one shared line, as ours is; sixteen lines side by side are shown, but are another thing.
    Ok([
        Figure::new("lifecycle.16x16", ours, "tasks/s").beside(APALIS_ONE, one).held_to("≥ 0.25", ours >= 0.25 * one),
        Figure::new("split.16x16", ours, "tasks/s").beside(APALIS_EACH, each),
        Figure::new("ceiling.16x16", ours, "tasks/s").beside(MPSC, mpsc),
    ])
}

/// Each contender's tasks a second, with so many producers and as many consumers.
fn lifecycle<const N: usize>(effort: &Effort, width: usize, contenders: [Contender; N]) -> Outcome<[f64; N]> {
    eprintln!("measuring lifecycle.{width}x{width} …");
    let work = Work::Lifecycle { width, tasks: effort.tasks };
    let one = |contender| Ok(median(&Try { contender, work }.run_apart()?));
    Ok(medians(&interleave(effort.rounds, &contenders, one)?))
}

fn start(effort: &Effort) -> Outcome<[Figure; 2]> {
    eprintln!("measuring start.p50, start.p99 …");
    let work = Work::Start { tasks: effort.paced, pace_millis: PACE_MILLIS };
    let one = |contender| Try { contender, work }.run_apart();
    let tries = interleave(effort.rounds, &[Contender::Ours, Contender::Mpsc], one)?;
    let at = |percent| {
        let of_round = |round: &Vec<f64>| percentile(round, percent);
        let rounds: Vec<Vec<f64>> = tries.iter().map(|rounds| rounds.iter().map(of_round).collect()).collect();
        medians::<2>(&rounds)
    };
    let ([p50, mpsc_p50], [p99, mpsc_p99]) = (at(50), at(99));
    Ok([
        Figure::new("start.p50", p50, "µs")
            .beside(MPSC, mpsc_p50)
            .held_to("≤ max(5 × mpsc, 50 µs)", p50 <= (5.0 * mpsc_p50).max(50.0)),
        Figure::new("start.p99", p99, "µs").beside(MPSC, mpsc_p99),
    ])
}

/// Both lines live in this process, which measures nothing else.
fn claim(effort: &Effort) -> Outcome<[Figure; 2]> {
    eprintln!("measuring claim.1k, claim.1m …");
    let runtime = runtime()?;
    let mut backlogs = [runtime.block_on(Backlog::of(1_000))?, runtime.block_on(Backlog::of(1_000_000))?];
    let tries = interleave(effort.rounds, &[0, 1], |at| {
        let backlog = backlogs.get_mut(at).ok_or("there are two backlogs")?;
        let times = runtime.block_on(backlog.claim_times(effort.claims, CLAIM_LIMIT))?;
        Ok(median(&nanos(&times)))
    })?;
    let [thousand, million] = medians(&tries);
    Ok([
        Figure::new("claim.1k", thousand, "ns"),
        Figure::new("claim.1m", million, "ns").held_to("≤ 2 × claim.1k", million <= 2.0 * thousand),
    ])
}

/// The median of each contender's tries.
fn medians<const N: usize>(tries: &[Vec<f64>]) -> [f64; N] {
    let mut medians = tries.iter().map(|tries| median(tries));
    std::array::from_fn(|_| medians.next().unwrap_or(0.0))
}
