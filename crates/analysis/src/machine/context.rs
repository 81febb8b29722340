//! Contexts: one for each task and level, with the call stack that the log shows.

use crate::level::Level;
use crate::order::{ContextOrder, StrandId};
use crate::stacks::{CallTrace, MAX_FRAMES, OuterId, same_stack};
use crate::value_flow::Regs;
use guardrail_knowledge::effect::{Effect, Len, Ptr, Summary};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A call from the driver that has not returned.
#[derive(Clone, Debug)]
pub struct Out {
    /// Address of the instruction that left the driver.
    pub pc: u64,
    /// The address behind that instruction.
    pub ret: u64,
    /// Address of the called function.
    pub target: u64,
    /// The value of rsp when the target begins: it points at the return address.
    pub entry_rsp: u64,
    /// It is a jump: the target returns to the caller of the function that jumped.
    pub jump: bool,
    /// The argument registers, whole: the upper half of a 32-bit argument is undefined.
    pub args: [u64; 6],
    /// What the target does, where it is a kernel function. For a function without a line in `knowledge/`,
    /// this holds its name and no effects.
    pub summary: Option<Arc<Summary>>,
}

impl Out {
    /// What the target does; empty where that is not known.
    pub fn effects(&self) -> &[Effect] {
        self.summary.as_ref().map_or(&[], |summary| &summary.effects)
    }

    /// Whether the effect on `ptr` follows from the prototype alone. The unit of a length is not known then.
    pub fn is_guessed(&self, ptr: Ptr) -> bool {
        let escapes = |e: &Effect| matches!((e, ptr), (Effect::Escape { arg }, Ptr::Arg(i)) if *arg == i);
        self.effects().iter().any(escapes)
    }
}

/// The number of bytes that the arguments of a call ask for; `None` where they do not say it.
pub fn length(len: Len, args: &[u64]) -> Option<u64> {
    let arg = |i: u8| args.get(usize::from(i)).copied();
    match len {
        Len::Const(n) => Some(n),
        Len::Arg(i) => arg(i),
        Len::Product(i, j) => arg(i)?.checked_mul(arg(j)?),
        Len::Order(i) => arg(i).filter(|&order| order < 20).map(|order| 4096 << order),
        Len::AtMost(n, i) => arg(i).map(|bound| bound.min(n)),
        Len::Deref(_) | Len::Result { .. } | Len::Found(_) | Len::Rest => None,
    }
}

/// One part of a context's call stack.
#[derive(Debug)]
pub enum Activation {
    /// A function of the driver.
    Frame {
        /// The value of rsp at its entry: it points at the return address.
        entry_rsp: u64,
        /// The return address, or 0 where it is not known.
        ret: u64,
        /// The kernel called the function.
        from_kernel: bool,
        /// The kernel's stack above the function, from its return address on; known where the kernel called it.
        outer: OuterId,
        /// The registers of the code that it interrupted, or that called the kernel before.
        saved: Option<Box<Regs>>,
    },
    /// A call from the driver into other code.
    Out(Out),
    /// An interrupt or exception.
    Interrupted {
        /// Address of the interrupted instruction.
        pc: u64,
        /// The value of rsp there, where known.
        rsp: Option<u64>,
    },
}

impl Activation {
    /// A function of the driver that the driver itself called.
    pub fn called(entry_rsp: u64, ret: u64) -> Activation {
        Activation::Frame { entry_rsp, ret, from_kernel: false, outer: OuterId::default(), saved: None }
    }

    /// A function of the driver that the kernel called, with the registers of the code before.
    pub fn entered(entry_rsp: u64, ret: u64, outer: OuterId, saved: Option<Box<Regs>>) -> Activation {
        Activation::Frame { entry_rsp, ret, from_kernel: true, outer, saved }
    }

    /// The value of rsp where it begins; `None` where that is not known.
    pub fn at(&self) -> Option<u64> {
        match self {
            Activation::Frame { entry_rsp, .. } => Some(*entry_rsp),
            Activation::Out(out) => Some(out.entry_rsp),
            Activation::Interrupted { rsp, .. } => *rsp,
        }
    }
}

/// A context: a task or an interrupt on its time.
#[derive(Debug)]
pub struct Context {
    /// Guest address of the `task_struct`.
    pub task: u64,
    /// The level that the context runs at.
    pub level: Level,
    /// The task's pid.
    pub pid: u32,
    /// The call stack; innermost last. It changes through methods only.
    pub stack: Vec<Activation>,
    version: Version,
    /// The lowest address of the stack, where it is the driver's own and goes from task to task.
    pub own_stack: Option<u64>,
    /// For an own stack, the context and strand of the task or interrupt that goes on with it, where they
    /// are known.
    pub carrier: Option<(Option<usize>, StrandId)>,
    /// The lowest stack address of this context's driver functions since the kernel called the driver.
    pub low: u64,
    /// The shadow registers; `None` while an execution uses them, or where nothing is known.
    pub regs: Option<Box<Regs>>,
    /// The last reported fault: number of the finding, and address of the instruction.
    pub fault: Option<(usize, u64)>,
    /// The context's place in the order of events: strand, locks, entries.
    pub order: ContextOrder,
}

/// A state of a context's call stack. Two equal ones are of equal stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    context: u64,
    changes: u64,
}

