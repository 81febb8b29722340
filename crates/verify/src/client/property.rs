//! What is verified of an ordinary driver: one small protocol at a time.

use super::knowledge::{Client, Identity, Pair};
use super::relevant::Calls;
use crate::code::flow::{Addresses, Flow, Spot};
use crate::ir::Module;
use crate::ir::debug::Line;
use crate::ir::instruction::{Call, Function, Instruction, Operation, Value};
use crate::knowledge::plain;
use crate::program::plan::Success;
use crate::program::targets;
use guardrail_protocol::{Machine, parse};
use rustc_hash::{FxHashMap, FxHashSet};

/// A call that stands for a message: the message's name, for which results, the argument that must not be zero.
#[derive(Clone, Debug)]
pub struct Made {
    /// The message.
    pub message: String,
    /// For which results.
    pub success: Success,
    /// The argument.
    pub argument: Option<usize>,
}

/// A small protocol.
#[derive(Clone, Debug)]
pub struct Property {
    /// Its name.
    pub name: String,
    /// Names of the functions that acquire.
    pub acquire: String,
    /// Names of the functions that release.
    pub release: String,
    /// Where the thing is acquired, if only there.
    pub line: Option<(usize, Line)>,
    /// The protocol.
    pub machine: Machine,
    /// Calls by their function's name.
    pub by_name: FxHashMap<String, Vec<Made>>,
    /// Calls by their place.
    pub by_site: FxHashMap<usize, Vec<Made>>,
    /// Which object it is about, for people; empty if there is one.
    pub object: String,
    /// In which states the call is allowed, for a rule.
    pub rule: bool,
}

/// The protocol of a pair.
fn machine(pair: &Pair, managed: bool) -> Machine {
    let last = if managed { " final" } else { "" };
    let again = match (pair.once, pair.again) {
        (true, _) => "",
        (_, true) => "\n  out acquire: held -> same",
        _ => "\n  out acquire: held -> many",
    };
    let lenient = match (pair.strict, pair.again) {
        (true, _) => "",
        (_, true) => "\n  out release: none|released -> same",
        _ => "\n  out release: none -> same",
    };
    let text = format!(
        "protocol {}\n  state none initial final\n  state held{last}\n  state many{last}\n  state some final\n  \
         state released final\n  out acquire: none|released -> held{again}\n  out acquire: many|some -> many\n  \
         out release: held -> released{lenient}\n  out release: many|some -> some\n  \
         out release_perhaps: held|released -> released\n  out release_perhaps: many|some -> some\n  \
         out release_perhaps: none -> same\n  in nothing: none|many|some|released -> same   unseen\n",
        pair.name
    );
    let machines = parse::machines("client", &text);
    machines.unwrap_or_else(|error| panic!("{error}")).remove(0)
}

/// All properties of a driver.
pub fn all(modules: &[Module], client: &Client, calls: &Calls<'_>) -> Vec<Property> {
    let mut found = Vec::new();
    let mut flow = None;
    let called: FxHashSet<&str> = calls.all.iter().filter_map(|(_, call, ..)| name_of(call)).collect();
    for pair in &client.pairs {
        let managed = pair.managed.as_ref().is_some_and(|name| called.contains(name.as_str()));
        if !pair.acquire.iter().chain(&pair.release).any(|(name, _)| called.contains(name.as_str())) {
            continue;
        }
        match pair.identity {
            Identity::Device => found.push(device(pair, managed)),
            Identity::Value => {
                let flow = flow.get_or_insert_with(|| Flow::new(modules));
                values(modules, pair, managed, calls, flow, &mut found);
            }
            Identity::Object => objects(modules, pair, managed, calls, &mut found),
        }
    }
    for rule in &client.rules {
        let made = Made { message: rule.message.clone(), success: Success::Always, argument: None };
        let by_name = rule.functions.iter().map(|name| (name.clone(), vec![made.clone()])).collect();
        let name = rule.functions.first().cloned().unwrap_or_default();
        if rule.functions.iter().any(|name| called.contains(name.as_str())) {
            found.push(Property {
                name: rule.message.clone(),
                acquire: name.clone(),
                release: name,
                line: None,
                machine: rule.machine.clone(),
                by_name,
                by_site: FxHashMap::default(),
                object: String::new(),
                rule: true,
            });
        }
    }
    found
}

