//! Event words: the vocabulary of the log.
//!
//! A log is a sequence of *segments*. A segment is what one vCPU did between two order points, and
//! carries a *ticket*. Tickets of a run are dense (0, 1, 2, …). Sorting by ticket gives one total order,
//! and the run really happened in that order.
//!
//! A segment is a sequence of 64-bit words. A word with bit 63 set is one memory access ([`Access`]). A
//! word with bit 63 clear is a record head. Its bits 62..56 are the [`Kind`], bits 55..48 a small
//! payload `small`, and bits 47..0 a large payload `large`. After the head follow operand words, in a
//! number that is fixed or announced.

/// Number of registers that carry integer arguments in the System V ABI: rdi, rsi, rdx, rcx, r8, r9.
pub const MAX_ARGS: usize = 6;

/// Most words of one list in the log.
pub const MAX_LIST_WORDS: u64 = 1024;
/// Most frames of one stack in the log.
pub const MAX_STACK: usize = 64;
/// Most stacks that one vCPU's ring defines.
pub const MAX_STACKS: u64 = 1 << 16;
/// Number of operand words of a record of the kind `Meet`.
pub const MEET_WORDS: usize = 20;

const MEM: u64 = 1 << 63;
const LOW48: u64 = (1 << 48) - 1;

/// One memory access by the instruction `insn` of the block that began last in this segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// Guest virtual address (canonical: 48 bits, sign-extended).
    pub addr: u64,
    /// Size in bytes: 1, 2, 4, 8, 16, 32 or 64.
    pub size: u8,
    /// True for a store, false for a load. A read-modify-write gives a load, then a store.
    pub store: bool,
    /// True where the physical address belongs to a device and not to RAM.
    pub io: bool,
    /// Index of the instruction in its block, from 0.
    pub insn: u16,
}

impl Access {
    /// Largest instruction index that a word can hold. A TCG block has at most 512 instructions.
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

    /// Unpacks a word whose bit 63 is set; `None` for any other word.
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

/// The kind of a record. Each comment gives `small`, `large` and the operand words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A block begins. `large` = block number. No operands; accesses follow.
    Block = 1,
    /// The bytes of a block, once, before its first execution. `small` = 0, `large` = block number.
    /// Operands: address, byte length (1..=8192), then the bytes in little-endian order, in ⌈length / 8⌉
    /// words.
    BlockDef = 2,
    /// Driver code begins to run after other code ran on this vCPU. `small` = [`EnterFlags`], `large` =
    /// `preempt_count` (32 bits). Operands: current task, rsp, rax, pid of the task.
    /// [`EnterFlags::ARGS`] adds the six argument registers and the word at rsp (the return address).
    /// [`EnterFlags::STACK`] adds the number of the stack above, from 1; 0 where the tracer numbers no more.
    Enter = 3,
    /// A driver instruction transfers control out of the driver, or indirectly; logged before it
    /// executes. `small` = 1 for a jump (tail call), 0 for a call; `large` = target (low 48 bits).
    /// Operands: rsp before the instruction, then the six argument registers. Where the prototype is
    /// known, registers without an argument are 0.
    Call = 4,
    /// An interrupt or exception hit the driver. `small` = 1 for an interrupt, 2 for an exception;
    /// `large` = the interrupted pc (low 48 bits). Operands: pc of the handler, and CR2 (the faulting
    /// address, for a page fault). A faulting access has no access word, because callbacks follow
    /// accesses that succeeded.
    Discontinuity = 5,
    /// A hooked kernel function was entered. `small` = number of arguments and dereferences, `large` =
    /// hook number. Operands: current task, rsp (points at the return address), return address, the
    /// arguments, then the values of the hook's dereferences. A dereference is 0 where its memory could
    /// not be read.
    HookCall = 6,
    /// A hooked kernel function returns. `small` = 0, `large` = hook number. Operands: rsp (points at
    /// the return address), rax. It matches the innermost `HookCall` with the same rsp.
    HookRet = 7,
    /// A module has been laid out and relocated; none of its code has run. `small` = number of regions,
    /// `large` = address of `struct module`. Operands:
    /// - number of symbols;
    /// - eight words of name (NUL padded);
    /// - for each region start, size and flags (`RegionFlags`);
    /// - the value of each ELF symbol, in the order of the file's symbol table.
    ModuleLoad = 8,
    /// The kernel freed a range of a module that stays loaded (its init sections). `large` = address of
    /// `struct module`, or 0. Operands: start, end.
    ModuleFree = 9,
    /// The kernel unloads a module. `large` = address of `struct module`.
    ModuleUnload = 10,
    /// A port access. `small` = size in bytes | 0x80 for `out`; `large` = instruction index << 16 |
    /// port.
    Port = 11,
    /// A thread was seen for the first time. `small` = [`ThreadFlags`], `large` = pid. Operands: task,
    /// two words of comm.
    Thread = 12,
    /// A value of the running kernel. `small` = [`Global`]. Operand: the value.
    Global = 13,
    /// The last word of a ring whose vCPU ended in order. `large` = 0.
    End = 14,
    /// `rep movs`, `rep stos`, `rep lods`, `rep ins` or `rep outs` begins; logged before it executes.
    /// `large` = instruction index. Operands: rcx, rsi, rdi. Its accesses to RAM have no words of their
    /// own; its accesses to devices have. QEMU may run it in several pieces, and each piece logs the
    /// remaining count. `repe`/`repne` comparisons have no such record, but one access word for each
    /// element.
    Rep = 15,
    /// The running block ends after its first `large` instructions. QEMU stops a block at an instruction
    /// that accesses a device, and continues in a new block after it. The record precedes the accesses
    /// of that instruction (index `large` - 1), which are the block's last. An instruction that was held
    /// differs: see [`Cut`](struct@Cut). A vCPU that waits before an instruction ends its block there, and begins
    /// another one with it.
    Cut = 16,
    /// A driver function returns to the kernel; logged after the return address was read. Operand: rax.
    Return = 17,
    /// The entries of a list that a hooked function got, after its `HookCall` or `HookRet` in the same
    /// segment. `small` = index of the list in the hook's configuration, `large` = hook number.
    /// Operands: rsp as in that record, number of words, then the words: for each entry the list's
    /// fields in order.
    List = 18,
    /// The tracer held an access to see which access arrives meanwhile. `small` =
    /// [`MeetOutcome`](crate::meet::MeetOutcome), `large` = number of the instruction pair, or all ones
    /// in the low 32 bits. Operands: see [`Meet`](crate::meet::Meet).
    Meet = 19,
    /// A module that is not watched has been laid out and relocated. As [`Kind::ModuleLoad`], but the
    /// number of symbols is 0 where they could not be read or are too many. The log has none of its
    /// code; the record gives names to addresses.
    OtherModule = 20,
    /// The kernel unloads a module that is not watched. `large` = address of `struct module`.
    OtherUnload = 21,
    /// A stack of the kernel above a function of the driver, once, before the first `Enter` with its number.
    /// `small` = number of frames (1..=64), `large` = number of the stack, dense from 1 in each ring.
    /// Operands: a [`StackFrame`] for each frame, innermost first. The first is where the driver returns to.
    Stack = 22,
}

