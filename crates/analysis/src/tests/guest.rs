//! A guest made of words: one module, a few kernel functions, and the events that running code would log.

pub use super::kernel::*;
use crate::checkers;
use crate::outcome::Outcome;
use crate::replay::Replay;
use guardrail_finding::Finding;
use guardrail_knowledge::effect::{Class, Direction, Effect, Len, Ptr, Zeroed};
use guardrail_trace::event::{Access, EnterFlags, Head, Kind, StackFrame};
use std::rc::Rc;

pub const TASK: u64 = 0xffff_8880_0100_0000;
/// The value of rsp where `f` begins.
pub const STACK: u64 = 0xffff_c900_0000_3f00;
/// The value of rsp where the kernel calls functions for itself.
pub const KERNEL_STACK: u64 = STACK - 0x4_0000;
pub const VMALLOC: u64 = 0xffff_c900_1000_0000;
pub const MMIO: u64 = 0xffff_c900_2000_0000;
/// Values of registers that effects name by argument.
pub const GFP_KERNEL: u64 = 0xcc0;
pub const GFP_ZERO: u64 = 0x100;

/// A kernel with functions that allocate, free and copy memory.
pub fn kernel() -> Kernel {
    let (to, from, len) = (Ptr::Arg(0), Ptr::Arg(1), Len::Arg(2));
    let moved = |size, cache, realloc, class| Effect::Alloc {
        class,
        size,
        zeroed: Zeroed::Gfp(if cache { 1 } else { 2 }),
        page: false,
        cache: cache.then_some(0),
        realloc,
    };
    let classes = vec![Class::Cache, Class::Slab];
    let bulk = Effect::AllocList {
        class: Class::Cache,
        size: Len::Deref(0),
        zeroed: Zeroed::Gfp(1),
        cache: Some(0),
    };
    Kernel::new()
        .hook("kmalloc", [alloc(Class::Slab, Len::Arg(0), Zeroed::Gfp(1))])
        .hook("kfree", [free(0, Class::Slab)])
        .hook("vmalloc", [alloc(Class::Vmalloc, Len::Arg(0), Zeroed::No)])
        .hook("vfree", [free(0, Class::Vmalloc)])
        .hook("ioremap", [alloc(Class::Io, Len::Arg(1), Zeroed::No)])
        .hook("devm_kmalloc", [alloc(Class::Managed, Len::Arg(1), Zeroed::Gfp(2))])
        .hook("krealloc", [moved(Len::Arg(1), false, Some(0), Class::Slab)])
        .hook("kmem_cache_alloc", [moved(Len::Deref(0), true, None, Class::Cache)])
        .recording(2)
        .hook("kmem_cache_alloc_bulk", [bulk])
        .recording(4)
        .hook("kmem_cache_free_bulk", [Effect::FreeList { classes: classes.clone(), cache: Some(0) }])
        .hook("kmem_cache_free", [Effect::Free { ptr: from, classes, cache: Some(0) }])
        .hook("kmem_cache_create", [Effect::CreateCache { ctor: Len::Arg(4), flags: Len::Arg(3) }])
        .hook("vmap", [Effect::Alias { count: 1 }])
        .hook("ksize", [Effect::Grow { ptr: to }])
        .function("copy_to_user", [Effect::ToUser { src: from, len }])
        .function("dma_map_single", [Effect::DmaMap { ptr: from, len, direction: Direction::Arg(3) }])
        .hook("dma_alloc_attrs", [alloc(Class::Dma, Len::Arg(1), Zeroed::Yes)])
        .hook("dma_free_attrs", [free(2, Class::Dma)])
        .function("memcpy", [Effect::Copy { dst: to, src: from, len }])
        .function("strlen", [Effect::Read { ptr: to, len: Len::Result { extra: 1, bound: None } }])
        .function("strnlen", [Effect::Read { ptr: to, len: Len::Result { extra: 1, bound: Some(1) } }])
        .function("memchr", [Effect::Read { ptr: to, len: Len::Found(Some(2)) }])
        .function("strchr", [Len::Const(1), Len::Found(None)].map(|len| Effect::Read { ptr: to, len }))
        .function(
            "strscpy",
            [Len::AtMost(1, 2), Len::Result { extra: 1, bound: Some(2) }]
                .map(|len| Effect::Read { ptr: from, len }),
        )
        .function("kstrdup", [Effect::Escape { arg: 0 }, Effect::Read { ptr: to, len: Len::Const(1) }])
        .function("crc32_le", [Effect::Escape { arg: 1 }, Effect::Read { ptr: from, len }])
        .function("strncmp", [Effect::Read { ptr: to, len: Len::AtMost(1, 2) }])
        .function("_printk", [Effect::Format { format: 0 }])
        .function("snprintf", [Effect::Format { format: 2 }])
        .function("look_at", [Effect::Read { ptr: to, len: Len::Const(8) }])
        .unknown("scribble")
}

