//! Turns rows of the tables into actions, by the types of a kernel.

use super::functions::number;
use super::{Annotation, Isolation};
use guardrail_abi::{Action, Field, Step, Value, When};
use guardrail_binfmt::btf::{Btf, Param, Proto, Type, TypeId};
use guardrail_knowledge::table::{Clause, Row};

/// The runtime's functions that lend memory, and take it back.
const LEND: &str = "lend";
const LENT: &str = "lend_end";
/// The function that lends memory until an active driver sends its next message, or waits for one.
const LEND_UNTIL_ANSWER: &str = "active_lend";
/// The runtime's function that disowns memory of one of several kinds.
const DISOWN: &str = "disown";
/// The runtime's function that wants memory to be owned.
const OWNED: &str = "owned";
/// The runtime's functions that note a pointer, want one, and want one to what only the kernel has.
pub(super) const GRANT_REF: &str = "grant_ref";
const REQUIRE_REF: &str = "require_ref";
const REQUIRE_KERNELS: &str = "require_kernels";
/// The size of a write whose length is not known.
const BYTE: i64 = 1;
/// Bytes of a page.
const PAGE: i64 = 4096;

/// Turns the effects of a row into actions.
struct Resolver<'a> {
    isolation: &'a Isolation<'a>,
    /// The parameters, and which argument each is.
    places: Vec<(&'a str, u8)>,
    /// The structure that a row about arguments is for; `None` for other rows.
    structure: Option<&'a str>,
    /// Whether a function of the driver is called, and not one of the kernel.
    entry: bool,
    /// Whether the row is about a message. All effects of such a row are performed in their order, at one time.
    message: bool,
    /// Arguments narrower than a register, with their bytes.
    narrow: Vec<(u8, u8)>,
    /// Arguments that are functions, each with the number of their type.
    functions: Vec<(u8, u32)>,
    annotation: Annotation,
    /// Effects that this kernel has no types for.
    left_out: Vec<String>,
}

/// What a call of the kernel does, and the effects that mean nothing with this kernel's types. `functions` are the arguments
/// that are functions, each with the number of their type.
pub(super) fn function(
    isolation: &Isolation<'_>,
    row: &Row<'_>,
    proto: Option<&Proto>,
    functions: &[(u8, u32)],
) -> (Annotation, Vec<String>) {
    let mut resolver = Resolver::new(isolation, places(row, proto));
    resolver.narrow = proto.map_or_else(Vec::new, narrow);
    resolver.functions = functions.to_vec();
    resolver.resolve(row)
}

/// What a call by the kernel does, and the effects that mean nothing with this kernel's types.
pub(super) fn entry(
    isolation: &Isolation<'_>,
    row: &Row<'_>,
    proto: Option<&Proto>,
) -> (Annotation, Vec<String>) {
    // The driver has names of its own for its parameters.
    let mut resolver = Resolver::new(isolation, in_order(row, proto));
    (resolver.entry, resolver.narrow) = (true, proto.map_or_else(Vec::new, narrow));
    resolver.resolve(row)
}

/// What a call with an argument of a type does: a call of an entry point, or of one of the kernel's
/// functions.
pub(super) fn argument(
    isolation: &Isolation<'_>,
    row: &Row<'_>,
    place: u8,
    structure: &str,
    entry: bool,
) -> (Annotation, Vec<String>) {
    let places = row.params.first().map(|name| (*name, place)).into_iter().collect();
    let mut resolver = Resolver::new(isolation, places);
    (resolver.entry, resolver.structure) = (entry, Some(structure));
    resolver.resolve(row)
}

/// Which argument each parameter is: by name if the types know all of them, else by order.
fn places<'a>(row: &'a Row<'a>, proto: Option<&Proto>) -> Vec<(&'a str, u8)> {
    let numbers = numbers(proto);
    let by_name: Option<Vec<(&str, u8)>> = proto.and_then(|proto| {
        let find = |wanted: &&'a str| {
            let index = proto.params.iter().position(|param| param.name == *wanted)?;
            Some((*wanted, *numbers.get(index)?))
        };
        row.params.iter().map(find).collect()
    });
    by_name.unwrap_or_else(|| in_order(row, proto))
}

