//! Modules made from scratch, with actions at their border.

use super::runtime::Exports;
use super::*;
use crate::border::guard;
use crate::engine::code::Code;
use crate::engine::layout::place;
use crate::engine::object::{Object, SectionIndex, reloc};
use crate::engine::tables;
use crate::error::Result;
use crate::passes::checks::Checks;
use crate::rewrite;
use crate::tests::{Module, TEXT, listing};
use crate::verify::verify;
use object::elf;
use std::collections::BTreeSet;

/// `f` takes a pointer to `g` and calls `elsewhere` twice, once as the last thing; then follow `g` and
/// `init_module`.
const CODE: [u8; 36] = [
    0x0f, 0x1f, 0x44, 0, 0, // f: where a tracer is called
    0x48, 0x8d, 0x3d, 0, 0, 0, 0, 0xe8, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0, // lea; call; jmp
    0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, // 22 to 31
    0xc3, // g
    0x31, 0xc0, 0xc3, // init_module
];
const G: u64 = 32;
const INIT: u64 = 33;
/// Symbols that every made module has: `.text`, `f`, `elsewhere`.
const TEXT_SYMBOL: usize = 1;
const ELSEWHERE: usize = 4;

fn module() -> Module {
    let mut module = Module::new(&CODE);
    module.0.symbols[3].size = 22;
    let function = elf::STB_GLOBAL << 4 | elf::STT_FUNC;
    module.symbol("g", SectionIndex::In(TEXT), G, 1, elf::STT_FUNC);
    module.symbol("init_module", SectionIndex::In(TEXT), INIT, 3, function);
    let init = module.0.symbols.len() - 1;
    module.reloc(TEXT, 8, reloc::PC32, TEXT_SYMBOL, G as i64 - 4);
    module.reloc(TEXT, 13, reloc::PLT32, ELSEWHERE, -4);
    module.reloc(TEXT, 18, reloc::PLT32, ELSEWHERE, -4);
    module.reloc(1, 8, reloc::ABS64, init, 0);
    // A structure of pointers: f, the import itself, g.
    for (offset, symbol, addend) in [(0, 3, 0), (8, ELSEWHERE, 0), (16, TEXT_SYMBOL, G as i64)] {
        module.reloc(3, offset, reloc::ABS64, symbol, addend);
    }
    let exports = module.section("__ksymtab", 0, &[0; 12]);
    module.reloc(exports, 0, reloc::PC32, 3, 0);
    // What the kernel patches is no pointer.
    module.table("__mcount_loc", elf::SHF_WRITE, &[0; 8], &[]);
    module.reloc(exports + 1, 0, reloc::ABS64, TEXT_SYMBOL, 0);
    module
}

fn arg(number: u8) -> Value {
    Value::Arg(number)
}

fn border() -> Interposition {
    let size = Value::Mul(Box::new(Value::Low(Box::new(arg(1)), 4)), Box::new(Value::Const(8)));
    let given = Value::Load(Box::new(arg(6)), 16, 2);
    let mut border = Interposition { default_entry: Entry::default(), ..Interposition::default() };
    border.callable.insert("elsewhere".into(), Callee { proto: 0x181, ruled: true });
    border.imports.insert(
        "elsewhere".into(),
        Wrapper {
            before: vec![
                Action::RequireWrite { pointer: arg(0), size }.into(),
                Step { when: When::NonZero(2), action: Action::Disown { pointer: arg(2), kind: 3 } },
            ],
            after: vec![
                Step {
                    when: When::ResultValid,
                    action: Action::Grant { pointer: Value::Result, size: given },
                },
                Action::Custom { name: "skb".into(), pointer: Value::Result, size: Value::Const(0) }.into(),
            ],
            stack_words: 2,
            variadic: false,
        },
    );
    border.imports.insert("printk".into(), Wrapper { variadic: true, ..Wrapper::default() });
    border.entries.insert(
        "g".into(),
        Entry {
            before: vec![
                Action::GrantFields {
                    pointer: arg(0),
                    fields: vec![Field { offset: 8, size: 8 }, Field { offset: 20, size: 2 }],
                }
                .into(),
            ],
            after: vec![
                Action::RevokeFields {
                    pointer: arg(0),
                    fields: vec![Field { offset: 8, size: 8 }, Field { offset: 20, size: 2 }],
                }
                .into(),
            ],
            stack_words: 1,
            dead: -5,
            callers_stack: true,
            pointers: vec![1, 6],
            kept: vec![6],
            function: 7,
            flags: 0,
        },
    );
    border
}

