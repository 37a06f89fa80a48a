//! Logs in a folder: `NAMESPACE/BUCKET/TASK/ATTEMPT/START.log`, a file a segment, named by the offset of its first byte. A
//! log that is too long loses its first segment, and nothing is ever moved. When all logs together are too long, the namespaces
//! that have most lose the logs of the attempts that were written to longest ago. Bytes are not synced: they are no promise.

use std::fs::{self, DirBuilder};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use ekiden_core::hash;
use ekiden_core::id::{Namespace, TaskId};
use ekiden_core::limits;
use ekiden_core::reason::{ReasonCode, Refusal};

use super::name;
use super::total::{Total, bytes_below};
use super::{AttemptRef, LogPart, Logs};
use crate::error::Result;
use crate::files::{self, Found, Trust};
use crate::port::TaskRef;

/// 256 folders a namespace: so that listing one of them stays quick with a million tasks.
const BUCKETS: u64 = 256;

/// 64 locks for all attempts: two that share one wait for each other, for the time of a write.
const LOCKS: usize = 64;

/// Logs in a folder that belongs to this process.
#[derive(Clone, Debug)]
pub struct FolderLogs {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    locks: [Mutex<()>; LOCKS],
    total: Total,
}

/// The files of a log: where each begins and how long it is, in order.
struct Segments(Vec<(u64, u64)>);

