//! Held locks, the order of events, and the states of the kernel's objects.
//!
//! The machine feeds calls, entries and returns; checkers ask questions. There are three parts:
//!
//! - *Locks* ([`LockId`], [`LocksetId`]): what each context holds, with the stack that took it.
//! - *Strands* ([`StrandId`]): what runs in order. A task is a strand. So are all runs of one serial callback
//!   of one object (a timer's function, a NAPI instance's poll). Other interrupt work is a strand for each
//!   vCPU, level and function. A context that interrupts a task is not ordered with it. Vector clocks over
//!   strands say what comes before what, in two relations. *Hard* order counts deferral, states, completions
//!   and atomics. *Full* order also counts a lock's release before its next acquisition.
//! - *States* of objects, by the charts of [`guardrail_knowledge::chart`].

mod atoms;
mod callbacks;
mod charts;
mod clocks;
mod context;
mod frozen;
mod lent;
mod locks;
mod memory;
mod per_cpu;
mod protocol;
mod published;
mod strands;

use atoms::{Atoms, PageFilter};
use charts::Charts;
pub use charts::Step;
pub(crate) use charts::{CallbackRef, Moving, Rules, takes_place};
use clocks::{Relation, Var};
pub use context::{ContextOrder, Entry, Now};
pub(crate) use context::{MAX_PENDING, Pending, is_task};
pub use guardrail_knowledge::chart::{self, Chart};
use guardrail_knowledge::effect::{Key, LockKind, LockMode};
use guardrail_trace::event::Access;
use lent::Lent;
use locks::Locks;
pub(crate) use locks::Name;
pub use locks::{Acquired, LockId, LockInfo, LocksetId, Off};
use per_cpu::PerCpu;
use published::Published;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
pub(crate) use strands::Identity;
pub use strands::StrandId;
use strands::Strands;

/// Most objects with releases, and most tasks that hold locks outside of the driver, known at a time.
const MAX_OBJECTS: usize = 1 << 14;
const MAX_TASKS: usize = 8192;
/// In the place of a pid: the task before driver code has run in it.
pub(crate) const EARLY: u32 = u32::MAX;
/// Readers of RCU release this, and strands that wait for readers acquire it.
pub(crate) const RCU: Name = Name::Global("rcu");
/// Strands that wait for readers of RCU release this, and later readers acquire it.
pub(crate) const GRACE: Name = Name::Global("grace");

/// A driver that starts a device releases this; the device's interrupt handlers acquire it.
pub(crate) const DEVICE: Name = Name::Global("device");
/// A driver that calls modules that are not watched while it starts a device releases this; callbacks from
/// those modules acquire it.
pub(crate) const LIBRARY: Name = Name::Global("library");
/// The same for work to which the start of a device was left. Only interrupt handlers in those modules acquire it, for
/// other callbacks may run beside the work.
pub(crate) const LIBRARY_HANDLERS: Name = Name::Global("library handlers");
/// Interrupt handlers in modules that are not watched release this; strands that wait for handlers acquire
/// it.
pub(crate) const HANDLERS: Name = Name::Global("handlers");

/// The parts of the order and of the locks that count: the tools' options choose them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Deferred work: charts that say so, and `wakes` and `waits` of all charts; completions, RCU.
    pub deferral: bool,
    /// States: moves in charts of devices, and memory of requests that the kernel owns.
    pub states: bool,
    /// Atomics, coherent DMA memory that is handed back and forth, and requests that the device owns.
    pub atomics: bool,
}

impl Default for Parts {
    fn default() -> Self {
        Parts { deferral: true, states: true, atomics: true }
    }
}

/// Locks, order and states of a run.
#[derive(Debug, Default)]
pub struct Order {
    parts: Parts,
    strands: Strands,
    locks: Locks,
    charts: Charts,
    atoms: Atoms,
    published: Published,
    lent: Lent,
    /// What was released into completions and similar objects, and into the names above.
    objects: BTreeMap<Name, Option<Var>>,
    /// The pages of those of them that have an address.
    object_pages: PageFilter,
    /// What comes before everything that user processes do after they were frozen.
    thawed: Option<Var>,
    /// What was done while devices were suspended. It comes before they are resumed.
    suspended: Option<Var>,
    /// What resumed devices. It comes before what layers send to them.
    resumed: Option<Var>,
    /// Work queues that are frozen with user processes.
    freezable: Vec<u64>,
    /// Steps of objects that are not passed to checkers yet.
    steps: Vec<Step>,
    /// Locks held by tasks that have no context yet.
    waiting: FxHashMap<u64, Vec<Acquired>>,
    /// The vCPUs' own copies of variables.
    pub per_cpu: PerCpu,
}

