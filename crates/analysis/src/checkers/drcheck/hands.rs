//! Plain flags, indices and pointers that hand over what was done before they were written.
//!
//! The race for such a word is reported and judged. From then on the word orders: the first time by its
//! event, and later by clocks (see [`crate::order`]). A store that takes something away releases nothing. Such
//! stores clear a pointer, or are any store of a driver that shuts down.

use super::cell::{Cell, Kind};
use super::races::{Known, Pair, pair, settle};
use super::triage::Form;
use super::verdict::ONE_WRITER;
use super::{DrCheck, Mode};
use crate::checker::Cx;

/// Most pairs of strands where one has read what the other wrote.
const MAX_HANDS: usize = 1 << 14;
/// Most words that order.
const MAX_PUBLISHED: usize = 4096;

/// One strand has read what another wrote.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hand {
    /// What the other strand did up to this event comes before.
    event: u64,
    /// The clock up to which that was known before the read.
    before: u32,
    /// Clocks say what was handed over, so `event` does not matter.
    exact: bool,
    pair: Pair,
    finding: usize,
}

const HANDS_OVER: &str = "flag or index that hands over what was written before it";

/// A mask of bytes that one instruction can store at once, naturally aligned.
fn is_aligned(mask: u8) -> bool {
    let (size, at) = (mask.count_ones(), mask.trailing_zeros());
    size.is_power_of_two() && at % size == 0 && u32::from(mask) >> at == (1 << size) - 1
}

