//! The pass that checks stores: before each, the rights table is looked up for the byte that it goes to (`runtime/guardrail.h`).
//!
//! ```text
//!     lea   <operand>, %r            # a register whose value nobody needs
//!     shr   $3, %r
//!     add   guardrail_table(%rip), %r
//!     cmpb  $<domain, write>, (%r)   # faults where the table is not populated: goes on at out
//!     jne   out
//! site: <store>
//!     ...
//! out: lea  <operand>, %r            # behind the function
//!     call  <thunk for %r and the size>
//!     jmp   site
//! ```
//!
//! Where no register is free one is saved, and where flags are needed they are kept in RAX (`lahf`, `seto`), which is far cheaper than `pushfq`.

use crate::code::Insn;
use crate::emit::{address, go, plain, pop, push, relative, relative_operand};
use crate::error::Result;
use crate::guard;
use crate::object::{Object, Reloc};
use crate::pass::{Pass, Site};
use crate::patch::{Label, Op, Patch};
use crate::thunks::Thunks;
use iced_x86::{Code, Instruction, InstructionInfoFactory, MemoryOperand, OpAccess, Register};

/// Bytes of a slot of the rights table, as a power of two (`GUARDRAIL_SLOT_SHIFT`).
pub const SLOT_SHIFT: u32 = 3;
/// The runtime's variable with the table's place.
const TABLE: &str = "guardrail_table";
/// The right to write a whole slot (`GUARDRAIL_WRITE`).
const WRITE: u8 = 1;

/// Registers in the order in which they are taken where they are free: those that calls destroy first.
const SCRATCH: [Register; 14] = [
    Register::R11,
    Register::R10,
    Register::R9,
    Register::R8,
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
    Register::RBX,
];

/// What became of the stores of a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stores {
    /// Checked.
    pub checked: usize,
    /// Of them with a register saved.
    pub saved: usize,
    /// Of them with flags kept.
    pub flags: usize,
    /// Into the function's own frame at a fixed place, which needs no check.
    pub frame: usize,
    /// Into the module's own variables at a fixed place, which need none either.
    pub own: usize,
    /// To per-CPU variables, which are not checked.
    pub per_cpu: usize,
    /// By string instructions.
    pub strings: usize,
    /// In code that the kernel replaces, which is not checked.
    pub replaced: usize,
}

/// Checks stores.
#[derive(Debug)]
pub struct Checks {
    /// The protection domain that the module belongs to, from 1 to 15.
    domain: u8,
    /// The variable with the table's place, as a symbol.
    table: usize,
    thunks: Thunks,
    /// The module's name, and `Module.symvers` of the runtime.
    guarded: Option<(String, String)>,
    /// What was done.
    pub stores: Stores,
}

impl Checks {
    /// For a module of this protection domain, from 1 to 15.
    pub fn new(domain: u8) -> Checks {
        let (thunks, stores) = (Thunks::default(), Stores::default());
        Checks { domain: domain.clamp(1, 15), table: 0, thunks, guarded: None, stores }
    }

    /// The module gets its rights from the runtime when it is loaded, under this name; `symbols` is the runtime's `Module.symvers`.
    pub fn guarded(self, name: &str, symbols: &str) -> Checks {
        Checks { guarded: Some((name.to_owned(), symbols.to_owned())), ..self }
    }
}

impl Pass for Checks {
    fn name(&self) -> &'static str {
        "writes"
    }

    fn prepare(&mut self, object: &mut Object) -> Result<()> {
        self.table = object.import(TABLE);
        self.thunks = Thunks::new(object);
        Ok(())
    }

    fn function(&mut self, site: &Site<'_>) -> Result<Vec<(u32, Patch)>> {
        let mut patches = Vec::new();
        let mut info = InstructionInfoFactory::new();
        for number in site.function.insns.clone() {
            let insn = &site.code.insns[number as usize];
            let stores = info.info(&insn.insn).used_memory().iter().any(|memory| {
                !matches!(
                    memory.access(),
                    OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess | OpAccess::None
                )
            });
            if stores && let Some(patch) = self.store(site, number, insn)? {
                patches.push((number, patch));
            }
        }
        Ok(patches)
    }

    fn finish(&mut self, object: &mut Object) -> Result<()> {
        std::mem::take(&mut self.thunks).add(object, self.domain)?;
        match &self.guarded {
            Some((name, symbols)) => {
                guard::describe(object, name, self.domain)?;
                guard::add_versions(object, symbols)
            }
            None => Ok(()),
        }
    }
}

