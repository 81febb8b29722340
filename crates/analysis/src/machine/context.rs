//! Threads of execution: one for each task and context level, with a call stack as the log shows it.

use crate::level::Level;
use crate::order::ContextOrder;
use crate::stacks::same_stack;
use crate::value_flow::Regs;
use guardrail_knowledge::effect::Summary;
use std::sync::Arc;

/// A call from the driver that has not come back.
#[derive(Clone, Debug)]
pub struct Out {
    /// The instruction that left.
    pub pc: u64,
    /// The address behind it.
    pub ret: u64,
    /// Where it went.
    pub target: u64,
    /// rsp when the target begins: it points at the return address.
    pub entry_rsp: u64,
    /// It was a jump: the target returns to the caller of the function that jumped.
    pub jump: bool,
    /// The argument registers, whole: an argument of 32 bits leaves the upper half undefined.
    pub args: [u64; 6],
    /// What the target does, where it is a kernel function. One without a line in `knowledge/` has a name and no effects.
    pub summary: Option<Arc<Summary>>,
}

/// What is on a context's call stack.
#[derive(Debug)]
pub enum Activation {
    /// A driver function.
    Frame {
        /// rsp at its entry: it points at the return address.
        entry_rsp: u64,
        /// The return address, or 0.
        ret: u64,
        /// The kernel called it.
        from_kernel: bool,
        /// The registers of what it interrupted or was called back from.
        saved: Option<Box<Regs>>,
    },
    /// A call out of the driver.
    Out(Out),
    /// An interrupt or exception.
    Interrupted {
        /// The instruction it hit.
        pc: u64,
        /// rsp there, where known.
        rsp: Option<u64>,
    },
}

/// A context.
#[derive(Debug)]
pub struct Context {
    /// The task (address of its `task_struct`).
    pub task: u64,
    /// The level.
    pub level: Level,
    /// Its pid.
    pub pid: u32,
    /// Innermost last.
    pub stack: Vec<Activation>,
    /// The lowest stack address that a driver function of this context took since the driver was entered.
    pub low: u64,
    /// Its registers; `None` while they are in use, or where nothing is known.
    pub regs: Option<Box<Regs>>,
    /// A fault that was reported: which finding, and the instruction.
    pub fault: Option<(usize, u64)>,
    /// Where it stands in the order of events: strand, locks, entries.
    pub order: ContextOrder,
}

/// Deepest call stack.
const MAX_DEPTH: usize = 512;

impl Context {
    /// A context in which nothing has run.
    pub fn new(task: u64, level: Level, pid: u32) -> Self {
        Context {
            task,
            level,
            pid,
            stack: Vec::new(),
            low: u64::MAX,
            regs: None,
            fault: None,
            order: ContextOrder::new(level, pid),
        }
    }

    /// Pushes an activation; beyond a depth that no kernel stack can hold, the oldest go.
    pub fn push(&mut self, activation: Activation) {
        if self.stack.len() >= MAX_DEPTH {
            self.stack.drain(..MAX_DEPTH / 2);
        }
        self.stack.push(activation);
    }

    /// Cuts the stack to `len` activations, and takes back the registers that the removed ones saved.
    pub fn cut(&mut self, len: usize) {
        while self.stack.len() > len {
            if let Some(Activation::Frame { saved: Some(saved), .. }) = self.stack.pop() {
                self.regs = Some(saved);
            }
        }
    }

    /// The call that the driver is out on, if it is.
    pub fn out(&self) -> Option<&Out> {
        match self.stack.last() {
            Some(Activation::Out(out)) => Some(out),
            _ => None,
        }
    }

    /// The address to which a call out of the driver returns, where known.
    pub fn return_of(&self, out: &Out) -> Option<u64> {
        if !out.jump {
            return Some(out.ret);
        }
        let frame = self.stack.iter().rev().find_map(|a| match a {
            Activation::Frame { ret, .. } => Some(*ret),
            _ => None,
        });
        frame.filter(|&ret| ret != 0)
    }

