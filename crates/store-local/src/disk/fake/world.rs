//! The state of the fake disk: folders, files, faults to come and calls counted.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use ekiden_store::entropy::Entropy;

use super::inode::{self, BLOCK, Inode, Leaves};
use super::{Call, Fault};
use crate::disk::{How, as_u64};

/// Everything behind the lock.
#[derive(Debug)]
pub(super) struct World {
    dice: Entropy,
    folders: BTreeMap<PathBuf, Folder>,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    locks: BTreeSet<PathBuf>,
    pub(super) capacity: u64,
    plans: Vec<Plan>,
    faults: u64,
    calls: BTreeMap<Call, u64>,
    is_dead: bool,
    pub(super) is_out_of_files: bool,
}

/// Names, as programs see them and as they are stored.
#[derive(Clone, Debug, Default)]
struct Folder {
    names: BTreeMap<String, u64>,
    stored: BTreeMap<String, u64>,
    changes: Vec<Change>,
}

/// What happened to a name since its folder was synced.
#[derive(Clone, Debug)]
enum Change {
    Made { name: String, inode: u64 },
    Renamed { to: String, inode: u64 },
    Removed { inode: u64 },
}

/// A fault to come.
#[derive(Debug)]
struct Plan {
    calls: Vec<Call>,
    left: u64,
    fault: Fault,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Turn {
    Go,
    Short,
    Fail(io::ErrorKind),
    /// The power goes during the call, before or after it did its work.
    LastCall {
        done: bool,
    },
}

/// What every call on a disk without power says.
pub(super) fn dead() -> io::Error {
    io::Error::other("the fake disk has no power")
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            dice: Entropy::from_seed(seed),
            folders: BTreeMap::from([(PathBuf::from("/"), Folder::default()), (PathBuf::new(), Folder::default())]),
            inodes: BTreeMap::new(),
            next_inode: 1,
            locks: BTreeSet::new(),
            capacity: u64::MAX,
            plans: Vec::new(),
            faults: 0,
            calls: BTreeMap::new(),
            is_dead: false,
            is_out_of_files: false,
        }
    }

    pub(super) fn plan(&mut self, calls: &[Call], nth: u64, fault: Fault) {
        self.plans.push(Plan { calls: calls.to_vec(), left: nth, fault });
    }

    pub(super) fn forget_plans(&mut self) {
        self.plans.clear();
    }

    pub(super) const fn faults(&self) -> u64 {
        self.faults
    }

    pub(super) fn calls(&self, call: Call) -> u64 {
        self.calls.get(&call).copied().unwrap_or(0)
    }

    pub(super) const fn is_dead(&self) -> bool {
        self.is_dead
    }

    /// Counts a call and says what becomes of it.
    pub(super) fn turn(&mut self, call: Call) -> io::Result<Turn> {
        if self.is_dead {
            return Err(dead());
        }
        *self.calls.entry(call).or_default() += 1;
        let mut fault = None;
        for plan in self.plans.iter_mut().filter(|plan| plan.calls.contains(&call)) {
            plan.left = plan.left.saturating_sub(1);
            if plan.left == 0 {
                fault = Some(plan.fault);
            }
        }
        self.plans.retain(|plan| plan.left > 0);
        let Some(fault) = fault else { return Ok(Turn::Go) };
        self.faults += 1;
        Ok(match fault {
            Fault::Error(kind) => Turn::Fail(kind),
            Fault::Short => Turn::Short,
            Fault::PowerOff => {
                self.is_dead = true;
                Turn::LastCall { done: self.dice.chance(50) }
            }
        })
    }

    /// What a write takes that does not take everything.
    pub(super) fn part_of<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let part = self.dice.below(bytes.len().max(1));
        bytes.get(..part).unwrap_or_default()
    }

    pub(super) fn inode(&mut self, inode: u64) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&inode).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Its folder's contract makes it durable at once, so there is nothing to forget.
    pub(super) fn create_folder(&mut self, folder: &Path) {
        for folder in folder.ancestors() {
            self.folders.entry(folder.to_owned()).or_default();
        }
    }

    pub(super) fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let found = self.folders.get(folder).ok_or(io::ErrorKind::NotFound)?;
        Ok(found.names.keys().cloned().collect())
    }

    pub(super) fn open(&mut self, path: &Path, how: How) -> io::Result<u64> {
        let number = self.next_inode;
        let (folder, name) = self.place(path)?;
        match (folder.names.get(&name), how) {
            (Some(_), How::New) => Err(io::ErrorKind::AlreadyExists.into()),
            (Some(inode), _) => Ok(*inode),
            (None, How::Existing) => Err(io::ErrorKind::NotFound.into()),
            (None, How::New | How::OrNew) => {
                folder.names.insert(name.clone(), number);
                folder.changes.push(Change::Made { name, inode: number });
                self.inodes.insert(number, Inode::default());
                self.next_inode += 1;
                Ok(number)
            }
        }
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        if from.parent() != to.parent() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the fake disk renames inside a folder only"));
        }
        let (_, to) = self.place(to)?;
        let (folder, from) = self.place(from)?;
        let inode = folder.names.remove(&from).ok_or(io::ErrorKind::NotFound)?;
        folder.names.insert(to.clone(), inode);
        folder.changes.push(Change::Renamed { to, inode });
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let (folder, name) = self.place(path)?;
        let inode = folder.names.remove(&name).ok_or(io::ErrorKind::NotFound)?;
        folder.changes.push(Change::Removed { inode });
        Ok(())
    }

    pub(super) fn sync_folder(&mut self, folder: &Path) -> io::Result<()> {
        let folder = self.folders.get_mut(folder).ok_or(io::ErrorKind::NotFound)?;
        folder.stored = folder.names.clone();
        folder.changes.clear();
        Ok(())
    }

    pub(super) fn take_lock(&mut self, path: &Path) -> io::Result<()> {
        self.open(path, How::OrNew)?;
        if self.locks.insert(path.to_owned()) { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    pub(super) fn give_lock(&mut self, path: &Path) {
        self.locks.remove(path);
    }

    /// Writes as much as there is room for.
    pub(super) fn write(&mut self, inode: u64, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut taken = as_u64(bytes.len());
        let missing = self.missing(inode, offset, taken)?;
        if let Some(first) = missing.get(self.blocks_left()) {
            taken = (first * BLOCK).saturating_sub(offset).min(taken);
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        let count = usize::try_from(taken).map_err(io::Error::other)?;
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let inode = self.inode(inode)?;
        inode.blocks.extend(inode::blocks(as_u64(offset), taken));
        inode.write(bytes.get(..count).unwrap_or(bytes), offset);
        Ok(count)
    }

    pub(super) fn set_len(&mut self, inode: u64, bytes: u64) -> io::Result<()> {
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        let inode = self.inode(inode)?;
        inode.resize(length);
        inode.blocks.retain(|block| *block < bytes.div_ceil(BLOCK));
        Ok(())
    }

    pub(super) fn allocate(&mut self, inode: u64, from: u64, bytes: u64) -> io::Result<()> {
        if self.missing(inode, from, bytes)?.len() > self.blocks_left() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let inode = self.inode(inode)?;
        inode.blocks.extend(inode::blocks(from, bytes));
        if from.saturating_add(bytes) > inode.len() {
            inode.resize(usize::try_from(from.saturating_add(bytes)).map_err(io::Error::other)?);
        }
        Ok(())
    }

    pub(super) fn half_sync(&mut self, inode: u64) -> io::Result<()> {
        let mut dice = self.dice.clone();
        self.inode(inode)?.half_sync(&mut dice);
        self.dice = dice;
        Ok(())
    }

    /// What files with a name have taken. A file that lost its name while it is open counts no more.
    pub(super) fn used(&self) -> u64 {
        let names = self.folders.values().flat_map(|folder| folder.names.values());
        let blocks = names.filter_map(|inode| self.inodes.get(inode)).map(|inode| as_u64(inode.blocks.len()));
        blocks.sum::<u64>() * BLOCK
    }

    fn blocks_left(&self) -> usize {
        if self.capacity == u64::MAX {
            return usize::MAX;
        }
        usize::try_from(self.capacity.saturating_sub(self.used()) / BLOCK).unwrap_or(usize::MAX)
    }

    /// The blocks of this part that are not taken yet.
    fn missing(&mut self, inode: u64, from: u64, bytes: u64) -> io::Result<Vec<u64>> {
        let inode = self.inode(inode)?;
        Ok(inode::blocks(from, bytes).filter(|block| !inode.blocks.contains(block)).collect())
    }

    fn place(&mut self, path: &Path) -> io::Result<(&mut Folder, String)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy().into_owned();
        let folder = path.parent().and_then(|folder| self.folders.get_mut(folder)).ok_or(io::ErrorKind::NotFound)?;
        Ok((folder, name))
    }

    pub(super) fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        let folder = self.folders.get(path.parent()?)?;
        let inode = folder.names.get(path.file_name()?.to_str()?)?;
        Some(self.inodes.get(inode)?.contents().to_vec())
    }

    pub(super) fn plant(&mut self, path: &Path, bytes: &[u8]) {
        self.create_folder(path.parent().unwrap_or(Path::new("")));
        if let Ok(inode) = self.open(path, How::OrNew)
            && let Ok((folder, name)) = self.place(path)
        {
            folder.stored.insert(name, inode);
            self.inodes.insert(inode, Inode::stored(bytes));
        }
    }

    pub(super) fn restart(&mut self) -> Self {
        let next = Self {
            dice: self.dice.clone(),
            folders: std::mem::take(&mut self.folders),
            inodes: std::mem::take(&mut self.inodes),
            next_inode: self.next_inode,
            capacity: self.capacity,
            ..Self::new(0)
        };
        self.is_dead = true;
        next
    }

    pub(super) fn power_cut(&mut self, seed: u64) -> Self {
        let mut next = Self { capacity: self.capacity, next_inode: self.next_inode, ..Self::new(seed) };
        self.is_dead = true;
        for (path, folder) in &self.folders {
            let leaves = Leaves::draw(&mut next.dice);
            let mut names = folder.stored.clone();
            for change in &folder.changes {
                if leaves.keeps(&mut next.dice) {
                    change.happen_to(&mut names);
                }
            }
            for inode in names.values() {
                if let Some(file) = self.inodes.get(inode) {
                    let leaves = Leaves::draw(&mut next.dice);
                    next.inodes.insert(*inode, file.after_power_cut(leaves, &mut next.dice));
                }
            }
            next.folders.insert(path.clone(), Folder { stored: names.clone(), names, changes: Vec::new() });
        }
        next
    }
}

impl Change {
    /// A file has one name at most, whichever changes before were lost.
    fn happen_to(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Made { name, inode } => {
                names.insert(name.clone(), *inode);
            }
            Self::Renamed { to, inode } => {
                names.retain(|_, other| other != inode);
                names.insert(to.clone(), *inode);
            }
            Self::Removed { inode } => names.retain(|_, other| other != inode),
        }
    }
}
