//! Includes between the folders of the runtime.

use crate::{Found, files, read, root};
use std::collections::BTreeMap;

/// The folders in their order, lowest first: the line `order: a < b < c` of the runtime's README.
fn order() -> Vec<String> {
    let path = "runtime/README.md";
    let text = if root().join(path).is_file() { read(path) } else { String::new() };
    let line =
        text.lines().find_map(|line| line.trim_matches(['`', ' ']).strip_prefix("order:").map(str::to_owned));
    let names = line.unwrap_or_default();
    names
        .split('<')
        .map(|name| name.trim_matches(['`', ' ', '/', '.']).to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

/// Includes from a folder into a higher one, or into one that the order lacks.
pub fn upward() -> Found {
    let order = order();
    let mut found = Found::new();
    if order.is_empty() {
        found.insert("no order".to_owned(), "runtime/README.md has no line 'order: a < b < c'".to_owned());
        return found;
    }
    let place = |folder: &str| order.iter().position(|name| name == folder);
    let mut edges: BTreeMap<(String, String), String> = BTreeMap::new();
    for path in files("runtime", &[".c", ".h"]) {
        // A file at the top, such as main.c, is above all folders; tests are beside it.
        let Some((folder, _)) = path.strip_prefix("runtime/").and_then(|path| path.split_once('/')) else {
            continue;
        };
        for line in read(&path).lines().filter_map(|line| line.trim().strip_prefix("#include \"")) {
            let Some((to, _)) = line.split('"').next().and_then(|name| name.split_once('/')) else {
                continue;
            };
            if to != folder && to != ".." {
                edges
                    .entry((folder.to_owned(), to.to_owned()))
                    .or_insert_with(|| format!("{path} includes {line}"));
            }
        }
    }
    for ((from, to), why) in edges {
        let allowed =
            matches!((place(&from), place(&to)), (Some(from), Some(to)) if to < from) || from == "tests";
        if !allowed {
            found.insert(format!("{from} includes {to}"), why);
        }
    }
    found
}
