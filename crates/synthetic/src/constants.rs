//! The numbers that a driver compares a device's answers with, from its code.
//!
//! A driver reads a register and compares: `mov 0x40(%rbx),%eax; and $0xff00,%eax; cmp $0x1200,%eax`. What it compares with
//! is what its device answers, and the displacement is mostly the register. So the code is read once, function by function,
//! without following branches: a number that belongs elsewhere costs an answer, no more.

use crate::functions::functions;
use guardrail_binfmt::module::ModuleImage;
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use rustc_hash::FxHashMap;

/// The most registers of the device that are remembered.
const MAX_REGISTERS: usize = 4096;
/// The most numbers of one register.
const MAX_VALUES: usize = 16;
/// The most numbers in all.
const MAX_ALL: usize = 2048;

/// Numbers that answers may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Constants {
    /// By the displacement of the access before the comparison.
    by_offset: FxHashMap<u64, Vec<u32>>,
    /// All of them.
    all: Vec<u32>,
}

impl Constants {
    /// The numbers in the functions of a driver, and behind them those of the modules that it stands on.
    pub fn of<'a>(modules: impl IntoIterator<Item = &'a ModuleImage>) -> Constants {
        let mut constants = Constants::default();
        modules.into_iter().for_each(|module| constants.add(module));
        constants
    }

    fn add(&mut self, module: &ModuleImage) {
        functions(module).for_each(|(_, _, code)| self.read(code));
    }

    /// The numbers that a register at this offset is compared with.
    pub fn at(&self, offset: u64) -> &[u32] {
        self.by_offset.get(&offset).map_or(&[], Vec::as_slice)
    }

    /// All numbers.
    pub fn all(&self) -> &[u32] {
        &self.all
    }

    fn read(&mut self, code: &[u8]) {
        let mut state = State::default();
        for insn in Decoder::new(64, code, DecoderOptions::NONE) {
            state.step(&insn, self);
        }
    }

    fn note(&mut self, offset: Option<u64>, value: u32) {
        if self.all.len() < MAX_ALL && !self.all.contains(&value) {
            self.all.push(value);
        }
        let Some(offset) = offset else { return };
        let room = self.by_offset.len() < MAX_REGISTERS;
        if !room && !self.by_offset.contains_key(&offset) {
            return;
        }
        let values = self.by_offset.entry(offset).or_default();
        if values.len() < MAX_VALUES && !values.contains(&value) {
            values.push(value);
        }
    }
}

/// What a general register holds that came from memory, a port or a function.
#[derive(Clone, Copy, Debug)]
struct Loaded {
    /// The displacement of the access.
    offset: Option<u64>,
    /// By how many bits it was shifted to the right since.
    shift: u32,
}

/// What is known within a function, in the order of its code.
#[derive(Default)]
struct State {
    registers: FxHashMap<Register, Loaded>,
    /// The displacement of the address that a function or a port will be given.
    address: Option<u64>,
}

impl State {
    fn step(&mut self, insn: &Instruction, constants: &mut Constants) {
        let first = family(insn, 0);
        match insn.mnemonic() {
            Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Bt => self.compare(insn, constants),
            Mnemonic::Call => {
                self.registers.clear();
                self.registers.insert(Register::RAX, Loaded { offset: self.address.take(), shift: 0 });
            }
            Mnemonic::In => {
                let offset = self.address.take();
                self.registers.insert(Register::RAX, Loaded { offset, shift: 0 });
            }
            // An accessor of the driver's own, as in `read(hw, 0x4020)`.
            Mnemonic::Mov if first == Some(Register::RSI) && is_immediate(insn.op1_kind()) => {
                self.address = Some(insn.immediate(1));
                self.set(first, None);
            }
            Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx => {
                let loaded = match insn.op1_kind() {
                    OpKind::Memory => {
                        displacement(insn).map(|offset| Loaded { offset: Some(offset), shift: 0 })
                    }
                    OpKind::Register => family(insn, 1).and_then(|from| self.registers.get(&from).copied()),
                    _ => None,
                };
                self.set(first, loaded);
            }
            // A mask leaves the number what it is.
            Mnemonic::And if insn.op1_kind() != OpKind::Memory => {}
            Mnemonic::Shr if is_immediate(insn.op1_kind()) => {
                if let Some(loaded) = first.and_then(|register| self.registers.get_mut(&register)) {
                    loaded.shift = (loaded.shift + u32::from(insn.immediate8())).min(31);
                }
            }
            Mnemonic::Lea | Mnemonic::Add => {
                let address = match insn.mnemonic() {
                    Mnemonic::Lea => displacement(insn),
                    _ if is_immediate(insn.op1_kind()) => Some(insn.immediate(1)),
                    _ => None,
                };
                if matches!(first, Some(Register::RDI | Register::RSI | Register::RDX)) {
                    self.address = address;
                }
                self.set(first, None);
            }
            _ => {
                if insn.op0_kind() == OpKind::Register {
                    self.set(first, None);
                }
            }
        }
    }

