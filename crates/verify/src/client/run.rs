//! Verifies an ordinary driver, one property after the other.

use super::findings::finding;
use super::knowledge::{Client, Name};
use super::ops::{self, Callbacks};
use super::property::{self, Property};
use super::relevant::Calls;
use crate::code::Function;
use crate::code::effects::Writes;
use crate::code::flow::SETS_DATA;
use crate::engine::refine::{Footprint, Judge, Judged};
use crate::engine::replay::Claim;
use crate::engine::search::{Budget, Graph, Stopped, Violation, Wrong};
use crate::front::FrontError;
use crate::ir::Module;
use crate::ir::instruction::{Call, Value};
use crate::ir::types::Type;
use crate::knowledge::Knowledge;
use crate::messages::Protocols;
use crate::program::plan::{Callback, ClientPlan, Event, Success};
use crate::program::{Program, Source, translate};
use crate::sequence;
use crate::verdict::{Broken, Fault, seeds};
use crate::verified::Verified;
use guardrail_protocol::Machine;
use guardrail_protocol::model::{Link, Outcome};
use rustc_hash::{FxHashMap, FxHashSet};
use std::time::{Duration, Instant};

/// The most states of one search.
const STATES: usize = 1_000_000;
/// How many rounds of refinement there may be.
const ROUNDS: u32 = 60;
/// How many violations are followed in one round.
const AT_ONCE: usize = 20;

/// Whether the files are an ordinary driver that the client can call.
pub fn is_ordinary(modules: &[Module]) -> bool {
    let client = Client::stock();
    ops::callbacks(modules, &client).keys().any(|(_, message)| message == "probe")
}

/// A driver and what is known of it.
struct Driver<'m> {
    modules: &'m [Module],
    client: Client,
    callbacks: Callbacks,
    calls: Calls<'m>,
    writes: Writes,
    knowledge: &'m Knowledge,
    is_own: &'m dyn Fn(&str) -> bool,
}

