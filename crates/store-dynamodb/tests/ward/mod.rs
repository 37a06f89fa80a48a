//! A DynamoDB server for one test: in this process unless `EKIDEN_DYNAMODB_ENDPOINT` names another.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::sync::Mutex;

use ekiden_store::entropy::Entropy;
use ekiden_store_dynamodb::Options;

/// Set to the address of a DynamoDB server, all tests use that one.
pub(crate) const ENDPOINT_VARIABLE: &str = "EKIDEN_DYNAMODB_ENDPOINT";

/// A server, and names for tables that nobody else has.
pub(crate) struct Ward {
    endpoint: String,
    entropy: Mutex<Entropy>,
}

impl Ward {
    /// The server that was named, or a new one that ends with the runtime.
    pub(crate) async fn open() -> Self {
        let endpoint = match std::env::var(ENDPOINT_VARIABLE) {
            Ok(endpoint) => endpoint,
            Err(_) => serve().await,
        };
        Self { endpoint, entropy: Mutex::new(Entropy::from_system()) }
    }

    /// Options for a store with tables of its own.
    pub(crate) fn options(&self) -> Options {
        let prefix = format!("t{:016x}-", self.entropy.lock().unwrap().next_u64());
        Options { endpoint: self.endpoint.clone(), table_prefix: prefix, ..Options::default() }
    }
}

async fn serve() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let database = dynoxide::Database::memory().unwrap();
    drop(tokio::spawn(dynoxide::server::serve_on(listener, database)));
    format!("http://{address}")
}
