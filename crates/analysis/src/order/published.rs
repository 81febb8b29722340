//! Published words: flags, indices and pointers that one side stores plainly and others load, and that hand
//! over earlier work.
//!
//! On x86 such a store is a release and such a load an acquire. Nothing in the code distinguishes them from
//! other accesses. A checker of races finds these words; from then on they order.

use super::atoms::Filter;
use super::clocks::{Relation, Var};
use super::{ContextOrder, Order, StrandId};
use guardrail_trace::event::Access;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Most words that are known at a time.
const MAX_WORDS: usize = 4096;

/// All published words.
#[derive(Debug, Default)]
pub(super) struct Published {
    words: BTreeMap<u64, Option<Var>>,
    filter: Filter,
    /// Words that order from the next access on.
    coming: RefCell<Vec<u64>>,
    /// The next store to this address releases nothing.
    withheld: Cell<Option<u64>>,
    /// The strand whose store the last load read, and the time up to which that strand was known before.
    learned: Cell<Option<(StrandId, u32)>>,
}

impl Published {
    /// Whether accesses to this address need a closer check.
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

    /// Forgets the words in a range: its memory was freed or allocated.
    pub fn forget(&mut self, from: u64, to: u64) {
        self.coming.get_mut().retain(|addr| !(from..to).contains(addr));
        while let Some((&addr, _)) = self.words.range(from..to).next() {
            self.words.remove(&addr);
        }
    }
}

impl Order {
    /// Publishes the word at this address: from now on, a plain load acquires what came before the store.
    pub(crate) fn publish(&self, addr: u64) {
        let mut coming = self.published.coming.borrow_mut();
        if coming.len() < MAX_WORDS && !self.published.words.contains_key(&addr) {
            coming.push(addr);
        }
    }

    /// The current store takes the word away, so it releases nothing.
    pub(crate) fn withhold(&self, addr: u64) {
        self.published.withheld.set(Some(addr));
    }

    /// The time up to which the strand `of` was known before the current load; `None` where the load read no
    /// store of it.
    pub(crate) fn learned(&self, of: StrandId) -> Option<u32> {
        self.published.learned.get().filter(|(strand, _)| *strand == of).map(|(_, before)| before)
    }

    /// The time up to which a strand knows another strand's actions.
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
