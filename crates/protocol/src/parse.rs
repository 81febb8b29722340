//! The language of protocols. `knowledge/README.md` describes it.

#[cfg(test)]
mod tests;

use crate::model::{
    Direction, Link, Message, Outcome, Parameter, ParameterKind, Protocol, State, Transition,
};
use crate::{ChartError, Machine};
use guardrail_knowledge::chart::parse::statements;
use std::collections::HashMap;

/// Limits of a user's file. They bound the time and the memory that any text takes.
mod limits {
    /// Bytes of a file.
    pub const BYTES: usize = 1 << 20;
    /// Protocols of a file.
    pub const PROTOCOLS: usize = 64;
    /// States of a protocol, super-states included.
    pub const STATES: usize = 255;
    /// How deep states may be nested.
    pub const DEPTH: usize = 16;
    /// Messages of a protocol, each way. A mask of messages has 64 bits.
    pub const MESSAGES: usize = 64;
    /// Lines of transitions of a protocol.
    pub const TRANSITIONS: usize = 4096;
    /// Bytes of a name.
    pub const NAME: usize = 64;
}

/// Names that no state may have.
const RESERVED: [&str; 2] = ["any", "same"];

type Parsed<T> = Result<T, String>;

/// A statement: its first line's number, its indentation, its text.
struct Statement {
    line: usize,
    indent: usize,
    text: String,
}

/// Reads the `protocol` blocks of a file and skips its `chart` blocks; `name` names the file in errors.
pub fn file(name: &str, text: &str) -> Result<Vec<Protocol>, ChartError> {
    let at = |line: usize| move |what: String| ChartError { file: name.to_owned(), line, what };
    if text.len() > limits::BYTES {
        return Err(at(1)(format!("the file has more than {} bytes", limits::BYTES)));
    }
    let statements: Vec<Statement> =
        statements(text).into_iter().map(|(line, indent, text)| Statement { line, indent, text }).collect();
    let mut protocols: Vec<Protocol> = Vec::new();
    let mut rest = &statements[..];
    while let Some((head, after)) = rest.split_first() {
        let length = after.iter().position(Statement::begins_block).unwrap_or(after.len());
        let (body, others) = after.split_at(length);
        rest = others;
        match head.text.split_whitespace().next() {
            Some("chart") => continue,
            Some("protocol") => {}
            _ => return Err(at(head.line)("expected 'protocol NAME' or 'chart NAME'".to_owned())),
        }
        if protocols.len() == limits::PROTOCOLS {
            return Err(at(head.line)(format!("the file has more than {} protocols", limits::PROTOCOLS)));
        }
        let protocol = block(name, head, body)?;
        if let Some(other) = protocols.iter().find(|other| other.name == protocol.name) {
            return Err(at(head.line)(format!("protocol {} is in line {} already", other.name, other.line)));
        }
        protocols.push(protocol);
    }
    Ok(protocols)
}

/// Reads a file of protocols and flattens them.
pub fn machines(name: &str, text: &str) -> Result<Vec<Machine>, ChartError> {
    file(name, text)?.into_iter().map(Machine::new).collect()
}

/// Refuses two protocols of one name.
pub fn distinct(machines: &[Machine]) -> Result<(), ChartError> {
    for (at, machine) in machines.iter().enumerate() {
        let Protocol { name, file, line, .. } = &machine.protocol;
        if let Some(other) = machines[..at].iter().find(|other| other.name() == name) {
            let what = format!(
                "protocol {name} is in {}, line {} already",
                other.protocol.file, other.protocol.line
            );
            return Err(ChartError { file: file.clone(), line: *line, what });
        }
    }
    Ok(())
}

impl Statement {
    fn begins_block(&self) -> bool {
        matches!(self.text.split_whitespace().next(), Some("chart" | "protocol"))
    }
}

