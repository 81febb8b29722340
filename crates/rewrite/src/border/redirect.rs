//! Finds where a module and the kernel call each other, and leads these calls through thunks.

use super::data::Data;
use super::life::position;
use super::thunk::Thunks;
use super::{Entry, Interposition};
use crate::engine::code::Code;
use crate::engine::object::{Object, Section, reloc};
use crate::engine::tables;
use crate::error::{Result, refused};
use guardrail_abi as abi;
use iced_x86::FlowControl;
use std::collections::{BTreeMap, BTreeSet};

/// The section of thunks for calls to the kernel.
pub(crate) const CALLS: &str = ".text.guardrail.calls";
/// The section of thunks for calls to the module.
pub(crate) const ENTRIES: &str = ".text.guardrail.entries";
/// The section of thunks for functions that the kernel frees when the module's init function has returned.
pub(crate) const INIT_ENTRIES: &str = ".init.text.guardrail";
/// A part of the names of this crate's sections.
const OWN: &str = "guardrail";
/// Sections of code that the kernel makes or copies: a pointer to it means just that code.
const KERNELS: [&str; 3] = [".static_call.text", ".altinstr_replacement", ".altinstr_aux"];
/// The table of exported symbols, whose pointers are distances.
const EXPORTS: &str = "__ksymtab";

/// What interposition found and changed in a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Functions of the kernel that are called through thunks.
    pub imports: Vec<String>,
    /// Calls that go through these thunks.
    pub calls: usize,
    /// Functions of the module whose address is taken: all holders of the address call them through thunks.
    pub entries: Vec<String>,
    /// Places that hold these addresses.
    pub pointers: usize,
    /// Functions of the kernel with actions that are called from code that the kernel replaces: there they
    /// are called as they are.
    pub missed: BTreeSet<String>,
}

/// A relocation, by its section and its number there.
type RelocAt = (usize, usize);

/// A function or a variable of the kernel that the module imports (`struct guardrail_import`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Import {
    /// Its symbol.
    pub function: usize,
    /// The symbol of what a call by pointer leads to: its thunk, or the function itself; `None` for a variable.
    pub call: Option<usize>,
    /// Its prototype (`GUARDRAIL_PROTO_…`).
    pub proto: u32,
}

/// What the module may call by pointer, and how it is called.
#[derive(Default)]
pub(crate) struct Callable {
    /// Symbols of the thunks of its own functions, each with the number of the type of functions by which it is called.
    pub targets: Vec<(usize, u32)>,
    /// Functions and variables that it imports.
    pub imports: Vec<Import>,
    /// The symbol of the section with the descriptions of entries that can be transactions, and their offsets.
    pub transacts: (usize, Vec<u64>),
}

/// What is to be redirected.
#[derive(Default)]
struct Found {
    /// Branches to each function of the kernel that has actions, by its symbol and name. There are none where
    /// the module only takes the function's address.
    branches: BTreeMap<(usize, String), Vec<RelocAt>>,
    /// Pointers to functions of the module, by section and offset. Each has the distance from the relocation
    /// to what its own distance counts from.
    pointers: BTreeMap<(usize, u64), Vec<(RelocAt, i64)>>,
    missed: BTreeSet<String>,
}

/// Sections in which the kernel's macros mark init and exit functions, so that the linker keeps them.
const MARKS: [&str; 2] = [".init.data", ".exit.data"];

