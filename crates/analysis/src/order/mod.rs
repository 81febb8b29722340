//! Who holds which locks, what comes before what, and in which state the kernel's objects are.
//!
//! Fed by the machine with calls, entries and returns; asked by checkers. Three parts:
//!
//! - *Locks* ([`LockId`], [`LocksetId`]): what each context holds, with the stack that took it.
//! - *Strands* ([`StrandId`]): what runs in order. A task is a strand; so is all that one serial callback of one object runs (a
//!   timer's function, a NAPI instance's poll); other interrupt work is a strand for each vCPU, level and function.
//!   A context that interrupts a task is not ordered with it. Vector clocks over strands say what comes before what, in two
//!   relations: *hard* order (deferral, states, completions, atomics) and *full* order, which also counts a lock's release
//!   before its next acquisition.
//! - *States* of objects, by the charts of [`guardrail_knowledge::chart`].

mod atoms;
mod charts;
mod clocks;
mod frozen;
mod lent;
mod locks;
mod own;
mod published;
mod strands;

use crate::level::Level;
use crate::machine::Context;
use crate::stacks::StackId;
use crate::value_flow::InsnCtx;
use atoms::Atoms;
pub(crate) use charts::{CallbackRef, Moving, Rules, takes_place};
use charts::{Charts, plain};
use clocks::{Order, Var};
pub use guardrail_knowledge::chart::{self, Chart};
use guardrail_knowledge::effect::{Key, LockKind, LockMode};
use guardrail_trace::event::Access;
use lent::Lent;
use locks::Locks;
pub(crate) use locks::Name;
pub(crate) use own::{MAX_PENDING, Own, Pending};
use published::Published;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use strands::Strands;
pub(crate) use strands::Who;

/// Objects that something was released into, and tasks that hold locks outside of the driver, known at a time.
const MAX_OBJECTS: usize = 1 << 14;
const MAX_TASKS: usize = 8192;
/// Ranges of per-CPU memory that are known.
const MAX_PER_CPU: usize = 4096;
/// vCPUs whose per-CPU area is known.
const MAX_VCPUS: usize = 512;
/// The most that the first chunk of a vCPU's per-CPU area has.
const MAX_UNIT: u64 = 4 << 20;
/// Steps that wait to be told.
const MAX_STEPS: usize = 4096;
/// What readers of RCU release into, and who waits for them acquires.
pub(crate) const RCU: Name = Name::Global("rcu");
/// What those release into who wait for readers, and later readers acquire.
pub(crate) const GRACE: Name = Name::Global("grace");

/// What those release into who set a device going, and its interrupts acquire.
pub(crate) const DEVICE: Name = Name::Global("device");
/// What those release into who tell modules that are not watched of the driver, and what those call acquires.
pub(crate) const LIBRARY: Name = Name::Global("library");
/// What interrupt handlers release into that are in modules that are not watched, and who waits for handlers acquires.
pub(crate) const HANDLERS: Name = Name::Global("handlers");

/// Names a lock; not used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockId(pub u32);

/// Names a set of locks with the modes in which they are held; 0 is the empty set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocksetId(pub u32);

/// Names a strand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StrandId(pub u32);

/// What the processor keeps away from a context on its vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Off {
    /// Interrupts are off, or this is an interrupt.
    pub irqs: bool,
    /// Softirqs are off, or this is one, or interrupts are off.
    pub softirqs: bool,
    /// Preemption is off.
    pub preemption: bool,
}

/// Where a context stands, for a checker that keeps it with what the context does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Now {
    /// Its strand.
    pub strand: StrandId,
    /// The strand's clock: grows with each release.
    pub clock: u32,
    /// What it holds.
    pub locks: LocksetId,
    /// What is off.
    pub off: Off,
}

/// A lock that a context holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquired {
    /// Which.
    pub lock: LockId,
    /// How.
    pub mode: LockMode,
    /// The stack of the call that took it.
    pub stack: StackId,
    /// It was taken without waiting.
    pub tried: bool,
    /// It was taken by the caller of the driver, and not by the driver.
    pub by_kernel: bool,
    /// What was off before it was taken.
    pub off: Off,
}

