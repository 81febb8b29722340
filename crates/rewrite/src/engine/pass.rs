//! What a pass is: it looks at each function, and returns what is to stand in front of which instruction.

use crate::engine::code::{Code, Function, Insn};
use crate::engine::flow::{Flow, Set, Words};
use crate::engine::object::{Object, Section};
use crate::engine::patch::Patch;
use crate::error::Result;

/// A function that a pass looks at.
#[derive(Clone, Copy, Debug)]
pub struct FunctionView<'a> {
    /// The module that the function belongs to.
    pub object: &'a Object,
    /// The section of code that holds the function.
    pub code: &'a Code,
    /// The function's symbol and instructions.
    pub function: &'a Function,
    /// Which registers and flags are free, and where.
    pub flow: &'a Flow,
}

impl<'a> FunctionView<'a> {
    /// The function's name.
    pub fn name(&self) -> &'a str {
        &self.object.symbols[self.function.symbol].name
    }

    /// The section of code that holds the function.
    pub fn section(&self) -> &'a Section {
        &self.object.sections[self.code.section]
    }

    /// An instruction of the section, by number.
    pub fn insn(&self, number: u32) -> &'a Insn {
        &self.code.insns[number as usize]
    }

    /// Which registers and flags are needed when an instruction is about to run.
    pub fn needed(&self, number: u32) -> Set {
        self.flow.needed(self.code.section, number)
    }
}

/// A section of code in its new form, and which words of frames hold registers of callers.
#[derive(Clone, Debug)]
pub struct Text {
    /// Index of the section.
    pub section: usize,
    /// From an offset on, where the code there calls something; by offset.
    pub spills: Vec<(u32, Words)>,
}

/// Instruments code. Each module gets a new pass. The methods are called in the order in which they stand
/// here.
pub trait Pass {
    /// A short name, for readers and for the `.modinfo` of the rewritten module.
    fn name(&self) -> &'static str;

    /// Runs before anything else: adds what the pass's code will name.
    fn prepare(&mut self, object: &mut Object) -> Result<()> {
        let _ = object;
        Ok(())
    }

    /// Patches of a function, by number of their instruction in the section. Instructions that the kernel
    /// patches (`Insn::fixed`) can have none, except in front of all that it patches at once.
    fn function(&mut self, view: &FunctionView<'_>) -> Result<Vec<(u32, Patch)>>;

    /// Runs when all functions have been looked at, and before anything moves: adds what patches have asked
    /// for.
    fn finish(&mut self, object: &mut Object) -> Result<()> {
        let _ = object;
        Ok(())
    }

    /// Runs when all code has its place: adds what says something of places.
    fn placed(&mut self, object: &mut Object, texts: &[Text]) {
        let _ = (object, texts);
    }
}