fn guarded(module: &Module, border: Interposition) -> Result<(Object, Done)> {
    let mut checks = Checks::new(2).guarded("made", &Exports::default()).interposing(border);
    let rewritten = rewrite("made.ko", module.0.write()?, &mut [&mut checks])?;
    Ok((Object::read("result", &rewritten.file)?, checks.done))
}

#[test]
fn calls_and_pointers_lead_through_thunks() {
    let (object, done) = guarded(&module(), border()).unwrap();
    insta::assert_snapshot!(listing(&object, TEXT));
    insta::assert_snapshot!(listing(&object, object.section(CALLS).unwrap()));
    insta::assert_snapshot!(listing(&object, object.section(ENTRIES).unwrap()));
    let mut pointers = String::new();
    for name in [".data", "__ksymtab", "__mcount_loc", ".gnu.linkonce.this_module", guard::SECTION] {
        for reloc in &object.sections[object.section(name).unwrap()].relocs {
            let symbol = &object.symbols[reloc.symbol];
            let section = symbol.section().map_or("", |section| &object.sections[section].name);
            let text = if symbol.name.is_empty() { section } else { &symbol.name };
            pointers += &format!("{name}+{:#x}: {text}{:+}\n", reloc.offset, reloc.addend);
        }
    }
    insta::assert_snapshot!(pointers);
    insta::assert_debug_snapshot!(done);
}

#[test]
fn a_call_is_left_out_where_something_is_done_instead() {
    let mut border = Interposition::default();
    let instead = Action::Instead { name: "it".into(), pointer: arg(0), size: Value::Const(0) };
    let grant = Action::Grant { pointer: Value::Result, size: Value::Const(8) };
    let wrapper = Wrapper { before: vec![instead.into()], after: vec![grant.into()], ..Wrapper::default() };
    border.imports.insert("elsewhere".into(), wrapper);
    let (object, _) = guarded(&module(), border).unwrap();
    insta::assert_snapshot!(listing(&object, object.section(CALLS).unwrap()));
}

#[test]
fn actions_are_as_the_runtime_reads_them() {
    let (object, _) = guarded(&module(), border()).unwrap();
    let section = &object.sections[object.section(".rodata.guardrail").unwrap()];
    let mut text = String::new();
    for (at, word) in (0..).step_by(8).zip(section.bytes().chunks(8)) {
        let pointer = section.relocs.iter().find(|reloc| reloc.offset == at);
        let bytes: Vec<String> = word.iter().map(|byte| format!("{byte:02x}")).collect();
        text += &match pointer {
            Some(reloc) => format!("{at:#05x}  -> {:#05x}\n", reloc.addend),
            None => format!("{at:#05x}  {}\n", bytes.join(" ")),
        };
    }
    insta::assert_snapshot!(text);
}

#[test]
fn thunks_return_as_the_kernel_wants_and_leave_room_for_counting() {
    let mut module = module();
    module.symbol("__x86_return_thunk", SectionIndex::Special(0), 0, 0, elf::STB_GLOBAL << 4);
    let global = module.0.symbols.len() - 1;
    module.0.sections[TEXT].content =
        crate::engine::object::Content::Bytes([&CODE[..], &[0xe9, 0, 0, 0, 0]].concat());
    module.reloc(TEXT, 37, reloc::PLT32, global, -4);
    module.table(".return_sites", 0, &[0; 4], &[(0, 36)]);
    module.table(".call_sites", 0, &[0; 4], &[(0, 12)]);
    module.table(".orc_unwind_ip", 0, &[0; 4], &[(0, 0)]);
    module.section(".orc_unwind", 0, &[8, 0, 0, 0, 5, 0]);
    let (object, _) = guarded(&module, border()).unwrap();
    insta::assert_snapshot!(listing(&object, object.section(CALLS).unwrap()));
    let sites = &object.sections[object.section(".return_sites").unwrap()];
    let mut rows = String::new();
    for reloc in &sites.relocs {
        let (section, offset) = object.target(reloc.symbol, reloc.addend).unwrap();
        rows += &format!("{}+{offset:#x}\n", object.sections[section].name);
    }
    let places = &object.sections[object.section(".orc_unwind_ip").unwrap()];
    let frames = object.sections[object.section(".orc_unwind").unwrap()].bytes();
    for (reloc, entry) in places.relocs.iter().zip(frames.chunks(6)) {
        let (section, offset) = object.target(reloc.symbol, reloc.addend).unwrap();
        rows += &format!("{}+{offset:#x}: {}\n", object.sections[section].name, entry[0]);
    }
    insta::assert_snapshot!(rows);
}

