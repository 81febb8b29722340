//! A guest whose tasks and interrupts access slots of memory; a checker records how the accesses are ordered.

pub use super::kernel::PREEMPT;
use super::kernel::kernel;
use super::probe::{Probe, Seen, Touch};
use crate::checker::Checker;
use crate::machine::World;
use crate::order::{Parts, Step};
use crate::replay::Replay;
pub use crate::tests::kernel::{F, G, HEAP, six};
use crate::tests::kernel::{Kernel, begins, defines, loads_other};
use guardrail_trace::event::{Access, EnterFlags, Head, Kind};
use std::cell::RefCell;
use std::rc::Rc;

/// The base of GS on vCPU 0.
pub const GS: u64 = 0xffff_8880_3000_0000;

/// The context that runs.
#[derive(Clone, Copy, Debug)]
pub struct Who {
    pub cpu: u32,
    pub task: u64,
    pub pid: u32,
    pub preempt: u64,
    pub irqs: bool,
    pub rsp: u64,
}

/// Task `n` on vCPU `n % 2`.
pub fn task(n: u64) -> Who {
    Who {
        cpu: (n % 2) as u32,
        task: 0xffff_8880_0100_0000 + n * 0x1000,
        pid: 40 + n as u32,
        preempt: 0,
        irqs: true,
        rsp: 0xffff_c900_0100_3f00 + n * 0x1_0000,
    }
}

/// A softirq on the time of task `n`.
pub fn softirq(n: u64) -> Who {
    Who { preempt: 0x100, rsp: 0xffff_c900_0000_3f00 + n % 2 * 0x1_0000, ..task(n) }
}

