//! The behaviour suite: everything that a user is promised by [`Queue`], as cases that every queue must pass.
//!
//! A queue's tests say `ekiden_testkit::behaviour_suite!(name, factory)` once and get all of them; there is no way to pick.
//! The list of cases is the macro [`behaviour_cases`](crate::behaviour_cases), and it is the only one. Cases speak the port
//! and move the clock; what is behind the port, a store or a server, they cannot tell.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "cases are tests: a panic is how they fail")]

mod askers;
pub mod lab;

pub mod bulk;
pub mod by_hand;
pub mod cancel;
pub mod changes;
pub mod dependencies;
pub mod dequeue;
pub mod enqueue;
pub mod explain;
pub mod groups;
pub mod lanes;
pub mod leases;
pub mod listing;
pub mod namespaces;
pub mod pools;
pub mod progress;
pub mod questions;
pub mod retention;
pub mod retries;
pub mod schedules;
pub mod settlement;
pub mod states;
pub mod uniqueness;
pub mod waiting;

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use ekiden::Queue;
use ekiden::store::ManualClock;

pub use lab::Lab;

/// A fresh queue and the clock that it goes by.
pub struct Bench {
    /// The queue, with nothing in it.
    pub queue: Arc<dyn Queue>,
    /// The clock of whatever decides behind it.
    pub clock: Arc<ManualClock>,
    /// What must live as long as the queue is used, such as a server.
    pub keep: Box<dyn Any + Send + Sync>,
}

