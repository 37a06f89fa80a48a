//! Ekiden over HTTP, on the local store, every answer synced, beside Redis and beanstalkd that sync as well. All are
//! processes of their own on this machine, spoken to by clients that do as little as they can. `bench/README.md` says what
//! each figure means.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ekiden_bench::Outcome;
use ekiden_bench::arguments::{Arguments, USAGE};
use ekiden_bench::crowd::{self, Crowd, Unread};
use ekiden_bench::lines::{Acks, Beanstalkd, Ekiden, Line, Redis};
use ekiden_bench::machine::Machine;
use ekiden_bench::report::{Figure, Report};
use ekiden_bench::sample::{interleave, median, percentile};

const REDIS: &str = "Redis, appendfsync always";
const PIPELINED: &str = "Redis, ack and claim pipelined";
const BEANSTALKD: &str = "beanstalkd -f0";

/// How much is measured.
struct Effort {
    rounds: usize,
    /// Jobs of a try, at 16 and 64 callers, and in batches.
    jobs: [usize; 3],
    /// Jobs whose start is timed, a hundred a second.
    starts: usize,
    /// How long an idle server is watched.
    idle: Duration,
    /// Requests that are timed one after another, with a crowd around and without.
    requests: usize,
}

const FULL: Effort =
    Effort { rounds: 5, jobs: [20_000, 40_000, 100_000], starts: 500, idle: Duration::from_secs(20), requests: 2_000 };
const QUICK: Effort =
    Effort { rounds: 1, jobs: [2_000, 4_000, 10_000], starts: 100, idle: Duration::from_secs(3), requests: 500 };

/// The server with nobody else there.
const ALONE: &str = "the same server, alone";

