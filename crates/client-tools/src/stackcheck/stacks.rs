//! Finds the kernel's stacks.

use guardrail_client_api::binfmt::KernelImage;
use guardrail_client_api::binfmt::orc::Frame;
use guardrail_client_api::register::{RBP, RSP};
use guardrail_client_api::{Unwinder, Vcpu};

const PAGE: u64 = 4096;
/// Most frames whose sizes are computed.
const FRAMES: usize = 64;

/// The purpose of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Kind {
    /// A task's own stack.
    Thread,
    /// A CPU's stack for interrupts and softirqs.
    Interrupt,
    /// A CPU's stack for an exception that must not rely on another stack (double fault, NMI, debug,
    /// machine check).
    Exception,
}

impl Kind {
    pub fn of(number: u64) -> Kind {
        match number {
            0 => Kind::Thread,
            1 => Kind::Interrupt,
            _ => Kind::Exception,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Kind::Thread => "thread",
            Kind::Interrupt => "interrupt",
            Kind::Exception => "exception",
        }
    }
}

/// A stack of the guest.
#[derive(Clone, Copy, Debug)]
pub struct Stack {
    /// Its lowest address.
    pub base: u64,
    /// The address after its highest byte.
    pub top: u64,
    /// Purpose of the stack.
    pub kind: Kind,
    /// Address of the `task_struct` of the task that runs on it.
    pub task: u64,
}

/// Locations of stacks, from the kernel image.
pub struct Stacks {
    size: u64,
    /// Offset of `task_struct::stack`.
    of_task: u64,
    /// The per-CPU pointer to the top of the interrupt stack.
    interrupt: Option<PerCpu>,
    /// The per-CPU pointer to the exception stacks.
    exceptions: Option<PerCpu>,
    /// Offsets of each exception stack: of its first byte and of the byte after its last.
    members: Vec<(u64, u64)>,
}

/// A per-CPU variable.
#[derive(Clone, Copy)]
struct PerCpu {
    offset: u64,
    /// True where its address is one in the image, to which KASLR adds its slide.
    relative: bool,
}

impl Stacks {
    pub fn new(image: &KernelImage) -> Result<Stacks, String> {
        let btf = image.btf();
        let lacks = |what: &str| format!("the types of {} lack {what}", image.release());
        let size = |name| btf.struct_named(name).and_then(|id| btf.size_of(id));
        // On x86-64, stacks of tasks and of interrupts have the same size (page_64_types.h).
        let stack = size("irq_stack").ok_or_else(|| lacks("struct irq_stack"))?;
        let of_task = btf.member_offset("task_struct", "stack").ok_or_else(|| lacks("task_struct::stack"))?;
        let variable = |offset: u64| PerCpu { offset, relative: offset >> 63 != 0 };
        let hot =
            || Some(image.address_of("pcpu_hot")? + btf.member_offset("pcpu_hot", "hardirq_stack_ptr")?);
        let interrupt = image.address_of("hardirq_stack_ptr").or_else(hot).map(variable);
        let exceptions = image.address_of("cea_exception_stacks").map(variable);
        let of = btf.struct_named("cea_exception_stacks");
        let names = ["DF", "NMI", "DB", "MCE", "VC", "VC2"];
        let member = |name: &str| {
            let (offset, ty) = btf.member(of?, &format!("{name}_stack"))?;
            Some((offset, offset + btf.size_of(ty)?))
        };
        let members = names.iter().filter_map(|name| member(name)).collect();
        Ok(Stacks { size: stack, of_task, interrupt, exceptions, members })
    }

    /// Bytes of a task's stack.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The stack that contains `rsp`.
    pub fn of(&self, vcpu: &mut Vcpu, rsp: u64) -> Option<Stack> {
        let task = vcpu.task()?;
        let base = vcpu.word(task.wrapping_add(self.of_task), 8)?;
        let holds = |stack: &Stack| rsp > stack.base && rsp <= stack.top;
        let own = Stack { base, top: base.wrapping_add(self.size), kind: Kind::Thread, task };
        if holds(&own) {
            return Some(own);
        }
        if let Some(stack) = self.interrupt(vcpu).filter(holds) {
            return Some(Stack { task, ..stack });
        }
        let area = self.exceptions.and_then(|variable| read(vcpu, variable))?;
        let stack = |&(from, to): &(u64, u64)| Stack {
            base: area.wrapping_add(from),
            top: area.wrapping_add(to),
            kind: Kind::Exception,
            task,
        };
        self.members.iter().map(stack).find(holds)
    }

    /// The interrupt stack of this vCPU.
    pub fn interrupt(&self, vcpu: &mut Vcpu) -> Option<Stack> {
        let pointer =
            self.interrupt.and_then(|variable| read(vcpu, variable)).filter(|&pointer| pointer != 0)?;
        // The pointer points at the stack's last word.
        let top = pointer.checked_next_multiple_of(PAGE)?;
        Some(Stack { base: top.wrapping_sub(self.size), top, kind: Kind::Interrupt, task: 0 })
    }
}

fn read(vcpu: &mut Vcpu, variable: PerCpu) -> Option<u64> {
    let at = match variable.relative {
        true => vcpu.per_cpu_symbol(variable.offset)?,
        false => vcpu.per_cpu(variable.offset),
    };
    vcpu.word(at, 8)
}

/// The functions on the current vCPU's stack, innermost first, with the bytes that each uses. The
/// innermost function reaches down to `lowest`.
pub fn frames(unwinder: &Unwinder, vcpu: &mut Vcpu, pc: u64, lowest: u64) -> Vec<(u64, u64)> {
    let first = Frame::first(pc, vcpu.register(RSP), vcpu.register(RBP), true);
    let mut frames: Vec<(u64, u64)> = Vec::new();
    let mut below = lowest;
    let mut pcs: Vec<u64> = Vec::new();
    unwinder.walk(vcpu, first, FRAMES, |frame| {
        if let Some(&inner) = pcs.last() {
            // A jump to another stack is not part of any frame.
            frames.push((inner, frame.sp.checked_sub(below).filter(|&bytes| bytes < 1 << 16).unwrap_or(0)));
            below = frame.sp;
        }
        pcs.push(frame.pc);
    });
    frames
}
