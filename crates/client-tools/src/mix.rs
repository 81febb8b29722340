//! `mix`: which kinds of instructions run.

use guardrail_client_api::iced_x86::{
    CpuidFeature, FlowControl, Instruction, Mnemonic, OpAccess, OpKind, Register,
};
use guardrail_client_api::iced_x86::{InstructionInfoFactory, MemorySize};
use guardrail_client_api::{Block, Cell, Client, Counter, Results, Setup, Table};

/// The kinds of instructions. Each instruction has the first kind that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Locked,
    String,
    Call,
    Return,
    Branch,
    Jump,
    System,
    Privileged,
    Simd,
    Float,
    Stack,
    Load,
    Store,
    LoadStore,
    Move,
    Compare,
    Arithmetic,
    Nothing,
    Other,
}

const KINDS: [(Kind, &str); 19] = [
    (Kind::Locked, "locked (lock prefix, xchg with memory)"),
    (Kind::String, "string (movs, stos …)"),
    (Kind::Call, "call"),
    (Kind::Return, "return"),
    (Kind::Branch, "conditional branch"),
    (Kind::Jump, "jump"),
    (Kind::System, "system call and return, interrupt return"),
    (Kind::Privileged, "privileged"),
    (Kind::Simd, "SIMD"),
    (Kind::Float, "x87"),
    (Kind::Stack, "push and pop"),
    (Kind::Load, "plain load"),
    (Kind::Store, "plain store"),
    (Kind::LoadStore, "arithmetic on memory"),
    (Kind::Move, "move between registers"),
    (Kind::Compare, "compare and test"),
    (Kind::Arithmetic, "arithmetic and logic"),
    (Kind::Nothing, "no operation, hints"),
    (Kind::Other, "other"),
];

/// The `mix` client.
pub struct Mix {
    counters: Vec<Counter>,
    reads: Counter,
    writes: Counter,
}

impl Client for Mix {
    const NAME: &'static str = "mix";

    fn new(setup: &mut Setup) -> Result<Self, String> {
        setup.only(&[])?;
        let counters = KINDS.iter().map(|_| setup.counter()).collect();
        Ok(Mix { counters, reads: setup.counter(), writes: setup.counter() })
    }

    fn block(&'static self, block: &mut Block<Self>) {
        let mut factory = InstructionInfoFactory::new();
        let kinds: Vec<(usize, bool, bool)> = block
            .insns()
            .iter()
            .map(|insn| {
                let (reads, writes) = memory(insn, &mut factory);
                let kind = kind(insn, reads, writes);
                (KINDS.iter().position(|known| known.0 == kind).unwrap_or(KINDS.len() - 1), reads, writes)
            })
            .collect();
        // Instructions that cannot be decoded count as other.
        for index in 0..block.len() {
            let (kind, reads, writes) = kinds.get(index).copied().unwrap_or((KINDS.len() - 1, false, false));
            block.add_at(index, &self.counters[kind], 1);
            if reads {
                block.add_at(index, &self.reads, 1);
            }
            if writes {
                block.add_at(index, &self.writes, 1);
            }
        }
    }

    fn results(&'static self, results: &mut Results) {
        let counts: Vec<u64> = self.counters.iter().map(Counter::total).collect();
        let all: u64 = counts.iter().sum();
        let row = |name: &str, count: u64| {
            let share = 100.0 * count as f64 / all.max(1) as f64;
            vec![Cell::Text(name.to_owned()), Cell::Count(count), Cell::Real(share)]
        };
        let mut rows: Vec<_> = KINDS.iter().zip(&counts).map(|(kind, &count)| row(kind.1, count)).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(if let Cell::Count(count) = row[1] { count } else { 0 }));
        rows.push(row("all", all));
        let columns = ["kind", "instructions", "%"].map(str::to_owned).to_vec();
        results.tables.push(Table { name: "instructions by kind".into(), columns, rows, ..Table::default() });
        let rows = vec![
            row("read memory, the stack of calls and pushes included", self.reads.total()),
            row("write memory, the stack of calls and pushes included", self.writes.total()),
        ];
        let columns = ["instructions that", "instructions", "%"].map(str::to_owned).to_vec();
        results.tables.push(Table { name: "memory".into(), columns, rows, ..Table::default() });
    }
}

/// Whether the instruction reads memory, and whether it writes memory.
fn memory(insn: &Instruction, factory: &mut InstructionInfoFactory) -> (bool, bool) {
    let (mut reads, mut writes) = (false, false);
    for used in factory.info(insn).used_memory() {
        let access = used.access();
        reads |= matches!(
            access,
            OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        );
        writes |= matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        );
    }
    (reads, writes)
}

