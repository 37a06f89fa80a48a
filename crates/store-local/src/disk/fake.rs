//! A disk in memory that forgets what was not synced, fails at the call that a test names, and fills up. One seed decides
//! everything that a real disk would leave to chance.
//!
//! What it believes of disks: a sector of 512 bytes is written whole or not at all, and sectors in any order; a sync that
//! failed leaves the content readable but perhaps not stored, and the next sync knows nothing of it; each change of a name
//! survives or not for itself until its folder was synced, and a rename is one step.

mod inode;
#[cfg(test)]
mod tests;
mod world;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Disk, DiskFile, DiskFolder, How, LockGuard};
use world::{Turn, World};

/// What can be asked of a disk, to be counted or to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is the call of its name")]
pub enum Call {
    CreateFolder,
    List,
    Open,
    Rename,
    Remove,
    SyncFolder,
    FreeBytes,
    Lock,
    Read,
    Write,
    Sync,
    Len,
    SetLen,
    Allocate,
}

impl Call {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::CreateFolder,
        Self::List,
        Self::Open,
        Self::Rename,
        Self::Remove,
        Self::SyncFolder,
        Self::FreeBytes,
        Self::Lock,
        Self::Read,
        Self::Write,
        Self::Sync,
        Self::Len,
        Self::SetLen,
        Self::Allocate,
    ];

    /// Those that change something.
    pub const CHANGES: [Self; 9] = [
        Self::CreateFolder,
        Self::Open,
        Self::Rename,
        Self::Remove,
        Self::SyncFolder,
        Self::Write,
        Self::Sync,
        Self::SetLen,
        Self::Allocate,
    ];
}

/// How a call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// It fails with this error. Of a write a part may have been taken; of what a failed sync should have stored some
    /// sectors are, and the rest is lost though it can still be read.
    Error(io::ErrorKind),
    /// A write takes only a part and says so. Other calls succeed.
    Short,
    /// The machine loses its power during the call: this and all later calls fail. See [`FakeDisk::power_cut`].
    PowerOff,
}

/// The disk. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct FakeDisk {
    world: Arc<Mutex<World>>,
}

impl FakeDisk {
    /// An empty disk of endless capacity. Everything that is left to chance follows from the seed.
    pub fn new(seed: u64) -> Self {
        Self::of(World::new(seed))
    }

    fn of(world: World) -> Self {
        Self { world: Arc::new(Mutex::new(world)) }
    }

    /// Lets the `nth` of these calls from now on go wrong; the first is number one.
    pub fn fail(&self, calls: &[Call], nth: u64, fault: Fault) {
        self.world().plan(calls, nth, fault);
    }

    /// Whether the process has too many files open to open another one.
    pub fn set_out_of_files(&self, is_out: bool) {
        self.world().is_out_of_files = is_out;
    }

    /// Forgets the faults that have not happened yet.
    pub fn fail_no_more(&self) {
        self.world().forget_plans();
    }

    /// How many faults have happened.
    pub fn faults(&self) -> u64 {
        self.world().faults()
    }

    /// How often this was called.
    pub fn calls(&self, call: Call) -> u64 {
        self.world().calls(call)
    }

    /// How many bytes can be taken in all, in blocks of 4 KiB.
    pub fn set_capacity(&self, bytes: u64) {
        self.world().capacity = bytes;
    }

    /// How many bytes are taken.
    pub fn used_bytes(&self) -> u64 {
        self.world().used()
    }

    /// The power goes. This disk is dead; the answer is what the machine finds when it is switched on again.
    #[must_use]
    pub fn power_cut(&self, seed: u64) -> Self {
        Self::of(self.world().power_cut(seed))
    }

    /// The process dies and the machine goes on: what was written can be read, synced or not. This disk is dead; the
    /// answer is what the next process finds. Faults to come are forgotten.
    #[must_use]
    pub fn restart(&self) -> Self {
        Self::of(self.world().restart())
    }

    /// The content of a file as it is read, if it exists.
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        self.world().contents(path)
    }

    /// Puts a file with this content, durably, as somebody else would.
    pub fn plant(&self, path: &Path, bytes: &[u8]) {
        self.world().plant(path, bytes);
    }

    fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    /// One call that happens or not.
    fn call<T>(&self, call: Call, act: impl FnOnce(&mut World) -> io::Result<T>) -> io::Result<T> {
        call_on(&self.world, call, act)
    }
}

