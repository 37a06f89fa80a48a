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
            commit {
                a_put_that_expects_nothing_creates_once,
                a_put_replaces_only_the_revision_that_it_names,
                a_put_at_a_revision_does_not_create,
                a_check_looks_and_changes_nothing,
                an_unmet_check_stops_the_puts_beside_it,
                a_delete_removes_only_the_revision_that_it_names,
                a_delete_of_whatever_is_there_is_met_by_nothing_too,
                a_delete_of_a_revision_that_is_gone_is_a_conflict_that_found_nothing,
                an_add_creates_a_counter_and_adds_to_it,
                an_add_changes_the_revision_but_neither_creator_nor_last,
                one_unmet_write_stops_all_wherever_it_stands,
                a_conflict_shows_every_unmet_key_and_no_other,
                a_record_remembers_who_created_it_and_who_put_it_last,
                a_deleted_record_forgets_who_made_it,
                a_record_made_anew_has_a_revision_it_never_had,
                a_claim_is_the_last_op_but_not_the_creator,
                a_put_of_equal_content_changes_the_revision,
                revisions_are_answered_in_the_order_of_the_writes,
                a_put_moves_the_ready_entry,
                a_put_moves_a_due_entry_within_its_list,
                a_put_moves_a_task_from_list_to_list,
                a_put_moves_the_count,
                a_put_moves_the_holder,
                group_and_session_follow_the_record,
                a_delete_removes_all_index_entries,
                twenty_five_writes_happen_or_none,
                twelve_tasks_with_the_largest_payload_fit_one_commit,
                a_repeated_create_changes_nothing,
                a_repeated_replacement_changes_nothing,
                a_repeated_create_is_known_after_others_replaced_the_record,
                a_repeated_replacement_that_was_overwritten_conflicts,
                one_put_that_is_still_there_proves_the_whole_commit,
                a_repeated_add_is_not_doubled,
                a_repeated_commit_does_not_delete_again,
                a_repeated_commit_is_known_although_its_check_fails_now,
                repeated_deletes_with_nothing_left_are_applied,
                repeated_deletes_are_looked_at_anew_when_something_came_back,
                a_repeated_create_after_a_delete_creates_again,
                a_commit_that_conflicted_is_applied_when_its_expectations_hold,
                a_repeated_enqueue_gives_one_task_to_claim,
            }
            counts {
                an_empty_store_counts_nine_zeros,
                every_phase_is_counted_apart,
                counts_are_kept_for_each_pool_and_namespace,
                counts_follow_every_kind_of_change,
                expired_and_promoted_tasks_move_in_the_counts,
                a_reopened_task_moves_back_in_the_counts,
                claims_move_the_counts,
                deleted_tasks_leave_the_counts,
                purged_tasks_leave_the_counts,
                a_conflict_does_not_count,
                a_repeated_commit_does_not_count_twice,
                a_put_within_a_phase_counts_once,
                other_records_do_not_count,
            }
            input {
                due_refuses_limits_out_of_range,
                tasks_refuses_limits_out_of_range,
                records_refuses_limits_out_of_range,
                records_refuses_to_list_tasks,
                tasks_refuses_a_cursor_that_no_page_gave_out,
                get_refuses_too_many_keys,
                apply_refuses_too_many_ops,
                claims_for_nothing_or_too_much_are_refused,
                claims_at_their_limits_are_answered,
                specs_out_of_range_are_refused_and_nothing_is_written,
                parents_that_cannot_be_are_refused_and_nothing_is_written,
                an_id_that_is_taken_is_refused_and_nothing_is_written,
                a_result_that_is_too_large_is_refused_and_the_task_runs_on,
                commits_that_make_no_sense_cannot_be_made,
            }
            listing {
                tasks_are_listed_by_creation_from_either_end,
                tasks_of_one_moment_are_listed_by_id,
                pages_of_any_size_give_every_task_once,
                an_item_is_the_record_as_get_gives_it,
                every_field_of_a_filter_selects,
                fields_of_a_filter_combine,
                several_phases_are_listed_as_one,
                held_by_follows_the_attempt_not_the_phase,
                text_is_found_in_id_title_error_and_payload,
                nothing_is_an_empty_last_page,
                tasks_that_change_phase_between_pages_are_listed_once,
                tasks_that_match_all_along_are_listed_once,
                a_cursor_stays_good_when_its_task_is_gone,
                newcomers_do_not_disturb_a_listing_from_the_newest,
                a_filter_that_matches_little_of_much_comes_to_its_end,
                more_tasks_than_a_page_holds_are_listed_once,
            }
            random {
                random_operations_agree_with_the_naive_model,

            }
            reads {
                get_answers_in_the_order_of_the_keys,
                the_same_key_twice_is_answered_twice,
                as_many_keys_as_a_read_may_hold_are_answered,
                no_keys_and_no_ops_have_no_answers,
                get_and_records_see_every_applied_commit,
                later_commits_of_one_call_see_earlier_ones,
                a_conflict_stops_no_other_op,
                an_error_of_one_op_stops_no_other,
                the_same_commit_twice_in_one_call_happens_once,
                as_many_ops_as_a_call_may_hold_are_answered_in_order,
                settle_and_claim_go_in_one_call,
                a_claim_sees_the_commits_before_it_in_its_call,
                records_of_one_name_live_apart_in_two_namespaces,
                a_commit_may_name_two_namespaces,
                listings_stay_in_their_namespace,
                counts_stay_in_their_namespace,
                due_lists_stay_in_their_namespace,
                claims_take_only_from_the_namespaces_that_they_name,
                a_task_that_becomes_claimable_gives_a_hint,
                a_changed_record_gives_a_hint,
                every_watcher_gets_the_hint,
                a_closed_store_refuses_every_call,
                nothing_is_written_after_close,
            }
            records {
                records_come_in_the_byte_order_of_names,
                names_that_look_alike_stay_apart,
                pages_of_any_size_give_every_record_once,
                a_prefix_gives_only_names_that_begin_with_it,
                parts_of_a_name_do_not_run_into_each_other,
                edges_are_found_by_their_parent_alone,
                a_cursor_stays_good_when_records_come_and_go,
                a_cursor_stays_good_when_all_the_rest_is_gone,
                kinds_do_not_mix,
                one_name_in_two_kinds_is_two_records,
                every_kind_of_record_comes_back_as_it_went_in,
                a_task_comes_back_whole_in_every_phase,
                payloads_of_any_bytes_come_back,
                names_and_numbers_at_their_limits_come_back,
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
