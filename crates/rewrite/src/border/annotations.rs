//! Turns the annotations (`guardrail_kernel::isolation`) of a module's border into interposition.

use crate::border::{Action, Callee, Entry, Interposition, Step, UNKNOWN_WORDS, Wrapper};
use crate::engine::object::{Object, reloc};
use guardrail_abi as abi;
use guardrail_kernel::isolation::{Annotation, Isolation, Member};
use object::elf;
use std::collections::{BTreeMap, BTreeSet};

/// A module's border, as the annotations describe it.
#[derive(Clone, Debug, Default)]
pub struct Border {
    /// The actions at the border.
    pub interposition: Interposition,
    /// Functions that the module imports and that have an annotation.
    pub annotated: Vec<String>,
    /// Functions among them whose annotation was derived from the kernel's code.
    pub derived: Vec<String>,
    /// Functions that the module imports and that have no annotation.
    pub unannotated: Vec<String>,
    /// Functions of the module that stand in a structure of function pointers, with the members.
    pub members: Vec<(String, Vec<Member>)>,
    /// Functions of the module without a known prototype, or with an argument that no annotation covers.
    pub unknown: Vec<String>,
}

/// Leaves out what other steps require as well: the same call target, or a reference to what has to be an object or a
/// device that the driver can have come by.
fn leave_out_repeated(steps: &mut Vec<Step>) {
    let all = steps.clone();
    let mut calls = Vec::new();
    steps.retain(|step| {
        let again = match &step.action {
            Action::RequireCall { .. } => calls.contains(step),
            Action::Custom { name, pointer, .. } if name == "require_ref" => all.iter().any(|other| {
                other.when == step.when
                    && match &other.action {
                        Action::RequireObject { pointer: object, .. } => object == pointer,
                        Action::Custom { name, pointer: device, .. } => name == "device" && device == pointer,
                        _ => false,
                    }
            }),
            _ => false,
        };
        calls.extend((!again).then(|| step.clone()));
        !again
    });
}

/// Works out what is to be done at a module's border.
pub fn border(isolation: &Isolation<'_>, object: &Object) -> Border {
    let mut border = Border::default();
    for name in imports(isolation, object) {
        let shape = isolation.shape(&name);
        let known = isolation.function(&name);
        let list = if known.is_some() { &mut border.annotated } else { &mut border.unannotated };
        list.push(name.clone());
        if isolation.is_derived(&name) {
            border.derived.push(name.clone());
        }
        let mut annotation = isolation.handed(&name);
        for more in [known.clone().unwrap_or_default(), isolation.undo(&name), isolation.received(&name)] {
            annotation.before.extend(more.before);
            annotation.after.extend(more.after);
        }
        leave_out_repeated(&mut annotation.before);
        let wrapper = Wrapper {
            before: joined(&annotation.before),
            after: joined(&annotation.after),
            stack_words: shape.map_or(UNKNOWN_WORDS, |shape| shape.stack_words),
            variadic: shape.is_some_and(|shape| shape.variadic),
        };
        let proto = shape.map_or(0, |shape| shape.kinds);
        let callee = Callee { proto, ruled: known.is_some() };
        border.interposition.callable.insert(name.clone(), callee);
        if !annotation.is_empty() {
            border.interposition.imports.insert(name, wrapper);
        }
    }
    let members = members(isolation, object);
    for name in functions(object) {
        let own = members.get(&name).map_or(&[][..], Vec::as_slice);
        let found = isolation.entry(&name, own);
        if !own.is_empty() {
            border.members.push((name.clone(), own.to_vec()));
        }
        let unknown = found.shape.is_none() || !found.unknown.is_empty();
        if unknown {
            border.unknown.push(name.clone());
        }
        let shape = found.shape.unwrap_or_default();
        let entry = Entry {
            before: joined(&found.annotation.before),
            after: joined(&found.annotation.after),
            stack_words: if found.shape.is_none() { UNKNOWN_WORDS } else { shape.stack_words },
            dead: found.fail,
            callers_stack: unknown,
            pointers: found.pointers,
            kept: found.kept,
            function: found.function,
            flags: if found.members.iter().any(is_poll) { abi::ENTRY_POLL.into() } else { 0 },
        };
        border.interposition.entries.insert(name, entry);
    }
    border
}

/// Whether a member holds a poll of NAPI.
fn is_poll(member: &Member) -> bool {
    member.structure == "napi_struct" && member.member == "poll"
}

/// Structures and members of them that hold functions which bind a device to its driver, or take it away.
const BINDS: [&str; 5] = ["probe", "remove", "disconnect", "connect", "shutdown"];
/// The structure of functions that save and restore devices, and the members of others that do.
const POWER: &str = "dev_pm_ops";
const SAVES: [&str; 12] = [
    "suspend",
    "resume",
    "freeze",
    "restore",
    "reset_resume",
    "reconnect",
    "fast_reconnect",
    "cleanup",
    "pre_reset",
    "post_reset",
    "reset_prepare",
    "reset_done",
];

