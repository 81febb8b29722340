//! Nested flows on a vCPU: a thread, an interrupt within it, an exception within that. Each flow has a
//! clock of its own. The clock stops while another flow runs, and continues on whichever vCPU the flow
//! resumes.

mod entries;

pub use entries::Entries;
use guardrail_client_api::iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};
use guardrail_client_api::{Block, Client, Counter, Discontinuity, HookId, PerVcpu, Setup, Vcpu};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most nested flows. Interrupts never nest deeper: beyond this an event was missed, and only the
/// thread's flow is kept.
const MAX_DEPTH: usize = 64;
/// Most threads that wait at a time; more than are ever interrupted at once.
const MAX_WAITING: usize = 1 << 16;
/// The bytes of `iretq`.
const IRET: [u8; 2] = [0x48, 0xcf];

/// The level of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// A thread, in a system call or in a kernel thread's own code.
    Process,
    /// The idle task, pid 0. It includes the boot CPU's first thread, which becomes the idle task.
    Idle,
    /// Softirq handlers, in any thread or interrupt.
    Softirq,
    /// An interrupt of a device, the timer or another CPU.
    Hardirq,
    /// An exception: a page fault, a breakpoint, and so on.
    Exception,
    /// A non-maskable interrupt.
    Nmi,
}

impl Level {
    /// All levels, in the order of their numbers.
    pub const ALL: [Level; 6] =
        [Level::Process, Level::Softirq, Level::Hardirq, Level::Exception, Level::Nmi, Level::Idle];

    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Level::Process => "process",
            Level::Idle => "idle task",
            Level::Softirq => "softirq",
            Level::Hardirq => "hardirq",
            Level::Exception => "exception",
            Level::Nmi => "nmi",
        }
    }
}

/// A point in time or a duration, in instructions and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Instructions in the scope.
    pub insns: u64,
    /// Nanoseconds of host time; 0 where no client asked for time.
    pub ns: u64,
}

impl Clock {
    /// The duration since an earlier point.
    pub fn since(self, start: Clock) -> Clock {
        Clock { insns: self.insns.wrapping_sub(start.insns), ns: self.ns.wrapping_sub(start.ns) }
    }

    fn plus(self, more: Clock) -> Clock {
        Clock { insns: self.insns.wrapping_add(more.insns), ns: self.ns.wrapping_add(more.ns) }
    }
}

/// A flow that runs, or waits for the flow that interrupted it.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow<T> {
    /// Level of the flow.
    pub level: Level,
    /// Guest virtual address of the interrupt's entry; 0 for threads.
    pub entry: u64,
    /// The client's own data of the flow.
    pub data: T,
    /// How long it had run at `Cpu::resumed`, or when it was interrupted.
    ran: Clock,
}

/// The flows on one vCPU.
#[derive(Debug)]
pub struct Cpu<T> {
    /// Flows of the current thread, innermost last; never empty.
    flows: Vec<Flow<T>>,
    /// When the innermost flow resumed.
    resumed: Clock,
    /// Instructions by number of the level.
    totals: [u64; 6],
}

impl<T: Default> Cpu<T> {
    /// Makes a vCPU that runs its idle task.
    pub fn new() -> Cpu<T> {
        Cpu { flows: vec![thread(Level::Idle)], resumed: Clock::default(), totals: [0; 6] }
    }

    /// The innermost flow, which runs now.
    pub fn top(&mut self) -> &mut Flow<T> {
        if self.flows.is_empty() {
            self.flows.push(thread(Level::Process));
        }
        let last = self.flows.len() - 1;
        &mut self.flows[last]
    }

    /// How long the innermost flow has run.
    pub fn clock(&mut self, now: Clock) -> Clock {
        let since = now.since(self.resumed);
        self.top().ran.plus(since)
    }

    fn stop(&mut self, now: Clock) {
        let since = now.since(self.resumed);
        self.resumed = now;
        let top = self.top();
        top.ran = top.ran.plus(since);
        let level = top.level as usize;
        self.totals[level] = self.totals[level].wrapping_add(since.insns);
    }