/// Verifies all properties; `seconds` for all of them.
pub fn run(
    modules: &[Module],
    knowledge: &Knowledge,
    is_own: &dyn Fn(&str) -> bool,
    seconds: u64,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<Verified>, FrontError> {
    let client = Client::stock();
    let callbacks = ops::callbacks(modules, &client);
    let calls = Calls::new(modules);
    let properties = property::all(modules, &client, &calls);
    let writes = Writes::new(modules);
    let driver = Driver { modules, client, callbacks, calls, writes, knowledge, is_own };
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut all = Vec::new();
    for (index, property) in properties.iter().enumerate() {
        if stop() {
            return Err(FrontError::Other("interrupted".to_owned()));
        }
        let left = end.saturating_duration_since(Instant::now());
        // What is not used by one is there for the others.
        let share = left / (properties.len() - index) as u32 * 4;
        all.extend(driver.verify(property, Instant::now() + share.min(left)));
    }
    Ok(all)
}

impl Driver<'_> {
    /// Verifies one property; nothing where no callback matters for it.
    fn verify(&self, property: &Property, deadline: Instant) -> Option<Verified> {
        let start = Instant::now();
        let machines = self.machines(property);
        let names: Vec<&str> = machines.iter().map(Machine::name).collect();
        let protocols = match Protocols::new(&machines, &names) {
            Ok(protocols) => protocols,
            Err(what) => return Some(self.undecided(property, what, start)),
        };
        let plan = self.plan(property, &protocols)?;
        let source = Source {
            modules: self.modules,
            deep: true,
            main: (0, "the kernel".to_owned()),
            is_own: self.is_own,
            knowledge: self.knowledge,
            client: Some(&plan),
        };
        let program = match translate(&source) {
            Ok(program) => program,
            Err(what) => return Some(self.undecided(property, what, start)),
        };
        let own = protocols.machines.len() - 1;
        let breaks = |what: &Wrong| match what {
            Wrong::Emit(number) => protocols.mail(*number).is_ok_and(|mail| {
                mail.0 == own && (!property.rule || protocols.message(mail).name == property.name)
            }),
            Wrong::End(at) => *at == own && !property.rule,
            _ => false,
        };
        let mut verified = self.undecided(property, String::new(), start);
        verified.places = program.nodes.len();
        verified.assumptions = program.assumptions.iter().cloned().collect();
        let budget = Budget { deadline, states: STATES, work: usize::MAX };
        let decided = decide(&program, &protocols, &breaks, &budget);
        verified.rounds = decided.rounds;
        verified.states = decided.states;
        verified.followed = program.followed(&decided.tracked);
        match decided.outcome {
            Err(why) => verified.undecided = Some(why),
            Ok(faults) => {
                verified.undecided = None;
                verified.proved = faults.is_empty();
                verified.findings = faults
                    .iter()
                    .map(|fault| finding(self.modules, property, (&program, &protocols), fault))
                    .collect();
                let first = faults.iter().zip(&verified.findings).next();
                verified.chart = first
                    .map(|(fault, finding)| sequence::svg(&program, &protocols, fault, &finding.message));
                // A call that is put in several times is one place in the source.
                let mut seen = FxHashSet::default();
                verified.findings.retain(|finding| {
                    let at = finding.location.as_ref().map(|at| (at.file.clone(), at.line));
                    seen.insert((finding.message.clone(), at))
                });
            }
        }
        verified.seconds = start.elapsed().as_secs_f64();
        Some(verified)
    }

    fn undecided(&self, property: &Property, why: String, start: Instant) -> Verified {
        let place = property.line.as_ref().map(|(home, line)| {
            let file = self.modules[*home].debug.files.get(line.file as usize).cloned().unwrap_or_default();
            format!(" {}:{}", file.rsplit('/').next().unwrap_or_default(), line.number)
        });
        Verified {
            main: format!("{}{}", property.acquire, place.unwrap_or_default()),
            protocols: property.name.clone(),
            undecided: Some(why),
            seconds: start.elapsed().as_secs_f64(),
            ..Verified::default()
        }
    }

    /// The calls that matter, for a property with some protocols of the kernel's side.
    fn is_event(&self, property: &Property, machines: &[&Machine], call: &Call) -> bool {
        if property.by_site.contains_key(&(std::ptr::from_ref(call) as usize)) {
            return true;
        }
        let Value::Global(name) = &call.callee else { return false };
        SETS_DATA.contains(&&**name) || property.by_name.contains_key(&**name)
            || machines.iter().any(|machine| {
                machine.protocol.transitions.iter().any(|transition| {
                    matches!(&transition.link, Some(Link::Call(names, _)) if names.iter().any(|one| **one == **name))
                }) || self
                    .client
                    .during
                    .get(&**name)
                    .is_some_and(|during| during.message.0 == machine.name())
            })
    }

    /// The functions that matter.
    fn reaching(&self, property: &Property, machines: &[&Machine]) -> FxHashSet<Function> {
        self.calls.reaching(&|call| self.is_event(property, machines, call))
    }

    /// The protocols of the kernel's side whose callbacks matter, and the property's own at the end.
    fn machines(&self, property: &Property) -> Vec<Machine> {
        let mut chosen: Vec<&Machine> =
            self.client.machines.iter().filter(|machine| machine.name() == "device").collect();
        loop {
            let relevant = self.reaching(property, &chosen);
            let more = self.client.machines.iter().find(|machine| {
                !chosen.iter().any(|known| known.name() == machine.name())
                    && self.callbacks.iter().any(|((protocol, _), functions)| {
                        protocol == machine.name()
                            && functions.iter().any(|function| relevant.contains(function))
                    })
            });
            match more {
                Some(machine) => chosen.push(machine),
                None => break,
            }
        }
        // A protocol without callbacks answers questions of the driver.
        for machine in &self.client.machines {
            let begins =
                machine.protocol.transitions.iter().any(|one| matches!(one.link, Some(Link::Begin(_))));
            let asked = self.calls.all.iter().any(|(_, call, ..)| match &call.callee {
                Value::Global(name) => {
                    self.client.asks.get(&**name).is_some_and(|ask| ask.message.0 == machine.name())
                }
                _ => false,
            });
            if !begins && asked {
                chosen.push(machine);
            }
        }
        let mut all: Vec<Machine> = chosen.into_iter().cloned().collect();
        all.retain(|machine| machine.name() != property.machine.name());
        all.push(property.machine.clone());
        all
    }

    fn plan(&self, property: &Property, protocols: &Protocols) -> Option<ClientPlan<'_>> {
        let machines: Vec<&Machine> = protocols.machines.iter().collect();
        let relevant = self.reaching(property, &machines);
        let (by_name, by_site) = events(property, protocols)?;
        let (callbacks, played) = self.played(protocols, &relevant)?;
        let matters = |function: &Function| relevant.contains(function);
        if !callbacks.iter().any(|callback| callback.functions.iter().any(matters)) {
            return None;
        }
        let find = |name: &Name| {
            let at = protocols.machines.iter().position(|machine| machine.name() == name.0)?;
            protocols.number((at, message(&protocols.machines[at], &name.1)?))
        };
        let mut during = FxHashMap::default();
        for (function, one) in &self.client.during {
            let Some((number, otherwise)) = find(&one.message).zip(find(&one.otherwise)) else { continue };
            let callback = callbacks.iter().find(|callback| callback.number == number);
            if let Some(callback) = callback {
                during.insert(function.clone(), (callback.clone(), otherwise));
            }
        }
        let asks = self.client.asks.iter().filter_map(|(function, one)| {
            Some((function.clone(), find(&one.message).zip(find(&one.otherwise))?))
        });
        let mut results: FxHashMap<String, Success> = FxHashMap::default();
        for pair in &self.client.pairs {
            results.extend(pair.acquire.iter().map(|(name, _)| (name.clone(), pair.success)));
        }
        let device = |message: &str| find(&("device".to_owned(), message.to_owned()));
        Some(ClientPlan {
            kernel: kernel(),
            by_name,
            by_site,
            callbacks,
            during,
            asks: asks.collect(),
            results,
            awake: device("awake")?,
            over: [device("probe_failed")?, device("removed")?].to_vec(),
            idle: self.writes.of(&self.idle(&played)),
            writes: &self.writes,
            relevant,
        })
    }

    /// The functions that the kernel may call and the client does not.
    fn idle(&self, played: &FxHashSet<Function>) -> Vec<Function> {
        let mut idle = Vec::new();
        for (home, module) in self.modules.iter().enumerate() {
            let taken = module.address_taken.iter().map(|name| -> Function { (home, name.as_str().into()) });
            idle.extend(taken.filter(|function| !played.contains(function)));
        }
        idle
    }

    /// The callbacks that the client begins, and their functions.
    fn played(
        &self,
        protocols: &Protocols,
        relevant: &FxHashSet<Function>,
    ) -> Option<(Vec<Callback>, FxHashSet<Function>)> {
        let (mut callbacks, mut played) = (Vec::new(), FxHashSet::default());
        for (at, machine) in protocols.machines.iter().enumerate() {
            for incoming in machine.incoming() {
                let key: Name = (machine.name().to_owned(), machine.messages()[incoming].name.clone());
                let functions = self.callbacks.get(&key).cloned().unwrap_or_default();
                let begins = machine.protocol.transitions.iter().any(|transition| {
                    transition.message == incoming && matches!(transition.link, Some(Link::Begin(_)))
                });
                // What the driver has no callback for ends at once, if the kernel's side moves on by it.
                let moves =
                    ["open", "stop", "suspend", "resume", "probe", "remove"].contains(&key.1.as_str());
                let matters = functions.iter().any(|function| relevant.contains(function));
                if !begins || !(matters || moves) {
                    continue;
                }
                played.extend(functions.iter().cloned());
                let number = protocols.number((at, incoming))?;
                let ends = ends(protocols, at, incoming);
                callbacks.push(Callback { number, functions, ends, awake: machine.name() != "device" });
            }
        }
        Some((callbacks, played))
    }
}

