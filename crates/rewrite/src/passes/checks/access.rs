//! Finds what an instruction does that has to be checked.

use crate::engine::code::{Insn, bit, writes};
use crate::engine::emit::Operand;
use crate::engine::object::{Object, Section};
use crate::engine::pass::FunctionView;
use crate::engine::tables::thunk_register;
use crate::error::{Result, refused};
use guardrail_abi::symbol;
use iced_x86::{FlowControl, Instruction, InstructionInfo, Mnemonic, OpKind, Register, UsedMemory};

/// Per-CPU variables of the kernel that its own inlined code writes: the symbol, and the offset in it.
/// The first two are the count that disables preemption, by itself or as the second word of `pcpu_hot`.
/// The last is the runtime's, which loops count down.
const KERNEL_PER_CPU: [(&str, i64); 3] = [("__preempt_count", 0), ("pcpu_hot", 8), (symbol::LOOPS, 0)];

/// The kernel's table of functions for virtual machines.
const KERNELS_CALLS: &str = "pv_ops";

/// What an instruction does, as far as checks care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing that has to be checked.
    Nothing,
    /// A store that needs no check.
    Free(Reason),
    /// A store of so many bytes.
    Store(Operand, u32),
    /// A store of so many bytes that the kernel expects to fault: it may go to user memory.
    User(Operand, u32),
    /// A store from RDI on, of as many bytes as a register holds, that may go to user memory.
    UserRange(Register),
    /// A store to a bit, counted from the operand. A register of so many bytes holds its number.
    Bit(Operand, Register, u32),
    /// A store of RCX times 1, 2, 4 or 8 bytes from RDI on; the number is the power of two.
    Range(u32),
    /// A store of so many bytes to a per-CPU variable.
    PerCpu(Operand, u32),
    /// A call or a jump to the address in a register.
    Call(Register),
}

impl Access {
    /// Whether it is a store that has to be checked.
    pub fn stores(&self) -> bool {
        !matches!(self, Access::Nothing | Access::Free(_) | Access::Call(_))
    }
}

/// Why a store needs no check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It writes to a fixed place in the function's own stack frame.
    Frame,
    /// It writes to the module's own per-CPU variables.
    OwnPerCpu,
    /// It writes to one of the kernel's per-CPU variables that inlined code writes.
    KernelPerCpu,
    /// It writes the value that was there, as a memory barrier does.
    Same,
    /// The kernel may put something else in its place.
    Replaced,
}

/// Where the address is that a check needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A register holds the address.
    Register(Register),
    /// The operand itself is the address.
    Address(Operand),
    /// The address is that of the byte with a bit. Bits count from the operand; a register of 8 bytes holds
    /// the number.
    Bit(Operand, Register),
}

impl Source {
    /// Whether the address depends on a register.
    pub fn uses(&self, register: Register) -> bool {
        match self {
            Source::Register(own) => *own == register,
            Source::Address(operand) => operand.uses(register),
            Source::Bit(operand, index) => operand.uses(register) || *index == register,
        }
    }
}

