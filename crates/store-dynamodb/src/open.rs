//! Opening a store: where the service is, and how long a request may take.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Builder, Region, SharedHttpClient};
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{self, TlsContext, TrustStore};
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_store::{Others, StoreError};

use crate::counts;
use crate::credentials::Keys;
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
    /// Whether programs that are not Ekiden run tasks of these tables, although none of their runners may be seen (Q6).
    pub others: Others,
    /// Whose keys sign requests.
    pub keys: Keys,
    /// A file of certificates to trust beside the system's, for services behind TLS; the `AWS_CA_BUNDLE` of other tools.
    pub ca_bundle: Option<PathBuf>,
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
            others: Others::Possible,
            keys: Keys::Any,
            ca_bundle: None,
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

    /// Opens whatever is there, to look at it: nothing is made, mended or refused.
    pub async fn open_to_check(options: Options) -> Result<Self, StoreError> {
        Self::open_as(options, Missing::Ignore).await
    }

    async fn open_as(options: Options, missing: Missing) -> Result<Self, StoreError> {
        let names = Names::new(&options.table_prefix);
        let shared = Arc::new(Shared::new(client(&options)?, names, options.ready_shards, options.others));
        if missing != Missing::Ignore {
            shared.prepare_tables(missing).await?;
        }
        counts::flush_regularly(&shared);
        Ok(Self::over(shared))
    }
}

fn client(options: &Options) -> Result<Client, StoreError> {
    let timeouts = TimeoutConfig::builder()
        .operation_attempt_timeout(options.attempt_timeout)
        .connect_timeout(options.attempt_timeout)
        .build();
    let config = Builder::new()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .http_client(connector(options).map_err(StoreError::invalid)?)
        .endpoint_url(&options.endpoint)
        .region(Region::new(options.region.clone()))
        .credentials_provider(options.keys.provider().map_err(StoreError::invalid)?)
        .retry_config(RetryConfig::standard().with_max_attempts(3).with_initial_backoff(Duration::from_millis(20)))
        .timeout_config(timeouts)
        .build();
    Ok(Client::from_conf(config))
}

/// Plain HTTP where the endpoint says so: it never reads the system's certificates, which takes longer than all else.
fn connector(options: &Options) -> Result<SharedHttpClient, Refusal> {
    let refused = |why: String| Refusal::new(ReasonCode::UrlInvalid).with("url", &options.endpoint).with("why", why);
    if options.endpoint.starts_with("http://") {
        return Ok(aws_smithy_http_client::Builder::new().build_http());
    }
    if !options.endpoint.starts_with("https://") {
        return Err(refused("an endpoint begins with http:// or https://".to_owned()));
    }
    let mut trusted = TrustStore::default();
    if let Some(file) = &options.ca_bundle {
        let unavailable = |why| Refusal::new(ReasonCode::FileUnavailable).with("path", file.display()).with("why", why);
        let pem = std::fs::read(file).map_err(|why| unavailable(why.to_string()))?;
        if !pem.windows(11).any(|part| part == b"-----BEGIN ") {
            return Err(unavailable("no certificate in it".to_owned()));
        }
        trusted = trusted.with_pem_certificate(pem);
    }
    let context = TlsContext::builder().with_trust_store(trusted).build().map_err(|why| refused(why.to_string()))?;
    let provider = tls::Provider::Rustls(CryptoMode::Ring);
    Ok(aws_smithy_http_client::Builder::new().tls_provider(provider).tls_context(context).build_https())
}
