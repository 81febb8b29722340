//! Code that asks the runtime at an instruction. It keeps the registers and flags that are needed there.

use crate::engine::emit::{Operand, plain, pop, push};
use crate::engine::flow::Set;
use crate::engine::patch::{Label, Op, Patch};
use crate::error::{Result, refused};
use crate::passes::thunks::{Ask, Thunks};
use iced_x86::{Code, Instruction, Register};

/// Registers in the order in which they are taken where they are free: first those that calls destroy.
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

/// `test $NUMBER, %eax`, which stands behind the call of a thunk. The number gives the thunk the distance to
/// the instruction that it asks for.
pub(crate) const NOTE: [u8; 1] = [0xa9];

/// What was built, and what it cost.
#[derive(Debug)]
pub struct Built {
    /// The code in front of the instruction and behind the function.
    pub patch: Patch,
    /// Whether a register had to be saved.
    pub saved: bool,
    /// Whether flags had to be kept.
    pub flags: bool,
}

/// Builds the code that asks the runtime at one instruction.
#[derive(Debug)]
pub struct Asks<'a> {
    /// The thunks of the module; a question that is new adds one.
    pub thunks: &'a mut Thunks,
    /// The registers and flags that are needed at the instruction.
    pub needed: Set,
    /// The number of the instruction in its section.
    pub site: u32,
}

impl Asks<'_> {
    /// A register whose value nobody needs and that `taken` does not claim; `None` where no such register
    /// exists.
    pub fn free(&self, taken: impl Fn(Register) -> bool) -> Option<Register> {
        SCRATCH.into_iter().find(|&register| !self.needed.has(register) && !taken(register))
    }

    /// A register that is not taken: one that nobody needs if there is any, else one that has to be saved.
    pub fn any(&self, taken: impl Fn(Register) -> bool) -> Result<Register> {
        match self.free(&taken).or_else(|| SCRATCH.into_iter().find(|&register| !taken(register))) {
            Some(register) => Ok(register),
            None => refused("a patch", "no register is left"),
        }
    }

    /// Asks each time what needs nothing worked out.
    pub fn ask(&mut self, ask: Ask) -> Result<Built> {
        self.always(&[], |thunks, _| Ok(vec![thunks.call(ask)?]))
    }

    /// Asks each time about what `load` loads: an operand's address, or the address that lies there.
    pub fn operand(
        &mut self,
        operand: Operand,
        load: fn(&Operand, Register, i16) -> Result<Op>,
        ask: impl Fn(Register) -> Ask,
    ) -> Result<Built> {
        let scratch = self.any(|register| operand.uses(register))?;
        self.always(&[scratch], |thunks, deeper| {
            Ok(vec![load(&operand, scratch, deeper)?, thunks.call(ask(scratch))?])
        })
    }

    /// Puts a question in front of the instruction that is asked each time.
    pub fn always(
        &mut self,
        uses: &[Register],
        ask: impl Fn(&mut Thunks, i16) -> Result<Vec<Op>>,
    ) -> Result<Built> {
        let (needed, flags, site) = (self.needed, self.needed.has_flags(), self.site);
        let saved: Vec<Register> = uses.iter().copied().filter(|&register| needed.has(register)).collect();
        let before = self.around(&saved, flags, |thunks, deeper| {
            let mut ops = ask(thunks, deeper)?;
            ops.push(Op::Jump(NOTE.into(), Label::Site(site)));
            Ok(ops)
        })?;
        Ok(Built { patch: Patch { before, out: Vec::new() }, saved: !saved.is_empty(), flags })
    }

    /// The instructions that `ask` makes, between those that save and restore registers and flags.
    pub fn around(
        &mut self,
        registers: &[Register],
        flags: bool,
        inner: impl Fn(&mut Thunks, i16) -> Result<Vec<Op>>,
    ) -> Result<Vec<Op>> {
        let mut stack = Saved::default();
        let mut ops = Vec::new();
        for saved in flags.then_some(None).into_iter().chain(registers.iter().copied().map(Some)) {
            ops.extend(stack.push(saved)?);
        }
        ops.extend(inner(self.thunks, stack.deeper)?);
        ops.extend(stack.pop_all()?);
        Ok(ops)
    }
}

/// The registers that were pushed, in this order.
#[derive(Debug, Default)]
pub struct Saved {
    registers: Vec<Option<Register>>,
    /// Bytes that they take on the stack.
    pub deeper: i16,
}

impl Saved {
    /// Pushes a register, or the flags for `None`, and records the deeper stack.
    pub fn push(&mut self, register: Option<Register>) -> Result<[Op; 2]> {
        self.registers.push(register);
        self.deeper += 8;
        let op = match register {
            Some(register) => push(register),
            None => plain(Ok(Instruction::with(Code::Pushfq))),
        };
        Ok([op?, Op::Deeper(self.deeper)])
    }

    /// Pops all registers, the last one first.
    pub fn pop_all(&mut self) -> Result<Vec<Op>> {
        let mut ops = Vec::new();
        while let Some(register) = self.registers.pop() {
            self.deeper -= 8;
            ops.push(match register {
                Some(register) => pop(register)?,
                None => plain(Ok(Instruction::with(Code::Popfq)))?,
            });
            ops.push(Op::Deeper(self.deeper));
        }
        Ok(ops)
    }
}
