//! The conformance suite: every rule of [`crate::Store`], as cases that every store must pass.
//!
//! A store's tests say `ekiden_store::suite!(name, factory)` once and get all of them; there is no way to pick. The list of
//! cases is the macro [`conformance_cases`](crate::conformance_cases), and it is the only one.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "cases are tests: a panic is how they fail")]

pub mod lab;
pub mod model;

pub mod claim;
pub mod commit;
pub mod concurrency;
pub mod counts;
pub mod dependencies;
pub mod due;
pub mod input;
pub mod lanes;
pub mod leases;
pub mod listing;
pub mod lost_replies;
pub mod order;
pub mod random;
pub mod reads;
pub mod records;
pub mod reopen;
pub mod sweeps;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;

use crate::store::Store;

pub use lab::Lab;

/// Makes stores for the suite. Each case gets a fresh one.
#[async_trait]
pub trait Factory: Send + Sync + 'static {
    /// A new, empty store.
    async fn open(&self) -> Arc<dyn Store>;

    /// The same store after its process died without a word and was started again. `None` where nothing survives.
    async fn reopen(&self, old: Arc<dyn Store>) -> Option<Arc<dyn Store>>;

    /// How many random sequences of operations to compare with the naive model.
    fn random_sequences(&self) -> usize;
}

/// A case of the suite.
pub struct Case {
    /// The group, which is also the module.
    pub group: &'static str,
    /// The law that it states.
    pub name: &'static str,
    /// Runs it; a broken law is a panic.
    pub run: fn(Lab) -> Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// The one list of cases. `$then!` gets the arguments and all groups with their cases.
#[macro_export]
macro_rules! conformance_cases {
    ($then:path, $($args:tt)*) => {
        $then! {
            [$($args)*]
            random {
                random_operations_agree_with_the_naive_model,

            }
        }
    };
}

/// All cases as tests of a module: `suite!(memory, MyFactory)`.
#[macro_export]
macro_rules! suite {
    ($name:ident, $factory:expr) => {
        mod $name {
            use super::*;
            $crate::conformance_cases! { $crate::conformance_tests, $factory }
        }
    };
}

/// One test a case. Used by [`suite!`](crate::suite).
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ([$factory:expr] $($group:ident { $($case:ident,)* })*) => {
        $(mod $group {
            use super::*;
            $(#[test]
            fn $case() {
                $crate::conformance::run_case($factory, $crate::conformance::$group::$case);
            })*
        })*
    };
}

macro_rules! case_list {
    ([] $($group:ident { $($case:ident,)* })*) => {
        vec![$($(Case { group: stringify!($group), name: stringify!($case), run: |lab| Box::pin($group::$case(lab)) },)*)*]
    };
}

/// All cases, for those who want to run them otherwise, such as against a store that is broken on purpose.
pub fn cases() -> Vec<Case> {
    conformance_cases! { case_list, }
}

/// Runs one case on a fresh store and afterwards looks for damage.
pub fn run_case<F, C, R>(factory: F, case: C)
where
    F: Factory,
    C: FnOnce(Lab) -> R,
    R: Future<Output = ()>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime for one test can be built");
    runtime.block_on(async {
        let lab = Lab::open(Arc::new(factory)).await;
        case(lab.clone()).await;
        lab.finish().await;
    });
}

/// Runs one listed case on its own task. A broken law is the text of its panic.
pub async fn try_case(factory: Arc<dyn Factory>, case: &Case) -> Result<(), String> {
    let lab = Lab::open(factory).await;
    let run = case.run;
    let outcome = tokio::spawn(async move {
        run(lab.clone()).await;
        lab.finish().await;
    })
    .await;
    outcome.map_err(|error| match error.try_into_panic() {
        Ok(panic) => panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
            .unwrap_or_else(|| "a panic without a text".to_owned()),
        Err(error) => error.to_string(),
    })
}
