//! The rules against the real processor. A result bit that changes when undefined input bits change must be
//! marked undefined. A result bit that is marked known must have its value.

use super::{Quiet, Rng};
use crate::value_flow::{
    AccessCursor, Bits, Block, Flags, Regs, Status,
    insn::{BitOp, Op, Opnd},
};
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, Register};
use std::collections::BTreeMap;

/// Registers in hardware order (rsp unused), then RFLAGS.
type State = [u64; 17];

const RFLAGS: usize = 16;
const FLAG_BITS: [(u8, u32); 6] =
    [(Flags::CF, 0), (Flags::PF, 2), (Flags::AF, 4), (Flags::ZF, 6), (Flags::SF, 7), (Flags::OF, 11)];

/// Code that loads all registers from the `State` at rdi, runs `insn`, and stores them back.
fn trampoline(insn: &[u8]) -> Vec<u8> {
    let mut code = vec![0x53, 0x55, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57]; // push rbx, rbp, r12..r15
    code.extend([0x57, 0xff, 0xb7, 0x80, 0, 0, 0, 0x9d]); // push rdi; push [rdi+128]; popfq
    let others = [0u8, 1, 2, 3, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let mov = |opcode: u8, reg: u8| {
        [0x48 | (reg >> 3) << 2, opcode, 0x47 | (reg & 7) << 3, reg * 8] // mov between reg and [rdi+8*reg]
    };
    for reg in others {
        code.extend(mov(0x8b, reg));
    }
    code.extend(mov(0x8b, 7));
    code.extend(insn);
    code.extend([0x48, 0x87, 0x3c, 0x24]); // xchg rdi, [rsp]
    for reg in others {
        code.extend(mov(0x89, reg));
    }
    code.extend([0x58, 0x48, 0x89, 0x47, 56]); // pop rax; mov [rdi+56], rax
    code.extend([0x9c, 0x58, 0x48, 0x89, 0x87, 0x80, 0, 0, 0]); // pushfq; pop rax; mov [rdi+128], rax
    code.extend([0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, 0x5d, 0x5b, 0xfc, 0xc3]); // pops; cld; ret
    code
}

type Form = (&'static [u8], &'static [u8], u8, u8, bool);

/// Instruction forms: prefix bytes, opcode bytes, and the fixed `reg` field of ModRM (8: random). Then the
/// bytes of the immediate (9: as the operand size, at most 4), and whether operand sizes other than the
/// default exist.
const FORMS: &[Form] = &[
    (&[], &[0x00], 8, 0, false), // add
    (&[], &[0x01], 8, 0, true),
    (&[], &[0x08], 8, 0, false), // or
    (&[], &[0x09], 8, 0, true),
    (&[], &[0x10], 8, 0, false), // adc
    (&[], &[0x11], 8, 0, true),
    (&[], &[0x18], 8, 0, false), // sbb
    (&[], &[0x19], 8, 0, true),
    (&[], &[0x20], 8, 0, false), // and
    (&[], &[0x21], 8, 0, true),
    (&[], &[0x28], 8, 0, false), // sub
    (&[], &[0x29], 8, 0, true),
    (&[], &[0x30], 8, 0, false), // xor
    (&[], &[0x31], 8, 0, true),
    (&[], &[0x38], 8, 0, false), // cmp
    (&[], &[0x39], 8, 0, true),
    (&[], &[0x80], 8, 1, false), // the eight above with an immediate
    (&[], &[0x81], 8, 9, true),
    (&[], &[0x83], 8, 1, true),
    (&[], &[0x84], 8, 0, false), // test
    (&[], &[0x85], 8, 0, true),
    (&[], &[0xf6], 0, 1, false),
    (&[], &[0xf7], 0, 9, true),
    (&[], &[0xf6], 2, 0, false), // not
    (&[], &[0xf7], 2, 0, true),
    (&[], &[0xf6], 3, 0, false), // neg
    (&[], &[0xf7], 3, 0, true),
    (&[], &[0xf6], 4, 0, false), // mul
    (&[], &[0xf7], 4, 0, true),
    (&[], &[0xf6], 5, 0, false), // imul
    (&[], &[0xf7], 5, 0, true),
    (&[], &[0x0f, 0xaf], 8, 0, true),
    (&[], &[0x69], 8, 9, true),
    (&[], &[0x6b], 8, 1, true),
    (&[], &[0xfe], 0, 0, false), // inc
    (&[], &[0xff], 0, 0, true),
    (&[], &[0xfe], 1, 0, false), // dec
    (&[], &[0xff], 1, 0, true),
    (&[], &[0x88], 8, 0, false), // mov
    (&[], &[0x89], 8, 0, true),
    (&[], &[0xc7], 0, 9, true),
    (&[], &[0x86], 8, 0, false), // xchg
    (&[], &[0x87], 8, 0, true),
    (&[], &[0x0f, 0xc0], 8, 0, false), // xadd
    (&[], &[0x0f, 0xc1], 8, 0, true),
    (&[], &[0x0f, 0xb0], 8, 0, false), // cmpxchg
    (&[], &[0x0f, 0xb1], 8, 0, true),
    (&[], &[0x0f, 0xb6], 8, 0, true), // movzx
    (&[], &[0x0f, 0xb7], 8, 0, true),
    (&[], &[0x0f, 0xbe], 8, 0, true), // movsx
    (&[], &[0x0f, 0xbf], 8, 0, true),
    (&[], &[0x63], 8, 0, true),  // movsxd
    (&[], &[0xc0], 8, 1, false), // shifts and rotates by an immediate
    (&[], &[0xc1], 8, 1, true),
    (&[], &[0xd0], 8, 0, false), // by one
    (&[], &[0xd1], 8, 0, true),
    (&[], &[0xd2], 8, 0, false), // by cl
    (&[], &[0xd3], 8, 0, true),
    (&[], &[0x0f, 0xa4], 8, 1, true), // shld
    (&[], &[0x0f, 0xa5], 8, 0, true),
    (&[], &[0x0f, 0xac], 8, 1, true), // shrd
    (&[], &[0x0f, 0xad], 8, 0, true),
    (&[], &[0x0f, 0xa3], 8, 0, true), // bt
    (&[], &[0x0f, 0xab], 8, 0, true), // bts
    (&[], &[0x0f, 0xb3], 8, 0, true), // btr
    (&[], &[0x0f, 0xbb], 8, 0, true), // btc
    (&[], &[0x0f, 0xba], 4, 1, true),
    (&[], &[0x0f, 0xba], 5, 1, true),
    (&[], &[0x0f, 0xba], 6, 1, true),
    (&[], &[0x0f, 0xba], 7, 1, true),
    (&[], &[0x0f, 0xbc], 8, 0, true),            // bsf
    (&[], &[0x0f, 0xbd], 8, 0, true),            // bsr
    (&[0xf3], &[0x0f, 0xbc], 8, 0, true),        // tzcnt
    (&[0xf3], &[0x0f, 0xbd], 8, 0, true),        // lzcnt
    (&[0xf3], &[0x0f, 0xb8], 8, 0, true),        // popcnt
    (&[0xf2], &[0x0f, 0x38, 0xf1], 8, 0, true),  // crc32
    (&[0x66], &[0x0f, 0x38, 0xf6], 8, 0, false), // adcx
    (&[0xf3], &[0x0f, 0x38, 0xf6], 8, 0, false), // adox
];

/// Opcodes without ModRM.
const PLAIN: &[&[u8]] = &[
    &[0x98],
    &[0x66, 0x98],
    &[0x48, 0x98],
    &[0x99],
    &[0x66, 0x99],
    &[0x48, 0x99],
    &[0x9f],
    &[0x9e],
    &[0xf8],
    &[0xf9],
    &[0xf5],
    &[0x04, 0x7f],
    &[0xa8, 0x30],
    &[0x3c, 0x11],
];

/// VEX forms: map, pp, opcode, fixed reg field (8: random), immediate.
const VEX: &[(u8, u8, u8, u8, bool)] = &[
    (2, 0, 0xf2, 8, false), // andn
    (2, 0, 0xf7, 8, false), // bextr
    (2, 0, 0xf5, 8, false), // bzhi
    (2, 3, 0xf5, 8, false), // pdep
    (2, 2, 0xf5, 8, false), // pext
    (2, 1, 0xf7, 8, false), // shlx
    (2, 3, 0xf7, 8, false), // shrx
    (2, 2, 0xf7, 8, false), // sarx
    (2, 3, 0xf6, 8, false), // mulx
    (3, 3, 0xf0, 8, true),  // rorx
    (2, 0, 0xf3, 1, false), // blsr
    (2, 0, 0xf3, 2, false), // blsmsk
    (2, 0, 0xf3, 3, false), // blsi
];

fn form(rng: &mut Rng) -> Vec<u8> {
    match rng.below(12) {
        0 => return PLAIN[rng.below(PLAIN.len())].to_vec(),
        1 => {
            // lea with any address.
            let mut code = vec![0x48 | rng.byte() & 0xf, 0x8d, rng.byte() & 0x38 | 0x84, rng.byte()];
            code.extend(if rng.below(2) == 0 { [0; 4] } else { (rng.next() as u32).to_le_bytes() });
            return code;
        }
        2 => return vec![0x48 | rng.byte() & 0xf, 0x0f, 0xc8 | rng.byte() & 7], // bswap
        3 => {
            let condition = rng.byte() & 0xf;
            let opcode = if rng.below(2) == 0 { 0x90 } else { 0x40 }; // setcc, cmovcc
            return vec![0x40 | rng.byte() & 0xd, 0x0f, opcode | condition, 0xc0 | rng.byte() & 0x3f];
        }
        4 if std::is_x86_feature_detected!("bmi2") && std::is_x86_feature_detected!("bmi1") => {
            let (map, pp, opcode, fixed, imm) = VEX[rng.below(VEX.len())];
            let reg = if fixed == 8 { rng.byte() & 7 } else { fixed };
            let vvvv = if imm { 0xf } else { rng.byte() & 0xf };
            let wide = rng.byte() & 0x80;
            let high = if fixed == 8 { rng.byte() & 0x80 } else { 0x80 };
            let mut code = vec![
                0xc4,
                high | 0x40 | rng.byte() & 0x20 | map,
                wide | vvvv << 3 | pp,
                opcode,
                0xc0 | reg << 3 | rng.byte() & 7,
            ];
            if imm {
                code.push(rng.byte());
            }
            return code;
        }
        _ => {}
    }
    let (prefix, opcode, fixed, imm, sizes) = FORMS[rng.below(FORMS.len())];
    let mut code = Vec::new();
    let small = sizes && rng.below(5) == 0;
    if small {
        code.push(0x66);
    }
    code.extend(prefix);
    if rng.below(4) != 0 {
        code.push(0x40 | rng.byte() & 0xf);
    }
    code.extend(opcode);
    let reg = if fixed == 8 { rng.byte() & 7 } else { fixed };
    code.push(0xc0 | reg << 3 | rng.byte() & 7);
    let imm = match imm {
        9 if small => 2,
        9 => 4,
        n => n,
    };
    for _ in 0..imm {
        code.push(if rng.below(3) == 0 { rng.byte() & 0x1f } else { rng.byte() });
    }
    code
}

fn supported(m: Mnemonic) -> bool {
    use Mnemonic::*;
    match m {
        Adcx | Adox => std::is_x86_feature_detected!("adx"),
        Lzcnt => std::is_x86_feature_detected!("lzcnt"),
        Tzcnt => std::is_x86_feature_detected!("bmi1"),
        Popcnt => std::is_x86_feature_detected!("popcnt"),
        Crc32 => std::is_x86_feature_detected!("sse4.2"),
        _ => true,
    }
}

/// Decodes `code` if it is one whole instruction that the trampoline can run.
fn usable(code: &[u8], factory: &mut InstructionInfoFactory) -> Option<Instruction> {
    let instr = Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).decode();
    let fits = !instr.is_invalid() && instr.len() == code.len() && supported(instr.mnemonic());
    let no_stack =
        factory.info(&instr).used_registers().iter().all(|r| r.register().full_register() != Register::RSP);
    (fits && no_stack).then_some(instr)
}

