//! Finds which registers and flags hold a value that is still needed, at each instruction of a module.
//!
//! Code of the kernel's own compiler keeps to the calling convention of the System V ABI. `-pg` rules out
//! that it does otherwise between functions of a file.
//! Functions in assembly have conventions of their own.
//! Where a call is followed by a use of what an ordinary call would destroy, its callee is taken for one of
//! those ([`Flow::own`]).
//! A callee that uses more than arguments is taken for one as well. Before the calls of such functions
//! everything is needed.
//!
//! The analysis therefore asks two questions.
//! One is what may be needed: each call may use all registers for arguments.
//! The other is what is surely used, by an instruction that reads it.

use crate::code::Code;
use crate::error::{Result, refused};
use crate::object::{Object, reloc};
use crate::tables::{EX_ENTRY, JUMP_ENTRY, named};
use iced_x86::{FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, Register, RflagsBits};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Registers and flags, a bit each: general registers by number, then overflow, sign, zero, auxiliary, carry,
/// parity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set(u32);

const FLAGS: [u32; 6] =
    [RflagsBits::OF, RflagsBits::SF, RflagsBits::ZF, RflagsBits::AF, RflagsBits::CF, RflagsBits::PF];
/// Most passes over all code; the largest modules take a few dozen.
const ROUNDS: usize = 1000;
const FIRST_FLAG: u32 = 16;
/// What functions call first so that they can be traced.
pub(crate) const TRACER: &str = "__fentry__";
const ALL_FLAGS: u32 = 0x3f << FIRST_FLAG;

impl Set {
    /// All registers and flags.
    pub const ALL: Set = Set(0xffff | ALL_FLAGS);
    /// What a function may not change: RBX, RSP, RBP, R12 to R15.
    const KEPT: Set = Set(1 << 3 | 1 << 4 | 1 << 5 | 0xf000);
    /// What a call may change.
    const LOST: Set = Set(!Set::KEPT.0 & Set::ALL.0);
    /// Where arguments are: RDI, RSI, RDX, RCX, R8, R9, and the number of vector registers in AL.
    const ARGUMENTS: Set = Set(1 << 7 | 1 << 6 | 1 << 2 | 1 << 1 | 0x300 | 1);
    /// Where results are: RAX, RDX.
    const RESULTS: Set = Set(1 | 1 << 2);

    fn register(register: Register) -> Set {
        let full = register.full_register();
        if full.is_gpr64() { Set(1 << (full as u32 - Register::RAX as u32)) } else { Set(0) }
    }

    fn flags(bits: u32) -> Set {
        let set = (0..).zip(FLAGS).filter(|(_, flag)| bits & flag != 0);
        Set(set.map(|(number, _)| 1 << (FIRST_FLAG + number)).sum())
    }

    fn with(self, other: Set) -> Set {
        Set(self.0 | other.0)
    }

    fn without(self, other: Set) -> Set {
        Set(self.0 & !other.0)
    }

    fn and(self, other: Set) -> Set {
        Set(self.0 & other.0)
    }

    /// Whether a register is in the set; parts count as the whole.
    pub fn has(self, register: Register) -> bool {
        self.and(Set::register(register)).0 != 0
    }

    /// Whether any of the flags is in the set.
    pub fn has_flags(self) -> bool {
        self.0 & ALL_FLAGS != 0
    }
}

/// What happens at an instruction.
#[derive(Clone, Debug, Default)]
struct Step {
    uses: Set,
    sets: Set,
    /// Where control can go on beside the next instruction, as section and instruction.
    to: Vec<(usize, u32)>,
    /// Whether the next instruction can run next.
    falls: bool,
    /// What is needed where control leaves the function or continues where nothing is known; `None` if it
    /// does neither.
    leaves: Option<Set>,
    /// What the instruction calls; `None` if it calls nothing.
    calls: Option<Callee>,
    /// The same as `uses`, `sets` and `leaves`, but for what is surely used.
    sure: Sure,
}

/// What an instruction surely uses, and what it may change.
#[derive(Clone, Copy, Debug, Default)]
struct Sure {
    uses: Set,
    sets: Set,
    leaves: Set,
    /// Whether uses at its branch target do not count: they may be an argument of another function, or
    /// nothing.
    elsewhere: bool,
    /// Whether uses behind it do not count either: what stands there may be something else.
    ends: bool,
}

