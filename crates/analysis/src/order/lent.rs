//! Memory that changes owners with its object: a request, and the driver's data behind it.
//!
//! The kernel gives a request to the driver, and the driver lends it to its device. An interrupt handler gets
//! it back, and the kernel reuses it for the next request. Two edges follow. Both hold for strands that
//! access the request's memory, because this access shows that they own it:
//!
//! - What the strand that started a request did before its last store to the device comes before what an
//!   interrupt handler does that accesses the request. What the strand does to the request later is not
//!   ordered.
//! - What came before the request was given to the kernel comes before what its next owners do.
//!
//! Charts say which calls and callbacks these are ([`Hand`]). The size of an object follows from the distance
//! to its neighbors.

use super::atoms::Filter;
use super::chart::Hand;
use super::clocks::{Relation, Var};
use super::{CallbackRef, ContextOrder, Order, Rules, StrandId};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Most objects that are known at a time, most of one strand, and most strands that own some.
const MAX_PIECES: usize = 1 << 14;
const MAX_IN_HAND: usize = 2048;
const MAX_HOLDERS: usize = 2048;
/// The size of an object in bytes where no neighbor is known; the smallest and the largest size.
const SIZE: u64 = 1024;
const SIZES: std::ops::RangeInclusive<u64> = 64..=1 << 14;
/// Most objects that one access may cover.
const MAX_SPAN: usize = 64;
const PAGE: u64 = 4096;

/// The owner of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The kernel owns it.
    Home,
    /// A strand got it from the kernel.
    Held(StrandId),
    /// A strand is about to lend it to the device.
    Ready(StrandId),
    /// A strand lent it to the device. The flag says whether the strand has stored to a register since.
    Lent(StrandId, bool),
    /// A strand got it back from the device.
    Back(StrandId),
}

#[derive(Debug)]
struct Piece {
    chart: usize,
    phase: Phase,
    var: Option<Var>,
}

/// All objects whose memory changes owners.
#[derive(Debug, Default)]
pub(super) struct Lent {
    pieces: BTreeMap<u64, Piece>,
    pages: Filter,
    /// For each chart, the distance of its objects in bytes.
    sizes: FxHashMap<usize, u64>,
    /// The objects that strands own or owned.
    in_hand: FxHashMap<StrandId, Vec<u64>>,
    /// Objects that a strand is about to lend, or for which later stores to the device still count.
    open: Vec<u64>,
}

impl Lent {
    #[inline]
    fn may_have(&self, addr: u64, size: u64) -> bool {
        let last = addr.saturating_add(size.max(1) - 1);
        !self.pieces.is_empty()
            && (self.pages.may_have(addr / PAGE)
                || last / PAGE != addr / PAGE && self.pages.may_have(last / PAGE))
    }

    fn size(&self, chart: usize) -> u64 {
        self.sizes.get(&chart).copied().unwrap_or(SIZE)
    }

    /// The addresses of the objects that a range covers.
    fn touched(&self, addr: u64, size: u64) -> Vec<u64> {
        let first = self.pieces.range(..=addr).next_back();
        let first = first.filter(|(start, piece)| addr - **start < self.size(piece.chart));
        let end = addr.saturating_add(size.max(1));
        let rest = self.pieces.range(addr.saturating_add(1)..end.max(addr.saturating_add(1)));
        first.into_iter().chain(rest).map(|(start, _)| *start).take(MAX_SPAN).collect()
    }

    /// The object at an address; added if needed. `None` where there are too many.
    fn add(&mut self, addr: u64, chart: usize) -> Option<&mut Piece> {
        if !self.pieces.contains_key(&addr) {
            if addr == 0 || self.pieces.len() >= MAX_PIECES {
                return None;
            }
            let below = self.pieces.range(..addr).next_back();
            let above = self.pieces.range(addr..).next();
            for (other, piece) in below.into_iter().chain(above) {
                let apart = other.abs_diff(addr);
                if piece.chart == chart && SIZES.contains(&apart) {
                    let size = self.sizes.entry(chart).or_insert(apart);
                    *size = apart.min(*size);
                }
            }
            self.pieces.insert(addr, Piece { chart, phase: Phase::Home, var: None });
        }
        for page in addr / PAGE..=addr.saturating_add(self.size(chart)) / PAGE {
            self.pages.add(page);
        }
        self.pieces.get_mut(&addr)
    }

    fn has(&mut self, strand: StrandId, addr: u64) {
        if self.in_hand.len() >= MAX_HOLDERS && !self.in_hand.contains_key(&strand) {
            self.in_hand.clear();
        }
        let list = self.in_hand.entry(strand).or_default();
        if list.len() < MAX_IN_HAND && !list.contains(&addr) {
            list.push(addr);
        }
    }

