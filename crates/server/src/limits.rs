//! Every maximum of the server, each with its reason. What tasks themselves may hold is in core.

use std::time::Duration;

/// 4,096 connections: some 100 MiB if all of them are in the middle of something, and far below what a process may open. Beyond
/// it one gives way: of a caller without a token, or else of a token that has more than its part, or one that does not read its
/// answer, or that rests.
pub const CONNECTIONS_MAX: usize = 4_096;

/// 256 streams: each is a connection that stays, and the rest must remain for requests.
pub const STREAMS_MAX: usize = 256;

/// Half of the connections, streams, bodies and answers is what one token may hold: its holder leaves as much to the others.
pub const A_TOKENS_PART: usize = 2;

/// 10 s: how long the headers of a request may take, once they have begun. They fit a few packets. A caller without a token
/// has as long for its next request.
pub const HEADERS_WITHIN: Duration = Duration::from_secs(10);

/// 20 s: how long a client may take nothing of an answer. With what is noticed late, its connection is gone within half a minute.
pub const WRITE_WITHIN: Duration = Duration::from_secs(20);

/// 128 KiB that the system holds of an answer for its client, and as much again for its own notes. With more, a client that
/// reads slowly would seem to read nothing; with less, a fast one far away would wait.
pub const SEND_BUFFER_BYTES: usize = 128 * 1024;

/// 75 s: how long a connection may rest between two requests; longer than clients that keep theirs for a minute.
pub const RESTS_FOR: Duration = Duration::from_secs(75);

/// 30 s: how long a body may take to arrive.
pub const BODY_WITHIN: Duration = Duration::from_secs(30);

/// 24 MiB: what all bodies together may hold that arrived and are not carried out yet. A larger one than its caller may hold counts
/// as all of that; what they are read into takes about as much again.
pub const BODIES_BYTES_MAX: usize = 24 * 1024 * 1024;

/// 8 KiB of a body that count for nothing: claims, heartbeats and small tasks are never refused because others send batches.
pub const BODY_FREE_BYTES: usize = 8 * 1024;

/// 256 KiB in 5 s: the pace of a body that holds a part of the budget, slower than any line that sends 16 MiB in half a minute.
pub const BODY_STEP_BYTES: usize = 256 * 1024;
/// See [`BODY_STEP_BYTES`].
pub const BODY_STEP_WITHIN: Duration = Duration::from_secs(5);

/// 24 MiB: what all answers together may hold that their clients have not taken yet. Three pages are made at once, one
/// for each token. A larger answer counts as all that its caller may hold.
pub const ANSWERS_BYTES_MAX: usize = 24 * 1024 * 1024;

/// 8 KiB of an answer that count for nothing: what runners ask for is never refused because others do not read.
pub const ANSWER_FREE_BYTES: usize = 8 * 1024;

/// 8 MiB: what a page of tasks, or a list of runners, schedules or leases, is counted as while it is made: what it tells of, and its text
/// beside them.
pub const PAGE_ANSWER_BYTES: usize = 8 * 1024 * 1024;

/// 5 s: how long a request for a large answer waits for its part of the budget.
pub const ANSWER_WAITS: Duration = Duration::from_secs(5);

/// 60 s: how long a claim may wait. Proxies on the way give up soon after.
pub const CLAIM_WAIT_MAX: Duration = Duration::from_secs(60);

/// One second: how often whoever waits looks by itself, as wake-ups are hints.
pub const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// 10 s: how long a shutdown waits for requests under way. The longest that a store makes anybody wait is shorter.
pub const FINISH_WITHIN: Duration = Duration::from_secs(10);

/// 24 KiB: what a connection buffers before it stops reading; request line and headers must fit. All connections together
/// may have as much of headers that do not end.
pub const BUFFER_BYTES_MAX: usize = 24 * 1024;

/// 16 KiB: the headers of a request, together.
pub const HEADERS_BYTES_MAX: usize = 16 * 1024;

/// 64 KiB: a body without a payload.
pub const SMALL_BODY_BYTES_MAX: usize = 64 * 1024;

