//! The thunks that code calls to ask the runtime: for a check that has not found the right it wants, or to
//! log an event. They save all registers.
//!
//! An instruction with a distance in its last four bytes of five stands behind each call of a thunk: a jump
//! or a `test`.
//! It leads to the instruction that is asked for, which the runtime names in its reports.

use crate::engine::emit::{Assembly, Returns, code_section, go, go_to, plain, pop, push};
use crate::engine::object::Object;
use crate::engine::patch::Op;
use crate::error::Result;
use guardrail_abi::symbol;
use iced_x86::{Code, Instruction, MemoryOperand, Register};
use std::collections::BTreeMap;

/// The section of the thunks that checks need.
pub const SECTION: &str = ".text.guardrail";
/// The name of the thunk for loops.
pub const LOOP: &str = "guardrail_loop";
/// The name of the thunk for ports.
const PORT: &str = "guardrail_port";
/// The section of the thunks that log events.
pub const EVENTS: &str = ".text.guardrail.events";
/// The runtime's functions. The first three want an address, a size, the domain, and where the check is.
/// The fourth and the sixth have no size, and the fifth and the last no address either.
const SLOW: [&str; 8] = [
    symbol::WRITE_SLOW,
    symbol::RANGE_SLOW,
    symbol::PERCPU_SLOW,
    symbol::CALL_SLOW,
    symbol::LOOP_SLOW,
    symbol::FRAME_SLOW,
    symbol::BEYOND_SLOW,
    symbol::PORT_SLOW,
];

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

/// A question to the runtime, or an event for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ask {
    /// Whether so many bytes at the address in a register may be written.
    Write(Register, u32),
    /// Whether RCX elements of a size, 2 to this power, at RDI may be written.
    Range(u32),
    /// Whether so many bytes of a per-CPU variable may be written; a register holds its offset.
    PerCpu(Register, u32),
    /// Whether the address in a register may be called. The register gets what to call instead.
    Call(Register),
    /// Whether this loop never ends.
    Loop,
    /// A port is written to.
    Port,
    /// Whether the kernel holds anything of the stack frame that ends at the address in a register.
    Frame(Register),
    /// A store of so many bytes at the address in a register lies outside of the variable that it names.
    Beyond(Register, u32),
    /// An event by its number, with the address in a register if it has one, and a size.
    Event(u8, Option<Register>, u32),
    /// An event by its number, with the address in a register, and RCX elements of a size, 2 to this power.
    Elements(u8, Register, u32),
}

impl Ask {
    fn name(self) -> String {
        match self {
            Ask::Write(register, size) => format!("guardrail_write_{size}_{register:?}"),
            Ask::Range(shift) => format!("guardrail_range_{}", 1 << shift),
            Ask::PerCpu(register, size) => format!("guardrail_percpu_{size}_{register:?}"),
            Ask::Call(register) => format!("guardrail_icall_{register:?}"),
            Ask::Loop => LOOP.to_owned(),
            Ask::Port => PORT.to_owned(),
            Ask::Frame(register) => format!("guardrail_frame_{register:?}"),
            Ask::Beyond(register, size) => format!("guardrail_beyond_{size}_{register:?}"),
            Ask::Event(event, Some(register), size) => format!("guardrail_event_{event}_{size}_{register:?}"),
            Ask::Event(event, None, _) => format!("guardrail_event_{event}"),
            Ask::Elements(event, register, shift) => {
                format!("guardrail_events_{event}_{}_{register:?}", 1 << shift)
            }
        }
        .to_lowercase()
    }
}

/// The thunks that a module needs.
#[derive(Debug, Default)]
pub struct Thunks {
    section: usize,
    /// The section's symbol.
    symbol: usize,
    /// Symbols of the runtime's functions, in the order of the list that the thunks were made for.
    functions: Vec<usize>,
    domain: u8,
    code: Assembly,
    known: BTreeMap<Ask, u64>,
}

impl Thunks {
    /// No thunks yet; the module gets a section for those of checks.
    pub fn new(object: &mut Object, domain: u8) -> Thunks {
        Thunks::of(object, SECTION, domain, &SLOW)
    }

    /// No thunks yet; the module gets a section for those that log events.
    pub fn for_events(object: &mut Object) -> Thunks {
        Thunks::of(object, EVENTS, 0, &[symbol::EVENT])
    }

    fn of(object: &mut Object, section: &str, domain: u8, functions: &[&str]) -> Thunks {
        let section = code_section(object, section);
        let symbol = object.symbol_of_section(section);
        let functions = functions.iter().map(|name| object.import(name)).collect();
        let code = Assembly::new(Returns::of(object));
        Thunks { section, symbol, functions, domain, code, known: BTreeMap::new() }
    }

