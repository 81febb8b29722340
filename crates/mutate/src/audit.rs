//! Checks in the file itself what every mutant must keep.

use crate::code::{Function, functions};
use crate::edit::decode;
use crate::elf::{Elf, RELOCATION};
use crate::error::Error;

/// Relocation kinds that a changed instruction may have had.
const CHANGEABLE: [u32; 4] = [
    object::elf::R_X86_64_PC32,
    object::elf::R_X86_64_PLT32,
    object::elf::R_X86_64_32S,
    object::elf::R_X86_64_32,
];

/// Makes sure that a mutant differs from its stock file only where it may. That is in whole instructions of
/// functions that no table names, and in the relocations of those. `what` names the driver in errors.
pub fn audit(what: &str, stock: &[u8], mutant: &[u8]) -> Result<(), Error> {
    let unsound = |detail: String| Error::Unsound { what: what.to_owned(), detail };
    let stock = Elf::parse(what, stock)?;
    let mutant = Elf::parse(what, mutant)?;
    if stock.data.len() != mutant.data.len() {
        return Err(unsound("its size differs".to_owned()));
    }
    let mut rest = stock.data.clone();
    for function in functions(&stock) {
        copy(&stock, &mutant, &function, &mut rest).map_err(unsound)?;
    }
    match rest.iter().zip(&mutant.data).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(unsound(format!("byte {at:#x} of the file is not one that may change"))),
    }
}

/// Checks a function of the mutant, and copies to `rest` what may differ in it.
fn copy(stock: &Elf, mutant: &Elf, function: &Function, rest: &mut [u8]) -> Result<(), String> {
    let section = &stock.sections[function.section];
    for insn in &function.insns {
        let range = section.file.start + insn.at() as usize..section.file.start + insn.end() as usize;
        let place = || format!("{}+{:#x}", function.name, insn.at() - function.start);
        let new = mutant.data.get(range.clone()).ok_or_else(|| format!("{} is gone", place()))?;
        let entries: Vec<_> = section.relocations[insn.relocations.clone()]
            .iter()
            .map(|one| (one, one.entry..one.entry + RELOCATION))
            .collect();
        let differs = stock.data[range.clone()] != *new
            || entries.iter().any(|(_, entry)| stock.data[entry.clone()] != mutant.data[entry.clone()]);
        if !differs {
            continue;
        }
        if insn.locked {
            return Err(format!("{} is named by a table of the kernel's", place()));
        }
        if decode(new, insn.at()).is_none() {
            return Err(format!("{} is no instruction anymore", place()));
        }
        rest[range].copy_from_slice(new);
        for (old, entry) in entries {
            let field = |at: usize| &mutant.data[entry.start + at..entry.start + at + 8];
            let kind = u32::from_le_bytes([field(8)[0], field(8)[1], field(8)[2], field(8)[3]]);
            let kept =
                kind == old.kind || kind == object::elf::R_X86_64_NONE && CHANGEABLE.contains(&old.kind);
            if !kept || field(0) != old.offset.to_le_bytes() {
                return Err(format!("{} has a relocation of another kind", place()));
            }
            rest[entry.clone()].copy_from_slice(&mutant.data[entry]);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Function as Code, PC32, TABLE};

    #[test]
    fn what_may_not_change_is_noticed() {
        let mut object = Code::new().code(&[0x31, 0xc0, 0x90, 0xc3]).object();
        let table = object.section("__ex_table", TABLE, &[0; 12]);
        object.relocate(table, 0, PC32, 1, 2);
        let stock = object.build();
        let text = Elf::parse("x", &stock).unwrap().sections[3].file.start;
        let with = |at: usize, byte: u8| {
            let mut mutant = stock.clone();
            mutant[at] = byte;
            audit("x", &stock, &mutant).map_err(|error| error.to_string())
        };
        assert_eq!(with(text + 1, 0xdb), Ok(()));
        assert!(with(text + 2, 0xf8).unwrap_err().ends_with("f+0x2 is named by a table of the kernel's"));
        assert!(with(text, 0x06).unwrap_err().ends_with("f+0x0 is no instruction anymore"));
        assert!(with(text - 1, 1).unwrap_err().contains("is not one that may change"));
        assert!(audit("x", &stock, &stock[..stock.len() - 1]).is_err());
    }
}