/// The guest, with the words that are not sent yet.
pub struct Guest {
    replay: Replay,
    kernel: Rc<Kernel>,
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
        let mut guest = Guest::with(kernel(), &["dmcheck"]);
        guest.enter();
        guest
    }

    /// A guest with another kernel and other tools, with the module loaded.
    pub fn with(kernel: Kernel, tools: &[&str]) -> Guest {
        let kernel = Rc::new(kernel);
        let tools: Vec<String> = tools.iter().map(|tool| (*tool).to_owned()).collect();
        let checkers = checkers::by_names(&tools).expect("the tool exists");
        let replay = Replay::new(Box::new(Kernel::clone(&kernel)), checkers);
        let mut guest =
            Guest { replay, kernel, words: begins(), blocks: 0, ring: 0, who: (TASK, 42, 0, 0), rsp: STACK };
        guest.words.extend([Head::encode(Kind::Thread, 0, 42), TASK, u64::from_le_bytes(*b"insmod\0\0"), 0]);
        guest.send(4);
        guest
    }

    /// The address of a kernel function.
    pub fn function(&self, name: &str) -> u64 {
        self.kernel.address(name)
    }

    /// Sends the gathered words as a segment.
    pub fn send(&mut self, ring: u32) {
        let words = std::mem::take(&mut self.words);
        let ring = if ring == 0 { self.ring } else { ring };
        self.replay.segment(ring, &words);
    }

    /// Sends words unchanged.
    pub fn raw(&mut self, ring: u32, words: &[u64]) {
        self.replay.segment(ring, words);
    }

    fn enter_words(&mut self, args: bool, rax: u64) {
        let (task, pid, count, flags) = self.who;
        let flags = if args { flags | EnterFlags::ARGS } else { flags };
        self.words.extend([Head::encode(Kind::Enter, flags, count), task, self.rsp, rax, pid]);
        if args {
            self.words.extend([0; 6]);
            self.words.push(self.function("caller") + 9);
        }
    }

    /// The kernel calls the driver.
    pub fn enter(&mut self) {
        self.send(0);
        self.enter_words(true, 0);
    }

    /// The kernel calls the driver from a stack with this number and these frames: address, whether it was
    /// interrupted there, and whether the frame before is on another stack.
    pub fn enter_below(&mut self, number: u64, frames: &[(u64, bool, bool)]) {
        self.send(0);
        self.words.push(Head::encode(Kind::Stack, frames.len() as u8, number));
        self.words.extend(
            frames.iter().map(|&(address, interrupted, switched)| {
                StackFrame { address, interrupted, switched }.encode()
            }),
        );
        let flags = self.who.3;
        self.who.3 |= EnterFlags::STACK;
        self.enter_words(true, 0);
        self.words.push(number);
        self.who.3 = flags;
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

    /// What follows runs on this stack, at the level that `preempt_count` says.
    pub fn goes_on(&mut self, rsp: u64, preempt_count: u64) {
        (self.rsp, self.who.2) = (rsp, preempt_count);
    }

    /// A block of code at `addr` runs.
    pub fn block(&mut self, addr: u64, bytes: &[u8]) -> &mut Self {
        self.blocks += 1;
        self.replay.segment(4, &defines(self.blocks, addr, bytes));
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

    /// The driver calls a kernel function at `addr`.
    pub fn call(&mut self, addr: u64, name: &str, args: &[u64]) {
        self.call_at(addr, self.function(name), args);
    }

    /// The driver's function ends with a jump to a kernel function.
    pub fn jump(&mut self, addr: u64, name: &str) {
        self.block(addr, &[0xe9, 0, 0, 0, 0]);
        self.words.extend([Head::encode(Kind::Call, 1, self.function(name)), self.rsp, 0, 0, 0, 0, 0, 0]);
        self.send(0);
    }

    /// A hooked function begins; `ret` is its return address.
    pub fn hook(&mut self, name: &str, rsp: u64, ret: u64, args: &[u64]) {
        let number = self.kernel.number(name);
        self.words.extend([Head::encode(Kind::HookCall, args.len() as u8, number), TASK, rsp, ret]);
        self.words.extend(args);
        self.send(0);
    }

    pub fn hook_return(&mut self, name: &str, rsp: u64, result: u64) {
        self.words.extend([Head::encode(Kind::HookRet, 0, self.kernel.number(name)), rsp, result]);
        self.send(0);
    }

    /// The kernel calls a hooked function for itself; its return is not seen.
    pub fn begun_by_kernel(&mut self, name: &str, args: &[u64]) {
        self.hook(name, KERNEL_STACK, self.function("caller"), args);
    }

    /// The kernel calls a hooked function for itself.
    pub fn by_kernel(&mut self, name: &str, args: &[u64], result: u64) {
        self.begun_by_kernel(name, args);
        self.hook_return(name, KERNEL_STACK, result);
    }

    /// The elements of a list that was passed to the hooked function.
    pub fn list(&mut self, name: &str, rsp: u64, words: &[u64]) {
        self.words.extend([Head::encode(Kind::List, 0, self.kernel.number(name)), rsp, words.len() as u64]);
        self.words.extend(words);
        self.send(0);
    }

    /// The kernel function has returned; a block follows.
    pub fn back(&mut self, result: u64) {
        self.rsp += 8;
        self.enter_words(false, result);
    }

    /// The driver calls a hooked function at `addr`, which returns `result`.
    pub fn hooked(&mut self, addr: u64, name: &str, args: &[u64], result: u64) {
        self.call(addr, name, &args[..args.len().min(6)]);
        self.hook(name, self.rsp, addr + 5, args);
        self.hook_return(name, self.rsp, result);
        self.back(result);
    }

    /// The driver calls a kernel function at `addr` and it returns.
    pub fn called(&mut self, addr: u64, name: &str, args: &[u64]) {
        self.call(addr, name, args);
        self.back(0);
    }

    /// An exception at `pc`.
    pub fn page_fault(&mut self, pc: u64, addr: u64) {
        self.send(0);
        self.words.extend([
            Head::encode(Kind::Discontinuity, 2, pc),
            self.function("asm_exc_page_fault"),
            addr,
        ]);
        self.send(0);
    }

    /// Like [`Self::page_fault`], in two records.
    pub fn page_fault_in_two(&mut self, pc: u64, addr: u64) {
        self.send(0);
        self.words.extend([Head::encode(Kind::Discontinuity, 2, pc - 2), pc - 2, addr]);
        self.send(0);
        self.words.extend([Head::encode(Kind::Discontinuity, 1, pc), self.function("asm_exc_page_fault"), 0]);
        self.send(0);
    }

    /// A timer's interrupt at `pc`.
    pub fn interrupt(&mut self, pc: u64) {
        self.send(0);
        self.words.extend([Head::encode(Kind::Discontinuity, 1, pc), self.function("caller"), 0]);
        self.send(0);
    }

    /// The code returns to the instruction that faulted, or that was interrupted.
    pub fn retry(&mut self) {
        self.enter_words(false, 0);
    }

    /// A module that is not watched is loaded, with its code at `CORE`.
    pub fn load_other(&mut self, name: &[u8; 8]) {
        self.send(0);
        self.words = loads_other(name);
        self.send(4);
    }

    pub fn unload_other(&mut self) {
        self.send(0);
        self.words.push(Head::encode(Kind::OtherUnload, 0, CORE + 0x800));
        self.send(4);
    }

    /// The code at `addr` calls the function at `target`, which returns.
    pub fn called_at(&mut self, addr: u64, target: u64, args: &[u64]) {
        self.call_at(addr, target, args);
        self.back(0);
    }

    /// The code at `addr` calls the function at `target`.
    pub fn call_at(&mut self, addr: u64, target: u64, args: &[u64]) {
        self.block(addr, &[0xe8, 0, 0, 0, 0]);
        self.words.extend([Head::encode(Kind::Call, 0, target), self.rsp]);
        self.words.extend(six(args));
        self.rsp -= 8;
        self.store(0, self.rsp, 8);
        self.send(0);
    }

    /// The driver's function returns to the kernel, with the `ret` at `addr`.
    pub fn leave_at(&mut self, addr: u64) {
        let rsp = self.rsp;
        self.block(addr, &[0xc3]).load(0, rsp, 8);
        self.words.extend([Head::encode(Kind::Return, 0, 0), 0]);
        self.send(0);
    }

    pub fn unload(&mut self) {
        self.send(0);
        self.words.push(Head::encode(Kind::ModuleUnload, 0, 0x1234_5678));
        self.send(4);
    }

    /// The verdicts on findings that are new or judged anew.
    pub fn verdicts(&mut self) -> Vec<Option<String>> {
        self.send(0);
        let mut found = Vec::new();
        self.replay.news(|finding, _| {
            found.push(finding.triage.clone());
            false
        });
        found
    }

    /// The kinds of findings that are new or judged anew, each with whether it may still be taken back.
    pub fn doubts(&mut self) -> Vec<(String, bool)> {
        self.send(0);
        let mut found = Vec::new();
        self.replay.news(|finding, in_doubt| {
            found.push((finding.kind.clone(), in_doubt));
            false
        });
        found
    }

    pub fn finish(mut self) -> Outcome {
        self.send(0);
        self.replay.finish()
    }

    /// The number of findings so far.
    pub fn so_far(&self) -> usize {
        self.replay.findings()
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