#[test]
fn what_is_a_network_frame_by_the_table_passes_without_the_runtime() {
    let mut border = Interposition::default();
    let needs =
        |argument| Action::RequireObject { pointer: arg(argument), kind: 1 << 12, state: None }.into();
    border
        .imports
        .insert("elsewhere".into(), Wrapper { before: vec![needs(0), needs(2)], ..Wrapper::default() });
    let (object, _) = guarded(&module(), border.clone()).unwrap();
    insta::assert_snapshot!(listing(&object, object.section(CALLS).unwrap()));
    // Where the table has no memory, the thunk goes on as it does elsewhere.
    let faults = &object.sections[object.section("__ex_table").unwrap()];
    let calls = object.section(CALLS).unwrap();
    let targets: Vec<u64> = faults
        .relocs
        .iter()
        .filter_map(|reloc| object.target(reloc.symbol, reloc.addend))
        .filter_map(|(section, offset)| (section == calls).then_some(offset))
        .collect();
    let [first, to, second, too] = targets[..] else { panic!("{targets:?}") };
    assert!(first < second && second < to && to == too);
    // Only the runtime can perform other actions.
    let wrapper = border.imports.get_mut("elsewhere").unwrap();
    wrapper.after.push(Action::Revoke { pointer: arg(0), size: Value::Const(8) }.into());
    let (object, _) = guarded(&module(), border).unwrap();
    assert!(object.section("__ex_table").is_none_or(|table| {
        let targets = object.sections[table]
            .relocs
            .iter()
            .filter_map(|reloc| object.target(reloc.symbol, reloc.addend));
        targets.into_iter().all(|(section, _)| section != object.section(CALLS).unwrap())
    }));
}

/// The rows of imports in a description: function or variable, what a call by pointer leads to, prototype.
fn imports(object: &Object) -> Vec<(String, String, u32)> {
    use guardrail_abi::layout::{import, module};
    let section = &object.sections[object.section(guard::SECTION).unwrap()];
    let find = |offset: usize| section.relocs.iter().find(|reloc| reloc.offset == offset as u64);
    let at = |offset: usize| find(offset).unwrap();
    let number = |at: usize| u32::from_le_bytes(section.bytes()[at..at + 4].try_into().unwrap());
    let first = at(module::IMPORTS).addend as usize;
    let row = |row: usize| {
        let name = |offset: usize| object.name(at(row + offset)).to_owned();
        let call = find(row + import::CALL).map_or_else(String::new, |_| name(import::CALL));
        (name(import::FUNCTION), call, number(row + import::PROTO))
    };
    (0..number(module::N_IMPORTS) as usize).map(|number| row(first + import::BYTES * number)).collect()
}

#[test]
fn imports_have_thunks_where_only_their_address_is_taken() {
    let mut module = module();
    module.0.sections[TEXT].relocs.retain(|reloc| reloc.symbol != ELSEWHERE);
    let (object, done) = guarded(&module, border()).unwrap();
    assert_eq!((done.imports, done.calls), (vec!["elsewhere".to_owned()], 0));
    let row = ("elsewhere".to_owned(), "guardrail_call_elsewhere".to_owned(), 0x181);
    assert_eq!(imports(&object), std::slice::from_ref(&row));
    // Variables are listed as well, and cannot be called; what is the runtime's is not.
    module.symbol("variable", SectionIndex::Special(0), 0, 0, elf::STB_GLOBAL << 4);
    module.symbol("guardrail_usage", SectionIndex::Special(0), 0, 0, elf::STB_GLOBAL << 4);
    let variable = ("variable".to_owned(), String::new(), 0);
    assert_eq!(imports(&guarded(&module, border()).unwrap().0), [row, variable.clone()]);
    // The pointer keeps its value, since the kernel may compare it.
    let data = &object.sections[3].relocs;
    assert_eq!(object.name(data.iter().find(|reloc| reloc.offset == 8).unwrap()), "elsewhere");
    // Without actions it is called as it is, also by pointer.
    let mut border = border();
    border.imports.clear();
    let (object, done) = guarded(&module, border).unwrap();
    assert!(done.imports.is_empty() && object.section(CALLS).is_none());
    assert_eq!(imports(&object), [("elsewhere".to_owned(), "elsewhere".to_owned(), 0x181), variable]);
}

