//! No other crate repeats the contract: neither the name of a runtime's function nor a number that a comment names `GUARDRAIL_…`.

use guardrail_abi as abi;
use std::path::Path;

#[test]
fn no_crate_repeats_the_contract() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let names: Vec<String> = abi::IN_C
        .iter()
        .filter(|(name, _)| name.starts_with("GUARDRAIL_"))
        .map(|(name, _)| format!("`{name}`"))
        .chain([abi::symbol::TABLE, abi::symbol::LOOPS, abi::symbol::FRAMES, abi::symbol::EVENT].map(quoted))
        .chain([abi::symbol::WRITE_SLOW, abi::symbol::CALL_SLOW, abi::symbol::MODULE_ENTER].map(quoted))
        .collect();
    let mut found = Vec::new();
    for krate in ["rewrite", "kernel", "guard", "cli", "mutate"] {
        search(&crates.join(krate).join("src"), &names, &mut found);
    }
    assert!(found.is_empty(), "use a constant of guardrail_abi instead:\n{}", found.join("\n"));
}

fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

/// Adds the lines of Rust files below a folder that hold one of the names.
fn search(folder: &Path, names: &[String], found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            search(&path, names, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let lines =
                text.lines().zip(1..).filter(|(line, _)| names.iter().any(|name| line.contains(name)));
            found.extend(lines.map(|(line, number)| format!("{}:{number}: {}", path.display(), line.trim())));
        }
    }
}
