//! Each rule of a program's protocols by itself, with as little of the protocols as it needs.
//!
//! A protocol is taken apart into small machines, one for each message and each fair set
//! ([`guardrail_protocol::decompose`]). A question starts with the one that it is about; all other messages may come and
//! be sent at any time. Where a run is found that the whole protocols do not allow, the rule of the first message that
//! they refuse joins, and the search is done again. What the driver sends against a rule that has joined is not followed:
//! the question about that message finds it.

use crate::engine::liveness::Duty;
use crate::engine::search::{Budget, Graph, Step, Violation, Wrong};
use crate::engine::values::{SEARCH, Work, first_free};
use crate::messages::{Mail, Protocols};
use crate::program::expression::Id;
use crate::program::{Action, Program};
use crate::verdict::{Broken, Fault, Focus, Outcome, decide_some, seeds};
use guardrail_protocol::Machine;
use guardrail_protocol::decompose::{Subject, Subprotocol, answers, decompose};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// How often a cycle is gone through to see whether the protocols allow it.
const TURNS: usize = 300;

/// A rule, with what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// Rule 1, of a message.
    Send(Mail),
    /// Rule 2, of a message.
    Await(Mail),
    /// Rule 3.
    Fair,
    /// Rule 4, of a protocol and its state.
    Leave(usize, usize),
    /// Rule 5, of a protocol.
    End(usize),
    /// Rule 6.
    Sleep,
}

/// What a question's answer took.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The number of the rule.
    pub rule: u32,
    /// The protocol; absent for a rule that is about all of them.
    pub protocol: Option<String>,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// States of the last search.
    pub states: usize,
    /// Cells that were followed, without conditions inside expressions.
    pub followed: usize,
    /// How many searches it took.
    pub searches: u32,
    /// Small machines of the last search.
    pub subprotocols: usize,
}

/// All answers.
pub struct Answers {
    /// What each took.
    pub asked: Vec<Asked>,
    /// The runs that break a rule.
    pub faults: Vec<Fault>,
    /// Why something is not decided, or is refused.
    pub open: Option<Outcome>,
}

/// A protocol taken apart.
struct Parts<'m> {
    machine: &'m Machine,
    rules: Vec<Subprotocol>,
}

/// Decides each rule by itself. `all` are all protocols, in the order in which their messages are numbered.
pub fn decide(
    program: &Program,
    all: &[Machine],
    names: &[&str],
    budget: &Budget,
) -> Result<Answers, String> {
    let whole = Protocols::new(all, names)?;
    let parts: Vec<Parts<'_>> =
        whole.machines.iter().map(|machine| Parts { machine, rules: decompose(machine) }).collect();
    let mut answers = Answers { asked: Vec::new(), faults: Vec::new(), open: None };
    for question in questions(&whole, &parts) {
        let began = Instant::now();
        let mut asking = Asking { program, whole: &whole, parts: &parts, question, all, names, budget };
        let (mut asked, outcome) = asking.answer()?;
        asked.seconds = began.elapsed().as_secs_f64();
        answers.asked.push(asked);
        match outcome {
            Outcome::Proved => {}
            Outcome::Broken(faults) => {
                answers.faults.extend(faults.into_iter().map(|fault| question.named(fault)))
            }
            other => {
                answers.open = Some(other);
                break;
            }
        }
    }
    answers.faults.sort_by_key(|fault| (fault.rule.rule(), fault.path.len()));
    Ok(answers)
}

fn questions(whole: &Protocols, parts: &[Parts<'_>]) -> Vec<Question> {
    let mut all = Vec::new();
    for (at, Parts { machine, rules }) in parts.iter().enumerate() {
        let sent = rules.iter().filter_map(|rule| match rule.subject {
            Subject::Message(message) if !machine.is_in(message) => Some(Question::Send((at, message))),
            _ => None,
        });
        all.extend(sent);
        all.extend(machine.incoming().map(|message| Question::Await((at, message))));
        let owed = (0..machine.states.len()).filter(|state| machine.states[*state].owed);
        all.extend(owed.map(|state| Question::Leave(at, state)));
        all.push(Question::End(at));
    }
    debug_assert!(!whole.machines.is_empty());
    all.extend([Question::Fair, Question::Sleep]);
    all
}

impl Question {
    fn rule(self) -> (u32, Option<usize>) {
        match self {
            Question::Send(mail) => (1, Some(mail.0)),
            Question::Await(mail) => (2, Some(mail.0)),
            Question::Fair => (3, None),
            Question::Leave(at, _) => (4, Some(at)),
            Question::End(at) => (5, Some(at)),
            Question::Sleep => (6, None),
        }
    }

    /// A fault that names the protocol's own state instead of the small machine's.
    fn named(self, mut fault: Fault) -> Fault {
        if let Question::Leave(at, state) = self {
            fault.rule = Broken::Duty(Duty::Leave(at, state as u8));
        }
        fault
    }
}

struct Asking<'a> {
    program: &'a Program,
    whole: &'a Protocols,
    parts: &'a [Parts<'a>],
    question: Question,
    all: &'a [Machine],
    names: &'a [&'a str],
    budget: &'a Budget,
}

