//! Event words: the vocabulary of the log.
//!
//! A log is a sequence of *segments*. A segment is what one vCPU did between two order points; it
//! carries a *ticket*, and tickets of a run are dense (0, 1, 2, …), so sorting by ticket gives one
//! total order that is an order that happened.
//!
//! A segment is a sequence of 64-bit words. Bit 63 set: a memory access ([`Access`]), one word.
//! Bit 63 clear: a record head: bits 62..56 are its [`Kind`], bits 55..48 a small payload `small`
//! and bits 47..0 a large one `large`; a fixed or announced number of operand words follows.

/// The number of registers that carry integer arguments in the System V ABI: rdi, rsi, rdx, rcx, r8, r9.
pub const MAX_ARGS: usize = 6;

/// The most words that one list has in the log.
pub const MAX_LIST_WORDS: u64 = 1024;

const MEM: u64 = 1 << 63;
const LOW48: u64 = (1 << 48) - 1;

/// One memory access of the instruction `insn` of the block that was last begun in this segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// Guest virtual address (canonical, 48 bits sign-extended).
    pub addr: u64,
    /// Size in bytes: 1, 2, 4, 8, 16, 32 or 64.
    pub size: u8,
    /// True for a store, false for a load; a read-modify-write gives a load, then a store.
    pub store: bool,
    /// True where the physical address belongs to a device and not to RAM.
    pub io: bool,
    /// Index of the instruction in its block.
    pub insn: u16,
}

impl Access {
    /// Largest instruction index that a word holds (a TCG block has at most 512 instructions).
    pub const MAX_INSN: u16 = 511;

    /// Packs the access into its word.
    #[inline]
    pub fn encode(self) -> u64 {
        let log2 = u64::from(self.size.trailing_zeros() & 7);
        MEM | log2 << 60
            | u64::from(self.store) << 59
            | u64::from(self.io) << 58
            | u64::from(self.insn & 0x1ff) << 48
            | self.addr & LOW48
    }

    /// Reads a word whose bit 63 is set; `None` for any other word.
    #[inline]
    pub fn decode(word: u64) -> Option<Access> {
        (word & MEM != 0).then(|| Access {
            addr: sign_extend(word & LOW48),
            size: 1 << (word >> 60 & 7),
            store: word >> 59 & 1 != 0,
            io: word >> 58 & 1 != 0,
            insn: (word >> 48 & 0x1ff) as u16,
        })
    }
}

#[inline]
fn sign_extend(low48: u64) -> u64 {
    ((low48 << 16) as i64 >> 16) as u64
}

