//! Measures how many instructions of a module's text the definedness rules execute per second.
//!
//! Usage: `flow_speed MODULE.ko`

use guardrail_analysis::value_flow::{Block, InsnCtx, Memory, Origin, Regs, Rep, RepRange, Value};
use guardrail_trace::event::Access;
use object::{Object, ObjectSection, SectionKind};
use std::time::Instant;

/// A memory in which everything is defined but one load in 4096.
#[derive(Default)]
struct Plain {
    loads: u64,
    reports: u64,
}

impl Memory for Plain {
    fn load(&mut self, _: &InsnCtx, _: Access) -> Value {
        self.loads += 1;
        if self.loads & 0xfff == 0 { Value { undef: 0xff, origin: 1 } } else { Value::DEFINED }
    }
    fn store(&mut self, _: &InsnCtx, _: Access, _: Value) {}
    fn undefined_branch(&mut self, _: &InsnCtx, _: Origin) {
        self.reports += 1;
    }
    fn undefined_address(&mut self, _: &InsnCtx, _: Access, _: u8, _: Origin) {
        self.reports += 1;
    }
    fn undefined_port_output(&mut self, _: &InsnCtx, _: Origin) {}
    fn rep_move(&mut self, _: &InsnCtx, _: RepRange) {}
    fn rep_set(&mut self, _: &InsnCtx, _: RepRange, _: Value) {}
    fn rep_read(&mut self, _: &InsnCtx, _: RepRange) -> Value {
        Value::DEFINED
    }
    fn stack_adjusted(&mut self, _: &InsnCtx, _: u64, _: u64) {}
    fn unknown(&mut self, _: &InsnCtx, _: iced_x86::Mnemonic) {}
}

fn main() {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: flow_speed MODULE.ko");
        std::process::exit(2);
    };
    let bytes = std::fs::read(&path).expect("the module can be read");
    let file = object::File::parse(bytes.as_slice()).expect("the module is ELF");
    let mut blocks = Vec::new();
    let begin = Instant::now();
    for section in file.sections().filter(|s| s.kind() == SectionKind::Text) {
        let code = section.data().unwrap_or_default();
        for (i, chunk) in code.chunks(64).enumerate() {
            let block = Block::decode(i as u64 * 64, chunk);
            // The instruction finds an access, no matter how it accesses memory.
            let mut accesses = Vec::new();
            let mut reps = Vec::new();
            for insn in &block.insns {
                let access = Access {
                    addr: 0xffff_8000_0000_1000,
                    size: 8,
                    store: false,
                    io: false,
                    insn: insn.index,
                };
                if insn.is_rep() {
                    reps.push(Rep { insn: insn.index, count: 8, rsi: 0x1000, rdi: 0x2000 });
                } else if insn.touches_memory() {
                    accesses.push(access);
                    accesses.push(Access { store: true, ..access });
                }
            }
            blocks.push((block, accesses, reps));
        }
    }
    let count: usize = blocks.iter().map(|b| b.0.insns.len()).sum();
    println!("{count} instructions decoded in {:?}", begin.elapsed());
    let mut regs = Regs::at_entry(0xffff_8000_0000_8000);
    let mut mem = Plain::default();
    let begin = Instant::now();
    let (mut done, mut accesses_done) = (0u64, 0u64);
    while begin.elapsed().as_secs() < 2 {
        for (block, accesses, reps) in &blocks {
            done += block.run(&mut regs, &mut mem, accesses, reps, 0, usize::MAX).next as u64;
            accesses_done += accesses.len() as u64;
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{:.1} M instructions/s, {:.1} M accesses/s ({} reports)",
        done as f64 / seconds / 1e6,
        accesses_done as f64 / seconds / 1e6,
        mem.reports
    );
}
