//! Locks that are not taken.

use super::Site;
use crate::code::Function;
use crate::edit::{Edit, Place, callee, nops, remove, value};
use crate::elf::Elf;
use iced_x86::Register;

/// How a family of locks is taken and released.
struct Family {
    take: &'static [&'static str],
    give: &'static [&'static str],
    /// Whether the lock is the first argument; otherwise there is only one.
    named: bool,
}

const FAMILIES: [Family; 9] = [
    Family {
        take: &["_raw_spin_lock", "_raw_spin_lock_irq", "_raw_spin_lock_irqsave", "_raw_spin_lock_bh"],
        give: &[
            "_raw_spin_unlock",
            "_raw_spin_unlock_irq",
            "_raw_spin_unlock_irqrestore",
            "_raw_spin_unlock_bh",
        ],
        named: true,
    },
    Family {
        take: &["_raw_read_lock", "_raw_read_lock_irq", "_raw_read_lock_irqsave", "_raw_read_lock_bh"],
        give: &[
            "_raw_read_unlock",
            "_raw_read_unlock_irq",
            "_raw_read_unlock_irqrestore",
            "_raw_read_unlock_bh",
        ],
        named: true,
    },
    Family {
        take: &["_raw_write_lock", "_raw_write_lock_irq", "_raw_write_lock_irqsave", "_raw_write_lock_bh"],
        give: &[
            "_raw_write_unlock",
            "_raw_write_unlock_irq",
            "_raw_write_unlock_irqrestore",
            "_raw_write_unlock_bh",
        ],
        named: true,
    },
    Family {
        take: &["mutex_lock", "mutex_lock_nested", "mutex_lock_interruptible", "mutex_lock_killable"],
        give: &["mutex_unlock"],
        named: true,
    },
    Family { take: &["down_read", "down_read_killable"], give: &["up_read"], named: true },
    Family { take: &["down_write", "down_write_killable"], give: &["up_write"], named: true },
    Family { take: &["down", "down_interruptible", "down_killable"], give: &["up"], named: true },
    Family { take: &["rtnl_lock"], give: &["rtnl_unlock"], named: false },
    Family { take: &["__rcu_read_lock"], give: &["__rcu_read_unlock"], named: false },
];

/// These report by zero that the lock was taken.
const TELL: [&str; 6] = [
    "mutex_lock_interruptible",
    "mutex_lock_killable",
    "down_read_killable",
    "down_write_killable",
    "down_interruptible",
    "down_killable",
];

/// A call that takes or releases a lock.
struct Call<'a> {
    insn: usize,
    name: &'a str,
    family: usize,
    takes: bool,
    lock: Option<String>,
}

/// Finds every lock that the function takes and releases. A lock that is released elsewhere stays. Without
/// its other half, the mutant would have a second bug: an unlock of a lock that is free.
pub(super) fn pairs(elf: &Elf, function: &Function, index: usize, sites: &mut Vec<Site>) {
    let calls = calls(elf, function);
    for (i, take) in calls.iter().enumerate().filter(|(_, call)| call.takes) {
        if FAMILIES[take.family].named && take.lock.is_none() {
            continue;
        }
        let same = |call: &&Call<'_>| call.family == take.family && call.lock == take.lock;
        // A function may take the same lock again further down.
        let gives: Vec<&Call<'_>> =
            calls[i + 1..].iter().filter(same).take_while(|call| !call.takes).collect();
        if gives.is_empty() {
            continue;
        }
        let mut edits = vec![left_out(function, take)];
        edits.extend(gives.iter().map(|give| remove(function, give.insn)));
        sites.push(Site::fixed(index, take.insn, edits, "the lock is not taken"));
    }
}

fn calls<'a>(elf: &'a Elf, function: &Function) -> Vec<Call<'a>> {
    let call = |(insn, one)| {
        let name = callee(elf, function, one)?;
        let takes = |family: &Family| family.take.contains(&name);
        let gives = |family: &Family| family.give.contains(&name);
        let family = FAMILIES.iter().position(|family| takes(family) || gives(family))?;
        let lock = match FAMILIES[family].named {
            true => value(elf, function, insn, Register::RDI).map(|(text, _)| text),
            false => None,
        };
        Some(Call { insn, name, family, takes: takes(&FAMILIES[family]), lock })
    };
    function.insns.iter().enumerate().filter_map(call).collect()
}

/// Code that does nothing, with the result that the call would have had.
fn left_out(function: &Function, take: &Call<'_>) -> Edit {
    if !TELL.contains(&take.name) {
        return remove(function, take.insn);
    }
    // xor eax,eax
    let mut bytes = vec![0x31, 0xc0];
    bytes.extend(nops(function.insns[take.insn].instr.len().saturating_sub(2)));
    Edit { insn: take.insn, bytes, place: Place::Drop }
}