fn in_order<'a>(row: &'a Row<'a>, proto: Option<&Proto>) -> Vec<(&'a str, u8)> {
    let mut numbers = numbers(proto);
    if numbers.len() < row.params.len() {
        numbers = (0..row.params.len().min(64) as u8).collect();
    }
    row.params.iter().copied().zip(numbers).collect()
}

/// The arguments that do not fill a register.
fn narrow(proto: &Proto) -> Vec<(u8, u8)> {
    let numbers = numbers(Some(proto)).into_iter();
    let narrow = numbers.zip(&proto.params).filter_map(|(number, param)| match param.ty {
        Type::Int { bits: bits @ (8 | 16 | 32), .. } => Some((number, (bits / 8) as u8)),
        _ => None,
    });
    narrow.collect()
}

/// The result of a function that cannot be called, if the row states one.
pub(super) fn fail(row: &Row<'_>) -> Option<i64> {
    row.effects.iter().find(|effect| effect.verb() == "fail")?.word(1)?.parse().ok()
}

/// The arguments for which a row states that something is only to begin in the memory there.
pub(super) fn raw(row: &Row<'_>, proto: Option<&Proto>) -> Vec<u8> {
    let places = places(row, proto);
    let names =
        row.effects.iter().filter(|effect| effect.verb() == "raw").filter_map(|effect| effect.word(1));
    names.filter_map(|name| Some(places.iter().find(|(known, _)| *known == name)?.1)).collect()
}

/// The action of a verb about references, whose name the runtime's function has.
pub(super) fn reference(verb: &str, pointer: Value) -> Action {
    Action::Custom { name: verb.to_owned(), pointer, size: Value::Const(0) }
}

/// Whether an action requires a reference.
pub(super) fn requires_reference(action: &Action) -> bool {
    matches!(action, Action::Custom { name, .. } if name == REQUIRE_REF || name == REQUIRE_KERNELS)
}

/// The action at a call of a function that undoes registrations with so many arguments.
pub(super) fn undone(name: &str, values: usize, proto: Option<&Proto>) -> Action {
    let (numbers, narrow) = (numbers(proto), proto.map_or_else(Vec::new, narrow));
    // The function ignores what it does not take.
    let known = if proto.is_some() { numbers } else { (0..values as u8).collect() };
    let values: Vec<Value> = known
        .into_iter()
        .take(values)
        .map(|argument| match narrow.iter().find(|(number, _)| *number == argument) {
            Some((_, bytes)) => Value::Low(Box::new(Value::Arg(argument)), *bytes),
            None => Value::Arg(argument),
        })
        .collect();
    let counts = (1 << values.len()) - 1;
    Action::Unregisters { inverse: name.to_owned(), values, counts }
}

/// The numbers of the arguments: their registers, or 6 and more for the words on the stack.
pub(super) fn numbers(proto: Option<&Proto>) -> Vec<u8> {
    let mut stack = 6u8;
    let params = proto.map_or(&[][..], |proto| &proto.params);
    let number = |param: &Param| {
        param.register.unwrap_or_else(|| {
            let number = stack;
            let words = match param.ty {
                Type::Aggregate { size } => size.div_ceil(8).clamp(1, 64) as u8,
                _ => 1,
            };
            stack = stack.saturating_add(words);
            number
        })
    };
    params.iter().map(number).collect()
}

/// The action that disowns an allocation of one of these kinds.
fn disown(pointer: Value, kinds: &[u32]) -> Action {
    match kinds {
        [kind] => Action::Disown { pointer, kind: *kind },
        kinds => Action::Custom { name: DISOWN.to_owned(), pointer, size: Value::Const(mask(kinds)) },
    }
}

/// Kinds as one value.
fn mask(kinds: &[u32]) -> i64 {
    kinds.iter().fold(0, |mask, kind| mask | i64::from(*kind))
}

