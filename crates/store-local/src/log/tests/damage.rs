//! Files that changed since they were synced: a wrong batch is never replayed, and only the last one may go missing.

use super::*;
use crate::log::format::{BATCH_HEADER_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader, frame, framed_bytes};

/// Three batches of 33 bytes and a seal.
const SEGMENT: u64 = 280;

/// A log of several segments, the last of which was another one before.
struct Sample {
    files: Vec<(PathBuf, Vec<u8>)>,
    batches: Replayed,
}

/// The place of one batch.
#[derive(Debug, Clone)]
struct Place {
    path: PathBuf,
    start: usize,
    /// Where its bytes end, and where its padding does.
    body_end: usize,
    end: usize,
    sequence: u64,
}

impl Sample {
    fn new() -> Self {
        let disk = FakeDisk::new(7);
        let (mut log, _) = open(&disk, SEGMENT, 0).unwrap();
        for sequence in 1..=7 {
            commit(&mut log, &batch(sequence, 41)).unwrap();
        }
        log.release(7);
        log.spares().prepare().unwrap();
        for sequence in 8..=14 {
            commit(&mut log, &batch(sequence, 33)).unwrap();
        }
        // Released and never recycled, as after a crash.
        let kept = names(&disk).into_iter().filter(|name| name.ends_with(".log"));
        let files = kept.map(|name| Path::new(FOLDER).join(name));
        let mut files: Vec<_> = files.map(|path| (path.clone(), disk.contents(&path).unwrap())).collect();
        files.sort();
        assert_eq!(files.len(), 3, "{:?}", names(&disk));
        Self { files, batches: (7..=14).map(|s| (s, batch(s, if s > 7 { 33 } else { 41 }))).collect() }
    }

    fn opened(&self, change: impl FnOnce(&mut Vec<(PathBuf, Vec<u8>)>)) -> Result<Replayed, LogError> {
        let mut files = self.files.clone();
        change(&mut files);
        let disk = FakeDisk::new(1);
        for (path, bytes) in files {
            disk.plant(&path, &bytes);
        }
        let (_, replayed) = open(&disk, SEGMENT, 6)?;
        // What was accepted once is accepted again.
        assert_eq!(open(&disk.power_cut(1), SEGMENT, 6).unwrap().1, replayed);
        Ok(replayed)
    }

    /// Where the batches are, by the format.
    fn places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        let mut sequences = self.batches.iter().peekable();
        for (at, (path, _)) in self.files.iter().enumerate() {
            let follower = self.files.get(at + 1).map(|(path, _)| path.clone());
            let mut start = SEGMENT_HEADER_BYTES;
            while let Some((sequence, bytes)) = sequences
                .next_if(|(sequence, _)| follower.as_ref().is_none_or(|follower| segment_path(*sequence) != *follower))
            {
                let (body_end, end) = (start + BATCH_HEADER_BYTES + bytes.len(), start + framed_bytes(bytes.len()));
                places.push(Place { path: path.clone(), start, body_end, end, sequence: *sequence });
                start = end;
            }
        }
        places
    }
}

