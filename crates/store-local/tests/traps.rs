//! What a project folder from somewhere else, or another user, can put in the place of a store's files.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod ward;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ekiden_core::reason::ReasonCode;
use ekiden_store::{Store, StoreError};
use ekiden_store_local::{LocalStore, Options};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use ward::{Ward, block_on};

fn small() -> Options {
    Options {
        segment_bytes: 256 << 10,
        reserve_bytes: 64 << 10,
        checkpoint_every: Duration::from_millis(5),
        ..Options::default()
    }
}

/// A store that was used and closed, in a folder of its own.
fn make(folder: &Path) -> Ward {
    let store = LocalStore::open(folder, small()).unwrap();
    let mut ward = Ward::new(1);
    for _ in 0..20 {
        block_on(ward.enqueue(&store)).unwrap();
    }
    block_on(store.close()).unwrap();
    ward
}

/// Every file and folder that a closed store has, without the folder itself.
fn places(folder: &Path) -> Vec<PathBuf> {
    let names = |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let mut places = names(folder);
    places.extend(names(&folder.join("log")));
    places
}

fn refused(folder: &Path) -> StoreError {
    LocalStore::open(folder, small()).map(|_| ()).unwrap_err()
}

/// S15: nothing but a regular file (for the log: a folder) is opened in the place of a file of the store, and a link leads
/// nowhere, whatever stands behind it.
#[test]
fn a_trap_in_the_place_of_a_file_of_the_store_is_refused_and_leads_nowhere() {
    let root = tempfile::tempdir().unwrap();
    let (folder, away) = (root.path().join("data"), root.path().join("away"));
    let mut ward = make(&folder);
    let places = places(&folder);
    for name in ["reserve", "lock", "checkpoint.redb", "log"] {
        assert!(places.contains(&folder.join(name)), "{name} is among {places:?}");
    }
    assert!(places.iter().any(|place| place.extension().is_some_and(|kind| kind == "log")), "{places:?}");
    assert!(places.iter().any(|place| place.extension().is_some_and(|kind| kind == "spare")), "{places:?}");

    let bytes = |path: &Path| fs::read(path).ok();
    for place in places {
        let is_folder = place.is_dir();
        let traps: [(&str, &dyn Fn()); 5] = [
            ("a symbolic link", &|| symlink(&away, &place).unwrap()),
            ("a symbolic link", &|| symlink("/dev/zero", &place).unwrap()),
            ("a symbolic link", &|| symlink(root.path().join("none"), &place).unwrap()),
            ("a FIFO", &|| mknodat(CWD, &place, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap()),
            if is_folder {
                ("a file", &|| fs::write(&place, "").unwrap())
            } else {
                ("a folder", &|| fs::create_dir(&place).unwrap())
            },
        ];
        for (found, trap) in traps {
            fs::rename(&place, &away).unwrap();
            let before = bytes(&away);
            trap();
            let error = refused(&folder);
            assert_eq!(error.code(), ReasonCode::FileUnsafe, "{}: {error}", place.display());
            assert_eq!(error.refusal.context["path"], place.display().to_string());
            assert_eq!(error.refusal.context["found"], found, "{}", place.display());
            assert!(bytes(&away) == before && !root.path().join("none").exists(), "{}", place.display());
            if found == "a folder" { fs::remove_dir(&place) } else { fs::remove_file(&place) }.unwrap();
            fs::rename(&away, &place).unwrap();
        }
    }
    let store = LocalStore::open(&folder, small()).unwrap();
    block_on(ward.look(&store)).unwrap();
}

/// S15: a folder with links to the files of a store that is in use has a lock of its own, and is no second way to that store.
#[test]
fn a_folder_of_links_is_no_second_way_to_a_store() {
    let root = tempfile::tempdir().unwrap();
    let (real, foreign) = (root.path().join("real"), root.path().join("foreign"));
    let mut ward = make(&real);
    let store = LocalStore::open(&real, small()).unwrap();
    for linked in [&["log", "checkpoint.redb"][..], &["log"], &["checkpoint.redb"]] {
        let _ = fs::remove_dir_all(&foreign);
        fs::create_dir(&foreign).unwrap();
        for name in linked {
            symlink(real.join(name), foreign.join(name)).unwrap();
        }
        let error = refused(&foreign);
        assert_eq!(error.code(), ReasonCode::FileUnsafe, "{linked:?}: {error}");
        block_on(ward.enqueue(&store)).unwrap();
    }
    block_on(store.close()).unwrap();
    let store = LocalStore::open(&real, small()).unwrap();
    block_on(ward.look(&store)).unwrap();
    block_on(store.close()).unwrap();
    drop(store);

    // The folder itself may be a link: its lock is the store's.
    let link = root.path().join("link");
    symlink(&real, &link).unwrap();
    let store = LocalStore::open(&link, small()).unwrap();
    block_on(ward.look(&store)).unwrap();
    assert_eq!(refused(&real).code(), ReasonCode::StoreInUse);
}