    /// Starts a flow that interrupts the current one.
    pub fn enter(&mut self, now: Clock, level: Level, entry: u64, data: T) {
        self.stop(now);
        if self.flows.len() >= MAX_DEPTH {
            self.flows.truncate(1);
        }
        self.flows.push(Flow { level, entry, data, ran: Clock::default() });
    }

    /// Ends the innermost flow and returns it, with its running time. `None` for a thread's flow, which
    /// ends in another way.
    pub fn leave(&mut self, now: Clock) -> Option<(Flow<T>, Clock)> {
        self.stop(now);
        let ended = if self.flows.len() > 1 { self.flows.pop() } else { None };
        ended.map(|flow| {
            let ran = flow.ran;
            (flow, ran)
        })
    }

    /// Changes the level of the innermost flow from here on.
    pub fn becomes(&mut self, now: Clock, level: Level) {
        self.stop(now);
        self.top().level = level;
    }

    /// Level of the current thread's own flow.
    pub fn base(&mut self) -> Level {
        self.flows.first().map_or(Level::Process, |flow| flow.level)
    }

    /// Switches to another thread. Returns the flows of the previous one.
    pub fn switch(&mut self, now: Clock, flows: Option<Vec<Flow<T>>>, idle: bool) -> Vec<Flow<T>> {
        self.stop(now);
        let level = if idle { Level::Idle } else { Level::Process };
        let flows = flows.filter(|flows| !flows.is_empty()).unwrap_or_else(|| vec![thread(level)]);
        std::mem::replace(&mut self.flows, flows)
    }

    /// Instructions by level so far, in the order of [`Level::ALL`]. Their sum is what the vCPU has run.
    pub fn totals(&mut self, now: Clock) -> [u64; 6] {
        let mut totals = self.totals;
        let level = self.top().level as usize;
        totals[level] = totals[level].wrapping_add(now.since(self.resumed).insns);
        Level::ALL.map(|level| totals[level as usize])
    }
}

fn thread<T: Default>(level: Level) -> Flow<T> {
    Flow { level, entry: 0, data: T::default(), ran: Clock::default() }
}

/// The flows of all vCPUs. Clients pass their callbacks on to it.
pub struct Flows<T: Send> {
    /// Instructions that each vCPU has run.
    pub insns: Counter,
    /// The kernel's entries of interrupts and exceptions.
    pub entries: Entries,
    cpus: PerVcpu<Mutex<Cpu<T>>>,
    waiting: Mutex<HashMap<u64, Vec<Flow<T>>>>,
    softirq: Vec<HookId>,
    hardirq_ends: Vec<HookId>,
    born: Vec<HookId>,
    pid: u64,
    clock: Option<std::time::Instant>,
}

/// The flag in the data of a [`Block::call_at`](guardrail_client_api::Block::call_at) for an `iretq`.
pub const IRETQ: u64 = 1 << 63;

impl<T: Default + Send> Flows<T> {
    /// Requests all callbacks that flows need. With `softirqs`, softirqs are flows of their own; with
    /// `time`, clocks have nanoseconds.
    pub fn new(setup: &mut Setup, softirqs: bool, time: bool) -> Result<Flows<T>, String> {
        setup.discontinuities();
        setup.threads();
        let image = setup.kernel()?;
        let mut softirq = Vec::new();
        if softirqs {
            for name in ["handle_softirqs", "__do_softirq"] {
                // The newer function calls the older one as a wrapper.
                if softirq.is_empty() {
                    softirq.extend(setup.hook(name, true)?);
                }
            }
        }
        let mut hardirq_ends = Vec::new();
        if softirqs {
            hardirq_ends.extend(setup.hook("irq_exit_rcu", true)?);
        }
        let born = setup.hook("wake_up_new_task", false)?.into_iter().collect();
        Ok(Flows {
            insns: setup.counter(),
            entries: Entries::of(&image),
            cpus: setup.per_vcpu(|| Mutex::new(Cpu::new())),
            waiting: Mutex::default(),
            softirq,
            hardirq_ends,
            born,
            pid: setup.layout().task.pid,
            clock: time.then(std::time::Instant::now),
        })
    }

