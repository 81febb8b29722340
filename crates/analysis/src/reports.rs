//! The findings so far, merged by fingerprint.

use crate::stacks::{OuterId, StackId, Stacks};
use guardrail_finding::triage::BENIGN;
use guardrail_finding::{Finding, Fingerprints, Severity};
use rustc_hash::{FxHashMap, FxHashSet};

/// Most findings that are kept; further causes are only counted.
const MAX_FINDINGS: usize = 4096;

/// A kind of finding, and the stack at which it is.
type Key = (&'static str, StackId);

/// Collects findings and merges equal ones.
#[derive(Debug, Default)]
pub struct Reports {
    findings: Vec<Finding>,
    /// Findings by [`Finding::place`]. Races of one fingerprint are merged at the end only, because each may
    /// be judged anew or dropped.
    by_place: FxHashMap<u64, usize>,
    fingerprints: Fingerprints,
    /// Findings by kind and stack, so that a finding in a loop is built once.
    by_stack: FxHashMap<Key, usize>,
    stacks: Stacks,
    /// Findings that are new or judged anew since the last call of [`Reports::news`].
    news: Vec<usize>,
    /// Findings that what follows may still take back.
    doubted: FxHashSet<usize>,
    /// Findings that were acted upon, so that they stay reported.
    acted_upon: FxHashSet<usize>,
}

impl Reports {
    /// What distinguishes findings of this kind before they are built.
    pub fn key(&mut self, kind: &'static str, stack: &[u64]) -> Key {
        (kind, self.stacks.intern(stack, OuterId::default()))
    }

    /// Counts the finding of this key once more, where there is one. Returns its number.
    pub fn count_again(&mut self, key: Key) -> Option<usize> {
        let at = *self.by_stack.get(&key)?;
        self.findings[at].count += 1;
        Some(at)
    }

    /// Adds the finding of this key, or counts it where its place has one. Returns its number; `None` where
    /// there are too many.
    pub fn add(&mut self, key: Key, mut finding: Finding) -> Option<usize> {
        let place = finding.place();
        let at = match self.by_place.get(&place) {
            Some(&at) => {
                self.findings[at].count += 1;
                at
            }
            None if self.findings.len() >= MAX_FINDINGS => return None,
            None => {
                finding.count = 1;
                finding.id = self.fingerprints.of(&finding);
                self.by_place.insert(place, self.findings.len());
                self.findings.push(finding);
                self.news.push(self.findings.len() - 1);
                self.findings.len() - 1
            }
        };
        // The number 0 is that of all stacks for which the table has no room.
        if key.1 != StackId(0) {
            self.by_stack.insert(key, at);
        }
        Some(at)
    }

    /// Forgets which stacks have findings: addresses belong to other code from now on.
    pub fn renamed(&mut self) {
        self.by_stack.clear();
    }

    /// Takes one occurrence of a finding back.
    pub fn retract(&mut self, at: usize) {
        if let Some(finding) = self.findings.get_mut(at) {
            finding.count = finding.count.saturating_sub(1);
            if finding.count == 0 {
                self.doubted.remove(&at);
            }
        }
    }

    /// What follows may take back a finding that was just counted, unless it is certain by an earlier
    /// occurrence.
    pub fn doubt(&mut self, at: usize) {
        if self.findings.get(at).is_some_and(|finding| finding.count <= 1) {
            self.doubted.insert(at);
        }
    }

    /// Nothing that follows takes back an occurrence of the finding.
    pub fn trust(&mut self, at: usize) {
        if self.doubted.remove(&at) {
            self.news.push(at);
        }
    }

    /// A finding, to be counted again or judged anew.
    pub fn get_mut(&mut self, at: usize) -> Option<&mut Finding> {
        if self.news.last() != Some(&at) && self.news.len() < MAX_FINDINGS {
            self.news.push(at);
        }
        self.findings.get_mut(at)
    }

    /// Calls `each` with the findings that are new or may have been judged anew since the last call, and
    /// whether what follows may still take them back. A finding for which `each` returns true was acted upon.
    pub fn news(&mut self, mut each: impl FnMut(&Finding, bool) -> bool) {
        for at in std::mem::take(&mut self.news) {
            let Some(finding) = self.findings.get(at).filter(|finding| finding.count > 0) else { continue };
            if each(finding, self.doubted.contains(&at)) {
                self.acted_upon.insert(at);
            }
        }
    }

    /// Whether [`news`](Self::news) has any findings.
    #[inline]
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// The number of findings that are not retracted.
    pub fn count(&self) -> usize {
        let ids = self.findings.iter().filter(|finding| finding.count > 0).map(|finding| &finding.id);
        ids.collect::<FxHashSet<_>>().len()
    }

    /// The findings, in the order in which they were first seen. Of those with one fingerprint, the first of
    /// the most severe ones stands for all, and has their number.
    pub fn into_findings(mut self) -> Vec<Finding> {
        let mut kept: Vec<Finding> = Vec::new();
        let mut at: FxHashMap<String, usize> = FxHashMap::default();
        for &at in &self.acted_upon {
            self.findings[at].count = self.findings[at].count.max(1);
        }
        for mut finding in self.findings.into_iter().filter(|finding| finding.count > 0) {
            let Some(known) = at.get(&finding.id).map(|&at| &mut kept[at]) else {
                at.insert(finding.id.clone(), kept.len());
                kept.push(finding);
                continue;
            };
            let count = known.count.saturating_add(finding.count);
            if rank(&finding) < rank(known) {
                std::mem::swap(known, &mut finding);
            }
            known.count = count;
        }
        kept
    }
}

/// The place of a finding in a list that begins with the most severe ones. Those that are likely benign come
/// last among equals.
fn rank(finding: &Finding) -> (Severity, bool) {
    (finding.severity, finding.triage.as_deref().is_some_and(|triage| triage.starts_with(BENIGN)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_finding::{Frame, OtherAccess};

    fn race(offset: u64, severity: Severity) -> Finding {
        let frame = |function: &str| {
            vec![Frame { function: function.into(), module: Some("drv".into()), offset, ..Frame::default() }]
        };
        let other = OtherAccess { stack: frame("g"), ..OtherAccess::default() };
        let kind = "data-race".to_owned();
        Finding { kind, severity, stack: frame("f"), other: Some(other), ..Finding::default() }
    }

    #[test]
    fn what_was_acted_upon_stays_reported() {
        let mut reports = Reports::default();
        for offset in [1, 2] {
            let key = reports.key("data-race", &[offset]);
            reports.add(key, race(offset, Severity::Error)).unwrap();
            reports.doubt(offset as usize - 1);
        }
        let mut seen = Vec::new();
        reports.news(|_, in_doubt| {
            seen.push(in_doubt);
            false
        });
        reports.retract(0);
        reports.trust(0);
        reports.trust(1);
        reports.news(|_, in_doubt| {
            seen.push(in_doubt);
            true
        });
        assert_eq!(seen, [true, true, false]);
        reports.retract(1);
        assert_eq!(reports.into_findings().len(), 1);
    }

    #[test]
    fn a_race_keeps_its_gravest_pair_of_places() {
        let mut reports = Reports::default();
        for (offset, severity) in [(1, Severity::Warning), (2, Severity::Error), (3, Severity::Error)] {
            let key = reports.key("data-race", &[offset]);
            reports.add(key, race(offset, severity)).unwrap();
        }
        // One of the places turns out to be no race. The others still are.
        reports.get_mut(1).unwrap().count = 0;
        assert_eq!(reports.count(), 1);
        let findings = reports.into_findings();
        assert_eq!((findings.len(), findings[0].count, findings[0].severity), (1, 2, Severity::Error));
        assert_eq!(findings[0].stack[0].offset, 3);
    }
}
