//! Debug information: source lines, and which structures the driver's own files define.

use super::lexer::{Token, tokens};
use std::collections::{HashMap, HashSet};

/// A line of source code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Line {
    /// Index into [`Debug::files`].
    pub file: u32,
    /// Number, from 1; 0 where it is not known.
    pub number: u32,
}

/// What the debug information says.
#[derive(Clone, Debug, Default)]
pub struct Debug {
    /// Names of the files; the first is empty, for what is not known.
    pub files: Vec<String>,
    lines: HashMap<u32, Line>,
    /// Structures by name, with the files that define them.
    pub structures: HashMap<String, HashSet<u32>>,
    /// File of each subprogram, by the number of its node.
    subprograms: HashMap<u32, u32>,
    /// Names of local variables, by the number of their node.
    pub variables: HashMap<u32, String>,
    /// Names of fields of a structure, by the structure's name: offset in bits, and name.
    pub fields: HashMap<String, Vec<(u64, String)>>,
}

/// The fields of one node that matter here.
#[derive(Default)]
struct Node {
    line: u32,
    scope: Option<u32>,
    file: Option<u32>,
    name: Option<String>,
    filename: Option<String>,
    elements: Option<u32>,
    offset: u64,
    list: Vec<u32>,
    kind: Kind,
    structure: bool,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Kind {
    #[default]
    Other,
    Location,
    Scope,
    Subprogram,
    File,
    Composite,
    Member,
    Variable,
    List,
}

impl Debug {
    /// Reads the lines `!N = …`.
    pub fn read<'a>(lines: impl Iterator<Item = &'a str>) -> Debug {
        let mut nodes: HashMap<u32, Node> = HashMap::new();
        for line in lines {
            if let Some((number, node)) = node(line) {
                nodes.insert(number, node);
            }
        }
        let mut debug = Debug { files: vec![String::new()], ..Debug::default() };
        let mut files: HashMap<u32, u32> = HashMap::new();
        let mut names: HashMap<String, u32> = HashMap::new();
        let mut sorted: Vec<u32> = nodes.keys().copied().collect();
        sorted.sort_unstable();
        for &number in sorted.iter().filter(|number| nodes[*number].kind == Kind::File) {
            let name = nodes[&number].filename.clone().unwrap_or_default();
            let index = *names.entry(name.clone()).or_insert_with(|| {
                debug.files.push(name);
                debug.files.len() as u32 - 1
            });
            files.insert(number, index);
        }
        let file_of = |start: Option<u32>| {
            let mut at = start;
            for _ in 0..64 {
                let Some(node) = at.and_then(|number| nodes.get(&number)) else { return 0 };
                if let Some(file) = node.file.and_then(|number| files.get(&number)) {
                    return *file;
                }
                at = node.scope;
            }
            0
        };
        for &number in &sorted {
            let node = &nodes[&number];
            match node.kind {
                Kind::Location => {
                    let line = Line { file: file_of(node.scope), number: node.line };
                    debug.lines.insert(number, line);
                }
                Kind::Subprogram => {
                    debug.lines.insert(number, Line { file: file_of(Some(number)), number: node.line });
                    debug.subprograms.insert(number, file_of(Some(number)));
                }
                Kind::Variable => {
                    debug.variables.extend(node.name.clone().map(|name| (number, name)));
                }
                Kind::Composite if node.structure => {
                    let Some(name) = &node.name else { continue };
                    debug.structures.entry(name.clone()).or_default().insert(file_of(Some(number)));
                    let list = node.elements.and_then(|list| nodes.get(&list)).map(|node| &node.list);
                    let fields = list.into_iter().flatten().filter_map(|member| {
                        let member = nodes.get(member).filter(|node| node.kind == Kind::Member)?;
                        Some((member.offset, member.name.clone()?))
                    });
                    debug.fields.insert(name.clone(), fields.collect());
                }
                _ => {}
            }
        }
        debug
    }

    /// The line of a node that an instruction or a function names.
    pub fn line(&self, node: Option<u32>) -> Line {
        node.and_then(|node| self.lines.get(&node)).cloned().unwrap_or_default()
    }

    /// The file that defines a function, by the function's node; 0 where it is not known.
    pub fn function_file(&self, node: Option<u32>) -> u32 {
        node.and_then(|node| self.subprograms.get(&node)).copied().unwrap_or(0)
    }

    /// The name of the field at an offset in bytes.
    pub fn field(&self, structure: &str, offset: u64) -> Option<&str> {
        let fields = self.fields.get(structure)?;
        fields.iter().find(|(at, _)| *at == offset * 8).map(|(_, name)| name.as_str())
    }
}

fn node(line: &str) -> Option<(u32, Node)> {
    let words = tokens(line);
    let (Some(Token::Meta(number)), Some(Token::Sign('='))) = (words.first(), words.get(1)) else {
        return None;
    };
    let number = number.parse().ok()?;
    let mut at = 2;
    if words.get(at) == Some(&Token::Word("distinct")) {
        at += 1;
    }
    let mut node = Node::default();
    match words.get(at)? {
        // `!{!1, !2}`: the lexer gives `!` without a name, then `{`.
        Token::Meta("") => {
            node.kind = Kind::List;
            for word in &words[at..] {
                if let Token::Meta(name) = word {
                    node.list.extend(name.parse::<u32>().ok());
                }
            }
            return Some((number, node));
        }
        Token::Meta(kind) => {
            node.kind = match *kind {
                "DILocation" => Kind::Location,
                "DILexicalBlock" | "DILexicalBlockFile" => Kind::Scope,
                "DISubprogram" => Kind::Subprogram,
                "DIFile" => Kind::File,
                "DICompositeType" => Kind::Composite,
                "DIDerivedType" => Kind::Member,
                "DILocalVariable" => Kind::Variable,
                _ => return None,
            };
        }
        _ => return None,
    }
    let mut rest = &words[at + 1..];
    while let Some((word, after)) = rest.split_first() {
        rest = after;
        let (Token::Word(key), [Token::Sign(':'), value, ..]) = (word, after) else { continue };
        let reference = || match value {
            Token::Meta(name) => name.parse::<u32>().ok(),
            _ => None,
        };
        let figure = || match value {
            Token::Word(text) => text.parse::<u64>().unwrap_or(0),
            _ => 0,
        };
        match (*key, value) {
            ("line", _) => node.line = figure() as u32,
            ("offset", _) => node.offset = figure(),
            ("scope", _) => node.scope = reference(),
            ("file", _) => node.file = reference(),
            ("elements", _) => node.elements = reference(),
            ("name", Token::Text(text)) => node.name = Some((*text).to_owned()),
            ("filename", Token::Text(text)) => node.filename = Some((*text).to_owned()),
            ("tag", Token::Word(tag)) => {
                node.structure = matches!(*tag, "DW_TAG_structure_type" | "DW_TAG_union_type");
                if node.kind == Kind::Member && *tag != "DW_TAG_member" {
                    return None;
                }
            }
            _ => {}
        }
    }
    Some((number, node))
}
