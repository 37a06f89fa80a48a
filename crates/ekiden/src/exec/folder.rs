//! The folder of one attempt: where the command works, where it leaves its result, and where its side channel is.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use ekiden_core::hash;
use ekiden_core::limits;
use ekiden_core::reason::{ReasonCode, Refusal};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock, mkdirat, mknodat, openat};
use rustix::process::geteuid;

use crate::context::Context;
use crate::files::{self, Found, Trust, folders};

/// The folder that a command works in, within its attempt's own.
const WORK: &str = "work";

/// The file for the result.
const RESULT: &str = "result";

/// The named pipe for events.
const EVENTS: &str = "events";

/// What the name of a folder ends with that is to be kept.
const KEPT: &str = "-kept";

/// Numbers the folders of this process, so that no two have one name.
static FOLDERS: AtomicU64 = AtomicU64::new(0);

/// What becomes of a folder when its attempt has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    No,
    Yes,
}

/// Removed when it is dropped, unless it is to be kept.
///
/// The command may do with it what it likes, also put something else in its place. So everything in it is opened below the
/// handle that was opened when it was made, and nothing by its path.
pub(super) struct Folder {
    path: PathBuf,
    handle: OwnedFd,
    keep: Keep,
}

/// Why there is no folder for an attempt.
#[derive(Debug)]
pub(super) enum NoFolder {
    /// The place for all of them cannot be used, so that no attempt can have one.
    Root(Refusal),
    /// This one cannot be made now. Its name is ours, so that is nothing of the task's.
    Own(io::Error),
}

impl Folder {
    /// Makes the folder of an attempt below a root, which belongs to this user alone.
    pub(super) fn make(root: &Path, context: &Context, keep: Keep) -> Result<Self, NoFolder> {
        private(root).map_err(NoFolder::Root)?;
        let spec = context.task();
        let name = format!("{}/{}", spec.namespace, spec.id);
        let name = format!("{:016x}-{}-{}", hash::of_bytes(name.as_bytes()), context.token().0, std::process::id());
        Self::make_as(root, &name, keep).map_err(NoFolder::Own)
    }

    /// Makes a folder whose name begins so, and that is no other attempt's.
    fn make_as(root: &Path, name: &str, keep: Keep) -> io::Result<Self> {
        loop {
            // Ids can be chosen so that their hashes are equal, and another container may have the same process number.
            let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
            let name = format!("{name}-{number}{}", if keep == Keep::Yes { KEPT } else { "" });
            match Self::at(root.join(name), keep) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made,
            }
        }
    }

    /// Makes a folder that is not there yet.
    fn at(path: PathBuf, keep: Keep) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).create(&path)?;
        let handle = folders::open(&path)?;
        // Held until this process lets the folder go, or dies.
        flock(&handle, FlockOperation::NonBlockingLockExclusive)?;
        mkdirat(&handle, WORK, Mode::RWXU)?;
        mknodat(&handle, EVENTS, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        Ok(Self { path, handle, keep })
    }

    /// What somebody else has to remove if this process cannot.
    pub(super) fn left_behind(&self) -> Option<PathBuf> {
        (self.keep == Keep::No).then(|| self.path.clone())
    }

    /// Where the command works, if it has no other place.
    pub(super) fn work(&self) -> PathBuf {
        self.path.join(WORK)
    }

    /// The file that the command writes its result to.
    pub(super) fn result(&self) -> PathBuf {
        self.path.join(RESULT)
    }

    /// The pipe that the command says things through.
    pub(super) fn events(&self) -> PathBuf {
        self.path.join(EVENTS)
    }

    /// The pipe, open at both ends.
    pub(super) fn open_events(&self) -> io::Result<OwnedFd> {
        let how = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(&self.handle, EVENTS, how, Mode::empty())?)
    }

    /// What the command left as its result, and one byte more than is allowed of one that is too large. Not for a thread of
    /// the runtime.
    pub(super) fn read_result(&self) -> Result<Vec<u8>, Refusal> {
        let failed = |error: &io::Error| files::refusal(&self.result(), error);
        if let Some(found) = folders::instead_of(&self.handle, &self.path).map_err(|error| failed(&error))? {
            return Err(files::refusal(&self.path, &io::Error::other(found)));
        }
        let file = files::open_at(&self.handle, Path::new(RESULT), OFlags::RDONLY, Trust::Ours);
        let read = file.and_then(|file| files::read_up_to(file, limits::RESULT_BYTES_MAX as u64 + 1));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            read => read.map_err(|error| failed(&error)),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.keep == Keep::Yes {
            return;
        }
        if let Err(error) = folders::remove_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the folder of an attempt");
        }
    }
}

