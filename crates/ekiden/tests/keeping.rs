//! `local:DIR`: what survives, who may open it, and what a wrong address is answered with.
#![cfg(feature = "local")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use ekiden::store::{Address, Store};
use ekiden::{Context, Ekiden, Payload, Runner, TaskState};

#[derive(serde::Serialize, serde::Deserialize)]
struct Greet;

impl Payload for Greet {
    const TASK_TYPE: &'static str = "greet";
}

struct Folder {
    root: tempfile::TempDir,
}

impl Folder {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    fn url(&self, name: &str) -> String {
        format!("local:{}", self.root.path().join(name).display())
    }
}

async fn code(url: &str) -> &'static str {
    Ekiden::open(url).await.map(drop).unwrap_err().code().as_str()
}

#[tokio::test]
async fn tasks_of_one_life_run_in_the_next() {
    let folder = Folder::new();
    let url = folder.url("data");
    let ekiden = Ekiden::open(&url).await.unwrap();
    let first = ekiden.namespace("default").unwrap();
    let task = first.enqueue(Greet).unique("once").await.unwrap();
    ekiden.close().await.unwrap();
    assert_eq!(first.enqueue(Greet).await.unwrap_err().code().as_str(), "STORE_CLOSED");

    let ekiden = Ekiden::open(&url).await.unwrap();
    let client = ekiden.namespace("default").unwrap();
    assert_eq!(client.enqueue(Greet).unique("once").await.unwrap().id, task.id, "the key is still held");
    let runner = Runner::builder(&client).handler(|_: Greet, _: Context| async {}).build().unwrap();
    let stop = runner.stop();
    let running = tokio::spawn(runner.run_until_stopped());
    assert_eq!(client.wait(&task.id).await.unwrap().state, TaskState::Succeeded);
    stop.gently();
    running.await.unwrap().unwrap();
    ekiden.close().await.unwrap();

    let client = Ekiden::open(&url).await.unwrap().namespace("default").unwrap();
    assert_eq!(client.get_status(&task.id).await.unwrap().state, TaskState::Succeeded);
}

#[tokio::test]
async fn a_folder_that_is_open_is_in_use() {
    let folder = Folder::new();
    let ekiden = Ekiden::open(&folder.url("data")).await.unwrap();
    assert_eq!(code(&folder.url("data")).await, "STORE_IN_USE");
    ekiden.close().await.unwrap();
    Ekiden::open(&folder.url("data")).await.unwrap();
}

#[tokio::test]
async fn a_folder_that_cannot_be_is_named() {
    let folder = Folder::new();
    Ekiden::open(&folder.url("made/with/parents")).await.unwrap();
    std::fs::write(folder.root.path().join("file"), "").unwrap();
    for name in ["file", "file/below"] {
        let error = Ekiden::open(&folder.url(name)).await.map(drop).unwrap_err();
        assert_eq!(error.code().as_str(), "STORE_UNAVAILABLE");
        assert!(error.refusal().context.get("path").is_some_and(|path| path.contains("file")), "{error}");
    }
}

#[tokio::test]
async fn addresses_that_cannot_be_read_are_refused() {
    for url in ["", "local", "local:", "local://host/data", "memory", "memory:x", "Local:x", "redis://localhost"] {
        assert_eq!(code(url).await, "URL_INVALID", "{url:?}");
    }
    for url in ["memory:", "local:./data", "local:/a/b c"] {
        assert_eq!(url.parse::<Address>().unwrap().to_string(), url);
    }
}

#[tokio::test]
async fn only_a_store_that_is_there_is_opened_as_existing() {
    let folder = Folder::new();
    let address: Address = folder.url("data").parse().unwrap();
    let refused = address.open_existing().await.map(drop).unwrap_err();
    assert_eq!(refused.code().as_str(), "STORE_NOT_FOUND");
    assert!(!folder.root.path().join("data").exists(), "and nothing was made");
    assert_eq!(address.backup(folder.root.path().join("copy")).await.unwrap_err().code().as_str(), "STORE_NOT_FOUND");
    address.open().await.unwrap().close().await.unwrap();
    address.open_existing().await.unwrap().close().await.unwrap();
    address.backup(folder.root.path().join("copy")).await.unwrap();
    address.compact().await.unwrap();
    assert_eq!(Address::Memory.compact().await.unwrap_err().code().as_str(), "STORE_CANNOT");
}
