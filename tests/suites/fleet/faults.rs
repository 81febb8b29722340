//! What machines lack, servers that stay away, other builds, and interruptions: no job is to blame for them, and nothing is lost.

use crate::servers::Nats;
use guardrail_host::process::kill_with_parent;
use guardrail_tests::{ensure, guardrail, program};
use libtest_mimic::{Failed, Trial};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a process may take to end.
const LIMIT: Duration = Duration::from_secs(120);
/// A job that needs a guest.
const CHECK: &str = "{\"version\":1,\"kind\":\"check\",\"driver\":\"e1000\",\"kernel\":\"6.1\"}\n";

pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("a machine without QEMU fails no job", unfit),
        Trial::test("a server that stays away ends the run", away),
        Trial::test("a worker of another build gets no job", builds),
        Trial::test("an interrupted controller keeps what was computed", interrupted),
        Trial::test("a worker at a store needs a number of its own", numbers),
        Trial::test("a guest that the system kills is no failure of its job", killed),
    ]
}

/// A process that does not outlive the test, and its log.
struct Started {
    child: Child,
    log: PathBuf,
}

impl Started {
    fn new(program: &Path, words: &[&str], log: PathBuf) -> Result<Started, Failed> {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
        kill_with_parent(&mut command);
        Ok(Started { child: command.spawn()?, log })
    }

