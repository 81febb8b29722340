//! The grammar of the tables (docs/use/annotations.md).

use super::Member;

/// A line of a table that is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{table}, line {line}: {why}")]
pub struct AnnotationError {
    table: String,
    line: usize,
    why: String,
}

/// A line of a table.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Its number in the file, from 1.
    number: usize,
    /// What the line is about.
    pub head: Head,
    /// The names of the parameters.
    pub params: Vec<String>,
    /// What a call does, in the order of the line.
    pub effects: Vec<Effect>,
}

impl Line {
    /// The kernel's functions that it is for; empty for other lines.
    pub fn functions(&self) -> &[String] {
        match &self.head {
            Head::Functions(names) => names,
            _ => &[],
        }
    }

    pub fn error(&self, table: &str, why: String) -> AnnotationError {
        AnnotationError { table: table.to_owned(), line: self.number, why }
    }
}

/// What a line is about.
#[derive(Clone, Debug)]
pub(super) enum Head {
    /// Functions of the kernel.
    Functions(Vec<String>),
    /// Members of structures of function pointers.
    Entries(Vec<Member>),
    /// Structures to which an argument of the driver's functions points.
    Arguments(Vec<String>),
    /// Structures to which an argument of the kernel's functions points, in addition to those functions' own
    /// lines.
    Handed(Vec<String>),
    /// Structures to which the result of the driver's functions points.
    Returned(Vec<String>),
    /// A structure, and those of its fields that may be written.
    Type(String, Vec<String>),
    /// A type of objects, and the states in which one can be; the first state is the initial one.
    States(String, Vec<String>),
}

/// One effect of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Effect {
    /// Whether the effect is after the call; `None` where the line has neither "before" nor "after".
    pub after: Option<bool>,
    /// The verb, and the words that follow it.
    pub words: Vec<String>,
    /// The condition behind "if".
    pub when: Option<String>,
}

/// Effects, with how many words must follow them and how many may.
const EFFECTS: [(&str, usize, usize); 36] = [
    ("grant", 2, 2),
    ("revoke", 2, 2),
    ("require_write", 2, 2),
    ("lend", 2, 2),
    ("own", 3, 3),
    ("disown", 2, 2),
    ("grant_fields", 2, 2),
    ("revoke_fields", 2, 2),
    ("create_object", 3, 3),
    ("require_object", 2, 2),
    ("move_object", 3, 3),
    ("destroy_object", 2, 2),
    ("forget_object", 2, 2),
    ("require_call", 1, 1),
    ("exit", 0, 0),
    ("custom", 1, 3),
    ("instead", 1, 3),
    ("alloc", 2, 6),
    ("free", 2, 3),
    ("take", 1, 1),
    ("define", 2, 2),
    ("copy", 3, 3),
    ("nothing", 0, 0),
    ("raw", 1, 1),
    // These effects say nothing about rights.
    ("cache", 1, 1),
    ("read", 2, 2),
    ("touser", 2, 2),
    ("putuser", 1, 1),
    ("output", 2, 3),
    ("input", 2, 2),
    ("todevice", 3, 3),
    ("dmamap", 3, 3),
    ("grow", 1, 1),
    ("escape", 1, 1),
    ("everywhere", 0, 0),
    ("fail", 1, 1),
];

impl Effect {
    /// The verb: the first word of the effect.
    pub fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// A word behind the verb; the first has index 1.
    pub fn word(&self, index: usize) -> Option<&str> {
        self.words.get(index).map(String::as_str)
    }

    /// The value of an option.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// The kinds of allocations and types of objects that the effect names.
    pub fn kinds(&self) -> Vec<String> {
        let word = match self.name() {
            "own" | "create_object" => self.word(3),
            "disown" | "free" | "require_object" | "move_object" | "destroy_object" | "forget_object" => {
                self.word(2)
            }
            "alloc" => self.word(1),
            _ => None,
        };
        let names = word.iter().flat_map(|word| word.split('|'));
        names.map(|name| name.split_once('.').map_or(name, |(kind, _)| kind).to_owned()).collect()
    }

    fn parse(text: &str) -> Result<Effect, String> {
        let (text, when) = match text.split_once(" if ") {
            Some((text, when)) => (text, Some(when.trim().to_owned())),
            None => (text, None),
        };
        let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let after = match words.first().map(String::as_str) {
            Some("before") => Some(false),
            Some("after") => Some(true),
            _ => None,
        };
        if after.is_some() {
            words.remove(0);
        }
        let name = words.first().ok_or("an effect is missing")?;
        let Some((_, least, most)) = EFFECTS.iter().find(|(known, ..)| known == name) else {
            return Err(format!("'{name}' is no effect"));
        };
        if !(*least..=*most).contains(&(words.len() - 1)) {
            let range = if least == most { format!("{least}") } else { format!("{least} to {most}") };
            return Err(format!("{range} words follow '{name}', and not {}", words.len() - 1));
        }
        if name == "fail" && words[1].parse::<i64>().is_err() {
            return Err(format!("'fail {}' names no decimal number", words[1]));
        }
        Ok(Effect { after, words, when })
    }
}

/// Reads the lines of a table; `table` names it in errors.
pub(super) fn lines(table: &str, text: &str) -> Result<Vec<Line>, AnnotationError> {
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let parsed = parse(index + 1, line);
        lines.push(parsed.map_err(|why| AnnotationError {
            table: table.to_owned(),
            line: index + 1,
            why,
        })?);
    }
    Ok(lines)
}

fn parse(number: usize, line: &str) -> Result<Line, String> {
    for (word, states) in [("type ", false), ("states ", true)] {
        let Some(rest) = line.strip_prefix(word) else { continue };
        let form = format!("what follows '{}' is 'NAME: WORD, …'", word.trim());
        let (name, words) = rest.split_once(':').ok_or(form)?;
        let (name, words) = (name.trim().to_owned(), list(words));
        let head = if states { Head::States(name, words) } else { Head::Type(name, words) };
        return Ok(Line { number, head, params: Vec::new(), effects: Vec::new() });
    }
    let form = "a line is 'NAME (PARAMETER, …): EFFECT; …'";
    let (head, effects) = line.split_once("):").ok_or(form)?;
    let (names, params) = head.split_once('(').ok_or(form)?;
    let head = if let Some(names) = names.strip_prefix("entry ") {
        let member = |name: String| {
            let (structure, member) = name.split_once('.').ok_or("an entry is a member: STRUCT.MEMBER")?;
            Ok(Member { structure: structure.to_owned(), member: member.to_owned() })
        };
        Head::Entries(list(names).into_iter().map(member).collect::<Result<_, String>>()?)
    } else if let Some(names) = names.strip_prefix("argument ") {
        Head::Arguments(list(names))
    } else if let Some(names) = names.strip_prefix("handed ") {
        Head::Handed(list(names))
    } else if let Some(names) = names.strip_prefix("returned ") {
        Head::Returned(list(names))
    } else {
        Head::Functions(list(names))
    };
    let effects = effects.split(';').map(Effect::parse).collect::<Result<_, _>>()?;
    let params = list(params);
    if params.iter().any(|param| param == "result") {
        return Err("no parameter is called 'result', which means what the function returns".into());
    }
    Ok(Line { number, head, params, effects })
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}
