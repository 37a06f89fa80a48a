//! Room that is kept for a full disk. The log has its spare segments; the checkpoint has one file, given back to the disk when
//! nothing else is left, so that tasks that are here can still come to their end.

use std::path::PathBuf;

use crate::disk::{How, as_u64, is_passing};
use crate::shared::Shared;

pub(crate) const FILE: &str = "reserve";

fn path(shared: &Shared) -> PathBuf {
    shared.folder.join(FILE)
}

/// Takes the room, if it is not taken. Without it new tasks are refused, so that nothing else uses up what is left.
pub(crate) fn keep(shared: &Shared) {
    let bytes = as_u64(shared.options.reserve_bytes);
    let taken = shared
        .options
        .disk
        .open(&path(shared), How::OrNew)
        .and_then(|file| if file.len()? < bytes { file.allocate(0, bytes) } else { Ok(()) });
    if let Err(error) = &taken
        && is_passing(error)
    {
        tracing::warn!(%error, "the reserve could not be looked at and is tried again");
        return;
    }
    let was_full = shared.is_checkpoint_full();
    shared.set_checkpoint_full(taken.is_err());
    // A full disk is tried again every second, and told once.
    match taken {
        Ok(()) if was_full => tracing::info!("the disk has room for the reserve again"),
        Ok(()) => {}
        Err(error) => {
            if !was_full {
                tracing::warn!(%error, "the disk has no room for the reserve");
            }
            spend(shared);
        }
    }
}

/// Gives the room back to the disk; whether there was any.
pub(crate) fn spend(shared: &Shared) -> bool {
    let spent = shared.options.disk.remove(&path(shared));
    if let Err(error) = &spent {
        tracing::debug!(%error, "the reserve was spent already");
    }
    spent.is_ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    use super::*;
    use crate::disk::Disk;
    use crate::disk::fake::FakeDisk;
    use crate::{LocalStore, Options};

    /// Keeps the levels of events that matter to an operator.
    #[derive(Clone, Default)]
    struct Levels(Arc<Mutex<Vec<Level>>>);

    impl Subscriber for Levels {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() <= Level::INFO
        }

        fn event(&self, event: &Event<'_>) {
            self.0.lock().unwrap().push(*event.metadata().level());
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn a_disk_without_room_for_the_reserve_is_told_when_it_begins_and_when_it_ends() {
        let disk = FakeDisk::new(1);
        let options = Options {
            disk: Arc::new(disk.clone()),
            checkpoint_every: Duration::from_secs(3_600),
            ..Options::default()
        };
        let store = LocalStore::open(Path::new("/data"), options).unwrap();
        disk.remove(&path(&store.shared)).unwrap();
        let told = Levels::default();
        tracing::subscriber::with_default(told.clone(), || {
            for capacity in [disk.used_bytes(), u64::MAX] {
                disk.set_capacity(capacity);
                for _ in 0..3 {
                    keep(&store.shared);
                }
            }
        });
        assert_eq!(*told.0.lock().unwrap(), [Level::WARN, Level::INFO]);
    }
}
