//! The instructions of checks.

use crate::engine::emit::{JA, JE, JMP, JNE, JS, Operand, per_cpu, plain, relative, relative_operand};
use crate::engine::patch::{Label, Op, Patch};
use crate::error::Result;
use crate::passes::asks::{Asks, Built, NOTE, Saved};
use crate::passes::checks::access::Source;
use crate::passes::checks::merge::{Align, Look};
use crate::passes::checks::variables::Element;
use crate::passes::thunks::{Ask, Thunks};
use guardrail_abi as abi;
use iced_x86::{Code, Instruction, MemoryOperand, Register};

const SLOT_SHIFT: u8 = abi::SLOT_SHIFT as u8;

/// What has to be known of an address.
#[derive(Clone, Copy, Debug)]
enum Test<'a> {
    /// Whether tags of the table hold a right.
    Tags { align: Align, compares: &'a [(u8, u8)], right: u8 },
    /// Whether the address lies outside the kernel's half.
    User,
    /// Whether it is more than this; for a distance.
    Beyond(u32),
}

/// One question to the runtime: where the address is, what is asked, and for which instruction.
struct Question {
    source: Source,
    ask: fn(Register, u32) -> Ask,
    size: u32,
    site: u32,
}

/// Builds the checks at one instruction.
#[derive(Debug)]
pub struct Builder<'a> {
    /// The symbol of the variable that holds the table's address.
    pub table: usize,
    /// The symbol of the variable that loops count down.
    pub loops: usize,
    /// The symbol of the number of objects on stacks that the kernel holds.
    pub frames: usize,
    /// The symbol of the number of transactions on the CPU.
    pub transacting: usize,
    /// The protection domain of the module, from 1 to 14.
    pub domain: u8,
    /// Asks the runtime where a check does not pass.
    pub asks: Asks<'a>,
}

