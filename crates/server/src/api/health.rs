//! Whether the server is well, what it counts, and what it can do.

use axum::http::{HeaderValue, StatusCode, header};
use ekiden::store::CountScope;
use ekiden_core::reason::ReasonCode;

use super::Answered;
use crate::answer;
use crate::call::Call;
use crate::limits;
use crate::{docs, metrics, openapi};

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The server is alive, whatever its store does.
pub(crate) async fn health(_: Call) -> Answered {
    Ok(answer::typed(StatusCode::OK, TEXT, "alive\n".into()))
}

/// Whether requests can be carried out: the store answers and takes new tasks, and the server does not end.
pub(crate) async fn ready(call: Call) -> Answered {
    if call.shared.stop.is_cancelled() {
        return Err(ReasonCode::ServerStopping.into());
    }
    call.queue().ready().await?;
    Ok(answer::typed(StatusCode::OK, TEXT, "ready\n".into()))
}

/// What the server counts.
pub(crate) async fn counted(call: Call) -> Answered {
    let mut counts = Vec::new();
    let own = call.caller.bound_to();
    let namespaces = match own {
        Some(own) => own.iter().take(limits::METRICS_NAMESPACES_MAX).cloned().collect(),
        None => call.queue().namespaces(None, limits::METRICS_NAMESPACES_MAX).await?.items,
    };
    for namespace in namespaces {
        let scope = CountScope { namespace: namespace.clone(), pool: None };
        let by_state = call.queue().counts_by_state(scope).await?;
        let named = by_state.by_phase.iter().map(|(state, count)| (namespace.to_string(), state.as_str(), *count));
        counts.extend(named);
    }
    // What the server counts for all namespaces together is told to nobody who is bound to some.
    let text = match own {
        Some(_) => metrics::tasks_text(&counts),
        None => call.shared.metrics.text(&call.shared.events, &counts),
    };
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    Ok(answer::typed(StatusCode::OK, kind, text.into()))
}

/// The API's description.
pub(crate) async fn description(_: Call) -> Answered {
    let text = openapi::document();
    Ok(answer::typed(StatusCode::OK, HeaderValue::from_static("application/json"), text.into()))
}

/// The API's page.
pub(crate) async fn page(call: Call) -> Answered {
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    let page = answer::typed(StatusCode::OK, kind, docs::page(call.language).into());
    Ok(page.with(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(docs::POLICY)))
}

/// How the API's page looks.
pub(crate) async fn style(_: Call) -> Answered {
    Ok(answer::typed(StatusCode::OK, HeaderValue::from_static("text/css; charset=utf-8"), docs::STYLE.into()))
}
