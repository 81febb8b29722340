//! A guest made of words: one module, a few kernel functions, and the events that running code would log.

use crate::machine::{ModuleMap, Range, Region, World};
use crate::outcome::Outcome;
use crate::session::{Config, Session};
use guardrail_finding::Finding;
use guardrail_knowledge::effect::{Class, Direction, Effect, Len, Ptr, Summary, Zeroed};
use guardrail_trace::event::{Access, EnterFlags, Global, Head, Kind, RegionFlags};
use std::sync::Arc;

pub const MODULE: u64 = 0xffff_ffff_c000_0000;
/// The function `f`, which tests run unless they say otherwise.
pub const F: u64 = MODULE + 0x100;
/// The function `g`.
pub const G: u64 = MODULE + 0x200;
/// A variable of 37 bytes with a gap behind it.
pub const SLOTS: u64 = MODULE + 0x2000;
/// The code of the other module `core`: `core_submit`, and 0x100 further `up_core`.
pub const CORE: u64 = 0xffff_ffff_c100_0000;
pub const SLIDE: u64 = 0x1000_0000;
const TEXT: u64 = 0xffff_ffff_8100_0000;
pub const TASK: u64 = 0xffff_8880_0100_0000;
/// The value of rsp where `f` begins.
pub const STACK: u64 = 0xffff_c900_0000_3f00;
pub const HEAP: u64 = 0xffff_8880_0200_0000;
pub const VMALLOC: u64 = 0xffff_c900_1000_0000;
pub const MMIO: u64 = 0xffff_c900_2000_0000;
/// Values of registers that effects name by argument.
pub const GFP_KERNEL: u64 = 0xcc0;
pub const GFP_ZERO: u64 = 0x100;

/// Kernel functions, by number: hooks first, then others. A new one that is no hook is added at the end.
const FUNCTIONS: [&str; 17] = [
    "kmalloc",
    "kfree",
    "vmalloc",
    "vfree",
    "ioremap",
    "devm_kmalloc",
    "krealloc",
    "kmem_cache_alloc",
    "kmem_cache_free",
    "ksize",
    "copy_to_user",
    "dma_map_single",
    "memcpy",
    "scribble",
    "asm_exc_page_fault",
    "caller",
    "look_at",
];
pub const KMALLOC: u64 = 0;
pub const KFREE: u64 = 1;
pub const VMALLOC_FN: u64 = 2;
pub const VFREE: u64 = 3;
pub const IOREMAP: u64 = 4;
pub const DEVM_KMALLOC: u64 = 5;
pub const KREALLOC: u64 = 6;
pub const CACHE_ALLOC: u64 = 7;
pub const CACHE_FREE: u64 = 8;
const HOOKS: u64 = 10;
pub const COPY_TO_USER: u64 = 10;
pub const DMA_MAP: u64 = 11;
pub const MEMCPY: u64 = 12;
/// A function without a summary.
pub const SCRIBBLE: u64 = 13;
pub const PAGE_FAULT: u64 = 14;
pub const CALLER: u64 = 15;
/// A function that reads what its first argument points to.
pub const LOOK_AT: u64 = 16;

/// The address of function `n` in memory.
pub fn function(n: u64) -> u64 {
    TEXT + n * 0x100 + SLIDE
}

struct Hand;

fn alloc(class: Class, size: Len, zeroed: Zeroed) -> Effect {
    Effect::Alloc { class, size, zeroed, page: false, cache: None, realloc: None }
}

fn free(classes: Vec<Class>) -> Effect {
    Effect::Free { ptr: Ptr::Arg(0), classes, cache: None }
}