/// What a record head says. The comment gives `small`, `large` and the operand words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A block begins. `large` = block number. No operands; accesses follow.
    Block = 1,
    /// The bytes of a block, once, before its first execution. `small` = 0, `large` = block number;
    /// operands: address, byte length (1..=8192), then the bytes, little endian, in ⌈length / 8⌉ words.
    BlockDef = 2,
    /// Driver code begins to run after other code ran on this vCPU. `small` = [`EnterFlags`], `large` =
    /// `preempt_count` (32 bits); operands: current task, rsp, rax, pid of the task; and with
    /// [`EnterFlags::ARGS`] also the six argument registers and the word at rsp (the return address).
    Enter = 3,
    /// A driver instruction transfers control out of the driver or indirectly, told before it executes.
    /// `small` = 1 for a jump (tail call), 0 for a call; `large` = target (low 48 bits);
    /// operands: rsp before the instruction, the six argument registers (0 for those in which the function takes no
    /// argument, where its prototype is known).
    Call = 4,
    /// An interrupt or exception hit the driver. `small` = 1 interrupt, 2 exception; `large` = pc it
    /// hit (low 48 bits); operands: pc of the handler, CR2 (the faulting address, where the exception is a page fault).
    /// A faulting access itself has no access word: callbacks come after accesses that succeeded.
    Discontinuity = 5,
    /// A hooked kernel function was entered. `small` = number of arguments and dereferences, `large` = hook
    /// number; operands: current task, rsp (points at the return address), return address, the arguments,
    /// then the values that the hook's dereferences found (0 where memory could not be read).
    HookCall = 6,
    /// A hooked kernel function returns. `small` = 0, `large` = hook number; operands: rsp (points at the
    /// return address), rax. Matches the innermost `HookCall` with the same rsp.
    HookRet = 7,
    /// A module has been laid out and relocated; none of its code has run. `small` = number of regions,
    /// `large` = address of `struct module`; operands: number of symbols, eight words of name (NUL
    /// padded), for each region start, size and flags (`RegionFlags`), then the value of each ELF symbol
    /// in the order of the file's symbol table.
    ModuleLoad = 8,
    /// A range of a module was given back while the module lives on (its init sections). `large` =
    /// address of `struct module`, or 0; operands: start, end.
    ModuleFree = 9,
    /// A module leaves. `large` = address of `struct module`.
    ModuleUnload = 10,
    /// A port access. `small` = size in bytes | 0x80 for `out`; `large` = insn index << 16 | port.
    Port = 11,
    /// A thread was seen for the first time. `small` = [`ThreadFlags`], `large` = pid; operands: task, two words of comm.
    Thread = 12,
    /// A value of the running kernel. `small` = [`Global`]; operand: the value.
    Global = 13,
    /// The last word of a ring whose vCPU ended in order. `large` = 0.
    End = 14,
    /// `rep movs`, `rep stos`, `rep lods`, `rep ins` or `rep outs` begins, told before it executes. `large` = insn
    /// index; operands: rcx, rsi, rdi. Its accesses to RAM have no words of their own (accesses to devices
    /// have). QEMU may run it in several pieces; each piece tells the remaining count. `repe`/`repne`
    /// comparisons have no such record and one access word for each element.
    Rep = 15,
    /// The running block ends after its first `large` instructions. QEMU stops a block at an instruction
    /// that accesses a device and goes on in a new block after it. Told before the accesses of that
    /// instruction (index `large` - 1), which are the last of the block, unless it was held: see [`Cut`](struct@Cut).
    Cut = 16,
    /// A driver function returns to the kernel, told after the return address was read. Operand: rax.
    Return = 17,
    /// The entries of a list that a hooked function was given, after its `HookCall` or `HookRet` in the same segment.
    /// `small` = index of the list in the hook's configuration, `large` = hook number; operands: rsp as in that
    /// record, number of words, then the words: for each entry the list's fields in order.
    List = 18,
    /// An access was held to see who comes meanwhile. `small` = [`MeetOutcome`](crate::meet::MeetOutcome), `large` = number
    /// of the pair of instructions, or all ones in the low 32 bits; operands: see [`Meet`](crate::meet::Meet).
    Meet = 19,
    /// A module that is not watched has been laid out and relocated. As [`Kind::ModuleLoad`], but the number of symbols is 0
    /// where they could not be read or are too many. None of its code is in the log: it gives names to addresses.
    OtherModule = 20,
    /// A module that is not watched leaves. `large` = address of `struct module`.
    OtherUnload = 21,
}

/// Bits of `small` in [`Kind::Enter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnterFlags(pub u8);

impl EnterFlags {
    /// Interrupts are enabled (RFLAGS.IF).
    pub const INTERRUPTS_ON: u8 = 1;
    /// The six arguments and the return address follow: the kernel calls a driver function.
    pub const ARGS: u8 = 2;
    /// A discontinuity happened on this vCPU since driver code last ran.
    pub const INTERRUPTED: u8 = 4;
}

/// Bits of `small` in [`Kind::Thread`]; neither where the tracer does not know.
pub struct ThreadFlags;

impl ThreadFlags {
    /// A thread of the kernel.
    pub const KERNEL: u8 = 1;
    /// A thread of a user process.
    pub const USER: u8 = 2;
}

/// What [`Kind::Cut`] says besides, in `small`.
pub struct Cut;

impl Cut {
    /// The block ends here; nothing of it runs again.
    pub const ENDS: u8 = 0;
    /// The last instruction has not run: it was held at the gate, and the block that begins with it tells its access again.
    pub const AGAIN_ACCESS: u8 = 1;
    /// The same of an access to a port.
    pub const AGAIN_PORT: u8 = 2;
}

/// Bits of a region's flags in [`Kind::ModuleLoad`].
pub struct RegionFlags;

impl RegionFlags {
    /// The region holds code.
    pub const TEXT: u64 = 1;
    /// The region holds init sections and goes when init is over.
    pub const INIT: u64 = 2;
    /// The region is read-only after relocation (or after init).
    pub const READ_ONLY: u64 = 4;
}

