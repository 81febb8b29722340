//! The tables of what kernel functions do: `memory.txt`, `locks.txt`, `dma.txt`, `reads.txt`, `rights.txt`,
//! `transact.txt` and `roles.txt` of each class.
//! `knowledge/README.md` describes the language.

#[cfg(test)]
mod tests;
mod verbs;

use crate::files;
use thiserror::Error;

/// What a table is about. A function has one row in the tables of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Allocation, definedness, device registers. A row has all that checkers know of the function's memory.
    /// Without a row, they use its prototype.
    Memory,
    /// Locks and the order of events, on top of the row about memory or the prototype.
    Locks,
    /// DMA mappings and DMA memory, on top of the others.
    Dma,
    /// What is read besides, on top of the others.
    Reads,
    /// The rights of a guarded driver. A row about a function replaces its row about memory.
    Rights,
    /// How calls are undone that are part of a transaction, or why they need not be.
    Transact,
    /// What functions are for. `*` at the beginning or the end of a name stands for anything.
    Roles,
}

impl Kind {
    /// The name of the file in each class.
    pub fn file(self) -> &'static str {
        match self {
            Kind::Memory => "memory.txt",
            Kind::Locks => "locks.txt",
            Kind::Dma => "dma.txt",
            Kind::Reads => "reads.txt",
            Kind::Rights => "rights.txt",
            Kind::Transact => "transact.txt",
            Kind::Roles => "roles.txt",
        }
    }

    /// The tables of this kind, with their paths from the repository's root.
    pub fn tables(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        files::named(self.file())
    }

    /// The rows of all classes. Panics at a row that makes no sense, which is a mistake in this repository. A
    /// test reads all rows.
    pub fn rows(self) -> impl Iterator<Item = Row<'static>> {
        self.tables()
            .flat_map(move |(path, text)| rows(self, path, text).unwrap_or_else(|error| panic!("{error}")))
    }
}

/// A row that makes no sense.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{file}, line {line}: {what}")]
pub struct TableError {
    /// The file of the table, as the caller named it.
    pub file: String,
    /// Number of the line, from 1.
    pub line: usize,
    /// What is wrong, and what was expected.
    pub what: String,
}

/// What a row is about. All but functions of the kernel stand only in `rights.txt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Functions of the kernel.
    Function,
    /// Functions of the driver, by the members `STRUCT.MEMBER` that hold them.
    Entry,
    /// Structures to which an argument of the driver's functions points.
    Argument,
    /// Structures to which an argument of the kernel's functions points, in addition to those functions' own rows.
    Handed,
    /// Structures to which the result of the driver's functions points.
    Returned,
    /// Structures that exist for a short time only: a pointer to one may be passed to the kernel during the call that
    /// brought it.
    Passing,
    /// Types of results of the driver's functions by their names in source, or members `STRUCT.MEMBER` that hold such
    /// functions, with what they return where they cannot be called.
    Result,
    /// Messages that an active driver receives, `PROTOCOL.MESSAGE`, with their payloads as parameters.
    Received,
    /// Messages that it emits.
    Emitted,
    /// Functions of the kernel that register something or undo that, in addition to their own rows.
    Undo,
    /// A structure, with those of its fields that the driver may write in place of parameters.
    Type,
    /// A type of objects, with their states in place of parameters; the first state is the initial one.
    States,
}

/// The words that begin a row about something other than functions of the kernel.
const HEADS: [(&str, Head); 11] = [
    ("entry ", Head::Entry),
    ("argument ", Head::Argument),
    ("handed ", Head::Handed),
    ("returned ", Head::Returned),
    ("passing ", Head::Passing),
    ("result ", Head::Result),
    ("received ", Head::Received),
    ("emitted ", Head::Emitted),
    ("undo ", Head::Undo),
    ("type ", Head::Type),
    ("states ", Head::States),
];

/// A row: functions, or structures, with the same parameters that do the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// Number of its line in the file, from 1.
    pub line: usize,
    /// What the names are.
    pub head: Head,
    /// The names of the functions or structures.
    pub names: Vec<&'a str>,
    /// Names of the parameters that the effects use, in their order.
    pub params: Vec<&'a str>,
    /// What the functions do, in the order of the line.
    pub effects: Vec<Clause<'a>>,
    /// Where the row comes from: what stands behind `#` at the end of the line; absent for rows that people wrote.
    pub origin: Option<&'a str>,
}