    /// Counts the block's instructions. Each count covers a run of instructions, up to one at which the
    /// block may end early.
    pub fn count<C: Client>(&self, block: &mut Block<C>) {
        let mut start = 0;
        for end in 1..=block.len() {
            if end == block.len() || may_stop(&block.insns()[end - 1]) {
                block.add_at(start, &self.insns, (end - start) as u64);
                start = end;
            }
        }
    }

    /// Requests a callback with [`IRETQ`] where the block ends an interrupt. Call it after
    /// [`count`](Self::count), because the instruction belongs to the handler.
    pub fn watch<C: Client>(&self, block: &mut Block<C>) {
        let last = block.len() - 1;
        if block.bytes().ends_with(&IRET)
            && block.insns().last().is_some_and(|insn| insn.code() == Code::Iretq)
        {
            block.call_at(last, IRETQ | (block.insn_address(last) & !IRETQ));
        }
    }

    /// The current time on a vCPU.
    pub fn now(&self, vcpu: &Vcpu) -> Clock {
        let ns = self.clock.map_or(0, |start| start.elapsed().as_nanos() as u64);
        Clock { insns: self.insns.of(vcpu.index()), ns }
    }

    /// Locks the flows of the current vCPU.
    pub fn of(&self, vcpu: &Vcpu) -> MutexGuard<'_, Cpu<T>> {
        lock(self.cpus.of(vcpu))
    }

    /// Starts the flow of an interrupt or exception. `None` for one of the firmware.
    pub fn begins(&self, vcpu: &Vcpu, kind: Discontinuity, to: u64, data: T) -> Option<Level> {
        if to >> 63 == 0 {
            return None;
        }
        let link = to.wrapping_sub(vcpu.slide().unwrap_or(0));
        let level = self.entries.level(kind, link);
        self.of(vcpu).enter(self.now(vcpu), level, to, data);
        Some(level)
    }

    /// Ends a flow before an `iretq` of [`watch`](Self::watch), and returns it with its running time.
    pub fn ends(&self, vcpu: &mut Vcpu, data: u64) -> Option<(Flow<T>, Clock)> {
        let rsp = vcpu.stack();
        // The kernel also uses `iretq` to synchronize its code. That one returns to the next
        // instruction.
        let target = vcpu.word(rsp, 8);
        if target == Some((data | IRETQ).wrapping_add(IRET.len() as u64)) {
            return None;
        }
        let now = self.now(vcpu);
        self.of(vcpu).leave(now)
    }

    /// Handles the entry of a hooked function.
    pub fn entered(&self, vcpu: &mut Vcpu, hook: HookId) {
        let now = self.now(vcpu);
        if self.softirq.contains(&hook) {
            self.of(vcpu).enter(now, Level::Softirq, 0, T::default());
        } else if self.born.contains(&hook) {
            // An earlier thread at the same address may have left flows, which are not this thread's.
            let [task, ..] = vcpu.args();
            lock(&self.waiting).remove(&task);
        }
    }

    /// Handles the return of a hooked function. Returns the flow that it ends, with its running time.
    pub fn left(&self, vcpu: &Vcpu, hook: HookId) -> Option<(Flow<T>, Clock)> {
        let now = self.now(vcpu);
        let mut cpu = self.of(vcpu);
        if self.softirq.contains(&hook) && cpu.top().level == Level::Softirq {
            return cpu.leave(now);
        }
        if self.hardirq_ends.contains(&hook) && cpu.top().level == Level::Hardirq {
            // The rest of an interrupt's exit, such as a switch to another thread, belongs to the
            // thread.
            let base = cpu.base();
            cpu.becomes(now, base);
        }
        None
    }

    /// Switches the vCPU from one task to another.
    pub fn switched(&self, vcpu: &mut Vcpu, from: u64, to: u64) {
        let idle = vcpu.word(to.wrapping_add(self.pid), 4) == Some(0);
        let now = self.now(vcpu);
        let mut waiting = lock(&self.waiting);
        let next = waiting.remove(&to);
        let before = self.of(vcpu).switch(now, next, idle);
        if waiting.len() >= MAX_WAITING {
            waiting.clear();
        }
        // The tasks with pid 0 have addresses of their own.
        waiting.insert(from, before);
    }

    /// Restarts after attachment to a running system: every current flow counts as a thread. All vCPUs
    /// stand still.
    pub fn restart(&self) {
        lock(&self.waiting).clear();
        for (cpu, index) in self.cpus.all().zip(0..) {
            let mut cpu = lock(cpu);
            let now = Clock { insns: self.insns.of(index), ns: cpu.resumed.ns };
            cpu.switch(now, None, false);
        }
    }

    /// Instructions of each vCPU by level, as [`Cpu::totals`]. Callable at any time.
    pub fn totals(&self) -> Vec<[u64; 6]> {
        let totals = |(cpu, index): (&Mutex<Cpu<T>>, u32)| {
            let mut cpu = lock(cpu);
            let now = Clock { insns: self.insns.of(index), ns: 0 };
            cpu.totals(now)
        };
        self.cpus.all().zip(0..).map(totals).collect()
    }
}

