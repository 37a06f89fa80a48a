//! Commands as handlers: any program runs tasks, is watched while it does, and is stopped with everything that it started.
//!
//! `command.rs` is the handler. Each attempt has a supervisor process (`supervisor.rs`), a second start of the same program,
//! which owns the tree of processes (`tree.rs`) and speaks with the runner in lines of JSON (`words.rs`, `supervised.rs`).
//! What the command writes goes to its log (`output.rs`), what it says to the runner comes by a side channel (`events.rs`),
//! and how its exit is understood stands in one table (`exit.rs`).
//!
//! ```no_run
//! use ekiden::exec::{CommandHandler, Supervisor};
//! use ekiden::{Ekiden, Runner};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // Supervisors are this program, started again.
//!     ekiden::exec::supervise_if_asked();
//!     // Commands run as the same user; they shall not read this program's environment and memory.
//!     ekiden::exec::deny_inspection()?;
//!     // What a command leaves behind that kills its supervisor is found among this program's children.
//!     ekiden::exec::adopt_orphans()?;
//!     let runtime = tokio::runtime::Runtime::new()?;
//!     runtime.block_on(async {
//!         let client = Ekiden::open("local:./data").await?.namespace("default")?;
//!         let agent = CommandHandler::new("prompt", ["my-agent", "--stdin"], Supervisor::this_program());
//!         Runner::builder(&client).task_handler(agent).run().await?;
//!         Ok(())
//!     })
//! }
//! ```
//!
//! Linux only: other systems have no child subreaper, without which a process that leaves its parents is never found again.

mod command;
mod environment;
mod events;
mod exit;
mod folder;
mod orphans;
mod output;
mod redact;
mod secrets;
mod supervised;
mod supervisor;
mod tree;
mod words;

pub use command::{CommandHandler, Directory};
pub use environment::ALLOWED;
pub use exit::{Exit, ExitRow, TABLE};
pub use orphans::adopt_orphans;
pub use output::{Stream, Watch};
pub use redact::redacted;
pub use supervised::Supervisor;
pub use supervisor::{deny_inspection, supervise_if_asked};