/// Leads calls through thunks; returns what the module may call by pointer. `hooks` are the init and exit
/// functions, which are entered otherwise.
pub(crate) fn interpose(
    object: &mut Object,
    domain: u8,
    what: &Interposition,
    hooks: &[usize],
) -> Result<(Done, Callable)> {
    if let Some(symbol) =
        object.symbols.iter().find(|symbol| symbol.function() && symbol.name.starts_with("__cfi_"))
    {
        return refused(
            &symbol.name,
            "the kernel checks indirect calls by types (kCFI), which thunks do not have",
        );
    }
    let functions = functions(object);
    let found = find(object, what, &functions, hooks)?;
    let mut done = Done { missed: found.missed, ..Done::default() };
    let mut data = Data::new(object, domain);
    let mut callable = Callable { imports: imports(object, what), ..Callable::default() };
    if !found.branches.is_empty() {
        let mut thunks = Thunks::new(object, &mut data);
        for (import, name) in found.branches.keys() {
            thunks.call(*import, &what.imports[name])?;
        }
        let thunks = thunks.place(CALLS)..;
        for (thunk, ((import, name), places)) in thunks.zip(found.branches) {
            let rows = callable.imports.iter_mut().filter(|row| row.function == import);
            rows.for_each(|row| row.call = Some(thunk));
            done.calls += places.len();
            for (section, number) in places {
                object.sections[section].relocs[number].symbol = thunk;
            }
            done.imports.push(name);
        }
    }
    for (section, init) in [(ENTRIES, false), (INIT_ENTRIES, true)] {
        let in_init = |place: &(usize, u64)| object.sections[place.0].name.starts_with(".init");
        let some: Vec<_> = found.pointers.iter().filter(|(place, _)| in_init(place) == init).collect();
        if some.is_empty() {
            continue;
        }
        let known: Vec<_> = some.iter().map(|(place, _)| entry_of(object, what, &functions[place])).collect();
        let mut thunks = Thunks::new(object, &mut data);
        for (symbol, name, entry) in &known {
            thunks.entry(*symbol, name, entry)?;
        }
        let thunks = thunks.place(section)..;
        for ((thunk, (_, pointers)), (_, name, entry)) in thunks.zip(some).zip(known) {
            callable.targets.push((thunk, entry.function));
            done.pointers += pointers.len();
            for ((section, number), bias) in pointers {
                let reloc = &mut object.sections[*section].relocs[*number];
                reloc.symbol = thunk;
                reloc.addend = -bias;
            }
            done.entries.push(name);
        }
    }
    let symbol = data.symbol();
    let descriptions = data.finish(object);
    callable.transacts = (symbol, if what.transacts { descriptions } else { Vec::new() });
    Ok((done, callable))
}

/// The functions of a module that the kernel may call, as far as the module's pointers show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryPoints {
    /// Those that are called through thunks, each with all its names.
    pub entries: Vec<Vec<String>>,
    /// Names of the init function.
    pub init: Vec<String>,
    /// Names of the exit function.
    pub exit: Vec<String>,
}

impl EntryPoints {
    /// Finds them in a stock module.
    pub fn of(object: &Object) -> Result<EntryPoints> {
        let functions = functions(object);
        let names = |place: &(usize, u64)| {
            let aliases = functions.get(place).into_iter().flatten();
            aliases.map(|symbol| object.symbols[*symbol].name.clone()).collect::<Vec<_>>()
        };
        let hook = |name: &str| {
            let this = object.section(tables::THIS)?;
            Some(object.sections[this].relocs[position(object, this, name)?].symbol)
        };
        let hooks = [tables::INIT, tables::EXIT].map(hook);
        let of = |symbol: Option<usize>| symbol.and_then(|symbol| object.target(symbol, 0));
        let [init, exit] = hooks.map(|symbol| of(symbol).map_or_else(Vec::new, |place| names(&place)));
        let hooks: Vec<usize> = hooks.into_iter().flatten().collect();
        let found = find(object, &Interposition::default(), &functions, &hooks)?;
        Ok(EntryPoints { entries: found.pointers.keys().map(names).collect(), init, exit })
    }
}

/// What the module imports: functions, with calls by pointer that lead to themselves, and variables. What checks name of
/// the runtime is not the module's to use.
fn imports(object: &Object, what: &Interposition) -> Vec<Import> {
    let undefined = object.symbols.iter().enumerate().filter(|(_, symbol)| symbol.undefined());
    let named =
        undefined.filter(|(_, symbol)| !symbol.name.is_empty() && !symbol.name.starts_with(abi::PREFIX));
    let known = named.map(|(number, symbol)| match what.callable.get(&symbol.name) {
        Some(callee) => Import { function: number, call: Some(number), proto: callee.proto },
        None => Import { function: number, call: None, proto: 0 },
    });
    known.collect()
}

/// What is known of a function with these symbols, of which there is at least one: its symbol and name, and
/// what to do.
fn entry_of<'a>(object: &Object, what: &'a Interposition, aliases: &[usize]) -> (usize, String, &'a Entry) {
    let names = aliases.iter().map(|&symbol| (symbol, object.symbols[symbol].name.clone()));
    let mut known = names.clone().filter_map(|(symbol, name)| {
        let entry = what.entries.get(&name)?;
        Some((symbol, name, entry))
    });
    known.next().unwrap_or_else(|| {
        let (symbol, name) = names.clone().next().unwrap_or_default();
        (symbol, name, &what.default_entry)
    })
}

