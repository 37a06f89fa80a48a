//! The route table. Everything that the server answers stands here, once: router, OpenAPI document, API page and security
//! tests are made of it.

use std::sync::LazyLock;

use axum::http::Method;
use ekiden_core::limits::PAGE_ITEMS_MAX;
use ekiden_wire as wire;

use crate::access::Scope::{Admin, Open, Read, Run};
use crate::api::{claims, commands, health, logs, overview, pools, runners, schedules, streams, sweeps, tasks};
use crate::limits::{
    BATCH_BODY_BYTES_MAX, CURSOR_CHARS_MAX, FILTER_TEXT_CHARS_MAX, LOG_BODY_BYTES_MAX, SMALL_BODY_BYTES_MAX,
    TASK_BODY_BYTES_MAX,
};
use crate::route::{Parameter, Route};

const GET: Method = Method::GET;
const POST: Method = Method::POST;
const PUT: Method = Method::PUT;
const DELETE: Method = Method::DELETE;

const CURSOR: Parameter = Parameter::text("cursor", "where to go on; the cursor of the page before", CURSOR_CHARS_MAX);
const LIMIT: Parameter =
    Parameter::number("limit", "how many at most; 100 if nothing is said", 1, PAGE_ITEMS_MAX as u64);

/// Every route.
pub fn all() -> &'static [Route] {
    static ALL: LazyLock<Vec<Route>> = LazyLock::new(|| {
        let groups =
            [about(), of_tasks(), of_one_task(), of_logs(), of_runners(), of_settings(), of_many(), of_streams()];
        groups.into_iter().flatten().collect()
    });
    &ALL
}

/// The path of something in a namespace.
macro_rules! ns {
    ($rest:literal) => {
        concat!("/api/v1/namespaces/{ns}/", $rest)
    };
}

/// A row whose handler is a function of its subject's file.
macro_rules! route {
    ($method:expr, $path:expr, $scope:expr, $operation:literal, $summary:literal, $handler:path) => {
        Route::new($method, $path, $scope, $operation, $summary, |call| Box::pin($handler(call)))
    };
}

fn about() -> Vec<Route> {
    vec![
        route!(GET, "/", Read, "overview", "The server at a glance, as a page", overview::page)
            .asks(const { &[Parameter::id("namespace", "the namespace that is shown")] })
            .gives_other("text/html"),
        route!(GET, "/style.css", Open, "overviewStyle", "How that page looks", overview::style)
            .gives_other("text/css"),
        route!(GET, "/health", Open, "health", "Whether the server is alive", health::health).gives_other("text/plain"),
        route!(GET, "/ready", Open, "ready", "Whether the server can carry requests out", health::ready)
            .gives_other("text/plain"),
        route!(GET, "/metrics", Read, "metrics", "What the server counts, for Prometheus", health::counted)
            .gives_other("application/openmetrics-text"),
        route!(GET, "/openapi.json", Open, "openapi", "This description", health::description)
            .gives_other("application/json"),
        route!(GET, "/docs", Open, "docs", "This description as a page", health::page).gives_other("text/html"),
        route!(GET, "/docs/style.css", Open, "docsStyle", "How that page looks", health::style).gives_other("text/css"),
        route!(GET, "/api/v1", Read, "info", "What is behind the server", pools::info).gives::<wire::Info>(),
        route!(
            GET,
            "/api/v1/namespaces",
            Read,
            "listNamespaces",
            "The namespaces that have anything",
            pools::namespaces
        )
        .asks(const { &[Parameter::id("after", "only names behind this one"), LIMIT] })
        .gives::<wire::NamespacePage>(),
    ]
}

