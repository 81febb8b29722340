//! Lays out a section of code when patches stand between its instructions.

use crate::engine::code::Code;
use crate::engine::object::{Object, Reloc};
use crate::engine::patch::{Label, Op, Patch, size};
use crate::engine::tables::{JUMP_ROW, NOP5, named};
use crate::error::{Result, refused};
use iced_x86::{Code as Opcode, Instruction, Mnemonic, Register};
use std::collections::{BTreeMap, HashSet};

/// Functions keep their offset within lines of so many bytes.
const LINE: u64 = 16;
/// Rounds after which all short branches become longer. A few suffice for any code that was not made to need
/// more.
const ROUNDS: usize = 64;

/// What the stack of new code is like: as at this instruction, but deeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Offset of the new code.
    pub at: u64,
    /// Offset of the instruction in the old section.
    pub like: u64,
    /// Bytes by which the stack is deeper.
    pub deeper: i16,
}

/// A section of code in its new form.
#[derive(Clone, Debug, Default)]
pub struct Placed {
    /// The new bytes of the section, which replace the old ones.
    pub bytes: Vec<u8>,
    /// Its relocations; those that name code have still to be moved.
    pub relocs: Vec<Reloc>,
    /// For each relocation, what [`Insn::bias`](super::code::Insn::bias) says. `None` for those of patches,
    /// which name no code.
    pub biases: Vec<Option<i64>>,
    /// For each instruction the offset of its patch; then the size.
    pub entry: Vec<u64>,
    /// For each instruction its own offset; then the size.
    pub insn: Vec<u64>,
    /// For each instruction the offset behind all that belongs to it, code behind its function included.
    pub after: Vec<u64>,
    /// For each instruction whether it is longer than it was.
    pub wide: Vec<bool>,
    /// Where the stack of new code differs from what is known of the old.
    pub stacks: Vec<Stack>,
    /// Where the second parts of patches stand, with the number of their instruction.
    pub outs: Vec<(u64, u32)>,
    /// Offsets of new instructions that may fault, and of where to go on then.
    pub faults: Vec<(u64, u64)>,
}

/// The shape of one section on its way to [`Placed`].
struct Plan<'a> {
    code: &'a Code,
    patches: &'a BTreeMap<u32, Vec<Patch>>,
    /// For each instruction whether it becomes longer.
    wide: Vec<bool>,
    /// Instructions that are sites of static branches.
    sites: HashSet<u32>,
    /// For each instruction the bytes of padding in front of it.
    padding: Vec<u8>,
    /// By instruction, the instructions with patches whose second part stands behind it.
    behind: BTreeMap<u32, Vec<u32>>,
    entry: Vec<u64>,
    insn: Vec<u64>,
    after: Vec<u64>,
    /// Where the second part of a patch stands, by instruction and number of the patch.
    out: BTreeMap<(u32, u32), u64>,
}

/// Places a section's instructions and patches. The patches are given by the number of their instruction.
pub fn place(object: &Object, code: &Code, patches: &BTreeMap<u32, Vec<Patch>>) -> Result<Placed> {
    let name = &object.sections[code.section].name;
    let mut plan = Plan::new(object, code, patches)?;
    plan.lay_out();
    let mut rounds = 0;
    while plan.widen(name, rounds >= ROUNDS)? {
        rounds += 1;
        plan.lay_out();
    }
    Ok(plan.emit(object))
}

