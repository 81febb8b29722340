//! What the annotations (`guardrail_kernel::isolation`) say of a module's border, as interposition.

use crate::object::{Object, reloc};
use crate::wrap::{Action, Entry, Interposition, Op, Value, Wrapper};
use guardrail_kernel::isolation::{self, Isolation, Member};
use object::elf;
use std::collections::{BTreeMap, BTreeSet};

/// Words of the stack that are copied for functions whose prototype is not known.
const UNKNOWN_STACK: u8 = 6;
/// What functions that return an `int` return where they cannot be called (`-EIO`).
const FAILED: i64 = -5;
/// The runtime's function for memory that may be of several kinds.
const DISOWN: &str = "disown";

/// A module's border.
#[derive(Clone, Debug, Default)]
pub struct Border {
    /// What is done there.
    pub interposition: Interposition,
    /// Functions that the module imports and that have a line.
    pub annotated: Vec<String>,
    /// Those that have none.
    pub unannotated: Vec<String>,
    /// Functions of the module that stand in a structure of function pointers, with their members.
    pub members: Vec<(String, Vec<Member>)>,
    /// Functions of the module with an argument of which no line speaks, in data or code of the kernel's.
    pub unknown: Vec<String>,
}

/// Works out what is to be done at a module's border.
pub fn border(isolation: &Isolation, object: &Object) -> Border {
    let mut border = Border::default();
    for name in imports(object) {
        let shape = isolation.shape(&name);
        let known = isolation.function(&name);
        let list = if known.is_some() { &mut border.annotated } else { &mut border.unannotated };
        list.push(name.clone());
        let mut annotation = isolation.handed(&name);
        let own = known.unwrap_or_default();
        annotation.before.extend(own.before);
        annotation.after.extend(own.after);
        let wrapper = Wrapper {
            before: actions(&annotation.before),
            after: actions(&annotation.after),
            stack_words: shape.map_or(UNKNOWN_STACK, |shape| shape.stack_words),
            variadic: shape.is_some_and(|shape| shape.variadic),
        };
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
            before: actions(&found.annotation.before),
            after: actions(&found.annotation.after),
            stack_words: if found.shape.is_none() { UNKNOWN_STACK } else { shape.stack_words },
            dead: found.fail.unwrap_or(if shape.int { FAILED } else { 0 }),
            callers_stack: unknown,
        };
        border.interposition.entries.insert(name, entry);
    }
    border.interposition.default_entry =
        Entry { stack_words: UNKNOWN_STACK, callers_stack: true, ..Entry::default() };
    border
}

/// The functions that a module imports: what it calls, or jumps to, that is not its own.
fn imports(object: &Object) -> BTreeSet<String> {
    let code = object.sections.iter().filter(|section| section.alloc() && section.exec());
    let branches = code.flat_map(|section| &section.relocs).filter(|reloc| {
        let symbol = &object.symbols[reloc.symbol];
        symbol.undefined() && reloc.kind == reloc::PLT32
    });
    let names = branches.map(|reloc| object.symbols[reloc.symbol].name.clone());
    names.filter(|name| !name.is_empty()).collect()
}

fn functions(object: &Object) -> BTreeSet<String> {
    let own = object.symbols.iter().filter(|symbol| symbol.function() && symbol.section().is_some());
    own.map(|symbol| symbol.name.clone()).filter(|name| !name.is_empty()).collect()
}

/// For functions in variables that are structures of function pointers, where they stand.
fn members(isolation: &Isolation, object: &Object) -> BTreeMap<String, Vec<Member>> {
    let functions: BTreeMap<(usize, u64), &str> = object
        .symbols
        .iter()
        .filter(|symbol| symbol.function() && !symbol.name.is_empty())
        .filter_map(|symbol| Some(((symbol.section()?, symbol.value), symbol.name.as_str())))
        .collect();
    let mut found: BTreeMap<String, Vec<Member>> = BTreeMap::new();
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
        if pointers.is_empty() {
            continue;
        }
        for (function, member) in isolation.operations(variable.size, &pointers) {
            let known = found.entry(function).or_default();
            if !known.contains(&member) {
                known.push(member);
            }
        }
    }
    found
}

