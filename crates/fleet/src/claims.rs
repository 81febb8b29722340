//! Claims: who computes a job at the moment, so that others take another one.
//!
//! A claim saves work and decides nothing: where two workers compute the same job, the store keeps one result. A worker renews
//! its claim while it works. Others take a claim over that does not change for [`LEASE`] of their own clock, so that clocks need
//! not agree, and no machine is asked whether a process lives.
//!
//! A claim begins with a new file, which one worker can make. What changes a claim later holds a lock and looks at the claim
//! first, so that a worker which was slow neither renews, takes nor removes the claim of another one.

use crate::job::Key;
use crate::store::Store;
use guardrail_host::{Host, HostError};
use guardrail_vm::try_lock;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time without a change after which a claim is taken over.
pub const LEASE: Duration = Duration::from_secs(60);
/// The time between two renewals.
const BEAT: Duration = Duration::from_secs(10);
/// How many workers may end while they compute a job, or give it back, before that counts as a failure of the job.
pub const LOST: u32 = 12;
/// The worker of a claim that was given back.
const FREE: &str = "-";
/// The folders of the locks in `claims/`: those on claims, by the first digits of keys, and those of workers.
const LOCKS: &str = ".locks";
const WORKERS: &str = ".workers";
/// The longest wait for a lock, which is held for the time of a small write, and between two attempts.
const LOCKING: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(2);
/// How long a worker waits for the one that had its name, which ends its job in order.
const SUCCESSION: Duration = Duration::from_secs(40);

/// The claims of one worker.
pub struct Claims {
    files: Files,
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

/// Whether a worker has claimed a job, or was killed with the claim.
pub fn is_held(store: &Store, key: &Key) -> bool {
    text(&store.path().join("claims").join(key.as_str())).is_some_and(|text| parsed(&text).0 != FREE)
}

/// Waits until no other worker of this name works for the store; the name is this one's until the file is dropped.
pub fn alone(store: &Store, worker: &str, host: &Host) -> Result<File, HostError> {
    let folder = store.path().join("claims").join(WORKERS);
    fs::create_dir_all(&folder).map_err(HostError::io("create", folder.display()))?;
    let path = folder.join(worker.replace('/', "-"));
    let end = Instant::now() + SUCCESSION;
    loop {
        match locked(&path) {
            Ok(file) => return Ok(file),
            Err(error) if error.kind() != ErrorKind::WouldBlock => {
                return Err(HostError::io("lock", path.display())(error));
            }
            Err(_) if host.signals.interrupted() => return Err(HostError::Interrupted),
            Err(_) if Instant::now() > end => {
                return Err(HostError::Run(format!(
                    "another worker of {worker} is at work in {}; give each worker of a run its own --index",
                    store.path().display()
                )));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Locks a file, which is made where it is absent. A file system without locks lets all pass, as it does without this.
fn locked(path: &Path) -> io::Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    if try_lock(&file, libc::LOCK_EX) {
        return Ok(file);
    }
    let why = io::Error::last_os_error();
    match why.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Err(ErrorKind::WouldBlock.into()),
        _ => Ok(file),
    }
}

/// The files of claims.
#[derive(Clone)]
struct Files {
    folder: PathBuf,
    new: PathBuf,
}

impl Files {
    fn of(&self, key: &Key) -> PathBuf {
        self.folder.join(key.as_str())
    }

    /// The lock for a change of a claim; `None` where others hold it for too long.
    fn lock(&self, key: &Key) -> Result<Option<File>, HostError> {
        let folder = self.folder.join(LOCKS);
        let path = folder.join(&key.as_str()[..2]);
        let end = Instant::now() + LOCKING;
        loop {
            match locked(&path) {
                Ok(file) => return Ok(Some(file)),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    fs::create_dir_all(&folder).map_err(HostError::io("create", folder.display()))?;
                }
                Err(error) if error.kind() != ErrorKind::WouldBlock => {
                    return Err(HostError::io("lock", path.display())(error));
                }
                Err(_) if Instant::now() > end => return Ok(None),
                Err(_) => std::thread::sleep(AGAIN),
            }
        }
    }

    /// Writes a claim in place of another one. The lock is held.
    fn replace(&self, key: &Key, text: &str) -> Result<(), HostError> {
        let new = self.new.join(format!("claim-{}", crate::random()));
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, self.of(key)));
        written.map_err(|error| {
            let _ = fs::remove_file(&new);
            HostError::io("write to the store", self.of(key).display())(error)
        })
    }
}

