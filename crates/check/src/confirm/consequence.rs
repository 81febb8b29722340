//! What follows where the order of a confirmed race is forced: runs that hold its accesses under all checkers.
//!
//! A fault counts where it comes after the order was forced, and no run without holds has it. So does the end
//! of a run: a workload that fails, a guest that panics or hangs.

use super::scheduling::Scheduling;
use super::verdict::tries;
use super::{collect, variables};
use crate::plan::{Effort, GateKind, HeldAccesses, RunPlan};
use crate::run;
use crate::tools::tools;
use guardrail_analysis::checkers::aftermath;
use guardrail_finding::{Consequence, Finding, KERNEL_CHECKER, Severity};
use guardrail_host::drivers::seconds;
use guardrail_host::{Host, HostError};
use guardrail_report::{Report, Run};
use guardrail_trace::config::{HoldPoint, Holds};
use guardrail_trace::meet::MeetOutcome;
use guardrail_vm::prepare::Prepared;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// A fault followed.
const FAULT: &str = "fault";
/// A write was lost or torn, and the driver read what was left.
const VALUE_USED: &str = "value-used";
/// Nothing followed in the time.
const NOTHING: &str = "nothing";
/// The order was not forced.
const NOT_FORCED: &str = "not-forced";
/// Most runs in which the order is to be forced once more.
const RUNS: u32 = 2;
/// Most further runs where the sides did not meet, or not on two CPUs in each order. On one CPU the other side is an interrupt,
/// which ends before the held side goes on.
const MORE_RUNS: u32 = 2;
/// How long the held side stays in the second run after the other side has come, in milliseconds: the other
/// may free or set up anew what the held side then goes on to use.
const LINGER: u64 = 300;
/// The ends of a run that the order may cause, as the report names them, each with the consequence's outcome.
const ENDS: [(&str, &str); 4] = [
    ("workload-failed", "workload-failed"),
    ("guest-panic", "guest-panic"),
    ("guest-hang", "guest-hang"),
    ("timed-out", "guest-hang"),
];

/// A race whose accesses have met.
#[derive(Clone, Debug)]
pub struct Met {
    /// Index of the race among the findings.
    pub race: usize,
    /// The instructions of both sides.
    pub points: Vec<HoldPoint>,
    /// The scheduling of the run in which they met.
    pub scheduling: Scheduling,
    /// The side that was held: 0 is the finding's own access.
    pub held: u8,
}

/// Looks for consequences of races of one run.
pub struct Search<'a> {
    plan: &'a RunPlan,
    prepared: &'a Prepared,
    host: &'a Host,
    effort: Effort,
    tools: Vec<String>,
    /// What runs without holds have found.
    known: Vec<Finding>,
    /// How runs without holds have ended.
    ends: Vec<End>,
    /// True where these runs had all of the tools.
    complete: bool,
    /// The schedulings of which a run without holds was made.
    usual: Vec<Scheduling>,
}

/// An end of a run that is not the usual one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct End {
    /// The outcome of the consequence.
    outcome: &'static str,
    /// The run's outcome in a sentence.
    detail: String,
    /// What the kernel said about it, or last.
    kernel: Option<String>,
}

impl End {
    /// The end that a report names, with what `kernel` says of it; `None` where the run went as it should.
    fn of(run: &Run, kernel: impl FnOnce() -> Option<String>) -> Option<End> {
        let (_, outcome) = ENDS.iter().find(|(word, _)| *word == run.outcome)?;
        let said = run.detail.as_deref().unwrap_or_default();
        let detail = match *outcome {
            "guest-panic" => "the guest panicked".to_owned(),
            _ => said.lines().next().unwrap_or_default().to_owned(),
        };
        let kernel =
            if *outcome == "guest-panic" { said.lines().next().map(str::to_owned) } else { kernel() };
        Some(End { outcome, detail, kernel })
    }

    /// Whether another run ended at the same place.
    fn is_like(&self, other: &End) -> bool {
        let step = |end: &End| end.detail.split("': ").next().unwrap_or_default().to_owned();
        self.outcome == other.outcome && step(self) == step(other)
    }

    fn sentence(&self) -> String {
        let kernel =
            self.kernel.as_deref().map_or(String::new(), |said| format!("; the kernel's last words: {said}"));
        format!("{}{kernel}", self.detail)
    }
}

/// One run, and how long it went on after the order was forced; `None` where it was not.
struct Followed {
    findings: Vec<Finding>,
    seconds: Option<f64>,
    /// The side that was held when they first met, unless both were on one CPU.
    held: Option<u8>,
    end: Option<End>,
}

