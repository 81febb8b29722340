//! What calls between a guarded driver and the kernel do to the driver's rights.
//! The sources are `rights.txt` and, for functions without a row there, the memory effects of `memory.txt`, of all
//! classes. The types of one kernel and its modules resolve them.

mod functions;
mod messages;
mod operations;
mod received;
mod resolve;
mod transact;

pub use messages::{Boxes, boxes, protocols};

use guardrail_abi::{self as abi, Step};
use guardrail_binfmt::KernelImage;
use guardrail_binfmt::ModuleImage;
use guardrail_binfmt::btf::{Btf, Proto, Type};
use guardrail_binfmt::prototypes::{self, Prototypes};
use guardrail_knowledge::table::{self, Clause, Head, Kind, Row, TableError};
use messages::Messages;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, OnceLock};

/// What a call does to rights, before it and after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotation {
    /// Actions before the function is called.
    pub before: Vec<Step>,
    /// Actions when it has returned.
    pub after: Vec<Step>,
}

impl Annotation {
    /// Whether the call does nothing to rights.
    pub fn is_empty(&self) -> bool {
        self.before.is_empty() && self.after.is_empty()
    }

    fn extend(&mut self, more: Annotation) {
        self.before.extend(more.before);
        self.after.extend(more.after);
    }
}

/// How a function is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Words of arguments on the stack.
    pub stack_words: u8,
    /// Whether the number of arguments is not fixed.
    pub variadic: bool,
    /// The prototype, as far as calls differ (`GUARDRAIL_PROTO_…`).
    pub kinds: u32,
}

/// A member of a structure of function pointers, by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The name of the structure.
    pub structure: String,
    /// The name of the member.
    pub member: String,
}

/// The tables, resolved by types.
#[derive(Debug)]
pub struct Isolation<'a> {
    functions: BTreeMap<&'a str, Row<'a>>,
    entries: BTreeMap<Member, Row<'a>>,
    arguments: BTreeMap<&'a str, Row<'a>>,
    handed: BTreeMap<&'a str, Row<'a>>,
    returned: BTreeMap<&'a str, Row<'a>>,
    results: BTreeMap<&'a str, Row<'a>>,
    messages: Messages<'a>,
    undos: BTreeMap<&'a str, Row<'a>>,
    /// What undoes calls in transactions.
    transact: BTreeMap<&'a str, Row<'a>>,
    /// Structures to which no pointer is remembered.
    passing: BTreeSet<&'a str>,
    /// Functions that undo registrations, with the number of arguments that are noted.
    inverses: BTreeMap<&'a str, usize>,
    types: BTreeMap<&'a str, Vec<&'a str>>,
    states: BTreeMap<&'a str, Vec<&'a str>>,
    numbers: BTreeMap<&'a str, u32>,
    /// The functions that have a row about rights.
    own: BTreeSet<&'a str>,
    /// The functions that have only a derived row.
    derived: BTreeSet<&'a str>,
    btf: Vec<Arc<Btf>>,
    prototypes: Prototypes,
    needed: Prototypes,
    callbacks: OnceLock<HashSet<String>>,
}

/// The types of a driver's border.
#[derive(Clone, Debug, Default)]
pub struct Types {
    /// BTF of the driver, then of modules that it needs, then of the kernel. Functions and types are looked
    /// up in this order.
    pub btf: Vec<Arc<Btf>>,
    /// The driver's own functions, where it has no BTF but DWARF.
    pub prototypes: Prototypes,
    /// What modules export that it needs and that have no BTF but DWARF.
    pub needed: Prototypes,
    /// The messages of an active driver's protocols, `PROTOCOL.MESSAGE`, with the numbers of their boxes.
    pub messages: Boxes,
}

impl From<Vec<Arc<Btf>>> for Types {
    fn from(btf: Vec<Arc<Btf>>) -> Types {
        Types { btf, ..Types::default() }
    }
}

