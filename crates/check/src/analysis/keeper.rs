//! The gate's keeper: it applies the policy to findings, and closes the gate.

use crate::analysis::inbox::Inbox;
use crate::analysis::policy::{Decision, Policy};
use crate::analysis::wire::{Analyzed, Saves, ShortFinding};
use guardrail_finding::Finding;
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
    /// where the decision is new. No access passes before this returns, also while the guest is saved.
    pub fn judge(&mut self, finding: &Finding, report: &mut dyn FnMut(ShortFinding), inbox: &mut Inbox) {
        let decision = match self.decided.get(&finding.id) {
            // A closed gate stays closed.
            Some(Decision::Contained) => return,
            _ => self.policy.decide(&finding.kind, finding.triage.as_deref()),
        };
        let before = self.decided.insert(finding.id.clone(), decision);
        let waits = before.is_none() && self.saves.most > 0;
        let log = &self.log;
        let close = || {
            if decision == Decision::Contained {
                log.close_gate(Closed::Finding);
            }
        };
        if !waits || self.saves.close_first {
            close();
        }
        if before != Some(decision) {
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
    }

    /// Adds the decision to each finding. A finding at the end of the run is too late to be contained.
    pub fn finish(self, analyzed: &mut Analyzed) {
        for finding in &mut analyzed.findings {
            let decided = self.decided.get(&finding.id).copied().unwrap_or(Decision::Reported);
            finding.action = Some(decided.word().to_owned());
        }
    }
}