fn kind(insn: &Instruction, reads: bool, writes: bool) -> Kind {
    use Mnemonic as M;
    let explicit = insn.memory_size() != MemorySize::Unknown && insn.mnemonic() != M::Lea;
    if insn.has_lock_prefix() || insn.mnemonic() == M::Xchg && explicit {
        return Kind::Locked;
    }
    if insn.is_string_instruction() {
        return Kind::String;
    }
    match insn.mnemonic() {
        M::Syscall | M::Sysretq | M::Sysexitq | M::Iretq | M::Iretd | M::Int | M::Int3 => {
            return Kind::System;
        }
        M::Nop
        | M::Pause
        | M::Endbr64
        | M::Lfence
        | M::Mfence
        | M::Sfence
        | M::Reservednop
        | M::Prefetchw
        | M::Prefetcht0
        | M::Prefetchnta => return Kind::Nothing,
        M::Push | M::Pop | M::Pushfq | M::Popfq | M::Leave | M::Enter => return Kind::Stack,
        _ => {}
    }
    match insn.flow_control() {
        FlowControl::Call | FlowControl::IndirectCall => return Kind::Call,
        FlowControl::Return => return Kind::Return,
        FlowControl::ConditionalBranch => return Kind::Branch,
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => return Kind::Jump,
        _ => {}
    }
    if insn.is_privileged() {
        return Kind::Privileged;
    }
    let vector = |register: Register| register.is_vector_register() || register.is_mm();
    if (0..insn.op_count()).any(|i| insn.op_kind(i) == OpKind::Register && vector(insn.op_register(i))) {
        return Kind::Simd;
    }
    if insn.cpuid_features().iter().any(|feature| matches!(feature, CpuidFeature::FPU | CpuidFeature::FPU287))
    {
        return Kind::Float;
    }
    let moves = matches!(insn.mnemonic(), M::Mov | M::Movzx | M::Movsx | M::Movsxd | M::Movbe | M::Movnti);
    match (moves, reads, writes) {
        (true, true, _) => Kind::Load,
        (true, _, true) => Kind::Store,
        (true, ..) => Kind::Move,
        _ if matches!(insn.mnemonic(), M::Cmp | M::Test | M::Bt) => Kind::Compare,
        (_, _, true) => Kind::LoadStore,
        _ if matches!(insn.mnemonic(), M::Xchg | M::Cmove | M::Cmovne) && !reads => Kind::Move,
        _ if matches!(insn.mnemonic(), M::Cpuid | M::Rdtsc | M::Rdtscp | M::Ud2 | M::INVALID) => Kind::Other,
        _ => Kind::Arithmetic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_client_api::iced_x86::{Decoder, DecoderOptions};

    #[test]
    fn instructions_have_kinds() {
        for (bytes, wanted) in [
            (&[0xf0u8, 0x48, 0x0f, 0xb1, 0x0e][..], Kind::Locked),
            (&[0xf3, 0x48, 0xab], Kind::String),
            (&[0xe8, 0, 0, 0, 0], Kind::Call),
            (&[0xc3], Kind::Return),
            (&[0x75, 0], Kind::Branch),
            (&[0xeb, 0], Kind::Jump),
            (&[0x48, 0xcf], Kind::System),
            (&[0xfa], Kind::Privileged),
            (&[0x66, 0x0f, 0x6f, 0xc1], Kind::Simd),
            (&[0x55], Kind::Stack),
            (&[0x48, 0x8b, 0x07], Kind::Load),
            (&[0x48, 0x89, 0x07], Kind::Store),
            (&[0x48, 0x01, 0x07], Kind::LoadStore),
            (&[0x48, 0x03, 0x07], Kind::Arithmetic),
            (&[0x48, 0x89, 0xc7], Kind::Move),
            (&[0x48, 0x39, 0x07], Kind::Compare),
            (&[0x48, 0x8d, 0x07], Kind::Arithmetic),
            (&[0x48, 0x87, 0x07], Kind::Locked),
            (&[0x90], Kind::Nothing),
            (&[0x0f, 0xa2], Kind::Other),
        ] {
            let insn = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
            let (reads, writes) = memory(&insn, &mut InstructionInfoFactory::new());
            assert_eq!(kind(&insn, reads, writes), wanted, "{bytes:x?}");
        }
    }
}
