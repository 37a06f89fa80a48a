//! Reason codes: the stable names of every refusal, with the texts people read in both languages.
//!
//! A code is added in three places that a test keeps together: the list below and the two message files beside it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::limits;

macro_rules! reason_codes {
    ($($category:ident { $($(#[$doc:meta])* $name:ident = $text:literal,)+ })+) => {
        /// Why something was refused, ended or waits. The text form is wire format and never changes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum ReasonCode {
            $($($(#[$doc])* #[serde(rename = $text)] $name,)+)+
        }

        impl ReasonCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$($(Self::$name,)+)+];

            /// The stable text form.
            pub const fn as_str(self) -> &'static str {
                match self { $($(Self::$name => $text,)+)+ }
            }

            /// The code of this text form.
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($($text => Some(Self::$name),)+)+ _ => None }
            }

            /// What sort of thing is wrong.
            pub const fn category(self) -> Category {
                match self { $($(Self::$name)|+ => Category::$category,)+ }
            }
        }
    };
}

/// What sort of thing is wrong: it says who can mend it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Category {
    /// The request: its sender mends it.
    Request,
    /// Who asks, or from where: an operator mends it.
    Access,
    /// The task, its runner or its queue: time or another command mends it.
    Execution,
    /// The store.
    Store,
    /// The server, or the way to it.
    Server,
}

impl Category {
    /// The stable text form.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "REQUEST",
            Self::Access => "ACCESS",
            Self::Execution => "EXECUTION",
            Self::Store => "STORE",
            Self::Server => "SERVER",
        }
    }
}