/// A lock, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// Its sort.
    pub kind: LockKind,
    /// Its address, or 0 where there is one in the kernel.
    pub address: u64,
    /// Its name where it has one (`rtnl`).
    pub name: Option<&'static str>,
}

/// A run of a driver function that the kernel called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activation {
    /// The driver's function.
    pub function: u64,
    /// The kernel function that called it; empty where it is not known.
    pub caller: String,
    /// The callback of a chart that this is: chart, callback and instance.
    pub callback: Option<(usize, usize, u32)>,
    /// Its strand.
    pub strand: StrandId,
    /// Counts activations.
    pub serial: u64,
    /// rsp at its entry.
    pub rsp: u64,
    /// The object by which it takes turns with other callbacks.
    pub(crate) turns: Option<Name>,
    /// A module that is not watched called.
    pub(crate) library: bool,
    /// What it does with the memory of an object of a chart, and that object.
    pub(crate) hand: Option<(usize, chart::Hand, u64)>,
}

/// An object's step in its chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The driver's call, or the function of the callback.
    pub stack: StackId,
    /// The chart.
    pub chart: usize,
    /// The instance.
    pub instance: u32,
    /// Its key.
    pub key: [u64; 2],
    /// The call (`Ok`) or callback (`Err`) that did it: index in the chart.
    pub cause: Result<usize, usize>,
    /// Where the object was (a leaf).
    pub from: usize,
    /// Where it is now.
    pub to: usize,
    /// The state allows this.
    pub allowed: bool,
    /// The object had been seen before, so that its state is known for certain.
    pub known: bool,
}

/// Which parts of the order and of the locks count: what the tools' options choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Deferred work: charts that say so, and `wakes` and `waits` of all charts; completions, RCU.
    pub deferral: bool,
    /// States: moves in charts of devices, and memory of requests that the kernel has.
    pub states: bool,
    /// Atomics, coherent DMA memory that is handed to and fro, and requests that the device has.
    pub atomics: bool,
}

impl Default for Parts {
    fn default() -> Self {
        Parts { deferral: true, states: true, atomics: true }
    }
}

/// Locks, order and states of a run.
#[derive(Debug, Default)]
pub struct Sync {
    parts: Parts,
    strands: Strands,
    locks: Locks,
    charts: Charts,
    atoms: Atoms,
    published: Published,
    lent: Lent,
    /// What was released into objects that completions and their like are.
    objects: BTreeMap<Name, Option<Var>>,
    /// What comes before whatever user processes do after they were frozen.
    thawed: Option<Var>,
    /// Work queues that are frozen with user processes.
    freezable: Vec<u64>,
    /// Steps of objects that are to be told.
    steps: Vec<Step>,
    /// Locks that tasks hold that have no context yet.
    waiting: FxHashMap<u64, Vec<Acquired>>,
    /// GS bases by vCPU; 0 where not known.
    bases: Vec<u64>,
    /// Where the first chunks begin, from the bases.
    start: u64,
    /// Distance of the vCPUs' first chunks.
    unit: u64,
    /// Per-CPU memory that was allocated: offsets from the base, start to end.
    per_cpu: BTreeMap<u64, u64>,
}

impl Sync {
    /// Nothing has happened yet.
    pub(crate) fn new(charts: Arc<[Chart]>, parts: Parts) -> Sync {
        Sync { charts: Charts::new(charts), parts, ..Sync::default() }
    }

    /// Which parts count.
    pub fn parts(&self) -> Parts {
        self.parts
    }

    /// Whether what `earlier` did up to its clock comes before what `now` does from here on, for other reasons than locks.
    pub fn ordered(&self, earlier: (StrandId, u32), now: StrandId) -> bool {
        self.known(earlier, now, Order::Hard)
    }

    /// The same, where a lock's release comes before its next acquisition.
    pub fn ordered_fully(&self, earlier: (StrandId, u32), now: StrandId) -> bool {
        self.known(earlier, now, Order::Full)
    }

