//! Prints which share of a kernel's modules has a rule for each function that they call: `complete VMLINUZ MODULES`.
//! MODULES is the folder of the modules. With `--blockers` it lists the functions without a rule, by how many modules
//! each alone keeps from being complete; with `--lists` it lists them by module. Written rows without an effect that the
//! code contradicts are printed as well.

use guardrail_binfmt::{KernelImage, ModuleImage};
use guardrail_learn::{Derived, Learned, coverage, idle};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

fn find(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            find(&path, found)?;
        } else if path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.contains(".ko")) {
            found.push(path);
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let blockers = args.iter().any(|arg| arg == "--blockers");
    let lists = args.iter().any(|arg| arg == "--lists");
    args.retain(|arg| !["--blockers", "--lists"].contains(&arg.as_str()));
    let [image, folder] = &args[..] else {
        return Err("complete VMLINUZ MODULES [--blockers] [--lists]".into());
    };
    let start = Instant::now();
    let image = KernelImage::open(image.as_ref())?;
    let mut learned = Learned::new(&image);
    eprintln!("kernel: {:?}", start.elapsed());
    let mut files = Vec::new();
    find(folder.as_ref(), &mut files)?;
    let mut waiting: BTreeMap<String, ModuleImage> = BTreeMap::new();
    for file in &files {
        let module = ModuleImage::open(file)?;
        waiting.insert(module.name(), module);
    }
    eprintln!("read: {:?}", start.elapsed());
    let mut order = Vec::new();
    let names: Vec<String> = waiting.keys().cloned().collect();
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        visit(&name, &waiting, &mut seen, &mut order);
    }
    for name in &order {
        learned.module(&waiting[name])?;
    }
    eprintln!("modules: {:?}", start.elapsed());
    let (mut complete, mut imports) = (0, [0; 3]);
    let mut alone: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for module in waiting.values() {
        let covered = coverage(&learned, module);
        complete += usize::from(covered.is_complete());
        for (count, list) in imports.iter_mut().zip([&covered.written, &covered.derived, &covered.none]) {
            *count += list.len();
        }
        if lists && !covered.is_complete() {
            println!("{}: without a rule for {}", module.name(), covered.none.join(" "));
        }
        for name in &covered.none {
            let entry = alone.entry(name.clone()).or_default();
            entry.0 += 1;
            entry.1 += usize::from(covered.none.len() == 1);
        }
    }
    let rows = learned.functions().filter(|(_, derived)| matches!(derived, Derived::Row(_))).count();
    println!(
        "{} modules, {complete} complete ({:.1}%)",
        waiting.len(),
        100.0 * complete as f64 / waiting.len() as f64
    );
    println!("imports: {} written, {} derived, {} without a row", imports[0], imports[1], imports[2]);
    println!("{rows} of {} exported functions have a derived row", learned.functions().count());
    for (name, _) in idle().filter(|(_, origin)| origin.is_none()) {
        if let Some(what) = learned.function(name).and_then(Derived::against_nothing) {
            println!("{name}: nothing, but {what}");
        }
    }
    if blockers {
        let mut list: Vec<_> = alone.into_iter().collect();
        list.sort_by_key(|(_, (all, alone))| std::cmp::Reverse((*all, *alone)));
        for (name, (all, alone)) in list.iter().take(400) {
            let why = match learned.function(name) {
                Some(Derived::Undecided(why)) => why.as_str(),
                _ => "not found",
            };
            println!("{all:5} {alone:4} {name}: {why}");
        }
    }
    Ok(())
}

fn visit(
    name: &str,
    all: &BTreeMap<String, ModuleImage>,
    seen: &mut std::collections::BTreeSet<String>,
    order: &mut Vec<String>,
) {
    let Some(module) = all.get(name).filter(|_| seen.insert(name.to_owned())) else { return };
    for needed in module.depends() {
        visit(&needed.replace('-', "_"), all, seen, order);
    }
    order.push(name.to_owned());
}