#[test]
fn the_grade_counts_what_is_under_a_rule() {
    let graded = |ruled, trusted: &[&str], missed: bool| {
        let mut border = border();
        border.callable.insert("elsewhere".into(), Callee { proto: 0, ruled });
        let mut module = module();
        if missed {
            let replaced = module.section(".altinstr_replacement", elf::SHF_EXECINSTR, &[0xe8, 0, 0, 0, 0]);
            module.reloc(replaced, 1, reloc::PLT32, ELSEWHERE, -4);
        }
        let mut checks = Checks::new(2)
            .guarded("made", &Exports::default())
            .trusting(trusted.iter().map(|name| (*name).to_owned()))
            .wanting(75)
            .interposing(border);
        let file = rewrite("made.ko", module.0.write().unwrap(), &mut [&mut checks]).unwrap().file;
        let object = Object::read("result", &file).unwrap();
        let bytes = object.sections[object.section(guard::SECTION).unwrap()].bytes();
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        use guardrail_abi::layout::module as row;
        let info = object.sections[object.section(".modinfo").unwrap()].bytes();
        let info = String::from_utf8_lossy(info).into_owned();
        assert!(info.contains(&format!("{}={}", guard::GRADE, checks.grade)), "{info}");
        assert!(info.contains("firmware=guardrail/made.sha256\0"), "{info}");
        (number(row::RULED), number(row::IMPORTED), number(row::THRESHOLD), checks.grade.entries.percent())
    };
    assert_eq!(graded(true, &[], false), (1, 1, 75, 50));
    assert_eq!(graded(false, &[], false), (0, 1, 75, 50));
    assert_eq!(graded(false, &["elsewhere"], false), (1, 1, 75, 50));
    // A call that the kernel puts in place of code passes no thunk.
    assert_eq!(graded(true, &[], true), (0, 1, 75, 50));
}

#[test]
fn functions_of_init_have_thunks_that_go_with_it() {
    let mut module = module();
    let init = module.section(".init.text", elf::SHF_EXECINSTR, &[0xc3]);
    module.symbol("early", SectionIndex::In(init), 0, 1, elf::STT_FUNC);
    let symbol = module.0.symbols.len() - 1;
    module.reloc(3, 24, reloc::ABS64, symbol, 0);
    let (object, done) = guarded(&module, Interposition::default()).unwrap();
    assert_eq!(done.entries, ["f", "g", "early"]);
    assert_eq!((done.calls, done.pointers), (0, 5));
    let thunk = object.symbols.iter().find(|symbol| symbol.name == "guardrail_enter_early").unwrap();
    assert_eq!(object.sections[thunk.section().unwrap()].name, INIT_ENTRIES);
    assert!(object.section(CALLS).is_none());
}

#[test]
fn functions_with_any_number_of_arguments_get_the_words_of_the_stack() {
    let instead = Action::Instead { name: "it".into(), pointer: arg(0), size: arg(0) };
    let after = Step::from(Action::Grant { pointer: Value::Result, size: Value::Const(8) });
    let wrapper =
        Wrapper { before: vec![instead.into()], after: vec![after], stack_words: 2, variadic: true };
    let mut border = Interposition { default_entry: Entry::default(), ..Interposition::default() };
    border.imports.insert("elsewhere".into(), wrapper);
    let (object, _) = guarded(&module(), border).unwrap();
    let thunk = listing(&object, object.section(CALLS).unwrap());
    assert_eq!(thunk.matches("push").count(), 2);
    // It has no vectors, on both ways to the function.
    assert!(thunk.find("xor").unwrap() < thunk.find("push").unwrap());
}

