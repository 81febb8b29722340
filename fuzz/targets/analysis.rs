//! Events as a guest's tracer would log them: the whole analysis, with any tools, makes findings of them.
//!
//! Input: a choice of kernel and tools, then operations. The kernels are those of the analysis's own tests. Addresses
//! are drawn from a small pool, so that calls, accesses and frees meet at the same objects.
//! The longest input makes some ten thousand events.

#![no_main]

use guardrail_analysis::checkers::{TOOLS, aftermath};
use guardrail_analysis::{Outcome, checker, checkers, machine, outcome, replay};
use guardrail_trace::event::{Access, EnterFlags, Global, Head, Kind, StackFrame};
use guest::{MMIO, TASK, VMALLOC};
use kernel::{CORE, F, G, HEAP, Kernel, MODULE, SLOTS, TEXTS, begins, defines, loads_other, six};
use libfuzzer_sys::arbitrary::{Result, Unstructured};

#[allow(dead_code)]
#[path = "../../crates/analysis/src/tests/dma/run.rs"]
mod dma;
#[allow(dead_code)]
#[path = "../../crates/analysis/src/tests/guest.rs"]
mod guest;
#[allow(dead_code)]
#[path = "../../crates/analysis/src/tests/kernel.rs"]
mod kernel;
#[allow(dead_code)]
#[path = "../../crates/analysis/src/tests/order/kernel.rs"]
mod order;

/// The names by which the files above know each other.
mod tests {
    pub(crate) use super::{guest, kernel};
}

/// A segment: its vCPU and its words.
type Segment = (u32, Vec<u64>);

/// Where the direct map, `struct page`s, and bus addresses begin.
const DIRECT: u64 = 0xffff_8880_0000_0000;
const PAGES: u64 = 0xffff_ea00_0000_0000;
const BUS: u64 = 0x10_0000_0000;
/// The base of GS.
const GS: u64 = 0xffff_8880_3000_0000;
/// The tops of the stacks of tasks, 0x1_0000 apart.
const STACKS: u64 = 0xffff_c900_0000_3f00;

/// Code, with the accesses of its instructions: number of the instruction, size, and whether it stores.
type Code = (&'static [u8], &'static [(u16, u8, bool)]);

const CODE: [Code; 28] = [
    // mov eax, [rdi]
    (&[0x8b, 0x07], &[(0, 4, false)]),
    // mov [rdi], al
    (&[0x88, 0x07], &[(0, 1, true)]),
    // mov eax, [rdi]; test eax, eax; jz +0
    (&[0x8b, 0x07, 0x85, 0xc0, 0x74, 0x00], &[(0, 4, false)]),
    // mov rax, [rdi]
    (&[0x48, 0x8b, 0x07], &[(0, 8, false)]),
    // mov [rsi], rax
    (&[0x48, 0x89, 0x06], &[(0, 8, true)]),
    // mov rbx, rax; mov rdi, rbx; lea rsi, [rdi+8]
    (&[0x48, 0x89, 0xc3, 0x48, 0x89, 0xdf, 0x48, 0x8d, 0x77, 0x08], &[]),
    // mov rax, [rax+8]; mov [rax], rdi
    (&[0x48, 0x8b, 0x40, 0x08, 0x48, 0x89, 0x38], &[(0, 8, false), (1, 8, true)]),
    // lock xadd [rdi], eax
    (&[0xf0, 0x0f, 0xc1, 0x07], &[(0, 4, false), (0, 4, true)]),
    // lock cmpxchg [rdi], rsi
    (&[0xf0, 0x48, 0x0f, 0xb1, 0x37], &[(0, 8, false), (0, 8, true)]),
    // xchg [rdi], eax
    (&[0x87, 0x07], &[(0, 4, false), (0, 4, true)]),
    // push rbx; push rax
    (&[0x53, 0x50], &[(0, 8, true), (1, 8, true)]),
    // pop rbx
    (&[0x5b], &[(0, 8, false)]),
    // rep movsq
    (&[0xf3, 0x48, 0xa5], &[]),
    // rep stosb
    (&[0xf3, 0xaa], &[]),
    // repe cmpsb
    (&[0xf3, 0xa6], &[(0, 1, false), (0, 1, false)]),
    // movups xmm0, [rdi]; movups [rsi], xmm0
    (&[0x0f, 0x10, 0x07, 0x0f, 0x11, 0x06], &[(0, 16, false), (1, 16, true)]),
    // incl gs:[0x1234]
    (&[0x65, 0xff, 0x04, 0x25, 0x34, 0x12, 0, 0], &[(0, 4, false), (0, 4, true)]),
    // decl gs:[0x1234]
    (&[0x65, 0xff, 0x0c, 0x25, 0x34, 0x12, 0, 0], &[(0, 4, false), (0, 4, true)]),
    // cli; sti
    (&[0xfa, 0xfb], &[]),
    // cmp rax, -1; je +0
    (&[0x48, 0x83, 0xf8, 0xff, 0x74, 0x00], &[]),
    // shl rax, 4; and eax, 0xff; or rax, rdi; xor eax, eax
    (&[0x48, 0xc1, 0xe0, 0x04, 0x25, 0xff, 0, 0, 0, 0x48, 0x09, 0xf8, 0x31, 0xc0], &[]),
    // bts [rdi], eax; bsf rax, [rdi]
    (&[0x0f, 0xab, 0x07, 0x48, 0x0f, 0xbc, 0x07], &[(0, 4, false), (0, 4, true), (1, 8, false)]),
    // movzx eax, byte [rdi+rcx]; movsx rdx, al
    (&[0x0f, 0xb6, 0x04, 0x0f, 0x48, 0x0f, 0xbe, 0xd0], &[(0, 1, false)]),
    // in al, dx; out dx, eax
    (&[0xec, 0xef], &[]),
    // call [rax]
    (&[0xff, 0x10], &[(0, 8, false), (0, 8, true)]),
    // jmp +0
    (&[0xeb, 0x00], &[]),
    // ret
    (&[0xc3], &[(0, 8, false)]),
    // xor eax, eax; leave
    (&[0x31, 0xc0, 0xc9], &[(1, 8, false)]),
];

