//! Faults in the machinery itself: processes that die, stop or pause while a driver is under guard.

use super::processes::{descendants, signal, stat};
use super::zoo_driver::ZooDriver;
use guardrail_host::Status;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a process of a run may still exist after the run's end.
const LEAVING: Duration = Duration::from_secs(5);
/// How long a run may continue after the failure. That covers the time until the analysis is missed, the last
/// phase of a guest whose device was cut off, and delays of a busy host.
const AFTERMATH: Duration = Duration::from_secs(60);
/// The further time where the driver was done before the analysis was missed: then the analysis may be silent
/// for so long.
const SILENCE: Duration = Duration::from_secs(120);
/// The time between two looks at the processes.
const LOOK: Duration = Duration::from_millis(50);
/// The same where the work is about to begin, because it may be over soon.
const SOON: Duration = Duration::from_millis(10);
/// How long the analysis pauses.
const PAUSE: Duration = Duration::from_millis(1500);

/// A failure of the machinery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Upset {
    /// The analysis is killed.
    AnalysisKilled,
    /// The analysis stops for good.
    AnalysisStopped,
    /// The analysis stops and continues, which is not a failure.
    AnalysisPaused,
    /// QEMU is killed.
    QemuKilled,
    /// The program that started the analysis and QEMU is killed.
    SupervisorKilled,
    /// The guest resets itself.
    GuestReset,
    /// The process of the gate outside the driver's machine is killed.
    GateKilled,
    /// The QEMU that runs the device behind that gate is killed.
    DeviceKilled,
    /// The analysis stops, and a small log fills up soon.
    LogFull,
}

impl Upset {
    /// All failures, in the order of the table.
    pub const ALL: [Upset; 9] = [
        Upset::GateKilled,
        Upset::DeviceKilled,
        Upset::LogFull,
        Upset::AnalysisKilled,
        Upset::QemuKilled,
        Upset::GuestReset,
        Upset::SupervisorKilled,
        Upset::AnalysisPaused,
        Upset::AnalysisStopped,
    ];

    /// The name of the failure in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Upset::AnalysisKilled => "analysis-killed",
            Upset::AnalysisStopped => "analysis-stopped",
            Upset::AnalysisPaused => "analysis-paused",
            Upset::QemuKilled => "qemu-killed",
            Upset::SupervisorKilled => "supervisor-killed",
            Upset::GuestReset => "guest-reset",
            Upset::GateKilled => "gate-killed",
            Upset::DeviceKilled => "device-killed",
            Upset::LogFull => "log-full",
        }
    }

    /// The arguments that a run needs so that this failure can happen to it, and the run is over soon.
    pub fn arguments(self) -> &'static [&'static str] {
        match self {
            Upset::GateKilled | Upset::DeviceKilled => &["--gate", "vfio-user", "--gate-timeout", "10"],
            Upset::LogFull => &["--log-words", "16384", "--gate-timeout", "6"],
            Upset::AnalysisStopped => &["--gate-timeout", "6"],
            _ => &["--gate-timeout", "10"],
        }
    }

    /// True where the process that writes the disk image, or the dump of the network, is killed: it leaves
    /// incomplete writes.
    pub fn kills_device(self) -> bool {
        matches!(self, Upset::QemuKilled | Upset::SupervisorKilled | Upset::GateKilled | Upset::DeviceKilled)
    }

    /// The time of the failure after the work began; mostly the work is not over by then.
    pub fn moment(seed: u32, subject: ZooDriver) -> Duration {
        let mixed = u64::from(seed).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        Duration::from_millis(mixed % subject.work_millis())
    }

    /// True where a run with this failure ended correctly: it reported the failure, unless the planted fault
    /// was contained before. A failure that was too late to matter may leave a run that ended well. `found`:
    /// a finding was contained, whatever followed.
    pub fn is_reported(
        self,
        status: Option<i32>,
        ended: Option<&str>,
        error: &str,
        when: When,
        found: bool,
    ) -> bool {
        let contained = status == Some(Status::Contained as i32);
        let well = status == Some(Status::Clean as i32) || contained;
        let failed = |words: &str| status == Some(Status::RunFailed as i32) && error.contains(words);
        if when != When::InTime && well {
            return true;
        }
        // A guest that resets itself fails the run, however late that happens.
        if when == When::Never && self != Upset::GuestReset {
            return false;
        }
        // A driver that has lost its device is done soon, and does not fill the log.
        let silent = (found || when == When::Late) && failed("the analysis gave no sign of life");
        match self {
            Upset::AnalysisKilled => contained || failed("the analysis was ended by signal 9 (SIGKILL)"),
            Upset::AnalysisStopped => {
                contained || silent || failed("an access was held for the longest time")
            }
            Upset::AnalysisPaused => well,
            Upset::QemuKilled => contained || failed("QEMU failed: it was ended by signal 9 (SIGKILL)"),
            Upset::SupervisorKilled => status == Some(128 + libc::SIGKILL),
            Upset::GuestReset => well || failed("guest") || ended == Some("guest-panic"),
            Upset::GateKilled => contained || failed("the gate's process was ended by signal 9 (SIGKILL)"),
            Upset::DeviceKilled => {
                contained || failed("the QEMU that runs the device was ended by signal 9 (SIGKILL)")
            }
            Upset::LogFull => contained || silent || failed("a ring was full"),
        }
    }
}

