//! Finds code that no compiler of the kernel made. The checks rely on what compilers do, so this module names
//! each function that does otherwise.
//!
//! The checks rely on this:
//!
//! - Control enters code where a function begins. Jumps lead to places that relocations or the jumps
//!   themselves name, since everything else moves.
//! - The stack pointer is computed from the stack pointer, so what stands above it is the function's own
//!   stack frame.
//! - Nothing is kept below the stack pointer, where checks push registers.
//! - Each store belongs to a function, since only functions are looked at.

use crate::engine::code::{Code, Function, Insn, writes};
use crate::engine::object::Object;
use crate::engine::tables::{TRACER, thunk_register};
use crate::error::Doubt;
use crate::passes::checks::depth;
use iced_x86::{FlowControl, InstructionInfoFactory, Mnemonic, OpKind, Register};
use std::collections::BTreeSet;

/// How many instructions back the search for a register's value looks.
const BACK: usize = 200;
/// Why code is refused that sets the direction flag.
const FLAGS: &str = "it sets flags that the kernel's code relies on";
/// Why a function is refused that returns elsewhere than to its caller.
const PUSHED: &str = "it returns to an address that it pushed";
/// Within how many instructions a function calls the tracer.
const TRACED: usize = 3;

/// The functions of a module that cannot be proven, each with the first reason.
pub fn doubts(object: &Object, codes: &[Code]) -> Vec<Doubt> {
    codes.iter().flat_map(|code| Sight { object, code }.doubts()).collect()
}

/// Those of `names` that are functions of a module.
pub fn known(object: &Object, codes: &[Code], names: &BTreeSet<String>) -> BTreeSet<String> {
    let functions = codes.iter().flat_map(|code| &code.functions);
    let of_functions = functions.map(|function| object.symbols[function.symbol].name.clone());
    let of_doubts = doubts(object, codes).into_iter().map(|doubt| doubt.function);
    of_functions.chain(of_doubts).filter(|name| names.contains(name)).collect()
}

/// A section of code, with the object that it belongs to.
struct Sight<'a> {
    object: &'a Object,
    code: &'a Code,
}

