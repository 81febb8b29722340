//! Finds the instructions that may access devices, when QEMU translates a block.

use super::insn::{self, Special};
use guardrail_plugin::registers::Flags;
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

/// An instruction that may access a device.
pub struct GateSite {
    /// Guest virtual address of the instruction.
    pub address: u64,
    /// Index of the instruction in its block.
    pub index: u16,
    /// The decoded instruction.
    pub insn: Instruction,
    /// State of the arithmetic flags before it, which decides whether a vCPU can return to it.
    pub flags: Flags,
    /// True where the instruction belongs to a watched module.
    pub driver: bool,
    /// The memory or ports that it accesses.
    pub access: GateAccess,
    /// Address expression of its memory operand.
    pub operand: AddressExpression,
}

/// The address expression of a memory operand. Registers have their hardware numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressExpression {
    base: Option<u8>,
    index: Option<u8>,
    scale: u64,
    displacement: u64,
}

impl AddressExpression {
    fn of(insn: &Instruction) -> AddressExpression {
        let number = |register: Register| (register != Register::None).then(|| register.number() as u8);
        AddressExpression {
            base: number(insn.memory_base()),
            index: number(insn.memory_index()),
            scale: u64::from(insn.memory_index_scale()),
            displacement: insn.memory_displacement64(),
        }
    }

    /// Computes the address from the values of registers.
    #[inline]
    pub fn address(&self, mut register: impl FnMut(usize) -> u64) -> u64 {
        let base = self.base.map_or(0, |base| register(usize::from(base)));
        let index = self.index.map_or(0, |index| register(usize::from(index)).wrapping_mul(self.scale));
        base.wrapping_add(index).wrapping_add(self.displacement)
    }
}

/// The memory or ports that an instruction accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateAccess {
    /// Memory at its one operand, once.
    Memory {
        /// Length in bytes.
        size: u8,
        /// True where the instruction only stores.
        store: bool,
        /// True where the instruction either loads or stores, but not both. Its access is logged before
        /// it happens.
        plain: bool,
    },
    /// Memory at rsi, rdi or both; with `rep`, as often as rcx says.
    String {
        /// True where it reads at rsi.
        source: bool,
        /// `None` where it does not access rdi, else whether it writes there.
        target: Option<bool>,
        /// True with a repeat prefix: rcx is the number of repetitions.
        rep: bool,
        /// Bytes per repetition.
        size: u8,
    },
    /// A port; with `rep`, as often as rcx says.
    Port {
        /// Bytes per repetition.
        size: u8,
        /// True where it writes to the port.
        out: bool,
        /// Number of the port; `None` where dx has it.
        port: Option<u8>,
        /// True for a repeated string instruction.
        rep: bool,
    },
}

/// The instructions of a block that may access devices. `driver` says whether it belongs to a watched
/// module.
pub fn sites(insns: &[Instruction], driver: bool) -> Box<[GateSite]> {
    let site = |(index, insn): (u16, &Instruction)| {
        let access = access(insn)?;
        let flags = insn::flags(insns, usize::from(index));
        Some(GateSite {
            address: insn.ip(),
            index,
            insn: *insn,
            flags,
            driver,
            access,
            operand: AddressExpression::of(insn),
        })
    };
    (0u16..).zip(insns).filter_map(site).collect()
}

