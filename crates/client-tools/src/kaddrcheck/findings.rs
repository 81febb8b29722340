//! Findings of the run, one for each kind and instruction.

use guardrail_client_api::{Fault, Module};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most findings that are kept.
const MAX: usize = 1000;
/// Accesses of an instruction that are judged. Further ones are only counted.
const JUDGED: u64 = 16;

/// All findings of the run.
#[derive(Default)]
pub struct Findings {
    all: Mutex<Vec<Found>>,
    /// Accesses that were no faults, because the client had missed the allocation: their number by
    /// instruction.
    unseen: Mutex<BTreeMap<u64, u64>>,
}

struct Found {
    fault: Fault,
    /// Address in the caller, where the fault is in a helper; 0 elsewhere.
    caller: u64,
    /// True once the instruction's module is unloaded, because other code may use its addresses.
    closed: bool,
}

impl Findings {
    fn lock(&self) -> MutexGuard<'_, Vec<Found>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a further access of an instruction that was judged often enough. Returns false where it
    /// was not.
    pub fn often(&self, pc: u64, caller: u64) -> bool {
        let mut all = self.lock();
        let found = all.iter_mut().find(|found| found.is(pc, caller) && found.fault.count >= JUDGED);
        found.map(|found| found.fault.count += 1).is_some()
    }

    /// Counts an access that was no fault: the kernel's lists say that the memory is in use.
    pub fn unseen(&self, pc: u64) {
        let mut unseen = self.unseen.lock().unwrap_or_else(PoisonError::into_inner);
        if unseen.len() < MAX || unseen.contains_key(&pc) {
            *unseen.entry(pc).or_default() += 1;
        }
    }

    /// Instructions with such accesses, and their number.
    pub fn all_unseen(&self) -> Vec<(u64, u64)> {
        let unseen = self.unseen.lock().unwrap_or_else(PoisonError::into_inner);
        unseen.iter().map(|(&pc, &times)| (pc, times)).collect()
    }

    /// Counts a finding that is known, or for which there is no room. Returns false where it is new.
    pub fn again(&self, kind: &str, pc: u64, caller: u64) -> bool {
        let mut all = self.lock();
        match find(&mut all, kind, pc, caller) {
            Some(found) => {
                found.fault.count += 1;
                true
            }
            None => all.len() >= MAX,
        }
    }

    /// Adds a new finding.
    pub fn add(&self, fault: Fault, caller: u64) {
        let mut all = self.lock();
        match find(&mut all, &fault.kind, fault.pc, caller) {
            Some(found) => found.fault.count += 1,
            None => all.push(Found { fault, caller, closed: false }),
        }
    }

    /// Closes the findings in a module that is unloaded.
    pub fn close(&self, module: &Module) {
        let inside = |found: &&mut Found| module.contains(found.fault.pc) || module.contains(found.caller);
        for found in self.lock().iter_mut().filter(inside) {
            found.closed = true;
        }
    }

    /// All findings so far.
    pub fn all(&self) -> Vec<Fault> {
        self.lock().iter().map(|found| found.fault.clone()).collect()
    }
}

impl Found {
    fn is(&self, pc: u64, caller: u64) -> bool {
        !self.closed && self.fault.pc == pc && self.caller == caller
    }
}

fn find<'a>(all: &'a mut [Found], kind: &str, pc: u64, caller: u64) -> Option<&'a mut Found> {
    all.iter_mut().find(|found| found.is(pc, caller) && found.fault.kind == kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_is_told_once_as_long_as_its_module_is_there() {
        let findings = Findings::default();
        let fault = Fault { kind: "redzone".into(), pc: 0x1000, count: 1, ..Fault::default() };
        assert!(!findings.again("redzone", 0x1000, 0));
        findings.add(fault.clone(), 0);
        assert!(findings.again("redzone", 0x1000, 0) && !findings.again("out-of-bounds", 0x1000, 0));
        assert!(!findings.again("redzone", 0x1000, 0x2000), "another caller");
        findings.close(&Module { regions: vec![(0x800, 0x1000, 1)], ..Module::default() });
        assert!(!findings.again("redzone", 0x1000, 0));
        findings.add(fault, 0);
        assert_eq!(findings.all().iter().map(|fault| fault.count).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn what_is_found_often_is_only_counted() {
        let findings = Findings::default();
        assert!(!findings.often(0x1000, 0));
        findings.add(Fault { kind: "redzone".into(), pc: 0x1000, count: JUDGED, ..Fault::default() }, 0);
        assert!(findings.often(0x1000, 0) && !findings.often(0x1000, 8));
        findings.unseen(0x3000);
        findings.unseen(0x3000);
        assert_eq!(findings.all_unseen(), [(0x3000, 2)]);
    }
}