impl<'a> Plan<'a> {
    fn new(object: &Object, code: &'a Code, patches: &'a BTreeMap<u32, Vec<Patch>>) -> Result<Plan<'a>> {
        let count = code.insns.len();
        let mut sites = HashSet::new();
        for (offset, at) in named(object, "__jump_table", code.section) {
            if offset % JUMP_ROW == 0 {
                let place = || format!("__jump_table+{offset:#x}");
                let Some(site) = code.starting(at) else {
                    return refused(place(), "it names no instruction");
                };
                let insn = &code.insns[site as usize].insn;
                if insn.mnemonic() != Mnemonic::Nop && !insn.is_jmp_short() && !insn.is_jmp_near() {
                    return refused(place(), "it names an instruction that is no branch");
                }
                sites.insert(site);
            }
        }
        let wide = (0..count as u32)
            .map(|number| sites.contains(&number) && code.insns[number as usize].insn.len() == 2)
            .collect();
        let mut behind: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (&number, _) in
            patches.iter().filter(|(_, patches)| patches.iter().any(|patch| !patch.out.is_empty()))
        {
            let function = code.function_of(number).map_or(number + 1, |function| function.insns.end);
            behind.entry(function - 1).or_default().push(number);
        }
        Ok(Plan {
            code,
            patches,
            wide,
            sites,
            padding: vec![0; count],
            behind,
            entry: vec![0; count + 1],
            insn: vec![0; count + 1],
            after: vec![0; count],
            out: BTreeMap::new(),
        })
    }

    /// Bytes of an instruction in its new form.
    fn len(&self, number: usize) -> u64 {
        let insn = &self.code.insns[number].insn;
        match self.wide[number] {
            false => insn.len() as u64,
            true if insn.is_jcc_short() => 6,
            true if is_counted(insn.code()) => 9,
            true => 5,
        }
    }

    fn lay_out(&mut self) {
        let mut at = 0;
        let mut functions = self.code.functions.iter().peekable();
        for number in 0..self.code.insns.len() {
            let old = u64::from(self.code.insns[number].at);
            self.padding[number] = 0;
            if functions.next_if(|function| function.insns.start as usize == number).is_some() {
                let padding = (old % LINE + LINE - at % LINE) % LINE;
                self.padding[number] = padding as u8;
                at += padding;
            }
            self.entry[number] = at;
            at += self
                .patches
                .get(&(number as u32))
                .map_or(0, |all| all.iter().map(|patch| size(&patch.before) as u64).sum());
            self.insn[number] = at;
            at += self.len(number);
            for &site in self.behind.get(&(number as u32)).into_iter().flatten() {
                for (which, patch) in (0..).zip(self.patches.get(&site).into_iter().flatten()) {
                    self.out.insert((site, which), at);
                    at += size(&patch.out) as u64;
                }
            }
            self.after[number] = at;
        }
        let count = self.code.insns.len();
        self.entry[count] = at;
        self.insn[count] = at;
    }

    /// Makes branches longer that no longer reach, or `all`; returns whether there were any.
    fn widen(&mut self, name: &str, all: bool) -> Result<bool> {
        let mut more = false;
        for number in 0..self.code.insns.len() {
            let Some(target) = self.code.insns[number].target else { continue };
            let insn = &self.code.insns[number].insn;
            // All branches that have a relocation or 32 bits reach; a section is far below 2 GiB.
            if self.wide[number] || !is_short(insn.code()) {
                continue;
            }
            let distance = self.entry[target as usize].wrapping_sub(self.insn[number] + insn.len() as u64);
            let reaches = i8::try_from(distance as i64).is_ok();
            if reaches && (!all || self.code.insns[number].fixed) {
                continue;
            }
            let place = || format!("{name}+{:#x}", insn.ip());
            if self.code.insns[number].fixed {
                return refused(place(), "a short branch that the kernel patches would reach too far");
            }
            // The longer form drops a hint whether it is taken (0x2e, 0x3e).
            let hinted = insn.len() == 3 && insn.is_jcc_short() && insn.segment_prefix() != Register::None;
            if insn.len() != 2 && !hinted {
                return refused(place(), "this branch has prefixes, and would reach too far");
            }
            self.wide[number] = true;
            more = true;
        }
        Ok(more)
    }

    fn emit(self, object: &Object) -> Placed {
        let section = &object.sections[self.code.section];
        let old = section.bytes();
        let mut placed = Placed::default();
        // Where the code behind a patch begins.
        let mut nexts = BTreeMap::new();
        for (number, insn) in self.code.insns.iter().enumerate() {
            let falls = number > 0 && self.code.insns[number - 1].falls_through();
            placed.pad(self.padding[number], falls);
            let patches = self.patches.get(&(number as u32)).map_or(&[][..], |patches| patches);
            for (which, patch) in (0..).zip(patches) {
                let next = placed.bytes.len() as u64 + size(&patch.before) as u64;
                let out = self.out.get(&(number as u32, which)).copied().unwrap_or(0);
                nexts.insert((number as u32, which), next);
                let labels = Labels { next, out, sites: &self.insn };
                placed.ops(&patch.before, labels, u64::from(insn.at));
                if patch.before.iter().any(|op| matches!(op, Op::Deeper(_))) {
                    placed.stack(u64::from(insn.at), 0);
                }
            }
            let at = placed.bytes.len() as u64;
            let bytes = &old[insn.at as usize..insn.end() as usize];
            match insn.target {
                _ if self.wide[number] && self.sites.contains(&(number as u32)) && insn.target.is_none() => {
                    placed.bytes.extend_from_slice(&NOP5);
                }
                Some(target) => {
                    let target = self.entry[target as usize];
                    placed.branch(bytes, &insn.insn, self.wide[number], target);
                }
                None => placed.bytes.extend_from_slice(bytes),
            }
            for reloc in insn.relocs(section) {
                let offset = at + (reloc.offset - u64::from(insn.at));
                placed.relocs.push(Reloc { offset, ..*reloc });
                placed.biases.push(Some(insn.bias(reloc)));
            }
            if let Some(sites) = self.behind.get(&(number as u32)) {
                for &site in sites {
                    let like = u64::from(self.code.insns[site as usize].at);
                    for (which, patch) in (0..).zip(self.patches.get(&site).into_iter().flatten()) {
                        placed.stack(like, 0);
                        let at = (site, which);
                        let out = placed.bytes.len() as u64;
                        placed.outs.push((out, site));
                        let next = nexts.get(&at).copied().unwrap_or(out);
                        placed.ops(&patch.out, Labels { next, out, sites: &self.insn }, like);
                    }
                }
                // The stack behind the function is as after its last instruction.
                placed.stack(u64::from(insn.at), 0);
            }
        }
        Placed { entry: self.entry, insn: self.insn, after: self.after, wide: self.wide, ..placed }
    }
}

