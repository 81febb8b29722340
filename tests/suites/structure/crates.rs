//! Imports between crates.

use crate::{Found, files, read};
use std::collections::BTreeSet;

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
            "site",
            "protocol",
            "usb-device",
        ],
    ),
    ("on the host", &["host", "synthetic"]),
    ("on the host", &["check", "guard", "campaign", "profile", "fleet", "transact", "verify"]),
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

/// What cargo builds, with features, for the packages and kinds of dependencies that the words choose.
fn built(words: &[&str]) -> BTreeSet<String> {
    guardrail_tests::cargo_tree("{p} {f}", words)
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
