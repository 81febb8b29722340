//! Pointers in registers: which object each one came from.
//!
//! A register keeps the object of a pointer through moves, through `lea`, and through sums with something that is
//! no pointer. Everything else that is made of a pointer is [`MIXED`]: the difference of two pointers, a part of
//! one, the choice between two. A sum with such a value came from no object that is known.
//!
//! The log holds the addresses of accesses. So a pointer whose value is known is compared with the address that
//! an instruction makes from it. A pointer that was loaded from memory has the value that the driver stored
//! there, unless code that is not watched wrote the memory since; the comparison shows that.

/// The [`Pointer::from`] of a value that was made of a pointer and may point into any object.
pub const MIXED: u32 = u32::MAX;

/// Where a pointer came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pointer {
    /// Number of the object, which the [`Memory`](super::Memory) defines; 0 where it is not known.
    pub from: u32,
    /// No code but the driver's can have written the memory that the pointer was loaded from.
    pub certain: bool,
    /// The value of the pointer; `None` where something else than a constant was added.
    pub value: Option<u64>,
}

/// An access through a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Address of the first byte.
    pub addr: u64,
    /// Number of bytes.
    pub len: u64,
    /// The access writes.
    pub store: bool,
    /// It is a string instruction's or a kernel function's, and may be long.
    pub range: bool,
    /// The pointer. Its value is that of the address where the driver added nothing but constants to what the
    /// allocator returned. Otherwise the pointer is certain and has no value.
    pub pointer: Pointer,
}

/// The pointers in the general-purpose registers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pointers {
    /// The registers of which something is known, one bit for each.
    pub live: u16,
    of: [Pointer; 16],
}

impl Pointers {
    /// The pointer in a register, also one that is [`MIXED`]; `None` where nothing is known.
    #[inline]
    pub fn get(&self, reg: u8) -> Option<Pointer> {
        (self.live >> (reg & 15) & 1 != 0).then(|| self.of[usize::from(reg & 15)])
    }

    #[inline]
    pub fn set(&mut self, reg: u8, pointer: Option<Pointer>) {
        let bit = 1 << (reg & 15);
        match pointer.filter(|pointer| pointer.from != 0) {
            Some(pointer) => {
                self.of[usize::from(reg & 15)] = pointer;
                self.live |= bit;
            }
            None => self.live &= !bit,
        }
    }

    /// Nothing is known any more about the registers in the mask.
    #[inline]
    pub fn drop(&mut self, registers: u16) {
        self.live &= !registers;
    }
}

/// What an instruction does with pointers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Flow {
    /// Its results came from no object that is known.
    #[default]
    Other,
    /// Moves a register to another one.
    Copy,
    /// Loads a register.
    Load,
    /// Stores a register.
    Store,
    /// Makes an address.
    Lea,
    /// Adds to a register.
    Add,
    /// Subtracts from a register.
    Sub,
    /// Exchanges two registers.
    Swap,
    /// Compares a register with another one, or with memory.
    Compare,
}

/// What an instruction does with pointers, and to which registers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Uses {
    pub flow: Flow,
    /// The general-purpose registers that it writes, one bit for each.
    pub written: u16,
    /// Those that go into its result.
    pub mixed: u16,
    /// Those that go into the address of its operand in memory; none where a segment base is added.
    pub based: u16,
}