/// The offsets that the labels of a patch stand for.
#[derive(Clone, Copy)]
struct Labels<'a> {
    next: u64,
    out: u64,
    sites: &'a [u64],
}

impl Placed {
    /// Writes bytes between functions. They never run, unless the code before them falls through.
    fn pad(&mut self, count: u8, falls: bool) {
        self.bytes.resize(self.bytes.len() + usize::from(count), if falls { 0x90 } else { 0xcc });
    }

    fn stack(&mut self, like: u64, deeper: i16) {
        self.stacks.push(Stack { at: self.bytes.len() as u64, like, deeper });
    }

    fn ops(&mut self, ops: &[Op], labels: Labels<'_>, like: u64) {
        let mut may_fault = false;
        for op in ops {
            let at = self.bytes.len() as u64;
            match op {
                Op::Code(bytes, reloc) => {
                    if std::mem::take(&mut may_fault) {
                        self.faults.push((at, labels.out));
                    }
                    self.bytes.extend_from_slice(bytes);
                    if let Some(reloc) = reloc {
                        self.relocs.push(Reloc { offset: at + reloc.offset, ..*reloc });
                        self.biases.push(None);
                    }
                }
                Op::Jump(opcode, label) => {
                    let target = match *label {
                        Label::Next => labels.next,
                        Label::Out => labels.out,
                        // A pass names only instructions that exist; verification would refuse the result
                        // otherwise.
                        Label::Site(number) => labels.sites.get(number as usize).copied().unwrap_or(0),
                    };
                    self.bytes.extend_from_slice(opcode);
                    self.distance(target);
                }
                Op::Deeper(deeper) => self.stack(like, *deeper),
                Op::MayFault => may_fault = true,
            }
        }
    }

    /// Appends a 32-bit distance from behind itself.
    fn distance(&mut self, target: u64) {
        let distance = target.wrapping_sub(self.bytes.len() as u64 + 4) as i32;
        self.bytes.extend_from_slice(&distance.to_le_bytes());
    }

    /// Appends a branch without relocation.
    fn branch(&mut self, old: &[u8], insn: &Instruction, wide: bool, target: u64) {
        if wide {
            match old {
                // Branches by a counter have no longer form: they jump over a jump that is not taken else.
                [opcode @ 0xe0..=0xe3, ..] => self.bytes.extend_from_slice(&[*opcode, 2, 0xeb, 5, 0xe9]),
                [.., opcode, _] if insn.is_jcc_short() => {
                    self.bytes.extend_from_slice(&[0x0f, opcode + 0x10])
                }
                _ => self.bytes.push(0xe9),
            }
            return self.distance(target);
        }
        // The distance is the last byte, or the last four.
        let short = is_short(insn.code());
        let opcode = old.len() - if short { 1 } else { 4 };
        self.bytes.extend_from_slice(&old[..opcode]);
        if short {
            let distance = target.wrapping_sub(self.bytes.len() as u64 + 1) as i8;
            self.bytes.push(distance as u8);
        } else {
            self.distance(target);
        }
    }
}

/// Whether it has a distance of 8 bits.
fn is_short(code: Opcode) -> bool {
    code.is_jcc_short() || code.is_jmp_short() || is_counted(code)
}

/// Whether it branches by RCX.
fn is_counted(code: Opcode) -> bool {
    code.is_loop() || code.is_loopcc() || code.is_jcx_short()
}