    /// The call that asks. The thunk changes flags, but no register except that of a call.
    pub fn call(&mut self, ask: Ask) -> Result<Op> {
        let at = match self.known.get(&ask) {
            Some(at) => *at,
            None => {
                let ops = self.body(ask)?;
                let at = self.code.function(&ask.name());
                self.code.add(ops);
                self.code.ret();
                self.known.insert(ask, at);
                at
            }
        };
        Ok(go_to(self.symbol, at as i64, false))
    }

    /// Adds the thunks to the module.
    pub fn finish(self, object: &mut Object) {
        if !self.known.is_empty() {
            self.code.fill(object, self.section);
        }
    }

    /// A thunk's instructions, without the return.
    fn body(&self, ask: Ask) -> Result<Vec<Op>> {
        let mut ops = Vec::new();
        for (saved, count) in SAVED.into_iter().zip(1..) {
            ops.extend([push(saved)?, Op::Deeper(8 * count)]);
        }
        let number = |register, value: u32| plain(Instruction::with2(Code::Mov_r32_imm32, register, value));
        let copy = |to, from| plain(Instruction::with2(Code::Mov_r64_rm64, to, from));
        let domain = u32::from(self.domain);
        // The address comes first, since its register may be one of those that arguments are in.
        if let Ask::Write(register, _)
        | Ask::PerCpu(register, _)
        | Ask::Call(register)
        | Ask::Frame(register)
        | Ask::Beyond(register, _)
        | Ask::Event(_, Some(register), _)
        | Ask::Elements(_, register, _) = ask
            && register != Register::RDI
        {
            ops.push(copy(Register::RDI, register)?);
        }
        match ask {
            Ask::Event(_, None, _) => ops.push(number(Register::EDI, 0)?),
            Ask::Range(shift) | Ask::Elements(_, _, shift) => {
                ops.push(copy(Register::RSI, Register::RCX)?);
                if shift > 0 {
                    ops.push(plain(Instruction::with2(Code::Shl_rm64_imm8, Register::RSI, shift))?);
                }
            }
            _ => {}
        }
        if let Ask::Write(_, size) | Ask::PerCpu(_, size) | Ask::Beyond(_, size) | Ask::Event(_, _, size) =
            ask
        {
            ops.push(number(Register::ESI, size)?);
        }
        let (function, last, argument) = match ask {
            Ask::Write(..) => (0, domain, Register::EDX),
            Ask::Range(_) => (1, domain, Register::EDX),
            Ask::PerCpu(..) => (2, domain, Register::EDX),
            Ask::Call(_) => (3, domain, Register::ESI),
            Ask::Loop => (4, domain, Register::EDI),
            Ask::Frame(_) => (5, domain, Register::ESI),
            Ask::Beyond(..) => (6, domain, Register::EDX),
            Ask::Port => (7, domain, Register::EDI),
            Ask::Event(event, ..) | Ask::Elements(event, ..) => (0, event.into(), Register::EDX),
        };
        ops.push(number(argument, last)?);
        let site = match argument {
            Register::EDI => Register::RSI,
            Register::ESI => Register::RDX,
            _ => Register::RCX,
        };
        // The distance behind the call counts from its own end.
        let back = MemoryOperand::with_base_displ(Register::RSP, 8 * SAVED.len() as i64);
        ops.push(plain(Instruction::with2(Code::Mov_r64_rm64, site, back))?);
        let distance = MemoryOperand::with_base_displ(site, 1);
        ops.push(plain(Instruction::with2(Code::Movsxd_r64_rm32, Register::RAX, distance))?);
        let meant = MemoryOperand::with_base_index_scale_displ_size(site, Register::RAX, 1, 5, 1);
        ops.push(plain(Instruction::with2(Code::Lea_r64_m, site, meant))?);
        ops.push(go(self.functions[function], false));
        // What is to be called takes the place of the address.
        if let Ask::Call(register) = ask {
            ops.push(match SAVED.iter().rev().position(|&saved| saved == register) {
                Some(slot) => {
                    let slot = MemoryOperand::with_base_displ(Register::RSP, 8 * slot as i64);
                    plain(Instruction::with2(Code::Mov_rm64_r64, slot, Register::RAX))?
                }
                None => copy(register, Register::RAX)?,
            });
        }
        for (saved, count) in SAVED.into_iter().zip(0..SAVED.len() as i16).rev() {
            ops.extend([pop(saved)?, Op::Deeper(8 * count)]);
        }
        Ok(ops)
    }
}
