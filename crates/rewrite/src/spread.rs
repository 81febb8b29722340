//! A pass that changes nothing but places: a module that loads and runs with it has all its tables right.

use crate::error::Result;
use crate::pass::{Pass, Site};
use crate::patch::{Label, Op, Patch};

/// `nopl 0(%rax,%rax,1)`.
const NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// Puts a NOP in front of every instruction. Every second time it puts one behind the function, with a jump
/// there and back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spread;

impl Pass for Spread {
    fn name(&self) -> &'static str {
        "spread"
    }

    fn function(&mut self, site: &Site<'_>) -> Result<Vec<(u32, Patch)>> {
        let free = site.function.insns.clone().filter(|&number| !site.code.insns[number as usize].fixed);
        let nop = || Op::Code(NOP.into(), None);
        let patch = |number| match number % 2 {
            0 => Patch { before: vec![nop()], out: Vec::new() },
            _ => Patch {
                before: vec![Op::Jump(vec![0xe9], Label::Out)],
                out: vec![nop(), Op::Jump(vec![0xe9], Label::Next)],
            },
        };
        Ok(free.map(|number| (number, patch(number))).collect())
    }
}
