//! Which pairs of accesses race, and how the races are judged.

use super::cell::{Apart, Cell, Kind};
use super::filter::WordFilter;
use super::triage::{DOUBLE_CHECKED, Verdict};
use super::words::{At, Words};
use super::{DrCheck, NAME, text, triage};
use crate::checker::{Cx, Draft};
use crate::order::Order;
use guardrail_finding::triage::BENIGN;
use guardrail_finding::{Finding, OtherAccess};

/// Most pairs of places that are distinguished.
pub(super) const MAX_PAIRS: usize = 1 << 16;
/// Most open races that are remembered: their runs continue, and may still clear them.
const MAX_OPEN: usize = 256;
/// Most runs whose reads between two looks at a sequence word are remembered.
const MAX_SEQUENCES: usize = 1024;

/// The two places of a race, the smaller first.
pub(super) type Pair = (u64, u64);

/// The judgment of a pair of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The pair is reported, in the finding with this number.
    Reported(usize),
    /// The pair is no finding.
    Silent,
    /// The pair races for a flag that hands over what its readers use.
    Flag,
}

/// What distinguishes findings: the target of the race, the two functions (the smaller first), and whether it
/// is judged harmful.
pub(super) type Group = (text::Target, u64, u64, bool);

/// A race with a plain read, where the run that read may still show that it did no harm.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pair: Pair,
    finding: usize,
    word: u64,
    mask: u8,
    /// The run that read, the time of the read, and the locks that the other side wrote with.
    run: u32,
    event: u64,
    locks: crate::order::LocksetId,
    /// The other side counts up, as writers of sequence counters do.
    steps: bool,
}

/// A run that looked at a sequence word more than once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sequence {
    run: u32,
    first: u64,
    last: u64,
    locks: crate::order::LocksetId,
    /// The sequence word, and the pair of places that race for it.
    word: u64,
    pair: Pair,
}

impl DrCheck {
    /// Compares a new access with the known accesses to its word.
    pub(super) fn hybrid(&mut self, cx: &mut Cx<'_>, at: At, word: u64, cell: &mut Cell) {
        self.at_published(cx, at, word, cell);
        // Places of the cells that race with the new one, and of those that a flag may have ordered.
        let (mut races, mut handed) = (0u32, 0u32);
        let (mut foreign, mut apart) = (0, Apart::Locked);
        let (shared, atomic) = self.words.marks(at);
        let order = &cx.state.order;
        for (place, old) in self.words.cells(at).enumerate() {
            let over = old.mask & cell.mask;
            if old.strand == cell.strand || over == 0 {
                continue;
            }
            foreign |= over;
            if !conflict(old.kind, cell.kind, atomic & over == over)
                || order.common(old.locks, cell.locks).is_some()
            {
                continue;
            }
            if !ordered(order, old, cell) {
                races |= 1 << place;
            } else {
                apart = Apart::Ordered;
                handed |= u32::from(self.hand_for(old, cell).is_some()) << place;
            }
        }
        if (shared | foreign) & cell.mask == 0 {
            cell.kind = cell.kind.with(Kind::FIRST);
        }
        cell.apart = if races == 0 { apart } else { Apart::Unknown };
        let locked = if cell.kind.has(Kind::ATOMIC) { cell.mask } else { 0 };
        self.words.mark(at, foreign, locked);
        if races | handed != 0 {
            self.found(cx, (at, word), cell, races, handed);
        }
    }

    /// Judges the cells of a word, by their places, that race with a new one, or that a flag may have ordered.
    #[cold]
    fn found(&mut self, cx: &mut Cx<'_>, (at, word): (At, u64), cell: &Cell, races: u32, handed: u32) {
        let of = |words: &Words, places: u32| -> Vec<Cell> {
            let chosen = words.cells(at).enumerate().filter(|(place, _)| places >> place & 1 != 0);
            chosen.map(|(_, cell)| *cell).collect()
        };
        let (races, handed) = (of(&self.words, races), of(&self.words, handed));
        for old in &handed {
            self.was_handed(cx, old, cell);
        }
        for old in &races {
            if !self.per_cpu(cx, word, old, cell) && !self.handed_over(cx, old, cell) {
                self.race(cx, at, word, old, cell);
            }
        }
    }

