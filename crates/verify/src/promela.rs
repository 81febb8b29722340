//! A program with its protocols as a model for Spin, whose verifier is C: expressions are calculated by the C compiler.
//!
//! All memory of the skeleton is in the model, and forgotten where no one reads it any more. What the device or the
//! kernel gives is one of some numbers: zero and the bits that the program asks for. So the model has fewer runs than the
//! program; what breaks a rule in it does so in the program, and where none does, a fault that needs another number is
//! not excluded.

use crate::ir::instruction::{Binary, Predicate};
use crate::program::expression::{Expression, Id};
use crate::program::{Action, Program};
use crate::recheck::charts::{self, Charts};
use guardrail_protocol::model::Protocol;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The most numbers that the device or the kernel gives.
const NUMBERS: usize = 8;
/// The most kinds of messages that may come: a word of Spin has a bit for each.
const KINDS: usize = 31;

/// The most parts of an expression.
const SIZE: usize = 1000;
/// What stands for the number of a broken rule where the program has ended: it has no duties then.
const ENDED: u32 = 9;

struct Model<'a> {
    program: &'a Program,
    charts: Charts<'a>,
    numbers: Vec<u64>,
    /// For each place the cells that may still be read.
    live: Vec<BTreeSet<u32>>,
    /// A bit for each message that may come.
    bits: BTreeMap<u64, usize>,
    text: String,
}

/// The model. `stock` are all protocols, in the order in which their messages are numbered.
pub fn model(program: &Program, stock: &[&Protocol], names: &str) -> Result<String, String> {
    let charts = Charts::new(stock, names)?;
    let incoming = charts.numbers.iter().filter(|(_, mail)| charts.comes(**mail)).map(|(number, _)| *number);
    let incoming: BTreeSet<u64> = incoming.collect();
    if incoming.len() > KINDS {
        return Err(format!(
            "a model for Spin has at most {KINDS} messages that may come, not {}",
            incoming.len()
        ));
    }
    let mut all = program.edges.iter().flat_map(|edge| effects(&edge.action).0);
    if all.any(|id| program.arena.size(id).nodes as usize > SIZE) {
        return Err(format!("an expression has more than {SIZE} parts, too many for a model for Spin"));
    }
    let bits = incoming.into_iter().enumerate().map(|(at, number)| (number, at)).collect();
    let mut model =
        Model { program, charts, numbers: numbers(program), live: live(program), bits, text: String::new() };
    model.head()?;
    model.places();
    model.claims();
    Ok(model.text)
}

/// Zero, and the single bits that expressions ask for, the smallest first.
fn numbers(program: &Program) -> Vec<u64> {
    let mut all = BTreeSet::from([0, 1]);
    for id in 0..program.arena.count() {
        if let Expression::Binary(Binary::And, _, _, b) = program.arena.get(id) {
            all.extend(program.arena.number(b).filter(|n| n.is_power_of_two()));
        }
    }
    all.into_iter().take(NUMBERS).collect()
}

/// The expressions that an action reads, and the cells that it sets.
fn effects(action: &Action) -> (Vec<Id>, Vec<u32>) {
    match action {
        Action::Skip => (Vec::new(), Vec::new()),
        Action::Assume(id) | Action::Emit(id) | Action::Sleep(id, _) => (vec![*id], Vec::new()),
        Action::Await(id, cell) => (vec![*id], vec![*cell]),
        Action::Assign(all) => (
            all.iter().filter_map(|(_, value)| *value).collect(),
            all.iter().map(|(cell, _)| *cell).collect(),
        ),
    }
}

fn live(program: &Program) -> Vec<BTreeSet<u32>> {
    let mut live = vec![BTreeSet::new(); program.nodes.len()];
    loop {
        let mut grew = false;
        for edge in program.edges.iter().rev() {
            let (reads, sets) = effects(&edge.action);
            let mut new: BTreeSet<u32> =
                live[edge.to as usize].iter().copied().filter(|cell| !sets.contains(cell)).collect();
            let reads = reads.into_iter().flat_map(|id| program.arena.cells(id));
            // What something else may write is read anew each time.
            new.extend(reads.filter(|cell| !program.cells[*cell as usize].lost));
            let old: &mut BTreeSet<u32> = &mut live[edge.from as usize];
            let before = old.len();
            old.extend(new);
            grew |= old.len() > before;
        }
        if !grew {
            return live;
        }
    }
}

