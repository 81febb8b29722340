//! The tables of what kernel functions do: `memory.txt`, `locks.txt` and `dma.txt` of each class.
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
}

impl Kind {
    /// The name of the file in each class.
    pub fn file(self) -> &'static str {
        match self {
            Kind::Memory => "memory.txt",
            Kind::Locks => "locks.txt",
            Kind::Dma => "dma.txt",
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

/// A row: functions with the same parameters that do the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// The names of the functions.
    pub names: Vec<&'a str>,
    /// Names of the parameters that the effects use, in their order.
    pub params: Vec<&'a str>,
    /// What the functions do: each effect as its words, the verb first.
    pub effects: Vec<Vec<&'a str>>,
}

impl Row<'_> {
    /// Whether calls of the functions are watched from all callers.
    pub fn is_everywhere(&self) -> bool {
        self.effects.iter().any(|words| words == &["everywhere"])
    }
}

/// Reads the rows of a table; `file` names it in errors.
pub fn rows<'a>(kind: Kind, file: &str, text: &'a str) -> Result<Vec<Row<'a>>, TableError> {
    let lines = (1..).zip(text.lines().map(str::trim));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            row(kind, line).map_err(|what| TableError { file: file.to_owned(), line: number, what })
        })
        .collect()
}

fn row(kind: Kind, line: &str) -> Result<Row<'_>, String> {
    let form = "a row is 'FUNCTION, … (PARAMETER, …): EFFECT ; …'";
    let (head, effects) = line.split_once("):").ok_or(form)?;
    let (names, params) = head.split_once('(').ok_or(form)?;
    let row = Row {
        names: list(names),
        params: list(params),
        effects: effects.split(';').map(|effect| effect.split_whitespace().collect()).collect(),
    };
    if row.names.is_empty() {
        return Err(form.to_owned());
    }
    for words in &row.effects {
        verbs::check(kind, words, &row.params)?;
    }
    Ok(row)
}

fn list(text: &str) -> Vec<&str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect()
}