/// Makes queues for the suite. Each case gets a fresh one.
#[async_trait]
pub trait Factory: Send + Sync + 'static {
    /// A new, empty queue, by a clock that only the case moves.
    async fn open(&self) -> Bench;
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
macro_rules! behaviour_cases {
    ($then:path, $($args:tt)*) => {
        $then! {
            [$($args)*]
            bulk {
                a_bulk_cancel_ends_what_matches_and_is_open,
                a_bulk_cancel_by_group_touches_no_other,
                a_bulk_cancel_by_pool_touches_no_other,
                what_comes_after_a_bulk_command_is_not_its_business,
                a_bulk_retry_runs_every_dead_task_again_once,
                a_bulk_retry_makes_waiting_retries_due,
                the_same_bulk_command_twice_is_started_once,
                a_bulk_command_cancels_and_retries_tasks_with_large_payloads,
                a_bulk_command_on_nothing_is_done_at_once,
                a_bulk_command_that_nobody_started_is_not_there,
                a_large_bulk_command_shows_its_progress,
            }
            by_hand {
                a_held_task_waits_until_it_is_released,
                a_second_release_changes_nothing,
                a_release_does_not_shorten_a_delay,
                a_cancelled_task_cannot_be_released,
                a_dead_task_is_retried_as_a_new_one_that_points_at_it,
                pressing_retry_twice_runs_once,
                many_presses_at_once_run_once,
                a_retry_that_died_too_is_retried_from_the_first,
                a_cancelled_task_is_retried_as_a_new_one,
                a_task_that_waits_for_its_retry_is_run_at_once,
                a_retry_of_a_queued_task_changes_nothing,
                what_runs_or_waits_for_somebody_cannot_be_retried,
                where_the_pool_reopens_a_dead_task_runs_again_as_itself,
                a_child_is_not_released_while_its_reopened_parent_runs,
                an_expired_task_that_is_retried_runs,
            }
            cancel {
                a_held_task_can_be_cancelled,
                a_blocked_task_can_be_cancelled,
                a_queued_task_can_be_cancelled,
                a_task_that_waits_for_its_retry_can_be_cancelled,
                a_task_that_asks_can_be_cancelled,
                a_running_task_is_cancelled_at_once,
                a_cancel_says_why,
                a_second_cancel_is_done_already,
                a_dead_task_cannot_be_cancelled,
                the_runner_of_a_cancelled_attempt_is_told,
                a_cancel_of_what_does_not_run_tells_nobody,
                the_stop_bell_rings_for_a_running_task,
                a_signal_that_nobody_read_goes_by_itself,
                a_cancelled_attempt_cannot_settle,
                the_stages_of_a_stop_are_shown_and_only_rise,
                stages_belong_to_cancelled_attempts_and_their_holder,
                a_cancelled_attempt_keeps_its_lane_until_it_has_stopped,
                a_cancelled_attempt_counts_in_its_pool_until_it_has_stopped,
                a_cancelled_attempt_of_a_dead_runner_frees_its_lane,
            }
            changes {
                a_life_is_told_step_by_step,
                a_failure_is_told_with_its_error_and_its_next_moment,
                what_happened_before_is_not_told,
                every_subscriber_hears_everything,
                other_namespaces_are_not_heard,
                what_was_refused_or_done_before_is_not_told,
                a_cancel_and_its_stages_are_told,
                questions_and_answers_are_told,
                a_lost_lease_is_told,
                progress_is_told,
                a_retry_by_hand_is_told_once_however_often_it_is_pressed,
                a_wait_cut_short_by_hand_is_told,
                the_release_of_a_child_is_told,
                what_a_bulk_command_changes_is_told,
            }
            dependencies {
                a_child_runs_after_its_parent,
                a_child_waits_for_eight_parents,
                a_child_waits_for_twenty_parents,
                a_parent_that_succeeded_before_is_not_waited_for,
                a_parent_between_attempts_is_still_waited_for,
                a_chain_runs_link_by_link,
                many_children_are_released_by_one_parent,
                children_with_large_payloads_are_told_of_their_parents_end,
                a_failed_parent_blocks_for_good_if_nobody_says_otherwise,
                a_failed_parent_cancels_where_the_child_says_so,
                a_failed_parent_does_not_matter_where_the_child_says_so,
                a_cancelled_parent_is_a_failed_one,
                a_parent_that_died_before_counts_as_failed,
                an_unknown_parent_is_refused_and_nothing_changes,
                an_unknown_parent_among_many_is_refused_and_nothing_changes,
                a_task_cannot_wait_for_itself,
                no_two_tasks_can_wait_for_each_other,
                a_parent_named_twice_and_too_many_parents_are_refused,
                a_held_child_is_not_let_go_by_its_parents,
                a_blocked_child_cannot_be_released_while_its_parents_are_open,
                parents_and_children_may_come_in_one_batch,
            }
            dequeue {
                an_empty_queue_gives_nothing,
                better_priority_comes_first,
                within_a_priority_first_in_is_first_out,
                a_task_that_came_due_later_stands_by_its_age,
                only_kinds_that_were_asked_for_are_given,
                only_pools_that_were_asked_for_are_given,
                one_request_serves_several_pools_and_kinds_in_order,
                never_more_than_the_limit_is_given,
                a_task_is_given_once,
                many_askers_at_once_share_without_overlap,
                a_repeated_request_gets_the_same_tasks,
                a_repeated_request_does_not_give_what_was_cancelled_meanwhile,
                a_request_id_of_another_runner_gives_nothing_of_its_tasks,
                a_repeated_request_gives_only_pools_and_kinds_that_it_asks_for,
                what_is_given_runs_under_its_runner,
                a_runner_can_ask_what_it_holds,
                requests_for_nothing_or_too_much_are_refused,
                a_delayed_task_is_given_from_its_very_moment_on,
                a_start_at_a_moment_is_kept,
                a_start_in_the_past_is_now,
            }
            enqueue {
                an_envelope_comes_back_byte_for_byte,
                a_payload_may_be_any_bytes_of_any_content_type,
                an_empty_payload_stays_empty,
                a_new_task_shows_all_that_was_said,
                a_new_task_has_run_never_and_may_run_five_times,
                an_id_is_taken_once,
                an_id_stays_taken_after_its_task_ended,
                a_request_that_is_repeated_under_its_name_makes_one_task,
                one_of_many_equal_ids_at_once_is_taken,
                a_batch_is_answered_in_order,
                a_bad_item_of_a_batch_stops_no_other,
                an_empty_batch_has_no_answers,
                a_large_batch_is_taken_whole,
                a_payload_at_the_limit_is_kept_and_one_byte_more_is_refused,
                ids_of_any_script_are_kept_or_refused_by_name,
                an_id_may_have_128_bytes,
                labels_too_many_too_long_or_nameless_are_refused,
                delays_beyond_ten_years_are_refused,
                lanes_without_width_or_too_wide_are_refused,
                wishes_that_cannot_be_meant_are_refused,
                a_refused_task_takes_no_key_and_no_place,
                a_task_that_nobody_handed_in_is_not_found,
            }
            explain {
                a_kind_that_no_runner_handles_has_no_handler,
                a_runner_of_another_pool_is_no_handler,
                a_runner_of_any_kind_is_a_handler,
                a_delayed_or_retrying_task_is_not_due,
                a_paused_or_full_pool_is_named,
                who_stands_behind_others_of_its_key_hears_of_them,
                a_blocked_task_names_what_it_waits_for,
                a_task_after_a_group_names_the_group,
                a_held_task_is_held,
                a_running_task_names_its_runner_and_its_silence,
                a_task_that_asks_shows_its_question,
                every_end_has_its_reason,
                a_cancelled_task_tells_whether_its_attempt_has_ended,
                a_task_cancelled_for_its_parent_says_so,
                every_reason_that_holds_is_given,
            }
            groups {
                a_task_waits_until_every_member_has_ended,
                members_between_attempts_have_not_ended,
                a_member_may_add_members_while_it_runs,
                an_empty_group_has_ended,
                a_group_that_ended_before_is_not_waited_for,
                a_large_group_is_waited_for_to_the_last,
                a_failed_member_holds_for_good_if_nobody_says_otherwise,
                a_failed_member_cancels_where_the_task_says_so,
                a_failed_member_does_not_matter_where_the_task_says_so,
                a_member_that_was_retried_is_judged_by_the_task_in_its_place,
                a_failed_member_is_kept_while_a_task_waits_for_its_group,
                a_member_that_was_retried_after_its_page_was_passed_counts_no_more,
                tasks_that_wait_for_each_others_groups_are_refused,
                a_task_may_wait_for_parents_and_a_group,
                two_tasks_may_wait_for_one_group,
            }
            lanes {
                one_key_runs_one_at_a_time_in_order,
                priority_does_not_reorder_a_key,
                keys_do_not_hold_each_other_up,
                a_retry_keeps_its_place_before_those_who_came_later,
                a_dead_or_cancelled_head_frees_the_next,
                who_waits_in_line_can_be_cancelled,
                a_delayed_head_is_waited_for,
                a_lost_attempt_keeps_its_place,
                a_key_runs_no_more_than_its_width_at_once,
                a_wide_lane_is_not_held_up_by_a_retry,
                a_delayed_task_holds_no_place_of_a_wide_lane,
                a_wider_newcomer_lets_in_those_who_wait,
                an_old_member_that_rejoins_keeps_the_width_of_younger_ones,
                a_key_holds_under_many_askers_at_once,
                a_long_line_is_served_to_its_end,
            }
            leases {
                a_silent_runner_loses_its_tasks_to_others,
                time_alone_ends_no_lease_before_its_length,
                beats_keep_a_lease_for_as_long_as_they_come,
                another_runners_beat_keeps_nobody_elses_lease,
                a_late_settlement_counts_until_somebody_takes_the_task,
                a_late_settlement_is_refused_once_the_task_was_taken,
                the_third_lost_attempt_in_a_row_is_the_last,
                an_attempt_that_ends_by_its_own_word_starts_the_crash_count_anew,
                a_lost_last_attempt_is_death,
                a_dead_incarnations_beat_is_refused,
                a_dead_runner_is_given_nothing,
                a_claim_is_a_sign_of_life,
                a_runner_that_claims_in_two_namespaces_lives_in_each_by_itself,
                maintenance_says_when_a_silent_runner_is_dead,
                a_goodbye_stops_a_runner_for_good,
                what_a_runner_left_behind_at_its_goodbye_goes_to_others,
                a_goodbye_of_nobody_is_refused,
                runners_are_listed_with_their_last_beat,
                a_runner_is_alive_until_its_lease_is_over,
                a_dead_runners_record_goes_after_a_day,
                two_maintainers_at_once_take_a_lease_away_once,
                a_lost_snooze_or_question_may_still_be_said_late,
            }
            listing {
                listings_show_tasks_as_they_are,
                listings_filter_by_state,
                listings_filter_by_pool_and_kind,
                listings_filter_by_group_and_session,
                listings_filter_by_text_in_id_title_error_and_payload,
                listings_filter_by_who_runs_it,
                listings_follow_changes_of_state,
                pages_of_any_size_give_every_task_once_and_in_order,
                pages_of_twins_give_every_task_once,
                pages_of_a_filter_give_every_match_once,
                a_cursor_stays_good_while_tasks_come_and_change,
                a_text_scan_over_many_pages_finds_all,
                pages_without_a_limit_and_foreign_cursors_are_refused,
            }
            namespaces {
                one_id_names_two_tasks_in_two_namespaces,
                tasks_are_given_counted_and_listed_in_their_namespace_alone,
                commands_reach_their_namespace_alone,
                parents_keys_and_lanes_belong_to_their_namespace,
                pools_and_schedules_belong_to_their_namespace,
                runners_and_leases_belong_to_their_namespace,
                a_request_id_of_another_namespace_gives_nothing_of_it,
                a_settlement_id_of_another_namespace_settles_nothing_of_it,
                namespaces_are_listed_in_order_and_in_pages,
            }
            pools {
                a_pool_that_nobody_set_has_the_defaults_of_its_store,
                what_is_set_is_read_back,
                pools_that_somebody_set_are_listed_in_pages,
                settings_that_cannot_be_meant_are_refused,
                a_pause_holds_at_once_and_until_it_is_lifted,
                a_paused_pool_takes_tasks_in_and_lets_running_ones_end,
                a_pause_stops_no_other_pool,
                a_pool_runs_no_more_than_its_limit,
                every_end_of_an_attempt_makes_room,
                a_pools_limit_holds_under_many_askers_at_once,
                tasks_take_their_pools_rules_along,
                a_pools_new_rules_do_not_touch_tasks_that_are_there,
                a_tasks_own_wishes_go_before_its_pool,
            }
            progress {
                what_the_holder_reports_is_shown,
                who_does_not_hold_the_task_cannot_report,
                a_cancelled_attempt_cannot_report,
                the_next_attempt_starts_without_progress,
                progress_is_no_step_of_history,
                a_long_note_is_cut_and_not_refused,
                a_settlement_after_reports_is_the_holders_all_the_same,
            }
            questions {
                a_question_ends_its_attempt_without_spending_it,
                the_next_attempt_reads_the_answer,
                an_answer_to_another_question_is_refused,
                the_same_answer_twice_is_done_and_another_is_refused,
                who_did_not_ask_gets_no_answer,
                a_question_nobody_answers_in_time_is_death,
                a_default_answer_counts_when_nobody_answers_in_time,
                a_second_question_needs_its_own_answer,
                questions_and_answers_too_large_are_refused,
            }
            retention {
                a_succeeded_task_goes_when_its_time_is_over_and_not_before,
                a_cancelled_task_goes_when_its_time_is_over,
                dead_tasks_are_kept_with_their_payload,
                dead_tasks_go_where_the_pool_says_so,
                the_default_is_seven_days,
                open_tasks_are_never_removed,
                removed_tasks_leave_counts_and_listing,
                no_task_goes_while_a_lost_enqueue_may_be_repeated,
                a_purge_on_demand_does_not_wait_for_the_time,
                a_parent_stays_while_a_child_waits_for_it,
                a_removed_id_may_be_used_again,
            }
            retries {
                a_failure_waits_exactly_as_the_policy_says,
                waits_grow_from_half_a_second_to_at_most_five_minutes,
                a_retry_is_never_given_before_its_moment,
                maintenance_puts_a_due_retry_back_on_the_queue,
                others_run_while_a_retry_waits,
                the_fifth_failure_is_the_last,
                a_permanent_failure_is_death_at_once,
                a_failure_may_name_its_own_wait,
                a_named_wait_does_not_stretch_the_budget,
                a_fixed_policy_waits_the_same_each_time,
                a_policy_of_steps_waits_each_in_turn_and_repeats_the_last,
                an_exponential_policy_without_jitter_is_exact,
                a_policy_of_never_is_death_at_the_first_failure,
                execution_numbers_only_rise,
                success_after_failures_keeps_what_they_left,
            }
            schedules {
                an_interval_hands_in_a_task_each_time,
                each_tick_is_a_task_like_its_template,
                a_template_with_a_delay_delays_each_tick,
                cron_is_read_in_its_time_zone,
                schedules_that_cannot_tick_are_refused,
                of_missed_ticks_the_latest_is_made_up_for,
                missed_ticks_are_left_out_where_the_schedule_says_so,
                all_missed_ticks_are_made_up_for_where_the_schedule_says_so,
                a_finite_schedule_makes_its_last_tick_and_rests,
                a_task_with_the_id_of_a_tick_stops_no_schedule,
                a_cancelled_task_that_still_runs_holds_up_the_next_tick,
                a_tick_is_left_out_while_the_one_before_is_open,
                ticks_overlap_where_the_schedule_says_so,
                maintainers_at_once_make_one_task_a_tick,
                a_paused_schedule_rests_and_goes_on_when_it_is_set_again,
                a_removed_schedule_ticks_no_more_and_its_tasks_stay,
                a_schedule_that_is_set_again_is_one_schedule,
                schedules_are_listed_by_name,
            }
            settlement {
                a_result_is_kept_byte_for_byte,
                success_without_a_result_has_none,
                a_result_too_large_is_refused_and_the_attempt_goes_on,
                a_failure_is_shown_with_its_message,
                a_long_message_is_cut_and_not_refused,
                an_id_stands_for_one_change,
                two_new_tasks_of_one_request_have_two_ids,
                a_crash_is_an_outcome_of_its_own_and_counts_in_a_row,
                the_same_settlement_twice_is_answered_as_done,
                the_same_failure_twice_spends_one_attempt,
                another_verdict_on_an_ended_attempt_is_refused,
                a_stale_token_settles_nothing,
                a_token_that_was_never_given_settles_nothing,
                a_lease_named_by_task_and_token_is_as_good_as_the_one_given,
                one_of_many_settlements_at_once_counts,
                settlements_and_a_request_go_in_one_call,
                a_settlement_makes_room_for_the_request_beside_it,
                one_refused_settlement_stops_no_other,
                settling_nothing_and_asking_nothing_is_answered,
                a_snooze_spends_no_attempt_and_waits_as_long_as_it_said,
                an_interrupted_attempt_is_not_spent_and_due_at_once,
                a_returned_attempt_is_not_spent_and_due_at_once,
                a_timeout_is_an_outcome_of_its_own,
                timeouts_use_the_budget_up,
            }
            states {
                every_state_is_reached_and_shown,
                every_state_is_counted,
                an_empty_queue_counts_nine_zeros,
                counts_are_kept_for_each_pool,
                counts_follow_a_life_step_by_step,
                what_ended_never_runs_again_by_itself,
                commands_on_what_ended_are_refused_and_change_nothing,
                history_tells_every_change_in_order,
                a_failure_is_told_in_history_with_its_message,
                history_and_attempts_are_bounded,
                moments_of_a_life_are_kept,
            }
            uniqueness {
                a_unique_key_finds_the_open_task,
                a_unique_key_is_free_when_its_task_has_ended,
                a_unique_key_for_a_time_outlives_its_task,
                a_unique_key_for_a_time_is_free_after_it_although_its_task_is_open,
                a_unique_key_for_no_time_is_refused,
                a_retry_by_hand_keeps_its_unique_key,
                many_equal_unique_keys_at_once_make_one_task,
                an_idempotency_key_finds_its_first_task_also_when_it_has_ended,
                an_idempotency_key_answers_for_a_day,
                a_repeated_request_with_its_key_and_id_finds_its_task,
                equal_keys_in_one_batch_make_one_task,
            }
            waiting {
                the_next_moment_is_that_of_the_first_who_waits,
                a_retry_is_among_those_who_wait,
                an_enqueue_rings_at_once,
                a_delayed_enqueue_rings_with_its_moment,
                a_reschedule_rings_with_its_moment,
                the_end_of_a_task_rings_for_the_next_of_its_key,
                the_end_of_a_parent_rings_for_maintenance,
                a_release_an_answer_and_a_lifted_pause_ring,
                an_expired_task_is_never_given,
                a_task_may_run_until_it_expires,
                a_running_attempt_outlives_the_expiry,
                held_blocked_and_retrying_tasks_expire_too,
                an_expired_head_frees_the_next_of_its_key,
            }
        }
    };
}

