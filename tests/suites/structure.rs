//! The shape of the repository: which imports are allowed, how long files and functions may be, which paths
//! docs name, how docs read. Pure text, without a build or a guest.

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

/// The result of a check: what breaks its rule, with details for a reader.
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

/// Fails where a check found something.
#[track_caller]
fn nothing(check: &str, found: &Found) {
    let mut text = String::new();
    for (key, detail) in found {
        let _ = writeln!(text, "{check}: {key}\n    {}", detail.trim_end().replace('\n', "\n    "));
    }
    assert!(text.is_empty(), "\n{text}");
}

#[test]
fn no_cycle_between_modules() {
    nothing("cycle", &rust_modules::cycles());
}

#[test]
fn crates_import_downwards() {
    nothing("crate", &crates::upward());
}

#[test]
fn only_the_command_line_knows_clap() {
    nothing("clap", &crates::clap());
}

#[test]
fn nothing_is_built_twice() {
    nothing("features", &crates::built_twice());
}

#[test]
fn the_runtime_includes_downwards() {
    nothing("runtime", &runtime::upward());
}

#[test]
fn files_are_short() {
    nothing("file", &sizes::files());
}

#[test]
fn functions_are_short() {
    nothing("function", &sizes::functions());
}

#[test]
fn docs_name_paths_that_exist() {
    nothing("path", &docs::missing());
}

#[test]
fn docs_list_kinds_of_findings() {
    nothing("kind", &docs::unlisted());
}

#[test]
fn sentences_are_short() {
    nothing("sentences", &prose::long());
}

#[test]
fn sentences_of_comments_are_short() {
    nothing("comments", &prose::long_comments());
}

#[test]
fn no_banned_words() {
    nothing("banned", &prose::banned());
}

#[test]
fn no_comments_of_one_word() {
    nothing("one-word", &prose::one_word());
}
