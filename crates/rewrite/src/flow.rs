//! Which registers and flags hold a value that is still needed, at each instruction of a module.
//!
//! Code of the kernel's own compiler keeps to the calling convention of the System V ABI, since `-pg` rules out that it does otherwise between functions of
//! a file. Functions in assembly have conventions of their own; where a call is followed by a use of what an ordinary call would have
//! destroyed, its callee is taken for one of those ([`Flow::own`]).

use crate::code::Code;
use crate::error::{Result, refused};
use crate::object::{Object, Place};
use crate::tables::{EX_ENTRY, JUMP_ENTRY, named};
use iced_x86::{FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, Register, RflagsBits};
use std::collections::{BTreeSet, HashMap};

/// Registers and flags, a bit each: general registers by number, then overflow, sign, zero, auxiliary, carry, parity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set(u32);

const FLAGS: [u32; 6] =
    [RflagsBits::OF, RflagsBits::SF, RflagsBits::ZF, RflagsBits::AF, RflagsBits::CF, RflagsBits::PF];
/// Times that all code is gone through; the largest modules take a few dozen.
const ROUNDS: usize = 1000;
const FIRST_FLAG: u32 = 16;
const ALL_FLAGS: u32 = 0x3f << FIRST_FLAG;

impl Set {
    /// All of them.
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

    /// A register is among them.
    pub fn has(self, register: Register) -> bool {
        self.and(Set::register(register)).0 != 0
    }

    /// Any of the flags is among them.
    pub fn has_flags(self) -> bool {
        self.0 & ALL_FLAGS != 0
    }
}

/// What happens at an instruction.
#[derive(Clone, Debug, Default)]
struct Step {
    uses: Set,
    sets: Set,
    /// Where it can go on, as section and instruction; beside the next one.
    to: Vec<(usize, u32)>,
    /// The next instruction can run next.
    falls: bool,
    /// It leaves the function, or goes where nothing is known: this is needed there.
    leaves: Option<Set>,
    /// The function that it calls, as the index of a symbol.
    calls: Option<usize>,
}

/// What is needed at each instruction of a module.
#[derive(Clone, Debug)]
pub struct Flow {
    needed: HashMap<usize, Vec<Set>>,
    /// Functions that do not keep to the usual convention, by name, as far as their callers in this module show it.
    pub own: BTreeSet<String>,
}

impl Flow {
    /// Looks at all code of a module.
    pub fn of(object: &Object, codes: &[Code]) -> Result<Flow> {
        let edges = edges(object, codes);
        let mut own: BTreeSet<String> = BTreeSet::new();
        loop {
            let steps: Vec<(usize, Vec<Step>)> =
                codes.iter().map(|code| (code.section, steps(object, codes, code, &edges, &own))).collect();
            let needed = solve(&steps)?;
            let before = own.len();
            for (section, steps) in &steps {
                let needed = &needed[section];
                for (number, step) in steps.iter().enumerate() {
                    let Some(callee) = step.calls else { continue };
                    let after = needed.get(number + 1).copied().unwrap_or_default();
                    let lost = Set::LOST.without(Set::RESULTS).without(Set(ALL_FLAGS));
                    if step.falls && after.and(lost) != Set(0) {
                        own.insert(object.symbols[callee].name.clone());
                    }
                }
            }
            if own.len() == before {
                return Ok(Flow { needed, own });
            }
        }
    }

    /// What is needed when an instruction is about to run.
    pub fn needed(&self, section: usize, insn: u32) -> Set {
        self.needed.get(&section).and_then(|needed| needed.get(insn as usize)).copied().unwrap_or(Set::ALL)
    }
}

