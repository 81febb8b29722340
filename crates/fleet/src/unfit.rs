//! Notes of workers whose machines could not compute a job, for those who look at the store.
//!
//! A note decides nothing: the job went back to the others when it was written.

use crate::store::Store;
use guardrail_host::HostError;
use guardrail_report::text::clean;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// After so many jobs in a row that its machine could not compute, a worker is set aside.
pub const IN_A_ROW: u32 = 3;
/// The wait after the first of these; each further one waits so much longer.
const PAUSE: Duration = Duration::from_secs(1);
/// The most notes of a store.
const MOST_NOTES: usize = 1000;
/// The most bytes of a note, and of its sentence.
const MOST_NOTE: u64 = 16 << 10;
const MOST_WHY: usize = 1000;
/// The most characters of a worker's name.
const MOST_NAME: usize = 80;
/// The folder of the notes in a store.
const FOLDER: &str = "unfit";

/// What a worker's machine lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unfit {
    /// The worker: its machine and its number.
    pub worker: String,
    /// How many jobs in a row it could not compute.
    pub in_a_row: u32,
    /// The last of the reasons, as a sentence.
    pub why: String,
}

impl Unfit {
    /// Whether the worker is set aside.
    pub fn is_aside(&self) -> bool {
        self.in_a_row >= IN_A_ROW
    }

    /// How long the worker leaves jobs to others.
    pub fn pause(&self) -> Duration {
        PAUSE * self.in_a_row.min(IN_A_ROW)
    }

    /// The error that ends a worker which is set aside.
    pub fn error(&self) -> HostError {
        HostError::Unfit(format!(
            "this machine could not compute {} jobs in a row, and the worker is set aside: {}",
            self.in_a_row, self.why
        ))
    }

    /// The name of the note's file: what others wrote cannot name another folder.
    fn file(&self, store: &Store) -> PathBuf {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-.".contains(c) { c } else { '_' };
        let name: String = self.worker.chars().take(MOST_NAME).map(plain).collect();
        store.path().join(FOLDER).join(format!("worker-{name}"))
    }
}

/// The notes of a worker about its own machine.
#[derive(Debug, Default)]
pub struct Row(u32);

impl Row {
    /// Notes a job that the machine could not compute.
    pub fn more(&mut self, worker: &str, why: &str) -> Unfit {
        self.0 += 1;
        let why = clean(why).chars().take(MOST_WHY).collect();
        Unfit { worker: worker.to_owned(), in_a_row: self.0, why }
    }

    /// Notes a job that was computed; true where others were noted before.
    pub fn over(&mut self) -> bool {
        std::mem::take(&mut self.0) > 0
    }
}

impl Store {
    /// Keeps a note in place of the worker's earlier one. A store has at most 1,000; further ones are left out.
    pub fn note_unfit(&self, unfit: &Unfit) -> Result<(), HostError> {
        let file = unfit.file(self);
        let folder = self.path().join(FOLDER);
        fs::create_dir_all(&folder).map_err(HostError::io("create", folder.display()))?;
        let count = fs::read_dir(&folder).map_or(0, |entries| entries.take(MOST_NOTES).count());
        if count >= MOST_NOTES && !file.exists() {
            return Ok(());
        }
        let text = serde_json::to_vec(unfit).map_err(|error| HostError::Run(error.to_string()))?;
        let new = self.write_new(&text)?;
        fs::rename(&new, &file).map_err(HostError::io("write", file.display()))
    }

    /// Removes the note of a worker that computes again.
    pub fn is_fit(&self, worker: &str) {
        let unfit = Unfit { worker: worker.to_owned(), in_a_row: 0, why: String::new() };
        let _ = fs::remove_file(unfit.file(self));
    }

    /// Removes all notes, as a run does that begins.
    pub fn forget_unfit(&self) {
        for entry in fs::read_dir(self.path().join(FOLDER)).into_iter().flatten().flatten() {
            let _ = fs::remove_file(entry.path());
        }
    }

    /// The notes, by the names of the workers.
    pub fn unfit(&self) -> Vec<Unfit> {
        let entries = fs::read_dir(self.path().join(FOLDER)).into_iter().flatten().flatten();
        let note = |path: PathBuf| serde_json::from_slice(&crate::store::read(&path, MOST_NOTE)?).ok();
        let mut found: Vec<Unfit> = entries.take(MOST_NOTES).filter_map(|entry| note(entry.path())).collect();
        found.sort_by(|one, other| one.worker.cmp(&other.worker));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_kept_until_the_worker_computes_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        let mut row = Row::default();
        let notes: Vec<Unfit> = (0..IN_A_ROW).map(|_| row.more("../a 1", "no\nspace")).collect();
        notes.iter().for_each(|note| store.note_unfit(note).unwrap());
        assert_eq!(store.unfit(), notes[2..]);
        assert!(notes[2].is_aside() && !notes[1].is_aside() && notes[2].pause() > notes[0].pause());
        assert!(!notes[2].error().to_string().contains('\n'));
        assert!(row.over() && !row.over());
        store.is_fit("../a 1");
        assert!(store.unfit().is_empty());
    }

    #[test]
    fn notes_of_strangers_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        fs::create_dir(store.path().join(FOLDER)).unwrap();
        for number in 0..MOST_NOTES {
            fs::write(store.path().join(FOLDER).join(number.to_string()), "{").unwrap();
        }
        let note = Row::default().more("w", &"x".repeat(1 << 20));
        assert_eq!(note.why.len(), MOST_WHY);
        store.note_unfit(&note).unwrap();
        assert!(store.unfit().is_empty());
        store.forget_unfit();
        store.note_unfit(&note).unwrap();
        assert_eq!(store.unfit(), [note]);
    }
}