/// Whether the block may end with this instruction, although others follow. The instruction may fault.
/// Or QEMU may translate it again to run it alone, as it does for device registers and code that changes
/// itself.
///
/// The stack, the kernel's own variables and per-CPU ones are always present and plain memory.
fn may_stop(insn: &Instruction) -> bool {
    let elsewhere = |i| {
        insn.op_kind(i) == OpKind::Memory
            && !insn.is_ip_rel_memory_operand()
            && insn.memory_base() != Register::RSP
            && insn.memory_segment() != Register::GS
    };
    insn.flow_control() != FlowControl::Next
        || insn.is_privileged()
        || insn.is_string_instruction()
        || matches!(insn.mnemonic(), Mnemonic::Div | Mnemonic::Idiv | Mnemonic::In | Mnemonic::Out)
        || (insn.mnemonic() != Mnemonic::Lea && (0..insn.op_count()).any(elsewhere))
}

/// Locks a mutex, even after a panic of an earlier holder.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(insns: u64) -> Clock {
        Clock { insns, ns: 0 }
    }

    #[test]
    fn every_instruction_belongs_to_one_level() {
        let mut cpu: Cpu<()> = Cpu::new();
        cpu.enter(at(10), Level::Hardirq, 1, ());
        cpu.enter(at(15), Level::Softirq, 0, ());
        cpu.enter(at(22), Level::Exception, 2, ());
        assert_eq!(cpu.leave(at(25)).unwrap().1, at(3));
        assert_eq!(cpu.leave(at(40)).unwrap().1, at(7 + 15));
        assert_eq!(cpu.leave(at(41)).unwrap().1, at(5 + 1));
        // The order is process, softirq, hardirq, exception, nmi, idle.
        assert_eq!(cpu.totals(at(50)), [0, 22, 6, 3, 0, 19]);
        assert_eq!(cpu.totals(at(50)).iter().sum::<u64>(), 50);
        assert_eq!(cpu.leave(at(60)), None);
    }

    #[test]
    fn a_thread_that_waits_in_a_fault_is_still_in_it_later() {
        let (mut one, mut other): (Cpu<u8>, Cpu<u8>) = (Cpu::new(), Cpu::new());
        one.switch(at(5), None, false);
        one.enter(at(7), Level::Exception, 9, 1);
        let waiting = one.switch(at(10), None, true);
        assert_eq!(one.totals(at(12)), [2, 0, 0, 3, 0, 7]);
        other.switch(at(100), Some(waiting), false);
        assert_eq!(other.clock(at(104)), at(3 + 4));
        let (flow, ran) = other.leave(at(110)).unwrap();
        assert_eq!((flow.data, flow.level, ran), (1, Level::Exception, at(13)));
        // The thread itself has run two instructions, and continues.
        assert_eq!(other.clock(at(111)), at(3));
    }

    #[test]
    fn what_is_never_left_does_not_grow_without_end() {
        let mut cpu: Cpu<()> = Cpu::new();
        (0..1000).for_each(|i| cpu.enter(at(i), Level::Exception, 0, ()));
        assert!(cpu.flows.len() <= MAX_DEPTH);
        assert_eq!(cpu.totals(at(1000)).iter().sum::<u64>(), 1000);
    }
}
