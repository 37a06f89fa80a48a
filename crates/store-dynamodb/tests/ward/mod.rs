//! A DynamoDB server for one test: in this process unless `EKIDEN_DYNAMODB_ENDPOINT` names another.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Builder, Credentials, Region};
use aws_sdk_dynamodb::types::AttributeValue;
use ekiden_core::claim::{Claim, ClaimPool, Kinds, LeaseTerm};
use ekiden_core::event::Event;
use ekiden_core::id::{Kind, Namespace, OpId, PoolName, RunnerId, TaskId};
use ekiden_core::key::Key;
use ekiden_core::plan::{Enqueue, Happen, Happened, View};
use ekiden_core::pool::Profile;
use ekiden_core::task::{Spec, Task, TaskEnvelope};
use ekiden_core::time::Timestamp;
use ekiden_core::transition::Start;
use ekiden_store::StoreExt;
use ekiden_store::clock::{Clock, SystemClock};
use ekiden_store::entropy::Entropy;
use ekiden_store_dynamodb::{DynamoStore, Options};
use ekiden_testkit::proxy::{Faults, Proxy};

/// Set to the address of a DynamoDB server, all tests use that one.
pub(crate) const ENDPOINT_VARIABLE: &str = "EKIDEN_DYNAMODB_ENDPOINT";

/// A server, and names for tables that nobody else has.
pub(crate) struct Ward {
    endpoint: String,
    /// The server itself.
    pub(crate) server: String,
    pub(crate) proxy: Option<Proxy>,
    entropy: Mutex<Entropy>,
}

impl Ward {
    /// The server that was named, or a new one that ends with the runtime.
    pub(crate) async fn open() -> Self {
        let endpoint = match std::env::var(ENDPOINT_VARIABLE) {
            Ok(endpoint) => endpoint,
            Err(_) => serve().await,
        };
        Self { server: endpoint.clone(), endpoint, proxy: None, entropy: Mutex::new(Entropy::from_system()) }
    }

    /// The same server behind a bad line.
    pub(crate) async fn open_behind(faults: Faults, seed: u64) -> Self {
        let ward = Self::open().await;
        let proxy = Proxy::start(&ward.endpoint, faults, seed).await.unwrap();
        Self { endpoint: proxy.endpoint().to_owned(), proxy: Some(proxy), ..ward }
    }

    /// Goes to the server behind another ward's line, without that line.
    pub(crate) fn endpoint_of(&mut self, other: &Self) {
        self.endpoint.clone_from(&other.server);
    }

    /// Options for a store with tables of its own.
    pub(crate) fn options(&self) -> Options {
        let prefix = format!("t{:016x}-", self.entropy.lock().unwrap().next_u64());
        Options { endpoint: self.endpoint.clone(), table_prefix: prefix, ..Options::default() }
    }
}

/// An item in the words of the document.
pub(crate) type Words = HashMap<String, String>;

/// A store on tables of its own, and a foreign program that knows these tables.
pub(crate) struct Bench {
    pub(crate) store: DynamoStore,
    pub(crate) foreign: Client,
    pub(crate) options: Options,
    entropy: Mutex<Entropy>,
    ward: Ward,
}

impl Bench {
    pub(crate) async fn open() -> Self {
        let ward = Ward::open().await;
        let options = ward.options();
        Self::on(ward, options).await
    }

    pub(crate) async fn on(ward: Ward, options: Options) -> Self {
        let store = DynamoStore::open(options.clone()).await.unwrap();
        let foreign = client(&options);
        Self { store, foreign, options, entropy: Mutex::new(Entropy::from_system()), ward }
    }

    /// Another process on the same tables.
    pub(crate) fn beside(other: &Self, store: DynamoStore) -> Self {
        let [entropy, ours] = [(); 2].map(|()| Mutex::new(Entropy::from_system()));
        let endpoint = other.options.endpoint.clone();
        let ward = Ward { server: endpoint.clone(), endpoint, proxy: None, entropy: ours };
        Self { store, foreign: other.foreign.clone(), options: other.options.clone(), entropy, ward }
    }

    pub(crate) fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    /// A new name for an op.
    pub(crate) fn op(&self) -> OpId {
        self.entropy.lock().unwrap().op_id(self.now())
    }

    /// The requests that came through the line since this was last asked, by operation.
    pub(crate) fn asked(&self) -> BTreeMap<String, u64> {
        self.ward.proxy.as_ref().map(Proxy::asked).unwrap_or_default()
    }

    pub(crate) fn queue(&self) -> String {
        format!("{}pm-runner-queue", self.options.table_prefix)
    }

    /// Enqueues a prompt of ours with a generated id.
    pub(crate) async fn enqueue(&self, namespace: &str) -> TaskId {
        self.enqueue_with(namespace, |_| {}).await
    }

