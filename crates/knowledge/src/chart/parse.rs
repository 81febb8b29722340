//! The language of charts. `knowledge/README.md` describes it.

use crate::chart::{CURRENT, Callback, Chart, Hand, Set, State};
use crate::effect::When;
use thiserror::Error;

/// Most items of a set, which has a bit for each.
const MAX_ITEMS: usize = 64;
const MAX_KEYS: usize = 2;
/// What may follow a callback's states.
const CALLBACK_WORDS: &str = "in, serial, frozen, drained, enters, leaves, wakes, turns, starts, stops, lends, gives, takes, completes";

/// A line of a chart that makes no sense.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{file}, line {line}: {what}")]
pub struct ChartError {
    /// The file, as the caller named it.
    pub file: String,
    /// Number of the line, from 1.
    pub line: usize,
    /// What is wrong, and what was expected.
    pub what: String,
}

/// A chart before a kernel has resolved where the arguments of its functions are.
#[derive(Debug, Default)]
pub struct Draft {
    /// The chart without its calls.
    pub chart: Chart,
    /// The calls, in the order of the file.
    pub rules: Vec<Rule>,
    /// What callbacks take turns by: the callback, its parameters, and `PARAM` or `PARAM.struct.member`.
    pub turns: Vec<(usize, Vec<String>, String)>,
    /// Whether the functions are in modules, so that the image does not know them.
    pub elsewhere: bool,
}

/// A call that is not resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The name of the kernel function.
    pub function: String,
    /// Names of its parameters, in their order.
    pub params: Vec<String>,
    /// For each key part, `PARAM` or `PARAM.struct.member`; `None` where the call does not have it.
    pub keys: Vec<Option<String>>,
    /// `zero` or `nonzero`: the results for which the rule holds; `None` for all.
    pub when: Option<&'static str>,
    /// See [`Call::from`](super::Call::from).
    pub from: Set,
    /// See [`Call::to`](super::Call::to).
    pub to: Option<usize>,
    /// See [`Call::nowait`](super::Call::nowait).
    pub nowait: bool,
    /// See [`Call::wakes`](super::Call::wakes).
    pub wakes: Set,
    /// See [`Call::waits`](super::Call::waits).
    pub waits: Set,
    /// See [`Call::hand`](super::Call::hand).
    pub hand: Option<Hand>,
}

/// A statement: its first line's number, its indentation, its text.
type Statement = (usize, usize, String);
type Parsed<T> = Result<T, String>;

/// The charts of all classes. Panics at a line that makes no sense, which is a mistake in this repository. A
/// test reads all charts.
pub fn built_in() -> impl Iterator<Item = Draft> {
    files().flat_map(|(path, text)| file(path, text).unwrap_or_else(|error| panic!("{error}")))
}

/// The files of charts of all classes: path from the repository's root, and text. A file also has the `protocol`
/// blocks of its class.
pub fn files() -> impl Iterator<Item = (&'static str, &'static str)> {
    crate::files::named("protocol.chart")
}

/// Reads the `chart` blocks of a file and skips its `protocol` blocks; `name` names the file in errors.
pub fn file(name: &str, text: &str) -> Result<Vec<Draft>, ChartError> {
    let at = |line: usize| move |what: String| ChartError { file: name.to_owned(), line, what };
    let mut drafts: Vec<Draft> = Vec::new();
    let statements = statements(text);
    let mut next = statements.iter().peekable();
    while let Some((line, _, text)) = next.next() {
        let mut body: Vec<&Statement> = Vec::new();
        while let Some(statement) = next.next_if(|(_, _, text)| !begins_block(text)) {
            body.push(statement);
        }
        if text.starts_with("protocol ") {
            continue;
        }
        let mut reader = Reader::chart(text).map_err(at(*line))?;
        // Rules may name states and callbacks that are declared after them.
        for pass in [Pass::Names, Pass::Rules] {
            for (line, indent, text) in &body {
                reader.statement(pass, *indent, text).map_err(at(*line))?;
            }
            reader.close(pass).map_err(at(*line))?;
        }
        if let Some(key) = reader.unused_key() {
            let declares =
                |text: &str| text.starts_with("key ") && text.split_whitespace().any(|word| word == key);
            let line = body.iter().find(|(_, _, text)| declares(text)).map_or(*line, |(line, ..)| *line);
            return Err(at(line)(format!("no call or callback has a parameter '{key}'")));
        }
        drafts.push(reader.draft);
    }
    Ok(drafts)
}

