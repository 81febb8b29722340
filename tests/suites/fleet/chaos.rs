//! A run of which something is killed again and again, until each job has its result.

use crate::servers::Server;
use guardrail_host::process::kill_with_parent;
use guardrail_tests::processes::runs;
use guardrail_tests::{ensure, program};
use libtest_mimic::Failed;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The number of workers.
const WORKERS: u32 = 4;
/// The most workers that are killed at a time.
const MOST_AT_ONCE: u64 = 3;
/// How long a run may take.
const LIMIT: Duration = Duration::from_secs(600);

/// How large a trial is.
#[derive(Clone, Copy)]
pub struct Size {
    /// The number of jobs.
    pub jobs: u64,
    /// How long each takes.
    pub milliseconds: u64,
    /// The time between two kills.
    pub every: Duration,
}

/// A run with kills.
pub struct Chaos {
    engine: String,
    size: Size,
    folder: tempfile::TempDir,
    environment: Vec<(OsString, OsString)>,
    /// Workers that the test starts, where the engine starts none.
    workers: Vec<Option<Child>>,
    random: u64,
    kills: Vec<String>,
    /// The workers that the test killed.
    killed: BTreeSet<u32>,
}

/// What can be killed.
#[derive(Clone, Copy)]
enum Victim {
    Worker,
    Server,
    Controller,
}

/// The order of kills is the same in each trial; when they come in the work of a victim is not.
const VICTIMS: [Victim; 4] = [Victim::Worker, Victim::Server, Victim::Controller, Victim::Worker];

impl Chaos {
    /// Prepares a run of rehearsals.
    pub fn new(engine: &str, size: Size) -> Result<Chaos, Failed> {
        let folder = tempfile::tempdir()?;
        let job = |seed| {
            let milliseconds = size.milliseconds;
            format!(
                "{{\"version\":1,\"kind\":\"rehearsal\",\"milliseconds\":{milliseconds},\"seed\":{seed}}}\n"
            )
        };
        fs::write(folder.path().join("jobs"), (0..size.jobs).map(job).collect::<String>())?;
        Ok(Chaos {
            engine: engine.to_owned(),
            size,
            folder,
            environment: Vec::new(),
            workers: Vec::new(),
            random: u64::from(std::process::id()),
            kills: Vec::new(),
            killed: BTreeSet::new(),
        })
    }

    /// Variables for the controller.
    pub fn environment(&mut self, variables: Vec<(OsString, OsString)>) {
        self.environment = variables;
    }

    /// Starts workers that belong to no controller.
    pub fn own_workers(&mut self) -> Result<(), Failed> {
        for index in 0..WORKERS {
            let worker = self.worker(index)?;
            self.workers.push(Some(worker));
        }
        Ok(())
    }

    fn worker(&self, index: u32) -> Result<Child, Failed> {
        let mut command = Command::new(program());
        command.args(["fleet", "work", "--engine", &self.engine, "--index", &index.to_string()]);
        self.spawn(command, "workers")
    }

    fn controller(&self) -> Result<Child, Failed> {
        let mut command = Command::new(program());
        command.args(["fleet", "run"]).arg(self.folder.path().join("jobs")).arg("--store").arg(self.store());
        command.args(["--engine", &self.engine]);
        if self.workers.is_empty() {
            command.args(["--workers", &WORKERS.to_string()]);
        }
        self.spawn(command, "controller")
    }

