//! The gate's keeper: it applies the policy to findings, and closes the gate.

use crate::analysis::inbox::Inbox;
use crate::analysis::policy::{Decision, Policy};
use crate::analysis::wire::{Analyzed, Saves, ShortFinding};
use guardrail_finding::{Finding, KERNEL_CHECKER, Severity};
use guardrail_trace::log::{Closed, Log};
use std::collections::BTreeMap;
use std::time::Duration;

/// Applies the policy to findings, and closes the gate.
pub struct Keeper {
    policy: Policy,
    log: Log,
    decided: BTreeMap<String, Decision>,
    saves: Saves,
}

impl Keeper {
    /// A keeper that has decided nothing yet.
    pub fn new(policy: Policy, log: Log, saves: Saves) -> Keeper {
        Keeper { policy, log, decided: BTreeMap::new(), saves }
    }

    /// Decides about a finding before the writer learns that its segment was checked. Reports the finding
    /// where the decision is new, and it is no note; for a note, the guest is not saved either. No access passes
    /// before this returns, also while the guest is saved. Returns whether the finding has closed the gate.
    pub fn judge(
        &mut self,
        finding: &Finding,
        in_doubt: bool,
        report: &mut dyn FnMut(ShortFinding),
        inbox: &mut Inbox,
    ) -> bool {
        let known = self.decided.get(&finding.id).copied();
        // A closed gate stays closed, and what a driver does without its device is not charged to it.
        if known == Some(Decision::Contained) || known.is_none() && self.closed() {
            return known.is_some();
        }
        let decision = match self.policy.decide(finding) {
            // The gate closes only on what is final.
            Decision::Contained if in_doubt => Decision::Undecided,
            decision => decision,
        };
        let before = self.decided.insert(finding.id.clone(), decision);
        let is_note = finding.severity == Severity::Note;
        let waits = before.is_none() && self.saves.most > 0 && !is_note;
        let log = &self.log;
        let close = || {
            if decision == Decision::Contained {
                log.close_gate(Closed::Finding);
            }
        };
        if !waits || self.saves.close_first {
            close();
        }
        if before != Some(decision) && (!is_note || decision == Decision::Contained) {
            report(ShortFinding {
                id: finding.id.clone(),
                checker: finding.checker.clone(),
                kind: finding.kind.clone(),
                message: finding.message.clone(),
                action: decision.word().to_owned(),
                waits,
            });
        }
        if waits {
            let saved = inbox.saved(&finding.id, Duration::from_secs(self.saves.seconds));
            close();
            // A supervisor that did not answer once is not waited for again.
            self.saves.most = if saved { self.saves.most - 1 } else { 0 };
        }
        decision == Decision::Contained
    }

    /// Whether a finding has closed the gate.
    fn closed(&self) -> bool {
        self.decided.values().any(|decision| *decision == Decision::Contained)
    }

    /// Adds the decision to each finding. A finding at the end of the run is too late to be contained. Where
    /// the device was cut off, what came later is not reported: the driver had lost its device.
    pub fn finish(self, analyzed: &mut Analyzed) {
        if self.closed() {
            let before = analyzed.findings.len();
            // The kernel's log ends at the cut.
            let counts = |finding: &Finding| {
                finding.checker == KERNEL_CHECKER || self.decided.contains_key(&finding.id)
            };
            analyzed.findings.retain(counts);
            match before - analyzed.findings.len() {
                0 => {}
                1 => analyzed.notes.push("1 finding after the cut-off is not reported".to_owned()),
                n => analyzed.notes.push(format!("{n} findings after the cut-off are not reported")),
            }
        }
        for finding in &mut analyzed.findings {
            let decided = self.decided.get(&finding.id).copied().unwrap_or(Decision::Reported);
            finding.action = Some(decided.word().to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Mode;
    use guardrail_trace::log::{Log, LogOptions};
    use std::io::{self, BufReader};
    use std::path::Path;

    fn finding(id: &str, checker: &str) -> Finding {
        let (id, checker) = (id.to_owned(), checker.to_owned());
        Finding { id, checker, kind: "dma-uninit".to_owned(), ..Finding::default() }
    }

    fn log(folder: &Path) -> Log {
        let options = LogOptions { words_per_ring: 1 << 12, readers: 1, ..LogOptions::new(1) };
        Log::create_with(folder.join("log"), &options).unwrap()
    }

    #[test]
    fn notes_are_decided_about_and_not_announced() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(folder.path());
        let mut inbox = Inbox::listen(BufReader::new(io::empty()));
        let note = Finding { severity: Severity::Note, ..finding("a", "dmacheck") };
        for (mode, announced) in [(Mode::Permissive, false), (Mode::Stringent, true)] {
            let policy = Policy { mode, kinds: BTreeMap::new() };
            let mut keeper = Keeper::new(policy, log.clone(), Saves { most: 4, ..Saves::default() });
            let mut said = 0;
            keeper.judge(&note, false, &mut |_| said += 1, &mut inbox);
            assert_eq!((said > 0, keeper.saves.most), (announced, 4));
        }
    }

    #[test]
    fn the_gate_closes_on_what_is_final_and_later_findings_are_not_charged() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(folder.path());
        let policy = Policy { mode: Mode::Stringent, kinds: BTreeMap::new() };
        let mut keeper = Keeper::new(policy, log.clone(), Saves::default());
        let mut inbox = Inbox::listen(BufReader::new(io::empty()));
        let mut said = Vec::new();
        for (id, in_doubt, closes) in
            [("a", true, false), ("b", true, false), ("b", false, true), ("c", false, false)]
        {
            let report = &mut |found: ShortFinding| said.push(format!("{id}: {}", found.action));
            assert_eq!(keeper.judge(&finding(id, "dmacheck"), in_doubt, report, &mut inbox), closes, "{id}");
            assert_eq!(log.gate_closed().is_some(), id > "b" || closes, "{id}");
        }
        assert_eq!(said, ["a: passed: undecided", "b: passed: undecided", "b: contained"]);
        // Finding `a` was retracted, and `d` was found at the end of the run.
        let findings = vec![
            finding("b", "dmacheck"),
            finding("c", "dmacheck"),
            finding("d", "dmcheck"),
            finding("k", KERNEL_CHECKER),
        ];
        let mut analyzed = Analyzed { findings, ..Analyzed::default() };
        keeper.finish(&mut analyzed);
        let left: Vec<&str> = analyzed.findings.iter().map(|finding| finding.id.as_str()).collect();
        assert_eq!(left, ["b", "k"]);
        assert_eq!(analyzed.notes, ["2 findings after the cut-off are not reported"]);
    }
}
