//! What follows from a race: the verdict of triage.
//!
//! A race is harmful where the value leads to memory, or where it is lost. It is likely benign where its
//! instructions show that nothing follows. All others are undecided.

use super::cell::{Cell, Kind};
use super::races::{Group, Known, pair};
use super::scene::Scene;
use super::triage::{DOUBLE_CHECKED, Form, Verdict};
use super::uses::{self, Handling, Uses};
use super::words::At;
use super::{DrCheck, text, triage};
use crate::checker::Cx;
use crate::level::Level;
use guardrail_finding::triage::UNDECIDED;
use guardrail_knowledge::effect::{Class, LockKind};
use guardrail_knowledge::role::Role;

const UNPLACED: &str = "no chart says when the kernel calls one of the sides";
const UNKNOWN: &str = "nothing is known of what follows from the value";
const SWITCHED: &str = "it takes an interrupt or a poll that the driver may have switched off";
/// A flag that only one side writes.
pub(super) const ONE_WRITER: &str = "flag or index with one writer";
const STATISTICS: &str = "statistics counter";
const ONE_COUNTER: &str = "counter with one writer";
const SHOWN: &str = "read to be shown to a user";
const FUNCTION: &str = "pointer to a function";
const SAME_VALUE: &str = "same value written";

const FOLLOWED: &str = "the other side follows the pointer without a look at whether there is one";
const CLEARED: &str = "the driver shuts down and clears a pointer that the other side may be following";
const TWO_WRITERS: &str = "two sides write a value that leads to memory";
const BOUND: &str = "the value bounds a loop over an array of the other side";
const SET_UP_ANEW: &str = "one side sets up anew what the other side is writing";
const LOST: &str = "one side sets a number that the other side counts, and one of the two is lost";
const ANNOUNCED: &str = "the value is written after it was announced to the other side";
const RCU: &str = "the value changes while readers under RCU may use it";

/// Most undecided races that are judged again.
const MAX_PENDING: usize = 256;

/// An undecided race of a run that has not ended: what it does with the value is not known yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    finding: usize,
    word: u64,
    old: Cell,
    new: Cell,
}

