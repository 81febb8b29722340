//! The verdict on a mutant, after section 8.1 of "Fast Byte-Granularity Software Fault Isolation" (2009).
//!
//! The guest ends at the first oops (`oops=panic`). What a kernel does after an oops is not only the driver's
//! doing. The task that oopsed has ended without releasing its locks, and a hang that follows would be
//! reported in place of a crash inside the driver. The paper's blue screens show the first faulting
//! instruction, too.

use super::oops::{Console, Crash};
use crate::standing::RUNTIME;
use guardrail_guard::Policy;
use guardrail_guard::violations;
use guardrail_vm::run::Outcome;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// The effect of a mutant's bugs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The rest of the system was harmed.
    Escaped,
    /// A guarded driver was stopped at a violation before it did any harm.
    Contained,
    /// Only the driver failed.
    Internal,
    /// The bugs had no visible effect.
    None,
    /// The kernel refused to load it.
    Refused,
    /// The run shows nothing of the mutant; it is done again.
    Failed,
}

/// The event that decided the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// An oops or a panic: escaped where the instruction is outside of the driver's domain.
    Crash,
    /// No progress: escaped where a processor runs no process anymore, internal where only the workload
    /// waits.
    Hang,
    /// Data that were read back differ from those that were written.
    Data,
    /// The kernel found its own data corrupt.
    Damage,
    /// The virtual machine ended by itself.
    Machine,
    /// The driver could not be loaded, or bound no device.
    Load,
    /// A step of the workload failed.
    Workload,
    /// The workload ended well, but the kernel printed a complaint.
    Complaint,
    /// Contained: the thread or the call was ended, and the workload reached its end.
    Ended,
    /// Contained, and the driver recovered: the workload reached its end.
    Recovered,
    /// Contained without a recovery; the workload did not need the driver.
    Dead,
}

/// A verdict and its evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// The effect of the bugs.
    pub verdict: Verdict,
    /// The event that decided it; `None` where nothing was seen.
    pub how: Option<How>,
    /// The evidence in one line.
    pub why: String,
    /// The faulting instruction; `None` without a crash.
    pub at: Option<String>,
    /// The step of the workload that the guest was in.
    pub step: String,
}

impl std::fmt::Display for Judged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", word(&self.verdict))?;
        if let Some(how) = self.how {
            write!(f, " ({}", word(&how))?;
            match &self.at {
                Some(at) => write!(f, " at {at})")?,
                None => write!(f, ")")?,
            }
        }
        Ok(())
    }
}

/// The word for a value, the same as in files.
fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| Some(value.as_str()?.to_owned())).unwrap_or_default()
}

/// The observations of a run.
pub struct Seen<'a> {
    /// How the run ended.
    pub outcome: &'a Outcome,
    /// True where the driver's code had begun to run.
    pub began: bool,
    /// The first step of the workload that failed, and why.
    pub failed: Option<(&'a str, &'a str)>,
    /// Whether a guarded driver whose unload was ended was loaded again.
    pub again: Option<bool>,
    /// The runtime's policy at a violation; `None` where the driver is not guarded.
    pub guarded: Option<Policy>,
    /// A processor that ran no process anymore; `None` without one.
    pub stuck: Option<u8>,
    /// The step that the guest was in at the end.
    pub step: &'a str,
    /// The output of the guest's console.
    pub console: &'a Console,
}

/// The checksum of no bytes: nothing arrived, so nothing was corrupted.
const NOTHING: &str = "d41d8cd98f00b204e9800998ecf8427e";
/// The messages of insmod for a file that is not a module of this kernel, and of the kernel for one that it
/// refuses.
const NOT_LOADABLE: [&str; 5] = [
    "invalid module format",
    "Unknown symbol",
    "disagrees about version",
    "version magic",
    "Key was rejected",
];