    /// rsp at the entry of the innermost driver function.
    pub fn frame_rsp(&self) -> Option<u64> {
        self.stack.iter().rev().find_map(|a| match a {
            Activation::Frame { entry_rsp, .. } => Some(*entry_rsp),
            _ => None,
        })
    }

    /// Index of the activation that resumes when driver code runs with `rsp` after a return.
    pub fn resumes(&self, rsp: u64) -> Option<usize> {
        self.stack.iter().rposition(|a| match a {
            Activation::Out(out) => out.entry_rsp.wrapping_add(8) == rsp,
            Activation::Interrupted { rsp: Some(at), .. } => *at == rsp,
            _ => false,
        })
    }

    /// Drops frames of functions that have returned, given rsp now.
    pub fn returned(&mut self, rsp: u64) {
        while let Some(Activation::Frame { entry_rsp, .. }) = self.stack.last()
            && *entry_rsp < rsp
            && same_stack(*entry_rsp, rsp)
        {
            self.cut(self.stack.len() - 1);
        }
    }

    /// Drops what cannot be live when the kernel calls the driver with `rsp` on the same stack.
    pub fn drop_stale(&mut self, rsp: u64) {
        while let Some(last) = self.stack.last() {
            let at = match last {
                Activation::Frame { entry_rsp, .. } => *entry_rsp,
                Activation::Out(out) => out.entry_rsp,
                Activation::Interrupted { rsp, .. } => rsp.unwrap_or(u64::MAX),
            };
            if at > rsp || !same_stack(at, rsp) {
                break;
            }
            self.cut(self.stack.len() - 1);
        }
    }

    /// Drops driver functions that the kernel called and that left by a jump, when the kernel calls the driver anew: no event
    /// tells their return. Those stay whose jump `leads` there.
    pub fn drop_jumped(&mut self, leads: impl Fn(&Out) -> bool) {
        while let [.., Activation::Frame { entry_rsp, from_kernel: true, .. }, Activation::Out(out)] =
            self.stack.as_slice()
            && out.jump
            && *entry_rsp == out.entry_rsp
            && !leads(out)
        {
            self.cut(self.stack.len() - 2);
        }
    }

    /// Addresses of the stack below the innermost place, as return addresses.
    pub fn callers(&self, into: &mut Vec<u64>, limit: usize) {
        for (depth, activation) in self.stack.iter().rev().enumerate() {
            if into.len() >= limit {
                return;
            }
            match activation {
                Activation::Frame { ret, .. } if *ret != 0 => into.push(*ret),
                Activation::Out(out) if depth > 0 && !out.jump => into.push(out.ret),
                Activation::Interrupted { pc, .. } if depth > 0 => into.push(pc.wrapping_add(1)),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_drops_frames_and_restores_registers() {
        let mut context = Context::new(1, Level::Process, 1);
        let frame = |entry_rsp, saved| Activation::Frame { entry_rsp, ret: 0, from_kernel: true, saved };
        context.push(frame(0x9000, None));
        context.regs = Some(Box::new(Regs::at_entry(0x8000)));
        let saved = Some(Box::new(Regs::at_entry(0x1234)));
        context.push(frame(0x8000, saved));
        context.returned(0x8008);
        assert_eq!(context.stack.len(), 1);
        assert_eq!(context.regs.and_then(|r| r.rsp()), Some(0x1234));
    }
    #[test]
    fn a_function_that_left_by_a_jump_is_over_when_the_kernel_calls_again() {
        let mut context = Context::new(1, Level::Process, 1);
        let out = |target, jump| {
            let (pc, ret, entry_rsp, args) = (0, 0, 0x9000, [0; 6]);
            Activation::Out(Out { pc, ret, target, entry_rsp, jump, args, summary: None })
        };
        let frame = |entry_rsp| Activation::Frame { entry_rsp, ret: 0, from_kernel: true, saved: None };
        for (last, leads, left) in
            [(out(7, true), false, 1), (out(7, true), true, 3), (out(7, false), false, 3)]
        {
            context.stack = vec![frame(0x9800), frame(0x9000), last];
            context.drop_jumped(|out| leads && out.target == 7);
            assert_eq!(context.stack.len(), left);
        }
    }
}