fn random_undef(rng: &mut Rng) -> u64 {
    match rng.below(10) {
        0..4 => 0,
        4 => 1 << rng.below(64),
        5 => 0xff << (8 * rng.below(8)),
        6 => u64::MAX << rng.below(64),
        7 => u64::MAX >> rng.below(64),
        8 => rng.next() & rng.next() & rng.next(),
        _ => rng.next(),
    }
}

fn random_value(rng: &mut Rng) -> u64 {
    match rng.below(5) {
        0 => rng.next() & 0xff,
        1 => rng.next() & rng.next() & rng.next(),
        2 => rng.next() | rng.next() | rng.next(),
        _ => rng.next(),
    }
}

/// A random state and its shadow.
fn random_state(rng: &mut Rng) -> (State, Regs) {
    let mut state: State = [0; 17];
    let mut regs = Regs::new();
    for reg in 0..16u8 {
        let value = random_value(rng);
        let undef = random_undef(rng);
        let known = match rng.below(3) {
            0 => 0,
            1 => !undef,
            _ => !undef & (rng.next() | rng.next()),
        };
        state[usize::from(reg)] = value;
        regs.set(reg, Bits { undef, known, value: value & known, origin: u32::from(undef != 0) });
    }
    for (_, at) in FLAG_BITS {
        state[RFLAGS] |= (rng.next() & 1) << at;
    }
    if rng.below(3) == 0 {
        regs.flags = rng.byte() & Flags::ALL;
        regs.flags_origin = u32::from(regs.flags != 0);
    }
    (state, regs)
}

