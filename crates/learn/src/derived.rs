//! Files of derived rows: which kernel they are for, and whether they fit.

use crate::flow::code::is_indirect;
use crate::program::Program;
use crate::rows::{Derived, derive};
use crate::summary::Summary;
use guardrail_binfmt::{Btf, KernelError, KernelImage, ModuleImage};
use guardrail_knowledge::table::{self, Head, Kind, Row, TableError};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use thiserror::Error;

/// The version of the deriver. Files of another version are derived anew.
pub const VERSION: u32 = 1;
/// How a file of derived rows begins.
const HEAD: &str = "# guardrail-derived";

/// Why nothing is derived, or a file of derived rows is of no use.
#[derive(Debug, Error)]
pub enum LearnError {
    /// An image that cannot be read, or has no types.
    #[error(transparent)]
    Image(#[from] KernelError),
    /// A row that makes no sense.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A file without the head of derived rows.
    #[error("{file} holds no derived rows: it does not begin with '{HEAD}'")]
    NoHead {
        /// The file.
        file: String,
    },
    /// A file of another version.
    #[error("{file} was derived by version {version}, and this is version {VERSION}; derive it again")]
    Version {
        /// The file.
        file: String,
        /// Its version, as it states it.
        version: String,
    },
    /// A file for another kernel.
    #[error("{file} was derived from kernel {has}, and the kernel is {wanted}")]
    Kernel {
        /// The file.
        file: String,
        /// The kernel that the file names.
        has: String,
        /// The kernel at hand.
        wanted: String,
    },
    /// A module of another kernel.
    #[error("{module} is for kernel {has}, and the kernel is {wanted}")]
    Module {
        /// The module.
        module: String,
        /// The kernel that the module names.
        has: String,
        /// The kernel at hand.
        wanted: String,
    },
    /// A row about a function that a written row describes otherwise.
    #[error("{file}, line {line}: '{derived}' contradicts what is written in knowledge/: '{written}'")]
    Contradiction {
        /// The file.
        file: String,
        /// The number of the line.
        line: usize,
        /// What the file states.
        derived: String,
        /// What `rights.txt` or `memory.txt` states.
        written: String,
    },
}

/// What was derived of a kernel and of modules.
pub struct Learned {
    release: String,
    identity: String,
    program: Program,
    /// By module, the kernel first.
    parts: Vec<(String, BTreeMap<String, Derived>)>,
    /// By function, the first part that has it.
    first: FxHashMap<String, usize>,
    /// Functions with a written row, and those of them whose row has no effect.
    written: BTreeSet<&'static str>,
    idle: BTreeSet<&'static str>,
}

/// A kernel as files of derived rows name it.
fn identity(image: &KernelImage) -> String {
    format!("{} {}", image.release(), image.build_id().unwrap_or("-"))
}

/// The functions of the kernel that have a written row.
fn written() -> BTreeSet<&'static str> {
    let rows = [Kind::Memory, Kind::Rights].into_iter().flat_map(Kind::rows);
    rows.filter(|row| row.head == Head::Function).flat_map(|row| row.names).collect()
}

/// The functions whose written row has no effect, with what stands behind the row: why it is right all the same.
pub fn idle() -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    let functions = |kind: Kind| kind.rows().filter(|row| row.head == Head::Function);
    let known: BTreeSet<&str> = functions(Kind::Rights).flat_map(|row| row.names).collect();
    // A row about rights replaces the one about memory.
    let memory = functions(Kind::Memory).map(move |mut row| {
        row.names.retain(|name| !known.contains(name));
        row
    });
    let idle = memory.chain(functions(Kind::Rights)).filter(is_idle);
    idle.flat_map(|row| row.names.clone().into_iter().map(move |name| (name, row.origin)))
}

fn is_idle(row: &Row<'_>) -> bool {
    row.effects.iter().all(|effect| effect.verb() == "nothing")
}