/// All cases as tests of a module: `behaviour_suite!(memory, MyFactory)`.
#[macro_export]
macro_rules! behaviour_suite {
    ($name:ident, $factory:expr) => {
        mod $name {
            use super::*;
            $crate::behaviour_cases! { $crate::behaviour_tests, $factory }
        }
    };
}

/// One test a case. Used by [`behaviour_suite!`](crate::behaviour_suite).
#[doc(hidden)]
#[macro_export]
macro_rules! behaviour_tests {
    ([$factory:expr] $($group:ident { $($case:ident,)* })*) => {
        $(mod $group {
            use super::*;
            $(#[test]
            fn $case() {
                $crate::behaviour::run_case(&$factory, stringify!($group), stringify!($case));
            })*
        })*
    };
}

macro_rules! case_list {
    ([] $($group:ident { $($case:ident,)* })*) => {
        vec![$($(Case { group: stringify!($group), name: stringify!($case), run: |lab| Box::pin($group::$case(lab)) },)*)*]
    };
}

/// All cases, for those who want to run them otherwise, such as against a queue that is broken on purpose.
pub fn cases() -> Vec<Case> {
    behaviour_cases! { case_list, }
}

/// The case of this name.
///
/// # Panics
/// If there is none: a test that names a case which is gone must not pass.
pub fn case(group: &str, name: &str) -> Case {
    let found = cases().into_iter().find(|case| case.group == group && case.name == name);
    found.unwrap_or_else(|| panic!("there is no case {group}::{name}"))
}

/// Runs one case on a fresh queue.
pub fn run_case(factory: &dyn Factory, group: &str, name: &str) {
    let case = case(group, name);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime for one test can be built");
    runtime.block_on(async { (case.run)(Lab::open(factory.open().await).await).await });
}

/// Runs one case on its own task. A broken law is the text of its panic.
pub async fn try_case(bench: Bench, case: &Case) -> Result<(), String> {
    let run = case.run;
    let outcome = tokio::spawn(async move { run(Lab::open(bench).await).await }).await;
    outcome.map_err(|error| match error.try_into_panic() {
        Ok(panic) => panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
            .unwrap_or_else(|| "a panic without a text".to_owned()),
        Err(error) => error.to_string(),
    })
}
