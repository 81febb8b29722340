//! What a run reports while it goes on, and how it ended.

use crate::run::progress::Progress;
use guardrail_trace::pci::PciAddress;
use std::path::PathBuf;
use std::time::Duration;

/// Why the caller wants a run to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The user interrupted it.
    Interrupted,
    /// Something that the run depends on failed.
    Because(String),
}

/// The callbacks through which the caller observes and steers a run.
pub struct Watch<'a> {
    /// Called for each line of progress, with the time since the start.
    pub progress: &'a mut dyn FnMut(Duration, &Progress),
    /// Called about ten times a second; returns a reason to stop the run.
    pub stop: &'a mut dyn FnMut() -> Option<Stop>,
    /// A count that grows while something outside the guest makes progress for it, such as the analysis that
    /// a full ring waits for. Such a guest is slow, not hung.
    pub activity: &'a mut dyn FnMut() -> u64,
    /// Called some hundred times a second in containable runs. Once the decision is made, it returns the
    /// devices to cut off and the reason. The list is empty where the caller has cut them off already.
    pub closed: &'a mut dyn FnMut() -> Option<(Vec<PciAddress>, String)>,
    /// Saves the guest during the run; `None` where the caller wants no snapshots.
    pub save: Option<&'a mut dyn Save>,
}

/// The caller's side of a snapshot: the guest's memory and registers, as an ELF core of physical memory.
pub trait Save {
    /// Called as often as [`Watch::stop`]: the file for a snapshot that is wanted now. The file must not
    /// exist.
    fn wanted(&mut self) -> Option<PathBuf>;
    /// The guest cannot be stopped as long as the caller holds back something of it; the caller releases that
    /// now.
    fn release(&mut self);
    /// Reports that the guest was saved, or why not; it continues afterwards.
    fn saved(&mut self, saved: std::result::Result<(), String>);
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The workload ran to its end and the driver was unloaded.
    Completed,
    /// The driver loaded but took no device.
    NoDeviceBound,
    /// The driver could not be loaded.
    LoadFailed {
        /// What the guest said.
        why: String,
    },
    /// A step of the workload failed.
    WorkloadFailed {
        /// The name of the step.
        step: String,
        /// What the guest said.
        why: String,
    },
    /// The guest's kernel oopsed or panicked.
    GuestPanic {
        /// The kernel's last report, from the console.
        text: String,
    },
    /// The guest gave no sign of life.
    GuestHang {
        /// The step that it was in.
        step: String,
        /// The time since the last sign of life.
        silence: Duration,
    },
    /// The run took longer than it may.
    TimedOut {
        /// The limit that was exceeded.
        limit: Duration,
        /// The step that it was in.
        step: String,
    },
    /// The driver's device was cut off.
    Contained {
        /// The finding, or the failure of the gate.
        why: String,
        /// How the guest ended afterwards, in words.
        then: String,
    },
    /// The user interrupted it.
    Interrupted,
    /// The caller stopped the run.
    Stopped {
        /// The caller's reason.
        why: String,
    },
    /// QEMU itself failed.
    QemuFailed {
        /// QEMU's error output, in short.
        why: String,
    },
    /// Somebody else killed QEMU, as the system does where memory is short.
    QemuKilled {
        /// How it ended, and what it said last.
        why: String,
    },
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Completed => write!(f, "the run completed"),
            Outcome::NoDeviceBound => {
                write!(f, "the driver loaded but bound no device; name one that it serves with --device")
            }
            Outcome::LoadFailed { why } => write!(f, "the driver could not be loaded: {why}"),
            Outcome::WorkloadFailed { step, why } => write!(f, "the workload failed at '{step}': {why}"),
            Outcome::GuestPanic { text } => {
                write!(f, "the guest panicked: {}", text.lines().next().unwrap_or("without a word"))?;
                let place = text.lines().find_map(|line| line.split_once("RIP: 0010")?.1.split_once(':'));
                place.map_or(Ok(()), |(_, place)| write!(f, ", at {place}"))
            }
            Outcome::GuestHang { step, silence } => {
                write!(f, "the guest hung: no sign of life for {} s in '{step}'", silence.as_secs())
            }
            Outcome::TimedOut { limit, step } => {
                write!(f, "the run reached its limit of {} s in '{step}'", limit.as_secs())
            }
            Outcome::Contained { why, then } => write!(f, "the device was cut off: {why}; then {then}"),
            Outcome::Interrupted => write!(f, "the run was interrupted"),
            Outcome::Stopped { why } => write!(f, "the run was stopped: {why}"),
            Outcome::QemuFailed { why } | Outcome::QemuKilled { why } => write!(f, "QEMU failed: {why}"),
        }
    }
}