/// Judges an instruction.
pub fn access(view: &FunctionView<'_>, number: u32, insn: &Insn, info: &InstructionInfo) -> Result<Access> {
    let decoded = &insn.insn;
    let section = view.section();
    let refuse =
        |why: &str| refused(format!("{}+{:#x}", section.name, insn.at), format!("`{decoded}` {why}"));
    if let Some(call) = call(view, insn, section)? {
        return Ok(call);
    }
    if let Some(access) = by_helper(view, insn, section) {
        return Ok(access);
    }
    let written: Vec<UsedMemory> =
        info.used_memory().iter().filter(|memory| writes(memory.access())).copied().collect();
    let explicit = (0..decoded.op_count())
        .any(|operand| decoded.op_kind(operand) == OpKind::Memory && writes(info.op_access(operand)));
    let Some(memory) = written.first() else { return Ok(Access::Nothing) };
    // `push`, `call` and the like write the function's own stack.
    if decoded.is_stack_instruction() && !explicit {
        return Ok(Access::Nothing);
    }
    if insn.fixed {
        return Ok(Access::Free(Reason::Replaced));
    }
    if let Some(access) = padlock(decoded) {
        return Ok(access);
    }
    // How often a string instruction repeats is not part of this size.
    let sized = if decoded.is_string_instruction() { decoded.memory_size() } else { memory.memory_size() };
    let size = sized.size() as u32;
    if size == 0 {
        return refuse("writes nobody knows how much");
    }
    if decoded.is_string_instruction() {
        return match decoded.has_rep_prefix() || decoded.has_repne_prefix() {
            _ if memory.base() != Register::RDI => refuse("does not count by whole registers"),
            true => Ok(Access::Range(size.trailing_zeros())),
            false => Ok(Access::Store(Operand::at(Register::RDI), size)),
        };
    }
    let operand = match explicit {
        true => Operand::of(decoded, insn.displacement_reloc(section))?,
        // `movdir64b` and the like have the address in a register.
        false if written.len() == 1 && memory.base().is_gpr64() && memory.index() == Register::None => {
            Operand { displacement: memory.displacement() as i64, ..Operand::at(memory.base()) }
        }
        false => return refuse("writes to places that cannot be worked out"),
    };
    if decoded.memory_index().is_vector_register() {
        return refuse("writes to many places at once");
    }
    let named = insn.relocs(section).len() > usize::from(insn.displacement_reloc(section).is_some());
    if explicit && !named && same(decoded) && (decoded.has_lock_prefix() || on_stack(decoded)) {
        return Ok(Access::Free(Reason::Same));
    }
    match decoded.segment_prefix() {
        Register::GS => return Ok(per_cpu(view.object, &operand, size)),
        Register::FS => return refuse("writes by a segment that has no use"),
        _ => {}
    }
    if let Some((index, width)) = bit(decoded) {
        return Ok(Access::Bit(operand, index, width));
    }
    if explicit && in_frame(&operand) {
        return Ok(Access::Free(Reason::Frame));
    }
    Ok(match view.flow.may_fault(view.code.section, number) {
        true => Access::User(operand, size),
        false => Access::Store(operand, size),
    })
}

/// A call or a jump to an address that the module computes; `None` for other instructions.
fn call(view: &FunctionView<'_>, insn: &Insn, section: &Section) -> Result<Option<Access>> {
    let decoded = &insn.insn;
    let source = match decoded.flow_control() {
        // The kernel puts direct calls in place of fixed ones.
        _ if insn.fixed => None,
        FlowControl::IndirectCall | FlowControl::IndirectBranch => match decoded.op0_kind() {
            OpKind::Register => Some(decoded.op0_register()),
            // The kernel's own table, which it makes direct calls from.
            OpKind::Memory if insn.names(view.object, section) == KERNELS_CALLS => None,
            // Between a check and the call another processor could change the address.
            _ => {
                return refused(
                    format!("{}+{:#x}", section.name, insn.at),
                    format!("`{decoded}` takes the address of a function from memory"),
                );
            }
        },
        FlowControl::Call | FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
            thunk_register(insn.names(view.object, section))
        }
        _ => None,
    };
    if source.is_some() && decoded.flow_control() == FlowControl::ConditionalBranch {
        let place = format!("{}+{:#x}", section.name, insn.at);
        return refused(place, "it jumps to an address on a condition, which is not checked so far");
    }
    Ok(source.map(Access::Call))
}

