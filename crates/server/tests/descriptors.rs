//! The limit of open files, which belongs to the whole process: alone in this file, so that it changes under no other test.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use ekiden_server::limits;
use lab::Lab;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[tokio::test]
async fn a_server_raises_the_soft_limit_of_open_files_to_what_its_connections_need() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(128), maximum }).unwrap();
    let lab = Lab::new().await;
    assert_eq!(lab.ask("GET", "/health", &[], b"").await.status, 200);
    let wanted = u64::try_from(limits::CONNECTIONS_MAX).unwrap();
    let raised = getrlimit(Resource::Nofile).current.unwrap();
    assert!(raised > wanted || Some(raised) == maximum, "{raised}");
}
