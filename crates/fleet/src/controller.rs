//! The controller of a run: it hands the jobs to an engine, waits until each has a result or is set aside, and sums up.
//!
//! All that it knows is in the store, so that it may be killed, and the same command goes on.

use crate::canonical::digest;
use crate::compute::last_words;
use crate::engine::{Engine, EngineKind, Run};
use crate::job::{Job, Key, Resolver};
use crate::spec::Spec;
use crate::store::Store;
use guardrail_host::{Host, HostError, Status, files};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The most bytes of a file of specifications.
const MOST_SPECS: u64 = 256 << 20;
/// The shortest time between two looks at the store.
const LOOK: Duration = Duration::from_millis(200);
/// The longest time between two looks, unless a look itself takes long.
const LONGEST_LOOK: Duration = Duration::from_secs(1);
/// How often results that turn out not to match are computed anew in one run.
const REPAIRS: usize = 3;

/// What `guardrail fleet run` does.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// The file of specifications, a JSON object a line.
    pub jobs: PathBuf,
    /// The store's folder.
    pub store: PathBuf,
    /// How workers are started.
    pub engine: EngineKind,
    /// The number of workers; the engine's usual number where absent.
    pub workers: Option<u32>,
    /// True to try again what was set aside.
    pub retry: bool,
    /// How long a server may be away.
    pub outage: Duration,
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// The run's id.
    pub run: String,
    /// The engine's name.
    pub engine: String,
    /// The number of workers.
    pub workers: u32,
    /// Different jobs.
    pub jobs: usize,
    /// Lines that named a job again.
    pub repeated: usize,
    /// Jobs whose results were there before.
    pub known: usize,
    /// Jobs whose results were computed in this run.
    pub new: usize,
    /// Jobs that failed too often: names and last words.
    pub aside: Vec<(String, String)>,
    /// Results by exit status.
    pub statuses: Vec<(u8, usize)>,
    /// The time of the run, in seconds.
    pub seconds: f64,
    /// The time that the new results took to compute, in seconds.
    pub busy: f64,
}

/// Reads specifications, one a line.
pub fn specs(file: &Path) -> Result<Vec<Spec>, HostError> {
    let text = files::text(file, MOST_SPECS, "a job a line, as JSON")?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let specs: Vec<Spec> = lines
        .map(|(number, line)| Spec::read(&format!("{} line {}", file.display(), number + 1), line))
        .collect::<Result<_, _>>()?;
    match specs.is_empty() {
        true => Err(HostError::Usage(format!("{} has no job", file.display()))),
        false => Ok(specs),
    }
}

/// Runs the jobs, and returns when each has a result or is set aside.
pub fn run(plan: &RunPlan, host: &Host, build: &str) -> Result<Summary, HostError> {
    let specs = specs(&plan.jobs)?;
    let store = Store::create(&plan.store)?;
    let mut engine = plan.engine.open(plan.outage)?;
    let mut resolver = Resolver::new(host, build);
    let (mut jobs, mut keys, mut repeated) = (Vec::new(), HashSet::new(), 0);
    for spec in specs {
        let job = resolver.job(spec)?;
        match keys.insert(job.key()) {
            true => jobs.push(job),
            false => repeated += 1,
        }
    }
    let all: Vec<Key> = jobs.iter().map(Job::key).collect();
    let id = digest(&all.iter().map(|key| key.as_str().as_bytes()).collect::<Vec<_>>())[..16].to_owned();
    for key in all.iter().filter(|_| plan.retry) {
        store.forgive(key)?;
    }
    store.keep_run(&id, &jobs)?;
    store.forget_unfit();
    host.signals.run_begins();
    let started = Instant::now();
    let known: HashSet<&Key> = all.iter().filter(|key| store.result(key).is_some()).collect();
    let workers = plan.workers.unwrap_or_else(|| engine.usual_workers());
    if workers == 0 && !matches!(plan.engine, EngineKind::Nats(_)) {
        return Err(HostError::Usage(format!(
            "--workers 0 leaves the engine '{}' without workers; only those of NATS are started apart",
            plan.engine
        )));
    }
    let mut run = Run { store: &store, id: &id, left: Vec::new(), workers, host };
    for _ in 0..REPAIRS {
        // Each result is read again at the end: what does not match is refused, and computed anew.
        let over = |key: &Key| store.result(key).is_some() || store.aside(key).is_some();
        run.left = all.iter().cloned().zip(jobs.iter().cloned()).filter(|(key, _)| !over(key)).collect();
        if run.left.is_empty() {
            break;
        }
        drive(engine.as_mut(), &mut run, all.len())?;
    }
    host.progress.finish();
    let summary = Summary {
        run: id.clone(),
        engine: plan.engine.to_string(),
        workers,
        jobs: all.len(),
        repeated,
        known: known.len(),
        seconds: started.elapsed().as_secs_f64(),
        ..Summary::default()
    };
    Ok(summed(summary, &store, &all, &known))
}

