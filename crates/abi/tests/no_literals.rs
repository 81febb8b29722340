//! No other crate repeats the contract: no name of a runtime's function, and no number that a comment names `GUARDRAIL_…`. No number
//! stands for an offset, a size or an opcode of the contract; zero is not searched for.

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

/// Calls that read or write the contract's structs, or emit such an access, with the argument that is the offset.
const OFFSETS: [(&str, usize); 15] = [
    ("self.put", 0),
    ("self.point", 0),
    ("pointer", 0),
    ("self.word", 0),
    ("self.at", 0),
    ("self.array", 0),
    ("self.array", 1),
    ("self.ranges", 0),
    ("self.ranges", 1),
    ("self.store", 1),
    ("self.load", 1),
    ("self.stack_pointer", 1),
    ("with_base_displ", 1),
    ("with_base_displ_size", 1),
    ("with_base_index_scale_displ_size", 3),
];

/// Members of the rows that Rust fills, which hold opcodes.
const OPCODES: [&str; 4] = ["op", "kind", "when", "event"];

/// The least number that counts as an offset: below it stand parts of instructions.
const LEAST: u64 = 8;

#[test]
fn no_number_stands_for_an_offset_or_an_opcode() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for krate in ["rewrite", "kernel", "guard", "analysis"] {
        for (path, text) in sources(&crates.join(krate).join("src")) {
            let lines = numbers(&text).into_iter();
            found.extend(lines.map(|(line, code)| format!("{}:{line}: {code}", path.display())));
        }
    }
    assert!(found.is_empty(), "use a constant of guardrail_abi instead:\n{}", found.join("\n"));
}

#[test]
fn planted_numbers_are_found() {
    let lines = |text: &str| numbers(text).into_iter().map(|(line, _)| line).collect::<Vec<_>>();
    let access = "let place = MemoryOperand::with_base_displ(\n    Register::RAX,\n    0x18,\n);\n";
    assert_eq!(lines(access), [1]);
    assert_eq!(lines("a;\nself.put(at + 48, &count.to_le_bytes());"), [2]);
    assert_eq!(lines("self.load(Register::RAX, at + 0x30)?;"), [1]);
    assert_eq!(lines("terms.push(Term { op: 3, n, operand: 0 });"), [1]);
    assert_eq!(lines("const SECOND: i64 = 56;"), [1]);
    let names = "self.put(at + row::FIELDS, x); with_base_displ(Register::RSP, 8 * n); // put(at + 48)";
    assert_eq!(lines(names), [0; 0]);
}

/// The numbers in code that repeat the contract, by line.
fn numbers(text: &str) -> Vec<(usize, String)> {
    let code: String = text.lines().flat_map(|line| [line.split("//").next().unwrap_or(""), "\n"]).collect();
    let offset = |number: u64| {
        let offsets = abi::IN_C.iter().filter(|(name, _)| name.starts_with("offsetof"));
        number >= LEAST && offsets.clone().any(|&(_, value)| value == number)
    };
    let begins = |at: usize| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let mut found = Vec::new();
    for (name, index) in OFFSETS {
        let call = format!("{name}(");
        let calls = code.match_indices(&call).map(|(at, call)| (at, at + call.len()));
        for (at, begin) in calls.filter(|&(at, _)| begins(at)).collect::<Vec<_>>() {
            let offsets = argument(&code[begin..], index).split('+').filter_map(number);
            found.extend(offsets.filter(|&number| offset(number)).map(|_| at));
        }
    }
    for name in OPCODES {
        let field = format!("{name}: ");
        let fields = code.match_indices(&field).filter(|&(at, _)| begins(at));
        let value = |at: usize| code[at..].split([',', ' ', '\n', '}', ')']).nth(1);
        found.extend(fields.map(|(at, _)| at).filter(|&at| value(at).and_then(number) > Some(0)));
    }
    for (at, _) in code.match_indices("const ") {
        let Some((name, rest)) = code[at + 6..].split_once(": ") else { continue };
        let value = rest.split(';').next().and_then(|rest| number(rest.split_once("= ")?.1));
        let same = |&&(c, value_in_c): &&(&str, u64)| Some(value_in_c) == value && name_of(c) == name;
        found.extend(abi::IN_C.iter().find(same).filter(|(_, value)| *value > 0).map(|_| at));
    }
    found.sort_unstable();
    let line = |at: usize| code[..at].matches('\n').count();
    found
        .into_iter()
        .map(|at| (line(at) + 1, code.lines().nth(line(at)).unwrap_or("").trim().to_owned()))
        .collect()
}

/// An argument of a call, of the text behind its parenthesis.
fn argument(text: &str, index: usize) -> &str {
    let (mut depth, mut begin, mut count) = (0, 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            ',' | ')' if depth == 0 => {
                if count == index || c == ')' {
                    return if count == index { &text[begin..at] } else { "" };
                }
                (begin, count) = (at + 1, count + 1);
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
    }
    ""
}

/// The value of a literal.
fn number(text: &str) -> Option<u64> {
    let text = text.trim().replace('_', "");
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The name in Rust of `GUARDRAIL_NAME` or of `offsetof(…, name)`.
fn name_of(c: &str) -> String {
    let member =
        c.strip_prefix("offsetof(").and_then(|rest| Some(rest.split_once(", ")?.1.trim_end_matches(')')));
    member.unwrap_or_else(|| c.trim_start_matches("GUARDRAIL_")).to_uppercase()
}

/// Rust files below a folder without tests, with their text.
fn sources(folder: &Path) -> Vec<(std::path::PathBuf, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("tests") {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path, text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned()));
        }
    }
    found
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
