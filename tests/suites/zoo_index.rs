//! The zoo's index agrees with `expect.json` and the sources. `GUARDRAIL_UPDATE=1` writes it anew.

use guardrail_host::zoo;
use guardrail_tests::root;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The index from the zoo's folders: one table for each kind.
fn index(zoo: &Path) -> String {
    let mut kinds: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, folder) in zoo::drivers(zoo).expect("the zoo can be listed") {
        let Ok(text) = fs::read_to_string(folder.join("expect.json")) else { continue };
        let expect: Value = serde_json::from_str(&text).expect("expect.json is JSON");
        let word = |member: &str| expect[member].as_str().unwrap_or("").to_owned();
        for member in ["kind", "about", "twin"] {
            assert!(!word(member).is_empty(), "{name}/expect.json lacks \"{member}\"");
        }
        let kind = folder.parent().and_then(Path::file_name).expect("a driver lies in its kind's folder");
        let cells =
            [word("kind"), word("where"), word("about"), word("twin"), word("device"), aftermath(&word)];
        let row = format!("| `{name}` | {} |", cells.join(" | "));
        kinds.entry(kind.to_string_lossy().into_owned()).or_default().push(row);
    }
    let mut text = String::from(
        "# The bugs of the zoo\n\n\
         Generated from each `expect.json`; [README.md](README.md) says how, and what the kinds have in common.\n",
    );
    for (kind, rows) in kinds {
        text += &format!(
            "\n## {kind}\n\n| name | finding | where | what is wrong, or makes it deep | its twin | device | aftermath |\n|---|---|---|---|---|---|---|\n"
        );
        text += &(rows.join("\n") + "\n");
    }
    text
}

fn aftermath(word: &dyn Fn(&str) -> String) -> String {
    Some(word("aftermath")).filter(|after| after != "none").unwrap_or_default()
}

#[test]
fn the_index_of_the_zoo_is_current() {
    let zoo = root().join("zoo");
    let file = zoo.join("index.md");
    let wanted = index(&zoo);
    if std::env::var_os("GUARDRAIL_UPDATE").is_some() {
        fs::write(&file, &wanted).expect("the index can be written");
    }
    let there = fs::read_to_string(&file).unwrap_or_default();
    assert!(there == wanted, "zoo/index.md is not current; run this test with GUARDRAIL_UPDATE=1");
}

#[test]
fn every_source_marks_what_its_twin_changes() {
    for (name, folder) in zoo::drivers(&root().join("zoo")).expect("the zoo can be listed") {
        if !folder.join("expect.json").is_file() {
            continue;
        }
        let source = folder.join(format!("{}.c", name.replace('-', "_")));
        let source =
            fs::read_to_string(&source).unwrap_or_else(|_| panic!("{} is missing", source.display()));
        assert!(source.contains("TWIN"), "zoo/{name} has no twin");
    }
}