#[test]
fn every_flipped_bit_is_refused_at_its_place_or_harmless_or_in_the_last_batch() {
    let sample = Sample::new();
    let places = sample.places();
    let last = places.last().unwrap();
    assert_eq!(sample.opened(|_| {}).unwrap(), sample.batches);
    for (file, (path, bytes)) in sample.files.iter().enumerate() {
        for bit in 0..bytes.len() * 8 {
            let at = bit / 8;
            let hit = places.iter().find(|place| place.path == *path && (place.start..place.body_end).contains(&at));
            let outcome = sample.opened(|files| files[file].1[at] ^= 1 << (bit % 8));
            let (wanted_offset, wanted_sequence) = match hit {
                None if at < SEGMENT_HEADER_BYTES => (0, SegmentHeader::decode(bytes).unwrap().first),
                None => {
                    assert_eq!(outcome.unwrap(), sample.batches, "bit {bit} of {path:?} is in no batch");
                    continue;
                }
                Some(place) if place.sequence == last.sequence => {
                    let (_, but_last) = sample.batches.split_last().unwrap();
                    assert_eq!(outcome.unwrap(), but_last, "bit {bit} of {path:?} is in the last batch");
                    continue;
                }
                Some(place) => (place.start as u64, place.sequence),
            };
            match outcome {
                Err(LogError::Damaged { path: found, offset, expected, .. }) => {
                    assert_eq!((&found, offset, expected), (path, wanted_offset, wanted_sequence), "bit {bit}");
                }
                other => panic!("bit {bit} of {path:?}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_segment_that_was_cut_anywhere_is_refused() {
    let sample = Sample::new();
    for (file, (path, bytes)) in sample.files.iter().enumerate() {
        for length in 0..bytes.len() {
            match sample.opened(|files| files[file].1.truncate(length)) {
                Err(LogError::Damaged { path: found, .. }) => assert_eq!(found, *path),
                other => panic!("{path:?} cut at {length}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_missing_segment_is_refused() {
    let sample = Sample::new();
    let [first, second, third] = [0, 1, 2].map(|file| sample.opened(|files| drop(files.remove(file))).unwrap_err());
    let places = sample.places();
    assert!(matches!(first, LogError::Damaged { expected: 7, .. }), "{first:?}");
    let end_of = |file: usize| places.iter().rfind(|place| place.path == sample.files[file].0).unwrap();
    for (error, file) in [(second, 0), (third, 1)] {
        let end = end_of(file);
        match error {
            LogError::Damaged { path, offset, expected, .. } => {
                assert_eq!((path, offset, expected), (end.path.clone(), end.end as u64, end.sequence + 1));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_log_that_ends_before_its_checkpoint_is_refused_wherever_it_ends() {
    let sample = Sample::new();
    for place in sample.places() {
        for after in 6..=20 {
            // Zeros from here on, no file behind this one, and no seal, as if the log had never gone further.
            let disk = FakeDisk::new(1);
            for (path, bytes) in sample.files.iter().filter(|(path, _)| *path <= place.path) {
                let mut bytes = bytes.clone();
                if *path == place.path {
                    bytes[place.start..].fill(0);
                }
                disk.plant(path, &bytes);
            }
            let opened = open(&disk, SEGMENT, after);
            if after >= place.sequence {
                assert!(
                    matches!(opened, Err(LogError::Damaged { .. })),
                    "cut before {}, after {after}",
                    place.sequence
                );
            } else {
                assert_eq!(opened.unwrap().0.last() + 1, place.sequence);
            }
        }
    }
}

#[test]
fn a_log_without_room_may_end_before_its_checkpoint_until_it_goes_on_behind_it() {
    let disk = FakeDisk::new(1);
    let (mut log, _) = open(&disk, SEGMENT, 0).unwrap();
    for sequence in 1..=2 {
        commit(&mut log, &batch(sequence, 33)).unwrap();
    }
    drop(log);
    let reopened = |disk: &FakeDisk, reaches| open_short(disk, SEGMENT, 5, reaches).map(|(log, _)| log);
    assert!(matches!(reopened(&disk, Reaches::Checkpoint), Err(LogError::Damaged { expected: 3, .. })));
    // The checkpoint has three to five. What comes next is in a new segment, and the old one says so.
    let (mut log, _) = open(&disk, SEGMENT, 2).unwrap();
    log.leave_out(6);
    assert_eq!(commit(&mut log, &batch(6, 33)).unwrap(), 6);
    drop(log);
    assert_eq!(reopened(&disk, Reaches::ASegment).unwrap().last(), 6);
    disk.remove(&segment_path(6)).unwrap();
    assert!(matches!(reopened(&disk, Reaches::ASegment), Err(LogError::Damaged { expected: 3, .. })));
    disk.remove(&segment_path(1)).unwrap();
    assert!(matches!(reopened(&disk, Reaches::ASegment), Err(LogError::Damaged { .. })));
    assert_eq!(reopened(&disk, Reaches::Nowhere).unwrap().last(), 5);
}

#[test]
fn a_newer_format_is_told_apart_from_damage() {
    let sample = Sample::new();
    let refused = sample.opened(|files| {
        let bytes = &mut files[1].1;
        bytes[8..12].copy_from_slice(&9_u32.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    });
    match refused {
        Err(LogError::Newer { path, version: 9, .. }) => assert_eq!(path, sample.files[1].0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_segment_under_another_name_is_refused() {
    let sample = Sample::new();
    let refused = sample.opened(|files| files[2].0 = segment_path(99));
    assert!(matches!(refused, Err(LogError::Damaged { .. })), "{refused:?}");
    let refused = sample.opened(|files| files[0].0 = segment_path(6));
    assert!(matches!(refused, Err(LogError::Damaged { .. })), "{refused:?}");
    let refused = sample.opened(|files| files[2].0 = Path::new(FOLDER).join("latest.log"));
    assert!(matches!(refused, Err(LogError::Damaged { .. })), "{refused:?}");
}

#[test]
fn a_batch_in_the_place_of_another_is_refused() {
    let sample = Sample::new();
    let places = sample.places();
    let [.., before, place, after] = &places[..] else { panic!("{places:?}") };
    for other in [before, after] {
        let refused = sample.opened(|files| {
            let bytes = &mut files.last_mut().unwrap().1;
            bytes.copy_within(other.start..other.end, place.start);
        });
        match refused {
            Err(LogError::Damaged { offset, expected, .. }) => {
                assert_eq!((offset, expected), (place.start as u64, place.sequence));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_seal_that_is_missing_is_written_when_the_log_is_opened() {
    let sample = Sample::new();
    let places = sample.places();
    let (path, bytes) = &sample.files[1];
    let end = places.iter().rfind(|place| place.path == *path).unwrap().end;
    let mut unsealed = bytes.clone();
    unsealed[end..].fill(0);
    let disk = FakeDisk::new(1);
    for (path, bytes) in [&sample.files[0], &(path.clone(), unsealed), &sample.files[2]] {
        disk.plant(path, bytes);
    }
    open(&disk, SEGMENT, 6).unwrap();
    let disk = disk.power_cut(1);
    disk.remove(&sample.files[2].0).unwrap();
    let refused = open(&disk, SEGMENT, 6);
    assert!(matches!(refused, Err(LogError::Damaged { .. })), "the last segment is missing");
}

#[test]
fn files_that_are_not_the_logs_are_left_alone() {
    let sample = Sample::new();
    let foreign = Path::new(FOLDER).join("notes.txt");
    let replayed = sample.opened(|files| files.push((foreign, b"hello".to_vec())));
    assert_eq!(replayed.unwrap(), sample.batches);
}

#[test]
fn a_batch_that_is_begun_behind_a_damaged_one_proves_the_damage() {
    // Number 13 was synced and is damaged, 14 is torn: without its header, 13 would look torn and be cut.
    let sample = Sample::new();
    let places = sample.places();
    let [.., damaged, torn] = &places[..] else { panic!("{places:?}") };
    assert_eq!(damaged.path, torn.path);
    let refused = sample.opened(|files| {
        let bytes = &mut files.last_mut().unwrap().1;
        bytes[damaged.start + 30] ^= 1;
        bytes[torn.body_end - 1] ^= 1;
    });
    assert!(matches!(refused, Err(LogError::Damaged { expected: 13, .. })), "{refused:?}");
}

#[test]
fn a_payload_cannot_pass_for_a_later_batch() {
    // A caller who knows the format, but no salt, hides a batch in a batch, and the power goes while that is written.
    let disk = FakeDisk::new(1);
    let (mut log, _) = open(&disk, 4_096, 0).unwrap();
    commit(&mut log, b"one").unwrap();
    let mut hidden = Vec::new();
    frame(&mut hidden, 0, 3, b"forged");
    log.append(&hidden.repeat(20)).unwrap();
    let mut bytes = disk.contents(&segment_path(1)).unwrap();
    let start = SEGMENT_HEADER_BYTES + framed_bytes(3);
    bytes[start..start + BATCH_HEADER_BYTES].fill(0);
    let disk = FakeDisk::new(1);
    disk.plant(&segment_path(1), &bytes);
    let (mut log, replayed) = open(&disk, 4_096, 0).unwrap();
    assert_eq!(replayed, [(1, b"one".to_vec())]);
    let rest = disk.contents(&segment_path(1)).unwrap();
    assert!(rest[start..].iter().all(|byte| *byte == 0), "what was torn cannot come back");
    assert_eq!(commit(&mut log, b"two").unwrap(), 2);
}
