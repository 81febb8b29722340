//! Imports between crates.

use crate::{Found, files, read, root};
use std::collections::BTreeSet;
use std::process::Command;

/// The order of crates. A crate may import those of lower rows of its own column and of the vocabulary, and those of its own row.
const ROWS: [(&str, &[&str]); 8] = [
    ("vocabulary", &["trace", "abi", "finding", "binfmt", "knowledge", "kernel", "shadow"]),
    ("inside QEMU", &["plugin"]),
    ("inside QEMU", &["client-api", "tracer"]),
    ("inside QEMU", &["client-tools"]),
    (
        "on the host",
        &[
            "analysis",
            "kernel-log",
            "rewrite",
            "certify",
            "learn",
            "mutate",
            "snapshot",
            "jail",
            "gate",
            "vm",
            "report",
            "protocol",
        ],
    ),
    ("on the host", &["host"]),
    ("on the host", &["check", "guard", "campaign", "profile", "transact", "verify"]),
    ("on the host", &["cli"]),
];

/// The names in a manifest of the program's own dependencies, without those of its tests.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut section = "";
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line.trim();
        } else if section.ends_with("dependencies]") && !section.contains("dev-") {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            found.extend((!name.is_empty() && !name.starts_with('#')).then(|| name.to_owned()));
        }
    }
    found
}

/// Each crate under `crates/`, by the name of its folder, and its dependencies.
fn crates() -> Vec<(String, Vec<String>)> {
    let manifests = files("crates", &["Cargo.toml"]);
    let of = |path: &String| {
        let name = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
        (!name.contains('/')).then(|| (name.to_owned(), dependencies(&read(path))))
    };
    manifests.iter().filter_map(of).collect()
}

fn row(name: &str) -> Option<usize> {
    ROWS.iter().position(|(_, names)| names.contains(&name))
}

/// Dependencies that run up, and crates without a row.
pub fn upward() -> Found {
    let mut found = Found::new();
    for (name, dependencies) in crates() {
        let Some(own) = row(&name) else {
            found.insert(name, "this crate is in no row of the order; add it".to_owned());
            continue;
        };
        for dependency in dependencies.iter().filter_map(|name| name.strip_prefix("guardrail-")) {
            let allowed = row(dependency)
                .is_some_and(|row| row <= own && [ROWS[0].0, ROWS[own].0].contains(&ROWS[row].0));
            if !allowed {
                found.insert(format!("{name} imports {dependency}"), "this runs up".to_owned());
            }
        }
    }
    found
}

/// Crates other than the command line that depend on clap.
pub fn clap() -> Found {
    let with =
        crates().into_iter().filter(|(name, all)| name != "cli" && all.iter().any(|one| one == "clap"));
    with.map(|(name, _)| (name, "only cli may depend on clap".to_owned())).collect()
}

/// A line in this format for each package that cargo builds for the packages and kinds of dependencies that the words
/// choose.
fn tree(format: &str, words: &[&str]) -> BTreeSet<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["tree", "--offline", "--prefix", "none", "--format", format]).args(words);
    let output = command.current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

/// What cargo builds, with features.
fn built(words: &[&str]) -> BTreeSet<String> {
    tree("{p} {f}", words)
}

/// The page about dependencies.
const DEPENDENCIES: &str = "docs/design/dependencies.md";
/// Licenses that go together with the GPL, version 2 or later.
const LICENSES: [&str; 9] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "Zlib",
    "0BSD",
    "Unlicense",
    "Unicode-3.0",
];

/// Dependencies of the programs that the page about them lacks, names there that are none, and licenses of others.
pub fn dependencies_unlisted() -> Found {
    let page = read(DEPENDENCIES);
    let cells = page.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let listed: BTreeSet<&str> =
        cells.flat_map(|cell| cell.split(['`', ',', ' '])).filter(|name| !name.is_empty()).collect();
    let mut found = Found::new();
    let mut used = BTreeSet::new();
    for line in tree("{p}|{l}", &["--workspace", "--exclude", "guardrail-tests", "--edges", "normal,build"]) {
        // Packages of the workspace are separated by empty lines.
        let Some((package, license)) = line.split_once('|') else { continue };
        let name = package.split(' ').next().unwrap_or_default();
        if name.starts_with("guardrail") {
            continue;
        }
        used.insert(name.to_owned());
        if !listed.contains(name) {
            found.insert(name.to_owned(), format!("{DEPENDENCIES} does not say what it is for"));
        }
        let plain = license.replace(['(', ')'], "").replace('/', " OR ");
        let accepted = |all: &str| all.split(" OR ").any(|one| LICENSES.contains(&one));
        if !plain.split(" AND ").all(accepted) {
            found.insert(format!("{name}: {license}"), "this license is not in the list".to_owned());
        }
    }
    let stale = listed.iter().filter(|name| !used.contains(**name));
    found.extend(
        stale.map(|name| ((*name).to_owned(), format!("{DEPENDENCIES} names it, but nothing uses it"))),
    );
    found
}

/// Packages that are built once for tests and once more, with other features, for programs alone. All that depends on them
/// is then built twice, too.
pub fn built_twice() -> Found {
    let of_tests = built(&["--workspace", "--edges", "normal,build,dev"]);
    let program = ["-p", "guardrail-cli", "-p", "guardrail-tracer", "-p", "guardrail-client-tools"];
    let selections: [&[&str]; 2] = [&["--workspace"], &program];
    let of_programs = selections.map(|words| built(&[words, &["--edges", "normal,build"]].concat()));
    let others = of_programs.iter().flatten().filter(|line| !of_tests.contains(*line));
    others.map(|line| (line.clone(), "tests have it with other features".to_owned())).collect()
}
