//! A worker that shares a store with others: it takes jobs of a run until none is left.

use crate::attempt::Attempt;
use crate::claims::{self, Claim, Claimed, Claims, LOST};
use crate::compute::{Computed, Computer, last_words};
use crate::job::{Job, Key};
use crate::outcome::Outcome;
use crate::store::Store;
use crate::unfit::{Row, Unfit};
use guardrail_host::{Host, HostError};
use std::collections::HashSet;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The shortest and the longest time between two looks where others compute all that is left.
const LOOKS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// How long a worker that is to end waits for its last result to be on the disk.
const LAST: Duration = Duration::from_secs(5);

/// What a worker works on.
#[derive(Clone, Debug)]
pub struct WorkPlan {
    /// The store's folder.
    pub store: PathBuf,
    /// The run's id; the newest run where absent.
    pub run: Option<String>,
    /// The worker's number among those of its run. A worker that is started again has the same one.
    pub index: u32,
    /// How many workers there are; each begins at another part of the jobs.
    pub of: u32,
}

/// What a worker has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Worked {
    /// Results that it computed.
    pub computed: usize,
    /// Attempts that failed.
    pub failed: usize,
    /// Jobs that went back since this machine could not compute them.
    pub given_back: usize,
}

/// Works until no job of the run is left.
pub fn work(plan: &WorkPlan, host: &Host, build: &str) -> Result<Worked, HostError> {
    let store = Store::open(&plan.store)?;
    store.probe()?;
    let run = match &plan.run {
        Some(run) => run.clone(),
        None => store
            .runs()
            .pop()
            .ok_or_else(|| HostError::Usage(format!("{} has no run yet", store.path().display())))?,
    };
    let jobs = store.run(&run)?;
    if let Some(job) = jobs.iter().find(|job| job.build != build) {
        return Err(HostError::Usage(format!(
            "run {run} is for guardrail {}, and this is {build}; use the same build on all machines",
            job.build
        )));
    }
    host.signals.run_begins();
    let worker = format!("{run}/{}", plan.index);
    let _name = claims::alone(&store, &worker, host)?;
    let name = format!("{}-{}", crate::machine(), plan.index);
    let mut worker = Worker {
        claims: Claims::new(&store, &worker),
        computer: Computer::new(host, build, &name),
        name,
        store,
        host,
        worked: Worked::default(),
        row: Row::default(),
        given: HashSet::new(),
        last: None,
        writing: None,
    };
    // Workers that begin at different places seldom want the same job.
    let count = jobs.len();
    let start = count * plan.index as usize / plan.of.max(1) as usize % count.max(1);
    let mut left: Vec<(Key, &Job)> =
        jobs[start..].iter().chain(&jobs[..start]).map(|job| (job.key(), job)).collect();
    let mut wait = LOOKS[0];
    loop {
        let before = worker.worked;
        let mut still = Vec::new();
        for (key, job) in left {
            if host.signals.interrupted() {
                return Err(HostError::Interrupted);
            }
            if !worker.take(&key, job)? {
                still.push((key, job));
            }
        }
        // What this worker still writes has a claim of its own name, which the next pass would take over.
        worker.settle()?;
        if still.is_empty() {
            return Ok(worker.worked);
        }
        if still.iter().all(|(key, _)| worker.given.contains(key))
            && let Some(unfit) = worker.last.take()
        {
            return Err(worker.set_aside(unfit));
        }
        left = still;
        wait = if worker.worked == before { (wait * 2).min(LOOKS[1]) } else { LOOKS[0] };
        std::thread::sleep(wait);
    }
}

struct Worker<'a> {
    store: Store,
    claims: Claims,
    computer: Computer<'a>,
    host: &'a Host,
    name: String,
    worked: Worked,
    row: Row,
    /// Jobs whose inputs are others here: they are for other machines.
    given: HashSet<Key>,
    /// The note about the last of these.
    last: Option<Unfit>,
    /// The last result on its way to the disk, which may take longer than a short job. Its claim is held until it is there.
    writing: Option<JoinHandle<Result<(), HostError>>>,
}