impl Asking<'_> {
    fn answer(&mut self) -> Result<(Asked, Outcome), String> {
        // The rules that have joined, for each protocol.
        let mut joined: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); self.parts.len()];
        for (at, part) in self.parts.iter().enumerate() {
            for (index, rule) in part.rules.iter().enumerate() {
                let own = match &rule.subject {
                    Subject::Message(message) => {
                        matches!(self.question, Question::Send(mail) | Question::Await(mail) if mail == (at, *message))
                    }
                    Subject::Fair(_) => self.question == Question::Fair,
                    Subject::States(_) => false,
                };
                if own {
                    joined[at].insert(index);
                }
            }
        }
        let mut tracked = seeds(self.program);
        let mut searches = 0;
        loop {
            let (machines, used) = self.machines(&joined);
            let protocols = Protocols::new(&machines, self.names)?;
            let focus = About { whole: self.whole, small: &protocols, question: self.question };
            let decision = decide_some(self.program, &protocols, self.budget, tracked, &focus);
            searches += decision.rounds;
            let mut grew = false;
            for (at, message) in &decision.missing {
                let is = |rule: &Subprotocol| rule.subject == Subject::Message(*message);
                let rule = self.parts[*at].rules.iter().position(is);
                grew |= rule.is_some_and(|rule| joined[*at].insert(rule));
            }
            tracked = decision.tracked;
            if !decision.missing.is_empty() {
                if grew {
                    continue;
                }
                return Err("a rule that has joined does not rule out what the protocol does".to_owned());
            }
            let seeds = &self.program.seeds;
            let followed =
                (0..tracked.len()).filter(|cell| tracked[*cell] && !seeds.contains(&(*cell as u32))).count();
            let (rule, at) = self.question.rule();
            let asked = Asked {
                rule,
                protocol: at.map(|at| self.parts[at].machine.name().to_owned()),
                seconds: 0.0,
                states: decision.graph.as_ref().map_or(0, |graph| graph.states.len()),
                followed,
                searches,
                subprotocols: used,
            };
            return Ok((asked, decision.outcome));
        }
    }

    /// All protocols, with those of the program made from the rules that have joined; and how many rules these are.
    fn machines(&self, joined: &[BTreeSet<usize>]) -> (Vec<Machine>, usize) {
        let mut used = 0;
        let machines = self.all.iter().map(|machine| {
            let Some(at) = self.parts.iter().position(|part| part.machine.name() == machine.name()) else {
                return machine.clone();
            };
            let part = &self.parts[at];
            let mut rules: Vec<&Subprotocol> = joined[at].iter().map(|rule| &part.rules[*rule]).collect();
            let states: Option<BTreeSet<usize>> = match self.question {
                Question::Leave(of, state) if of == at => Some(BTreeSet::from([state])),
                Question::End(of) if of == at => {
                    let all = 0..machine.states.len();
                    Some(all.filter(|state| machine.states[*state].final_).collect())
                }
                _ => None,
            };
            let own = states.map(|states| answers(machine, &states));
            rules.extend(&own);
            used += rules.len();
            product(machine, &rules, self.question, at)
        });
        (machines.collect(), used)
    }
}

/// The machine that keeps some rules of a protocol. If it has no fewer states than the protocol, it is the protocol.
fn product(machine: &Machine, rules: &[&Subprotocol], question: Question, at: usize) -> Machine {
    let leave = matches!(question, Question::Leave(of, _) if of == at);
    let end = question == Question::End(at);
    let says = |state: &[usize], subject: &dyn Fn(&Subject) -> bool| {
        rules.iter().zip(state).any(|(rule, state)| subject(&rule.subject) && rule.yes[*state])
    };
    let start: Vec<usize> = rules.iter().map(|rule| rule.start).collect();
    let mut index: BTreeMap<Vec<usize>, usize> = BTreeMap::from([(start.clone(), 0)]);
    let mut states = vec![start];
    let mut made =
        Machine { start: 0, states: Vec::new(), next: Vec::new(), rules: Vec::new(), ..machine.clone() };
    let mut at = 0;
    while at < states.len() {
        if states.len() >= machine.states.len() {
            return whole(machine, question, leave, end);
        }
        let state = states[at].clone();
        let mut leaf = machine.states[0].clone();
        leaf.name = format!("part {at}");
        leaf.fair = says(&state, &|subject| matches!(subject, Subject::Fair(_)));
        let own = says(&state, &|subject| matches!(subject, Subject::States(_)));
        leaf.owed = leave && own;
        leaf.final_ = !end || own;
        made.states.push(leaf);
        let row = (0..machine.messages().len()).map(|message| {
            let refused = rules
                .iter()
                .zip(&state)
                .any(|(rule, state)| rule.subject == Subject::Message(message) && !rule.yes[*state]);
            let to: Vec<usize> = rules
                .iter()
                .zip(&state)
                .map(|(rule, state)| rule.next[*state][message].unwrap_or(*state))
                .collect();
            (!refused).then(|| {
                *index.entry(to).or_insert_with_key(|to| {
                    states.push(to.clone());
                    states.len() - 1
                })
            })
        });
        made.next.push(row.collect());
        made.rules.push(vec![Vec::new(); machine.messages().len()]);
        at += 1;
    }
    made
}