impl Model<'_> {
    fn head(&mut self) -> Result<(), String> {
        let reads = self.program.edges.iter().flat_map(|edge| effects(&edge.action).0);
        let used: BTreeSet<u32> = reads.flat_map(|id| self.program.arena.cells(id)).collect();
        let mut text = "/* A driver's control skeleton with its protocols. */\nc_decl {\n".to_owned();
        for (at, chart) in self.charts.all.iter().enumerate() {
            let rows: Vec<(u64, bool)> = (0..chart.states.len() as u16)
                .map(|state| {
                    let comes = self.bits.iter().filter(|(number, _)| {
                        self.charts.numbers[*number].0 == at
                            && charts::step(chart, state, self.charts.numbers[*number].1).is_some()
                    });
                    let comes = comes.map(|(number, _)| 1u64 << number).sum();
                    (comes, charts::has(chart, state, |one| one.fair))
                })
                .collect();
            let list =
                |of: &dyn Fn(&(u64, bool)) -> String| rows.iter().map(of).collect::<Vec<_>>().join(", ");
            let _ = writeln!(
                text,
                "static const unsigned long comes{at}[] = {{ {} }};\nstatic const int fair{at}[] = {{ {} }};",
                list(&|(comes, _)| format!("{comes}ul")),
                list(&|(_, fair)| u32::from(*fair).to_string())
            );
        }
        text.push_str("}\n");
        for cell in used {
            let kind = match self.program.cells[cell as usize].bits {
                0..=8 => "char",
                9..=16 => "short",
                17..=32 => "int",
                _ => "long",
            };
            let _ = writeln!(text, "c_state \"unsigned {kind} c{cell}\" \"Global\" \"0\"");
        }
        for (at, chart) in self.charts.all.iter().enumerate() {
            let start = charts::enter(chart, None).ok_or_else(|| format!("{} has no start", chart.name))?;
            let _ = writeln!(text, "short m{at} = {start};");
        }
        text.push_str(
            "int waits = 0;\nbyte broken = 0;\nbit atomically = 0;\n\nactive proctype driver()\n{\n",
        );
        // What was never set is one of the numbers, too; C reads no such local variable.
        for cell in self.live[self.program.entry as usize].clone() {
            if !self.program.cells[cell as usize].local {
                self.any(cell, 1);
            }
        }
        let _ = writeln!(self.text, "\tgoto p{};", self.program.entry);
        self.text.insert_str(0, &text);
        Ok(())
    }

    /// A choice of a number for a cell.
    fn any(&mut self, cell: u32, depth: usize) {
        let tabs = "\t".repeat(depth);
        let bits = self.program.cells[cell as usize].bits;
        let all: BTreeSet<u64> = self.numbers.iter().map(|n| n & (u64::MAX >> (64 - bits))).collect();
        let choices = all.into_iter().map(|n| format!(":: c_code {{ now.c{cell} = {n}ul; }}"));
        let _ = writeln!(self.text, "{tabs}if {} fi;", choices.collect::<Vec<_>>().join(" "));
    }

    fn places(&mut self) {
        for node in 0..self.program.nodes.len() as u32 {
            let end = if node == self.program.exit { "end_" } else { "" };
            let _ = writeln!(self.text, "{end}p{node}:");
            let edges = self.program.out[node as usize].clone();
            // A cell that something else may write is read anew.
            let mut lost = BTreeSet::new();
            for edge in &edges {
                for id in effects(&self.program.edges[*edge as usize].action).0 {
                    let cells = self.program.arena.cells(id).into_iter();
                    lost.extend(cells.filter(|cell| self.program.cells[*cell as usize].lost));
                }
            }
            for cell in lost {
                self.any(cell, 1);
            }
            if node == self.program.exit {
                let done = self.charts.all.iter().enumerate().map(|(at, chart)| {
                    let finals: Vec<String> = (0..chart.states.len() as u16)
                        .filter(|state| charts::has(chart, *state, |one| one.final_))
                        .map(|state| format!("m{at} == {state}"))
                        .collect();
                    format!("({})", if finals.is_empty() { "false".to_owned() } else { finals.join(" || ") })
                });
                let done = done.collect::<Vec<_>>().join(" && ");
                let _ = writeln!(
                    self.text,
                    "\tif :: {done} -> broken = {ENDED}; goto end_stop :: else -> broken = 5; goto end_stop fi;"
                );
                continue;
            }
            if edges.is_empty() {
                let _ = writeln!(self.text, "\tbroken = {ENDED}; goto end_stop;");
                continue;
            }
            self.text.push_str("\tif\n");
            for edge in edges {
                self.edge(edge);
            }
            self.text.push_str("\tfi;\n");
        }
        self.text.push_str("end_stop:\n\tfalse;\n}\n\n");
    }

    fn edge(&mut self, index: u32) {
        let edge = self.program.edges[index as usize].clone();
        let reads = effects(&edge.action).0.into_iter().flat_map(|id| self.program.arena.cells(id));
        let before: BTreeSet<u32> = self.live[edge.from as usize].iter().copied().chain(reads).collect();
        let dead: Vec<u32> = before.difference(&self.live[edge.to as usize]).copied().collect();
        let mut forget = String::new();
        for cell in dead {
            let _ = write!(forget, " now.c{cell} = 0;");
        }
        let leave = format!("c_code {{{forget} }}; goto {};", self.label(edge.to));
        let text = |id: Id| c(self.program, id);
        match &edge.action {
            Action::Skip => {
                let _ = writeln!(self.text, "\t:: true -> {leave}");
            }
            Action::Assume(id) => {
                let line = format!("\t:: c_expr {{ {} }} -> {leave}\n", text(*id));
                self.text.push_str(&line);
            }
            Action::Sleep(id, _) => {
                let asleep = text(*id);
                let _ = writeln!(
                    self.text,
                    "\t:: true -> if :: atomically && c_expr {{ {asleep} }} -> broken = 6; goto end_stop :: else fi; {leave}"
                );
            }
            Action::Assign(sets) => self.assign(sets, edge.to, &leave),
            Action::Emit(id) => self.emit(&text(*id), &leave),
            Action::Await(id, cell) => self.wait(&text(*id), *cell, edge.to, &leave),
        }
    }

    fn label(&self, node: u32) -> String {
        format!("{}p{node}", if node == self.program.exit { "end_" } else { "" })
    }

    fn assign(&mut self, sets: &[(u32, Option<Id>)], to: u32, leave: &str) {
        let (mut first, mut second) = (String::new(), String::new());
        let mut open = Vec::new();
        for (at, (cell, value)) in
            sets.iter().enumerate().filter(|(_, (cell, _))| self.live[to as usize].contains(cell))
        {
            match value {
                Some(value) => {
                    let _ = write!(first, " unsigned long v{at} = {};", c(self.program, *value));
                    let _ = write!(second, " now.c{cell} = v{at};");
                }
                None => open.push(*cell),
            }
        }
        let _ = writeln!(self.text, "\t:: true -> c_code {{{first}{second} }};");
        for cell in open {
            self.any(cell, 2);
        }
        let _ = writeln!(self.text, "\t\t{leave}");
    }

    fn emit(&mut self, number: &str, leave: &str) {
        let _ = writeln!(self.text, "\t:: true -> if");
        let mut sent: Vec<(u64, charts::Mail)> = self
            .charts
            .numbers
            .iter()
            .filter(|(_, mail)| !self.charts.comes(**mail))
            .map(|(n, m)| (*n, *m))
            .collect();
        sent.sort_unstable();
        for (n, (at, message)) in sent {
            let chart = self.charts.all[at];
            for state in 0..chart.states.len() as u16 {
                if charts::enter(chart, Some(usize::from(state))) == Some(state)
                    && let Some(to) = charts::step(chart, state, message)
                {
                    let _ = writeln!(
                        self.text,
                        "\t\t:: m{at} == {state} && c_expr {{ ({number}) == {n} }} -> m{at} = {to}"
                    );
                }
            }
        }
        let _ = writeln!(self.text, "\t\t:: else -> broken = 1; goto end_stop\n\t\tfi; {leave}");
    }

    fn wait(&mut self, mask: &str, cell: u32, to: u32, leave: &str) {
        let sure = (0..self.charts.all.len()).map(|at| {
            format!("fair{at}[now.m{at}] && comes{at}[now.m{at}] && !(comes{at}[now.m{at}] & ~({mask}))")
        });
        let sure = sure.collect::<Vec<_>>().join(" || ");
        let bits = self.bits.iter().map(|(n, at)| format!("((({mask}) >> {n} & 1) << {at})"));
        let bits = bits.collect::<Vec<_>>().join(" | ");
        let _ = writeln!(
            self.text,
            "\t:: true -> atomically = 0; c_code {{ now.waits = {bits}; }};\n\t\tif :: c_expr {{ !({sure}) }} -> broken = 3; goto end_stop :: else fi;\n\t\tif"
        );
        let keeps = self.live[to as usize].contains(&cell);
        for (n, bit) in &self.bits {
            let (at, message) = self.charts.numbers[n];
            let chart = self.charts.all[at];
            let put = if keeps { format!("c_code {{ now.c{cell} = {n}; }};") } else { String::new() };
            let atomic = u8::from(!chart.messages[message].sleeps);
            for state in 0..chart.states.len() as u16 {
                if charts::enter(chart, Some(usize::from(state))) == Some(state)
                    && let Some(next) = charts::step(chart, state, message)
                {
                    let _ = writeln!(
                        self.text,
                        "\t\t:: m{at} == {state} && (waits >> {bit} & 1) -> m{at} = {next}; waits = 0; atomically = {atomic}; {put}"
                    );
                }
            }
        }
        let _ = writeln!(self.text, "\t\tfi; {leave}");
    }

    /// A claim for each rule, and for rules 2 and 4 for each duty.
    fn claims(&mut self) {
        for rule in [1, 3, 5, 6] {
            let _ = writeln!(self.text, "ltl rule{rule} {{ [] (broken != {rule}) }}");
        }
        for (at, chart) in self.charts.all.iter().enumerate() {
            for state in 0..chart.states.len() as u16 {
                let leaf = charts::enter(chart, Some(usize::from(state))) == Some(state);
                if leaf && charts::has(chart, state, |one| one.owed) {
                    let _ = writeln!(
                        self.text,
                        "ltl rule4_{at}_{state} {{ [] <> (broken != 0 || m{at} != {state}) }}"
                    );
                }
            }
            for (n, bit) in &self.bits {
                let (of, message) = self.charts.numbers[n];
                if of != at {
                    continue;
                }
                let enabled: Vec<String> = (0..chart.states.len() as u16)
                    .filter(|state| charts::step(chart, *state, message).is_some())
                    .map(|state| format!("m{at} == {state}"))
                    .collect();
                if !enabled.is_empty() {
                    let _ = writeln!(
                        self.text,
                        "ltl rule2_{at}_{message} {{ [] <> (broken != 0 || !({}) || (waits >> {bit} & 1)) }}",
                        enabled.join(" || ")
                    );
                }
            }
        }
    }
}

