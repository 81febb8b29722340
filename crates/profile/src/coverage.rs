//! The parts of modules and functions that ran, and those that never did. Their sources are the instructions
//! that ran, and the files with all instructions.

use crate::names::Names;
use guardrail_binfmt::{Lines, ModuleImage};
use guardrail_trace::client::{Cell, Report, Table};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The clients' name for code that belongs to no module.
const KERNEL: &str = "vmlinux";

/// The executed part of one function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// The function's module; `vmlinux` for the kernel.
    pub module: String,
    /// The function's name, as the symbol table has it.
    pub name: String,
    /// The number of times that it was entered.
    pub entered: u64,
    /// The number of executions of each instruction, by its offset in the function.
    pub instructions: BTreeMap<u64, u64>,
    /// The number of executions of each line, by file and line.
    pub lines: BTreeMap<(String, u32), u64>,
    /// The function's first line; `None` without debug information.
    pub at: Option<(String, u32)>,
}

impl Function {
    fn ran(&self) -> usize {
        self.instructions.values().filter(|&&count| count > 0).count()
    }
}

/// The executed code, by module and function: offsets in the function, lengths, counts.
type Executed = BTreeMap<(String, String), BTreeMap<u64, (u64, u64)>>;

/// All functions of a table of instructions, and those of the same modules that never ran.
pub fn functions(names: &Names, table: &Table) -> Vec<Function> {
    let ran = ran(table);
    let modules: BTreeSet<&String> = ran.keys().map(|key| &key.0).collect();
    let mut all = Vec::new();
    for module in modules {
        match names.module_file(module) {
            Some(image) => {
                let lines = names.module_lines(module, &image);
                all.extend(of_module(module, &image, lines.as_ref(), &ran));
            }
            None => {
                all.extend(ran.iter().filter(|known| known.0.0 == *module).map(|((module, name), ran)| {
                    let instructions = match names.instructions(name).filter(|_| module == KERNEL) {
                        Some(offsets) => marked(offsets, ran),
                        None => ran.iter().map(|(&offset, &(_, count))| (offset, count)).collect(),
                    };
                    let entered = ran.get(&0).map_or(0, |first| first.1);
                    Function {
                        module: module.clone(),
                        name: name.clone(),
                        entered,
                        instructions,
                        ..Function::default()
                    }
                }))
            }
        }
    }
    all
}

fn ran(table: &Table) -> Executed {
    let mut ran = Executed::new();
    for row in &table.rows {
        let [
            Cell::Text(module),
            Cell::Text(function),
            Cell::Count(offset),
            Cell::Count(len),
            Cell::Count(count),
        ] = row.as_slice()
        else {
            continue;
        };
        let known =
            ran.entry((module.clone(), function.clone())).or_default().entry(*offset).or_insert((*len, 0));
        known.1 += count;
    }
    ran
}

fn of_module(module: &str, image: &ModuleImage, lines: Option<&Lines>, ran: &Executed) -> Vec<Function> {
    let nothing = BTreeMap::new();
    let sections: Vec<bool> = image.sections().map(|section| section.exec).collect();
    let mut all = Vec::new();
    for symbol in image.symbols() {
        let Some(section) = symbol.section.map(usize::from).filter(|&at| sections.get(at) == Some(&true))
        else {
            continue;
        };
        let name = image.symbol_name(symbol);
        let bytes = image.section_bytes(section);
        let (from, to) = (symbol.value as usize, symbol.value.saturating_add(symbol.size) as usize);
        let Some(bytes) = bytes.get(from..to).filter(|bytes| !bytes.is_empty()) else { continue };
        // This is the same function under another name.
        if all.iter().any(|known: &Function| known.name == name) {
            continue;
        }
        let ran = ran.get(&(module.to_owned(), name.to_owned())).unwrap_or(&nothing);
        let instructions = marked(super::names::offsets(bytes), ran);
        let line = |offset: u64| lines.and_then(|lines| lines.line(section, symbol.value + offset));
        let mut known: BTreeMap<(String, u32), u64> = BTreeMap::new();
        for (&offset, &count) in &instructions {
            if let Some(line) = line(offset) {
                let most = known.entry(line).or_default();
                *most = count.max(*most);
            }
        }
        all.push(Function {
            module: module.to_owned(),
            name: name.to_owned(),
            entered: instructions.get(&0).copied().unwrap_or(0),
            at: line(0),
            lines: known,
            instructions,
        });
    }
    all
}

/// The existing instructions with their counts: code that changed may have had other boundaries.
fn marked(offsets: Vec<u64>, ran: &BTreeMap<u64, (u64, u64)>) -> BTreeMap<u64, u64> {
    let count = |offset: u64| {
        let (start, (len, count)) = ran.range(..=offset).next_back()?;
        (offset - start < *len).then_some(*count)
    };
    offsets.into_iter().map(|offset| (offset, count(offset).unwrap_or(0))).collect()
}

