//! Inspects a guarded module file: whether it is whole, and whether the runtime that is to load it fits.

use crate::border::guard;
use crate::border::runtime::Exports;
use crate::engine::code::{Code, Insn};
use crate::engine::flow::Flow;
use crate::engine::object::{Object, Reloc, reloc};
use crate::engine::pass::FunctionView;
use crate::engine::tables::{EXIT, INIT, THIS};
use crate::error::{Result, RewriteError};
use crate::passes::checks::TRUSTED;
use crate::passes::checks::access::{Access, access};
use crate::passes::thunks;
use crate::rewrite::FIELD;
use guardrail_abi::{self as abi, ABI, layout};
use guardrail_binfmt::ModuleImage;
use guardrail_binfmt::module::unpack;
use iced_x86::{Code as Opcode, FlowControl, InstructionInfoFactory};
use std::collections::HashSet;

/// Most faults that are reported one by one.
const MOST: usize = 20;

/// What the inspection of a guarded module shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspected {
    /// The module's name, as the kernel shows it.
    pub name: String,
    /// The release of the kernel that it is for.
    pub release: String,
    /// The version of the runtime's interface that it was made for.
    pub abi: u32,
    /// Its protection domain, from 1 to 14.
    pub domain: u32,
    /// The names of the passes that made it, from `.modinfo`.
    pub passes: String,
    /// Stores with a check in front.
    pub checked: usize,
    /// Functions in which nothing is checked.
    pub trusted: Vec<String>,
    /// What is wrong, each in a sentence; empty for a sound module.
    pub faults: Vec<String>,
}

/// Inspects a guarded module, compressed or not, and whether it fits a runtime.
///
/// # Errors
/// The file is no module, or not a guarded one.
pub fn inspect(what: &str, file: Vec<u8>, runtime: Option<&Exports>) -> Result<Inspected> {
    let data = unpack(what, file)?;
    let image = ModuleImage::parse(what, data.clone())?;
    let Some(passes) = image.info(FIELD) else {
        return Err(RewriteError::NotGuarded { what: what.to_owned() });
    };
    let object = Object::read(what, &data)?;
    let trusted = image.info(TRUSTED).unwrap_or_default().split(',').filter(|name| !name.is_empty());
    let mut inspected = Inspected {
        name: image.name(),
        release: image.release().unwrap_or_default().to_owned(),
        passes: passes.to_owned(),
        trusted: trusted.map(str::to_owned).collect(),
        ..Inspected::default()
    };
    let mut faults = Vec::new();
    let codes = match Code::all(&object) {
        Ok(codes) => codes,
        Err(error) => {
            faults.push(format!("its code cannot be taken apart: {error}"));
            Vec::new()
        }
    };
    match object.section(guard::SECTION) {
        None => faults.push("it has no description for the runtime".into()),
        Some(section) => {
            let mut description =
                Description { object: &object, codes: &codes, section, faults: &mut faults };
            (inspected.abi, inspected.domain) = description.look(&inspected.name);
        }
    }
    match unchecked(&object, &codes, &inspected.trusted, &mut faults) {
        Ok(checked) => inspected.checked = checked,
        Err(error) => faults.push(format!("its checks cannot be followed: {error}")),
    }
    life(&object, &mut faults);
    if !image.depends().any(|name| name == abi::RUNTIME) {
        faults.push(format!("it does not ask for {} to be loaded before it", abi::RUNTIME));
    }
    versions(&object, runtime, &mut faults);
    if let Some(runtime) = runtime {
        if runtime.release != inspected.release {
            faults.push(format!(
                "it is for kernel {}, and the runtime for {}",
                inspected.release, runtime.release
            ));
        }
        if runtime.abi.is_some_and(|abi| abi != inspected.abi) {
            let abi = runtime.abi.unwrap_or_default();
            faults.push(format!("it is for interface {} of the runtime, which has {abi}", inspected.abi));
        }
    }
    if let Some(more) = faults.len().checked_sub(MOST + 1) {
        faults.truncate(MOST);
        faults.push(format!("and {} more", more + 1));
    }
    inspected.faults = faults;
    Ok(inspected)
}