impl Checks {
    fn store(&mut self, site: &Site<'_>, number: u32, insn: &Insn) -> Result<Option<Patch>> {
        let stores = &mut self.stores;
        let decoded = &insn.insn;
        let relocs = relocs_of(site, insn);
        if decoded.is_stack_instruction() && !has_operand(decoded) {
            // `push` and `call` write the function's own stack.
        } else if insn.fixed {
            stores.replaced += 1;
        } else if decoded.is_string_instruction() {
            stores.strings += 1;
        } else if decoded.memory_segment() == Register::GS && decoded.segment_prefix() == Register::GS {
            stores.per_cpu += 1;
        } else if in_frame(decoded) {
            stores.frame += 1;
        } else if own_variable(site, decoded, &relocs) {
            stores.own += 1;
        } else {
            let needed = site.flow.needed(site.code.section, number);
            let free = SCRATCH.into_iter().find(|&register| {
                !needed.has(register)
                    && register != decoded.memory_base()
                    && register != decoded.memory_index()
            });
            stores.checked += 1;
            stores.saved += usize::from(free.is_none());
            stores.flags += usize::from(needed.has_flags());
            let size = decoded.memory_size().size().max(1) as u32;
            return Ok(Some(match (free, needed.has_flags()) {
                (Some(free), false) => self.plain(decoded, &relocs, free, size)?,
                _ => self.careful(decoded, &relocs, needed.has_flags(), size)?,
            }));
        }
        Ok(None)
    }

    /// The check where a register is free, and flags are not needed.
    fn plain(&mut self, insn: &Instruction, relocs: &[Reloc], scratch: Register, size: u32) -> Result<Patch> {
        let mut before = vec![address(scratch, insn, relocs, 0)?];
        before.extend(self.look_up(scratch, size)?);
        let out = vec![
            address(scratch, insn, relocs, 0)?,
            go(self.thunks.of(scratch, size), false),
            Op::Jump(vec![0xe9], Label::Next),
        ];
        Ok(Patch { before, out })
    }

    /// The check where everything has to be as it was.
    fn careful(&mut self, insn: &Instruction, relocs: &[Reloc], flags: bool, size: u32) -> Result<Patch> {
        let scratch = SCRATCH
            .into_iter()
            .find(|&register| {
                register != Register::RAX && register != insn.memory_base() && register != insn.memory_index()
            })
            .unwrap_or(Register::R11);
        let mut before = vec![push(scratch)?, Op::Deeper(8)];
        let mut restore = Vec::new();
        let mut deeper = 8;
        if flags {
            before.extend([push(Register::RAX)?, Op::Deeper(16)]);
            deeper = 16;
            // RAX is still what it was for the address.
            before.push(address(scratch, insn, relocs, deeper)?);
            before.push(plain(Ok(Instruction::with(Code::Lahf)))?);
            before.push(plain(Instruction::with1(Code::Seto_rm8, Register::AL))?);
            // Overflows just if AL is 1.
            restore.push(plain(Instruction::with2(Code::Add_AL_imm8, Register::AL, 0x7f))?);
            restore.push(plain(Ok(Instruction::with(Code::Sahf)))?);
            restore.extend([pop(Register::RAX)?, Op::Deeper(8)]);
        } else {
            before.push(address(scratch, insn, relocs, deeper)?);
        }
        restore.extend([pop(scratch)?, Op::Deeper(0)]);
        before.extend(self.look_up(scratch, size)?);
        before.extend(restore.clone());
        let mut out = vec![Op::Deeper(deeper)];
        out.extend(restore);
        out.extend([
            plain(Ok(Instruction::with(Code::Pushfq)))?,
            Op::Deeper(8),
            push(scratch)?,
            Op::Deeper(16),
        ]);
        out.push(address(scratch, insn, relocs, 16)?);
        out.push(go(self.thunks.of(scratch, size), false));
        out.extend([pop(scratch)?, Op::Deeper(8), plain(Ok(Instruction::with(Code::Popfq)))?, Op::Deeper(0)]);
        out.push(Op::Jump(vec![0xe9], Label::Next));
        Ok(Patch { before, out })
    }

