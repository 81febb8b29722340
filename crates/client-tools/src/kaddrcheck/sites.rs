//! Which instructions are checked, and how.

use super::KAddrCheck;
use guardrail_client_api::binfmt::KernelImage;
use guardrail_client_api::iced_x86::{Instruction, InstructionInfoFactory, OpAccess, Register};
use guardrail_client_api::kernel::slab;
use guardrail_client_api::kernel::string_code;
use guardrail_client_api::{Block, When};

/// An instruction that accesses memory, as its callback is told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its address.
    pub pc: u64,
    /// Bytes that are checked of an access, or of each one of a string instruction; 0 for as many as there are.
    pub size: u64,
    /// It writes.
    pub store: bool,
    /// A string instruction that reads.
    pub loads: bool,
    /// All accesses of a string instruction at once.
    pub together: bool,
}

const ADDRESS: u64 = (1 << 48) - 1;

impl Site {
    /// Kernel addresses have ones above their 48 lower bits.
    fn data(self) -> u64 {
        self.pc & ADDRESS
            | self.size.min(127) << 48
            | u64::from(self.store) << 55
            | u64::from(self.loads) << 56
            | u64::from(self.together) << 57
    }

    /// The reverse of what was registered.
    #[inline]
    pub fn from_data(data: u64) -> Site {
        Site {
            pc: data | !ADDRESS,
            size: data >> 48 & 127,
            store: data >> 55 & 1 != 0,
            loads: data >> 56 & 1 != 0,
            together: data >> 57 & 1 != 0,
        }
    }
}

/// Which code is checked in which way; link-time ranges.
pub struct Sites {
    own: Vec<(u64, u64)>,
    strings: Vec<(u64, u64)>,
}

/// What is done about an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    Nothing,
    /// Each access of these.
    Accesses(When, u64, bool),
    /// All accesses together, before the first: bytes of each, whether it writes and reads.
    Together(u64, bool, bool),
}

fn within(ranges: &[(u64, u64)], addr: u64) -> bool {
    let next = ranges.partition_point(|range| range.0 <= addr);
    next > 0 && addr < ranges[next - 1].1
}

impl Sites {
    /// Those of a kernel.
    pub fn new(image: &KernelImage) -> Sites {
        Sites { own: slab::own_code(image), strings: string_code::ranges(image) }
    }

    /// The allocators' own code.
    pub fn is_own(&self, link: u64) -> bool {
        within(&self.own, link)
    }

    /// Registers what is checked of a block.
    pub fn instrument(&self, block: &mut Block<KAddrCheck>, slide: u64) {
        let link = block.address().wrapping_sub(slide);
        if self.is_own(link) {
            return;
        }
        let first_only = within(&self.strings, link);
        let mut factory = InstructionInfoFactory::new();
        let checks: Vec<(usize, Check)> = block
            .insns()
            .iter()
            .enumerate()
            .map(|(index, insn)| (index, check(&mut factory, insn)))
            .filter(|(_, check)| *check != Check::Nothing)
            .collect();
        for (index, check) in checks {
            let pc = block.insn_address(index);
            match check {
                Check::Nothing => {}
                Check::Accesses(when, size, store) => {
                    let size = if first_only && !store { 1 } else { size };
                    block.accesses(
                        index,
                        when,
                        Site { pc, size, store, loads: false, together: false }.data(),
                    );
                }
                Check::Together(size, store, loads) => {
                    block.call_at(index, Site { pc, size, store, loads, together: true }.data());
                }
            }
        }
    }
}

/// Accesses by rsp are the stack's, those relative to rip or absolute are variables of the image, and those by gs are a CPU's
/// own: all of these exist as long as their code runs.
fn check(factory: &mut InstructionInfoFactory, insn: &Instruction) -> Check {
    let info = factory.info(insn);
    let checked = |register: Register| {
        !matches!(register.full_register(), Register::None | Register::RSP | Register::RIP)
    };
    let (mut count, mut reads, mut writes, mut size) = (0, false, false, 0);
    for memory in info.used_memory() {
        if matches!(memory.segment(), Register::GS | Register::FS) || !checked(memory.base()) {
            continue;
        }
        match memory.access() {
            OpAccess::Read | OpAccess::CondRead => reads = true,
            OpAccess::Write | OpAccess::CondWrite => writes = true,
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
                reads = true;
                writes = true;
            }
            OpAccess::None | OpAccess::NoMemAccess => continue,
        }
        count += 1;
        size = memory.memory_size().size() as u64;
    }
    if count == 0 {
        return Check::Nothing;
    }
    let repeats = insn.has_rep_prefix() && insn.is_string_instruction();
    let unit = insn.memory_size().size() as u64;
    // Comparing and scanning end early, so their reach is known only when they have ended.
    let ends_early = insn.has_repne_prefix()
        || matches!(
            insn.mnemonic(),
            guardrail_client_api::iced_x86::Mnemonic::Cmpsb
                | guardrail_client_api::iced_x86::Mnemonic::Cmpsw
                | guardrail_client_api::iced_x86::Mnemonic::Cmpsd
                | guardrail_client_api::iced_x86::Mnemonic::Cmpsq
                | guardrail_client_api::iced_x86::Mnemonic::Scasb
                | guardrail_client_api::iced_x86::Mnemonic::Scasw
                | guardrail_client_api::iced_x86::Mnemonic::Scasd
                | guardrail_client_api::iced_x86::Mnemonic::Scasq
        );
    if repeats && !ends_early && matches!(unit, 1 | 2 | 4 | 8) {
        return Check::Together(unit, writes, reads);
    }
    if count > 1 {
        // Two operands: of which one a callback tells is not said, but their size is the same.
        return Check::Accesses(When::Both, 0, writes);
    }
    // What reads and writes the same bytes is checked once.
    let when = if reads { When::Reads } else { When::Writes };
    // QEMU makes several accesses of what is wider than a general register.
    let size = if size <= 8 { size } else { 0 };
    Check::Accesses(when, size, writes)
}
