//! Pools and namespaces: what they are set to, and what is due in them.

use ekiden_core::id::{Namespace, PoolName};
use ekiden_wire as wire;

use super::Answered;
use crate::answer;
use crate::call::Call;
use crate::limits;

/// What is behind the server.
pub(crate) async fn info(call: Call) -> Answered {
    answer::ok(&call.queue().info().into_wire(env!("CARGO_PKG_VERSION")))
}

/// The namespaces that have anything, as far as the caller may see them.
pub(crate) async fn namespaces(call: Call) -> Answered {
    let query = call.query()?;
    let after: Option<Namespace> = query.id("after")?;
    let limit = query.number("limit")?.unwrap_or(limits::PAGE_ITEMS);
    if let Some(bound) = call.caller.bound_to() {
        // The caller's own are few, and asked for one by one they cost no walk through everybody else's.
        let mut items: Vec<Namespace> = bound.iter().filter(|name| after.as_ref() < Some(*name)).cloned().collect();
        items.sort();
        items.dedup();
        let more = items.len() > limit;
        items.truncate(limit);
        let cursor = if more { items.last().map(|name| name.as_str().to_owned()) } else { None };
        return answer::ok(&wire::NamespacePage { items, cursor });
    }
    let page = call.queue().namespaces(after, limit).await?;
    answer::ok(&wire::NamespacePage { items: page.items, cursor: page.cursor })
}

/// The pools of a namespace that somebody set.
pub(crate) async fn list(call: Call) -> Answered {
    let query = call.query()?;
    let cursor = query.text("cursor").map(str::to_owned);
    let limit = query.number("limit")?.unwrap_or(limits::PAGE_ITEMS);
    let page = call.queue().pools(call.namespace()?, cursor, limit).await?;
    let items = page.items.into_iter().map(|pool| wire::Pool { settings: (&pool.settings).into(), name: pool.name });
    answer::ok(&wire::PoolPage { items: items.collect(), cursor: page.cursor })
}

/// What a pool is set to.
pub(crate) async fn get(call: Call) -> Answered {
    let settings = call.queue().pool(call.namespace()?, call.id("pool")?).await?;
    answer::ok(&wire::PoolSettings::from(&settings))
}

/// Sets a pool.
pub(crate) async fn set(mut call: Call) -> Answered {
    let settings: wire::PoolSettings = call.json().await?;
    call.queue().set_pool(call.namespace()?, call.id("pool")?, settings.into()).await?;
    Ok(answer::nothing())
}

/// Lets no task of a pool start.
pub(crate) async fn pause(call: Call) -> Answered {
    set_paused(call, true).await
}

/// Lets tasks of a pool start again.
pub(crate) async fn resume(call: Call) -> Answered {
    set_paused(call, false).await
}

async fn set_paused(call: Call, paused: bool) -> Answered {
    let (namespace, pool) = (call.namespace()?, call.id::<PoolName>("pool")?);
    let mut settings = call.queue().pool(namespace.clone(), pool.clone()).await?;
    if settings.paused != paused {
        settings.paused = paused;
        call.queue().set_pool(namespace, pool, settings.clone()).await?;
    }
    answer::ok(&wire::PoolSettings::from(&settings))
}

/// Does what is due.
pub(crate) async fn maintain(call: Call) -> Answered {
    let done = call.queue().maintain(call.namespace()?).await?;
    answer::ok(&wire::Maintained::from(done))
}

/// When the next waiting task will be due.
pub(crate) async fn due(call: Call) -> Answered {
    answer::ok(&wire::Due { next_at: call.queue().next_due(call.namespace()?).await? })
}
