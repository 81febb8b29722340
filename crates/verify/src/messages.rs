//! The protocols of a program, and the numbers of their messages.

use guardrail_protocol::Machine;
use guardrail_protocol::model::Message;
use rustc_hash::FxHashMap;

/// The number of the first message that a driver sends; smaller ones are received.
pub const FIRST_OUT: u64 = 64;

/// The protocols that a program follows.
#[derive(Clone, Debug)]
pub struct Protocols {
    /// Their machines, in the order of the program.
    pub machines: Vec<Machine>,
    /// Machine and message by number.
    numbers: FxHashMap<u64, (usize, usize)>,
    /// Names of messages of protocols that the program does not name, by number.
    others: FxHashMap<u64, String>,
}

/// A message of a program: the index of its machine, and of the message in it.
pub type Mail = (usize, usize);

impl Protocols {
    /// The protocols with these names. Messages are numbered over `all`, in its order.
    pub fn new(all: &[Machine], names: &[&str]) -> Result<Protocols, String> {
        let mut protocols =
            Protocols { machines: Vec::new(), numbers: FxHashMap::default(), others: FxHashMap::default() };
        let mut place: FxHashMap<&str, usize> = FxHashMap::default();
        for name in names {
            let Some(machine) = all.iter().find(|machine| machine.name() == *name) else {
                return Err(unknown(name, all));
            };
            if place.insert(name, protocols.machines.len()).is_some() {
                return Err(format!("the program names protocol {name} twice"));
            }
            protocols.machines.push(machine.clone());
        }
        let (mut incoming, mut outgoing) = (0, FIRST_OUT);
        for machine in all {
            for index in 0..machine.messages().len() {
                let next = if machine.is_in(index) { &mut incoming } else { &mut outgoing };
                match place.get(machine.name()) {
                    Some(at) => {
                        protocols.numbers.insert(*next, (*at, index));
                    }
                    None => {
                        let name = format!("{}.{}", machine.name(), machine.messages()[index].name);
                        protocols.others.insert(*next, name);
                    }
                }
                *next += 1;
            }
        }
        if incoming > FIRST_OUT {
            return Err(format!(
                "the protocols have {incoming} incoming messages, but a mask holds {FIRST_OUT}"
            ));
        }
        Ok(protocols)
    }

    /// The message of a number, or why the program may not use it.
    pub fn mail(&self, number: u64) -> Result<Mail, String> {
        self.numbers.get(&number).copied().ok_or_else(|| match self.others.get(&number) {
            Some(name) => format!("message {name}, of a protocol that the program does not name"),
            None => format!("number {number}, which no protocol has"),
        })
    }

    /// All messages with their numbers.
    pub fn all(&self) -> impl Iterator<Item = (u64, Mail)> {
        self.numbers.iter().map(|(number, mail)| (*number, *mail))
    }

    /// A message.
    pub fn message(&self, mail: Mail) -> &Message {
        &self.machines[mail.0].messages()[mail.1]
    }

    /// A message's name with its protocol's.
    pub fn name(&self, mail: Mail) -> String {
        format!("{}.{}", self.machines[mail.0].name(), self.message(mail).name)
    }

    /// The states in which all protocols start.
    pub fn start(&self) -> Vec<u8> {
        self.machines.iter().map(|machine| machine.start as u8).collect()
    }

    /// The states after a message; `None` where it is not allowed.
    pub fn step(&self, states: &[u8], mail: Mail) -> Option<Vec<u8>> {
        let next = self.machines[mail.0].step(states[mail.0] as usize, mail.1)?;
        let mut states = states.to_vec();
        states[mail.0] = next as u8;
        Some(states)
    }

    /// Whether an AWAIT with this mask ends for certain: some protocol is in a fair state in which at least one
    /// message may come, and all that may come are awaited.
    pub fn ends(&self, states: &[u8], mask: u64) -> bool {
        self.machines.iter().enumerate().any(|(at, machine)| {
            let state = states[at] as usize;
            let mut enabled = machine.enabled(state).peekable();
            machine.states[state].fair
                && enabled.peek().is_some()
                && enabled
                    .all(|message| self.number((at, message)).is_some_and(|number| mask >> number & 1 == 1))
        })
    }

    /// The number of a message.
    pub fn number(&self, mail: Mail) -> Option<u64> {
        self.numbers.iter().find(|(_, other)| **other == mail).map(|(number, _)| *number)
    }

    /// The names of states.
    pub fn describe(&self, states: &[u8]) -> Vec<String> {
        let name = |(machine, state): (&Machine, &u8)| {
            format!("{} {}", machine.name(), machine.states[*state as usize].name)
        };
        self.machines.iter().zip(states).map(name).collect()
    }
}

fn unknown(name: &str, all: &[Machine]) -> String {
    let mut near: Vec<(usize, &str)> = all
        .iter()
        .map(|machine| (strsim::damerau_levenshtein(name, machine.name()), machine.name()))
        .collect();
    near.sort_unstable();
    let near: Vec<&str> = near.into_iter().take(3).map(|(_, name)| name).collect();
    format!("there is no protocol '{name}'; the nearest names are {}", near.join(", "))
}