/// Flags that the architecture leaves undefined after this instance, and that no rule covers.
fn free_flags(instr: &Instruction, op: &Op) -> u8 {
    let bits = instr.rflags_undefined();
    let mut free = 0;
    for (flag, theirs) in [
        (Flags::CF, iced_x86::RflagsBits::CF),
        (Flags::PF, iced_x86::RflagsBits::PF),
        (Flags::AF, iced_x86::RflagsBits::AF),
        (Flags::ZF, iced_x86::RflagsBits::ZF),
        (Flags::SF, iced_x86::RflagsBits::SF),
        (Flags::OF, iced_x86::RflagsBits::OF),
    ] {
        if bits & theirs != 0 {
            free |= flag;
        }
    }
    match op {
        Op::Shift(_) | Op::RotateCarry => free | Flags::OF | Flags::AF,
        Op::ShiftDouble(_) => free | Flags::OF | Flags::AF | Flags::CF,
        _ => free,
    }
}

/// Whether the results are exactly the input bits in other positions: no more may be marked than changes.
fn is_exact(op: &Op, regs: &Regs) -> bool {
    match op {
        Op::Mov | Op::MovSx | Op::Bswap | Op::Not | Op::Xchg | Op::SignExtendA | Op::SignExtendD => true,
        Op::Bit(BitOp::Test) => true,
        Op::Shift(_) => regs.get(1).constant().is_some(),
        _ => false,
    }
}