/// `struct guardrail_module` in the file.
struct Description<'a> {
    object: &'a Object,
    codes: &'a [Code],
    section: usize,
    faults: &'a mut Vec<String>,
}

impl Description<'_> {
    /// Inspects the whole description; returns the interface version and the domain.
    fn look(&mut self, name: &str) -> (u32, u32) {
        let bytes = self.object.sections[self.section].bytes();
        use layout::module as row;
        if bytes.len() < row::BYTES {
            self.faults.push("its description for the runtime is cut short".into());
            return (0, 0);
        }
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (magic, version, domain, flags) =
            (number(row::MAGIC), number(row::ABI), number(row::DOMAIN), number(row::FLAGS));
        if magic != abi::MAGIC {
            self.faults.push(format!("its description for the runtime begins with {magic:08x}"));
        }
        if version != ABI {
            self.faults
                .push(format!("it was guarded for interface {version}, and this is {ABI}; guard it again"));
        }
        if !(1..abi::DOMAINS).contains(&domain) || flags != abi::FLAGS {
            self.faults
                .push(format!("domain {domain} with flags {flags:x} is nothing that the runtime knows"));
        }
        let described = self.pointer(row::NAME).and_then(|(section, at)| {
            let text = self.object.sections[section].bytes().get(at as usize..)?;
            std::str::from_utf8(text.split(|&byte| byte == 0).next()?).ok()
        });
        if described != Some(name) {
            self.faults.push(format!("its description is that of {}", described.unwrap_or("nothing")));
        }
        let functions = self.object.functions();
        for (at, what) in [(row::INIT, "init"), (row::EXIT, "exit")] {
            if self.at(at).is_some() && self.pointer(at).is_none_or(|place| !functions.contains(&place)) {
                self.faults.push(format!("its description names an {what} that is no function of its own"));
            }
        }
        if self.at(row::INIT).is_none() {
            self.faults.push("its description names no init".into());
        }
        self.ranges(row::WRITABLE, row::N_WRITABLE);
        self.ranges(row::INIT_ONLY, row::N_INIT_ONLY);
        self.targets();
        (version, domain)
    }

    /// The relocation of a word.
    fn at(&self, offset: usize) -> Option<&Reloc> {
        let offset = offset as u64;
        let relocs = &self.object.sections[self.section].relocs;
        relocs.iter().find(|reloc| reloc.offset == offset && reloc.kind == reloc::ABS64)
    }

    /// Section and offset that a word points to.
    fn pointer(&self, offset: usize) -> Option<(usize, u64)> {
        let reloc = self.at(offset)?;
        self.object.target(reloc.symbol, reloc.addend)
    }

    /// The 8 bytes at an offset, as a number.
    fn word(&self, at: usize) -> Option<u64> {
        let bytes = self.object.sections[self.section].bytes();
        Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
    }

    /// Where the rows of an array begin, if it lies in the section. Read from the pointer to it, its length,
    /// and the bytes of a row.
    fn array(&mut self, at: usize, count: usize, bytes: usize) -> Option<Vec<usize>> {
        let size = self.object.sections[self.section].bytes().len();
        let count = self.word(count)?;
        let place = self.pointer(at).filter(|(section, _)| *section == self.section);
        let inside = place.and_then(|(_, start)| {
            let (start, count) = (usize::try_from(start).ok()?, usize::try_from(count).ok()?);
            let end = count.checked_mul(bytes)?.checked_add(start)?;
            (end <= size).then(|| (start..end).step_by(bytes).collect())
        });
        if inside.is_none() && count > 0 {
            self.faults.push("a table of its description lies elsewhere".into());
        }
        inside
    }

    fn ranges(&mut self, at: usize, count: usize) {
        let Some(rows) = self.array(at, count, layout::range::BYTES) else { return };
        for row in rows {
            let size = self.word(row + layout::range::LEN).unwrap_or_default();
            let own = self.pointer(row + layout::range::START).is_some_and(|(section, offset)| {
                let section = &self.object.sections[section];
                let inside = offset.checked_add(size).is_some_and(|end| end <= section.size());
                section.alloc() && section.write() && !section.exec() && inside
            });
            if !own {
                self.faults.push("its description gives it memory that is not its own".into());
            }
        }
    }

    fn targets(&mut self) {
        use layout::module;
        let functions = self.object.functions();
        let Some(rows) = self.array(module::TARGETS, module::N_TARGETS, 8) else { return };
        for row in rows {
            let place = self.pointer(row);
            let own =
                |place: &(usize, u64)| Code::find(self.codes, place.0).is_some() && functions.contains(place);
            if place.filter(own).is_none() {
                self.faults.push("its description lets others call what is no function of its own".into());
            }
        }
    }
}