/// Lets an engine work until nothing is left.
fn drive(engine: &mut dyn Engine, run: &mut Run<'_>, all: usize) -> Result<(), HostError> {
    let result = engine.start(run).and_then(|()| {
        let mut shown = Instant::now();
        loop {
            let looked = Instant::now();
            run.left.retain(|(key, _)| !run.store.is_over(key));
            if run.left.is_empty() {
                return Ok(());
            }
            if run.host.signals.interrupted() {
                return Err(HostError::Interrupted);
            }
            if shown.elapsed() > Duration::from_secs(2) {
                shown = Instant::now();
                run.host.progress.step(&format!("{} of {all} jobs are left", run.left.len()));
            }
            // Looking at a store with many jobs takes time; most of the time is left to others.
            let took = looked.elapsed();
            engine.wait(run, (took * 20).clamp(LOOK, LONGEST_LOOK.max(took * 3)))?;
        }
    });
    engine.stop(run);
    result
}

fn summed(mut summary: Summary, store: &Store, all: &[Key], known: &HashSet<&Key>) -> Summary {
    for key in all {
        match store.result(key) {
            Some(outcome) => {
                if !known.contains(key) {
                    summary.new += 1;
                    summary.busy += outcome.milliseconds as f64 / 1000.0;
                }
                match summary.statuses.iter_mut().find(|(status, _)| *status == outcome.status) {
                    Some((_, count)) => *count += 1,
                    None => summary.statuses.push((outcome.status, 1)),
                }
            }
            None => {
                let aside = store.aside(key).map(|aside| (aside.name, last_words(&aside.log)));
                summary.aside.push(aside.unwrap_or_else(|| {
                    (key.to_string(), "its results did not match their key, again and again".to_owned())
                }));
            }
        }
    }
    summary.statuses.sort_unstable();
    summary
}

/// The exit status: jobs without a result have precedence over findings.
pub fn judge(summary: &Summary) -> Result<Status, HostError> {
    let aside = summary.aside.len();
    if aside > 0 {
        let all = summary.jobs;
        return Err(HostError::Run(format!(
            "{aside} of {all} jobs failed and are set aside; the table says why, and --retry tries them again"
        )));
    }
    let order = [Status::Findings, Status::Contained, Status::Undecided, Status::NotExercised];
    let has = |status: &Status| summary.statuses.iter().any(|(found, _)| *found == *status as u8);
    Ok(order.into_iter().find(has).unwrap_or(Status::Clean))
}

impl Summary {
    /// The share of the workers' time that went into results, in percent; `None` where nothing was computed.
    pub fn share(&self) -> Option<f64> {
        let time = f64::from(self.workers) * self.seconds;
        (self.new > 0 && time > 0.0).then(|| 100.0 * self.busy / time)
    }

    /// The rows of the table: names and values.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![
            ["run".to_owned(), self.run.clone()],
            ["engine".to_owned(), self.engine.clone()],
            ["workers".to_owned(), self.workers.to_string()],
            ["jobs".to_owned(), self.jobs.to_string()],
            ["results before".to_owned(), self.known.to_string()],
            ["results computed".to_owned(), self.new.to_string()],
            ["set aside".to_owned(), self.aside.len().to_string()],
            ["seconds".to_owned(), format!("{:.1}", self.seconds)],
        ];
        if self.repeated > 0 {
            rows.insert(4, ["lines with a job again".to_owned(), self.repeated.to_string()]);
        }
        if let Some(share) = self.share() {
            rows.push(["jobs a second".to_owned(), format!("{:.1}", self.new as f64 / self.seconds)]);
            rows.push(["share of the workers' time".to_owned(), format!("{share:.0}%")]);
        }
        rows.extend(
            self.statuses.iter().map(|(status, count)| [format!("status {status}"), count.to_string()]),
        );
        rows.extend(self.aside.iter().map(|(name, why)| [name.clone(), why.clone()]));
        rows.into_iter().map(Vec::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_job() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("jobs");
        std::fs::write(&file, "\n{\"version\":1,\"kind\":\"rehearsal\",\"milliseconds\":1}\n\n").unwrap();
        assert_eq!(specs(&file).unwrap().len(), 1);
        std::fs::write(&file, "{\"version\":1,\"kind\":\"rehearsal\",\"milliseconds\":1}\n{\"version\":3}\n")
            .unwrap();
        let error = specs(&file).unwrap_err().to_string();
        assert!(error.contains("jobs line 2: version 3 is newer"), "{error}");
        std::fs::write(&file, "\n").unwrap();
        assert!(specs(&file).unwrap_err().to_string().ends_with("has no job"));
    }

    #[test]
    fn what_failed_outweighs_findings() {
        let mut summary = Summary { statuses: vec![(0, 5), (6, 1)], ..Summary::default() };
        assert_eq!(judge(&summary).unwrap(), Status::NotExercised);
        summary.statuses.push((1, 1));
        assert_eq!(judge(&summary).unwrap(), Status::Findings);
        summary.aside.push(("a".into(), "b".into()));
        assert_eq!(judge(&summary).unwrap_err().status(), Status::RunFailed);
        assert_eq!(judge(&Summary::default()).unwrap(), Status::Clean);
        assert_eq!(summary.share(), None);
    }
}
