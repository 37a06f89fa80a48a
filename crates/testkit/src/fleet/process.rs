//! One process of a fleet: a queue over its own line to the store, and a runner.

use std::sync::Arc;
use std::time::Duration;

use ekiden::store::Clock;
use ekiden::{Client, Ekiden, Io, Runner, Stop};
use ekiden_core::id::Namespace;
use ekiden_store::Store;
use tokio::task::JoinHandle;

use super::work::{self, Work};
use crate::history::{self, Recorder};
use crate::recorded::Recorded;
use crate::severed::{Line, Severed};

/// Short against the length of a run, so that runners are declared dead while they live.
const LEASE: Duration = Duration::from_secs(4);

pub(super) fn namespace() -> Namespace {
    Namespace::new("default").expect("a plain word is a valid id")
}

/// A process.
pub(super) struct Process {
    client: Client,
    line: Line,
    record: history::Client,
    running: Option<(Stop, JoinHandle<()>)>,
}

impl Process {
    pub(super) fn start(
        number: usize,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        recorder: &Arc<Recorder>,
        seed: u64,
    ) -> Self {
        // Some have their store at hand, others far away: runners work differently then.
        let line = if seed.is_multiple_of(2) { Line::default() } else { Line::long() };
        let record = recorder.client(&format!("process-{number}"));
        let store = Recorded::new(Severed::new(store, line.clone()), record.clone());
        let ekiden = Ekiden::builder(Arc::new(store)).clock(clock).seed(seed).io(Io::Caller).build();
        let client = ekiden.namespace(namespace().as_str()).expect("a plain word is a valid id");
        let mut process = Self { client, line, record, running: None };
        process.begin();
        process
    }

    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    pub(super) const fn line(&self) -> &Line {
        &self.line
    }

    fn begin(&mut self) {
        let record = self.record.clone();
        let runner = Runner::builder(&self.client)
            .handler(move |work: Work, context| work::carry_out(work, context, record.clone()))
            .concurrency(3)
            .lease(LEASE)
            .grace(Duration::from_secs(2))
            .build()
            .expect("one handler and one pool make a runner");
        let stop = runner.stop();
        let run = tokio::spawn(async move {
            runner.run_until_stopped().await.expect("a runner ends with a report");
        });
        self.running = Some((stop, run));
    }

    /// The runner ends, gently or at once, and another begins.
    pub(super) async fn begin_anew(&mut self, gently: bool) {
        self.stop(gently).await;
        self.begin();
    }

    async fn stop(&mut self, gently: bool) {
        if let Some((stop, run)) = self.running.take() {
            if gently {
                stop.gently();
            } else {
                stop.at_once();
            }
            run.await.expect("a runner ends without a panic");
        }
    }

    pub(super) async fn end(mut self) {
        self.stop(true).await;
    }
}
