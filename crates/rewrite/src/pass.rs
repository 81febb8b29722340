//! What a pass is: it looks at each function, and says what is to stand in front of which instruction.

use crate::code::{Code, Function};
use crate::error::Result;
use crate::flow::Flow;
use crate::object::Object;
use crate::patch::Patch;

/// A function that a pass looks at.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// The module.
    pub object: &'a Object,
    /// The section of code.
    pub code: &'a Code,
    /// The function.
    pub function: &'a Function,
    /// Which registers and flags are free, and where.
    pub flow: &'a Flow,
}

/// Instruments code. For each module a pass is made anew; its methods are called in the order in which they stand here.
pub trait Pass {
    /// Its name, for readers and for the rewritten module's information.
    fn name(&self) -> &'static str;

    /// Before anything else: adds what its code will name.
    fn prepare(&mut self, object: &mut Object) -> Result<()> {
        let _ = object;
        Ok(())
    }

    /// Patches of a function, by number of their instruction in the section. Instructions that the kernel patches
    /// ([`Insn::fixed`](crate::code::Insn::fixed)) can have none.
    fn function(&mut self, site: &Site<'_>) -> Result<Vec<(u32, Patch)>>;

    /// When all functions have been looked at, and before anything moves: adds what patches have asked for.
    fn finish(&mut self, object: &mut Object) -> Result<()> {
        let _ = object;
        Ok(())
    }
}