/// `ekiden-UID` below the folder for temporary files.
pub(super) fn usual_root() -> PathBuf {
    root_below(&std::env::temp_dir())
}

/// Commands work in a folder of their own, where a relative path would lead elsewhere.
fn root_below(folder: &Path) -> PathBuf {
    std::path::absolute(folder).unwrap_or_else(|_| PathBuf::from("/tmp")).join(root_name())
}

fn root_name() -> String {
    format!("ekiden-{}", geteuid().as_raw())
}

/// Removes the folders of attempts whose runner and supervisor died before they could do so. Folders of processes that live are
/// locked, and those to be kept have a name that says so.
pub(super) fn remove_abandoned(root: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        if !entry.file_name().to_str().is_some_and(is_of_attempt) {
            continue;
        }
        let Ok(handle) = folders::open(&entry.path()) else { continue };
        if flock(&handle, FlockOperation::NonBlockingLockExclusive).is_ok() {
            folders::remove_all(&entry.path())?;
        }
    }
    Ok(())
}

/// Whether a name is one of those that [`Folder::make`] gives to folders that are not to be kept.
fn is_of_attempt(name: &str) -> bool {
    let parts: Vec<&str> = name.split('-').collect();
    let [task, numbers @ ..] = parts.as_slice() else { return false };
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_hash = task.len() == 16 && task.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash && numbers.len() == 3 && numbers.iter().all(|part| is_number(part))
}

/// Makes a folder that nobody else can change or put another in the place of, or refuses what is there.
pub(super) fn private(root: &Path) -> Result<(), Refusal> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(root);
    let folder = folders::open(root).map_err(|error| {
        // What is there tells more than that it could not be made.
        let is_found = Found::of(&error).is_some();
        unfit(root, made.err().filter(|_| !is_found).unwrap_or(error))
    })?;
    let parent = root.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    folders::check_parent(folder).map_err(|error| unfit(parent, error))
}