impl Order {
    /// The order of a run in which nothing has happened.
    pub(crate) fn new(charts: Arc<[Chart]>, parts: Parts) -> Order {
        Order { charts: Charts::new(charts), parts, ..Order::default() }
    }

    /// The parts that count.
    pub fn parts(&self) -> Parts {
        self.parts
    }

    /// Whether what `earlier` did up to its clock comes before what `now` does from here on, for other
    /// reasons than locks.
    pub fn ordered(&self, earlier: (StrandId, u32), now: StrandId) -> bool {
        self.known(earlier, now, Relation::Hard)
    }

    /// Like [`Self::ordered`], but a lock's release also comes before its next acquisition.
    pub fn ordered_fully(&self, earlier: (StrandId, u32), now: StrandId) -> bool {
        self.known(earlier, now, Relation::Full)
    }

    /// Where there are very many strands, old ones are forgotten. Their order is not known, so they count as
    /// ordered and cause no alarm.
    #[inline]
    fn known(&self, (earlier, clock): (StrandId, u32), now: StrandId, order: Relation) -> bool {
        if earlier == now {
            return true;
        }
        let (Some(then), Some(now)) = (self.strands.get(earlier), self.strands.get(now)) else { return true };
        let seen = match order {
            Relation::Hard => &now.hard,
            Relation::Full => &now.full,
        };
        seen.get(then.slot) >= clock
    }

    /// A lock that is in both sets and exclusive in one of them. A set beyond the bounds has an unknown lock
    /// in common with every other set.
    pub fn common(&self, a: LocksetId, b: LocksetId) -> Option<LockId> {
        self.locks.common(a, b)
    }

    /// The locks of a set, with their modes.
    pub fn locks(&self, set: LocksetId) -> &[(LockId, LockMode)] {
        self.locks.get(set)
    }

    /// Kind and address of a lock; `None` where it is not known.
    pub fn lock(&self, lock: LockId) -> Option<&LockInfo> {
        self.locks.info(lock)
    }

    /// The held lock that a store of a context gives back. Kernels that are not preempted inline the release of spin locks and
    /// rwlocks: one byte is cleared, or a reader subtracts itself (include/asm-generic/qspinlock.h and qrwlock.h).
    #[inline]
    pub(crate) fn given_back(&self, context: &ContextOrder, access: &Access, locked: bool) -> Option<usize> {
        let fits = access.size == 1 && !locked || access.size == 4 && locked;
        if context.held.is_empty() || !fits { None } else { self.released(context, access.addr, locked) }
    }

    #[cold]
    fn released(&self, context: &ContextOrder, addr: u64, reads: bool) -> Option<usize> {
        let released = |held: &Acquired| {
            self.lock(held.lock).is_some_and(|info| {
                info.address == addr
                    && match held.mode {
                        LockMode::Exclusive => !reads && matches!(info.kind, LockKind::Spin | LockKind::Rw),
                        LockMode::Shared => reads && info.kind == LockKind::Rw,
                    }
            })
        };
        context.held.iter().rposition(released)
    }

    /// A context has given back a lock, which it holds at this place where it is known to hold it.
    pub(crate) fn gave_back(
        &mut self,
        context: &mut ContextOrder,
        lock: LockId,
        mode: LockMode,
        at: Option<usize>,
    ) {
        let strand = context.now.strand;
        if context.end_section(lock) {
            self.waited_for_holders(strand, lock);
        }
        self.given(strand, lock, mode);
        context.now.clock = self.clock(strand);
        if let Some(at) = at {
            self.drop_held(context, at);
        }
    }

    /// A context does not hold the lock at this place any more.
    pub(crate) fn drop_held(&mut self, context: &mut ContextOrder, at: usize) {
        if at < context.held.len() {
            context.held.remove(at);
        }
        context.now.locks = self.lockset(&context.held);
    }

    /// Whether the memory of a lock is still the one that it was in when it got its number.
    pub fn is_live(&self, lock: LockId) -> bool {
        self.locks.is_live(lock)
    }

    /// Describes a strand, for example as `the timer function watchdog of the timer at 0x…`.
    pub fn describe(&self, strand: StrandId) -> String {
        self.strands.get(strand).map_or_else(String::new, |strand| strand.label.clone())
    }

    /// The strand of `who`; `None` where it is not known.
    pub(crate) fn strand(&mut self, who: Identity) -> Option<StrandId> {
        self.strands.find(&who)
    }

    /// Adds a strand. `label` describes it, and `user` says that it is a task of a user process.
    pub(crate) fn add_strand(&mut self, who: Identity, label: String, user: bool) -> StrandId {
        self.strands.add(who, label, user)
    }

    /// Marks a strand as running, and returns its clock.
    pub(crate) fn runs(&mut self, strand: StrandId) -> u32 {
        self.strands.touch(strand);
        self.clock(strand)
    }

