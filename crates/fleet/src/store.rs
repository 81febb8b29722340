//! The store of results: a folder that workers of one machine, or of many over NFS, share.
//!
//! - `results/AB/KEY`: results, by the first digits of the key
//! - `failed/KEY/ATTEMPT`: the log of each attempt that failed
//! - `aside/KEY`: a job that failed too often, with its last log
//! - `claims/KEY`: who computes a job at the moment ([`claims`](crate::claims))
//! - `refused/`: files that did not match their key
//! - `runs/ID/jobs.jsonl`: the jobs of a run
//! - `order/N`: the id of the run that was started as the Nth
//! - `unfit/`: notes of workers whose machines lack something ([`unfit`](crate::unfit))
//! - `new/`: files that are being written
//!
//! A file gets its name by `link`, which fails where the name is taken: of two workers that compute the same job, one stores a
//! result. Results need no lock, so NFS is sufficient.

use crate::attempt::Attempt;
use crate::job::{Job, Key};
use crate::outcome::{MOST_BODY, Outcome};
use guardrail_host::HostError;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// The attempts after which a job is set aside.
pub const ATTEMPTS: usize = 3;
/// The most bytes that are kept of a log.
pub const MOST_LOG: usize = 64 << 10;
/// The most bytes of a file of the store.
const MOST_FILE: u64 = MOST_BODY as u64 + (1 << 20);
/// The most bytes of the jobs of a run.
const MOST_JOBS: u64 = 256 << 20;
/// The age of a file in `new/` whose writer has ended.
const ABANDONED: Duration = Duration::from_secs(86_400);
/// The folders of a store.
const FOLDERS: [&str; 8] = ["results", "failed", "aside", "claims", "refused", "runs", "order", "new"];
/// How often a number in `order/` is tried that another controller takes at the same time.
const TRIES: u64 = 1000;
/// The format of a store, in the file `store.json`.
const FORMAT: u64 = 1;

/// A folder of results.
#[derive(Clone, Debug)]
pub struct Store {
    path: PathBuf,
    id: String,
}

/// What came of storing a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is stored.
    New,
    /// Another result of the job was there already, and stays.
    Known,
}

/// A job that failed too often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aside {
    /// The job's name.
    pub name: String,
    /// The number of attempts that failed.
    pub attempts: usize,
    /// The last log.
    pub log: String,
}

/// The contents of `store.json`.
#[derive(Serialize, Deserialize)]
struct Head {
    format: u64,
    id: String,
}

impl Store {
    /// Opens a store to write to it, and makes it where it is absent.
    pub fn create(path: &Path) -> Result<Store, HostError> {
        let path = std::path::absolute(path).map_err(HostError::io("find", path.display()))?;
        for folder in FOLDERS.map(|name| path.join(name)) {
            fs::create_dir_all(&folder).map_err(HostError::io("create", folder.display()))?;
        }
        let mut store = Store { path, id: String::new() };
        let head = store.path.join("store.json");
        if !head.exists() {
            let id = crate::random();
            let text = serde_json::json!({"format": FORMAT, "id": id}).to_string();
            store.link(text.as_bytes(), &head)?;
        }
        store.id = read_head(&head)?;
        store.probe()?;
        store.sweep();
        Ok(store)
    }

    /// Opens a store that is there.
    pub fn open(path: &Path) -> Result<Store, HostError> {
        let path = std::path::absolute(path).map_err(HostError::io("find", path.display()))?;
        let head = path.join("store.json");
        if !head.is_file() {
            return Err(HostError::Usage(format!(
                "{} is no store of results; name the folder of an earlier 'guardrail fleet run --store'",
                path.display()
            )));
        }
        Ok(Store { id: read_head(&head)?, path })
    }

    /// The store's folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A name that no other store has.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Refuses a store that cannot be written to, before anything is computed.
    pub fn probe(&self) -> Result<(), HostError> {
        let file = self.write_new(b"")?;
        fs::remove_file(&file).map_err(HostError::io("remove", file.display()))
    }