/// Bits of `small` in [`Kind::Enter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnterFlags(pub u8);

impl EnterFlags {
    /// Interrupts are enabled (RFLAGS.IF).
    pub const INTERRUPTS_ON: u8 = 1;
    /// The six arguments and the return address follow, because the kernel calls a driver function.
    pub const ARGS: u8 = 2;
    /// A discontinuity happened on this vCPU since driver code last ran.
    pub const INTERRUPTED: u8 = 4;
    /// The number of a stack follows ([`Kind::Stack`]).
    pub const STACK: u8 = 8;
}

/// One frame of a stack, as a word: the address in bits 47..0, flags above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackFrame {
    /// Where the frame goes on (canonical: 48 bits, sign-extended).
    pub address: u64,
    /// True where the code was interrupted there, and has not called.
    pub interrupted: bool,
    /// True where the frame before lies on another stack: that of an interrupt.
    pub switched: bool,
}

impl StackFrame {
    /// Packs the frame into its word.
    pub fn encode(self) -> u64 {
        self.address & LOW48 | u64::from(self.interrupted) << 48 | u64::from(self.switched) << 49
    }

    /// Unpacks a word. Other bits have no meaning.
    pub fn decode(word: u64) -> StackFrame {
        StackFrame {
            address: sign_extend(word & LOW48),
            interrupted: word >> 48 & 1 != 0,
            switched: word >> 49 & 1 != 0,
        }
    }
}

/// Bits of `small` in [`Kind::Thread`]. Neither is set where the tracer does not know.
pub struct ThreadFlags;

impl ThreadFlags {
    /// A kernel thread.
    pub const KERNEL: u8 = 1;
    /// A thread of a user process.
    pub const USER: u8 = 2;
}

/// Values of `small` in [`Kind::Cut`]: whether the last instruction runs again.
pub struct Cut;

impl Cut {
    /// The block ends here; none of its instructions runs again.
    pub const ENDS: u8 = 0;
    /// The last instruction has not run, because the gate held it. The block that begins with it logs
    /// its access again.
    pub const AGAIN_ACCESS: u8 = 1;
    /// Like [`AGAIN_ACCESS`](Self::AGAIN_ACCESS), for a port access.
    pub const AGAIN_PORT: u8 = 2;
}

/// Bits of a region's flags in [`Kind::ModuleLoad`].
pub struct RegionFlags;

impl RegionFlags {
    /// The region holds code.
    pub const TEXT: u64 = 1;
    /// The region holds init sections, which the kernel frees after init.
    pub const INIT: u64 = 2;
    /// The region is read-only after relocation (or after init).
    pub const READ_ONLY: u64 = 4;
}

