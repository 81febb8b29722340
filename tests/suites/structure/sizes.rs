//! Checks the lengths of files and functions. A function whose comment right above calls it a table may be
//! longer.

use crate::source::{close, is_generated, strip};
use crate::{Found, read};

const FILE: usize = 600;
const RUST: usize = 100;
const C: usize = 60;
const FOLDERS: [&str; 10] =
    ["crates", "runtime", "tests", "bench", "fuzz", "guest", "zoo", "scripts", "active", "knowledge"];

fn sources(ends: &[&str]) -> Vec<String> {
    FOLDERS.iter().flat_map(|folder| crate::files(folder, ends)).collect()
}

/// Files that are too long.
pub fn files() -> Found {
    let mut found = Found::new();
    for path in sources(&[".rs", ".c", ".h", ".sh", ".py", "run", "make"]) {
        let text = read(&path);
        let lines = text.lines().count();
        let table = text.lines().take(3).any(|line| line.contains("table"));
        if lines > FILE && !table && !is_generated(&text) {
            found.insert(path, format!("{lines} lines; at most {FILE}"));
        }
    }
    found
}

/// Functions that are too long.
pub fn functions() -> Found {
    let mut found = Found::new();
    for path in sources(&[".rs", ".c", ".h"]) {
        let (limit, all) = match path.ends_with(".rs") {
            true => (RUST, rust(&read(&path))),
            false => (C, c(&read(&path))),
        };
        for (name, lines) in all.into_iter().filter(|(_, lines)| *lines > limit) {
            found.insert(format!("{path} {name}"), format!("{lines} lines; at most {limit}"));
        }
    }
    found
}

/// True where the comments and attributes right above the function call it a table. `first` is the index of
/// its first line.
fn is_table(lines: &[&str], first: usize) -> bool {
    let above = lines[..first].iter().rev().map(|line| line.trim());
    let above = above.take_while(|line| ["//", "#[", "/*", "*"].iter().any(|start| line.starts_with(start)));
    above.into_iter().any(|line| line.contains("table"))
}

/// The functions of Rust code that are not tables, with their numbers of lines.
fn rust(text: &str) -> Vec<(String, usize)> {
    let code = strip(text).code;
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let word = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let name: String = code[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let rest = &code[at..];
        let open = rest.find('{');
        // A declaration ends without a body; a `;` in brackets is part of an array's type.
        let open = open.filter(|&open| !ends_before(&rest[..open]));
        let Some(open) = open else { continue };
        if word || name.is_empty() {
            continue;
        }
        let first = code[..at].matches('\n').count();
        let length = code[at..close(&code, at + open)].matches('\n').count() + 1;
        if !is_table(&lines, first) {
            found.push((name, length));
        }
    }
    found
}

/// True where there is a `;` outside of brackets.
fn ends_before(head: &str) -> bool {
    let mut depth = 0_i32;
    head.chars().any(|c| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ';' && depth == 0
    })
}

/// The functions of C code that are not tables, with their numbers of lines. The code is in the kernel's
/// style, with braces in the first column.
fn c(text: &str) -> Vec<(String, usize)> {
    let code = strip(text).code;
    let (code, lines): (Vec<&str>, Vec<&str>) = (code.lines().collect(), text.lines().collect());
    let mut found = Vec::new();
    for (open, _) in code.iter().enumerate().filter(|(_, line)| line.trim_end() == "{") {
        if code[open].starts_with(char::is_whitespace) {
            continue;
        }
        let Some(close) = (open..code.len()).find(|&at| code[at].starts_with('}')) else { continue };
        let head = (0..open)
            .rev()
            .take_while(|&at| !code[at].trim().is_empty() && !code[at].starts_with(['}', '#']));
        let first = head.last().unwrap_or(open);
        let head = code[first..open].join(" ");
        let name = head.split('(').next().unwrap_or_default().split_whitespace().last().unwrap_or_default();
        if !is_table(&lines, first) {
            found.push((name.trim_start_matches('*').to_owned(), close - first + 1));
        }
    }
    found
}

#[test]
fn functions_are_measured() {
    let text = "/// A table.\nfn a() {\n}\nfn b(x: [u8; 2]) -> u8 {\n    let f = \"}\";\n    1\n}\ntrait T { fn c(); }\n";
    assert_eq!(rust(text), [("b".to_owned(), 4)]);
    let text =
        "static int a(int b,\n\t     int c)\n{\n\tif (b) {\n\t}\n}\n\n/* A table. */\nvoid b(void)\n{\n}\n";
    assert_eq!(c(text), [("a".to_owned(), 6)]);
}