    pub(crate) async fn enqueue_with(&self, namespace: &str, change: impl FnOnce(&mut Spec)) -> TaskId {
        let now = self.now();
        let (id, op) = {
            let mut entropy = self.entropy.lock().unwrap();
            (entropy.task_id(now), entropy.op_id(now))
        };
        let envelope = TaskEnvelope::json(Kind::new("prompt").unwrap(), r#"{"prompt":"hello"}"#);
        let policy = Profile::DynamoOther.settings().policy;
        let mut spec = Spec::new(ns(namespace), PoolName::new("default").unwrap(), id, envelope, policy, now);
        change(&mut spec);
        let plan = Enqueue { spec: Arc::new(spec), start: Start::Released, parents: Vec::new(), idempotency: None };
        // As the port does: an id is new unless somebody repeats a request.
        let mut view = View::default();
        view.insert(Key::task(&plan.spec.namespace, &plan.spec.id), None);
        self.store.run_seen(&plan, op, now, view).await.unwrap().id().clone()
    }

    pub(crate) fn claim_of(&self, namespace: &str) -> Claim {
        let now = self.now();
        Claim {
            id: self.entropy.lock().unwrap().op_id(now),
            now,
            pools: vec![ClaimPool::open(ns(namespace), PoolName::new("default").unwrap())],
            kinds: Kinds::Any,
            limit: 1,
            holder: RunnerId::new("our-runner").unwrap(),
            lease: LeaseTerm::Heartbeat,
        }
    }

    /// One claim for one task of the default pool.
    pub(crate) async fn claim(&self, namespace: &str) -> Option<Arc<Task>> {
        let claimed = self.store.claim(self.claim_of(namespace)).await.unwrap();
        claimed.tasks.into_iter().next().map(|found| found.record.as_task().unwrap().clone())
    }

    pub(crate) async fn happen(&self, namespace: &str, id: &str, event: Event) -> Happened {
        let op = self.entropy.lock().unwrap().op_id(self.now());
        let plan = Happen { task: key(namespace, id), event };
        self.store.run(&plan, op, self.now()).await.unwrap()
    }

    pub(crate) async fn task(&self, namespace: &str, id: &str) -> Arc<Task> {
        let found = self.store.get_one(key(namespace, id)).await.unwrap().unwrap();
        found.record.as_task().unwrap().clone()
    }

    /// The foreign program puts an item with nothing but the documented attributes.
    pub(crate) async fn foreign_put(&self, namespace: &str, id: &str, status: &str) {
        let moment = self.now().to_string();
        let mut put = self.foreign.put_item().table_name(self.queue());
        let all = [
            ("namespace", namespace),
            ("task_id", id),
            ("task_group_id", "their-group"),
            ("session_id", "their-session"),
            ("status", status),
            ("prompt", "do it"),
            ("created_at", &moment),
            ("updated_at", &moment),
        ];
        for (name, value) in all {
            put = put.item(name, AttributeValue::S(value.to_owned()));
        }
        if status == "RUNNING" {
            put = put.item("claimed_by", AttributeValue::S("their-runner".to_owned()));
        }
        put.send().await.unwrap();
    }

    /// The foreign program changes a status as documented: only from the one that it saw. Says whether it could.
    pub(crate) async fn foreign_set(&self, namespace: &str, id: &str, from: &str, to: &str) -> bool {
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let update = self.foreign.update_item().table_name(self.queue());
        let update = update.key("namespace", text(namespace)).key("task_id", text(id));
        let update = update.update_expression("SET #s = :to, updated_at = :now, claimed_by = :me");
        let update = update.condition_expression("#s = :from").expression_attribute_names("#s", "status");
        let update =
            update.expression_attribute_values(":from", text(from)).expression_attribute_values(":to", text(to));
        let update = update.expression_attribute_values(":now", text(&self.now().to_string()));
        update.expression_attribute_values(":me", text("their-runner")).send().await.is_ok()
    }

    /// The foreign program answers a question as documented: it appends the answer and writes RUNNING.
    pub(crate) async fn foreign_answer(&self, namespace: &str, id: &str, content: &str) {
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let entry = [("role", "user"), ("content", content), ("timestamp", "2026-11-15T12:00:00Z")];
        let entry = entry.into_iter().map(|(name, value)| (name.to_owned(), text(value))).collect();
        let update = self.foreign.update_item().table_name(self.queue());
        let update = update.key("namespace", text(namespace)).key("task_id", text(id));
        let update = update.update_expression("SET #s = :to, conversation_history = :c");
        let update =
            update.expression_attribute_names("#s", "status").expression_attribute_values(":to", text("RUNNING"));
        let history = AttributeValue::L(vec![AttributeValue::M(entry)]);
        update.expression_attribute_values(":c", history).send().await.unwrap();
    }

    /// What the foreign program reads: all texts of an item.
    pub(crate) async fn foreign_get(&self, namespace: &str, id: &str) -> Words {
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let get = self.foreign.get_item().table_name(self.queue()).consistent_read(true);
        let found = get.key("namespace", text(namespace)).key("task_id", text(id)).send().await.unwrap();
        let words =
            found.item.unwrap().into_iter().filter_map(|(name, value)| Some((name, value.as_s().ok()?.clone())));
        words.collect()
    }
}

pub(crate) fn ns(name: &str) -> Namespace {
    Namespace::new(name).unwrap()
}

pub(crate) fn key(namespace: &str, id: &str) -> Key {
    Key::task(&ns(namespace), &TaskId::new(id).unwrap())
}

/// The seed that the environment names, or none in particular: what a bad line does is repeated by it.
pub(crate) fn seed() -> u64 {
    std::env::var("EKIDEN_SEED").map_or(0, |seed| seed.parse().expect("seeds are numbers"))
}

/// A client that is not the store's.
pub(crate) fn client(options: &Options) -> Client {
    let config = Builder::new()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(&options.endpoint)
        .region(Region::new("local"))
        .credentials_provider(Credentials::new("local", "local", None, None, "foreign"));
    Client::from_conf(config.build())
}

/// A server in this process.
pub(crate) async fn serve() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let database = dynoxide::Database::memory().unwrap();
    drop(tokio::spawn(dynoxide::server::serve_on(listener, database)));
    format!("http://{address}")
}
