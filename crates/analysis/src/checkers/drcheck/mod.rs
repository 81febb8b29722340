//! DRCheck: data races of driver code.
//!
//! Two accesses race under these conditions: they overlap, one of them writes, they are of different strands,
//! they have no lock in common, and neither comes before the other. Locks do not count as order.
//!
//! Policy, where that is not the whole truth:
//! - What the first user of a word did before any other access to it is initialization: there the order of
//!   locks counts as well.
//! - Atomic instructions do not race with each other, nor with plain reads and writes (`atomic_read`,
//!   `atomic_set`). They do race with plain updates.
//! - Memory of one vCPU is safe from that vCPU where everything that could interrupt is disabled.
//! - The checker ignores a context's own stack, devices, read-only memory, user memory and the stacks of
//!   other contexts.
//! - Kernel functions that copy, fill or read memory of a length that the driver names act for the driver.
//!   Functions known by their prototype alone do not: it is not known what they access.
//! - A plain flag or index that one side writes and the other reads races itself. From then on it orders, so
//!   that what the writer did before is not reported as well. The flag is then judged likely benign. It is
//!   not reported where it has one writer and its readers decide by it. Stores that clear a pointer and
//!   stores of a driver that shuts down do not order.
//! - A pointer that is stored plainly, and loaded in a read section of RCU, is what RCU is for.
//! - Coherent DMA memory is shared by its nature.
//! - Readers that look at a sequence counter before and after reading are synchronized by it.
//!
//! With the options `klockset` and `defer` it is plain Eraser without and with the order of deferred work,
//! for comparison.

mod by_code;
mod cell;
mod filter;
mod hands;
mod lockset;
mod races;
mod scene;
mod text;
mod triage;
mod uses;
mod verdict;
mod words;

use crate::checker::{Checker, Cx};
use crate::machine::{Context, Object, ObjectId, Out, Range, State, length};
use crate::order::{Entry, Parts, StrandId};
use crate::stacks::STACK_SIZE;
use crate::value_flow::{InsnCtx, Regs, RepRange, Value};
use by_code::ByCode;
use cell::{Cell, Kind};
use filter::WordFilter;
use guardrail_knowledge::effect::Effect;
use guardrail_trace::event::{Access, RegionFlags};
use hands::Hand;
use races::{Group, Known, Open, Pair, Sequence};
use rustc_hash::{FxHashMap, FxHashSet};
use scene::{CallStacks, Scenes};
use std::collections::{BTreeMap, VecDeque};
use words::{At, Eraser, Words};

const NAME: &str = "drcheck";
/// End of the half of the address space that belongs to user space.
const USER_END: u64 = 1 << 47;
/// Longest range in bytes in which single accesses are kept.
const MAX_RANGE: u64 = 1 << 20;
/// Shortest range in bytes that counts as a whole object or array.
const WHOLE: u64 = 16;
/// Cells and pages of the plain lockset, which needs more memory for each page.
const LOCKSET_CELLS: usize = 1_600_000;
const LOCKSET_PAGES: usize = 8192;

/// Most runs that are known to go on.
const MAX_LIVE: usize = 4096;

/// What orders accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    /// Locks alone, as in Eraser.
    Lockset,
    /// Locks and the order of deferred work.
    Deferral,
    /// Every kind of order that the analysis knows.
    #[default]
    Full,
}

/// The checker's state.
#[derive(Debug, Default)]
pub struct DrCheck {
    mode: Mode,
    words: Words,
    /// Number of accesses so far; serves as time.
    ticks: u64,
    stacks: CallStacks,
    scenes: Scenes,
    sets: lockset::Sets,
    pairs: FxHashMap<Pair, Known>,
    groups: FxHashMap<Group, Known>,
    /// What instructions do with the memory that they access, by address.
    forms: ByCode<triage::Form>,
    /// What is done with the values that instructions load, by address.
    uses: ByCode<uses::Uses>,
    /// What functions do with the memory that their instructions access, by address.
    handlings: ByCode<uses::Handling>,
    opens: Vec<Open>,
    /// Undecided races whose runs have not ended.
    pending: Vec<verdict::Pending>,
    /// The runs that go on, by their serial numbers.
    live: FxHashSet<u32>,
    /// Findings that a run which goes on may take back.
    doubts: Vec<(u32, usize)>,
    /// The words that open races are about.
    open_words: WordFilter,
    sequences: VecDeque<Sequence>,
    /// What plain flags have handed over, by the writer's and the reader's strand.
    hands: FxHashMap<(StrandId, StrandId), Hand>,
    /// Words that order, and the findings about them.
    published: BTreeMap<u64, usize>,
    /// The words in which those of `published` lie or lay.
    published_words: WordFilter,
    /// Memory of modules that is never written.
    fixed: Vec<(u64, u64)>,
    /// Grows when modules are loaded, because addresses may belong to other code then.
    generation: u64,
}