impl<'a> Isolation<'a> {
    /// Reads the tables of this program.
    pub fn built_in(types: impl Into<Types>) -> Result<Isolation<'static>, TableError> {
        Isolation::new(&Kind::Rights.tables().collect::<Vec<_>>(), types)
    }

    /// Reads the tables of this program for a driver and the modules that it needs. `derived` has rows for functions
    /// that these tables lack; where they have one with an effect, it is the one that counts.
    pub fn for_driver(
        kernel: &KernelImage,
        driver: &ModuleImage,
        needed: &[ModuleImage],
        derived: Vec<Row<'a>>,
    ) -> Result<Isolation<'a>, TableError> {
        let mut isolation: Isolation<'a> = Isolation::built_in(types(kernel, driver, needed))?;
        for row in derived.into_iter().filter(|row| row.head == Head::Function) {
            for name in row.names.clone() {
                let written = isolation.functions.get(name).or_else(|| isolation.functions.get(plain(name)));
                let idle = |row: &Row<'_>| row.effects.iter().all(|effect| effect.verb() == "nothing");
                match written {
                    Some(written) if !idle(written) => continue,
                    Some(_) => {}
                    None => _ = isolation.derived.insert(name),
                }
                isolation.functions.insert(name, row.clone());
            }
        }
        Ok(isolation)
    }

    /// Whether only a derived row says what a function does.
    pub fn is_derived(&self, name: &str) -> bool {
        self.derived.contains(name)
    }

    /// Reads tables of rights with their names, in place of those of this program.
    pub fn new(rights: &[(&str, &'a str)], types: impl Into<Types>) -> Result<Isolation<'a>, TableError> {
        let Types { btf, prototypes, needed, messages } = types.into();
        let mut isolation = Isolation {
            functions: BTreeMap::new(),
            entries: BTreeMap::new(),
            arguments: BTreeMap::new(),
            handed: BTreeMap::new(),
            returned: BTreeMap::new(),
            results: BTreeMap::new(),
            messages: Messages::new(messages),
            undos: BTreeMap::new(),
            transact: BTreeMap::new(),
            passing: BTreeSet::new(),
            inverses: BTreeMap::new(),
            types: BTreeMap::new(),
            states: BTreeMap::new(),
            numbers: abi::KINDS.into(),
            own: BTreeSet::new(),
            derived: BTreeSet::new(),
            btf,
            prototypes,
            needed,
            callbacks: OnceLock::new(),
        };
        let memory = Kind::Memory.tables().map(|table| (Kind::Memory, table));
        for (kind, (name, text)) in memory.chain(rights.iter().map(|table| (Kind::Rights, *table))) {
            for row in table::rows(kind, name, text)? {
                if kind == Kind::Rights && row.head == Head::Function {
                    isolation.own.extend(&row.names);
                }
                let line = row.line;
                isolation.add(row).map_err(|what| TableError { file: name.to_owned(), line, what })?;
            }
        }
        for row in Kind::Transact.rows() {
            isolation.transact.extend(row.names.iter().map(|name| (*name, row.clone())));
        }
        Ok(isolation)
    }

    fn add(&mut self, row: Row<'a>) -> Result<(), String> {
        let types = row.names.iter().copied().filter(|_| row.head == Head::States);
        for kind in row.effects.iter().flat_map(kinds).chain(types) {
            let kind = same_kind(kind);
            if self.number(kind).is_none() {
                if self.numbers.len() == abi::MAX_KINDS as usize {
                    return Err(format!("'{kind}' is one kind too many"));
                }
                self.numbers.insert(kind, 1 << self.numbers.len());
            }
        }
        for name in &row.names {
            let rows = match row.head {
                Head::Function => &mut self.functions,
                Head::Argument => &mut self.arguments,
                Head::Handed => &mut self.handed,
                Head::Returned => &mut self.returned,
                Head::Result => &mut self.results,
                Head::Received => &mut self.messages.received,
                Head::Emitted => &mut self.messages.emitted,
                Head::Undo => {
                    let undo = row.effects.iter().filter(|effect| effect.verb() == "undo");
                    self.inverses
                        .extend(undo.filter_map(|effect| Some((effect.word(1)?, effect.words.len() - 2))));
                    &mut self.undos
                }
                Head::Entry => {
                    if let Some(member) = member(name) {
                        self.entries.insert(member, row.clone());
                    }
                    continue;
                }
                Head::Passing => {
                    self.passing.insert(name);
                    continue;
                }
                Head::Type => {
                    self.types.entry(name).or_default().extend(&row.params);
                    continue;
                }
                Head::States => {
                    self.states.insert(name, row.params.clone());
                    continue;
                }
            };
            rows.insert(name, row.clone());
        }
        Ok(())
    }

    /// The number of a kind of allocation or a type of object.
    fn number(&self, kind: &str) -> Option<u32> {
        self.numbers.get(same_kind(kind)).copied()
    }

    /// The number of a state of a type of objects. `kind` may carry a state of its own behind a dot, which
    /// does not count.
    fn state(&self, kind: &str, state: &str) -> Option<u32> {
        let kind = kind.split_once('.').map_or(kind, |(kind, _)| kind);
        let number = self.states.get(kind)?.iter().position(|known| *known == state)?;
        u32::try_from(number).ok()
    }

    /// All kinds of allocations and types of objects, with their numbers.
    pub fn kinds(&self) -> impl Iterator<Item = (&str, u32)> {
        self.numbers.iter().map(|(name, number)| (*name, *number))
    }

    /// What a call of a function does; `None` where no table has a row for it.
    pub fn function(&self, name: &str) -> Option<Annotation> {
        let plain = plain(name);
        let row = self.functions.get(name).or_else(|| self.functions.get(plain))?;
        let proto = self.proto(name).or_else(|| self.proto(plain));
        Some(resolve::function(self, row, proto.as_ref(), &self.functions_taken(name)).0)
    }

    /// What any call of a function with arguments of these types does, even where no line covers the
    /// function.
    pub fn handed(&self, name: &str) -> Annotation {
        let mut annotation = Annotation::default();
        let proto = self.proto(name).or_else(|| self.proto(plain(name)));
        let own = self.functions.get(name).or_else(|| self.functions.get(plain(name)));
        let raw = own.map_or_else(Vec::new, |row| resolve::raw(row, proto.as_ref()));
        annotation.before.extend(received::called(&self.functions_taken(name), &raw));
        for param in proto.iter().flat_map(|proto| &proto.params) {
            let (Some(place), Some(structure)) = (param.register, structure_behind(&param.ty)) else {
                continue;
            };
            if raw.contains(&place) {
                continue;
            }
            if let Some(row) = self.handed.get(structure) {
                let before = resolve::argument(self, row, place, structure, false).0.before;
                // What is only read does no harm to others.
                let read = matches!(&param.ty, Type::Ptr(pointee) if pointee.is_const);
                annotation.before.extend(
                    before.into_iter().filter(|step| !read || !resolve::requires_reference(&step.action)),
                );
            }
        }
        annotation
    }

    /// What a call of a function registers with the kernel, or undoes, even where no other line covers the function.
    pub fn undo(&self, name: &str) -> Annotation {
        let plain = plain(name);
        let proto = self.proto(name).or_else(|| self.proto(plain));
        let row = self.undos.get(name).or_else(|| self.undos.get(plain));
        let mut annotation =
            row.map_or_else(Annotation::default, |row| resolve::function(self, row, proto.as_ref(), &[]).0);
        if let Some(values) = self.inverses.get(plain).filter(|_| annotation.before.is_empty()) {
            annotation.before.push(resolve::undone(plain, *values, proto.as_ref()).into());
        }
        annotation
    }

    /// How a function is called, if its prototype is known.
    pub fn shape(&self, name: &str) -> Option<Shape> {
        self.proto(name).or_else(|| self.proto(plain(name))).map(|proto| shape(&proto))
    }

    /// What a call of one of the driver's functions by the kernel does.
    /// The member of a structure that holds the function decides, where it is known. Otherwise the members
    /// with its prototype decide, if their lines agree. The types of its arguments add their effects.
    pub fn entry(&self, name: &str, members: &[Member]) -> Entry {
        let own = self.own_proto(name);
        let proto = own.or_else(|| members.iter().find_map(|member| self.member_proto(member)));
        let kernels = self.typed(members, proto.as_ref());
        let (brought, kept) = kernels.as_ref().map(|proto| self.brought(proto)).unwrap_or_default();
        let typed: Vec<_> = kernels.iter().flat_map(pointers).collect();
        let mut entry =
            Entry { shape: proto.as_ref().map(shape), pointers: brought, kept, ..Entry::default() };
        let mut fail = None;
        let mut known: BTreeSet<Member> =
            members.iter().filter(|member| self.entries.contains_key(member)).cloned().collect();
        if members.is_empty()
            && let Some(proto) = &proto
        {
            known = self.alike(proto);
        }
        let returned = proto.as_ref().and_then(|proto| structure_behind(&proto.result));
        let returned = returned.and_then(|structure| self.returned.get(structure));
        for row in known.iter().filter_map(|member| self.entries.get(member)).chain(returned) {
            entry.annotation.extend(resolve::entry(self, row, proto.as_ref()).0);
            fail = fail.or_else(|| resolve::fail(row));
        }
        entry.fail = fail.unwrap_or_else(|| self.failure(members, proto.as_ref()));
        entry.members = known.into_iter().collect();
        for (place, structure) in proto.iter().flat_map(pointers) {
            let kernels = typed.contains(&(place, structure.clone()));
            let named = structure.as_ref().filter(|_| kernels);
            let found = named.and_then(|name| Some((name, self.arguments.get(&**name)?)));
            if let Some((structure, row)) = found {
                entry.annotation.extend(resolve::argument(self, row, place, structure, true).0);
            } else if entry.members.is_empty() {
                entry.unknown.push(place);
            }
        }
        if !entry.annotation.is_empty() || !entry.pointers.is_empty() {
            entry.function = kernels.or(proto).as_ref().map_or(0, functions::number);
        }
        entry
    }

    /// What a function returns where it cannot be called and no row of its own says it. The rows about results by member
    /// decide, then those by the names of its type. Other integers with a sign report an error.
    fn failure(&self, members: &[Member], proto: Option<&Proto>) -> i64 {
        let Some(proto) = proto else { return 0 };
        let fitting: Vec<Member> = match members {
            [] => self
                .results
                .keys()
                .filter_map(|name| member(name))
                .filter(|known| self.fits(known, proto))
                .collect(),
            known => known.to_vec(),
        };
        let members = fitting.iter().map(|member| format!("{}.{}", member.structure, member.member));
        let mut names = members.chain(proto.result_names.iter().cloned());
        let row = names.find_map(|name| self.results.get(&*name)).and_then(resolve::fail);
        let signed = matches!(proto.result, Type::Int { bits: 32 | 64, signed: true });
        row.unwrap_or(if signed { FAILED } else { 0 })
    }

    /// Whether a member of a structure holds functions with this prototype.
    fn fits(&self, member: &Member, proto: &Proto) -> bool {
        self.member_proto(member).is_some_and(|other| functions::same(proto, &other))
    }

    /// The prototype of one of the driver's functions.
    fn own_proto(&self, name: &str) -> Option<Proto> {
        match self.prototypes.is_empty() {
            true => self.btf.first()?.func_proto(name),
            false => self.prototypes.get(name).cloned(),
        }
    }

    /// The first member with this prototype, if the lines of all such members have the same effects; else
    /// none.
    fn alike(&self, proto: &Proto) -> BTreeSet<Member> {
        let fitting = |member: &&Member| self.fits(member, proto);
        let found: Vec<&Member> = self.entries.keys().filter(fitting).collect();
        let effects = |member: &Member| &self.entries[member].effects;
        match found.first() {
            Some(first) if found.iter().all(|member| effects(member) == effects(first)) => {
                BTreeSet::from([(*first).clone()])
            }
            _ => BTreeSet::new(),
        }
    }

    /// Effects and fields that this kernel does not know, each with the name that has it. Of functions, only those
    /// with a row about rights count. Most belong to other kernels.
    pub fn left_out(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut note = |of: &str, what: Vec<String>| {
            found.extend(what.into_iter().map(|what| format!("{of}: {what}")));
        };
        for (name, row) in self.functions.iter().filter(|(name, _)| self.own.contains(*name)) {
            let proto = self.proto(name).or_else(|| self.proto(&format!("{name}_noprof")));
            // Assembly has no type, and needs none.
            let found = resolve::function(self, row, proto.as_ref(), &[]);
            let none = proto.is_none() && !found.0.is_empty();
            note(name, if none { vec!["no such function".to_owned()] } else { found.1 });
        }
        for (name, row) in &self.undos {
            let proto = self.proto(name);
            note(
                name,
                proto
                    .as_ref()
                    .map_or_else(Vec::new, |proto| resolve::function(self, row, Some(proto), &[]).1),
            );
            // Most are functions of modules, which may be absent. Then what undoes them is as well.
            let known = row.names.iter().any(|name| self.proto(name).is_some());
            let undoes =
                row.effects.iter().filter_map(|effect| effect.word(1)).any(|name| self.proto(name).is_some());
            note(name, if undoes && !known { vec!["no such function".to_owned()] } else { Vec::new() });
        }
        for (member, row) in &self.entries {
            let proto = self.member_proto(member);
            let none = proto.is_none().then(|| vec!["no such member".to_owned()]);
            let left = none.unwrap_or_else(|| resolve::entry(self, row, proto.as_ref()).1);
            note(&format!("{}.{}", member.structure, member.member), left);
        }
        for (name, row) in self.arguments.iter().chain(&self.handed).chain(&self.returned) {
            let none = self.structure(name).is_none().then(|| vec!["no such structure".to_owned()]);
            note(name, none.unwrap_or_else(|| resolve::argument(self, row, 0, name, true).1));
        }
        for name in self.results.keys() {
            let known = match member(name) {
                Some(member) => self.member_proto(&member).is_some(),
                None => self.btf.iter().any(|btf| btf.names_result(name)),
            };
            note(name, if known { Vec::new() } else { vec!["no such result".to_owned()] });
        }
        for (name, fields) in &self.types {
            let structure = self.structure(of_set(name));
            let absent =
                |field: &&&str| structure.is_none_or(|(btf, id)| resolve::place(btf, id, field).is_none());
            note(name, fields.iter().filter(absent).map(|field| (*field).to_owned()).collect());
        }
        found
    }

    fn member_proto(&self, member: &Member) -> Option<Proto> {
        let (btf, id) = self.structure(&member.structure)?;
        btf.pointed_proto(btf.member(id, &member.member)?.1)
    }

    fn proto(&self, name: &str) -> Option<Proto> {
        let types = self.btf.iter().rev().find_map(|btf| btf.func_proto(name));
        types.or_else(|| self.needed.get(name).cloned())
    }

    /// A structure, and the types that know it.
    fn structure(&self, name: &str) -> Option<(&Btf, u32)> {
        self.btf.iter().rev().find_map(|btf| Some((&**btf, btf.struct_named(name)?)))
    }
}

/// The types of a driver's border: its own, those of the modules that it needs, and the kernel's.
pub fn types(kernel: &KernelImage, driver: &ModuleImage, needed: &[ModuleImage]) -> Types {
    // A module whose types cannot be read counts as one without types.
    let of = |module: &ModuleImage| {
        Some(Arc::new(Btf::parse(module.btf_bytes()?, Some(Arc::clone(kernel.btf()))).ok()?))
    };
    let own = of(driver);
    let prototypes = if own.is_some() { Prototypes::new() } else { prototypes::of_module(driver) };
    let typed: Vec<Arc<Btf>> = needed.iter().filter_map(of).collect();
    let bare = needed.iter().filter(|module| of(module).is_none());
    let needed = bare.flat_map(prototypes::exported_of).collect();
    let btf = own.into_iter().chain(typed).chain([Arc::clone(kernel.btf())]).collect();
    Types { btf, prototypes, needed, messages: messages::boxes(driver) }
}

/// What a call of one of the driver's functions does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The actions before and after the call.
    pub annotation: Annotation,
    /// How it is called; `None` if that is not known.
    pub shape: Option<Shape>,
    /// What it returns where it cannot be called, or was ended.
    pub fail: i64,
    /// The members whose rows were taken.
    pub members: Vec<Member>,
    /// Arguments that point to memory that no row covers.
    pub unknown: Vec<u8>,
    /// Arguments that are pointers to structures and functions.
    pub pointers: Vec<u8>,
    /// Those among them that may be passed back after the call.
    pub kept: Vec<u8>,
    /// The number of the type of functions by which it has to be called; 0 where a call brings the driver nothing.
    pub function: u32,
}

/// The kinds of allocations and types of objects that an effect names.
fn kinds<'a>(effect: &Clause<'a>) -> impl Iterator<Item = &'a str> + use<'a> {
    let index = match effect.verb() {
        "own" | "create_object" => 3,
        "disown" | "free" | "require_object" | "move_object" | "destroy_object" | "forget_object" => 2,
        "alloc" => 1,
        _ => usize::MAX,
    };
    let names = effect.word(index).into_iter().flat_map(|word| word.split('|'));
    names.map(|name| name.split_once('.').map_or(name, |(kind, _)| kind))
}

