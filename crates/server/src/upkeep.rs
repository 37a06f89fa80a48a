//! What is due, done by the server in every namespace that it knows: a runner elsewhere may be the only one, and a server
//! without runners still has leases to end. One timer serves all namespaces; a bell brings a namespace its turn at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ekiden_core::id::Namespace;
use hashbrown::HashSet;
use tokio::sync::mpsc;

use crate::api::logs;
use crate::limits;
use crate::shared::Shared;

/// One second between looks.
const PERIOD: Duration = limits::LOOK_AGAIN;

/// 60 looks: how often the store is asked for namespaces that no request named.
const LOOKS_A_LISTING: u32 = 60;

/// One minute between two walks through all logs.
const LOGS_PERIOD: Duration = Duration::from_secs(60);

/// Does what is due until the server ends.
pub(crate) async fn keep(shared: Arc<Shared>) {
    let stop = shared.stop.clone();
    tokio::select! {
        () = stop.cancelled() => {}
        () = rounds(&shared) => {}
        () = clear_logs(&shared) => {}
    }
}

async fn rounds(shared: &Arc<Shared>) {
    let (called, mut calls) = mpsc::channel(limits::NAMESPACES_MAX);
    let mut turns: VecDeque<Namespace> = VecDeque::new();
    let mut listened: HashSet<Namespace> = HashSet::new();
    let mut found = shared.namespaces.found.heard();
    let mut looks = 0;
    loop {
        if looks % LOOKS_A_LISTING == 0 {
            list(shared).await;
        }
        looks = looks.wrapping_add(1);
        for namespace in shared.namespaces.all() {
            if listened.insert(namespace.clone()) {
                listen(shared, &namespace, called.clone());
                turns.push_front(namespace);
            }
        }
        let mut wait = PERIOD;
        for _ in 0..turns.len().min(limits::NAMESPACES_A_LOOK) {
            let Some(namespace) = turns.pop_front() else { break };
            wait = wait.min(look_after(shared, &namespace).await);
            turns.push_back(namespace);
        }
        let mut until = std::pin::pin!(tokio::time::sleep(wait));
        loop {
            tokio::select! {
                () = &mut until => break,
                () = shared.namespaces.found.since(&mut found) => break,
                namespace = calls.recv() => {
                    let Some(namespace) = namespace else { return };
                    // Rings that came while somebody else had its turn are one.
                    let mut rung: HashSet<Namespace> = [namespace].into_iter().collect();
                    while let Ok(namespace) = calls.try_recv() {
                        rung.insert(namespace);
                    }
                    let mut soon = PERIOD;
                    for namespace in rung {
                        soon = soon.min(look_after(shared, &namespace).await);
                    }
                    if soon < PERIOD {
                        break;
                    }
                }
            }
        }
    }
}

/// Removes the logs of purged tasks, a page a minute and at once where there was more.
async fn clear_logs(shared: &Shared) {
    let Some(logs) = &shared.logs else { return std::future::pending().await };
    let mut after = None;
    loop {
        after = logs::clear(shared, logs, after).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot clear logs away");
            None
        });
        let pause = if after.is_some() { PERIOD } else { LOGS_PERIOD };
        tokio::time::sleep(pause).await;
    }
}

/// One namespace's turn. Says how long the next one may wait.
async fn look_after(shared: &Shared, namespace: &Namespace) -> Duration {
    loop {
        match shared.queue.maintain(namespace.clone()).await {
            Ok(done) if done.more && done.changed + done.swept + done.ticked + done.removed > 0 => {
                tokio::task::yield_now().await;
            }
            Ok(done) => {
                let now = shared.clock.now();
                return done.next_tick.map_or(PERIOD, |tick| tick.since(now).as_duration().min(PERIOD));
            }
            Err(error) => {
                tracing::warn!(%error, namespace = namespace.as_str(), "maintenance");
                return PERIOD;
            }
        }
    }
}

/// Finds the namespaces that the store has.
async fn list(shared: &Shared) {
    let mut after = None;
    let mut pages = limits::NAMESPACES_MAX / limits::PAGE_ITEMS + 1;
    loop {
        let page = match shared.queue.namespaces(after, limits::PAGE_ITEMS).await {
            Ok(page) => page,
            Err(error) => return tracing::warn!(%error, "cannot list namespaces"),
        };
        for namespace in &page.items {
            shared.namespaces.note(namespace);
        }
        after = page.items.last().cloned();
        pages -= 1;
        if page.cursor.is_none() || after.is_none() || pages == 0 {
            return;
        }
    }
}

/// Passes the rings of a namespace on, each time there was one.
fn listen(shared: &Arc<Shared>, namespace: &Namespace, called: mpsc::Sender<Namespace>) {
    let bell = shared.queue.bell(namespace);
    let (namespace, stop) = (namespace.clone(), shared.stop.clone());
    tokio::spawn(async move {
        let mut heard = bell.work.heard();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = bell.work.since(&mut heard) => {}
            }
            if called.send(namespace.clone()).await.is_err() {
                return;
            }
        }
    });
}
