//! Schedules: tasks that are handed in by themselves.

use ekiden::NewSchedule;
use ekiden_wire as wire;

use super::Answered;
use crate::answer;
use crate::call::Call;

/// The schedules of a namespace.
pub(crate) async fn list(call: Call) -> Answered {
    let schedules = call.queue().schedules(call.namespace()?).await?;
    let items = schedules.iter().map(|schedule| wire::Schedule::from(&**schedule)).collect();
    answer::ok(&wire::ScheduleList { items })
}

/// Sets a schedule, new or not.
pub(crate) async fn set(mut call: Call) -> Answered {
    let schedule: wire::NewSchedule = call.json().await?;
    let namespace = call.namespace()?;
    call.shared.namespaces.note(&namespace);
    let schedule = NewSchedule::from_wire(schedule, namespace, call.id("id")?, || call.shared.ids.task())?;
    let schedule = call.queue().set_schedule(schedule).await?;
    answer::ok(&wire::Schedule::from(&*schedule))
}

/// Removes a schedule.
pub(crate) async fn remove(call: Call) -> Answered {
    call.queue().remove_schedule(call.namespace()?, call.id("id")?).await?;
    Ok(answer::nothing())
}
