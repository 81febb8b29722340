//! Rules 2 and 4: no run stays where a duty is open.
//!
//! A run that stays in a region goes, from some step on, around in one strongly connected part of it. A cut of the
//! certificate names edges that are not taken for ever there. Without them the part falls into smaller ones.

use super::terms::{Id, Term, ones};
use super::{Checker, Seen, charts};
use crate::certificate::{Certificate, Cut};
use crate::ir::instruction::{Binary, Predicate};
use crate::program::expression::Expression;
use crate::program::{Action, Origin};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// Names of unknown numbers that stand for the content of cells.
const CELLS: u32 = 1 << 30;
/// The longest step of a counter.
const STEP: u64 = 1 << 20;

/// What must not go on for ever.
enum Duty {
    /// Rule 2, of a message.
    Await((usize, usize)),
    /// Rule 4, of a state.
    Leave(usize, u16),
}

/// Checks rules 2 and 4.
pub(super) fn check(
    checker: &mut Checker<'_>,
    certificate: &Certificate,
    seen: &[Seen],
    assumptions: &mut BTreeSet<String>,
) -> Result<(), String> {
    for duty in duties(checker) {
        let in_region = |state: u32| {
            let modes = &checker.modes[certificate.states[state as usize].1 as usize];
            match duty {
                Duty::Leave(at, leaf) => modes[at] == leaf,
                Duty::Await((at, message)) => {
                    charts::step(checker.charts.all[at], modes[at], message).is_some()
                }
            }
        };
        let inside: Vec<bool> = (0..certificate.states.len() as u32).map(in_region).collect();
        let number = match duty {
            Duty::Await(mail) => checker.charts.number(mail),
            Duty::Leave(..) => None,
        };
        let stays = |one: &&Seen| {
            inside[one.from as usize]
                && inside[one.to as usize]
                && number.is_none_or(|number| one.mask >> number & 1 == 0)
        };
        let mut work: Vec<Vec<Seen>> = vec![seen.iter().filter(stays).copied().collect()];
        while let Some(region) = work.pop() {
            checker.late()?;
            for part in parts(&region) {
                let found = certificate.cuts.iter().find_map(|cut| holds(checker, certificate, &part, cut));
                let Some((cuts, assumption)) = found else {
                    return Err(stays_for_ever(checker, &duty, &part));
                };
                assumptions.extend(assumption);
                let rest: Vec<Seen> = part.into_iter().filter(|one| !cuts.contains(&one.edge)).collect();
                work.push(rest);
            }
        }
    }
    Ok(())
}

fn duties(checker: &Checker<'_>) -> Vec<Duty> {
    let mut all = Vec::new();
    for (at, chart) in checker.charts.all.iter().enumerate() {
        for (state, _) in chart.states.iter().enumerate() {
            let leaf =
                u16::try_from(state).ok().filter(|leaf| charts::enter(chart, Some(state)) == Some(*leaf));
            all.extend(
                leaf.filter(|leaf| charts::has(chart, *leaf, |one| one.owed))
                    .map(|leaf| Duty::Leave(at, leaf)),
            );
        }
        let messages = (0..chart.messages.len()).map(|message| (at, message));
        all.extend(messages.filter(|mail| checker.charts.comes(*mail)).map(Duty::Await));
    }
    all
}

fn stays_for_ever(checker: &Checker<'_>, duty: &Duty, part: &[Seen]) -> String {
    let line =
        part.iter().map(|one| &checker.program.edges[one.edge as usize].line).find(|line| line.number != 0);
    let line = line.map_or_else(|| "?".to_owned(), |line| checker.program.location(line));
    match duty {
        Duty::Await((at, message)) => {
            let chart = checker.charts.all[*at];
            let name = &chart.messages[*message].name;
            format!(
                "nothing in the certificate ends the runs at {line} that do not await {}.{name}",
                chart.name
            )
        }
        Duty::Leave(at, leaf) => {
            let chart = checker.charts.all[*at];
            let name = charts::name(chart, *leaf);
            format!("nothing in the certificate ends the runs at {line} in state {name} of {}", chart.name)
        }
    }
}

