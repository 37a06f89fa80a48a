//! Looking for damage: in what little costs nothing, or in every record.

use ekiden_core::reason::ReasonCode;
use ekiden_store::{Finding, StoreError};

use crate::checkpointer;
use crate::shared::Shared;

/// What is known without reading: whether there is room, and whether files can be opened.
pub(crate) fn quick(shared: &Shared) -> Vec<Finding> {
    let mut findings = Vec::new();
    if shared.lacks_files() {
        let what = format!("{} takes no new tasks: no file can be opened", shared.folder.display());
        findings.push(Finding { code: ReasonCode::StoreUnavailable, key: None, what });
    } else if shared.is_full() {
        let what = format!("{} has no room for new tasks", shared.folder.display());
        findings.push(Finding { code: ReasonCode::StoreFull, key: None, what });
    }
    findings
}

/// Reads every record, and compares the index with what it must be.
pub(crate) fn full(shared: &Shared) -> Result<Vec<Finding>, StoreError> {
    let mut findings = quick(shared);
    // Behind a checkpoint the index holds exactly what does not rest.
    for _ in 0..ROUNDS_MAX {
        checkpointer::write(shared)?;
        let desk = shared.desk();
        if desk.is_checkpoint_due() {
            continue;
        }
        findings.extend(desk.shelf.check(shared.checkpoint.resting()?));
        break;
    }
    findings.extend(shared.checkpoint.verify()?);
    Ok(findings)
}

/// 16 tries to find a moment in which nothing changes: on a busy store counts are not compared.
const ROUNDS_MAX: usize = 16;