    /// The result of a job. A file that does not match the key is moved to `refused/`, so that the job is computed anew.
    pub fn result(&self, key: &Key) -> Option<Outcome> {
        let file = self.result_file(key);
        let bytes = read(&file, MOST_FILE)?;
        match Outcome::read(key, &bytes) {
            Ok(outcome) => Some(outcome),
            Err(_) => {
                let name = format!("{key}.{}", crate::random());
                let _ = fs::rename(&file, self.path.join("refused").join(name));
                None
            }
        }
    }

    /// Whether a result of the job is there. Its content is not looked at.
    pub fn has(&self, key: &Key) -> bool {
        self.result_file(key).is_file()
    }

    /// Stores a result, unless the job has one. The result is on the disk when this returns.
    pub fn put(&self, outcome: &Outcome) -> Result<Kept, HostError> {
        let file = self.result_file(&outcome.key);
        let folder = file.parent().unwrap_or(&self.path);
        if !folder.is_dir() {
            fs::create_dir_all(folder).map_err(HostError::io("create", folder.display()))?;
            sync(&self.path.join("results"));
        }
        // A result that is there but does not match is moved away by the look at it.
        for _ in 0..2 {
            if self.link(&outcome.write()?, &file)? {
                return Ok(Kept::New);
            }
            if self.result(&outcome.key).is_some() {
                return Ok(Kept::Known);
            }
        }
        Err(HostError::Run(format!("{} is neither a result nor can it be replaced", file.display())))
    }

    /// Notes an attempt that failed, and sets the job aside at the last one; true where it is set aside. An attempt that was
    /// noted before does not count again.
    pub fn fail(&self, key: &Key, job: &Job, attempt: &Attempt, log: &str) -> Result<bool, HostError> {
        if self.aside(key).is_some() {
            return Ok(true);
        }
        let folder = self.path.join("failed").join(key.as_str());
        fs::create_dir_all(&folder).map_err(HostError::io("create", folder.display()))?;
        let log = tail(log);
        self.link(log.as_bytes(), &folder.join(attempt.as_str()))?;
        if self.failures(key) < ATTEMPTS {
            return Ok(false);
        }
        self.set_aside(key, job, log)?;
        Ok(true)
    }

    /// Sets a job aside: it is not computed again unless somebody asks for it.
    pub fn set_aside(&self, key: &Key, job: &Job, log: &str) -> Result<(), HostError> {
        let aside = Aside { name: job.spec.name(), attempts: self.failures(key), log: tail(log).to_owned() };
        let text = serde_json::to_string(&aside).map_err(|error| HostError::Run(error.to_string()))?;
        self.link(text.as_bytes(), &self.path.join("aside").join(key.as_str())).map(drop)
    }

    /// How many attempts of a job failed.
    pub fn failures(&self, key: &Key) -> usize {
        fs::read_dir(self.path.join("failed").join(key.as_str())).map_or(0, Iterator::count)
    }

    /// The job, where it is set aside.
    pub fn aside(&self, key: &Key) -> Option<Aside> {
        serde_json::from_slice(&read(&self.path.join("aside").join(key.as_str()), MOST_FILE)?).ok()
    }

    /// Whether nothing is left to do for a job. Contents are not looked at.
    pub fn is_over(&self, key: &Key) -> bool {
        self.has(key) || self.path.join("aside").join(key.as_str()).is_file()
    }