impl Sight<'_> {
    fn doubts(&self) -> Vec<Doubt> {
        let mut found: Vec<Doubt> = Vec::new();
        for function in &self.code.functions {
            let first =
                function.insns.clone().find_map(|number| Some((number, self.doubt(function, number)?)));
            let first = first.or_else(|| Some((depth::pushed(self.code, function)?, PUSHED)));
            if let Some((number, why)) = first {
                let symbol = &self.object.symbols[function.symbol];
                let offset = u64::from(self.code.insns[number as usize].at).saturating_sub(symbol.value);
                found.push(Doubt { function: symbol.name.clone(), offset, why });
            }
        }
        let mut info = InstructionInfoFactory::new();
        for (number, insn) in (0u32..).zip(&self.code.insns) {
            let lost = self.code.function_of(number).is_none() && !insn.fixed && !padding(insn);
            if lost && stores(&mut info, insn) {
                let (name, start) = self.before(insn.at.into());
                if found.iter().all(|doubt| doubt.function != name) {
                    let (offset, why) =
                        (u64::from(insn.at) - start, "it has a store that belongs to no function");
                    found.push(Doubt { function: name, offset, why });
                }
            }
        }
        found
    }

    /// An instruction that sets the direction flag, or all flags. The kernel's code expects string instructions to go
    /// upwards: a call would write below its buffers. What was pushed right before sets nothing.
    fn flags(&self, function: &Function, number: u32) -> Option<&'static str> {
        let insn = &self.code.insns[number as usize];
        let pushed = || {
            number > function.insns.start
                && self.code.insns[number as usize - 1].insn.mnemonic() == Mnemonic::Pushfq
        };
        match insn.insn.mnemonic() {
            Mnemonic::Std | Mnemonic::Popf | Mnemonic::Popfd if !insn.fixed => Some(FLAGS),
            Mnemonic::Popfq if !insn.fixed && !pushed() => Some(FLAGS),
            _ => None,
        }
    }

    /// What an instruction does that a compiler's code does not; `None` for ordinary ones.
    fn doubt(&self, function: &Function, number: u32) -> Option<&'static str> {
        let insn = &self.code.insns[number as usize];
        let decoded = &insn.insn;
        if let Some(register) = self.jumps_by(insn) {
            if self.computed(function, number, register) {
                return Some("it jumps to an address that it computes");
            }
            // What a compiler looks up this way is a function; in other functions it may lead anywhere.
            if !self.compiled(function) && self.looked_up(function, number, register) {
                return Some("it jumps by a table");
            }
        }
        if let Some(why) = system(insn).or_else(|| self.flags(function, number)) {
            return Some(why);
        }
        let sets_stack = decoded.op_count() > 0
            && decoded.op0_kind() == OpKind::Register
            && decoded.op0_register() == Register::RSP
            && matches!(decoded.mnemonic(), Mnemonic::Mov | Mnemonic::Lea | Mnemonic::Pop | Mnemonic::Xchg);
        if sets_stack && !self.own_stack(function, number) {
            return Some("it takes its stack from elsewhere");
        }
        if self.compiled(function) {
            return None;
        }
        let memory = (0..decoded.op_count()).any(|operand| decoded.op_kind(operand) == OpKind::Memory);
        // A barrier adds 0 to the word, whatever it holds.
        let barrier = matches!(decoded.mnemonic(), Mnemonic::Add | Mnemonic::Or)
            && decoded.try_immediate(1).is_ok_and(|value| value == 0);
        if memory
            && !barrier
            && decoded.mnemonic() != Mnemonic::Lea
            && decoded.mnemonic() != Mnemonic::Nop
            && !decoded.is_stack_instruction()
            && decoded.memory_base() == Register::RSP
            && decoded.memory_index() == Register::None
            && (decoded.memory_displacement64() as i64) < 0
        {
            return Some("it keeps data below the stack pointer");
        }
        None
    }

    /// Whether the kernel's compiler made the function: the kernel can trace it, or it is a part of such a
    /// function.
    fn compiled(&self, function: &Function) -> bool {
        let section = &self.object.sections[self.code.section];
        let traced = |insn: &Insn| insn.relocs(section).iter().any(|reloc| self.object.name(reloc) == TRACER);
        let insns = &self.code.insns[function.insns.start as usize..function.insns.end as usize];
        insns.iter().take(TRACED).any(traced) || self.object.symbols[function.symbol].name.contains(".cold")
    }

    /// The register that a jump takes its target from; `None` for a jump through memory.
    fn jumps_by(&self, insn: &Insn) -> Option<Register> {
        let decoded = &insn.insn;
        if decoded.mnemonic() != Mnemonic::Jmp {
            return None;
        }
        match decoded.op0_kind() {
            OpKind::Register => return Some(decoded.op0_register()),
            OpKind::Memory => return Some(Register::None),
            _ => {}
        }
        thunk_register(insn.names(self.object, &self.object.sections[self.code.section]))
    }

    /// The instruction that last gave a register its value, in the order in which instructions stand before
    /// `number`.
    fn giver(&self, function: &Function, number: u32, register: Register) -> Option<&Insn> {
        let mut info = InstructionInfoFactory::new();
        let before = &self.code.insns[function.insns.start as usize..number as usize];
        before.iter().rev().take(BACK).find(|insn| {
            info.info(&insn.insn).used_registers().iter().any(|used| {
                writes(used.access()) && used.register().full_register() == register.full_register()
            })
        })
    }

    fn computed(&self, function: &Function, number: u32, register: Register) -> bool {
        let Some(giver) = self.giver(function, number, register) else { return false };
        let between = self.code.insns[function.insns.start as usize..number as usize].iter().rev();
        // What stands behind a jump or a return is reached from elsewhere, where the register has another
        // giver.
        if between.take_while(|insn| insn.at > giver.at).any(ends_flow) {
            return false;
        }
        let adds = matches!(
            giver.insn.mnemonic(),
            Mnemonic::Add | Mnemonic::Sub | Mnemonic::Shl | Mnemonic::Imul | Mnemonic::Or | Mnemonic::And
        );
        let based = !giver.insn.is_ip_rel_memory_operand() && giver.insn.memory_base() != Register::None;
        adds || (giver.insn.mnemonic() == Mnemonic::Lea && based)
    }

    /// Whether the target is loaded from memory at an address that depends on an index.
    fn looked_up(&self, function: &Function, number: u32, register: Register) -> bool {
        let own = &self.code.insns[number as usize];
        let giver =
            if register == Register::None { Some(own) } else { self.giver(function, number, register) };
        giver.is_some_and(|giver| giver.insn.memory_index() != Register::None)
    }

    /// Whether the stack pointer gets a value that it had before, or one near it.
    fn own_stack(&self, function: &Function, number: u32) -> bool {
        let decoded = &self.code.insns[number as usize].insn;
        let frame = |register| matches!(register, Register::RSP | Register::RBP);
        let from = match (decoded.mnemonic(), decoded.op_count()) {
            // What the function put into its own stack frame is a value that it had.
            (Mnemonic::Mov, 2) if decoded.op1_kind() == OpKind::Memory => {
                return frame(decoded.memory_base());
            }
            (Mnemonic::Mov, 2) if decoded.op1_kind() == OpKind::Register => decoded.op1_register(),
            (Mnemonic::Lea, 2) if decoded.memory_index() == Register::None => decoded.memory_base(),
            _ => return false,
        };
        frame(from)
            || self.giver(function, number, from).is_some_and(|giver| {
                let copies = giver.insn.mnemonic() == Mnemonic::Mov
                    && giver.insn.op_count() == 2
                    && giver.insn.op1_kind() == OpKind::Register
                    && frame(giver.insn.op1_register());
                let loads = matches!(giver.insn.mnemonic(), Mnemonic::Mov | Mnemonic::Lea | Mnemonic::Pop)
                    && frame(giver.insn.memory_base());
                copies || loads || giver.insn.mnemonic() == Mnemonic::Pop
            })
    }

    /// The last symbol before an offset, and its own offset; the section if no symbol is before it.
    fn before(&self, offset: u64) -> (String, u64) {
        let own = self.object.symbols.iter().filter(|symbol| symbol.section() == Some(self.code.section));
        let before = own.filter(|symbol| symbol.value <= offset && !symbol.name.is_empty());
        match before.max_by_key(|symbol| symbol.value) {
            Some(symbol) => (symbol.name.clone(), symbol.value),
            None => (self.object.sections[self.code.section].name.clone(), 0),
        }
    }
}