/// The callee of a call.
#[derive(Clone, Debug)]
struct Callee {
    /// The name of its symbol; empty where that is not known.
    name: String,
    /// Section and instruction at which it begins, if it is the module's own.
    at: Option<(usize, u32)>,
}

/// What is needed at each instruction of a module.
#[derive(Clone, Debug)]
pub struct Flow {
    needed: HashMap<usize, Vec<Set>>,
    blocks: HashMap<usize, Vec<u32>>,
    /// Instructions that may fault, where the kernel then goes on elsewhere: section and instruction.
    faults: HashSet<(usize, u32)>,
    /// Functions that do not keep to the usual convention, by name, as far as their callers in this module
    /// show it.
    pub own: BTreeSet<String>,
    /// The module's own functions after whose calls registers are used that a call may change.
    /// Code that is put into them must not change more than they do.
    pub keeping: BTreeSet<String>,
}

impl Flow {
    /// Looks at all code of a module.
    pub fn of(object: &Object, codes: &[Code]) -> Result<Flow> {
        let edges = edges(object, codes);
        let (mut own, mut keeping) = (Own::default(), BTreeSet::new());
        loop {
            let steps: Vec<(usize, Vec<Step>)> =
                codes.iter().map(|code| (code.section, steps(object, codes, code, &edges, &own))).collect();
            let sure = solve(&steps, |step| step.sure)?;
            let before = own.len();
            for (code, (section, steps)) in codes.iter().zip(&steps) {
                for (number, step) in (0u32..).zip(steps) {
                    let Some(callee) = &step.calls else { continue };
                    let after = sure[section].get(number as usize + 1).copied().unwrap_or_default();
                    // A function that never returns may be called last in another, with nothing behind the
                    // call.
                    let falls = step.falls && code.function_of(number) == code.function_of(number + 1);
                    let compiled = callee.at.is_some_and(|(section, at)| traced(object, codes, section, at));
                    let keeps = falls && !compiled && after.and(Set::LOST.without(Set::RESULTS)) != Set(0);
                    let usual = Set::ARGUMENTS.with(Set::KEPT);
                    let takes = callee
                        .at
                        .is_some_and(|(section, at)| sure[&section][at as usize].without(usual) != Set(0));
                    if keeps && callee.at.is_some() {
                        keeping.insert(callee.name.clone());
                    }
                    if (keeps || takes) && !callee.name.is_empty() {
                        own.names.insert(callee.name.clone());
                    } else if keeps {
                        own.places.insert((*section, number));
                    }
                }
            }
            if own.len() == before {
                let may = |step: &Step| {
                    let leaves = step.leaves.unwrap_or_default();
                    Sure { uses: step.uses, sets: step.sets, leaves, ..Sure::default() }
                };
                let needed = solve(&steps, may)?;
                let own = own.names;
                let (blocks, faults) = (blocks(object, codes, &steps), faults(object, codes));
                return Ok(Flow { needed, blocks, faults, own, keeping });
            }
        }
    }

    /// The number of an instruction's block. Instructions of one block run in their order, from the first to
    /// the last or not at all.
    pub fn block(&self, section: usize, insn: u32) -> u32 {
        // Where nothing is known, each instruction has its own block.
        self.blocks.get(&section).and_then(|blocks| blocks.get(insn as usize)).copied().unwrap_or(!insn)
    }

    /// Whether the kernel goes on elsewhere when the instruction faults, as when it writes to user memory.
    pub fn may_fault(&self, section: usize, insn: u32) -> bool {
        self.faults.contains(&(section, insn))
    }

    /// What is needed when an instruction is about to run.
    pub fn needed(&self, section: usize, insn: u32) -> Set {
        self.needed.get(&section).and_then(|needed| needed.get(insn as usize)).copied().unwrap_or(Set::ALL)
    }
}

fn faults(object: &Object, codes: &[Code]) -> HashSet<(usize, u32)> {
    let of_code = codes.iter().flat_map(|code| {
        let entries = named(object, "__ex_table", code.section).into_iter();
        entries
            .filter(|(offset, _)| offset.is_multiple_of(EX_ENTRY))
            .filter_map(|(_, at)| Some((code.section, code.starting(at)?)))
    });
    of_code.collect()
}