impl DrCheck {
    /// The checker with every kind of order.
    pub fn full() -> Self {
        DrCheck::default()
    }

    /// The checker with locks and the order of deferred work.
    pub fn deferral() -> Self {
        DrCheck {
            mode: Mode::Deferral,
            words: Words::new(LOCKSET_CELLS, LOCKSET_PAGES),
            ..DrCheck::default()
        }
    }

    /// The checker with locks alone.
    pub fn lockset() -> Self {
        DrCheck { mode: Mode::Lockset, ..DrCheck::deferral() }
    }

    /// Whether accesses to this memory are checked.
    #[inline]
    fn tracked(&self, cx: &Cx<'_>, addr: u64, rsp: Option<u64>, per_cpu: bool) -> bool {
        if addr < USER_END {
            return false;
        }
        let rsp = rsp.or_else(|| cx.context.and_then(Context::frame_rsp));
        if rsp.is_some_and(|rsp| addr.abs_diff(rsp) < STACK_SIZE) {
            return false;
        }
        if cx.state.is_vmalloc(addr) {
            // Stacks lie there too, and their memory changes owners unseen.
            return per_cpu || cx.state.objects.at(addr).is_some_and(|(_, o)| o.is_live());
        }
        !self.fixed.iter().any(|&(from, to)| addr >= from && addr < to)
    }

    fn cell(&mut self, cx: &Cx<'_>, pc: u64, kind: Kind) -> Option<Cell> {
        let context = cx.context?;
        let run = context.order.entries.last().map_or(0, |run| run.serial as u32);
        // All accesses of a block are one event.
        self.ticks += 1;
        Some(Cell::new(pc, self.ticks, run, context.order.now, kind))
    }

    #[inline]
    fn access(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, access: Access) {
        let kind = insn.access;
        // An update's write follows and stands for both.
        if access.io || kind.updates && !access.store {
            return;
        }
        if !self.tracked(cx, access.addr, insn.rsp, kind.per_cpu) {
            return;
        }
        let more = [(kind.updates, Kind::UPDATE), (kind.locked, Kind::ATOMIC), (kind.per_cpu, Kind::PER_CPU)];
        let more = more.into_iter().filter(|(is, _)| *is);
        let kind = more.fold(Kind(u8::from(access.store)), |set, (_, kind)| set.with(kind));
        if let Some(cell) = self.cell(cx, insn.addr, kind) {
            self.touch(cx, access.addr, u64::from(access.size), cell);
        }
    }

    /// A string instruction or a kernel function accessed a range.
    fn range(&mut self, cx: &mut Cx<'_>, pc: u64, rsp: Option<u64>, addr: u64, len: u64, kind: Kind) {
        if len == 0 || !self.tracked(cx, addr, rsp, false) {
            return;
        }
        let kind = if len >= WHOLE && kind.writes() { kind.with(Kind::WHOLE) } else { kind };
        if let Some(cell) = self.cell(cx, pc, kind) {
            self.touch(cx, addr, len.min(MAX_RANGE), cell);
        }
    }

    #[inline]
    fn touch(&mut self, cx: &mut Cx<'_>, addr: u64, len: u64, mut cell: Cell) {
        let end = addr.saturating_add(len);
        let mut from = addr;
        while from < end {
            let word = from & !7;
            let to = end.min(word.saturating_add(8));
            let (low, high) = ((from - word) as u32, (to - word) as u32);
            cell.mask = ((1u16 << high) - (1u16 << low)) as u8;
            self.word(cx, word, cell);
            if to <= from {
                return;
            }
            from = to;
        }
    }

