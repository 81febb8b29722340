//! What calls between a guarded driver and the kernel do to the driver's rights.
//! The sources are the table `isolation.txt`, and the memory effects of `memory.txt` in each class. The types
//! of one kernel and its modules resolve them.

mod parse;
mod resolve;

pub use parse::AnnotationError;

use guardrail_abi::{self as abi, Step};
use guardrail_binfmt::KernelImage;
use guardrail_binfmt::ModuleImage;
use guardrail_binfmt::btf::{Btf, Proto, Type};
use guardrail_binfmt::prototypes::{self, Prototypes};
use guardrail_knowledge::table::Kind;
use parse::{Head, Line};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const TEXT: &str = include_str!("../isolation.txt");

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
    /// Whether the result is an `int`, which reports errors by negative numbers.
    pub int: bool,
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
pub struct Isolation {
    functions: BTreeMap<String, Vec<Line>>,
    entries: BTreeMap<Member, Vec<Line>>,
    arguments: BTreeMap<String, Vec<Line>>,
    handed: BTreeMap<String, Vec<Line>>,
    returned: BTreeMap<String, Vec<Line>>,
    types: BTreeMap<String, Vec<String>>,
    states: BTreeMap<String, Vec<String>>,
    numbers: BTreeMap<String, u32>,
    /// The functions of the last table.
    own: BTreeSet<String>,
    btf: Vec<Arc<Btf>>,
    prototypes: Prototypes,
}

/// The types of a driver's border.
#[derive(Clone, Debug, Default)]
pub struct Types {
    /// BTF of the driver, then of modules that it needs, then of the kernel. Functions and types are looked
    /// up in this order.
    pub btf: Vec<Arc<Btf>>,
    /// The driver's own functions, where it has no BTF but DWARF.
    pub prototypes: Prototypes,
}

impl From<Vec<Arc<Btf>>> for Types {
    fn from(btf: Vec<Arc<Btf>>) -> Types {
        Types { btf, ..Types::default() }
    }
}

impl Isolation {
    /// Reads the tables of this program.
    pub fn built_in(types: impl Into<Types>) -> Result<Isolation, AnnotationError> {
        Isolation::with_table(("isolation.txt", TEXT), types)
    }

    /// Reads the tables of this program for a driver and the modules that it needs.
    pub fn for_driver(
        kernel: &KernelImage,
        driver: &ModuleImage,
        needed: &[ModuleImage],
    ) -> Result<Isolation, AnnotationError> {
        Isolation::built_in(types(kernel, driver, needed))
    }

    /// Reads the tables of this program with another table in place of `isolation.txt`.
    pub fn with_table(table: (&str, &str), types: impl Into<Types>) -> Result<Isolation, AnnotationError> {
        let mut tables = vec![];
        for memory in Kind::Memory.tables() {
            tables.push(memory);
        }
        tables.push(table);
        Isolation::new(&tables, types)
    }

    /// Reads tables with their names. A table's lines about a function replace the lines of those before it.
    pub fn new(tables: &[(&str, &str)], types: impl Into<Types>) -> Result<Isolation, AnnotationError> {
        let Types { btf, prototypes } = types.into();
        let mut isolation = Isolation {
            functions: BTreeMap::new(),
            entries: BTreeMap::new(),
            arguments: BTreeMap::new(),
            handed: BTreeMap::new(),
            returned: BTreeMap::new(),
            types: BTreeMap::new(),
            states: BTreeMap::new(),
            numbers: abi::KINDS.map(|(name, number)| (name.to_owned(), number)).into(),
            own: BTreeSet::new(),
            btf,
            prototypes,
        };
        for (name, text) in tables {
            let lines = parse::lines(name, text)?;
            isolation.own = lines.iter().flat_map(Line::functions).cloned().collect();
            isolation.functions.retain(|function, _| !isolation.own.contains(function));
            for line in lines {
                isolation.add(name, line)?;
            }
        }
        Ok(isolation)
    }