    /// Strands are forgotten when there are very many; of those nothing can be said, so they give no alarm.
    #[inline]
    fn known(&self, (earlier, clock): (StrandId, u32), now: StrandId, order: Order) -> bool {
        if earlier == now {
            return true;
        }
        let (Some(then), Some(now)) = (self.strands.get(earlier), self.strands.get(now)) else { return true };
        let seen = match order {
            Order::Hard => &now.hard,
            Order::Full => &now.full,
        };
        seen.get(then.slot) >= clock
    }

    /// A lock that is in both sets, and in one of them exclusively. Sets beyond the bounds have one in common with every other:
    /// a lock of which nothing is known.
    pub fn common(&self, a: LocksetId, b: LocksetId) -> Option<LockId> {
        self.locks.common(a, b)
    }

    /// The locks of a set.
    pub fn locks(&self, set: LocksetId) -> &[(LockId, LockMode)] {
        self.locks.get(set)
    }

    /// What a lock is.
    pub fn lock(&self, lock: LockId) -> Option<&LockInfo> {
        self.locks.info(lock)
    }

    /// A strand in words, such as `the timer function watchdog of the timer at 0x…`.
    pub fn describe(&self, strand: StrandId) -> String {
        self.strands.get(strand).map_or_else(String::new, |strand| strand.label.clone())
    }

    /// The charts.
    pub fn charts(&self) -> &[Chart] {
        &self.charts.list
    }

    /// The state (a leaf) of an instance of a chart.
    pub fn state(&self, chart: usize, instance: u32) -> Option<usize> {
        Some(self.charts.get(chart, instance)?.0)
    }

