//! The shape of the repository: which imports are allowed, how long files and functions may be, which paths
//! docs name, how docs read. Pure text, without a build or a guest.
//!
//! `structure/known.txt` lists the known exceptions. It may only shrink: a check fails on an exception that
//! is not listed, and on a line that is not needed any more.

#[path = "structure/crates.rs"]
mod crates;
#[path = "structure/docs.rs"]
mod docs;
#[path = "structure/prose.rs"]
mod prose;
#[path = "structure/runtime.rs"]
mod runtime;
#[path = "structure/rust_modules.rs"]
mod rust_modules;
#[path = "structure/sizes.rs"]
mod sizes;
#[path = "structure/source.rs"]
mod source;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const KNOWN: &str = include_str!("structure/known.txt");

/// The result of a check: lines for `known.txt` without the check's name, with details for a reader.
pub type Found = BTreeMap<String, String>;

/// The repository.
pub fn root() -> PathBuf {
    guardrail_tests::root().canonicalize().expect("the repository is there")
}

/// The files below a folder whose names end in one of these, sorted, relative to the repository.
pub fn files(folder: &str, ends: &[&str]) -> Vec<String> {
    let root = root();
    let (mut folders, mut found) = (vec![root.join(folder)], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = entry.path();
            if path.is_dir() && !name.starts_with('.') && name != "target" && !path.is_symlink() {
                folders.push(path);
            } else if ends.iter().any(|end| name.ends_with(end)) {
                let path = path.strip_prefix(&root).expect("it is below the root");
                found.push(path.display().to_string());
            }
        }
    }
    found.sort();
    found
}

/// The text of a file of the repository.
pub fn read(path: &str) -> String {
    let path = root().join(Path::new(path));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Compares the result of a check with the known exceptions.
#[track_caller]
fn compare(check: &str, found: &Found) {
    println!("{check}: {} found", found.len());
    let known: Vec<&str> =
        KNOWN.lines().filter_map(|line| line.strip_prefix(check)?.strip_prefix(": ")).collect();
    let mut text = String::new();
    for (key, detail) in found.iter().filter(|(key, _)| !known.contains(&key.as_str())) {
        let _ = writeln!(text, "{check}: {key}\n    {}", detail.trim_end().replace('\n', "\n    "));
    }
    for key in known.iter().filter(|key| !found.contains_key(**key)) {
        let _ = writeln!(text, "not needed any more in known.txt: {check}: {key}");
    }
    assert!(text.is_empty(), "\n{text}");
}

#[test]
fn no_cycle_between_modules() {
    compare("cycle", &rust_modules::cycles());
}

#[test]
fn crates_import_downwards() {
    compare("crate", &crates::upward());
}

#[test]
fn only_the_command_line_knows_clap() {
    compare("clap", &crates::clap());
}

#[test]
fn the_runtime_includes_downwards() {
    compare("runtime", &runtime::upward());
}

#[test]
fn files_are_short() {
    compare("file", &sizes::files());
}

#[test]
fn functions_are_short() {
    compare("function", &sizes::functions());
}

#[test]
fn docs_name_paths_that_exist() {
    compare("path", &docs::missing());
}

#[test]
fn docs_list_kinds_of_findings() {
    compare("kind", &docs::unlisted());
}

#[test]
fn sentences_are_short() {
    compare("sentences", &prose::long());
}

#[test]
fn sentences_of_comments_are_short() {
    compare("comments", &prose::long_comments());
}

#[test]
fn no_banned_words() {
    compare("banned", &prose::banned());
}

#[test]
fn no_comments_of_one_word() {
    compare("one-word", &prose::one_word());
}