/// What an instruction may access. `None` where that cannot be a device.
pub fn access(insn: &Instruction) -> Option<GateAccess> {
    if let Special::Port { size, out, port, rep } = insn::special(insn) {
        return Some(GateAccess::Port { size, out, port, rep });
    }
    let size = insn.memory_size().size().min(64) as u8;
    if size == 0 || matches!(insn.mnemonic(), Mnemonic::Lea | Mnemonic::Nop | Mnemonic::Call | Mnemonic::Jmp)
    {
        return None;
    }
    let kinds = || (0..insn.op_count()).map(|i| insn.op_kind(i));
    let source = kinds().any(|kind| kind == OpKind::MemorySegRSI);
    let target = kinds().any(|kind| kind == OpKind::MemoryESRDI);
    if source || target {
        let writes = !matches!(
            insn.mnemonic(),
            Mnemonic::Scasb
                | Mnemonic::Scasw
                | Mnemonic::Scasd
                | Mnemonic::Scasq
                | Mnemonic::Cmpsb
                | Mnemonic::Cmpsw
                | Mnemonic::Cmpsd
                | Mnemonic::Cmpsq
        );
        let rep = insn.has_rep_prefix() || insn.has_repne_prefix();
        return Some(GateAccess::String { source, target: target.then_some(writes), rep, size });
    }
    let operand = kinds().position(|kind| kind == OpKind::Memory)? as u32;
    let elsewhere = matches!(insn.memory_base(), Register::RSP | Register::RIP | Register::EIP)
        || matches!(insn.segment_prefix(), Register::GS | Register::FS);
    if elsewhere {
        return None;
    }
    let mut info = InstructionInfoFactory::new();
    let (store, plain) = match info.info(insn).op_access(operand) {
        OpAccess::None | OpAccess::NoMemAccess => return None,
        OpAccess::Read => (false, true),
        OpAccess::Write => (true, true),
        OpAccess::CondRead => (false, false),
        _ => (true, false),
    };
    Some(GateAccess::Memory { size, store, plain })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Option<GateAccess> {
        access(&insn::decode(0x1000, bytes)[0])
    }

    #[test]
    fn moves_through_pointers_may_access_devices() {
        // mov eax,[rdi]; mov [rsi+8],edx; movzx eax,byte [rdi]; or dword [rax],1; xchg [rdi],eax
        assert_eq!(of(&[0x8b, 0x07]), Some(GateAccess::Memory { size: 4, store: false, plain: true }));
        assert_eq!(of(&[0x89, 0x56, 0x08]), Some(GateAccess::Memory { size: 4, store: true, plain: true }));
        assert_eq!(of(&[0x0f, 0xb6, 0x07]), Some(GateAccess::Memory { size: 1, store: false, plain: true }));
        assert_eq!(of(&[0x83, 0x08, 0x01]), Some(GateAccess::Memory { size: 4, store: true, plain: false }));
        assert_eq!(of(&[0x87, 0x07]), Some(GateAccess::Memory { size: 4, store: true, plain: false }));
    }

    #[test]
    fn stack_module_data_per_cpu_memory_and_addresses_are_no_devices() {
        // mov rax,[rsp+8]; mov eax,[rip+0]; mov rax,gs:[rdi]; lea rax,[rdi]; push rax; call [rax]; nop dword [rax]
        for bytes in [
            &[0x48, 0x8b, 0x44, 0x24, 0x08][..],
            &[0x8b, 0x05, 0, 0, 0, 0],
            &[0x65, 0x48, 0x8b, 0x07],
            &[0x48, 0x8d, 0x07],
            &[0x50],
            &[0xff, 0x10],
            &[0x0f, 0x1f, 0x00],
        ] {
            assert_eq!(of(bytes), None, "{bytes:x?}");
        }
    }

    #[test]
    fn addresses_are_worked_out_from_registers() {
        // mov eax,[rbx+rcx*4-8]
        let insn = insn::decode(0x1000, &[0x8b, 0x44, 0x8b, 0xf8])[0];
        let value = |register: usize| [0, 3, 0, 0x1000][register];
        assert_eq!(AddressExpression::of(&insn).address(value), 0x1000 + 12 - 8);
    }

    #[test]
    fn string_instructions_and_ports() {
        // rep movsd; stosb; in al,dx; out 0x70,al; rep insw
        assert_eq!(
            of(&[0xf3, 0xa5]),
            Some(GateAccess::String { source: true, target: Some(true), rep: true, size: 4 })
        );
        assert_eq!(
            of(&[0xaa]),
            Some(GateAccess::String { source: false, target: Some(true), rep: false, size: 1 })
        );
        assert_eq!(of(&[0xec]), Some(GateAccess::Port { size: 1, out: false, port: None, rep: false }));
        assert_eq!(
            of(&[0xe6, 0x70]),
            Some(GateAccess::Port { size: 1, out: true, port: Some(0x70), rep: false })
        );
        assert_eq!(
            of(&[0x66, 0xf3, 0x6d]),
            Some(GateAccess::Port { size: 2, out: false, port: None, rep: true })
        );
    }
}
