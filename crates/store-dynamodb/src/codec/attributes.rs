//! The names of attributes. Those of the document keep its words; ours begin with `ek_` and are short, because DynamoDB
//! counts a name's bytes as part of every item.

/// Hash key of both documented tables.
pub(crate) const NAMESPACE: &str = "namespace";
/// Range key of the queue table.
pub(crate) const TASK_ID: &str = "task_id";
/// Range key of the runner table.
pub(crate) const RUNNER_ID: &str = "runner_id";

/// The group; the task's own id where it has none.
pub(crate) const GROUP: &str = "task_group_id";
/// The session; the task's own id where it has none.
pub(crate) const SESSION: &str = "session_id";
/// The documented word for where an item is in its life; also of runners.
pub(crate) const STATUS: &str = "status";
/// What the user asked for.
pub(crate) const PROMPT: &str = "prompt";
/// When the task was made.
pub(crate) const CREATED_AT: &str = "created_at";
/// When it last changed.
pub(crate) const UPDATED_AT: &str = "updated_at";
/// What went wrong; only in ERROR.
pub(crate) const ERROR_MESSAGE: &str = "error_message";
/// Who runs it; only in RUNNING.
pub(crate) const CLAIMED_BY: &str = "claimed_by";
/// The open question; an extension that other programs know too.
pub(crate) const CLARIFICATION: &str = "clarification";

/// A runner's last sign of life.
pub(crate) const LAST_HEARTBEAT: &str = "last_heartbeat";
/// When a runner started.
pub(crate) const STARTED_AT: &str = "started_at";
/// The folder that a runner works for.
pub(crate) const PROJECT_ROOT: &str = "project_root";

/// Hash key of our own table.
pub(crate) const PK: &str = "pk";
/// Range key of our own table.
pub(crate) const SK: &str = "sk";
/// A number that several writers add to.
pub(crate) const COUNT: &str = "n";
/// How many parts a line of ready tasks has.
pub(crate) const SHARDS: &str = "shards";

/// The version of the record.
pub(crate) const VERSION: &str = "ek_v";
/// The lowest version that may write it.
pub(crate) const MIN_WRITER: &str = "ek_w";
/// New with every write of ours.
pub(crate) const REVISION: &str = "ek_rev";
/// The op that created the record.
pub(crate) const CREATED_BY: &str = "ek_by";
/// The op that wrote it last.
pub(crate) const LAST: &str = "ek_last";

/// What was asked for, but for the payload.
pub(crate) const SPEC: &str = "ek_spec";
/// What became of it so far.
pub(crate) const STATE: &str = "ek_state";
/// How the payload stands in the item.
pub(crate) const FORM: &str = "ek_form";
/// The payload, where `prompt` cannot hold it.
pub(crate) const PAYLOAD: &str = "ek_payload";
/// The op that wrote the payload apart from the item.
pub(crate) const APART: &str = "ek_apart";
/// Any other record.
pub(crate) const BODY: &str = "ek_body";

/// Where a task stands: a line, or with its holder.
pub(crate) const PLACE: &str = "ek_place";
/// Its order there.
pub(crate) const PLACE_ORDER: &str = "ek_place_no";
/// The due list that a record is in.
pub(crate) const DUE: &str = "ek_due";
/// Its order there.
pub(crate) const DUE_ORDER: &str = "ek_due_no";
/// The namespace of tasks whose ids do not sort by creation.
pub(crate) const LISTED: &str = "ek_list";
/// Namespace and group, of tasks that have one.
pub(crate) const GROUPED: &str = "ek_group";
/// Namespace and session, of tasks that have one.
pub(crate) const IN_SESSION: &str = "ek_session";
/// Creation and id: the order of all listings.
pub(crate) const CREATED_ORDER: &str = "ek_made";
