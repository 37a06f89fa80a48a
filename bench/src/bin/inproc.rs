//! Ekiden inside one process, on the memory store: tasks a second, time until a handler starts, and what a claim costs in
//! a long line. `bench/README.md` says what each figure means.

use std::process::ExitCode;
use std::time::Duration;

use ekiden_bench::arguments::{Arguments, USAGE};
use ekiden_bench::ours::Backlog;
use ekiden_bench::report::{Figure, Report};
use ekiden_bench::sample::{interleave, median, micros, nanos, percentile};
use ekiden_bench::{Outcome, ours, peers};

const APALIS_ONE: &str = "apalis memory, one worker";
const APALIS_EACH: &str = "apalis memory, worker each";
const MPSC: &str = "tokio mpsc";

/// 16 tasks a claim: what a runner with 16 free slots asks for.
const CLAIM_LIMIT: usize = 16;

/// 100 tasks a second: a machine that is awake but not busy, so that waking up is part of the wait.
const PACE: Duration = Duration::from_millis(10);

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
const QUICK: Effort = Effort { rounds: 3, tasks: 50_000, paced: 150, claims: 500 };

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args_os().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    if arguments.help {
        println!("inproc {USAGE}");
        return ExitCode::SUCCESS;
    }
    match run(&arguments) {
        Ok(missed) if missed && arguments.strict => ExitCode::FAILURE,
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures, prints, writes; says whether a bar was missed.
fn run(arguments: &Arguments) -> Outcome<bool> {
    let effort = if arguments.quick { QUICK } else { FULL };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
    let figures = runtime.block_on(measure(&effort))?;
    let report = Report::new(arguments.quick, figures);
    print!("{}", report.table());
    if let Some(file) = &arguments.json {
        report.write(file)?;
    }
    Ok(report.missed().next().is_some())
}

async fn measure(effort: &Effort) -> Outcome<Vec<Figure>> {
    let mut figures = Vec::new();
    figures.extend(lifecycle_1x1(effort).await?);
    figures.extend(lifecycle_16x16(effort).await?);
    figures.extend(start(effort).await?);
    figures.extend(claim(effort).await?);
    Ok(figures)
}

#[derive(Clone, Copy)]
enum Contender {
    Ours,
    Mpsc,
    /// One worker for all consumers.
    ApalisOne,
    /// A worker for each consumer.
    ApalisEach,
}

async fn lifecycle_1x1(effort: &Effort) -> Outcome<[Figure; 2]> {
    // With a single consumer both shapes of apalis are the same.
    let contenders = [Contender::Ours, Contender::Mpsc, Contender::ApalisOne];
    let [ours, mpsc, apalis] = lifecycle(effort, 1, contenders).await?;
    Ok([
        Figure::new("lifecycle.1x1", ours, "tasks/s").beside(APALIS_ONE, apalis),
        Figure::new("ceiling.1x1", ours, "tasks/s").beside(MPSC, mpsc),
    ])
}

async fn lifecycle_16x16(effort: &Effort) -> Outcome<[Figure; 3]> {
    let contenders = [Contender::Ours, Contender::Mpsc, Contender::ApalisOne, Contender::ApalisEach];
    let [ours, mpsc, one, each] = lifecycle(effort, 16, contenders).await?;
    let (name, best) = if each > one { (APALIS_EACH, each) } else { (APALIS_ONE, one) };
    Ok([
        Figure::new("lifecycle.16x16", ours, "tasks/s").beside(name, best).held_to("≥ 0.25", ours >= 0.25 * best),
        Figure::new("shared.16x16", ours, "tasks/s").beside(APALIS_ONE, one),
        Figure::new("ceiling.16x16", ours, "tasks/s").beside(MPSC, mpsc),
    ])
}

/// Each contender's tasks a second, with so many producers and as many consumers.
async fn lifecycle<const N: usize>(effort: &Effort, width: usize, contenders: [Contender; N]) -> Outcome<[f64; N]> {
    eprintln!("measuring lifecycle.{width}x{width} …");
    let tries = interleave(effort.rounds, &contenders, async |contender| match contender {
        Contender::Ours => ours::lifecycle(width, width, effort.tasks).await,
        Contender::Mpsc => peers::mpsc::lifecycle(width, effort.tasks).await,
        Contender::ApalisOne => peers::apalis::lifecycle(width, 1, effort.tasks).await,
        Contender::ApalisEach => peers::apalis::lifecycle(width, width, effort.tasks).await,
    })
    .await?;
    Ok(medians(&tries))
}

async fn start(effort: &Effort) -> Outcome<[Figure; 2]> {
    eprintln!("measuring start.p50, start.p99 …");
    let contenders = [Contender::Ours, Contender::Mpsc];
    let tries = interleave(effort.rounds, &contenders, async |contender| {
        Ok(micros(&match contender {
            Contender::Ours => ours::start_latencies(effort.paced, PACE).await?,
            _ => peers::mpsc::start_latencies(effort.paced, PACE).await?,
        }))
    })
    .await?;
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

async fn claim(effort: &Effort) -> Outcome<[Figure; 2]> {
    eprintln!("measuring claim.1k, claim.1m …");
    let mut backlogs = [Backlog::of(1_000).await?, Backlog::of(1_000_000).await?];
    let tries = interleave(effort.rounds, &[0, 1], async |at| match backlogs.get_mut(at) {
        Some(backlog) => Ok(median(&nanos(&backlog.claim_times(effort.claims, CLAIM_LIMIT).await?))),
        None => Err("there are two backlogs".into()),
    })
    .await?;
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