/// 2 MiB: the largest payload with each of its bytes escaped, and everything beside it.
pub const TASK_BODY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// 2 MiB: what an answer that shows one task is counted as before a command is carried out. See [`TASK_BODY_BYTES_MAX`].
pub const TASK_ANSWER_BYTES: usize = TASK_BODY_BYTES_MAX;

/// 1 KiB: why one item of a batch was refused, with what to do about it.
pub const ITEM_ERROR_BYTES: usize = 1024;

/// 16 KiB: the names of pools and types that a claim asks for, which are kept while it waits.
pub const CLAIM_NAMES_BYTES: usize = 16 * 1024;

/// 16 MiB: 256 results of the largest size, or a thousand tasks of 16 KiB. Batches of larger ones are cut by their sender.
pub const BATCH_BODY_BYTES_MAX: usize = ekiden_wire::BATCH_BYTES_MAX;

/// 1 MiB: one piece of a log.
pub const LOG_BODY_BYTES_MAX: usize = 1024 * 1024;

/// 1 MiB: how much of a log one answer has.
pub const LOG_READ_BYTES_MAX: usize = 1024 * 1024;

/// 1,000 tasks a batch: one call of the store takes about as many. Counted while the body is read.
pub const BATCH_TASKS_MAX: usize = ekiden_wire::BATCH_TASKS_MAX;

/// 256 settlements a request: as many as a claim gives out. Counted while the body is read.
pub const SETTLEMENTS_MAX: usize = ekiden_wire::SETTLEMENTS_MAX;

/// 256 characters: a text that tasks are searched for. It is compared with every payload on the way.
pub const FILTER_TEXT_CHARS_MAX: usize = 256;

/// 1,536 characters, which fit the headers of a request in any script: a cursor names an index and the record that a page ended with, whose
/// names are 128 bytes each.
pub const CURSOR_CHARS_MAX: usize = 1_536;

/// 100 items: a page whose size nobody named.
pub const PAGE_ITEMS: usize = 100;

/// 10,000 matches: how far a dry run counts.
pub const PREVIEW_MATCHES_MAX: u64 = 10_000;

/// 64 pages: how much a dry run looks at, as a page may hold few matches.
pub const PREVIEW_PAGES_MAX: usize = 64;

/// 65,536 changes that a stream can be caught up with: some minutes of a busy server, some 15 MiB.
pub const CHANGES_KEPT: usize = 65_536;

/// 16 MiB of errors and notes among these changes: with long ones fewer are kept.
pub const CHANGES_TEXT_BYTES: usize = 16 * 1024 * 1024;

/// 16 KiB of texts or of a log that a stream gets at once: some pieces of each stream are on their way.
pub const STREAM_PIECE_BYTES: usize = 16 * 1024;

/// 256 changes that a stream gets at once, so that one reader does not hold the ring for long.
pub const CHANGES_AT_ONCE: usize = 256;

/// 15 s between signs of life on a stream: proxies close what is silent for half a minute.
pub const STREAM_SIGN: Duration = Duration::from_secs(15);

/// 65,536 namespaces with a known moment at which something is due, some 10 MiB. Beyond it those that are due last are left to the
/// walk through all namespaces.
pub const AGENDA_MAX: usize = 65_536;

/// 65,536 namespaces in which tasks changed within a second: more than a server can change. See [`AGENDA_MAX`].
pub const TOUCHED_MAX: usize = 65_536;

/// 64 namespaces looked at at once: they share the syncs of a store, and a slow one holds up no other.
pub const NAMESPACES_AT_ONCE: usize = 64;

/// 64 namespaces a second in the walk through all, for what other processes wrote: 10,000 in less than three minutes, and next to
/// nothing where nothing is due.
pub const NAMESPACES_A_STEP: usize = 64;

/// 4,096 namespaces for which the latest forgotten change is remembered: a stream of one hears nothing of what the others forgot.
pub const FORGOTTEN_MAX: usize = 4_096;

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

/// One second: how soon a running server sees with a request that a token was revoked.
pub const TOKENS_LOOK: Duration = Duration::from_secs(1);

/// A quarter of a second between two looks at the file of tokens, so that what stays open for one ends within a second. A look reads
/// nothing unless the file was replaced.
pub const TOKENS_WATCH: Duration = Duration::from_millis(250);
