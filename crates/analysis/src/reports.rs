//! The findings so far, merged by fingerprint.

use crate::stacks::{StackId, Stacks};
use guardrail_finding::Finding;
use rustc_hash::FxHashMap;

/// Most findings that are kept; further causes are only counted.
const MAX_FINDINGS: usize = 4096;

/// Collects findings and merges equal ones.
#[derive(Debug, Default)]
pub struct Reports {
    findings: Vec<Finding>,
    by_id: FxHashMap<String, usize>,
    /// Findings by kind and stack, so that a finding in a loop is built once.
    by_stack: FxHashMap<(&'static str, StackId), usize>,
    stacks: Stacks,
    /// Findings that are new or judged anew since the last call of [`Reports::news`].
    news: Vec<usize>,
}

impl Reports {
    /// Counts a finding of this kind at this stack, and builds it when it is new. Returns its number; `None`
    /// where there are too many.
    pub fn add(
        &mut self,
        kind: &'static str,
        stack: &[u64],
        build: impl FnOnce() -> Finding,
    ) -> Option<usize> {
        let key = (kind, self.stacks.intern(stack));
        if key.1 != StackId(0)
            && let Some(&at) = self.by_stack.get(&key)
        {
            self.findings[at].count += 1;
            return Some(at);
        }
        let mut finding = build();
        finding.id = finding.fingerprint();
        let at = match self.by_id.get(&finding.id) {
            Some(&at) => {
                self.findings[at].count += 1;
                at
            }
            None if self.findings.len() >= MAX_FINDINGS => return None,
            None => {
                finding.count = 1;
                self.by_id.insert(finding.id.clone(), self.findings.len());
                self.findings.push(finding);
                self.news.push(self.findings.len() - 1);
                self.findings.len() - 1
            }
        };
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
        }
    }

    /// A finding, to be counted again or judged anew.
    pub fn get_mut(&mut self, at: usize) -> Option<&mut Finding> {
        if self.news.last() != Some(&at) && self.news.len() < MAX_FINDINGS {
            self.news.push(at);
        }
        self.findings.get_mut(at)
    }

    /// The findings that are new or may have been judged anew since the last call.
    pub fn news(&mut self) -> impl Iterator<Item = &Finding> {
        let news = std::mem::take(&mut self.news);
        news.into_iter().filter_map(|at| self.findings.get(at)).filter(|finding| finding.count > 0)
    }

    /// Whether [`news`](Self::news) has any findings.
    #[inline]
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// The number of findings that are not retracted.
    pub fn count(&self) -> usize {
        self.findings.iter().filter(|f| f.count > 0).count()
    }

    /// The findings, in the order in which they were first seen.
    pub fn into_findings(mut self) -> Vec<Finding> {
        self.findings.retain(|f| f.count > 0);
        self.findings
    }
}