/// One row for each function, those that never ran last.
pub fn table(functions: &[Function]) -> (Table, Vec<Vec<Value>>) {
    let mut sorted: Vec<&Function> = functions.iter().collect();
    sorted.sort_by_key(|function| (function.ran() == 0, &function.module, &function.name));
    let rows = sorted.iter().map(|function| {
        let lines = function.lines.values().filter(|&&count| count > 0).count();
        let never: Vec<String> = function
            .lines
            .iter()
            .filter(|(line, count)| **count == 0 && function.at.as_ref().is_none_or(|at| at.0 == line.0))
            .map(|(line, _)| line.1.to_string())
            .collect();
        vec![
            function.module.clone().into(),
            function.name.clone().into(),
            function.entered.into(),
            function.ran().into(),
            function.instructions.len().into(),
            lines.into(),
            function.lines.len().into(),
            if function.ran() == 0 { "all".into() } else { never.join(" ").into() },
        ]
    });
    let rows = rows.collect();
    let columns = [
        "module",
        "function",
        "entered",
        "instructions that ran",
        "of",
        "lines that ran",
        "of",
        "lines that never ran",
    ];
    let name = "coverage by function".to_owned();
    (Table { name, columns: columns.map(str::to_owned).to_vec(), ..Table::default() }, rows)
}

/// One sentence for each module.
pub fn notes(functions: &[Function]) -> Vec<String> {
    let modules: BTreeSet<&String> = functions.iter().map(|function| &function.module).collect();
    let note = |module: &&String| {
        let of = functions.iter().filter(|function| function.module == **module);
        let (mut all, mut ran, mut there, mut done) = (0, 0, 0, 0);
        let mut lines: BTreeMap<&(String, u32), bool> = BTreeMap::new();
        for function in of {
            all += 1;
            ran += usize::from(function.ran() > 0);
            there += function.instructions.len();
            done += function.ran();
            function.lines.iter().for_each(|(line, &count)| *lines.entry(line).or_default() |= count > 0);
        }
        // Functions of the kernel that never ran are not listed.
        let mut note = match module.as_str() {
            KERNEL => format!("{module}: {ran} functions ran, {done} of their {there} instructions"),
            _ => format!("{module}: {ran} of {all} functions ran, {done} of {there} instructions"),
        };
        if !lines.is_empty() {
            let ran = lines.values().filter(|&&ran| ran).count();
            let _ = write!(note, ", {ran} of {} lines", lines.len());
        }
        note
    };
    modules.iter().map(note).collect()
}

/// The tracefile of lcov: functions and lines by source file. Functions without lines are under their module's name.
pub fn lcov(functions: &[Function]) -> String {
    let mut files: BTreeMap<&str, (Vec<&Function>, BTreeMap<u32, u64>)> = BTreeMap::new();
    for function in functions {
        let file = function.at.as_ref().map_or(function.module.as_str(), |at| &at.0);
        files.entry(file).or_default().0.push(function);
        for ((file, line), count) in &function.lines {
            let most = files.entry(file).or_default().1.entry(*line).or_default();
            *most = (*most).max(*count);
        }
    }
    let mut out = String::new();
    for (file, (functions, lines)) in files {
        let _ = writeln!(out, "TN:\nSF:{file}");
        for function in &functions {
            let _ = writeln!(out, "FN:{},{}", function.at.as_ref().map_or(0, |at| at.1), function.name);
        }
        for function in &functions {
            let _ = writeln!(out, "FNDA:{},{}", function.entered, function.name);
        }
        let hit = functions.iter().filter(|function| function.entered > 0).count();
        let _ = writeln!(out, "FNF:{}\nFNH:{hit}", functions.len());
        for (line, count) in &lines {
            let _ = writeln!(out, "DA:{line},{count}");
        }
        let hit = lines.values().filter(|&&count| count > 0).count();
        let _ = writeln!(out, "LF:{}\nLH:{hit}\nend_of_record", lines.len());
    }
    out
}

/// The format of DynamoRIO's drcov, version 2. Offsets count from the beginning of the module's code in
/// memory, or of the kernel's image.
pub fn drcov(report: &Report, names: &Names, table: &Table) -> Vec<u8> {
    drcov_of(report, names.text(), |function| names.address_of(function), table)
}