    /// From an address in a register to a jump that is taken where the domain may not write the whole slot, or slots: an access of more
    /// than 8 bytes takes up to four.
    fn look_up(&self, scratch: Register, size: u32) -> Result<Vec<Op>> {
        let right = u32::from(self.domain << 4 | WRITE);
        let entry = MemoryOperand::with_base(scratch);
        let compare = match size {
            0..=8 => Instruction::with2(Code::Cmp_rm8_imm8, entry, right),
            9..=16 => Instruction::with2(Code::Cmp_rm16_imm16, entry, right * 0x0101),
            17..=32 => Instruction::with2(Code::Cmp_rm32_imm32, entry, right * 0x0101_0101),
            // Too many to compare at once: the runtime looks.
            _ => return Ok(vec![Op::Jump(vec![0xe9], Label::Out)]),
        };
        Ok(vec![
            plain(Instruction::with2(Code::Shr_rm64_imm8, scratch, SLOT_SHIFT))?,
            relative(Instruction::with2(Code::Add_r64_rm64, scratch, relative_operand()), self.table, 0)?,
            Op::MayFault,
            plain(compare)?,
            Op::Jump(vec![0x0f, 0x85], Label::Out),
        ])
    }
}

/// Relocations of an instruction, counted from its begin.
fn relocs_of(site: &Site<'_>, insn: &Insn) -> Vec<Reloc> {
    let relocs =
        &site.object.sections[site.code.section].relocs[insn.relocs.start as usize..insn.relocs.end as usize];
    // The displacement comes before an immediate, which may have a relocation as well.
    let mut decoder = iced_x86::Decoder::new(
        64,
        &site.object.sections[site.code.section].bytes()[insn.at as usize..insn.end() as usize],
        iced_x86::DecoderOptions::NONE,
    );
    let decoded = decoder.decode();
    let offsets = decoder.get_constant_offsets(&decoded);
    let own = |reloc: &Reloc| {
        offsets.has_displacement()
            && reloc.offset - u64::from(insn.at) == offsets.displacement_offset() as u64
    };
    relocs
        .iter()
        .filter(|reloc| own(reloc))
        .map(|reloc| Reloc { offset: reloc.offset - u64::from(insn.at), ..*reloc })
        .collect()
}

fn has_operand(insn: &Instruction) -> bool {
    (0..insn.op_count()).any(|operand| insn.op_kind(operand) == iced_x86::OpKind::Memory)
}

/// At a fixed place above the stack pointer.
fn in_frame(insn: &Instruction) -> bool {
    insn.memory_base() == Register::RSP
        && insn.memory_index() == Register::None
        && (insn.memory_displacement64() as i64) >= 0
}

/// At a fixed place in a variable that the module can write.
fn own_variable(site: &Site<'_>, insn: &Instruction, relocs: &[Reloc]) -> bool {
    let fixed = insn.is_ip_rel_memory_operand()
        || (insn.memory_base() == Register::None && insn.memory_index() == Register::None);
    let Some(reloc) = relocs.first().filter(|_| fixed) else { return false };
    let bias = if insn.is_ip_rel_memory_operand() { insn.len() as i64 - reloc.offset as i64 } else { 0 };
    let target = site.object.target(reloc.symbol, reloc.addend.wrapping_add(bias));
    target.is_some_and(|(section, offset)| {
        let section = &site.object.sections[section];
        section.alloc() && section.write() && !section.exec() && offset < section.size()
    })
}
