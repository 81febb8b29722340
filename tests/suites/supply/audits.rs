//! Notes about unsafe code: each crate that reads untrusted bytes has one, for the version that is built.

use crate::policy::packages;
use crate::{licenses, read};
use guardrail_tests::root;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The page with the notes.
const PAGE: &str = "docs/design/audits.md";

/// Rows of the notes by crate and version, with the number of unsafe lines that each has.
fn rows() -> BTreeMap<(String, String), usize> {
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let name = cells.next()?.trim_end_matches('`').to_owned();
        Some(((name, cells.next()?.to_owned()), cells.next()?.parse().ok()?))
    };
    read(PAGE).lines().filter_map(row).collect()
}

/// Crates without a note, notes about other versions, and notes whose count of unsafe lines is not the sources'.
pub fn stale() -> Vec<String> {
    let names: BTreeSet<String> = licenses::untrusted();
    let built: BTreeSet<(String, String)> = packages("Cargo.lock")
        .into_iter()
        .filter(|package| names.contains(&package.name))
        .map(|package| (package.name, package.version))
        .collect();
    let rows = rows();
    let sources = sources();
    let text = read(PAGE);
    let mut found = Vec::new();
    for key @ (name, version) in &built {
        let Some(noted) = rows.get(key) else {
            found.push(format!("{PAGE} has no row for {name} {version}: read its unsafe code first"));
            continue;
        };
        let lines = unsafe_lines(&sources[key].join("src"));
        if lines != *noted {
            found.push(format!("{PAGE} gives {name} {version} {noted} unsafe lines; it has {lines}"));
        }
        let heads = text.lines().filter(|line| line.starts_with("## "));
        if !heads.flat_map(|line| line.split('`')).any(|word| word == name) {
            found.push(format!("{PAGE} has no note about {name}"));
        }
    }
    let old = rows.keys().filter(|key| !built.contains(*key));
    found.extend(old.map(|(name, version)| format!("{PAGE} has {name} {version}, which is not built")));
    found
}

/// The folders of packages' sources.
fn sources() -> BTreeMap<(String, String), PathBuf> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--offline", "--locked", "--format-version=1"]);
    command.args(["--filter-platform", "x86_64-unknown-linux-gnu"]);
    let output = command.current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let folder = |package: &Value| {
        let text = |name: &str| package[name].as_str().unwrap_or_default().to_owned();
        ((text("name"), text("version")), Path::new(&text("manifest_path")).with_file_name(""))
    };
    metadata["packages"].as_array().into_iter().flatten().map(folder).collect()
}

/// The lines below a folder which have the word `unsafe` in code.
fn unsafe_lines(folder: &Path) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("cargo has the sources").flatten() {
        let path = entry.path();
        if path.is_dir() {
            count += unsafe_lines(&path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read(&path).expect("a source can be read");
            count += String::from_utf8_lossy(&text).lines().filter(|line| is_unsafe(line)).count();
        }
    }
    count
}

fn is_unsafe(line: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || "_\"".contains(c);
    let whole = |(at, word): (usize, &str)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        !before.ends_with(part_of_word) && !after.starts_with(part_of_word)
    };
    !line.trim_start().starts_with("//") && line.match_indices("unsafe").any(whole)
}

#[test]
fn unsafe_code_is_known_by_its_word() {
    for line in
        ["unsafe {", "    pub unsafe fn f() {", "let x = (unsafe { y });", "unsafe impl Send for X {}"]
    {
        assert!(is_unsafe(line), "{line}");
    }
    for line in
        ["// unsafe", "  /// unsafe {", "#![forbid(unsafe_code)]", "#[cfg(feature = \"unsafe\")]", "let x;"]
    {
        assert!(!is_unsafe(line), "{line}");
    }
}
