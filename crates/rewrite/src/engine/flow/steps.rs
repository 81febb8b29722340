//! What happens at each instruction: what it uses and changes, and where control can go on.

use super::set::Set;
use crate::engine::code::{At, Code, Function, Insn};
use crate::engine::object::Object;
use crate::engine::tables::{RETURN_THUNK, TRACER, thunk_register};
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind};
use std::collections::{BTreeSet, HashMap, HashSet};

/// What happens at an instruction.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// What it may need.
    pub uses: Set,
    /// What it surely changes.
    pub sets: Set,
    /// Where control can go on beside the next instruction, as section and instruction.
    pub to: Vec<(usize, u32)>,
    /// Whether the next instruction can run next.
    pub falls: bool,
    /// What is needed where control leaves the function or continues where nothing is known; `None` if it
    /// does neither.
    pub leaves: Option<Set>,
    /// What the instruction calls; `None` if it calls nothing.
    pub calls: Option<Callee>,
    /// The same as `uses`, `sets` and `leaves`, but for what is surely used.
    pub sure: Sure,
}

/// What an instruction surely uses, and what it may change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sure {
    /// What it surely reads.
    pub uses: Set,
    /// What it may change.
    pub sets: Set,
    /// What is surely used where control leaves the function.
    pub leaves: Set,
    /// Whether uses at its branch target do not count: they may be an argument of another function, or
    /// nothing.
    pub elsewhere: bool,
    /// Whether uses behind it do not count either: what stands there may be something else.
    pub ends: bool,
}

/// The callee of a call.
#[derive(Clone, Debug)]
pub struct Callee {
    /// The name of its symbol; empty where that is not known.
    pub name: String,
    /// Section and instruction at which it begins, if it is the module's own.
    pub at: Option<(usize, u32)>,
}

impl Step {
    fn leave(&mut self, needed: Set, sure: Set) {
        self.leaves = Some(needed);
        self.sure.leaves = sure;
    }
}

/// Calls that do not keep to the usual convention.
#[derive(Debug, Default)]
pub struct Own {
    /// The functions that are called by name.
    pub names: BTreeSet<String>,
    /// The calls whose callee is not known: section and instruction.
    pub places: HashSet<(usize, u32)>,
}

impl Own {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.names.len() + self.places.len()
    }
}

/// A section of code, with what is known of the module.
pub struct Steps<'a> {
    /// The module.
    pub object: &'a Object,
    /// All its code.
    pub codes: &'a [Code],
    /// The section.
    pub code: &'a Code,
    /// Where control goes on beyond what instructions show.
    pub edges: &'a HashMap<At, Vec<At>>,
    /// Calls that do not keep to the usual convention.
    pub own: &'a Own,
}

impl Steps<'_> {
    /// What happens at each instruction of the section.
    pub fn all(&self) -> Vec<Step> {
        let mut info = InstructionInfoFactory::new();
        let each = (0u32..).zip(&self.code.insns).map(|(number, insn)| {
            let at = (self.code.section, number);
            let mut step = registers(&mut info, insn);
            step.to.extend(self.local(insn));
            step.to.extend(self.edges.get(&at).into_iter().flatten());
            self.control(&mut step, at, insn);
            let begins = |to: &At| self.function(*to).is_some_and(|function| function.insns.start == to.1);
            step.sure.elsewhere = step.to.iter().any(begins);
            step
        });
        each.collect()
    }

    /// The target that the instruction itself names.
    fn local(&self, insn: &Insn) -> Option<At> {
        insn.target.map(|target| (self.code.section, target))
    }

    /// The target that the instruction's relocation names, if it is the module's own code.
    fn target(&self, insn: &Insn) -> Option<At> {
        let reloc = insn.relocs(&self.object.sections[self.code.section]).first()?;
        let (at, offset) = self.object.target(reloc.symbol, reloc.addend.wrapping_add(insn.bias(reloc)))?;
        Some((at, Code::find(self.codes, at)?.starting(offset)?))
    }

    fn function(&self, (section, insn): At) -> Option<&Function> {
        Code::find(self.codes, section)?.function_of(insn)
    }

    /// Adds where control goes on.
    fn control(&self, step: &mut Step, at: At, insn: &Insn) {
        let name = insn.names(self.object, &self.object.sections[self.code.section]);
        let back = Set::RESULTS.with(Set::KEPT);
        match insn.insn.flow_control() {
            _ if insn.fixed && !harmless(&insn.insn, name) => step.leaves = Some(Set::ALL),
            FlowControl::Call | FlowControl::IndirectCall => self.call(step, at, insn, name),
            FlowControl::Return => step.leave(back, back),
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch if !insn.relocs.is_empty() => {
                match self.target(insn) {
                    // The target is the function's own cold part; it is another function only if that is
                    // called by name.
                    Some(target) => step.to.push(target),
                    None if name == RETURN_THUNK => step.leave(back, back),
                    None => {
                        let kept = Set::KEPT.with(through(name));
                        step.leave(Set::ARGUMENTS.with(kept), kept);
                    }
                }
            }
            FlowControl::IndirectBranch | FlowControl::Interrupt | FlowControl::XbeginXabortXend => {
                step.leaves = Some(Set::ALL);
            }
            // A warning returns; its handler may look at any register.
            FlowControl::Exception if insn.insn.mnemonic() == Mnemonic::Ud2 => {
                step.falls = true;
                step.sure.ends = true;
            }
            _ => {}
        }
    }

    /// Adds what a call uses and changes. `name` is the symbol of its relocation.
    fn call(&self, step: &mut Step, at: At, insn: &Insn, name: &str) {
        let local = self.local(insn);
        // Control goes on behind the call, and not only at the callee.
        step.to.retain(|to| Some(*to) != local);
        let callee = self.target(insn).or(local);
        let function = callee.and_then(|callee| self.function(callee));
        let name = function.map_or(name, |function| &self.object.symbols[function.symbol].name);
        step.falls &= !never_returns(name);
        let through = through(name);
        step.sure.uses = step.sure.uses.with(through);
        if is_special(name) {
            step.leaves = Some(Set::ALL.without(Set::FLAGS));
        } else if self.own.names.contains(name) || self.own.places.contains(&at) {
            step.leaves = Some(Set::ALL);
        } else {
            // A thunk calls the address in a register.
            let name = if through == Set::NONE { name.to_owned() } else { String::new() };
            step.calls = Some(Callee { name, at: callee });
            step.uses = step.uses.with(Set::ARGUMENTS).with(through);
            step.sets = Set::LOST.without(step.uses);
            step.sure.sets = Set::LOST;
        }
    }
}

