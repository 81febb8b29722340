//! Locks and sets of locks, each with a number; and what was done before a lock was released.

use super::atoms::PageFilter;
use super::clocks::{Relation, Var};
use super::strands::Strand;
use crate::stacks::StackId;
use guardrail_knowledge::effect::{LockKind, LockMode};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Number of a lock; not used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockId(pub u32);

/// Number of a set of locks with the modes in which they are held; 0 is the empty set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocksetId(pub u32);

/// What the processor keeps away from a context on its vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Off {
    /// Interrupts are off, or the context is an interrupt.
    pub irqs: bool,
    /// Softirqs are off, or the context is one, or interrupts are off.
    pub softirqs: bool,
    /// Preemption is off.
    pub preemption: bool,
}

/// A lock that a context holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquired {
    /// Number of the lock.
    pub lock: LockId,
    /// Exclusive or shared.
    pub mode: LockMode,
    /// The stack of the call that took it.
    pub stack: StackId,
    /// It was taken without waiting.
    pub tried: bool,
    /// The caller of the driver took it, not the driver.
    pub by_kernel: bool,
    /// What was off before it was taken.
    pub off: Off,
}

/// A lock, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// The kind of lock.
    pub kind: LockKind,
    /// Its guest address, or 0 where the kernel has only one.
    pub address: u64,
    /// Its name where it has one (`rtnl`).
    pub name: Option<&'static str>,
}

/// Most locks that are known at a time, and most over the run.
const MAX_LIVE: usize = 1 << 14;
const MAX_LOCKS: usize = 1 << 18;
const MAX_SETS: usize = 1 << 16;
/// A lock beyond these bounds; any set with it is [`UNKNOWN_SET`].
const UNKNOWN: LockId = LockId(u32::MAX);
/// A set whose locks are not known. To avoid false alarms, it has a lock in common with every other set.
const UNKNOWN_SET: LocksetId = LocksetId(u32::MAX);

/// What identifies a lock or an object of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    /// An address in guest memory.
    At(u64),
    /// A name that the kernel uses for one object only.
    Global(&'static str),
}

#[derive(Debug)]
struct Lock {
    id: LockId,
    /// What exclusive holders released.
    writer: Option<Var>,
    /// What readers released since.
    readers: Option<Var>,
    /// What strands released that took the lock only to wait for its holders.
    waited: Option<Var>,
}

type Set = Box<[(LockId, LockMode)]>;

/// All locks and sets.
#[derive(Debug)]
pub(super) struct Locks {
    live: BTreeMap<(Name, LockKind), Lock>,
    /// The pages of the locks in `live`.
    pages: PageFilter,
    infos: Vec<LockInfo>,
    sets: Vec<Set>,
    ids: FxHashMap<Set, LocksetId>,
    scratch: Vec<(LockId, LockMode)>,
    rtnl: Option<u64>,
}

impl Default for Locks {
    fn default() -> Self {
        Locks {
            live: BTreeMap::new(),
            pages: PageFilter::default(),
            infos: Vec::new(),
            sets: vec![Box::default()],
            ids: FxHashMap::default(),
            scratch: Vec::new(),
            rtnl: None,
        }
    }
}

impl Locks {
    /// Sets the address of the mutex that `rtnl_lock` takes. A lock of the mutex by its address is the same
    /// lock.
    pub fn set_rtnl(&mut self, address: u64) {
        self.rtnl = Some(address);
    }

    /// The number of a lock; a new one where the lock is not known.
    pub fn id(&mut self, name: Name, kind: LockKind) -> LockId {
        let name = match name {
            Name::At(address) if self.rtnl.is_some_and(|rtnl| rtnl == address) => Name::Global("rtnl"),
            name => name,
        };
        if let Some(lock) = self.live.get(&(name, kind)) {
            return lock.id;
        }
        if self.live.len() >= MAX_LIVE || self.infos.len() >= MAX_LOCKS {
            return UNKNOWN;
        }
        let id = LockId(self.infos.len() as u32);
        let (address, word) = match name {
            Name::At(address) => (address, None),
            Name::Global(word) => (0, Some(word)),
        };
        self.infos.push(LockInfo { kind, address, name: word });
        self.pages.add(address);
        self.live.insert((name, kind), Lock { id, writer: None, readers: None, waited: None });
        id
    }

    /// Kind and address of a lock; `None` where it is not known.
    pub fn info(&self, id: LockId) -> Option<&LockInfo> {
        self.infos.get(id.0 as usize)
    }

    fn key(&self, id: LockId) -> Option<(Name, LockKind)> {
        let info = self.infos.get(id.0 as usize)?;
        Some((info.name.map_or(Name::At(info.address), Name::Global), info.kind))
    }