impl FolderLogs {
    /// Logs in this folder, which is made when the first byte comes.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self::bounded(root, limits::LOGS_BYTES_MAX)
    }

    /// The same with another maximum for all logs together. It should be a multiple of what one attempt may write.
    pub fn bounded(root: impl Into<PathBuf>, bytes_max: u64) -> Self {
        let locks = std::array::from_fn(|_| Mutex::default());
        Self { inner: Arc::new(Inner { root: root.into(), locks, total: Total::new(bytes_max) }) }
    }

    /// Does something with files where it holds nobody up.
    async fn apart<T: Send + 'static>(&self, work: impl FnOnce(&Inner) -> Result<T> + Send + 'static) -> Result<T> {
        let inner = self.inner.clone();
        match tokio::task::spawn_blocking(move || inner.check_root().and_then(|()| work(&inner))).await {
            Ok(done) => done,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

#[async_trait]
impl Logs for FolderLogs {
    async fn append(&self, attempt: AttemptRef, offset: u64, bytes: Bytes) -> Result<u64> {
        self.apart(move |inner| inner.append(&attempt, offset, &bytes)).await
    }

    async fn read(&self, attempt: AttemptRef, offset: u64, limit: usize) -> Result<LogPart> {
        self.apart(move |inner| inner.read(&attempt, offset, limit)).await
    }

    async fn remove(&self, task: TaskRef) -> Result<()> {
        self.apart(move |inner| inner.remove(&task)).await
    }

    async fn tasks(&self, after: Option<TaskRef>, limit: usize) -> Result<Vec<TaskRef>> {
        self.apart(move |inner| inner.tasks(after.as_ref(), limit)).await
    }
}

impl Inner {
    fn append(&self, attempt: &AttemptRef, offset: u64, bytes: &[u8]) -> Result<u64> {
        if bytes.len() > limits::LOG_SEGMENT_BYTES {
            let refusal = Refusal::new(ReasonCode::PayloadTooLarge).with("field", "log");
            return Err(refusal.with("limit", limits::LOG_SEGMENT_BYTES).into());
        }
        let folder = self.attempt(attempt);
        let (end, dropped) = {
            let _held = self.lock(&folder);
            append_in(&folder, offset, bytes)?
        };
        // Without the attempt's lock: the logs that go are removed under theirs.
        self.total.shrank(dropped);
        let removed = self.total.grew(&self.root, bytes.len() as u64, |oldest| {
            let _held = self.lock(oldest);
            removed(oldest)
        });
        removed.map_err(|error| files::refusal(&self.root, &error))?;
        Ok(end)
    }

    /// A link in the place of the folder of all logs would lead whoever removes old ones into other folders.
    fn check_root(&self) -> Result<()> {
        if self.root.is_symlink() {
            return Err(files::refusal(&self.root, &io::Error::other(Found::Symlink)).into());
        }
        Ok(())
    }

    /// Keeps others from writing to an attempt's log, or to one of a few others.
    fn lock(&self, folder: &Path) -> Option<MutexGuard<'_, ()>> {
        let at = usize::try_from(hash::of_bytes(folder.as_os_str().as_encoded_bytes()) % LOCKS as u64).ok()?;
        self.locks.get(at).map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn read(&self, attempt: &AttemptRef, offset: u64, limit: usize) -> Result<LogPart> {
        let folder = self.attempt(attempt);
        let failed = |error: io::Error| files::refusal(&folder, &error);
        let segments = Segments::of(&folder).map_err(failed)?;
        let Some((start, _)) = segments.0.first().copied() else {
            let refusal = Refusal::new(ReasonCode::LogNotFound).with("task_id", &attempt.task.id);
            return Err(refusal.with("execution_no", attempt.execution_no).into());
        };
        let (end, offset) = (segments.end(), offset.max(start));
        let mut bytes = Vec::new();
        for (first, length) in segments.0.iter().copied() {
            let at = offset + bytes.len() as u64;
            if bytes.len() == limit || at < first || at >= first + length {
                continue;
            }
            let wanted = (first + length - at).min((limit - bytes.len()) as u64);
            match read_at(&file(&folder, first), at - first, wanted, &mut bytes) {
                Ok(()) => {}
                // It was dropped meanwhile; whoever asks again begins behind it.
                Err(error) if error.kind() == io::ErrorKind::NotFound && bytes.is_empty() => {}
                Err(error) => return Err(files::refusal(&file(&folder, first), &error).into()),
            }
        }
        Ok(LogPart { start, end, offset, bytes: bytes.into() })
    }

    fn remove(&self, task: &TaskRef) -> Result<()> {
        let folder = self.task(task);
        let failed = |error: io::Error| files::refusal(&folder, &error);
        let bytes = bytes_below(&folder, 1).map_err(failed)?;
        removed(&folder).map_err(failed)?;
        self.total.shrank(bytes);
        Ok(())
    }

    /// Walks namespaces, buckets and tasks, each in the order of their names.
    fn tasks(&self, after: Option<&TaskRef>, limit: usize) -> Result<Vec<TaskRef>> {
        let after =
            after.map(|task| [name::encode(task.namespace.as_str()), bucket(&task.id), name::encode(task.id.as_str())]);
        let mut found = Vec::new();
        for space in names(&self.root)? {
            let Some(namespace) = name::decode(&space).and_then(|id| Namespace::new(id).ok()) else { continue };
            for bucket in names(&self.root.join(&space))? {
                let place = [space.as_str(), bucket.as_str()];
                if after.as_ref().is_some_and(|[space, bucket, _]| place < [space.as_str(), bucket.as_str()]) {
                    continue;
                }
                for task in names(&self.root.join(&space).join(&bucket))? {
                    let here = [space.as_str(), bucket.as_str(), task.as_str()];
                    let is_behind = after.as_ref().is_none_or(|after| here > after.each_ref().map(String::as_str));
                    if let Some(id) = name::decode(&task).and_then(|id| TaskId::new(id).ok()).filter(|_| is_behind) {
                        found.push(TaskRef { namespace: namespace.clone(), id });
                        if found.len() == limit {
                            return Ok(found);
                        }
                    }
                }
            }
        }
        Ok(found)
    }

    fn task(&self, task: &TaskRef) -> PathBuf {
        let space = self.root.join(name::encode(task.namespace.as_str()));
        space.join(bucket(&task.id)).join(name::encode(task.id.as_str()))
    }

    fn attempt(&self, attempt: &AttemptRef) -> PathBuf {
        self.task(&attempt.task).join(format!("{:020}", attempt.execution_no))
    }
}

impl Segments {
    fn of(folder: &Path) -> io::Result<Self> {
        let mut segments = Vec::new();
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self(segments)),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let start = entry.file_name().to_str().and_then(|name| name.strip_suffix(".log")?.parse().ok());
            // Anything else is somebody else's file, or one that was just dropped.
            if let (Some(start), Ok(found)) = (start, entry.metadata()) {
                segments.push((start, found.len()));
            }
        }
        segments.sort_unstable();
        Ok(Self(segments))
    }

    fn end(&self) -> u64 {
        self.0.last().map_or(0, |(start, length)| start + length)
    }
}