/// Calls that do not keep to the usual convention.
#[derive(Debug, Default)]
struct Own {
    /// The functions that are called by name.
    names: BTreeSet<String>,
    /// The calls whose callee is not known: section and instruction.
    places: HashSet<(usize, u32)>,
}

impl Own {
    fn len(&self) -> usize {
        self.names.len() + self.places.len()
    }
}

/// For each instruction the number of its block, as [`Flow::block`] returns it.
fn blocks(object: &Object, codes: &[Code], steps: &[(usize, Vec<Step>)]) -> HashMap<usize, Vec<u32>> {
    let mut begins: HashMap<usize, Vec<bool>> =
        steps.iter().map(|(section, steps)| (*section, vec![false; steps.len() + 1])).collect();
    let mut begin = |section: usize, insn: u32| {
        if let Some(begins) = begins.get_mut(&section).and_then(|begins| begins.get_mut(insn as usize)) {
            *begins = true;
        }
    };
    for (code, (section, steps)) in codes.iter().zip(steps) {
        for (number, (step, insn)) in (0..).zip(steps.iter().zip(&code.insns)) {
            step.to.iter().for_each(|(section, target)| begin(*section, *target));
            let next = insn.insn.flow_control() == FlowControl::Next && step.falls;
            if !next || !step.to.is_empty() || step.leaves.is_some() {
                begin(*section, number + 1);
            }
        }
    }
    let of_section: HashMap<usize, &Code> = codes.iter().map(|code| (code.section, code)).collect();
    let mut name = |section: usize, offset: u64| {
        if let Some(insn) = of_section.get(&section).and_then(|code| code.starting(offset)) {
            begin(section, insn);
        }
    };
    for symbol in &object.symbols {
        if let Some(section) = symbol.section() {
            name(section, symbol.value);
        }
    }
    for (index, section) in object.sections.iter().enumerate() {
        let code = of_section.get(&index);
        for reloc in &section.relocs {
            let bias = match (reloc::relative(reloc.kind), code) {
                (true, Some(code)) => code
                    .holding(reloc.offset)
                    .map_or(0, |holding| i64::from(code.insns[holding as usize].end()) - reloc.offset as i64),
                // Branches end with their distance.
                (true, None) if section.exec() => 4,
                _ => 0,
            };
            // Tables of stack frames may name any place, which no jump reaches.
            if section.name != ".orc_unwind_ip"
                && let Some((at, offset)) = object.target(reloc.symbol, reloc.addend.wrapping_add(bias))
            {
                name(at, offset);
            }
        }
    }
    let number = |begins: &Vec<bool>| {
        let mut block = 0;
        begins
            .iter()
            .map(|begins| {
                block += u32::from(*begins);
                block
            })
            .collect()
    };
    begins.iter().map(|(section, begins)| (*section, number(begins))).collect()
}

