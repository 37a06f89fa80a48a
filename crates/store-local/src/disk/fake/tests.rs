//! The fake is as hard as it says.

use std::collections::BTreeSet;

use super::*;

fn path(name: &str) -> PathBuf {
    Path::new("/a").join(name)
}

fn disk() -> FakeDisk {
    let disk = FakeDisk::new(1);
    disk.create_folder(Path::new("/a")).unwrap();
    disk
}

/// A file that survives, with two sectors of ones.
fn with_ones(disk: &FakeDisk) -> Box<dyn DiskFile> {
    let file = disk.open(&path("f"), How::New).unwrap();
    file.write_at(&[1; 1_024], 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_folder(Path::new("/a")).unwrap();
    file
}

/// The first bytes of both sectors, after the disk was made and cut with many seeds.
fn outcomes(make: impl Fn() -> FakeDisk) -> BTreeSet<Option<(u8, u8)>> {
    let found = (0..100).map(|seed| make().power_cut(seed).contents(&path("f")));
    found.map(|bytes| bytes.map(|bytes| (bytes[0], bytes[512]))).collect()
}

#[test]
fn what_was_not_synced_survives_in_any_part() {
    let found = outcomes(|| {
        let disk = disk();
        with_ones(&disk).write_at(&[2; 1_024], 0).unwrap();
        disk
    });
    assert_eq!(found, BTreeSet::from([(1, 1), (1, 2), (2, 1), (2, 2)].map(Some)));
}

#[test]
fn what_was_synced_survives() {
    let found = outcomes(|| {
        let disk = disk();
        let file = with_ones(&disk);
        file.write_at(&[2; 1_024], 0).unwrap();
        file.sync_data().unwrap();
        disk
    });
    assert_eq!(found, BTreeSet::from([Some((2, 2))]));
}

#[test]
fn a_failed_sync_forgets_and_the_next_one_lies() {
    let make = || {
        let disk = disk();
        let file = with_ones(&disk);
        file.write_at(&[2; 1_024], 0).unwrap();
        disk.fail(&[Call::Sync], 1, Fault::Error(io::ErrorKind::Other));
        assert!(file.sync_data().is_err());
        file.sync_data().unwrap();
        assert_eq!(disk.contents(&path("f")).unwrap(), [2; 1_024], "it can still be read");
        disk
    };
    assert!(outcomes(make).iter().any(|found| *found != Some((2, 2))));
}

#[test]
fn names_survive_by_chance_until_their_folder_was_synced() {
    let names = |synced: bool| -> BTreeSet<Vec<String>> {
        let cut = |seed| {
            let disk = disk();
            with_ones(&disk);
            disk.rename(&path("f"), &path("g")).unwrap();
            disk.open(&path("h"), How::New).unwrap();
            if synced {
                disk.sync_folder(Path::new("/a")).unwrap();
            }
            disk.power_cut(seed).list(Path::new("/a")).unwrap()
        };
        (0..100).map(cut).collect()
    };
    assert_eq!(names(true).len(), 1);
    let expected = [vec!["f"], vec!["f", "h"], vec!["g"], vec!["g", "h"]];
    assert_eq!(names(false), expected.map(|names| names.into_iter().map(str::to_owned).collect()).into());
}

#[test]
fn a_restart_keeps_what_the_kernel_remembers_and_a_cut_disk_is_dead() {
    let disk = disk();
    let file = with_ones(&disk);
    file.write_at(&[2; 512], 0).unwrap();
    let held = disk.lock(&path("lock")).unwrap();
    let next = disk.restart();
    assert_eq!(next.contents(&path("f")).unwrap()[..512], [2; 512]);
    assert!(next.lock(&path("lock")).is_ok());
    drop(held);
    assert!(file.write_at(b"x", 0).is_err() && disk.list(Path::new("/a")).is_err());
    let after = next.power_cut(1);
    assert!(next.list(Path::new("/a")).is_err() && after.list(Path::new("/a")).is_ok());
}

#[test]
fn a_full_disk_takes_what_fits_and_blocks_that_were_allocated_are_kept() {
    let disk = disk();
    disk.set_capacity(8_192);
    let file = disk.open(&path("f"), How::New).unwrap();
    file.allocate(0, 4_096).unwrap();
    let other = disk.open(&path("g"), How::New).unwrap();
    assert_eq!(other.write_at(&[1; 6_000], 0).unwrap(), 4_096);
    let refused = other.write_at(&[1; 10], 4_096).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    assert_eq!(other.allocate(0, 9_000).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(file.write_at(&[1; 4_096], 0).unwrap(), 4_096);
    disk.remove(&path("f")).unwrap();
    assert_eq!(disk.free_bytes(Path::new("/a")).unwrap(), 4_096);
    assert_eq!(other.write_at(&[1; 10], 4_096).unwrap(), 10);
}

#[test]
fn the_nth_call_fails_and_only_that() {
    let disk = disk();
    disk.fail(&[Call::Open, Call::List], 2, Fault::Error(io::ErrorKind::Other));
    disk.list(Path::new("/a")).unwrap();
    assert!(disk.open(&path("f"), How::New).is_err());
    disk.open(&path("f"), How::New).unwrap();
    assert_eq!((disk.faults(), disk.calls(Call::Open)), (1, 2));
}

#[test]
fn what_was_cut_off_does_not_come_back() {
    let disk = disk();
    let file = with_ones(&disk);
    file.set_len(100).unwrap();
    file.set_len(1_024).unwrap();
    file.sync_data().unwrap();
    let after = disk.power_cut(1).contents(&path("f")).unwrap();
    assert_eq!((after[99], after[100], after[512], after.len()), (1, 0, 0, 1_024));
}