    fn live(&mut self, id: LockId) -> Option<&mut Lock> {
        let key = self.key(id)?;
        self.live.get_mut(&key).filter(|lock| lock.id == id)
    }

    /// Whether the lock's memory was not freed or allocated since it is known.
    pub fn is_live(&self, id: LockId) -> bool {
        self.key(id).and_then(|key| self.live.get(&key)).is_some_and(|lock| lock.id == id)
    }

    /// The strand has taken the lock.
    pub fn taken(&mut self, id: LockId, mode: LockMode, strand: &mut Strand) {
        let Some(lock) = self.live(id) else { return };
        strand.acquire(&lock.writer, Relation::Full);
        strand.acquire(&lock.waited, Relation::Hard);
        if mode == LockMode::Exclusive {
            strand.acquire(&lock.readers, Relation::Full);
        }
    }

    /// The strand releases the lock.
    pub fn given(&mut self, id: LockId, mode: LockMode, strand: &mut Strand) {
        let Some(lock) = self.live(id) else { return };
        // By hard order it knows nothing about earlier holders, for whom other strands may wait.
        match mode {
            LockMode::Exclusive => {
                strand.release(&mut lock.writer, Relation::Hard);
                lock.readers = None;
            }
            LockMode::Shared => strand.release(&mut lock.readers, Relation::Hard),
        }
    }

    /// The strand took the lock only to wait for its holders: they come before what follows, and it comes
    /// before later holders.
    pub fn waited_for(&mut self, id: LockId, strand: &mut Strand) {
        let Some(lock) = self.live(id) else { return };
        strand.acquire(&lock.writer, Relation::Hard);
        strand.acquire(&lock.readers, Relation::Hard);
        strand.release(&mut lock.waited, Relation::Hard);
    }

    /// Forgets the locks in a range: its memory was freed or allocated.
    pub fn forget(&mut self, from: u64, to: u64) {
        if !self.pages.may_have(from, to) {
            return;
        }
        let range = (Name::At(from), LockKind::Spin)..(Name::At(to), LockKind::Spin);
        let mut range = self.live.range(range);
        if range.next().is_none() {
            return;
        }
        self.live.retain(|(name, _), _| !matches!(name, Name::At(addr) if (from..to).contains(addr)));
    }

    /// The number of a set of held locks.
    pub fn set(&mut self, held: impl Iterator<Item = (LockId, LockMode)>) -> LocksetId {
        let scratch = &mut self.scratch;
        scratch.clear();
        scratch.extend(held);
        if scratch.is_empty() {
            return LocksetId(0);
        }
        // For a lock that is held twice, the exclusive mode counts; it sorts first.
        scratch.sort_unstable();
        scratch.dedup_by_key(|(id, _)| *id);
        if scratch.last().is_some_and(|(id, _)| *id == UNKNOWN) {
            return UNKNOWN_SET;
        }
        if let Some(&id) = self.ids.get(scratch.as_slice()) {
            return id;
        }
        if self.sets.len() >= MAX_SETS {
            return UNKNOWN_SET;
        }
        let set: Set = scratch.as_slice().into();
        let id = LocksetId(self.sets.len() as u32);
        self.sets.push(set.clone());
        self.ids.insert(set, id);
        id
    }

    /// The locks of a set with their modes.
    pub fn get(&self, set: LocksetId) -> &[(LockId, LockMode)] {
        self.sets.get(set.0 as usize).map_or(&[], |set| set)
    }

    /// A lock that is in both sets and exclusive in one; `None` where they share no such lock.
    pub fn common(&self, a: LocksetId, b: LocksetId) -> Option<LockId> {
        if a == LocksetId(0) || b == LocksetId(0) {
            return None;
        }
        if a == UNKNOWN_SET || b == UNKNOWN_SET {
            return Some(UNKNOWN);
        }
        let (a, b) = (self.get(a), self.get(b));
        a.iter().find_map(|&(lock, mode)| {
            let at = b.binary_search_by_key(&lock, |(id, _)| *id).ok()?;
            (mode == LockMode::Exclusive || b[at].1 == LockMode::Exclusive).then_some(lock)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mutex_of_rtnl_is_rtnl() {
        let mut locks = Locks::default();
        let before = locks.id(Name::At(0x1000), LockKind::Mutex);
        locks.set_rtnl(0x2000);
        let rtnl = locks.id(Name::Global("rtnl"), LockKind::Mutex);
        assert_eq!(locks.id(Name::At(0x2000), LockKind::Mutex), rtnl);
        assert_eq!(locks.id(Name::At(0x1000), LockKind::Mutex), before);
        assert_ne!(before, rtnl);
    }
}