    fn spawn(&self, mut command: Command, log: &str) -> Result<Child, Failed> {
        let log = self.folder.path().join(log);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(File::create(self.folder.path().join("table"))?);
        command.stderr(File::options().create(true).append(true).open(log)?);
        kill_with_parent(&mut command);
        Ok(command.spawn()?)
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Runs until the controller ends by itself, and looks at the store.
    pub fn run(mut self, servers: &mut [&mut Server]) -> Result<(), Failed> {
        let began = Instant::now();
        let mut controller = Guard(self.controller()?);
        let mut next = began + self.size.every;
        let status = loop {
            // A controller that the test killed was replaced at once, so that this one ended by itself.
            if let Some(status) = controller.0.try_wait()? {
                break status;
            }
            self.revive()?;
            if Instant::now() > next {
                next = Instant::now() + self.size.every;
                self.kill(&mut controller, servers)?;
            }
            ensure(began.elapsed() < LIMIT, || format!("the run does not end\n{}", self.said()))?;
            std::thread::sleep(Duration::from_millis(20));
        };
        let took = began.elapsed().as_secs_f64();
        ensure(status.success(), || format!("the controller ended with {status}\n{}", self.said()))?;
        let times = |what: &str| self.kills.iter().filter(|kill| kill.starts_with(what)).count();
        let enough = times("worker") >= 2 && times("controller") >= 1;
        ensure(enough, || format!("the run was too short; killed: {}", self.kills.join(", ")))?;
        self.count()?;
        let ideal = (self.size.jobs * self.size.milliseconds) as f64 / 1000.0 / f64::from(WORKERS);
        println!(
            "{} jobs of {} ms, {WORKERS} workers, {}: {took:.1} s, {:.0}% of the ideal; killed: {}",
            self.size.jobs,
            self.size.milliseconds,
            self.engine.split(':').next().unwrap_or_default(),
            100.0 * ideal / took,
            self.kills.join(", "),
        );
        Ok(())
    }

    /// Starts workers of the test again that it killed. One that ends in any other way fails the test.
    fn revive(&mut self) -> Result<(), Failed> {
        for index in 0..self.workers.len() {
            let Some(worker) = &mut self.workers[index] else { continue };
            let Some(status) = worker.try_wait()? else { continue };
            let ours = self.killed.remove(&worker.id()) && status.signal() == Some(libc::SIGKILL);
            ensure(ours, || format!("worker {index} ended with {status}\n{}", self.said()))?;
            self.workers[index] = Some(self.worker(index as u32)?);
        }
        Ok(())
    }

    /// Kills one of what runs.
    fn kill(&mut self, controller: &mut Guard, servers: &mut [&mut Server]) -> Result<(), Failed> {
        let victim = VICTIMS[self.kills.len() % VICTIMS.len()];
        match victim {
            Victim::Server if !servers.is_empty() => {
                let number = self.kills.len() / VICTIMS.len() % servers.len();
                servers[number].kill()?;
                self.kills.push(servers[number].what().to_owned());
            }
            Victim::Controller => {
                controller.0.kill()?;
                let status = controller.0.wait()?;
                let ours = status.signal() == Some(libc::SIGKILL);
                // A run may be over in the moment of the kill.
                ensure(ours || status.success(), || format!("the controller ended with {status}"))?;
                *controller = Guard(self.controller()?);
                self.kills.push("controller".to_owned());
            }
            _ => {
                let mut workers = self.running_workers();
                // In a moment without workers, such as after the controller's start, the next look finds some.
                if workers.is_empty() {
                    return Ok(());
                }
                let count = 1 + self.below(MOST_AT_ONCE.min(workers.len() as u64));
                for _ in 0..count {
                    let number = self.below(workers.len() as u64) as usize;
                    let worker = workers.swap_remove(number);
                    // SAFETY: kill takes plain numbers. The process was there a moment ago.
                    unsafe { libc::kill(worker as i32, libc::SIGKILL) };
                    self.killed.insert(worker);
                }
                self.kills.push(format!("worker ×{count}"));
            }
        }
        Ok(())
    }

    /// The processes of this run's workers, by whatever engine they were started.
    fn running_workers(&self) -> Vec<u32> {
        if !self.workers.is_empty() {
            return self.workers.iter().flatten().map(Child::id).collect();
        }
        let store = self.store().display().to_string();
        let worker = |name: OsString| {
            let id: u32 = name.to_str()?.parse().ok()?;
            let words = fs::read(format!("/proc/{id}/cmdline")).ok()?;
            let words: Vec<String> = words
                .split(|byte| *byte == 0)
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect();
            let ours = words.contains(&store) && words.get(1..3)? == ["fleet", "work"];
            (ours && runs(id)).then_some(id)
        };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| worker(entry.file_name())).collect()
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % end
    }

    /// Each job has one result, which is its own; the tables say so, too.
    fn count(&self) -> Result<(), Failed> {
        let (jobs, store) = (self.size.jobs, self.store());
        let mut seeds = BTreeSet::new();
        let mut files = 0;
        for file in results(&store) {
            files += 1;
            let bytes = fs::read(&file)?;
            let mut lines = bytes.split(|byte| *byte == b'\n');
            let mut line = || serde_json::from_slice::<Value>(lines.next().unwrap_or_default());
            let (head, body) = (line()?, line()?);
            let name = file.file_name().and_then(|name| name.to_str());
            ensure(head["key"].as_str() == name, || format!("{} is {}", file.display(), head["key"]))?;
            seeds.insert(body["rehearsal"].as_u64().ok_or("a rehearsal has a seed")?);
        }
        ensure(files == jobs && seeds == (0..jobs).collect(), || {
            format!("{files} results with {} seeds; expected {jobs}\n{}", seeds.len(), self.said())
        })?;
        let table = fs::read_to_string(self.folder.path().join("table"))?;
        let row = |name: &str| -> Result<u64, Failed> {
            let line = table.lines().find_map(|line| line.strip_prefix(name));
            Ok(line.ok_or(format!("no row '{name}' in\n{table}"))?.trim().parse()?)
        };
        let counted = row("results before")? + row("results computed")?;
        ensure(counted == jobs && row("set aside")? == 0, || {
            format!("the table counts otherwise:\n{table}")
        })?;
        let store = store.display().to_string();
        let shown = guardrail_tests::guardrail(&["fleet", "status", "--store", &store]).with(&[0])?;
        let cells: Vec<&str> =
            shown.stdout.lines().nth(1).unwrap_or_default().split_whitespace().skip(1).collect();
        let jobs = jobs.to_string();
        ensure(cells == [jobs.as_str(), jobs.as_str(), "0", "0", "0"], || shown.said())
    }

    /// The last words of all that ran.
    fn said(&self) -> String {
        let text = |name: &str| fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        let last = |text: String| {
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(10)..].join("\n")
        };
        let (controller, workers) = (last(text("controller")), last(text("workers")));
        format!("killed: {}\ncontroller:\n{controller}\nworkers:\n{workers}", self.kills.join(", "))
    }
}

impl Drop for Chaos {
    fn drop(&mut self) {
        for worker in self.workers.iter_mut().flatten() {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

/// A process that does not outlive the test.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The files of results in a store.
fn results(store: &Path) -> Vec<PathBuf> {
    let listed =
        |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    listed(store.join("results")).flat_map(listed).collect()
}
