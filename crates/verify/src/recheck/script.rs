//! The obligations of a certificate in SMT-LIB 2, for other solvers.

use super::charts::{self, Charts};
use super::steps::Next;
use super::terms::{Id, Term, Terms};
use super::{Checker, View};
use crate::certificate::Certificate;
use crate::ir::instruction::{Binary, Predicate};
use std::collections::BTreeSet;
use std::fmt::Write;

/// A script that grows.
pub struct Script {
    text: String,
    count: usize,
}

fn number(bits: u32, value: u64) -> String {
    format!("(_ bv{value} {bits})")
}

impl Script {
    /// The charts as functions.
    pub fn new(charts: &Charts<'_>) -> Script {
        let mut text = "(set-logic QF_BV)\n".to_owned();
        for (at, chart) in charts.all.iter().enumerate() {
            let leaves: Vec<u16> = (0..chart.states.len())
                .filter_map(|state| {
                    charts::enter(chart, Some(state)).filter(|leaf| usize::from(*leaf) == state)
                })
                .collect();
            let is = |leaf: &u16| format!("(= s {})", number(16, u64::from(*leaf)));
            let (mut allowed, mut next) = ("false".to_owned(), "s".to_owned());
            let (mut comes, mut fair, mut done) = (number(64, 0), "false".to_owned(), "false".to_owned());
            for leaf in &leaves {
                let (mut own_allowed, mut own_next, mut own_comes) =
                    ("false".to_owned(), "s".to_owned(), 0u64);
                for message in 0..chart.messages.len() {
                    let (Some(to), Some(n)) =
                        (charts::step(chart, *leaf, message), charts.number((at, message)))
                    else {
                        continue;
                    };
                    let is = format!("(= n {})", number(8, n));
                    own_allowed = format!("(or {is} {own_allowed})");
                    own_next = format!("(ite {is} {} {own_next})", number(16, u64::from(to)));
                    if charts.comes((at, message)) {
                        own_comes |= 1 << n;
                    }
                }
                allowed = format!("(ite {} {own_allowed} {allowed})", is(leaf));
                next = format!("(ite {} {own_next} {next})", is(leaf));
                comes = format!("(ite {} {} {comes})", is(leaf), number(64, own_comes));
                let flag = |of: bool| if of { "true" } else { "false" };
                let own = charts::has(chart, *leaf, |one| one.fair);
                fair = format!("(ite {} {} {fair})", is(leaf), flag(own));
                let own = charts::has(chart, *leaf, |one| one.final_);
                done = format!("(ite {} {} {done})", is(leaf), flag(own));
            }
            let state = "((s (_ BitVec 16)))";
            let both = "((s (_ BitVec 16)) (n (_ BitVec 8)))";
            let _ = writeln!(text, "(define-fun allowed{at} {both} Bool {allowed})");
            let _ = writeln!(text, "(define-fun next{at} {both} (_ BitVec 16) {next})");
            let _ = writeln!(text, "(define-fun comes{at} {state} (_ BitVec 64) {comes})");
            let _ = writeln!(text, "(define-fun fair{at} {state} Bool {fair})");
            let _ = writeln!(text, "(define-fun final{at} {state} Bool {done})");
            let _ = writeln!(
                text,
                "(define-fun sure{at} ((s (_ BitVec 16)) (m (_ BitVec 64))) Bool (and (fair{at} s) (not (= (comes{at} s) (_ bv0 64))) (= (bvand (comes{at} s) (bvnot m)) (_ bv0 64))))"
            );
        }
        Script { text, count: 0 }
    }

    /// The text, and how many obligations it has.
    pub fn text(self) -> (String, usize) {
        (self.text, self.count)
    }

    /// One obligation: where all of the first hold, all of the second do.
    fn obligation(&mut self, what: &str, terms: &Terms, given: &[Id], goals: &[Id], more: &[String]) {
        self.count += 1;
        let roots: Vec<Id> = given.iter().chain(goals).copied().collect();
        let _ = writeln!(self.text, "(push 1) ; {what}");
        self.text.push_str(&declared(terms, &roots));
        for one in given {
            let _ = writeln!(self.text, "(assert (= {} #b1))", term(terms, *one));
        }
        let goals = goals.iter().map(|one| format!("(= {} #b1)", term(terms, *one)));
        let all: Vec<String> = goals.chain(more.iter().cloned()).collect();
        let _ = writeln!(self.text, "(assert (not (and true {})))\n(check-sat)\n(pop 1)", all.join(" "));
    }
}

