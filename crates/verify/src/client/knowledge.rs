//! `knowledge/client.txt` and `knowledge/client.chart`.

use crate::program::plan::Success;
use guardrail_protocol::{Machine, parse};
use std::collections::HashMap;

const TEXT: &str = include_str!("../../../../knowledge/client.txt");
const CHART: &str = include_str!("../../../../knowledge/client.chart");

/// What identifies the thing that a pair is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// There is one for a device.
    Device,
    /// The result of the call that acquires it.
    Value,
    /// What an argument points to.
    Object,
}

/// Calls that acquire and release something.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Its name.
    pub name: String,
    /// What identifies the thing.
    pub identity: Identity,
    /// Whether to acquire it twice is a fault.
    pub once: bool,
    /// Whether to acquire it twice is like once.
    pub again: bool,
    /// Whether to release what was not acquired is a fault.
    pub strict: bool,
    /// Functions that acquire it, with the argument that is it.
    pub acquire: Vec<(String, Option<usize>)>,
    /// When they do.
    pub success: Success,
    /// Functions that release it, with the argument that is it.
    pub release: Vec<(String, Option<usize>)>,
    /// A function after which the driver core releases it.
    pub managed: Option<String>,
}

/// Calls that are allowed in some states only.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The functions.
    pub functions: Vec<String>,
    /// The protocol with a message for them.
    pub machine: Machine,
    /// The message.
    pub message: String,
}

/// A message of a protocol by names.
pub type Name = (String, String);

/// What the kernel calls during a call, and the message that says that there is nothing to be called.
#[derive(Clone, Debug)]
pub struct During {
    /// The callback's message.
    pub message: Name,
    /// See above.
    pub otherwise: Name,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// The protocols of the kernel's side.
    pub machines: Vec<Machine>,
    /// Of a structure and its field, the message that a callback in it stands for.
    pub callbacks: HashMap<(String, String), Name>,
    /// Of a kernel function, what it calls back.
    pub during: HashMap<String, During>,
    /// Of a kernel function that returns a truth, the messages that may come while it is true, and while it is not.
    pub asks: HashMap<String, During>,
    /// The pairs.
    pub pairs: Vec<Pair>,
    /// The rules.
    pub rules: Vec<Rule>,
}

fn name(text: &str) -> Result<Name, String> {
    let (protocol, message) = text.trim().split_once('.').ok_or("expected 'PROTOCOL.MESSAGE'")?;
    Ok((protocol.to_owned(), message.to_owned()))
}

impl Client {
    /// Reads all of it. A line that makes no sense is a mistake in this repository; a test reads all.
    pub fn stock() -> Client {
        let machines = parse::machines("knowledge/client.chart", CHART);
        let machines = machines.unwrap_or_else(|error| panic!("{error}"));
        let mut all = Client { machines, ..Client::default() };
        for line in TEXT.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            if let Err(what) = all.line(line) {
                panic!("knowledge/client.txt: {what}: {line}");
            }
        }
        all
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let (head, rest) = line.split_once(':').ok_or("expected 'WORDS: WORDS'")?;
        let (word, words) =
            head.split_once(' ').ok_or("expected 'callback', 'during', 'ask', 'rule' or 'pair'")?;
        match word {
            "callback" => {
                let message = self.known(name(rest)?)?;
                for field in words.split(',') {
                    let field = name(field)?;
                    self.callbacks.insert(field, message.clone());
                }
            }
            "during" | "ask" => {
                let (message, otherwise) =
                    rest.split_once(" else ").ok_or("expected 'MESSAGE else MESSAGE'")?;
                let during =
                    During { message: self.known(name(message)?)?, otherwise: self.known(name(otherwise)?)? };
                let all = if word == "ask" { &mut self.asks } else { &mut self.during };
                for function in words.split(',') {
                    all.insert(function.trim().to_owned(), during.clone());
                }
            }
            "rule" => {
                let rule = rule(words, rest)?;
                self.rules.push(rule);
            }
            "pair" => {
                let pair = pair(words, rest)?;
                self.pairs.push(pair);
            }
            _ => return Err("expected 'callback', 'during', 'ask', 'rule' or 'pair'".to_owned()),
        }
        Ok(())
    }

    fn known(&self, name: Name) -> Result<Name, String> {
        let machine = self.machines.iter().find(|machine| machine.name() == name.0);
        let known = machine.is_some_and(|machine| machine.messages().iter().any(|one| one.name == name.1));
        if known { Ok(name) } else { Err(format!("there is no message {}.{}", name.0, name.1)) }
    }
}

