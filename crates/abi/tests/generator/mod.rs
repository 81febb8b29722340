//! Makes `src/generated.rs` from `guardrail_abi.h`: reads the declarations that the header uses, and no other C.

use std::collections::BTreeMap;
use std::fmt::Write;

/// What the generated file begins with.
const HEAD: &str = "\
//! Generated from `runtime/include/guardrail_abi.h`; do not edit. `GUARDRAIL_ABI_WRITE=1 cargo test -p guardrail-abi` writes it anew.
";

/// A number with a name: a `#define`, or a member of an `enum`.
struct Constant {
    name: String,
    comment: String,
    value: u64,
    /// The bits of its type in Rust.
    bits: u32,
}

/// A member of a struct.
struct Member {
    name: String,
    offset: u64,
    /// `None` for an array without a length.
    size: Option<u64>,
}

/// A struct, without `guardrail_` in its name.
struct Layout {
    name: String,
    members: Vec<Member>,
    size: u64,
    align: u64,
}

/// What the header declares.
#[derive(Default)]
pub struct Header {
    constants: Vec<Constant>,
    layouts: Vec<Layout>,
    /// Functions and variables.
    symbols: Vec<String>,
}

impl Header {
    /// Reads the header.
    pub fn parse(text: &str) -> Header {
        let mut header = Header::default();
        let mut declaration = String::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let (code, comment) = split_comment(line, &mut lines);
            if let Some(define) = code.strip_prefix("#define ") {
                header.define(define, comment);
            } else if code.starts_with('#') {
                continue;
            } else if let Some(name) = code.strip_prefix("enum ").and_then(|rest| rest.strip_suffix(" {")) {
                assert!(name.starts_with("guardrail_"), "{name}");
                header.enumeration(&mut lines);
            } else if let Some(name) =
                code.strip_prefix("struct guardrail_").and_then(|rest| rest.strip_suffix(" {"))
            {
                header.structure(name, &mut lines);
            } else if !code.starts_with("typedef ") {
                declaration += &code;
                if declaration.ends_with(';') {
                    header.symbols.extend(symbol(&declaration));
                    declaration.clear();
                }
            }
        }
        header
    }

    fn define(&mut self, define: &str, comment: String) {
        let Some((name, value)) = define.split_once(' ') else { return };
        if name.contains('(') {
            return;
        }
        let value = self.number(value);
        self.constants.push(Constant { name: name.to_owned(), comment, value, bits: 32 });
    }

    fn enumeration<'a>(&mut self, lines: &mut impl Iterator<Item = &'a str>) {
        let first = self.constants.len();
        while let Some(line) = lines.next() {
            let (code, comment) = split_comment(line, lines);
            if code == "};" {
                break;
            }
            let (name, value) = code.trim_end_matches(',').split_once(" = ").expect("a member has a value");
            let value = self.number(value);
            self.constants.push(Constant { name: name.to_owned(), comment, value, bits: 8 });
        }
        let members = &mut self.constants[first..];
        if members.iter().any(|member| member.value > u64::from(u8::MAX)) {
            members.iter_mut().for_each(|member| member.bits = 32);
        }
    }

    /// A number as the header writes it: `1`, `0x10`, `1U << 3`, `(~0U)`.
    fn number(&self, text: &str) -> u64 {
        let text = text.trim().trim_start_matches('(').trim_end_matches(')');
        if let Some((value, shift)) = text.split_once(" << ") {
            return self.number(value) << self.number(shift);
        }
        if let Some(value) = text.strip_prefix('~') {
            return u64::from(!u32::try_from(self.number(value)).unwrap());
        }
        let digits = text.trim_end_matches('U');
        let number = match digits.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => digits.parse(),
        };
        number.unwrap_or_else(|_| panic!("{text} is no number"))
    }

    fn structure<'a>(&mut self, name: &str, lines: &mut impl Iterator<Item = &'a str>) {
        let mut layout = Layout { name: name.to_owned(), members: Vec::new(), size: 0, align: 1 };
        let mut in_union = false;
        while let Some(line) = lines.next() {
            let (code, _) = split_comment(line, lines);
            match code.as_str() {
                "union {" => in_union = true,
                "};" if in_union => in_union = false,
                "};" => break,
                "" => {}
                _ => {
                    for (name, size, align) in self.members(&code) {
                        // All members of a union in this header have the same size.
                        let last = layout
                            .members
                            .last()
                            .filter(|last| in_union && last.size == size && last.name == "constant");
                        let offset = last.map_or(layout.size.next_multiple_of(align), |last| last.offset);
                        layout.size = offset + size.unwrap_or(0);
                        layout.align = layout.align.max(align);
                        layout.members.push(Member { name, offset, size });
                    }
                }
            }
        }
        layout.size = layout.size.next_multiple_of(layout.align);
        self.layouts.push(layout);
    }

    /// The members that a line declares: name, size, alignment.
    fn members(&self, line: &str) -> Vec<(String, Option<u64>, u64)> {
        let line = line.strip_suffix(';').unwrap_or_else(|| panic!("{line} is no member"));
        if let Some((_, rest)) = line.split_once("(*") {
            let (name, _) = rest.split_once(')').unwrap();
            return vec![(name.to_owned(), Some(8), 8)];
        }
        let words = line.rsplit_once([' ', '*']).filter(|_| !line.contains(", "));
        let (ty, names) = words.unwrap_or_else(|| {
            let (first, _) = line.split_once(',').unwrap();
            line.split_at(first.rfind(' ').unwrap() + 1)
        });
        let (size, align) = if line.contains('*') { (8, 8) } else { self.type_named(ty.trim()) };
        let member = |name: &str| match name.trim().split_once('[') {
            Some((name, "]")) => (name.to_owned(), None, align),
            Some((name, count)) => {
                (name.to_owned(), Some(size * self.number(count.trim_end_matches(']'))), align)
            }
            None => (name.trim().to_owned(), Some(size), align),
        };
        names.split(',').map(member).collect()
    }

    /// Size and alignment of a type that is no pointer.
    fn type_named(&self, name: &str) -> (u64, u64) {
        let size = match name {
            "u8" => 1,
            "u16" => 2,
            "u32" | "int" => 4,
            "u64" | "s64" | "unsigned long" | "long" => 8,
            _ => {
                let known = self
                    .layouts
                    .iter()
                    .find(|layout| name.strip_prefix("struct guardrail_") == Some(&layout.name));
                let known = known.unwrap_or_else(|| panic!("{name} is no type that the generator knows"));
                return (known.size, known.align);
            }
        };
        (size, size)
    }

    /// The generated file.
    pub fn generate(&self) -> String {
        let mut out = HEAD.to_owned();
        let mut table = String::new();
        for Constant { name, comment, value, bits } in &self.constants {
            let short = name.strip_prefix("GUARDRAIL_").expect("a constant begins with GUARDRAIL_");
            let comment = if comment.is_empty() { String::new() } else { format!(": {comment}") };
            let value = if *value > 0xffff {
                format!("0x{:04x}_{:04x}", value >> 16, value & 0xffff)
            } else {
                value.to_string()
            };
            writeln!(out, "/// `{name}`{comment}.\npub const {short}: u{bits} = {value};").unwrap();
            writeln!(table, "    (\"{name}\", {short} as u64),").unwrap();
        }
        self.generate_kinds(&mut out);
        out += "\n/// Sizes of structs, and the offsets of their members, in bytes.\npub mod layout {\n";
        for layout in &self.layouts {
            generate_layout(layout, &mut out, &mut table);
        }
        out += "}\n\n/// Names of the runtime's functions and variables.\npub mod symbol {\n";
        for name in &self.symbols {
            let short =
                name.strip_prefix("guardrail_").expect("a function begins with guardrail_").to_uppercase();
            writeln!(out, "    /// `{name}`.\n    pub const {short}: &str = \"{name}\";").unwrap();
        }
        out += "}\n\n/// Expressions of C with the values that they have here, for the test that asks a compiler.\n#[doc(hidden)]\n";
        writeln!(out, "pub const IN_C: &[(&str, u64)] = &[\n{table}];").unwrap();
        out
    }

    /// The names that annotations have for kinds and types.
    fn generate_kinds(&self, out: &mut String) {
        let kinds: BTreeMap<u64, (&str, String)> = self
            .constants
            .iter()
            .filter_map(|constant| {
                let short = constant.name.strip_prefix("GUARDRAIL_")?;
                let name = short.strip_prefix("KIND_").or(short.strip_prefix("TYPE_"))?;
                Some((constant.value, (short, name.to_lowercase())))
            })
            .collect();
        out.push_str(
            "\n/// Kinds of allocations and types of objects, by the names that annotations give them.\n",
        );
        writeln!(out, "pub const KINDS: [(&str, u32); {}] = [", kinds.len()).unwrap();
        for (constant, name) in kinds.values() {
            writeln!(out, "    (\"{name}\", {constant}),").unwrap();
        }
        out.push_str("];\n");
    }
}

