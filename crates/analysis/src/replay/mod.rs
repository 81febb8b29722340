//! Rebuilds the machine from the log: vCPUs, contexts with their call stacks, modules, objects. Calls the
//! checkers.
//!
//! A block's instructions run on shadow registers as far as its accesses are known. The end of a segment does
//! not end its block. The instructions after the last access run when the next event of the vCPU shows how
//! the block continued.

mod calls;
mod coverage;
mod fan;
mod hook_facts;
mod hooks;
mod load;
mod order;
mod own_stacks;
mod requests;

use crate::checker::{Checker, Cx, Fault};
use crate::definedness::Definedness;
use crate::level::Level;
use crate::machine::{Activation, BlockInfo, Context, End, State, World, describe};
use crate::order::Parts;
use crate::outcome::{Outcome, Statistics};
use crate::reports::Reports;
use crate::stacks::{CallTrace, OuterId};
use crate::value_flow::{Regs, Rep};
use fan::{Accessed, Fan};
use guardrail_finding::Finding;
use guardrail_trace::event::{Access, Cut, EnterFlags, Event, Events, Global, Head, Kind, MAX_STACKS};
use guardrail_trace::meet::Meet;
use hook_facts::AllHookFacts;
use hooks::HookFrames;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Most vCPUs, and most contexts, that are known at a time.
const MAX_VCPUS: usize = 512;
const MAX_CONTEXTS: usize = 8192;
/// Most accesses of one block that are kept for it.
const MAX_PENDING: usize = 1 << 20;

/// A call or jump out of the driver that the log has announced and that has not happened yet.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    jump: bool,
    target: u64,
    rsp: u64,
    args: [u64; 6],
}

/// An entry into the driver, whose first block follows.
#[derive(Clone, Copy, Debug)]
struct Entering {
    flags: u8,
    preempt_count: u64,
    task: u64,
    rsp: u64,
    rax: u64,
    pid: u32,
    args: bool,
    ret: u64,
    registers: [u64; 6],
    outer: OuterId,
}

#[derive(Debug)]
struct Running {
    block: Rc<BlockInfo>,
    next: usize,
    /// How many of the block's instructions run.
    limit: usize,
}

#[derive(Debug, Default)]
struct Vcpu {
    context: Option<usize>,
    running: Option<Running>,
    accesses: Vec<Access>,
    reps: Vec<Rep>,
    leaving: Option<Leaving>,
    entering: Option<Entering>,
    /// The address behind the call that ended the last block.
    called: Option<u64>,
    /// CR2 of an exception whose handler is not known yet.
    exception: Option<u64>,
    /// The stacks that its ring defines; the first has the number 1.
    outer: Vec<OuterId>,
}

/// The machine that the log describes, with the checkers that run over it.
pub struct Replay {
    state: State,
    contexts: Vec<Context>,
    by_key: FxHashMap<(u64, Level), usize>,
    /// The contexts of stacks that are a driver's own, by the stack's number.
    own_stacks: FxHashMap<u64, usize>,
    vcpus: Vec<Vcpu>,
    hooks: HookFrames,
    hook_facts: AllHookFacts,
    /// Guest addresses of caches whose objects have a constructor.
    constructed: FxHashSet<u64>,
    /// Guest addresses of caches whose objects may be read after their free, under RCU (`SLAB_TYPESAFE_BY_RCU`).
    typesafe: FxHashSet<u64>,
    checkers: Vec<Box<dyn Checker>>,
    accessed: Accessed,
    reports: Reports,
    definedness: Definedness,
    statistics: Statistics,
    unknown: BTreeMap<String, u64>,
    order: order::Ordering,
    ran: coverage::Ran,
}

impl Replay {
    /// A machine in which nothing has run.
    pub fn new(world: Box<dyn World>, checkers: Vec<Box<dyn Checker>>) -> Self {
        let (on, parts) = order::wanted(&checkers);
        let definedness = Definedness::new(
            checkers.iter().any(|checker| checker.needs_definedness()),
            checkers.iter().any(|checker| checker.needs_provenance()),
        );
        let mut machine = Replay {
            state: State::new(world),
            contexts: Vec::new(),
            by_key: FxHashMap::default(),
            own_stacks: FxHashMap::default(),
            vcpus: Vec::new(),
            hooks: HookFrames::default(),
            hook_facts: AllHookFacts::default(),
            constructed: FxHashSet::default(),
            typesafe: FxHashSet::default(),
            accessed: Accessed::by(&checkers),
            checkers,
            reports: Reports::default(),
            definedness,
            statistics: Statistics::default(),
            unknown: BTreeMap::new(),
            order: order::Ordering::new(on),
            ran: coverage::Ran::default(),
        };
        if on {
            machine.prepare_order(parts);
        }
        machine
    }

