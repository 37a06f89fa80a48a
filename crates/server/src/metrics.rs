//! What a server counts, in the words of Prometheus.

use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ekiden_core::event::EventName;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::events::Events;

/// What a request was and came to.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    route: &'static str,
    status: u32,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RouteLabels {
    route: &'static str,
}

/// From a tenth of a millisecond, which is a good disk, to a minute, which is the longest wait.
const SECONDS: [f64; 12] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 10.0, 60.0];

/// What a server counts.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    seconds: Family<RouteLabels, Histogram>,
    /// Handlers that panicked.
    pub(crate) panics: Counter,
    /// Connections that are open.
    pub(crate) connections: Gauge,
    /// Connections that were turned away.
    pub(crate) turned_away: Counter,
    /// Streams that are open.
    pub(crate) streams: Gauge,
    /// Claims that wait for a task.
    pub(crate) waiting: Gauge,
    /// Requests that are being carried out for somebody who waits.
    pub(crate) running: Gauge,
}

/// The statuses that nearly all answers have.
const USUAL: [u16; 3] = [200, 201, 204];

/// The counters of one route, found in their families once. They appear when something is counted.
pub(crate) struct Tally {
    route: &'static str,
    requests: [OnceLock<Counter>; USUAL.len()],
    seconds: OnceLock<Histogram>,
}

impl Tally {
    pub(crate) fn of(route: &'static str) -> Self {
        Self { route, requests: std::array::from_fn(|_| OnceLock::new()), seconds: OnceLock::new() }
    }
}

/// One more, as long as it lives.
pub(crate) struct Counted<'a>(&'a Gauge);

impl<'a> Counted<'a> {
    pub(crate) fn new(gauge: &'a Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("ekiden");
        let requests = Family::default();
        registry.register("http_requests", "Requests by route and status", requests.clone());
        let histogram: fn() -> Histogram = || Histogram::new(SECONDS);
        let seconds = Family::new_with_constructor(histogram);
        registry.register("http_request_seconds", "How long requests took", seconds.clone());
        let panics = Counter::default();
        registry.register("http_panics", "Requests that met a fault of the server", panics.clone());
        let turned_away = Counter::<u64, AtomicU64>::default();
        registry.register("http_connections_refused", "Connections beyond the maximum", turned_away.clone());
        let [connections, streams, waiting, running]: [Gauge; 4] = std::array::from_fn(|_| Gauge::default());
        registry.register("http_connections", "Open connections", connections.clone());
        registry.register("http_streams", "Open streams", streams.clone());
        registry.register("claims_waiting", "Claims that wait for a task", waiting.clone());
        registry.register("http_requests_running", "Requests whose callers wait", running.clone());
        Self { registry, requests, seconds, panics, connections, turned_away, streams, waiting, running }
    }

    /// A request of a route was answered.
    pub(crate) fn tallied(&self, tally: &Tally, status: u16, took: Duration) {
        let route = tally.route;
        let make = || self.requests.get_or_create(&RequestLabels { route, status: u32::from(status) }).clone();
        match USUAL.iter().zip(&tally.requests).find(|(usual, _)| **usual == status) {
            Some((_, counter)) => counter.get_or_init(make).inc(),
            None => make().inc(),
        };
        let seconds = tally.seconds.get_or_init(|| self.seconds.get_or_create(&RouteLabels { route }).clone());
        seconds.observe(took.as_secs_f64());
    }

    /// A request that has no route was answered.
    pub(crate) fn answered(&self, route: &'static str, status: u16, took: Duration) {
        self.requests.get_or_create(&RequestLabels { route, status: u32::from(status) }).inc();
        self.seconds.get_or_create(&RouteLabels { route }).observe(took.as_secs_f64());
    }

    /// Everything, as text. `counts` has the tasks of some namespaces by state.
    pub(crate) fn text(&self, events: &Events, counts: &[(String, &'static str, u64)]) -> String {
        let mut text = String::with_capacity(16 * 1024);
        if encode(&mut text, &self.registry).is_err() {
            return String::new();
        }
        if let Some(without) = text.strip_suffix(END) {
            text.truncate(without.len());
        }
        text.push_str("# HELP ekiden_task_changes Changes of tasks by event.\n# TYPE ekiden_task_changes counter\n");
        for (event, count) in EventName::ALL.iter().zip(events.counts()) {
            // Writing to text cannot fail.
            let _ = writeln!(text, "ekiden_task_changes_total{{event=\"{}\"}} {count}", event.as_str());
        }
        text.push_str(&tasks_text(counts));
        text
    }
}

/// The last line.
const END: &str = "# EOF\n";

/// Only the tasks of some namespaces by state, as text.
pub(crate) fn tasks_text(counts: &[(String, &'static str, u64)]) -> String {
    let mut text = "# HELP ekiden_tasks Tasks by namespace and state.\n# TYPE ekiden_tasks gauge\n".to_owned();
    for (namespace, state, count) in counts {
        let namespace = namespace.replace('\\', "\\\\").replace('"', "\\\"");
        // Writing to text cannot fail.
        let _ = writeln!(text, "ekiden_tasks{{namespace=\"{namespace}\",state=\"{state}\"}} {count}");
    }
    text.push_str(END);
    text
}
