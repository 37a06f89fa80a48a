//! The conformance suite: every rule of [`crate::Store`], as cases that every store must pass.
//!
//! A store's tests say `ekiden_store::suite!(name, factory)` once and get all of them; there is no way to pick. The list of
//! cases is the macro [`conformance_cases`](crate::conformance_cases), and it is the only one.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a case that indexes or unwraps wrongly fails, as it should"
)]

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
            lost_replies {
                an_enqueue_repeated_after_a_lost_reply_makes_one_task,
                a_settlement_repeated_after_a_lost_reply_counts_once,
                a_stubborn_caller_settles_and_counts_once,
                a_claim_repeated_after_a_lost_reply_gives_the_same_tasks,
                a_request_that_never_arrived_can_be_repeated_too,
                an_old_repetition_does_not_undo_what_came_after,
                two_hundred_rounds_on_a_bad_line_end_with_everything_there_once,
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