    /// Whether both sides access memory of one vCPU on that vCPU, and no interrupt can hit in between.
    fn per_cpu(&self, cx: &Cx<'_>, word: u64, old: &Cell, new: &Cell) -> bool {
        let through_gs = old.kind.has(Kind::PER_CPU) && new.kind.has(Kind::PER_CPU);
        let is = through_gs
            || old.kind.has(Kind::PER_CPU)
            || new.kind.has(Kind::PER_CPU)
            || cx.state.order.per_cpu.contains(word);
        if !is {
            return false;
        }
        let (Some(a), Some(b)) = (self.scenes.get(old.scene), self.scenes.get(new.scene)) else {
            return false;
        };
        if a.cpu != b.cpu {
            return false;
        }
        // Each side is one instruction, which no interrupt divides.
        let single = |cell: &Cell| !cell.kind.writes() || cell.kind.has(Kind::UPDATE);
        if through_gs && single(old) && single(new) {
            return true;
        }
        let ((low, _), (_, high)) = if a.level <= b.level {
            ((old, a.level), (new, b.level))
        } else {
            ((new, b.level), (old, a.level))
        };
        match a.level == b.level {
            // Interrupts of one level do not nest; tasks take turns where they can be preempted.
            true => {
                a.level != crate::level::Level::Process
                    || text::keeps_away(old, a.level) && text::keeps_away(new, a.level)
            }
            false => text::keeps_away(low, high),
        }
    }

    /// A pair of accesses that nothing orders.
    pub(super) fn race(&mut self, cx: &mut Cx<'_>, at: At, word: u64, old: &Cell, new: &Cell) {
        let pair = pair(old, new);
        let finding = match self.pairs.get(&pair).copied() {
            Some(Known::Silent) => return,
            Some(Known::Flag) => NONE,
            Some(Known::Reported(finding)) => {
                if let Some(finding) = cx.reports.get_mut(finding) {
                    finding.count += 1;
                }
                finding
            }
            None if self.pairs.len() >= MAX_PAIRS => return,
            None => {
                let known = self.judge(cx, at, word, old, new);
                let Some(known) = known else { return };
                self.pairs.insert(pair, known);
                match known {
                    Known::Silent => return,
                    Known::Flag => NONE,
                    Known::Reported(finding) => finding,
                }
            }
        };
        self.publish(cx, word, old, new, finding);
        if finding != NONE {
            self.open(cx, pair, finding, word, old, new);
            self.doubt(cx, finding, old, new);
        }
    }

    /// As long as the run of the read goes on, it may clear the race: it reads again under the lock, or
    /// goes on by the flag that it has read.
    fn doubt(&mut self, cx: &mut Cx<'_>, finding: usize, old: &Cell, new: &Cell) {
        let read = if new.kind.writes() { old } else { new };
        if read.kind.writes() || !self.live.contains(&read.run) || self.doubts.len() >= MAX_DOUBTS {
            return;
        }
        cx.reports.doubt(finding);
        if !self.doubts.contains(&(read.run, finding)) {
            self.doubts.push((read.run, finding));
        }
    }

    /// A run is over: what it might have shown of its races it has not.
    pub(super) fn trust(&mut self, cx: &mut Cx<'_>, run: u32) {
        self.doubts.retain(|&(of, finding)| {
            if of == run {
                cx.reports.trust(finding);
            }
            of != run
        });
    }

    pub(super) fn report(
        &mut self,
        cx: &mut Cx<'_>,
        word: u64,
        old: &Cell,
        new: &Cell,
        pair: Pair,
        verdict: Verdict,
    ) -> Option<usize> {
        let state = cx.state;
        let stack = self.stacks.stack(new.pc, new.callers);
        let other = state.whole(&self.stacks.stack(old.pc, old.callers));
        let scenes = &self.scenes;
        let here = state.frames(&stack.near);
        let module = here.iter().find_map(|f| f.module.clone()).unwrap_or_default();
        let key = [pair.0, pair.1, self.generation];
        let finding = cx.report_as(NAME, "data-race", &stack, &key, || {
            let over = old.mask & new.mask;
            let over = if over == 0 { new.mask } else { over };
            let addr = word + u64::from(over.trailing_zeros());
            let (what, object, within) = text::target(state, addr, &module);
            let a =
                text::Side { cell: new, scene: scenes.get(new.scene), function: text::driver_frame(&here) };
            let b =
                text::Side { cell: old, scene: scenes.get(old.scene), function: text::driver_frame(&other) };
            let message = format!("data race on {what}: {} and {}", a.describe(), b.describe());
            Draft {
                severity: verdict.severity(),
                object,
                within,
                variable: state.modules.variable_at(addr).map(|_| what),
                access: Some(text::access(word, new)),
                notes: text::notes(state, &a, &b),
                triage: Some(verdict.text()),
                other: Some(OtherAccess {
                    stack: other,
                    context: scenes.describe(state, old.scene),
                    access: Some(text::access(word, old)),
                }),
                ..Draft::error(message)
            }
        })?;
        if let Some(found) = cx.reports.get_mut(finding)
            && found.event == cx.event
        {
            found.context = scenes.describe(state, new.scene);
        }
        Some(finding)
    }