/// A rule: the protocol gets one more message.
fn rule(head: &str, functions: &str) -> Result<Rule, String> {
    let (message, states) = head.split_once(' ').ok_or("expected 'PROTOCOL.MESSAGE STATES'")?;
    let (protocol, message) = name(message)?;
    let begin = format!("protocol {protocol}\n");
    let start = CHART.find(&begin).ok_or_else(|| format!("there is no protocol {protocol}"))?;
    let block = &CHART[start..];
    let length = block[1..].find("\nprotocol ").map_or(block.len(), |at| at + 2);
    let text = format!("{}\n  out {message}: {states} -> same   unseen\n", &block[..length]);
    let mut machines = parse::machines("knowledge/client.txt", &text).map_err(|error| error.to_string())?;
    let functions = functions.split('|').map(|name| name.trim().to_owned()).collect();
    Ok(Rule { functions, machine: machines.remove(0), message })
}

fn pair(head: &str, rest: &str) -> Result<Pair, String> {
    let mut words = head.split_whitespace();
    let name = words.next().ok_or("expected a name")?.to_owned();
    let identity = match words.next() {
        Some("device") => Identity::Device,
        Some("value") => Identity::Value,
        Some("object") => Identity::Object,
        _ => return Err("expected 'device', 'value' or 'object'".to_owned()),
    };
    let (mut once, mut again, mut strict) = (false, false, false);
    for word in words {
        match word {
            "once" => once = true,
            "again" => again = true,
            "strict" => strict = true,
            _ => return Err("expected 'once', 'again' or 'strict'".to_owned()),
        }
    }
    let (rest, managed) = match rest.split_once(';') {
        Some((rest, more)) => {
            let function = more.trim().strip_prefix("managed ").ok_or("expected 'managed FUNCTION'")?;
            (rest, Some(function.trim().to_owned()))
        }
        None => (rest, None),
    };
    let (acquire, release) = rest.split_once('/').ok_or("expected 'FUNCTIONS RESULT / FUNCTIONS'")?;
    let (acquire, result) = acquire.trim().rsplit_once(' ').ok_or("expected 'FUNCTIONS RESULT'")?;
    let success = match result.trim() {
        "always" => Success::Always,
        "zero" => Success::Zero,
        "nonzero" => Success::NonZero,
        "positive" => Success::Positive,
        "valid" => Success::Valid,
        _ => return Err("expected 'always', 'zero', 'nonzero', 'positive' or 'valid'".to_owned()),
    };
    let acquire = functions(acquire, identity == Identity::Object)?;
    let release = functions(release, identity == Identity::Object)?;
    if identity == Identity::Value
        && let Some((function, _)) = release.iter().find(|(_, at)| at.is_none())
    {
        return Err(format!("expected the index of an argument behind {function}"));
    }
    Ok(Pair { name, identity, once, again, strict, acquire, success, release, managed })
}

/// Functions, each with the index of an argument; the first one if `first`.
fn functions(text: &str, first: bool) -> Result<Vec<(String, Option<usize>)>, String> {
    let one = |one: &str| match one.trim().split_once(' ') {
        Some((function, at)) => {
            let at = at.parse().map_err(|_| "expected the index of an argument")?;
            Ok((function.to_owned(), Some(at)))
        }
        None => Ok((one.trim().to_owned(), first.then_some(0))),
    };
    text.split('|').map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_read() {
        let all = Client::stock();
        assert!(all.pairs.iter().any(|pair| pair.name == "irq" && pair.strict));
        assert_eq!(all.during["dev_close"].message.1, "stop");
        let mut none = Client::default();
        for wrong in [
            "pair x",
            "pair x y: a zero / b",
            "pair x value: a zero / b",
            "callback a.b: device.probe",
            "f g: h",
        ] {
            assert!(none.line(wrong).is_err(), "{wrong}");
        }
    }
}