    fn set(&mut self, register: Option<Register>, loaded: Option<Loaded>) {
        let Some(register) = register else { return };
        match loaded {
            Some(loaded) => self.registers.insert(register, loaded),
            None => self.registers.remove(&register),
        };
    }

    /// `cmp`, `test` or `bt` of something that came from elsewhere.
    fn compare(&self, insn: &Instruction, constants: &mut Constants) {
        let loaded = match insn.op0_kind() {
            OpKind::Memory => displacement(insn).map(|offset| Loaded { offset: Some(offset), shift: 0 }),
            _ => family(insn, 0).and_then(|register| self.registers.get(&register).copied()),
        };
        let Some(Loaded { offset, shift }) = loaded else { return };
        let value = match insn.op1_kind() {
            kind if is_immediate(kind) => match insn.mnemonic() {
                Mnemonic::Bt => 1u64 << (insn.immediate8() & 31),
                _ => insn.immediate(1),
            },
            // `test %al,%al; js`: the sign.
            OpKind::Register if insn.mnemonic() == Mnemonic::Test => match insn.code() {
                Code::Test_rm8_r8 => 0x80,
                Code::Test_rm16_r16 => 0x8000,
                _ => 0x8000_0000,
            },
            _ => return,
        };
        let value = (value as u32) << shift;
        constants.note(offset, value);
        // Comparisons with "at most" end beside the number.
        if insn.mnemonic() == Mnemonic::Cmp {
            constants.note(offset, value.wrapping_add(1 << shift));
        }
    }
}

/// The whole register that an operand is a part of.
fn family(insn: &Instruction, operand: u32) -> Option<Register> {
    (insn.op_count() > operand && insn.op_kind(operand) == OpKind::Register)
        .then(|| insn.op_register(operand).full_register())
        .filter(|register| register.is_gpr64())
}

/// The displacement of an access through a pointer; `None` for the stack, tables and variables.
fn displacement(insn: &Instruction) -> Option<u64> {
    let base = insn.memory_base();
    let pointer = base.is_gpr64() || base.is_gpr32();
    let stack = matches!(base.full_register(), Register::RSP | Register::RBP);
    (pointer && !stack && insn.memory_index() == Register::None).then(|| insn.memory_displacement64())
}

fn is_immediate(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Immediate8
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(code: &[u8]) -> Constants {
        let mut constants = Constants::default();
        constants.read(code);
        constants
    }

    #[test]
    fn a_comparison_belongs_to_the_register_that_was_read() {
        // mov 0x40(%rbx),%eax; and $0xff00,%eax; cmp $0x1200,%eax
        let code = [0x8b, 0x43, 0x40, 0x25, 0, 0xff, 0, 0, 0x3d, 0, 0x12, 0, 0];
        assert_eq!(read(&code).at(0x40), [0x1200, 0x1201]);
        // mov 0x40(%rbx),%eax; shr $0x10,%eax; cmp $0x3,%al
        let code = [0x8b, 0x43, 0x40, 0xc1, 0xe8, 0x10, 0x3c, 0x03];
        assert_eq!(read(&code).at(0x40), [0x3_0000, 0x4_0000]);
        // testb $0x4,0x8(%rdi)
        assert_eq!(read(&[0xf6, 0x47, 0x08, 0x04]).at(8), [4]);
    }

    #[test]
    fn an_accessor_reads_at_the_address_that_it_is_given() {
        // lea 0x58(%rbx),%rdi; call; cmp $0xa5,%eax
        let code = [0x48, 0x8d, 0x7b, 0x58, 0xe8, 0, 0, 0, 0, 0x3d, 0xa5, 0, 0, 0];
        assert_eq!(read(&code).at(0x58), [0xa5, 0xa6]);
        // mov $0x4020,%esi; call *%rax; cmp $0xa5,%eax
        let code = [0xbe, 0x20, 0x40, 0, 0, 0xff, 0xd0, 0x3d, 0xa5, 0, 0, 0];
        assert_eq!(read(&code).at(0x4020), [0xa5, 0xa6]);
        // lea 0x37(%rbx),%edx; in (%dx),%al; test %al,%al
        let code = [0x8d, 0x53, 0x37, 0xec, 0x84, 0xc0];
        assert_eq!(read(&code).at(0x37), [0x80]);
    }

    #[test]
    fn stack_and_other_registers_are_left_alone() {
        // mov 0x40(%rsp),%eax; cmp $0x12,%eax; mov 0x40(%rbx),%eax; xor %eax,%eax; cmp $0x12,%eax
        let code = [0x8b, 0x44, 0x24, 0x40, 0x83, 0xf8, 0x12, 0x8b, 0x43, 0x40, 0x31, 0xc0, 0x83, 0xf8, 0x12];
        assert_eq!(read(&code), Constants::default());
        // Bytes that are no code, and numbers without end.
        read(&[0xff; 64]);
        let mut constants = Constants::default();
        for value in 0..10_000u32 {
            constants.note(Some((value / 20).into()), value);
        }
        assert!(constants.all().len() == MAX_ALL && constants.at(0).len() == MAX_VALUES);
    }
}
