//! Opening a store: where the service is, and how long a request may take.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Builder, Credentials, Region};
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_store::StoreError;

use crate::counts;
use crate::shared::Shared;
use crate::store::DynamoStore;
use crate::tables::{Missing, Names};

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the service is. DynamoDB Local unless somebody says otherwise (Q13).
    pub endpoint: String,
    /// The region that requests are signed for. A local service takes any.
    pub region: String,
    /// What the names of tables begin with. Empty as the document has it; tests that share a service have one each.
    pub table_prefix: String,
    /// How many parts a line of ready tasks has. One part takes about 500 claims a second.
    pub ready_shards: u32,
    /// How long one try of a request may take: well below every lease.
    pub attempt_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            endpoint: "http://localhost:8000".to_owned(),
            region: "local".to_owned(),
            table_prefix: String::new(),
            ready_shards: 1,
            attempt_timeout: Duration::from_secs(5),
        }
    }
}

impl DynamoStore {
    /// Opens the store, and makes tables and indexes that are missing.
    pub async fn open(options: Options) -> Result<Self, StoreError> {
        Self::open_as(options, Missing::Make).await
    }

    /// Opens a store whose tables are there, and makes none.
    pub async fn open_existing(options: Options) -> Result<Self, StoreError> {
        Self::open_as(options, Missing::Refuse).await
    }

    async fn open_as(options: Options, missing: Missing) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared::new(client(&options)?, Names::new(&options.table_prefix), options.ready_shards));
        shared.prepare_tables(missing).await?;
        counts::flush_regularly(&shared);
        Ok(Self::over(shared))
    }
}

fn client(options: &Options) -> Result<Client, StoreError> {
    if !options.endpoint.starts_with("http://") {
        let refusal = Refusal::new(ReasonCode::UrlInvalid)
            .with("url", &options.endpoint)
            .with("why", "this build reaches DynamoDB by plain HTTP only, as in http://localhost:8000");
        return Err(StoreError::invalid(refusal));
    }
    // A local service wants a signature and looks at nothing in it.
    let credentials = Credentials::new("local", "local", None, None, "ekiden");
    let timeouts = TimeoutConfig::builder()
        .operation_attempt_timeout(options.attempt_timeout)
        .connect_timeout(options.attempt_timeout)
        .build();
    let config = Builder::new()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(&options.endpoint)
        .region(Region::new(options.region.clone()))
        .credentials_provider(credentials)
        .retry_config(RetryConfig::standard().with_max_attempts(3).with_initial_backoff(Duration::from_millis(20)))
        .timeout_config(timeouts)
        .build();
    Ok(Client::from_conf(config))
}
