//! Locks that are not taken.

use super::Site;
use crate::code::Function;
use crate::edit::{Edit, Place, callee, nops, remove, value};
use crate::elf::Elf;
use guardrail_knowledge::role::Role;
use guardrail_knowledge::table::Kind;
use iced_x86::Register;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// What functions have in common that take and release one sort of locks.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Family {
    kind: &'static str,
    shared: bool,
    /// The only lock; `None` if the first argument is the lock.
    only: Option<&'static str>,
}

/// What a function does to a lock.
#[derive(Clone, Copy)]
struct Does {
    family: Family,
    takes: bool,
    /// Whether the function reports by zero that it took the lock.
    reports: bool,
}

/// The functions that take and release locks and that a mutant may leave out.
static FUNCTIONS: LazyLock<BTreeMap<&str, Does>> = LazyLock::new(|| {
    let mut functions = BTreeMap::new();
    for row in Kind::Locks.rows() {
        for effect in row.effects.iter().filter(|effect| matches!(effect.verb(), "lock" | "unlock")) {
            let (Some(kind), Some(key)) = (effect.word(1), effect.word(2)) else { continue };
            let only = key.starts_with("global(").then_some(key);
            let does = Does {
                family: Family { kind, shared: effect.words.contains(&"shared"), only },
                takes: effect.verb() == "lock",
                reports: effect.words.contains(&"if=zero"),
            };
            let names = row.names.iter().filter(|name| Role::Droppable.has(name));
            functions.extend(names.map(|name| (*name, does)));
        }
    }
    functions
});

/// A call that takes or releases a lock.
struct Call {
    insn: usize,
    does: Does,
    lock: Option<String>,
}

/// Finds every lock that the function takes and releases. A lock that is released elsewhere stays. Without
/// its other half, the mutant would have a second bug: an unlock of a lock that is free.
pub(super) fn pairs(elf: &Elf, function: &Function, index: usize, sites: &mut Vec<Site>) {
    let calls = calls(elf, function);
    for (i, take) in calls.iter().enumerate().filter(|(_, call)| call.does.takes) {
        if take.does.family.only.is_none() && take.lock.is_none() {
            continue;
        }
        let same = |call: &&Call| call.does.family == take.does.family && call.lock == take.lock;
        // A function may take the same lock again further down.
        let gives: Vec<&Call> =
            calls[i + 1..].iter().filter(same).take_while(|call| !call.does.takes).collect();
        if gives.is_empty() {
            continue;
        }
        let mut edits = vec![left_out(function, take)];
        edits.extend(gives.iter().map(|give| remove(function, give.insn)));
        sites.push(Site::fixed(index, take.insn, edits, "the lock is not taken"));
    }
}

fn calls(elf: &Elf, function: &Function) -> Vec<Call> {
    let call = |(insn, one)| {
        let does = *FUNCTIONS.get(callee(elf, function, one)?)?;
        let lock = match does.family.only {
            None => value(elf, function, insn, Register::RDI).map(|(text, _)| text),
            Some(_) => None,
        };
        Some(Call { insn, does, lock })
    };
    function.insns.iter().enumerate().filter_map(call).collect()
}

/// Code that does nothing, with the result that the call would have had.
fn left_out(function: &Function, take: &Call) -> Edit {
    if !take.does.reports {
        return remove(function, take.insn);
    }
    // xor eax,eax
    let mut bytes = vec![0x31, 0xc0];
    bytes.extend(nops(function.insns[take.insn].instr.len().saturating_sub(2)));
    Edit { insn: take.insn, bytes, place: Place::Drop }
}
