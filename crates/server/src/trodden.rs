//! The way that a connection's last request took. Programs send the same request again and again; whoever comes the same way
//! needs no router, and its namespace is the same.

use std::sync::{Arc, Mutex, PoisonError};

use axum::http::Method;
use ekiden_core::id::Namespace;

use crate::router::Row;

/// 256 bytes: the longest path that a connection remembers. Those with one name in them are shorter.
const PATH_BYTES_MAX: usize = 256;

/// The way of the last request, if it is worth remembering.
#[derive(Default)]
pub(crate) struct Trodden(Mutex<Option<Way>>);

struct Way {
    method: Method,
    path: String,
    row: Arc<Row>,
    namespace: Namespace,
}

impl Trodden {
    /// The row and the namespace, if the last request had the same method and path.
    pub(crate) fn find(&self, method: &Method, path: &str) -> Option<(Arc<Row>, Namespace)> {
        let way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let way = way.as_ref().filter(|way| way.path == path && way.method == *method)?;
        Some((way.row.clone(), way.namespace.clone()))
    }

    /// Remembers the way of a request whose path names a namespace and nothing else: names of tasks do not come again.
    pub(crate) fn remember(&self, method: Method, path: &str, row: Arc<Row>, namespace: &Namespace) {
        if *row.names != ["ns"] || path.len() > PATH_BYTES_MAX {
            return;
        }
        let way = Way { method, path: path.to_owned(), row, namespace: namespace.clone() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(way);
    }
}