/// Judges a run of a domain's modules; `usual` holds the lines of the console in a run of the stock driver.
pub fn judge(seen: &Seen<'_>, domain: &[&str], usual: &HashSet<String>) -> Judged {
    let base = without_guard(seen, domain, usual);
    if seen.guarded.is_none_or(|policy| policy == Policy::Log) {
        return base;
    }
    let crash = seen.console.crash();
    let Some(violation) = seen.console.violation_before_harm(usual, crash.as_ref()) else { return base };
    if let Some((step, why)) = seen.failed.filter(|(step, why)| corrupted(step, why)) {
        let (why, step) = (why.to_owned(), step.to_owned());
        return Judged { verdict: Verdict::Escaped, how: Some(How::Data), why, at: None, step };
    }
    let how = match (
        crash.is_some_and(|crash| !crash.stuck && crash.module.as_deref() == Some(RUNTIME)),
        base.verdict,
    ) {
        (true, _) => Some(How::Ended),
        // After a recovery, harm counts as in any other run.
        (false, Verdict::Escaped | Verdict::Failed | Verdict::Refused) => return base,
        // A failure before the recovery is due to the bug.
        (false, _) if seen.again == Some(true) => Some(How::Recovered),
        (false, _) if seen.again == Some(false) => Some(How::Load),
        (false, _) if base.how.is_some_and(|how| how != How::Complaint) => base.how,
        (false, _) if seen.guarded == Some(Policy::Fail) => Some(How::Ended),
        (false, _) if seen.console.recovered() => Some(How::Recovered),
        (false, _) => Some(How::Dead),
    };
    let found = violations::findings(violation).pop();
    let at = found.map(|found| format!("{}+{:#x} [{}]", found.function, found.offset, found.module));
    let why = ["violation: ", "fault: "]
        .iter()
        .find_map(|word| violation.split_once(word))
        .map_or(violation, |(_, why)| why)
        .to_owned();
    Judged { verdict: Verdict::Contained, how, why, at, step: base.step }
}

/// Judges the run without regard to the reported violations.
fn without_guard(seen: &Seen<'_>, domain: &[&str], usual: &HashSet<String>) -> Judged {
    let judged = |verdict, how, why: &str| Judged {
        verdict,
        how,
        why: why.to_owned(),
        at: None,
        step: seen.step.to_owned(),
    };
    if !seen.began {
        return judged(Verdict::Failed, None, &format!("before the driver ran, {}", seen.outcome));
    }
    if let Some(crash) = seen.console.crash() {
        let Crash { why, stuck, at, module, line: _ } = crash;
        let inside = module.as_deref().is_some_and(|module| domain.contains(&module));
        let (verdict, how) = match (stuck, inside) {
            (true, _) => (Verdict::Escaped, How::Hang),
            (false, false) => (Verdict::Escaped, How::Crash),
            (false, true) => (Verdict::Internal, How::Crash),
        };
        let at = at.map(|at| module.map_or(at.clone(), |module| format!("{at} [{module}]")));
        return Judged { at, ..judged(verdict, Some(how), &why) };
    }
    let by_outcome = match (seen.outcome, seen.stuck) {
        (_, Some(cpu)) => {
            let why = format!("CPU {cpu} ran no process anymore");
            judged(Verdict::Escaped, Some(How::Hang), &why)
        }
        (Outcome::GuestPanic { text }, _) => {
            let why = text.lines().next().unwrap_or_default();
            judged(Verdict::Escaped, Some(How::Crash), why)
        }
        (Outcome::GuestHang { .. }, _) => {
            judged(Verdict::Escaped, Some(How::Hang), &seen.outcome.to_string())
        }
        (Outcome::TimedOut { .. }, _) => {
            judged(Verdict::Internal, Some(How::Hang), &seen.outcome.to_string())
        }
        (Outcome::QemuFailed { why } | Outcome::QemuKilled { why }, _) => {
            judged(Verdict::Escaped, Some(How::Machine), why)
        }
        (Outcome::LoadFailed { why }, _) if NOT_LOADABLE.iter().any(|word| why.contains(word)) => {
            judged(Verdict::Refused, None, why)
        }
        (Outcome::LoadFailed { why }, _) => judged(Verdict::Internal, Some(How::Load), why),
        (Outcome::NoDeviceBound, _) => {
            judged(Verdict::Internal, Some(How::Load), "the driver took no device")
        }
        (Outcome::WorkloadFailed { step, why }, _) => {
            let step = step.clone();
            let judged = match corrupted(&step, why) {
                true => judged(Verdict::Escaped, Some(How::Data), why),
                false => judged(Verdict::Internal, Some(How::Workload), why),
            };
            Judged { step, ..judged }
        }
        (Outcome::Completed, _) => match seen.console.unusual(usual).next() {
            Some(line) => judged(Verdict::Internal, Some(How::Complaint), line),
            None => judged(Verdict::None, None, ""),
        },
        (Outcome::Contained { .. } | Outcome::Interrupted | Outcome::Stopped { .. }, _) => {
            judged(Verdict::Failed, None, &seen.outcome.to_string())
        }
    };
    // Whatever the workload noticed, the kernel's own data are outside of the driver.
    match seen.console.damage(usual) {
        Some(line) if matches!(by_outcome.verdict, Verdict::Internal | Verdict::None) => {
            Judged { step: by_outcome.step, ..judged(Verdict::Escaped, Some(How::Damage), line) }
        }
        _ => by_outcome,
    }
}