impl<'a> Resolver<'a> {
    fn new(isolation: &'a Isolation<'a>, places: Vec<(&'a str, u8)>) -> Resolver<'a> {
        Resolver {
            isolation,
            places,
            structure: None,
            entry: false,
            message: false,
            narrow: Vec::new(),
            functions: Vec::new(),
            annotation: Annotation::default(),
            left_out: Vec::new(),
        }
    }

    fn resolve(mut self, row: &Row<'_>) -> (Annotation, Vec<String>) {
        for effect in &row.effects {
            // What this kernel lacks, such as a structure or a field, is left out.
            if self.effect(effect).is_none() {
                self.left_out.push(effect.words.join(" "));
            }
        }
        (self.annotation, self.left_out)
    }

    fn effect(&mut self, effect: &Clause<'_>) -> Option<()> {
        let word = |index| effect.word(index);
        let value = |index| self.value(effect.word(index)?);
        // An operand that the row leaves out is 0 for the runtime's function.
        let optional = |index| effect.word(index).map_or(Some(Value::Const(0)), |text| self.value(text));
        let action = match effect.verb() {
            "received" | "emitted" => return self.messages(effect),
            "lend" if self.message => {
                Action::Custom { name: LEND_UNTIL_ANSWER.to_owned(), pointer: value(1)?, size: value(2)? }
            }
            "lend" => return self.lend(effect),
            "alloc" => return self.alloc(effect),
            // The runtime knows pages by their functions.
            "free" if word(1)?.starts_with("page(") => return Some(()),
            // The driver's own functions are called in any case.
            "instead" if self.entry => return None,
            "grant" => Action::Grant { pointer: value(1)?, size: value(2)? },
            "revoke" => Action::Revoke { pointer: value(1)?, size: value(2)? },
            "require_write" => Action::RequireWrite { pointer: value(1)?, size: value(2)? },
            "own" => {
                Action::Own { pointer: value(1)?, size: value(2)?, kind: self.isolation.number(word(3)?)? }
            }
            "disown" | "free" => disown(value(1)?, &self.kinds(word(2)?)),
            "take" => disown(value(1)?, &self.all_kinds()),
            "grant_fields" => Action::GrantFields { pointer: value(1)?, fields: self.fields(word(2)?)? },
            "revoke_fields" => Action::RevokeFields { pointer: value(1)?, fields: self.fields(word(2)?)? },
            "create_object" => {
                let (pointer, size, kind) = (value(1)?, value(2)?, self.isolation.number(word(3)?)?);
                Action::CreateObject { pointer, size, kind, fields: Vec::new() }
            }
            "require_object" => {
                let (kind, state) = self.kind(word(2)?)?;
                Action::RequireObject { pointer: value(1)?, kind, state }
            }
            "move_object" => {
                let (kind, from) = self.kind(word(2)?)?;
                let to = self.isolation.state(word(2)?, word(3)?)?;
                Action::MoveObject { pointer: value(1)?, kind, from, to }
            }
            "destroy_object" => {
                let (kind, state) = self.kind(word(2)?)?;
                Action::DestroyObject { pointer: value(1)?, kind, state }
            }
            "forget_object" => Action::ForgetObject { pointer: value(1)?, kind: self.kind(word(2)?)?.0 },
            "require_call" => {
                let function = match word(2) {
                    Some(member) => self.type_of_member(member)?,
                    None => self.type_of_function(word(1)?),
                };
                Action::RequireCall { pointer: value(1)?, function }
            }
            "require_calls" => Action::RequireCalls { pointer: value(1)?, fields: self.functions(word(2)?)? },
            "require_ref" => {
                let bytes =
                    word(2).or(self.structure).and_then(|name| self.value(&format!("sizeof({name})")));
                Action::Custom {
                    name: REQUIRE_REF.to_owned(),
                    pointer: value(1)?,
                    size: bytes.unwrap_or(Value::Const(0)),
                }
            }
            "grant_ref" | "revoke_ref" => reference(effect.verb(), value(1)?),
            "exit" => Action::Exit,
            "plain" => return Some(()),
            "defer" => {
                let sync = ["sync", "synclist", "packet"].iter().position(|option| word(1) == Some(option));
                let sync = sync.map_or(0, |at| at as u32 + 1);
                Action::Defer { pointer: Value::Const(0), kind: 0, sync }
            }
            "save" => Action::Save { pointer: value(1)?, size: value(2)? },
            "irrevocable" => Action::Irrevocable { settles: 0 },
            "settle" => Action::Irrevocable { settles: 1 + u32::from(word(1) == Some("packets")) },
            "touch" => Action::Touch,
            "reverse" => Action::Reverse { inverse: word(1)?.to_owned(), values: self.values(effect)? },
            "undo" => Action::Registers { inverse: word(1)?.to_owned(), values: self.values(effect)? },
            "undone" => {
                let any = |word: &&&str| **word != "any";
                let counts = effect.words[2..].iter().enumerate().filter(|(_, word)| any(word));
                let counts = counts.fold(0, |counts, (number, _)| counts | 1 << number);
                Action::Unregisters { inverse: word(1)?.to_owned(), values: self.values(effect)?, counts }
            }
            "custom" => {
                Action::Custom { name: word(1)?.to_owned(), pointer: optional(2)?, size: optional(3)? }
            }
            "instead" => {
                Action::Instead { name: word(1)?.to_owned(), pointer: optional(2)?, size: optional(3)? }
            }
            "define" => self.written(word(1)?, word(2)?)?,
            "copy" => self.written(word(1)?, word(3)?)?,
            // These effects say nothing about rights.
            _ => return Some(()),
        };
        self.add(effect, action)
    }

    /// The arguments behind the name of a function that undoes something.
    fn values(&self, effect: &Clause<'_>) -> Option<Vec<Value>> {
        let words = effect.words.get(2..)?.iter();
        words.map(|word| if *word == "any" { Some(Value::Const(0)) } else { self.value(word) }).collect()
    }

    /// Puts an action before or after the call: as the effect states, or as is usual for its verb.
    fn add(&mut self, effect: &Clause<'_>, action: Action) -> Option<()> {
        let when = self.when(effect, action.pointer())?;
        let late = match effect.verb() {
            "grant" | "own" | "grant_fields" | "create_object" | "grant_ref" | "custom" | "undo"
            | "reverse" => !self.entry,
            "revoke" | "revoke_fields" | "revoke_ref" => self.entry,
            "irrevocable" => effect.when.is_some(),
            _ => false,
        };
        let late = effect.after.unwrap_or(late) && !matches!(action, Action::Instead { .. }) && !self.message;
        let steps = if late { &mut self.annotation.after } else { &mut self.annotation.before };
        steps.push(Step { when, action });
        Some(())
    }

    /// What the message does that a call carries, after the call where the driver receives it. The effect names what holds the
    /// payloads then, which are the parameters of rows about messages.
    fn messages(&mut self, effect: &Clause<'_>) -> Option<()> {
        let places: Option<Vec<u8>> = effect.words[1..].iter().map(|word| self.arg(word)).collect();
        let (places, received) = (places?, effect.verb() == "received");
        for (row, comparison) in self.isolation.messages.of(received) {
            let places = row.params.iter().copied().zip(places.iter().copied()).collect();
            let mut resolver = Resolver::new(self.isolation, places);
            resolver.message = true;
            let (annotation, left_out) = resolver.resolve(row);
            let steps = if received { &mut self.annotation.after } else { &mut self.annotation.before };
            steps.push(comparison.into());
            steps.extend(annotation.before);
            self.left_out.extend(left_out);
        }
        Some(())
    }

    /// Lends memory that the driver may write while the call lasts. Memory that the driver owns stays its
    /// own.
    fn lend(&mut self, effect: &Clause<'_>) -> Option<()> {
        let (pointer, size) = (self.value(effect.word(1)?)?, self.value(effect.word(2)?)?);
        let when = self.when(effect, Some(&pointer))?;
        let [give, take] = [LEND, LENT].map(|name| {
            let action =
                Action::Custom { name: name.to_owned(), pointer: pointer.clone(), size: size.clone() };
            Step { when, action }
        });
        self.annotation.before.push(give);
        self.annotation.after.insert(0, take);
        Some(())
    }

    /// Grants memory that the callee makes the driver's own.
    fn alloc(&mut self, effect: &Clause<'_>) -> Option<()> {
        // The runtime knows functions that return a structure for pages by their names.
        if effect.words.iter().skip(3).any(|word| *word == "page") {
            return Some(());
        }
        let (kind, size) = (self.isolation.number(effect.word(1)?)?, self.value(effect.word(2)?)?);
        if let Some(old) = effect.option("realloc") {
            // The old block is disowned where there is a new one. If the block stayed in its place, its
            // content is the new one's.
            let (old, kinds) = (self.value(old)?, self.all_kinds());
            // The function frees the old block at once, so whose it is has to be known before.
            let wanted = Action::Custom {
                name: OWNED.to_owned(),
                pointer: old.clone(),
                size: Value::Const(mask(&kinds)),
            };
            self.annotation.before.push(wanted.into());
            let action = disown(old, &kinds);
            self.annotation.after.push(Step { when: When::ResultValid, action });
        }
        let grant = Action::Grant { pointer: Value::Result, size: size.clone() };
        for action in [grant, Action::Own { pointer: Value::Result, size, kind }] {
            self.annotation.after.push(Step { when: When::ResultValid, action });
        }
        Some(())
    }

    /// The action for memory that the callee writes for the driver.
    fn written(&self, pointer: &str, size: &str) -> Option<Action> {
        if pointer.starts_with("page(") {
            return None;
        }
        let size = match size.strip_prefix("result") {
            // The length is not known before the call; the bound is used instead, or the first byte.
            Some(rest) => match rest.split_once('/') {
                Some((_, bound)) => self.value(bound)?,
                None => Value::Const(BYTE),
            },
            None if size == "rest" => Value::Const(BYTE),
            None => self.value(size)?,
        };
        Some(Action::RequireWrite { pointer: self.value(pointer)?, size })
    }

    /// A type of objects, and a state if there is one behind a dot.
    fn kind(&self, text: &str) -> Option<(u32, Option<u32>)> {
        match text.split_once('.') {
            Some((kind, state)) => {
                Some((self.isolation.number(kind)?, Some(self.isolation.state(kind, state)?)))
            }
            None => Some((self.isolation.number(text)?, None)),
        }
    }

    fn kinds(&self, text: &str) -> Vec<u32> {
        let mut kinds: Vec<u32> = text.split('|').filter_map(|kind| self.isolation.number(kind)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    fn all_kinds(&self) -> Vec<u32> {
        self.kinds("slab|cache|vmalloc|page|managed")
    }

    fn when(&self, effect: &Clause<'_>, pointer: Option<&Value>) -> Option<When> {
        let Some(when) = effect.when else {
            // An address of 0 leaves an action out.
            return Some(if pointer == Some(&Value::Result) { When::ResultValid } else { When::Always });
        };
        Some(match when {
            "always" => When::Always,
            "result" => When::ResultValid,
            "ok" => When::ResultZero,
            "positive" => When::ResultNotNegative,
            "true" => When::ResultTrue,
            name => When::NonZero(self.arg(name)?),
        })
    }

    fn arg(&self, name: &str) -> Option<u8> {
        self.places.iter().find(|(known, _)| *known == name).map(|(_, place)| *place)
    }

    /// Parses a value. The forms are numbers, names, `a*b`, `a->struct.member`, `&a->struct.member`,
    /// `sizeof(x)`, `order(a)` and `kind(x)`. `[a]` is the pointer at `a`.
    fn value(&self, text: &str) -> Option<Value> {
        if let Some(inner) = text.strip_prefix("u32[").and_then(|rest| rest.strip_suffix(']')) {
            return Some(Value::Load(Box::new(self.value(inner)?), 0, 4));
        }
        if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            return Some(Value::Load(Box::new(self.value(inner)?), 0, 8));
        }
        if let Some((a, b)) = text.split_once('*') {
            return Some(match (self.value(a)?, self.value(b)?) {
                (Value::Const(a), Value::Const(b)) => Value::Const(a.checked_mul(b)?),
                (a, b) => Value::Mul(Box::new(a), Box::new(b)),
            });
        }
        if let Some((a, b)) = text.split_once('+') {
            return Some(Value::Add(Box::new(self.value(a)?), Box::new(self.value(b)?)));
        }
        if let Ok(number) = text.parse() {
            return Some(Value::Const(number));
        }
        let inside = |name: &str| text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
        if let Some(name) = inside("sizeof") {
            let name = match self.structure.filter(|_| self.arg(name).is_some()) {
                Some(structure) => structure,
                None => name,
            };
            let (btf, id) = self.isolation.structure(name)?;
            return Some(Value::Const(btf.size_of(id)?.try_into().ok()?));
        }
        if let Some(kind) = inside("kind") {
            return Some(Value::Const(i64::from(self.isolation.number(kind)?)));
        }
        if let Some(name) = inside("order") {
            return Some(Value::Shl(Box::new(Value::Const(PAGE)), Box::new(self.value(name)?)));
        }
        if let Some((base, member)) = text.trim_start_matches('&').rsplit_once("->") {
            let (structure, member) = member.split_once('.')?;
            let (btf, id) = self.isolation.structure(structure)?;
            let (offset, ty) = btf.member(id, member)?;
            let (base, offset) = (Box::new(self.value(base)?), i32::try_from(offset).ok()?);
            if text.starts_with('&') {
                return Some(Value::Add(base, Box::new(Value::Const(offset.into()))));
            }
            let width = btf.size_of(ty).filter(|size| matches!(size, 1 | 2 | 4 | 8))? as u8;
            return Some(Value::Load(base, offset, width));
        }
        match text {
            "result" => Some(Value::Result),
            name => {
                let arg = self.arg(name)?;
                let narrow = self.narrow.iter().find(|(number, _)| *number == arg);
                Some(match narrow {
                    Some((_, bytes)) => Value::Low(Box::new(Value::Arg(arg)), *bytes),
                    None => Value::Arg(arg),
                })
            }
        }
    }

    /// The pointers to functions in a structure.
    fn functions(&self, name: &str) -> Option<Vec<Field>> {
        let (btf, id) = self.isolation.structure(name)?;
        let mut fields: Vec<Field> = Vec::new();
        let mut slots = btf.function_slots(id);
        slots.sort_unstable();
        for (offset, function) in slots {
            let size = btf.proto(function).map_or(0, |proto| number(&proto));
            let field = Field { offset: u32::try_from(offset).ok()?, size };
            match fields.last_mut() {
                // Which member of a union counts is not known.
                Some(last) if last.offset == field.offset && last.size != size => last.size = 0,
                Some(last) if last.offset == field.offset => {}
                _ => fields.push(field),
            }
        }
        Some(fields)
    }

    /// The number of the type of functions that a value points to: a member's, or an argument's. 0 where none is known.
    fn type_of_function(&self, text: &str) -> u32 {
        let argument = || {
            let function = self.functions.iter().find(|(place, _)| Some(*place) == self.arg(text));
            function.map_or(0, |(_, function)| *function)
        };
        let member = text.rsplit_once("->").and_then(|(_, member)| self.type_of_member(member));
        member.unwrap_or_else(argument)
    }

    /// The type of a member `STRUCT.MEMBER`, or that of a function by its name.
    fn type_of_member(&self, path: &str) -> Option<u32> {
        let Some((structure, member)) = path.split_once('.') else {
            return Some(number(&self.isolation.proto(path)?));
        };
        let (btf, id) = self.isolation.structure(structure)?;
        Some(number(&btf.pointed_proto(btf.member(id, member)?.1)?))
    }

    /// The fields of a structure that may be written; those that this kernel does not have are left out.
    fn fields(&self, name: &str) -> Option<Vec<Field>> {
        let (btf, id) = self.isolation.structure(super::of_set(name))?;
        let mut fields = Vec::new();
        for path in self.isolation.types.get(name)? {
            let Some((offset, size)) = place(btf, id, path) else { continue };
            fields.push(Field { offset: u32::try_from(offset).ok()?, size: u32::try_from(size).ok()? });
        }
        fields.sort_by_key(|field| field.offset);
        fields.dedup();
        // Adjacent fields become one.
        let mut merged: Vec<Field> = Vec::new();
        for field in fields {
            match merged.last_mut() {
                Some(last) if last.offset.saturating_add(last.size) >= field.offset => {
                    let end = field.offset.saturating_add(field.size);
                    last.size = last.size.max(end - last.offset);
                }
                _ => merged.push(field),
            }
        }
        Some(merged)
    }
}

/// The offset of a field, and its bytes. For a bitfield these are all bytes that it has a part of.
pub(super) fn place(btf: &Btf, id: TypeId, path: &str) -> Option<(u64, u64)> {
    if let Some((first, bits)) = btf.bits(id, path) {
        return Some((first / 8, (first + bits).div_ceil(8) - first / 8));
    }
    let (offset, ty) = btf.member(id, path)?;
    Some((offset, btf.size_of(ty)?))
}
