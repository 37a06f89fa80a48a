//! The way in: accepts connections, up to a maximum, and speaks HTTP/1.1 on each, within limits of size and time.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ekiden_core::reason::{Language, ReasonCode};
use ekiden_wire::ErrorBody;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioTimer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::front::Front;
use crate::limits;
use crate::shared::Shared;
use crate::watched::{Busy, Watched};

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

/// Accepts connections until the server is to end; then waits for those under way to finish.
pub(crate) async fn accept(listener: TcpListener, front: Arc<Front>, shared: &Arc<Shared>) {
    let connections = TaskTracker::new();
    let busy = busy();
    let places = Arc::new(Semaphore::new(shared.options.connections_max));
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted.map(|(stream, _)| stream),
            () = shared.stop.cancelled() => break,
        };
        match stream {
            Ok(stream) => match places.clone().try_acquire_owned() {
                Ok(place) => {
                    let (front, shared) = (front.clone(), shared.clone());
                    connections.spawn(async move {
                        shared.metrics.connections.inc();
                        converse(stream, front, &shared).await;
                        shared.metrics.connections.dec();
                        drop(place);
                    });
                }
                Err(_) => {
                    shared.metrics.turned_away.inc();
                    // As far as it goes without waiting: nobody waits for somebody who is turned away.
                    let _ = stream.try_write(&busy);
                }
            },
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn converse(stream: TcpStream, front: Arc<Front>, shared: &Arc<Shared>) {
    // Answers are written whole; waiting for more to send would only delay them.
    let _ = stream.set_nodelay(true);
    let busy = Busy::default();
    let stream = Watched::new(stream, busy.clone(), shared.options.headers_within);
    let service = service_fn(move |request| {
        let (front, busy) = (front.clone(), busy.clone());
        busy.set(true);
        async move {
            let response = front.receive(request).await;
            busy.set(false);
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // It counts from the end of the request before, so this is the longest rest; headers that stop are seen by the stream.
        .header_read_timeout(shared.options.rests_for)
        .max_buf_size(limits::BUFFER_BYTES_MAX)
        .serve_connection(stream, service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shared.stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