impl DrCheck {
    /// The plain store and the plain load of two accesses; `None` where they are not one of each.
    pub(super) fn plain<'a>(old: &'a Cell, new: &'a Cell) -> Option<(&'a Cell, &'a Cell)> {
        let (store, load) = match (old.kind.writes(), new.kind.writes()) {
            (true, false) => (old, new),
            (false, true) => (new, old),
            _ => return None,
        };
        let other = |cell: &Cell| cell.kind.has(Kind::ATOMIC) || cell.kind.has(Kind::CALLED);
        let plain = !store.kind.has(Kind::UPDATE) && !other(store) && !other(load);
        let whole = is_aligned(store.mask) && load.mask & !store.mask == 0;
        (plain && whole).then_some((store, load))
    }

    /// Whether a store takes something away from its readers.
    pub(super) fn takes_away(&self, store: &Cell, form: Form) -> bool {
        store.mask == 0xff && form == Form::Store(Some(0))
            || self.scenes.get(store.scene).is_some_and(|scene| scene.teardown)
    }

    /// Whether all writers of the bytes are one strand, or hold one lock.
    pub(super) fn one_writer(&self, cx: &Cx<'_>, at: super::words::At, store: &Cell) -> bool {
        let order = &cx.state.order;
        self.words.cells(at).filter(|cell| cell.kind.writes() && cell.mask & store.mask != 0).all(|cell| {
            cell.strand == store.strand
                || cell.kind.has(Kind::FIRST)
                || order.common(cell.locks, store.locks).is_some()
                || order.ordered((cell.strand, cell.clock), store.strand)
        })
    }

    /// After a race between a plain store and a plain load that somebody looks at, the word orders.
    pub(super) fn publish(&mut self, cx: &Cx<'_>, word: u64, old: &Cell, new: &Cell, finding: usize) {
        let Some((store, load)) = Self::plain(old, new) else { return };
        let form = self.form(cx.state, store.pc);
        if self.mode != Mode::Full || self.takes_away(store, form) {
            return;
        }
        if self.form(cx.state, load.pc) == Form::Dropped {
            return;
        }
        let addr = word + u64::from(store.mask.trailing_zeros());
        if self.published.len() < MAX_PUBLISHED {
            self.published.insert(addr, finding);
            self.published_words.add(word);
            cx.state.order.publish(addr);
        }
        if old.kind.writes() {
            let before = cx.state.order.knows(new.strand, old.strand);
            self.hand(old, new, before, finding, false);
        }
    }

    fn hand(&mut self, old: &Cell, new: &Cell, before: u32, finding: usize, exact: bool) {
        let key = (old.strand, new.strand);
        if self.hands.len() < MAX_HANDS || self.hands.contains_key(&key) {
            self.hands.insert(key, Hand { event: old.last, before, exact, pair: pair(old, new), finding });
        }
    }

    /// Whether an access is to a word that orders.
    #[inline]
    pub(super) fn is_published(&self, word: u64, cell: &Cell) -> bool {
        let addr = word + u64::from(cell.mask.trailing_zeros());
        self.published_words.may_have(word) && self.published.contains_key(&addr)
    }

    /// An access to a word that orders.
    pub(super) fn at_published(&mut self, cx: &mut Cx<'_>, at: super::words::At, word: u64, cell: &Cell) {
        if !self.published_words.may_have(word) {
            return;
        }
        let addr = word + u64::from(cell.mask.trailing_zeros());
        let Some(mut finding) = self.published.get(&addr).copied() else { return };
        if cell.kind.writes() {
            let form = self.form(cx.state, cell.pc);
            if self.takes_away(cell, form) {
                cx.state.order.withhold(addr);
            }
            return;
        }
        let newest = self.words.cells(at).find(|old| old.kind.writes() && old.mask & cell.mask != 0).copied();
        let Some(store) = newest.filter(|store| store.strand != cell.strand) else { return };
        // A load that reads nothing new orders nothing.
        let before = cx.state.order.learned(store.strand).filter(|before| *before < store.clock);
        if let Some(before) = before {
            // This load is what orders, and it races itself.
            let locked = cx.state.order.common(store.locks, cell.locks).is_some();
            if !locked && !store.kind.has(Kind::FIRST) {
                self.race(cx, at, word, &store, cell);
            }
            if let Some(Known::Reported(reported)) = self.pairs.get(&pair(&store, cell)) {
                finding = *reported;
            }
            self.hand(&store, cell, before, finding, true);
        }
    }

    /// Whether the new access follows a read of a plain flag or index that the other side wrote after the old
    /// access. The race for the flag is reported; what the flag hands over is not reported as well.
    pub(super) fn handed_over(&mut self, cx: &mut Cx<'_>, old: &Cell, new: &Cell) -> bool {
        let Some(hand) = self.hands.get(&(old.strand, new.strand)).copied() else { return false };
        if hand.exact || old.last > hand.event {
            return false;
        }
        self.used(cx, hand, pair(old, new));
        true
    }

    /// The hand that two ordered accesses owe their order to; `None` where they owe it to something else.
    #[inline]
    pub(super) fn hand_for(&self, old: &Cell, new: &Cell) -> Option<Hand> {
        if self.hands.is_empty() {
            return None;
        }
        let hand = self.hands.get(&(old.strand, new.strand)).copied()?;
        (old.last <= hand.event && old.clock > hand.before).then_some(hand)
    }

    /// Checks whether two ordered accesses owe their order to a flag.
    pub(super) fn was_handed(&mut self, cx: &mut Cx<'_>, old: &Cell, new: &Cell) {
        if let Some(hand) = self.hand_for(old, new) {
            self.used(cx, hand, pair(old, new));
        }
    }

    /// A flag has ordered two accesses. Where its reader decides by it, its finding is dropped; otherwise the
    /// finding becomes a warning.
    fn used(&mut self, cx: &mut Cx<'_>, hand: Hand, pair: Pair) {
        if hand.pair == pair {
            return;
        }
        let tested = [hand.pair.0, hand.pair.1].map(|pc| self.form(cx.state, pc));
        let tested = tested.iter().any(|form| matches!(form, Form::Test { .. }));
        let Some(finding) = cx.reports.get_mut(hand.finding) else { return };
        let benign = finding.triage.as_deref().is_some_and(|t| t.contains(ONE_WRITER));
        if tested && benign {
            finding.count = 0;
            for known in self.pairs.values_mut().chain(self.groups.values_mut()) {
                if *known == Known::Reported(hand.finding) {
                    *known = Known::Flag;
                }
            }
        } else {
            settle(finding, HANDS_OVER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_words_are_stored_at_once() {
        for (mask, is) in [(0xff, true), (0x0f, true), (0xf0, true), (0x0c, true), (0x02, true)] {
            assert_eq!(is_aligned(mask), is, "{mask:#x}");
        }
        for mask in [0, 0x3c, 0x07, 0x06, 0x7f, 0x11] {
            assert!(!is_aligned(mask), "{mask:#x}");
        }
    }
}