/// The number of contexts that were made so far.
static CONTEXTS: AtomicU64 = AtomicU64::new(0);

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
            version: Version { context: CONTEXTS.fetch_add(1, Relaxed), changes: 0 },
            own_stack: None,
            carrier: None,
            low: u64::MAX,
            regs: None,
            fault: None,
            order: ContextOrder::new(level, pid),
        }
    }

    /// What runs: a task at a level, or a driver's own stack, whatever goes on with it.
    pub fn key(&self) -> (u64, Level) {
        match self.own_stack {
            Some(stack) => (stack, Level::Process),
            None => (self.task, self.level),
        }
    }

    /// Pushes an activation. Beyond a depth that no kernel stack can hold, drops the oldest ones.
    pub fn push(&mut self, activation: Activation) {
        if self.stack.len() >= MAX_DEPTH {
            self.stack.drain(..MAX_DEPTH / 2);
        }
        self.version.changes += 1;
        self.stack.push(activation);
    }

    /// Pops the innermost activation, and leaves the registers as they are.
    pub fn pop(&mut self) -> Option<Activation> {
        self.version.changes += 1;
        self.stack.pop()
    }

    /// Splits off the activations from index `first` on.
    pub fn split_off(&mut self, first: usize) -> Vec<Activation> {
        self.version.changes += 1;
        self.stack.split_off(first)
    }

    /// The state of the call stack.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Cuts the stack to `len` activations, and restores the registers that the removed ones saved.
    pub fn cut(&mut self, len: usize) {
        while self.stack.len() > len {
            self.version.changes += 1;
            if let Some(Activation::Frame { saved: Some(saved), .. }) = self.stack.pop() {
                self.regs = Some(saved);
            }
        }
    }

    /// The call that the driver is in; `None` while driver code runs.
    pub fn out(&self) -> Option<&Out> {
        match self.stack.last() {
            Some(Activation::Out(out)) => Some(out),
            _ => None,
        }
    }

    /// The address to which a call from the driver returns; `None` where it is not known.
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

    /// The value of rsp at the entry of the innermost driver function.
    pub fn frame_rsp(&self) -> Option<u64> {
        self.stack.iter().rev().find_map(|a| match a {
            Activation::Frame { entry_rsp, .. } => Some(*entry_rsp),
            _ => None,
        })
    }

    /// Index of the activation that resumes when driver code runs with `rsp` after a return.
    pub fn resumes(&self, rsp: u64) -> Option<usize> {
        let known = self.stack.iter().rposition(|a| match a {
            Activation::Out(out) => out.entry_rsp.wrapping_add(8) == rsp,
            Activation::Interrupted { rsp: Some(at), .. } => *at == rsp,
            _ => false,
        });
        known.or_else(|| {
            let last = self.stack.len().checked_sub(1)?;
            let unknown = matches!(self.stack[last], Activation::Interrupted { rsp: None, .. });
            let frame = self.frame_rsp()?;
            (unknown && rsp <= frame && same_stack(rsp, frame)).then_some(last)
        })
    }

    /// Drops the frames of functions that have returned, given the current rsp.
    pub fn returned(&mut self, rsp: u64) {
        while let Some(Activation::Frame { entry_rsp, .. }) = self.stack.last()
            && *entry_rsp < rsp
            && same_stack(*entry_rsp, rsp)
        {
            self.cut(self.stack.len() - 1);
        }
    }

    /// Drops activations that cannot be live when the kernel calls the driver with `rsp` on the same stack.
    pub fn drop_stale(&mut self, rsp: u64) {
        // Where the place of an interrupt is not known, the function that it hit shows whether it is live.
        while let Some(at) = self.stack.iter().rev().find_map(Activation::at) {
            if at > rsp || !same_stack(at, rsp) {
                break;
            }
            self.cut(self.stack.len() - 1);
        }
    }

    /// Drops driver functions that the kernel called and that ended with a jump. Called when the kernel calls
    /// the driver anew, because no event reports the return of such functions. A function stays where its
    /// jump `leads` there.
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

    /// The kernel's stack above the function that it called last.
    pub fn outer(&self) -> OuterId {
        let called = self.stack.iter().rev().find_map(|a| match a {
            Activation::Frame { from_kernel: true, outer, .. } => Some(*outer),
            _ => None,
        });
        called.unwrap_or_default()
    }

    /// The context's stack, which begins with these addresses.
    pub fn trace(&self, mut near: Vec<u64>) -> CallTrace {
        self.callers(&mut near, MAX_FRAMES);
        CallTrace { near, outer: self.outer() }
    }

    /// Appends the addresses of the stack below the innermost one, as return addresses.
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
        let outer = OuterId::default();
        let frame =
            |entry_rsp, saved| Activation::Frame { entry_rsp, ret: 0, from_kernel: true, outer, saved };
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
        let outer = OuterId::default();
        let frame =
            |entry_rsp| Activation::Frame { entry_rsp, ret: 0, from_kernel: true, outer, saved: None };
        for (last, leads, left) in
            [(out(7, true), false, 1), (out(7, true), true, 3), (out(7, false), false, 3)]
        {
            context.stack = vec![frame(0x9800), frame(0x9000), last];
            context.drop_jumped(|out| leads && out.target == 7);
            assert_eq!(context.stack.len(), left);
        }
    }
}
