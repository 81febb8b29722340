//! Makes a module a guarded one: it gets a description for the runtime (`struct guardrail_module`).
//! Stubs in place of its init and exit functions pass that description to the runtime.

use crate::border::grade::{Grade, Share};
use crate::border::life::position;
use crate::border::runtime::Exports;
use crate::border::{CALLS, Callee, Done, ENTRIES, INIT_ENTRIES, Import, Interposition, interpose};
use crate::engine::emit::{go, relative, relative_operand};
use crate::engine::object::{Content, Object, Reloc, Section, SectionIndex, Symbol, reloc};
use crate::engine::patch::Op;
use crate::engine::tables::{ENDBR, EXIT, INIT, THIS};
use crate::error::{Result, refused};
use guardrail_abi::{self as abi, layout, symbol};
use iced_x86::{Code as Opcode, Instruction, Register};
use object::elf;
use std::collections::{BTreeMap, BTreeSet};

/// The section that describes the module.
pub const SECTION: &str = ".guardrail";
/// The section of the stubs.
pub const LIFE: &str = ".text.guardrail.life";
/// The stubs that the kernel calls in place of the init and exit functions.
pub const INIT_STUB: &str = "guardrail_init";
pub const EXIT_STUB: &str = "guardrail_exit";
/// The field of `.modinfo` with the module's grade.
pub const GRADE: &str = "guardrail_grade";
/// Bytes of a row of `__versions`: a checksum and a name.
const VERSION: usize = 64;
const VERSION_NAME: usize = VERSION - 8;

/// What the runtime is to know of a module beside its border.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its protection domain, from 1 to 14.
    pub domain: u8,
    /// Functions that are called without a rule on the user's word.
    pub trusted: &'a BTreeSet<String>,
    /// The stores of its code that are under a rule.
    pub stores: Share,
    /// Percent of its imports that must be under a rule for policies that end calls.
    pub threshold: u32,
}

/// Describes a module to the runtime, with the actions at its border. The module enters and leaves by the
/// runtime from then on.
pub fn describe(object: &mut Object, named: &Named<'_>, border: &Interposition) -> Result<(Done, Grade)> {
    let (this, init, exit) = life(object)?;
    let Named { name, domain, threshold, .. } = *named;
    let hooks: Vec<usize> = [init, exit].into_iter().flatten().map(|(_, symbol)| symbol).collect();
    let (done, callable) = interpose(object, domain, border, &hooks)?;
    let grade = grade(named, border, &done);
    let sections = |object: &Object, wanted: &dyn Fn(&Section) -> bool| {
        let found = object.sections.iter().enumerate().filter(|(_, section)| wanted(section));
        found.map(|(index, section)| (index, section.size())).collect::<Vec<_>>()
    };
    let (writable, init_only) =
        (sections(object, &Section::variables), sections(object, &Section::init_variables));
    let named = |names: &'static [&str]| {
        move |section: &Section| section.size() > 0 && names.contains(&section.name.as_str())
    };
    let calls = sections(object, &named(&[CALLS]));
    let entries = sections(object, &named(&[ENTRIES, INIT_ENTRIES]));

    use layout::module as row;
    let mut bytes = vec![0; row::BYTES];
    let words = [
        (row::MAGIC, abi::MAGIC),
        (row::ABI, abi::ABI),
        (row::DOMAIN, u32::from(domain)),
        (row::RULED, grade.imports.part),
        (row::IMPORTED, grade.imports.of),
        (row::THRESHOLD, threshold),
    ];
    for (at, word) in words {
        bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    let mut relocs = Vec::new();
    let section = object.sections.len();
    let own = object.symbol_of_section(section);
    let mut pointer = |offset: u64, symbol: usize, addend: i64| {
        relocs.push(Reloc { offset, kind: reloc::ABS64, symbol, addend });
    };
    for (at, function) in [(row::INIT, init), (row::EXIT, exit)] {
        if let Some((_, symbol)) = function {
            pointer(at as u64, symbol, 0);
        }
    }
    let lists = [
        (row::WRITABLE, row::N_WRITABLE, &writable),
        (row::INIT_ONLY, row::N_INIT_ONLY, &init_only),
        (row::CALLS, row::N_CALLS, &calls),
        (row::ENTRIES, row::N_ENTRIES, &entries),
    ];
    for (at, count, ranges) in lists {
        pointer(at as u64, own, bytes.len() as i64);
        bytes[count..count + 8].copy_from_slice(&(ranges.len() as u64).to_le_bytes());
        for (index, size) in ranges {
            let range = bytes.len();
            bytes.resize(range + layout::range::BYTES, 0);
            pointer((range + layout::range::START) as u64, object.symbol_of_section(*index), 0);
            let len = range + layout::range::LEN;
            bytes[len..len + 8].copy_from_slice(&size.to_le_bytes());
        }
    }
    pointer(row::TARGETS as u64, own, bytes.len() as i64);
    let count = row::N_TARGETS;
    bytes[count..count + 8].copy_from_slice(&(callable.targets.len() as u64).to_le_bytes());
    for (symbol, function) in callable.targets {
        use layout::own_function as own;
        let at = bytes.len();
        bytes.resize(at + own::BYTES, 0);
        pointer((at + own::FUNCTION) as u64, symbol, 0);
        bytes[at + own::TYPE..at + own::TYPE + 4].copy_from_slice(&function.to_le_bytes());
    }
    pointer(row::IMPORTS as u64, own, bytes.len() as i64);
    let count = row::N_IMPORTS;
    bytes[count..count + 8].copy_from_slice(&(callable.imports.len() as u64).to_le_bytes());
    for Import { function, call, proto } in callable.imports {
        use layout::import;
        let at = bytes.len();
        bytes.resize(at + import::BYTES, 0);
        pointer((at + import::FUNCTION) as u64, function, 0);
        if let Some(call) = call {
            pointer((at + import::CALL) as u64, call, 0);
        }
        let proto_at = at + import::PROTO;
        bytes[proto_at..proto_at + 4].copy_from_slice(&proto.to_le_bytes());
    }
    pointer(row::NAME as u64, own, bytes.len() as i64);
    bytes.extend(name.as_bytes());
    bytes.push(0);
    list_entries(&mut bytes, &mut relocs, own, callable.transacts);
    relocs.sort_by_key(|reloc| reloc.offset);
    object.sections.push(Section::new(SECTION, elf::SHF_ALLOC, bytes, relocs));
    depend(object);
    stubs(object, this, own, init, exit)?;
    object.note(GRADE, &grade.to_string());
    // Programs that make an initramfs take along the files that modules in it name so.
    object.note("firmware", &format!("{}/{}", abi::FIRMWARE, abi::certified(name)));
    Ok((done, grade))
}

