//! Cycles between the modules of a crate.
//!
//! Modules beside each other form a graph at each level of a crate. One module has an edge to another where a
//! file in it names a path into the other. A name that the parent re-exports counts as a path to where it is
//! defined. Items of the parent's own file form no edge.

use crate::source::{strip, without_tests};
use crate::{Found, files, read};
use std::collections::{BTreeMap, BTreeSet};

/// A module by its path in the crate; the root is empty.
type Module = Vec<String>;

/// A file's module, its paths to other modules, and its `use` items by the names that they import.
struct File {
    path: String,
    paths: Vec<Module>,
    uses: BTreeMap<String, Module>,
}

/// All cycles of all crates.
pub fn cycles() -> Found {
    let manifests = files("crates", &["Cargo.toml"]);
    let crates = manifests.iter().filter_map(|manifest| manifest.strip_suffix("/Cargo.toml"));
    crates.flat_map(|folder| cycles_of(&format!("{folder}/src"))).collect()
}

fn cycles_of(src: &str) -> Found {
    let modules = modules(src);
    // Maps each level and its two modules to a file that makes the edge.
    let mut levels: BTreeMap<Module, BTreeMap<(String, String), String>> = BTreeMap::new();
    for (from, file) in &modules {
        for path in &file.paths {
            let to = defined(&modules, path, 0);
            let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            if let (Some(a), Some(b)) = (from.get(common), to.get(common)) {
                let edge = (a.clone(), b.clone());
                let level = levels.entry(from[..common].to_vec()).or_default();
                level.entry(edge).or_insert_with(|| format!("{} names {}", file.path, path.join("::")));
            }
        }
    }
    let mut found = Found::new();
    for (level, edges) in &levels {
        for members in knots(edges) {
            let place = [&[src.to_owned()], level.as_slice()].concat().join("/");
            let inside = edges.iter().filter(|((a, b), _)| members.contains(a) && members.contains(b));
            let detail: String = inside.map(|((a, b), why)| format!("{a} -> {b}: {why}\n")).collect();
            let members: Vec<&str> = members.iter().map(String::as_str).collect();
            found.insert(format!("{place}: {}", members.join(" ")), detail);
        }
    }
    found
}

/// Sets of more than one module in which each module reaches each other one.
fn knots(edges: &BTreeMap<(String, String), String>) -> Vec<BTreeSet<String>> {
    let mut reach: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (a, b) in edges.keys() {
        reach.entry(a).or_default().insert(b);
    }
    loop {
        let more: Vec<(&str, BTreeSet<&str>)> = reach
            .iter()
            .map(|(a, to)| (*a, to.iter().filter_map(|b| reach.get(b)).flatten().copied().collect()))
            .collect();
        let before: usize = reach.values().map(BTreeSet::len).sum();
        more.into_iter().for_each(|(a, to)| reach.entry(a).or_default().extend(to));
        if reach.values().map(BTreeSet::len).sum::<usize>() == before {
            break;
        }
    }
    let reaches = |a: &str, b: &str| reach.get(a).is_some_and(|to| to.contains(b));
    let mut knots = BTreeSet::new();
    for a in reach.keys().filter(|a| reaches(a, a)) {
        let knot: BTreeSet<String> =
            reach.keys().filter(|b| reaches(a, b) && reaches(b, a)).map(|b| (*b).to_owned()).collect();
        knots.insert(knot);
    }
    knots.into_iter().collect()
}

/// The module that defines what a path names: re-exports are followed.
fn defined(modules: &BTreeMap<Module, File>, path: &[String], depth: usize) -> Module {
    let known = (0..=path.len()).rev().find(|&length| modules.contains_key(&path[..length])).unwrap_or(0);
    let (module, rest) = path.split_at(known);
    let again = rest.first().and_then(|name| modules.get(module)?.uses.get(name));
    match again {
        Some(target) if depth < 8 && target != path => {
            defined(modules, &[target.as_slice(), &rest[1..]].concat(), depth + 1)
        }
        _ => module.to_vec(),
    }
}