/// Words of the stack that are passed on to a function with any number of arguments. Formats with more are very rare,
/// and what stands there in their place are words of the caller's own stack.
const VARIADIC_WORDS: u8 = 16;

/// What functions that return a number with a sign return where they cannot be called (`-EIO`).
const FAILED: i64 = -5;

/// A member by its name `STRUCT.MEMBER`.
fn member(name: &str) -> Option<Member> {
    let (structure, member) = name.split_once('.')?;
    Some(Member { structure: structure.to_owned(), member: member.to_owned() })
}

/// The structure that a pointer points to.
fn structure_behind(ty: &Type) -> Option<&str> {
    match ty {
        Type::Ptr(pointee) => pointee.struct_name.as_deref(),
        _ => None,
    }
}

/// The structure of a set of fields: `urb.device` is a set of `urb`.
fn of_set(name: &str) -> &str {
    name.split_once('.').map_or(name, |(structure, _)| structure)
}

/// `kfree` also frees objects of caches with names, so both are one kind.
fn same_kind(kind: &str) -> &str {
    if kind == "cache" { "slab" } else { kind }
}

/// The name in source of an allocation function (6.10 and later).
fn plain(name: &str) -> &str {
    name.strip_suffix("_noprof").unwrap_or(name)
}

fn shape(proto: &Proto) -> Shape {
    let words = proto.params.iter().filter(|param| param.register.is_none()).map(|param| match param.ty {
        Type::Aggregate { size } => size.div_ceil(8).min(255) as u8,
        _ => 1,
    });
    let words = words.fold(if proto.variadic { VARIADIC_WORDS } else { 0 }, u8::saturating_add);
    Shape { stack_words: words, variadic: proto.variadic, kinds: kinds_of(proto) }
}

