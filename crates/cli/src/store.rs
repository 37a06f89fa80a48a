//! `ekiden store`: moving a store's content, checking it, and looking after its files. Data goes to stdout, all else to stderr.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use ekiden::core::{ReasonCode, Refusal};
use ekiden::files;
use ekiden::store::transfer::{Existing, Moved, export, import};
use ekiden::store::{Address, CheckDepth, Finding};
use indicatif::BinaryBytes;

use crate::Outcome;
use crate::bar::Bar;
use crate::complaint;
use crate::language::Lang;
use crate::say;

/// What stands for stdin or stdout.
const DASH: &str = "-";

#[derive(Subcommand)]
pub(crate) enum StoreCommand {
    /// Write everything as lines of JSON: all namespaces, every kind of record, leases included.
    Export {
        /// The store, such as local:./data
        url: String,
        /// Where to; stdout if left out or -. A file is there only when it is whole.
        #[arg(default_value = DASH)]
        file: PathBuf,
    },
    /// Take in what export wrote. Revisions are the target's own.
    Import {
        /// The store, such as local:./data; made if it is not there
        url: String,
        /// Where from; stdin if left out or -
        #[arg(default_value = DASH)]
        file: PathBuf,
        /// Keep records that are there already, instead of refusing a namespace that has any
        #[arg(long)]
        skip_existing: bool,
    },
    /// Make the store, or what it lacks: a folder, or tables and their indexes. One that is whole stays as it is.
    Init {
        /// The store, such as dynamodb: or local:./data
        url: String,
    },
    /// Count the tasks of a shared store anew, slowly, and repair numbers that drifted.
    Recount {
        /// The store, such as dynamodb:
        url: String,
    },
    /// Look for damage. One line a finding on stdout, and exit code 1 if there is any.
    Check {
        /// The store, such as local:./data
        url: String,
        /// Read every record and compare every index entry
        #[arg(long)]
        full: bool,
    },
    /// Give the room that purged tasks left behind back to the disk.
    Compact {
        /// The store, such as local:./data
        url: String,
    },
    /// Copy the store to a new folder that opens as a store.
    Backup {
        /// The store, such as local:./data
        url: String,
        /// The new folder
        dir: PathBuf,
    },
}

/// Carries a command out.
pub(crate) fn run(command: StoreCommand, lang: Lang) -> Outcome<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            StoreCommand::Export { url, file } => run_export(&url.parse()?, &file, lang).await,
            StoreCommand::Import { url, file, skip_existing } => {
                let existing = if skip_existing { Existing::Skip } else { Existing::Refuse };
                run_import(&url.parse()?, &file, existing, lang).await
            }
            StoreCommand::Check { url, full } => {
                let depth = if full { CheckDepth::Full } else { CheckDepth::Quick };
                run_check(&url.parse()?, depth, lang).await
            }
            StoreCommand::Init { url } => run_init(&url.parse()?, lang).await,
            StoreCommand::Recount { url } => run_recount(&url.parse()?, lang).await,
            StoreCommand::Compact { url } => run_compact(&url.parse()?, lang).await,
            StoreCommand::Backup { url, dir } => run_backup(&url.parse()?, dir, lang).await,
        }
    })
}

async fn run_export(from: &Address, file: &Path, lang: Lang) -> Outcome<ExitCode> {
    let store = from.open_existing().await?;
    let bar = Bar::start(lang.pick("exporting", "エクスポート中"));
    let mut hear = |progress| bar.hear(&progress);
    let exported = if file == Path::new(DASH) {
        export(&*store, &mut BufWriter::new(io::stdout()), &mut hear).await
    } else {
        let partial = with_suffix(file, ".partial");
        let mut lines = BufWriter::new(create(&partial)?);
        let exported = export(&*store, &mut lines, &mut hear).await;
        if exported.is_ok() {
            publish(lines.get_ref(), &partial, file).map_err(|why| unavailable(file, &why))?;
        }
        exported
    };
    drop(bar);
    store.close().await.map_err(ekiden::Error::from)?;
    let moved = match exported {
        // A reader that has seen enough, such as `head`, is no fault of ours, but the export is not whole either.
        Err(error) if is_broken_pipe(&error) => return Ok(ExitCode::FAILURE),
        exported => exported?,
    };
    say(&match lang {
        Lang::En => format!("Exported {}.", amount(&moved, lang)),
        Lang::Ja => format!("エクスポートしました: {}", amount(&moved, lang)),
    });
    Ok(ExitCode::SUCCESS)
}