    #[inline]
    fn word(&mut self, cx: &mut Cx<'_>, word: u64, cell: Cell) {
        if self.open_words.may_have(word) {
            self.look_again(cx, word, &cell);
        }
        let at = self.words.at(word);
        if !self.words.repeats(at, &cell) {
            self.news(cx, at, word, cell);
        }
    }

    /// An access that the word's newest access does not cover.
    fn news(&mut self, cx: &mut Cx<'_>, at: At, word: u64, mut cell: Cell) {
        if let Some(context) = cx.context {
            cell.callers = self.stacks.of(context);
        }
        cell.scene = self.scenes.of(cx);
        if self.mode == Mode::Full
            && !self.is_published(word, &cell)
            && self.words.renew(at, &cell, !self.hands.is_empty())
        {
            return;
        }
        match self.mode {
            Mode::Full => self.hybrid(cx, at, word, &mut cell),
            Mode::Lockset | Mode::Deferral => self.eraser(cx, at, word, &cell),
        }
        self.words.push(at, cell);
    }

    fn eraser(&mut self, cx: &mut Cx<'_>, at: At, word: u64, cell: &Cell) {
        let held = self.sets.of(cx.state, cell, cx.cpu);
        let order = &cx.state.order;
        let others = |old: &&Cell| old.strand != cell.strand && old.mask & cell.mask != 0;
        let anew = self.mode == Mode::Deferral
            && self
                .words
                .cells(at)
                .filter(others)
                .all(|old| order.ordered((old.strand, old.clock), cell.strand));
        let before = self
            .words
            .cells(at)
            .filter(others)
            .filter(|old| old.kind.writes() || cell.kind.writes())
            .min_by_key(|old| order.common(old.locks, cell.locks).is_some())
            .copied();
        let sets = &mut self.sets;
        let mut race = false;
        let Some(halves) = self.words.eraser(at) else { return };
        for (half, mask) in halves.iter_mut().zip([0x0f, 0xf0]) {
            if cell.mask & mask == 0 {
                continue;
            }
            if anew {
                *half = Eraser::Exclusive(cell.strand);
                continue;
            }
            let (next, found) = sets.step(*half, cell, held);
            *half = next;
            race |= found;
        }
        if race && let Some(old) = before {
            self.race(cx, at, word, &old, cell);
        }
    }

    /// Records what a kernel function reads and writes for the driver.
    fn effects(&mut self, cx: &mut Cx<'_>, out: &Out) {
        let (pc, rsp) = (out.pc, Some(out.entry_rsp));
        let (read, write) = (Kind::CALLED, Kind::CALLED.with(Kind::WRITE));
        for effect in out.effects() {
            match effect {
                Effect::Copy { dst, src, len } => {
                    if let Some(len) = length(*len, &out.args) {
                        let (dst, src) =
                            (cx.state.pointer(*dst, &out.args), cx.state.pointer(*src, &out.args));
                        self.range(cx, pc, rsp, src, len, read);
                        self.range(cx, pc, rsp, dst, len, write);
                    }
                }
                Effect::Define { ptr, len } | Effect::Read { ptr, len } if !out.is_guessed(*ptr) => {
                    if let Some(len) = length(*len, &out.args) {
                        let kind = if matches!(effect, Effect::Read { .. }) { read } else { write };
                        self.range(cx, pc, rsp, cx.state.pointer(*ptr, &out.args), len, kind);
                    }
                }
                _ => {}
            }
        }
    }

    fn clear(&mut self, from: u64, to: u64) {
        self.words.clear(from, to);
        if from < to {
            while let Some((&addr, _)) = self.published.range(from..to).next() {
                self.published.remove(&addr);
            }
        }
    }

    /// What the instruction at `pc` does with the memory that it accesses.
    fn form(&mut self, state: &State, pc: u64) -> triage::Form {
        self.forms.of(pc, || triage::form(state, pc))
    }
}