/// Values of the running kernel that [`Kind::Global`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
pub enum Global {
    /// The KASLR slide of link-time text addresses.
    Slide = 1,
    /// `page_offset_base`: the start of the direct map.
    PageOffsetBase = 2,
    /// `vmemmap_base`: the start of the array of `struct page`.
    VmemmapBase = 3,
    /// `vmalloc_base`: the start of vmalloc and ioremap space.
    VmallocBase = 4,
    /// The GS base of the vCPU whose ring holds the record. Logged when that vCPU first runs driver code
    /// or a hook.
    GsBase = 5,
    /// `system_freezable_wq`: a work queue that does not run while the system sleeps.
    FreezableQueue = 6,
    /// `system_freezable_power_efficient_wq`: another such work queue.
    FreezableEfficientQueue = 7,
}

impl Global {
    /// The value for `small`; `None` where this version does not know it.
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
    /// The kind for the seven bits of a head; `None` where this version does not know it.
    #[inline]
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
            22 => Stack,
            _ => return None,
        })
    }
}

/// The head word of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The kind of the record.
    pub kind: Kind,
    /// Eight bits whose meaning depends on the kind.
    pub small: u8,
    /// Forty-eight bits whose meaning depends on the kind.
    pub large: u64,
}

impl Head {
    /// Packs the head. `large` is cut to 48 bits.
    #[inline]
    pub fn encode(kind: Kind, small: u8, large: u64) -> u64 {
        (kind as u64) << 56 | u64::from(small) << 48 | large & LOW48
    }

    /// Unpacks a word whose bit 63 is clear; `None` for an access or an unknown kind.
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

    /// `large` as a canonical address, sign-extended from 48 bits.
    #[inline]
    pub fn address(self) -> u64 {
        sign_extend(self.large)
    }

    /// How many operand words follow, given the words after the head. Some records announce their length
    /// in an operand. `None` where `rest` is too short or the announced length is absurd.
    #[inline]
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
                let args = if self.small & EnterFlags::ARGS != 0 { MAX_ARGS + 1 } else { 0 };
                4 + args + usize::from(self.small & EnterFlags::STACK != 0)
            }
            Kind::Stack => Some(usize::from(self.small)).filter(|count| (1..=MAX_STACK).contains(count))?,
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
            Kind::Meet => MEET_WORDS,
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
    /// Any other record: its head and its operand words.
    Record(Head, &'a [u64]),
}

/// Why a segment's words cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A record head has no known kind.
    #[error("word {index} of the segment has the unknown record kind {kind}")]
    UnknownKind {
        /// Index of the head in the segment.
        index: usize,
        /// The seven bits of the kind.
        kind: u8,
    },
    /// A record reaches beyond its segment, or announces an absurd length.
    #[error("the record at word {index} of the segment is cut short or has an impossible length")]
    BadLength {
        /// Index of the head in the segment.
        index: usize,
    },
}

/// Iterates over the events of a segment. It ends after an error.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    words: &'a [u64],
    at: usize,
}

impl<'a> Events<'a> {
    /// Iterates over the events in `words`.
    pub fn new(words: &'a [u64]) -> Self {
        Events { words, at: 0 }
    }

    /// The next event if it is an access.
    #[inline]
    pub fn next_access(&mut self) -> Option<Access> {
        let access = Access::decode(*self.words.get(self.at)?)?;
        self.at += 1;
        Some(access)
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = Result<Event<'a>, DecodeError>;

    #[inline]
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

/// The level that a `preempt_count` means: `process`, `softirq`, `hardirq` or `nmi`
/// (include/linux/preempt.h). Disabled bottom halves count twice as much as a running one.
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
    fn stacks_and_entries_have_the_words_that_they_announce() {
        let frames = [(0xffff_ffff_8100_0010, false, false), (0xffff_ffff_8200_0020, true, true)];
        let frames =
            frames.map(|(address, interrupted, switched)| StackFrame { address, interrupted, switched });
        let mut words = vec![Head::encode(Kind::Stack, 2, 7)];
        words.extend(frames.map(StackFrame::encode));
        for (flags, more) in [(0, 0), (EnterFlags::ARGS, 7), (EnterFlags::ARGS | EnterFlags::STACK, 8)] {
            words.push(Head::encode(Kind::Enter, flags, 0));
            words.extend(vec![3; 4 + more]);
        }
        let events: Vec<_> = Events::new(&words).map(Result::unwrap).collect();
        let Event::Record(head, operands) = events[0] else { panic!("{events:?}") };
        assert_eq!((head.kind, head.large), (Kind::Stack, 7));
        assert!(operands.iter().map(|&word| StackFrame::decode(word)).eq(frames));
        let lengths = events[1..].iter().map(|event| match event {
            Event::Record(head, operands) if head.kind == Kind::Enter => operands.len(),
            _ => 0,
        });
        assert!(lengths.eq([4, 11, 12]));
        for count in [0, 65] {
            let words = [Head::encode(Kind::Stack, count, 1); 80];
            assert!(Events::new(&words).next().unwrap().is_err());
        }
    }

    #[test]
    fn a_cut_record_is_an_error_and_ends_the_iteration() {
        let words = [Head::encode(Kind::HookRet, 0, 3), 1];
        let mut events = Events::new(&words);
        assert_eq!(events.next(), Some(Err(DecodeError::BadLength { index: 0 })));
        assert_eq!(events.next(), None);
    }
}
