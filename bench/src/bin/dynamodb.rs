//! Ekiden on the DynamoDB store: what a claim costs while others have queued a hundred thousand items, the units that a life and
//! an idle poll are charged, and lives a second beside the server's own updates. `bench/README.md` says what each figure means.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_bench::Outcome;
use ekiden_bench::arguments::{Arguments, USAGE};
use ekiden_bench::dynamodb::{SERVE, Server, client, fill, serve, updates_a_second};
use ekiden_bench::machine::Machine;
use ekiden_bench::ours::{Steps, lives_a_second};
use ekiden_bench::report::{Figure, Report};
use ekiden_bench::sample::{median, micros};
use ekiden_store_dynamodb::{DynamoStore, Options};

const RAW: &str = "conditional updates of the server";

/// 1,050 ms: somewhat more than the second at which runners poll, so that what is kept for a second is read anew.
const POLL: Duration = Duration::from_millis(1_050);

/// How much is measured.
struct Effort {
    /// Rounds that count, odd so that the median is one of them.
    rounds: usize,
    /// Items that other namespaces have queued.
    foreign: usize,
    /// Claims of a try.
    claims: usize,
    /// Lives with 16 callers.
    lives: usize,
    /// Idle polls.
    polls: u32,
}

const FULL: Effort = Effort { rounds: 5, foreign: 100_000, claims: 400, lives: 2_000, polls: 60 };
const QUICK: Effort = Effort { rounds: 1, foreign: 5_000, claims: 100, lives: 400, polls: 4 };

