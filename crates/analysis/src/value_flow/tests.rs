//! Tests of the rules: against the processor ([`native`]), and of what surrounds them.

mod native;

use super::*;
use crate::tests::rng::Rng;

/// A memory that returns one value for every load and records its calls.
#[derive(Default)]
struct Quiet {
    loaded: Value,
    log: Vec<String>,
    stored: Vec<(u64, Value)>,
}

impl Memory for Quiet {
    fn load(&mut self, _: &InsnCtx, _: Access) -> Value {
        self.loaded
    }
    fn store(&mut self, _: &InsnCtx, access: Access, value: Value) {
        self.stored.push((access.addr, value));
    }
    fn undefined_branch(&mut self, _: &InsnCtx, origin: Origin) {
        self.log.push(format!("branch {origin}"));
    }
    fn undefined_address(&mut self, _: &InsnCtx, _: Access, reg: u8, origin: Origin) {
        self.log.push(format!("address {} {origin}", gpr_name(reg)));
    }
    fn undefined_port_output(&mut self, _: &InsnCtx, origin: Origin) {
        self.log.push(format!("port {origin}"));
    }
    fn rep_move(&mut self, _: &InsnCtx, r: RepRange) {
        self.log.push(format!("move {:#x} {:#x} {}x{}", r.dst, r.src, r.count, r.elem));
    }
    fn rep_set(&mut self, _: &InsnCtx, r: RepRange, value: Value) {
        self.log.push(format!("set {:#x} {}x{} {:#x}", r.dst, r.count, r.elem, value.undef));
    }
    fn rep_read(&mut self, _: &InsnCtx, _: RepRange) -> Value {
        self.loaded
    }
    fn stack_adjusted(&mut self, _: &InsnCtx, old: u64, new: u64) {
        self.log.push(format!("stack {old:#x} {new:#x}"));
    }
    fn unknown(&mut self, _: &InsnCtx, mnemonic: iced_x86::Mnemonic) {
        self.log.push(format!("unknown {mnemonic:?}"));
    }
}

/// Runs `code`, and returns the memory's records and how the run ended.
fn run(code: &[u8], regs: &mut Regs, loaded: Value, accesses: &[Access], reps: &[Rep]) -> (Quiet, RunEnd) {
    let block = Block::decode(0x1000, code);
    let mut mem = Quiet { loaded, ..Quiet::default() };
    let end = block.run(regs, &mut mem, accesses, reps, 0, usize::MAX);
    (mem, end)
}

fn access(insn: u16, addr: u64, size: u8, store: bool) -> Access {
    Access { addr, size, store, io: false, insn }
}

const UNDEFINED: Value = Value { undef: u64::MAX, origin: 7 };

#[test]
fn a_test_looks_at_its_bits_only() {
    // test byte [rdi], 4; jne
    let code = [0xf6, 0x07, 0x04, 0x75, 0x00];
    let mut regs = Regs::new();
    let loads = [access(0, 0x2000, 1, false)];
    let others = Value { undef: 0xfb, origin: 7 };
    assert!(run(&code, &mut regs, others, &loads, &[]).0.log.is_empty());
    let hit = Value { undef: 4, origin: 7 };
    assert_eq!(run(&code, &mut regs, hit, &loads, &[]).0.log, ["branch 7"]);
}

#[test]
fn a_mask_in_a_register_counts() {
    // mov ecx, 0xff; mov rax, [rdi]; and eax, ecx; cmp eax, 3; je
    let code = [0xb9, 0xff, 0, 0, 0, 0x48, 0x8b, 0x07, 0x21, 0xc8, 0x83, 0xf8, 0x03, 0x74, 0x00];
    let loads = [access(1, 0x2000, 8, false)];
    let high = Value { undef: !0xff, origin: 7 };
    assert!(run(&code, &mut Regs::new(), high, &loads, &[]).0.log.is_empty());
    assert_eq!(run(&code, &mut Regs::new(), UNDEFINED, &loads, &[]).0.log, ["branch 7"]);
}

#[test]
fn an_undefined_address_is_reported_once() {
    // mov rax, [rdi]; mov rcx, [rax]; mov rcx, [rax+8]
    let code = [0x48, 0x8b, 0x07, 0x48, 0x8b, 0x08, 0x48, 0x8b, 0x48, 0x08];
    let loads = [access(0, 0x2000, 8, false), access(1, 0x3000, 8, false), access(2, 0x3008, 8, false)];
    let (mem, end) = run(&code, &mut Regs::new(), UNDEFINED, &loads, &[]);
    assert_eq!(mem.log, ["address rax 7"]);
    assert_eq!(end, RunEnd { next: 3, complete: true, skipped: 0 });
}

#[test]
fn the_stack_pointer_is_followed() {
    // push rbp; mov rbp, rsp; and rsp, -16; sub rsp, 0x20; leave; ret
    let code = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xe4, 0xf0, 0x48, 0x83, 0xec, 0x20, 0xc9, 0xc3];
    let log = [access(0, 0x8f00, 8, true), access(4, 0x8f00, 8, false), access(5, 0x8f08, 8, false)];
    let mut regs = Regs::at_entry(0x8f08);
    let (mem, _) = run(&code, &mut regs, Value::DEFINED, &log, &[]);
    assert_eq!(mem.log, ["stack 0x8f00 0x8ee0", "stack 0x8ee0 0x8f08"]);
    assert_eq!(regs.rsp(), Some(0x8f10));
}