/// What an instruction uses and changes by itself, and whether the next one can follow.
fn registers(info: &mut InstructionInfoFactory, insn: &Insn) -> Step {
    let (mut uses, mut sets, mut parts) = (Set::NONE, Set::NONE, Set::NONE);
    // `xor %eax,%eax` needs nothing.
    for used in info.info(&insn.insn).used_registers() {
        let set = Set::register(used.register());
        match used.access() {
            OpAccess::Write if used.register().size() >= 4 => sets = sets.with(set),
            // The next read is of that part, though it counts as a read of the whole.
            OpAccess::Write => parts = parts.with(set),
            OpAccess::None | OpAccess::NoMemAccess | OpAccess::CondWrite => {}
            _ => uses = uses.with(set),
        }
    }
    uses = uses.with(Set::flags(insn.insn.rflags_read()));
    sets = sets.with(Set::flags(insn.insn.rflags_modified())).without(uses);
    if constant(&insn.insn) {
        let result = Set::register(insn.insn.op0_register());
        uses = uses.without(sets.with(result));
        sets = sets.with(result);
    }
    let sure = Sure { uses, sets: sets.with(parts), ..Sure::default() };
    Step { uses, sets, sure, falls: insn.falls_through(), ..Step::default() }
}

/// The register that holds the target of a thunk with this name.
fn through(name: &str) -> Set {
    thunk_register(name).map_or(Set::NONE, Set::register)
}

/// Helpers in assembly that are called from inline assembly, and keep all registers that they do not name.
fn is_special(name: &str) -> bool {
    const SPECIAL: [&str; 11] = [
        TRACER,
        "__get_user_",
        "__put_user_",
        "__SCT__",
        "__sw_hweight",
        "copy_user_",
        "rep_",
        "clear_page",
        "preempt_schedule",
        "hypercall_page",
        "__xen_hypercall",
    ];
    SPECIAL.iter().any(|special| name.starts_with(special))
}

/// Whether the kernel puts only such code in place of the instruction that needs and changes no more than it
/// does.
fn harmless(insn: &Instruction, name: &str) -> bool {
    matches!(insn.mnemonic(), Mnemonic::Endbr64 | Mnemonic::Nop) || name == TRACER
}

/// Functions that do not return (a part of `tools/objtool/noreturns.h`). What stands behind their calls is
/// reached otherwise, if at all.
fn never_returns(name: &str) -> bool {
    const NEVER: [&str; 12] = [
        "__fortify_panic",
        "__module_put_and_kthread_exit",
        "__stack_chk_fail",
        "btrfs_assertfail",
        "btrfs_backref_panic",
        "do_exit",
        "fortify_panic",
        "kthread_complete_and_exit",
        "kthread_exit",
        "make_task_dead",
        "panic",
        "usercopy_abort",
    ];
    // A version that the compiler made for fewer arguments has a suffix.
    NEVER.contains(&name.split('.').next().unwrap_or(name))
}

/// Whether the result does not depend on what its register was: `or $-1`, `and $0`, or `sbb` of itself.
fn constant(insn: &Instruction) -> bool {
    use OpKind::Register as Kind;
    let large = insn.op0_kind() == Kind && insn.op0_register().size() >= 4;
    let immediate = || insn.op_count() == 2 && !matches!(insn.op1_kind(), Kind | OpKind::Memory);
    large
        && match insn.mnemonic() {
            Mnemonic::Or => immediate() && insn.immediate(1) as u32 == u32::MAX,
            Mnemonic::And => immediate() && insn.immediate(1) == 0,
            Mnemonic::Sbb => insn.op1_kind() == Kind && insn.op1_register() == insn.op0_register(),
            _ => false,
        }
}