    fn signal(&self, signal: i32) {
        // SAFETY: kill takes plain numbers, and the child was not waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// The exit status, and what the process said.
    fn ended(&mut self) -> Result<(ExitStatus, String), Failed> {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok((status, fs::read_to_string(&self.log)?));
            }
            ensure(Instant::now() < end, || "it does not end".to_owned())?;
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder with a file of jobs, and a store.
struct Place(tempfile::TempDir);

impl Place {
    fn new(jobs: &str) -> Result<Place, Failed> {
        let place = Place(tempfile::tempdir()?);
        fs::write(place.path("jobs"), jobs)?;
        Ok(place)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn controller(&self, engine: &str, more: &[&str]) -> Result<Started, Failed> {
        let (jobs, store) = (self.path("jobs"), self.path("store"));
        let words = [&["fleet", "run", &jobs, "--store", &store, "--engine", engine][..], more].concat();
        Started::new(&program(), &words, self.0.path().join("controller"))
    }

    /// The number of results in the store.
    fn results(&self) -> usize {
        let listed =
            |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        listed(self.0.path().join("store/results")).flat_map(listed).count()
    }

    /// The cells of the only row of `fleet status`, and all that it prints.
    fn status(&self) -> Result<(Vec<String>, String), Failed> {
        let shown = guardrail(&["fleet", "status", "--store", &self.path("store")]).with(&[0])?;
        let row = shown.stdout.lines().nth(1).unwrap_or_default();
        let cells = row.split_whitespace().skip(1).map(str::to_owned).collect();
        Ok((cells, shown.stdout))
    }
}

fn rehearsals(count: u64) -> String {
    let job = |seed| format!("{{\"version\":1,\"kind\":\"rehearsal\",\"milliseconds\":0,\"seed\":{seed}}}\n");
    (0..count).map(job).collect()
}

/// As the system does where memory is short.
fn killed() -> Result<(), Failed> {
    let place = Place::new(CHECK)?;
    let words = ["job", &place.path("jobs")];
    let mut job = Started::new(&program(), &words, place.0.path().join("log"))?;
    let end = Instant::now() + LIMIT;
    let qemu = loop {
        match guest_of(job.child.id()) {
            Some(qemu) => break qemu,
            None => ensure(Instant::now() < end, || "no guest begins".to_owned())?,
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    // SAFETY: kill takes plain numbers; the process was found a moment ago.
    unsafe { libc::kill(qemu as i32, libc::SIGKILL) };
    let (status, said) = job.ended()?;
    let why = "this machine cannot compute the job: QEMU failed: it was ended by signal 9";
    ensure(status.code() == Some(3) && said.contains(why), || format!("{status}: {said}"))
}

/// The QEMU that a process or one of its children started.
fn guest_of(ancestor: u32) -> Option<u32> {
    let above = |id: &u32| {
        let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        parent.trim().parse().ok().filter(|id| *id > 1)
    };
    let is_guest = |id: &u32| {
        let words = fs::read_to_string(format!("/proc/{id}/cmdline"));
        words.is_ok_and(|words| words.contains("qemu-system") && words.contains("-plugin"))
            && std::iter::successors(Some(*id), above).any(|id| id == ancestor)
    };
    let listed = fs::read_dir("/proc").ok()?.flatten();
    listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_guest)
}

/// The job goes back, the worker is set aside, and the run ends; nothing counts as a failure of the job.
fn unfit() -> Result<(), Failed> {
    let server = Nats::start()?;
    for engine in ["local", &server.address()] {
        let place = Place::new(CHECK)?;
        let (jobs, store) = (place.path("jobs"), place.path("store"));
        let mut command = Command::new(program());
        command.args(["fleet", "run", &jobs, "--store", &store, "--engine", engine, "--workers", "1"]);
        let ran = command.env("GUARDRAIL_QEMU", "/nonexistent/qemu").stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        let ended =
            ran.status.code() == Some(3) && said.contains("all workers of this machine are set aside");
        ensure(ended, || format!("{engine}: {}: {said}", ran.status))?;
        let (cells, shown) = place.status()?;
        ensure(cells == ["1", "0", "0", "0", "0"], || format!("{engine}: {shown}"))?;
        let words = "set aside: its machine could not compute 3 jobs in a row: ";
        ensure(shown.contains(words) && shown.contains("QEMU"), || format!("{engine}: {shown}"))?;
    }
    Ok(())
}

fn away() -> Result<(), Failed> {
    let mut server = Nats::start()?;
    let place = Place::new("{\"version\":1,\"kind\":\"rehearsal\",\"milliseconds\":10000}\n")?;
    let address = server.address();
    let words = ["fleet", "work", "--engine", &address, "--outage", "3"];
    let mut worker = Started::new(&program(), &words, place.0.path().join("worker"))?;
    let mut controller = place.controller(&address, &["--outage", "3"])?;
    std::thread::sleep(Duration::from_secs(5));
    server.end()?;
    let (status, said) = controller.ended()?;
    let words = "was away for 3 s; what it has stays there, and the same command goes on";
    ensure(status.code() == Some(3) && said.contains(words), || format!("{status}: {said}"))?;
    // The worker has a result by then, and nobody to send it to.
    let (status, said) = worker.ended()?;
    ensure(status.code() == Some(3) && said.contains("error: "), || format!("{status}: {said}"))
}

/// The jobs wait for a worker that can compute them; one of another build, even of the same commit, is not asked.
fn builds() -> Result<(), Failed> {
    let server = Nats::start()?;
    let place = Place::new(&rehearsals(5))?;
    let other = place.0.path().join("guardrail");
    fs::copy(program(), &other)?;
    OpenOptions::new().append(true).open(&other)?.write_all(b"another build")?;
    let mut controller = place.controller(&server.address(), &[])?;
    let work = |program: &Path, log: &str| {
        let words = ["fleet", "work", "--engine", &server.address(), "--idle", "6"];
        Started::new(program, &words, place.0.path().join(log))?.ended()
    };
    let (status, said) = work(&other, "other")?;
    ensure(status.success() && place.results() == 0, || format!("{status}: {said}"))?;
    let (status, said) = work(&program(), "own")?;
    ensure(status.success(), || format!("{status}: {said}"))?;
    let (status, said) = controller.ended()?;
    ensure(status.success() && place.results() == 5, || format!("{status}: {said}"))
}

fn interrupted() -> Result<(), Failed> {
    let server = Nats::start()?;
    let place = Place::new(&rehearsals(400))?;
    let mut controller = place.controller(&server.address(), &[])?;
    // The jobs are sent before the controller stops, and no result comes before a worker is there.
    std::thread::sleep(Duration::from_secs(5));
    controller.signal(libc::SIGSTOP);
    let words = ["fleet", "work", "--engine", &server.address(), "--idle", "3"];
    let (status, said) = Started::new(&program(), &words, place.0.path().join("worker"))?.ended()?;
    ensure(status.success() && place.results() == 0, || format!("{status}: {said}"))?;
    controller.signal(libc::SIGINT);
    controller.signal(libc::SIGCONT);
    let (status, said) = controller.ended()?;
    ensure(status.code() == Some(130) || status.success(), || format!("{status}: {said}"))?;
    ensure(status.signal().is_none() && place.results() == 400, || {
        format!("{} of 400 results were kept: {status}: {said}", place.results())
    })
}

fn numbers() -> Result<(), Failed> {
    let place = Place::new(&rehearsals(1))?;
    let mut controller = place.controller("local", &["--workers", "1"])?;
    let (status, said) = controller.ended()?;
    ensure(status.success(), || format!("{status}: {said}"))?;
    let store = place.path("store");
    let ran = guardrail(&["fleet", "work", "--store", &store]).with(&[2])?;
    ensure(ran.stderr.contains("--index"), || ran.said())?;
    guardrail(&["fleet", "work", "--store", &store, "--index", "0"]).with(&[0]).map(drop)
}
