//! A guest whose tasks and interrupts access slots of memory; a checker records how the accesses are ordered.

pub use super::kernel::PREEMPT;
use super::kernel::kernel;
use super::probe::{Probe, Seen, Written};
use crate::checker::Checker;
use crate::machine::World;
use crate::order::{Parts, Step};
use crate::replay::Replay;
pub use crate::tests::kernel::{CORE, F, G, HEAP};
use crate::tests::kernel::{Kernel, begins, defines, loads_needed, loads_other, six};
use guardrail_finding::Finding;
use guardrail_trace::event::{Access, EnterFlags, Head, Kind, StackFrame};
use std::cell::RefCell;
use std::rc::Rc;

/// The base of GS on vCPU 0.
pub const GS: u64 = 0xffff_8880_3000_0000;

/// The context that runs.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    pub cpu: u32,
    pub task: u64,
    pub pid: u32,
    pub preempt: u64,
    pub irqs: bool,
    pub rsp: u64,
}

/// Task `n` on vCPU `n % 2`.
pub fn task(n: u64) -> Context {
    Context {
        cpu: (n % 2) as u32,
        task: 0xffff_8880_0100_0000 + n * 0x1000,
        pid: 40 + n as u32,
        preempt: 0,
        irqs: true,
        rsp: 0xffff_c900_0100_3f00 + n * 0x1_0000,
    }
}

/// A softirq on the time of task `n`.
pub fn softirq(n: u64) -> Context {
    Context { preempt: 0x100, rsp: 0xffff_c900_0000_3f00 + n % 2 * 0x1_0000, ..task(n) }
}

/// An interrupt on the time of task `n`.
pub fn hardirq(n: u64) -> Context {
    Context { preempt: 0x1_0000, irqs: false, rsp: 0xffff_c900_0020_3f00 + n % 2 * 0x1_0000, ..task(n) }
}

pub struct Guest {
    machine: Replay,
    pub kernel: Rc<Kernel>,
    pub seen: Rc<RefCell<Seen>>,
    blocks: u64,
    pub place: u64,
}

impl Guest {
    pub fn new() -> Guest {
        Guest::with(Parts::default())
    }

    pub fn with(parts: Parts) -> Guest {
        let probe = Probe::default();
        let mut guest = Guest::of(Rc::clone(&probe.0), Box::new(probe));
        guest.machine.set_parts(parts);
        guest
    }

    /// A guest that one of the crate's checkers watches.
    pub fn checked(tool: &str) -> Guest {
        Guest::of(Rc::default(), crate::checkers::by_name(tool).expect("the tool exists"))
    }

    fn of(seen: Rc<RefCell<Seen>>, checker: Box<dyn Checker>) -> Guest {
        let kernel = Rc::new(kernel());
        let machine = Replay::new(Box::new(Kernel::clone(&kernel)), vec![checker]);
        let mut guest = Guest { machine, kernel, seen, blocks: 0, place: F };
        guest.words(4, &begins());
        guest
    }

    /// The module that is not watched is loaded.
    pub fn load_other(&mut self) {
        self.words(4, &loads_other(b"core\0\0\0\0"));
    }

    /// The module that the driver needs is loaded, and watched. The kernel calls the functions at its address.
    pub fn load_needed(&mut self) {
        self.words(4, &loads_needed());
    }

    pub fn words(&mut self, cpu: u32, words: &[u64]) {
        self.machine.segment(cpu, words);
    }

    /// What a context does next.
    pub fn by(&mut self, who: &Context) -> Running<'_> {
        Running { guest: self, who: *who }
    }

    pub fn written(&self, n: u64) -> Written {
        self.seen.borrow().writes.get(&n).cloned().unwrap_or_else(|| panic!("{n} was not written"))
    }

    pub fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.borrow_mut().log)
    }

    /// Steps as `chart from→to`, with `!` where not allowed.
    pub fn steps(&self) -> Vec<String> {
        let charts = World::charts(&*self.kernel);
        let name = |step: &Step, state: usize| charts[step.chart].states[state].name.clone();
        let steps = std::mem::take(&mut self.seen.borrow_mut().steps);
        let show = |s: &Step| {
            let not = if s.allowed { "" } else { "!" };
            format!("{}{} {}→{}", not, charts[s.chart].name, name(s, s.from), name(s, s.to))
        };
        steps.iter().map(show).collect()
    }

    /// Ends the run; returns each finding as `kind: message`.
    pub fn found(self) -> Vec<String> {
        let findings = self.machine.finish().findings;
        findings.iter().map(|f| format!("{}: {}", f.kind, f.message)).collect()
    }

    /// Ends the run; returns the findings.
    pub fn finish(self) -> Vec<Finding> {
        self.machine.finish().findings
    }

    pub fn machine(&mut self) -> &mut Replay {
        &mut self.machine
    }
}

/// A context of a guest that runs.
pub struct Running<'g> {
    guest: &'g mut Guest,
    who: Context,
}