fn unfit(path: &Path, error: io::Error) -> Refusal {
    let refusal = Refusal::new(ReasonCode::FolderUnsafe).with("path", path.display());
    match Found::of(&error) {
        Some(found) => refusal.with("found", found),
        None => refusal.with("why", error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// X6: a folder that others can write to is no place for a task's files, and the refusal says what was found.
    #[test]
    fn a_root_of_others_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        private(&folder.path().join("new")).unwrap();
        let open = folder.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let link = folder.path().join("link");
        symlink(folder.path().join("new"), &link).unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        for (path, found) in [(open, "writable by other users"), (link, "a symbolic link"), (file, "a file")] {
            let refusal = private(&path).unwrap_err();
            assert_eq!(refusal.code, ReasonCode::FolderUnsafe);
            assert_eq!(refusal.context["found"], found, "{refusal}");
        }
        assert!(private(Path::new("/proc/none")).unwrap_err().context.contains_key("why"));
    }

    /// S18: who can rename the root can put another folder in its place. In a sticky folder only its owner can.
    #[test]
    fn a_root_that_others_can_rename_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (parent, root) = (folder.path().join("tmp"), folder.path().join("tmp/root"));
        private(&root).unwrap();
        let become_mode = |mode| fs::set_permissions(&parent, fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o700, 0o775, 0o1777] {
            become_mode(mode);
            private(&root).unwrap();
        }
        become_mode(0o777);
        let refusal = private(&root).unwrap_err();
        assert_eq!(refusal.code, ReasonCode::FolderUnsafe);
        assert_eq!(refusal.context["path"], parent.display().to_string());
        assert_eq!(refusal.context["found"], "writable by other users");
        // Only root can give a folder away. Its owner can rename what is in it, also where it is sticky.
        become_mode(0o1777);
        if geteuid().is_root() {
            std::os::unix::fs::chown(&parent, Some(12_345), None).unwrap();
            assert_eq!(private(&root).unwrap_err().context["found"], "owned by user 12345");
        }
    }

    /// X2: the result is read from the folder that was made, whatever stands in its place by then, and reading never blocks.
    #[test]
    fn a_result_is_only_read_from_the_attempts_own_folder() {
        let root = tempfile::tempdir().unwrap();
        let (path, away) = (root.path().join("attempt"), root.path().join("away"));
        let folder = Folder::at(path.clone(), Keep::No).unwrap();
        assert_eq!(folder.read_result().unwrap(), b"");
        fs::write(folder.result(), "mine").unwrap();
        assert_eq!(folder.read_result().unwrap(), b"mine");
        fs::rename(&path, &away).unwrap();
        symlink(&away, &path).unwrap();
        assert_eq!(folder.read_result().unwrap_err().context["found"], "a symbolic link");
        fs::remove_file(&path).unwrap();
        mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let refusal = folder.read_result().unwrap_err();
        assert_eq!((refusal.code, refusal.context["found"].as_str()), (ReasonCode::FileUnsafe, "a FIFO"));
        drop(folder);
        assert!(!path.exists(), "what stood in its place is gone");
    }

    /// S15: ids whose hashes are equal, and processes with one number, do not share a folder.
    #[test]
    fn attempts_with_one_name_have_folders_of_their_own() {
        let root = tempfile::tempdir().unwrap();
        let name = "00000000000000aa-1-17";
        let first = Folder::make_as(root.path(), name, Keep::No).unwrap();
        let taken = root.path().join(format!("{name}-{}", FOLDERS.load(Ordering::Relaxed)));
        fs::create_dir(&taken).unwrap();
        let second = Folder::make_as(root.path(), name, Keep::No).unwrap();
        assert_ne!(first.path, second.path);
        assert!(first.work().exists() && taken.exists(), "nothing of another attempt is removed");
    }

    /// Commands work in a folder of their own, where a relative path would lead elsewhere.
    #[test]
    fn the_usual_root_is_absolute() {
        assert!(usual_root().is_absolute());
        assert_eq!(root_below(Path::new("t")), std::env::current_dir().unwrap().join("t").join(root_name()));
        assert_eq!(root_below(Path::new("")), Path::new("/tmp").join(root_name()));
    }

    /// X2: what a runner and its supervisor left behind when both died goes with the next start; what a living process has, what is to
    /// be kept and what is no folder of an attempt stays.
    #[test]
    fn folders_of_dead_runners_are_removed_and_others_stay() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let names = [
            "00000000000000aa-1-17-0",
            "00000000000000ab-1-17-1-kept",
            "00000000000000ac-1-17-2",
            "other",
            "0a-1-17-3",
        ];
        let [dead, kept, alive, foreign, short] = names.map(at);
        for path in [&dead, &kept] {
            // As if its process had died: nothing of it is open any more.
            Folder::at(path.clone(), Keep::Yes).unwrap();
        }
        let living = Folder::at(alive.clone(), Keep::No).unwrap();
        for path in [&foreign, &short] {
            fs::create_dir(path).unwrap();
        }
        remove_abandoned(root.path()).unwrap();
        assert_eq!([&dead, &kept, &alive, &foreign, &short].map(|path| path.exists()), [false, true, true, true, true]);
        drop(living);
        assert!(!alive.exists());
    }

    /// S15: nothing that a command leaves in its folder keeps it from being removed, or takes the runner with it.
    #[test]
    fn a_folder_is_removed_however_deep_it_is_and_whatever_its_modes_are() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::at(root.path().join("attempt"), Keep::No).unwrap();
        let mut deep = openat(&folder.handle, WORK, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..20_000 {
            mkdirat(&deep, "1", Mode::RWXU).unwrap();
            deep = openat(&deep, "1", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        let (outer, inner) = (folder.work().join("closed"), folder.work().join("closed/inner"));
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("file"), "").unwrap();
        symlink("/", inner.join("link")).unwrap();
        for (path, mode) in [(&inner, 0o500), (&outer, 0), (&folder.path, 0)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        drop(folder);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