    /// Whether the run that read without a lock has read again under a lock that the writer holds.
    pub(super) fn read_again_under_lock(&self, cx: &Cx<'_>, at: At, old: &Cell, new: &Cell) -> bool {
        let (read, write) = match (old.kind.writes(), new.kind.writes()) {
            (false, true) => (old, new),
            (true, false) => (new, old),
            _ => return false,
        };
        self.words.cells(at).any(|cell| {
            cell.run == read.run
                && cell.strand == read.strand
                && cell.event > read.event
                && cell.mask & read.mask & write.mask != 0
                && cx.state.order.common(cell.locks, write.locks).is_some()
        })
    }

    /// Whether the read lies between two looks of its run at another word that the writer counts up under the
    /// same lock. Then the looks are no race either.
    pub(super) fn reads_a_sequence(&mut self, cx: &mut Cx<'_>, word: u64, old: &Cell, new: &Cell) -> bool {
        let (read, write) = match (old.kind.writes(), new.kind.writes()) {
            (false, true) => (old, new),
            (true, false) => (new, old),
            _ => return false,
        };
        if write.locks.0 == 0 {
            return false;
        }
        if read.kind.has(Kind::AGAIN) && self.form(cx.state, write.pc) == triage::Form::Count {
            self.note_sequence(Sequence {
                run: read.run,
                first: read.event,
                last: read.last,
                locks: write.locks,
                word,
                pair: pair(old, new),
            });
        }
        let around = self.sequences.iter().find(|s| {
            s.run == read.run
                && s.locks == write.locks
                && s.word != word
                && s.first < read.event
                && read.last < s.last
        });
        let Some(looks) = around.map(|s| s.pair) else { return false };
        self.silence(cx, looks);
        true
    }

    /// Drops the finding of a pair of places that is no race after all.
    fn silence(&mut self, cx: &mut Cx<'_>, pair: Pair) {
        let known = self.pairs.insert(pair, Known::Silent);
        let Some(Known::Reported(finding)) = known else { return };
        if let Some(found) = cx.reports.get_mut(finding) {
            found.count = 0;
        }
        for known in self.pairs.values_mut().chain(self.groups.values_mut()) {
            if *known == Known::Reported(finding) {
                *known = Known::Silent;
            }
        }
    }

    fn note_sequence(&mut self, sequence: Sequence) {
        if self.sequences.len() >= MAX_SEQUENCES {
            self.sequences.pop_front();
        }
        self.sequences.push_back(sequence);
    }

    /// Remembers a race with a read: the rest of the run may clear it.
    fn open(&mut self, cx: &Cx<'_>, pair: Pair, finding: usize, word: u64, old: &Cell, new: &Cell) {
        let (read, write) = match (old.kind.writes(), new.kind.writes()) {
            (false, true) => (old, new),
            (true, false) => (new, old),
            _ => return,
        };
        if self.opens.iter().any(|o| o.pair == pair && o.run == read.run && o.word == word) {
            return;
        }
        if self.opens.len() >= MAX_OPEN {
            self.opens.remove(0);
        }
        let steps = self.form(cx.state, write.pc) == triage::Form::Count;
        self.open_words.add(word);
        self.opens.push(Open {
            pair,
            finding,
            word,
            mask: read.mask,
            run: read.run,
            event: read.event,
            locks: write.locks,
            steps,
        });
    }

