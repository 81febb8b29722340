//! Certifies a module as a whole.

use crate::CertifyError;
use crate::data;
use crate::elf::{Elf, Place, Reloc, Target};
use crate::graph::{Node, Number, bias};
use crate::mode::Mode;
use crate::module::Module;
use crate::patches::patches;
use crate::walk::{Counts, Found, Walk, components};
use guardrail_abi as abi;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

/// The field of `.modinfo` that guarded modules have.
const FIELD: &str = "guardrail";
/// The field with the names of functions that are not looked at.
const TRUSTED: &str = "guardrail_trusted";

/// What was proven of a module, and what is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// The version of the runtime's interface that the module was guarded for.
    pub abi: u32,
    /// Its protection domain, from 1 to 14.
    pub domain: u32,
    /// How stores and calls were proven.
    pub counts: Counts,
    /// Thunks for calls to the kernel.
    pub thunks: usize,
    /// Thunks for calls of the module.
    pub entries: usize,
    /// Actions that they perform.
    pub actions: usize,
    /// Functions that nothing was proven of, at the user's word.
    pub trusted: Vec<String>,
    /// Instructions with privileges, by their mnemonic, and how often.
    pub privileged: BTreeMap<String, usize>,
    /// What is wrong, each in a sentence with its place; empty for a module that was proven.
    pub faults: Vec<String>,
}

/// Certifies a guarded module that is not compressed. `what` names it in errors.
///
/// # Errors
/// The file is no module, or not a guarded one.
pub fn certify(what: &str, file: &[u8]) -> Result<Certificate, CertifyError> {
    let elf = Elf::read(what, file)?;
    if elf.field(FIELD).is_none() {
        return Err(CertifyError::NotGuarded { what: what.to_owned() });
    }
    let trusted: Vec<&str> =
        elf.field(TRUSTED).unwrap_or_default().split(',').filter(|name| !name.is_empty()).collect();
    let mut module = Module::read(&elf, &trusted);
    let names = trusted.iter().map(|name| (*name).to_owned()).collect();
    let mut certificate = Certificate { trusted: names, ..Certificate::default() };
    let faults = &mut certificate.faults;
    (certificate.abi, certificate.domain) = module.describe(faults);
    module.read_texts(faults);
    faults.extend(module.tables.faults.iter().cloned());
    for (first, second) in module.graph.overlaps() {
        faults.push(format!("{}: an instruction overlaps the one at {}", elf.name(first), elf.name(second)));
    }
    for section in elf.sections.iter().filter(|section| section.alloc()) {
        let twice = |pair: &&[Reloc]| pair[1].offset < pair[0].offset + pair[0].width().max(1);
        if let Some(pair) = section.relocs.windows(2).find(twice) {
            faults.push(format!("{}+{:#x}: two relocations change one field", section.name, pair[1].offset));
        }
    }
    for section in elf.sections.iter().filter(|section| section.exec() && section.write()) {
        faults.push(format!("{} is code that can be written", section.name));
    }
    patches(&module, faults);
    fields(&module, faults);
    module.pointers(faults);
    outside(&elf, faults);
    let found = follow(&mut module);
    module.imports(&mut certificate.faults);
    module.life(&found.stubs, &mut certificate.faults);
    for (number, detail) in &found.faults {
        let place = elf.name(module.graph.nodes[*number as usize].place);
        certificate.faults.push(format!("{place}: {detail}"));
    }
    complete(&module, &found, &mut certificate);
    Ok(certificate)
}

/// Follows all code: first the thunks that others rely on.
fn follow(module: &mut Module<'_>) -> Found {
    let all = components(module);
    let mode =
        |module: &Module<'_>, roots: &[Number]| roots.first().map_or(Mode::Own, |root| module.mode(*root));
    let mut walk = Walk::new(module);
    let mut asks = Vec::new();
    for roots in all.iter().filter(|roots| mode(module, roots) == Mode::Ask) {
        walk.component(roots);
        if let Some(ask) = walk.asked {
            asks.push((roots[0], ask));
        }
    }
    let mut found = std::mem::take(&mut walk.found);
    module.asks.extend(asks);
    let mut walk = Walk::new(module);
    for roots in all.iter().filter(|roots| mode(module, roots) == Mode::Call) {
        walk.component(roots);
    }
    merge(&mut found, std::mem::take(&mut walk.found));
    module.wrapped.extend(found.wrapped.iter().copied());
    let others: Vec<&Vec<Number>> =
        all.iter().filter(|roots| !matches!(mode(module, roots), Mode::Ask | Mode::Call)).collect();
    let mut parts = vec![Found::default(); others.len()];
    let mut open: Vec<usize> = (0..others.len()).collect();
    while !open.is_empty() {
        let mut walk = Walk::new(module);
        for number in open {
            walk.component(others[number]);
            parts[number] = std::mem::take(&mut walk.found);
        }
        let callers = words(module, &parts);
        open = (0..others.len()).filter(|number| calls(&parts[*number], &callers)).collect();
    }
    parts.into_iter().for_each(|part| merge(&mut found, part));
    for roots in
        all.iter().filter(|roots| roots.len() > 1 && roots.iter().any(|root| module.mode(*root) != Mode::Own))
    {
        found.faults.insert((roots[0], "it shares code with another thunk".into()));
    }
    found
}