reason_codes! {
    Request {
        // What was asked for is not well formed.
        /// An id is empty, too long or has control characters.
        IdInvalid = "ID_INVALID",
        /// A time cannot be read or lies outside the years 1970–9999.
        TimeInvalid = "TIME_INVALID",
        /// A duration is zero or absurd.
        DurationInvalid = "DURATION_INVALID",
        /// A number is outside its limits.
        NumberOutOfRange = "NUMBER_OUT_OF_RANGE",
        /// A priority is outside its range.
        PriorityOutOfRange = "PRIORITY_OUT_OF_RANGE",
        /// A payload, result or question is larger than allowed.
        PayloadTooLarge = "PAYLOAD_TOO_LARGE",
        /// Labels are too many or too long.
        LabelsInvalid = "LABELS_INVALID",
        /// A lane's width is zero, too large, or differs from the lane's.
        LaneInvalid = "LANE_INVALID",
        /// A cron expression, interval or time zone cannot be used.
        ScheduleInvalid = "SCHEDULE_INVALID",
        /// Dependencies would form a cycle.
        DependencyCycle = "DEPENDENCY_CYCLE",
        /// A parent does not exist, or was purged.
        DependencyUnknown = "DEPENDENCY_UNKNOWN",
        /// Too many parents, or too long a chain to check.
        DependencyTooMany = "DEPENDENCY_TOO_MANY",
        /// A commit has no writes, more than 25, or too many bytes.
        CommitTooLarge = "COMMIT_TOO_LARGE",
        /// A commit writes one key twice.
        CommitKeyTwice = "COMMIT_KEY_TWICE",
        /// A write of a commit does not fit its key or its expectation.
        CommitInvalid = "COMMIT_INVALID",
        /// A claim asks for nothing, or for too many pools, kinds or tasks.
        ClaimInvalid = "CLAIM_INVALID",
        /// A page, cursor or batch is malformed or too large.
        QueryInvalid = "QUERY_INVALID",
        /// A store's address cannot be read, or names a store that this program was built without.
        UrlInvalid = "URL_INVALID",
        /// A payload or result cannot be written as JSON.
        PayloadInvalid = "PAYLOAD_INVALID",
        /// Two handlers were registered for one kind.
        HandlerTwice = "HANDLER_TWICE",
        /// A runner was built that cannot do anything: no handler, no pool, or no room.
        RunnerInvalid = "RUNNER_INVALID",
        /// A part of a runner failed, so the runner ended.
        RunnerFailed = "RUNNER_FAILED",
        /// A mailbox message does not have the form of its type.
        MessageInvalid = "MESSAGE_INVALID",
        // HTTP.
        /// A body, path or query cannot be read.
        RequestInvalid = "REQUEST_INVALID",
        /// There is nothing at this path.
        RouteNotFound = "ROUTE_NOT_FOUND",
        /// The path does not know this method.
        MethodNotAllowed = "METHOD_NOT_ALLOWED",
        /// A body has a media type that is not taken.
        MediaTypeUnsupported = "MEDIA_TYPE_UNSUPPORTED",
        /// A body is larger than the path takes.
        BodyTooLarge = "BODY_TOO_LARGE",
        /// The headers are larger than a server takes.
        HeadersTooLarge = "HEADERS_TOO_LARGE",
        /// A log goes on at another place than was said.
        LogOffsetWrong = "LOG_OFFSET_WRONG",
        /// There is no such log.
        LogNotFound = "LOG_NOT_FOUND",
        /// There is no such command on many tasks, or it is done.
        SweepNotFound = "SWEEP_NOT_FOUND",
        /// A setting cannot be used.
        ConfigInvalid = "CONFIG_INVALID",
        /// A command on many tasks was not confirmed.
        ConfirmationMissing = "CONFIRMATION_MISSING",
    }
    Access {
        /// A token is needed, and there was none.
        TokenMissing = "TOKEN_MISSING",
        /// The token is not known, or was revoked.
        TokenInvalid = "TOKEN_INVALID",
        /// The token does not allow this.
        ScopeMissing = "SCOPE_MISSING",
        /// The token was set for another server than the one that the settings name.
        TokenForOtherServer = "TOKEN_FOR_OTHER_SERVER",
        /// There is no such token.
        TokenNotFound = "TOKEN_NOT_FOUND",
        /// The request names a host that is not this server.
        HostForeign = "HOST_FOREIGN",
        /// The request comes from a page of another site.
        OriginForeign = "ORIGIN_FOREIGN",
        /// An address that others can reach needs a token.
        BindUnsafe = "BIND_UNSAFE",
    }
    Execution {
        // The task is not in a place where this can happen.
        /// There is no such task.
        TaskNotFound = "TASK_NOT_FOUND",
        /// A task with this id exists already.
        TaskExists = "TASK_EXISTS",
        /// The task has ended.
        TaskFinal = "TASK_FINAL",
        /// The task was cancelled.
        TaskCancelled = "TASK_CANCELLED",
        /// The task is not running.
        TaskNotRunning = "TASK_NOT_RUNNING",
        /// The task cannot be claimed now.
        TaskNotClaimable = "TASK_NOT_CLAIMABLE",
        /// The task was not cancelled, and this is only for cancelled ones.
        TaskNotCancelled = "TASK_NOT_CANCELLED",
        /// The task asks no question.
        TaskNotAsking = "TASK_NOT_ASKING",
        /// The task is held back, and this needs it to be released first.
        TaskHeld = "TASK_HELD",
        /// The task is not held back, and this is only for tasks that are.
        TaskNotHeld = "TASK_NOT_HELD",
        /// The holder's lease went to another claim.
        LeaseLost = "LEASE_LOST",
        /// The holder is alive as far as the evidence goes.
        LeaseAlive = "LEASE_ALIVE",
        /// The answer belongs to another question.
        QuestionClosed = "QUESTION_CLOSED",
        /// Another open task has this unique key.
        UniqueConflict = "UNIQUE_CONFLICT",
        /// There is no such schedule.
        ScheduleNotFound = "SCHEDULE_NOT_FOUND",
        /// There is no such runner.
        RunnerNotFound = "RUNNER_NOT_FOUND",
        /// This runner's incarnation is over: it was declared dead, or said goodbye.
        RunnerDead = "RUNNER_DEAD",
        // Why a task ended.
        /// All attempts are used up.
        AttemptsExhausted = "ATTEMPTS_EXHAUSTED",
        /// The handler said that trying again is pointless.
        PermanentFailure = "PERMANENT_FAILURE",
        /// The task took its runner down too often.
        CrashLimit = "CRASH_LIMIT",
        /// The task outlived its `expires_at`.
        Expired = "EXPIRED",
        /// A question was not answered in time.
        QuestionExpired = "QUESTION_EXPIRED",
        /// A newer message replaced this one.
        Superseded = "SUPERSEDED",
        /// Somebody asked for it to stop.
        CancelRequested = "CANCEL_REQUESTED",
        /// A task it depends on did not succeed.
        DependencyFailed = "DEPENDENCY_FAILED",
        // Why a task waits (explain).
        /// Tasks it depends on have not ended.
        DependencyUnmet = "DEPENDENCY_UNMET",
        /// Its time has not come.
        NotDue = "NOT_DUE",
        /// The machine's clock was set back while the process ran: the wait goes on by the time that passes.
        ClockSetBack = "CLOCK_SET_BACK",
        /// The task was written by a clock that was ahead of this one: it waits until this one shows its time.
        ClockBehind = "CLOCK_BEHIND",
        /// Others of its lane come first.
        BehindLane = "BEHIND_LANE",
        /// Its pool is paused.
        PoolPaused = "POOL_PAUSED",
        /// Its pool runs as many as it may.
        PoolFull = "POOL_FULL",
        /// No living runner handles its type.
        NoHandler = "NO_HANDLER",
        /// It may run, and waits for a runner to have room.
        WaitsForRunner = "WAITS_FOR_RUNNER",
        /// It waits for a group of tasks to end.
        GroupOpen = "GROUP_OPEN",
        /// It waits for an answer.
        NeedsInput = "NEEDS_INPUT",
        /// An attempt is under way.
        AttemptRunning = "ATTEMPT_RUNNING",
        /// An attempt is under way, but its runner has been silent for long.
        RunnerSilent = "RUNNER_SILENT",
        /// It was cancelled, and its last attempt has not ended yet.
        AttemptEnding = "ATTEMPT_ENDING",
        // Locks and auto-run.
        /// A run of the same request is under way.
        RunInProgress = "RUN_IN_PROGRESS",
        /// Auto-run is on already.
        QueueInProgress = "QUEUE_IN_PROGRESS",
        /// A stale lock was taken back.
        LockStaleRecovered = "LOCK_STALE_RECOVERED",
        /// The lock is gone or somebody else's.
        LockLost = "LOCK_LOST",
    }
    Store {
        /// Others changed the same records too often in a row.
        StoreBusy = "STORE_BUSY",
        /// The store did not take the request.
        StoreUnavailable = "STORE_UNAVAILABLE",
        /// The store may or may not have taken the request.
        StoreOutcomeUnknown = "STORE_OUTCOME_UNKNOWN",
        /// The store was closed.
        StoreClosed = "STORE_CLOSED",
        /// A write to disk failed, and the store has to be opened again.
        StoreFailed = "STORE_FAILED",
        /// The disk has no room for new tasks.
        StoreFull = "STORE_FULL",
        /// Another process has the store.
        StoreInUse = "STORE_IN_USE",
        /// The store was written by a newer version.
        StoreTooNew = "STORE_TOO_NEW",
        /// A stored record cannot be read.
        StoreDamaged = "STORE_DAMAGED",
        /// A record was written by a newer version that older ones may not write.
        RecordTooNew = "RECORD_TOO_NEW",
        /// There is no store at this place.
        StoreNotFound = "STORE_NOT_FOUND",
        /// A backup goes to a place where something is already.
        BackupExists = "BACKUP_EXISTS",
        /// A store of this kind cannot do what was asked.
        StoreCannot = "STORE_CANNOT",
        /// A table is there whose keys are not as documented.
        TableUnfit = "TABLE_UNFIT",
        /// The service wants keys, and none are where they are usually kept.
        CredentialsMissing = "CREDENTIALS_MISSING",
        /// A table of an older layout is there, and nothing reads it.
        TableOld = "TABLE_OLD",
        /// A table lacks an index.
        IndexMissing = "INDEX_MISSING",
        /// Numbers of tasks by state are not what is there.
        CountsDrifted = "COUNTS_DRIFTED",
        /// A line of tasks takes more than one part of it can.
        LineHot = "LINE_HOT",
        /// Clocks of machines disagree.
        ClockSkewed = "CLOCK_SKEWED",
        /// A task is with a runner of another program that is silent.
        ForeignRunnerSilent = "FOREIGN_RUNNER_SILENT",
        /// A payload belongs to no task.
        PayloadOrphaned = "PAYLOAD_ORPHANED",
        /// A line of an import cannot be read, or does not belong there.
        ImportInvalid = "IMPORT_INVALID",
        /// An import ends before its end.
        ImportCut = "IMPORT_CUT",
        /// An import was written by a newer version.
        ImportTooNew = "IMPORT_TOO_NEW",
        /// The target of an import has something in a namespace that is imported.
        ImportExists = "IMPORT_EXISTS",
        /// Nobody else can reach the store while it is open here, so that what is waited for cannot come.
        StoreNotServed = "STORE_NOT_SERVED",
        /// A file that was named cannot be read or written.
        FileUnavailable = "FILE_UNAVAILABLE",
        /// Something else stands in the place of a regular file of this user.
        FileUnsafe = "FILE_UNSAFE",
        /// A folder is not this user's alone, so that nothing is put into it.
        FolderUnsafe = "FOLDER_UNSAFE",
        /// The namespace is shared with foreign runners.
        NamespaceShared = "NAMESPACE_SHARED",
    }
    Server {
        /// The server has as much to do as it takes on.
        ServerBusy = "SERVER_BUSY",
        /// The server is shutting down.
        ServerStopping = "SERVER_STOPPING",
        /// A request took longer than it may.
        RequestTimeout = "REQUEST_TIMEOUT",
        /// The server has a fault.
        ServerFault = "SERVER_FAULT",
        /// Nothing answers at the server's address.
        ServerUnreachable = "SERVER_UNREACHABLE",
        /// The way to the server broke before its answer came.
        ReplyLost = "REPLY_LOST",
        /// The server refused for a reason that this version does not know.
        ServerRefused = "SERVER_REFUSED",
        /// What answers is no server of ours, or of another version.
        ServerForeign = "SERVER_FOREIGN",
        /// The address cannot be listened on.
        AddressTaken = "ADDRESS_TAKEN",
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The languages that people read our messages in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// English.
    En,
    /// Japanese.
    Ja,
}

/// What a person reads about a reason code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// What happened, in a few words.
    pub title: String,
    /// Why, in a sentence.
    pub summary: String,
    /// What to do, one step each.
    pub actions: Vec<String>,
}