fn of_tasks() -> Vec<Route> {
    const FILTER: &[Parameter] = &[
        Parameter::states("state", "only tasks in one of these states, separated by commas or repeated"),
        Parameter::id("pool", "only tasks of this pool"),
        Parameter::id("task_type", "only tasks of this type"),
        Parameter::id("group", "only tasks of this group"),
        Parameter::id("session", "only tasks of this session"),
        Parameter::id("held_by", "only tasks with an attempt that this runner has not ended"),
        Parameter::text("text", "only tasks with this text in id, title, error or payload", FILTER_TEXT_CHARS_MAX),
        Parameter::words("order", "which come first; the newest if nothing is said", &["newest", "oldest"]),
        CURSOR,
        LIMIT,
    ];
    vec![
        route!(POST, ns!("tasks"), Run, "enqueueTask", "Hands a task in", tasks::enqueue)
            .takes::<wire::NewTask>(TASK_BODY_BYTES_MAX)
            .gives_with::<wire::Enqueued>(&[201, 200])
            .carried_to_its_end(),
        route!(POST, ns!("tasks/batch"), Run, "enqueueTasks", "Hands many tasks in", tasks::enqueue_batch)
            .takes::<wire::EnqueueBatch>(BATCH_BODY_BYTES_MAX)
            .gives::<wire::EnqueueBatchAnswer>()
            .carried_to_its_end(),
        route!(GET, ns!("tasks"), Read, "listTasks", "A page of tasks", tasks::list)
            .asks(FILTER)
            .gives::<wire::TaskPage>(),
        route!(GET, ns!("counts"), Read, "countTasks", "How many tasks are in each state", tasks::counts)
            .asks(const { &[Parameter::id("pool", "only tasks of this pool")] })
            .gives::<wire::Counts>(),
    ]
}

fn of_one_task() -> Vec<Route> {
    vec![
        route!(GET, ns!("tasks/{id}"), Read, "getTask", "A task as it is now", tasks::get).gives::<wire::Task>(),
        route!(GET, ns!("tasks/{id}/attempts"), Read, "listAttempts", "A task's latest attempts", tasks::attempts)
            .gives::<wire::AttemptList>(),
        route!(GET, ns!("tasks/{id}/history"), Read, "getHistory", "A task's latest changes", tasks::history)
            .gives::<wire::HistoryList>(),
        route!(GET, ns!("tasks/{id}/explain"), Read, "explainTask", "Why a task is where it is", tasks::explain)
            .gives::<wire::Explanation>(),
        route!(POST, ns!("tasks/{id}/cancel"), Run, "cancelTask", "Ends a task", commands::cancel)
            .may_take::<wire::Cancel>(SMALL_BODY_BYTES_MAX)
            .gives::<wire::Task>()
            .carried_to_its_end(),
        route!(
            POST,
            ns!("tasks/{id}/retry"),
            Run,
            "retryTask",
            "Runs a task again, and tells which task will run",
            commands::retry
        )
        .gives::<wire::Task>()
        .carried_to_its_end(),
        route!(POST, ns!("tasks/{id}/release"), Run, "releaseTask", "Lets a held task go", commands::release)
            .gives::<wire::Task>()
            .carried_to_its_end(),
        route!(POST, ns!("tasks/{id}/answer"), Run, "answerTask", "Answers a task's question", commands::answer)
            .takes::<wire::Answer>(SMALL_BODY_BYTES_MAX)
            .gives::<wire::Task>()
            .carried_to_its_end(),
        route!(
            POST,
            ns!("tasks/{id}/progress"),
            Run,
            "reportProgress",
            "Says how far an attempt is",
            commands::progress
        )
        .takes::<wire::Progressed>(SMALL_BODY_BYTES_MAX)
        .carried_to_its_end(),
    ]
}

fn of_logs() -> Vec<Route> {
    const READ: &[Parameter] = &[
        Parameter::number("offset", "where to begin; the beginning if nothing is said", 0, u64::MAX),
        Parameter::number("limit", "how many bytes at most; an answer never has more than 1 MiB", 1, u64::MAX),
        Parameter::flag("follow", "true to read on until the attempt has ended"),
    ];
    const WRITE: &[Parameter] = &[
        Parameter::number("offset", "where the log ends, as far as the writer knows", 0, u64::MAX).needed(),
        Parameter::number("token", "the fencing token of the attempt", 0, u64::MAX).needed(),
    ];
    vec![
        route!(
            GET,
            ns!("tasks/{id}/attempts/{execution_no}/log"),
            Read,
            "readLog",
            "What an attempt wrote",
            logs::read
        )
        .asks(READ)
        .gives_other("application/octet-stream"),
        route!(
            POST,
            ns!("tasks/{id}/attempts/{execution_no}/log"),
            Run,
            "appendLog",
            "Adds to an attempt's log",
            logs::append
        )
        .asks(WRITE)
        .takes_octets(LOG_BODY_BYTES_MAX)
        .gives::<wire::LogAppended>()
        .carried_to_its_end(),
    ]
}

