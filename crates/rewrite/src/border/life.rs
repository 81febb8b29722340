//! Completes modules without init and exit functions. They get some that do nothing, at which they get their
//! rights and release them.
//!
//! A module does not itself say where in `struct module` these functions stand. Another module for the same
//! kernel does: the runtime.

use crate::engine::emit::{Assembly, Returns, code_section};
use crate::engine::object::{Object, Reloc, reloc};
use crate::engine::patch::Op;
use crate::engine::tables::{ENDBR, EXIT, INIT, THIS};
use crate::error::{Result, refused};

/// The section of the functions that are added.
const SECTION: &str = ".text.guardrail.hooks";
/// `xor %eax,%eax`.
const ZERO: [u8; 2] = [0x31, 0xc0];

/// Offsets in `struct module` of the functions that the kernel calls when it loads and unloads a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hooks {
    init: u64,
    exit: u64,
    /// Bytes of `struct module`.
    size: u64,
}

impl Hooks {
    /// Reads the offsets from a module that has both functions. `what` names it in errors.
    pub fn of(what: &str, object: &Object) -> Result<Hooks> {
        let found = object.section(THIS).and_then(|this| {
            let at = |name| Some(object.sections[this].relocs[position(object, this, name)?].offset);
            Some(Hooks { init: at(INIT)?, exit: at(EXIT)?, size: object.sections[this].size() })
        });
        match found {
            Some(hooks) => Ok(hooks),
            None => refused(what, "it has no functions that are called when it comes and goes"),
        }
    }

    /// Gives a module without such functions some. A module with only the first can never be unloaded, and is
    /// left so.
    pub fn complete(&self, object: &mut Object) -> Result<()> {
        let Some(this) = object.section(THIS) else { return Ok(()) };
        if position(object, this, INIT).is_some() {
            return Ok(());
        }
        if object.sections[this].size() != self.size {
            let sizes = format!(
                "struct module has {} bytes here and {} there",
                object.sections[this].size(),
                self.size
            );
            return refused(
                THIS,
                format!("the runtime was built for another kernel than this module: {sizes}"),
            );
        }
        let section = code_section(object, SECTION);
        let mut code = Assembly::new(Returns::of(object));
        let mut added = Vec::new();
        for (name, offset) in [(INIT, self.init), (EXIT, self.exit)] {
            if position(object, this, name).is_some() {
                continue;
            }
            let taken = |reloc: &Reloc| reloc.offset < offset + 8 && reloc.offset + 8 > offset;
            if object.sections[this].relocs.iter().any(taken) {
                return refused(THIS, "something else stands where the module's functions would");
            }
            code.function(name);
            code.add([Op::Code(ENDBR.into(), None), Op::Code(ZERO.into(), None)]);
            code.ret();
            added.push(offset);
        }
        // The symbols of the added functions stand in the functions' order.
        let symbols = object.symbols.len();
        code.fill(object, section);
        let relocs = &mut object.sections[this].relocs;
        let named = added.into_iter().zip(symbols..);
        relocs.extend(named.map(|(offset, symbol)| Reloc { offset, kind: reloc::ABS64, symbol, addend: 0 }));
        relocs.sort_by_key(|reloc| reloc.offset);
        Ok(())
    }
}

/// The number of the relocation of `struct module` for a function.
pub(super) fn position(object: &Object, this: usize, name: &str) -> Option<usize> {
    object.sections[this].relocs.iter().position(|reloc| object.name(reloc) == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::border::runtime::Exports;
    use crate::passes::checks::Checks;
    use crate::tests::{Module, TEXT};

    /// A module that has both functions, at these offsets.
    fn whole(init: u64, exit: u64) -> Module {
        let mut module = Module::new(&[0xc3, 0xc3]);
        for (name, value, offset) in [(INIT, 0, init), (EXIT, 1, exit)] {
            let symbol = module.0.symbols.len();
            let f = module.0.symbols[3].clone();
            module.0.symbols.push(crate::engine::object::Symbol { name: name.into(), value, size: 0, ..f });
            let this = module.0.section(THIS).unwrap();
            module.reloc(this, offset, reloc::ABS64, symbol, 0);
        }
        assert_eq!(module.0.sections[TEXT].name, ".text");
        module
    }

    #[test]
    fn a_module_without_functions_gets_some_where_another_has_them() {
        let hooks = Hooks::of("other.ko", &whole(16, 40).0).unwrap();
        assert_eq!(hooks, Hooks { init: 16, exit: 40, size: 64 });
        let mut object = Module::new(&[0xc3]).0;
        hooks.complete(&mut object).unwrap();
        assert_eq!(Hooks::of("made.ko", &object).unwrap(), hooks);
        // The module is complete already.
        let before = object.clone();
        hooks.complete(&mut object).unwrap();
        assert_eq!(object, before);
    }

    #[test]
    fn a_runtime_for_another_kernel_is_refused() {
        let hooks = Hooks { init: 16, exit: 40, size: 72 };
        let error = hooks.complete(&mut Module::new(&[0xc3]).0).unwrap_err();
        assert!(error.to_string().contains("built for another kernel"), "{error}");
        assert!(Hooks::of("made.ko", &Module::new(&[0xc3]).0).is_err());
    }

    #[test]
    fn a_guarded_module_without_functions_comes_and_goes_by_the_runtime() {
        let hooks = Hooks { init: 16, exit: 40, size: 64 };
        let guarded = |hooks: Option<Hooks>| {
            let mut checks = Checks::new(1).guarded("made", &Exports { hooks, ..Exports::default() });
            crate::rewrite("made.ko", Module::new(&[0xc3]).0.write().unwrap(), &mut [&mut checks])
        };
        assert!(guarded(None).unwrap_err().to_string().contains("no init function"));
        let file = guarded(Some(hooks)).unwrap().file;
        let object = Object::read("result", &file).unwrap();
        let this = &object.sections[object.section(THIS).unwrap()];
        let named: Vec<_> = this
            .relocs
            .iter()
            .map(|reloc| (reloc.offset, object.symbols[reloc.symbol].name.as_str()))
            .collect();
        assert_eq!(named, [(16, "guardrail_init"), (40, "guardrail_exit")]);
    }
}