/// The strongly connected parts that have a step, and for each step the part of its ends.
fn classes(steps: &[Seen]) -> FxHashMap<u32, u32> {
    let mut forth: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    let mut back: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    for one in steps {
        forth.entry(one.from).or_default().push(one.to);
        back.entry(one.to).or_default().push(one.from);
    }
    // States in the order in which all that they lead to was seen; then backwards from the last.
    let mut order = Vec::new();
    let mut known: FxHashSet<u32> = FxHashSet::default();
    for root in steps.iter().map(|one| one.from) {
        if !known.insert(root) {
            continue;
        }
        let mut work = vec![(root, 0)];
        while let Some((state, next)) = work.pop() {
            let to = forth.get(&state).and_then(|all| all.get(next)).copied();
            match to {
                None => order.push(state),
                Some(to) => {
                    work.push((state, next + 1));
                    if known.insert(to) {
                        work.push((to, 0));
                    }
                }
            }
        }
    }
    let mut class: FxHashMap<u32, u32> = FxHashMap::default();
    for (index, &root) in order.iter().rev().enumerate() {
        let mut work = vec![root];
        while let Some(state) = work.pop() {
            if class.contains_key(&state) {
                continue;
            }
            class.insert(state, index as u32);
            work.extend(back.get(&state).into_iter().flatten());
        }
    }
    class
}

fn parts(steps: &[Seen]) -> Vec<Vec<Seen>> {
    let class = classes(steps);
    let mut all: FxHashMap<u32, Vec<Seen>> = FxHashMap::default();
    for one in steps.iter().filter(|one| class[&one.from] == class[&one.to]) {
        all.entry(class[&one.from]).or_default().push(*one);
    }
    all.into_values().collect()
}

/// A part, as a cut looks at it.
struct Part<'p> {
    steps: &'p [Seen],
    edges: BTreeSet<u32>,
    /// Cells that some edge of it sets.
    set: FxHashSet<u32>,
    /// The cut's cell, and its content as an unknown number.
    cell: u32,
    content: Id,
    /// Edges that set the cell, with the values that they give it.
    updates: Vec<(u32, Id)>,
    /// Edges that ask, with their conditions.
    guards: Vec<(u32, Id)>,
}

/// Edges that runs do not take for ever, with what is taken for granted for it.
type Ends = (BTreeSet<u32>, Option<String>);

/// Whether a cut holds in a part.
fn holds(checker: &mut Checker<'_>, certificate: &Certificate, steps: &[Seen], cut: &Cut) -> Option<Ends> {
    let edges: BTreeSet<u32> = steps.iter().map(|one| one.edge).collect();
    if !cut.updates.iter().chain(&cut.guards).any(|edge| edges.contains(edge)) {
        return None;
    }
    let mut set = FxHashSet::default();
    for edge in &edges {
        match &checker.program.edges[*edge as usize].action {
            Action::Assign(all) => set.extend(all.iter().map(|(cell, _)| *cell)),
            Action::Await(_, cell) => {
                set.insert(*cell);
            }
            _ => {}
        }
    }
    let bits = checker.program.cells.get(cut.cell as usize)?.bits;
    let content = checker.terms.unknown(CELLS + cut.cell, bits);
    let mut part =
        Part { steps, edges, set, cell: cut.cell, content, updates: Vec::new(), guards: Vec::new() };
    for &guard in cut.guards.iter().filter(|edge| part.edges.contains(edge)) {
        if let Action::Assume(condition) = checker.program.edges[guard as usize].action {
            let condition = over_cells(checker, condition);
            part.guards.push((guard, condition));
        }
    }
    match cut.measure.as_str() {
        "Clock" => return passes(checker, &part, Origin::Clock),
        "List" => {
            return passes(checker, &part, Origin::Drained).or_else(|| passes(checker, &part, Origin::Link));
        }
        _ => {}
    }
    if checker.program.cells[cut.cell as usize].lost {
        return None;
    }
    for &edge in &part.edges {
        match &checker.program.edges[edge as usize].action {
            Action::Assign(all) => {
                for (cell, value) in all.iter().filter(|(cell, _)| *cell == cut.cell) {
                    debug_assert_eq!(*cell, cut.cell);
                    let value = over_cells(checker, (*value)?);
                    part.updates.push((edge, value));
                }
            }
            Action::Await(_, cell) if *cell == cut.cell => return None,
            _ => {}
        }
    }
    // All edges that set the cell are ones that the certificate names.
    if part.updates.is_empty() || !part.updates.iter().all(|(edge, _)| cut.updates.contains(edge)) {
        return None;
    }
    let fine = match cut.measure.split_once('(') {
        None if cut.measure == "Counter" => counter(checker, certificate, &part),
        None if cut.measure == "Bits" => fades(checker, &part),
        Some(("Ring", size)) => ring(checker, &part, size.strip_suffix(')')?.parse().ok()?),
        _ => false,
    };
    fine.then(|| (part.updates.iter().map(|(edge, _)| *edge).collect(), None))
}