impl Running<'_> {
    pub fn words(self, words: &[u64]) -> Self {
        self.guest.words(self.who.cpu, words);
        self
    }

    /// The driver's code begins to run, or runs on.
    fn enter_words(self, flags: u8, result: u64, more: &[u64]) -> Self {
        let Context { task, rsp, pid, preempt, irqs, .. } = self.who;
        let flags = flags | if irqs { EnterFlags::INTERRUPTS_ON } else { 0 };
        let head = Head::encode(Kind::Enter, flags, preempt);
        self.words(&[&[head, task, rsp, result, u64::from(pid)], more].concat()).block(&[0x90], &[])
    }

    /// The kernel function `caller` calls the driver's function at the guest's `place`.
    pub fn enter(self, caller: &str, args: &[u64]) -> Self {
        let ret = self.guest.kernel.address(caller) + 9;
        self.enter_words(EnterFlags::ARGS, 0, &[&six(args)[..], &[ret]].concat())
    }

    /// Like [`Self::enter`], with kernel functions above the caller, on a stack with this number.
    pub fn enter_below(self, number: u64, above: &[&str], caller: &str, args: &[u64]) -> Self {
        let at = |name: &&str| self.guest.kernel.address(name) + 9;
        let frames: Vec<u64> = [caller].iter().chain(above).map(at).collect();
        let ret = frames[0];
        let encode = |address| StackFrame { address, interrupted: false, switched: false }.encode();
        let mut words = vec![Head::encode(Kind::Stack, frames.len() as u8, number)];
        words.extend(frames.into_iter().map(encode));
        let flags = EnterFlags::ARGS | EnterFlags::STACK;
        self.words(&words).enter_words(flags, 0, &[&six(args)[..], &[ret, number]].concat())
    }

    /// A block of code runs.
    pub fn block(self, bytes: &[u8], accesses: &[Access]) -> Self {
        self.block_and(bytes, accesses, &[])
    }

    fn block_and(self, bytes: &[u8], accesses: &[Access], more: &[u64]) -> Self {
        self.guest.blocks += 1;
        let block = self.guest.blocks;
        self.guest.words(4, &defines(block, self.guest.place, bytes));
        let accesses: Vec<u64> = accesses.iter().map(|access| access.encode()).collect();
        self.words(&[&[Head::encode(Kind::Block, 0, block)], &accesses[..], more].concat())
    }

    /// Writes slot `n`: mov [rdi], al.
    pub fn write(self, n: u64) -> Self {
        self.block(&[0x88, 0x07], &[store(0, HEAP + n * 64, 1)])
    }

    /// mov eax, [rdi]
    pub fn load_word(self, addr: u64) -> Self {
        self.block(&[0x8b, 0x07], &[load(0, addr, 4)])
    }

    /// mov [rdi], eax
    pub fn store_word(self, addr: u64) -> Self {
        self.block(&[0x89, 0x07], &[store(0, addr, 4)])
    }

    /// The driver calls a kernel function.
    pub fn call(self, name: &str, args: &[u64]) -> Self {
        let (rsp, head) = (self.who.rsp, Head::encode(Kind::Call, 0, self.guest.kernel.address(name)));
        let words = [&[head, rsp], &six(args)[..], &[store(0, rsp - 8, 8).encode()]].concat();
        self.block_and(&[0xe8, 0, 0, 0, 0], &[], &words)
    }

    /// The driver's function ends with a jump to a kernel function.
    pub fn jump(self, name: &str, args: &[u64]) -> Self {
        let head = Head::encode(Kind::Call, 1, self.guest.kernel.address(name));
        let words = [&[head, self.who.rsp], &six(args)[..]].concat();
        self.block_and(&[0xe9, 0, 0, 0, 0], &[], &words)
    }

    /// The kernel function returns to the driver.
    pub fn back(self, result: u64) -> Self {
        self.enter_words(0, result, &[])
    }

    /// The driver calls a kernel function, which returns.
    pub fn called(self, name: &str, args: &[u64], result: u64) -> Self {
        self.call(name, args).back(result)
    }

    /// The driver's function returns to the kernel.
    pub fn ret(self, result: u64) -> Self {
        let rsp = self.who.rsp;
        self.block_and(&[0xc3], &[load(0, rsp, 8)], &[Head::encode(Kind::Return, 0, 0), result])
    }

    /// A hooked function begins.
    pub fn hook(self, name: &str, rsp: u64, args: &[u64]) -> Self {
        let (kernel, Context { task, rsp: outer, .. }) = (&self.guest.kernel, self.who);
        let head = Head::encode(Kind::HookCall, 6, kernel.number(name));
        // The driver's call pushed the address behind the call.
        let ret = if rsp == outer - 8 { self.guest.place + 5 } else { kernel.address("vfs_read") + 50 };
        self.words(&[&[head, task, rsp, ret], &six(args)[..]].concat())
    }

    pub fn hook_return(self, name: &str, rsp: u64, result: u64) -> Self {
        let head = Head::encode(Kind::HookRet, 0, self.guest.kernel.number(name));
        self.words(&[head, rsp, result])
    }

    /// The kernel calls a hooked function in a task, and it returns.
    pub fn hooked(self, name: &str, args: &[u64], result: u64) -> Self {
        let rsp = self.who.rsp + 0x80;
        self.hook(name, rsp, args).hook_return(name, rsp, result)
    }

    /// The kernel calls the driver, which writes slot `n` and returns.
    pub fn run(self, caller: &str, args: &[u64], n: u64) -> Self {
        self.enter(caller, args).write(n).ret(0)
    }

    /// An interrupt hits the driver.
    pub fn interrupt(self) -> Self {
        let head = Head::encode(Kind::Discontinuity, 1, self.guest.place);
        let to = self.guest.kernel.address("up");
        self.words(&[head, to, 0])
    }
}

pub fn load(insn: u16, addr: u64, size: u8) -> Access {
    Access { addr, size, store: false, io: false, insn }
}

pub fn store(insn: u16, addr: u64, size: u8) -> Access {
    Access { addr, size, store: true, io: false, insn }
}