/// The further runs of a race, each of which holds one side and has the other come on another CPU.
struct Further {
    left: u32,
    /// The side that was held when the race was confirmed.
    first: u8,
    /// The sides that were held when they met on two CPUs.
    held: [bool; 2],
}

impl Further {
    fn new(cpus: u8, first: u8) -> Further {
        Further { left: if cpus > 1 { MORE_RUNS } else { 0 }, first, held: [false; 2] }
    }

    /// The side to hold after a run in which the sides did not meet, and `held_apart` was to be held.
    fn after_unforced(&mut self, held_apart: Option<u8>) -> Option<u8> {
        self.take(held_apart.is_none().then_some(self.first))
    }

    /// The side to hold after a run in which nothing followed. `held` was held, unless the sides met on one CPU.
    fn after_nothing(&mut self, linger_millis: u64, held: Option<u8>) -> Option<u8> {
        if let Some(held) = held {
            self.held[usize::from(held)] = true;
        }
        self.take(match linger_millis {
            0 => [self.first, 1 - self.first].into_iter().find(|side| !self.held[usize::from(*side)]),
            _ => held.is_none().then_some(self.first),
        })
    }

    fn take(&mut self, side: Option<u8>) -> Option<u8> {
        let side = side.filter(|_| self.left > 0)?;
        self.left -= 1;
        Some(side)
    }
}

impl<'a> Search<'a> {
    /// Begins with the report of a run without holds.
    pub fn new(
        (plan, prepared, host): (&'a RunPlan, &'a Prepared, &'a Host),
        effort: Effort,
        report: &Report,
    ) -> Result<Search<'a>, HostError> {
        let tools = tools("quiet")?;
        let complete = tools.iter().all(|tool| report.tools.contains(tool));
        Ok(Search {
            plan,
            prepared,
            host,
            effort,
            tools,
            known: report.findings.clone(),
            ends: End::of(&report.run, || None).into_iter().collect(),
            complete,
            usual: Vec::new(),
        })
    }

    /// Forces the order of a race again, and says what follows. Where nothing grave does, the order is forced once
    /// more, and the held side stays for a while.
    pub fn consequence(&mut self, met: &Met) -> Result<Consequence, HostError> {
        let mut best = None;
        let mut ended = Vec::new();
        let mut next: VecDeque<(u64, Option<u8>)> = [(0, None), (LINGER, None)].into();
        next.truncate(self.effort.runs as usize);
        let mut further = Further::new(self.plan.cpus, met.held);
        while let Some((linger_millis, held_apart)) = next.pop_front() {
            self.host.progress.step("forcing the order under all checkers");
            let points = met.points.clone();
            let holds = Holds { points, linger_millis, once: true, held_apart, ..Holds::default() };
            // There a held thread moves to another CPU.
            let scheduling = if held_apart.is_some() { Scheduling::Shaken } else { met.scheduling };
            let run = self.run(scheduling, holds)?;
            let forced = run.findings.iter().find(|finding| is_note(finding, aftermath::FORCED));
            let (Some(forced), Some(seconds)) = (forced, run.seconds) else {
                ended.extend(run.end.map(|end| end.sentence()));
                if let Some(held) = further.after_unforced(held_apart) {
                    next.push_front((linger_millis, Some(held)));
                }
                continue;
            };
            let (mut fault, mut end) = self.what_follows(&run, forced.event);
            let mut alike = None;
            if fault.is_some() && !self.complete || end.is_some() && !self.usual.contains(&scheduling) {
                self.host.progress.step("the same without a hold");
                let usual = self.run(scheduling, Holds::default())?;
                self.known.extend(usual.findings);
                self.ends.extend(usual.end);
                self.complete = true;
                self.usual.push(scheduling);
                let before = fault.map(|fault| fault.kind.clone()).or(end.map(End::sentence));
                (fault, end) = self.what_follows(&run, forced.event);
                alike = before.filter(|_| fault.is_none() && end.is_none());
            }
            let mut found = judged(fault, end, &run.findings, seconds);
            if let Some(what) = alike {
                found.detail.push_str(&format!("; a run without a hold has the same: {what}"));
            }
            if fault.is_some() || end.is_some() {
                return Ok(found);
            }
            best = best.filter(|one: &Consequence| one.outcome == VALUE_USED).or(Some(found));
            if let Some(held) = further.after_nothing(linger_millis, run.held) {
                next.push_front((linger_millis, Some(held)));
            }
        }
        let tried = u64::from(self.effort.tries * RUNS.min(self.effort.runs));
        Ok(best.unwrap_or_else(|| not_forced(tried, &ended)))
    }