/// Functions of the module whose pointers are pointers to functions, by section and offset.
fn functions(object: &Object) -> BTreeMap<(usize, u64), Vec<usize>> {
    let mut functions: BTreeMap<(usize, u64), Vec<usize>> = BTreeMap::new();
    for (number, symbol) in object.symbols.iter().enumerate().filter(|(_, symbol)| symbol.function()) {
        let Some(index) = symbol.section() else { continue };
        let section = &object.sections[index];
        if section.exec() && section.alloc() && !KERNELS.contains(&section.name.as_str()) && !own(section) {
            functions.entry((index, symbol.value)).or_default().push(number);
        }
    }
    functions
}

/// Whether this crate has added the section.
fn own(section: &Section) -> bool {
    section.name.split('.').any(|part| part == OWN)
}

/// Places that the module's variables point to: also init and exit may be called by others. Where they are just
/// marked, nobody reads their addresses.
fn called(object: &Object) -> BTreeSet<(usize, u64)> {
    let variables = object.sections.iter().filter(|section| {
        section.alloc()
            && !section.exec()
            && !tables::is_table(section)
            && section.name != tables::THIS
            && !MARKS.contains(&section.name.as_str())
            && !own(section)
    });
    let pointers = variables.flat_map(|section| &section.relocs).filter(|reloc| reloc.kind == reloc::ABS64);
    pointers.filter_map(|reloc| object.target(reloc.symbol, reloc.addend)).collect()
}

fn find(
    object: &Object,
    what: &Interposition,
    functions: &BTreeMap<(usize, u64), Vec<usize>>,
    hooks: &[usize],
) -> Result<Found> {
    let mut found = Found::default();
    let hooks: BTreeSet<_> = hooks.iter().filter_map(|&hook| object.target(hook, 0)).collect();
    let hooks: BTreeSet<_> = hooks.difference(&called(object)).copied().collect();
    let function = |symbol: usize, addend: i64| {
        let place = object.target(symbol, addend)?;
        (functions.contains_key(&place) && !hooks.contains(&place)).then_some(place)
    };
    let wrapped = |symbol: usize| {
        let symbol = &object.symbols[symbol];
        let wrapper = what.imports.get(&symbol.name).filter(|_| symbol.undefined())?;
        (!wrapper.before.is_empty() || !wrapper.after.is_empty()).then_some(&symbol.name)
    };
    // No right depends on what is done for transactions alone.
    let ruled = |name: &String| {
        let wrapper = &what.imports[name];
        let steps = wrapper.before.iter().chain(&wrapper.after);
        steps.clone().any(|step| !step.action.transacts()).then(|| name.clone())
    };
    // A function of which only the address is taken has a thunk as well.
    for import in imports(object, what) {
        if let Some(name) = wrapped(import.function) {
            found.branches.entry((import.function, name.clone())).or_default();
        }
    }
    for (index, section) in object.sections.iter().enumerate() {
        if !section.alloc() || own(section) {
            continue;
        }
        if tables::rewritten(section) {
            let code = Code::read(object, index, &tables::fixed(object, index)?)?;
            for insn in &code.insns {
                let branches = insn.insn.flow_control() != FlowControl::Next;
                for number in insn.relocs.start as usize..insn.relocs.end as usize {
                    let reloc = section.relocs[number];
                    let bias = insn.bias(&reloc);
                    if !branches {
                        if let Some(place) = function(reloc.symbol, reloc.addend.wrapping_add(bias)) {
                            found.pointers.entry(place).or_default().push(((index, number), bias));
                        }
                    } else if let Some(name) = wrapped(reloc.symbol) {
                        if insn.fixed {
                            found.missed.extend(ruled(name));
                        } else {
                            found
                                .branches
                                .entry((reloc.symbol, name.clone()))
                                .or_default()
                                .push((index, number));
                        }
                    }
                }
            }
        } else if section.exec() {
            let missed = section.relocs.iter().filter_map(|reloc| wrapped(reloc.symbol));
            found.missed.extend(missed.filter_map(ruled));
        } else if !tables::is_table(section) && section.name != tables::THIS {
            let exports = section.name.starts_with(EXPORTS);
            for (number, reloc) in section.relocs.iter().enumerate() {
                let pointer = reloc.kind == reloc::ABS64 || (exports && reloc.kind == reloc::PC32);
                if let Some(place) = function(reloc.symbol, reloc.addend).filter(|_| pointer) {
                    found.pointers.entry(place).or_default().push(((index, number), 0));
                }
            }
        }
    }
    Ok(found)
}