/// What runs on a vCPU.
#[derive(Clone, Copy)]
struct Context {
    task: u64,
    preempt: u64,
    irqs: bool,
    rsp: u64,
    /// The next address of the code that runs.
    at: u64,
}

/// The guest that an input describes.
struct Guest<'u, 'd> {
    input: &'u mut Unstructured<'d>,
    kernel: Kernel,
    hooks: Vec<&'static str>,
    contexts: [Context; 3],
    ring: usize,
    blocks: u64,
    segments: Vec<Segment>,
    /// The words of the vCPU that runs, which are no segment yet.
    words: Vec<u64>,
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut input = Unstructured::new(data);
    let Ok([kernel, tools, odd]) = input.arbitrary::<[u8; 3]>() else { return };
    let make = || {
        let kernel = match kernel % 3 {
            0 => guest::kernel().texts(b"%s %d %*pE\0%p%.3s\0"),
            1 => order::kernel(),
            _ => dma::kernel().dma_skip_sync(dma::SKIP),
        };
        if odd & 1 == 0 { kernel } else { kernel.with_redzones() }
    };
    let kernel = make();
    let mut guest = Guest::new(&mut input, kernel);
    while !guest.input.is_empty() && guest.operation().is_ok() {}
    guest.send(0);
    let segments = guest.segments;
    let (outcome, wanted) = (analyze(make(), tools, &segments), odd & 0xe == 0);
    assert!(outcome.findings.iter().all(|finding| !finding.id.is_empty() && !finding.kind.is_empty()));
    if wanted {
        assert_eq!(outcome, analyze(make(), tools, &segments), "equal words give equal findings");
    }
});

/// The findings of the tools that these bits name.
fn analyze(kernel: Kernel, tools: u8, segments: &[Segment]) -> Outcome {
    let tool = |(bit, tool): (usize, &checkers::Tool)| (tools >> bit & 1 == 0).then(|| tool.name.to_owned());
    let mut names: Vec<String> = TOOLS.iter().enumerate().filter_map(tool).collect();
    if tools == 0xff {
        names.push(aftermath::NAME.to_owned());
    }
    let checkers: Vec<Box<dyn checker::Checker>> = checkers::by_names(&names).expect("the tools exist");
    let mut replay = replay::Replay::new(Box::new(kernel), checkers);
    let mut news = 0;
    for (number, (ring, words)) in segments.iter().enumerate() {
        replay.segment(*ring, words);
        if number % 16 == 0 {
            replay.news(|_, _| {
                news += 1;
                news % 2 == 0
            });
        }
    }
    replay.finish()
}

