//! `stackcheck`: checks kernel, interrupt and exception stacks.
//!
//! Every block that takes room from the stack is checked before it runs. If too little room is left, the
//! client reports an overflow. In stringent mode it also ends the thread before a byte is overwritten,
//! in the way in which the kernel ends a faulty thread. The client also records the deepest stack of
//! each thread.
//!
//! Options: `mode=permissive|stringent`, and `reserve=BYTES`. The latter says how near the end counts as
//! an overflow; the default is 8, the size of the kernel's own mark.

mod decline;
mod stacks;
mod stop;
mod threads;

use guardrail_client_api::register::{RFLAGS, RSP};
use guardrail_client_api::trace::event::level;
use guardrail_client_api::{
    Block, Cell, Client, Fault, FaultObject, PerVcpu, Results, Setup, Table, Unwinder, Vcpu, moment,
};
use stacks::{Kind, Stack, Stacks};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use stop::Stop;
use threads::Threads;

/// Bytes of the kernel's mark at the end of each task's stack (`STACK_END_MAGIC`).
const MARK: u64 = 8;
/// Most frames of a finding.
const FRAMES: usize = 64;
/// Most different overflows that are reported.
const MAX_FAULTS: usize = 1000;
/// Most threads in the table.
const ROWS: usize = 40;
/// The interrupt flag in RFLAGS.
const INTERRUPTS: u64 = 1 << 9;
/// The bits of `preempt_count` that are set while an interrupt is handled (softirq, hardirq, NMI;
/// include/linux/preempt.h).
const IN_INTERRUPT: u32 = 0x00ff_ff00;

/// The `stackcheck` client.
pub struct StackCheck {
    stacks: Stacks,
    stop: Option<Stop>,
    reserve: u64,
    unwinder: Arc<Unwinder>,
    current: PerVcpu<Current>,
    threads: Threads,
    faults: Mutex<Vec<Fault>>,
}

/// The stack that a vCPU uses now.
#[derive(Default)]
struct Current {
    /// Its lowest address. `top` is the address after its highest byte. Both are 0 where the stack is
    /// not known.
    base: AtomicU64,
    top: AtomicU64,
    /// The lowest address used since the vCPU entered the stack.
    low: AtomicU64,
    kind: AtomicU64,
    task: AtomicU64,
}

impl Client for StackCheck {
    const NAME: &'static str = "stackcheck";

    fn new(setup: &mut Setup) -> Result<Self, String> {
        setup.only(&["mode", "reserve"])?;
        let image = setup.kernel()?;
        let stop = match setup.option("mode").unwrap_or("permissive") {
            "permissive" => None,
            "stringent" => Some(Stop::new(&image)?),
            other => return Err(format!("mode={other} is neither permissive nor stringent")),
        };
        setup.threads();
        Ok(StackCheck {
            stacks: Stacks::new(&image)?,
            stop,
            reserve: setup.number("reserve", MARK)?.min(8192),
            unwinder: setup.unwinder()?,
            current: setup.per_vcpu(Current::default),
            threads: Threads::default(),
            faults: Mutex::default(),
        })
    }

    fn block(&'static self, block: &mut Block<Self>) {
        let decline = decline::of(block.insns());
        if decline.bytes > 0 {
            // The address is the kernel's, so its upper bits are all ones and need no room.
            let data = block.address() & 0xffff_ffff_ffff | decline.bytes.min(0xffff) << 48;
            match &self.stop {
                Some(_) => block.may_jump(data),
                None => block.call(data),
            }
        }
        for index in decline.unknown {
            let data = block.insn_address(index) & 0xffff_ffff_ffff;
            match &self.stop {
                Some(_) => block.may_jump_at(index, data),
                None => block.call_at(index, data),
            }
        }
    }

    fn executed(&'static self, vcpu: &mut Vcpu, data: u64) {
        let pc = data | 0xffff << 48;
        let rsp = vcpu.register(RSP);
        let inside = data >> 48 == 0;
        let lowest = match data >> 48 {
            // A register says how much the instruction takes.
            0 => rsp.wrapping_sub(decline::by_register(vcpu, pc).unwrap_or(0)),
            bytes => rsp.wrapping_sub(bytes),
        };
        let current = self.current.of(vcpu);
        let (base, top, low) =
            (current.base.load(Relaxed), current.top.load(Relaxed), current.low.load(Relaxed));
        if lowest >= low && rsp <= top && rsp > base {
            return;
        }
        self.deeper(vcpu, pc, rsp, lowest, inside);
    }

    fn switched(&'static self, vcpu: &mut Vcpu, _: u64, _: u64) {
        self.leave(vcpu);
    }

    fn attached(&'static self, vcpu: &mut Vcpu, _: bool) {
        let _ = vcpu;
        for current in self.current.all() {
            current.base.store(0, Relaxed);
            current.top.store(0, Relaxed);
        }
    }

    fn results(&'static self, results: &mut Results) {
        results.findings = self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let size = self.stacks.size();
        let deepest = self.threads.deepest();
        let row = |thread: &threads::Thread| {
            vec![
                Cell::Text(thread.name.clone()),
                Cell::Text(thread.kind.word().to_owned()),
                Cell::Count(thread.depth),
                Cell::Count(size.saturating_sub(thread.depth)),
                thread
                    .frames
                    .first()
                    .map_or_else(|| Cell::Text(String::new()), |frame| Cell::Function(frame.0)),
            ]
        };
        results.tables.push(Table {
            name: "deepest stacks".to_owned(),
            columns: ["thread", "stack", "bytes used", "bytes left", "deepest in"]
                .map(str::to_owned)
                .to_vec(),
            rows: deepest.iter().take(ROWS).map(row).collect(),
            ..Table::default()
        });
        if let Some(first) = deepest.first() {
            let mut frames = first.frames.clone();
            frames.sort_by_key(|frame| std::cmp::Reverse(frame.1));
            results.tables.push(Table {
                name: format!("what uses the stack of {}", first.name),
                columns: ["function", "bytes"].map(str::to_owned).to_vec(),
                rows: frames
                    .into_iter()
                    .map(|(pc, bytes)| vec![Cell::Function(pc), Cell::Count(bytes)])
                    .collect(),
                ..Table::default()
            });
        }
    }
}