    fn add(&mut self, table: &str, line: Line) -> Result<(), AnnotationError> {
        let named = match &line.head {
            Head::States(name, _) => vec![name.clone()],
            _ => Vec::new(),
        };
        for kind in line.effects.iter().flat_map(parse::Effect::kinds).chain(named) {
            let kind = same_kind(&kind).to_owned();
            if self.number(&kind).is_none() {
                if self.numbers.len() == abi::MAX_KINDS as usize {
                    return Err(line.error(table, format!("'{kind}' is one kind too many")));
                }
                self.numbers.insert(kind, 1 << self.numbers.len());
            }
        }
        match &line.head {
            Head::Functions(names) => {
                for name in names.clone() {
                    self.functions.entry(name).or_default().push(line.clone());
                }
            }
            Head::Entries(members) => {
                for member in members.clone() {
                    self.entries.entry(member).or_default().push(line.clone());
                }
            }
            Head::Arguments(types) => add_to(&mut self.arguments, types, &line),
            Head::Handed(types) => add_to(&mut self.handed, types, &line),
            Head::Returned(types) => add_to(&mut self.returned, types, &line),
            Head::Type(name, fields) => {
                self.types.entry(name.clone()).or_default().extend(fields.iter().cloned());
            }
            Head::States(name, states) => {
                self.states.insert(name.clone(), states.clone());
            }
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
        let number = self.states.get(kind)?.iter().position(|known| known == state)?;
        u32::try_from(number).ok()
    }

    /// All kinds of allocations and types of objects, with their numbers.
    pub fn kinds(&self) -> impl Iterator<Item = (&str, u32)> {
        self.numbers.iter().map(|(name, number)| (name.as_str(), *number))
    }

    /// What a call of a function does; `None` where no table has a line for it.
    pub fn function(&self, name: &str) -> Option<Annotation> {
        let plain = plain(name);
        let lines = self.functions.get(name).or_else(|| self.functions.get(plain))?;
        let proto = self.proto(name).or_else(|| self.proto(plain));
        let mut annotation = Annotation::default();
        for line in lines {
            annotation.extend(resolve::function(self, line, proto.as_ref()).0);
        }
        if proto.is_some_and(|proto| proto.variadic) {
            annotation.after.clear();
        }
        Some(annotation)
    }

    /// What any call of a function with arguments of these types does, even where no line covers the
    /// function.
    pub fn handed(&self, name: &str) -> Annotation {
        let mut annotation = Annotation::default();
        let proto = self.proto(name).or_else(|| self.proto(plain(name)));
        let own = self.functions.get(name).or_else(|| self.functions.get(plain(name)));
        let raw: Vec<u8> =
            own.into_iter().flatten().flat_map(|line| resolve::raw(line, proto.as_ref())).collect();
        for param in proto.iter().flat_map(|proto| &proto.params) {
            let (Some(place), Some(structure)) = (param.register, structure_behind(&param.ty)) else {
                continue;
            };
            if raw.contains(&place) {
                continue;
            }
            for line in self.handed.get(structure).into_iter().flatten() {
                annotation.before.extend(resolve::argument(self, line, place, structure, false).0.before);
            }
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
        let mut entry = Entry { shape: proto.as_ref().map(shape), ..Entry::default() };
        let mut known: BTreeSet<Member> =
            members.iter().filter(|member| self.entries.contains_key(member)).cloned().collect();
        if members.is_empty()
            && let Some(proto) = &proto
        {
            known = self.alike(proto);
        }
        for line in known.iter().filter_map(|member| self.entries.get(member)).flatten() {
            entry.annotation.extend(resolve::entry(self, line, proto.as_ref()).0);
            entry.fail = entry.fail.or_else(|| resolve::fail(line));
        }
        let returned = proto.as_ref().and_then(|proto| structure_behind(&proto.result));
        for line in returned.and_then(|structure| self.returned.get(structure)).into_iter().flatten() {
            entry.annotation.extend(resolve::entry(self, line, proto.as_ref()).0);
            entry.fail = entry.fail.or_else(|| resolve::fail(line));
        }
        entry.members = known.into_iter().collect();
        for (place, structure) in proto.iter().flat_map(pointers) {
            let lines = structure.as_ref().and_then(|structure| self.arguments.get(structure));
            if lines.is_none() && entry.members.is_empty() {
                entry.unknown.push(place);
            }
            for (line, structure) in lines.into_iter().flatten().zip(structure.iter().cycle()) {
                entry.annotation.extend(resolve::argument(self, line, place, structure, true).0);
            }
        }
        entry
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
        let fitting = |member: &&Member| self.member_proto(member).is_some_and(|other| same(proto, &other));
        let found: Vec<&Member> = self.entries.keys().filter(fitting).collect();
        let effects =
            |member: &Member| self.entries[member].iter().map(|line| &line.effects).collect::<Vec<_>>();
        match found.first() {
            Some(first) if found.iter().all(|member| effects(member) == effects(first)) => {
                BTreeSet::from([(*first).clone()])
            }
            _ => BTreeSet::new(),
        }
    }

    /// Finds the structure of function pointers that a variable is, by its size and by the offsets of
    /// functions in it. Returns each function's name in the driver with its member. Empty unless exactly one
    /// structure fits.
    pub fn operations(&self, size: u64, functions: &[(u64, String)]) -> Vec<(String, Member)> {
        let structures: BTreeSet<&String> = self.entries.keys().map(|member| &member.structure).collect();
        let mut found: Vec<Vec<(String, Member)>> = Vec::new();
        for structure in structures {
            let Some((btf, id)) = self.structure(structure) else { continue };
            if btf.size_of(id) != Some(size) {
                continue;
            }
            let members = functions.iter().map(|(offset, function)| {
                let member = btf.field_at(id, *offset)?;
                let (start, ty) = btf.member(id, &member)?;
                let wanted = btf.pointed_proto(ty).filter(|_| start == *offset)?;
                let own = self.own_proto(function);
                let fits = own.is_none_or(|own| same(&own, &wanted));
                fits.then(|| (function.clone(), Member { structure: structure.clone(), member }))
            });
            found.extend(members.collect::<Option<Vec<_>>>());
        }
        match found.len() {
            1 => found.remove(0),
            _ => Vec::new(),
        }
    }

    /// Effects and fields that this kernel does not know, each with the line that has it. Of functions, only
    /// those of the last table count. Most belong to other kernels.
    pub fn left_out(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut tell = |of: &str, what: Vec<String>| {
            found.extend(what.into_iter().map(|what| format!("{of}: {what}")));
        };
        for (name, lines) in self.functions.iter().filter(|(name, _)| self.own.contains(*name)) {
            let proto = self.proto(name).or_else(|| self.proto(&format!("{name}_noprof")));
            for line in lines {
                // Assembly has no type, and needs none.
                let found = resolve::function(self, line, proto.as_ref());
                let none = proto.is_none() && !found.0.is_empty();
                tell(name, if none { vec!["no such function".to_owned()] } else { found.1 });
            }
        }
        for (member, lines) in &self.entries {
            let proto = self.member_proto(member);
            let name = format!("{}.{}", member.structure, member.member);
            for line in lines {
                let none = proto.is_none().then(|| vec!["no such member".to_owned()]);
                tell(&name, none.unwrap_or_else(|| resolve::entry(self, line, proto.as_ref()).1));
            }
        }
        for (name, lines) in self.arguments.iter().chain(&self.handed).chain(&self.returned) {
            for line in lines {
                let none = self.structure(name).is_none().then(|| vec!["no such structure".to_owned()]);
                tell(name, none.unwrap_or_else(|| resolve::argument(self, line, 0, name, true).1));
            }
        }
        for (name, fields) in &self.types {
            let structure = self.structure(name);
            let absent =
                |field: &&String| structure.is_none_or(|(btf, id)| resolve::place(btf, id, field).is_none());
            tell(name, fields.iter().filter(absent).cloned().collect());
        }
        found
    }

    fn member_proto(&self, member: &Member) -> Option<Proto> {
        let (btf, id) = self.structure(&member.structure)?;
        btf.pointed_proto(btf.member(id, &member.member)?.1)
    }

    fn proto(&self, name: &str) -> Option<Proto> {
        self.btf.iter().find_map(|btf| btf.func_proto(name))
    }

    /// A structure, and the types that know it.
    fn structure(&self, name: &str) -> Option<(&Btf, u32)> {
        self.btf.iter().find_map(|btf| Some((&**btf, btf.struct_named(name)?)))
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
    let needed = needed.iter().filter_map(of);
    Types { btf: own.into_iter().chain(needed).chain([Arc::clone(kernel.btf())]).collect(), prototypes }
}

/// What a call of one of the driver's functions does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The actions before and after the call.
    pub annotation: Annotation,
    /// How it is called; `None` if that is not known.
    pub shape: Option<Shape>,
    /// What it returns where it cannot be called; `None` if no line says so.
    pub fail: Option<i64>,
    /// The members whose lines were taken.
    pub members: Vec<Member>,
    /// Arguments that point to memory that no line covers.
    pub unknown: Vec<u8>,
}

/// Adds a line for each of some structures.
fn add_to(lines: &mut BTreeMap<String, Vec<Line>>, structures: &[String], line: &Line) {
    for name in structures {
        lines.entry(name.clone()).or_default().push(line.clone());
    }
}

/// The structure that a pointer points to.
fn structure_behind(ty: &Type) -> Option<&str> {
    match ty {
        Type::Ptr(pointee) => pointee.struct_name.as_deref(),
        _ => None,
    }
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
    Shape {
        stack_words: words.fold(0, u8::saturating_add),
        variadic: proto.variadic,
        int: proto.result == Type::Int { bits: 32, signed: true },
    }
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

/// Whether two prototypes are of one function type, as far as calls can differ.
fn same(a: &Proto, b: &Proto) -> bool {
    let alike = |a: &Type, b: &Type| match (a, b) {
        (Type::Ptr(a), Type::Ptr(b)) => {
            a.struct_name == b.struct_name && a.is_func == b.is_func && a.is_void == b.is_void
        }
        (Type::Int { bits: a, .. }, Type::Int { bits: b, .. }) => a == b,
        (a, b) => a == b,
    };
    a.params.len() == b.params.len()
        && a.variadic == b.variadic
        && alike(&a.result, &b.result)
        && a.params.iter().zip(&b.params).all(|(a, b)| alike(&a.ty, &b.ty))
}

#[cfg(test)]
mod tests;