/// A store by a helper in assembly that inlined code calls, or by what the kernel puts in place of it.
/// It may go to user memory, and nothing else has looked at the address.
fn by_helper(view: &FunctionView<'_>, insn: &Insn, section: &Section) -> Option<Access> {
    let decoded = &insn.insn;
    if insn.fixed && !insn.first {
        return None;
    }
    if insn.fixed && decoded.is_string_instruction() && decoded.has_rep_prefix() {
        let bytes = matches!(decoded.mnemonic(), Mnemonic::Movsb | Mnemonic::Stosb);
        return bytes.then_some(Access::UserRange(Register::RCX));
    }
    if decoded.flow_control() != FlowControl::Call {
        return None;
    }
    let name = insn.names(view.object, section);
    if let Some(size) = name.strip_prefix("__put_user_nocheck_") {
        return Some(Access::User(Operand::at(Register::RCX), size.parse().ok()?));
    }
    if name.starts_with("copy_user_") {
        return Some(Access::UserRange(Register::RDX));
    }
    let counted = name.starts_with("rep_") || name.starts_with("clear_user_");
    counted.then_some(Access::UserRange(Register::RCX))
}

/// The PadLock engines of VIA's processors write to RDI: as many blocks as RCX says, a digest, or a random
/// number.
fn padlock(insn: &Instruction) -> Option<Access> {
    use Mnemonic::{Xcryptcbc, Xcryptcfb, Xcryptctr, Xcryptecb, Xcryptofb, Xsha1, Xsha256, Xstore};
    let at = |size| Access::Store(Operand::at(Register::RDI), size);
    Some(match insn.mnemonic() {
        Xcryptcbc | Xcryptcfb | Xcryptctr | Xcryptecb | Xcryptofb => Access::Range(4),
        Xsha1 | Xsha256 => at(32),
        Xstore => at(8),
        _ => return None,
    })
}

/// Whether an operand is on the stack, which no other processor writes.
fn on_stack(insn: &Instruction) -> bool {
    insn.memory_base() == Register::RSP && insn.memory_index() == Register::None
}

/// Whether the instruction writes back what was there: `lock addl $0, -4(%rsp)`. Without a lock it may undo what
/// another processor has written.
fn same(insn: &Instruction) -> bool {
    matches!(insn.mnemonic(), Mnemonic::Add | Mnemonic::Sub | Mnemonic::Or | Mnemonic::Xor)
        && insn.op1_kind() != OpKind::Register
        && insn.op1_kind() != OpKind::Memory
        && insn.immediate(1) == 0
}

fn fixed(operand: &Operand) -> bool {
    matches!(operand.base, Register::None | Register::RIP) && operand.index == Register::None
}

/// The place that a fixed operand names: a symbol, and the addend.
fn named(operand: &Operand) -> Option<(usize, i64)> {
    operand.reloc.filter(|_| fixed(operand)).map(|reloc| (reloc.symbol, reloc.addend))
}

/// Whether the operand is at a fixed place above the stack pointer.
fn in_frame(operand: &Operand) -> bool {
    operand.base == Register::RSP && operand.index == Register::None && operand.displacement >= 0
}

/// The section that a fixed operand lies in.
fn section_of<'a>(object: &'a Object, operand: &Operand) -> Option<&'a Section> {
    let (symbol, addend) = named(operand)?;
    let (section, offset) = object.target(symbol, addend)?;
    object.sections.get(section).filter(|section| offset < section.size())
}

fn is_per_cpu(section: &Section) -> bool {
    section.name.starts_with(".data..percpu")
}

fn per_cpu(object: &Object, operand: &Operand, size: u32) -> Access {
    let name = named(operand).map(|(symbol, addend)| (&object.symbols[symbol], addend));
    match name {
        _ if section_of(object, operand).is_some_and(is_per_cpu) => Access::Free(Reason::OwnPerCpu),
        Some((symbol, addend))
            if symbol.undefined()
                && KERNEL_PER_CPU.contains(&(symbol.name.as_str(), addend))
                && size <= 4 =>
        {
            Access::Free(Reason::KernelPerCpu)
        }
        _ => Access::PerCpu(*operand, size),
    }
}