/// Adds to a log. Says where it ends then, and how many bytes were dropped at its beginning.
fn append_in(folder: &Path, offset: u64, bytes: &[u8]) -> Result<(u64, u64)> {
    let failed = |error: io::Error| files::refusal(folder, &error);
    let mut segments = Segments::of(folder).map_err(failed)?;
    let end = segments.end();
    if offset != end {
        return Err(Refusal::new(ReasonCode::LogOffsetWrong).with("offset", offset).with("end", end).into());
    }
    if bytes.is_empty() {
        return Ok((end, 0));
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    let length = bytes.len() as u64;
    match segments.0.last_mut() {
        Some((_, filled)) if *filled + length <= limits::LOG_SEGMENT_BYTES as u64 => *filled += length,
        _ => segments.0.push((end, length)),
    }
    let (start, filled) = segments.0.last().copied().unwrap_or((end, length));
    write_at(&file(folder, start), filled - length, bytes).map_err(failed)?;
    let mut oldest = segments.0.iter();
    let mut kept: u64 = segments.0.iter().map(|(_, length)| length).sum();
    let before = kept;
    while kept > limits::LOG_BYTES_MAX
        && let Some((start, length)) = oldest.next()
    {
        fs::remove_file(file(folder, *start)).map_err(failed)?;
        kept -= length;
    }
    Ok((end + length, before - kept))
}

fn bucket(task: &TaskId) -> String {
    format!("{:02x}", hash::of_bytes(task.as_str().as_bytes()) % BUCKETS)
}

fn file(folder: &Path, start: u64) -> PathBuf {
    folder.join(format!("{start:020}.log"))
}

/// The names in a folder, in order; none if there is no such folder.
fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(files::refusal(folder, &error).into()),
    };
    let mut names: Vec<String> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    Ok(names)
}

