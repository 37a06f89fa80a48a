//! The way to a service behind TLS: a server with a certificate that a test authority signed, in front of a DynamoDB server.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod ward;

use std::path::Path;
use std::sync::Arc;

use ekiden_store::Store;
use ekiden_store_dynamodb::{DynamoStore, Options};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Listens with TLS in front of a plain server, and says where.
async fn in_front_of(server: String) -> String {
    let chain = CertificateDer::pem_file_iter(fixture("server.pem")).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(fixture("server.key.pem")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(chain, key).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (acceptor, server) = (acceptor.clone(), server.clone());
            drop(tokio::spawn(async move {
                let mut client = acceptor.accept(client).await.ok()?;
                let mut plain = TcpStream::connect(server.strip_prefix("http://")?).await.ok()?;
                tokio::io::copy_bidirectional(&mut client, &mut plain).await.ok()
            }));
        }
    }));
    format!("https://{address}")
}

/// Q13: a service behind TLS is reached if its certificate is trusted, and only then.
#[tokio::test]
async fn a_service_behind_tls_is_reached_if_its_certificate_is_trusted() {
    let endpoint = in_front_of(ward::serve().await).await;
    let options = Options { endpoint, ca_bundle: Some(fixture("ca.pem")), ..Options::default() };
    let store = DynamoStore::open(options.clone()).await.unwrap();
    let findings = store.check(ekiden_store::CheckDepth::Quick).await.unwrap();
    assert_eq!(findings, [], "tables were made and are found again");
    let stranger = DynamoStore::open(Options { ca_bundle: None, ..options.clone() }).await;
    let error = stranger.map(drop).unwrap_err();
    assert_eq!(error.code().as_str(), "STORE_UNAVAILABLE", "{error}");
    let no_file = DynamoStore::open(Options { ca_bundle: Some(fixture("none.pem")), ..options }).await;
    assert_eq!(no_file.map(drop).unwrap_err().code().as_str(), "FILE_UNAVAILABLE");
}