/// Declarations of all unknowns, and what holds of addresses.
fn declared(terms: &Terms, roots: &[Id]) -> String {
    let mut text = String::new();
    let (mut objects, mut functions, mut addresses) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for id in terms.inside(roots) {
        match terms.get(id) {
            Term::Unknown(name, bits) => {
                let _ = writeln!(text, "(declare-const u{name}_{bits} (_ BitVec {bits}))");
            }
            Term::Address(object, _) => {
                objects.insert(object);
                addresses.push((Some(object), term(terms, id)));
            }
            Term::Function(function) => {
                functions.insert(function);
                addresses.push((None, term(terms, id)));
            }
            _ => {}
        }
    }
    for object in objects {
        let _ = writeln!(text, "(declare-const object{object} (_ BitVec 64))");
    }
    for function in functions {
        let _ = writeln!(text, "(declare-const function{function} (_ BitVec 64))");
    }
    for (at, (object, address)) in addresses.iter().enumerate() {
        let _ = writeln!(text, "(assert (not (= {address} (_ bv0 64))))");
        for (other, known) in &addresses[..at] {
            if object.is_none() || object != other {
                let _ = writeln!(text, "(assert (not (= {address} {known})))");
            }
        }
    }
    text
}

fn bit(of: &str) -> String {
    format!("(ite {of} #b1 #b0)")
}

/// A term as text. Terms of a certificate are small.
fn term(terms: &Terms, id: Id) -> String {
    let mut built: std::collections::HashMap<Id, String> = std::collections::HashMap::new();
    for at in terms.inside(&[id]) {
        let of = |id: Id| built[&id].as_str();
        let text = match terms.get(at) {
            Term::Number(bits, value) => number(bits, value),
            Term::Unknown(name, bits) => format!("u{name}_{bits}"),
            Term::Binary(operation, a, b) => {
                let name = match operation {
                    Binary::Add => "bvadd",
                    Binary::Sub => "bvsub",
                    Binary::Mul => "bvmul",
                    Binary::UDiv => "bvudiv",
                    Binary::SDiv => "bvsdiv",
                    Binary::URem => "bvurem",
                    Binary::SRem => "bvsrem",
                    Binary::Shl => "bvshl",
                    Binary::LShr => "bvlshr",
                    Binary::AShr => "bvashr",
                    Binary::And => "bvand",
                    Binary::Or => "bvor",
                    Binary::Xor => "bvxor",
                };
                format!("({name} {} {})", of(a), of(b))
            }
            Term::Compare(predicate, a, b) => {
                let (a, b) = (of(a), of(b));
                bit(&match predicate {
                    Predicate::Eq => format!("(= {a} {b})"),
                    Predicate::Ne => format!("(not (= {a} {b}))"),
                    Predicate::Ult => format!("(bvult {a} {b})"),
                    Predicate::Ule => format!("(bvule {a} {b})"),
                    Predicate::Ugt => format!("(bvugt {a} {b})"),
                    Predicate::Uge => format!("(bvuge {a} {b})"),
                    Predicate::Slt => format!("(bvslt {a} {b})"),
                    Predicate::Sle => format!("(bvsle {a} {b})"),
                    Predicate::Sgt => format!("(bvsgt {a} {b})"),
                    Predicate::Sge => format!("(bvsge {a} {b})"),
                })
            }
            Term::Wide(sign, bits, a) => {
                let name = if sign { "sign_extend" } else { "zero_extend" };
                format!("((_ {name} {}) {})", bits - terms.bits(a), of(a))
            }
            Term::Cut(bits, a) => format!("((_ extract {} 0) {})", bits - 1, of(a)),
            Term::Choose(c, a, b) => format!("(ite (= {} #b1) {} {})", of(c), of(a), of(b)),
            Term::Address(object, offset) => format!("(bvadd object{object} {})", number(64, offset)),
            Term::Function(function) => format!("function{function}"),
        };
        built.insert(at, text);
    }
    built.remove(&id).unwrap_or_default()
}

