//! Paths that docs name.

use crate::{Found, files, read, root};
use guardrail_finding::kinds::KINDS;
use guardrail_host::zoo;
use std::path::Path;

/// The top folders of the repository: a path in backticks that begins with one is relative to the repository.
pub const FOLDERS: [&str; 12] = [
    "crates",
    "runtime",
    "docs",
    "tests",
    "bench",
    "fuzz",
    "zoo",
    "scripts",
    "knowledge",
    "guest",
    "active",
    "examples",
];

/// The pages: all of `docs/`, and the pages beside code.
pub fn pages() -> Vec<String> {
    let root = root();
    let top = ["README.md", "CONTRIBUTING.md"].into_iter().filter(|name| root.join(name).is_file());
    let mut pages: Vec<String> = top.map(str::to_owned).collect();
    pages.extend(FOLDERS.iter().flat_map(|folder| files(folder, &[".md"])));
    pages
}

/// Paths in pages that do not exist.
pub fn missing() -> Found {
    let mut found = Found::new();
    for page in pages() {
        let text = read(&page);
        let folder = Path::new(&page).parent().unwrap_or(Path::new(""));
        let links = links(&text).into_iter().filter(|link| !root().join(folder).join(link).exists());
        let paths =
            code_paths(&text).into_iter().filter(|path| !root().join(path).exists() && !is_driver(path));
        for path in links.chain(paths) {
            found.insert(format!("{page} names {path}"), "there is no such file".to_owned());
        }
    }
    found
}

/// Kinds of findings that the page of reports does not list, and kinds of zoo drivers that have no help.
pub fn unlisted() -> Found {
    const PAGE: &str = "docs/use/reports.md";
    let page = read(PAGE);
    let mut found: Found = KINDS
        .iter()
        .filter(|kind| !page.contains(&format!("`{}`", kind.name)))
        .map(|kind| (kind.name.to_owned(), format!("{PAGE} does not list it")))
        .collect();
    for path in files("zoo", &["expect.json"]) {
        let expected: serde_json::Value =
            serde_json::from_str(&read(&path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        if let Some(name) =
            expected["kind"].as_str().filter(|name| KINDS.iter().all(|kind| kind.name != *name))
        {
            found.insert(
                name.to_owned(),
                format!("{path} expects it, and crates/finding/src/kinds.rs has no help"),
            );
        }
    }
    found
}

/// True for a path in the command line's form `zoo/NAME`: a driver of the zoo or its twin, without its kind.
fn is_driver(path: &str) -> bool {
    let Some(name) = path.strip_prefix("zoo/") else { return false };
    let name = name.strip_suffix("_ok").unwrap_or(name);
    zoo::drivers(&root().join("zoo")).is_ok_and(|drivers| drivers.contains_key(name))
}

/// Targets of links to files, without their anchors.
fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let files = targets.filter(|target| {
        !target.contains("://") && !target.starts_with(['#', '<']) && !target.starts_with("mailto:")
    });
    let files = files.map(|target| target.split('#').next().unwrap_or_default().to_owned());
    files.filter(|target| !target.is_empty()).collect()
}

/// Paths in backticks from the top of the repository, without those that contain a placeholder.
fn code_paths(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        for word in line.split('`').skip(1).step_by(2).flat_map(str::split_whitespace) {
            let word = word.trim_start_matches("./").trim_end_matches([',', ';', '.', ':', ')']);
            let path = word.split(':').next().unwrap_or_default();
            let Some((top, rest)) = path.split_once('/') else { continue };
            let good = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
            let filled = |part: &str| {
                part.len() > 1 && part.chars().all(|c| c.is_ascii_uppercase() || c == '_') && part != "README"
            };
            if FOLDERS.contains(&top)
                && rest.chars().all(good)
                && !rest.split(['/', '.', '-', '_']).any(filled)
            {
                found.push(path.to_owned());
            }
        }
    }
    found
}

#[test]
fn paths_are_found() {
    let text = "see [a](b.md#c), [d](https://e) and `crates/x/y.rs:12`; `zoo/NAME/NAME.c`, `bench/run kernel`, `a/b`";
    assert_eq!(links(text), ["b.md"]);
    assert_eq!(code_paths(text), ["crates/x/y.rs", "bench/run"]);
}