impl Builder<'_> {
    /// Checks the stores that one look decides.
    pub fn look(&mut self, look: &Look) -> Result<Built> {
        let questions: Vec<Question> = look
            .stores
            .iter()
            .map(|store| write(Source::Address(store.operand), store.size, store.number))
            .collect();
        let test = Test::Tags { align: look.align, compares: &look.compares, right: abi::WRITE };
        self.check(Source::Address(look.operand), test, &questions)
    }

    /// Checks a store that may go to user memory.
    pub fn user(&mut self, operand: Operand, size: u32) -> Result<Built> {
        let source = Source::Address(operand);
        self.check(source, Test::User, &[write(source, size, self.asks.site)])
    }

    /// Checks that a store by an index lies in the variable that its operand names.
    pub fn inside(&mut self, operand: Operand, size: u32, element: &Element) -> Result<Built> {
        let source = Source::Address(operand);
        let question = Question { source, ask: Ask::Beyond, size, site: self.asks.site };
        self.check(Source::Address(element.operand), Test::Beyond(element.last), &[question])
    }

    /// Checks a store from RDI on that may go to user memory, of as many bytes as a register holds.
    pub fn user_range(&mut self, bytes: Register) -> Result<Built> {
        // Inline assembly needs no flags, and changes them.
        let site = self.asks.site;
        let test = Instruction::with2(Code::Test_rm64_r64, Register::RDI, Register::RDI);
        let saved: &[Register] = if bytes == Register::RCX { &[] } else { &[Register::RCX] };
        let mut out = self.asks.around(saved, false, |thunks, _| {
            let count = plain(Instruction::with2(Code::Mov_r64_rm64, Register::RCX, bytes))?;
            let ask = [thunks.call(Ask::Range(0))?, Op::Jump(NOTE.into(), Label::Site(site))];
            Ok(saved.iter().map(|_| count.clone()).chain(ask).collect())
        })?;
        out.push(Op::Jump(JMP.into(), Label::Next));
        let before = vec![plain(test)?, Op::Jump(JS.into(), Label::Out)];
        Ok(Built { patch: Patch { before, out }, saved: !saved.is_empty(), flags: false })
    }

    /// Checks a call by pointer. A function begins at a multiple of 8. The runtime may put another function
    /// into the register.
    pub fn call(&mut self, register: Register) -> Result<Built> {
        let source = Source::Register(register);
        let test = Test::Tags { align: Align::Rotate(SLOT_SHIFT), compares: &[(0, 1)], right: abi::CALL };
        let question =
            Question { source, ask: |register, _| Ask::Call(register), size: 0, site: self.asks.site };
        self.check(source, test, &[question])
    }

    /// Checks a store to the byte with a bit. A register of so many bytes holds the bit's number.
    pub fn bit(&mut self, operand: Operand, index: Register, width: u32) -> Result<Built> {
        if width == 8 && !self.asks.needed.has_flags() {
            let source = Source::Bit(operand, index);
            let test = Test::Tags { align: Align::Any, compares: &[(0, 1)], right: abi::WRITE };
            return self.check(source, test, &[write(source, 1, self.asks.site)]);
        }
        let full = index.full_register();
        let scratch = self.asks.any(|register| operand.uses(register) || register == full)?;
        // The extended number needs another register.
        let number =
            self.asks.any(|register| operand.uses(register) || register == full || register == scratch)?;
        let extend = match width {
            8 => Code::Mov_r64_rm64,
            4 => Code::Movsxd_r64_rm32,
            _ => Code::Movsx_r64_rm16,
        };
        self.asks.always(&[scratch, number], |thunks, deeper| {
            let mut ops = vec![plain(Instruction::with2(extend, number, index))?];
            ops.extend(source_ops(&Source::Bit(operand, number), scratch, deeper)?);
            ops.push(thunks.call(Ask::Write(scratch, 1))?);
            Ok(ops)
        })
    }

    /// Asks about a store by a string instruction that repeats.
    pub fn range(&mut self, shift: u32) -> Result<Built> {
        self.asks.ask(Ask::Range(shift))
    }

    /// Counts where a loop begins anew and no flags are needed. Once in many rounds it asks the runtime
    /// whether the loop ever ends.
    pub fn turn(&mut self) -> Result<Built> {
        let count = Instruction::with1(Code::Dec_rm32, per_cpu());
        let before = vec![relative(count, self.loops, 0)?, Op::Jump(JS.into(), Label::Out)];
        self.round(before)
    }

    /// Looks at the stack pointer where no flags are needed. Near the end of the stack it asks the runtime.
    pub fn room(&mut self) -> Result<Built> {
        let test = Instruction::with2(Code::Test_rm32_imm32, Register::ESP, abi::STACK_MASK);
        let before = vec![plain(test)?, Op::Jump(JE.into(), Label::Out)];
        self.round(before)
    }

    /// Asks about a loop, or a function that calls itself, where the instructions before jump out of line.
    fn round(&mut self, before: Vec<Op>) -> Result<Built> {
        let out = vec![
            self.asks.thunks.call(Ask::Loop)?,
            Op::Jump(NOTE.into(), Label::Site(self.asks.site)),
            Op::Jump(JMP.into(), Label::Next),
        ];
        Ok(Built { patch: Patch { before, out }, saved: false, flags: false })
    }

    /// Checks where a function frees the part of its stack that ends at an operand, and no flags are needed.
    /// If the kernel holds an object of any stack frame, it asks the runtime about this one.
    pub fn leave_frame(&mut self, end: Operand) -> Result<Built> {
        let scratch = self.asks.any(|register| end.uses(register))?;
        let saved = if self.asks.needed.has(scratch) { vec![scratch] } else { Vec::new() };
        let site = self.asks.site;
        let compare = Instruction::with2(Code::Cmp_rm32_imm8, relative_operand(), 0);
        let before = vec![relative(compare, self.frames, 0)?, Op::Jump(JNE.into(), Label::Out)];
        let mut out = self.asks.around(&saved, false, |thunks, deeper| {
            let ask = thunks.call(Ask::Frame(scratch))?;
            Ok(vec![end.address(scratch, deeper)?, ask, Op::Jump(NOTE.into(), Label::Site(site))])
        })?;
        out.push(Op::Jump(JMP.into(), Label::Next));
        Ok(Built { patch: Patch { before, out }, saved: !saved.is_empty(), flags: false })
    }

    /// Tells the runtime of a write to a port where a transaction is under way.
    pub fn port(&mut self) -> Result<Built> {
        if self.asks.needed.has_flags() {
            return self.asks.ask(Ask::Port);
        }
        let compare = Instruction::with2(Code::Cmp_rm32_imm8, per_cpu(), 0);
        let before = vec![relative(compare, self.transacting, 0)?, Op::Jump(JNE.into(), Label::Out)];
        let site = self.asks.site;
        let mut out = self.asks.around(&[], false, |thunks, _| {
            Ok(vec![thunks.call(Ask::Port)?, Op::Jump(NOTE.into(), Label::Site(site))])
        })?;
        out.push(Op::Jump(JMP.into(), Label::Next));
        Ok(Built { patch: Patch { before, out }, saved: false, flags: false })
    }

    /// A check that passes in line, or asks the runtime out of line.
    fn check(&mut self, source: Source, test: Test<'_>, questions: &[Question]) -> Result<Built> {
        let taken = |register| {
            source.uses(register) || questions.iter().any(|question| question.source.uses(register))
        };
        let flags = self.asks.needed.has_flags();
        let free = self.asks.free(|register| taken(register) || (flags && register == Register::RAX));
        let scratch = match free {
            Some(free) => free,
            None => self.asks.any(|register| taken(register) || register == Register::RAX)?,
        };
        let mut stack = Saved::default();
        let mut before = Vec::new();
        if free.is_none() {
            before.extend(stack.push(Some(scratch))?);
        }
        let saves_rax = flags && self.asks.needed.has(Register::RAX);
        if saves_rax {
            before.extend(stack.push(Some(Register::RAX))?);
        }
        // RAX still has the value that the address needs.
        before.extend(source_ops(&source, scratch, stack.deeper)?);
        let mut restore = Vec::new();
        if flags {
            before.push(plain(Ok(Instruction::with(Code::Lahf)))?);
            before.push(plain(Instruction::with1(Code::Seto_rm8, Register::AL))?);
            // This addition overflows just if AL is 1.
            restore.push(plain(Instruction::with2(Code::Add_AL_imm8, Register::AL, 0x7f))?);
            restore.push(plain(Ok(Instruction::with(Code::Sahf)))?);
        }
        before.extend(self.test(scratch, test)?);
        let deeper = stack.deeper;
        restore.extend(stack.pop_all()?);
        before.extend(restore.clone());

        let mut out = vec![Op::Deeper(deeper)];
        out.extend(restore);
        let saved: &[Register] = if free.is_none() { &[scratch] } else { &[] };
        let ask = |thunks: &mut Thunks, deeper| {
            let mut ops = Vec::new();
            for question in questions {
                // A call is asked for by its own register, which the answer changes.
                let register = match question.source {
                    Source::Register(register) => register,
                    _ => {
                        ops.extend(source_ops(&question.source, scratch, deeper)?);
                        scratch
                    }
                };
                ops.push(thunks.call((question.ask)(register, question.size))?);
                ops.push(Op::Jump(NOTE.into(), Label::Site(question.site)));
            }
            Ok(ops)
        };
        out.extend(self.asks.around(saved, flags, ask)?);
        // Where the way back leads to the only instruction that was asked for, it replaces the note, since it
        // gives the same distance.
        if free.is_some() && !flags && matches!(questions, [question] if question.site == self.asks.site) {
            out.pop();
        }
        out.push(Op::Jump(JMP.into(), Label::Next));
        Ok(Built { patch: Patch { before, out }, saved: free.is_none() || saves_rax, flags })
    }

    /// Instructions from an address in a register, which is lost, to a jump that is taken where the test
    /// fails.
    fn test(&self, scratch: Register, test: Test<'_>) -> Result<Vec<Op>> {
        let (align, compares, right) = match test {
            Test::Tags { align, compares, right } => (align, compares, right),
            Test::User => {
                let sign = Instruction::with2(Code::Test_rm64_r64, scratch, scratch);
                return Ok(vec![plain(sign)?, Op::Jump(JS.into(), Label::Out)]);
            }
            Test::Beyond(last) => {
                let compare = Instruction::with2(Code::Cmp_rm64_imm32, scratch, last);
                return Ok(vec![plain(compare)?, Op::Jump(JA.into(), Label::Out)]);
            }
        };
        let shift = |code, by: u8| plain(Instruction::with2(code, scratch, u32::from(by)));
        let mut ops = Vec::new();
        match align {
            Align::Rotate(bits) => {
                ops.push(shift(Code::Ror_rm64_imm8, bits)?);
                if bits < SLOT_SHIFT {
                    ops.push(shift(Code::Shr_rm64_imm8, SLOT_SHIFT - bits)?);
                }
            }
            Align::Any | Align::Test => {
                if align == Align::Test {
                    let low = low_byte(scratch);
                    let mask = (1 << SLOT_SHIFT) - 1;
                    ops.push(plain(Instruction::with2(Code::Test_rm8_imm8, low, mask))?);
                    ops.push(Op::Jump(JNE.into(), Label::Out));
                }
                ops.push(shift(Code::Shr_rm64_imm8, SLOT_SHIFT)?);
            }
        }
        let place = Instruction::with2(Code::Add_r64_rm64, scratch, per_cpu());
        ops.push(relative(place, self.table, 0)?);
        let wanted = u32::from(abi::tag(self.domain, right));
        for &(from, count) in compares {
            let tag = match from {
                0 => MemoryOperand::with_base(scratch),
                _ => MemoryOperand::with_base_displ_size(scratch, i64::from(from), 1),
            };
            ops.push(Op::MayFault);
            ops.push(plain(match count {
                1 => Instruction::with2(Code::Cmp_rm8_imm8, tag, wanted),
                2 => Instruction::with2(Code::Cmp_rm16_imm16, tag, wanted * 0x0101),
                _ => Instruction::with2(Code::Cmp_rm32_imm32, tag, wanted * 0x0101_0101),
            })?);
            ops.push(Op::Jump(JNE.into(), Label::Out));
        }
        Ok(ops)
    }
}