/// Where control goes on beyond what instructions show: static branches, and faults.
fn edges(object: &Object, codes: &[Code]) -> HashMap<(usize, u32), Vec<(usize, u32)>> {
    let mut edges: HashMap<(usize, u32), Vec<(usize, u32)>> = HashMap::new();
    for (table, size, to) in [("__jump_table", JUMP_ENTRY, 4), ("__ex_table", EX_ENTRY, 4)] {
        // Row, then word within it: where in the code.
        let mut words: HashMap<(u64, u64), (usize, u32)> = HashMap::new();
        for code in codes {
            for (offset, at) in named(object, table, code.section) {
                if let Some(insn) = code.starting(at) {
                    words.insert((offset / size, offset % size), (code.section, insn));
                }
            }
        }
        for ((entry, word), from) in &words {
            if let (0, Some(to)) = (*word, words.get(&(*entry, to))) {
                edges.entry(*from).or_default().push(*to);
            }
        }
    }
    edges
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
fn harmless(insn: &iced_x86::Instruction, name: &str) -> bool {
    matches!(insn.mnemonic(), Mnemonic::Endbr64 | Mnemonic::Nop) || name == TRACER
}

/// The register of a thunk for indirect calls, such as `__x86_indirect_thunk_rax`.
pub(crate) fn thunk_register(name: &str) -> Option<Register> {
    let name = name.strip_prefix("__x86_indirect_")?.rsplit('_').next()?;
    let number = |number: &str| number.parse::<u32>().ok().filter(|number| (8..16).contains(number));
    Some(match name {
        "rax" => Register::RAX,
        "rbx" => Register::RBX,
        "rcx" => Register::RCX,
        "rdx" => Register::RDX,
        "rsi" => Register::RSI,
        "rdi" => Register::RDI,
        "rbp" => Register::RBP,
        _ => Register::RAX + number(name.strip_prefix('r')?)?,
    })
}

/// Whether the function that begins there calls the tracer first, so that it was compiled with `-pg`.
/// What then seems to be used behind its calls are variables that have no value there.
fn traced(object: &Object, codes: &[Code], section: usize, insn: u32) -> bool {
    let Some(code) = codes.iter().find(|code| code.section == section) else { return false };
    let relocs = &object.sections[section].relocs;
    let first = code.insns.iter().skip(insn as usize).take(2);
    first
        .flat_map(|insn| &relocs[insn.relocs.start as usize..insn.relocs.end as usize])
        .any(|reloc| object.symbols[reloc.symbol].name == TRACER)
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
fn constant(insn: &iced_x86::Instruction) -> bool {
    use iced_x86::OpKind::Register as Kind;
    let large = insn.op0_kind() == Kind && insn.op0_register().size() >= 4;
    let immediate = || insn.op_count() == 2 && !matches!(insn.op1_kind(), Kind | iced_x86::OpKind::Memory);
    large
        && match insn.mnemonic() {
            Mnemonic::Or => immediate() && insn.immediate(1) as u32 == u32::MAX,
            Mnemonic::And => immediate() && insn.immediate(1) == 0,
            Mnemonic::Sbb => insn.op1_kind() == Kind && insn.op1_register() == insn.op0_register(),
            _ => false,
        }
}

fn steps(
    object: &Object,
    codes: &[Code],
    code: &Code,
    edges: &HashMap<(usize, u32), Vec<(usize, u32)>>,
    own: &Own,
) -> Vec<Step> {
    let mut info = InstructionInfoFactory::new();
    let section = &object.sections[code.section];
    let each = (0u32..).zip(&code.insns).map(|(number, insn)| {
        let mut step = Step { falls: crate::place::falls_through(&insn.insn), ..Step::default() };
        let mut parts = Set(0);
        for used in info.info(&insn.insn).used_registers() {
            let set = Set::register(used.register());
            let whole = used.register().size() >= 4;
            match used.access() {
                OpAccess::Write if whole => step.sets = step.sets.with(set),
                // The next read is of that part, though it counts as a read of the whole.
                OpAccess::Write => parts = parts.with(set),
                OpAccess::None | OpAccess::NoMemAccess | OpAccess::CondWrite => {}
                _ => step.uses = step.uses.with(set),
            }
        }
        step.uses = step.uses.with(Set::flags(insn.insn.rflags_read()));
        step.sets = step.sets.with(Set::flags(insn.insn.rflags_modified())).without(step.uses);
        if constant(&insn.insn) {
            step.uses = step.uses.without(step.sets.with(Set::register(insn.insn.op0_register())));
            step.sets = step.sets.with(Set::register(insn.insn.op0_register()));
        }
        step.sure = Sure { uses: step.uses, sets: step.sets.with(parts), ..Sure::default() };
        // `xor %eax,%eax` needs nothing.
        step.to.extend(insn.target.map(|target| (code.section, target)));
        step.to.extend(edges.get(&(code.section, number)).into_iter().flatten());
        let reloc = section.relocs[insn.relocs.start as usize..insn.relocs.end as usize].first();
        let target = reloc.and_then(|reloc| {
            let bias = u64::from(insn.end()) - reloc.offset;
            let (at, offset) = object.target(reloc.symbol, reloc.addend.wrapping_add(bias as i64))?;
            let code = codes.iter().find(|code| code.section == at)?;
            Some((at, code.starting(offset)?))
        });
        let name = reloc.map_or("", |reloc| object.symbols[reloc.symbol].name.as_str());
        let tail = Set::ARGUMENTS.with(Set::KEPT);
        match insn.insn.flow_control() {
            _ if insn.fixed && !harmless(&insn.insn, name) => step.leaves = Some(Set::ALL),
            FlowControl::Call | FlowControl::IndirectCall => {
                let own_name = |at: Option<(usize, u32)>| {
                    let (section, insn) = at?;
                    let code = codes.iter().find(|code| code.section == section)?;
                    Some(object.symbols[code.function_of(insn)?.symbol].name.clone())
                };
                let at = target.or(insn.target.map(|target| (code.section, target)));
                // Control goes on behind the call, and not only at the callee.
                step.to.retain(|to| Some(*to) != insn.target.map(|target| (code.section, target)));
                let name = own_name(at).unwrap_or_else(|| name.to_owned());
                let name = name.as_str();
                step.falls &= !never_returns(name);
                let through = thunk_register(name).map_or(Set(0), Set::register);
                step.sure.uses = step.sure.uses.with(through);
                if is_special(name) {
                    step.leaves = Some(Set::ALL.without(Set(ALL_FLAGS)));
                } else if own.names.contains(name) || own.places.contains(&(code.section, number)) {
                    step.leaves = Some(Set::ALL);
                } else {
                    // A thunk calls the address in a register.
                    let name = if through == Set(0) { name.to_owned() } else { String::new() };
                    step.calls = Some(Callee { name, at });
                    step.uses = step.uses.with(Set::ARGUMENTS).with(through);
                    step.sets = Set::LOST.without(step.uses);
                    step.sure.sets = Set::LOST;
                }
            }
            FlowControl::Return => {
                step.leaves = Some(Set::RESULTS.with(Set::KEPT));
                step.sure.leaves = Set::RESULTS.with(Set::KEPT);
            }
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch if reloc.is_some() => {
                match target {
                    // The target is the function's own cold part; it is another function only if that is
                    // called by name.
                    Some(target) => step.to.push(target),
                    None if name == "__x86_return_thunk" => {
                        step.leaves = Some(Set::RESULTS.with(Set::KEPT));
                        step.sure.leaves = Set::RESULTS.with(Set::KEPT);
                    }
                    None => {
                        let through = thunk_register(name).map_or(Set(0), Set::register);
                        step.leaves = Some(tail.with(through));
                        step.sure.leaves = Set::KEPT.with(through);
                    }
                }
            }
            FlowControl::IndirectBranch => step.leaves = Some(Set::ALL),
            FlowControl::Interrupt | FlowControl::XbeginXabortXend => step.leaves = Some(Set::ALL),
            // A warning returns; its handler may look at any register.
            FlowControl::Exception if insn.insn.mnemonic() == Mnemonic::Ud2 => {
                step.falls = true;
                step.sure.ends = true;
            }
            _ => {}
        }
        let begins = |(section, insn): &(usize, u32)| {
            let code = codes.iter().find(|code| code.section == *section);
            code.and_then(|code| code.function_of(*insn))
                .is_some_and(|function| function.insns.start == *insn)
        };
        step.sure.elsewhere = step.to.iter().any(begins);
        step
    });
    each.collect()
}

/// The least sets that fit all steps.
fn solve(steps: &[(usize, Vec<Step>)], of: impl Fn(&Step) -> Sure) -> Result<HashMap<usize, Vec<Set>>> {
    let mut needed: HashMap<usize, Vec<Set>> =
        steps.iter().map(|(section, steps)| (*section, vec![Set(0); steps.len()])).collect();
    let mut rounds = 0;
    let mut changed = true;
    while changed {
        changed = false;
        rounds += 1;
        if rounds > ROUNDS {
            return refused("its code", "it goes back and forth more often than any compiler's");
        }
        for (section, steps) in steps {
            for (number, step) in steps.iter().enumerate().rev() {
                let Sure { uses, sets, leaves: mut after, elsewhere, ends } = of(step);
                for (section, target) in &step.to {
                    let there = needed[section][*target as usize];
                    after = after.with(if elsewhere { there.and(Set::KEPT) } else { there });
                }
                let own = &needed[section];
                if step.falls && !ends {
                    after = after.with(own.get(number + 1).copied().unwrap_or(Set::ALL));
                }
                let before = after.without(sets).with(uses);
                if before != own[number] {
                    changed = true;
                    if let Some(own) = needed.get_mut(section) {
                        own[number] = before;
                    }
                }
            }
        }
    }
    Ok(needed)
}