/// Removes a folder, if it is there.
fn removed(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Writes whole or not at all: what a full disk leaves behind would be taken for a part of the log.
fn write_at(path: &Path, length: u64, bytes: &[u8]) -> io::Result<()> {
    let mut file = files::append(path)?;
    file.write_all(bytes).inspect_err(|_| {
        // If this fails too, the next piece is refused with the end as it is then, and its sender goes on from there.
        let _ = file.set_len(length);
    })
}

fn read_at(path: &Path, at: u64, wanted: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut file = files::open(path, Trust::Ours)?;
    file.seek(SeekFrom::Start(at))?;
    file.take(wanted).read_to_end(bytes)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(id: &str, execution_no: u64) -> AttemptRef {
        let task = TaskRef { namespace: Namespace::new("n/../..").unwrap(), id: TaskId::new(id).unwrap() };
        AttemptRef { task, execution_no }
    }

    #[tokio::test]
    async fn a_log_is_written_at_its_end_and_read_from_anywhere() {
        let folder = tempfile::tempdir().unwrap();
        let logs = FolderLogs::at(folder.path());
        let one = attempt("../../x", 1);
        assert_eq!(logs.read(one.clone(), 0, 9).await.unwrap_err().code(), ReasonCode::LogNotFound);
        assert_eq!(logs.append(one.clone(), 0, Bytes::from_static(b"hello ")).await.unwrap(), 6);
        assert_eq!(logs.append(one.clone(), 6, Bytes::from_static(b"world")).await.unwrap(), 11);
        let again = logs.append(one.clone(), 6, Bytes::from_static(b"world")).await.unwrap_err();
        assert_eq!((again.code(), again.refusal().context["end"].as_str()), (ReasonCode::LogOffsetWrong, "11"));
        let part = logs.read(one.clone(), 4, 4).await.unwrap();
        assert_eq!((part.start, part.offset, part.end, &*part.bytes), (0, 4, 11, &b"o wo"[..]));
        assert!(logs.read(one.clone(), 100, 4).await.unwrap().bytes.is_empty());
        assert_eq!(logs.read(attempt("../../x", 2), 0, 9).await.unwrap_err().code(), ReasonCode::LogNotFound);
        logs.remove(one.task.clone()).await.unwrap();
        logs.remove(one.task.clone()).await.unwrap();
        assert_eq!(logs.read(one, 0, 9).await.unwrap_err().code(), ReasonCode::LogNotFound);
    }

    #[tokio::test]
    async fn a_log_that_is_too_long_loses_its_first_segment() {
        let folder = tempfile::tempdir().unwrap();
        let logs = FolderLogs::at(folder.path());
        let one = attempt("t", 1);
        let piece = Bytes::from(vec![b'x'; limits::LOG_SEGMENT_BYTES]);
        let pieces = limits::LOG_BYTES_MAX / limits::LOG_SEGMENT_BYTES as u64 + 2;
        let mut end = 0;
        for _ in 0..pieces {
            end = logs.append(one.clone(), end, piece.clone()).await.unwrap();
        }
        let part = logs.read(one.clone(), 0, 10).await.unwrap();
        assert_eq!(part.start, 2 * limits::LOG_SEGMENT_BYTES as u64);
        assert_eq!((part.offset, part.end, part.bytes.len()), (part.start, end, 10));
        let across = logs.read(one.clone(), part.start + limits::LOG_SEGMENT_BYTES as u64 - 3, 6).await.unwrap();
        assert_eq!(across.bytes.len(), 6);
        let huge = logs.append(one, end, vec![0; limits::LOG_SEGMENT_BYTES + 1].into()).await.unwrap_err();
        assert_eq!(huge.code(), ReasonCode::PayloadTooLarge);
    }

    #[tokio::test]
    async fn all_logs_together_have_a_maximum_and_the_oldest_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let most = 100 * 1024;
        let logs = FolderLogs::bounded(folder.path(), most);
        let piece = Bytes::from(vec![b'x'; 10 * 1024]);
        let long_ago = std::time::SystemTime::UNIX_EPOCH;
        for number in 0..40_u64 {
            let one = attempt(&format!("t{number}"), 1);
            let end = logs.append(one.clone(), 0, piece.clone()).await.unwrap();
            assert_eq!(end, piece.len() as u64);
            // As if they had been written a minute apart.
            let written_at = long_ago + std::time::Duration::from_secs(60 * number);
            fs::File::options()
                .append(true)
                .open(file(&logs.inner.attempt(&one), 0))
                .unwrap()
                .set_modified(written_at)
                .unwrap();
            assert!(bytes_below(folder.path(), 4).unwrap() <= most, "after {number}");
        }
        let mut kept = Vec::new();
        for number in 0..40 {
            match logs.read(attempt(&format!("t{number}"), 1), 0, 1).await {
                Ok(_) => kept.push(number),
                Err(error) => assert_eq!(error.code(), ReasonCode::LogNotFound),
            }
        }
        let first = kept[0];
        assert_eq!(kept, (first..40).collect::<Vec<_>>(), "only the latest are left");
        assert!(kept.len() >= 9, "and no more are gone than have to be: {kept:?}");

        // One that opens the folder later counts what is there, and what was removed is room again.
        let logs = FolderLogs::bounded(folder.path(), most);
        for number in 40..43 {
            logs.append(attempt(&format!("t{number}"), 1), 0, piece.clone()).await.unwrap();
            logs.remove(attempt(&format!("t{number}"), 1).task).await.unwrap();
            assert!(bytes_below(folder.path(), 4).unwrap() <= most);
        }
        assert!(logs.read(attempt("t39", 1), 0, 1).await.is_ok());
    }

    /// S15: a project folder may hold a link, and what it leads to is none of ours.
    #[tokio::test]
    async fn a_link_in_the_place_of_the_folder_of_logs_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (root, theirs) = (folder.path().join("attempt-logs"), folder.path().join("theirs"));
        let deep = theirs.join("a/b/c/d");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("file"), "theirs").unwrap();
        std::os::unix::fs::symlink(&theirs, &root).unwrap();
        let logs = FolderLogs::bounded(&root, 1);
        let one = attempt("t", 1);
        let refused = logs.append(one.clone(), 0, Bytes::from_static(b"hello")).await.unwrap_err();
        assert_eq!(
            (refused.code(), refused.refusal().context["found"].as_str()),
            (ReasonCode::FileUnsafe, "a symbolic link")
        );
        assert_eq!(logs.remove(one.task).await.unwrap_err().code(), ReasonCode::FileUnsafe);
        assert_eq!(fs::read(deep.join("file")).unwrap(), b"theirs");
    }

    #[tokio::test]
    async fn a_namespace_that_logs_much_costs_no_other_its_logs() {
        let folder = tempfile::tempdir().unwrap();
        let logs = FolderLogs::bounded(folder.path(), 100 * 1024);
        let of = |namespace: &str, id: &str| {
            let task = TaskRef { namespace: Namespace::new(namespace).unwrap(), id: TaskId::new(id).unwrap() };
            AttemptRef { task, execution_no: 1 }
        };
        let piece = Bytes::from(vec![b'x'; 10 * 1024]);
        // Written before all others.
        logs.append(of("quiet", "t"), 0, piece.clone()).await.unwrap();
        for number in 0..40 {
            logs.append(of("loud", &format!("t{number}")), 0, piece.clone()).await.unwrap();
            assert!(bytes_below(folder.path(), 4).unwrap() <= 100 * 1024, "after {number}");
        }
        assert!(logs.read(of("quiet", "t"), 0, 1).await.is_ok());
        assert!(logs.read(of("loud", "t39"), 0, 1).await.is_ok());
    }

    #[tokio::test]
    async fn tasks_with_logs_are_listed_in_pages() {
        let folder = tempfile::tempdir().unwrap();
        let logs = FolderLogs::at(folder.path());
        assert_eq!(logs.tasks(None, 5).await.unwrap(), []);
        let mut expected: Vec<String> = (0..20).map(|id| format!("task.{id}")).collect();
        for id in &expected {
            logs.append(attempt(id, 1), 0, Bytes::from_static(b"x")).await.unwrap();
        }
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let page = logs.tasks(after, 3).await.unwrap();
            after = page.last().cloned();
            found.extend(page.into_iter().map(|task| task.id.as_str().to_owned()));
            if after.is_none() {
                break;
            }
        }
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
    }
}