/// Values of the running kernel that [`Kind::Global`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
pub enum Global {
    /// What KASLR added to link-time text addresses.
    Slide = 1,
    /// `page_offset_base`: where the direct map begins.
    PageOffsetBase = 2,
    /// `vmemmap_base`: where the array of `struct page` begins.
    VmemmapBase = 3,
    /// `vmalloc_base`: where vmalloc and ioremap space begins.
    VmallocBase = 4,
    /// The GS base of the vCPU whose ring holds the record; told when the ring's vCPU first runs driver code or a hook.
    GsBase = 5,
    /// `system_freezable_wq`: a work queue that stands still while the system sleeps.
    FreezableQueue = 6,
    /// `system_freezable_power_efficient_wq`: another.
    FreezableEfficientQueue = 7,
}

impl Global {
    /// The value for `small`, if it is one we know.
    pub fn from_small(small: u8) -> Option<Global> {
        Some(match small {
            1 => Global::Slide,
            2 => Global::PageOffsetBase,
            3 => Global::VmemmapBase,
            4 => Global::VmallocBase,
            5 => Global::GsBase,
            6 => Global::FreezableQueue,
            7 => Global::FreezableEfficientQueue,
            _ => return None,
        })
    }
}

impl Kind {
    /// The kind for the seven bits of a head, if it is one we know.
    pub fn from_bits(bits: u8) -> Option<Kind> {
        use Kind::*;
        Some(match bits {
            1 => Block,
            2 => BlockDef,
            3 => Enter,
            4 => Call,
            5 => Discontinuity,
            6 => HookCall,
            7 => HookRet,
            8 => ModuleLoad,
            9 => ModuleFree,
            10 => ModuleUnload,
            11 => Port,
            12 => Thread,
            13 => Global,
            14 => End,
            15 => Rep,
            16 => Cut,
            17 => Return,
            18 => List,
            19 => Meet,
            20 => OtherModule,
            21 => OtherUnload,
            _ => return None,
        })
    }
}

/// The head word of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What the record is.
    pub kind: Kind,
    /// Eight bits whose meaning depends on the kind.
    pub small: u8,
    /// Forty-eight bits whose meaning depends on the kind.
    pub large: u64,
}

impl Head {
    /// Packs the head; `large` is cut to 48 bits.
    #[inline]
    pub fn encode(kind: Kind, small: u8, large: u64) -> u64 {
        (kind as u64) << 56 | u64::from(small) << 48 | large & LOW48
    }

    /// Reads a word whose bit 63 is clear; `None` for an access or an unknown kind.
    #[inline]
    pub fn decode(word: u64) -> Option<Head> {
        if word & MEM != 0 {
            return None;
        }
        Some(Head {
            kind: Kind::from_bits((word >> 56) as u8)?,
            small: (word >> 48) as u8,
            large: word & LOW48,
        })
    }

    /// `large` as a canonical address.
    #[inline]
    pub fn address(self) -> u64 {
        sign_extend(self.large)
    }

    /// How many operand words follow, given the words after the head (some records announce their
    /// length in an operand). `None` where `rest` is too short to tell or the announced length is absurd.
    pub fn operands(self, rest: &[u64]) -> Option<usize> {
        Some(match self.kind {
            Kind::Block | Kind::ModuleUnload | Kind::OtherUnload | Kind::Port | Kind::End | Kind::Cut => 0,
            Kind::BlockDef => {
                let bytes = *rest.get(1)?;
                if !(1..=8192).contains(&bytes) {
                    return None;
                }
                2 + bytes.div_ceil(8) as usize
            }
            Kind::Enter => {
                if self.small & EnterFlags::ARGS != 0 {
                    4 + MAX_ARGS + 1
                } else {
                    4
                }
            }
            Kind::Call => 1 + MAX_ARGS,
            Kind::Global => 1,
            Kind::Discontinuity => 2,
            Kind::HookCall => 3 + usize::from(self.small),
            Kind::HookRet => 2,
            Kind::ModuleLoad | Kind::OtherModule => {
                let symbols = *rest.first()?;
                if symbols > 1 << 20 {
                    return None;
                }
                1 + 8 + 3 * usize::from(self.small) + symbols as usize
            }
            Kind::ModuleFree => 2,
            Kind::Thread => 3,
            Kind::Rep => 3,
            Kind::Return => 1,
            Kind::Meet => crate::meet::MEET_WORDS,
            Kind::List => {
                let words = *rest.get(1)?;
                if words > MAX_LIST_WORDS {
                    return None;
                }
                2 + words as usize
            }
        })
    }
}