    /// Chooses which parts of the order count, instead of the checkers' choice.
    pub fn set_parts(&mut self, parts: Parts) {
        self.prepare_order(parts);
    }

    /// Takes the next segment in the order of the run. `ring` is the vCPU that wrote it.
    pub fn segment(&mut self, ring: u32, words: &[u64]) {
        let v = ring as usize;
        if v >= MAX_VCPUS {
            self.statistics.damaged_segments += 1;
            return;
        }
        if v >= self.vcpus.len() {
            self.vcpus.resize_with(v + 1, Vcpu::default);
        }
        self.statistics.segments += 1;
        let mut events = Events::new(words);
        loop {
            self.accesses(v, &mut events);
            let Some(event) = events.next() else { break };
            self.statistics.events += 1;
            match event {
                Ok(Event::Record(head, operands)) => self.record(v, head, operands),
                // Those were taken before.
                Ok(Event::Access(_)) => {}
                Err(_) => self.statistics.damaged_segments += 1,
            }
        }
        self.settle(v);
    }

    /// Takes the accesses up to the next other event.
    #[inline]
    fn accesses(&mut self, v: usize, events: &mut Events<'_>) {
        let vcpu = &mut self.vcpus[v];
        let statistics = &mut self.statistics;
        let runs = vcpu.running.is_some();
        while let Some(access) = events.next_access() {
            statistics.events += 1;
            statistics.accesses += 1;
            statistics.device_accesses += u64::from(access.io);
            if runs && vcpu.accesses.len() < MAX_PENDING {
                vcpu.accesses.push(access);
            } else {
                statistics.unclaimed_accesses += 1;
            }
        }
    }

    fn record(&mut self, v: usize, head: Head, operands: &[u64]) {
        let word = |i: usize| operands.get(i).copied().unwrap_or(0);
        match head.kind {
            Kind::Block => self.begin_block(v, head.large),
            Kind::BlockDef => {
                let bytes = operands.get(2..).unwrap_or(&[]);
                let State { blocks, modules, .. } = &mut self.state;
                blocks.define(head.large, word(0), word(1) as usize, bytes, |pc| modules.makes_room(pc));
            }
            Kind::Enter => {
                self.finish_block(v);
                self.vcpus[v].exception = None;
                let args = head.small & EnterFlags::ARGS != 0;
                let walked = head.small & EnterFlags::STACK != 0;
                let outer = self.outer(v, operands.last().copied().filter(|_| walked).unwrap_or(0));
                self.statistics.stacks_not_kept += u64::from(walked && outer == OuterId::default());
                let mut registers = [0; 6];
                if args {
                    registers.copy_from_slice(operands.get(4..10).unwrap_or(&[0; 6]));
                }
                self.vcpus[v].entering = Some(Entering {
                    flags: head.small,
                    preempt_count: head.large,
                    task: word(0),
                    rsp: word(1),
                    rax: word(2),
                    pid: word(3) as u32,
                    args,
                    ret: if args { word(10) } else { 0 },
                    registers,
                    outer,
                });
            }
            Kind::Stack => self.stack(v, head.large, operands),
            Kind::Call => {
                let mut args = [0; 6];
                args.copy_from_slice(operands.get(1..7).unwrap_or(&[0; 6]));
                let leaving = Leaving { jump: head.small == 1, target: head.address(), rsp: word(0), args };
                self.vcpus[v].leaving = Some(leaving);
            }
            Kind::Discontinuity => self.discontinuity(v, head, word(0), word(1)),
            Kind::HookCall => self.hook_call(v, head.large, usize::from(head.small), operands),
            Kind::HookRet => self.hook_return(v, head.large, word(0), word(1)),
            Kind::ModuleLoad => self.module_load(head, operands),
            Kind::ModuleFree => self.module_free(word(0), word(1)),
            Kind::ModuleUnload => self.module_unload(head.address()),
            Kind::OtherModule => self.other_load(head, operands),
            Kind::OtherUnload => self.other_unload(head.address()),
            Kind::Port => self.statistics.device_accesses += 1,
            Kind::Thread => {
                self.state.name_thread(word(0), head.large as u32, head.small, [word(1), word(2)]);
            }
            Kind::Global => {
                let global = Global::from_small(head.small);
                if global == Some(Global::GsBase) {
                    let start = self.state.world.per_cpu_start();
                    let slide = if start >> 63 != 0 { self.state.slide } else { 0 };
                    self.state.order.per_cpu.set_base(v, word(0), start.wrapping_add(slide));
                } else {
                    self.state.set_global(global, word(0));
                    self.order.moved();
                }
            }
            Kind::Rep => {
                let vcpu = &mut self.vcpus[v];
                if vcpu.running.is_some() && vcpu.reps.len() < MAX_PENDING {
                    let insn = (head.large & 0x1ff) as u16;
                    vcpu.reps.push(Rep { insn, count: word(0), rsi: word(1), rdi: word(2) });
                }
            }
            Kind::Cut => {
                // The access was held, and the log holds it again later.
                let again = u64::from(head.small != Cut::ENDS);
                self.statistics.device_accesses = self.statistics.device_accesses.saturating_sub(again);
                let access = u64::from(head.small == Cut::AGAIN_ACCESS);
                self.statistics.accesses = self.statistics.accesses.saturating_sub(access);
                if let Some(running) = &mut self.vcpus[v].running {
                    running.limit = running.limit.min(head.large as usize);
                }
            }
            Kind::Return => self.logged_return(v, word(0)),
            Kind::List => self.list(v, head, operands),
            Kind::Meet => self.met(v, head, operands),
            Kind::End => self.finish_block(v),
        }
    }