/// One property for each object that a pair is about, as far as an address says in the function of the call.
fn objects(modules: &[Module], pair: &Pair, managed: bool, calls: &Calls<'_>, found: &mut Vec<Property>) {
    let mut sites: Vec<(usize, &str, Option<Spot>, &str)> = Vec::new();
    let mut repeated = false;
    for ((home, function), call, ..) in &calls.all {
        let Some(name) = name_of(call) else { continue };
        // The kernel's own wrappers of these functions are not looked into.
        if pair.acquire.iter().chain(&pair.release).any(|(name, _)| *name == **function) {
            continue;
        }
        for (all, message) in [(&pair.acquire, "acquire"), (&pair.release, "release")] {
            let Some((_, Some(at))) = all.iter().find(|(one, _)| one == name) else { continue };
            let addresses = Addresses::new(&modules[*home], *home, function);
            let spot = call.arguments.get(*at).and_then(|argument| addresses.of(argument));
            let spot = spot.filter(|spot| !matches!(spot, Spot::Local(..)));
            repeated |= in_loop(&modules[*home].functions[&**function], call);
            sites.push((std::ptr::from_ref(*call) as usize, message, spot, name));
        }
    }
    let known: FxHashSet<&Spot> = sites.iter().filter_map(|(_, _, spot, _)| spot.as_ref()).collect();
    let mut known: Vec<&Spot> = known.into_iter().collect();
    known.sort_by_key(|spot| format!("{spot:?}"));
    let mut pair = pair.clone();
    // Several objects of one kind: that one is acquired after another says nothing.
    pair.once &= !repeated;
    pair.strict &= !repeated;
    for one in &known {
        let mut property = new(&pair, managed);
        for (site, message, spot, name) in &sites {
            // An address that is not known is this object if there is no other.
            let message = match spot {
                Some(spot) if spot != *one => continue,
                Some(_) => *message,
                None if known.len() == 1 => *message,
                None if *message == "release" => "release_perhaps",
                None => continue,
            };
            if message == "acquire" {
                property.acquire = (*name).to_owned();
            }
            let made = Made { message: message.to_owned(), success: Success::Always, argument: None };
            property.by_site.entry(*site).or_default().push(made);
        }
        if let Spot::Field(structure, _) = one {
            property.object = format!(" for a member of struct {structure}");
        }
        found.push(property);
    }
}

/// Whether a call is in a loop of its function.
fn in_loop(function: &Function, call: &Call) -> bool {
    let holds = |instruction: &Instruction| matches!(&instruction.operation, Operation::Call(one) if std::ptr::eq(one, call));
    let Some(home) = function.blocks.iter().position(|block| block.instructions.iter().any(holds)) else {
        return false;
    };
    let mut seen = vec![false; function.blocks.len()];
    let mut work = vec![home];
    while let Some(at) = work.pop() {
        for to in targets(&function.blocks[at].end) {
            let to = to as usize;
            if to == home {
                return true;
            }
            if !std::mem::replace(&mut seen[to], true) {
                work.push(to);
            }
        }
    }
    false
}

fn name_of(call: &Call) -> Option<&str> {
    match &call.callee {
        Value::Global(name) => Some(name),
        _ => None,
    }
}

fn names(all: &[(String, Option<usize>)]) -> String {
    all.first().map(|(name, _)| name.clone()).unwrap_or_default()
}

fn new(pair: &Pair, managed: bool) -> Property {
    Property {
        name: pair.name.clone(),
        acquire: names(&pair.acquire),
        release: names(&pair.release),
        line: None,
        machine: machine(pair, managed),
        by_name: FxHashMap::default(),
        by_site: FxHashMap::default(),
        object: String::new(),
        rule: false,
    }
}

fn device(pair: &Pair, managed: bool) -> Property {
    let mut property = new(pair, managed);
    for (name, _) in &pair.acquire {
        let made = Made { message: "acquire".to_owned(), success: pair.success, argument: None };
        property.by_name.entry(name.clone()).or_default().push(made);
    }
    for (name, _) in &pair.release {
        let made = Made { message: "release".to_owned(), success: Success::Always, argument: None };
        property.by_name.entry(name.clone()).or_default().push(made);
    }
    property
}

/// One property for each call that acquires a value.
fn values(
    modules: &[Module],
    pair: &Pair,
    managed: bool,
    calls: &Calls<'_>,
    flow: &Flow,
    found: &mut Vec<Property>,
) {
    let sites: Vec<_> = calls
        .all
        .iter()
        .filter(|(function, call, ..)| {
            name_of(call).is_some_and(|name| {
                let name = plain(name);
                pair.acquire.iter().any(|(one, _)| *one == name)
            })
                // Not within a header's own wrapper of one of the functions.
                && !pair.acquire.iter().any(|(name, _)| *name == *function.1)
        })
        .collect();
    let mut releases = Vec::new();
    for ((home, function), call, ..) in &calls.all {
        let Some(name) = name_of(call) else { continue };
        let Some((_, Some(at))) = pair.release.iter().find(|(release, _)| release == name) else { continue };
        if pair.release.iter().any(|(name, _)| *name == **function) {
            continue;
        }
        let addresses = Addresses::new(&modules[*home], *home, function);
        let spot = call.arguments.get(*at).and_then(|argument| addresses.value(argument));
        releases.push((std::ptr::from_ref(*call) as usize, *at, spot));
    }
    let reaches: Vec<FxHashSet<Spot>> = sites
        .iter()
        .map(|((home, function), _, result, _)| match result {
            Some(result) => flow.reach(Spot::Register(*home, function.clone(), *result)),
            None => FxHashSet::default(),
        })
        .collect();
    for (index, ((home, _), call, _, line)) in sites.iter().enumerate() {
        let mut property = new(pair, managed);
        property.acquire = name_of(call).unwrap_or_default().to_owned();
        let line = modules[*home].debug.line(*line);
        property.line = Some((*home, line));
        let made = Made { message: "acquire".to_owned(), success: pair.success, argument: None };
        property.by_site.insert(std::ptr::from_ref(*call) as usize, vec![made]);
        for (site, at, spot) in &releases {
            let Some(spot) = spot else { continue };
            if !reaches[index].contains(spot) {
                continue;
            }
            let only =
                reaches.iter().enumerate().all(|(other, reach)| other == index || !reach.contains(spot));
            let message = if only { "release" } else { "release_perhaps" };
            let made =
                Made { message: message.to_owned(), success: Success::Always, argument: only.then_some(*at) };
            property.by_site.entry(*site).or_default().push(made);
        }
        found.push(property);
    }
}
