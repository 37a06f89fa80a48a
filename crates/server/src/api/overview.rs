//! The server at a glance.

use axum::http::{HeaderValue, StatusCode, header};
use ekiden::store::{CountScope, ListOrder, TaskQuery};
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::Namespace;

use super::Answered;
use crate::access::Scope;
use crate::answer;
use crate::call::Call;
use crate::docs;
use crate::limits;
use crate::overview::{Chosen, Overview, STYLE};

/// The namespace that is shown if there is one of this name and none is asked for.
const USUAL: &str = "default";

/// The page.
pub(crate) async fn page(call: Call) -> Answered {
    let asked: Option<Namespace> = call.query()?.id("namespace")?;
    if let Some(namespace) = &asked {
        call.caller.check(Scope::Read, Some(namespace))?;
    }
    let namespaces = match call.caller.bound_to() {
        Some(own) => own.to_vec(),
        None => call.queue().namespaces(None, limits::OVERVIEW_NAMESPACES_MAX).await?.items,
    };
    let usual = || namespaces.iter().find(|namespace| namespace.as_str() == USUAL).or_else(|| namespaces.first());
    let _share = call.room_for_answer(limits::PAGE_ANSWER_BYTES).await?;
    let chosen = match asked.or_else(|| usual().cloned()) {
        Some(namespace) => Some(look(&call, namespace).await?),
        None => None,
    };
    let (language, now, info) = (call.language, call.shared.clock.now(), call.queue().info());
    let html = Overview { language, now, info, namespaces, chosen }.page();
    let page = answer::typed(StatusCode::OK, HeaderValue::from_static("text/html; charset=utf-8"), html.into());
    Ok(page.with(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(docs::POLICY)))
}

async fn look(call: &Call, namespace: Namespace) -> Result<Chosen, ekiden::Error> {
    let queue = call.queue();
    let counts = queue.counts_by_state(CountScope { namespace: namespace.clone(), pool: None }).await?;
    let latest = TaskQuery {
        filter: TaskFilter::all(namespace.clone()),
        order: ListOrder::NewestFirst,
        cursor: None,
        limit: limits::OVERVIEW_TASKS_MAX,
    };
    let tasks = queue.tasks(latest).await?.items;
    let pools = queue.pools(namespace.clone(), None, limits::OVERVIEW_POOLS_MAX).await?.items;
    let mut runners = queue.runners(namespace.clone()).await?;
    runners.sort_by_key(|runner| std::cmp::Reverse(runner.last_heartbeat));
    runners.truncate(limits::OVERVIEW_RUNNERS_MAX);
    Ok(Chosen { namespace, counts, tasks, pools, runners })
}

/// How the page looks.
pub(crate) async fn style(_: Call) -> Answered {
    Ok(answer::typed(StatusCode::OK, HeaderValue::from_static("text/css; charset=utf-8"), STYLE.into()))
}