fn effects(n: u64) -> Option<Vec<Effect>> {
    Some(match n {
        KMALLOC => vec![alloc(Class::Slab, Len::Arg(0), Zeroed::Gfp(1))],
        KFREE => vec![free(vec![Class::Slab])],
        VMALLOC_FN => vec![alloc(Class::Vmalloc, Len::Arg(0), Zeroed::No)],
        VFREE => vec![free(vec![Class::Vmalloc])],
        IOREMAP => vec![alloc(Class::Io, Len::Arg(1), Zeroed::No)],
        DEVM_KMALLOC => vec![alloc(Class::Managed, Len::Arg(1), Zeroed::Gfp(2))],
        KREALLOC => vec![Effect::Alloc {
            class: Class::Slab,
            size: Len::Arg(1),
            zeroed: Zeroed::Gfp(2),
            page: false,
            cache: None,
            realloc: Some(0),
        }],
        CACHE_ALLOC => vec![Effect::Alloc {
            class: Class::Cache,
            size: Len::Deref(0),
            zeroed: Zeroed::Gfp(1),
            page: false,
            cache: Some(0),
            realloc: None,
        }],
        CACHE_FREE => {
            vec![Effect::Free { ptr: Ptr::Arg(1), classes: vec![Class::Cache, Class::Slab], cache: Some(0) }]
        }
        9 => vec![Effect::Grow { ptr: Ptr::Arg(0) }],
        COPY_TO_USER => vec![Effect::ToUser { src: Ptr::Arg(1), len: Len::Arg(2) }],
        DMA_MAP => {
            vec![Effect::DmaMap { ptr: Ptr::Arg(1), len: Len::Arg(2), direction: Direction::Arg(3) }]
        }
        LOOK_AT => vec![Effect::Read { ptr: Ptr::Arg(0), len: Len::Const(8) }],
        MEMCPY => vec![Effect::Copy { dst: Ptr::Arg(0), src: Ptr::Arg(1), len: Len::Arg(2) }],
        _ => return None,
    })
}

fn summary(n: u64) -> Summary {
    let name = FUNCTIONS.get(n as usize).copied().unwrap_or("?");
    match effects(n) {
        Some(effects) => Summary { name: name.to_owned(), effects },
        None => Summary::unknown(name),
    }
}

impl World for Hand {
    fn function_at(&self, at: u64) -> Option<(String, u64)> {
        let offset = at.checked_sub(TEXT)?;
        let name = FUNCTIONS.get((offset / 0x100) as usize)?;
        Some(((*name).to_owned(), offset % 0x100))
    }
    fn hook(&self, number: u64) -> Option<Arc<Summary>> {
        (number < HOOKS).then(|| Arc::new(summary(number)))
    }
    fn hook_args(&self, number: u64) -> usize {
        if number == CACHE_ALLOC { 2 } else { 6 }
    }
    fn hook_address(&self, number: u64) -> u64 {
        TEXT + number * 0x100
    }
    fn call(&self, name: &str) -> Arc<Summary> {
        let n = FUNCTIONS.iter().position(|f| *f == name).unwrap_or(usize::MAX);
        Arc::new(summary(n as u64))
    }
    fn module(&self, name: &str, _: &[Region], _: &[u64]) -> Option<ModuleMap> {
        let range = |start: u64, end: u64, name: &str| Range { start, end, name: name.into() };
        if name == "core" {
            let functions =
                vec![range(CORE, CORE + 0x100, "core_submit"), range(CORE + 0x100, CORE + 0x200, "up_core")];
            return Some(ModuleMap { functions, ..ModuleMap::default() });
        }
        Some(ModuleMap {
            functions: vec![range(F, G, "f"), range(G, G + 0x100, "g")],
            data: vec![range(SLOTS, SLOTS + 37, "slots")],
            gaps: vec![range(SLOTS + 37, SLOTS + 64, "slots")],
            ex_table: vec![F + 0x80],
            lines: None,
        })
    }
}

/// The guest's kernel and module.
pub fn world() -> Box<dyn World> {
    Box::new(Hand)
}

/// The guest, with the words that are not sent yet.
pub struct Guest {
    session: Session,
    words: Vec<u64>,
    blocks: u64,
    /// The vCPU that runs where tests name 0.
    ring: u32,
    /// The running task, its pid, `preempt_count` and the flags of its entries.
    who: (u64, u64, u64, u8),
    pub rsp: u64,
}

impl Guest {
    /// A guest with the module loaded and `f` entered from the kernel.
    pub fn new() -> Guest {
        let mut guest = Guest::idle();
        guest.enter(F);
        guest
    }

    /// A guest with the module loaded.
    pub fn idle() -> Guest {
        Guest::with(Box::new(Hand), &["dmcheck"])
    }

    /// A guest in another world and with other tools, with the module loaded.
    pub fn with(world: Box<dyn World>, tools: &[&str]) -> Guest {
        let config = Config { world, tools: tools.iter().map(|tool| (*tool).to_owned()).collect() };
        let session = Session::new(config).expect("the tool exists");
        let mut guest =
            Guest { session, words: Vec::new(), blocks: 0, ring: 0, who: (TASK, 42, 0, 0), rsp: STACK };
        guest.words.extend([Head::encode(Kind::Global, Global::Slide as u8, 0), SLIDE]);
        guest.words.extend([Head::encode(Kind::Thread, 0, 42), TASK, u64::from_le_bytes(*b"insmod\0\0"), 0]);
        guest.words.extend([Head::encode(Kind::ModuleLoad, 2, 0x1234_5678), 0]);
        guest.words.extend([u64::from_le_bytes(*b"drv\0\0\0\0\0"), 0, 0, 0, 0, 0, 0, 0]);
        guest.words.extend([MODULE, 0x2000, RegionFlags::TEXT, SLOTS, 0x1000, 0]);
        guest.send(4);
        guest
    }

