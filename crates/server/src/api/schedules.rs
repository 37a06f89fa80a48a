//! Schedules: tasks that are handed in by themselves.

use ekiden::NewSchedule;
use ekiden_wire as wire;

use super::Answered;
use crate::answer;
use crate::call::Call;
use crate::limits;

/// The schedules of a namespace.
pub(crate) async fn list(call: Call) -> Answered {
    let share = call.room_for_answer(limits::PAGE_ANSWER_BYTES).await?;
    let schedules = call.queue().schedules(call.namespace()?).await?;
    let items = schedules.iter().map(|schedule| wire::Schedule::from(&**schedule)).collect();
    Ok(answer::ok(&wire::ScheduleList { items })?.within(share))
}

/// Sets a schedule, new or not.
pub(crate) async fn set(mut call: Call) -> Answered {
    let schedule: wire::NewSchedule = call.json().await?;
    let schedule = NewSchedule::from_wire(schedule, call.namespace()?, call.id("id")?, || call.shared.ids.task())?;
    let share = call.room_for_answer(limits::TASK_ANSWER_BYTES).await?;
    let schedule = call.queue().set_schedule(schedule).await?;
    Ok(answer::ok(&wire::Schedule::from(&*schedule))?.within(share))
}

/// Removes a schedule.
pub(crate) async fn remove(call: Call) -> Answered {
    call.queue().remove_schedule(call.namespace()?, call.id("id")?).await?;
    Ok(answer::nothing())
}
