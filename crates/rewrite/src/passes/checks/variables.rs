//! Stores to an element of one of the module's variables by an index.

use crate::engine::emit::Operand;
use crate::engine::object::{Object, Symbol};
use iced_x86::Register;
use object::elf;

/// Fewest elements of a variable that is taken for an array.
const FEWEST: u64 = 4;

/// What an index may select.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// The operand, counted from where the variable begins.
    pub operand: Operand,
    /// The last distance from there at which a store of its size lies in the variable.
    pub last: u32,
}

/// The array that the operand of a store names. Code that counts from 1 names what lies in front of the array,
/// so only a name of an array's begin decides, with an index that counts its elements.
pub fn element(object: &Object, operand: &Operand, size: u32) -> Option<Element> {
    let reloc = operand.reloc?;
    if operand.base != Register::None || operand.index == Register::None || operand.scale != size {
        return None;
    }
    let (section, offset) = object.target(reloc.symbol, reloc.addend)?;
    if !object.sections.get(section)?.variables() {
        return None;
    }
    let begins = |symbol: &&Symbol| {
        symbol.section() == Some(section) && symbol.value == offset && symbol.kind() == elf::STT_OBJECT
    };
    let array = object.symbols.iter().filter(begins).map(|symbol| symbol.size).max()?;
    let bytes = u64::from(size);
    if array < FEWEST * bytes || array % bytes != 0 {
        return None;
    }
    let operand = Operand { displacement: 0, reloc: None, ..*operand };
    Some(Element {
        operand,
        last: u32::try_from(array - bytes).ok().filter(|last| *last <= i32::MAX as u32)?,
    })
}