impl ReasonCode {
    /// Whether the same request may succeed a little later, as nothing is wrong with it: the server could not carry it out just
    /// then, or the way to the server was too slow or broken.
    pub const fn is_passing(self) -> bool {
        matches!(
            self,
            Self::ServerBusy
                | Self::ServerStopping
                | Self::RequestTimeout
                | Self::ServerFault
                | Self::ServerUnreachable
                | Self::ReplyLost
        )
    }

    /// Whether it refuses the content of one settlement, so that the same end with other content may be taken. Every other code
    /// is about the request, its sender, the store or the way there, and says nothing about how an attempt ended.
    pub const fn refuses_content(self) -> bool {
        matches!(
            self,
            Self::PayloadTooLarge
                | Self::PayloadInvalid
                | Self::CommitTooLarge
                | Self::NumberOutOfRange
                | Self::DurationInvalid
                | Self::TimeInvalid
                | Self::IdInvalid
        )
    }

    /// The texts of this code in the given language.
    pub fn message(self, language: Language) -> &'static Message {
        catalogue(language).get(self.as_str()).expect("a test holds that every code has its texts")
    }
}

fn catalogue(language: Language) -> &'static BTreeMap<String, Message> {
    static EN: OnceLock<BTreeMap<String, Message>> = OnceLock::new();
    static JA: OnceLock<BTreeMap<String, Message>> = OnceLock::new();
    let (cell, text) = match language {
        Language::En => (&EN, include_str!("messages.v1.en.json")),
        Language::Ja => (&JA, include_str!("messages.v1.ja.json")),
    };
    cell.get_or_init(|| serde_json::from_str(text).expect("a test holds that the message files parse"))
}

