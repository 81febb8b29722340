//! The functions of a module, as code.

use guardrail_binfmt::module::{ModuleImage, SymbolKind};

/// The most bytes of code that are read. Symbols may overlap, so a file of any size can name more than it has.
const MOST: usize = 64 << 20;

/// All functions of a module: the section of each, where it begins in that, and its code.
pub(crate) fn functions(module: &ModuleImage) -> impl Iterator<Item = (usize, u64, &[u8])> {
    let all = module.symbols().iter().filter(|symbol| symbol.kind == SymbolKind::Function);
    let code = all.filter_map(|symbol| {
        let section = usize::from(symbol.section?);
        let begin = usize::try_from(symbol.value).ok()?;
        let end = begin.checked_add(usize::try_from(symbol.size).ok()?)?;
        Some((section, symbol.value, module.section_bytes(section).get(begin..end)?))
    });
    code.scan(0, |read: &mut usize, function| {
        *read += function.2.len();
        (*read <= MOST).then_some(function)
    })
}