/// Notes which arguments on the stack functions write; returns those of which more became known.
fn words(module: &mut Module<'_>, parts: &[Found]) -> FxHashSet<Number> {
    let mut more = FxHashSet::default();
    let mut note = |module: &mut Module<'_>, root: Number, words: i64| {
        let most = module.words.entry(root).or_default();
        let grows = words > *most;
        if grows {
            *most = words;
            more.insert(root);
        }
        grows
    };
    for (root, words) in parts.iter().flat_map(|part| &part.words) {
        note(module, *root, *words);
    }
    // Who jumps to a function has its arguments.
    loop {
        let mut grown = false;
        for (from, to) in parts.iter().flat_map(|part| &part.tails) {
            let words = module.words.get(to).copied().unwrap_or_default();
            grown |= words > 0 && note(module, *from, words);
        }
        if !grown {
            return more;
        }
    }
}

/// Whether a component calls one of these functions.
fn calls(part: &Found, functions: &FxHashSet<Number>) -> bool {
    part.called.iter().any(|function| functions.contains(function))
}

fn merge(found: &mut Found, other: Found) {
    let (own, more) = (&mut found.counts, &other.counts);
    for (own, more) in [
        (&mut own.checked, more.checked),
        (&mut own.frame, more.frame),
        (&mut own.own, more.own),
        (&mut own.same, more.same),
        (&mut own.replaced, more.replaced),
        (&mut own.calls, more.calls),
        (&mut own.plain, more.plain),
        (&mut own.returns, more.returns),
    ] {
        *own += more;
    }
    found.faults.extend(other.faults);
    found.actions.extend(other.actions);
    found.wrapped.extend(other.wrapped);
    found.entries.extend(other.entries);
    found.functions.extend(other.functions);
    found.stubs.extend(other.stubs);
    found.privileged.extend(other.privileged);
}

/// What thunks do as a whole: each row of the read-only data is used by one thunk, for its own function.
fn complete(module: &Module<'_>, found: &Found, certificate: &mut Certificate) {
    let faults = &mut certificate.faults;
    let mut used: BTreeMap<u32, Number> = BTreeMap::new();
    for (row, thunk) in &found.actions {
        if *used.entry(*row).or_insert(*thunk) != *thunk {
            faults.push(format!(
                "two thunks perform one action of {}",
                module.data.function(*row).unwrap_or_default()
            ));
        }
    }
    let mut functions: BTreeMap<Number, &str> = BTreeMap::new();
    for (import, thunk) in &found.wrapped {
        let name = module.elf.import(*import);
        if *functions.entry(*thunk).or_insert(name) != name {
            faults.push(format!("a thunk for {name} calls another function as well"));
        }
    }
    for (row, thunk) in &found.actions {
        let (own, name) = (module.data.function(*row), functions.get(thunk));
        if let Some(name) = name.filter(|name| own != Some(**name)) {
            faults.push(format!("the thunk for {name} performs an action of {}", own.unwrap_or_default()));
        }
    }
    entries(module, found, faults);
    let actions: FxHashSet<u32> = used.keys().copied().collect();
    let entries: FxHashSet<u32> = found.entries.iter().map(|entry| entry.0).collect();
    for (at, name) in module.data.unused(&actions, &entries) {
        faults.push(format!("{}+{at:#x}: an action of {name} is performed nowhere", data::SECTION));
    }
    certificate.counts = found.counts;
    certificate.actions = used.len();
    certificate.thunks = functions.len();
    certificate.entries = entries.len();
    for number in &found.privileged {
        let insn = &module.graph.nodes[*number as usize].insn;
        *certificate.privileged.entry(format!("{:?}", insn.mnemonic()).to_lowercase()).or_default() += 1;
    }
    certificate.faults.sort();
    certificate.faults.dedup();
}

