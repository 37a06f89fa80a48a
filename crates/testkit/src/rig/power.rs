//! Power cuts for real: a store on ext4 in a file behind a loop device. The file system is told to go down at once, without
//! writing its journal: what was not synced is lost as in a power cut, and the next mount replays the journal as after one.
//!
//! A sync that is under way at that moment may still be answered as done, although its journal was thrown away: the file system
//! goes down part by part, and a machine without power does not. So what was acknowledged counts only if it was written down
//! before the cut began; what came later is doubtful.
//!
//! What it cannot show: a disk that lies about its own cache, and a folder that was not synced after a file was made in it, because
//! ext4 writes that with the file's own sync.

use std::path::{Path, PathBuf};

use super::errand::Work;
use super::missing::{Missing, tool};
use super::mount::{Mount, TODO};
use super::process::{Ended, Program};
use super::scratch::Scratch;
use super::series::{Plan, Series};
use super::tally::Tally;

/// `FS_IOC_SHUTDOWN` with `EXT4_GOING_FLAGS_NOLOGFLUSH`, right after a look at the length of a file elsewhere. By Perl, because
/// every Debian has it and Rust would need unsafe code.
const CUT: &str = "open(my $root, '<', $ARGV[0]) or die \"cannot open $ARGV[0]: $!\\n\"; \
     my $flags = pack('L', 2); \
     my $length = -s $ARGV[1]; \
     ioctl($root, 0x8004587d, $flags) or die \"cannot shut down $ARGV[0]: $!\\n\"; \
     print $length // 0;";

/// 128 MiB, of which an empty image takes almost nothing: room for a store that allocates its log in advance.
const DISK_MEBIBYTES: u64 = 128;

/// An ext4 file system whose power can be cut.
#[derive(Debug)]
pub struct PowerDisk {
    mounted: Option<Mount>,
    /// Last, so that it goes when nothing is mounted in it any more.
    scratch: Scratch,
}

impl PowerDisk {
    /// Makes one of so many mebibytes. The image is kept in memory where possible: cuts do not depend on what it lies on.
    pub fn make(mebibytes: u64) -> Result<Self, Missing> {
        let cannot = |error: std::io::Error| Missing { what: format!("cannot make an image: {error}"), todo: TODO };
        let scratch = Scratch::in_memory().map_err(cannot)?;
        let mut disk = Self { mounted: None, scratch };
        let image = std::fs::File::create(disk.image()).map_err(cannot)?;
        image.set_len(mebibytes * 1024 * 1024).map_err(cannot)?;
        let eager = "lazy_itable_init=0,lazy_journal_init=0";
        tool("mkfs.ext4", &["-q", "-F", "-E", eager, &disk.image().to_string_lossy()], TODO)?;
        disk.mount()?;
        Ok(disk)
    }

    /// Tries once whether the machine can cut.
    pub fn probe() -> Result<(), Missing> {
        let mut disk = Self::make(16)?;
        disk.cut(Path::new("/dev/null"))?;
        disk.restore()
    }

    fn image(&self) -> PathBuf {
        self.scratch.path().join("image")
    }

    /// A free loop device may be taken by somebody else between finding and using it, so a few tries are made.
    fn mount(&mut self) -> Result<(), Missing> {
        let (image, point) = (self.image(), self.scratch.mount_point());
        let try_it = || Mount::new(&["-t", "ext4", "-o", "loop", &image.to_string_lossy()], &point);
        self.mounted = Some(try_it().or_else(|_| try_it()).or_else(|_| try_it())?);
        Ok(())
    }

    /// A folder on it; there is one for as long as the power is on.
    pub fn folder(&self) -> PathBuf {
        self.scratch.mount_point().join("store")
    }

    /// The power goes. Whoever writes from now on gets an error; what was not synced is lost. Gives the length of a file elsewhere,
    /// where a child writes down what was acknowledged, from just before.
    pub fn cut(&self, watched: &Path) -> Result<u64, Missing> {
        let point = self.scratch.mount_point();
        let told = tool("perl", &["-e", CUT, &point.to_string_lossy(), &watched.to_string_lossy()], TODO)?;
        told.trim().parse().map_err(|_| Missing { what: format!("a cut answered \"{told}\""), todo: TODO })
    }

    /// The power comes back: what was mounted goes, the journal is replayed. Nobody may have a file open.
    pub fn restore(&mut self) -> Result<(), Missing> {
        if let Some(mounted) = self.mounted.take() {
            mounted.end()?;
        }
        self.mount()
    }
}

/// Cuts the power under load, again and again, and holds the laws against what every process saw. Every series has a disk of its
/// own. The inner error is a child that could not go on. A machine that cannot cut is found at the beginning; what fails later is
/// a fault of the rig, and a panic.
pub fn cuts(program: &Program, store: &str, plan: &Plan) -> Result<Result<Tally, Ended>, Missing> {
    PowerDisk::probe()?;
    let mut tally = Tally::begin(format!("power cuts, {} {store}", program.name()));
    for number in 0..plan.series {
        if let Err(ended) = one_disk(program, store, plan, plan.seed_of(number), &mut tally) {
            return Ok(Err(ended));
        }
        if !tally.violations.is_empty() {
            break;
        }
    }
    Ok(Ok(tally.end()))
}

fn one_disk(program: &Program, store: &str, plan: &Plan, seed: u64, tally: &mut Tally) -> Result<(), Ended> {
    let mut disk = must(PowerDisk::make(DISK_MEBIBYTES));
    let series = Series::new(program, store, seed).on(disk.folder());
    let mut series = series.acknowledging(plan.acknowledged_max);
    for _ in 0..plan.faults_each {
        let mut process = series.start(Work::Load { clients: plan.clients });
        series.let_work(&mut process)?;
        let certain_bytes = must(disk.cut(series.history()));
        process.kill();
        must(disk.restore());
        series.caught_up();
        series.doubt_from(certain_bytes);
        tally.faults += 1;
    }
    series.come_to_rest(tally)
}

#[track_caller]
fn must<T>(done: Result<T, Missing>) -> T {
    done.unwrap_or_else(|missing| panic!("what worked at first fails now: {missing}"))
}