/// A program's expression with an unknown number for each cell.
fn over_cells(checker: &mut Checker<'_>, id: u32) -> Id {
    checker.term(id, &mut |checker, cell| {
        let bits = checker.program.cells[cell as usize].bits;
        checker.terms.unknown(CELLS + cell, bits)
    })
}

/// The cells in a term.
fn cells(checker: &Checker<'_>, id: Id) -> Vec<u32> {
    let all = checker.terms.unknowns(&[id]).into_iter();
    let cell = |id| match checker.terms.get(id) {
        Term::Unknown(name, _) => name.checked_sub(CELLS),
        _ => None,
    };
    all.filter_map(cell).collect()
}

/// Whether nothing in a part changes what a term is.
fn stays(checker: &Checker<'_>, part: &Part<'_>, id: Id) -> bool {
    cells(checker, id)
        .iter()
        .all(|cell| !part.set.contains(cell) && !checker.program.cells[*cell as usize].lost)
}

/// The most updates on a way between two guards; absent where there is no limit.
fn between(part: &Part<'_>, guards: &BTreeSet<u32>) -> Option<u64> {
    let updates: BTreeSet<u32> = part.updates.iter().map(|(edge, _)| *edge).collect();
    let rest: Vec<Seen> = part.steps.iter().filter(|one| !guards.contains(&one.edge)).copied().collect();
    let class = classes(&rest);
    if rest.iter().any(|one| updates.contains(&one.edge) && class[&one.from] == class[&one.to]) {
        return None;
    }
    // Classes are numbered so that steps lead to larger numbers only.
    let mut by_class: Vec<(u32, u32, bool)> = rest
        .iter()
        .map(|one| (class[&one.from], class[&one.to], updates.contains(&one.edge)))
        .filter(|(from, to, _)| from != to)
        .collect();
    if by_class.iter().any(|(from, to, _)| from > to) {
        return None;
    }
    by_class.sort_unstable_by(|a, b| b.cmp(a));
    let mut most: FxHashMap<u32, u64> = FxHashMap::default();
    for (from, to, counts) in by_class {
        let beyond = most.get(&to).copied().unwrap_or(0) + u64::from(counts);
        let own = most.entry(from).or_default();
        *own = beyond.max(*own);
    }
    Some(most.into_values().max().unwrap_or(0))
}