impl Claims {
    /// The claims of a worker. A worker that is started again has the same name, and takes over at once what it had.
    pub fn new(store: &Store, worker: &str) -> Claims {
        let worker = worker.replace(char::is_whitespace, "_");
        let files = Files { folder: store.path().join("claims"), new: store.path().join("new") };
        Claims { files, worker, seen: HashMap::new(), lease: LEASE }
    }

    /// Tries to claim a job.
    pub fn claim(&mut self, key: &Key) -> Result<Claimed, HostError> {
        let file = self.files.of(key);
        if let Some(claim) = self.create(key)? {
            return Ok(Claimed::Own(claim));
        }
        let Some(text) = text(&file) else { return Ok(Claimed::Other) };
        let (owner, _) = parsed(&text);
        let stale = match self.seen.get(key) {
            Some((seen, since)) if *seen == text => since.elapsed() >= self.lease,
            _ => {
                self.seen.insert(key.clone(), (text.clone(), Instant::now()));
                false
            }
        };
        if owner != self.worker && owner != FREE && !stale {
            return Ok(Claimed::Other);
        }
        self.seen.remove(key);
        self.take_over(key, &text)
    }

    /// Takes a claim over, unless it is not the one any more that was seen.
    fn take_over(&self, key: &Key, seen: &str) -> Result<Claimed, HostError> {
        let Some(_lock) = self.files.lock(key)? else { return Ok(Claimed::Other) };
        if text(&self.files.of(key)).as_deref() != Some(seen) {
            return Ok(Claimed::Other);
        }
        let lost = parsed(seen).1.saturating_add(1);
        if lost >= LOST {
            let file = self.files.of(key);
            fs::remove_file(&file).map_err(HostError::io("remove", file.display()))?;
            return Ok(Claimed::Deadly);
        }
        let words = self.words(lost);
        self.files.replace(key, &words)?;
        Claim::hold(&self.files, key, words, lost).map(Claimed::Own)
    }

    /// Makes the file of a claim; `None` where it is there.
    fn create(&self, key: &Key) -> Result<Option<Claim>, HostError> {
        let file = self.files.of(key);
        let words = self.words(0);
        match File::create_new(&file).and_then(|mut open| open.write_all(words.as_bytes())) {
            Ok(()) => Claim::hold(&self.files, key, words, 0).map(Some),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(HostError::io("write to the store", file.display())(error)),
        }
    }

    /// What a claim of this worker begins with; no other claim begins so.
    fn words(&self, lost: u32) -> String {
        format!("{} {lost} {}", self.worker, crate::random())
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
    files: Files,
    key: Key,
    /// What the file begins with while the claim is this worker's.
    words: String,
    lost: u32,
    /// Set, and noticed, at the end.
    over: Arc<(Mutex<()>, Condvar, AtomicBool)>,
    beats: Option<JoinHandle<()>>,
}

impl Claim {
    fn hold(files: &Files, key: &Key, words: String, lost: u32) -> Result<Claim, HostError> {
        let over = Arc::new((Mutex::new(()), Condvar::new(), AtomicBool::new(false)));
        let mut claim = Claim { files: files.clone(), key: key.clone(), words, lost, over, beats: None };
        let (watched, files, key, words) =
            (Arc::clone(&claim.over), files.clone(), key.clone(), claim.words.clone());
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
                let text = format!("{words} {number}");
                // In one step: a claim that a kill leaves half written would be nobody's.
                change(&files, &key, &words, |_| files.replace(&key, &text).map_err(io::Error::other));
            }
        };
        let thread = std::thread::Builder::new().name("claim".to_owned()).spawn(beat);
        claim.beats = Some(thread.map_err(HostError::io("start", "a thread that renews a claim"))?);
        Ok(claim)
    }

    /// Ends the claim without a result: any worker may take the job at once. It counts as one that was lost.
    pub fn give_back(mut self) {
        self.end();
        let text = format!("{FREE} {} {}", self.lost, crate::random());
        let files = self.files.clone();
        change(&files, &self.key, &self.words, |_| files.replace(&self.key, &text).map_err(io::Error::other));
    }

    /// Ends the renewals.
    fn end(&mut self) {
        let (lock, end, is_over) = &*self.over;
        {
            let _guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
            is_over.store(true, Ordering::SeqCst);
            end.notify_all();
        }
        if let Some(beats) = self.beats.take() {
            let _ = beats.join();
        }
    }
}