    /// Takes up a job again that was set aside.
    pub fn forgive(&self, key: &Key) -> Result<(), HostError> {
        let (logs, aside) = (self.path.join("failed").join(key.as_str()), self.path.join("aside"));
        let gone = |result: io::Result<()>, path: &Path| match result {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(HostError::io("remove", path.display())(error))
            }
            _ => Ok(()),
        };
        gone(fs::remove_file(aside.join(key.as_str())), &aside)?;
        gone(fs::remove_dir_all(&logs), &logs)
    }

    /// Keeps the jobs of a run for its workers, and that it was started last.
    pub fn keep_run(&self, id: &str, jobs: &[Job]) -> Result<(), HostError> {
        let text = lines(jobs, MOST_JOBS)?;
        let folder = self.path.join("runs").join(id);
        fs::create_dir_all(&folder).map_err(HostError::io("create", folder.display()))?;
        self.link(text.as_bytes(), &folder.join("jobs.jsonl"))?;
        self.is_last(id)
    }

    /// Notes that a run was started. The clocks of the machines that start runs need not agree.
    fn is_last(&self, id: &str) -> Result<(), HostError> {
        let order = self.order();
        let (last, newest) = order.last().cloned().unwrap_or_default();
        if newest == id {
            return Ok(());
        }
        let name = |number: u64| self.path.join("order").join(format!("{number:020}"));
        for number in (last + 1..).take(TRIES as usize) {
            if self.link(id.as_bytes(), &name(number))? {
                let earlier = order.iter().filter(|(_, run)| run == id);
                earlier.for_each(|(number, _)| _ = fs::remove_file(name(*number)));
                return Ok(());
            }
        }
        Err(HostError::Run(format!("{} changes all the time", self.path.join("order").display())))
    }

    /// The numbers and ids of the runs that were started, the last one last.
    fn order(&self) -> Vec<(u64, String)> {
        let entries = fs::read_dir(self.path.join("order")).into_iter().flatten().flatten();
        let mut order: Vec<(u64, String)> = entries
            .filter_map(|entry| {
                let number = entry.file_name().to_str()?.parse().ok()?;
                Some((number, String::from_utf8(read(&entry.path(), 64)?).ok()?))
            })
            .collect();
        order.sort();
        order
    }

    /// The jobs of a run, in its order.
    pub fn run(&self, id: &str) -> Result<Vec<Job>, HostError> {
        let file = self.path.join("runs").join(id).join("jobs.jsonl");
        let known = id.len() == 16 && id.chars().all(|c| c.is_ascii_hexdigit());
        let bytes = known.then(|| read(&file, MOST_JOBS)).flatten();
        let bytes =
            bytes.ok_or_else(|| HostError::Usage(format!("{} has no run '{id}'", self.path.display())))?;
        let job = |line: &[u8]| {
            serde_json::from_slice(line)
                .map_err(|error| HostError::Usage(format!("{}: {error}", file.display())))
        };
        bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(job).collect()
    }

    /// The ids of the runs, that which was started last at the end. Runs of which that is not known are first, by time.
    pub fn runs(&self) -> Vec<String> {
        let order = self.order();
        let entries = fs::read_dir(self.path.join("runs")).into_iter().flatten().flatten();
        let mut found: Vec<(u64, SystemTime, String)> = entries
            .filter_map(|entry| {
                let time = fs::metadata(entry.path().join("jobs.jsonl")).ok()?.modified().ok()?;
                let id = entry.file_name().into_string().ok()?;
                let number = order.iter().rev().find(|(_, run)| *run == id).map_or(0, |(number, _)| *number);
                Some((number, time, id))
            })
            .collect();
        found.sort();
        found.into_iter().map(|(_, _, id)| id).collect()
    }

    /// How many files did not match their key.
    pub fn refused(&self) -> usize {
        fs::read_dir(self.path.join("refused")).map_or(0, Iterator::count)
    }

    fn result_file(&self, key: &Key) -> PathBuf {
        self.path.join("results").join(&key.as_str()[..2]).join(key.as_str())
    }

    /// Writes a file whole under its name, on the disk; false where the name is taken.
    fn link(&self, bytes: &[u8], file: &Path) -> Result<bool, HostError> {
        let new = self.write_new(bytes)?;
        let linked = match fs::hard_link(&new, file) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            // Some file systems have no links. The name may be taken in between, by a result that is as good.
            Err(error) if error.kind() == ErrorKind::Unsupported || no_links(&error) => match file.exists() {
                true => Ok(false),
                false => fs::rename(&new, file).map(|()| true),
            },
            Err(error) => Err(error),
        };
        let _ = fs::remove_file(&new);
        let linked = linked.map_err(HostError::io("write", file.display()))?;
        if linked && let Some(folder) = file.parent() {
            sync(folder);
        }
        Ok(linked)
    }

    /// A new file in `new/` whose bytes are on the disk.
    pub(crate) fn write_new(&self, bytes: &[u8]) -> Result<PathBuf, HostError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", crate::own_id());
        let file = self.path.join("new").join(name);
        let write = || {
            let mut open = File::create_new(&file)?;
            open.write_all(bytes)?;
            match bytes.is_empty() {
                true => Ok(()),
                false => open.sync_all(),
            }
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&file);
            HostError::io("write to the store", self.path.display())(error)
        })?;
        Ok(file)
    }

    /// Removes what killed writers left.
    fn sweep(&self) {
        for entry in fs::read_dir(self.path.join("new")).into_iter().flatten().flatten() {
            let age = entry.metadata().and_then(|data| data.modified()).map(|time| time.elapsed());
            if matches!(age, Ok(Ok(age)) if age > ABANDONED) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// The jobs of a run, one a line, in at most so many bytes: what is written has to be read again.
fn lines(jobs: &[Job], most: u64) -> Result<String, HostError> {
    let mut text = String::new();
    for (number, job) in jobs.iter().enumerate() {
        text += &serde_json::to_string(job).map_err(|error| HostError::Run(error.to_string()))?;
        text.push('\n');
        if text.len() as u64 > most {
            return Err(HostError::Usage(format!(
                "the run has {} jobs, and the first {} have more than {most} bytes; split the file of jobs",
                jobs.len(),
                number + 1
            )));
        }
    }
    Ok(text)
}

fn no_links(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EOPNOTSUPP | libc::ENOSYS | libc::EMLINK))
}