    /// A ring defines the stack with this number.
    fn stack(&mut self, v: usize, number: u64, words: &[u64]) {
        let known = self.vcpus[v].outer.len() as u64;
        if number != known + 1 || number > MAX_STACKS {
            self.statistics.damaged_segments += 1;
            return;
        }
        let outer = self.state.stacks.intern_outer(words);
        self.vcpus[v].outer.push(outer);
    }

    /// The stack that a ring has defined with this number; 0 stands for none.
    fn outer(&self, v: usize, number: u64) -> OuterId {
        let index = number.checked_sub(1).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| self.vcpus[v].outer.get(index)).copied().unwrap_or_default()
    }

    /// An access that the tracer held has met another one.
    fn met(&mut self, v: usize, head: Head, operands: &[u64]) {
        let Some(meet) = Meet::decode(head, operands) else { return };
        let level = Level::of(u64::from(meet.held.preempt_count));
        let held = self.by_key.get(&(meet.held.task, level)).and_then(|&c| self.contexts.get(c));
        let pc = meet.held.pc;
        let stack = held.map_or_else(|| CallTrace::at(pc), |held| held.trace(vec![pc]));
        let by = describe(&self.state, held, u32::from(meet.held.cpu));
        let context = self.vcpus[v].context;
        self.each(v, context, |checker, cx| checker.met(cx, &meet, &stack, &by));
    }

    /// Calls `f` for all checkers, with everything that they see of vCPU `v`.
    fn each(&mut self, v: usize, context: Option<usize>, mut f: impl FnMut(&mut dyn Checker, &mut Cx<'_>)) {
        let mut cx = Cx {
            state: &self.state,
            context: context.and_then(|c| self.contexts.get(c)),
            reports: &mut self.reports,
            definedness: &mut self.definedness,
            cpu: v as u32,
            event: self.statistics.events,
        };
        for checker in &mut self.checkers {
            f(checker.as_mut(), &mut cx);
        }
    }

    fn begin_block(&mut self, v: usize, number: u64) {
        self.finish_block(v);
        self.statistics.blocks += 1;
        let Some(block) = self.state.blocks.get(number).cloned() else {
            self.vcpus[v].entering = None;
            return;
        };
        self.cover(&block);
        let addr = block.code.addr;
        // Most blocks follow another one, and moving an entry is slow.
        let enters = self.vcpus[v].entering.is_some();
        match if enters { self.vcpus[v].entering.take() } else { None } {
            Some(entering) => self.enter(v, &entering, addr),
            None => self.go_on(v),
        }
        let vcpu = &mut self.vcpus[v];
        vcpu.called = None;
        vcpu.accesses.clear();
        vcpu.reps.clear();
        vcpu.running =
            vcpu.context.is_some().then_some(Running { limit: block.code.insns.len(), block, next: 0 });
    }

    /// Runs the block of `v` up to instruction `to`, with the accesses so far.
    fn run(&mut self, v: usize, to: usize, last: bool) {
        let vcpu = &mut self.vcpus[v];
        let (Some(running), Some(c)) = (&mut vcpu.running, vcpu.context) else { return };
        let begun = vcpu.reps.iter().any(|rep| usize::from(rep.insn) == to);
        if running.next >= to && (vcpu.accesses.is_empty() || !last) && !begun {
            return;
        }
        let Some(context) = self.contexts.get_mut(c) else { return };
        let mut regs = context.regs.take().unwrap_or_default();
        let mut low = context.low;
        let mut fan = Fan {
            accessed: &self.accessed,
            checkers: &mut self.checkers,
            unknown: &mut self.unknown,
            low: &mut low,
            order: self.order.on,
            state: &mut self.state,
            context,
            reports: &mut self.reports,
            definedness: &mut self.definedness,
            cpu: v as u32,
            event: self.statistics.events,
        };
        let code = &running.block.code;
        let to = to.min(running.limit);
        let from = running.next;
        let mut end = code.run(&mut regs, &mut fan, &vcpu.accesses, &vcpu.reps, running.next, to);
        self.statistics.unclaimed_accesses += u64::from(end.skipped);
        // An instruction without its accesses did not run, or the log does not hold them. What it would have
        // changed is unknown.
        while last && !end.complete && end.next < to {
            let left: Vec<Access> =
                vcpu.accesses.iter().copied().filter(|a| usize::from(a.insn) > end.next).collect();
            end = code.run(&mut regs, &mut fan, &left, &vcpu.reps, end.next + 1, to);
        }
        for _ in running.block.ones.iter().filter(|&&insn| (from..end.next).contains(&usize::from(insn))) {
            fan.each(|checker, cx| checker.compared_with_ones(cx));
        }
        running.next = end.next;
        vcpu.accesses.clear();
        // A repeated instruction that has begun runs again when it is over, with its effect on the registers.
        vcpu.reps.retain(|rep| usize::from(rep.insn) >= end.next);
        if let Some(rsp) = regs.rsp() {
            low = low.min(rsp);
        }
        context.low = low;
        context.regs = Some(regs);
    }

    /// A segment ends: runs what is certain to have run.
    fn settle(&mut self, v: usize) {
        let vcpu = &self.vcpus[v];
        let Some(running) = &vcpu.running else { return };
        if vcpu.leaving.is_some() {
            return self.finish_block(v);
        }
        let access = vcpu.accesses.last().map(|a| a.insn);
        let rep = vcpu.reps.last().map(|r| r.insn);
        let Some(insn) = access.max(rep) else { return };
        let len = running.limit;
        // A repeated instruction without accesses of its own has only begun; what it will do is checked.
        let to = usize::from(insn) + usize::from(access >= rep);
        if to >= len {
            self.finish_block(v);
        } else if rep.is_none() || rep > access {
            self.run(v, to, false);
        }
    }

    /// Runs the rest of the block of `v`, and does what its end does.
    fn finish_block(&mut self, v: usize) {
        if self.vcpus[v].running.is_none() {
            self.vcpus[v].leaving = None;
            return;
        }
        self.run(v, usize::MAX, true);
        let vcpu = &mut self.vcpus[v];
        let (Some(running), Some(c)) = (vcpu.running.take(), vcpu.context) else { return };
        let leaving = if vcpu.leaving.is_some() { vcpu.leaving.take() } else { None };
        let cut = running.limit < running.block.code.insns.len();
        match (leaving, running.block.end) {
            (None, _) if cut => {}
            (Some(leaving), end) => self.leave(v, c, &leaving, running.block.last, end),
            (None, End::Call(after)) => vcpu.called = Some(after),
            (None, End::Ret) => self.returned(v, c),
            (None, End::Jump(target)) if self.state.is_return_thunk(target) => {
                let Some(context) = self.contexts.get_mut(c) else { return };
                if let Some(regs) = context.regs.as_deref_mut() {
                    regs.set_rsp(regs.rsp().map(|rsp| rsp.wrapping_add(8)));
                }
                self.returned(v, c);
            }
            (None, _) => {}
        }
    }

    /// The innermost function has returned.
    fn returned(&mut self, v: usize, c: usize) {
        let Some(context) = self.contexts.get_mut(c) else { return };
        let Some(rsp) = context.regs.as_deref().and_then(Regs::rsp) else {
            return;
        };
        context.returned(rsp);
        if !matches!(context.stack.last(), Some(Activation::Frame { .. })) {
            let low = std::mem::replace(&mut context.low, u64::MAX);
            self.leave_stack(v, c, low, rsp);
        }
        self.left_up_to(v, c, rsp);
    }

    fn leave_stack(&mut self, v: usize, c: usize, low: u64, to: u64) {
        if low < to && crate::stacks::same_stack(low, to) {
            self.each(v, Some(c), |checker, cx| checker.stack_left(cx, low, to));
            self.definedness.define(low, to - low);
        }
    }

    fn discontinuity(&mut self, v: usize, head: Head, handler: u64, cr2: u64) {
        let pc = head.address();
        let mut exception = (head.small == 2).then_some(cr2);
        if exception.is_some() && self.state.modules.contains(handler) {
            // The log holds the exception twice. The first record is from where it is raised, with a pc that
            // may lie before the instruction. The second is exact, from where its handler begins.
            self.vcpus[v].exception = exception;
            return;
        }
        exception = self.vcpus[v].exception.take().or(exception);
        let vcpu = &mut self.vcpus[v];
        let Some(c) = vcpu.context else { return };
        match &vcpu.running {
            Some(running) => match running.block.code.index_of(pc) {
                Some(index) => {
                    self.run(v, index, true);
                    self.vcpus[v].running = None;
                    self.vcpus[v].leaving = None;
                }
                // The pc is not in the block: the block had run to its end, and the next one never began.
                None => self.finish_block(v),
            },
            // The interrupt hit before the first block after an entry, or after a block that is done.
            None => vcpu.leaving = None,
        }
        let after = self.vcpus[v].called.take();
        if let Some(after) = after {
            self.called(c, after);
        }
        self.vcpus[v].entering = None;
        let rsp = self.contexts.get(c).and_then(|context| context.regs.as_deref()).and_then(Regs::rsp);
        if let Some(context) = self.contexts.get_mut(c) {
            if let Some(rsp) = rsp {
                let low = std::mem::replace(&mut context.low, rsp);
                context.push(Activation::Interrupted { pc, rsp: Some(rsp) });
                self.leave_stack(v, c, low, rsp);
            } else {
                context.push(Activation::Interrupted { pc, rsp: None });
            }
        }
        self.vcpus[v].context = None;
        if let Some(cr2) = exception {
            self.fault(v, c, pc, handler, cr2);
        }
    }

    /// An exception ran `handler`.
    fn fault(&mut self, v: usize, c: usize, pc: u64, handler: u64, cr2: u64) {
        let handler = self.state.kernel_function(handler);
        let address = handler.contains("page_fault").then_some(cr2);
        if address.is_none() && !handler.contains("general_protection") {
            return;
        }
        let Some(context) = self.contexts.get_mut(c) else { return };
        let regs = context.regs.take();
        let mut found = None;
        let fault = Fault { pc, address };
        self.each(v, Some(c), |checker, cx| {
            found = checker.fault(cx, fault, regs.as_deref()).or(found);
        });
        if let Some(context) = self.contexts.get_mut(c) {
            context.regs = regs;
            context.fault = found.map(|at| (at, pc));
        }
    }

    /// The index of the context for a task at a level. Adds the context if needed.
    fn context_for(&mut self, task: u64, level: Level, pid: u32) -> usize {
        if let Some(&c) = self.by_key.get(&(task, level)) {
            self.contexts[c].pid = pid;
            return c;
        }
        if self.contexts.len() >= MAX_CONTEXTS {
            // A hostile or an endless log: start anew.
            self.contexts.clear();
            self.by_key.clear();
            self.own_stacks.clear();
            for vcpu in &mut self.vcpus {
                let outer = std::mem::take(&mut vcpu.outer);
                *vcpu = Vcpu { outer, ..Vcpu::default() };
            }
        }
        self.contexts.push(Context::new(task, level, pid));
        self.by_key.insert((task, level), self.contexts.len() - 1);
        self.contexts.len() - 1
    }

    /// Ends the run and returns its findings and counts.
    pub fn finish(mut self) -> Outcome {
        for v in 0..self.vcpus.len() {
            self.finish_block(v);
        }
        self.each(0, None, |checker, cx| checker.finish(cx));
        let coverage = self.coverage();
        let mut statistics = self.statistics;
        statistics.coverage = coverage;
        statistics.unknown_instructions = self.unknown;
        statistics.modules = self.state.modules.list().iter().map(|m| m.name.clone()).collect();
        statistics.modules.dedup();
        let mut findings = self.reports.into_findings();
        // Sorting by event and id keeps the order independent of the numbering of contexts.
        findings.sort_by(|a, b| (a.event, &a.id).cmp(&(b.event, &b.id)));
        Outcome { findings, statistics }
    }

    /// The counts so far.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The number of findings so far.
    pub fn findings(&self) -> usize {
        self.reports.count()
    }

    /// Calls `each` with the findings that are new or may have been judged anew since the last call, and
    /// whether what follows may still take them back. A finding for which `each` returns true stays reported.
    pub fn news(&mut self, each: impl FnMut(&Finding, bool) -> bool) {
        if self.reports.has_news() {
            self.reports.news(each);
        }
    }
}
