//! Running a block: pairs its instructions with the accesses of the log.

use super::{Block, Memory, Regs, Rep};
use guardrail_trace::event::Access;

/// The accesses (and repeat records) of one execution of a block, in log order.
#[derive(Clone, Debug)]
pub struct AccessCursor<'a> {
    accesses: &'a [Access],
    reps: &'a [Rep],
    pub(super) skipped: u32,
}

impl<'a> AccessCursor<'a> {
    /// A cursor at the first of `accesses` and of `reps`.
    pub fn new(accesses: &'a [Access], reps: &'a [Rep]) -> Self {
        AccessCursor { accesses, reps, skipped: 0 }
    }

    /// Whether no access is left of `insn` and of those before it.
    #[inline]
    pub(super) fn is_behind(&self, insn: u16) -> bool {
        self.accesses.first().is_none_or(|access| access.insn > insn)
    }

    /// The next access, if it is the only one of instruction `insn`.
    #[inline]
    pub(super) fn only(&self, insn: u16) -> Option<Access> {
        let (first, rest) = self.accesses.split_first()?;
        let other = rest.first().is_none_or(|next| next.insn != insn);
        (first.insn == insn && other).then_some(*first)
    }

    /// Takes the next access.
    #[inline]
    pub(super) fn advance(&mut self) {
        self.accesses = self.accesses.get(1..).unwrap_or_default();
    }

    /// The next access, if it belongs to instruction `insn`.
    #[inline]
    pub(super) fn peek(&self, insn: u16) -> Option<Access> {
        self.accesses.first().copied().filter(|a| a.insn == insn)
    }

    /// Takes the next access if it belongs to `insn` and is of the wanted direction.
    #[inline]
    pub(super) fn take(&mut self, insn: u16, store: bool) -> Option<Access> {
        let (first, rest) = self.accesses.split_first()?;
        if first.insn != insn || first.store != store {
            return None;
        }
        self.accesses = rest;
        Some(*first)
    }

    /// Takes the next access of `insn`, a load or a store.
    #[inline]
    pub(super) fn take_any(&mut self, insn: u16) -> Option<Access> {
        let (first, rest) = self.accesses.split_first()?;
        if first.insn != insn {
            return None;
        }
        self.accesses = rest;
        Some(*first)
    }

    /// Drops accesses of instructions before `insn`, which no instruction claimed.
    #[inline]
    pub(super) fn skip_before(&mut self, insn: u16) {
        while let Some((first, rest)) = self.accesses.split_first()
            && first.insn < insn
        {
            self.accesses = rest;
            self.skipped += 1;
        }
    }

    /// Whether `insn` has a repeat record.
    pub(super) fn has_rep(&self, insn: u16) -> bool {
        self.reps.iter().any(|r| r.insn == insn)
    }

    /// Takes the repeat records up to and including those of `insn`, and returns the first of its own. Later
    /// ones hold what was left after a pause of the same instruction.
    pub(super) fn take_rep(&mut self, insn: u16) -> Option<Rep> {
        let found = self.reps.iter().find(|r| r.insn == insn).copied();
        while let Some((first, rest)) = self.reps.split_first()
            && first.insn <= insn
        {
            self.reps = rest;
        }
        found
    }
}

/// The result of running one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The instruction ran.
    Done,
    /// The log has no access for the instruction: it did not run (yet), and nothing was changed.
    NoAccess,
}

/// Where a run of a block stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// Index of the first instruction that did not run; the length of the block where all did.
    pub next: usize,
    /// False where instruction `next` accesses memory but the log has no access for it. The block was aborted
    /// there, or continues in a later segment.
    pub complete: bool,
    /// Number of accesses that no instruction claimed.
    pub skipped: u32,
}

impl Block {
    /// Runs the instructions `from..to` (`to` is cut to the block's length) with their accesses.
    ///
    /// The run ends early at an instruction that accesses memory but has no access in `accesses`. After a
    /// segment was cut behind a locked instruction, call again with `from` = [`RunEnd::next`] and the further
    /// accesses.
    ///
    /// For a block that an interrupt or exception ended, `to` is [`Block::index_of`] the interrupted pc.
    /// Where that is a repeated string instruction that had begun, its effect on memory counts as complete:
    /// the log holds the rest again.
    pub fn run<M: Memory>(
        &self,
        regs: &mut Regs,
        mem: &mut M,
        accesses: &[Access],
        reps: &[Rep],
        from: usize,
        to: usize,
    ) -> RunEnd {
        let mut cursor = AccessCursor::new(accesses, reps);
        let to = to.min(self.insns.len());
        let mut next = from;
        let mut complete = true;
        while next < to {
            let insn = &self.insns[next];
            let quickly = if cursor.is_behind(insn.index) {
                insn.runs_quickly(regs)
            } else {
                insn.moves_quickly(regs, mem, &mut cursor)
            };
            if quickly {
                next += 1;
                continue;
            }
            if insn.execute(regs, mem, &mut cursor) == Status::NoAccess {
                complete = false;
                break;
            }
            next += 1;
        }
        if let Some(insn) = self.insns.get(next)
            && complete
            && insn.is_rep()
            && cursor.has_rep(insn.index)
        {
            // The registers keep their values, because the instruction will run again.
            let saved = regs.clone();
            insn.execute(regs, mem, &mut cursor);
            *regs = saved;
        }
        RunEnd { next, complete, skipped: cursor.skipped + cursor.accesses.len() as u32 }
    }
}
