//! A service that hands tasks in and runs them in one process: it answers its caller at once, and the slow part is a task.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use ekiden::core::TaskId;
use ekiden::{Client, Context, Done, Ekiden, Payload, Runner, TaskError};
use serde::{Deserialize, Serialize};

/// What the handler needs, and no more: it is stored as JSON, and may be run by another process or a later version.
#[derive(Serialize, Deserialize)]
struct MakeInvoice {
    order: u32,
}

impl Payload for MakeInvoice {
    const TASK_TYPE: &'static str = "make_invoice";
}

/// A handler may run twice for one task, when a process ends at the wrong moment. So it must be able to: here the order's
/// number is the invoice's number, and making it again changes nothing.
async fn make_invoice(task: MakeInvoice, _: Context) -> Result<Done, TaskError> {
    Done::with(&format!("invoice {}", task.order))
}

/// What the service does when a customer orders. The unique key keeps an impatient customer from getting two invoices.
async fn order_placed(client: &Client, order: u32) -> ekiden::Result<TaskId> {
    let task = client.enqueue(MakeInvoice { order }).unique(format!("invoice/{order}")).await?;
    Ok(task.id)
}

/// Runs the service for a few orders, and returns what each came to.
pub(crate) async fn run() -> ekiden::Result<Vec<String>> {
    let client = Ekiden::open("memory:").await?.namespace("shop")?;
    let runner = Runner::builder(&client).handler(make_invoice).concurrency(4).build()?;
    let stop = runner.stop();
    // Beside whatever else the service does.
    let running = tokio::spawn(runner.run_until_stopped());

    let mut invoices = Vec::new();
    for order in [7, 8, 9] {
        let task = order_placed(&client, order).await?;
        let ended = client.wait(&task).await?;
        let invoice = ended.result::<String>().and_then(Result::ok);
        invoices.push(invoice.unwrap_or_else(|| format!("order {order} is {}", ended.state)));
    }

    stop.gently();
    running.await.expect("the runner does not panic")?;
    Ok(invoices)
}

#[tokio::main]
async fn main() -> ekiden::Result<()> {
    for invoice in run().await? {
        println!("{invoice}");
    }
    Ok(())
}
