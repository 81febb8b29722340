//! Faults in the machinery itself: processes that die, stop or pause while a driver is under guard.

use super::trial::Mode;
use crate::errors::Status;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// How long what a run started may still be there after its end.
const LEAVING: Duration = Duration::from_secs(5);
/// How long the analysis pauses.
const PAUSE: Duration = Duration::from_millis(1500);

/// What happens to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Upset {
    /// The analysis is killed.
    AnalysisKilled,
    /// The analysis stops for good.
    AnalysisStopped,
    /// The analysis stops and goes on, which is no failure.
    AnalysisPaused,
    /// QEMU is killed.
    QemuKilled,
    /// The program that started both is killed.
    SupervisorKilled,
    /// The guest resets itself.
    GuestReset,
}

impl Upset {
    /// All of them.
    pub const ALL: [Upset; 6] = [
        Upset::AnalysisKilled,
        Upset::QemuKilled,
        Upset::GuestReset,
        Upset::SupervisorKilled,
        Upset::AnalysisPaused,
        Upset::AnalysisStopped,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Upset::AnalysisKilled => "analysis-killed",
            Upset::AnalysisStopped => "analysis-stopped",
            Upset::AnalysisPaused => "analysis-paused",
            Upset::QemuKilled => "qemu-killed",
            Upset::SupervisorKilled => "supervisor-killed",
            Upset::GuestReset => "guest-reset",
        }
    }

    /// When it happens, after the work began.
    pub fn moment(seed: u32) -> Duration {
        let mixed = u64::from(seed).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        Duration::from_millis(mixed % 1000)
    }

    /// Whether a run that it happened to ended as it should: that it failed is told, unless what was planted was contained before.
    /// What came too late to matter leaves a run that ended well.
    pub fn is_told(self, status: Option<i32>, ended: Option<&str>, error: &str, in_time: bool) -> bool {
        let contained = status == Some(super::outcome::CONTAINED);
        let well = status == Some(Status::Clean as i32) || contained;
        let failed = |word: &str| status == Some(Status::RunFailed as i32) && error.contains(word);
        // A guest that resets itself fails the run however late it does.
        if !in_time && self != Upset::GuestReset {
            return well;
        }
        match self {
            Upset::AnalysisKilled => contained || failed("analysis"),
            Upset::AnalysisStopped => contained || failed("analysis") || failed("gate"),
            Upset::AnalysisPaused => well,
            Upset::QemuKilled => contained || failed("QEMU"),
            Upset::SupervisorKilled => status == Some(128 + libc::SIGKILL),
            Upset::GuestReset => well || failed("guest") || ended == Some("guest-panic"),
        }
    }

    /// The mode in which a run is upset.
    pub const MODE: Mode = Mode::Stringent;
}

/// The processes of a run, and what is done to them.
pub struct Watch {
    root: u32,
    upset: Option<Upset>,
    at: Duration,
    began: Option<Instant>,
    paused: Option<(u32, Instant)>,
    /// The number and start time of all processes that the run ever had, and what they are.
    seen: BTreeMap<(u32, u64), String>,
    /// It happened.
    pub done: bool,
}

impl Watch {
    /// Watches the run whose first process is `root`.
    pub fn new(root: u32, upset: Option<Upset>, seed: u32) -> Watch {
        let at = Upset::moment(seed);
        Watch { root, upset, at, began: None, paused: None, seen: BTreeMap::new(), done: false }
    }

