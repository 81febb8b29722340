//! Lists the instructions of kernel modules that have no rule of their own.
//!
//! Usage: `flow_coverage FOLDER`: all `.ko` and `.ko.xz` files below it.

use guardrail_analysis::value_flow::Block;
use object::{Object, ObjectSection, SectionKind};
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

fn main() {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("usage: flow_coverage FOLDER");
        std::process::exit(2);
    };
    let mut files = Vec::new();
    collect(Path::new(&folder), &mut files);
    let (mut total, mut bad, mut unknown) = (0u64, 0u64, HashMap::<String, u64>::new());
    for path in &files {
        let Some(bytes) = read(path) else { continue };
        let Ok(file) = object::File::parse(bytes.as_slice()) else { continue };
        for section in file.sections().filter(|s| s.kind() == SectionKind::Text) {
            let Ok(code) = section.data() else { continue };
            let mut at = 0;
            while at < code.len() {
                let block = Block::decode(at as u64, &code[at..]);
                total += block.insns.len() as u64;
                at += block.len as usize;
                for insn in block.insns.iter().filter(|i| i.is_unknown()) {
                    *unknown.entry(format!("{:?}", insn.mnemonic())).or_default() += 1;
                }
                if at < code.len() && block.len == 0 {
                    (at, bad) = (at + 1, bad + 1);
                }
            }
        }
    }
    let mut list: Vec<_> = unknown.into_iter().collect();
    list.sort_by_key(|(name, n)| (std::cmp::Reverse(*n), name.clone()));
    let sum: u64 = list.iter().map(|(_, n)| n).sum();
    println!("{} modules, {total} instructions, {sum} without a rule, {bad} bytes not decoded", files.len());
    for (name, n) in list {
        println!("{n:8} {name}");
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = path.to_string_lossy();
        if path.is_dir() && !path.is_symlink() {
            collect(&path, files);
        } else if name.ends_with(".ko") || name.ends_with(".ko.xz") {
            files.push(path);
        }
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let bytes = std::fs::read(path).ok()?;
    if path.extension().is_none_or(|e| e != "xz") {
        return Some(bytes);
    }
    let mut out = Vec::new();
    liblzma::read::XzDecoder::new(bytes.as_slice()).read_to_end(&mut out).ok()?;
    Some(out)
}
