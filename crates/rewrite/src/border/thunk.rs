//! Thunks: code that the calls between the module and the kernel run through.
//! `runtime/include/guardrail_abi.h` defines what the runtime finds on the stack (`struct guardrail_call`,
//! `struct guardrail_record`).

use super::data::{Data, Side};
use super::{Action, Entry, Step, Value, When, Wrapper};
use crate::engine::emit::{Assembly, JMP, JNE, JS, Returns, go, per_cpu, plain, relative, relative_operand};
use crate::engine::object::Object;
use crate::engine::patch::Op;
use crate::error::{Result, refused};
use guardrail_abi::{self as abi, layout, symbol};
use iced_x86::{Code, IcedError, Instruction, MemoryOperand, Register};

/// Bytes of `struct guardrail_call` below the return address, and of what `struct guardrail_record` has below
/// the call.
const CALL: i64 = layout::call::CALLER as i64;
const RECORD: i64 = layout::record::CALL as i64;
/// The offset of results in `struct guardrail_call`.
const RESULT: i64 = layout::call::RESULT as i64;
const SECOND: i64 = layout::call::SECOND as i64;
/// Registers of arguments, in the order in which they stand in the call.
const ARGUMENTS: [Register; 6] =
    [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];
/// Most words of arguments on the stack that a thunk passes; no function of the kernel has so many.
const MAX_WORDS: u8 = 64;

/// A section of thunks while it is made.
pub(super) struct Thunks<'a> {
    object: &'a mut Object,
    data: &'a mut Data,
    code: Assembly,
    /// Whether the kernel may count calls, in the room in front of functions.
    rooms: bool,
}

/// An action that is written down.
#[derive(Clone)]
struct Row {
    /// Its offset in the data.
    at: u64,
    step: Step,
}