fn of_runners() -> Vec<Route> {
    vec![
        route!(POST, ns!("claims"), Run, "claimTasks", "Gives tasks out, with their leases", claims::claim)
            .takes::<wire::Claim>(SMALL_BODY_BYTES_MAX)
            .gives::<wire::Claimed>(),
        route!(
            POST,
            ns!("settlements"),
            Run,
            "settleTasks",
            "Ends attempts, and gives further tasks out",
            claims::settle
        )
        .takes::<wire::Settle>(BATCH_BODY_BYTES_MAX)
        .gives::<wire::SettleAnswer>(),
        route!(GET, ns!("runners"), Read, "listRunners", "The runners, alive or not", runners::list)
            .gives::<wire::RunnerList>(),
        route!(PUT, ns!("runners/{id}"), Run, "beat", "A runner's sign of life", runners::beat)
            .takes::<wire::Beat>(SMALL_BODY_BYTES_MAX)
            .carried_to_its_end(),
        route!(DELETE, ns!("runners/{id}"), Run, "sayGoodbye", "A runner ends cleanly", runners::goodbye)
            .carried_to_its_end(),
        route!(
            GET,
            ns!("runners/{id}/signals"),
            Run,
            "listSignals",
            "What a runner was asked to stop",
            runners::signals
        )
        .gives::<wire::SignalList>(),
        route!(GET, ns!("runners/{id}/held"), Run, "listHeld", "What a runner holds", runners::held)
            .gives::<wire::Held>(),
    ]
}

fn of_settings() -> Vec<Route> {
    vec![
        route!(GET, ns!("pools"), Read, "listPools", "The pools that somebody set", pools::list)
            .asks(&[CURSOR, LIMIT])
            .gives::<wire::PoolPage>(),
        route!(GET, ns!("pools/{pool}"), Read, "getPool", "What a pool is set to", pools::get)
            .gives::<wire::PoolSettings>(),
        route!(PUT, ns!("pools/{pool}"), Admin, "setPool", "Sets a pool", pools::set)
            .takes::<wire::PoolSettings>(SMALL_BODY_BYTES_MAX)
            .carried_to_its_end(),
        route!(POST, ns!("pools/{pool}/pause"), Admin, "pausePool", "Lets no task of a pool start", pools::pause)
            .gives::<wire::PoolSettings>()
            .carried_to_its_end(),
        route!(
            POST,
            ns!("pools/{pool}/resume"),
            Admin,
            "resumePool",
            "Lets tasks of a pool start again",
            pools::resume
        )
        .gives::<wire::PoolSettings>()
        .carried_to_its_end(),
        route!(GET, ns!("schedules"), Read, "listSchedules", "The schedules", schedules::list)
            .gives::<wire::ScheduleList>(),
        route!(PUT, ns!("schedules/{id}"), Admin, "setSchedule", "Sets a schedule", schedules::set)
            .takes::<wire::NewSchedule>(TASK_BODY_BYTES_MAX)
            .gives::<wire::Schedule>()
            .carried_to_its_end(),
        route!(DELETE, ns!("schedules/{id}"), Admin, "removeSchedule", "Removes a schedule", schedules::remove)
            .carried_to_its_end(),
    ]
}

fn of_many() -> Vec<Route> {
    vec![
        route!(
            POST,
            ns!("sweeps"),
            Admin,
            "startSweep",
            "Starts a command on many tasks, or tells what it would do",
            sweeps::start
        )
        .takes::<wire::NewSweep>(SMALL_BODY_BYTES_MAX)
        .gives_with::<wire::Started>(&[202, 200])
        .carried_to_its_end(),
        route!(GET, ns!("sweeps/{id}"), Read, "getSweep", "How far a command on many tasks is", sweeps::get)
            .gives::<wire::Sweep>(),
        route!(POST, ns!("maintain"), Run, "maintain", "Does what is due", pools::maintain)
            .gives::<wire::Maintained>()
            .carried_to_its_end(),
        route!(GET, ns!("due"), Read, "nextDue", "When the next waiting task is due", pools::due).gives::<wire::Due>(),
    ]
}

fn of_streams() -> Vec<Route> {
    vec![
        route!(GET, ns!("events"), Read, "streamEvents", "The changes of tasks, as they happen", streams::events)
            .asks(
                const {
                    &[Parameter::text(
                        "cursor",
                        "tells from there on; as the header Last-Event-ID does",
                        CURSOR_CHARS_MAX,
                    )]
                },
            )
            .gives_other("text/event-stream"),
        route!(GET, ns!("hints"), Run, "streamHints", "Wake-ups for runners elsewhere", streams::hints)
            .gives_other("text/event-stream"),
    ]
}
