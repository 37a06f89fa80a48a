//! Every maximum of the server, each with its reason. What tasks themselves may hold is in core.

use std::time::Duration;

/// 4,096 connections: some 100 MiB if all of them are in the middle of something, and far below what a process may open.
pub const CONNECTIONS_MAX: usize = 4_096;

/// 256 streams: each is a connection that stays, and the rest must remain for requests.
pub const STREAMS_MAX: usize = 256;

/// 10 s: how long the headers of a request may take, once they have begun. They fit a few packets.
pub const HEADERS_WITHIN: Duration = Duration::from_secs(10);

/// 75 s: how long a connection may rest between two requests; longer than clients that keep theirs for a minute.
pub const RESTS_FOR: Duration = Duration::from_secs(75);

/// 30 s: how long a body may take to arrive.
pub const BODY_WITHIN: Duration = Duration::from_secs(30);

/// 60 s: how long a claim may wait. Proxies on the way give up soon after.
pub const CLAIM_WAIT_MAX: Duration = Duration::from_secs(60);

/// One second: how often whoever waits looks by itself, as wake-ups are hints.
pub const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// 10 s: how long a shutdown waits for requests under way. The longest that a store makes anybody wait is shorter.
pub const FINISH_WITHIN: Duration = Duration::from_secs(10);

/// 64 KiB: what a connection buffers before it stops reading; request line and headers must fit.
pub const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// 16 KiB: the headers of a request, together.
pub const HEADERS_BYTES_MAX: usize = 16 * 1024;

/// 64 KiB: a body without a payload.
pub const SMALL_BODY_BYTES_MAX: usize = 64 * 1024;

/// 2 MiB: the largest payload with each of its bytes escaped, and everything beside it.
pub const TASK_BODY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// 16 MiB: 256 results of the largest size, or a thousand tasks of 16 KiB. Batches of larger ones are cut by their sender.
pub const BATCH_BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// 1 MiB: one piece of a log.
pub const LOG_BODY_BYTES_MAX: usize = 1024 * 1024;

/// 1 MiB: how much of a log one answer has.
pub const LOG_READ_BYTES_MAX: usize = 1024 * 1024;

/// 1,000 tasks a batch: one call of the store takes about as many.
pub const BATCH_TASKS_MAX: usize = 1_000;

/// 256 settlements a request: as many as a claim gives out.
pub const SETTLEMENTS_MAX: usize = 256;

/// 256 characters: a text that tasks are searched for. It is compared with every payload on the way.
pub const FILTER_TEXT_CHARS_MAX: usize = 256;

/// 100 items: a page whose size nobody named.
pub const PAGE_ITEMS: usize = 100;

/// 10,000 matches: how far a dry run counts.
pub const PREVIEW_MATCHES_MAX: u64 = 10_000;

/// 64 pages: how much a dry run looks at, as a page may hold few matches.
pub const PREVIEW_PAGES_MAX: usize = 64;

/// 65,536 changes that a stream can be caught up with: some minutes of a busy server, some 15 MiB.
pub const CHANGES_KEPT: usize = 65_536;

/// 256 changes that a stream gets at once, so that one reader does not hold the ring for long.
pub const CHANGES_AT_ONCE: usize = 256;

/// 15 s between signs of life on a stream: proxies close what is silent for half a minute.
pub const STREAM_SIGN: Duration = Duration::from_secs(15);

/// 1,024 namespaces that a server looks after. What is due in those beyond is left to the runners there, which do the same.
pub const NAMESPACES_MAX: usize = 1_024;

/// 64 namespaces looked at a second, in turns: one with a ring does not wait for its turn.
pub const NAMESPACES_A_LOOK: usize = 64;

/// 32 namespaces whose counts the metrics have: every one costs nine lines.
pub const METRICS_NAMESPACES_MAX: usize = 32;

/// 32 namespaces, 25 tasks, 50 pools and 50 runners on the page of the server: what somebody reads at a glance.
pub const OVERVIEW_NAMESPACES_MAX: usize = 32;
/// See [`OVERVIEW_NAMESPACES_MAX`].
pub const OVERVIEW_TASKS_MAX: usize = 25;
/// See [`OVERVIEW_NAMESPACES_MAX`].
pub const OVERVIEW_POOLS_MAX: usize = 50;
/// See [`OVERVIEW_NAMESPACES_MAX`].
pub const OVERVIEW_RUNNERS_MAX: usize = 50;

/// 32 tasks a round whose logs are checked for still having a task.
pub const LOG_CHECKS_A_ROUND: usize = 32;

/// 256 tokens: they are compared one by one.
pub const TOKENS_MAX: usize = 256;

/// One second: how soon a running server sees that a token was revoked.
pub const TOKENS_LOOK: Duration = Duration::from_secs(1);
