//! Sets of registers and flags.

use iced_x86::{Register, RflagsBits};

const FLAGS: [u32; 6] =
    [RflagsBits::OF, RflagsBits::SF, RflagsBits::ZF, RflagsBits::AF, RflagsBits::CF, RflagsBits::PF];
const FIRST_FLAG: u32 = 16;
const ALL_FLAGS: u32 = 0x3f << FIRST_FLAG;

/// Registers and flags, a bit each: general registers by number, then overflow, sign, zero, auxiliary, carry,
/// parity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set(u32);

impl Set {
    /// All registers and flags.
    pub const ALL: Set = Set(0xffff | ALL_FLAGS);
    /// The empty set.
    pub const NONE: Set = Set(0);
    /// All flags.
    pub const FLAGS: Set = Set(ALL_FLAGS);
    /// What a function may not change: RBX, RSP, RBP, R12 to R15.
    pub const KEPT: Set = Set(1 << 3 | 1 << 4 | 1 << 5 | 0xf000);
    /// What a call may change.
    pub const LOST: Set = Set(!Set::KEPT.0 & Set::ALL.0);
    /// Where arguments are: RDI, RSI, RDX, RCX, R8, R9, and the number of vector registers in AL.
    pub const ARGUMENTS: Set = Set(1 << 7 | 1 << 6 | 1 << 2 | 1 << 1 | 0x300 | 1);
    /// Where results are: RAX, RDX.
    pub const RESULTS: Set = Set(1 | 1 << 2);

    /// The set of one register; parts count as the whole, and what is no general register as nothing.
    pub fn register(register: Register) -> Set {
        let full = register.full_register();
        if full.is_gpr64() { Set(1 << (full as u32 - Register::RAX as u32)) } else { Set(0) }
    }

    /// The set of flags, given as [`RflagsBits`].
    pub fn flags(bits: u32) -> Set {
        let set = (0..).zip(FLAGS).filter(|(_, flag)| bits & flag != 0);
        Set(set.map(|(number, _)| 1 << (FIRST_FLAG + number)).sum())
    }

    /// What is in either set.
    pub fn with(self, other: Set) -> Set {
        Set(self.0 | other.0)
    }

    /// What is in this set but not in the other.
    pub fn without(self, other: Set) -> Set {
        Set(self.0 & !other.0)
    }

    /// What is in both sets.
    pub fn and(self, other: Set) -> Set {
        Set(self.0 & other.0)
    }

    /// Whether a register is in the set; parts count as the whole.
    pub fn has(self, register: Register) -> bool {
        self.and(Set::register(register)).0 != 0
    }

    /// Whether any of the flags is in the set.
    pub fn has_flags(self) -> bool {
        self.0 & ALL_FLAGS != 0
    }
}