/// Adds the list of entries that can be transactions to a description with this symbol. The entries are described in another
/// section: its symbol, and their offsets.
fn list_entries(bytes: &mut Vec<u8>, relocs: &mut Vec<Reloc>, own: usize, entries: (usize, Vec<u64>)) {
    use layout::module::{N_TRANSACTS, TRANSACTS};
    let (data, offsets) = entries;
    let mut pointer = |offset: usize, symbol: usize, addend: usize| {
        let (offset, addend) = (offset as u64, addend as i64);
        relocs.push(Reloc { offset, kind: reloc::ABS64, symbol, addend });
    };
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    pointer(TRANSACTS, own, bytes.len());
    bytes[N_TRANSACTS..N_TRANSACTS + 8].copy_from_slice(&(offsets.len() as u64).to_le_bytes());
    for at in offsets {
        pointer(bytes.len(), data, at as usize);
        bytes.resize(bytes.len() + 8, 0);
    }
}

/// How much of the module is under a rule. A function counts only if it is so at each of its calls.
fn grade(named: &Named<'_>, border: &Interposition, done: &Done) -> Grade {
    let ruled = |(name, callee): (&String, &Callee)| {
        named.trusted.contains(name) || (callee.ruled && !done.missed.contains(name))
    };
    let known = |name: &String| !border.entries.get(name).unwrap_or(&border.default_entry).callers_stack;
    Grade {
        imports: Share::of(border.callable.iter().map(ruled)),
        entries: Share::of(done.entries.iter().map(known)),
        stores: named.stores,
    }
}

/// A function that the kernel calls: the number of the relocation of `struct module` that names it, and its
/// symbol. `None` if the module has none.
type Hook = Option<(usize, usize)>;

/// The section with `struct module`, and the module's init and exit functions.
fn life(object: &Object) -> Result<(usize, Hook, Hook)> {
    let Some(this) = object.section(THIS) else { return refused(THIS, "the module has none") };
    let hook = |name: &str| {
        let number = position(object, this, name)?;
        Some((number, object.sections[this].relocs[number].symbol))
    };
    match (hook(INIT), hook(EXIT)) {
        (None, _) => refused(THIS, "the module has no init function, at which it would get its rights"),
        (init, exit) => Ok((this, init, exit)),
    }
}

