//! Runs of which a process is killed at any moment: what stays after them is gone after the next run, which is right.

use guardrail_tests::processes::{descendants, runs};
use guardrail_tests::{ensure, program};
use guardrail_vm::Cache;
use libtest_mimic::{Arguments, Failed, Trial};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How many runs are killed, always and with `--ignored`.
const KILLS: [(u32, bool); 2] = [(6, false), (200, true)];
/// The longest time from a run's start to the kill, in milliseconds: about what a run takes.
const LATEST: u64 = 9000;
/// How long the processes of a killed run may stay.
const LEAVING: Duration = Duration::from_secs(10);
/// How long a run may go on of which another process was killed.
const ENDING: Duration = Duration::from_secs(300);
/// What a run fetches, unpacks or builds by itself when it is not there; the rest of the cache is shared.
const OWN: [&str; 2] = ["guest", "zoo"];
/// The beginnings of the names of what belongs to a run.
const LEFT: [&str; 2] = ["guardrail-", "new-"];

fn main() {
    let trials = KILLS.map(|(count, long)| {
        let name = format!("nothing stays of {count} runs that were killed");
        Trial::test(name, move || nothing_stays(count)).with_ignored_flag(long)
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit()
}

/// A cache of its own, which links to what is in the machine's, and a folder for temporary files.
struct Scratch {
    folder: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Result<Scratch, Failed> {
        let scratch = Scratch { folder: tempfile::tempdir()? };
        for folder in [scratch.cache(), scratch.temporary()] {
            fs::create_dir(folder)?;
        }
        for entry in fs::read_dir(Cache::open()?.root())?.flatten() {
            let name = entry.file_name();
            if !OWN.iter().chain(&["unfinished", "locks", "booted"]).any(|own| name == *own) {
                std::os::unix::fs::symlink(entry.path(), scratch.cache().join(name))?;
            }
        }
        Ok(scratch)
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn temporary(&self) -> PathBuf {
        self.folder.path().join("tmp")
    }

    fn run(&self) -> Result<Run, Failed> {
        let child = Command::new(program())
            .args(["check", "zoo/leak"])
            .env("GUARDRAIL_CACHE", self.cache())
            .env("TMPDIR", self.temporary())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Run(child))
    }

    /// What belongs to no process that runs.
    fn left(&self) -> Vec<PathBuf> {
        let folders = [
            self.temporary(),
            self.cache().join("unfinished"),
            self.cache().join("booted"),
            PathBuf::from("/dev/shm"),
        ];
        let entries = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        let of_a_run = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            LEFT.iter().any(|beginning| name.starts_with(beginning)) && !is_held(path)
        };
        paths.filter(of_a_run).collect()
    }
}

/// Whether a process holds the lock on a folder.
fn is_held(folder: &Path) -> bool {
    let Ok(file) = File::open(folder) else { return true };
    // SAFETY: flock on a descriptor that `file` keeps open.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) != 0 }
}

/// A run that does not outlive the test.
struct Run(Child);

impl Run {
    fn end(&mut self, limit: Duration) -> Result<Option<i32>, Failed> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status.code());
            }
            if Instant::now() > deadline {
                return Err("the run goes on".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The command line of a process.
fn words(process: u32) -> String {
    fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default().replace('\0', " ")
}

/// Numbers that are the same in each run of the test.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn nothing_stays(count: u32) -> Result<(), Failed> {
    let scratch = Scratch::new()?;
    let mut random = Random(u64::from(count));
    let mut seen = 0;
    for number in 0..count {
        // The next run has to fetch or build it again.
        let tree = scratch.cache().join(OWN[random.below(2) as usize]);
        if number % 3 == 0 && tree.exists() {
            fs::remove_dir_all(&tree)?;
        }
        let mut run = scratch.run()?;
        std::thread::sleep(Duration::from_millis(random.below(LATEST)));
        let supervisor = run.0.id();
        let processes = descendants(supervisor);
        seen = seen.max(processes.len());
        let victim = match random.below(2) {
            1 if !processes.is_empty() => processes[random.below(processes.len() as u64) as usize],
            _ => supervisor,
        };
        let killed = words(victim);
        // SAFETY: kill takes plain numbers. The process was there a moment ago, and numbers are not used again soon.
        unsafe { libc::kill(victim as i32, libc::SIGKILL) };
        run.end(ENDING).map_err(|_| {
            format!("run {number} goes on after a kill of {victim} ({killed}) of {processes:?}")
        })?;
        let deadline = Instant::now() + LEAVING;
        while let Some(process) = processes.iter().find(|process| runs(**process)) {
            ensure(Instant::now() < deadline, || {
                format!("run {number}, of which {victim} was killed: {process} stays: {}", words(*process))
            })?;
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    ensure(seen > 1, || "no kill came when more than one process ran".to_owned())?;
    let mut last = scratch.run()?;
    let status = last.end(Duration::from_secs(300))?;
    ensure(status == Some(1), || {
        format!("the run after the kills ends with {status:?}, not with its finding")
    })?;
    let left = scratch.left();
    ensure(left.is_empty(), || format!("{left:?} stay"))
}
