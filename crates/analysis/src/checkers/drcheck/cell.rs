//! An access to a word of memory, as the shadow of accesses keeps it.

use crate::order::{LocksetId, Off, StrandId};

/// In the place of a cell's number: there is no cell.
pub(super) const NONE: u32 = u32::MAX;

/// Kind of an access: a set of the constants below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kind(pub u8);

impl Kind {
    /// It wrote the bytes.
    pub const WRITE: Kind = Kind(1);
    /// It read and wrote, in one instruction.
    pub const UPDATE: Kind = Kind(2);
    /// It was an atomic instruction.
    pub const ATOMIC: Kind = Kind(4);
    /// It used the per-CPU segment.
    pub const PER_CPU: Kind = Kind(8);
    /// No other access to the bytes came before it.
    pub const FIRST: Kind = Kind(16);
    /// A kernel function made it for the driver.
    pub const CALLED: Kind = Kind(32);
    /// The same run of the driver read the bytes again under the same circumstances.
    pub const AGAIN: Kind = Kind(64);
    /// It wrote a whole array or object.
    pub const WHOLE: Kind = Kind(128);

    /// The bits that distinguish kinds of accesses.
    const KIND: u8 = 1 | 2 | 4 | 8;

    pub fn has(self, other: Kind) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn with(self, other: Kind) -> Kind {
        Kind(self.0 | other.0)
    }

    pub fn writes(self) -> bool {
        self.has(Kind::WRITE)
    }
}

/// What keeps an access apart from the accesses of other strands to its word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Apart {
    /// It races with one, or it has not been compared.
    #[default]
    Unknown,
    /// Order or locks do.
    Ordered,
    /// Locks alone do, or none of the others conflicts with it.
    Locked,
}

/// An access to a word, or several that were merged. Each lies in one line of the processor's cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Cell {
    /// Address of the instruction, or of the call.
    pub pc: u64,
    /// Time of the access, counted in accesses.
    pub event: u64,
    /// Time of the last access that was merged with it.
    pub last: u64,
    /// Number of the stack below `pc` (see [`super::scene::CallStacks`]).
    pub callers: u32,
    /// Number of the scene: context, held locks and states.
    pub scene: u32,
    /// The run of the driver.
    pub run: u32,
    /// The strand that made the access.
    pub strand: StrandId,
    /// The strand's clock at the access.
    pub clock: u32,
    /// The locks that were held.
    pub locks: LocksetId,
    /// The number of the word's next cell; [`NONE`] for the last.
    pub(super) next: u32,
    /// Which bytes of the word it covers, one bit each.
    pub mask: u8,
    /// Kind of the access.
    pub kind: Kind,
    /// What was off: irqs 1, softirqs 2, preemption 4.
    pub off: u8,
    /// What its comparison with the other cells of its word has shown.
    pub apart: Apart,
    /// No older cell of the word would have to yield to an equal access.
    pub alone: bool,
}

impl Cell {
    /// Whether the new access adds nothing to this one.
    #[inline]
    pub fn covers(&self, new: &Cell) -> bool {
        self.strand == new.strand
            && self.clock == new.clock
            && self.locks == new.locks
            && (self.kind.0 ^ new.kind.0) & Kind::KIND == 0
            && self.mask & new.mask == new.mask
            && self.off == new.off
    }

    /// Whether the new access replaces this one.
    #[inline]
    pub fn yields_to(&self, new: &Cell) -> bool {
        self.strand == new.strand
            && self.locks == new.locks
            && (self.kind.0 ^ new.kind.0) & Kind::KIND == 0
            && new.mask & self.mask == self.mask
            && self.off & new.off == new.off
    }

    /// Whether the new access differs from this one only in its time, and in the way that led to it.
    #[inline]
    pub fn is_like(&self, new: &Cell) -> bool {
        self.strand == new.strand
            && self.locks == new.locks
            && self.mask == new.mask
            && (self.kind.0 ^ new.kind.0) & Kind::KIND == 0
            && self.off == new.off
    }

    /// A cell of an access whose place in a word is not known yet.
    pub fn new(pc: u64, event: u64, run: u32, now: crate::order::Now, kind: Kind) -> Cell {
        Cell {
            pc,
            event,
            last: event,
            callers: 0,
            scene: 0,
            run,
            strand: now.strand,
            clock: now.clock,
            locks: now.locks,
            next: NONE,
            mask: 0,
            kind,
            off: off_bits(now.off),
            apart: Apart::default(),
            alone: false,
        }
    }
}

/// What is off, as the bits of [`Cell::off`].
pub(super) fn off_bits(off: Off) -> u8 {
    u8::from(off.irqs) | u8::from(off.softirqs) << 1 | u8::from(off.preemption) << 2
}
