//! Claims: who computes a job at the moment, so that others take another one.
//!
//! A claim saves work and decides nothing: where two workers compute the same job, the store keeps one result. A worker renews
//! its claim while it works. Others take a claim over that does not change for [`LEASE`] of their own clock, so that clocks need
//! not agree, and no machine is asked whether a process lives.

use crate::job::Key;
use crate::store::Store;
use guardrail_host::HostError;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time without a change after which a claim is taken over.
pub const LEASE: Duration = Duration::from_secs(60);
/// The time between two renewals.
const BEAT: Duration = Duration::from_secs(10);
/// How many workers may end while they compute a job, before that counts as a failure of the job.
pub const LOST: u32 = 12;

/// The claims of one worker.
pub struct Claims {
    folder: PathBuf,
    worker: String,
    /// What was seen of others' claims, and when it was seen first.
    seen: HashMap<Key, (String, Instant)>,
    lease: Duration,
}

/// What came of an attempt to claim a job.
pub enum Claimed {
    /// The job is this worker's, as long as the claim is held.
    Own(Claim),
    /// Another worker computes it.
    Other,
    /// Too many workers ended while they computed it.
    Deadly,
}

impl Claims {
    /// The claims of a worker. A worker that is started again has the same name, and takes over at once what it had.
    pub fn new(store: &Store, worker: &str) -> Claims {
        let worker = worker.replace(char::is_whitespace, "_");
        Claims { folder: store.path().join("claims"), worker, seen: HashMap::new(), lease: LEASE }
    }

    /// Tries to claim a job.
    pub fn claim(&mut self, key: &Key) -> Result<Claimed, HostError> {
        let file = self.folder.join(key.as_str());
        if let Some(claim) = self.create(&file, 0)? {
            return Ok(Claimed::Own(claim));
        }
        let Some(text) = text(&file) else { return Ok(Claimed::Other) };
        let (owner, lost) = parsed(&text);
        let stale = match self.seen.get(key) {
            Some((seen, since)) if *seen == text => since.elapsed() >= self.lease,
            _ => {
                self.seen.insert(key.clone(), (text.clone(), Instant::now()));
                false
            }
        };
        if owner != self.worker && !stale {
            return Ok(Claimed::Other);
        }
        self.seen.remove(key);
        // Of several workers that take a claim over, one finds the file to rename.
        let away = self.folder.join(format!(".{key}.{}", crate::random()));
        if fs::rename(&file, &away).is_err() {
            return Ok(Claimed::Other);
        }
        let _ = fs::remove_file(&away);
        if lost + 1 >= LOST {
            return Ok(Claimed::Deadly);
        }
        Ok(self.create(&file, lost + 1)?.map_or(Claimed::Other, Claimed::Own))
    }

    /// Makes the file of a claim; `None` where it is there.
    fn create(&self, file: &Path, lost: u32) -> Result<Option<Claim>, HostError> {
        match File::create_new(file) {
            Ok(open) => Claim::hold(file, open, format!("{} {lost} {}", self.worker, crate::random()))
                .map(Some)
                .map_err(HostError::io("write", file.display())),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(HostError::io("write to the store", file.display())(error)),
        }
    }
}

/// The worker of a claim, and how many had it before and ended. A claim that is just being written has no worker.
fn parsed(text: &str) -> (&str, u32) {
    let mut words = text.split(' ');
    let owner = words.next().unwrap_or_default();
    (owner, words.next().and_then(|word| word.parse().ok()).unwrap_or(0))
}

fn text(file: &Path) -> Option<String> {
    let mut text = String::new();
    // A file that is opened anew shows over NFS what its writer closed.
    File::open(file).ok()?.take(1024).read_to_string(&mut text).ok()?;
    Some(text)
}

/// A claim that is renewed until it is dropped.
pub struct Claim {
    file: PathBuf,
    /// Set, and noticed, at the end.
    over: Arc<(Mutex<()>, Condvar, AtomicBool)>,
    beats: Option<JoinHandle<()>>,
}

impl Claim {
    fn hold(file: &Path, mut open: File, text: String) -> std::io::Result<Claim> {
        open.write_all(text.as_bytes())?;
        drop(open);
        let over = Arc::new((Mutex::new(()), Condvar::new(), AtomicBool::new(false)));
        let (watched, path) = (Arc::clone(&over), file.to_path_buf());
        let beat = move || {
            let (lock, end, is_over) = &*watched;
            let mut number = 0_u64;
            let mut guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
            loop {
                // The end may come before this thread waits for the first time.
                let going = |_: &mut ()| !is_over.load(Ordering::SeqCst);
                guard = end.wait_timeout_while(guard, BEAT, going).unwrap_or_else(PoisonError::into_inner).0;
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
                number += 1;
                // A claim that somebody took over is left to its new owner.
                if self::text(&path).is_some_and(|now| now.starts_with(&text)) {
                    let _ = fs::write(&path, format!("{text} {number}"));
                }
            }
        };
        let beats = Some(std::thread::Builder::new().name("claim".to_owned()).spawn(beat)?);
        Ok(Claim { file: file.to_path_buf(), over, beats })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let (lock, end, is_over) = &*self.over;
        {
            let _guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
            is_over.store(true, Ordering::SeqCst);
            end.notify_all();
        }
        if let Some(beats) = self.beats.take() {
            let _ = beats.join();
        }
        let _ = fs::remove_file(&self.file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(claimed: Claimed) -> Option<Claim> {
        if let Claimed::Own(claim) = claimed { Some(claim) } else { None }
    }

    #[test]
    fn a_claim_is_one_workers_until_it_ends_or_does_not_change() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        let key: Key = "a".repeat(64).parse().unwrap();
        let [mut one, mut two] = ["one", "two"].map(|name| Claims::new(&store, name));
        let first = own(one.claim(&key).unwrap()).unwrap();
        assert!(own(two.claim(&key).unwrap()).is_none());
        drop(first);
        let second = own(two.claim(&key).unwrap()).unwrap();
        // As if the worker had been killed.
        std::mem::forget(second);
        assert!(own(one.claim(&key).unwrap()).is_none());
        one.lease = Duration::ZERO;
        let taken = own(one.claim(&key).unwrap()).unwrap();
        assert!(own(two.claim(&key).unwrap()).is_none());
        drop(taken);
        assert_eq!(fs::read_dir(store.path().join("claims")).unwrap().count(), 0);
    }

    #[test]
    fn a_worker_that_starts_again_goes_on_at_once_but_not_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        let key: Key = "a".repeat(64).parse().unwrap();
        for _ in 0..LOST {
            std::mem::forget(own(Claims::new(&store, "w 1").claim(&key).unwrap()).unwrap());
        }
        assert!(matches!(Claims::new(&store, "w 1").claim(&key).unwrap(), Claimed::Deadly));
        assert!(own(Claims::new(&store, "w 1").claim(&key).unwrap()).is_some());
    }
}