    /// Later stores of a strand to the device no longer count for objects that it has announced with a
    /// register.
    fn close(&mut self, strand: StrandId) {
        let pieces = &self.pieces;
        self.open.retain(|at| pieces.get(at).is_some_and(|p| p.phase != Phase::Lent(strand, true)));
    }

    /// Forgets the objects in a range: its memory was freed or allocated.
    pub fn forget(&mut self, from: u64, to: u64) {
        while let Some((&at, _)) = self.pieces.range(from..to).next() {
            self.pieces.remove(&at);
        }
    }
}

impl Order {
    /// What an entry into the driver does with an object's memory, and the object's address where an argument
    /// names it.
    pub(crate) fn hand_of(&self, candidates: &[CallbackRef], args: &[u64]) -> Option<(usize, Hand, u64)> {
        candidates.iter().find_map(|&(chart, callback)| {
            let callback = self.charts().get(chart)?.callbacks.get(callback)?;
            let key = callback.keys.first().copied().flatten();
            let addr = key.and_then(|arg| args.get(usize::from(arg)).copied()).unwrap_or(0);
            Some((chart, callback.hand?, addr))
        })
    }

    /// A run of the driver begins that changes the owner of an object.
    pub(crate) fn hand_begins(
        &mut self,
        context: &mut ContextOrder,
        (chart, hand, addr): (usize, Hand, u64),
    ) {
        match hand {
            Hand::Lends => {
                self.touches_lent(context, addr, 1);
                self.lends(context.now.strand, chart, addr);
            }
            Hand::Gives => {
                self.lent.add(addr, chart);
                self.touches_lent(context, addr, 1);
            }
            Hand::Takes | Hand::TakesSome | Hand::Completes => {}
        }
        context.now.clock = self.clock(context.now.strand);
    }

    /// Such a run ends.
    pub(crate) fn hand_ends(&mut self, strand: StrandId, hand: (usize, Hand, u64), result: Option<u64>) {
        let failed = match hand.1 {
            Hand::Gives => return self.gives(strand, hand.2),
            Hand::Completes => return,
            // The status may be one byte.
            Hand::Takes | Hand::Lends => result.is_some_and(|result| result & 0xff != 0),
            Hand::TakesSome => false,
        };
        self.lent.close(strand);
        let pieces = &self.lent.pieces;
        let left = |at: &u64| match pieces.get(at).map(|piece| piece.phase) {
            Some(Phase::Held(by)) => by == strand,
            Some(Phase::Ready(by) | Phase::Lent(by, _)) => failed && by == strand,
            _ => false,
        };
        let had = self.lent.in_hand.remove(&strand).unwrap_or_default();
        let (given, kept): (Vec<u64>, Vec<u64>) = had.into_iter().partition(left);
        // The strand no longer owns objects that are lent to the device.
        let kept: Vec<u64> = kept
            .into_iter()
            .filter(|at| pieces.get(at).is_some_and(|p| p.phase == Phase::Ready(strand)))
            .collect();
        if !kept.is_empty() {
            self.lent.in_hand.insert(strand, kept);
        }
        given.into_iter().for_each(|at| self.gives(strand, at));
    }

    /// A call begins that changes the owner of an object. It counts only where the driver made it.
    pub(crate) fn hand_called(&mut self, strand: StrandId, rules: &[Rules], args: &[u64], by_driver: bool) {
        for (chart, calls) in rules {
            let call = calls.iter().find_map(|&call| {
                let call = self.charts().get(*chart)?.calls.get(call)?;
                Some((call.hand?, call.keys.first().cloned().flatten()))
            });
            let Some((hand, key)) = call.filter(|_| by_driver) else { continue };
            let addr = key.as_ref().map(|key| super::charts::part(key, args));
            match (hand, addr) {
                (Hand::Lends, Some(addr)) => self.lends(strand, *chart, addr),
                (Hand::Gives, Some(addr)) => self.gives(strand, addr),
                (Hand::Gives, None) => {
                    let pieces = &self.lent.pieces;
                    let back = |at: &u64| pieces.get(at).is_some_and(|p| p.phase == Phase::Back(strand));
                    let had = self.lent.in_hand.remove(&strand).unwrap_or_default();
                    let (given, kept): (Vec<u64>, Vec<u64>) = had.into_iter().partition(back);
                    self.lent.in_hand.insert(strand, kept);
                    given.into_iter().for_each(|at| self.gives(strand, at));
                }
                _ => {}
            }
        }
    }

    fn lends(&mut self, strand: StrandId, chart: usize, addr: u64) {
        self.lent.close(strand);
        let atomics = self.parts.atomics;
        let Some(piece) = self.lent.add(addr, chart) else { return };
        piece.phase = Phase::Ready(strand);
        if let Some(strand) = self.strands.get_mut(strand).filter(|_| atomics) {
            strand.release(&mut piece.var, Relation::Hard);
        }
        self.lent.has(strand, addr);
        if self.lent.open.len() < MAX_IN_HAND && !self.lent.open.contains(&addr) {
            self.lent.open.push(addr);
        }
    }