/// Who is there beside the one whose requests are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Around {
    Nobody,
    Crowd,
    Unread,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Ours,
    Redis,
    Pipelined,
    Beanstalkd,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse(std::env::args_os().skip(1)) {
        Ok(arguments) => run(&arguments),
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

fn run(arguments: &Arguments) -> Outcome<ExitCode> {
    if arguments.help {
        println!("http {USAGE}");
        return Ok(ExitCode::SUCCESS);
    }
    let program = Ekiden::build()?;
    let effort = if arguments.quick { QUICK } else { FULL };
    let machine = Machine::here();
    let bench = Bench { effort, program };
    let report = Report::new(machine, arguments.quick, bench.figures()?);
    print!("{}", report.table());
    if let Some(file) = &arguments.json {
        report.write(file)?;
    }
    let failed = arguments.strict && report.missed().next().is_some();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

struct Bench {
    effort: Effort,
    program: PathBuf,
}

impl Bench {
    fn figures(&self) -> Outcome<Vec<Figure>> {
        let [few, many, batched] = self.effort.jobs;
        let all = [Who::Ours, Who::Redis, Who::Pipelined, Who::Beanstalkd];
        let mut figures = Vec::new();

        let [ours, redis, pipelined, beanstalkd] = self.lives("lifecycle.16", all, 16, 1, few)?;
        figures.push(Figure::new("lifecycle.16", ours, "tasks/s").beside(REDIS, redis).held_to("≥ 1.0", ours >= redis));
        figures.push(Figure::new("lifecycle.16.pipelined", ours, "tasks/s").beside(PIPELINED, pipelined));
        figures.push(
            Figure::new("lifecycle.16.beanstalkd", ours, "tasks/s")
                .beside(BEANSTALKD, beanstalkd)
                .held_to("≥ 3", ours >= 3.0 * beanstalkd),
        );

        let three = [Who::Ours, Who::Redis, Who::Pipelined];
        let [ours, redis, pipelined] = self.lives("lifecycle.64", three, 64, 1, many)?;
        figures.push(
            Figure::new("lifecycle.64", ours, "tasks/s").beside(REDIS, redis).held_to("≥ 0.7", ours >= 0.7 * redis),
        );
        figures.push(Figure::new("lifecycle.64.pipelined", ours, "tasks/s").beside(PIPELINED, pipelined));

        let [ours, redis, pipelined] = self.lives("lifecycle.batch32", three, 4, 32, batched)?;
        figures.push(
            Figure::new("lifecycle.batch32", ours, "tasks/s").beside(REDIS, redis).held_to("≥ 1.0", ours >= redis),
        );
        figures.push(Figure::new("lifecycle.batch32.pipelined", ours, "tasks/s").beside(PIPELINED, pipelined));

        let [ours, redis] = self.starts([Who::Ours, Who::Redis])?;
        let [p50, p50_redis] = [&ours, &redis].map(|tries| median(&tries.iter().map(|t| t.0).collect::<Vec<_>>()));
        let [p99, p99_redis] = [&ours, &redis].map(|tries| median(&tries.iter().map(|t| t.1).collect::<Vec<_>>()));
        figures
            .push(Figure::new("start.p50", p50, "µs").beside(REDIS, p50_redis).held_to("≤ 2", p50 <= 2.0 * p50_redis));
        figures.push(Figure::new("start.p99", p99, "µs").beside(REDIS, p99_redis));

        let [alone, crowded, unread] = self.crowded()?;
        figures.push(
            Figure::new("crowded.p99", crowded, "µs").beside(ALONE, alone).held_to("≤ 2", crowded <= 2.0 * alone),
        );
        figures
            .push(Figure::new("unread.p99", unread, "µs").beside(ALONE, alone).held_to("≤ 2", unread <= 2.0 * alone));

        let wakeups = self.idle()?;
        figures.push(Figure::new("idle.wakeups", wakeups, "a second").held_to("< 5", wakeups < 5.0));
        Ok(figures)
    }

    fn lives<const N: usize>(
        &self,
        name: &str,
        who: [Who; N],
        width: usize,
        batch: usize,
        jobs: usize,
    ) -> Outcome<[f64; N]> {
        let tries = interleave(self.effort.rounds, &who, |who| {
            eprintln!("measuring {name} of {who:?} …");
            lives_a_second(&*start(who, &self.program)?, width, batch, jobs)
        })?;
        let mut medians = [0.0; N];
        for (median_of, tries) in medians.iter_mut().zip(&tries) {
            *median_of = median(tries);
        }
        Ok(medians)
    }

    fn starts<const N: usize>(&self, who: [Who; N]) -> Outcome<[Vec<(f64, f64)>; N]> {
        let tries = interleave(self.effort.rounds, &who, |who| {
            eprintln!("measuring start of {who:?} …");
            start_micros(&*start(who, &self.program)?, self.effort.starts)
        })?;
        tries.try_into().map_err(|_| "as many answers as contenders".into())
    }

    /// The 99th percentile of a request in microseconds: alone, and with either crowd around.
    fn crowded(&self) -> Outcome<[f64; 3]> {
        crowd::make_room()?;
        let tries = interleave(self.effort.rounds, &[Around::Nobody, Around::Crowd, Around::Unread], |around| {
            eprintln!("measuring crowded.p99 with {around:?} …");
            let server = Ekiden::start(&self.program)?;
            let (mut crowd, mut unread) = (None, None);
            match around {
                Around::Nobody => {}
                Around::Crowd => crowd = Some(Crowd::gather(server.address())?),
                Around::Unread => unread = Some(Unread::gather(server.address())?),
            }
            let p99 = request_micros(&server, self.effort.requests)?;
            drop(unread);
            if crowd.as_ref().is_some_and(|crowd| crowd.still_there() < crowd::SLOW) {
                return Err("the crowd was gone before the end of the try".into());
            }
            Ok(p99)
        })?;
        let medians: Vec<f64> = tries.iter().map(|tries| median(tries)).collect();
        medians.try_into().map_err(|_| "as many answers as contenders".into())
    }

    /// How often any thread of an idle server wakes by itself.
    fn idle(&self) -> Outcome<f64> {
        eprintln!("measuring idle.wakeups …");
        let server = Ekiden::start(&self.program)?;
        // A life goes before, so that every thread there will be is there, and has gone to rest.
        lives_a_second(&server, 1, 1, 10)?;
        std::thread::sleep(Duration::from_secs(2));
        let before = switches(server.pid())?;
        std::thread::sleep(self.effort.idle);
        // Threads that ended meanwhile woke once to do so; new ones begin at nothing.
        let woken =
            switches(server.pid())?.iter().map(|(thread, now)| now - before.get(thread).unwrap_or(&0.0)).sum::<f64>();
        Ok(woken / self.effort.idle.as_secs_f64())
    }
}

fn start(who: Who, program: &Path) -> Outcome<Box<dyn Line>> {
    Ok(match who {
        Who::Ours => Box::new(Ekiden::start(program)?),
        Who::Redis => Box::new(Redis::start(Acks::Apart)?),
        Who::Pipelined => Box::new(Redis::start(Acks::Pipelined)?),
        Who::Beanstalkd => Box::new(Beanstalkd::start()?),
    })
}

/// Voluntary context switches so far, by thread.
fn switches(pid: u32) -> Outcome<HashMap<OsString, f64>> {
    let mut all = HashMap::new();
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let thread = thread?;
        let status = std::fs::read_to_string(thread.path().join("status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let count = line.and_then(|count| count.trim().parse::<f64>().ok()).unwrap_or(0.0);
        all.insert(thread.file_name(), count);
    }
    Ok(all)
}

/// A JSON text of a hundred bytes, which no other job has.
fn job(number: usize) -> Vec<u8> {
    let mut job = format!(r#"{{"n":{number},"text":""#).into_bytes();
    job.resize(98, b'x');
    job.extend_from_slice(b"\"}");
    job
}

/// As many producers as consumers, each with one connection; from the first job sent until so many are acknowledged. A few more
/// are handed in behind them, or the last acknowledgements would be told only when a wait for nothing has ended.
fn lives_a_second(line: &dyn Line, width: usize, batch: usize, jobs: usize) -> Outcome<f64> {
    let all = jobs + 2 * width * batch;
    let (next, acked) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let ended = Mutex::new(None);
    let mut producers = (0..width).map(|_| line.producer()).collect::<Outcome<Vec<_>>>()?;
    let mut consumers = (0..width).map(|number| line.consumer(number)).collect::<Outcome<Vec<_>>>()?;
    let began = Instant::now();
    let outcome: Outcome<()> = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for producer in &mut producers {
            threads.push(scope.spawn(|| -> Outcome<()> {
                loop {
                    let first = next.fetch_add(batch, Ordering::Relaxed);
                    if first >= all {
                        return Ok(());
                    }
                    let numbers = first..all.min(first + batch);
                    producer.put(&numbers.map(job).collect::<Vec<_>>())?;
                }
            }));
        }
        for consumer in &mut consumers {
            threads.push(scope.spawn(|| -> Outcome<()> {
                while acked.load(Ordering::Relaxed) < jobs {
                    let count = consumer.next(batch, &mut |_| {})?;
                    if count > 0 && acked.fetch_add(count, Ordering::Relaxed) + count >= jobs {
                        ended.lock().map_err(|_| "a thread panicked")?.get_or_insert_with(Instant::now);
                    }
                }
                Ok(())
            }));
        }
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    });
    outcome?;
    let done = acked.load(Ordering::Relaxed);
    if done < jobs || done > all {
        return Err(format!("{done} acknowledgements of {all} jobs").into());
    }
    let ended = ended.into_inner()?.ok_or("nobody saw the end")?;
    #[expect(clippy::cast_precision_loss, reason = "jobs are few")]
    let jobs = jobs as f64;
    Ok(jobs / ended.duration_since(began).as_secs_f64())
}

/// Microseconds from just before a job is sent until a waiting consumer has it: median and 99th percentile.
fn start_micros(line: &dyn Line, jobs: usize) -> Outcome<(f64, f64)> {
    let sent: Vec<Mutex<Option<Instant>>> = (0..jobs).map(|_| Mutex::new(None)).collect();
    let mut producer = line.producer()?;
    let mut consumer = line.consumer(0)?;
    let waits = std::thread::scope(|scope| -> Outcome<Vec<f64>> {
        let sent = &sent;
        let taking = scope.spawn(move || -> Outcome<Vec<f64>> {
            let mut waits = Vec::with_capacity(jobs);
            while waits.len() < jobs {
                consumer.next(1, &mut |bytes| {
                    let now = Instant::now();
                    let number = number_of(bytes);
                    let began = number.and_then(|number| *sent.get(number)?.lock().ok()?);
                    waits.extend(began.map(|began| now.duration_since(began).as_secs_f64() * 1e6));
                })?;
            }
            consumer.next(1, &mut |_| {})?;
            Ok(waits)
        });
        for (number, slot) in sent.iter().enumerate() {
            std::thread::sleep(Duration::from_millis(10));
            *slot.lock().map_err(|_| "a thread panicked")? = Some(Instant::now());
            producer.put(&[job(number)])?;
        }
        taking.join().map_err(|_| "a thread panicked")?
    })?;
    Ok((percentile(&waits, 50), percentile(&waits, 99)))
}

/// Microseconds that the slowest percent of enqueues takes at least, one after another on one connection.
fn request_micros(line: &dyn Line, requests: usize) -> Outcome<f64> {
    let mut producer = line.producer()?;
    let mut waits = Vec::with_capacity(requests);
    for number in 0..requests {
        let job = [job(number)];
        let began = Instant::now();
        producer.put(&job)?;
        waits.push(began.elapsed().as_secs_f64() * 1e6);
    }
    Ok(percentile(&waits, 99))
}

fn number_of(job: &[u8]) -> Option<usize> {
    let digits: Vec<u8> =
        job.iter().copied().skip_while(|byte| !byte.is_ascii_digit()).take_while(u8::is_ascii_digit).collect();
    std::str::from_utf8(&digits).ok()?.parse().ok()
}
