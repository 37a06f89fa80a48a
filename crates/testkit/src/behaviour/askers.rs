//! Many who ask for tasks at once, and count for themselves how many they hold together: counts of the queue may be late.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ekiden::Ask;

use super::lab::{Lab, runner_id};

/// Does so many tasks by six askers, of whom never more than so many may have one.
pub(super) async fn many_askers(lab: &Lab, tasks: usize, at_once: usize) {
    let (held, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let askers = (0..6).map(|asker| {
        let (lab, held, done) = (lab.clone(), held.clone(), done.clone());
        tokio::spawn(async move {
            let holder = runner_id(&format!("runner-{asker}"));
            let mut most = 0;
            while done.load(Ordering::SeqCst) < tasks {
                let leased = lab.given(Ask { holder: holder.clone(), ..lab.ask(2) }).await;
                most = most.max(held.fetch_add(leased.len(), Ordering::SeqCst) + leased.len());
                for leased in leased {
                    tokio::task::yield_now().await;
                    // Given back before the queue hears of it, so that nobody is counted who has none.
                    held.fetch_sub(1, Ordering::SeqCst);
                    lab.succeed(&leased).await;
                    done.fetch_add(1, Ordering::SeqCst);
                }
                lab.maintain().await;
                tokio::task::yield_now().await;
            }
            most
        })
    });
    for asker in askers.collect::<Vec<_>>() {
        let most = asker.await.expect("an asker does not panic");
        assert!(most <= at_once, "{most} tasks were held at once");
    }
}