    /// Checks whether the new access is the second look of a run at a word that it raced for.
    #[cold]
    pub(super) fn look_again(&mut self, cx: &mut Cx<'_>, word: u64, new: &Cell) {
        if new.kind.writes() {
            return;
        }
        let mut sequence = None;
        for open in &self.opens {
            if open.word != word
                || open.run != new.run
                || open.mask & new.mask == 0
                || new.event <= open.event
            {
                continue;
            }
            if cx.state.order.common(new.locks, open.locks).is_some() {
                if let Some(finding) = cx.reports.get_mut(open.finding) {
                    settle(finding, DOUBLE_CHECKED);
                }
            } else if open.steps && open.locks.0 != 0 {
                let (first, pair) = (open.event, open.pair);
                let (run, last, locks) = (new.run, new.event, open.locks);
                sequence = Some(Sequence { run, first, last, locks, word, pair });
            }
        }
        let Some(looks) = sequence else { return };
        self.note_sequence(looks);
        let inside = |open: &Open| {
            open.run == looks.run
                && open.locks == looks.locks
                && open.word != word
                && (looks.first..=looks.last).contains(&open.event)
        };
        let cleared: Vec<Pair> =
            self.opens.iter().filter(|open| inside(open)).map(|open| open.pair).collect();
        if cleared.is_empty() {
            return;
        }
        for pair in cleared.into_iter().chain([looks.pair]) {
            self.silence(cx, pair);
            self.opens.retain(|open| open.pair != pair);
        }
    }

    /// A run is over: nothing that follows clears its races.
    pub(super) fn run_over(&mut self, run: u32) {
        self.opens.retain(|open| open.run != run);
        self.open_words = WordFilter::default();
        self.opens.iter().for_each(|open| self.open_words.add(open.word));
    }
}

/// Most findings that are in doubt at a time.
const MAX_DOUBTS: usize = 256;
/// The number that stands for the absence of a finding.
const NONE: usize = usize::MAX;

pub(super) fn pair(a: &Cell, b: &Cell) -> Pair {
    (a.pc.min(b.pc), a.pc.max(b.pc))
}

/// A finding turns out to be likely benign.
pub(super) fn settle(finding: &mut Finding, why: &'static str) {
    let benign = Verdict::Benign(why);
    if finding.triage.as_deref().is_none_or(|triage| !triage.starts_with(BENIGN)) {
        finding.severity = benign.severity();
        finding.triage = Some(benign.text());
    }
}

/// Whether two accesses to the same bytes conflict, apart from order and locks. `atomic` means that other
/// accesses to the bytes are atomic.
fn conflict(a: Kind, b: Kind, atomic: bool) -> bool {
    if !a.writes() && !b.writes() {
        return false;
    }
    // `atomic_read` and `atomic_set` are plain and do not conflict. A plain update of an atomic does.
    let plain = |kind: Kind| !kind.has(Kind::ATOMIC) && kind.has(Kind::UPDATE) && kind.writes();
    match (a.has(Kind::ATOMIC), b.has(Kind::ATOMIC)) {
        (true, true) => false,
        (true, false) => plain(b),
        (false, true) => plain(a),
        (false, false) => !atomic || plain(a) || plain(b),
    }
}

/// Whether order keeps the accesses apart, for other reasons than locks that they have in common.
fn ordered(order: &Order, old: &Cell, new: &Cell) -> bool {
    order.ordered((old.strand, old.clock), new.strand)
        || old.kind.has(Kind::FIRST) && order.ordered_fully((old.strand, old.clock), new.strand)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomics_conflict_with_plain_updates_alone() {
        let (read, write) = (Kind::default(), Kind::WRITE);
        let update = write.with(Kind::UPDATE);
        let atomic = update.with(Kind::ATOMIC);
        for (a, b, elsewhere, expected) in [
            (read, read, false, false),
            (read, write, false, true),
            (write, write, false, true),
            (atomic, atomic, true, false),
            (atomic, read, true, false),
            (atomic, write, true, false),
            (atomic, update, true, true),
            (write, read, true, false),
            (update, read, true, true),
        ] {
            assert_eq!(conflict(a, b, elsewhere), expected, "{a:?} {b:?}");
            assert_eq!(conflict(b, a, elsewhere), expected, "{b:?} {a:?}");
        }
    }
}