    /// The fault after the event, and the end of the run, that no run without holds has.
    fn what_follows<'f>(&self, run: &'f Followed, after: u64) -> (Option<&'f Finding>, Option<&'f End>) {
        let end = run.end.as_ref().filter(|end| !self.ends.iter().any(|known| known.is_like(end)));
        (self.new_faults(&run.findings, after).first().copied(), end)
    }

    /// Faults after the event that no run without holds has.
    fn new_faults<'f>(&self, findings: &'f [Finding], after: u64) -> Vec<&'f Finding> {
        let known = |finding: &Finding| {
            self.known.iter().any(|other| {
                let place = |one: &Finding| (one.kind.clone(), one.module.clone(), one.function.clone());
                other.id == finding.id || place(other) == place(finding)
            })
        };
        let fault = |finding: &&Finding| {
            finding.checker != aftermath::NAME
                && finding.severity == Severity::Error
                // The log of the kernel does not say when the accesses met.
                && (finding.checker == KERNEL_CHECKER || finding.event > after)
                && !known(finding)
        };
        findings.iter().filter(fault).collect()
    }

    /// One run under all checkers, which ends some time after the order was forced.
    fn run(&self, scheduling: Scheduling, holds: Holds) -> Result<Followed, HostError> {
        let holds = scheduling.times(1, Holds { tries: self.effort.tries, ..holds });
        let plan = RunPlan {
            tools: [self.tools.clone(), vec![aftermath::NAME.to_owned()]].concat(),
            gate: GateKind::Off,
            threads: super::threads(self.plan),
            kernel_arguments: [self.plan.kernel_arguments.clone(), scheduling.kernel_arguments()].concat(),
            held: Some(HeldAccesses { holds, variables: variables(self.plan, self.prepared, scheduling) }),
            confirm: None,
            record: None,
            snapshots: None,
            out: None,
            ..self.plan.clone()
        };
        let mut started = run::prepare(&plan, self.host)?.start()?;
        let reader = started.reader()?;
        let first = Arc::new(OnceLock::<Instant>::new());
        let (seen, limit) = (Arc::clone(&first), self.effort.follow);
        let meets = std::thread::spawn(move || {
            collect(reader, |meet| {
                if meet.outcome == MeetOutcome::Met {
                    seen.get_or_init(Instant::now);
                }
            })
        });
        let forced = Arc::clone(&first);
        started.until(Box::new(move || {
            forced
                .get()
                .filter(|at| at.elapsed() >= limit)
                .map(|_| "the time after the meeting is over".into())
        }));
        let signals = &self.host.signals;
        let ended = started.watch().map_err(|error| signals.explain(error))?;
        if signals.interrupted() {
            return Err(HostError::Interrupted);
        }
        let seconds = first.get().map(|at| seconds(at.elapsed()));
        let meets = meets.join().map_err(|_| HostError::Run("the reader of the log died".into()))??;
        let met = meets.iter().find(|meet| meet.outcome == MeetOutcome::Met);
        let concluded = ended.conclude().map_err(|error| signals.explain(error))?;
        if concluded.interrupted() {
            return Err(HostError::Interrupted);
        }
        let run = &concluded.report.run;
        let end = End::of(run, || concluded.kernels_words());
        if run.lost_events > 0 || end.is_none() && !["completed", "stopped"].contains(&run.outcome.as_str()) {
            let why = run.detail.as_deref().unwrap_or(&run.outcome);
            return Err(HostError::Run(format!("the run under all checkers ended otherwise: {why}")));
        }
        Ok(Followed {
            findings: concluded.report.findings,
            seconds,
            held: met.filter(|meet| meet.held.cpu != meet.other.cpu).map(|meet| meet.held.role & 1),
            end,
        })
    }
}

fn is_note(finding: &Finding, kind: &str) -> bool {
    finding.checker == aftermath::NAME && finding.kind == kind
}

/// The outcome of a run in which the order was forced.
fn judged(fault: Option<&Finding>, end: Option<&End>, findings: &[Finding], seconds: f64) -> Consequence {
    let used = || {
        findings.iter().find(|one| is_note(one, aftermath::LOST) || is_note(one, aftermath::TORN)).cloned()
    };
    let place = |finding: &Finding| {
        let module = if finding.module.is_empty() { String::new() } else { format!(" [{}]", finding.module) };
        format!("{}+{:#x}{module}", finding.function, finding.offset)
    };
    let (outcome, detail, finding) = if let Some(fault) = fault {
        let detail = format!("made to happen: {} in {}: {}", fault.kind, place(fault), fault.message);
        let then = end.map_or(String::new(), |end| format!("; then {}", end.detail));
        (FAULT, detail + &then, Some(fault.clone()))
    } else if let Some(end) = end {
        (end.outcome, format!("made to happen: {}", end.sentence()), None)
    } else if let Some(used) = used() {
        let detail = format!("the order was forced, and in {} {}", place(&used), used.message);
        (VALUE_USED, detail, Some(used))
    } else {
        (NOTHING, format!("the order was forced; nothing followed within {seconds:.1} s"), None)
    };
    Consequence { outcome: outcome.to_owned(), detail, seconds, finding }
}