    /// Sends the gathered words as a segment.
    pub fn send(&mut self, ring: u32) {
        let words = std::mem::take(&mut self.words);
        let ring = if ring == 0 { self.ring } else { ring };
        self.session.segment(ring, &words);
    }

    /// Sends words unchanged.
    pub fn raw(&mut self, ring: u32, words: &[u64]) {
        self.session.segment(ring, words);
    }

    fn enter_words(&mut self, args: bool, rax: u64) {
        let (task, pid, count, flags) = self.who;
        let flags = if args { flags | EnterFlags::ARGS } else { flags };
        self.words.extend([Head::encode(Kind::Enter, flags, count), task, self.rsp, rax, pid]);
        if args {
            self.words.extend([0; 6]);
            self.words.push(function(CALLER) + 9);
        }
    }

    /// The kernel calls the driver at `addr`.
    pub fn enter(&mut self, addr: u64) {
        self.send(0);
        self.enter_words(true, 0);
        let _ = addr;
    }

    /// The kernel calls the driver on vCPU `ring`, in a task and at the level that `preempt_count` says.
    pub fn enter_as(&mut self, ring: u32, task: u64, rsp: u64, preempt_count: u64, irqs_on: bool) {
        self.send(0);
        self.ring = ring;
        self.rsp = rsp;
        let flags = if irqs_on { EnterFlags::INTERRUPTS_ON } else { 0 };
        self.who = (task, task >> 16 & 0xffff, preempt_count, flags);
        self.enter_words(true, 0);
    }

    /// A block of code at `addr` runs.
    pub fn block(&mut self, addr: u64, bytes: &[u8]) -> &mut Self {
        self.blocks += 1;
        let mut def = vec![Head::encode(Kind::BlockDef, 0, self.blocks), addr, bytes.len() as u64];
        def.extend(bytes.chunks(8).map(|c| {
            let mut word = [0; 8];
            word[..c.len()].copy_from_slice(c);
            u64::from_le_bytes(word)
        }));
        self.session.segment(4, &def);
        self.words.push(Head::encode(Kind::Block, 0, self.blocks));
        self
    }

    /// Instruction `insn` of the block accesses memory.
    pub fn access(&mut self, insn: u16, addr: u64, size: u8, store: bool) -> &mut Self {
        self.words.push(Access { addr, size, store, io: false, insn }.encode());
        self
    }

    pub fn load(&mut self, insn: u16, addr: u64, size: u8) -> &mut Self {
        self.access(insn, addr, size, false)
    }

    pub fn store(&mut self, insn: u16, addr: u64, size: u8) -> &mut Self {
        self.access(insn, addr, size, true)
    }

    /// Repeated instruction `insn` of the block begins.
    pub fn rep(&mut self, insn: u64, count: u64, rsi: u64, rdi: u64) {
        self.words.extend([Head::encode(Kind::Rep, 0, insn), count, rsi, rdi]);
    }

    pub fn device(&mut self, insn: u16, addr: u64, size: u8, store: bool) -> &mut Self {
        self.words.push(Access { addr, size, store, io: true, insn }.encode());
        self
    }

    /// The driver calls kernel function `n` at `addr`.
    pub fn call(&mut self, addr: u64, n: u64, args: [u64; 6]) {
        self.call_at(addr, function(n), args);
    }

    /// The driver's function ends with a jump to kernel function `n`.
    pub fn jump(&mut self, addr: u64, n: u64) {
        self.block(addr, &[0xe9, 0, 0, 0, 0]);
        self.words.extend([Head::encode(Kind::Call, 1, function(n)), self.rsp, 0, 0, 0, 0, 0, 0]);
        self.send(0);
    }

    /// A hooked function begins; `ret` is its return address.
    pub fn hook(&mut self, n: u64, rsp: u64, ret: u64, args: &[u64]) {
        self.words.extend([Head::encode(Kind::HookCall, args.len() as u8, n), TASK, rsp, ret]);
        self.words.extend(args);
        self.send(0);
    }