impl<'u, 'd> Guest<'u, 'd> {
    fn new(input: &'u mut Unstructured<'d>, kernel: Kernel) -> Self {
        let count = kernel.names().iter().take_while(|name| is_hook(&kernel, name)).count();
        let hooks = kernel.names()[..count].to_vec();
        let context = |n: u64| Context {
            task: TASK + n * 0x1000,
            preempt: 0,
            irqs: true,
            rsp: STACKS + n * 0x1_0000,
            at: F,
        };
        let mut words = begins();
        for (global, value) in [
            (Global::PageOffsetBase, DIRECT),
            (Global::VmemmapBase, PAGES),
            (Global::VmallocBase, VMALLOC),
            (Global::GsBase, GS),
        ] {
            words.extend([Head::encode(Kind::Global, global as u8, 0), value]);
        }
        words.extend([Head::encode(Kind::Thread, 0, 42), TASK, u64::from_le_bytes(*b"insmod\0\0"), 0]);
        Guest {
            input,
            kernel,
            hooks,
            contexts: [0, 1, 2].map(context),
            ring: 0,
            blocks: 0,
            segments: vec![(0, words)],
            words: Vec::new(),
        }
    }

    /// What was gathered is a segment; what follows is of another vCPU.
    fn send(&mut self, ring: usize) {
        self.segments.push((self.ring as u32, std::mem::take(&mut self.words)));
        self.ring = ring;
    }

    fn context(&mut self) -> &mut Context {
        &mut self.contexts[self.ring]
    }

    fn byte(&mut self) -> Result<u64> {
        self.input.arbitrary::<u8>().map(u64::from)
    }

    /// A word that means something to the guest, most often an address.
    fn word(&mut self) -> Result<u64> {
        let (choice, offset) = (self.byte()?, self.byte()?);
        let own = self.contexts[self.ring];
        Ok(match choice % 32 {
            0..=7 => HEAP + (choice >> 5) * 0x100 + offset,
            8..=10 => own.rsp - offset,
            11 => SLOTS + offset,
            12 => TEXTS + offset % 16,
            13 => F + offset,
            14 => G,
            15 => MMIO + offset * 4,
            16 => VMALLOC + offset * 0x40,
            17 => TASK + (offset % 4) * 0x1000,
            18 => GS + 0x1234,
            19 => PAGES + offset * 0x40,
            20 => BUS + 0x200_0000 + offset,
            21 => dma::DEV + (offset & 1) * 0x2f4,
            22 => self.function(offset),
            23 => CORE + offset * 0x10,
            24 => 0u64.wrapping_sub(offset),
            25 => 1 << (offset % 64),
            26 => [0xcc0, 0x100, 0x8_0000][offset as usize % 3],
            _ => offset,
        })
    }

    fn six(&mut self) -> Result<[u64; 6]> {
        let mut six = [0; 6];
        for word in &mut six[..3] {
            *word = self.word()?;
        }
        (six[3], six[4]) = (six[2] & 3, six[0] & 0xfff);
        Ok(six)
    }

    fn function(&self, number: u64) -> u64 {
        let names = self.kernel.names();
        self.kernel.address(names[number as usize % names.len()])
    }

    fn operation(&mut self) -> Result<()> {
        match self.byte()? % 32 {
            0..=9 => self.block(),
            10..=15 => self.call(),
            16..=18 => self.enter(),
            19 => self.leave(),
            20 | 21 => self.by_kernel(),
            22 => self.list(),
            23 => self.discontinuity(),
            24 => self.module(),
            25 => self.stack(),
            26 => self.thread(),
            27 => {
                let ring = self.byte()? as usize % 3;
                self.send(ring);
                Ok(())
            }
            28 => self.again(),
            _ => self.raw(),
        }
    }

    /// The kernel calls the driver, in a context and from a function that the input chooses.
    fn enter(&mut self) -> Result<()> {
        let ring = self.byte()? as usize % 3;
        self.send(ring);
        let (who, from) = (self.byte()?, self.byte()?);
        let args = self.six()?;
        let preempt = [0, 0, 0x100, 0x1_0000, 1, 0x10_0000, 2, 0x200][who as usize % 8];
        let task = TASK + (who >> 3 & 3) * 0x1000;
        let context = Context {
            task,
            preempt,
            irqs: who & 0x20 == 0,
            rsp: STACKS + (who >> 3 & 3) * 0x1_0000 - (who >> 6) * 0x80,
            at: if who & 0x40 == 0 { F } else { G },
        };
        *self.context() = context;
        self.enter_words(EnterFlags::ARGS, 0);
        self.words.extend(args);
        let from = self.function(from) + 9;
        self.words.push(from);
        Ok(())
    }

