//! Mutants that a suite makes by hand, and campaigns that run them.

use crate::{Checked, SHORT, guardrail};
use guardrail_mutate::Subject;
use guardrail_vm::modules::Modules;
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use guardrail_vm::{Cache, kernels};
use libtest_mimic::Failed;
use object::LittleEndian;
use object::read::elf::{FileHeader, SectionHeader, Sym};
use std::path::Path;

/// The kernel of the mutants.
pub const KERNEL: &str = "6.1";

/// A module of the kernel, without its signature.
pub fn stock(driver: &str) -> Result<Vec<u8>, Failed> {
    let packages = Packages::new(&Cache::open()?);
    let kernel = kernels::find(&packages, KERNEL)?;
    let signed = Modules::of(&kernel, &Parser::here())?.plan(driver)?.driver.bytes;
    Ok(Subject::parse(driver, signed)?.stock().to_vec())
}

/// The same module, with calls of `from` in a section redirected to `to`.
pub fn redirected(stock: &[u8], section: &str, from: &str, to: &str) -> Result<Vec<u8>, Failed> {
    let header = object::elf::FileHeader64::<LittleEndian>::parse(stock)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, stock)?;
    let symbols = sections.symbols(endian, stock, object::elf::SHT_SYMTAB)?;
    let index = |name: &str| {
        let found = symbols.iter().position(|symbol| {
            symbol.name(endian, symbols.strings()).is_ok_and(|other| other == name.as_bytes())
        });
        found.ok_or_else(|| Failed::from(format!("the driver does not know {name}")))
    };
    let (from, to) = (index(from)?, index(to)?);
    let mut mutant = stock.to_vec();
    let mut changed = 0;
    for one in sections.iter() {
        let of = sections.section_name(endian, one)?;
        let Some((entries, _)) =
            one.rela(endian, stock)?.filter(|_| of == format!(".rela{section}").as_bytes())
        else {
            continue;
        };
        let calls = |entry: &object::elf::Rela64<LittleEndian>| entry.r_sym(endian, false) == from as u32;
        for (i, _) in entries.iter().enumerate().filter(|(_, entry)| calls(entry)) {
            let symbol = one.sh_offset(endian) as usize + i * 24 + 12;
            mutant[symbol..symbol + 4].copy_from_slice(&(to as u32).to_le_bytes());
            changed += 1;
        }
    }
    match changed {
        0 => Err(format!("there is no such call in {section}").into()),
        _ => Ok(mutant),
    }
}

/// The same module, with other code at the beginning of a function, behind the call for tracing.
pub fn begins_with(stock: &[u8], function: &str, code: &[u8]) -> Result<Vec<u8>, Failed> {
    let header = object::elf::FileHeader64::<LittleEndian>::parse(stock)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, stock)?;
    let symbols = sections.symbols(endian, stock, object::elf::SHT_SYMTAB)?;
    let named = |symbol: &&object::elf::Sym64<LittleEndian>| {
        symbol.name(endian, symbols.strings()).is_ok_and(|name| name == function.as_bytes())
    };
    let symbol = symbols.iter().find(named).ok_or("there is no such function")?;
    let section = sections.section(object::SectionIndex(symbol.st_shndx(endian).into()))?;
    let at = (section.sh_offset(endian) + symbol.st_value(endian)) as usize + 5;
    let mut mutant = stock.to_vec();
    mutant[at..at + code.len()].copy_from_slice(code);
    Ok(mutant)
}

/// Writes a mutant into the folder, and returns its path.
pub fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<String, Failed> {
    let path = folder.join(format!("{name}.ko"));
    std::fs::write(&path, bytes)?;
    Ok(path.display().to_string())
}

/// Runs a campaign in the folder, with short workloads of network drivers.
pub fn campaign(driver: &str, out: &Path, more: &[&str]) -> Result<Checked, Failed> {
    let out = out.to_str().ok_or("a path")?;
    let common = ["inject", driver, "--kernel", KERNEL, "--run", "-o", out, "--format", "json"];
    // Only the workload of networks reads these settings.
    let short: &[&str] = if more.contains(&"--workload") { &[] } else { &SHORT };
    Ok(guardrail(&[&common, more, short].concat()))
}
