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
pub mod namespaces;
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
            claim {
                only_ready_tasks_are_given,
                a_delayed_task_is_given_from_its_very_moment_on,
                a_retry_is_given_when_its_wait_is_over,
                a_task_is_not_given_ahead_of_the_claims_clock,
                any_kind_means_every_kind_and_only_means_those_named,
                one_claim_serves_the_pools_that_it_names_and_no_others,
                a_claim_gives_no_more_than_its_limit,
                expired_tasks_in_front_do_not_hide_the_rest,
                a_task_is_written_as_it_was_taken,
                a_lease_for_a_time_has_a_deadline,
                a_repeated_claim_gives_the_same_tasks_and_no_others,
                a_repeated_claim_gives_only_what_it_still_holds,
                a_claim_id_of_another_namespace_gives_nothing_of_it,
                a_claim_id_of_another_holder_gives_nothing_of_its_tasks,
                a_repeated_claim_gives_only_pools_and_kinds_that_it_asks_for,
                due_tasks_are_promoted_only_in_the_lines_asked_for,
                a_claim_promotes_a_bounded_number_and_later_ones_the_rest,
                a_limited_pool_never_runs_more_than_its_limit,
                every_end_of_an_attempt_frees_its_count_once,
                a_pool_without_a_limit_counts_nothing,
                a_repeated_claim_counts_once,
                a_paused_pool_gives_nothing_and_stops_no_other,
                settle_and_claim_in_one_call_keep_a_limit_of_one,
                a_claim_before_its_settlement_in_one_call_finds_the_pool_full,
                the_cost_of_a_claim_does_not_follow_the_backlog,
            }
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
                a_commit_id_says_nothing_of_records_that_it_did_not_put,
            }
            concurrency {
                each_task_goes_to_one_of_many_claimers,
                one_of_many_equal_settlements_changes_the_task,
                one_of_many_different_settlements_wins_and_the_others_hear_it,
                many_enqueues_with_one_unique_key_make_one_task,
                many_enqueues_with_one_idempotency_key_make_one_task,
                many_enqueues_with_one_id_make_one_task,
                many_claimers_of_a_limited_pool_stay_within_its_limit,
                one_of_many_writers_at_one_revision_is_applied,
                many_copies_of_one_claim_take_what_one_takes,
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
            dependencies {
                a_child_is_blocked_until_all_parents_succeeded,
                a_parents_end_starts_a_release_exactly_if_somebody_waits,
                a_failed_parent_blocks_cancels_or_runs_its_children,
                a_cancelled_parent_is_a_failed_one,
                a_parent_that_ended_before_the_enqueue_counts,
                an_unknown_parent_is_refused_and_nothing_is_written,
                a_parent_that_ends_while_a_child_is_drafted_is_seen,
                a_child_that_comes_while_its_parents_end_is_drafted_is_told,
                no_child_is_lost_when_it_races_with_its_parents_end,
                a_held_task_may_get_more_parents,
                a_task_with_more_parents_than_a_commit_holds_waits_for_all,
                too_many_parents_in_one_commit_are_refused,
                a_cycle_is_refused_with_its_path,
                two_who_would_close_a_cycle_together_do_not_both,
                a_reopened_parent_that_succeeds_releases_whom_its_failure_blocked,
                a_reopened_parent_also_releases_a_child_that_came_after_its_failure,
            }
            due {
                a_delayed_task_is_due_to_be_promoted_until_it_is,
                a_task_out_of_its_lane_is_due_to_join_again,
                a_lease_with_a_deadline_is_due_then_and_one_without_never,
                a_task_that_can_expire_is_due_unless_it_runs_or_ended,
                a_question_with_a_deadline_is_due_until_it_is_answered,
                an_ended_task_is_due_to_be_purged_when_it_was_kept_long_enough,
                a_runner_is_due_when_silent_stopped_or_dead_and_not_found_empty_twice,
                a_sweep_is_due_until_it_is_gone,
                an_entry_follows_its_record,
                keys_and_signals_are_due_to_be_forgotten_when_their_time_is_over,
                the_oldest_come_first_until_and_with_the_moment_up_to_the_limit,
                every_list_is_apart,
            }
            input {
                due_refuses_limits_out_of_range,
                tasks_refuses_limits_out_of_range,
                records_refuses_limits_out_of_range,
                records_refuses_to_list_tasks,
                namespaces_refuses_limits_out_of_range,
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
            lanes {
                a_serial_lane_runs_one_at_a_time_in_order,
                order_holds_across_a_retry,
                order_holds_across_a_snooze,
                order_holds_across_a_lost_lease,
                order_holds_across_a_question,
                a_cancelled_runner_keeps_the_lane_until_its_attempt_has_ended,
                a_cancelled_runner_keeps_the_lane_until_its_lease_is_lost,
                a_cancelled_waiter_never_runs_and_holds_up_nobody,
                a_dead_head_frees_the_next,
                an_expired_head_frees_the_next,
                priority_never_reorders_inside_a_lane,
                a_delayed_head_holds_the_lane,
                a_delayed_waiter_is_admitted_and_then_waits_for_its_moment,
                a_held_task_joins_its_lane_when_it_is_released,
                a_lane_of_three_runs_three,
                while_running_a_retry_frees_its_place_and_stands_in_line_again,
                while_running_an_interrupted_task_goes_to_the_back,
                a_late_settlement_leaves_the_line_that_its_task_had_joined_again,
                lanes_of_different_keys_do_not_meet,
                an_empty_lane_is_gone_and_starts_again_cleanly,
                a_superseding_message_cancels_older_ones_that_nobody_has_taken,
                superseding_many_strands_nobody,
                two_who_race_for_one_place_do_not_both_get_it,
                an_end_that_met_too_many_conflicts_leaves_the_next_to_a_sweep,
                a_lane_that_got_wider_is_filled_in_pages,
                a_foreign_cancel_of_a_waiter_is_passed_over_not_revived,
            }
            leases {
                a_late_settlement_counts_until_the_next_claim,
                a_late_settlement_is_refused_after_the_next_claim,
                a_late_settlement_is_refused_after_a_final_phase,
                a_stale_or_invented_token_is_refused,
                the_same_settlement_twice_is_already_done,
                what_a_dead_runner_held_goes_to_others,
                a_dead_runner_is_watched_until_found_empty_twice_a_lease_apart,
                evidence_against_another_runner_convicts_nobody,
                a_mailbox_lease_is_lost_at_its_deadline_and_not_before,
                a_mailbox_lease_id_is_the_same_for_a_repeated_claim,
                a_task_that_fails_too_often_is_dead,
                a_task_that_takes_its_runner_down_too_often_is_dead,
                cancelling_a_running_task_signals_its_holder_who_keeps_it_until_the_end,
                cancelling_what_nobody_holds_signals_nobody,
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
            lost_replies {
                an_enqueue_repeated_after_a_lost_reply_makes_one_task,
                a_settlement_repeated_after_a_lost_reply_counts_once,
                a_stubborn_caller_settles_and_counts_once,
                a_claim_repeated_after_a_lost_reply_gives_the_same_tasks,
                a_request_that_never_arrived_can_be_repeated_too,
                an_old_repetition_does_not_undo_what_came_after,
                two_hundred_rounds_on_a_bad_line_end_with_everything_there_once,
            }
            namespaces {
                an_empty_store_has_no_namespaces,
                namespaces_come_once_and_in_byte_order,
                pages_of_any_size_give_every_namespace_once,
                any_kind_of_record_makes_its_namespace_known,
                a_namespace_is_known_while_it_has_anything,
                a_listing_goes_on_behind_a_namespace_that_is_gone,
                namespaces_survive_with_what_is_in_them,
            }
            order {
                the_better_priority_goes_first,
                among_equals_the_older_goes_first,
                among_twins_the_smaller_id_goes_first,
                one_answer_is_sorted_like_many,
                order_holds_across_kinds_and_pools,
                a_mailbox_gives_smaller_numbers_first_and_none_last,
                who_comes_back_keeps_its_place,
                a_retry_that_is_due_again_keeps_its_place,
                promoted_tasks_stand_among_the_ready_by_order_not_by_due_time,
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
            reopen {
                tasks_of_every_phase_survive_to_the_letter,
                records_of_every_kind_survive_to_the_letter,
                claims_go_on_where_they_stopped,
                a_lane_goes_on_over_many_deaths,
                revisions_stay_valid_and_stale_ones_stay_stale,
                repeated_ids_are_recognised,
                nothing_that_conflicted_or_was_deleted_is_there,
                a_pools_count_survives,
            }
            sweeps {
                sixty_children_are_released_in_small_commits,
                large_payloads_are_swept_in_commits_that_hold_them,
                repeated_and_stale_steps_do_nothing_twice,
                steps_that_race_do_each_item_once,
                a_cancel_sweep_cancels_what_matches_and_nothing_younger,
                a_cancel_sweep_through_a_lane_strands_nobody,
                a_retry_sweep_makes_new_tasks_that_point_at_the_old,
                a_retry_sweep_reopens_where_the_policy_says_so,
                a_refused_retry_leaves_nothing_of_itself_behind,
                a_retried_task_takes_its_kept_key_along,
                a_purge_sweep_keeps_what_is_still_needed,
                a_parent_may_go_when_nobody_waits_for_it_any_more,
                a_purged_task_gives_its_kept_key_back,
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