#[test]
fn what_cannot_be_done_is_refused() {
    let mut said = Vec::new();
    let mut refusal = |wrapper: Wrapper| {
        let mut border = Interposition::default();
        border.imports.insert("elsewhere".into(), wrapper);
        said.push(guarded(&module(), border).unwrap_err().to_string());
    };
    let grant = |pointer| Step::from(Action::Grant { pointer, size: Value::Const(8) });
    let before = |action| Wrapper { before: vec![action], ..Wrapper::default() };
    refusal(Wrapper { after: vec![grant(Value::Result)], stack_words: 65, ..Wrapper::default() });
    refusal(before(grant(Value::Result)));
    refusal(before(grant(Value::Load(Box::new(Value::Result), 0, 8))));
    refusal(before(Step { when: When::ResultZero, action: Action::Exit }));
    refusal(before(grant(arg(32))));
    refusal(before(grant(Value::Load(Box::new(arg(0)), 0, 3))));
    refusal(before(grant(Value::Low(Box::new(arg(0)), 8))));
    let mut deep = arg(0);
    let mut long = arg(0);
    for _ in 0..4 {
        deep = Value::Add(Box::new(Value::Const(1)), Box::new(deep));
    }
    for _ in 0..17 {
        long = Value::Load(Box::new(long), 0, 8);
    }
    refusal(before(grant(deep)));
    refusal(before(grant(long)));
    refusal(before(Action::Custom { name: "a b".into(), pointer: arg(0), size: arg(0) }.into()));
    let mut module = module();
    module.symbol("__cfi_f", SectionIndex::In(TEXT), 0, 0, elf::STT_FUNC);
    said.push(guarded(&module, Interposition::default()).unwrap_err().to_string());
    insta::assert_snapshot!(said.join("\n"));
}

/// A module with its border, as it is verified: the result of a rewriting that moves nothing.
struct Checked {
    old: Object,
    codes: Vec<Code>,
    placed: BTreeMap<usize, crate::engine::layout::Placed>,
    new: Object,
}

impl Checked {
    fn new() -> Checked {
        let old = module().0;
        let codes = vec![Code::read(&old, TEXT, &tables::fixed(&old, TEXT).unwrap()).unwrap()];
        let placed = BTreeMap::from([(TEXT, place(&old, &codes[0], &BTreeMap::new()).unwrap())]);
        let mut new = old.clone();
        let trusted = BTreeSet::new();
        let named = guard::Named {
            name: "made",
            domain: 1,
            trusted: &trusted,
            stores: grade::Share::default(),
            threshold: 90,
        };
        guard::describe(&mut new, &named, &border()).unwrap();
        Checked { old, codes, placed, new }
    }

    /// What verification reports for a module that was changed.
    fn said(&self, change: impl Fn(&mut Object)) -> String {
        let mut new = self.new.clone();
        change(&mut new);
        verify(&self.old, &self.codes, &self.placed, &new)
            .map_or_else(|error| error.to_string(), |()| "good".into())
    }

    fn symbol(&self, name: &str) -> usize {
        self.new.symbols.iter().position(|symbol| symbol.name == name).unwrap()
    }
}

#[test]
fn ways_past_thunks_or_to_wrong_ones_are_found() {
    let checked = Checked::new();
    let call = checked.symbol("guardrail_call_elsewhere");
    let (f, g) = (checked.symbol("guardrail_enter_f"), checked.symbol("guardrail_enter_g"));
    let (calls, entries) = (checked.new.section(CALLS).unwrap(), checked.new.section(ENTRIES).unwrap());
    let renamed = |name: &'static str, section: usize| {
        move |object: &mut Object| {
            object.symbols.push(crate::engine::object::Symbol {
                name: "other".into(),
                ..object.symbols[ELSEWHERE].clone()
            });
            let other = object.symbols.len() - 1;
            let symbols = object.symbols.clone();
            for reloc in &mut object.sections[section].relocs {
                if symbols[reloc.symbol].name == name {
                    reloc.symbol = other;
                }
            }
        }
    };
    let said = [
        checked.said(|_| {}),
        // One of two calls, and one of two pointers, is as it was.
        checked.said(|object| object.sections[TEXT].relocs[2].symbol = ELSEWHERE),
        checked.said(|object| object.sections[3].relocs[0].symbol = 3),
        // References lead to a thunk of another kind, into the middle of one, to that of another function.
        checked.said(|object| object.sections[TEXT].relocs[1].symbol = f),
        checked.said(|object| object.sections[3].relocs[0].addend = 4),
        checked.said(|object| object.sections[3].relocs[0].symbol = g),
        checked.said(|object| object.sections[3].relocs[0].symbol = call),
        // Thunks call something else, or nothing.
        checked.said(renamed("elsewhere", calls)),
        checked.said(renamed("f", entries)),
        checked.said(|object| object.sections[calls].relocs.clear()),
        // The kernel calls init past the runtime, or the runtime does not know it.
        checked.said(|object| object.sections[1].relocs[0].symbol = f),
        checked.said(|object| {
            let section = object.section(guard::SECTION).unwrap();
            object.sections[section].relocs.clear();
        }),
    ];
    insta::assert_snapshot!(said.join("\n"));
}