/// Reads one block: states first, then what names them.
fn block(file: &str, head: &Statement, body: &[Statement]) -> Result<Protocol, ChartError> {
    let at = |line: usize| move |what: String| ChartError { file: file.to_owned(), line, what };
    let words: Vec<&str> = head.text.split_whitespace().collect();
    let [_, name] = words[..] else {
        return Err(at(head.line)("expected 'protocol NAME'".to_owned()));
    };
    is_name(name).map_err(at(head.line))?;
    let mut reader = Reader {
        protocol: Protocol {
            name: name.to_owned(),
            file: file.to_owned(),
            line: head.line,
            of: None,
            states: Vec::new(),
            messages: Vec::new(),
            transitions: Vec::new(),
        },
        around: Vec::new(),
        named: HashMap::new(),
        waiting: Vec::new(),
    };
    for statement in body {
        let (word, rest) = split(&statement.text);
        match word {
            "of" => reader.of(rest),
            "state" => reader.state(statement, rest),
            "in" | "out" => Ok(()),
            _ => Err(format!("'{word}' begins no line of a protocol; expected of, state, in or out")),
        }
        .map_err(at(statement.line))?;
    }
    reader.initials().map_err(|(line, what)| at(line)(what))?;
    for statement in body {
        let (word, rest) = split(&statement.text);
        let direction = match word {
            "in" => Direction::In,
            "out" => Direction::Out,
            _ => continue,
        };
        reader.transition(direction, statement.line, rest).map_err(at(statement.line))?;
    }
    reader.resolve_waiting().map_err(|(line, what)| at(line)(what))?;
    if reader.protocol.messages.is_empty() {
        return Err(at(head.line)(format!("protocol {name} has no message")));
    }
    Ok(reader.protocol)
}

struct Reader {
    protocol: Protocol,
    /// The states around the next one, with their indentations.
    around: Vec<(usize, usize)>,
    /// The states that have a name.
    named: HashMap<String, Vec<usize>>,
    /// What transitions say about messages that wait: the transition, whether it keeps them, their names.
    waiting: Vec<(usize, bool, String)>,
}

impl Reader {
    fn of(&mut self, rest: &str) -> Parsed<()> {
        is_name(rest.trim())?;
        match self.protocol.of.replace(rest.trim().to_owned()) {
            None => Ok(()),
            Some(_) => Err("a protocol has one line 'of CHART'".to_owned()),
        }
    }

    fn state(&mut self, statement: &Statement, rest: &str) -> Parsed<()> {
        let (name, flags) = split(rest);
        is_name(name)?;
        if RESERVED.contains(&name) {
            return Err(format!("'{name}' names no state"));
        }
        self.around.retain(|(_, outer)| *outer < statement.indent);
        let parent = self.around.last().map(|(state, _)| *state);
        if self.around.len() == limits::DEPTH {
            return Err(format!("states are nested deeper than {}", limits::DEPTH));
        }
        let states = &mut self.protocol.states;
        if states.len() == limits::STATES {
            return Err(format!("the protocol has more than {} states", limits::STATES));
        }
        let alike = self.named.entry(name.to_owned()).or_default();
        if let Some(&other) = alike.iter().find(|&&other| states[other].parent == parent) {
            return Err(format!("state {name} is in line {} already", states[other].line));
        }
        alike.push(states.len());
        let mut state = State { name: name.to_owned(), parent, line: statement.line, ..State::default() };
        for word in flags.split_whitespace() {
            match word {
                "initial" => state.initial = true,
                "final" => state.final_ = true,
                "fair" => state.fair = true,
                "owed" => state.owed = true,
                _ => return Err(format!("'{word}' is not one of initial, final, fair, owed")),
            }
        }
        self.around.push((states.len(), statement.indent));
        states.push(state);
        Ok(())
    }

    /// At each level at most one state is initial, and at the top exactly one.
    fn initials(&self) -> Result<(), (usize, String)> {
        let states = &self.protocol.states;
        let mut first: HashMap<Option<usize>, usize> = HashMap::new();
        for (at, state) in states.iter().enumerate().filter(|(_, state)| state.initial) {
            if let Some(other) = first.insert(state.parent, at) {
                let (one, other) = (&states[other], &states[at]);
                return Err((
                    other.line,
                    format!(
                        "{} is initial, as {} is in line {}; expected one",
                        other.name, one.name, one.line
                    ),
                ));
            }
        }
        match first.contains_key(&None) {
            true => Ok(()),
            false => Err((
                self.protocol.line,
                format!(
                    "protocol {} has no initial state; expected 'state NAME initial'",
                    self.protocol.name
                ),
            )),
        }
    }

    fn transition(&mut self, direction: Direction, line: usize, rest: &str) -> Parsed<()> {
        let expected = "expected 'MESSAGE: STATES -> STATE'";
        let (head, tail) = rest.split_once(':').ok_or(expected)?;
        let (from, after) = tail.split_once("->").ok_or(expected)?;
        let (to, mut link) = split(after.trim());
        if self.protocol.transitions.len() == limits::TRANSITIONS {
            return Err(format!("the protocol has more than {} transitions", limits::TRANSITIONS));
        }
        while let (word @ ("keeps" | "refuses"), rest) = split(link) {
            let (names, rest) = split(rest);
            is_name(names.split('|').next().unwrap_or_default())?;
            self.waiting.push((self.protocol.transitions.len(), word == "keeps", names.to_owned()));
            link = rest;
        }
        let message = self.message(message(direction, line, head.trim())?)?;
        let (link, optional) = match link.strip_suffix("optional") {
            Some(callback) if callback.starts_with("is begin ") || callback.starts_with("is end ") => {
                (callback.trim_end(), true)
            }
            _ => (link, false),
        };
        let transition = Transition {
            message,
            from: self.states(from)?,
            to: if to == "same" { None } else { Some(self.named(to)?) },
            keeps: Vec::new(),
            refuses: Vec::new(),
            link: self.link(link)?,
            optional,
            line,
        };
        self.protocol.transitions.push(transition);
        Ok(())
    }