/// Prepares a border for transactions: `selected` says which entries are transactions from the start.
pub fn transact(
    border: &mut Border,
    isolation: &Isolation<'_>,
    object: &Object,
    selected: &dyn Fn(&str) -> bool,
) {
    let tables = tables(object);
    let power = tables.iter().filter_map(|(size, pointers)| isolation.members_of(POWER, *size, pointers));
    let power: BTreeSet<String> = power.flatten().map(|(function, _)| function).collect();
    let Interposition { imports, callable, entries, transacts, .. } = &mut border.interposition;
    *transacts = true;
    for name in callable.keys() {
        let known = imports.get(name);
        let of =
            |list: fn(&Wrapper) -> &Vec<Step>| known.map_or_else(Vec::new, |wrapper| list(wrapper).clone());
        let rights =
            Annotation { before: of(|wrapper| &wrapper.before), after: of(|wrapper| &wrapper.after) };
        let more = isolation.in_transaction(name, &rights);
        if more.is_empty() {
            continue;
        }
        let shape = isolation.shape(name);
        let wrapper = imports.entry(name.clone()).or_insert_with(|| Wrapper {
            stack_words: shape.map_or(UNKNOWN_WORDS, |shape| shape.stack_words),
            variadic: shape.is_some_and(|shape| shape.variadic),
            ..Wrapper::default()
        });
        // What is deferred is checked now, and is done later.
        let taken = wrapper.before.iter().position(|step| !requires(&step.action));
        let at = taken.unwrap_or(wrapper.before.len());
        wrapper.before.splice(at..at, more.before);
        wrapper.after.extend(more.after);
    }
    let members: BTreeMap<&str, &[Member]> =
        border.members.iter().map(|(name, members)| (name.as_str(), members.as_slice())).collect();
    for (name, entry) in entries.iter_mut() {
        let any = |fits: &dyn Fn(&Member) -> bool| {
            members.get(name.as_str()).is_some_and(|members| members.iter().any(fits))
        };
        let binds = any(&|member| BINDS.contains(&member.member.as_str()));
        let saves = power.contains(name) || any(&|member| SAVES.contains(&member.member.as_str()));
        entry.flags |= u32::from(match (binds, saves) {
            (true, _) => abi::ENTRY_BINDS,
            (_, true) => abi::ENTRY_POWER,
            _ if selected(name) => abi::ENTRY_SELECTED,
            _ => 0,
        });
    }
}

/// Whether an action only requires something.
fn requires(action: &Action) -> bool {
    match action {
        Action::RequireWrite { .. }
        | Action::RequireObject { .. }
        | Action::RequireCall { .. }
        | Action::RequireCalls { .. } => true,
        Action::Custom { name, .. } => {
            name.starts_with("require_") || name == "device" || name == "device_sound"
        }
        _ => false,
    }
}

/// The functions that a module imports: what it calls, or jumps to, that is not its own, and functions that it
/// takes the address of.
fn imports(isolation: &Isolation<'_>, object: &Object) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for section in object.sections.iter().filter(|section| section.alloc()) {
        for reloc in &section.relocs {
            let symbol = &object.symbols[reloc.symbol];
            if !symbol.undefined() || symbol.name.is_empty() || found.contains(&symbol.name) {
                continue;
            }
            let called = section.exec() && reloc.kind == reloc::PLT32;
            let known =
                || isolation.shape(&symbol.name).is_some() || isolation.function(&symbol.name).is_some();
            if called || known() {
                found.insert(symbol.name.clone());
            }
        }
    }
    found
}

fn functions(object: &Object) -> BTreeSet<String> {
    let own = object.symbols.iter().filter(|symbol| symbol.function() && symbol.section().is_some());
    own.map(|symbol| symbol.name.clone()).filter(|name| !name.is_empty()).collect()
}

/// For functions in variables that are structures of function pointers, the members that hold them.
fn members(isolation: &Isolation<'_>, object: &Object) -> BTreeMap<String, Vec<Member>> {
    let mut found: BTreeMap<String, Vec<Member>> = BTreeMap::new();
    for (size, pointers) in tables(object) {
        for (function, member) in isolation.operations(size, &pointers) {
            let known = found.entry(function).or_default();
            if !known.contains(&member) {
                known.push(member);
            }
        }
    }
    found
}

/// Variables that point to functions of the module: their sizes, and the functions by their offsets.
fn tables(object: &Object) -> Vec<(u64, Vec<(u64, String)>)> {
    let functions: BTreeMap<(usize, u64), &str> = object
        .symbols
        .iter()
        .filter(|symbol| symbol.function() && !symbol.name.is_empty())
        .filter_map(|symbol| Some(((symbol.section()?, symbol.value), symbol.name.as_str())))
        .collect();
    let mut found = Vec::new();
    let variables =
        object.symbols.iter().filter(|symbol| symbol.kind() == elf::STT_OBJECT && symbol.size > 0);
    for variable in variables {
        let Some(section) = variable.section() else { continue };
        let range = variable.value..variable.value.saturating_add(variable.size);
        let inside = object.sections[section].relocs.iter().filter(|reloc| range.contains(&reloc.offset));
        let pointers: Vec<(u64, String)> = inside
            .filter(|reloc| reloc.kind == reloc::ABS64)
            .filter_map(|reloc| {
                let target = object.target(reloc.symbol, reloc.addend)?;
                Some((reloc.offset - variable.value, (*functions.get(&target)?).to_owned()))
            })
            .collect();
        if !pointers.is_empty() {
            found.push((variable.size, pointers));
        }
    }
    found
}

