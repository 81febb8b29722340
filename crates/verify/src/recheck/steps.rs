//! The steps from a listed state, as the program and the charts say them.

use super::blast::example;
use super::terms::Id;
use super::{Checker, View, charts};
use crate::program::Action;

/// What is after a step.
pub(super) struct Next {
    pub(super) edge: u32,
    pub(super) received: Option<u8>,
    pub(super) modes: Vec<u16>,
    pub(super) atomic: u8,
    pub(super) view: View,
    pub(super) mask: u64,
    /// The condition that the step takes, if it takes one.
    pub(super) condition: Option<Id>,
}

impl Checker<'_> {
    /// The only value of a term where some conditions hold.
    fn only(&mut self, given: &[Id], term: Id) -> Option<u64> {
        if let Some(value) = self.terms.value(term) {
            return Some(value);
        }
        let value = example(&self.terms, given, term)?;
        let number = self.terms.number(self.terms.bits(term), value);
        let equal = self.terms.equal(term, number);
        self.proves(given, equal).then_some(value)
    }

    /// All steps from a state, or which rule one breaks.
    pub(super) fn steps(
        &mut self,
        place: u32,
        modes: &[u16],
        atomic: u8,
        view: &View,
    ) -> Result<Vec<Next>, String> {
        let program = self.program;
        if place == program.exit {
            self.note_end(modes);
            let mut open = self.charts.all.iter().zip(modes);
            if let Some((chart, _)) =
                open.find(|(chart, mode)| !charts::has(chart, **mode, |state| state.final_))
                && self.script.is_none()
            {
                return Err(format!("the program ends while {} is not in a final state", chart.name));
            }
        }
        let mut all = Vec::new();
        for &edge in &program.out[place as usize] {
            let line = program.location(&program.edges[edge as usize].line);
            let mut next = Next {
                edge,
                received: None,
                modes: modes.to_vec(),
                atomic,
                view: view.clone(),
                mask: 0,
                condition: None,
            };
            match &program.edges[edge as usize].action {
                Action::Skip => {}
                Action::Assume(condition) => {
                    let condition = self.value(&mut next.view, *condition);
                    let opposite = self.terms.opposite(condition);
                    if self.proves(&view.conditions, opposite) {
                        self.note_impossible(edge, &view.conditions, condition);
                        continue;
                    }
                    next.view.conditions.push(condition);
                    next.condition = Some(condition);
                }
                Action::Assign(sets) => self.assign(&mut next.view, sets),
                Action::Sleep(bit, name) => {
                    let bit = self.value(&mut next.view, *bit);
                    let opposite = self.terms.opposite(bit);
                    if atomic != 0 {
                        self.note_impossible(edge, &view.conditions, bit);
                        if self.script.is_none() && !self.proves(&view.conditions, opposite) {
                            return Err(format!("rule 6 is broken at {line}: {name}"));
                        }
                    }
                }
                Action::Emit(number) => {
                    let number = self.value(&mut next.view, *number);
                    let number = self.only(&view.conditions, number);
                    let mail = number.and_then(|number| self.charts.numbers.get(&number).copied());
                    let to = mail.and_then(|mail| {
                        charts::step(self.charts.all[mail.0], modes[mail.0], mail.1).map(|to| (mail.0, to))
                    });
                    self.note_emit(edge, number, modes);
                    match to {
                        Some((at, to)) => next.modes[at] = to,
                        None if self.script.is_some() => continue,
                        None => return Err(format!("rule 1 is broken at {line}")),
                    }
                }
                Action::Await(mask, cell) => {
                    let mask = self.value(&mut next.view, *mask);
                    let mask = self.only(&view.conditions, mask);
                    self.note_await(edge, mask, modes);
                    match mask.filter(|mask| self.charts.ends(modes, *mask)) {
                        Some(mask) => self.receive(&next, mask, *cell, &mut all),
                        None if self.script.is_some() => {}
                        None => return Err(format!("rule 3 is broken at {line}")),
                    }
                    continue;
                }
            }
            all.push(next);
        }
        Ok(all)
    }

    fn assign(&mut self, view: &mut View, sets: &[(u32, Option<u32>)]) {
        let mut values = Vec::new();
        for (cell, value) in sets {
            if self.followed[*cell as usize] {
                let value = value.map(|value| self.value(view, value));
                values.push((*cell, value));
            }
        }
        for (cell, value) in values {
            match value {
                Some(value) => {
                    view.cells.insert(cell, value);
                }
                None => {
                    view.cells.remove(&cell);
                }
            }
        }
    }

    /// All messages that an AWAIT may receive.
    fn receive(&mut self, before: &Next, mask: u64, cell: u32, all: &mut Vec<Next>) {
        for number in (0..64u8).filter(|number| mask >> number & 1 == 1) {
            let Some(&(at, message)) = self.charts.numbers.get(&u64::from(number)) else { continue };
            let chart = self.charts.all[at];
            let Some(to) = charts::step(chart, before.modes[at], message) else { continue };
            let mut modes = before.modes.clone();
            modes[at] = to;
            let mut view = before.view.clone();
            if self.followed[cell as usize] {
                let bits = self.program.cells[cell as usize].bits;
                let number = self.terms.number(bits, u64::from(number));
                view.cells.insert(cell, number);
            }
            let atomic = if chart.messages[message].sleeps { 0 } else { number + 1 };
            all.push(Next {
                edge: before.edge,
                received: Some(number),
                modes,
                atomic,
                view,
                mask,
                condition: None,
            });
        }
    }
}