/// Changes a claim that still begins with these words; one that somebody took over is left to its new owner.
fn change(files: &Files, key: &Key, words: &str, change: impl FnOnce(&Path) -> io::Result<()>) {
    let Ok(Some(_lock)) = files.lock(key) else { return };
    let file = files.of(key);
    if text(&file).is_some_and(|now| now.starts_with(words)) {
        // A claim that cannot be changed is taken over after a while.
        let _ = change(&file);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.end();
        change(&self.files, &self.key, &self.words, |file| fs::remove_file(file));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn own(claimed: Claimed) -> Option<Claim> {
        if let Claimed::Own(claim) = claimed { Some(claim) } else { None }
    }

    fn key() -> Key {
        "a".repeat(64).parse().unwrap()
    }

    #[test]
    fn a_claim_is_one_workers_until_it_ends_or_does_not_change() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        let key = key();
        let [mut one, mut two] = ["one", "two"].map(|name| Claims::new(&store, name));
        let first = own(one.claim(&key).unwrap()).unwrap();
        assert!(own(two.claim(&key).unwrap()).is_none() && is_held(&store, &key));
        drop(first);
        let second = own(two.claim(&key).unwrap()).unwrap();
        // As if the worker had been killed.
        std::mem::forget(second);
        assert!(own(one.claim(&key).unwrap()).is_none());
        one.lease = Duration::ZERO;
        let taken = own(one.claim(&key).unwrap()).unwrap();
        assert!(own(two.claim(&key).unwrap()).is_none());
        drop(taken);
        assert!(!store.path().join("claims").join(key.as_str()).exists());
    }

    #[test]
    fn a_worker_that_starts_again_goes_on_at_once_but_not_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        let key = key();
        for _ in 0..LOST {
            std::mem::forget(own(Claims::new(&store, "w 1").claim(&key).unwrap()).unwrap());
        }
        assert!(matches!(Claims::new(&store, "w 1").claim(&key).unwrap(), Claimed::Deadly));
        assert!(own(Claims::new(&store, "w 1").claim(&key).unwrap()).is_some());
    }

    #[test]
    fn what_is_given_back_goes_to_anybody_at_once_but_not_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        let key = key();
        for number in 0..LOST {
            let mut claims = Claims::new(&store, &number.to_string());
            own(claims.claim(&key).unwrap()).unwrap().give_back();
            assert!(!is_held(&store, &key));
        }
        assert!(matches!(Claims::new(&store, "w").claim(&key).unwrap(), Claimed::Deadly));
    }

    #[test]
    fn a_slow_owner_leaves_the_claim_to_its_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        let key = key();
        let [mut one, mut two, mut three] = ["one", "two", "three"].map(|name| Claims::new(&store, name));
        let slow = own(one.claim(&key).unwrap()).unwrap();
        assert!(own(two.claim(&key).unwrap()).is_none());
        two.lease = Duration::ZERO;
        let _new = own(two.claim(&key).unwrap()).unwrap();
        drop(slow);
        assert!(own(three.claim(&key).unwrap()).is_none());
    }

    #[test]
    fn of_many_that_saw_a_stale_claim_one_takes_it() {
        const THREADS: usize = 16;
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        for round in 0..100 {
            let key: Key = format!("{round:064x}").parse().unwrap();
            std::mem::forget(own(Claims::new(&store, "killed").claim(&key).unwrap()).unwrap());
            let barrier = Barrier::new(THREADS);
            let taken: Vec<Option<Claim>> = std::thread::scope(|scope| {
                let one = |number: usize| {
                    let (key, store, barrier) = (&key, &store, &barrier);
                    scope.spawn(move || {
                        let mut claims = Claims::new(store, &number.to_string());
                        assert!(own(claims.claim(key).unwrap()).is_none());
                        claims.lease = Duration::ZERO;
                        barrier.wait();
                        own(claims.claim(key).unwrap())
                    })
                };
                let all: Vec<_> = (0..THREADS).map(one).collect();
                all.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(taken.iter().flatten().count(), 1, "round {round}");
        }
    }

    #[test]
    fn who_saw_an_older_claim_leaves_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        let key = key();
        std::mem::forget(own(Claims::new(&store, "killed").claim(&key).unwrap()).unwrap());
        let seen = text(&store.path().join("claims").join(key.as_str())).unwrap();
        let [one, two] = ["one", "two"].map(|name| Claims::new(&store, name));
        let _new = own(one.take_over(&key, &seen).unwrap()).unwrap();
        assert!(own(two.take_over(&key, &seen).unwrap()).is_none());
    }

    #[test]
    fn a_name_is_one_workers() {
        let folder = tempfile::tempdir().unwrap();
        let (store, host) = (Store::create(folder.path()).unwrap(), Host::embedded().unwrap());
        let first = alone(&store, "run/0", &host).unwrap();
        let path = store.path().join("claims").join(WORKERS).join("run-0");
        assert_eq!(locked(&path).unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(first);
        assert!(locked(&path).is_ok());
    }
}