    /// The instances of a chart that are known: number, key and state.
    pub fn instances(&self, chart: usize) -> impl Iterator<Item = (u32, [u64; 2], usize)> + '_ {
        self.charts.instances(chart)
    }

    /// The states of the objects that an activation is about, in words such as `netdev registered.running`.
    pub fn states_of(&self, activation: &Activation) -> Vec<String> {
        let Some((chart, _, instance)) = activation.callback else { return Vec::new() };
        let words = self.state(chart, instance).and_then(|state| {
            Some(format!("{} {}", self.charts().get(chart)?.name, self.path(chart, state)))
        });
        words.into_iter().collect()
    }

    /// A state with those that it is part of, as `registered.running`.
    pub fn path(&self, chart: usize, state: usize) -> String {
        self.charts().get(chart).map_or_else(String::new, |chart| chart.path(state))
    }

    /// Whether an address is in the per-CPU area of a vCPU.
    pub fn is_per_cpu(&self, addr: u64) -> bool {
        self.bases.iter().filter(|&&base| base != 0).any(|base| {
            let offset = addr.wrapping_sub(*base);
            offset.wrapping_sub(self.start) < self.unit
                || self.per_cpu.range(..=offset).next_back().is_some_and(|(_, &end)| offset < end)
        })
    }

    /// Where each vCPU has what is at an offset from its base.
    pub(crate) fn per_cpu_places(&self, start: u64, size: u64) -> Vec<(u64, u64)> {
        let bases = self.bases.iter().filter(|&&base| base != 0);
        bases.map(|base| base.wrapping_add(start)).map(|from| (from, from.saturating_add(size))).collect()
    }

    /// A vCPU's GS base has become known; its first chunk begins at `start` from there.
    pub(crate) fn set_base(&mut self, cpu: usize, base: u64, start: u64) {
        self.start = start;
        if cpu >= MAX_VCPUS {
            return;
        }
        if self.bases.len() <= cpu {
            self.bases.resize(cpu + 1, 0);
        }
        self.bases[cpu] = base;
        // The first chunk has its units one behind the other.
        let mut known: Vec<u64> = self.bases.iter().copied().filter(|&b| b != 0).collect();
        known.sort_unstable();
        let apart = known.windows(2).map(|w| w[1] - w[0]).filter(|&d| d > 0).min();
        self.unit = apart.filter(|&d| d <= MAX_UNIT).unwrap_or(0);
    }

    /// Per-CPU memory was allocated.
    pub(crate) fn add_per_cpu(&mut self, start: u64, size: u64) {
        if self.per_cpu.len() < MAX_PER_CPU {
            self.per_cpu.insert(start, start.saturating_add(size.min(MAX_UNIT)));
        }
    }

    /// Per-CPU memory was freed.
    pub(crate) fn remove_per_cpu(&mut self, start: u64) {
        self.per_cpu.remove(&start);
    }

    /// The strand of `who`; `label` describes it where it is new.
    pub(crate) fn strand(&mut self, who: Who) -> Option<StrandId> {
        self.strands.find(&who)
    }

    /// A new strand; `user`: it is a task of a user process.
    pub(crate) fn add_strand(&mut self, who: Who, label: String, user: bool) -> StrandId {
        self.strands.add(who, label, user)
    }

    /// The strand runs; gives its clock.
    pub(crate) fn runs(&mut self, strand: StrandId) -> u32 {
        self.strands.touch(strand);
        self.clock(strand)
    }

    /// A strand's clock.
    #[inline]
    pub(crate) fn clock(&self, strand: StrandId) -> u32 {
        self.strands.get(strand).map_or(0, |strand| strand.time)
    }

    /// What names a lock or an object in a call of a task.
    pub(crate) fn name(key: &Key, args: &[u64], task: u64) -> Option<Name> {
        match key {
            Key::Arg { arg, offset } => {
                let arg = args.get(usize::from(*arg)).copied().filter(|&arg| arg != 0)?;
                Some(Name::At(arg.wrapping_add(*offset)))
            }
            Key::Global("current") => (task != 0).then_some(Name::At(task)),
            Key::Global(name) => Some(Name::Global(name)),
        }
    }

    /// Where the mutex of RTNL lies.
    pub(crate) fn set_rtnl(&mut self, address: u64) {
        self.locks.set_rtnl(address);
    }

    /// The number of a lock.
    pub(crate) fn lock_id(&mut self, name: Name, kind: LockKind) -> LockId {
        self.locks.id(name, kind)
    }

    /// A strand has taken a lock.
    pub(crate) fn taken(&mut self, strand: StrandId, lock: LockId, mode: LockMode) {
        if let Some(strand) = self.strands.get_mut(strand) {
            self.locks.taken(lock, mode, strand);
        }
    }

    /// A strand gives a lock back.
    pub(crate) fn given(&mut self, strand: StrandId, lock: LockId, mode: LockMode) {
        if let Some(strand) = self.strands.get_mut(strand) {
            self.locks.given(lock, mode, strand);
        }
    }

    /// A strand is about to give a lock back that it held for nothing but to wait for those who had it.
    pub(crate) fn waited_for_holders(&mut self, strand: StrandId, lock: LockId) {
        if self.parts.atomics
            && let Some(strand) = self.strands.get_mut(strand)
        {
            self.locks.waited_for(lock, strand);
        }
    }

    /// The set of what is held.
    pub(crate) fn lockset(&mut self, held: &[Acquired]) -> LocksetId {
        self.locks.set(held.iter().map(|lock| (lock.lock, lock.mode)))
    }

    /// A task without a context has taken a lock.
    pub(crate) fn wait(&mut self, task: u64, lock: Acquired) {
        if self.waiting.len() < MAX_TASKS || self.waiting.contains_key(&task) {
            let held = self.waiting.entry(task).or_default();
            // The outer of two functions that both tell of it.
            held.retain(|held| held.lock != lock.lock || held.mode != LockMode::Exclusive);
            if held.len() < 16 {
                held.push(lock);
            }
        }
    }

    /// Such a task gives a lock back.
    pub(crate) fn wait_no_more(&mut self, task: u64, lock: LockId) {
        if let Some(held) = self.waiting.get_mut(&task) {
            if let Some(at) = held.iter().rposition(|held| held.lock == lock) {
                held.remove(at);
            }
            if held.is_empty() {
                self.waiting.remove(&task);
            }
        }
    }

    /// What a task holds that gets a context now.
    pub(crate) fn waited(&mut self, task: u64) -> Vec<Acquired> {
        self.waiting.remove(&task).unwrap_or_default()
    }

    /// What came before comes before whoever acquires the object later.
    pub(crate) fn release(&mut self, strand: StrandId, name: Name) {
        if !self.parts.deferral || self.objects.len() >= MAX_OBJECTS && !self.objects.contains_key(&name) {
            return;
        }
        if let Some(strand) = self.strands.get_mut(strand) {
            strand.release(self.objects.entry(name).or_default(), Order::Hard);
        }
    }

    /// The same for who reads the word.
    pub(crate) fn release_word(&mut self, strand: StrandId, addr: u64) {
        if self.parts.atomics
            && let Some(strand) = self.strands.get_mut(strand)
        {
            self.atoms.add(addr).release(strand, None);
        }
    }

    /// What came before releases of the object comes before what follows.
    pub(crate) fn acquire(&mut self, strand: StrandId, name: Name) {
        let Some(strand) = self.strands.get_mut(strand) else { return };
        if let Some(var) = self.objects.get(&name) {
            strand.acquire(var, Order::Hard);
        }
        // The driver may work on the object by itself.
        if let Name::At(addr) = name
            && let Some(atom) = self.atoms.atom(addr)
        {
            atom.acquire(strand, None);
        }
    }

    /// The rules that charts have for a kernel function.
    pub(crate) fn rules(&self, function: &str) -> Vec<Rules> {
        self.charts.rules(function)
    }

    /// The callbacks that a kernel function may make.
    pub(crate) fn made_by(&self, caller: &str) -> Vec<CallbackRef> {
        self.charts.made_by(caller)
    }

    /// A function's name without what compilers add.
    pub(crate) fn plain(name: &str) -> &str {
        plain(name)
    }

    /// Whether runs of a callback are one strand.
    pub(crate) fn is_serial(&self, callback: CallbackRef) -> bool {
        self.charts.is_serial(callback, self.parts)
    }

    /// Whether user processes are frozen while a callback runs.
    pub(crate) fn is_frozen(&self, (chart, callback, _): (usize, usize, u32)) -> bool {
        self.parts.states && self.charts.callback((chart, callback)).is_some_and(|callback| callback.frozen)
    }

    /// A call that charts speak of begins.
    pub(crate) fn called(
        &mut self,
        by: StrandId,
        rules: &[Rules],
        args: &[u64],
        create: bool,
        moving: &mut Vec<Moving>,
    ) {
        for rules in rules {
            self.charts.called(
                &mut self.strands,
                self.parts,
                by,
                rules,
                args,
                create,
                &mut self.steps,
                moving,
            );
        }
    }

    /// Such a call returns.
    pub(crate) fn returned(&mut self, by: StrandId, moving: &[Moving], result: Option<u64>) {
        for moving in moving {
            self.charts.returned(&mut self.strands, self.parts, by, moving, result, &mut self.steps);
        }
    }

    /// The callback that an entry is.
    pub(crate) fn recognize(
        &mut self,
        candidates: &[CallbackRef],
        args: &[u64],
    ) -> Option<(usize, usize, u32)> {
        self.charts.recognize(candidates, args)
    }

    /// A callback begins.
    pub(crate) fn entered(&mut self, by: StrandId, callback: (usize, usize, u32)) {
        self.charts.entered(&mut self.strands, self.parts, by, callback, &mut self.steps);
    }

    /// What came before other callbacks that the entry may be, of objects that are known, comes before it too.
    pub(crate) fn entered_also(
        &mut self,
        by: StrandId,
        candidates: &[CallbackRef],
        args: &[u64],
        recognized: Option<(usize, usize, u32)>,
    ) {
        let first = recognized.map(|(chart, callback, _)| (chart, callback));
        for &other in candidates.iter().filter(|&&other| Some(other) != first) {
            self.charts.entered_also(&mut self.strands, by, other, args);
        }
    }

    /// Whether somebody that is watched has set off a callback.
    pub(crate) fn was_forked(&self, callback: (usize, usize, u32)) -> bool {
        self.charts.was_forked(callback)
    }

    /// A callback ends.
    pub(crate) fn left(&mut self, by: StrandId, callback: (usize, usize, u32), result: Option<u64>) {
        self.charts.left(&mut self.strands, self.parts, by, callback, result, &mut self.steps);
    }

    /// Steps that have not been told.
    pub(crate) fn take_steps(&mut self) -> Vec<Step> {
        let mut steps = std::mem::take(&mut self.steps);
        steps.truncate(MAX_STEPS);
        steps
    }

    /// The callback's name and its object in words.
    pub(crate) fn callback_words(
        &self,
        (chart, callback, instance): (usize, usize, u32),
    ) -> (String, String) {
        let words = || {
            let chart_of = self.charts().get(chart)?;
            let key = self.charts.get(chart, instance)?.1;
            let object = if chart_of.keys.is_empty() {
                chart_of.name.clone()
            } else {
                format!("{} {:#x}", chart_of.name, key[0])
            };
            Some((chart_of.callbacks.get(callback)?.name.clone(), object))
        };
        words().unwrap_or_default()
    }

    /// A range is coherent DMA memory.
    pub(crate) fn share(&mut self, from: u64, to: u64) {
        if self.parts.atomics {
            self.atoms.share(from, to);
        }
    }

    /// The memory in a range begins a new life.
    pub(crate) fn forget(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        self.locks.forget(from, to);
        self.charts.forget(from, to);
        self.atoms.forget(from, to);
        self.published.forget(from, to);
        self.lent.forget(from, to);
        let range = Name::At(from)..Name::At(to);
        while let Some((&name, _)) = self.objects.range(range.clone()).next() {
            self.objects.remove(&name);
        }
    }

    /// The driver accesses memory. Atomics and DMA memory hand order on.
    #[inline]
    pub(crate) fn touched(&mut self, context: &mut Context, insn: &InsnCtx, access: &Access) {
        if access.io {
            if access.store {
                self.tells_device(context, true);
            }
            if access.store && context.own.lets_device_interrupt() && self.parts.states {
                self.release(context.now.strand, DEVICE);
                context.now.clock = self.clock(context.now.strand);
            }
            return;
        }
        if !self.parts.atomics {
            return;
        }
        if self.published.may_have(access.addr) && !insn.access.locked && !insn.access.updates {
            self.touched_published(context, access);
        }
        if !context.own.sections.is_empty() {
            context.own.in_section(insn, access);
        }
        if insn.access.locked {
            self.touched_locked(context, insn, access);
        } else if !insn.access.updates
            && let Some(atom) = self.atoms.atom(access.addr)
        {
            // A plain update of an atomic is no way to hand anything over: it may lose what others do.
            let Some(strand) = self.strands.get_mut(context.now.strand) else { return };
            if access.store {
                atom.replace(strand);
            } else {
                atom.acquire(strand, bit(insn, access));
            }
            context.now.clock = strand.time;
        } else if self.atoms.is_shared(access.addr) {
            self.touched_shared(context, access.addr, u64::from(access.size), access.store);
            if access.store {
                self.tells_device(context, false);
            }
        }
    }

    fn touched_locked(&mut self, context: &mut Context, insn: &InsnCtx, access: &Access) {
        let Some(strand) = self.strands.get_mut(context.now.strand) else { return };
        let atom = self.atoms.add(access.addr);
        if access.store {
            atom.release(strand, bit(insn, access));
        } else {
            atom.acquire(strand, bit(insn, access));
        }
        context.now.clock = strand.time;
    }

    fn touched_shared(&mut self, context: &mut Context, addr: u64, size: u64, store: bool) {
        let Some(strand) = self.strands.get_mut(context.now.strand) else { return };
        self.atoms.each_cell(addr, size, store, |var| {
            if store {
                strand.release(var, Order::Hard);
            } else {
                strand.acquire(var, Order::Hard);
            }
        });
        context.now.clock = strand.time;
    }

    /// The driver accesses a range.
    pub(crate) fn touched_range(&mut self, context: &mut Context, addr: u64, size: u64, store: bool) {
        if self.parts.atomics && self.atoms.is_shared(addr) {
            self.touched_shared(context, addr, size, store);
            if store {
                self.tells_device(context, false);
            }
        }
    }
}

/// Which bit of its word an access is about, where the instruction says.
fn bit(insn: &InsnCtx, access: &Access) -> Option<u8> {
    insn.access.bit.map(|bit| (((access.addr & 7) * 8 + u64::from(bit)) & 63) as u8)
}

/// Whether a strand of this level belongs to its task.
pub(crate) fn is_task(level: Level) -> bool {
    level == Level::Process
}