#[derive(Default)]
struct Tally {
    runs: u64,
    marked: u64,
    changed: u64,
}

#[test]
fn no_change_goes_unmarked() {
    const INSTANCES: usize = 24_000;
    const SLOT: usize = 256;
    let mut rng = Rng(0x9e37_79b9_7f4a_7c15);
    let mut factory = InstructionInfoFactory::new();
    let mut page = memmap2::MmapMut::map_anon(INSTANCES * SLOT).expect("anonymous memory");
    let mut instances = Vec::new();
    while instances.len() < INSTANCES {
        let code = form(&mut rng);
        let Some(instr) = usable(&code, &mut factory) else { continue };
        let at = instances.len() * SLOT;
        let code_here = trampoline(&code);
        page[at..at + code_here.len()].copy_from_slice(&code_here);
        instances.push((code, instr));
    }
    let page = page.make_exec().expect("executable memory");
    let run = |index: usize, state: &State| -> State {
        let mut state = *state;
        // SAFETY: the slot holds a whole trampoline, which follows the calling convention. The trampoline
        // accesses no memory but `state` and the stack. The instruction in it accesses no memory and leaves
        // rsp unchanged.
        unsafe {
            let entry = page.as_ptr().add(index * SLOT);
            let call: extern "sysv64" fn(*mut State) = std::mem::transmute(entry);
            call(&mut state);
        }
        state
    };
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    for (index, (code, instr)) in instances.iter().enumerate() {
        let block = Block::decode(0x1000, code);
        let insn = &block.insns[0];
        assert!(!insn.is_unknown(), "{instr} has no rule");
        for _ in 0..4 {
            check(insn, instr, &mut rng, &|s| run(index, s), &mut tallies);
        }
    }
    for (name, t) in &tallies {
        println!(
            "{name:10} {:6} runs, {:8} bits marked, {:8} seen to change ({:.0}%)",
            t.runs,
            t.marked,
            t.changed,
            100.0 * t.changed as f64 / t.marked.max(1) as f64
        );
    }
}