fn write(source: Source, size: u32, site: u32) -> Question {
    Question { source, ask: Ask::Write, size, site }
}

fn low_byte(register: Register) -> Register {
    // In the order of numbers, those that need a prefix included: AL, CL, ... ; between BL and SPL are AH to
    // BH.
    match register.number() {
        number @ 0..4 => Register::AL + number as u32,
        number => Register::SPL + (number as u32 - 4),
    }
}

/// Puts the address into a register. Only the address of a bit changes flags.
fn source_ops(source: &Source, scratch: Register, deeper: i16) -> Result<Vec<Op>> {
    Ok(match source {
        Source::Register(register) => {
            vec![plain(Instruction::with2(Code::Mov_r64_rm64, scratch, *register))?]
        }
        Source::Address(operand) => vec![operand.address(scratch, deeper)?],
        // Bits are counted from the address, so the address becomes a number of bits. Its upper three bits
        // equal the fourth.
        Source::Bit(operand, number) => vec![
            operand.address(scratch, deeper)?,
            plain(Instruction::with2(Code::Shl_rm64_imm8, scratch, 3))?,
            plain(Instruction::with2(Code::Add_r64_rm64, scratch, *number))?,
            plain(Instruction::with2(Code::Sar_rm64_imm8, scratch, 3))?,
        ],
    })
}
