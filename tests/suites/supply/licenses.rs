//! Licenses of dependencies, and the page that says what each is for.

use crate::policy::policy;
use crate::read;
use guardrail_tests::cargo_tree;
use std::collections::BTreeSet;

/// The page about dependencies.
const PAGE: &str = "docs/design/dependencies.md";

/// Crates that a table of the page lists, by the rows' first cells.
fn listed(text: &str) -> BTreeSet<String> {
    let cells = text.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let names = cells.flat_map(|cell| cell.split(['`', ',', ' '])).filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// Crates that get bytes which are not trusted.
pub fn untrusted() -> BTreeSet<String> {
    let page = read(PAGE);
    let (_, rest) = page.split_once("## Crates that get bytes").expect("the page has this table");
    listed(rest.split("\n## ").next().unwrap_or_default())
}

/// Dependencies of the programs that the page lacks, names on it that are not used, and licenses that the policy does
/// not allow, of tests' dependencies as well.
pub fn misfits() -> Vec<String> {
    let listed = listed(&read(PAGE));
    let allowed = policy().licenses.allow;
    let mut found = Vec::new();
    for line in cargo_tree("{p}|{l}", &["--workspace", "--edges", "all"]) {
        // Packages of the workspace are separated by empty lines.
        let Some((package, license)) = line.split_once('|') else { continue };
        let plain = license.replace(['(', ')'], "").replace('/', " OR ");
        let accepted = |all: &str| all.split(" OR ").any(|one| allowed.contains(one));
        if !plain.split(" AND ").all(accepted) {
            found.push(format!("{package}: the license {license} is not allowed"));
        }
    }
    let programs = ["--workspace", "--exclude", "guardrail-tests", "--edges", "normal,build"];
    let used: BTreeSet<String> = cargo_tree("{p}", &programs)
        .into_iter()
        .filter_map(|line| Some(line.split(' ').next()?.to_owned()))
        .filter(|name| !name.is_empty() && !name.starts_with("guardrail"))
        .collect();
    let unlisted = used.iter().filter(|name| !listed.contains(*name));
    found.extend(unlisted.map(|name| format!("{PAGE} does not say what {name} is for")));
    let stale = listed.iter().filter(|name| !used.contains(*name));
    found.extend(stale.map(|name| format!("{PAGE} names {name}, but nothing uses it")));
    found
}