/// Prefixes of the sections with code that this crate adds.
const OURS: [&str; 2] = [".text.guardrail", ".init.text.guardrail"];

/// Finds stores and calls by pointer for which no check asks the runtime; returns how many stores have a
/// check.
fn unchecked(object: &Object, codes: &[Code], trusted: &[String], faults: &mut Vec<String>) -> Result<usize> {
    let flow = Flow::of(object, codes)?;
    let mut info = InstructionInfoFactory::new();
    let mut checked = 0;
    for code in codes {
        let section = &object.sections[code.section];
        if OURS.iter().any(|ours| section.name.starts_with(ours)) {
            continue;
        }
        let asked = asked(object, code);
        for function in &code.functions {
            let symbol = &object.symbols[function.symbol];
            if trusted.contains(&symbol.name) {
                continue;
            }
            // A way back may lead to a check that stands before the instruction.
            let mut reached = false;
            for number in function.insns.clone() {
                let insn = &code.insns[number as usize];
                reached |= asked.contains(&number);
                let view = FunctionView { object, code, function, flow: &flow };
                if matches!(
                    access(&view, number, insn, info.info(&insn.insn))?,
                    Access::Nothing | Access::Free(_)
                ) {
                    continue;
                }
                match std::mem::take(&mut reached) {
                    true => checked += 1,
                    false => faults.push(format!(
                        "`{}` at {}+{:#x} is not checked",
                        insn.insn,
                        symbol.name,
                        u64::from(insn.at).saturating_sub(symbol.value)
                    )),
                }
            }
        }
    }
    Ok(checked)
}

/// The instructions that checks ask for. The distance to them stands behind each call of a thunk, or a jump
/// leads to them.
fn asked(object: &Object, code: &Code) -> HashSet<u32> {
    let thunks = object.section(thunks::SECTION);
    // The question of a loop says nothing about stores.
    let turns = object
        .symbols
        .iter()
        .find(|symbol| symbol.section() == thunks && symbol.name == thunks::LOOP)
        .map(|symbol| symbol.value as i64 - 4);
    let calls = |insn: &Insn| {
        let reloc = insn.relocs(&object.sections[code.section]).first();
        let asks = reloc.is_some_and(|reloc| {
            object.symbols[reloc.symbol].section() == thunks && Some(reloc.addend) != turns
        });
        insn.insn.flow_control() == FlowControl::Call && thunks.is_some() && asks
    };
    let mut asked = HashSet::new();
    for (number, _) in code.insns.iter().enumerate().filter(|(_, insn)| calls(insn)) {
        let Some(next) = code.insns.get(number + 1) else { continue };
        asked.extend(match next.insn.code() {
            Opcode::Test_EAX_imm32 => {
                let far = next.insn.immediate32() as i32;
                code.starting(u64::from(next.end()).wrapping_add_signed(far.into()))
            }
            _ => next.target,
        });
    }
    asked
}