/// A counter that moves one way, and that guards keep from wrapping around at some number.
fn counter(checker: &mut Checker<'_>, certificate: &Certificate, part: &Part<'_>) -> bool {
    let width = checker.program.cells[part.cell as usize].bits;
    let (mut largest, mut up) = (0, None);
    let zero = checker.terms.number(width, 0);
    for &(_, value) in &part.updates {
        let at_zero = checker.terms.replace(value, &std::iter::once((part.content, zero)).collect());
        let Some(by) = checker.terms.value(at_zero) else { return false };
        let by_term = checker.terms.number(width, by);
        let sum = checker.terms.make(Term::Binary(Binary::Add, part.content, by_term));
        let same = checker.terms.equal(value, sum);
        let rises = by <= ones(width) >> 1;
        let size = if rises { by } else { by.wrapping_neg() & ones(width) };
        if size == 0 || size > STEP || up.is_some_and(|up| up != rises) || !checker.sure(&[], same) {
            return false;
        }
        largest = size.max(largest);
        up = Some(rises);
    }
    let up = up == Some(true);
    frames(checker, part, width, up).into_iter().any(|frame| {
        // Between two guards the counter moves at most so far; fewer guards make it farther.
        let mut guards: BTreeSet<u32> = part.guards.iter().map(|(edge, _)| *edge).collect();
        loop {
            let Some(far) = between(part, &guards).and_then(|most| most.checked_mul(largest)) else {
                return false;
            };
            let room = |checker: &mut Checker<'_>, edge: u32, condition: Id| {
                let room = room(checker, (part.content, frame), width, up, far);
                room.is_some_and(|room| {
                    checker.sure(&[condition], room) || known_there(checker, certificate, part, edge, room)
                })
            };
            let fine: BTreeSet<u32> = part
                .guards
                .iter()
                .filter(|(edge, condition)| guards.contains(edge) && room(checker, *edge, *condition))
                .map(|(edge, _)| *edge)
                .collect();
            if fine.is_empty() {
                return false;
            }
            if fine == guards {
                return true;
            }
            guards = fine;
        }
    })
}

/// That a counter, seen from a frame, is at least so far from where it wraps around.
fn room(checker: &mut Checker<'_>, (content, frame): (Id, Id), width: u32, up: bool, far: u64) -> Option<Id> {
    let moved = checker.terms.make(Term::Binary(Binary::Sub, content, frame));
    let limit = if up { ones(width).checked_sub(far)? } else { far };
    if limit > ones(width) {
        return None;
    }
    let limit = checker.terms.number(width, limit);
    Some(checker.terms.make(Term::Compare(if up { Predicate::Ule } else { Predicate::Uge }, moved, limit)))
}

/// Whether something holds at a guard because of what is known in each state from which it is taken.
fn known_there(
    checker: &mut Checker<'_>,
    certificate: &Certificate,
    part: &Part<'_>,
    edge: u32,
    goal: Id,
) -> bool {
    let Action::Assume(condition) = checker.program.edges[edge as usize].action else { return false };
    let from: BTreeSet<u32> = part
        .steps
        .iter()
        .filter(|one| one.edge == edge)
        .map(|one| certificate.states[one.from as usize].3)
        .collect();
    from.into_iter().all(|known| {
        let mut view = checker.views[known as usize].clone();
        let condition = checker.value(&mut view, condition);
        let mut meaning: FxHashMap<Id, Id> = FxHashMap::default();
        for cell in cells(checker, goal) {
            let bits = checker.program.cells[cell as usize].bits;
            let content = checker.terms.unknown(CELLS + cell, bits);
            let value = view.cells.get(&cell).copied().unwrap_or(content);
            meaning.insert(content, value);
        }
        let goal = checker.terms.replace(goal, &meaning);
        let mut given = view.conditions;
        given.push(condition);
        checker.sure(&given, goal)
    })
}