    fn enter_words(&mut self, flags: u8, rax: u64) {
        let Context { task, preempt, irqs, rsp, .. } = *self.context();
        let flags = flags | if irqs { EnterFlags::INTERRUPTS_ON } else { 0 };
        let pid = 42 + (task >> 12 & 0xf);
        self.words.extend([Head::encode(Kind::Enter, flags, preempt), task, rsp, rax, pid]);
    }

    /// Defines a block and lets it run.
    fn define(&mut self, bytes: &[u8]) {
        self.blocks += 1;
        let (at, number) = (self.context().at, self.blocks);
        self.segments.push((2, defines(number, at, bytes)));
        self.words.push(Head::encode(Kind::Block, 0, number));
        // Now and then, functions begin anew.
        let context = self.context();
        context.at += bytes.len() as u64;
        if context.at > F + 0xf00 {
            context.at = F;
        }
    }

    fn block(&mut self) -> Result<()> {
        let (mut bytes, mut accesses, mut count) = (Vec::new(), Vec::new(), 0u16);
        for _ in 0..=self.byte()? % 4 {
            let (code, touches) = CODE[self.byte()? as usize % CODE.len()];
            bytes.extend(code);
            accesses.extend(touches.iter().map(|&(insn, size, store)| (insn + count, size, store)));
            count += 1 + touches.last().map_or(0, |touch| touch.0);
        }
        let repeats = bytes.first() == Some(&0xf3);
        self.define(&bytes);
        if repeats {
            let (rsi, rdi) = (self.word()?, self.word()?);
            let count = self.byte()?;
            self.words.extend([Head::encode(Kind::Rep, 0, 0), count, rsi, rdi]);
        }
        let mut last = None;
        for (insn, size, store) in accesses {
            // Both accesses of an instruction that changes memory have one address.
            let addr = match last {
                Some((before, addr)) if before == insn => addr,
                _ => self.word()?,
            };
            last = Some((insn, addr));
            let io = addr >> 12 == MMIO >> 12;
            self.words.push(Access { addr, size, store, io, insn }.encode());
        }
        Ok(())
    }

    /// The driver calls a function, which may be hooked, and may not return.
    fn call(&mut self) -> Result<()> {
        let (choice, how) = (self.byte()?, self.byte()?);
        let (args, result) = (self.six()?, self.word()?);
        let names = self.kernel.names();
        let name = names[choice as usize % names.len()];
        let behind = self.context().at + 5;
        self.define(&[0xe8, 0, 0, 0, 0]);
        let (target, rsp) = (self.kernel.address(name), self.context().rsp);
        self.words.extend([Head::encode(Kind::Call, (how >> 7) as u8, target), rsp]);
        self.words.extend(args);
        if how >> 7 == 0 {
            self.words.push(Access { addr: rsp - 8, size: 8, store: true, io: false, insn: 0 }.encode());
        }
        let ring = self.ring;
        self.send(ring);
        if self.hooks.contains(&name) {
            self.hook(name, rsp - 8, behind, &args);
            if how & 0x40 == 0 {
                self.hook_return(name, rsp - 8, result);
            }
        }
        if how & 0x20 == 0 {
            self.enter_words(0, result);
        }
        Ok(())
    }

    fn hook(&mut self, name: &str, rsp: u64, ret: u64, args: &[u64]) {
        let (number, task) = (self.kernel.number(name), self.context().task);
        let args = &args[..args.len().min(machine::World::hook_args(&self.kernel, number))];
        self.words.extend([Head::encode(Kind::HookCall, args.len() as u8, number), task, rsp, ret]);
        self.words.extend(args);
        let ring = self.ring;
        self.send(ring);
    }

    fn hook_return(&mut self, name: &str, rsp: u64, result: u64) {
        self.words.extend([Head::encode(Kind::HookRet, 0, self.kernel.number(name)), rsp, result]);
        let ring = self.ring;
        self.send(ring);
    }