/// Whether a statement begins a chart, or a protocol of messages, which has its own parser.
fn begins_block(text: &str) -> bool {
    text.starts_with("chart ") || text.starts_with("protocol ")
}

/// Lines without comments; one that ends in a comma or a colon continues in the next.
pub fn statements(text: &str) -> Vec<Statement> {
    let mut statements: Vec<Statement> = Vec::new();
    let mut open = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim_end();
        let trimmed = line.trim_start();
        if trimmed.is_empty() {
            continue;
        }
        match statements.last_mut().filter(|_| open) {
            Some((_, _, text)) => {
                text.push(' ');
                text.push_str(trimmed);
            }
            None => statements.push((number + 1, line.len() - trimmed.len(), trimmed.to_owned())),
        }
        open = trimmed.ends_with([',', ':']);
    }
    statements
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Names,
    Rules,
}

#[derive(Default)]
struct Reader {
    draft: Draft,
    /// States that were declared as the first of their siblings to be in.
    initial: Vec<usize>,
    /// The states around the next one, with their indentations.
    around: Vec<(usize, usize)>,
}

impl Reader {
    fn chart(text: &str) -> Parsed<Reader> {
        let mut words = text.split_whitespace();
        let (Some("chart"), Some(name)) = (words.next(), words.next()) else {
            return Err("expected 'chart NAME'".to_owned());
        };
        let mut reader = Reader::default();
        reader.draft.chart.name = name.to_owned();
        for word in words {
            match word {
                "deferred" => reader.draft.chart.deferred = true,
                "pins" => reader.draft.chart.pins = true,
                "made" => reader.draft.chart.made = true,
                "ticks" => reader.draft.chart.ticks = true,
                "elsewhere" => reader.draft.elsewhere = true,
                _ => return Err(format!("'{word}' is not one of deferred, pins, made, ticks, elsewhere")),
            }
        }
        Ok(reader)
    }

    fn statement(&mut self, pass: Pass, indent: usize, text: &str) -> Parsed<()> {
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        match (pass, word) {
            (Pass::Names, "key") => self.keys(rest),
            (Pass::Names, "state") => self.state(indent, rest),
            (Pass::Names, "callback") => self.callback_name(rest),
            (Pass::Rules, "callback") => self.callback(rest),
            (Pass::Rules, "call") => self.call(rest),
            (_, "key" | "state" | "call") => Ok(()),
            _ => Err(format!("'{word}' begins no line; expected key, state, call or callback")),
        }
    }

    /// Checks what a pass has found.
    fn close(&mut self, pass: Pass) -> Parsed<()> {
        if pass == Pass::Rules {
            return Ok(());
        }
        let chart = &self.draft.chart;
        if chart.keys.is_empty() || chart.states.is_empty() {
            return Err(format!("chart {} needs a key and a state", chart.name));
        }
        if chart.states.len() > MAX_ITEMS || chart.callbacks.len() > MAX_ITEMS {
            return Err(format!("chart {} has more than {MAX_ITEMS} states or callbacks", chart.name));
        }
        self.draft.chart.initial = self.leaf(None).ok_or("no state to begin in")?;
        Ok(())
    }

    fn keys(&mut self, rest: &str) -> Parsed<()> {
        let keys = &mut self.draft.chart.keys;
        keys.extend(rest.split_whitespace().map(str::to_owned));
        (1..=MAX_KEYS).contains(&keys.len()).then_some(()).ok_or(format!("a key has one or {MAX_KEYS} parts"))
    }

    /// A part of the key that no call and no callback has.
    fn unused_key(&self) -> Option<&str> {
        let Draft { chart, rules, .. } = &self.draft;
        let used = |part: usize| {
            rules.iter().any(|rule| rule.keys[part].is_some())
                || chart.callbacks.iter().any(|callback| callback.keys[part].is_some())
        };
        (0..chart.keys.len()).find(|&part| !used(part)).map(|part| chart.keys[part].as_str())
    }