/// A thunk of an entry calls one function, and its rows are of that function.
fn entries(module: &Module<'_>, found: &Found, faults: &mut Vec<String>) {
    let mut functions: BTreeMap<Number, Place> = BTreeMap::new();
    for (place, thunk) in &found.functions {
        if *functions.entry(*thunk).or_insert(*place) != *place {
            faults.push("the thunk of an entry calls two functions".into());
        }
    }
    let (mut rows, mut used) = (BTreeMap::new(), BTreeMap::new());
    for (row, thunk) in &found.entries {
        if *rows.entry(*thunk).or_insert(*row) != *row || *used.entry(*row).or_insert(*thunk) != *thunk {
            faults.push("two thunks of entries note one entry, or one of them notes two".into());
        }
    }
    let of_entries = found.entries.iter().map(|(row, thunk)| (module.data.entered(*row), thunk));
    let of_actions = found.actions.iter().map(|(row, thunk)| (module.data.function(*row), thunk));
    for (name, thunk) in of_entries.chain(of_actions) {
        let Some(place) = functions.get(thunk) else { continue };
        let name = name.unwrap_or_default();
        if !module.elf.functions.iter().any(|own| own.place == *place && own.name == name) {
            let place = module.elf.name(*place);
            faults.push(format!("the thunk for the entry {place} uses the description of {name}"));
        }
    }
}

/// Relocations in instructions must fill whole fields of them, so that they are what they look like.
fn fields(module: &Module<'_>, faults: &mut Vec<String>) {
    let graph = &module.graph;
    for node in graph.living() {
        let section = &module.elf.sections[node.place.0 as usize];
        let relocs = section.relocs_in(node.place.1.saturating_sub(7), node.behind().1);
        if relocs.is_empty() {
            continue;
        }
        let offsets = &node.offsets;
        let whole = |reloc: &Reloc| {
            let at = reloc.offset.wrapping_sub(node.place.1) as usize;
            let fits =
                |has: bool, offset: usize, size: usize| has && at == offset && reloc.width() == size as u64;
            fits(offsets.has_displacement(), offsets.displacement_offset(), offsets.displacement_size())
                || fits(offsets.has_immediate(), offsets.immediate_offset(), offsets.immediate_size())
        };
        let reaches = |reloc: &&Reloc| reloc.offset + reloc.width().max(1) > node.place.1;
        if relocs.iter().filter(reaches).any(|reloc| !whole(reloc)) {
            faults.push(format!("{}: a relocation changes `{}`", module.elf.name(node.place), node.insn));
        }
        if relocs.iter().filter(reaches).any(|reloc| reloc.relative() != counts_from_behind(node, reloc)) {
            let place = module.elf.name(node.place);
            faults
                .push(format!("{place}: a relocation of `{}` has a type for other instructions", node.insn));
        }
        let behind = |reloc: &Reloc| {
            matches!(reloc.target, Target::Import(_))
                && reloc.addend.wrapping_add(bias(reloc, node.behind().1)) != 0
        };
        if node.to.is_some() && relocs.iter().filter(reaches).any(behind) {
            let place = module.elf.name(node.place);
            faults.push(format!("{place}: `{}` leads behind the begin of an import", node.insn));
        }
    }
}

/// Whether the field of a relocation is one that the processor counts from the end of the instruction.
fn counts_from_behind(node: &Node, reloc: &Reloc) -> bool {
    let at = reloc.offset.wrapping_sub(node.place.1) as usize;
    let offsets = &node.offsets;
    let displacement = offsets.has_displacement() && at == offsets.displacement_offset();
    match displacement {
        true => node.insn.is_ip_rel_memory_operand() || node.to.is_some(),
        false => node.to.is_some(),
    }
}

/// What the module wants from elsewhere.
fn outside(elf: &Elf, faults: &mut Vec<String>) {
    // The kernel's tools read the last field of a name.
    let last = elf.info.iter().rfind(|(key, _)| key == "depends").map(|(_, value)| value.as_str());
    if !last.unwrap_or_default().split(',').any(|name| name == abi::RUNTIME) {
        faults.push(format!("it does not ask for {} to be loaded before it", abi::RUNTIME));
    }
}