fn main() -> ExitCode {
    let flags: Vec<_> = std::env::args_os().skip(1).collect();
    let outcome = match flags.as_slice() {
        [mode] if mode == SERVE => serve().map(|()| ExitCode::SUCCESS),
        _ => match Arguments::parse(flags) {
            Ok(arguments) => run(&arguments),
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

/// Measures, prints, writes.
fn run(arguments: &Arguments) -> Outcome<ExitCode> {
    if arguments.help {
        println!("dynamodb {USAGE}");
        return Ok(ExitCode::SUCCESS);
    }
    let effort = if arguments.quick { QUICK } else { FULL };
    let machine = Machine::here();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let figures = runtime.block_on(all(&effort))?;
    let report = Report::new(machine, arguments.quick, figures);
    print!("{}", report.table());
    if let Some(file) = &arguments.json {
        report.write(file)?;
    }
    let failed = arguments.strict && report.missed().next().is_some();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn all(effort: &Effort) -> Outcome<Vec<Figure>> {
    let mut figures = claims(effort).await?;
    figures.extend(units(effort).await?);
    figures.extend(lives(effort).await?);
    Ok(figures)
}

/// A store on tables of its own.
async fn open(server: &Server, prefix: &str) -> Outcome<(Arc<DynamoStore>, String)> {
    let options = Options { endpoint: server.endpoint.clone(), table_prefix: prefix.to_owned(), ..Options::default() };
    Ok((Arc::new(DynamoStore::open(options).await?), format!("{prefix}pm-runner-queue")))
}

/// How long claims of one task took, and the read units that each was charged; the median of both. Another store hands the tasks in,
/// as another process would: what a process wrote itself it need not look for.
async fn claim_cost(stores: &[Arc<DynamoStore>; 2], (pool, kind): (&str, &str), claims: usize) -> Outcome<(f64, f64)> {
    let [elsewhere, store] = stores;
    let mut producer = Steps::of(elsewhere.clone(), pool, kind)?;
    let mut steps = Steps::of(store.clone(), pool, kind)?;
    // A line that another process enters is known within a second.
    producer.enqueue().await?;
    let first = loop {
        match steps.claim().await? {
            Some(claimed) => break claimed,
            None => tokio::time::sleep(POLL / 10).await,
        }
    };
    steps.complete(first).await?;
    let (mut times, mut units) = (Vec::new(), Vec::new());
    for _ in 0..claims {
        producer.enqueue().await?;
        let (start, before) = (Instant::now(), store.units().read);
        let claimed = steps.claim().await?.ok_or("a claim found nothing although a task waits")?;
        times.push(start.elapsed());
        units.push(store.units().read - before);
        steps.complete(claimed).await?;
    }
    Ok((median(&micros(&times)), median(&units)))
}

/// Claims on an empty table and beside what others have queued take turns, so that noise hits both alike. Claims of tasks that
/// other programs cannot have queued do not look for such; the ones of the default pool do, and are printed apart.
async fn claims(effort: &Effort) -> Outcome<Vec<Figure>> {
    let server = Server::start()?;
    let [(empty, _), (empty_beside, _)] = [open(&server, "empty-").await?, open(&server, "empty-").await?];
    let [(full, table), (full_beside, _)] = [open(&server, "full-").await?, open(&server, "full-").await?];
    let stores = [[empty_beside, empty], [full_beside, full]];
    eprintln!("queueing {} items of others …", effort.foreign);
    fill(&client(&server.endpoint), &table, effort.foreign, 8).await?;
    let names = [("bench", "no-op"), ("default", "prompt")];
    let mut costs: [[(Vec<f64>, Vec<f64>); 2]; 2] = Default::default();
    for round in 0..=effort.rounds {
        eprintln!("measuring claims, round {round} …");
        for (costs, stores) in costs.iter_mut().zip(&stores) {
            for ((times, units), names) in costs.iter_mut().zip(names) {
                let (time, read) = claim_cost(stores, names, effort.claims).await?;
                // The first round warms up.
                if round > 0 {
                    times.push(time);
                    units.push(read);
                }
            }
        }
    }
    let [[empty, empty_looking], [full, full_looking]] =
        costs.map(|of_table| of_table.map(|(times, units)| (median(&times), median(&units))));
    Ok(vec![
        Figure::new("claim.empty", empty.0, "µs"),
        Figure::new("claim.100k_foreign_namespaces", full.0, "µs")
            .beside("claim.empty", empty.0)
            .held_to("≤ 1.3", full.0 <= 1.3 * empty.0),
        Figure::new("claim.100k_foreign_namespaces.units", full.1, "read units")
            .beside("claim.empty", empty.1)
            .held_to("≤ 1.3", full.1 <= 1.3 * empty.1),
        Figure::new("adopt.100k_foreign_namespaces", full_looking.0, "µs").beside("empty table", empty_looking.0),
        Figure::new("adopt.100k_foreign_namespaces.units", full_looking.1, "read units")
            .beside("empty table", empty_looking.1),
    ])
}

/// What the server charges for a life, step by step, and for a poll that finds nothing.
async fn units(effort: &Effort) -> Outcome<Vec<Figure>> {
    eprintln!("counting units …");
    let server = Server::start()?;
    let (store, _) = open(&server, "units-").await?;
    let mut steps = Steps::of(store.clone(), "default", "prompt")?;
    // The first task of a namespace and a line enters both, once a process.
    steps.enqueue().await?;
    let claimed = steps.claim().await?.ok_or("a task waits")?;
    steps.complete(claimed).await?;
    let start = store.units();
    steps.enqueue().await?;
    let enqueued = store.units();
    let claimed = steps.claim().await?.ok_or("a task waits")?;
    let taken = store.units();
    steps.complete(claimed).await?;
    let ended = store.units();
    let mut read = 0.0;
    for _ in 0..effort.polls {
        tokio::time::sleep(POLL).await;
        let before = store.units();
        if steps.claim().await?.is_some() {
            return Err("an idle poll found a task".into());
        }
        read += store.units().read - before.read;
    }
    let (life, poll) = (ended.write - start.write, read / f64::from(effort.polls));
    Ok(vec![
        Figure::new("units.enqueue", enqueued.write - start.write, "write units"),
        Figure::new("units.claim", taken.write - enqueued.write, "write units"),
        Figure::new("units.complete", ended.write - taken.write, "write units"),
        Figure::new("units.lifecycle", life, "write units").held_to("≤ 12", life > 0.0 && life <= 12.0),
        Figure::new("units.lifecycle.read", ended.read - start.read, "read units"),
        Figure::new("units.empty_poll", poll, "read units").held_to("≤ 2.5", poll > 0.0 && poll <= 2.5),
    ])
}

/// Lives with 16 callers and plain updates with as many take turns on the same server.
async fn lives(effort: &Effort) -> Outcome<[Figure; 1]> {
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    let server = Server::start()?;
    let client = client(&server.endpoint);
    for round in 0..=effort.rounds {
        eprintln!("measuring lifecycle.16, round {round} …");
        let (store, table) = open(&server, &format!("lives-{round}-")).await?;
        let updates = updates_a_second(&client, &table, 16, effort.lives * 4).await?;
        let lives = lives_a_second(store, 16, effort.lives).await?;
        // The first round warms up.
        if round > 0 {
            raw.push(updates);
            ours.push(lives);
        }
    }
    let (ours, raw) = (median(&ours), median(&raw));
    Ok([Figure::new("lifecycle.16", ours, "tasks/s").beside(RAW, raw).held_to("≥ 0.15", ours >= 0.15 * raw)])
}