fn drcov_of(
    report: &Report,
    text: (u64, u64),
    address_of: impl Fn(&str) -> Option<u64>,
    table: &Table,
) -> Vec<u8> {
    let ran = ran(table);
    let mut modules: Vec<(String, u64, u64, BTreeMap<&str, u64>)> = Vec::new();
    let slide = report.slide.unwrap_or(0);
    modules.push((KERNEL.into(), text.0.wrapping_add(slide), text.1.wrapping_add(slide), BTreeMap::new()));
    for module in &report.modules {
        let (Some(start), Some(end)) = (
            module.functions.first().map(|function| function.0),
            module.regions.iter().map(|region| region.0.saturating_add(region.1)).max(),
        ) else {
            continue;
        };
        let start = module
            .regions
            .iter()
            .find(|region| start.wrapping_sub(region.0) < region.1)
            .map_or(start, |r| r.0);
        let places = module.functions.iter().map(|function| (function.1.as_str(), function.0)).collect();
        modules.push((module.name.clone(), start, end, places));
    }
    let mut blocks: Vec<u8> = Vec::new();
    for ((module, function), instructions) in &ran {
        // The last module of this name is the one that ran last.
        let Some(number) = modules.iter().rposition(|known| known.0 == *module) else { continue };
        let at = match number {
            0 => address_of(function).map(|at| at.wrapping_add(slide)),
            _ => modules[number].3.get(function.as_str()).copied(),
        };
        let Some(at) = at else { continue };
        for (&offset, &(len, count)) in instructions {
            let Some(from) = at.wrapping_add(offset).checked_sub(modules[number].1).filter(|_| count > 0)
            else {
                continue;
            };
            let Ok(from) = u32::try_from(from) else { continue };
            blocks.extend_from_slice(&from.to_le_bytes());
            blocks.extend_from_slice(&(len as u16).to_le_bytes());
            blocks.extend_from_slice(&(number as u16).to_le_bytes());
        }
    }
    let mut out = format!(
        "DRCOV VERSION: 2\nDRCOV FLAVOR: guardrail\nModule Table: version 2, count {}\nColumns: id, base, end, entry, path\n",
        modules.len()
    );
    for (number, (name, start, end, _)) in modules.iter().enumerate() {
        let _ = writeln!(out, "{number:3}, {start:#018x}, {end:#018x}, 0x0000000000000000, {name}");
    }
    let _ = writeln!(out, "BB Table: {} bbs", blocks.len() / 8);
    let mut out = out.into_bytes();
    out.extend_from_slice(&blocks);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_trace::client::Module;

    fn some() -> Vec<Function> {
        let function = |name: &str, line: u32, counts: &[(u64, u64)]| Function {
            module: "m".into(),
            name: name.into(),
            entered: counts[0].1,
            instructions: counts.iter().copied().collect(),
            lines: counts
                .iter()
                .map(|&(offset, count)| (("m.c".into(), line + offset as u32), count))
                .collect(),
            at: Some(("m.c".into(), line)),
        };
        vec![function("one", 10, &[(0, 3), (4, 0), (6, 2)]), function("two", 30, &[(0, 0), (1, 0)])]
    }

    #[test]
    fn lcov_has_functions_and_lines() {
        insta::assert_snapshot!(lcov(&some()));
    }

    #[test]
    fn functions_that_never_ran_come_last() {
        let (table, rows) = table(&some());
        insta::assert_json_snapshot!((table.columns, rows, notes(&some())));
    }

    #[test]
    fn an_instruction_ran_where_its_bytes_did() {
        let ran = BTreeMap::from([(0, (5, 7)), (8, (2, 1))]);
        assert_eq!(
            marked(vec![0, 3, 5, 8, 10], &ran).into_iter().collect::<Vec<_>>(),
            [(0, 7), (3, 7), (5, 0), (8, 1), (10, 0)]
        );
    }

    #[test]
    fn drcov_has_offsets_in_modules() {
        let row = |offset, len, count| {
            vec![
                Cell::Text("m".into()),
                Cell::Text("one".into()),
                Cell::Count(offset),
                Cell::Count(len),
                Cell::Count(count),
            ]
        };
        let table = Table { rows: vec![row(0, 5, 1), row(5, 2, 0), row(7, 1, 9)], ..Table::default() };
        let module = Module {
            name: "m".into(),
            regions: vec![(0xffff_ffff_c000_0000, 0x1000, 0)],
            functions: vec![(0xffff_ffff_c000_0010, "one".into())],
            ..Module::default()
        };
        let report = Report { slide: Some(0x100_0000), modules: vec![module], ..Report::default() };
        let bytes = drcov_of(&report, (0xffff_ffff_8100_0000, 0xffff_ffff_8200_0000), |_| None, &table);
        let end = bytes.len() - 16;
        insta::assert_snapshot!(String::from_utf8_lossy(&bytes[..end]));
        assert_eq!(bytes[end..], [0x10, 0, 0, 0, 5, 0, 1, 0, 0x17, 0, 0, 0, 1, 0, 1, 0]);
    }
}
