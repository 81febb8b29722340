//! Rows of `rights.txt`, from what functions do and from their types.

use crate::known::{LATER, class_name};
use crate::names::Names;
use crate::summary::{Deep, Effects, Site, Sites, Summary};
use crate::value::{ARGS, Fresh, Kind, Size, Val};
use guardrail_binfmt::Btf;
use guardrail_binfmt::btf::{Param, Pointee, Proto, Type};
use std::fmt::Write;

/// Most places that a row names.
const PLACES: usize = 3;

/// The reason for no row where BTF knows no function of the name, such as for variables.
const NO_PROTOTYPE: &str = "its prototype is not known";

/// What was derived of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Derived {
    /// A row, as `rights.txt` has them, with where it comes from.
    Row(String),
    /// No row, and why.
    Undecided(String),
}

impl Derived {
    /// What contradicts a written row that has no effect: that something is written or freed which is no structure.
    /// Structures are left to the references that are required of them.
    pub fn against_nothing(&self) -> Option<&str> {
        match self {
            Derived::Row(row) => {
                let (effects, origin) = row.split_once(" # ").unwrap_or((row, ""));
                let touches = [": require_write", "; require_write", "disown ", "revoke "];
                touches.iter().any(|verb| effects.contains(verb)).then_some(origin)
            }
            Derived::Undecided(why) => {
                let touches =
                    ["it is not known how much is written", "it may free", "it writes in front", "it frees"];
                touches.iter().any(|start| why.starts_with(start)).then_some(why.as_str())
            }
        }
    }

    /// Whether the name is of no function that BTF knows.
    pub(crate) fn lacks_prototype(&self) -> bool {
        matches!(self, Derived::Undecided(why) if why == NO_PROTOTYPE)
    }

    /// The row, if all that it has are references to structures.
    pub(crate) fn references(&self) -> Option<&str> {
        let Derived::Row(row) = self else { return None };
        let (head, _) = row.split_once(" # ").unwrap_or((row, ""));
        let (_, effects) = head.split_once("): ")?;
        effects.split(" ; ").all(|effect| effect.contains("_ref ")).then_some(row)
    }
}

/// Derives the row of a function.
pub fn derive(btf: &Btf, names: &Names, name: &str, summary: &Summary) -> Derived {
    let Some((id, proto)) = btf.func_type(name).and_then(|id| Some((id, btf.proto(id)?))) else {
        return Derived::Undecided(NO_PROTOTYPE.to_owned());
    };
    let types = btf.signature(id).map_or_else(Vec::new, |(types, _)| types);
    let mut rule =
        Rule { btf, names, proto: &proto, words: words(&proto), effects: Vec::new(), places: Vec::new() };
    match rule.all(summary, &types) {
        Err(why) => Derived::Undecided(why),
        Ok(()) => Derived::Row(rule.text(name)),
    }
}

/// What a function does with one parameter.
#[derive(Clone, Copy)]
struct Use {
    /// The number of the parameter.
    at: usize,
    effects: Effects,
    sites: Sites,
    /// Whether it is freed on every way.
    freed: bool,
}

impl Use {
    /// Whether more is done with it than to read.
    fn follows(&self) -> bool {
        let effects = &self.effects;
        !effects.write.is_empty()
            || effects.free != 0
            || effects.deep.any(Deep(!Deep::READ.0))
            || effects.escape
            || effects.call
    }
}

struct Rule<'a> {
    btf: &'a Btf,
    names: &'a Names,
    proto: &'a Proto,
    /// The names of the parameters.
    words: Vec<String>,
    effects: Vec<String>,
    places: Vec<String>,
}

/// The names of parameters, or letters where a name is missing, twice there, or a word of the language.
fn words(proto: &Proto) -> Vec<String> {
    let usable = |(at, param): (usize, &Param)| {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        !param.name.is_empty()
            && param.name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && param.name.chars().all(word)
            && !["result", "always", "ok", "positive", "true"].contains(&param.name.as_str())
            && proto.params[..at].iter().all(|other| other.name != param.name)
    };
    match proto.params.iter().enumerate().all(usable) {
        true => proto.params.iter().map(|param| param.name.clone()).collect(),
        false => (1..=proto.params.len()).map(|number| format!("arg{number}")).collect(),
    }
}