fn generate_layout(layout: &Layout, out: &mut String, table: &mut String) {
    let Layout { name, members, size, .. } = layout;
    writeln!(out, "    /// `struct guardrail_{name}`.\n    pub mod {name} {{").unwrap();
    writeln!(out, "        /// Its size.\n        pub const BYTES: usize = {size};").unwrap();
    writeln!(table, "    (\"sizeof(struct guardrail_{name})\", layout::{name}::BYTES as u64),").unwrap();
    for Member { name: member, offset, size } in members {
        let constant = member.to_uppercase();
        writeln!(out, "        /// Offset of `{member}`.\n        pub const {constant}: usize = {offset};")
            .unwrap();
        let place = format!("offsetof(struct guardrail_{name}, {member})");
        writeln!(table, "    (\"{place}\", layout::{name}::{constant} as u64),").unwrap();
        if let Some(size) = size {
            writeln!(table, "    (\"sizeof(((struct guardrail_{name} *)0)->{member})\", {size}),").unwrap();
        }
    }
    out.push_str("    }\n");
}

/// A line without its comment, and the comment on one line. A comment that goes on takes further lines.
fn split_comment<'a>(line: &str, lines: &mut impl Iterator<Item = &'a str>) -> (String, String) {
    let Some((code, comment)) = line.split_once("/*") else { return (line.trim().to_owned(), String::new()) };
    let mut comment = comment.to_owned();
    while !comment.contains("*/") {
        comment += lines.next().expect("a comment ends");
    }
    let (comment, _) = comment.split_once("*/").unwrap();
    (code.trim().to_owned(), comment.trim().to_owned())
}

/// The function or variable that a declaration declares.
fn symbol(declaration: &str) -> Option<String> {
    let name = if let Some(variable) = declaration.strip_prefix("DECLARE_PER_CPU(") {
        variable.trim_end_matches([')', ';']).rsplit(' ').next()?
    } else {
        let head = declaration.split('(').next()?;
        head.trim_end_matches(';').rsplit([' ', '*']).next()?
    };
    name.starts_with("guardrail_").then(|| name.to_owned())
}