    fn state(&mut self, indent: usize, rest: &str) -> Parsed<()> {
        let (name, mut rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        if !is_name(name) || name == "any" {
            return Err(format!("'{name}' names no state"));
        }
        self.around.retain(|(_, outer)| *outer < indent);
        let parent = self.around.last().map(|(state, _)| *state);
        let states = &mut self.draft.chart.states;
        if states.iter().any(|state| state.name == name && state.parent == parent) {
            return Err(format!("state {name} is there already"));
        }
        let index = states.len();
        let mut state = State { name: name.to_owned(), parent, busy: None, owed: false };
        while !rest.trim_start().is_empty() {
            rest = rest.trim_start();
            let (word, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            rest = after;
            match word {
                "initial" => self.initial.push(index),
                "owed" => state.owed = true,
                "busy" => {
                    let quoted = after.trim_start().strip_prefix('"').and_then(|text| text.split_once('"'));
                    let (why, after) = quoted.ok_or("expected busy \"why\"")?;
                    state.busy = Some(why.to_owned());
                    rest = after;
                }
                _ => return Err(format!("'{word}' is not one of initial, busy, owed")),
            }
        }
        states.push(state);
        self.around.push((index, indent));
        Ok(())
    }

    /// Whether a state has parts.
    fn is_parent(&self, state: usize) -> bool {
        self.draft.chart.states.iter().any(|other| other.parent == Some(state))
    }

    /// The leaf of an object that moves to a state, or begins.
    fn leaf(&self, state: Option<usize>) -> Option<usize> {
        let states = &self.draft.chart.states;
        let mut parts = (0..states.len()).filter(|&part| states[part].parent == state).peekable();
        let Some(&first) = parts.peek() else { return state };
        self.leaf(Some(parts.find(|part| self.initial.contains(part)).unwrap_or(first)))
    }

    /// The state with this name, or this path of names.
    fn state_named(&self, path: &str) -> Parsed<usize> {
        let states = &self.draft.chart.states;
        let fits = |state: &usize| {
            let mut at = Some(*state);
            path.rsplit('.').all(|name| {
                let here = at.and_then(|at| states.get(at));
                at = here.and_then(|here| here.parent);
                here.is_some_and(|here| here.name == name)
            })
        };
        let mut found = (0..states.len()).filter(fits);
        match (found.next(), found.next()) {
            (Some(state), None) => Ok(state),
            (None, _) => {
                let known: Vec<String> =
                    (0..states.len()).map(|state| self.draft.chart.path(state)).collect();
                Err(format!("there is no state {path}; there are {}", known.join(", ")))
            }
            _ => Err(format!("there are several states {path}; say which with their parents' names")),
        }
    }

    /// The leaves of states joined by `|`.
    fn states(&self, text: &str) -> Parsed<Set> {
        if matches!(text, "any" | "*") {
            return Ok(Set::MAX);
        }
        let mut set = 0;
        for path in text.split('|') {
            let state = self.state_named(path)?;
            let within = |leaf: usize| {
                std::iter::successors(Some(leaf), |&at| self.draft.chart.states[at].parent)
                    .any(|at| at == state)
            };
            let leaves = (0..self.draft.chart.states.len()).filter(|&leaf| !self.is_parent(leaf));
            set |= leaves.filter(|&leaf| within(leaf)).fold(0, |set, leaf| set | 1 << leaf);
        }
        Ok(set)
    }

    fn target(&self, path: &str) -> Parsed<usize> {
        let state = self.state_named(path)?;
        self.leaf(Some(state)).ok_or(format!("state {path} has no leaf"))
    }

    fn callbacks(&self, text: &str) -> Parsed<Set> {
        let known: Vec<&str> =
            self.draft.chart.callbacks.iter().map(|callback| callback.name.as_str()).collect();
        text.split('|').try_fold(0, |set, name| match known.iter().position(|known| *known == name) {
            Some(at) => Ok(set | 1 << at),
            None if known.is_empty() => Err(format!("there is no callback {name}, nor any other")),
            None => Err(format!("there is no callback {name}; there are {}", known.join(", "))),
        })
    }

    fn callback_name(&mut self, rest: &str) -> Parsed<()> {
        let name = signature(rest)?.name;
        let callbacks = &mut self.draft.chart.callbacks;
        if callbacks.iter().any(|callback| callback.name == name) {
            return Err(format!("callback {name} is there already"));
        }
        callbacks.push(Callback { name, ..Callback::default() });
        Ok(())
    }

    fn callback(&mut self, rest: &str) -> Parsed<()> {
        let (head, tail) = halves(rest)?;
        let Signature { name, params, bindings, after } = signature(head)?;
        let mut from = Vec::new();
        let mut words = after.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (None, ..) => {}
            (Some("from"), Some(list), None) => from.extend(list.split('|').map(str::to_owned)),
            _ => return Err("expected 'from FUNCTION|FUNCTION' before the colon".to_owned()),
        }
        let keys = self.bind(&name, &params, &bindings)?;
        let place =
            |key: &Option<String>| key.as_ref().map(|key| params.iter().position(|param| param == key));
        let mut registers = Vec::new();
        for key in &keys {
            registers.push(match place(key) {
                None => None,
                _ if key.as_deref() == Some("current") => Some(CURRENT),
                Some(Some(place)) if place < 6 => Some(place as u8),
                _ => return Err("a callback's key is an argument as it is".to_owned()),
            });
        }
        let mut callback = Callback { name, from, keys: registers, ..Callback::default() };
        let mut turns = None;
        let mut words = tail.split_whitespace().peekable();
        while let Some(word) = words.next() {
            let mut next = || words.next().ok_or(format!("'{word}' lacks what follows it"));
            match word {
                "turns" => {
                    let by = next()?;
                    is_place(by, &callback.name, &params)?;
                    turns = Some(by.to_owned());
                }
                "in" => callback.states = self.states(next()?)?,
                "serial" => callback.serial = true,
                "lends" => callback.hand = Some(Hand::Lends),
                "gives" => callback.hand = Some(Hand::Gives),
                "takes" => {
                    let some = words.next_if_eq(&"some").is_some();
                    callback.hand = Some(if some { Hand::TakesSome } else { Hand::Takes });
                }
                "completes" => callback.hand = Some(Hand::Completes),
                "frozen" => callback.frozen = true,
                "drained" => callback.drained = true,
                "starts" => callback.starts = true,
                "stops" => callback.stops = true,
                "wakes" => callback.wakes = self.callbacks(next()?)?,
                "enters" => callback.enters = Some(self.target(next()?)?),
                "leaves" => {
                    let state = self.target(next()?)?;
                    let when = match words.next_if_eq(&"if") {
                        None => When::Always,
                        Some(_) => match words.next() {
                            Some("zero") => When::Zero,
                            Some("nonzero") => When::NonZero,
                            _ => return Err("expected 'if zero' or 'if nonzero'".to_owned()),
                        },
                    };
                    callback.leaves = Some((state, when));
                }
                _ => return Err(format!("'{word}' is not one of {CALLBACK_WORDS}")),
            }
        }
        if callback.states == 0 {
            return Err("expected 'in STATES' after the colon".to_owned());
        }
        let callbacks = &mut self.draft.chart.callbacks;
        if let Some(at) = callbacks.iter().position(|known| known.name == callback.name) {
            callbacks[at] = callback;
            self.draft.turns.extend(turns.map(|by| (at, params, by)));
        }
        Ok(())
    }

    fn call(&mut self, rest: &str) -> Parsed<()> {
        let (head, tail) = halves(rest)?;
        let (head, when) = match head.rsplit_once(" if ") {
            None => (head, None),
            Some((head, "zero")) => (head, Some("zero")),
            Some((head, "nonzero")) => (head, Some("nonzero")),
            Some(_) => return Err("expected 'if zero' or 'if nonzero'".to_owned()),
        };
        let mut words = tail.split_whitespace().peekable();
        let from = self.states(words.next().ok_or("expected states after the colon")?)?;
        let to = match words.next_if_eq(&"->") {
            Some(_) => Some(self.target(words.next().ok_or("expected a state after '->'")?)?),
            None => None,
        };
        let (mut nowait, mut wakes, mut waits, mut hand) = (false, 0, 0, None);
        while let Some(word) = words.next() {
            let mut next = || words.next().ok_or(format!("'{word}' lacks the names of callbacks"));
            match word {
                "nowait" => nowait = true,
                "lends" => hand = Some(Hand::Lends),
                "gives" => hand = Some(Hand::Gives),
                "wakes" => wakes |= self.callbacks(next()?)?,
                "waits" => waits |= self.callbacks(next()?)?,
                _ => return Err(format!("'{word}' is not one of ->, nowait, wakes, waits, lends, gives")),
            }
        }
        let mut head = head;
        loop {
            let Signature { name: function, params, bindings, after } = signature(head)?;
            let keys = self.bind(&function, &params, &bindings)?;
            let rule = Rule { function, params, keys, when, from, to, nowait, wakes, waits, hand };
            self.draft.rules.push(rule);
            match after.trim().strip_prefix(',') {
                Some(more) => head = more,
                None if after.trim().is_empty() => return Ok(()),
                None => return Err(format!("'{}' was not expected", after.trim())),
            }
        }
    }

    /// Where each part of the key is: as a binding states, or the parameter with the key's name.
    fn bind(
        &self,
        function: &str,
        params: &[String],
        bindings: &[(String, String)],
    ) -> Parsed<Vec<Option<String>>> {
        let keys = &self.draft.chart.keys;
        for (key, value) in bindings {
            if !keys.contains(key) {
                return Err(format!("'{key}' is no part of the key; there are {}", keys.join(", ")));
            }
            if value != "current" {
                is_place(value, function, params)?;
            }
        }
        let part = |key: &String| {
            let bound = bindings.iter().find(|(name, _)| name == key).map(|(_, value)| value);
            bound.or_else(|| params.iter().find(|param| *param == key)).cloned()
        };
        Ok(keys.iter().map(part).collect())
    }
}

/// Checks a `PARAM` or `PARAM.struct.member` of a function.
fn is_place(text: &str, function: &str, params: &[String]) -> Parsed<()> {
    let param = text.split('.').next().unwrap_or(text);
    if !params.iter().any(|known| known == param) {
        return Err(format!("'{param}' is no parameter of {function}({})", params.join(", ")));
    }
    match text.split('.').count() {
        2 => Err(format!("'{text}' should be PARAMETER or PARAMETER.struct.member")),
        _ => Ok(()),
    }
}

/// The parts before and after the colon.
fn halves(text: &str) -> Parsed<(&str, &str)> {
    let (head, tail) = text.split_once(':').ok_or("expected a colon")?;
    Ok((head.trim(), tail.trim()))
}

/// The parts of `name(param, param; key=param) after`.
struct Signature<'a> {
    name: String,
    params: Vec<String>,
    bindings: Vec<(String, String)>,
    after: &'a str,
}

fn signature(text: &str) -> Parsed<Signature<'_>> {
    let expected = || format!("expected 'FUNCTION(PARAMETER, …)' at '{}'", text.trim());
    let (name, rest) = text.trim_start().split_once('(').ok_or_else(expected)?;
    let (inner, after) = rest.split_once(')').ok_or_else(expected)?;
    let (params, bindings) = inner.split_once(';').unwrap_or((inner, ""));
    let list = |text: &str| -> Vec<String> {
        text.split(',').map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
    };
    let params = list(params);
    if !is_name(name) || !params.iter().all(|param| is_name(param)) {
        return Err(expected());
    }
    let pair = |binding: String| {
        let (key, value) = binding.split_once('=').ok_or(format!("expected KEY=PARAMETER at '{binding}'"))?;
        Ok((key.trim().to_owned(), value.trim().to_owned()))
    };
    let bindings = list(bindings).into_iter().map(pair).collect::<Parsed<_>>()?;
    Ok(Signature { name: name.to_owned(), params, bindings, after })
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