/// An interrupt on the time of task `n`.
pub fn hardirq(n: u64) -> Who {
    Who { preempt: 0x1_0000, irqs: false, rsp: 0xffff_c900_0020_3f00 + n % 2 * 0x1_0000, ..task(n) }
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
        let machine = Replay::new(Box::new(Rc::clone(&kernel)), vec![checker]);
        let mut guest = Guest { machine, kernel, seen, blocks: 0, place: F };
        guest.words(4, &begins());
        guest
    }

    /// The module that is not watched is loaded.
    pub fn load_other(&mut self) {
        self.words(4, &loads_other(b"core\0\0\0\0"));
    }

    pub fn words(&mut self, cpu: u32, words: &[u64]) {
        self.machine.segment(cpu, words);
    }

    fn flags(who: &Who) -> u8 {
        if who.irqs { EnterFlags::INTERRUPTS_ON } else { 0 }
    }

    /// The kernel function `caller` calls the driver's function at `self.place`.
    pub fn enter(&mut self, who: &Who, caller: &str, args: [u64; 6]) {
        let head = Head::encode(Kind::Enter, Guest::flags(who) | EnterFlags::ARGS, who.preempt);
        let mut words = vec![head, who.task, who.rsp, 0, u64::from(who.pid)];
        words.extend(args);
        words.push(self.kernel.address(caller) + 9);
        self.words(who.cpu, &words);
        self.block(who, &[0x90], &[]);
    }

    /// A block of code runs in a context.
    pub fn block(&mut self, who: &Who, bytes: &[u8], accesses: &[Access]) {
        self.block_and(who, bytes, accesses, &[]);
    }

    fn block_and(&mut self, who: &Who, bytes: &[u8], accesses: &[Access], more: &[u64]) {
        self.blocks += 1;
        self.words(4, &defines(self.blocks, self.place, bytes));
        let mut words = vec![Head::encode(Kind::Block, 0, self.blocks)];
        words.extend(accesses.iter().map(|a| a.encode()));
        words.extend(more);
        self.words(who.cpu, &words);
    }

    /// Touches place `n`: mov [rdi], al.
    pub fn touch(&mut self, who: &Who, n: u64) {
        self.block(who, &[0x88, 0x07], &[store(0, HEAP + n * 64, 1)]);
    }

    fn leave(&mut self, who: &Who, jump: bool, name: &str, args: [u64; 6]) {
        self.blocks += 1;
        let opcode = if jump { 0xe9 } else { 0xe8 };
        self.words(4, &defines(self.blocks, self.place, &[opcode, 0, 0, 0, 0]));
        let mut words = vec![Head::encode(Kind::Block, 0, self.blocks)];
        words.extend([Head::encode(Kind::Call, u8::from(jump), self.kernel.address(name)), who.rsp]);
        words.extend(args);
        if !jump {
            words.push(store(0, who.rsp - 8, 8).encode());
        }
        self.words(who.cpu, &words);
    }

    /// The driver calls a kernel function.
    pub fn call(&mut self, who: &Who, name: &str, args: &[u64]) {
        self.leave(who, false, name, six(args));
    }

    /// The driver's function ends with a jump to a kernel function.
    pub fn jump(&mut self, who: &Who, name: &str, args: &[u64]) {
        self.leave(who, true, name, six(args));
    }

    /// The kernel function returns to the driver.
    pub fn back(&mut self, who: &Who, result: u64) {
        let head = Head::encode(Kind::Enter, Guest::flags(who), who.preempt);
        self.words(who.cpu, &[head, who.task, who.rsp, result, u64::from(who.pid)]);
        self.block(who, &[0x90], &[]);
    }

    /// The driver calls a kernel function, which returns.
    pub fn called(&mut self, who: &Who, name: &str, args: &[u64], result: u64) {
        self.call(who, name, args);
        self.back(who, result);
    }

    /// The driver's function returns to the kernel.
    pub fn ret(&mut self, who: &Who, result: u64) {
        let returns = [Head::encode(Kind::Return, 0, 0), result];
        self.block_and(who, &[0xc3], &[load(0, who.rsp, 8)], &returns);
    }

    /// A hooked function begins.
    pub fn hook(&mut self, who: &Who, name: &str, rsp: u64, args: &[u64]) {
        let head = Head::encode(Kind::HookCall, 6, self.kernel.number(name));
        // The driver's call pushed the address behind the call.
        let ret = if rsp == who.rsp - 8 { self.place + 5 } else { self.kernel.address("vfs_read") + 50 };
        let mut words = vec![head, who.task, rsp, ret];
        words.extend(six(args));
        self.words(who.cpu, &words);
    }

    pub fn hook_return(&mut self, who: &Who, name: &str, rsp: u64, result: u64) {
        self.words(who.cpu, &[Head::encode(Kind::HookRet, 0, self.kernel.number(name)), rsp, result]);
    }

    /// The kernel calls a hooked function in a task, and it returns.
    pub fn hooked(&mut self, who: &Who, name: &str, args: &[u64], result: u64) {
        let rsp = who.rsp + 0x80;
        self.hook(who, name, rsp, args);
        self.hook_return(who, name, rsp, result);
    }

    /// The kernel calls the driver, which touches `n` and returns.
    pub fn run(&mut self, who: &Who, caller: &str, args: [u64; 6], n: u64) {
        self.enter(who, caller, args);
        self.touch(who, n);
        self.ret(who, 0);
    }

    /// An interrupt hits the driver.
    pub fn interrupt(&mut self, who: &Who) {
        self.words(
            who.cpu,
            &[Head::encode(Kind::Discontinuity, 1, self.place), self.kernel.address("up"), 0],
        );
    }

    pub fn touched(&self, n: u64) -> Touch {
        self.seen.borrow().touches.get(&n).cloned().unwrap_or_else(|| panic!("{n} was not touched"))
    }

    pub fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.borrow_mut().told)
    }

    /// Steps as `chart from→to`, with `!` where not allowed.
    pub fn steps(&self) -> Vec<String> {
        let charts = self.kernel.charts();
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

    pub fn machine(&mut self) -> &mut Replay {
        &mut self.machine
    }
}

pub fn load(insn: u16, addr: u64, size: u8) -> Access {
    Access { addr, size, store: false, io: false, insn }
}

pub fn store(insn: u16, addr: u64, size: u8) -> Access {
    Access { addr, size, store: true, io: false, insn }
}

/// Arguments of a callback that nothing depends on.
pub const NONE: [u64; 6] = [0; 6];