/// True where a step read data that differ from those that were written or sent.
fn corrupted(step: &str, why: &str) -> bool {
    let sums = || {
        let rest = why.strip_prefix("the checksum is ")?;
        let (is, expected) = rest.split_once(", expected ")?;
        let sum = |text: &str| text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        Some(sum(is) && sum(expected) && is != NOTHING && is != expected)
    };
    step == "host-verify" || sums().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn judged(outcome: &Outcome, console: &str, stuck: Option<u8>) -> Judged {
        let console = Console::new(console.as_bytes());
        let (failed, again, guarded, step) = (None, None, None, "ping");
        let seen = Seen { outcome, began: true, failed, again, guarded, stuck, step, console: &console };
        judge(&seen, &["e1000", "helper"], &HashSet::from(["usual #".to_owned()]))
    }

    #[track_caller]
    fn assert_judged(outcome: Outcome, console: &str, verdict: Verdict, how: Option<How>) {
        let judged = judged(&outcome, console, None);
        assert_eq!((judged.verdict, judged.how), (verdict, how), "{judged:?}");
    }

    fn failed(step: &str, why: &str) -> Outcome {
        Outcome::WorkloadFailed { step: step.into(), why: why.into() }
    }

    #[test]
    fn crashes_are_judged_by_where_the_instruction_is() {
        let panic = || Outcome::GuestPanic { text: "BUG: x".into() };
        let oops = |at: &str| {
            format!(
                "BUG: unable to handle page fault for address: 1\nRIP: 0010:{at}\nKernel panic - not syncing: x"
            )
        };
        let crash = Some(How::Crash);
        assert_judged(panic(), &oops("e1000_clean+0x1/0x2 [e1000]"), Verdict::Internal, crash);
        assert_judged(panic(), &oops("f+0x1/0x2 [helper]"), Verdict::Internal, crash);
        assert_judged(panic(), &oops("kfree+0x1/0x2"), Verdict::Escaped, crash);
        assert_judged(panic(), &oops("f+0x1/0x2 [libata]"), Verdict::Escaped, crash);
        assert_judged(panic(), &oops("0x0"), Verdict::Escaped, crash);
        assert_judged(panic(), "", Verdict::Escaped, crash);
        let stuck = "watchdog: BUG: soft lockup - CPU#0 stuck\nRIP: 0010:e1000_clean+0x1/0x2 [e1000]";
        assert_judged(panic(), stuck, Verdict::Escaped, Some(How::Hang));
        assert_eq!(
            judged(&panic(), &oops("f+0x1/0x2 [libata]"), None).to_string(),
            "escaped (crash at f+0x1/0x2 [libata])"
        );
    }

    #[test]
    fn hangs_are_judged_by_whether_processes_still_run() {
        let limit = Duration::from_secs(60);
        let hang = Some(How::Hang);
        let silent = Outcome::GuestHang { step: "ping".into(), silence: limit };
        assert_judged(silent, "", Verdict::Escaped, hang);
        let slow = Outcome::TimedOut { limit, step: "ping".into() };
        assert_judged(slow, "", Verdict::Internal, hang);
        let stopped = Outcome::Stopped { why: "x".into() };
        assert_eq!(judged(&stopped, "", Some(1)).verdict, Verdict::Escaped);
        assert_eq!(judged(&stopped, "", None).verdict, Verdict::Failed);
    }

    #[test]
    fn failures_of_the_workload_are_internal_unless_data_are_corrupted() {
        let (a, b) = ("0123456789abcdef0123456789abcdef", "ffffffffffffffffffffffffffffffff");
        let sums = |is, expected| failed("download", &format!("the checksum is {is}, expected {expected}"));
        assert_judged(sums(a, b), "", Verdict::Escaped, Some(How::Data));
        assert_judged(sums(NOTHING, b), "", Verdict::Internal, Some(How::Workload));
        assert_judged(sums("absent", b), "", Verdict::Internal, Some(How::Workload));
        assert_judged(failed("host-verify", "byte 7 differs"), "", Verdict::Escaped, Some(How::Data));
        assert_judged(failed("up", "no carrier after 15 s"), "", Verdict::Internal, Some(How::Workload));
        let load = |why: &str| Outcome::LoadFailed { why: why.into() };
        assert_judged(load("Cannot allocate memory"), "", Verdict::Internal, Some(How::Load));
        assert_judged(load("invalid module format"), "", Verdict::Refused, None);
        assert_judged(Outcome::NoDeviceBound, "", Verdict::Internal, Some(How::Load));
    }

    #[test]
    fn what_the_kernel_says_counts_where_all_went_well() {
        assert_judged(Outcome::Completed, "usual 7\n", Verdict::None, None);
        assert_judged(Outcome::Completed, "e1000: oh\n", Verdict::Internal, Some(How::Complaint));
        let damage = "BUG: Bad page state in process sh\n";
        assert_judged(Outcome::Completed, damage, Verdict::Escaped, Some(How::Damage));
        assert_judged(failed("up", "no carrier"), damage, Verdict::Escaped, Some(How::Damage));
    }

    #[test]
    fn what_happens_before_the_driver_runs_is_not_its_fault() {
        let console = Console::new(b"");
        let outcome = Outcome::QemuFailed { why: "no memory".into() };
        let (failed, again, guarded) = (None, None, Some(Policy::Oops));
        let (outcome, stuck, step) = (&outcome, None, "boot");
        let seen = Seen { outcome, began: false, failed, again, guarded, stuck, step, console: &console };
        assert_eq!(judge(&seen, &["e1000"], &HashSet::new()).verdict, Verdict::Failed);
        assert_judged(outcome.clone(), "", Verdict::Escaped, Some(How::Machine));
    }

    #[test]
    fn a_guarded_driver_is_contained_where_it_is_stopped_in_time() {
        let violation = "guardrail: violation: write of 8 bytes at 1 by f+0x1/0x2 [x]: domain 1 holds read, needs write\n";
        let bug = "kernel BUG at report.c:1!\nRIP: 0010:tell+0x1/0x2 [guardrail]\n";
        let panic = Outcome::GuestPanic { text: "BUG: x".into() };
        let again = None;
        let all = |outcome: &Outcome, text: &str, failed, policy| {
            let console = Console::new(text.as_bytes());
            let (guarded, stuck, step) = (Some(policy), None, "ping");
            let seen = Seen { outcome, began: true, failed, again, guarded, stuck, step, console: &console };
            let judged = judge(&seen, &["x"], &HashSet::new());
            (judged.verdict, judged.how)
        };
        let oops = |text: &str| all(&panic, text, None, Policy::Oops);
        assert_eq!(oops(&format!("{violation}{bug}")), (Verdict::Contained, Some(How::Ended)));
        assert_eq!(oops(bug), (Verdict::Escaped, Some(How::Crash)));
        let outside = "kernel BUG at slub.c:1!\nRIP: 0010:kfree+0x1/0x2\n";
        assert_eq!(oops(&format!("{outside}{violation}")), (Verdict::Escaped, Some(How::Crash)));
        assert_eq!(oops(&format!("{violation}{outside}")), (Verdict::Escaped, Some(How::Crash)));
        assert_eq!(oops(&format!("list_add corruption\n{violation}{bug}")).0, Verdict::Escaped);
        let lost = Some(("host-verify", "byte 7 differs"));
        let late = all(&panic, &format!("{violation}{bug}"), lost, Policy::Oops);
        assert_eq!(late, (Verdict::Escaped, Some(How::Data)));
        let recover = |outcome: &Outcome| all(outcome, violation, None, Policy::Recover);
        assert_eq!(recover(&Outcome::Completed), (Verdict::Contained, Some(How::Dead)));
        let anew =
            "guardrail: domain 1 (x) is killed: write\nguardrail: recovery of domain 1 is done, 5 ms\n";
        let anew = all(&Outcome::Completed, &format!("{violation}{anew}"), None, Policy::Recover);
        assert_eq!(anew, (Verdict::Contained, Some(How::Recovered)));
        assert_eq!(recover(&failed("up", "no carrier")), (Verdict::Contained, Some(How::Workload)));
        assert_eq!(recover(&failed("host-verify", "byte 7 differs")).0, Verdict::Escaped);
        let fail = |outcome: &Outcome| all(outcome, violation, None, Policy::Fail);
        assert_eq!(fail(&Outcome::Completed), (Verdict::Contained, Some(How::Ended)));
        assert_eq!(fail(&failed("up", "no carrier")), (Verdict::Contained, Some(How::Workload)));
        let log = all(&Outcome::Completed, violation, None, Policy::Log);
        assert_eq!(log, (Verdict::Internal, Some(How::Complaint)));
    }
}