impl Worker<'_> {
    /// Waits until the last result is on the disk.
    fn settle(&mut self) -> Result<(), HostError> {
        self.writing.take().map_or(Ok(()), |writing| written(writing, self.host))
    }

    /// Stores a result while the next job is computed; one at a time, so that little is lost when the worker is killed.
    fn store(&mut self, outcome: Outcome, claim: Claim) -> Result<(), HostError> {
        self.settle()?;
        let store = self.store.clone();
        let write = move || {
            let stored = store.put(&outcome).map(drop);
            drop(claim);
            stored
        };
        let writer = std::thread::Builder::new().name("result".to_owned()).spawn(write);
        self.writing = Some(writer.map_err(HostError::io("start", "the writer of a result"))?);
        Ok(())
    }

    /// Computes a job, unless it is over or another worker has it; true where it is over.
    fn take(&mut self, key: &Key, job: &Job) -> Result<bool, HostError> {
        if self.store.is_over(key) {
            return Ok(true);
        }
        if self.given.contains(key) {
            return Ok(false);
        }
        let claim = match self.claims.claim(key)? {
            Claimed::Own(claim) => claim,
            Claimed::Other => return Ok(false),
            Claimed::Deadly => {
                let log = format!("{LOST} workers gave it back, or ended while they computed it");
                return self.failed(key, job, &log);
            }
        };
        // Another worker may have stored its result before it gave up its claim.
        if self.store.is_over(key) {
            return Ok(true);
        }
        let computed = self.computer.compute(job);
        if matches!(computed, Computed::Done(_) | Computed::Failed(_)) && self.row.over() {
            self.store.is_fit(&self.name);
        }
        match computed {
            Computed::Done(outcome) => {
                self.store(outcome, claim)?;
                self.worked.computed += 1;
                Ok(true)
            }
            Computed::Failed(log) => self.failed(key, job, &log),
            Computed::Unfit(why) => self.unfit(None, job, claim, &why).map(|()| false),
            Computed::Foreign(why) => self.unfit(Some(key), job, claim, &why).map(|()| false),
            Computed::Interrupted => Err(HostError::Interrupted),
        }
    }

    /// Gives a job back that this machine cannot compute, and leaves jobs to others for a while; an error after several.
    fn unfit(&mut self, foreign: Option<&Key>, job: &Job, claim: Claim, why: &str) -> Result<(), HostError> {
        claim.give_back();
        self.worked.given_back += 1;
        self.given.extend(foreign.cloned());
        let unfit = self.row.more(foreign, &self.name, &last_words(why));
        self.host.progress.step(&format!("{} goes back: {}", job.spec.name(), unfit.why));
        // Where the store's disk is full, too, the note is lost, and nothing else.
        let _ = self.store.note_unfit(&unfit);
        if unfit.aside {
            return Err(unfit.error());
        }
        unfit.wait(self.host);
        self.last = Some(unfit);
        if self.host.signals.interrupted() { Err(HostError::Interrupted) } else { Ok(()) }
    }

    /// Notes that the worker ends, since all that is left is for other machines; the error says so.
    fn set_aside(&self, unfit: Unfit) -> HostError {
        let unfit = Unfit { aside: true, ..unfit };
        let _ = self.store.note_unfit(&unfit);
        unfit.error()
    }

    fn failed(&mut self, key: &Key, job: &Job, log: &str) -> Result<bool, HostError> {
        self.worked.failed += 1;
        self.host.progress.step(&format!("{}: {}", job.spec.name(), last_words(log)));
        self.store.fail(key, job, &Attempt::begin(), log)
    }
}

