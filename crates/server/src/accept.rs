//! The way in: accepts connections, up to a maximum behind which the least needed gives way, and speaks HTTP/1.1 on each, within
//! limits of size and time.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ekiden_core::reason::{Language, ReasonCode};
use ekiden_wire::ErrorBody;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::net::{TcpListener, TcpStream};

use crate::connections::Connections;
use crate::descriptors;
use crate::front::Front;
use crate::hush::Hushable;
use crate::limits;
use crate::metrics::Counted;
use crate::shared::Shared;
use crate::trodden::Trodden;
use crate::watched::{Busy, Rest, Watched};

/// What somebody hears for whom there is no connection left: the same shape as every other error.
fn busy() -> Vec<u8> {
    let detail = ekiden::wire::detail(&ReasonCode::ServerBusy.into(), Language::En);
    let body = serde_json::to_string(&ErrorBody { error: detail }).unwrap_or_default();
    let head =
        "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-type: application/json";
    format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// 100 ms: the wait after a connection could not be accepted, as when the process has too many files open.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The error numbers of a process or a system with too many open files: `ENFILE` and `EMFILE`, the same on every Unix.
const NO_FILES: [i32; 2] = [23, 24];

/// Accepts connections until the server is to end; then waits for those under way to finish.
pub(crate) async fn accept(listener: TcpListener, front: Arc<Front>, shared: &Arc<Shared>) {
    let busy = busy();
    let connections = Connections::new(descriptors::connections_within(shared.options.connections_max));
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted.map(|(stream, _)| stream),
            () = shared.stop.cancelled() => break,
        };
        match stream {
            Ok(stream) => match connections.place().await {
                Some(place) => {
                    let (front, shared, busy) = (front.clone(), shared.clone(), Busy::default());
                    connections.spawn(place, busy.clone(), async move {
                        let _counted = Counted::new(&shared.metrics.connections);
                        converse(stream, front, &shared, busy).await;
                    });
                }
                None => {
                    shared.metrics.turned_away.inc();
                    // As far as it goes without waiting: nobody waits for somebody who is turned away.
                    let _ = stream.try_write(&busy);
                }
            },
            // A file that a connection gives back serves the next one.
            Err(error)
                if error.raw_os_error().is_some_and(|code| NO_FILES.contains(&code)) && connections.shed().await =>
            {
                tracing::debug!(%error, "closed a connection to accept another one");
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
    drop(listener);
    connections.ended().await;
}

/// What the requests of one connection share.
struct Conversation {
    front: Arc<Front>,
    busy: Busy,
    trodden: Trodden,
}

async fn converse(stream: TcpStream, front: Arc<Front>, shared: &Arc<Shared>, busy: Busy) {
    // Answers are written whole; waiting for more to send would only delay them.
    let _ = stream.set_nodelay(true);
    let stream = Watched::new(stream, busy.clone(), shared.options.patience);
    let mut rest = Rest::new(busy.clone(), shared.options.patience);
    let conversation = Arc::new(Conversation { front, busy, trodden: Trodden::default() });
    let service = service_fn(move |request| {
        let conversation = conversation.clone();
        let answering = conversation.busy.begin();
        async move {
            let Conversation { front, trodden, .. } = &*conversation;
            Ok::<_, Infallible>(front.receive(request, answering, trodden).await)
        }
    });
    // Without a timer of its own, which it would set with each request.
    let connection = http1::Builder::new().max_buf_size(limits::BUFFER_BYTES_MAX).serve_connection(stream, service);
    let (mut connection, mut stop) = (pin!(connection), pin!(shared.stop.cancelled()));
    let (mut hushable, mut ends) = (Hushable::default(), false);
    let ended = poll_fn(|context| {
        let (waker, is_new) = hushable.around(context.waker());
        let context = &mut Context::from_waker(waker);
        if let Poll::Ready(ended) = connection.as_mut().poll(context) {
            return Poll::Ready(ended);
        }
        // Who has been told whom to wake needs to be asked no more than whether it has happened.
        let stops = if is_new { stop.as_mut().poll(context).is_ready() } else { shared.stop.is_cancelled() };
        if stops && !ends {
            ends = true;
            connection.as_mut().graceful_shutdown();
            return connection.as_mut().poll(context);
        }
        rest.poll(context).map(Ok)
    })
    .await;
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
