//! What a check calls that has not found the right it wants: saves all registers, and asks the runtime.

use crate::emit::{encode, go, plain, pop, push};
use crate::error::Result;
use crate::guard::new_section;
use crate::object::{Object, Place, Reloc, Symbol};
use crate::orc;
use crate::patch::Op;
use iced_x86::{Code, Instruction, MemoryOperand, Register};
use std::collections::BTreeMap;

/// The section that they stand in.
pub const SECTION: &str = ".text.guardrail";
/// The runtime's function: address, size, domain, and where the check is.
const SLOW: &str = "guardrail_write_slow";

/// Registers that a call may change.
const SAVED: [Register; 9] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
];

/// The thunks that a module needs.
#[derive(Clone, Debug, Default)]
pub struct Thunks {
    /// The number that the next symbol gets.
    next: usize,
    wanted: BTreeMap<(usize, u32), (Register, usize)>,
}

impl Thunks {
    /// None yet; their symbols come behind those of the module.
    pub fn new(object: &Object) -> Thunks {
        Thunks { next: object.symbols.len(), wanted: BTreeMap::new() }
    }

    /// The symbol of the thunk for an address in a register, and an access of so many bytes.
    pub fn of(&mut self, register: Register, size: u32) -> usize {
        let (_, symbol) = *self.wanted.entry((register as usize, size)).or_insert_with(|| {
            self.next += 1;
            (register, self.next - 1)
        });
        symbol
    }

    /// Adds them to the module, whose symbols are those of [`new`](Self::new) still.
    pub fn add(self, object: &mut Object, domain: u8) -> Result<()> {
        if self.wanted.is_empty() {
            return Ok(());
        }
        let section = object.sections.len();
        let mut bytes: Vec<u8> = Vec::new();
        let mut relocs: Vec<Reloc> = Vec::new();
        let mut thunks: Vec<((Register, u32), usize)> =
            self.wanted.iter().map(|((_, size), (register, symbol))| ((*register, *size), *symbol)).collect();
        thunks.sort_by_key(|(_, symbol)| *symbol);
        let mut starts = Vec::new();
        let mut depths = Vec::new();
        for ((register, size), _) in &thunks {
            bytes.resize(bytes.len().next_multiple_of(16), 0xcc);
            starts.push((bytes.len() as u64, format!("guardrail_write_{size}_{register:?}").to_lowercase()));
            // The imports come behind all thunks.
            for op in body(*register, *size, domain, self.next)? {
                match op {
                    Op::Code(code, reloc) => {
                        let at = bytes.len() as u64;
                        relocs.extend(reloc.map(|reloc| Reloc { offset: at + reloc.offset, ..reloc }));
                        bytes.extend(code);
                    }
                    Op::Deeper(deeper) => depths.push((bytes.len() as u64, deeper)),
                    Op::Jump(..) | Op::MayFault => {}
                }
            }
        }
        let ends = starts.iter().skip(1).map(|(start, _)| *start).chain([bytes.len() as u64]);
        let sizes: Vec<u64> = ends.zip(&starts).map(|(end, (start, _))| end - start).collect();
        for ((value, name), size) in starts.into_iter().zip(sizes) {
            let info = object::elf::STT_FUNC;
            object.symbols.push(Symbol { name, place: Place::In(section), value, size, info, other: 0 });
        }
        debug_assert_eq!(object.symbols.len(), self.next);
        object.import(SLOW);
        let flags = object::elf::SHF_ALLOC | object::elf::SHF_EXECINSTR;
        object.sections.push(new_section(SECTION, flags, bytes, relocs));
        orc::describe(object, section, &depths);
        Ok(())
    }
}

/// A thunk's instructions.
fn body(register: Register, size: u32, domain: u8, slow: usize) -> Result<Vec<Op>> {
    let mut ops = vec![Op::Deeper(0)];
    for (saved, count) in SAVED.into_iter().zip(1..) {
        ops.extend([push(saved)?, Op::Deeper(8 * count)]);
    }
    let depth = 8 * SAVED.len() as i64;
    // The address first, since its register may be one of those that arguments are in.
    if register != Register::RDI {
        ops.push(plain(Instruction::with2(Code::Mov_r64_rm64, Register::RDI, register))?);
    }
    let number = |register, value: u32| plain(Instruction::with2(Code::Mov_r32_imm32, register, value));
    ops.push(number(Register::ESI, size)?);
    ops.push(number(Register::EDX, u32::from(domain))?);
    let back = MemoryOperand::with_base_displ(Register::RSP, depth);
    ops.push(plain(Instruction::with2(Code::Mov_r64_rm64, Register::RCX, back))?);
    ops.push(go(slow, false));
    for (saved, count) in SAVED.into_iter().zip(0..SAVED.len() as i16).rev() {
        ops.extend([pop(saved)?, Op::Deeper(8 * count)]);
    }
    ops.push(Op::Code(encode(&Instruction::with(Code::Retnq))?, None));
    ops.push(Op::Code(vec![0xcc], None));
    Ok(ops)
}
