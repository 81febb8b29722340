//! Notes of workers whose machines could not compute a job, for those who look at the store.
//!
//! A note decides nothing: the job went back to the others when it was written.

use crate::job::Key;
use crate::store::Store;
use guardrail_host::{Host, HostError};
use guardrail_report::text::clean;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// After so many jobs in a row that its machine could not compute, a worker is set aside.
pub const IN_A_ROW: u32 = 3;
/// The wait after the first of these; each further one waits so much longer.
const PAUSE: Duration = Duration::from_secs(1);
/// The time between two looks at signals.
const GLANCE: Duration = Duration::from_millis(50);
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
    /// How many different jobs in a row it could not compute.
    pub in_a_row: u32,
    /// Whether the worker is set aside.
    #[serde(default)]
    pub aside: bool,
    /// The last of the reasons, as a sentence.
    pub why: String,
}

impl Unfit {
    /// How long the worker leaves jobs to others.
    fn pause(&self) -> Duration {
        PAUSE * self.in_a_row.min(IN_A_ROW)
    }

    /// Leaves jobs to others for a while, which a signal of the user's ends.
    pub fn wait(&self, host: &Host) {
        let end = Instant::now() + self.pause();
        while Instant::now() < end && !host.signals.interrupted() {
            std::thread::sleep(GLANCE);
        }
    }

    /// The error that ends a worker which is set aside.
    pub fn error(&self) -> HostError {
        HostError::Unfit(format!(
            "this machine could not compute {} in a row, and the worker is set aside: {}",
            match self.in_a_row {
                1 => "a job".to_owned(),
                jobs => format!("{jobs} jobs"),
            },
            self.why
        ))
    }

    /// The name of the note's file: what others wrote cannot name another folder.
    fn file(&self, store: &Store) -> PathBuf {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-.".contains(c) { c } else { '_' };
        let name: String = self.worker.chars().take(MOST_NAME).map(plain).collect();
        store.path().join(FOLDER).join(format!("worker-{name}"))
    }
}

/// The notes of a worker about its own machine: jobs in a row that it could not compute.
#[derive(Debug, Default)]
pub struct Row {
    /// How often the machine lacked something.
    lacked: u32,
    /// The jobs whose inputs are others here. One of them may be at fault itself, however often it comes.
    foreign: BTreeSet<Key>,
}

impl Row {
    /// Notes a job that the machine could not compute; `foreign` is one whose inputs are others here.
    pub fn more(&mut self, foreign: Option<&Key>, worker: &str, why: &str) -> Unfit {
        match foreign {
            Some(key) => _ = self.foreign.insert(key.clone()),
            None => self.lacked += 1,
        }
        let in_a_row = self.lacked + self.foreign.len() as u32;
        let why = clean(why).chars().take(MOST_WHY).collect();
        Unfit { worker: worker.to_owned(), in_a_row, aside: in_a_row >= IN_A_ROW, why }
    }

    /// Notes a job that was computed; true where others were noted before.
    pub fn over(&mut self) -> bool {
        let Row { lacked, foreign } = std::mem::take(self);
        lacked > 0 || !foreign.is_empty()
    }
}

impl Store {
    /// Keeps a note in place of the worker's earlier one. A store has at most 1,000; further ones are left out.
    pub fn note_unfit(&self, unfit: &Unfit) -> Result<(), HostError> {
        if unfit.why.len() > MOST_WHY * 4 {
            return Ok(());
        }
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
        let unfit = Unfit { worker: worker.to_owned(), in_a_row: 0, aside: false, why: String::new() };
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

    fn key(number: u32) -> Key {
        format!("{number:064x}").parse().unwrap()
    }

    #[test]
    fn a_note_is_kept_until_the_worker_computes_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        let mut row = Row::default();
        let mut more = |job: u32| row.more(Some(&key(job)), "../a 1", "no\nspace");
        // One job that comes again says nothing more of the machine.
        let notes: Vec<Unfit> = [0, 1, 1, 2].map(&mut more).to_vec();
        assert_eq!(notes.iter().map(|note| note.in_a_row).collect::<Vec<_>>(), [1, 2, 2, IN_A_ROW]);
        notes.iter().for_each(|note| store.note_unfit(note).unwrap());
        assert_eq!(store.unfit(), notes[3..]);
        assert!(notes[3].aside && !notes[2].aside && notes[3].pause() > notes[0].pause());
        assert!(!notes[3].error().to_string().contains('\n'));
        assert!(row.over() && !row.over());
        assert_eq!([1, 2].map(|_| row.more(None, "w", "no QEMU").in_a_row), [1, 2]);
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
        let note = Row::default().more(None, "w", &"x".repeat(1 << 20));
        assert_eq!(note.why.len(), MOST_WHY);
        store.note_unfit(&note).unwrap();
        assert!(store.unfit().is_empty());
        store.forget_unfit();
        store.note_unfit(&note).unwrap();
        assert_eq!(store.unfit(), [note]);
    }
}