type Events<K> = FxHashMap<K, Vec<Event>>;

/// The calls that stand for messages, by the function's name and by their place.
fn events(property: &Property, protocols: &Protocols) -> Option<(Events<String>, Events<usize>)> {
    let own = protocols.machines.len() - 1;
    let message_of = |name: &str| message(&protocols.machines[own], name);
    let event = |made: &property::Made| {
        let number = protocols.number((own, message_of(&made.message)?))?;
        let nothing = || protocols.number((own, message_of("nothing")?));
        let argument = made.argument.and_then(|at| Some((at, nothing()?)));
        Some(Event { number, success: made.success, argument })
    };
    let named = property.by_name.iter();
    let mut by_name: Events<String> =
        named.map(|(name, all)| (name.clone(), all.iter().filter_map(event).collect())).collect();
    let sites = property.by_site.iter();
    let by_site = sites.map(|(site, all)| (*site, all.iter().filter_map(event).collect())).collect();
    for (at, machine) in protocols.machines.iter().enumerate() {
        for transition in &machine.protocol.transitions {
            let Some(Link::Call(names, outcome)) = &transition.link else { continue };
            let success = match outcome {
                Outcome::Any => Success::Always,
                Outcome::Zero => Success::Zero,
                Outcome::NonZero => Success::NonZero,
            };
            let number = protocols.number((at, transition.message))?;
            for name in names {
                let all = by_name.entry(name.clone()).or_default();
                if !all.iter().any(|event| event.number == number) {
                    all.push(Event { number, success, argument: None });
                }
            }
        }
    }
    Some((by_name, by_site))
}

