//! Words that one side stores plainly and others load: flags, indices and pointers that hand over what was done before them.
//!
//! On x86 such a store is a release and such a load an acquire, and nothing in the code tells them from other accesses. Which words
//! are such, a checker of races finds out; from then on they order.

use super::atoms::Filter;
use super::clocks::{Relation, Var};
use super::{ContextOrder, Order, StrandId};
use guardrail_trace::event::Access;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Words that are known at a time.
const MAX_WORDS: usize = 4096;

/// All such words.
#[derive(Debug, Default)]
pub(super) struct Published {
    words: BTreeMap<u64, Option<Var>>,
    filter: Filter,
    /// Words that are such from the next access on.
    coming: RefCell<Vec<u64>>,
    /// The next store here hands nothing on.
    withheld: Cell<Option<u64>>,
    /// Whose deeds the last load told of, and up to when they had been known before.
    learned: Cell<Option<(StrandId, u32)>>,
}

impl Published {
    /// Whether accesses to this address are to be looked at.
    #[inline]
    pub fn may_have(&self, addr: u64) -> bool {
        self.filter.may_have(addr) || !self.coming.borrow().is_empty()
    }

    fn settle(&mut self) {
        for addr in self.coming.take() {
            if self.words.len() < MAX_WORDS || self.words.contains_key(&addr) {
                self.filter.add(addr);
                self.words.entry(addr).or_default();
            }
        }
    }

    /// The memory in a range begins a new life.
    pub fn forget(&mut self, from: u64, to: u64) {
        self.coming.get_mut().retain(|addr| !(from..to).contains(addr));
        while let Some((&addr, _)) = self.words.range(from..to).next() {
            self.words.remove(&addr);
        }
    }
}

impl Order {
    /// A plain load of the word at this address tells from now on what came before the store.
    pub(crate) fn publish(&self, addr: u64) {
        let mut coming = self.published.coming.borrow_mut();
        if coming.len() < MAX_WORDS && !self.published.words.contains_key(&addr) {
            coming.push(addr);
        }
    }

    /// The store that is at work takes the word away: it hands nothing on.
    pub(crate) fn withhold(&self, addr: u64) {
        self.published.withheld.set(Some(addr));
    }

    /// Up to when the load at work knew of the deeds of the strand whose store it has seen.
    pub(crate) fn learned(&self, of: StrandId) -> Option<u32> {
        self.published.learned.get().filter(|(strand, _)| *strand == of).map(|(_, before)| before)
    }

    /// Up to when a strand knows of the deeds of another.
    pub(crate) fn knows(&self, strand: StrandId, of: StrandId) -> u32 {
        let slot = self.strands.get(of).map(|strand| strand.slot);
        let strand = self.strands.get(strand);
        slot.zip(strand).map_or(0, |(slot, strand)| strand.hard.get(slot))
    }

    #[cold]
    pub(super) fn touched_published(&mut self, context: &mut ContextOrder, access: &Access) {
        self.published.settle();
        self.published.learned.set(None);
        let withheld = self.published.withheld.take() == Some(access.addr);
        let Some(var) = self.published.words.get_mut(&access.addr) else { return };
        if access.store && withheld {
            *var = None;
            return;
        }
        let now = context.now.strand;
        if !access.store
            && let Some(slot) = var.as_ref().map(Var::slot)
            && let (Some(reader), Some(writer)) = (self.strands.get(now), self.strands.in_slot(slot))
        {
            self.published.learned.set(Some((writer, reader.hard.get(slot))));
        }
        let Some(strand) = self.strands.get_mut(now) else { return };
        if access.store {
            strand.replace(var);
        } else {
            strand.acquire(var, Relation::Hard);
        }
        context.now.clock = strand.time;
    }
}