/// What an object is and which of its fields may be written is said in one action.
fn actions(actions: &[isolation::Action]) -> Vec<Action> {
    let mut all: Vec<Action> = Vec::new();
    for next in actions.iter().flat_map(action) {
        if let Op::Fields { pointer, fields: own } = &next.op
            && let Some(Action { when, op: Op::Object { pointer: object, fields, .. } }) = all.last_mut()
            && *when == next.when
            && pointer == object
            && fields.is_empty()
        {
            fields.clone_from(own);
        } else {
            all.push(next);
        }
    }
    all
}

fn action(action: &isolation::Action) -> Vec<Action> {
    use isolation::Op as From;
    let given = |value: &Option<Value>| value.clone().unwrap_or(Value::Const(0));
    let pair = |fields: &[isolation::Field]| fields.iter().map(|field| (field.offset, field.size)).collect();
    let ops = match &action.op {
        From::Grant(pointer, size) => vec![Op::Grant { pointer: pointer.clone(), size: size.clone() }],
        From::Revoke(pointer, size) => vec![Op::Revoke { pointer: pointer.clone(), size: size.clone() }],
        From::Require(pointer, size) => {
            vec![Op::RequireWrite { pointer: pointer.clone(), size: size.clone() }]
        }
        From::Own(pointer, size, kind) => {
            vec![Op::Own { pointer: pointer.clone(), size: size.clone(), kind: *kind }]
        }
        From::Disown(pointer, kinds) => match kinds.as_slice() {
            [kind] => vec![Op::Disown { pointer: pointer.clone(), kind: *kind }],
            kinds => {
                let mask = kinds.iter().fold(0, |mask, kind| mask | i64::from(*kind));
                let (pointer, size) = (pointer.clone(), Value::Const(mask));
                vec![Op::Custom { name: DISOWN.to_owned(), pointer, size }]
            }
        },
        From::Fields(pointer, fields) => vec![Op::Fields { pointer: pointer.clone(), fields: pair(fields) }],
        From::Unfields(pointer, fields) => {
            vec![Op::UnFields { pointer: pointer.clone(), fields: pair(fields) }]
        }
        From::Object(pointer, size, kind) => {
            vec![Op::Object { pointer: pointer.clone(), size: size.clone(), kind: *kind, fields: Vec::new() }]
        }
        From::Needs(pointer, kind, state) => {
            vec![Op::RequireObject { pointer: pointer.clone(), kind: *kind, state: *state }]
        }
        From::Move(pointer, kind, from, to) => {
            vec![Op::MoveObject { pointer: pointer.clone(), kind: *kind, from: *from, to: *to }]
        }
        From::Ends(pointer, kind, state) => {
            vec![Op::EndObject { pointer: pointer.clone(), kind: *kind, state: *state }]
        }
        From::Forget(pointer, kind) => vec![Op::ClearObject { pointer: pointer.clone(), kind: *kind }],
        From::Exit => vec![Op::Exit],
        From::Target(pointer) => vec![Op::RequireCall { pointer: pointer.clone() }],
        From::Custom(name, pointer, size) => {
            vec![Op::Custom { name: name.clone(), pointer: given(pointer), size: given(size) }]
        }
        From::Instead(name, pointer, size) => {
            vec![Op::Instead { name: name.clone(), pointer: given(pointer), size: given(size) }]
        }
    };
    ops.into_iter().map(|op| Action { when: action.when, op }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Module, TEXT};
    use crate::wrap::When;

    /// A module that calls `elsewhere`, which has these effects.
    fn of(effects: &str) -> Border {
        let isolation = Isolation::new(&[("test", &format!("elsewhere (a, b): {effects}"))], Vec::new());
        // call elsewhere; ret
        let mut module = Module::new(&[0xe8, 0, 0, 0, 0, 0xc3]);
        let number = module.0.symbols.iter().position(|symbol| symbol.name == "elsewhere").unwrap();
        module.reloc(TEXT, 1, reloc::PLT32, number, -4);
        border(&isolation.unwrap(), &module.0)
    }

    #[test]
    fn effects_become_actions() {
        let border =
            of("alloc slab a*b ; free [a+16] slab|page ; needs a frame ; ends b frame ; target b if a");
        assert_eq!(
            (border.annotated.as_slice(), border.unannotated.len()),
            (&["elsewhere".to_owned()][..], 0)
        );
        let wrapper = &border.interposition.imports["elsewhere"];
        // Of a function without a type it is not known how many arguments lie on the stack.
        assert_eq!((wrapper.stack_words, wrapper.variadic), (UNKNOWN_STACK, false));
        let (a, b) = (Value::Arg(0), Value::Arg(1));
        let size = Value::Mul(Box::new(a.clone()), Box::new(b.clone()));
        let (slab, page, frame) = (1, 4, 1 << 17);
        let result = |op| Action { when: When::ResultValid, op };
        let wanted = [
            Op::Grant { pointer: Value::Result, size: size.clone() },
            Op::Own { pointer: Value::Result, size, kind: slab },
        ];
        assert_eq!(wrapper.after, wanted.map(result));
        let inside = Value::Add(Box::new(a.clone()), Box::new(Value::Const(16)));
        let freed = Value::Load(Box::new(inside), 0, 8);
        let either = Value::Const(i64::from(slab | page));
        let wanted = [
            Op::Custom { name: DISOWN.into(), pointer: freed, size: either }.into(),
            Op::RequireObject { pointer: a, kind: frame, state: None }.into(),
            Op::EndObject { pointer: b.clone(), kind: frame, state: None }.into(),
            Action { when: When::NonZero(0), op: Op::RequireCall { pointer: b } },
        ];
        assert_eq!(wrapper.before, wanted);
    }

    #[test]
    fn an_object_and_its_fields_are_one_action() {
        let fields = |pointer: Value| isolation::Action {
            when: When::Always,
            op: isolation::Op::Fields(pointer, vec![isolation::Field { offset: 8, size: 4 }]),
        };
        let object = |pointer: Value| isolation::Action {
            when: When::Always,
            op: isolation::Op::Object(pointer, Value::Const(64), 2),
        };
        let (a, b) = (Value::Arg(0), Value::Arg(1));
        let one = |pointer: &Value, fields| {
            Action::from(Op::Object { pointer: pointer.clone(), size: Value::Const(64), kind: 2, fields })
        };
        assert_eq!(actions(&[object(a.clone()), fields(a.clone())]), [one(&a, vec![(8, 4)])]);
        let others = actions(&[object(a.clone()), fields(b.clone())]);
        assert_eq!(others, [one(&a, vec![]), Op::Fields { pointer: b, fields: vec![(8, 4)] }.into()]);
        let again = actions(&[object(a.clone()), fields(a.clone()), fields(a.clone())]);
        assert_eq!(again.len(), 2);
    }

    #[test]
    fn what_has_no_line_is_called_as_it_is() {
        let nothing = of("nothing");
        assert!(nothing.interposition.imports.is_empty());
        assert_eq!(nothing.annotated, ["elsewhere"]);
        // A function whose type is not known may be given anything on the stack.
        assert!(nothing.interposition.entries["f"].callers_stack);
        assert_eq!(nothing.unknown, ["f"]);
        let isolation = Isolation::new(&[("test", "other (a): nothing")], Vec::new()).unwrap();
        let mut module = Module::new(&[0xe9, 0, 0, 0, 0]);
        let number = module.0.symbols.iter().position(|symbol| symbol.name == "elsewhere").unwrap();
        module.reloc(TEXT, 1, reloc::PLT32, number, -4);
        assert_eq!(border(&isolation, &module.0).unannotated, ["elsewhere"]);
    }
}
