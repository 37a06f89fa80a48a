//! Every maximum of the system, each with its reason. A list, batch, loop, body or file without a number here is a defect.

use crate::time::Millis;

/// 128 bytes: fits a file name with room for a suffix, and a DynamoDB sort key many times over.
pub const ID_BYTES_MAX: usize = 128;

/// 256 KiB: a DynamoDB item ends at 400 KB, and state, attempts and history need their share.
pub const PAYLOAD_BYTES_MAX: usize = 256 * 1024;

/// 64 KiB: a result is a summary; large output belongs into the attempt's log.
pub const RESULT_BYTES_MAX: usize = 64 * 1024;

/// 2 KiB: an error message is read by a person; the log has the rest. Longer ones are cut, not refused.
pub const ERROR_BYTES_MAX: usize = 2 * 1024;

/// 8 KiB: a question is text for a person, with its choices.
pub const QUESTION_BYTES_MAX: usize = 8 * 1024;

/// 32 choices: more do not fit a form that a person answers.
pub const QUESTION_CHOICES_MAX: usize = 32;

/// 25: the writes that our records need at most, and well under DynamoDB's 100 actions a transaction.
pub const COMMIT_WRITES_MAX: usize = 25;

/// 3 MiB: a DynamoDB transaction ends at 4 MB, index entries and attribute names included.
pub const COMMIT_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Two minutes: how long a caller may repeat a commit or claim whose reply got lost. Later the answer means nothing.
pub const COMMIT_RETRY: Millis = Millis::from_secs(120);

/// Twice [`COMMIT_RETRY`]: no younger task is purged, or a repeated enqueue would create it again.
pub const PURGE_AGE_MIN: Millis = Millis::from_secs(240);

/// One minute: how soon an ended task that others still need is looked at again. Later looks wait for a tenth of the time since
/// its end, so that a million such tasks cost little, and none outlives its last child by more than that.
pub const PURGE_LOOK_MIN: Millis = Millis::from_secs(60);

/// 16: how many conflicts in a row a plan is drafted anew for, before the caller hears that the store is busy.
pub const CONFLICTS_MAX: usize = 16;

/// 4: conflicts after which a plan leaves its lane's next member to a sweep, so that no task's end depends on a neighbour.
pub const CONFLICTS_BEFORE_DEFERRING: usize = 4;

/// 16: how many places a task may lose to others when several claimers meet at the head of a line.
pub const CLAIM_WINDOW_MAX: usize = 16;

/// 24: what a sweep may touch a step, which leaves one write for the sweep's own record.
pub const SWEEP_WRITES_MAX: usize = COMMIT_WRITES_MAX - 1;

/// 24 items: what one step of a sweep reads, as no item is done without a write.
pub const SWEEP_ITEMS_MAX: usize = SWEEP_WRITES_MAX;

/// 1,024 ops: one call shares one sync; larger ones would hold up their neighbours.
pub const APPLY_OPS_MAX: usize = 1024;

/// 1,024 keys: the same bound for one batched read.
pub const GET_KEYS_MAX: usize = 1024;

/// 8: each parent costs two writes (mark or check, and the edge), and 16 of 25 leaves room for lane, keys and task. A sweep
/// links the others.
pub const PARENTS_A_COMMIT_MAX: usize = 8;

/// 256 parents in all: they are listed in the child's state, which is rewritten at each change.
pub const PARENTS_MAX: usize = 256;

/// 1,024 tasks: how far the search for a cycle walks up before it refuses.
pub const CYCLE_WALK_MAX: usize = 1024;

/// 32 labels of at most 256 bytes: labels are for people and filters, not a second payload.
pub const LABELS_MAX: usize = 32;
/// See [`LABELS_MAX`].
pub const LABEL_BYTES_MAX: usize = 256;

/// 64: how many retries by hand are followed to the task that runs now.
pub const RETRIES_FOLLOWED_MAX: usize = 64;

/// The last 10 attempts are kept in full; older ones live on in the counts.
pub const ATTEMPTS_KEPT_MAX: usize = 10;

/// The last 32 lines of history are kept with the task.
pub const HISTORY_LINES_MAX: usize = 32;

/// 1,000 attempts: a budget beyond this is an endless loop by another name.
pub const ATTEMPTS_MAX: u32 = 1_000;

/// Priorities run from −100 to 100: room between the four named ones, small enough to read.
pub const PRIORITY_MAX: i32 = 100;

/// 99,999: a mailbox's priority number is written with five digits.
pub const MAILBOX_PRIORITY_MAX: u32 = 99_999;

/// 256: a lane's record lists the tasks that hold a place.
pub const LANE_WIDTH_MAX: u32 = 256;

/// 256 tasks a claim: the largest batch that a runner can start at once.
pub const CLAIM_TASKS_MAX: usize = 256;

/// 64 pools a claim, and 64 kinds when they are named: a claim's cost grows with both.
pub const CLAIM_POOLS_MAX: usize = 64;
/// See [`CLAIM_POOLS_MAX`].
pub const CLAIM_KINDS_MAX: usize = 64;

/// 256 due entries that a claim may promote: bounds one claim when a million become due at once.
pub const CLAIM_PROMOTE_MAX: usize = 256;

/// 64 entries of a line that a claim passes over (expired, or due by a faster clock) before it leaves the line to maintenance.
pub const CLAIM_SKIP_MAX: usize = 64;

/// 256 kinds a pool: a claim for any kind looks at the head of each, and at no more; beyond it, at a part that changes.
pub const KINDS_A_POOL_MAX: usize = 256;

/// 1,000 items a page, whatever was asked.
pub const PAGE_ITEMS_MAX: usize = 1_000;