/// The two sides of a race between a read and a write.
struct Sides<'a> {
    write: (&'a Cell, Form),
    read: (&'a Cell, Form),
}

/// The sides of a race, where only one of them writes.
fn sides<'a>(old: &'a Cell, new: &'a Cell, forms: (Form, Form)) -> Option<Sides<'a>> {
    match (old.kind.writes(), new.kind.writes()) {
        (true, false) => Some(Sides { write: (old, forms.0), read: (new, forms.1) }),
        (false, true) => Some(Sides { write: (new, forms.1), read: (old, forms.0) }),
        _ => None,
    }
}

/// Whether a value was written right after what the reader knows of the writer, and is used. A value that is only
/// looked at leads nowhere by itself: the next element of a ring is looked at while it is filled in.
fn is_late(uses: Uses, known: u32, clock: u32) -> bool {
    known > 0 && clock == known + 1 && uses != Uses::DECIDES
}

/// Whether a kernel function made one of the accesses for the driver.
fn by_kernel(old: &Cell, new: &Cell) -> bool {
    old.kind.has(Kind::CALLED) || new.kind.has(Kind::CALLED)
}

impl DrCheck {
    /// Judges a pair of places that was not seen before. Returns `None` where no further finding can be
    /// reported.
    pub(super) fn judge(
        &mut self,
        cx: &mut Cx<'_>,
        at: At,
        word: u64,
        old: &Cell,
        new: &Cell,
    ) -> Option<Known> {
        let called = by_kernel(old, new);
        // Driver and device hand descriptors back and forth; the order of that is seen elsewhere.
        if !called && cx.state.objects.at(word).is_some_and(|(_, object)| object.class == Class::Dma) {
            return Some(Known::Silent);
        }
        let forms = (self.form(cx.state, old.pc), self.form(cx.state, new.pc));
        if self.reads_a_sequence(cx, word, old, new) {
            return Some(Known::Silent);
        }
        if Self::reads_rcu_pointer(cx, old, new, forms) {
            return Some(Known::Flag);
        }
        let verdict = self.verdict(cx, at, (old, new), forms);
        let mut group = self.group(cx, word, old, new, matches!(verdict, Verdict::Harmful(_)));
        // Functions that keep statistics keep many.
        if verdict == Verdict::Benign(STATISTICS)
            && (self.is_statistics(cx, old) || self.is_statistics(cx, new))
        {
            group.0 = text::Target::Address(0);
        }
        let known = match self.groups.get(&group).copied() {
            Some(Known::Reported(finding)) => {
                if let Some(finding) = cx.reports.get_mut(finding) {
                    finding.count += 1;
                    // What is known of a part is not known of the whole.
                    if matches!(verdict, Verdict::Undecided(_)) {
                        finding.triage = Some(verdict.text());
                    }
                }
                Known::Reported(finding)
            }
            Some(known) => known,
            None => Known::Reported(self.report(cx, word, old, new, pair(old, new), verdict)?),
        };
        if let (Verdict::Undecided(_), Known::Reported(finding)) = (verdict, known)
            && self.pending.len() < MAX_PENDING
        {
            self.pending.push(Pending { finding, word, old: *old, new: *new });
        }
        if self.groups.len() < super::races::MAX_PAIRS {
            self.groups.insert(group, known);
        }
        Some(known)
    }

    /// What follows from a race.
    fn verdict(&mut self, cx: &Cx<'_>, at: At, (old, new): (&Cell, &Cell), forms: (Form, Form)) -> Verdict {
        let called = by_kernel(old, new);
        let same = old.mask == new.mask;
        let by_code = triage::reason(forms.0, forms.1, same).filter(|_| !called);
        let certain = by_code.filter(|_| !matches!(forms, (Form::Count, _) | (_, Form::Count)));
        let certain = certain.filter(|why| *why != triage::POLLED);
        if let Some(why) = certain.or_else(|| self.nothing_follows(cx, at, (old, new), forms)) {
            return Verdict::Benign(why);
        }
        if let Some(why) = self.harm(cx, at, (old, new), forms) {
            return if self.is_placed(old) && self.is_placed(new) {
                Verdict::Harmful(why)
            } else {
                Verdict::Undecided(UNPLACED)
            };
        }
        match by_code.or_else(|| self.likely_nothing(cx, at, (old, new), forms)) {
            Some(why) => Verdict::Benign(why),
            None if self.is_switched(old, new) => Verdict::Undecided(SWITCHED),
            None => Verdict::Undecided(UNKNOWN),
        }
    }

    /// Whether it is known when the kernel may run the code of an access, so that what comes before it is, too.
    fn is_placed(&self, cell: &Cell) -> bool {
        self.scenes.get(cell.scene).is_none_or(|scene| scene.placed)
    }

    /// Why nothing follows from a race, whatever the value leads to.
    fn nothing_follows(
        &mut self,
        cx: &Cx<'_>,
        at: At,
        (old, new): (&Cell, &Cell),
        forms: (Form, Form),
    ) -> Option<&'static str> {
        if self.read_again_under_lock(cx, at, old, new) {
            return Some(DOUBLE_CHECKED);
        }
        let Sides { write: (write, by), read: (read, _) } = sides(old, new, forms)?;
        if Self::plain(old, new).is_some()
            && !self.takes_away(write, by)
            && (self.is_statistics(cx, write) || self.is_statistics(cx, read))
        {
            return Some(STATISTICS);
        }
        let called = by_kernel(old, new);
        if called {
            return None;
        }
        if self.is_constant(cx, at, write, by) {
            return Some(SAME_VALUE);
        }
        self.is_shown(cx, read).then_some(SHOWN)
    }

    /// Whether several instructions write the bytes, all of them the same value.
    fn is_constant(&mut self, cx: &Cx<'_>, at: At, write: &Cell, by: Form) -> bool {
        let Form::Store(Some(value)) = by else { return false };
        if value == 0 {
            return false;
        }
        let others: Vec<(u64, u8)> = self
            .words
            .cells(at)
            .filter(|cell| cell.kind.writes() && cell.mask & write.mask != 0)
            .map(|cell| (cell.pc, cell.mask))
            .collect();
        let same = |&(pc, mask): &(u64, u8)| {
            mask == write.mask && self.form(cx.state, pc) == Form::Store(Some(value))
        };
        others.len() > 1 && others.iter().all(same)
    }

    /// The fault that follows from a race.
    fn harm(
        &mut self,
        cx: &Cx<'_>,
        at: At,
        (old, new): (&Cell, &Cell),
        forms: (Form, Form),
    ) -> Option<&'static str> {
        let set = |form: Form| matches!(form, Form::Store(Some(_)));
        let steps = |form: Form, cell: &Cell| form == Form::Count && triage::steps(cx.state, cell.pc);
        let switched = self.is_switched(old, new);
        // A ring's index is set anew where the device is switched off.
        if (set(forms.0) && steps(forms.1, new) || steps(forms.0, old) && set(forms.1))
            && !(switched && self.leads(cx, old, new))
        {
            return Some(LOST);
        }
        let Some(Sides { write: (write, by), read: (read, _) }) = sides(old, new, forms) else {
            return self.harm_of_writes(cx, old, new).filter(|_| !switched);
        };
        let uses = self.uses(cx, read);
        let pointer = write.mask == 0xff && read.mask == 0xff && !write.kind.has(Kind::UPDATE);
        let removes = self.scenes.get(write.scene).is_some_and(|scene| scene.removes);
        if pointer && uses.has(Uses::LOOKED) && by == Form::Store(Some(0)) && removes {
            return Some(CLEARED);
        }
        let stored = matches!(by, Form::Store(_)) && !write.kind.has(Kind::UPDATE);
        if stored && Self::holds_rcu(cx, read) && !Self::holds_rcu(cx, write) {
            return Some(RCU);
        }
        if switched {
            return None;
        }
        if pointer && uses.has(Uses::FOLLOWED) {
            return Some(FOLLOWED);
        }
        let reader = self.handling(cx, read);
        if reader.uses.leads()
            && !self.empties(cx, read)
            && (reader.stores || !self.one_writer(cx, at, write))
        {
            return Some(TWO_WRITERS);
        }
        if stored && reader.uses.has(Uses::BOUND) {
            return Some(BOUND);
        }
        let known = cx.state.order.knows(read.strand, write.strand);
        // A flag that is set and cleared in place announces itself.
        (stored && is_late(uses, known, write.clock)).then_some(ANNOUNCED)
    }

    /// The fault that follows from two writes.
    fn harm_of_writes(&mut self, cx: &Cx<'_>, old: &Cell, new: &Cell) -> Option<&'static str> {
        if old.kind.has(Kind::WHOLE) != new.kind.has(Kind::WHOLE) {
            return Some(SET_UP_ANEW);
        }
        let empties = self.empties(cx, old) || self.empties(cx, new);
        (!empties && self.leads(cx, old, new)).then_some(TWO_WRITERS)
    }

    /// Whether the access is to a slot that the device's handler empties, once it has looked whether there is
    /// something in it. What fills the slot waits until it is empty.
    fn empties(&mut self, cx: &Cx<'_>, cell: &Cell) -> bool {
        let Handling { uses, stores, fills } = self.handling(cx, cell);
        let looks = uses.has(Uses::LOOKED) && !uses.has(Uses::FOLLOWED) && !uses.has(Uses::INDEX);
        looks && stores && !fills && self.scenes.get(cell.scene).is_some_and(|scene| scene.by_device)
    }

    /// Whether one of the functions follows what it loads from there to memory.
    fn leads(&mut self, cx: &Cx<'_>, old: &Cell, new: &Cell) -> bool {
        [old, new].into_iter().any(|cell| self.handling(cx, cell).uses.leads())
    }

    /// What the function of an access does with the bytes.
    fn handling(&mut self, cx: &Cx<'_>, cell: &Cell) -> Handling {
        if cell.kind.has(Kind::CALLED) {
            return Handling::default();
        }
        self.handlings.of(cell.pc, || uses::handling(cx.state, cell.pc))
    }

    /// Why likely nothing follows from a race, where no harm was found.
    fn likely_nothing(
        &mut self,
        cx: &Cx<'_>,
        at: At,
        (old, new): (&Cell, &Cell),
        forms: (Form, Form),
    ) -> Option<&'static str> {
        let Sides { write: (write, by), read: (read, of) } = sides(old, new, forms)?;
        let plain = Self::plain(old, new).is_some() && !self.takes_away(write, by);
        if plain && matches!(of, Form::Test { .. }) && self.one_writer(cx, at, write) {
            return Some(ONE_WRITER);
        }
        if plain && self.uses(cx, read).has(Uses::CALLED) {
            return Some(FUNCTION);
        }
        let called = by_kernel(old, new);
        (!called && by == Form::Count && self.one_writer(cx, at, write)).then_some(ONE_COUNTER)
    }

    /// A run is over: what it did with the values is known.
    pub(super) fn judge_again(&mut self, cx: &mut Cx<'_>, run: u32) {
        let (over, rest) = std::mem::take(&mut self.pending).into_iter().partition(|p| p.new.run == run);
        self.pending = rest;
        let over: Vec<Pending> = over;
        for Pending { finding, word, old, new } in over {
            for pc in [old.pc, new.pc] {
                self.uses.forget(pc);
                self.handlings.forget(pc);
            }
            let (at, forms) =
                (self.words.at(word), (self.form(cx.state, old.pc), self.form(cx.state, new.pc)));
            let undecided = |text: &str| text.starts_with(UNDECIDED);
            if let verdict @ Verdict::Harmful(_) = self.verdict(cx, at, (&old, &new), forms)
                && let Some(finding) = cx.reports.get_mut(finding)
                && finding.triage.as_deref().is_some_and(undecided)
            {
                finding.severity = verdict.severity();
                finding.triage = Some(verdict.text());
            }
        }
    }

    /// What is done with the value that an access read.
    fn uses(&mut self, cx: &Cx<'_>, read: &Cell) -> Uses {
        if read.kind.has(Kind::CALLED) {
            return Uses::default();
        }
        self.uses.of(read.pc, || uses::uses(cx.state, read.pc))
    }

    /// Whether the device makes one side run, and the other side may have switched that off.
    fn is_switched(&self, old: &Cell, new: &Cell) -> bool {
        let (Some(a), Some(b)) = (self.scenes.get(old.scene), self.scenes.get(new.scene)) else {
            return false;
        };
        let process = |scene: &Scene| scene.level == Level::Process && !scene.by_device;
        process(a) && b.by_device || a.by_device && process(b)
    }

    fn holds_rcu(cx: &Cx<'_>, cell: &Cell) -> bool {
        let held = cx.state.order.locks(cell.locks).iter();
        held.filter_map(|(lock, _)| cx.state.order.lock(*lock)).any(|lock| lock.kind == LockKind::Rcu)
    }

    /// Whether the access is in a function that shows a user what it reads.
    fn is_shown(&self, cx: &Cx<'_>, cell: &Cell) -> bool {
        let stack = cx.state.frames(&self.stacks.stack(cell.pc, cell.callers).near);
        let outermost = stack.iter().rev().find(|frame| frame.module.is_some());
        let gets = outermost
            .is_some_and(|frame| ["get", "show", "proc_read"].iter().any(|w| frame.function.contains(w)));
        gets && stack.iter().any(|frame| frame.module.is_none() && Role::Shows.has(&frame.function))
    }

    /// Whether a reader of RCU loads a pointer that the other side stores, which is what RCU is for. When the
    /// old object may be freed is another matter.
    fn reads_rcu_pointer(cx: &Cx<'_>, old: &Cell, new: &Cell, forms: (Form, Form)) -> bool {
        let Some((store, load)) = Self::plain(old, new) else { return false };
        let of = if load.pc == new.pc { forms.1 } else { forms.0 };
        // The reader uses the loaded pointer as an address, or tests whether there is one.
        if !matches!(of, Form::Other | Form::Test { .. }) {
            return false;
        }
        store.mask == 0xff && load.mask == 0xff && Self::holds_rcu(cx, load)
    }

    fn group(&self, cx: &Cx<'_>, word: u64, old: &Cell, new: &Cell, harmful: bool) -> Group {
        let over = if old.mask & new.mask == 0 { new.mask } else { old.mask & new.mask };
        let target = text::group_target(cx.state, word + u64::from(over.trailing_zeros()), old.pc);
        let (a, b) = (text::function(cx.state, old.pc), text::function(cx.state, new.pc));
        (target, a.min(b), a.max(b), harmful)
    }

    /// Whether the access is in a function that gathers statistics.
    fn is_statistics(&self, cx: &Cx<'_>, cell: &Cell) -> bool {
        let stack = cx.state.frames(&self.stacks.stack(cell.pc, cell.callers).near);
        let mut driver = stack.iter().filter(|frame| frame.module.is_some());
        driver.any(|frame| ["stats", "statistics"].iter().any(|word| frame.function.contains(word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_value_that_is_only_looked_at_is_not_harmful() {
        for (uses, known, clock, late) in [
            (Uses::FOLLOWED, 1, 2, true),
            (Uses::default(), 1, 2, true),
            (Uses::DECIDES, 1, 2, false),
            (Uses::INDEX, 1, 3, false),
            (Uses::INDEX, 0, 1, false),
        ] {
            assert_eq!(is_late(uses, known, clock), late, "{uses:?} {known} {clock}");
        }
    }
}