    fn gives(&mut self, strand: StrandId, addr: u64) {
        let states = self.parts.states;
        let Some(piece) = self.lent.pieces.get_mut(&addr) else { return };
        if let Phase::Held(by) | Phase::Ready(by) | Phase::Lent(by, _) | Phase::Back(by) = piece.phase
            && let Some(had) = self.lent.in_hand.get_mut(&by)
        {
            had.retain(|at| *at != addr);
        }
        piece.phase = Phase::Home;
        if let Some(strand) = self.strands.get_mut(strand).filter(|_| states) {
            strand.release(&mut piece.var, Relation::Hard);
        }
    }

    /// A strand stores to a register of the device, or to memory that it shares with the device.
    #[cold]
    fn stored_to_device(&mut self, strand: StrandId, register: bool) {
        if !self.parts.atomics {
            return;
        }
        let Lent { pieces, open, .. } = &mut self.lent;
        let Some(me) = self.strands.get_mut(strand) else { return };
        let mut others = Vec::new();
        open.retain(|at| {
            let Some(piece) = pieces.get_mut(at) else { return false };
            match piece.phase {
                Phase::Ready(by) | Phase::Lent(by, false) if by == strand => {
                    me.release(&mut piece.var, Relation::Hard);
                    piece.phase = Phase::Lent(by, register);
                    true
                }
                Phase::Lent(by, true) if by == strand => {
                    if register {
                        me.release(&mut piece.var, Relation::Hard);
                    }
                    true
                }
                // A store to the doorbell register counts for all strands that held the queue's lock before.
                Phase::Lent(by, false) if register => {
                    others.push((*at, by));
                    true
                }
                Phase::Ready(_) | Phase::Lent(..) => true,
                _ => false,
            }
        });
        let full = me.full.clone();
        for (at, by) in others {
            let (Some(by), Some(piece)) = (self.strands.get(by), self.lent.pieces.get_mut(&at)) else {
                continue;
            };
            let until = full.get(by.slot);
            if let Some(var) = &mut piece.var
                && until >= var.time()
            {
                var.raise(by.slot, until);
                self.lent.open.retain(|open| *open != at);
            }
        }
    }

    /// Like [`Self::stored_to_device`], and cheap where nothing is lent.
    #[inline]
    pub(crate) fn signals_device(&mut self, context: &mut ContextOrder, register: bool) {
        if !self.lent.open.is_empty() {
            self.stored_to_device(context.now.strand, register);
            context.now.clock = self.clock(context.now.strand);
        }
    }

    /// The context is about to access memory. An access to an object's memory acquires what the earlier
    /// owners released.
    #[inline]
    pub(crate) fn touches(&mut self, context: &mut ContextOrder, addr: u64, size: u64) {
        if self.lent.may_have(addr, size) {
            self.touches_lent(context, addr, size);
        }
    }

    #[cold]
    fn touches_lent(&mut self, context: &mut ContextOrder, addr: u64, size: u64) {
        let by = context.now.strand;
        for at in self.lent.touched(addr, size) {
            let Some(phase) = self.lent.pieces.get(&at).map(|piece| piece.phase) else { continue };
            let (counts, next) = match phase {
                Phase::Home => (self.parts.states, Phase::Held(by)),
                Phase::Held(other) if other != by && self.takes(context) => {
                    (self.parts.states, Phase::Held(by))
                }
                Phase::Lent(other, _) | Phase::Back(other) if other != by && self.completes(context) => {
                    (self.parts.atomics, Phase::Back(by))
                }
                _ => continue,
            };
            if let (Some(strand), Some(piece)) = (self.strands.get_mut(by), self.lent.pieces.get_mut(&at)) {
                piece.phase = next;
                if counts {
                    strand.acquire(&piece.var, Relation::Hard);
                }
            }
            self.lent.has(by, at);
        }
    }

    /// Whether the context gets requests from the kernel.
    fn takes(&self, context: &ContextOrder) -> bool {
        let takes = |hand: Hand| matches!(hand, Hand::Takes | Hand::TakesSome | Hand::Lends);
        context.entries.iter().any(|run| run.hand.is_some_and(|(_, hand, _)| takes(hand)))
    }

    /// Whether the context gets requests back from the device.
    fn completes(&self, context: &ContextOrder) -> bool {
        if context.entries.iter().any(|run| matches!(run.hand, Some((_, Hand::Completes, _)))) {
            return true;
        }
        let timer =
            |(chart, ..): (usize, usize, u32)| self.charts().get(chart).is_some_and(|chart| chart.ticks);
        let first = context.entries.first().and_then(|run| run.callback);
        !context.is_task() && !first.is_some_and(timer)
    }
}
