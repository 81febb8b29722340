//! Text for reports of races.

use super::cell::{Cell, Kind};
use super::scene::Scene;
use crate::checkers::{members, names};
use crate::level::Level;
use crate::machine::{Object, State};
use crate::order::LocksetId;
use crate::stacks::StackId;
use guardrail_finding::{AccessInfo, Frame};

/// The kind of an access as text: `read`, `write` or `update`.
pub(super) fn verb(kind: Kind) -> &'static str {
    match (kind.has(Kind::UPDATE), kind.writes()) {
        (true, true) => "update",
        (false, true) => "write",
        _ => "read",
    }
}

/// What one side accessed: the part of the word that its cell covers.
pub(super) fn access(word: u64, cell: &Cell) -> AccessInfo {
    AccessInfo {
        what: verb(cell.kind).to_owned(),
        address: format!("{:#x}", word + u64::from(cell.mask.trailing_zeros())),
        size: u64::from(cell.mask.count_ones()),
    }
}

/// An offset in an object, and the member there.
type Within = Option<(i64, Option<String>)>;

/// Names the target of a race, and returns the object, the offset in it and the member there.
pub(super) fn target(state: &State, addr: u64, module: &str) -> (String, Option<Object>, Within) {
    if let Some((_, object)) = state.objects.at(addr)
        && addr >= object.start
    {
        let offset = addr - object.start;
        let typed = members::field(state, object, module, offset);
        let name = typed.clone().unwrap_or_else(|| {
            format!("offset {offset} of a {}-byte {} object", object.size, object.class.name())
        });
        return (name, Some(object.clone()), Some((offset as i64, typed)));
    }
    (names::memory(state, addr), None, None)
}

/// The target of a race, without the element of an array.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    /// A variable of the module, and an offset in it.
    Variable(u64, u64),
    /// A member of objects of a type, by name.
    Member(String),
    /// Objects by the near part of their allocation stack and size in bytes, with an offset in small ones.
    Object(StackId, u64, Option<u64>),
    /// Any other address.
    Address(u64),
}

/// The target that groups findings, of an address and code at `pc`.
pub(super) fn group_target(state: &State, addr: u64, pc: u64) -> Target {
    if let Some((_, range, _)) = state.modules.variable_at(addr) {
        return Target::Variable(range.start, addr - range.start);
    }
    let Some((_, object)) = state.objects.at(addr).filter(|(_, object)| addr >= object.start) else {
        return Target::Address(addr);
    };
    let module = state.modules.at(pc).map_or("", |(_, module)| module.name.as_str());
    let offset = addr - object.start;
    match members::field(state, object, module, offset) {
        Some(name) => Target::Member(guardrail_finding::without_indices(&name)),
        None => Target::Object(
            state.stacks.near(object.allocated),
            object.size,
            (object.size <= guardrail_finding::SMALL_OBJECT).then_some(offset),
        ),
    }
}

/// The start of the function that holds an instruction of the driver.
pub(super) fn function(state: &State, pc: u64) -> u64 {
    let module = state.modules.at(pc).map(|(_, module)| module);
    module
        .and_then(|module| crate::machine::find(&module.map.functions, pc))
        .map_or(pc, |function| function.start)
}

/// The innermost line of the driver in a stack, as text.
pub(super) fn driver_frame(stack: &[Frame]) -> String {
    let frame = stack.iter().find(|f| f.in_driver()).or(stack.first());
    frame.map_or_else(|| "?".to_owned(), |f| f.function.clone())
}

/// One side of a race.
pub(super) struct Side<'a> {
    pub cell: &'a Cell,
    pub scene: Option<&'a Scene>,
    pub function: String,
}

impl Side<'_> {
    fn level(&self) -> Level {
        self.scene.map_or(Level::Process, |s| s.level)
    }

    pub fn describe(&self) -> String {
        let n = self.cell.mask.count_ones();
        let plural = if n == 1 { "" } else { "s" };
        format!("{} of {n} byte{plural} in {} ({})", verb(self.cell.kind), self.function, self.level().name())
    }
}

/// Whether what is off at `low` keeps a context at `level` away from its vCPU.
pub(super) fn keeps_away(low: &Cell, level: Level) -> bool {
    match level {
        Level::Process => low.off & 0b111 != 0,
        Level::Softirq => low.off & 0b011 != 0,
        Level::Hardirq => low.off & 0b001 != 0,
        Level::Nmi => false,
    }
}

fn holds(state: &State, set: LocksetId) -> String {
    let locks = state.order.locks(set);
    let names: Vec<String> = locks
        .iter()
        .filter_map(|(lock, _)| state.order.lock(*lock))
        .map(|info| match info.name {
            Some(name) => name.to_owned(),
            None => format!("{} {}", names::kind(info.kind), names::lock(state, info)),
        })
        .collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

/// Why nothing orders the two: `a` is the access that the finding is about, `b` the earlier one.
pub(super) fn notes(state: &State, a: &Side<'_>, b: &Side<'_>) -> Vec<String> {
    let side = |side: &Side<'_>| format!("{} ({})", side.function, side.level().name());
    let mut notes = vec![format!(
        "no lock is common: {} holds {}, {} holds {}",
        side(a),
        holds(state, a.cell.locks),
        side(b),
        holds(state, b.cell.locks)
    )];
    let cpus = (a.scene.map(|s| s.cpu), b.scene.map(|s| s.cpu));
    let (low, high) = if a.level() <= b.level() { (a, b) } else { (b, a) };
    if a.level() == b.level() {
        notes.push(match cpus {
            (Some(x), Some(y)) if x != y => format!("they ran on different CPUs ({x} and {y})"),
            _ => "they are different threads of execution and can run at the same time".to_owned(),
        });
    } else if keeps_away(low.cell, high.level()) {
        notes.push(format!(
            "{} can run on another CPU while {} keeps it away from its own",
            side(high),
            side(low)
        ));
    } else {
        let what = if high.level() >= Level::Hardirq { "interrupts" } else { "softirqs" };
        notes.push(format!(
            "{} can interrupt {} on the same CPU: {what} are on there",
            side(high),
            side(low)
        ));
    }
    // The object's state allows the kernel to call the callback of this side.
    for (it, other) in [(a, b), (b, a)] {
        let Some((chart, callback, instance)) = it.scene.and_then(|s| s.callback) else { continue };
        let Some(described) = state.order.charts().get(chart) else { continue };
        let (Some(called), Some(at)) =
            (described.callbacks.get(callback), state.order.state(chart, instance))
        else {
            continue;
        };
        if at < 64 && called.states >> at & 1 != 0 {
            let name = described.states.get(at).map_or("?", |s| s.name.as_str());
            notes.push(format!(
                "the {} is {name}, which still allows its {} ({}) while {} runs",
                described.name, called.name, it.function, other.function
            ));
        }
    }
    notes
}
