//! The repository as the checks see it: its root, and the text files that git tracks or would track.

use std::path::{Path, PathBuf};

use crate::command;
use crate::report::Failure;

/// A file by its path from the root, with forward slashes, and its whole text.
#[derive(Debug, Clone)]
pub(crate) struct TextFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl TextFile {
    #[cfg(test)]
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// The folder that holds the workspace manifest.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Every file that is tracked, or untracked and not ignored. Files that are not UTF-8 are images and the like: no
/// check reads them.
pub(crate) fn text_files() -> Result<Vec<TextFile>, Failure> {
    if !root().join(".git").exists() {
        return Err(Failure::Missing {
            what: "not a git checkout, so nobody knows which files belong to the project".to_owned(),
            todo: "run this in a clone of the repository".to_owned(),
        });
    }
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"];
    let listing = command::output(command::at_root("git", &arguments))?;
    let mut files = Vec::new();
    for path in listing.split('\0').filter(|path| !path.is_empty()) {
        let place = root().join(path);
        // A deleted file stays listed until the deletion is staged; a link is checked where it leads.
        if !place.is_file() || place.is_symlink() {
            continue;
        }
        let bytes = std::fs::read(&place).map_err(|error| {
            Failure::broken(format!("cannot read {path}"), error.to_string(), "check its permissions")
        })?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(TextFile { path: path.to_owned(), text });
        }
    }
    Ok(files)
}