/// Joins the creation of an object and the grants of its fields that follow at once into one action.
fn joined(steps: &[Step]) -> Vec<Step> {
    let mut all: Vec<Step> = Vec::new();
    for next in steps {
        if let Action::GrantFields { pointer, fields: own } = &next.action
            && let Some(Step { when, action: Action::CreateObject { pointer: object, fields, .. } }) =
                all.last_mut()
            && *when == next.when
            && pointer == object
            && fields.is_empty()
        {
            fields.clone_from(own);
        } else {
            all.push(next.clone());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::border::{Field, Value, When};
    use crate::tests::{Module, TEXT};

    /// The border of a module that calls `elsewhere`, which has these effects.
    fn of(effects: &str) -> Border {
        let rights = format!("elsewhere (a, b): {effects}");
        let isolation = Isolation::new(&[("test", &rights)], Vec::new());
        // call elsewhere; ret
        let mut module = Module::new(&[0xe8, 0, 0, 0, 0, 0xc3]);
        let number = module.0.symbols.iter().position(|symbol| symbol.name == "elsewhere").unwrap();
        module.reloc(TEXT, 1, reloc::PLT32, number, -4);
        border(&isolation.unwrap(), &module.0)
    }

    #[test]
    fn effects_become_actions() {
        let border = of(
            "alloc slab a*b ; disown [a+16] slab|page ; require_object a frame ; destroy_object b frame ; require_call b if a",
        );
        assert_eq!(
            (border.annotated.as_slice(), border.unannotated.len()),
            (&["elsewhere".to_owned()][..], 0)
        );
        let wrapper = &border.interposition.imports["elsewhere"];
        // For a function without a type it is not known how many arguments lie on the stack.
        assert_eq!((wrapper.stack_words, wrapper.variadic), (UNKNOWN_WORDS, false));
        let (a, b) = (Value::Arg(0), Value::Arg(1));
        let size = Value::Mul(Box::new(a.clone()), Box::new(b.clone()));
        let (slab, page, frame) = (1, 4, 1 << 20);
        let result = |action| Step { when: When::ResultValid, action };
        let wanted = [
            Action::Grant { pointer: Value::Result, size: size.clone() },
            Action::Own { pointer: Value::Result, size, kind: slab },
        ];
        assert_eq!(wrapper.after, wanted.map(result));
        let inside = Value::Add(Box::new(a.clone()), Box::new(Value::Const(16)));
        let freed = Value::Load(Box::new(inside), 0, 8);
        let either = Value::Const(i64::from(slab | page));
        let wanted = [
            Action::Custom { name: "disown".into(), pointer: freed, size: either }.into(),
            Action::RequireObject { pointer: a, kind: frame, state: None }.into(),
            Action::DestroyObject { pointer: b.clone(), kind: frame, state: None }.into(),
            Step { when: When::NonZero(0), action: Action::RequireCall { pointer: b, function: 0 } },
        ];
        assert_eq!(wrapper.before, wanted);
    }

    #[test]
    fn an_object_and_its_fields_are_one_action() {
        let some = vec![Field { offset: 8, size: 4 }];
        let fields = |pointer: &Value| {
            Step::from(Action::GrantFields { pointer: pointer.clone(), fields: some.clone() })
        };
        let object = |pointer: &Value, fields| {
            let (pointer, size) = (pointer.clone(), Value::Const(64));
            Step::from(Action::CreateObject { pointer, size, kind: 2, fields })
        };
        let (a, b) = (Value::Arg(0), Value::Arg(1));
        let bare = || object(&a, Vec::new());
        assert_eq!(joined(&[bare(), fields(&a)]), [object(&a, some.clone())]);
        assert_eq!(joined(&[bare(), fields(&b)]), [bare(), fields(&b)]);
        assert_eq!(joined(&[bare(), fields(&a), fields(&a)]).len(), 2);
    }

    #[test]
    fn what_has_no_line_is_called_as_it_is() {
        let nothing = of("nothing");
        assert!(nothing.interposition.imports.is_empty());
        assert_eq!(nothing.annotated, ["elsewhere"]);
        // A function whose type is not known may get anything on the stack.
        assert!(nothing.interposition.entries["f"].callers_stack);
        assert_eq!(nothing.unknown, ["f"]);
        let isolation = Isolation::new(&[("test", "other (a): nothing")], Vec::new()).unwrap();
        let mut module = Module::new(&[0xe9, 0, 0, 0, 0]);
        let number = module.0.symbols.iter().position(|symbol| symbol.name == "elsewhere").unwrap();
        module.reloc(TEXT, 1, reloc::PLT32, number, -4);
        assert_eq!(border(&isolation, &module.0).unannotated, ["elsewhere"]);
    }
}
