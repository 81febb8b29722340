//! Decides which instructions are checked, and how.

use super::KAddrCheck;
use guardrail_client_api::binfmt::KernelImage;
use guardrail_client_api::iced_x86::{Instruction, InstructionInfoFactory, OpAccess, Register};
use guardrail_client_api::kernel::slab;
use guardrail_client_api::kernel::string_code;
use guardrail_client_api::{Block, When};

/// An instruction that accesses memory, as the data of its callback describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Guest virtual address of the instruction.
    pub pc: u64,
    /// Bytes of an access that are checked, or of each access of a string instruction. 0 for the whole
    /// access.
    pub size: u64,
    /// True where the instruction writes.
    pub store: bool,
    /// True for a string instruction that reads.
    pub loads: bool,
    /// True where all accesses of a string instruction are checked together.
    pub together: bool,
}

const ADDRESS: u64 = (1 << 48) - 1;

impl Site {
    /// Packs the site. Kernel addresses have ones above their 48 lower bits.
    fn data(self) -> u64 {
        self.pc & ADDRESS
            | self.size.min(127) << 48
            | u64::from(self.store) << 55
            | u64::from(self.loads) << 56
            | u64::from(self.together) << 57
    }

    /// Unpacks the data of a callback.
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

/// Link-time ranges of code with its own kind of check.
pub struct Sites {
    own: Vec<(u64, u64)>,
    strings: Vec<(u64, u64)>,
}

/// How an instruction is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    Nothing,
    /// Each access in this direction: its bytes, and whether it writes.
    Accesses(When, u64, bool),
    /// All accesses together, before the first: bytes of each, and whether it writes and reads.
    Together(u64, bool, bool),
}

fn within(ranges: &[(u64, u64)], addr: u64) -> bool {
    let next = ranges.partition_point(|range| range.0 <= addr);
    next > 0 && addr < ranges[next - 1].1
}

impl Sites {
    /// Finds the ranges in a kernel image.
    pub fn new(image: &KernelImage) -> Sites {
        Sites { own: slab::own_code(image), strings: string_code::ranges(image) }
    }

    /// Whether the code at this link-time address belongs to an allocator.
    pub fn is_own(&self, link: u64) -> bool {
        within(&self.own, link)
    }

    /// Registers the checks of a block.
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

/// Decides how an instruction is checked.
///
/// Some accesses need no check, because their memory exists as long as their code runs:
/// - accesses by rsp, which go to the stack;
/// - accesses relative to rip or absolute ones, which go to variables of the image;
/// - accesses by gs, which go to a CPU's own memory.
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
    // Compare and scan instructions end early, so the range of their accesses is known only afterwards.
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
        // A callback does not say which of the two operands it means, but both have the same size.
        return Check::Accesses(When::Both, 0, writes);
    }
    // An instruction that reads and writes the same bytes is checked once.
    let when = if reads { When::Reads } else { When::Writes };
    // QEMU splits an access that is wider than a general register.
    let size = if size <= 8 { size } else { 0 };
    Check::Accesses(when, size, writes)
}