impl Rule<'_> {
    fn all(&mut self, summary: &Summary, types: &[u32]) -> Result<(), String> {
        let numbers = crate::types::numbers(self.proto);
        let plain = |param: &Param| matches!(param.ty, Type::Int { bits: 0..=32, .. });
        if let Some(why) = summary.unknown
            && !self.proto.params.iter().all(plain)
        {
            return Err(format!("its code cannot be followed ({why:?})"));
        }
        if self.proto.variadic && !crate::types::formats(self.proto) {
            return Err("it takes a variable number of arguments".to_owned());
        }
        let closure = self.proto.params.iter().zip(types).any(|(param, id)| self.is_code(param, *id));
        for (at, (param, &number)) in self.proto.params.iter().zip(&numbers).enumerate() {
            let words = match param.ty {
                Type::Aggregate { size } => size.div_ceil(8).clamp(1, 64) as usize,
                _ => 1,
            };
            if number + words > ARGS {
                return Err(format!("{} is not among the first {ARGS} words of arguments", self.words[at]));
            }
            let of = |number: usize| Use {
                at,
                effects: summary.args[number],
                sites: summary.sites[number],
                freed: summary.freed & 1 << number != 0,
            };
            match &param.ty {
                Type::Int { bits: 0..=32, .. } | Type::Void => {}
                Type::Int { bits: 64, .. } => self.number(&of(number))?,
                Type::Ptr(to) => {
                    let pointer = self.btf.pointee_type(types.get(at).copied().unwrap_or(0)).unwrap_or(0);
                    self.pointer(&of(number), to, pointer, closure)?;
                }
                _ => {
                    let used = (number..number + words).any(|number| of(number).follows());
                    if used {
                        return Err(format!("{} is a structure by value with pointers", self.words[at]));
                    }
                }
            }
        }
        self.result(summary)
    }

    /// Whether a parameter is code of the caller's: a function, or a table of functions. What the caller passes with it
    /// is for that code.
    fn is_code(&self, param: &Param, id: u32) -> bool {
        match &param.ty {
            Type::Ptr(to) if to.is_func => true,
            Type::Ptr(to) if to.is_const && to.struct_name.is_some() => {
                self.btf.pointee_type(id).is_some_and(|structure| self.btf.has_functions(structure))
            }
            _ => false,
        }
    }

    fn place(&mut self, what: String, site: Option<Site>) {
        let place = self.site(site);
        self.places.push(what + &place);
    }

    fn undecided(&self, at: usize, what: &str, site: Option<Site>) -> String {
        format!("{what} {}{}", self.words[at], self.site(site))
    }

    fn site(&self, site: Option<Site>) -> String {
        let text = |site: Site| format!(" in {}+{:#x}", self.names.name(site.function), site.offset);
        site.map_or(String::new(), text)
    }

    /// A number of 64 bits. It is an address if just what it names is written or freed.
    fn number(&mut self, used: &Use) -> Result<(), String> {
        if used.effects.free != 0 && !used.effects.inner_free {
            return self.freed(used);
        }
        let write = used.effects.write;
        match write.range {
            Some((0.., _)) if !write.unbounded => self.written(used),
            _ => Ok(()),
        }
    }

    fn pointer(&mut self, used: &Use, to: &Pointee, pointer: u32, closure: bool) -> Result<(), String> {
        let Use { at, effects, sites, .. } = *used;
        if effects == Effects::default() {
            return Ok(());
        }
        if effects.per_cpu {
            return Err(self.undecided(at, "it uses as per-CPU memory", sites.write.or(sites.other)));
        }
        if to.is_func {
            let word = self.words[at].clone();
            self.effects.push(format!("require_call {word}"));
            self.place(format!("calls or keeps {word}"), sites.other);
            return Ok(());
        }
        if let Some(structure) = &to.struct_name {
            return self.structure(used, structure);
        }
        if effects.free != 0 {
            return self.freed(used);
        }
        if effects.call {
            return Err(self.undecided(at, "it calls", sites.other));
        }
        // Characters and numbers hold no pointers, nor does what is loaded from them.
        if !self.btf.is_number(pointer) && effects.deep.any(Deep(!Deep::READ.0)) {
            return Err(self.undecided(at, "it follows pointers in", sites.other));
        }
        if effects.keep && !to.is_const && !(to.is_void && closure) {
            return Err(self.undecided(at, "it keeps", sites.other));
        }
        if effects.escape && !to.is_const {
            return Err(self.undecided(at, "it hands to unknown code", sites.other));
        }
        if effects.write.is_empty() { Ok(()) } else { self.written(used) }
    }

    /// A structure: what the function does with it is right if it is one.
    fn structure(&mut self, used: &Use, structure: &str) -> Result<(), String> {
        let Use { at, effects, sites, freed } = *used;
        let word = self.words[at].clone();
        self.effects.push(format!("require_ref {word} {structure}"));
        let write = effects.write;
        match (write.range, write.unbounded || write.counted.is_some()) {
            (Some((low, high)), false) => self.place(format!("writes {word}{low:+}..{high}"), sites.write),
            _ if !write.is_empty() => self.place(format!("writes {word}"), sites.write),
            _ => self.place(format!("uses {word}"), sites.other.or(sites.free)),
        }
        if effects.free == 0 {
            return Ok(());
        }
        if !freed {
            // The last of several references ends it.
            self.place(format!("may free {word}"), sites.free);
        } else if effects.inner_free {
            return Err(self.undecided(at, "it frees what lies around", sites.free));
        } else {
            self.effects.push(format!("before revoke {word} sizeof({structure})"));
            self.effects.push(format!("before revoke_ref {word} {structure}"));
            self.place(format!("frees {word}"), sites.free);
        }
        Ok(())
    }

    /// What is freed on every way must be the driver's own.
    fn freed(&mut self, used: &Use) -> Result<(), String> {
        let Use { at, effects, sites, freed } = *used;
        if !freed || effects.inner_free || effects.free & LATER != 0 {
            return Err(self.undecided(at, "it may free", sites.free));
        }
        let kinds: Vec<&str> =
            (0..8).filter(|class| effects.free & 1 << class != 0).map(class_name).collect();
        let word = self.words[at].clone();
        self.effects.push(format!("disown {word} {}", kinds.join("|")));
        self.place(format!("frees {word}"), sites.free);
        Ok(())
    }

    /// What is written must be the driver's to write.
    fn written(&mut self, used: &Use) -> Result<(), String> {
        const UNKNOWN: &str = "it is not known how much is written through";
        let Use { at, effects, sites, .. } = *used;
        let write = effects.write;
        let word = self.words[at].clone();
        if write.unbounded {
            return Err(self.undecided(at, UNKNOWN, sites.write));
        }
        if let Some((low, high)) = write.range {
            if low < 0 {
                return Err(self.undecided(at, "it writes in front of", sites.write));
            }
            self.effects.push(format!("require_write {word} {high}"));
            self.place(format!("writes {word}+{low}..{high}"), sites.write);
        }
        if let Some((count, times)) = write.counted {
            let numbers = crate::types::numbers(self.proto);
            let Some(length) = numbers.iter().position(|number| *number == usize::from(count)) else {
                return Err(self.undecided(at, UNKNOWN, sites.write));
            };
            let length = &self.words[length];
            let size = if times == 1 { length.clone() } else { format!("{length}*{times}") };
            self.effects.push(format!("require_write {word} {size}"));
            self.place(format!("writes {word}+0..{size}"), sites.write);
        }
        Ok(())
    }

    fn result(&mut self, summary: &Summary) -> Result<(), String> {
        let Type::Ptr(to) = &self.proto.result else { return Ok(()) };
        if let Some(Val { direct: 0, deep: 0, kind: Kind::Fresh(Fresh { class, size }), .. }) = summary.result
            && !summary.shared
        {
            let numbers = crate::types::numbers(self.proto);
            let size = match (size, &to.struct_name) {
                (Size::Const(size), _) => Some(size.to_string()),
                (Size::Arg(arg, times), _) => {
                    let word = numbers
                        .iter()
                        .position(|number| *number == usize::from(arg))
                        .map(|at| &self.words[at]);
                    word.map(|word| if times == 1 { word.clone() } else { format!("{word}*{times}") })
                }
                (Size::Unknown, _) => None,
            };
            match (size, &to.struct_name) {
                (Some(size), _) => {
                    self.effects.push(format!("grant result {size}"));
                    self.effects.push(format!("own result {size} {}", class_name(class)));
                    self.places.push(format!("allocates {size} bytes"));
                }
                (None, Some(_)) => {}
                (None, None) => return Err("it is not known how much it allocates".to_owned()),
            }
        }
        if let Some(structure) = &to.struct_name {
            self.effects.push(format!("grant_ref result {structure}"));
        }
        Ok(())
    }

    fn text(self, name: &str) -> String {
        let effects = if self.effects.is_empty() { "nothing".to_owned() } else { self.effects.join(" ; ") };
        let mut text = format!("{name} ({}): {effects} # derived: static", self.words.join(", "));
        for place in self.places.iter().take(PLACES) {
            let _ = write!(text, ", {place}");
        }
        text
    }
}