/// A request that was understood and not carried out. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct Refusal {
    /// The stable reason.
    pub code: ReasonCode,
    /// The facts of this case, by name.
    pub context: BTreeMap<String, String>,
}

impl Refusal {
    /// A refusal without facts yet.
    pub fn new(code: ReasonCode) -> Self {
        Self { code, context: BTreeMap::new() }
    }

    /// Adds a fact. One that is long is cut: it may be made of what a caller sent, and goes back to the caller.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        let mut value = value.to_string();
        if value.len() > limits::FACT_BYTES_MAX {
            value.truncate(value.floor_char_boundary(limits::FACT_BYTES_MAX - '…'.len_utf8()));
            value.push('…');
            value.shrink_to_fit();
        }
        self.context.insert(name.to_owned(), value);
        self
    }
}

impl From<ReasonCode> for Refusal {
    fn from(code: ReasonCode) -> Self {
        Self::new(code)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.code.message(Language::En).title)?;
        let mut separator = " (";
        for (name, value) in &self.context {
            write!(f, "{separator}{name}: {value}")?;
            separator = ", ";
        }
        if self.context.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S9: what a caller sent does not come back at its full length.
    #[test]
    fn long_facts_are_cut_at_a_character() {
        let refusal = Refusal::new(ReasonCode::RequestInvalid).with("why", "長".repeat(5_000)).with("field", "tasks");
        let why = &refusal.context["why"];
        assert!(why.len() <= limits::FACT_BYTES_MAX && why.ends_with('…'), "{} bytes", why.len());
        assert_eq!(refusal.context["field"], "tasks");
    }