/// Numbers at which a counter may be taken to wrap around: zero, the least signed number, and the bounds of guards.
fn frames(checker: &mut Checker<'_>, part: &Part<'_>, width: u32, up: bool) -> Vec<Id> {
    let mut all = vec![checker.terms.number(width, 0), checker.terms.number(width, 1 << (width - 1))];
    let one = checker.terms.number(width, 1);
    for &(_, condition) in &part.guards {
        let Term::Compare(_, a, b) = checker.terms.get(condition) else { continue };
        for (mut term, bound) in [(a, b), (b, a)] {
            if !stays(checker, part, bound) || cells(checker, term) != [part.cell] {
                continue;
            }
            while let Term::Wide(_, _, inner) = checker.terms.get(term) {
                term = inner;
            }
            if checker.terms.bits(term) != width {
                continue;
            }
            let bound = if checker.terms.bits(bound) > width {
                checker.terms.make(Term::Cut(width, bound))
            } else {
                checker.terms.make(Term::Wide(false, width, bound))
            };
            // Where the term, the counter plus a number, is the bound, the counter is the bound less that number.
            let ahead = checker.terms.make(Term::Binary(Binary::Sub, term, part.content));
            let zero = checker.terms.number(width, 0);
            let ahead = checker.terms.replace(ahead, &std::iter::once((part.content, zero)).collect());
            let end = checker.terms.make(Term::Binary(Binary::Sub, bound, ahead));
            all.push(if up { checker.terms.make(Term::Binary(Binary::Add, end, one)) } else { end });
        }
    }
    all.dedup();
    all
}

/// A cell that never grows, and that gets smaller after each guard.
fn fades(checker: &mut Checker<'_>, part: &Part<'_>) -> bool {
    for &(_, value) in &part.updates {
        if cells(checker, value) != [part.cell] {
            return false;
        }
        let shrinks = checker.terms.make(Term::Compare(Predicate::Ule, value, part.content));
        if !checker.sure(&[], shrinks) {
            return false;
        }
    }
    let mut guards = BTreeSet::new();
    for &(edge, condition) in &part.guards {
        let less = part.updates.iter().all(|(_, value)| {
            let less = checker.terms.make(Term::Compare(Predicate::Ult, *value, part.content));
            checker.sure(&[condition], less)
        });
        if less {
            guards.insert(edge);
        }
    }
    between(part, &guards).is_some()
}

/// A cell that goes around a ring by one, until it meets what does not change.
fn ring(checker: &mut Checker<'_>, part: &Part<'_>, size: u64) -> bool {
    let width = checker.program.cells[part.cell as usize].bits;
    if size == 0 || size > ones(width) {
        return false;
    }
    let n = checker.terms.number(width, size);
    let mut guards = BTreeSet::new();
    for &(edge, condition) in &part.guards {
        let Term::Compare(Predicate::Ne, a, b) = checker.terms.get(condition) else { continue };
        let bound = if a == part.content { b } else { a };
        if !stays(checker, part, bound) || !below(checker, bound, size) {
            continue;
        }
        let mut ways = |at: Id| {
            let less = checker.terms.make(Term::Binary(Binary::Sub, bound, at));
            let around = checker.terms.make(Term::Binary(Binary::Add, less, n));
            let before = checker.terms.make(Term::Compare(Predicate::Ule, at, bound));
            let way = checker.terms.make(Term::Choose(before, less, around));
            let inside = checker.terms.make(Term::Compare(Predicate::Ult, at, n));
            checker.terms.make(Term::Choose(inside, way, n))
        };
        let from = ways(part.content);
        let to: Vec<Id> = part.updates.iter().map(|(_, value)| ways(*value)).collect();
        let fits = checker.terms.make(Term::Compare(Predicate::Ult, bound, n));
        let less = to.into_iter().zip(&part.updates).all(|(to, (_, value))| {
            let nearer = checker.terms.make(Term::Compare(Predicate::Ult, to, from));
            cells(checker, *value) == [part.cell] && checker.sure(&[condition, fits], nearer)
        });
        if less {
            guards.insert(edge);
        }
    }
    between(part, &guards).is_some_and(|most| most <= 1)
}

