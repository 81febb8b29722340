//! Lists the files under `knowledge/`, so that a new class needs a folder and no Rust.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The folder of what all classes share; its files stand before those of others.
const CORE: &str = "core";
/// Names that a file may have. Another name is a mistake, since nothing would read the file.
const NAMES: [&str; 8] = [
    "memory.txt",
    "locks.txt",
    "dma.txt",
    "reads.txt",
    "rights.txt",
    "transact.txt",
    "roles.txt",
    "protocol.chart",
];

fn main() -> io::Result<()> {
    let folder =
        Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../knowledge").canonicalize()?;
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut classes = entries(&folder)?;
    classes.retain(|path| path.is_dir());
    classes.sort_by_key(|path| (!path.ends_with(CORE), path.clone()));
    let mut code = String::from("&[\n");
    for file in classes.iter().map(|class| entries(class)).collect::<io::Result<Vec<_>>>()?.iter().flatten() {
        let name = file.strip_prefix(&folder).unwrap_or(file).display().to_string();
        if !NAMES.iter().any(|known| file.ends_with(known)) {
            println!("cargo::error=knowledge/{name}: a class has the files {}", NAMES.join(", "));
        }
        writeln!(code, "    ({:?}, include_str!({:?})),", format!("knowledge/{name}"), file).unwrap();
    }
    code.push_str("]\n");
    fs::write(Path::new(&env::var("OUT_DIR").unwrap()).join("files.rs"), code)
}

/// The content of a folder, sorted, without hidden files.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.')));
    paths.sort();
    Ok(paths)
}