/// One event of a segment, borrowed from its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A memory access.
    Access(Access),
    /// Any other record: head and operands.
    Record(Head, &'a [u64]),
}

/// Why a segment's words cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A head of no known kind.
    #[error("word {index} of the segment has the unknown record kind {kind}")]
    UnknownKind {
        /// Index of the head in the segment.
        index: usize,
        /// The seven bits found.
        kind: u8,
    },
    /// A record that reaches beyond its segment, or announces an absurd length.
    #[error("the record at word {index} of the segment is cut short or has an impossible length")]
    BadLength {
        /// Index of the head in the segment.
        index: usize,
    },
}

/// Iterates over the events of a segment. After an error it ends.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    words: &'a [u64],
    at: usize,
}

impl<'a> Events<'a> {
    /// The events in `words`.
    pub fn new(words: &'a [u64]) -> Self {
        Events { words, at: 0 }
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = Result<Event<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let index = self.at;
        let word = *self.words.get(index)?;
        if let Some(access) = Access::decode(word) {
            self.at += 1;
            return Some(Ok(Event::Access(access)));
        }
        let rest = &self.words[index + 1..];
        let Some(head) = Head::decode(word) else {
            self.at = self.words.len();
            return Some(Err(DecodeError::UnknownKind { index, kind: (word >> 56) as u8 }));
        };
        match head.operands(rest) {
            Some(n) if n <= rest.len() => {
                self.at += 1 + n;
                Some(Ok(Event::Record(head, &rest[..n])))
            }
            _ => {
                self.at = self.words.len();
                Some(Err(DecodeError::BadLength { index }))
            }
        }
    }
}

/// The execution context that a `preempt_count` tells: `process`, `softirq`, `hardirq` or `nmi` (include/linux/preempt.h). Bottom
/// halves that are only held off count twice as much as one that is served.
pub fn level(preempt_count: u32) -> &'static str {
    match preempt_count {
        count if count & 0x00f0_0000 != 0 => "nmi",
        count if count & 0x000f_0000 != 0 => "hardirq",
        count if count & 0x0000_0100 != 0 => "softirq",
        _ => "process",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_survives_a_round_trip() {
        for size in [1u8, 2, 4, 8, 16, 32, 64] {
            for (addr, store, io, insn) in
                [(0xffff_8880_0123_4567, true, false, 0), (0x7fff_1234, false, true, 511)]
            {
                let access = Access { addr, size, store, io, insn };
                assert_eq!(Access::decode(access.encode()), Some(access));
            }
        }
    }

    #[test]
    fn records_and_accesses_alternate() {
        let words = [
            Head::encode(Kind::Block, 0, 7),
            Access { addr: 8, size: 4, store: false, io: false, insn: 2 }.encode(),
            Head::encode(Kind::HookRet, 0, 3),
            1,
            2,
        ];
        let events: Vec<_> = Events::new(&words).map(Result::unwrap).collect();
        assert_eq!(events.len(), 3);
        assert!(matches!(events[2], Event::Record(h, [1, 2]) if h.kind == Kind::HookRet));
    }

    #[test]
    fn other_modules_are_as_long_as_they_say() {
        let mut words = vec![Head::encode(Kind::OtherModule, 1, 0xffff_ffff_c000_8000), 2];
        words.extend([0; 8]);
        words.extend([0xffff_ffff_c000_0000, 0x1000, RegionFlags::TEXT, 7, 8]);
        words.push(Head::encode(Kind::OtherUnload, 0, 0xffff_ffff_c000_8000));
        let events: Vec<_> = Events::new(&words).map(Result::unwrap).collect();
        assert!(matches!(events[0], Event::Record(_, [2, .., 7, 8])));
        let Event::Record(head, []) = events[1] else { panic!("{events:?}") };
        assert_eq!((head.kind, head.address()), (Kind::OtherUnload, 0xffff_ffff_c000_8000));
        words[1] = 1 << 21;
        assert!(Events::new(&words).next().unwrap().is_err());
    }

    #[test]
    fn a_cut_record_is_an_error_and_ends_the_iteration() {
        let words = [Head::encode(Kind::HookRet, 0, 3), 1];
        let mut events = Events::new(&words);
        assert_eq!(events.next(), Some(Err(DecodeError::BadLength { index: 0 })));
        assert_eq!(events.next(), None);
    }
}