/// Whether a function has a written row; the variants of allocation functions are found by the plain name.
fn is_written(written: &BTreeSet<&str>, name: &str) -> bool {
    written.contains(name) || name.strip_suffix("_noprof").is_some_and(|plain| written.contains(plain))
}

impl Learned {
    /// Derives the rows of a kernel.
    pub fn new(image: &KernelImage) -> Learned {
        let (program, exports) = Program::new(image);
        let mut learned = Learned {
            release: image.release().to_owned(),
            identity: identity(image),
            program,
            parts: Vec::new(),
            first: FxHashMap::default(),
            written: written(),
            idle: idle().map(|(name, _)| name).collect(),
        };
        learned.add("vmlinux", image.btf(), exports);
        learned
    }

    /// Derives the rows of a module. The modules that it needs must have been added.
    pub fn module(&mut self, image: &ModuleImage) -> Result<(), LearnError> {
        let name = image.name();
        match image.release() {
            Some(release) if release == self.release => {}
            other => {
                return Err(LearnError::Module {
                    module: name,
                    has: other.unwrap_or("?").to_owned(),
                    wanted: self.release.clone(),
                });
            }
        }
        let kernel = &self.program.btf;
        let own = image.btf_bytes().and_then(|bytes| Btf::parse(bytes, Some(Arc::clone(kernel))).ok());
        let btf = own.map_or_else(|| Arc::clone(kernel), Arc::new);
        let exports = self.program.module(image, Arc::clone(&btf));
        self.add(&name, &btf, exports);
        Ok(())
    }

    fn add(&mut self, name: &str, btf: &Btf, exports: Vec<(String, Arc<Summary>)>) {
        let part = self.parts.len();
        for (function, _) in &exports {
            self.first.entry(function.clone()).or_insert(part);
        }
        let rows = exports
            .into_iter()
            .map(|(function, summary)| {
                let derived = derive(btf, &self.program.names, &function, &summary);
                (function, derived)
            })
            .collect();
        self.parts.push((name.to_owned(), rows));
    }

    /// What was derived of a function, whether it has a written row or not.
    pub fn function(&self, name: &str) -> Option<&Derived> {
        let (_, rows) = self.parts.get(*self.first.get(name)?)?;
        rows.get(name)
    }

    /// All functions with what was derived of them.
    pub fn functions(&self) -> impl Iterator<Item = (&str, &Derived)> {
        self.parts.iter().flat_map(|(_, rows)| rows).map(|(name, derived)| (name.as_str(), derived))
    }

    /// The file of derived rows, without functions that have a written row.
    pub fn text(&self) -> String {
        let mut text = format!("{HEAD} {VERSION}\n# kernel {}\n", self.identity);
        text += "# Derived from the code of the kernel and its modules. Written rows are not repeated.\n";
        for (module, rows) in &self.parts {
            let _ = write!(text, "\n# --- {module}\n\n");
            for (name, derived) in rows {
                if is_written(&self.written, name) {
                    // A row without effects still leaves its structures to references.
                    let idle = self.idle.contains(name.as_str());
                    if let Some(row) = derived.references().filter(|_| idle) {
                        text += row;
                        text.push('\n');
                    }
                    continue;
                }
                match derived {
                    Derived::Row(row) => text += row,
                    Derived::Undecided(why) => {
                        let _ = write!(text, "# no row for {name}: {why}");
                    }
                }
                text.push('\n');
            }
        }
        text
    }
}