    /// A strand's clock.
    #[inline]
    pub(crate) fn clock(&self, strand: StrandId) -> u32 {
        self.strands.get(strand).map_or(0, |strand| strand.time)
    }

    /// The name of a lock or an object in a call of a task.
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

    /// Sets the address of the mutex of RTNL.
    pub(crate) fn set_rtnl(&mut self, address: u64) {
        self.locks.set_rtnl(address);
    }

    /// The number of a lock; a new one where the lock is not known.
    pub(crate) fn lock_id(&mut self, name: Name, kind: LockKind) -> LockId {
        self.locks.id(name, kind)
    }

    /// A strand has taken a lock.
    pub(crate) fn taken(&mut self, strand: StrandId, lock: LockId, mode: LockMode) {
        if let Some(strand) = self.strands.get_mut(strand) {
            self.locks.taken(lock, mode, strand);
        }
    }

    /// A strand releases a lock.
    pub(crate) fn given(&mut self, strand: StrandId, lock: LockId, mode: LockMode) {
        if let Some(strand) = self.strands.get_mut(strand) {
            self.locks.given(lock, mode, strand);
        }
    }

    /// A strand is about to release a lock that it took only to wait for the holders.
    pub(crate) fn waited_for_holders(&mut self, strand: StrandId, lock: LockId) {
        if self.parts.atomics
            && let Some(strand) = self.strands.get_mut(strand)
        {
            self.locks.waited_for(lock, strand);
        }
    }

    /// The set of the held locks.
    pub(crate) fn lockset(&mut self, held: &[Acquired]) -> LocksetId {
        self.locks.set(held.iter().map(|lock| (lock.lock, lock.mode)))
    }

    /// A task without a context has taken a lock.
    pub(crate) fn wait(&mut self, task: u64, lock: Acquired) {
        if self.waiting.len() < MAX_TASKS || self.waiting.contains_key(&task) {
            let held = self.waiting.entry(task).or_default();
            // This is the outer of two functions that both report the lock.
            held.retain(|held| held.lock != lock.lock || held.mode != LockMode::Exclusive);
            if held.len() < 16 {
                held.push(lock);
            }
        }
    }

    /// A task without a context releases a lock.
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

    /// The locks that a task held before it got a context.
    pub(crate) fn waited(&mut self, task: u64) -> Vec<Acquired> {
        self.waiting.remove(&task).unwrap_or_default()
    }

    /// The strand of a task before driver code runs in it.
    pub(crate) fn early(&mut self, task: u64) -> StrandId {
        let who = Identity::Task { task, pid: EARLY };
        self.strand(who).unwrap_or_else(|| self.add_strand(who, "a thread of the kernel".to_owned(), false))
    }

    /// Whether something was released into an object.
    pub(crate) fn has_released(&self, name: Name) -> bool {
        self.objects.contains_key(&name)
    }

    /// What a strand has done so far happens before what another one does next.
    pub(crate) fn follow(&mut self, later: StrandId, earlier: StrandId) {
        if later == earlier || !self.parts.deferral || self.strands.get(later).is_none() {
            return;
        }
        let Some(snapshot) = self.strands.get_mut(earlier).map(|strand| strand.hand()) else { return };
        if let Some(later) = self.strands.get_mut(later) {
            later.learn(&snapshot);
        }
    }

    /// Releases what the strand has done into an object, for strands that acquire the object later.
    pub(crate) fn release(&mut self, strand: StrandId, name: Name) {
        if !self.parts.deferral || self.objects.len() >= MAX_OBJECTS && !self.objects.contains_key(&name) {
            return;
        }
        if let Name::At(addr) = name {
            self.object_pages.add(addr);
        }
        if let Some(strand) = self.strands.get_mut(strand) {
            strand.release(self.objects.entry(name).or_default(), Relation::Hard);
        }
    }

    /// Like [`Self::release`], for strands that read the word.
    pub(crate) fn release_word(&mut self, strand: StrandId, addr: u64) {
        if self.parts.atomics
            && let Some(strand) = self.strands.get_mut(strand)
        {
            self.atoms.add(addr).release(strand, None);
        }
    }

    /// Acquires what was released into an object: it comes before what the strand does next.
    pub(crate) fn acquire(&mut self, strand: StrandId, name: Name) {
        let Some(strand) = self.strands.get_mut(strand) else { return };
        if let Some(var) = self.objects.get(&name) {
            strand.acquire(var, Relation::Hard);
        }
        // The driver may access the object itself.
        if let Name::At(addr) = name
            && let Some(atom) = self.atoms.atom(addr)
        {
            atom.acquire(strand, None);
        }
    }
}