/// Whether the failure happened, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    /// It did not happen: the run was over before.
    #[default]
    Never,
    /// It happened after the work.
    Late,
    /// It happened during the work.
    InTime,
}

/// The processes of a run, and the failure to cause in them.
pub struct Watch {
    root: u32,
    upset: Option<Upset>,
    at: Duration,
    began: Option<Instant>,
    looked: Option<Instant>,
    paused: Option<(u32, Instant)>,
    /// The number and start time of all processes that the run has had, with their command lines.
    seen: BTreeMap<(u32, u64), String>,
    /// The time of the failure; `None` before it.
    happened: Option<(Instant, When)>,
}

impl Watch {
    /// Watches the run whose first process is `root`.
    pub fn new(root: u32, upset: Option<Upset>, at: Duration) -> Watch {
        Watch {
            root,
            upset,
            at,
            began: None,
            looked: None,
            paused: None,
            seen: BTreeMap::new(),
            happened: None,
        }
    }

    /// Looks at the processes and causes the failure when it is due; `progress` returns the run's output so
    /// far. Returns the time until the next look.
    pub fn look(&mut self, progress: impl Fn() -> String) -> Duration {
        let pending = self.upset.filter(|_| self.happened.is_none());
        if pending.is_some() && self.began.is_none() && is_at_work(&progress()) {
            self.began = Some(Instant::now());
        }
        let left = self.began.map(|began| self.at.saturating_sub(began.elapsed()));
        let due = pending.filter(|_| left == Some(Duration::ZERO));
        // A look at all processes takes time that the run needs.
        if due.is_some() || self.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            self.looked = Some(Instant::now());
            self.act(due, progress);
        }
        match (pending, left) {
            (None, _) => LOOK,
            (Some(_), None) => SOON,
            (Some(_), Some(left)) => left.clamp(SOON, LOOK),
        }
    }

    fn act(&mut self, due: Option<Upset>, progress: impl Fn() -> String) {
        let processes = descendants(self.root);
        for (process, start, what) in &processes {
            self.seen.entry((*process, *start)).or_insert_with(|| what.clone());
        }
        if let Some((process, since)) = self.paused
            && since.elapsed() >= PAUSE
        {
            signal(process, libc::SIGCONT);
            self.paused = None;
        }
        let Some(upset) = due else { return };
        let find = |words: &[&str]| {
            let found = processes.iter().find(|(process, _, what)| {
                *process != self.root && words.iter().all(|word| what.contains(word))
            });
            found.map(|(process, ..)| *process)
        };
        let analysis = find(&["internal-analysis"]);
        let (target, number) = match upset {
            Upset::AnalysisKilled => (analysis, libc::SIGKILL),
            Upset::AnalysisStopped | Upset::AnalysisPaused | Upset::LogFull => (analysis, libc::SIGSTOP),
            Upset::QemuKilled => (find(&["qemu-system", " -kernel "]), libc::SIGKILL),
            Upset::GateKilled => (find(&["internal-gate"]), libc::SIGKILL),
            Upset::DeviceKilled => (find(&["qemu-system", "doorbell"]), libc::SIGKILL),
            Upset::SupervisorKilled => (Some(self.root), libc::SIGKILL),
            // The guest causes this failure itself.
            Upset::GuestReset => (None, 0),
        };
        if let Some(process) = target {
            signal(process, number);
            if upset == Upset::AnalysisPaused {
                self.paused = Some((process, Instant::now()));
            }
        }
        if target.is_some() || upset == Upset::GuestReset {
            let when = if is_over(&progress()) { When::Late } else { When::InTime };
            self.happened = Some((Instant::now(), when));
        }
    }

    /// Whether the failure happened, and when.
    pub fn when(&self) -> When {
        self.happened.map_or(When::Never, |(_, when)| when)
    }

    /// At the end of the run: true where the run took longer to end than it may. A pause is not a reason to
    /// end.
    pub fn is_late(&self) -> bool {
        let limit = match self.upset {
            None | Some(Upset::AnalysisPaused) => return false,
            Some(Upset::AnalysisStopped | Upset::LogFull) => AFTERMATH + SILENCE,
            Some(_) => AFTERMATH,
        };
        self.happened.is_some_and(|(happened, _)| happened.elapsed() > limit)
    }

    /// After the end of the run in `folder`: its processes, sockets and log in shared memory that do not
    /// disappear.
    pub fn left(&self, folder: &Path) -> Vec<String> {
        let mut left = self.processes_left();
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        let sockets = files.filter(|file| file.file_type().is_ok_and(|kind| kind.is_socket()));
        left.extend(sockets.map(|socket| format!("the socket {}", socket.path().display())));
        left.extend(
            log_of(folder)
                .into_iter()
                .filter(|log| log.exists())
                .map(|log| format!("the log {}", log.display())),
        );
        left
    }

    fn processes_left(&self) -> Vec<String> {
        let deadline = Instant::now() + LEAVING;
        loop {
            let is_there = |process: u32, start: u64| {
                stat(process).is_some_and(|stat| stat.start == start && !stat.dead)
            };
            let left: Vec<String> = self
                .seen
                .iter()
                .filter(|((process, start), _)| is_there(*process, *start))
                .map(|((process, _), what)| format!("{process} {what}"))
                .collect();
            if left.is_empty() || Instant::now() > deadline {
                return left;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The path of a run's log, from its tracer's configuration.
fn log_of(folder: &Path) -> Option<PathBuf> {
    let config: Value = serde_json::from_slice(&fs::read(folder.join("config.json")).ok()?).ok()?;
    config["log"].as_str().map(PathBuf::from)
}

/// True once the work that can fail has begun.
fn is_at_work(progress: &str) -> bool {
    progress.lines().any(|line| line.ends_with(" copy …") || line.ends_with(" transmit …"))
}

/// True once the work is done or has failed.
fn is_over(progress: &str) -> bool {
    let is_end =
        |line: &str| !line.ends_with('…') && (line.contains(" copy ") || line.contains(" transmit "));
    progress.lines().any(is_end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn processes_of_a_run_are_known_and_missed_when_they_stay() {
        let mut shell = Command::new("sh");
        let mut shell = shell.args(["-c", "sleep 60 & wait"]).stdout(Stdio::null()).spawn().unwrap();
        let mut watch = Watch::new(shell.id(), None, Duration::ZERO);
        let deadline = Instant::now() + Duration::from_secs(10);
        while watch.seen.values().all(|what| what.trim() != "sleep 60") && Instant::now() < deadline {
            watch.look(String::new);
        }
        shell.kill().unwrap();
        shell.wait().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let left = watch.left(folder.path());
        assert_eq!(left.len(), 1, "{left:?}");
        let process: u32 = left[0].split(' ').next().unwrap().parse().unwrap();
        signal(process, libc::SIGKILL);
        assert!(watch.left(folder.path()).is_empty());
    }

    #[test]
    fn files_that_a_run_leaves_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::write(&log, "").unwrap();
        let config = serde_json::json!({ "log": log });
        fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("gate.sock")).unwrap();
        let left = Watch::new(std::process::id(), None, Duration::ZERO).left(folder.path());
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(left[0].starts_with("the socket ") && left[1].starts_with("the log "), "{left:?}");
    }

    #[test]
    fn a_failed_run_must_say_why() {
        let reported = |upset: Upset, status, error: &str| {
            upset.is_reported(Some(status), None, error, When::InTime, false)
        };
        assert!(reported(Upset::AnalysisKilled, 3, "the analysis was ended by signal 9 (SIGKILL)"));
        assert!(!reported(Upset::AnalysisKilled, 3, "the guest hung"));
        assert!(!reported(Upset::AnalysisKilled, 0, ""));
        assert!(reported(Upset::QemuKilled, 4, ""));
        assert!(reported(Upset::LogFull, 3, "no reader of the log made progress while a ring was full"));
        assert!(!reported(Upset::LogFull, 3, "an access was held for the longest time"));
        let silent = "the analysis gave no sign of life for 120 s";
        assert!(!reported(Upset::LogFull, 3, silent));
        assert!(Upset::LogFull.is_reported(Some(3), None, silent, When::InTime, true));
        assert!(!reported(
            Upset::GateKilled,
            3,
            "the QEMU that runs the device was ended by signal 9 (SIGKILL)"
        ));
        assert!(reported(Upset::AnalysisPaused, 0, ""));
        assert!(!reported(Upset::AnalysisPaused, 3, "the analysis gave no sign of life"));
        for when in [When::Never, When::Late] {
            assert!(Upset::QemuKilled.is_reported(Some(0), None, "", when, false));
        }
        let killed = "QEMU failed: it was ended by signal 9 (SIGKILL)";
        assert!(Upset::QemuKilled.is_reported(Some(3), None, killed, When::Late, false));
        assert!(!Upset::QemuKilled.is_reported(Some(3), None, killed, When::Never, false));
    }

    #[test]
    fn moments_differ() {
        for subject in ZooDriver::ALL {
            let moments: std::collections::BTreeSet<_> =
                (0..50).map(|seed| Upset::moment(seed, subject)).collect();
            assert!(moments.len() > 40 && moments.iter().all(|moment| moment.as_secs() < 3));
        }
    }

    #[test]
    fn the_work_has_a_beginning_and_an_end() {
        let (before, at) = ("guardrail:    6.5 s  plant ok\n", "guardrail:    6.5 s  copy …\n");
        assert!(!is_at_work(before) && is_at_work(&[before, at].concat()));
        assert!(!is_over(&[before, at].concat()));
        assert!(is_over(&[at, "guardrail:   11.0 s  copy skipped: 15+0 records out"].concat()));
    }
}