/// The modules of a crate that are not for tests.
fn modules(src: &str) -> BTreeMap<Module, File> {
    let mut modules = BTreeMap::new();
    let mut for_tests: Vec<Module> = Vec::new();
    for path in files(src, &[".rs"]) {
        let inner = path.strip_prefix(src).and_then(|path| path.strip_prefix('/')).expect("it is below src");
        let mut module: Module = inner.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if ["mod", "lib", "main"].contains(&module.last().map_or("", String::as_str)) {
            module.pop();
        }
        let (code, tests) = without_tests(&strip(&read(&path)).code);
        for_tests.extend(tests.into_iter().map(|name| [module.as_slice(), &[name]].concat()));
        let (paths, uses) = paths(&code, &module);
        modules.insert(module, File { path, paths, uses });
    }
    modules.retain(|module: &Module, _| !for_tests.iter().any(|test| module.starts_with(test)));
    modules
}

/// The paths in code that begin at the crate, at the module or at its parent, and the imports of `use` items,
/// by name.
fn paths(code: &str, module: &Module) -> (Vec<Module>, BTreeMap<String, Module>) {
    let tokens = tokens(code);
    let (mut paths, mut uses) = (Vec::new(), BTreeMap::new());
    let mut at = 0;
    while at < tokens.len() {
        let in_use = at > 0 && tokens[at - 1] == "use";
        let visibility = at > 1 && tokens[at - 1] == "in" && tokens[at - 2] == "(";
        let starts = ["crate", "self", "super"].contains(&tokens[at].as_str())
            && tokens.get(at + 1).is_some_and(|next| next == "::")
            && !(at > 0 && tokens[at - 1] == "::");
        if (starts || in_use) && !visibility {
            let mut found = Vec::new();
            let end = tree(&tokens, at, &mut Vec::new(), &mut found);
            for (path, name) in found {
                if let Some(path) = absolute(&path, module) {
                    if in_use {
                        uses.insert(name, path.clone());
                    }
                    paths.push(path);
                }
            }
            at = end.max(at + 1);
        } else {
            at += 1;
        }
    }
    (paths, uses)
}

/// Words, `::`, and single signs.
fn tokens(code: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let length = match word {
            0 if rest.starts_with("::") => 2,
            0 => first.len_utf8(),
            length => length,
        };
        tokens.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    tokens
}

/// Reads a path or a tree of paths from a token on; returns the index of the next token.
fn tree(tokens: &[String], mut at: usize, prefix: &mut Module, found: &mut Vec<(Module, String)>) -> usize {
    let depth = prefix.len();
    loop {
        let token = tokens.get(at).map_or("", String::as_str);
        match token {
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    at = tree(tokens, at, prefix, found).max(at + 1);
                    at += usize::from(tokens.get(at).is_some_and(|token| token == ","));
                }
                prefix.truncate(depth);
                return at + 1;
            }
            _ if token.starts_with(|c: char| c.is_alphanumeric() || c == '_') => {
                prefix.push(token.to_owned())
            }
            "*" => {}
            _ => at -= usize::from(at > 0 && tokens[at - 1] == "::"),
        }
        at += 1;
        if token == "*" || tokens.get(at).is_none_or(|next| next != "::") {
            break;
        }
        at += 1;
    }
    let mut name = prefix.last().cloned().unwrap_or_default();
    if tokens.get(at).is_some_and(|token| token == "as") {
        name = tokens.get(at + 1).cloned().unwrap_or_default();
        at += 2;
    }
    if prefix.last().is_some_and(|last| last == "self") && prefix.len() > 1 {
        prefix.pop();
        name = prefix.last().cloned().unwrap_or_default();
    }
    found.push((prefix.clone(), name));
    prefix.truncate(depth);
    at
}

/// A path from the crate's root. A path that begins at another crate is left out, and one that begins at a
/// child is included.
fn absolute(path: &[String], module: &Module) -> Option<Module> {
    let mut base = module.clone();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => {
            base.clear();
            rest = &path[1..];
        }
        "self" => rest = &path[1..],
        _ => {}
    }
    while let Some("super") = rest.first().map(String::as_str) {
        base.pop()?;
        rest = &rest[1..];
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

#[test]
fn paths_of_uses_and_expressions_are_found() {
    let code = "use crate::{a::{self, B as C}, d::*}; pub(in crate::x) fn f() { super::e::g::<crate::h>() } use std::fmt;";
    let (paths, uses) = paths(code, &vec!["m".to_owned(), "n".to_owned()]);
    let texts: Vec<String> = paths.iter().map(|path| path.join("::")).collect();
    assert_eq!(texts, ["a", "a::B", "d", "m::e::g", "h", "m::n::std::fmt"]);
    assert_eq!(uses["C"].join("::"), "a::B");
}
