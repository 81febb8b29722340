//! Lets pointers follow what instructions do.

use super::exec::Machine;
use super::insn::{Insn, NO_REG, Opnd};
use super::pointer::{Flow, MIXED, Pointer, Reach};
use super::regs::RSP;
use super::{Memory, Regs};
use guardrail_trace::event::Access;

/// A constant of this size and more may be an address.
const MOST_SUBTRACTED: u64 = 1 << 24;

/// A part of a sum: the pointer that a register holds, and the value of the register where it is known.
#[derive(Clone, Copy)]
struct Part {
    pointer: Option<Pointer>,
    value: Option<u64>,
}

/// The pointer that a sum of two values is, and the constant `more`.
fn sum(a: Part, b: Part, more: u64) -> Option<Pointer> {
    let (pointer, other) = match (a.pointer, b.pointer) {
        (None, None) => return None,
        (Some(pointer), None) => (pointer, b.value),
        (None, Some(pointer)) => (pointer, a.value),
        (Some(_), Some(_)) => return Some(Pointer { from: MIXED, ..Pointer::default() }),
    };
    let value = pointer.value.zip(other).map(|(value, other)| value.wrapping_add(other).wrapping_add(more));
    Some(Pointer { value, ..pointer })
}

impl Insn {
    /// What it has instead of a register that takes part in the address.
    fn part(&self, regs: &Regs, reg: u8) -> Part {
        if reg == NO_REG {
            return Part { pointer: None, value: Some(0) };
        }
        Part { pointer: regs.pointers.get(reg), value: regs.get(reg).constant() }
    }

    /// The parts of its address: base, and index times scale. A pointer that is multiplied is mixed.
    fn parts(&self, regs: &Regs) -> (Part, Part) {
        let mem = self.mem;
        let (base, mut index) = (self.part(regs, mem.base), self.part(regs, mem.index));
        if mem.scale != 1 {
            index.value = index.value.map(|value| value.wrapping_mul(u64::from(mem.scale)));
            index.pointer = index.pointer.map(|_| Pointer { from: MIXED, ..Pointer::default() });
        }
        (base, index)
    }
}

impl<M: Memory> Machine<'_, '_, M> {
    /// Lets the pointers in registers and memory follow what the instruction has done. `sum` is what
    /// [`Self::pointer_made`] returned before.
    #[inline]
    pub(super) fn move_pointers(&mut self, sum: Option<Pointer>) {
        let uses = &self.insn.uses;
        let live = self.regs.pointers.live;
        if uses.flow == Flow::Other {
            if uses.written != 0 && live & (uses.written | uses.mixed) != 0 {
                self.mix();
            }
            return;
        }
        match (uses.flow, self.insn.dst, self.insn.src) {
            (Flow::Load, Opnd::Reg(dst), _) => {
                let pointer = self.last.and_then(|last| self.mem.pointer_at(&self.ctx, last));
                self.regs.pointers.set(dst, pointer);
            }
            (Flow::Store, Opnd::Reg(src), _) | (Flow::Store, _, Opnd::Reg(src)) => {
                if let Some(pointer) = self.regs.pointers.get(src)
                    && let Some(last) = self.last
                {
                    self.mem.pointer_stored(&self.ctx, last, pointer);
                }
            }
            (Flow::Compare, dst, src) => self.compare(dst, src),
            (Flow::Swap, Opnd::Reg(dst), Opnd::Reg(src)) if live != 0 => {
                let (a, b) = (self.regs.pointers.get(dst), self.regs.pointers.get(src));
                self.regs.pointers.set(dst, b);
                self.regs.pointers.set(src, a);
            }
            (_, Opnd::Reg(dst), _) => self.regs.pointers.set(dst, sum),
            _ => {}
        }
    }

    /// Two values are compared. Where they are equal, a compiler may go on with either of them.
    fn compare(&mut self, dst: Opnd, src: Opnd) {
        let pointers = [dst, src].map(|opnd| match opnd {
            Opnd::Reg(reg) => self.regs.pointers.get(reg),
            _ => self.last.and_then(|last| self.mem.pointer_at(&self.ctx, last)),
        });
        let [a, b] = pointers.map(|pointer| pointer.map_or(0, |pointer| pointer.from));
        if a == b {
            return;
        }
        for (opnd, pointer) in [dst, src].into_iter().zip(pointers) {
            if let Some(pointer) = pointer.filter(|pointer| pointer.from != MIXED)
                && self.mem.pointer_compared(pointer)
                && let Opnd::Reg(reg) = opnd
            {
                self.regs.pointers.set(reg, Some(Pointer { from: MIXED, ..pointer }));
            }
        }
    }