/// Whether control never runs on to what stands behind the instruction.
fn ends_flow(insn: &Insn) -> bool {
    use FlowControl::{Exception, IndirectBranch, Return, UnconditionalBranch};
    matches!(insn.insn.flow_control(), UnconditionalBranch | IndirectBranch | Return | Exception)
}

/// Whether the instruction is one of those that fill the space between functions.
fn padding(insn: &Insn) -> bool {
    matches!(insn.insn.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
        || (insn.insn.mnemonic() == Mnemonic::Add
            && insn.insn.len() == 2
            && insn.insn.memory_base() == Register::RAX)
}

fn stores(info: &mut InstructionInfoFactory, insn: &Insn) -> bool {
    info.info(&insn.insn).used_memory().iter().any(|memory| writes(memory.access()))
        && !insn.insn.is_stack_instruction()
}

/// What an instruction does to the processor that decides on memory or on control; `None` for others.
/// The kernel puts such code in place of its calls, where it needs it; no driver brings it.
fn system(insn: &Insn) -> Option<&'static str> {
    let decoded = &insn.insn;
    if insn.fixed {
        return None;
    }
    let register =
        (decoded.op_count() > 0 && decoded.op0_kind() == OpKind::Register).then(|| decoded.op0_register());
    match decoded.mnemonic() {
        Mnemonic::Mov if register.is_some_and(|to| to.is_cr() || to.is_dr() || to.is_segment_register()) => {
            Some("it sets a register of the processor that decides on memory")
        }
        Mnemonic::Lgdt
        | Mnemonic::Lidt
        | Mnemonic::Lldt
        | Mnemonic::Ltr
        | Mnemonic::Lmsw
        | Mnemonic::Wrmsr
        | Mnemonic::Wrfsbase
        | Mnemonic::Wrgsbase
        | Mnemonic::Swapgs => Some("it sets a register of the processor that decides on memory"),
        Mnemonic::Retf
        | Mnemonic::Iret
        | Mnemonic::Iretd
        | Mnemonic::Iretq
        | Mnemonic::Sysret
        | Mnemonic::Sysretq
        | Mnemonic::Sysexit
        | Mnemonic::Sysexitq => Some("it returns to where no function of its own does"),
        Mnemonic::Int | Mnemonic::Int1 => Some("it raises an interrupt, whose handler is the kernel's"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::object::reloc;
    use crate::tests::{Module, TEXT};

    #[track_caller]
    fn assert_doubt(code: &[u8], wanted: Option<&str>) {
        let object = Module::new(code).0;
        let said = doubts(&object, &Code::all(&object).unwrap()).first().map(ToString::to_string);
        assert_eq!(said.as_deref(), wanted);
    }

    #[test]
    fn jumps_differ_by_the_source_of_their_target() {
        // call elsewhere (the tracer); mov rax,[rdi+8*rcx]; jmp rax
        let mut module = Module::new(&[0xe8, 0, 0, 0, 0, 0x48, 0x8b, 0x04, 0xcf, 0xff, 0xe0]);
        module.reloc(TEXT, 1, reloc::PLT32, 4, -4);
        let said = |module: &Module| doubts(&module.0, &Code::all(&module.0).unwrap()).len();
        assert_eq!(said(&module), 1);
        module.0.symbols[4].name = TRACER.into();
        assert_eq!(said(&module), 0);
        // mov rax,[rdi]; jmp rax
        assert_doubt(&[0x48, 0x8b, 0x07, 0xff, 0xe0], None);
        // jmp [rdi+8*rcx]
        assert_doubt(&[0xff, 0x24, 0xcf], Some("f (it jumps by a table, at +0x0)"));
        // mov rax,[rdi]; add rax,rdx; jmp rax
        let doubt = "f (it jumps to an address that it computes, at +0x6)";
        assert_doubt(&[0x48, 0x8b, 0x07, 0x48, 0x01, 0xd0, 0xff, 0xe0], Some(doubt));
        // lea rax,[rdi+rdx]; jmp rax
        let doubt = "f (it jumps to an address that it computes, at +0x4)";
        assert_doubt(&[0x48, 0x8d, 0x04, 0x17, 0xff, 0xe0], Some(doubt));
        // mov rax,[rdi]; test rax,rax; jne +4; sub eax,1; ret; jmp rax
        let elsewhere = [0x48, 0x8b, 0x07, 0x48, 0x85, 0xc0, 0x75, 0x04, 0x83, 0xe8, 0x01, 0xc3, 0xff, 0xe0];
        assert_doubt(&elsewhere, None);
    }

    #[test]
    fn the_processor_stays_as_it_is() {
        let sets = Some("f (it sets a register of the processor that decides on memory, at +0x0)");
        for code in [
            &[0x0f, 0x22, 0xdf][..],         // mov cr3,rdi
            &[0x0f, 0x23, 0xc7],             // mov db0,rdi
            &[0x8e, 0xd7],                   // mov ss,edi
            &[0x0f, 0x01, 0x1f],             // lidt [rdi]
            &[0x0f, 0x30],                   // wrmsr
            &[0xf3, 0x48, 0x0f, 0xae, 0xdf], // wrgsbase rdi
        ] {
            assert_doubt(code, sets);
        }
        // int 0x20
        let raises = Some("f (it raises an interrupt, whose handler is the kernel's, at +0x0)");
        assert_doubt(&[0xcd, 0x20], raises);
        // lretq
        assert_doubt(&[0x48, 0xcb], Some("f (it returns to where no function of its own does, at +0x0)"));
        // std; popfq
        let flags = Some("f (it sets flags that the kernel's code relies on, at +0x0)");
        assert_doubt(&[0xfd], flags);
        assert_doubt(&[0x9d], flags);
        // pushfq; popfq
        assert_doubt(&[0x9c, 0x9d], None);
        // mov rax,cr3; rdmsr; sti
        assert_doubt(&[0x0f, 0x20, 0xd8, 0x0f, 0x32, 0xfb], None);
    }

    #[test]
    fn a_jump_through_a_thunk_is_one_by_its_register() {
        // add rax,rdx; jmp thunk
        let mut module = Module::new(&[0x48, 0x01, 0xd0, 0xe9, 0, 0, 0, 0]);
        module.reloc(TEXT, 4, reloc::PLT32, 4, -4);
        module.0.symbols[4].name = "__x86_indirect_thunk_rax".into();
        assert_eq!(doubts(&module.0, &Code::all(&module.0).unwrap()).len(), 1);
    }

    #[test]
    fn the_stack_stays_the_own_one() {
        // mov rbp,rsp; and rsp,-32; mov [rsp],rdi; mov rsp,rbp; ret
        let aligned =
            [0x48, 0x89, 0xe5, 0x48, 0x83, 0xe4, 0xe0, 0x48, 0x89, 0x3c, 0x24, 0x48, 0x89, 0xec, 0xc3];
        assert_doubt(&aligned, None);
        // mov r10,rsp; mov rsp,r10; ret
        assert_doubt(&[0x49, 0x89, 0xe2, 0x4c, 0x89, 0xd4, 0xc3], None);
        // mov rsp,rdi; ret
        let doubt = "f (it takes its stack from elsewhere, at +0x0)";
        assert_doubt(&[0x48, 0x89, 0xfc, 0xc3], Some(doubt));
        // lock add dword [rsp-4],0; ret
        assert_doubt(&[0xf0, 0x83, 0x44, 0x24, 0xfc, 0x00, 0xc3], None);
        // mov [rsp-8],rdi; ret
        let doubt = "f (it keeps data below the stack pointer, at +0x0)";
        assert_doubt(&[0x48, 0x89, 0x7c, 0x24, 0xf8, 0xc3], Some(doubt));
    }

    #[test]
    fn stores_outside_of_functions_are_named_by_what_is_before_them() {
        // ret; mov [rdi],rsi
        let mut module = Module::new(&[0xc3, 0x48, 0x89, 0x37]);
        module.0.symbols[3].size = 1;
        let said = doubts(&module.0, &Code::all(&module.0).unwrap());
        assert_eq!(said[0].to_string(), "f (it has a store that belongs to no function, at +0x1)");
        assert_eq!(said.len(), 1);
    }
}