#[test]
fn a_run_goes_on_after_a_locked_instruction() {
    // lock inc dword [rdi]; mov eax, [rsi]; mov [rdx], eax
    let code = [0xf0, 0xff, 0x07, 0x8b, 0x06, 0x89, 0x02];
    let block = Block::decode(0x1000, &code);
    let (mut regs, mut mem) = (Regs::new(), Quiet { loaded: UNDEFINED, ..Quiet::default() });
    let first = [access(0, 0x2000, 4, false), access(0, 0x2000, 4, true)];
    let end = block.run(&mut regs, &mut mem, &first, &[], 0, usize::MAX);
    assert_eq!(end, RunEnd { next: 1, complete: false, skipped: 0 });
    let second = [access(1, 0x3000, 4, false), access(2, 0x4000, 4, true)];
    let end = block.run(&mut regs, &mut mem, &second, &[], end.next, usize::MAX);
    assert_eq!(end, RunEnd { next: 3, complete: true, skipped: 0 });
    assert_eq!(mem.stored[1], (0x4000, Value { undef: 0xffff_ffff, origin: 7 }));
}

#[test]
fn repeats_come_from_their_record() {
    // xor eax, eax; rep stosq; rep movsb
    let code = [0x31, 0xc0, 0xf3, 0x48, 0xab, 0xf3, 0xa4];
    let reps = [
        Rep { insn: 1, count: 4, rsi: 0, rdi: 0x2000 },
        Rep { insn: 1, count: 1, rsi: 0, rdi: 0x2018 },
        Rep { insn: 2, count: 3, rsi: 0x3000, rdi: 0x2020 },
    ];
    let mut regs = Regs::new();
    let (mem, end) = run(&code, &mut regs, Value::DEFINED, &[], &reps);
    assert_eq!(mem.log, ["set 0x2000 4x8 0x0", "move 0x2020 0x3000 3x1"]);
    assert!(end.complete);
    assert_eq!(regs.get(7).constant(), Some(0x2023));
    // The code is interrupted at the first one: its effect on memory still counts.
    let block = Block::decode(0x1000, &code);
    let mut mem = Quiet::default();
    let at = block.index_of(0x1002).unwrap();
    block.run(&mut Regs::new(), &mut mem, &[], &reps[..1], 0, at);
    assert_eq!(mem.log, ["set 0x2000 4x8 0x0"]);
}

#[test]
fn vector_copies_keep_bytes_apart() {
    // movdqu xmm0, [rsi]; movdqu [rdi], xmm0
    let code = [0xf3, 0x0f, 0x6f, 0x06, 0xf3, 0x0f, 0x7f, 0x07];
    let loaded = Value { undef: 0x8001, origin: 7 };
    for log in [
        vec![access(0, 0x2000, 16, false), access(1, 0x3000, 16, true)],
        vec![access(0, 0x2000, 16, false), access(1, 0x3000, 8, true), access(1, 0x3008, 8, true)],
    ] {
        let (mem, _) = run(&code, &mut Regs::new(), loaded, &log, &[]);
        match mem.stored.as_slice() {
            [(0x3000, whole)] => assert_eq!(*whole, loaded),
            [(_, low), (_, high)] => {
                assert_eq!((low.undef, high.undef), (0xff, 0xff << 56));
            }
            other => panic!("unexpected stores {other:?}"),
        }
    }
}

#[test]
fn a_call_of_the_kernel_defines_what_it_clobbers() {
    let mut regs = Regs::new();
    for reg in 0..16 {
        regs.set(reg, Bits::undefined(3));
    }
    regs.flags = Flags::ALL;
    regs.clobber_call(false);
    let left: Vec<_> = (0..16).filter(|&r| !regs.get(r).is_defined()).map(gpr_name).collect();
    assert_eq!(left, ["rbx", "rsp", "rbp", "r12", "r13", "r14", "r15"]);
    assert_eq!(regs.flags, 0);
}

#[test]
fn any_bytes_and_any_accesses_are_taken() {
    let mut rng = Rng(42);
    for _ in 0..20_000 {
        let code: Vec<u8> = (0..32).map(|_| rng.byte()).collect();
        let log: Vec<_> = (0..12)
            .map(|i| {
                let a = access(i / 2, rng.next(), 1 << rng.below(7), rng.below(2) == 0);
                Access { io: rng.below(4) == 0, ..a }
            })
            .collect();
        let reps = [Rep { insn: rng.below(4) as u16, count: rng.next(), rsi: rng.next(), rdi: rng.next() }];
        let mut regs = Regs::at_entry(rng.next());
        regs.df = rng.below(2) == 0;
        run(&code, &mut regs, Value { undef: rng.next(), origin: 1 }, &log, &reps);
        assert!((0..16).all(|r| regs.get(r).undef & regs.get(r).known == 0));
    }
}

/// The kernel's `smp_mb()` accesses bytes below the stack pointer, which has no effect.
#[test]
fn a_fence_on_the_stack_is_no_access() {
    // lock addl $0, -4(%rsp); nop
    let code = [0xf0, 0x83, 0x44, 0x24, 0xfc, 0x00, 0x90];
    let mut regs = Regs::at_entry(0xffff_c900_0000_3f00);
    let at = 0xffff_c900_0000_3efc;
    let accesses = [access(0, at, 4, false), access(0, at, 4, true)];
    let (mem, end) = run(&code, &mut regs, UNDEFINED, &accesses, &[]);
    assert!(end.complete && end.skipped == 0 && mem.stored.is_empty() && mem.log.is_empty());
    assert_eq!(regs.flags, 0);
}