/// The kinds of a prototype's parameters, as the runtime compares them; 0 where there are too many.
fn kinds_of(proto: &Proto) -> u32 {
    let params = &proto.params;
    if params.len() > abi::PROTO_MOST as usize {
        return 0;
    }
    let variadic = if proto.variadic { abi::PROTO_VARIADIC } else { 0 };
    let kinds = params.iter().map(|param| match param.ty {
        Type::Int { .. } => abi::PROTO_NUMBER,
        Type::Ptr(_) => abi::PROTO_POINTER,
        _ => abi::PROTO_OTHER,
    });
    let kinds = (abi::PROTO_SHIFT..).step_by(2).zip(kinds).fold(0, |all, (at, kind)| all | kind << at);
    abi::PROTO_KNOWN | variadic | params.len() as u32 | kinds
}

/// The arguments in registers that point to what can be written, each with the name of the structure there.
/// `void` pointers are left out: they point to the driver's own data, which it gave with the function.
fn pointers(proto: &Proto) -> Vec<(u8, Option<String>)> {
    let named = proto.params.iter().filter_map(|param| match &param.ty {
        Type::Ptr(pointee) if !pointee.is_const && !pointee.is_func && !pointee.is_void => {
            Some((param.register?, pointee.struct_name.clone()))
        }
        _ => None,
    });
    named.collect()
}

#[cfg(test)]
mod tests;