/// What a process with too many open files is told, the same on every Unix.
const EMFILE: i32 = 24;

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

fn call_on<T>(world: &Mutex<World>, call: Call, act: impl FnOnce(&mut World) -> io::Result<T>) -> io::Result<T> {
    let mut world = lock(world);
    if world.is_out_of_files && matches!(call, Call::Open | Call::Lock | Call::List) {
        return Err(io::Error::from_raw_os_error(EMFILE));
    }
    match world.turn(call)? {
        Turn::Go | Turn::Short => act(&mut world),
        Turn::Fail(kind) => Err(kind.into()),
        Turn::LastCall { done } => {
            if done {
                // Whatever it answers, nobody is left to hear it.
                let _ = act(&mut world);
            }
            Err(world::dead())
        }
    }
}

impl Disk for FakeDisk {
    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        self.call(Call::CreateFolder, |world| {
            world.create_folder(folder);
            Ok(())
        })
    }

    /// Nobody else puts anything here.
    fn check_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.call(Call::List, |world| world.list(folder))
    }

    fn open(&self, path: &Path, how: How) -> io::Result<Box<dyn DiskFile>> {
        let inode = self.call(Call::Open, |world| world.open(path, how))?;
        Ok(Box::new(FakeFile { world: self.world.clone(), inode }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(Call::Rename, |world| world.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(Call::Remove, |world| world.remove(path))
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.call(Call::SyncFolder, |world| world.sync_folder(folder))
    }

    fn open_folder(&self, folder: &Path) -> io::Result<Box<dyn DiskFolder>> {
        self.call(Call::Open, |_| Ok(()))?;
        Ok(Box::new(FakeFolder { disk: self.clone(), path: folder.to_owned() }))
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        self.call(Call::FreeBytes, |world| Ok(world.capacity.saturating_sub(world.used())))
    }

    fn lock(&self, path: &Path) -> io::Result<LockGuard> {
        self.call(Call::Lock, |world| world.take_lock(path))?;
        Ok(Box::new(FakeLock { world: self.world.clone(), path: path.to_owned() }))
    }
}

/// Gives the lock back when it is dropped.
#[derive(Debug)]
struct FakeLock {
    world: Arc<Mutex<World>>,
    path: PathBuf,
}

impl Drop for FakeLock {
    fn drop(&mut self) {
        lock(&self.world).give_lock(&self.path);
    }
}

#[derive(Debug)]
struct FakeFolder {
    disk: FakeDisk,
    path: PathBuf,
}

impl DiskFolder for FakeFolder {
    fn sync(&self) -> io::Result<()> {
        self.disk.sync_folder(&self.path)
    }
}

#[derive(Debug)]
struct FakeFile {
    world: Arc<Mutex<World>>,
    inode: u64,
}

impl DiskFile for FakeFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        call_on(&self.world, Call::Read, |world| Ok(world.inode(self.inode)?.read(into, offset)))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut world = lock(&self.world);
        match world.turn(Call::Write)? {
            Turn::Go => world.write(self.inode, bytes, offset),
            turn => {
                let part = world.part_of(bytes);
                let written = world.write(self.inode, part, offset);
                match turn {
                    Turn::Go | Turn::Short => written,
                    Turn::Fail(kind) => Err(kind.into()),
                    Turn::LastCall { .. } => Err(world::dead()),
                }
            }
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut world = lock(&self.world);
        match world.turn(Call::Sync)? {
            Turn::Go | Turn::Short | Turn::LastCall { done: true } => world.inode(self.inode)?.sync(),
            Turn::LastCall { done: false } => {}
            Turn::Fail(kind) => {
                world.half_sync(self.inode)?;
                return Err(kind.into());
            }
        }
        if world.is_dead() { Err(world::dead()) } else { Ok(()) }
    }

    fn len(&self) -> io::Result<u64> {
        call_on(&self.world, Call::Len, |world| Ok(world.inode(self.inode)?.len()))
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        call_on(&self.world, Call::SetLen, |world| world.set_len(self.inode, bytes))
    }

    fn allocate(&self, from: u64, bytes: u64) -> io::Result<()> {
        call_on(&self.world, Call::Allocate, |world| world.allocate(self.inode, from, bytes))
    }
}
