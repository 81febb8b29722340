//! From a certificate's and a program's expressions to terms.

use super::terms::{Id, Term};
use super::{Checker, FRESH, View, charts};
use crate::certificate::{Certificate, Facts, Node};
use crate::ir::instruction::{Binary, Predicate};
use crate::program::expression::Expression;
use rustc_hash::FxHashMap;

pub(super) const BINARIES: [Binary; 13] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::UDiv,
    Binary::SDiv,
    Binary::URem,
    Binary::SRem,
    Binary::Shl,
    Binary::LShr,
    Binary::AShr,
    Binary::And,
    Binary::Or,
    Binary::Xor,
];
const PREDICATES: [Predicate; 6] =
    [Predicate::Eq, Predicate::Ne, Predicate::Ult, Predicate::Ule, Predicate::Slt, Predicate::Sle];

/// The most nodes of an expression; those of the search are smaller.
const SIZE: u32 = 4096;

/// How many nodes an expression has, written out.
fn size(node: &Node, sizes: &[u32]) -> u32 {
    let of = |index: &u32| sizes.get(*index as usize).copied().unwrap_or(0);
    1 + match node {
        Node::Binary(_, a, b) | Node::Compare(_, a, b) => of(a) + of(b),
        Node::Zero(_, a) | Node::Sign(_, a) | Node::Cut(_, a) => of(a),
        Node::Select(c, a, b) => of(c) + of(a) + of(b),
        _ => 0,
    }
}

fn width(bits: u32) -> Option<u32> {
    (1..=64).contains(&bits).then_some(bits)
}