/// Reports where the kernel calls init or exit past the stubs.
fn life(object: &Object, faults: &mut Vec<String>) {
    let Some(this) = object.section(THIS) else {
        return faults.push("it has no struct module".into());
    };
    let names = |name: &str| object.sections[this].relocs.iter().any(|reloc| object.name(reloc) == name);
    for (plain, stub) in [(INIT, guard::INIT_STUB), (EXIT, guard::EXIT_STUB)] {
        if names(plain) {
            faults.push(format!("the kernel calls its {plain} past the runtime"));
        }
        if plain == INIT && !names(stub) {
            faults.push("the kernel does not call the stub that makes it known to the runtime".into());
        }
    }
}

/// Reports each import that the runtime does not have, or has in another version than the module wants.
fn versions(object: &Object, runtime: Option<&Exports>, faults: &mut Vec<String>) {
    let known = guard::versions(object);
    for name in guard::imports(object) {
        let sum = known.as_ref().map(|known| known.get(name).copied());
        if sum == Some(None) {
            faults.push(format!("it has no version of {name}, so the kernel would not load it"));
        }
        let Some(runtime) = runtime else { continue };
        match (runtime.symbols.get(name), sum.flatten()) {
            (None, _) => faults.push(format!("the runtime exports no {name}")),
            (Some(Some(has)), Some(wants)) if u64::from(*has) != wants => {
                faults.push(format!("it wants {name} in version {wants:08x}, and the runtime has {has:08x}"));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::checks::Checks;
    use crate::rewrite;
    use crate::tests::Module;

    /// mov [rdi+8],rsi; ret
    const STORE: [u8; 5] = [0x48, 0x89, 0x77, 0x08, 0xc3];

    fn faults(file: Vec<u8>) -> Inspected {
        inspect("made.ko", file, None).unwrap()
    }

    #[test]
    fn each_store_must_have_a_check() {
        let checked =
            rewrite("made.ko", Module::new(&STORE).0.write().unwrap(), &mut [&mut Checks::new(1)]).unwrap();
        let inspected = faults(checked.file);
        assert_eq!(inspected.checked, 1);
        assert!(inspected.faults.iter().all(|fault| !fault.contains("not checked")), "{inspected:?}");
        let mut module = Module::new(&STORE);
        module.0.note(FIELD, "writes");
        let inspected = faults(module.0.write().unwrap());
        assert_eq!(inspected.checked, 0);
        assert!(
            inspected.faults.iter().any(|fault| fault == "`mov [rdi+8],rsi` at f+0x0 is not checked"),
            "{inspected:?}"
        );
        // Trusted functions need no checks.
        module.0.note(TRUSTED, "f");
        let inspected = faults(module.0.write().unwrap());
        assert!(inspected.faults.iter().all(|fault| !fault.contains("not checked")), "{inspected:?}");
    }

    #[test]
    fn what_is_no_guarded_module_is_an_error() {
        let stock = Module::new(&STORE).0.write().unwrap();
        let said = inspect("made.ko", stock.clone(), None).unwrap_err().to_string();
        assert_eq!(said, "made.ko is not a guarded module");
        let said = Exports::read("made.ko", stock).unwrap_err().to_string();
        assert_eq!(said, "made.ko is not the runtime, guardrail.ko");
    }

    #[test]
    fn damaged_modules_give_faults_or_an_error() {
        let checked =
            rewrite("made.ko", Module::new(&STORE).0.write().unwrap(), &mut [&mut Checks::new(1)]).unwrap();
        for at in 0..checked.file.len() {
            let mut changed = checked.file.clone();
            changed[at] ^= 0x5a;
            let _ = inspect("made.ko", changed, None);
            let _ = inspect("made.ko", checked.file[..at].to_vec(), None);
        }
    }
}