/// Whether a bound is in a ring: a number, or a cell that only gets such numbers and has got one before it is read.
fn below(checker: &mut Checker<'_>, bound: Id, size: u64) -> bool {
    if let Some(number) = checker.terms.value(bound) {
        return number < size;
    }
    let all = cells(checker, bound);
    let [cell] = all[..] else { return false };
    let width = checker.terms.bits(bound);
    if bound != checker.terms.unknown(CELLS + cell, width) {
        return false;
    }
    let program = checker.program;
    let n = checker.terms.number(width, size);
    let mut setters = BTreeSet::new();
    for (index, edge) in program.edges.iter().enumerate() {
        match &edge.action {
            Action::Assign(sets) => {
                for (_, value) in sets.iter().filter(|(at, _)| *at == cell) {
                    let Some(value) = value else { return false };
                    let value = over_cells(checker, *value);
                    let fits = checker.terms.make(Term::Compare(Predicate::Ult, value, n));
                    if !checker.sure(&[], fits) {
                        return false;
                    }
                    setters.insert(index as u32);
                }
            }
            Action::Await(_, at) if *at == cell => return false,
            _ => {}
        }
    }
    // No edge reads it on a way from the start on which nothing has set it.
    let mut seen = vec![false; program.nodes.len()];
    let mut work = vec![program.entry];
    while let Some(node) = work.pop() {
        if std::mem::replace(&mut seen[node as usize], true) {
            continue;
        }
        for &edge in &program.out[node as usize] {
            let reads = match &program.edges[edge as usize].action {
                Action::Assume(id) | Action::Emit(id) | Action::Sleep(id, _) | Action::Await(id, _) => {
                    program.arena.mentions(*id, cell)
                }
                Action::Assign(sets) => sets.iter().any(|(at, value)| {
                    *at != cell && value.is_some_and(|value| program.arena.mentions(value, cell))
                }),
                Action::Skip => false,
            };
            if reads {
                return false;
            }
            if !setters.contains(&edge) {
                work.push(program.edges[edge as usize].to);
            }
        }
    }
    true
}

/// Conditions on what time or a list changes.
fn passes(checker: &mut Checker<'_>, part: &Part<'_>, origin: Origin) -> Option<Ends> {
    let program = checker.program;
    let mut from: FxHashSet<u32> =
        part.set.iter().copied().filter(|cell| program.cells[*cell as usize].origin == origin).collect();
    loop {
        let mut new = Vec::new();
        for &cell in part.set.iter().filter(|cell| !from.contains(*cell)) {
            let follows = part.edges.iter().all(|edge| match &program.edges[*edge as usize].action {
                Action::Assign(all) => all.iter().filter(|(at, _)| *at == cell).all(|(_, value)| {
                    value.is_some_and(|value| {
                        let own = program.arena.cells(value);
                        own.iter().any(|cell| from.contains(cell))
                            && own.iter().all(|cell| from.contains(cell) || !part.set.contains(cell))
                    })
                }),
                Action::Await(_, at) => *at != cell,
                _ => true,
            });
            if follows {
                new.push(cell);
            }
        }
        if new.is_empty() {
            break;
        }
        from.extend(new);
    }
    let asks = |(edge, _): &&(u32, Id)| {
        let Action::Assume(condition) = program.edges[*edge as usize].action else { return false };
        let own = program.arena.cells(condition);
        let fits = origin == Origin::Clock
            || matches!(program.arena.get(condition), Expression::Compare(Predicate::Ne, ..));
        fits && own.iter().any(|cell| from.contains(cell))
            && own.iter().all(|cell| from.contains(cell) || !part.set.contains(cell))
    };
    let guards: BTreeSet<u32> = part.guards.iter().filter(asks).map(|(edge, _)| *edge).collect();
    let first = guards.first()?;
    let line = program.location(&program.edges[*first as usize].line);
    let what = if origin == Origin::Clock { "the time passes" } else { "the list or queue ends" };
    Some((guards, Some(format!("the loop at {line} ends, because {what}"))))
}