    /// L10
    #[test]
    fn every_code_has_title_summary_and_actions_in_both_languages() {
        for language in [Language::En, Language::Ja] {
            let catalogue = catalogue(language);
            for code in ReasonCode::ALL {
                let message =
                    catalogue.get(code.as_str()).unwrap_or_else(|| panic!("{code} lacks texts in {language:?}"));
                assert!(!message.title.trim().is_empty(), "{code} lacks a title in {language:?}");
                assert!(!message.summary.trim().is_empty(), "{code} lacks a summary in {language:?}");
                assert!(!message.actions.is_empty(), "{code} lacks actions in {language:?}");
                assert!(message.actions.iter().all(|action| !action.trim().is_empty()), "{code}: empty action");
            }
            let known: Vec<&str> = ReasonCode::ALL.iter().map(|code| code.as_str()).collect();
            for name in catalogue.keys() {
                assert!(known.contains(&name.as_str()), "{name} has texts in {language:?} but is no reason code");
            }
        }
    }

    /// L10
    #[test]
    fn japanese_texts_are_japanese_and_english_ones_are_not() {
        let japanese = |text: &str| {
            text.chars().any(|c| ('\u{3040}'..='\u{30ff}').contains(&c) || ('\u{4e00}'..='\u{9fff}').contains(&c))
        };
        for code in ReasonCode::ALL {
            let ja = code.message(Language::Ja);
            assert!(japanese(&ja.title) && japanese(&ja.summary), "{code}");
            let en = code.message(Language::En);
            assert!(!japanese(&en.title) && !japanese(&en.summary), "{code}");
        }
    }

    /// L10
    #[test]
    fn the_documented_text_of_queue_in_progress_stands_as_written() {
        let message = ReasonCode::QueueInProgress.message(Language::Ja);
        assert_eq!(message.title, "キュー実行がすでに動作中です");
        assert_eq!(message.summary, "Auto-runは同時に1つのみ実行できます。");
        assert_eq!(
            message.actions,
            [
                "別タブ/別ウィンドウで起動していないか確認",
                "しばらく待つ（TTLで回収されます）",
                "必要なら doctor(full) でロック回収を実施"
            ]
        );
        assert_eq!(ReasonCode::RunInProgress.message(Language::Ja).title, "同一RequestのRunが実行中です");
    }

    #[test]
    fn a_refusal_reads_as_a_sentence_with_its_facts() {
        let refusal = Refusal::new(ReasonCode::TaskNotFound).with("task_id", "t-1");
        let text = refusal.to_string();
        assert!(text.starts_with("TASK_NOT_FOUND: ") && text.ends_with("(task_id: t-1)"), "{text}");
        let json = serde_json::to_string(&refusal).unwrap();
        assert_eq!(serde_json::from_str::<Refusal>(&json).unwrap(), refusal);
    }
}