    /// Looks up the messages that wait, which may be declared behind the lines that name them.
    fn resolve_waiting(&mut self) -> Result<(), (usize, String)> {
        for (at, keeps, names) in std::mem::take(&mut self.waiting) {
            let Protocol { messages, transitions, .. } = &mut self.protocol;
            let transition = &mut transitions[at];
            for name in names.split('|') {
                let known = messages.iter().position(|message| message.name == name);
                let Some(message) = known.filter(|&at| messages[at].direction == Direction::In) else {
                    return Err((transition.line, format!("'{name}' is no message that begins with 'in'")));
                };
                if transition.keeps.contains(&message) || transition.refuses.contains(&message) {
                    return Err((transition.line, format!("{name} is kept or refused already")));
                }
                if keeps { &mut transition.keeps } else { &mut transition.refuses }.push(message);
            }
        }
        Ok(())
    }

    /// The index of a message, which is new or known. Only its first line says more than its name, or later
    /// lines say the same.
    fn message(&mut self, new: Message) -> Parsed<usize> {
        let messages = &mut self.protocol.messages;
        let Some(at) = messages.iter().position(|known| known.name == new.name) else {
            let alike = messages.iter().filter(|known| known.direction == new.direction).count();
            if alike == limits::MESSAGES {
                return Err(format!("the protocol has more than {} messages each way", limits::MESSAGES));
            }
            messages.push(new);
            return Ok(messages.len() - 1);
        };
        let known = &messages[at];
        if known.direction != new.direction {
            let word = known.direction.word();
            return Err(format!("{} is '{word}' in line {}; expected one direction", known.name, known.line));
        }
        let plain = new.payload.is_empty() && !new.sleeps && !new.head && new.room == 1;
        let same = Message { line: known.line, ..new } == *known;
        if !plain && !same {
            return Err(format!(
                "{} has another payload or other words in line {}; expected the same or nothing",
                known.name, known.line
            ));
        }
        Ok(at)
    }

    /// States joined by `|`, or `any`.
    fn states(&self, text: &str) -> Parsed<Vec<usize>> {
        if text.trim() == "any" {
            return Ok(self.protocol.parts(None).collect());
        }
        text.split('|').map(|path| self.named(path.trim())).collect()
    }

    /// The state with this name, or this path of names.
    fn named(&self, path: &str) -> Parsed<usize> {
        let mut names = path.rsplit('.');
        let alike = names.next().and_then(|last| self.named.get(last)).map_or(&[][..], Vec::as_slice);
        let outer: Vec<&str> = names.collect();
        let fits = |state: usize| {
            let around: Vec<usize> = self.protocol.around(state).skip(1).collect();
            outer.len() <= around.len()
                && outer.iter().zip(&around).all(|(name, &at)| self.protocol.states[at].name == *name)
        };
        let mut found = alike.iter().copied().filter(|&state| fits(state));
        match (found.next(), found.next()) {
            (Some(state), None) => Ok(state),
            (None, _) if path.is_empty() => Err("expected the name of a state".to_owned()),
            (None, _) => Err(format!("there is no state {path}{}", self.known_states())),
            _ => Err(format!("there are several states {path}; say which with the names around it")),
        }
    }

    /// The names to choose from, for a message about a name that is not there.
    fn known_states(&self) -> String {
        const SHOWN: usize = 20;
        let names: Vec<String> =
            (0..self.protocol.states.len()).take(SHOWN).map(|state| self.protocol.path(state)).collect();
        let more = if self.protocol.states.len() > SHOWN { ", …" } else { "" };
        format!("; there are {}{more}", names.join(", "))
    }