/// An expression in C, over the state of Spin's verifier.
fn c(program: &Program, id: Id) -> String {
    let arena = &program.arena;
    let of = |id: Id| c(program, id);
    let cut = |bits: u32, text: String| {
        if bits >= 64 { text } else { format!("(({text}) & {}ul)", (1u64 << bits) - 1) }
    };
    let with_sign = |bits: u32, text: &str| format!("((long)(({text}) << {0}) >> {0})", 64 - bits);
    match arena.get(id) {
        Expression::Number(_, value) => format!("{value}ul"),
        Expression::Cell(cell, _) => format!("(unsigned long)now.c{cell}"),
        Expression::Symbol(..) => "0ul".to_owned(),
        Expression::Binary(operation, bits, a, b) => {
            let (x, y) = (of(a), of(b));
            let (s, t) = (with_sign(bits, &x), with_sign(bits, &y));
            let text = match operation {
                Binary::Add => format!("{x} + {y}"),
                Binary::Sub => format!("{x} - {y}"),
                Binary::Mul => format!("{x} * {y}"),
                // What C does not define is zero.
                Binary::UDiv => format!("({y} ? {x} / {y} : 0)"),
                Binary::URem => format!("({y} ? {x} % {y} : 0)"),
                Binary::SDiv => format!("(unsigned long)({t} && {t} != -1 ? {s} / {t} : -{s})"),
                Binary::SRem => format!("(unsigned long)({t} && {t} != -1 ? {s} % {t} : 0)"),
                Binary::Shl => format!("({y} < {bits} ? {x} << {y} : 0)"),
                Binary::LShr => format!("({y} < {bits} ? {x} >> {y} : 0)"),
                Binary::AShr => format!("(unsigned long)({y} < {bits} ? {s} >> {y} : 0)"),
                Binary::And => format!("{x} & {y}"),
                Binary::Or => format!("{x} | {y}"),
                Binary::Xor => format!("{x} ^ {y}"),
            };
            cut(bits, text)
        }
        Expression::Compare(predicate, a, b) => {
            let bits = arena.bits(a);
            let (x, y) = (of(a), of(b));
            let (s, t) = (with_sign(bits, &x), with_sign(bits, &y));
            let text = match predicate {
                Predicate::Eq => format!("{x} == {y}"),
                Predicate::Ne => format!("{x} != {y}"),
                Predicate::Ult => format!("{x} < {y}"),
                Predicate::Ule => format!("{x} <= {y}"),
                Predicate::Ugt => format!("{x} > {y}"),
                Predicate::Uge => format!("{x} >= {y}"),
                Predicate::Slt => format!("{s} < {t}"),
                Predicate::Sle => format!("{s} <= {t}"),
                Predicate::Sgt => format!("{s} > {t}"),
                Predicate::Sge => format!("{s} >= {t}"),
            };
            format!("((unsigned long)({text}))")
        }
        Expression::Zero(_, a) => of(a),
        Expression::Sign(bits, a) => {
            cut(bits, format!("(unsigned long){}", with_sign(arena.bits(a), &of(a))))
        }
        Expression::Cut(bits, a) => cut(bits, of(a)),
        Expression::Select(c, a, b) => format!("({} ? {} : {})", of(c), of(a), of(b)),
        Expression::Address(object, offset) => {
            format!("{}ul", (u64::from(object) + 1) << 32 | offset & 0xffff_ffff)
        }
        Expression::Function(function) => format!("{}ul", (u64::from(function) + 1) << 48),
    }
}