fn read_head(file: &Path) -> Result<String, HostError> {
    let name = file.display();
    let bytes = read(file, 1 << 20).ok_or_else(|| HostError::Usage(format!("cannot read {name}")))?;
    let head: Head =
        serde_json::from_slice(&bytes).map_err(|error| HostError::Usage(format!("{name}: {error}")))?;
    match head.format {
        FORMAT => Ok(head.id),
        other => Err(HostError::Usage(format!(
            "{name}: the store has format {other}, and this program knows {FORMAT}; update Guardrail"
        ))),
    }
}

/// Reads a file of at most `limit` bytes; `None` where it is absent or larger.
pub(crate) fn read(file: &Path, limit: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file).ok()?.take(limit + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= limit).then_some(bytes)
}

/// Puts names of a folder on the disk. Where that fails, a result may be gone after a loss of power; it is computed anew.
fn sync(folder: &Path) {
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
}

/// The end of a log.
fn tail(log: &str) -> &str {
    let mut start = log.len().saturating_sub(MOST_LOG);
    while !log.is_char_boundary(start) {
        start += 1;
    }
    &log[start..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Rehearsal, Spec};
    use std::collections::BTreeMap;

    fn job(seed: u64) -> Job {
        let spec = Spec::Rehearsal(Rehearsal { milliseconds: 0, seed, fails: false });
        Job { spec, inputs: BTreeMap::new(), build: "0".to_owned() }
    }

    fn outcome(key: &Key, worker: &str) -> Outcome {
        Outcome {
            key: key.clone(),
            status: 0,
            milliseconds: 1,
            worker: worker.to_owned(),
            body: b"{}".to_vec(),
        }
    }

    #[test]
    fn of_many_results_of_a_job_one_is_stored() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(&folder.path().join("a/b")).unwrap();
        let key = job(1).key();
        let new: usize = std::thread::scope(|scope| {
            let put = |n: usize| store.put(&outcome(&key, &n.to_string())).unwrap() == Kept::New;
            let all: Vec<_> = (0..8).map(|n| scope.spawn(move || put(n))).collect();
            all.into_iter().map(|one| usize::from(one.join().unwrap())).sum()
        });
        assert_eq!(new, 1);
        assert!(store.has(&key) && store.result(&key).is_some() && store.result(&job(2).key()).is_none());
        assert_eq!(fs::read_dir(store.path().join("new")).unwrap().count(), 0);
        assert_eq!(Store::open(store.path()).unwrap().id(), store.id());
    }

    #[test]
    fn a_result_that_does_not_match_is_computed_anew() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        let (one, other) = (job(1).key(), job(2).key());
        store.put(&outcome(&one, "w")).unwrap();
        // Another job's result, and a file that was cut.
        let file = store.result_file(&other);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::copy(store.result_file(&one), &file).unwrap();
        assert!(store.result(&other).is_none() && !store.has(&other));
        fs::write(&file, "{\"schema\":").unwrap();
        assert_eq!(store.put(&outcome(&other, "w")).unwrap(), Kept::New);
        assert_eq!(store.result(&other).unwrap().worker, "w");
        assert_eq!(store.refused(), 2);
    }

    #[test]
    fn a_job_is_set_aside_at_its_third_failure() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        let (job, key) = (job(1), job(1).key());
        let fail = |log: &str| store.fail(&key, &job, &Attempt::begin(), log).unwrap();
        assert!(!fail("1") && !fail("2"));
        assert!(!store.is_over(&key) && store.failures(&key) == 2);
        let long = format!("é{}", "x".repeat(MOST_LOG));
        assert!(fail(&long) && store.is_over(&key) && fail("4"));
        let aside = store.aside(&key).unwrap();
        assert_eq!((aside.attempts, aside.log.len()), (3, MOST_LOG));
        store.forgive(&key).unwrap();
        assert!(!store.is_over(&key) && store.failures(&key) == 0);
    }

    #[test]
    fn an_attempt_that_is_noted_again_counts_once() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        let (job, key, attempt) = (job(1), job(1).key(), Attempt::begin());
        for _ in 0..2 * ATTEMPTS {
            assert!(!store.fail(&key, &job, &attempt, "1").unwrap());
        }
        assert_eq!(store.failures(&key), 1);
    }

    #[test]
    fn a_store_that_cannot_be_written_is_refused_in_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Store::create(&file).unwrap_err();
        assert!(error.to_string().starts_with("cannot create"), "{error}");
        let error = Store::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("is no store of results"), "{error}");
        let store = Store::create(&folder.path().join("store")).unwrap();
        fs::write(store.path().join("store.json"), r#"{"format":2,"id":"x"}"#).unwrap();
        assert!(Store::open(store.path()).unwrap_err().to_string().contains("format 2"));
        fs::remove_dir(store.path().join("new")).unwrap();
        assert!(store.probe().unwrap_err().to_string().starts_with("cannot write to the store"));
    }

    #[test]
    fn runs_are_kept_and_named_safely() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        store.keep_run("0123456789abcdef", &[job(1), job(2)]).unwrap();
        assert_eq!(store.run("0123456789abcdef").unwrap(), [job(1), job(2)]);
        assert_eq!(store.runs(), ["0123456789abcdef"]);
        assert!(store.run("../../x").is_err() && store.run("fedcba9876543210").is_err());
    }

    #[test]
    fn the_run_that_was_started_last_is_last_whatever_the_clock_says() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        let [one, two] = ["1111111111111111", "2222222222222222"];
        store.keep_run(one, &[job(1)]).unwrap();
        store.keep_run(two, &[job(2)]).unwrap();
        // The clock of the second run's machine is late.
        let file = File::options().write(true).open(store.path().join("runs").join(two).join("jobs.jsonl"));
        file.unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(store.runs(), [one, two]);
        // A run that goes on is the newest.
        store.keep_run(one, &[job(1)]).unwrap();
        assert_eq!(store.runs(), [two, one]);
        assert_eq!(store.order().len(), 2);
    }

    #[test]
    fn jobs_that_could_not_be_read_again_are_refused() {
        let jobs = [job(1), job(2)];
        let length = lines(&jobs, MOST_JOBS).unwrap().len() as u64;
        assert!(lines(&jobs, length).is_ok());
        let error = lines(&jobs, length - 1).unwrap_err();
        assert_eq!(error.status() as u8, 2);
        assert!(error.to_string().ends_with("split the file of jobs"), "{error}");
    }
}