    /// The results of the instruction may be made of a pointer.
    fn mix(&mut self) {
        let uses = &self.insn.uses;
        let mixed = self.regs.pointers.live & uses.mixed != 0;
        self.regs.pointers.drop(uses.written);
        // The stack pointer is a pointer to the stack.
        for reg in (0..16).filter(|reg| mixed && uses.written >> reg & 1 != 0 && *reg != RSP) {
            self.regs.pointers.set(reg, Some(Pointer { from: MIXED, ..Pointer::default() }));
        }
    }

    /// The pointer that the instruction is about to put into its destination; `None` where it puts no known
    /// pointer there.
    #[inline]
    pub(super) fn pointer_made(&self) -> Option<Pointer> {
        let (insn, regs) = (self.insn, &*self.regs);
        if regs.pointers.live == 0
            || matches!(insn.uses.flow, Flow::Other | Flow::Load | Flow::Store | Flow::Compare)
        {
            return None;
        }
        self.pointer_sum()
    }

    fn pointer_sum(&self) -> Option<Pointer> {
        let (insn, regs) = (self.insn, &*self.regs);
        let part = |opnd| match opnd {
            Opnd::Reg(reg) => insn.part(regs, reg),
            Opnd::Imm => Part { pointer: None, value: Some(insn.imm) },
            Opnd::None => Part { pointer: None, value: Some(1) },
            _ => Part { pointer: None, value: None },
        };
        match insn.uses.flow {
            Flow::Copy => part(insn.src).pointer,
            Flow::Lea => {
                let (base, index) = insn.parts(regs);
                sum(base, index, insn.mem.disp)
            }
            Flow::Add => sum(part(insn.dst), part(insn.src), 0),
            Flow::Sub => {
                let (a, b) = (part(insn.dst), part(insn.src));
                match (a.pointer, b.pointer, b.value) {
                    (None, None, _) => None,
                    // What is subtracted may be a pointer of which nothing is known, or the address of a variable.
                    (Some(_), None, Some(by)) if (by as i64).unsigned_abs() < MOST_SUBTRACTED => {
                        sum(a, Part { pointer: None, value: Some(by.wrapping_neg()) }, 0)
                    }
                    _ => Some(Pointer { from: MIXED, ..Pointer::default() }),
                }
            }
            _ => None,
        }
    }

    /// An access of the instruction's operand in memory. Compares the pointer that its address is made of.
    #[inline]
    pub(super) fn reach(&mut self, access: Access) {
        if self.regs.pointers.live & self.insn.uses.based != 0 {
            self.reach_through(access);
        }
    }

    fn reach_through(&mut self, access: Access) {
        let mem = self.insn.mem;
        let (base, index) = self.insn.parts(self.regs);
        let (reg, pointer, other) = match (base.pointer, index.pointer) {
            (Some(pointer), None) => (mem.base, pointer, index.value),
            (None, Some(pointer)) => (mem.index, pointer, base.value),
            _ => return,
        };
        if pointer.from == MIXED {
            return;
        }
        let other = other.map(|other| other.wrapping_add(mem.disp));
        let expected = pointer.value.zip(other).map(|(value, other)| value.wrapping_add(other));
        match expected {
            Some(expected) if expected == access.addr => {}
            // A wide access may be in pieces.
            Some(expected) if access.addr.wrapping_sub(expected) < 64 && self.pieces => return,
            // Code that is not watched wrote the memory that the pointer was loaded from.
            Some(_) => return self.regs.pointers.set(reg, None),
            None if !pointer.certain => return,
            None => {}
        }
        self.pieces = true;
        let pointer = Pointer { value: expected, ..pointer };
        let (addr, len, store) = (access.addr, u64::from(access.size), access.store);
        let reach = Reach { addr, len, store, range: false, pointer };
        self.mem.reached(&self.ctx, reach);
    }

    /// A string instruction accesses `len` bytes from `addr` on. Register `reg` holds the address `at`.
    pub(super) fn reach_range(&mut self, reg: u8, at: u64, addr: u64, len: u64, store: bool) {
        let Some(pointer) = self.regs.pointer(reg) else { return };
        match pointer.value {
            Some(value) if value != at => {}
            None if !pointer.certain => {}
            _ => {
                self.mem.reached(&self.ctx, Reach { addr, len, store, range: true, pointer });
            }
        }
    }
}