    pub fn hook_return(&mut self, n: u64, rsp: u64, result: u64) {
        self.words.extend([Head::encode(Kind::HookRet, 0, n), rsp, result]);
        self.send(0);
    }

    /// The elements of a list that was passed to the hooked function.
    pub fn list(&mut self, n: u64, rsp: u64, words: &[u64]) {
        self.words.extend([Head::encode(Kind::List, 0, n), rsp, words.len() as u64]);
        self.words.extend(words);
        self.send(0);
    }

    /// The kernel function has returned; a block follows.
    pub fn back(&mut self, result: u64) {
        self.rsp += 8;
        self.enter_words(false, result);
    }

    /// The driver calls hooked function `n` at `addr`, and it returns `result`.
    pub fn hooked(&mut self, addr: u64, n: u64, args: &[u64], result: u64) {
        let mut six = [0; 6];
        let count = args.len().min(6);
        six[..count].copy_from_slice(&args[..count]);
        self.call(addr, n, six);
        let rsp = self.rsp;
        self.hook(n, rsp, addr + 5, args);
        self.hook_return(n, rsp, result);
        self.back(result);
    }

    /// The driver calls kernel function `n` and it returns.
    pub fn called(&mut self, addr: u64, n: u64, args: [u64; 6]) {
        self.call(addr, n, args);
        self.back(0);
    }

    /// An exception at `pc`.
    pub fn page_fault(&mut self, pc: u64, addr: u64) {
        self.send(0);
        self.words.extend([Head::encode(Kind::Discontinuity, 2, pc), function(PAGE_FAULT), addr]);
        self.send(0);
    }

    /// Like [`Self::page_fault`], in two records.
    pub fn page_fault_in_two(&mut self, pc: u64, addr: u64) {
        self.send(0);
        self.words.extend([Head::encode(Kind::Discontinuity, 2, pc - 2), pc - 2, addr]);
        self.send(0);
        self.words.extend([Head::encode(Kind::Discontinuity, 1, pc), function(PAGE_FAULT), 0]);
        self.send(0);
    }

    /// The code returns to the instruction that faulted.
    pub fn retry(&mut self) {
        self.enter_words(false, 0);
    }

    /// A module that is not watched is loaded, with its code at `CORE`.
    pub fn load_other(&mut self, name: &[u8; 8]) {
        self.send(0);
        self.words.extend([Head::encode(Kind::OtherModule, 1, CORE + 0x800), 0]);
        self.words.extend([u64::from_le_bytes(*name), 0, 0, 0, 0, 0, 0, 0]);
        self.words.extend([CORE, 0x1000, RegionFlags::TEXT]);
        self.send(4);
    }

    pub fn unload_other(&mut self) {
        self.send(0);
        self.words.push(Head::encode(Kind::OtherUnload, 0, CORE + 0x800));
        self.send(4);
    }

    /// The code at `addr` calls the function at `target`, which returns.
    pub fn called_at(&mut self, addr: u64, target: u64, args: [u64; 6]) {
        self.call_at(addr, target, args);
        self.back(0);
    }

    /// The code at `addr` calls the function at `target`.
    pub fn call_at(&mut self, addr: u64, target: u64, args: [u64; 6]) {
        self.block(addr, &[0xe8, 0, 0, 0, 0]);
        self.words.extend([Head::encode(Kind::Call, 0, target), self.rsp]);
        self.words.extend(args);
        self.rsp -= 8;
        self.store(0, self.rsp, 8);
        self.send(0);
    }

    pub fn unload(&mut self) {
        self.send(0);
        self.words.push(Head::encode(Kind::ModuleUnload, 0, 0x1234_5678));
        self.send(4);
    }

    pub fn finish(mut self) -> Outcome {
        self.send(0);
        self.session.finish()
    }

    /// The number of findings so far.
    pub fn so_far(&self) -> usize {
        self.session.findings()
    }

    /// Ends the run; returns each finding as `kind at function+offset: message`.
    pub fn found(self) -> Vec<String> {
        let show = |f: &Finding| format!("{} at {}+{:#x}: {}", f.kind, f.function, f.offset, f.message);
        self.finish().findings.iter().map(show).collect()
    }
}

/// mov eax, [rdi]
pub const READ4: &[u8] = &[0x8b, 0x07];
/// mov [rdi], al
pub const WRITE1: &[u8] = &[0x88, 0x07];
/// mov eax, [rdi]; test eax, eax; jz +0
pub const READ_AND_BRANCH: &[u8] = &[0x8b, 0x07, 0x85, 0xc0, 0x74, 0x00];