/// The outcome where the sides did not meet, with how runs ended otherwise than usual.
pub fn not_forced(number: u64, ended: &[String]) -> Consequence {
    let ended = ended.first().map_or(String::new(), |why| format!("; a run ended before: {why}"));
    let detail = format!("the order could not be forced in {}{ended}", tries(number));
    Consequence { outcome: NOT_FORCED.to_owned(), detail, ..Consequence::default() }
}

/// The outcome where the runs that look for a consequence failed.
pub fn not_looked_for(why: &str) -> Consequence {
    let detail = format!("what follows is not known: {why}");
    Consequence { outcome: NOT_FORCED.to_owned(), detail, ..Consequence::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(checker: &str, kind: &str) -> Finding {
        Finding {
            checker: checker.into(),
            kind: kind.into(),
            module: "drv".into(),
            function: "f".into(),
            message: "it says why".into(),
            ..Finding::default()
        }
    }

    #[test]
    fn a_fault_counts_more_than_a_value() {
        let all = [found(aftermath::NAME, aftermath::LOST), found("dmcheck", "use-after-free")];
        let fault = judged(Some(&all[1]), None, &all, 1.0);
        assert_eq!(
            (fault.outcome.as_str(), fault.detail.as_str()),
            (FAULT, "made to happen: use-after-free in f+0x0 [drv]: it says why")
        );
        let value = judged(None, None, &all, 1.0);
        assert_eq!(value.detail, "the order was forced, and in f+0x0 [drv] it says why");
        let nothing = judged(None, None, &[], 9.96);
        assert_eq!(nothing.detail, "the order was forced; nothing followed within 10.0 s");
        assert_eq!(not_forced(1, &[]).detail, "the order could not be forced in 1 try");
    }

    fn ended(outcome: &str, detail: &str) -> Option<End> {
        let (outcome, detail) = (outcome.to_owned(), Some(detail.to_owned()));
        End::of(&Run { outcome, detail, ..Run::default() }, || Some("eth0: Reset adapter".into()))
    }

    #[test]
    fn further_runs_have_each_order_on_two_cpus() {
        let mut further = Further::new(2, 1);
        assert_eq!(further.after_nothing(0, None), Some(1));
        assert_eq!(further.after_nothing(0, Some(1)), Some(0));
        assert_eq!(further.after_nothing(0, None), None);
        let mut further = Further::new(2, 0);
        assert_eq!([None, Some(0)].map(|held| further.after_unforced(held)), [Some(0), None]);
        assert_eq!(further.after_nothing(LINGER, Some(1)), None);
        assert_eq!(further.after_nothing(LINGER, None), Some(0));
        assert_eq!(Further::new(1, 0).after_nothing(0, None), None);
    }

    #[test]
    fn the_end_of_a_run_is_a_consequence() {
        assert_eq!(ended("completed", ""), None);
        assert_eq!(ended("stopped", "the time is over"), None);
        assert_eq!(ended("load-failed", "no"), None);
        let failed = ended("workload-failed", "the workload failed at 'after': no answer").unwrap();
        let then = judged(None, Some(&failed), &[], 1.0);
        assert_eq!(
            (then.outcome.as_str(), then.detail.as_str()),
            (
                "workload-failed",
                "made to happen: the workload failed at 'after': no answer; the kernel's last words: eth0: Reset adapter"
            )
        );
        let panic =
            ended("guest-panic", "BUG: kernel NULL pointer dereference\nRIP: 0010:f+0x1/0x2").unwrap();
        assert_eq!(
            judged(None, Some(&panic), &[], 1.0).detail,
            "made to happen: the guest panicked; the kernel's last words: BUG: kernel NULL pointer dereference"
        );
        let hung = ended("timed-out", "the run reached its limit of 600 s in 'after'").unwrap();
        assert_eq!(hung.outcome, "guest-hang");
        let other = ended("workload-failed", "the workload failed at 'after': bad sum").unwrap();
        assert!(failed.is_like(&other) && !failed.is_like(&hung));
        let fault = judged(Some(&found("dmcheck", "leak")), Some(&failed), &[], 1.0);
        assert!(
            fault.detail.ends_with("; then the workload failed at 'after': no answer"),
            "{}",
            fault.detail
        );
        let before = not_forced(4, &[failed.sentence()]);
        assert!(
            before.detail.contains("4 tries; a run ended before: the workload failed"),
            "{}",
            before.detail
        );
    }
}