/// A function that stands for the kernel.
fn kernel() -> crate::ir::instruction::Function {
    crate::ir::instruction::Function {
        name: "the kernel".to_owned(),
        line: None,
        result: Type::Void,
        parameters: Vec::new(),
        external: false,
        blocks: Vec::new(),
        registers: 0,
        variables: Vec::new(),
    }
}

fn message(machine: &Machine, name: &str) -> Option<usize> {
    machine.messages().iter().position(|message| message.name == name)
}

/// The messages that the end of a callback stands for: those that leave a state which its beginning enters.
fn ends(protocols: &Protocols, at: usize, incoming: usize) -> Vec<(u64, Outcome)> {
    let machine = &protocols.machines[at];
    let callback = machine.protocol.transitions.iter().find_map(|transition| match &transition.link {
        Some(Link::Begin(name)) if transition.message == incoming => Some(name.clone()),
        _ => None,
    });
    let Some(callback) = callback else { return Vec::new() };
    let mut found: Vec<(u64, Outcome)> = Vec::new();
    for transition in &machine.protocol.transitions {
        if let Some(Link::End(name, outcome)) = &transition.link
            && *name == callback
            && let Some(number) = protocols.number((at, transition.message))
            && !found.iter().any(|(other, _)| *other == number)
        {
            found.push((number, *outcome));
        }
    }
    found
}

/// What a search says of one protocol, and what it took.
struct Decided {
    /// What breaks its rules, or why that is not known.
    outcome: Result<Vec<Fault>, String>,
    rounds: u32,
    /// States of the last round.
    states: usize,
    /// By number, whether a cell was followed in it.
    tracked: Vec<bool>,
}

/// Searches, refines, and searches again, for violations of one protocol's rules 1 and 5.
fn decide(
    program: &Program,
    protocols: &Protocols,
    breaks: &dyn Fn(&Wrong) -> bool,
    budget: &Budget,
) -> Decided {
    let mut tracked = seeds(program);
    let footprint = Footprint::new(program);
    let ended = |outcome, rounds, states, tracked| Decided { outcome, rounds, states, tracked };
    let late = || Err("the time is up".to_owned());
    for rounds in 1..=ROUNDS {
        let graph = match Graph::explore(program, protocols, &tracked, budget) {
            Ok(graph) => graph,
            Err(Stopped::Time) => return ended(late(), rounds, 0, tracked),
            Err(Stopped::States) => {
                let why = format!("there are more than {} states", budget.states);
                return ended(Err(why), rounds, 0, tracked);
            }
        };
        let states = graph.states.len();
        let (mut faults, mut more, mut failed) = (Vec::new(), FxHashSet::default(), 0);
        let mut seen = FxHashSet::default();
        let mut stuck = false;
        let mut judge = Judge::new(&footprint);
        for Violation { state, edge, what } in &graph.violations {
            let key = (*edge, what.clone());
            if !breaks(what) || seen.contains(&key) {
                continue;
            }
            if failed > AT_ONCE || Instant::now() > budget.deadline {
                break;
            }
            let path = graph.path(*state);
            let claim = Claim { path: &path, last: edge.map(|edge| (edge, what)) };
            match judge.judge(&graph, &claim) {
                Judged::Ruled(cells) => {
                    failed += 1;
                    let new: Vec<u32> = cells.into_iter().filter(|cell| !tracked[*cell as usize]).collect();
                    stuck |= new.is_empty();
                    more.extend(new);
                }
                Judged::Breaks(feasible) => {
                    seen.insert(key);
                    faults.push(Fault {
                        rule: Broken::Step(what.clone()),
                        path,
                        last: *edge,
                        cycle: Vec::new(),
                        feasible,
                    });
                }
            }
        }
        if Instant::now() > budget.deadline {
            return ended(late(), rounds, states, tracked);
        }
        if more.is_empty() {
            faults.sort_by_key(|fault| (fault.rule.rule(), fault.path.len()));
            if faults.is_empty() && stuck {
                let why = "a run that cannot happen is not ruled out by cells that can be followed";
                return ended(Err(why.to_owned()), rounds, states, tracked);
            }
            return ended(Ok(faults), rounds, states, tracked);
        }
        for cell in more {
            tracked[cell as usize] = true;
        }
    }
    ended(Err(format!("{ROUNDS} refinements do not do")), ROUNDS, 0, tracked)
}
