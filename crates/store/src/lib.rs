//! The store contract: what Ekiden needs of a place that keeps records, and how a store proves that it gives it.
//!
//! Start at [`Store`], whose documentation numbers the rules. [`MemoryStore`] is the executable specification, and
//! the `conformance` module (a feature of that name) holds every store to it.
//!
//! A task's life on a store, from enqueue to success:
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! use std::sync::Arc;
//! use ekiden_core::claim::{Claim, ClaimPool, Kinds, LeaseTerm};
//! use ekiden_core::event::Event;
//! use ekiden_core::id::{Kind, Namespace, PoolName, RunnerId};
//! use ekiden_core::key::Key;
//! use ekiden_core::lease::Token;
//! use ekiden_core::plan::{Enqueue, Happen};
//! use ekiden_core::pool::Profile;
//! use ekiden_core::task::{Phase, Spec, TaskEnvelope};
//! use ekiden_core::transition::Start;
//! use ekiden_store::clock::{Clock, SystemClock};
//! use ekiden_store::entropy::Entropy;
//! use ekiden_store::{MemoryStore, StoreExt};
//!
//! let (store, mut entropy, now) = (MemoryStore::new(), Entropy::from_system(), SystemClock.now());
//! let (namespace, pool) = (Namespace::new("default")?, PoolName::new("mail")?);
//!
//! let envelope = TaskEnvelope::json(Kind::new("send_email")?, r#"{"to":"a@example.com"}"#);
//! let policy = Profile::Embedded.settings().policy;
//! let spec = Spec::new(namespace.clone(), pool.clone(), entropy.task_id(now), envelope, policy, now);
//! let plan = Enqueue { spec: Arc::new(spec), start: Start::Released, parents: vec![], idempotency: None };
//! let id = store.run(&plan, entropy.op_id(now), now).await?.id().clone();
//!
//! let claim = Claim {
//!     id: entropy.op_id(now),
//!     now,
//!     pools: vec![ClaimPool::open(namespace.clone(), pool)],
//!     kinds: Kinds::Any,
//!     limit: 1,
//!     holder: RunnerId::new("runner.1")?,
//!     lease: LeaseTerm::Heartbeat,
//! };
//! let taken = store.claim(claim).await?.tasks;
//! assert_eq!(taken.len(), 1);
//!
//! let event = Event::Succeeded { token: Token(1), result: None };
//! let done = store.run(&Happen { task: Key::task(&namespace, &id), event }, entropy.op_id(now), now).await?;
//! assert_eq!(done.task().state.phase, Phase::Succeeded);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod entropy;
mod error;
mod ext;
mod hints;
pub mod layers;
mod memory;
mod op;
mod query;
pub mod shelf;
mod store;
pub mod transfer;

pub use error::{Happened, StoreError};
pub use ext::{Alone, PlanError, RunAndClaimed, StoreExt};
pub use hints::Hints;
pub use memory::MemoryStore;
pub use op::{Answer, Applied, Claimed, Conflict, Op, Outcome};
pub use query::{
    CountScope, Counts, DueEntry, DueQuery, ListOrder, Page, RecordQuery, TaskQuery, check_batch, check_namespaces,
};
pub use store::{CheckDepth, Finding, Hint, Info, Others, Store};