impl Checker for DrCheck {
    fn name(&self) -> &'static str {
        NAME
    }

    fn parts(&self) -> Option<Parts> {
        let full = self.mode == Mode::Full;
        Some(Parts { deferral: self.mode != Mode::Lockset, states: full, atomics: full })
    }

    #[inline]
    fn load(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, access: Access) {
        self.access(cx, insn, access);
    }

    #[inline]
    fn store(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, access: Access, _: Value) {
        self.access(cx, insn, access);
    }

    fn rep_move(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, range: RepRange) {
        let len = range.bytes();
        if !range.io {
            self.range(cx, insn.addr, insn.rsp, range.src, len, Kind::default());
            self.range(cx, insn.addr, insn.rsp, range.dst, len, Kind::WRITE);
        }
    }

    fn rep_set(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, range: RepRange, _: Value) {
        let len = range.bytes();
        if !range.io {
            self.range(cx, insn.addr, insn.rsp, range.dst, len, Kind::WRITE);
        }
    }

    fn rep_read(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, range: RepRange) {
        let len = range.bytes();
        if !range.io {
            self.range(cx, insn.addr, insn.rsp, range.src, len, Kind::default());
        }
    }

    fn call(&mut self, cx: &mut Cx<'_>, out: &Out, _: &Regs) {
        self.effects(cx, out);
    }

    fn stack_left(&mut self, _: &mut Cx<'_>, from: u64, to: u64) {
        self.clear(from, to);
    }

    fn allocated(&mut self, _: &mut Cx<'_>, _: ObjectId, object: &Object) {
        self.clear(object.base, object.slot_end);
    }

    fn freed(&mut self, _: &mut Cx<'_>, _: ObjectId, object: &Object) {
        self.clear(object.base, object.slot_end);
    }

    fn forgotten(&mut self, _: &mut Cx<'_>, from: u64, to: u64) {
        self.clear(from, to);
    }

    fn entered(&mut self, _: &mut Cx<'_>, entry: &Entry) {
        if self.live.len() >= MAX_LIVE {
            // Runs whose ends were not seen; what is known of the others is known to be final too early.
            self.live.clear();
        }
        self.live.insert(entry.serial as u32);
    }

    fn left(&mut self, cx: &mut Cx<'_>, entry: &Entry) {
        self.live.remove(&(entry.serial as u32));
        if !self.opens.is_empty() {
            self.run_over(entry.serial as u32);
        }
        if !self.pending.is_empty() {
            self.judge_again(cx, entry.serial as u32);
        }
        if !self.doubts.is_empty() {
            self.trust(cx, entry.serial as u32);
        }
    }

    fn module_comes(&mut self, cx: &mut Cx<'_>) {
        self.generation += 1;
        self.pairs.clear();
        self.groups.clear();
        self.forms.clear();
        self.uses.clear();
        self.handlings.clear();
        self.opens.clear();
        self.pending.clear();
        for (_, finding) in self.doubts.drain(..) {
            cx.reports.trust(finding);
        }
        self.open_words = WordFilter::default();
        self.hands.clear();
    }

    fn module_loaded(&mut self, cx: &mut Cx<'_>, module: u32) {
        let Some(module) = cx.state.modules.list().get(module as usize) else { return };
        for region in &module.regions {
            let end = region.start.saturating_add(region.size);
            self.clear(region.start, end);
            if region.flags & RegionFlags::READ_ONLY != 0 {
                self.fixed.push((region.start, end));
            } else if region.flags & RegionFlags::TEXT != 0 {
                // Before 6.4 one region holds everything: code first, writable data last.
                let map = &module.map;
                let inside = |range: &&Range| range.start < end && range.end > region.start;
                let written = || map.data.iter().chain(&map.gaps).filter(inside);
                match (written().map(|r| r.start).min(), written().map(|r| r.end).max()) {
                    (Some(from), Some(to)) => self.fixed.extend([(region.start, from), (to, end)]),
                    _ => self.fixed.push((region.start, end)),
                }
            }
        }
    }

    fn module_freed(&mut self, _: &mut Cx<'_>, from: u64, to: u64) {
        self.clear(from, to);
        // What the module's code accessed elsewhere, such as its per-CPU memory, comes before all that
        // follows.
        self.words.forget_code(from, to);
        self.fixed.retain(|&(a, b)| b <= from || a >= to);
    }
}