    /// The kernel calls a hooked function for itself.
    fn by_kernel(&mut self) -> Result<()> {
        let (choice, args, result) = (self.byte()? as usize, self.six()?, self.word()?);
        let name = self.hooks[choice % self.hooks.len()];
        let (ret, rsp) = (self.function(0), self.context().rsp - 0x4000);
        self.hook(name, rsp, ret, &args);
        if choice < 0xe0 {
            self.hook_return(name, rsp, result);
        }
        Ok(())
    }

    fn list(&mut self) -> Result<()> {
        let (choice, count) = (self.byte()?, self.byte()? % 16);
        let name = self.hooks[choice as usize % self.hooks.len()];
        let rsp = self.context().rsp - if choice & 0x80 == 0 { 8 } else { 0x4000 };
        self.words.extend([Head::encode(Kind::List, 0, self.kernel.number(name)), rsp, count]);
        for _ in 0..count {
            let word = self.word()?;
            self.words.push(word);
        }
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        let (result, rsp) = (self.word()?, self.context().rsp);
        self.define(&[0xc3]);
        self.words.push(Access { addr: rsp, size: 8, store: false, io: false, insn: 0 }.encode());
        self.words.extend([Head::encode(Kind::Return, 0, 0), result]);
        Ok(())
    }

    fn discontinuity(&mut self) -> Result<()> {
        let (kind, cr2, pc) = (self.byte()?, self.word()?, self.context().at);
        let handler = self.function(1);
        self.words.extend([Head::encode(Kind::Discontinuity, 1 + kind as u8 % 2, pc), handler, cr2]);
        let ring = (self.ring + kind as usize / 128) % 3;
        self.send(ring);
        Ok(())
    }

    fn module(&mut self) -> Result<()> {
        match self.byte()? % 6 {
            0 => self.words.push(Head::encode(Kind::ModuleUnload, 0, 0x1234_5678)),
            1 => self.words.extend(loads_other(b"core\0\0\0\0")),
            2 => self.words.push(Head::encode(Kind::OtherUnload, 0, CORE + 0x800)),
            3 => self.words.extend([Head::encode(Kind::ModuleFree, 0, 0x1234_5678), MODULE, MODULE + 0x1000]),
            4 => self.words.extend(begins()),
            _ => self.words.push(Head::encode(Kind::End, 0, 0)),
        }
        Ok(())
    }

    fn stack(&mut self) -> Result<()> {
        let (number, frames) = (self.byte()? % 4, self.byte()? % 8);
        self.words.push(Head::encode(Kind::Stack, frames as u8, number));
        for _ in 0..frames {
            let at = self.byte()?;
            let frame = StackFrame {
                address: self.function(at) + 9,
                interrupted: at & 0x40 != 0,
                switched: at & 0x80 != 0,
            };
            self.words.push(frame.encode());
        }
        self.enter_words(EnterFlags::ARGS | EnterFlags::STACK, 0);
        self.words.extend(six(&[]));
        let from = self.function(0) + 9;
        self.words.extend([from, number]);
        Ok(())
    }

    fn thread(&mut self) -> Result<()> {
        let n = self.byte()?;
        let task = TASK + (n & 3) * 0x1000;
        self.words.extend([Head::encode(Kind::Thread, (n >> 6) as u8, 42 + (n & 7)), task, n, 0]);
        Ok(())
    }

    /// An earlier segment again.
    fn again(&mut self) -> Result<()> {
        let back = self.byte()? as usize;
        if let Some((_, words)) = self.segments.iter().rev().nth(back % 8) {
            let words = words.clone();
            // Each repetition of a repetition would be twice as long.
            if self.words.len() + words.len() < 256 {
                self.words.extend(words);
            }
        }
        Ok(())
    }

    /// A record of any kind, or any word.
    fn raw(&mut self) -> Result<()> {
        let choice = self.byte()? as u8;
        let Some(kind) = Kind::from_bits(choice % 24) else {
            let word = self.input.arbitrary::<u64>()?;
            self.words.push(word);
            return Ok(());
        };
        let (small, large) = (self.byte()? as u8, self.word()?);
        self.words.push(Head::encode(kind, small, large & ((1 << 48) - 1)));
        for _ in 0..choice / 24 * 2 {
            let word = self.word()?;
            self.words.push(word);
        }
        Ok(())
    }
}

/// Whether a function is watched wherever it is called.
fn is_hook(kernel: &Kernel, name: &str) -> bool {
    let hooks = (0..).map_while(|number| machine::World::hook(kernel, number));
    hooks.into_iter().any(|hook| hook.name == name)
}