/// 1,000 records that one page of a filtered listing may read before it returns with a cursor.
pub const PAGE_SCAN_MAX: usize = 1_000;

/// 4 MiB of payloads, results and errors, behind which a page ends whatever was asked: sixteen tasks of the largest size, and
/// thousands of usual ones.
pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// 4 MiB of the same, behind which a claim gives out no further task: runners with room hear that there may be more.
pub const CLAIM_BYTES_MAX: usize = 4 * 1024 * 1024;

/// 256 records that a transfer reads and writes at a time: 80 MiB if each has the largest payload and result there are.
pub const TRANSFER_PAGE_ITEMS: usize = 256;

/// 8 MiB of lines that an import writes at a time: a sync for as much costs nothing beside it.
pub const TRANSFER_BATCH_BYTES: usize = 8 * 1024 * 1024;

/// 4 MiB a line of an export: the largest payload and result take 2 MiB when each of their bytes has to be escaped.
pub const TRANSFER_LINE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// 1,000 due entries a call: a page of maintenance.
pub const DUE_ITEMS_MAX: usize = 1_000;

/// Ten years: longer waits are a mistake in the unit.
pub const DURATION_MAX: Millis = Millis::from_days(3_650);

/// One second: a clock that differs by less was corrected, not set. Leap seconds and the steps of `ntpd` stay below it or meet it.
pub const CLOCK_STEP_MIN: Millis = Millis::from_secs(1);

/// One week: what a process makes up for when its machine's clock is set back. Beyond it the clock was wrong by so much before
/// that its time is not worth keeping.
pub const CLOCK_LEAD_MAX: Millis = Millis::from_days(7);

/// A twentieth: by so much the time of a process runs slower while it is ahead of the machine's clock. Waits then take 5 percent
/// longer, which no retry policy notices, and an hour is made up for within a day.
pub const CLOCK_SLEW: u64 = 20;

/// One day: a lease beyond it would keep a dead runner's task for longer than anybody waits.
pub const LEASE_MAX: Millis = Millis::from_days(1);

/// One minute: how long after its end an attempt's last output may still be on its way.
pub const OUTPUT_LATE_MAX: Millis = Millis::from_secs(60);

/// 100 ms: below this a lease is lost to ordinary scheduling delays.
pub const LEASE_MIN: Millis = Millis::new(100);

/// 10,000 runners of a namespace that are watched: one each on more machines than a table of DynamoDB has claims a second for.
pub const RUNNERS_MAX: usize = 10_000;

/// 4 MiB of what the runners of a namespace say of themselves: a store keeps all of it in memory, and a listing tells it at once.
/// 10,000 runners fit with 400 bytes each.
pub const RUNNERS_BYTES_MAX: usize = 4 * 1024 * 1024;

/// 4 MiB of payloads that the schedules of a namespace hand in, and 1,000 schedules, for the same reason: sixteen of the largest.
pub const SCHEDULES_BYTES_MAX: usize = 4 * 1024 * 1024;
/// See [`SCHEDULES_BYTES_MAX`].
pub const SCHEDULES_MAX: usize = PAGE_ITEMS_MAX;

/// 1,024 task types that a runner handles: it asks for 64 a claim, so sixteen claims go round all of them.
pub const RUNNER_KINDS_MAX: usize = 1_024;

/// 1 KiB: a folder's name for people. A runner of ours cuts longer ones; in a request they are refused.
pub const PROJECT_ROOT_BYTES_MAX: usize = 1024;

/// 4 KiB of one fact of a refusal: enough for a path of a few dozen ids, little to keep for a caller that does not read.
pub const FACT_BYTES_MAX: usize = 4 * 1024;

/// 1 KiB of cron expression: each of its seven fields has room for a long list. With a thousand schedules all are read at once.
pub const CRON_BYTES_MAX: usize = 1024;

/// 24 hours: how long an idempotency key answers with its first result.
pub const IDEMPOTENCY_KEPT: Millis = Millis::from_days(1);

/// 24 hours: how long a bulk command that was carried out is remembered, so that the same request starts nothing new.
pub const BULK_KEPT: Millis = IDEMPOTENCY_KEPT;

/// 15 minutes: a signal nobody read by then belongs to a runner that is long gone.
pub const SIGNAL_KEPT: Millis = Millis::from_secs(15 * 60);

/// One day: how long the record of a dead runner stays for people to see.
pub const DEAD_RUNNER_KEPT: Millis = Millis::from_days(1);

/// One second: how soon a task that waits for a group looks again while the group is young.
pub const AWAIT_LOOK_MIN: Millis = Millis::from_secs(1);
/// Half a minute: how rarely it looks when the group has been open for long.
pub const AWAIT_LOOK_MAX: Millis = Millis::from_secs(30);

/// 4 ticks a commit: each is a task with its keys and its lane, at most five writes.
pub const TICKS_A_COMMIT_MAX: usize = 4;

/// 1,000 missed ticks that a schedule makes up for at most, the newest; those before them are left out.
pub const MISSED_TICKS_MAX: usize = 1_000;

/// One minute: how old a tick may be that counts as seen, although it is not the first one due. Maintenance looks every second;
/// a round that takes a minute is slow, and a longer one is an outage.
pub const TICK_SEEN_WITHIN: Millis = Millis::from_secs(60);

/// 256 MiB a log: what a person can search through; an attempt that writes more loses its oldest output.
pub const LOG_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// 4 GiB for all logs of a folder, as a system's journal has: sixteen of the longest, and many thousands of usual ones. Beyond
/// it the namespaces that have most lose the logs that were written to longest ago.
pub const LOGS_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// 4 MiB a file of a log: 64 of them make the largest log, and one is dropped in a moment.
pub const LOG_SEGMENT_BYTES: usize = 4 * 1024 * 1024;