impl Checker<'_> {
    /// Reads a certificate; absent if something in it does not fit.
    pub(super) fn read(&mut self, certificate: &Certificate) -> Option<()> {
        for cell in &certificate.followed {
            let lost = self.program.cells.get(*cell as usize)?.lost;
            self.followed[*cell as usize] = !lost;
        }
        let mut ids: Vec<Id> = Vec::new();
        let mut sizes: Vec<u32> = Vec::new();
        for node in &certificate.expressions {
            let id = self.node(node, &ids)?;
            ids.push(id);
            sizes.push(Some(size(node, &sizes)).filter(|size| *size <= SIZE)?);
        }
        for Facts { cells, conditions } in &certificate.known {
            let mut view = View::default();
            for (cell, value) in cells {
                let value = *ids.get(*value as usize)?;
                // Nothing can be known of a cell that others may write, or whose writes are not followed.
                let followed = *self.followed.get(*cell as usize)?;
                if !followed || self.program.cells[*cell as usize].bits != self.terms.bits(value) {
                    return None;
                }
                view.cells.insert(*cell, value);
            }
            for condition in conditions {
                let condition = *ids.get(*condition as usize)?;
                if self.terms.bits(condition) != 1 {
                    return None;
                }
                view.conditions.push(condition);
            }
            self.views.push(view);
        }
        for modes in &certificate.modes {
            if modes.len() != self.charts.all.len() {
                return None;
            }
            let leaves = self.charts.all.iter().zip(modes).map(|(chart, name)| charts::named(chart, name));
            self.modes.push(leaves.collect::<Option<_>>()?);
        }
        let fits = |(place, modes, _, known): &(u32, u32, u8, u32)| {
            (*place as usize) < self.program.nodes.len()
                && (*modes as usize) < self.modes.len()
                && (*known as usize) < self.views.len()
        };
        certificate.states.iter().all(fits).then_some(())
    }

    fn node(&mut self, node: &Node, ids: &[Id]) -> Option<Id> {
        let at = |index: &u32| ids.get(*index as usize).copied();
        let term = match node {
            Node::Number(bits, value) => Term::Number(width(*bits)?, *value),
            Node::Symbol(name, bits) => {
                Term::Unknown(Some(*name).filter(|name| *name < FRESH)?, width(*bits)?)
            }
            Node::Binary(name, a, b) => {
                let (a, b) = (at(a)?, at(b)?);
                let operation = BINARIES.iter().find(|one| format!("{one:?}") == *name)?;
                (self.terms.bits(a) == self.terms.bits(b)).then_some(Term::Binary(*operation, a, b))?
            }
            Node::Compare(name, a, b) => {
                let (a, b) = (at(a)?, at(b)?);
                let predicate = PREDICATES.iter().find(|one| format!("{one:?}") == *name)?;
                (self.terms.bits(a) == self.terms.bits(b)).then_some(Term::Compare(*predicate, a, b))?
            }
            Node::Zero(bits, a) | Node::Sign(bits, a) => {
                let a = at(a)?;
                let sign = matches!(node, Node::Sign(..));
                (self.terms.bits(a) <= width(*bits)?).then_some(Term::Wide(sign, *bits, a))?
            }
            Node::Cut(bits, a) => {
                let a = at(a)?;
                (self.terms.bits(a) >= width(*bits)?).then_some(Term::Cut(*bits, a))?
            }
            Node::Select(c, a, b) => {
                let (c, a, b) = (at(c)?, at(a)?, at(b)?);
                let fits = self.terms.bits(c) == 1 && self.terms.bits(a) == self.terms.bits(b);
                fits.then_some(Term::Choose(c, a, b))?
            }
            Node::Address(object, offset) => Term::Address(*object, *offset),
            Node::Function(function) => Term::Function(*function),
        };
        Some(self.terms.make(term))
    }

    /// A program's expression, with a value for each cell.
    pub(super) fn term(&mut self, id: u32, cell: &mut dyn FnMut(&mut Self, u32) -> Id) -> Id {
        let arena = &self.program.arena;
        let mut all = vec![id];
        let mut seen: rustc_hash::FxHashSet<u32> = all.iter().copied().collect();
        let mut at = 0;
        while at < all.len() {
            all.extend(arena.operands(all[at]).filter(|operand| seen.insert(*operand)));
            at += 1;
        }
        // Operands have smaller indices.
        all.sort_unstable();
        let mut built: FxHashMap<u32, Id> = FxHashMap::default();
        for one in all {
            let of = |id: u32| built[&id];
            let term = match arena.get(one) {
                Expression::Number(bits, value) => Term::Number(bits, value),
                Expression::Cell(index, _) => {
                    let value = cell(self, index);
                    built.insert(one, value);
                    continue;
                }
                Expression::Symbol(_, bits) => {
                    let value = self.unknown(bits);
                    built.insert(one, value);
                    continue;
                }
                Expression::Binary(operation, _, a, b) => Term::Binary(operation, of(a), of(b)),
                Expression::Compare(predicate, a, b) => Term::Compare(predicate, of(a), of(b)),
                Expression::Zero(bits, a) => Term::Wide(false, bits, of(a)),
                Expression::Sign(bits, a) => Term::Wide(true, bits, of(a)),
                Expression::Cut(bits, a) => Term::Cut(bits, of(a)),
                Expression::Select(c, a, b) => Term::Choose(of(c), of(a), of(b)),
                Expression::Address(object, offset) => Term::Address(object, offset),
                Expression::Function(function) => Term::Function(function),
            };
            let id = self.terms.make(term);
            built.insert(one, id);
        }
        built[&id]
    }

    /// The value of a program's expression in a view. A followed cell that is not known gets a number that stays.
    pub(super) fn value(&mut self, view: &mut View, id: u32) -> Id {
        let mut own: FxHashMap<u32, Id> = FxHashMap::default();
        self.term(id, &mut |checker, cell| {
            if let Some(known) = view.cells.get(&cell).or_else(|| own.get(&cell)) {
                return *known;
            }
            let value = checker.unknown(checker.program.cells[cell as usize].bits);
            if checker.followed[cell as usize] {
                view.cells.insert(cell, value);
            } else {
                own.insert(cell, value);
            }
            value
        })
    }
}