/// An effect of a row, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause<'a> {
    /// Whether `after` or `before` precedes the effect; absent where it has its usual time. Only in `rights.txt`.
    pub after: Option<bool>,
    /// The verb, its operands and its options.
    pub words: Vec<&'a str>,
    /// The condition behind `if`. Only in `rights.txt` and `transact.txt`.
    pub when: Option<&'a str>,
}

impl<'a> Clause<'a> {
    /// The first word.
    pub fn verb(&self) -> &'a str {
        self.words.first().copied().unwrap_or_default()
    }

    /// A word behind the verb; the first has index 1.
    pub fn word(&self, index: usize) -> Option<&'a str> {
        self.words.get(index).copied()
    }

    /// The value of an option.
    pub fn option(&self, name: &str) -> Option<&'a str> {
        self.words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    fn read(kind: Kind, text: &'a str, params: &[&str]) -> Result<Clause<'a>, String> {
        let mut clause = Clause { after: None, words: text.split_whitespace().collect(), when: None };
        if matches!(kind, Kind::Rights | Kind::Transact) {
            if let Some((text, when)) = text.split_once(" if ") {
                clause.words = text.split_whitespace().collect();
                clause.when = Some(when.trim());
            }
            clause.after =
                ["before", "after"].iter().position(|word| *word == clause.verb()).map(|at| at == 1);
            clause.words.drain(..usize::from(clause.after.is_some()));
        }
        verbs::check(kind, &clause, params)?;
        Ok(clause)
    }
}

impl Row<'_> {
    /// Whether calls of the functions are watched from all callers.
    pub fn is_everywhere(&self) -> bool {
        self.effects.iter().any(|effect| effect.words == ["everywhere"])
    }
}

/// Reads the rows of a table; `file` names it in errors.
pub fn rows<'a>(kind: Kind, file: &str, text: &'a str) -> Result<Vec<Row<'a>>, TableError> {
    let lines = (1..).zip(text.lines().map(str::trim));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            row(kind, number, line).map_err(|what| TableError { file: file.to_owned(), line: number, what })
        })
        .collect()
}

fn row(kind: Kind, line: usize, text: &str) -> Result<Row<'_>, String> {
    let (text, origin) = match text.split_once(" # ") {
        Some((text, origin)) => (text.trim_end(), Some(origin.trim())),
        None => (text, None),
    };
    let known = HEADS.iter().filter(|_| kind == Kind::Rights);
    let mut found = known.filter_map(|(word, head)| Some((*head, text.strip_prefix(word)?)));
    let (head, text) = found.next().unwrap_or((Head::Function, text));
    if matches!(head, Head::Type | Head::States) {
        let (name, words) =
            text.split_once(':').ok_or("such a row is 'type STRUCT: FIELD, …' or 'states TYPE: STATE, …'")?;
        return Ok(Row {
            line,
            head,
            names: vec![name.trim()],
            params: list(words),
            effects: Vec::new(),
            origin,
        });
    }
    let form = "a row is 'FUNCTION, … (PARAMETER, …): EFFECT ; …'";
    let (start, effects) = text.split_once("):").ok_or(form)?;
    let (names, params) = start.split_once('(').ok_or(form)?;
    let (names, params) = (list(names), list(params));
    if names.is_empty() {
        return Err(form.to_owned());
    }
    if head == Head::Entry && !names.iter().all(|name| name.contains('.')) {
        return Err("an entry is a member: STRUCT.MEMBER".to_owned());
    }
    let message = matches!(head, Head::Received | Head::Emitted);
    if message && !names.iter().all(|name| name.contains('.')) {
        return Err("a message has a protocol: PROTOCOL.MESSAGE".to_owned());
    }
    if params.contains(&"result") {
        return Err("no parameter is called 'result', which means what the function returns".to_owned());
    }
    let effects =
        effects.split(';').map(|text| Clause::read(kind, text, &params)).collect::<Result<_, _>>()?;
    Ok(Row { line, head, names, params, effects, origin })
}

fn list(text: &str) -> Vec<&str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect()
}
