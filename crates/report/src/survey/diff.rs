//! Compares two surveys.

use super::{Distinct, Position, State, Summary};
use serde::{Deserialize, Serialize};

/// Changes since an earlier survey.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Diff {
    /// Folder of the earlier survey.
    pub against: String,
    /// Fingerprints of findings that the earlier survey does not have.
    pub new: Vec<String>,
    /// Findings of the earlier survey that are no longer found, although a run could have found them.
    pub gone: Vec<Distinct>,
    /// Fingerprints of findings in both surveys.
    pub same: Vec<String>,
    /// Findings of the earlier survey whose runs did not complete this time, so that nothing is known of
    /// them.
    pub unknown: Vec<Distinct>,
    /// Cells with another state than before.
    pub changed: Vec<Change>,
}

/// A cell whose state changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Position of the cell: driver, device and kernel.
    pub place: Position,
    /// State in the earlier survey.
    pub before: State,
    /// State in this survey.
    pub now: State,
}

/// Compares `now` with the `earlier` survey in the folder `against`.
pub fn diff(earlier: &Summary, now: &Summary, against: &str) -> Diff {
    let mut diff = Diff { against: against.to_owned(), ..Diff::default() };
    let known = |id: &str| earlier.findings.iter().any(|old| old.finding.id == id);
    for distinct in &now.findings {
        let id = distinct.finding.id.clone();
        if known(&id) { diff.same.push(id) } else { diff.new.push(id) }
    }
    let completed = |place: &Position| now.cells.iter().any(|cell| cell.place == *place && cell.completed());
    for old in &earlier.findings {
        if now.findings.iter().any(|distinct| distinct.finding.id == old.finding.id) {
            continue;
        }
        let list = if old.cells.iter().any(completed) { &mut diff.gone } else { &mut diff.unknown };
        list.push(old.clone());
    }
    for cell in &now.cells {
        let before = earlier.cells.iter().find(|old| old.place == cell.place).map(|old| old.state);
        if let Some(before) = before.filter(|before| *before != cell.state) {
            diff.changed.push(Change { place: cell.place.clone(), before, now: cell.state });
        }
    }
    diff
}
