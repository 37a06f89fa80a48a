//! One file of the fake disk: what programs read, what is stored, and what lies between.

use std::collections::{BTreeMap, BTreeSet};

use ekiden_store::entropy::Entropy;

use crate::disk::as_u64;

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

/// What a file system gives out at a time.
pub(super) const BLOCK: u64 = 4_096;

/// What a power cut leaves of changes that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaves {
    Nothing,
    Everything,
    /// Each change by chance.
    Some,
}

impl Leaves {
    pub(super) fn draw(dice: &mut Entropy) -> Self {
        // Chance alone hardly ever loses all or keeps all of many sectors, and both happen.
        *dice.pick(&[Self::Nothing, Self::Everything, Self::Some, Self::Some])
    }

    pub(super) fn keeps(self, dice: &mut Entropy) -> bool {
        match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::Some => dice.chance(50),
        }
    }
}

/// A file without its names.
#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    /// What programs read.
    cache: Vec<u8>,
    /// What is stored.
    disk: Vec<u8>,
    /// Sectors written since the last sync, with all that was in them: any of it may be what the disk has.
    dirty: BTreeMap<usize, Vec<Vec<u8>>>,
    /// Lengths since the last sync.
    lengths: Vec<usize>,
    /// Blocks that are taken.
    pub(super) blocks: BTreeSet<u64>,
}

impl Inode {
    /// A file with this content, stored.
    pub(super) fn stored(bytes: &[u8]) -> Self {
        let blocks = blocks(0, as_u64(bytes.len())).collect();
        Self { cache: bytes.to_vec(), disk: bytes.to_vec(), blocks, ..Self::default() }
    }

    pub(super) fn len(&self) -> u64 {
        as_u64(self.cache.len())
    }

    pub(super) fn contents(&self) -> &[u8] {
        &self.cache
    }

    pub(super) fn read(&self, into: &mut [u8], offset: u64) -> usize {
        let from = usize::try_from(offset).ok().and_then(|offset| self.cache.get(offset..)).unwrap_or_default();
        let count = from.len().min(into.len());
        for (to, byte) in into.iter_mut().zip(from) {
            *to = *byte;
        }
        count
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: usize) {
        let end = offset + bytes.len();
        if end > self.cache.len() {
            self.resize(end);
        }
        if let Some(place) = self.cache.get_mut(offset..end) {
            place.copy_from_slice(bytes);
        }
        self.mark(offset, end);
    }

    /// Cuts, or extends with zeros.
    pub(super) fn resize(&mut self, bytes: usize) {
        let from = self.cache.len().min(bytes);
        let until = self.cache.len().max(self.disk.len());
        self.cache.resize(bytes, 0);
        self.lengths.push(bytes);
        if bytes < until {
            // What was cut off reads as zeros if the file grows again.
            self.mark(from, until);
        }
    }

    /// Notes that these sectors differ, or may differ, from what is stored.
    fn mark(&mut self, from: usize, until: usize) {
        for sector in from / SECTOR..until.div_ceil(SECTOR) {
            let now = sector_of(&self.cache, sector).to_vec();
            self.dirty.entry(sector).or_default().push(now);
        }
    }

    pub(super) fn sync(&mut self) {
        if !std::mem::take(&mut self.lengths).is_empty() {
            self.disk.resize(self.cache.len(), 0);
        }
        for sector in std::mem::take(&mut self.dirty).into_keys() {
            store(&mut self.disk, sector, sector_of(&self.cache, sector));
        }
    }

    /// A sync that failed: some of it is stored, nothing is dirty any more, and everything can still be read.
    pub(super) fn half_sync(&mut self, dice: &mut Entropy) {
        let leaves = Leaves::draw(dice);
        self.disk = self.survivor(leaves, dice);
        self.dirty.clear();
        self.lengths.clear();
    }

    /// What is stored if the power goes now.
    pub(super) fn survivor(&self, leaves: Leaves, dice: &mut Entropy) -> Vec<u8> {
        let mut disk = self.disk.clone();
        for (sector, versions) in &self.dirty {
            let latest = versions.len() - 1;
            let version = match leaves {
                Leaves::Nothing => None,
                Leaves::Everything => versions.get(latest),
                Leaves::Some => versions.get(dice.below(versions.len() + 1)),
            };
            if let Some(version) = version {
                store(&mut disk, *sector, version);
            }
        }
        let length = match (leaves, self.lengths.last()) {
            (Leaves::Nothing, _) | (_, None) => self.disk.len(),
            (Leaves::Everything, Some(last)) => *last,
            (Leaves::Some, Some(_)) => {
                let drawn = dice.below(self.lengths.len() + 1);
                self.lengths.get(drawn).copied().unwrap_or(self.disk.len())
            }
        };
        disk.resize(length, 0);
        disk
    }

    /// The file that a machine finds after its power went.
    pub(super) fn after_power_cut(&self, leaves: Leaves, dice: &mut Entropy) -> Self {
        let disk = self.survivor(leaves, dice);
        let within = as_u64(disk.len()).div_ceil(BLOCK);
        let blocks = self.blocks.iter().copied().filter(|block| *block < within).collect();
        Self { cache: disk.clone(), disk, blocks, ..Self::default() }
    }
}

/// The blocks that a part of a file lies in.
pub(super) fn blocks(from: u64, bytes: u64) -> std::ops::Range<u64> {
    if bytes == 0 { 0..0 } else { from / BLOCK..from.saturating_add(bytes).div_ceil(BLOCK) }
}

fn sector_of(bytes: &[u8], sector: usize) -> &[u8] {
    let rest = bytes.get(sector * SECTOR..).unwrap_or_default();
    rest.get(..SECTOR).unwrap_or(rest)
}

fn store(disk: &mut Vec<u8>, sector: usize, bytes: &[u8]) {
    let (from, until) = (sector * SECTOR, sector * SECTOR + bytes.len());
    if disk.len() < until && !bytes.is_empty() {
        disk.resize(until, 0);
    }
    if let Some(place) = disk.get_mut(from..until) {
        place.copy_from_slice(bytes);
    }
}