/// The whole protocol, with the flags that a question is about.
fn whole(machine: &Machine, question: Question, leave: bool, end: bool) -> Machine {
    let mut made = machine.clone();
    for (state, leaf) in made.states.iter_mut().enumerate() {
        leaf.owed = leave && matches!(question, Question::Leave(_, one) if one == state);
        leaf.final_ |= !end;
    }
    made
}

/// A question, with the protocols as a whole and as the search has them.
struct About<'a> {
    whole: &'a Protocols,
    small: &'a Protocols,
    question: Question,
}

impl Focus for About<'_> {
    fn asks(&self, what: &Broken) -> bool {
        match (self.question, what) {
            (_, Broken::Step(Wrong::Open)) => true,
            (Question::Send(mail), Broken::Step(Wrong::Emit(number))) => self.whole.mail(*number) == Ok(mail),
            (Question::Await(mail), Broken::Duty(Duty::Await(other))) => mail == *other,
            (Question::Leave(at, _), Broken::Duty(Duty::Leave(other, _))) => at == *other,
            (Question::End(at), Broken::Step(Wrong::End(other))) => at == *other,
            (Question::Fair, Broken::Step(Wrong::Await(_)))
            | (Question::Sleep, Broken::Step(Wrong::Sleep(_))) => true,
            _ => false,
        }
    }

    fn missing(
        &self,
        graph: &Graph<'_>,
        path: &[Step],
        cycle: &[Step],
        last: Option<&Violation>,
    ) -> BTreeSet<Mail> {
        let mut replay = Replay { about: self, graph, modes: self.whole.start(), at: 0 };
        if let Err(mail) = replay.along(path) {
            return BTreeSet::from([mail]);
        }
        if let (Some(Violation { what: Wrong::Await(mask), .. }), true) =
            (last, self.question == Question::Fair)
        {
            let small = &graph.modes[graph.states[replay.at as usize].modes as usize];
            return if self.whole.ends(&replay.modes, *mask) {
                self.extra(small, &replay.modes)
            } else {
                BTreeSet::new()
            };
        }
        let mut known = BTreeSet::new();
        for _ in 0..TURNS {
            if cycle.is_empty() || !known.insert(replay.modes.clone()) {
                break;
            }
            if let Err(mail) = replay.along(cycle) {
                return BTreeSet::from([mail]);
            }
        }
        BTreeSet::new()
    }
}

impl About<'_> {
    /// Messages that may come in the small machines but not in the whole protocols.
    fn extra(&self, small: &[u8], whole: &[u8]) -> BTreeSet<Mail> {
        let mut all = BTreeSet::new();
        for (at, machine) in self.whole.machines.iter().enumerate() {
            let more = machine.incoming().filter(|message| {
                self.small.machines[at].allows(small[at] as usize, *message)
                    && !machine.allows(whole[at] as usize, *message)
            });
            all.extend(more.map(|message| (at, message)));
        }
        all
    }
}

/// A run, followed in the whole protocols.
struct Replay<'a, 'g, 'p> {
    about: &'a About<'a>,
    graph: &'g Graph<'p>,
    modes: Vec<u8>,
    at: u32,
}

impl Replay<'_, '_, '_> {
    /// Follows steps up to the first message that is not allowed.
    fn along(&mut self, steps: &[Step]) -> Result<(), Mail> {
        for step in steps {
            let number = match &self.graph.program.edges[step.edge as usize].action {
                Action::Await(..) => step.received.map(u64::from),
                Action::Emit(id) => self.number(*id),
                _ => None,
            };
            self.at = step.to;
            let Some(mail) = number.and_then(|number| self.about.whole.mail(number).ok()) else { continue };
            self.modes = self.about.whole.step(&self.modes, mail).ok_or(mail)?;
        }
        Ok(())
    }

    /// The number of a message that is sent.
    fn number(&self, id: Id) -> Option<u64> {
        if let Some(number) = self.graph.program.arena.number(id) {
            return Some(number);
        }
        let graph = self.graph;
        let mut arena = graph.arena.clone();
        let known = graph.known[graph.states[self.at as usize].known as usize].clone();
        let next = first_free(&arena, &known);
        let (tracked, lost) = (Some(&graph.tracked[..]), &graph.lost[..]);
        let mut work = Work {
            arena: &mut arena,
            known,
            next,
            tracked,
            lost,
            inputs: None,
            limits: SEARCH,
            forgot: false,
        };
        let value = work.value(id);
        arena.number(value)
    }
}