/// Reads a file of derived rows. It must be for this kernel and of this version, and contradict no written row.
pub fn read<'a>(file: &str, text: &'a str, image: &KernelImage) -> Result<Vec<Row<'a>>, LearnError> {
    let mut lines = text.lines();
    let version = lines.next().and_then(|line| line.strip_prefix(HEAD)).map(str::trim);
    let Some(version) = version else { return Err(LearnError::NoHead { file: file.to_owned() }) };
    if version != VERSION.to_string() {
        return Err(LearnError::Version { file: file.to_owned(), version: version.to_owned() });
    }
    let has = lines.next().and_then(|line| line.strip_prefix("# kernel ")).unwrap_or_default();
    let wanted = identity(image);
    if has != wanted {
        return Err(LearnError::Kernel { file: file.to_owned(), has: has.to_owned(), wanted });
    }
    let rows = table::rows(Kind::Rights, file, text)?;
    let written: BTreeMap<&str, Row<'static>> = [Kind::Memory, Kind::Rights]
        .into_iter()
        .flat_map(Kind::rows)
        .filter(|row| row.head == Head::Function)
        .flat_map(|row| row.names.clone().into_iter().map(move |name| (name, row.clone())))
        .collect();
    for row in &rows {
        for name in &row.names {
            let plain = name.strip_suffix("_noprof").unwrap_or(name);
            let Some(known) = written.get(name).or_else(|| written.get(plain)) else { continue };
            // References to structures add to a row that has no effect.
            let added = is_idle(known) && row.effects.iter().all(|effect| effect.verb().ends_with("_ref"));
            if known.effects != row.effects && !added {
                return Err(LearnError::Contradiction {
                    file: file.to_owned(),
                    line: row.line,
                    derived: line(name, row),
                    written: line(plain, known),
                });
            }
        }
    }
    Ok(rows)
}

/// A row about one function as text.
fn line(name: &str, row: &Row<'_>) -> String {
    let effects: Vec<String> = row.effects.iter().map(|effect| effect.words.join(" ")).collect();
    format!("{name} ({}): {}", row.params.join(", "), effects.join(" ; "))
}

/// Whether the row of each function that a module calls is known: with a written row, with a derived row, or without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Functions with a written row.
    pub written: Vec<String>,
    /// Functions with a derived row.
    pub derived: Vec<String>,
    /// Functions without a row.
    pub none: Vec<String>,
}

impl Coverage {
    /// Whether each function has a row.
    pub fn is_complete(&self) -> bool {
        self.none.is_empty()
    }
}

/// What the rules of a kernel cover of the functions that a module calls.
pub fn coverage(learned: &Learned, image: &ModuleImage) -> Coverage {
    let mut coverage = Coverage::default();
    for name in calls(learned, image) {
        let list = match learned.function(&name) {
            _ if is_written(&learned.written, &name) => &mut coverage.written,
            Some(Derived::Row(_)) => &mut coverage.derived,
            _ => &mut coverage.none,
        };
        list.push(name);
    }
    coverage
}

/// The functions that a module calls or jumps to, and those of which it takes the address. What stands for a call by
/// pointer or a return does not count.
fn calls(learned: &Learned, image: &ModuleImage) -> BTreeSet<String> {
    const R_X86_64_PLT32: u32 = 4;
    let function = |name: &str| {
        is_written(&learned.written, name)
            || learned.function(name).is_some_and(|derived| !derived.lacks_prototype())
    };
    let mut functions: FxHashMap<&str, bool> = FxHashMap::default();
    let mut found = BTreeSet::new();
    for (index, section) in image.sections().enumerate().filter(|(_, section)| section.alloc) {
        for rela in image.relocations(index) {
            let Some(symbol) = image.symbols().get(rela.symbol).filter(|symbol| symbol.undefined) else {
                continue;
            };
            let name = image.symbol_name(symbol);
            if name.is_empty() || is_machinery(name) || found.contains(name) {
                continue;
            }
            let called = section.exec && rela.kind == R_X86_64_PLT32;
            if called || *functions.entry(name).or_insert_with(|| function(name)) {
                found.insert(name.to_owned());
            }
        }
    }
    found
}

/// Whether a symbol is no function of its own: what calls or returns by a register.
fn is_machinery(name: &str) -> bool {
    is_indirect(name) || name.starts_with("__x86_return_")
}