/// Puts stubs in place of init and exit.
fn stubs(object: &mut Object, this: usize, description: usize, init: Hook, exit: Hook) -> Result<()> {
    let wanted = [(init, INIT_STUB, symbol::MODULE_ENTER), (exit, EXIT_STUB, symbol::MODULE_LEAVE)];
    let section = object.sections.len();
    let (mut bytes, mut relocs): (Vec<u8>, Vec<Reloc>) = (Vec::new(), Vec::new());
    for (hook, name, runtime) in wanted {
        let Some((number, _)) = hook else { continue };
        bytes.resize(bytes.len().next_multiple_of(16), 0xcc);
        let start = bytes.len();
        let target = object.import(runtime);
        let lea = Instruction::with2(Opcode::Lea_r64_m, Register::RDI, relative_operand());
        // The call that leads here may demand that the stub begin so.
        bytes.extend(ENDBR);
        for op in [relative(lea, description, 0)?, go(target, true)] {
            if let Op::Code(code, reloc) = op {
                let at = bytes.len() as u64;
                relocs.extend(reloc.map(|reloc| Reloc { offset: at + reloc.offset, ..reloc }));
                bytes.extend(code);
            }
        }
        object.symbols.push(Symbol {
            name: name.into(),
            index: SectionIndex::In(section),
            value: start as u64,
            size: (bytes.len() - start) as u64,
            info: elf::STT_FUNC,
            other: 0,
        });
        object.sections[this].relocs[number].symbol = object.symbols.len() - 1;
    }
    let starts: Vec<(u64, i16)> = (0..bytes.len() as u64).step_by(16).map(|at| (at, 0)).collect();
    let flags = elf::SHF_ALLOC | elf::SHF_EXECINSTR;
    object.sections.push(Section::new(LIFE, flags, bytes, relocs));
    crate::engine::orc::describe(object, section, &starts);
    Ok(())
}

/// Adds the runtime to the modules that must be loaded before this one. What is in `.modinfo` already keeps
/// its place, since symbols name it.
pub(crate) fn depend(object: &mut Object) {
    let info = object.section(".modinfo").map(|index| &mut object.sections[index].content);
    let Some(Content::Bytes(bytes)) = info else { return };
    let mut at = 0;
    let fields = bytes.split(|&byte| byte == 0).map(|field| {
        at += field.len() + 1;
        (at - field.len() - 1, field)
    });
    let mut wanted = b"depends=".to_vec();
    if let Some((start, field)) = fields.into_iter().find(|(_, field)| field.starts_with(b"depends=")) {
        if field.ends_with(abi::RUNTIME.as_bytes()) {
            return;
        }
        wanted = field.to_vec();
        let end = start + field.len();
        // Readers skip zeros between fields.
        bytes[start..end].fill(0);
    }
    if !wanted.ends_with(b"=") {
        wanted.push(b',');
    }
    bytes.extend(wanted);
    bytes.extend_from_slice(abi::RUNTIME.as_bytes());
    bytes.push(0);
}

/// The checksums of imports, by name; `None` where the module has none.
pub fn versions(object: &Object) -> Option<BTreeMap<String, u64>> {
    let table = object.section("__versions")?;
    let row = |row: &[u8]| {
        let (sum, name) = row.split_at(VERSION - VERSION_NAME);
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        (String::from_utf8_lossy(name).into_owned(), sum.try_into().map_or(0, u64::from_le_bytes))
    };
    Some(object.sections[table].bytes().chunks_exact(VERSION).map(row).collect())
}

/// Names of imports from the runtime.
pub fn imports(object: &Object) -> impl Iterator<Item = &String> {
    let own = |symbol: &&Symbol| symbol.undefined() && symbol.name.starts_with(abi::PREFIX);
    object.symbols.iter().filter(own).map(|symbol| &symbol.name)
}

/// Adds the checksums of new imports from the runtime; does nothing where the module has no checksums.
pub fn add_versions(object: &mut Object, runtime: &Exports) -> Result<()> {
    let (Some(table), Some(there)) = (object.section("__versions"), versions(object)) else { return Ok(()) };
    let mut more = Vec::new();
    for name in imports(object).filter(|name| !there.contains_key(*name)) {
        let Some(sum) = runtime.symbols.get(name).filter(|_| name.len() < VERSION_NAME) else {
            return refused(name, "the runtime exports nothing of this name; build it anew");
        };
        more.extend(u64::from(sum.unwrap_or(0)).to_le_bytes());
        more.extend(name.as_bytes());
        more.resize(more.len().next_multiple_of(VERSION), 0);
    }
    object.sections[table].extend(&more);
    Ok(())
}
