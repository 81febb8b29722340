//! Memory that is freed while it is in use.
//!
//! A call cannot be added to code that keeps its size, so the bug uses calls that exist. There are three
//! forms:
//!
//! - A function frees what a pointer names. An earlier call in it that gets the same pointer frees it
//!   instead. The code behind that call uses freed memory, and frees it again.
//! - An earlier message or delay, which nothing depends on, gets the pointer and frees it.
//! - A function frees something only under a condition and goes on either way. The mutant always frees it.

use super::Site;
use crate::code::{Function, Insn, bit, branch_target};
use crate::edit::{Edit, Place, bytes, callee, nops, relocation, remove, value};
use crate::elf::Elf;
use crate::flow::{definition, flags_from};
use guardrail_knowledge::role::Role;
use iced_x86::{ConditionCode, Mnemonic, Register};

/// How many instructions before a free an earlier call may be.
const FAR: usize = 120;
/// Most instructions of a part that frees something under a condition.
const PART: usize = 24;

/// Finds every way to free something too early.
pub(super) fn early(elf: &Elf, function: &Function, index: usize, sites: &mut Vec<Site>) {
    let mut found = Vec::new();
    for (i, insn) in function.insns.iter().enumerate() {
        if callee(elf, function, insn).is_some_and(|name| Role::Frees.param(name) == Some(0)) {
            found.extend(earlier(elf, function, index, i));
        }
        found.extend(unconditional(elf, function, index, i, insn));
    }
    // Several frees of the same pointer share the calls before them.
    found.sort_by_key(|site| site.insn);
    found.dedup_by_key(|site| site.insn);
    sites.extend(found);
}

/// The calls before a free that get the same pointer.
fn earlier(elf: &Elf, function: &Function, index: usize, free: usize) -> Vec<Site> {
    let Some((pointer, parts)) = value(elf, function, free, Register::RDI) else { return Vec::new() };
    let Some(to) = relocation(elf, function, &function.insns[free]) else { return Vec::new() };
    let name = callee(elf, function, &function.insns[free]).unwrap_or_default();
    let mut sites = Vec::new();
    for i in (free.saturating_sub(FAR)..free).rev() {
        let insn = &function.insns[i];
        // Before this, what the pointer is computed from has another value.
        if insn.writes & parts != 0 {
            break;
        }
        let Some(called) = callee(elf, function, insn).filter(|name| !Role::Frees.has(name)) else {
            continue;
        };
        let place = Place::To { symbol: to.symbol, addend: to.addend };
        let call = Edit { insn: i, bytes: bytes(elf, function, insn).to_vec(), place };
        let same = value(elf, function, i, Register::RDI).is_some_and(|(other, _)| other == pointer);
        let edits = match same && !called.starts_with("__SC") {
            true => vec![call],
            false if Role::Idle.has(called) => match argument(elf, function, i, free) {
                Some(argument) => vec![argument, call],
                None => continue,
            },
            false => continue,
        };
        sites.push(Site::fixed(index, i, edits, format!("what {name} frees is freed early")));
    }
    sites
}

/// Gives a call the first argument of another, where the instruction that sets it has room for that.
fn argument(elf: &Elf, function: &Function, call: usize, other: usize) -> Option<Edit> {
    let sets = |call| definition(function, call, Register::RDI).map(|at| (at, &function.insns[at]));
    let ((at, old), (_, new)) = (sets(call)?, sets(other)?);
    let moves = |insn: &Insn| insn.writes == bit(Register::RDI) && !insn.stores;
    if !moves(old) || !moves(new) || !new.relocations.is_empty() || old.locked {
        return None;
    }
    // Nobody else uses what is set there.
    let between = &function.insns[at + 1..call];
    if between.iter().any(|insn| insn.target || insn.reads & bit(Register::RDI) != 0) {
        return None;
    }
    let mut bytes = bytes(elf, function, new).to_vec();
    bytes.extend(nops(old.instr.len().checked_sub(bytes.len())?));
    Some(Edit { insn: at, bytes, place: Place::Drop })
}

/// A branch around a free, where both ways meet behind it.
fn unconditional(elf: &Elf, function: &Function, index: usize, i: usize, insn: &Insn) -> Option<Site> {
    if !insn.instr.is_jcc_short_or_near() {
        return None;
    }
    let to = function.index_at(branch_target(elf, function.section, insn)?)?;
    let part = function.insns.get(i + 1..to).filter(|part| part.len() <= PART)?;
    if part.iter().any(Insn::ends_flow) {
        return None;
    }
    let name = part.iter().find_map(|one| callee(elf, function, one).filter(|name| Role::Frees.has(name)))?;
    // Nothing is freed where the pointer is null.
    let from = flags_from(function, i)?;
    let null = function.insns[from].instr.mnemonic() == Mnemonic::Test
        && function.insns[from].instr.op0_register().is_gpr64()
        && insn.instr.condition_code() == ConditionCode::e;
    (!null)
        .then(|| Site::fixed(index, i, vec![remove(function, i)], format!("{name} is called in every case")))
}