impl Outcome {
    /// The outcome as a fixed word that programs can rely on.
    pub fn word(&self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::NoDeviceBound => "no-device-bound",
            Outcome::LoadFailed { .. } => "load-failed",
            Outcome::WorkloadFailed { .. } => "workload-failed",
            Outcome::GuestPanic { .. } => "guest-panic",
            Outcome::GuestHang { .. } => "guest-hang",
            Outcome::TimedOut { .. } => "timed-out",
            Outcome::Contained { .. } => "contained",
            Outcome::Interrupted => "interrupted",
            Outcome::Stopped { .. } => "stopped",
            Outcome::QemuFailed { .. } | Outcome::QemuKilled { .. } => "qemu-failed",
        }
    }
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Finished {
    /// How the run ended.
    pub outcome: Outcome,
    /// Every line of progress, with its time since the start.
    pub progress: Vec<(Duration, Progress)>,
    /// From the start of QEMU to its end.
    pub wall: Duration,
    /// The file with the guest's console, bounded.
    pub console: PathBuf,
    /// Why the console's file lacks the end of the console; `None` where it has all.
    pub console_cut: Option<String>,
    /// The kernel's report of trouble (an oops, a KFENCE report), from its first line on; mostly empty.
    pub trouble: String,
    /// The length of the console's file when the device was cut off; `None` where it was not. What the kernel
    /// says later follows from the missing device.
    pub cut_at: Option<u64>,
    /// How long it took to cut the device off, from when that was due; `None` where it was not, or where nothing was
    /// [watched](crate::run::Options::watched).
    pub cut_took: Option<Duration>,
    /// Whether QEMU was ended for that, because it or what it waited for did not answer in time.
    pub cut_by_force: bool,
}

/// The step that a guest is in, as far as it reported one.
pub(super) fn step(progress: &[(Duration, Progress)]) -> String {
    match progress.last() {
        None => "boot".to_owned(),
        Some((_, Progress::Begin(step))) => step.clone(),
        Some((_, line)) => format!("after: {line}"),
    }
}

impl Finished {
    /// The step that the guest was in at its end, as far as it reported one.
    pub fn last_step(&self) -> String {
        step(&self.progress)
    }

    /// True where the driver's code had begun to run, in whatever way the run ended.
    pub fn driver_began(&self) -> bool {
        self.progress.iter().any(|(_, line)| matches!(line, Progress::Begin(step) if step == "load"))
    }

    /// How long each step of the workload took.
    pub fn steps(&self) -> Vec<(&str, Duration)> {
        let mut steps = Vec::new();
        let mut begun: Option<(&str, Duration)> = None;
        for (time, line) in &self.progress {
            match line {
                Progress::Begin(step) => begun = Some((step, *time)),
                Progress::Ok(step) => {
                    if let Some((name, start)) = begun.take_if(|(name, _)| name == step) {
                        steps.push((name, time.saturating_sub(start)));
                    }
                }
                _ => {}
            }
        }
        steps
    }

    /// The time from the start of QEMU to the guest's first line.
    pub fn boot(&self) -> Option<Duration> {
        self.progress.iter().find(|(_, line)| *line == Progress::Booted).map(|(time, _)| *time)
    }
}