/// Waits until a result is on the disk. A worker that is interrupted leaves it to its writer after a while: a disk may be away.
fn written(writing: JoinHandle<Result<(), HostError>>, host: &Host) -> Result<(), HostError> {
    let mut asked = None;
    while !writing.is_finished() {
        if host.signals.interrupted() && asked.get_or_insert_with(Instant::now).elapsed() > LAST {
            return Err(HostError::Interrupted);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    writing.join().unwrap_or_else(|_| Err(HostError::Run("the writer of a result died".to_owned())))
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        // A worker that was interrupted keeps what it has computed.
        let _ = self.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Rehearsal, Spec};
    use std::collections::BTreeMap;

    const RUN: &str = "0123456789abcdef";

    fn jobs(count: u64) -> Vec<Job> {
        let spec = |seed| Spec::Rehearsal(Rehearsal { milliseconds: 5, seed, fails: seed == 7 });
        let job = |seed| Job { spec: spec(seed), inputs: BTreeMap::new(), build: "0".to_owned() };
        (0..count).map(job).collect()
    }

    #[test]
    fn workers_share_the_jobs_and_set_aside_what_fails() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        store.keep_run(RUN, &jobs(40)).unwrap();
        let worked: Vec<Worked> = std::thread::scope(|scope| {
            let one = |index| {
                let plan = WorkPlan { store: folder.path().into(), run: Some(RUN.into()), index, of: 3 };
                scope.spawn(move || work(&plan, &Host::embedded().unwrap(), "0").unwrap())
            };
            let all: Vec<_> = (0..3).map(one).collect();
            all.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        assert_eq!(worked.iter().map(|worked| worked.computed).sum::<usize>(), 39);
        assert_eq!(worked.iter().map(|worked| worked.failed).sum::<usize>(), 3);
        let over: Vec<bool> = jobs(40).iter().map(|job| store.result(&job.key()).is_some()).collect();
        assert_eq!(over.iter().filter(|over| !**over).count(), 1);
        assert_eq!(store.aside(&jobs(40)[7].key()).unwrap().log, "rehearsal 7 was asked to fail");
    }

    #[test]
    fn a_worker_of_another_build_ends_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::embedded().unwrap();
        let plan = WorkPlan { store: folder.path().into(), run: None, index: 0, of: 1 };
        assert!(work(&plan, &host, "0").unwrap_err().to_string().contains("is no store"));
        let store = Store::create(folder.path()).unwrap();
        assert!(work(&plan, &host, "0").unwrap_err().to_string().ends_with("has no run yet"));
        store.keep_run(RUN, &jobs(1)).unwrap();
        let error = work(&plan, &host, "9").unwrap_err().to_string();
        assert!(error.ends_with("and this is 9; use the same build on all machines"), "{error}");
    }

    #[test]
    fn a_job_that_no_machine_can_compute_ends_the_workers_and_counts_no_failure() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        let inputs = BTreeMap::from([("driver".to_owned(), "1".to_owned())]);
        let mut all = jobs(3);
        all[1] = Job { inputs, ..all[1].clone() };
        store.keep_run(RUN, &all).unwrap();
        let plan = WorkPlan { store: folder.path().into(), run: Some(RUN.into()), index: 0, of: 1 };
        let error = work(&plan, &Host::embedded().unwrap(), "0").unwrap_err();
        assert_eq!(error.status() as u8, 75);
        assert!(error.to_string().contains("the driver of rehearsal 1"), "{error}");
        let [one, two, three] = [0, 1, 2].map(|number: usize| all[number].key());
        assert!(store.has(&one) && store.has(&three) && !store.is_over(&two));
        assert_eq!(store.failures(&two), 0);
        let notes = store.unfit();
        assert!(notes.len() == 1 && notes[0].aside && notes[0].worker.ends_with("-0"), "{notes:?}");
    }

    #[test]
    fn a_worker_whose_disk_is_away_ends_at_a_signal() {
        let host = Host::open().unwrap();
        host.signals.run_begins();
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let writing = std::thread::spawn(move || {
            let _ = receiver.recv();
            Ok(())
        });
        // SAFETY: the call takes a plain number; the handler of this signal was installed above.
        unsafe { libc::raise(libc::SIGHUP) };
        let began = Instant::now();
        let error = written(writing, &host).unwrap_err();
        assert!(matches!(error, HostError::Interrupted) && began.elapsed() < 2 * LAST);
        drop(sender);
    }
}