    /// Looks what there is, and does what is to be done; `progress` is what the run told so far.
    pub fn look(&mut self, progress: impl FnOnce() -> String) {
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
        let Some(upset) = self.upset.filter(|_| !self.done) else { return };
        if self.began.is_none() && is_at_work(&progress()) {
            self.began = Some(Instant::now());
        }
        if self.began.is_none_or(|began| began.elapsed() < self.at) {
            return;
        }
        let find = |word: &str| {
            let found =
                processes.iter().find(|(process, _, what)| *process != self.root && what.contains(word));
            found.map(|(process, ..)| *process)
        };
        let (analysis, qemu) = (find("internal-analysis"), find("qemu-system"));
        let (target, number) = match upset {
            Upset::AnalysisKilled => (analysis, libc::SIGKILL),
            Upset::AnalysisStopped => (analysis, libc::SIGSTOP),
            Upset::AnalysisPaused => (analysis, libc::SIGSTOP),
            Upset::QemuKilled => (qemu, libc::SIGKILL),
            Upset::SupervisorKilled => (Some(self.root), libc::SIGKILL),
            // The guest does it itself.
            Upset::GuestReset => (None, 0),
        };
        if let Some(process) = target {
            signal(process, number);
            if upset == Upset::AnalysisPaused {
                self.paused = Some((process, Instant::now()));
            }
        }
        self.done = target.is_some() || upset == Upset::GuestReset;
    }

    /// After the end of the run: the processes of it that do not go away.
    pub fn left(&self) -> Vec<String> {
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

/// The work that can be upset has begun.
fn is_at_work(progress: &str) -> bool {
    progress.lines().any(|line| line.ends_with(" copy …") || line.ends_with(" transmit …"))
}

fn signal(process: u32, number: i32) {
    // SAFETY: sending a signal touches no memory; the process is one that this run started.
    unsafe { libc::kill(process as i32, number) };
}

/// What `/proc` says of a process.
struct Stat {
    parent: u32,
    start: u64,
    dead: bool,
}

fn stat(process: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name stands in parentheses and may hold anything.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
        dead: matches!(*fields.first()?, "Z" | "X"),
    })
}

/// A process and all that it started, with start time and command line.
fn descendants(root: u32) -> Vec<(u32, u64, String)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let all: Vec<(u32, Stat)> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|process| Some((process, stat(process)?)))
        .collect();
    let mut wanted = vec![root];
    let mut next = 0;
    while let Some(&parent) = wanted.get(next) {
        wanted.extend(all.iter().filter(|(_, stat)| stat.parent == parent).map(|(process, _)| *process));
        next += 1;
    }
    let describe = |process: &u32| {
        let start = all.iter().find(|(number, _)| number == process)?.1.start;
        let line = fs::read(format!("/proc/{process}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        Some((*process, start, line.chars().take(2000).collect()))
    };
    wanted.iter().filter_map(describe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn processes_of_a_run_are_known_and_missed_when_they_stay() {
        let mut shell = Command::new("sh");
        let mut shell = shell.args(["-c", "sleep 60 & wait"]).stdout(Stdio::null()).spawn().unwrap();
        let mut watch = Watch::new(shell.id(), None, 1);
        let deadline = Instant::now() + Duration::from_secs(10);
        while watch.seen.values().all(|what| what.trim() != "sleep 60") && Instant::now() < deadline {
            watch.look(String::new);
        }
        shell.kill().unwrap();
        shell.wait().unwrap();
        let left = watch.left();
        assert_eq!(left.len(), 1, "{left:?}");
        let process: u32 = left[0].split(' ').next().unwrap().parse().unwrap();
        signal(process, libc::SIGKILL);
        assert!(watch.left().is_empty());
    }

    #[test]
    fn a_failed_run_must_say_why() {
        let told = |upset: Upset, status, error: &str| upset.is_told(Some(status), None, error, true);
        assert!(told(Upset::AnalysisKilled, 3, "the analysis was ended by signal 9"));
        assert!(!told(Upset::AnalysisKilled, 3, "the guest hung"));
        assert!(!told(Upset::AnalysisKilled, 0, ""));
        assert!(told(Upset::QemuKilled, 4, ""));
        assert!(told(Upset::AnalysisPaused, 0, ""));
        assert!(!told(Upset::AnalysisPaused, 3, "the analysis gave no sign of life"));
        assert!(Upset::QemuKilled.is_told(Some(0), None, "", false));
    }

    #[test]
    fn moments_differ() {
        let moments: std::collections::BTreeSet<_> = (0..50).map(Upset::moment).collect();
        assert!(moments.len() > 45 && moments.iter().all(|moment| moment.as_secs() < 1));
    }
}