impl<'a> Thunks<'a> {
    /// A section without thunks.
    pub fn new(object: &'a mut Object, data: &'a mut Data) -> Thunks<'a> {
        let (returns, rooms) = (Returns::of(object), object.section(".call_sites").is_some());
        Thunks { object, data, code: Assembly::new(returns), rooms }
    }

    /// Puts the thunks into a new section; returns the symbol of the first. The symbols of the others follow
    /// in order.
    pub fn place(self, name: &str) -> usize {
        let first = self.object.symbols.len();
        self.code.place(self.object, name);
        first
    }

    /// Adds a thunk for calls to a function of the kernel.
    pub fn call(&mut self, import: usize, wrapper: &Wrapper) -> Result<()> {
        let name = self.object.symbols[import].name.clone();
        if wrapper.stack_words > MAX_WORDS {
            return refused(name, "it has more arguments on the stack than are supported");
        }
        if self.rooms {
            self.code.room();
        }
        self.code.function(&format!("guardrail_call_{name}"));
        // Calls by pointer lead here as well.
        self.add(Ok(Instruction::with(Code::Endbr64)))?;
        let before = self.rows(&name, Side::Before, &wrapper.before, import)?;
        let after = self.rows(&name, Side::After, &wrapper.after, import)?;
        if before.iter().chain(&after).any(|row| row.step.action.transacts()) {
            self.outside(import, wrapper, &before, &after)?;
        }
        self.body(import, wrapper, &before, &after)
    }

    /// Writes down the actions of a call.
    fn rows(&mut self, name: &str, side: Side, steps: &[Step], import: usize) -> Result<Vec<Row>> {
        let row = |step: &Step| {
            Ok(Row { at: self.data.action(name, side, step, false, import)?, step: step.clone() })
        };
        steps.iter().map(row).collect()
    }

    /// Emits what is done while no transaction is under way on the CPU: what else follows is for transactions.
    fn outside(&mut self, import: usize, wrapper: &Wrapper, before: &[Row], after: &[Row]) -> Result<()> {
        let transacting = self.object.import(symbol::TRANSACTING);
        let compare = Instruction::with2(Code::Cmp_rm32_imm8, per_cpu(), 0);
        self.code.add([relative(compare, transacting, 0)?]);
        let inside = self.code.jump(&JNE);
        let usual = |rows: &[Row]| -> Vec<Row> {
            rows.iter().filter(|row| !row.step.action.transacts()).cloned().collect()
        };
        let (before, after) = (usual(before), usual(after));
        if before.is_empty() && after.is_empty() {
            self.code.add([go(import, true)]);
            self.code.stop();
        } else {
            self.body(import, wrapper, &before, &after)?;
        }
        self.code.land(inside, self.code.here());
        self.deeper(0);
        Ok(())
    }

    /// Performs actions around a call of a function of the kernel.
    fn body(&mut self, import: usize, wrapper: &Wrapper, before: &[Row], after: &[Row]) -> Result<()> {
        self.pass_skbs(import, wrapper, before, after)?;
        self.keep(CALL, 0)?;
        let mut instead = Vec::new();
        for row in before {
            self.perform(row, 0)?;
            if matches!(row.step.action, Action::Instead { .. } | Action::Defer { .. }) {
                instead.push(self.unless_zero()?);
            }
        }
        self.reload(0)?;
        if wrapper.variadic {
            // This is the number of vector registers.
            self.add(Instruction::with2(Code::Xor_r32_rm32, Register::EAX, Register::EAX))?;
        }
        if after.is_empty() && instead.is_empty() {
            self.shrink(CALL)?;
            self.code.add([go(import, true)]);
            self.code.stop();
        } else {
            self.call_with(import, CALL, wrapper.stack_words)?;
            self.keep_result(0)?;
            for jump in instead {
                self.code.land(jump, self.code.here());
            }
            for row in after {
                self.perform(row, 0)?;
            }
            self.give_back(CALL, 0)?;
        }
        Ok(())
    }

    /// Adds a thunk for calls of a function of the module, which annotations know by this name.
    pub fn entry(&mut self, function: usize, name: &str, entry: &Entry) -> Result<()> {
        if entry.stack_words > MAX_WORDS {
            return refused(name, "it has more arguments on the stack than are supported");
        }
        let whole = RECORD + CALL;
        let description = self.data.entry(name, entry);
        self.code.function(&format!("guardrail_enter_{name}"));
        self.add(Ok(Instruction::with(Code::Endbr64)))?;
        self.keep(whole, RECORD)?;
        self.code.add([relative(lea(Register::RDI), self.data.symbol(), description as i64)?]);
        self.stack_pointer(Register::RSI, 0)?;
        self.runtime(symbol::ENTER);
        let refusal = self.unless_zero()?;
        let mut failures = Vec::new();
        for step in &entry.before {
            self.action(name, Side::Before, step)?;
            failures.push(self.unless_zero()?);
        }
        self.reload(RECORD)?;
        self.call_with(function, whole, entry.stack_words)?;
        self.keep_result(RECORD)?;
        let after = self.code.here();
        for step in &entry.after {
            self.action(name, Side::After, step)?;
        }
        self.stack_pointer(Register::RDI, 0)?;
        self.runtime(symbol::LEAVE);
        let out = self.code.here();
        self.give_back(whole, RECORD)?;
        // The function was not entered (the sign of the result shows it), or was ended from within.
        self.code.land(refusal, self.code.here());
        self.deeper(whole);
        let refused = self.code.jump(&JS);
        self.code.land(refused, out);
        // The runtime has set the result of an entry that it has ended.
        let back = self.code.jump(&JMP);
        self.code.land(back, after);
        self.code.stop();
        if failures.is_empty() {
            return Ok(());
        }
        for jump in failures {
            self.code.land(jump, self.code.here());
        }
        self.add(Instruction::with2(Code::Mov_r64_imm64, Register::RAX, entry.dead))?;
        self.add(Instruction::with2(Code::Xor_r32_rm32, Register::EDX, Register::EDX))?;
        self.keep_result(RECORD)?;
        let back = self.code.jump(&JMP);
        self.code.land(back, after);
        self.code.stop();
        Ok(())
    }

    /// Emits the fast path for functions that only require that arguments are packets. The table alone mostly
    /// proves that, and the call is made at once.
    fn pass_skbs(&mut self, import: usize, wrapper: &Wrapper, before: &[Row], after: &[Row]) -> Result<()> {
        let skbs: Option<Vec<Register>> = before.iter().map(|row| skb(&row.step)).collect();
        let Some(skbs) = skbs.filter(|skbs| !skbs.is_empty() && after.is_empty()) else {
            return Ok(());
        };
        if wrapper.variadic {
            return Ok(());
        }
        let (tag, mut jumps) = (abi::tag(self.data.domain(), abi::SKB), Vec::new());
        let table = self.object.import(symbol::TABLE);
        for register in skbs {
            self.add(Instruction::with2(Code::Mov_r64_rm64, Register::RAX, register))?;
            self.add(Instruction::with2(Code::Ror_rm64_imm8, Register::RAX, abi::SLOT_SHIFT))?;
            let add = Instruction::with2(Code::Add_r64_rm64, Register::RAX, per_cpu());
            self.code.add([relative(add, table, 0)?]);
            let at = self.code.here();
            let place = MemoryOperand::with_base(Register::RAX);
            self.add(Instruction::with2(Code::Cmp_rm8_imm8, place, u32::from(tag)))?;
            jumps.push((at, self.code.jump(&JNE)));
        }
        self.code.add([go(import, true)]);
        for (at, jump) in jumps {
            let here = self.code.here();
            self.code.land(jump, here);
            self.code.may_fault(at, here);
        }
        Ok(())
    }

    fn add(&mut self, insn: std::result::Result<Instruction, IcedError>) -> Result<()> {
        self.code.add([plain(insn)?]);
        Ok(())
    }

    /// From here on the stack is so many bytes deeper than where the thunk begins.
    fn deeper(&mut self, bytes: i64) {
        self.code.add([Op::Deeper(bytes as i16)]);
    }

    /// Calls a function of the runtime, by its name.
    fn runtime(&mut self, name: &str) {
        let symbol = self.object.import(name);
        self.code.add([go(symbol, false)]);
    }

    /// Jumps if the called function returned something else than 0.
    fn unless_zero(&mut self) -> Result<usize> {
        self.add(Instruction::with2(Code::Test_rm32_r32, Register::EAX, Register::EAX))?;
        Ok(self.code.jump(&JNE))
    }

    /// Makes room on the stack, and stores the arguments `at` bytes above its begin.
    fn keep(&mut self, room: i64, at: i64) -> Result<()> {
        self.add(Instruction::with2(Code::Sub_rm64_imm32, Register::RSP, room as i32))?;
        self.deeper(room);
        for (register, word) in ARGUMENTS.into_iter().zip(0..) {
            self.store(register, at + 8 * word)?;
        }
        Ok(())
    }

    fn reload(&mut self, at: i64) -> Result<()> {
        for (register, word) in ARGUMENTS.into_iter().zip(0..) {
            self.load(register, at + 8 * word)?;
        }
        Ok(())
    }

    fn keep_result(&mut self, at: i64) -> Result<()> {
        self.store(Register::RAX, at + RESULT)?;
        self.store(Register::RDX, at + SECOND)
    }

    fn store(&mut self, register: Register, at: i64) -> Result<()> {
        let place = MemoryOperand::with_base_displ(Register::RSP, at);
        self.add(Instruction::with2(Code::Mov_rm64_r64, place, register))
    }

    fn load(&mut self, register: Register, at: i64) -> Result<()> {
        let place = MemoryOperand::with_base_displ(Register::RSP, at);
        self.add(Instruction::with2(Code::Mov_r64_rm64, register, place))
    }

    /// Puts the stack pointer plus some bytes into a register.
    fn stack_pointer(&mut self, register: Register, more: i64) -> Result<()> {
        self.add(match more {
            0 => Instruction::with2(Code::Mov_r64_rm64, register, Register::RSP),
            _ => {
                let place = MemoryOperand::with_base_displ(Register::RSP, more);
                Instruction::with2(Code::Lea_r64_m, register, place)
            }
        })
    }

    /// Performs an action of an entry.
    fn action(&mut self, function: &str, side: Side, step: &Step) -> Result<()> {
        let at = self.data.action(function, side, step, true, 0)?;
        self.perform(&Row { at, step: step.clone() }, RECORD)
    }

    /// Performs an action; the call is `at` bytes above the stack pointer.
    fn perform(&mut self, row: &Row, at: i64) -> Result<()> {
        self.code.add([relative(lea(Register::RDI), self.data.symbol(), row.at as i64)?]);
        self.stack_pointer(Register::RSI, at)?;
        self.runtime(&row.step.action.function());
        Ok(())
    }

    /// Calls with the arguments on the stack that stand above the return address, which is `room` bytes above
    /// the stack pointer.
    fn call_with(&mut self, function: usize, room: i64, words: u8) -> Result<()> {
        let words = i64::from(words);
        // The last argument is pushed first. Each push moves the stack pointer down by a word and the next
        // argument is a word lower, so the offset stays.
        let place = MemoryOperand::with_base_displ(Register::RSP, room + 8 * words);
        for count in 1..=words {
            self.add(Instruction::with1(Code::Push_rm64, place))?;
            self.deeper(room + 8 * count);
        }
        self.code.add([go(function, false)]);
        if words > 0 {
            self.add(Instruction::with2(Code::Add_rm64_imm32, Register::RSP, 8 * words as i32))?;
            self.deeper(room);
        }
        Ok(())
    }

    fn shrink(&mut self, room: i64) -> Result<()> {
        self.add(Instruction::with2(Code::Add_rm64_imm32, Register::RSP, room as i32))?;
        self.deeper(0);
        Ok(())
    }

    /// Returns the call's result.
    fn give_back(&mut self, room: i64, at: i64) -> Result<()> {
        self.load(Register::RAX, at + RESULT)?;
        self.load(Register::RDX, at + SECOND)?;
        self.shrink(room)?;
        self.code.ret();
        Ok(())
    }
}

/// The argument that must be a packet, if that is all that an action requires.
fn skb(step: &Step) -> Option<Register> {
    match &step.action {
        Action::RequireObject {
            pointer: Value::Arg(argument),
            kind: abi::TYPE_SKB,
            state: None | Some(0),
        } if step.when == When::Always => ARGUMENTS.get(usize::from(*argument)).copied(),
        _ => None,
    }
}

fn lea(register: Register) -> std::result::Result<Instruction, IcedError> {
    Instruction::with2(Code::Lea_r64_m, register, relative_operand())
}