/// Ways of instructions that they do not show: static branches, and where faults go on.
fn edges(object: &Object, codes: &[Code]) -> HashMap<(usize, u32), Vec<(usize, u32)>> {
    let mut edges: HashMap<(usize, u32), Vec<(usize, u32)>> = HashMap::new();
    for (table, size, to) in [("__jump_table", JUMP_ENTRY, 4), ("__ex_table", EX_ENTRY, 4)] {
        // Entry, then word within it: where in the code.
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

/// Helpers in assembly that are called from inline assembly, and keep all registers that they do not say.
fn is_special(name: &str) -> bool {
    const SPECIAL: [&str; 9] = [
        "__fentry__",
        "__get_user_",
        "__put_user_",
        "__SCT__",
        "__sw_hweight",
        "copy_user_",
        "rep_",
        "clear_page",
        "preempt_schedule",
    ];
    SPECIAL.iter().any(|special| name.starts_with(special))
}

/// The kernel puts nothing in its place that needs or changes more than it does.
fn harmless(insn: &iced_x86::Instruction, name: &str) -> bool {
    matches!(insn.mnemonic(), Mnemonic::Endbr64 | Mnemonic::Nop) || name == "__fentry__"
}

/// The register of a thunk for indirect calls, such as `__x86_indirect_thunk_rax`.
fn thunk_register(name: &str) -> Option<Register> {
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

fn steps(
    object: &Object,
    codes: &[Code],
    code: &Code,
    edges: &HashMap<(usize, u32), Vec<(usize, u32)>>,
    own: &BTreeSet<String>,
) -> Vec<Step> {
    let mut info = InstructionInfoFactory::new();
    let section = &object.sections[code.section];
    let each = (0u32..).zip(&code.insns).map(|(number, insn)| {
        let mut step = Step { falls: crate::place::falls_through(&insn.insn), ..Step::default() };
        for used in info.info(&insn.insn).used_registers() {
            let set = Set::register(used.register());
            let whole = used.register().size() >= 4;
            match used.access() {
                OpAccess::Write if whole => step.sets = step.sets.with(set),
                OpAccess::None | OpAccess::NoMemAccess | OpAccess::Write | OpAccess::CondWrite => {}
                _ => step.uses = step.uses.with(set),
            }
        }
        step.uses = step.uses.with(Set::flags(insn.insn.rflags_read()));
        step.sets = step.sets.with(Set::flags(insn.insn.rflags_modified())).without(step.uses);
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
                let symbol = reloc.map(|reloc| reloc.symbol);
                step.calls = symbol
                    .filter(|symbol| object.symbols[*symbol].place != Place::Other(0) || !name.is_empty());
                if is_special(name) || own.contains(name) {
                    step.leaves = Some(Set::ALL.without(Set(ALL_FLAGS)));
                    step.calls = None;
                } else {
                    let through = thunk_register(name).map_or(Set(0), Set::register);
                    step.uses = step.uses.with(Set::ARGUMENTS).with(through);
                    step.sets = Set::LOST.without(step.uses);
                }
            }
            FlowControl::Return => step.leaves = Some(Set::RESULTS.with(Set::KEPT)),
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch if reloc.is_some() => {
                match target {
                    // A function's own cold part; another function only if it is called so.
                    Some(target) => step.to.push(target),
                    None if name == "__x86_return_thunk" => step.leaves = Some(Set::RESULTS.with(Set::KEPT)),
                    None => {
                        let through = thunk_register(name).map_or(Set(0), Set::register);
                        step.leaves = Some(tail.with(through));
                    }
                }
            }
            FlowControl::IndirectBranch => step.leaves = Some(Set::ALL),
            FlowControl::Interrupt | FlowControl::XbeginXabortXend => step.leaves = Some(Set::ALL),
            // A warning returns; whatever stands at it may look at registers.
            FlowControl::Exception if insn.insn.mnemonic() == Mnemonic::Ud2 => step.falls = true,
            _ => {}
        }
        step
    });
    each.collect()
}

/// The least sets that fit to all steps.
fn solve(steps: &[(usize, Vec<Step>)]) -> Result<HashMap<usize, Vec<Set>>> {
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
                let mut after = step.leaves.unwrap_or_default();
                for (section, target) in &step.to {
                    after = after.with(needed[section][*target as usize]);
                }
                let own = &needed[section];
                if step.falls {
                    after = after.with(own.get(number + 1).copied().unwrap_or(Set::ALL));
                }
                let before = after.without(step.sets).with(step.uses);
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
