//! A pass that changes nothing but places: a module that loads and runs with it has all its tables right.

use crate::engine::emit::JMP;
use crate::engine::pass::{FunctionView, Pass};
use crate::engine::patch::{Label, Op, Patch};
use crate::engine::tables::NOP5;
use crate::error::Result;

/// Puts a NOP in front of every instruction. Every second time it puts one behind the function, with a jump
/// there and back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spread;

impl Pass for Spread {
    fn name(&self) -> &'static str {
        "spread"
    }

    fn function(&mut self, view: &FunctionView<'_>) -> Result<Vec<(u32, Patch)>> {
        let free = view.function.insns.clone().filter(|&number| !view.insn(number).fixed);
        let nop = || Op::Code(NOP5.into(), None);
        let patch = |number| match number % 2 {
            0 => Patch { before: vec![nop()], out: Vec::new() },
            _ => Patch {
                before: vec![Op::Jump(JMP.into(), Label::Out)],
                out: vec![nop(), Op::Jump(JMP.into(), Label::Next)],
            },
        };
        Ok(free.map(|number| (number, patch(number))).collect())
    }
}