async fn run_import(to: &Address, file: &Path, existing: Existing, lang: Lang) -> Outcome<ExitCode> {
    let source: Box<dyn io::Read + Send> = if file == Path::new(DASH) {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(file).map_err(|why| unavailable(file, &why))?)
    };
    let store = to.open().await?;
    let bar = Bar::start(lang.pick("importing", "インポート中"));
    let imported = import(&mut BufReader::new(source), &*store, existing, &mut |progress| bar.hear(&progress)).await;
    drop(bar);
    // What was imported stays, also if the rest could not be.
    store.close().await.map_err(ekiden::Error::from)?;
    let moved = imported?;
    say(&match lang {
        Lang::En => format!("Imported {}.", amount(&moved, lang)),
        Lang::Ja => format!("インポートしました: {}", amount(&moved, lang)),
    });
    if moved.skipped > 0 {
        let (skipped, different) = (moved.skipped, moved.different);
        say(&match lang {
            Lang::En => format!("Already there and kept: {skipped}, of which {different} have another content."),
            Lang::Ja => format!("既存のため残したレコード: {skipped}（うち内容が異なるもの: {different}）"),
        });
    }
    Ok(ExitCode::SUCCESS)
}

async fn run_init(address: &Address, lang: Lang) -> Outcome<ExitCode> {
    let bar = Bar::start(lang.pick("making", "作成中"));
    let store = address.open().await?;
    drop(bar);
    store.close().await.map_err(ekiden::Error::from)?;
    say(&match lang {
        Lang::En => format!("Ready: {address}"),
        Lang::Ja => format!("準備できました: {address}"),
    });
    Ok(ExitCode::SUCCESS)
}

async fn run_recount(address: &Address, lang: Lang) -> Outcome<ExitCode> {
    let bar = Bar::start(lang.pick("counting", "集計中"));
    let repaired = address.recount().await?;
    drop(bar);
    say(&match lang {
        Lang::En => format!("Counted. Numbers that were wrong and are repaired: {repaired}"),
        Lang::Ja => format!("集計しました。修正した件数: {repaired}"),
    });
    Ok(ExitCode::SUCCESS)
}

async fn run_check(address: &Address, depth: CheckDepth, lang: Lang) -> Outcome<ExitCode> {
    let bar = Bar::start(lang.pick("checking", "検査中"));
    let findings = address.check(depth).await?;
    drop(bar);
    for finding in &findings {
        print(&line(finding))?;
    }
    if findings.is_empty() {
        say(lang.pick("Nothing was found: the store is sound.", "問題は見つかりませんでした。"));
        return Ok(ExitCode::SUCCESS);
    }
    // What each code means and what to do about it, once.
    let codes: BTreeMap<&str, ReasonCode> =
        findings.iter().map(|finding| (finding.code.as_str(), finding.code)).collect();
    for code in codes.into_values() {
        say(&complaint::text(&Refusal::new(code), lang));
    }
    say(&match lang {
        Lang::En => format!("Findings: {}", findings.len()),
        Lang::Ja => format!("見つかった問題: {}", findings.len()),
    });
    Ok(ExitCode::FAILURE)
}

/// Code, key and text, with tabs between them.
fn line(finding: &Finding) -> String {
    let key = finding.key.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
    format!("{}\t{key}\t{}", finding.code, finding.what.replace(['\t', '\n'], " "))
}

async fn run_compact(address: &Address, lang: Lang) -> Outcome<ExitCode> {
    let bar = Bar::start(lang.pick("compacting", "圧縮中"));
    let compacted = address.compact().await?;
    drop(bar);
    let [before, after] = [compacted.before_bytes, compacted.after_bytes].map(BinaryBytes);
    say(&match lang {
        Lang::En => format!("Compacted: {before} before, {after} now."),
        Lang::Ja => format!("圧縮しました: {before} → {after}"),
    });
    Ok(ExitCode::SUCCESS)
}

async fn run_backup(address: &Address, dir: PathBuf, lang: Lang) -> Outcome<ExitCode> {
    let bar = Bar::start(lang.pick("copying", "コピー中"));
    address.backup(dir.clone()).await?;
    drop(bar);
    say(&match lang {
        Lang::En => format!("Copied to {}.", dir.display()),
        Lang::Ja => format!("コピーしました: {}", dir.display()),
    });
    Ok(ExitCode::SUCCESS)
}

fn amount(moved: &Moved, lang: Lang) -> String {
    let Moved { records, tasks, namespaces, .. } = moved;
    match lang {
        Lang::En => format!("records: {records} (tasks: {tasks}), namespaces: {namespaces}"),
        Lang::Ja => format!("レコード {records}（タスク {tasks}）、名前空間 {namespaces}"),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// For the owner only: payloads are nobody else's business.
fn create(path: &Path) -> Result<File, ekiden::Error> {
    let created = files::write(path).and_then(|file| file.set_len(0).map(|()| file));
    Ok(created.map_err(|why| files::refusal(path, &why))?)
}

/// A whole export takes the place of an older one in one step.
fn publish(file: &File, partial: &Path, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    fs::rename(partial, path)
}

fn unavailable(path: &Path, why: &io::Error) -> ekiden::Error {
    Refusal::new(ReasonCode::FileUnavailable).with("path", path.display()).with("why", why).into()
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| source.kind() == io::ErrorKind::BrokenPipe)
}

fn print(text: &str) -> io::Result<()> {
    match writeln!(anstream::stdout(), "{text}") {
        Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}