fn check(
    insn: &crate::value_flow::Insn,
    instr: &Instruction,
    rng: &mut Rng,
    run: &dyn Fn(&State) -> State,
    tallies: &mut BTreeMap<String, Tally>,
) {
    let (state, before) = random_state(rng);
    // The two rules that are quiet rather than sound; see the module's documentation.
    if matches!(insn.op, Op::Cmov(f) if before.flags & f == 0) {
        return;
    }
    if matches!(instr.mnemonic(), Mnemonic::Bsf | Mnemonic::Bsr)
        && matches!(insn.src, Opnd::Reg(n) if state[usize::from(n)] & super::super::bits::mask(insn.size) == 0)
    {
        return;
    }
    let mut regs = before.clone();
    let mut quiet = Quiet::default();
    assert_eq!(insn.execute(&mut regs, &mut quiet, &mut AccessCursor::new(&[], &[])), Status::Done);
    let base = run(&state);
    let mut changed: State = [0; 17];
    let mut flips: Vec<State> = Vec::new();
    for reg in 0..16usize {
        let undef = before.gpr[reg].undef;
        if reg != 4 && undef != 0 && uses(insn, reg as u8) {
            for bit in (0..64).filter(|b| undef >> b & 1 != 0) {
                let mut flip: State = [0; 17];
                flip[reg] = 1 << bit;
                flips.push(flip);
            }
        }
    }
    for _ in 0..16 {
        let mut flip: State = [0; 17];
        let thin = rng.next() | if rng.below(2) == 0 { u64::MAX } else { 0 };
        for (slot, reg) in flip[..16].iter_mut().zip(&before.gpr) {
            *slot = reg.undef & thin & rng.next();
        }
        for (flag, at) in FLAG_BITS {
            if before.flags & flag != 0 {
                flip[RFLAGS] |= (rng.next() & 1) << at;
            }
        }
        flip[4] = 0;
        flips.push(flip);
    }
    for flip in &flips {
        let mut other = state;
        other.iter_mut().zip(flip).for_each(|(s, f)| *s ^= f);
        let out = run(&other);
        // Registers that are not written differ because of the flip itself; they are undefined before and
        // after.
        for slot in 0..17 {
            changed[slot] |= base[slot] ^ out[slot];
        }
    }
    let tally = tallies.entry(format!("{:?}", instr.mnemonic())).or_default();
    tally.runs += 1;
    for reg in (0..16usize).filter(|&r| r != 4) {
        let bits = regs.gpr[reg];
        assert_eq!(bits.undef & bits.known, 0, "{instr}: register {reg} has bits both known and undefined");
        assert_eq!(
            changed[reg] & !bits.undef,
            0,
            "{instr}: register {reg} changes in bits not marked\nbefore {:x?}\nafter {bits:x?}\nstate {state:x?}",
            before.gpr
        );
        assert_eq!(
            base[reg] & bits.known,
            bits.value,
            "{instr}: register {reg} is not what is known\nbefore {:x?}\nafter {bits:x?}\nstate {state:x?}",
            before.gpr
        );
        if before.gpr[reg] != bits {
            tally.marked += u64::from(bits.undef.count_ones());
            tally.changed += u64::from((changed[reg] & bits.undef).count_ones());
            if is_exact(&insn.op, &before) && uses(insn, reg as u8) {
                assert_eq!(changed[reg], bits.undef, "{instr}: register {reg} is marked too much");
            }
        }
    }
    let free = free_flags(instr, &insn.op);
    for (flag, at) in FLAG_BITS {
        if free & flag == 0 && changed[RFLAGS] >> at & 1 != 0 {
            assert!(
                regs.flags & flag != 0,
                "{instr}: flag {flag:#x} changes but is not marked\nbefore {:x?} flags {:x}\nstate {state:x?}",
                before.gpr,
                before.flags
            );
        }
    }
}

/// Whether the instruction may read the register.
fn uses(insn: &crate::value_flow::Insn, reg: u8) -> bool {
    let in_operand = |o: Opnd| matches!(o, Opnd::Reg(n) | Opnd::High(n) if n == reg);
    reg < 4
        || [insn.dst, insn.src, insn.src2].into_iter().any(in_operand)
        || [insn.mem.base, insn.mem.index].contains(&reg)
}
