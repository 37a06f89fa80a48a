//! A DynamoDB server in a process of its own, and what it does for a client that knows nothing of Ekiden.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Builder, Credentials, Region};
use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, WriteRequest};

use crate::Outcome;

/// The flag with which a benchmark starts itself as the server.
pub const SERVE: &str = "--serve";

/// 25 items: DynamoDB's maximum for one batched write.
const BATCH_ITEMS: usize = 25;

/// 100 namespaces among which the items of others are dealt out.
const NAMESPACES: usize = 100;

type Item = HashMap<String, AttributeValue>;

/// The server; it ends with this.
pub struct Server {
    child: Child,
    /// Where it listens.
    pub endpoint: String,
}

impl Server {
    /// Starts one with nothing in it.
    pub fn start() -> Outcome<Self> {
        let mut program = Command::new(std::env::current_exe()?);
        let mut child = program.arg(SERVE).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("the child has an output")?).read_line(&mut line)?;
        Ok(Self { child, endpoint: line.trim().to_owned() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the server's process does: serves until the one that started it is gone.
pub fn serve() -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("http://{}", listener.local_addr()?);
        let database = dynoxide::Database::memory().map_err(|error| error.to_string())?;
        tokio::spawn(dynoxide::server::serve_on(listener, database));
        tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;
        Outcome::Ok(())
    })
}

/// A client with the same connector as the store's.
pub fn client(endpoint: &str) -> Client {
    let config = Builder::new()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(endpoint)
        .region(Region::new("local"))
        .credentials_provider(Credentials::new("local", "local", None, None, "bench"));
    Client::from_conf(config.build())
}

fn text(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

fn key(namespace: &str, id: &str) -> Item {
    [("namespace".to_owned(), text(namespace)), ("task_id".to_owned(), text(id))].into()
}

/// An item as another program queues it.
fn queued(number: usize) -> Item {
    let id = format!("theirs-{number:06}");
    let moment = format!("2026-11-15T12:{:02}:{:02}.{:03}Z", number / 60_000 % 60, number / 1_000 % 60, number % 1_000);
    let mut item = key(&format!("other-{}", number % NAMESPACES), &id);
    let more = [("status", "QUEUED"), ("prompt", "do it"), ("created_at", &moment), ("updated_at", &moment)];
    item.extend(more.map(|(name, value)| (name.to_owned(), text(value))));
    item.extend(["task_group_id", "session_id"].map(|name| (name.to_owned(), text(&id))));
    item
}

/// Puts so many queued items into other namespaces, by several writers.
pub async fn fill(client: &Client, table: &str, items: usize, writers: usize) -> Outcome<()> {
    let mut running = Vec::new();
    for writer in 0..writers {
        let (client, table) = (client.clone(), table.to_owned());
        running.push(tokio::spawn(async move {
            let starts = (0..items).step_by(BATCH_ITEMS).skip(writer).step_by(writers);
            for start in starts {
                let put = |number| {
                    let put = PutRequest::builder().set_item(Some(queued(number))).build()?;
                    Outcome::Ok(WriteRequest::builder().put_request(put).build())
                };
                let batch = (start..items.min(start + BATCH_ITEMS)).map(put).collect::<Outcome<Vec<_>>>()?;
                let done = client.batch_write_item().request_items(&table, batch).send().await?;
                if done.unprocessed_items.is_some_and(|left| !left.is_empty()) {
                    return Err("the server left items of a batch".into());
                }
            }
            Outcome::Ok(())
        }));
    }
    for writer in running {
        writer.await??;
    }
    Ok(())
}

/// Conditional updates a second by so many callers, each on an item of its own that a task would be as large as.
pub async fn updates_a_second(client: &Client, table: &str, callers: usize, updates: usize) -> Outcome<f64> {
    for caller in 0..callers {
        let item = key("raw", &format!("caller-{caller}"));
        let item = item.into_iter().chain([("n".to_owned(), text("0")), ("pad".to_owned(), text("x".repeat(400)))]);
        client.put_item().table_name(table).set_item(Some(item.collect())).send().await?;
    }
    let start = Instant::now();
    let mut running = Vec::new();
    for caller in 0..callers {
        let (client, table) = (client.clone(), table.to_owned());
        running.push(tokio::spawn(async move {
            let key = key("raw", &format!("caller-{caller}"));
            for number in 0..updates / callers {
                let update = client.update_item().table_name(&table).set_key(Some(key.clone()));
                let update = update.update_expression("SET n = :new").condition_expression("n = :old");
                let update = update.expression_attribute_values(":old", text(number.to_string()));
                update.expression_attribute_values(":new", text((number + 1).to_string())).send().await?;
            }
            Outcome::Ok(())
        }));
    }
    for caller in running {
        caller.await??;
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of updates is far below 2^52")]
    Ok((updates / callers * callers) as f64 / start.elapsed().as_secs_f64())
}