    /// What follows a transition.
    fn link(&self, text: &str) -> Parsed<Option<Link>> {
        let expected = || {
            format!(
                "'{text}' should be 'is begin CALLBACK', 'is end CALLBACK', 'is call FUNCTION' or 'unseen', behind \
                 'keeps MESSAGES' or 'refuses MESSAGES'"
            )
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let (subject, outcome) = match words[..] {
            [] => return Ok(None),
            ["unseen"] => return Ok(Some(Link::Unseen)),
            ["is", kind, name] => ((kind, name), Outcome::Any),
            ["is", kind, name, "if", "zero"] => ((kind, name), Outcome::Zero),
            ["is", kind, name, "if", "nonzero"] => ((kind, name), Outcome::NonZero),
            _ => return Err(expected()),
        };
        if self.protocol.of.is_none() && subject.0 != "call" {
            return Err(format!("'is {}' needs a line 'of CHART' before it", subject.0));
        }
        let names: Vec<String> = subject.1.split('|').map(str::to_owned).collect();
        names.iter().try_for_each(|name| is_name(name))?;
        Ok(Some(match (subject.0, outcome, &names[..]) {
            ("begin", Outcome::Any, [name]) => Link::Begin(name.clone()),
            ("end", _, [name]) => Link::End(name.clone(), outcome),
            ("call", ..) => Link::Call(names, outcome),
            _ => return Err(expected()),
        }))
    }
}

/// What stands before a transition's colon: `NAME[(PARAMETERS)] [sleeps] [head] [room N]`.
fn message(direction: Direction, line: usize, text: &str) -> Parsed<Message> {
    let (name, payload, words) = match text.split_once('(') {
        None => (split(text).0, "", split(text).1),
        Some((name, rest)) => {
            let (payload, words) = rest.split_once(')').ok_or("expected ')' after the payload")?;
            (name.trim(), payload, words)
        }
    };
    is_name(name)?;
    let mut message = Message {
        name: name.to_owned(),
        direction,
        payload: parameters(payload)?,
        sleeps: false,
        head: false,
        room: 1,
        line,
    };
    let mut words = words.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "sleeps" | "head" | "room" if direction == Direction::Out => {
                return Err(format!("'{word}' is for messages of the kernel, which begin with 'in'"));
            }
            "sleeps" => message.sleeps = true,
            "head" => message.head = true,
            "room" => {
                let number = words.next().and_then(|number| number.parse().ok());
                message.room = number
                    .filter(|room| (1..=1 << 20).contains(room))
                    .ok_or("expected 'room N', a number from 1 to 1048576")?;
            }
            _ => return Err(format!("'{word}' is not one of sleeps, head, room")),
        }
    }
    Ok(message)
}

/// A payload: at most one pointer and one `long`.
fn parameters(text: &str) -> Parsed<Vec<Parameter>> {
    let mut parameters: Vec<Parameter> = Vec::new();
    for text in text.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        let parameter = parameter(text)
            .ok_or_else(|| format!("'{text}' should be 'long NAME', 'struct TYPE *NAME' or 'void *NAME'"))?;
        let alike = |other: &Parameter| {
            matches!(other.kind, ParameterKind::Number) == matches!(parameter.kind, ParameterKind::Number)
        };
        if parameters.iter().any(alike) {
            return Err("a message has at most one pointer and one long".to_owned());
        }
        if parameters.iter().any(|other| other.name == parameter.name) {
            return Err(format!("two parameters are named '{}'", parameter.name));
        }
        parameters.push(parameter);
    }
    Ok(parameters)
}

fn parameter(text: &str) -> Option<Parameter> {
    let (before, name, kind) = match text.split_once('*') {
        Some((target, name)) => (target.trim(), name.trim(), None),
        None => {
            let (target, name) = text.rsplit_once(char::is_whitespace)?;
            (target.trim(), name, Some(ParameterKind::Number))
        }
    };
    is_name(name).ok()?;
    let words: Vec<&str> = before.split_whitespace().collect();
    let kind = match (kind, &words[..]) {
        (Some(number), ["long"]) => number,
        (None, [_] | ["struct" | "union", _]) => {
            words.iter().try_for_each(|word| is_name(word)).ok()?;
            ParameterKind::Pointer(words.join(" "))
        }
        _ => return None,
    };
    Some(Parameter { name: name.to_owned(), kind })
}

/// The first word, and what follows it.
fn split(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim_start())
}

/// Names become parts of C names.
fn is_name(text: &str) -> Parsed<()> {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if text.is_empty() {
        Err("expected a name".to_owned())
    } else if text.len() > limits::NAME {
        Err(format!("a name has more than {} letters", limits::NAME))
    } else if text.as_bytes()[0].is_ascii_digit() || !text.bytes().all(letter) {
        Err(format!("'{text}' is no name; expected letters, digits and '_', with no digit first"))
    } else {
        Ok(())
    }
}