impl StackCheck {
    /// Handles a stack that grows beyond its lowest address so far, or another stack in use.
    #[cold]
    fn deeper(&'static self, vcpu: &mut Vcpu, pc: u64, rsp: u64, lowest: u64, inside: bool) {
        if self.stop.is_some() {
            // This read helps to prove the index of RFLAGS, which is needed to leave a block in the
            // middle. The proof needs changing flags. They do not change where stacks are entered: in
            // the scheduler, with interrupts off.
            vcpu.register(RFLAGS);
        }
        let current = self.current.of(vcpu);
        let (base, top) = (current.base.load(Relaxed), current.top.load(Relaxed));
        if rsp > top || rsp <= base {
            self.leave(vcpu);
            let Some(stack) = self.stacks.of(vcpu, rsp) else { return };
            self.enter(vcpu, &stack, rsp);
        }
        let current = self.current.of(vcpu);
        let (base, top) = (current.base.load(Relaxed), current.top.load(Relaxed));
        if base == 0 || lowest >= current.low.load(Relaxed) {
            return;
        }
        current.low.store(lowest, Relaxed);
        let (task, kind) = (current.task.load(Relaxed), Kind::of(current.kind.load(Relaxed)));
        let depth = top.saturating_sub(lowest);
        if self.threads.is_news(task, kind, depth) {
            let name = vcpu.task_name(task).unwrap_or_default();
            let frames = stacks::frames(&self.unwinder, vcpu, pc, lowest);
            self.threads.note(task, kind, name, depth, frames);
        }
        if lowest < base + self.reserve {
            let stopped = self.overflow(vcpu, pc, lowest, inside, &Stack { base, top, kind, task });
            if let Some(room) = stopped {
                self.send(vcpu, room);
            }
        }
    }

    fn enter(&self, vcpu: &mut Vcpu, stack: &Stack, rsp: u64) {
        let current = self.current.of(vcpu);
        current.kind.store(stack.kind as u64, Relaxed);
        current.task.store(stack.task, Relaxed);
        current.low.store(rsp, Relaxed);
        current.top.store(stack.top, Relaxed);
        current.base.store(stack.base, Relaxed);
    }

    /// Forgets the vCPU's current stack.
    fn leave(&self, vcpu: &mut Vcpu) {
        let current = self.current.of(vcpu);
        current.base.store(0, Relaxed);
        current.top.store(0, Relaxed);
        current.low.store(u64::MAX, Relaxed);
    }

    /// Reports an overflow. Returns the stack on which the thread can be ended, where it must be ended.
    fn overflow(
        &'static self,
        vcpu: &mut Vcpu,
        pc: u64,
        lowest: u64,
        inside: bool,
        stack: &Stack,
    ) -> Option<Stack> {
        let count = vcpu.preempt_count().unwrap_or(IN_INTERRUPT);
        // If an interrupt handler dies, the kernel always panics.
        let own = stack.kind == Kind::Thread && count & IN_INTERRUPT == 0;
        let room = match &self.stop {
            Some(stop) if own && (!inside || vcpu.jump_from_inside(stop.address())) => {
                self.stacks.interrupt(vcpu)
            }
            _ => None,
        };
        let rsp = vcpu.register(RSP);
        let mut fault = Fault {
            kind: "stack-overflow".to_owned(),
            message: format!(
                "needs {} bytes of the {} stack, which has {} of {} left{}",
                rsp.saturating_sub(lowest),
                stack.kind.word(),
                rsp.saturating_sub(stack.base),
                stack.top - stack.base,
                if room.is_some() { "; the thread is ended before it writes there" } else { "" },
            ),
            pc,
            access: Some((lowest, rsp.saturating_sub(lowest), true)),
            object: Some(FaultObject {
                address: stack.base,
                size: stack.top - stack.base,
                class: "stack".to_owned(),
                ..FaultObject::default()
            }),
            cpu: vcpu.index(),
            level: level(count).to_owned(),
            task: vcpu.task_name(stack.task).unwrap_or_default(),
            count: 1,
            when: moment(),
            contained: room.is_some(),
            ..Fault::default()
        };
        self.unwinder.stack(vcpu, pc, FRAMES, &mut fault.stack);
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let left = faults.len() < MAX_FAULTS;
        // One overflow passes through many blocks; the finding keeps the first one.
        match faults.iter_mut().find(|known| known.task == fault.task && known.object == fault.object) {
            Some(known) => known.count += 1,
            None if left => faults.push(fault),
            None => {}
        }
        room
    }

    /// Sends the vCPU to the instruction that ends the thread, on a stack with room. With interrupts
    /// off, no other code uses the interrupt stack. When the task ends, the kernel returns to the task's
    /// own stack and enables interrupts again.
    fn send(&self, vcpu: &mut Vcpu, room: Stack) {
        let Some(stop) = &self.stop else { return };
        let flags = vcpu.register(RFLAGS) & !INTERRUPTS;
        vcpu.set_register(RFLAGS, flags);
        vcpu.set_register(RSP, room.top - 64);
        self.leave(vcpu);
        vcpu.jump(stop.address());
    }
}