impl Checker<'_> {
    fn writes(&mut self, what: &str, given: &[Id], goals: &[Id], more: &[String]) {
        if let Some(script) = &mut self.script {
            script.obligation(what, &self.terms, given, goals, more);
        }
    }

    fn at(&self, edge: u32) -> String {
        self.program.location(&self.program.edges[edge as usize].line)
    }

    /// That a step leads to a listed state.
    pub(super) fn note(&mut self, next: &Next, before: &[u16], to: Option<u32>, certificate: &Certificate) {
        if self.script.is_none() {
            return;
        }
        let what = format!("a step at {} leads to a listed state", self.at(next.edge));
        let Some(to) = to else { return self.writes(&what, &[], &[], &["false".to_owned()]) };
        let (_, modes, _, known) = certificate.states[to as usize];
        let guess = u32::from(!self.holds_by_guess(known, &next.view, 0));
        let (mut given, goals) = self.goals(known, &next.view, guess);
        given.extend(next.condition);
        given.dedup();
        let mut more = Vec::new();
        for (at, after) in self.modes[modes as usize].clone().into_iter().enumerate() {
            let received = next
                .received
                .filter(|n| self.charts.numbers.get(&u64::from(*n)).is_some_and(|mail| mail.0 == at));
            more.extend(received.map(|n| {
                let (s, n) = (number(16, u64::from(before[at])), number(8, u64::from(n)));
                format!("(allowed{at} {s} {n}) (= (next{at} {s} {n}) {})", number(16, u64::from(after)))
            }));
        }
        self.writes(&what, &given, &goals, &more);
    }

    fn holds_by_guess(&mut self, listed: u32, view: &View, guess: u32) -> bool {
        let (given, goals) = self.goals(listed, view, guess);
        goals.into_iter().all(|goal| self.proves(&given, goal))
    }

    /// That a condition cannot hold.
    pub(super) fn note_impossible(&mut self, edge: u32, given: &[Id], condition: Id) {
        if self.script.is_some() {
            let what = format!("what is asked at {} is not so", self.at(edge));
            let opposite = self.terms.opposite(condition);
            self.writes(&what, given, &[opposite], &[]);
        }
    }

    /// Rule 1.
    pub(super) fn note_emit(&mut self, edge: u32, message: Option<u64>, modes: &[u16]) {
        if self.script.is_some() {
            let what = format!("rule 1 at {}", self.at(edge));
            let mail = message.and_then(|n| self.charts.numbers.get(&n)).copied();
            let goal = match (mail, message.filter(|n| *n < 256)) {
                (Some((at, _)), Some(n)) => {
                    format!("(allowed{at} {} {})", number(16, u64::from(modes[at])), number(8, n))
                }
                _ => "false".to_owned(),
            };
            self.writes(&what, &[], &[], &[goal]);
        }
    }

    /// Rule 3.
    pub(super) fn note_await(&mut self, edge: u32, mask: Option<u64>, modes: &[u16]) {
        if self.script.is_some() {
            let what = format!("rule 3 at {}", self.at(edge));
            let goal = mask.map_or_else(
                || "false".to_owned(),
                |mask| {
                    let sure = |(at, mode): (usize, &u16)| {
                        format!("(sure{at} {} {})", number(16, u64::from(*mode)), number(64, mask))
                    };
                    let all: Vec<String> = modes.iter().enumerate().map(sure).collect();
                    format!("(or false {})", all.join(" "))
                },
            );
            self.writes(&what, &[], &[], &[goal]);
        }
    }

    /// Rule 5.
    pub(super) fn note_end(&mut self, modes: &[u16]) {
        let all: Vec<String> = modes
            .iter()
            .enumerate()
            .map(|(at, mode)| format!("(final{at} {})", number(16, u64::from(*mode))))
            .collect();
        self.writes("rule 5", &[], &[], &all);
    }

    /// [`Checker::proves`], for what a cut rests on.
    pub(super) fn sure(&mut self, given: &[Id], goal: Id) -> bool {
        let sure = self.proves(given, goal);
        if sure && self.script.is_some() {
            self.writes("what ends runs", given, &[goal], &[]);
        }
        sure
    }
}
