//! Reads the text of a module, line by line.
//!
//! **Invariant**: any text gives a module or an error, never a panic, in time linear in its length.

mod body;
mod value;

use super::debug::Debug;
use super::lexer::{Token, tokens};
use super::types::Type;
use super::{Declaration, Global, Module};
use std::collections::HashSet;
use value::Reader;

/// The largest text that is read, in bytes.
pub const LARGEST: usize = 256 << 20;

/// Reads a module. `file` names the C file in messages.
pub fn module(file: &str, text: &str) -> Result<Module, String> {
    if text.len() > LARGEST {
        return Err(format!("the translation of {file} has more than {} MiB", LARGEST >> 20));
    }
    let mut module = Module { file: file.to_owned(), ..Module::default() };
    module.debug = Debug::read(text.lines().filter(|line| line.starts_with('!')));
    let lines: Vec<&str> = text.lines().collect();
    let mut taken = HashSet::new();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        at += 1;
        if line.starts_with('%') {
            structure(&mut module, line);
        } else if line.starts_with('@') {
            global(&mut module, line, &mut taken);
        } else if line.starts_with("define ") {
            let length = lines[at..].iter().position(|line| *line == "}");
            let Some(length) = length else {
                return Err(format!("the translation of {file} ends within a function"));
            };
            match body::function(line, &lines[at..at + length], &mut taken) {
                Ok(mut function) => {
                    function.external &= !line.starts_with("define internal");
                    module.functions.insert(function.name.clone(), function);
                }
                Err(what) => module.unknown.push(format!("{what}: {}", shorten(line))),
            }
            at += length + 1;
        } else if line.starts_with("declare ") {
            let words = tokens(line);
            let mut reader = Reader::new(&words);
            reader.skip_words_to_type();
            if let (Some(result), Some(name)) = (reader.first_type(), reader.find_global()) {
                module.declarations.insert((*name).to_owned(), Declaration { result });
            }
        } else if line.starts_with("module asm") && !line.contains("discard") {
            module.unknown.push("assembly outside functions is taken to send and receive nothing".to_owned());
        }
    }
    module.unknown.sort();
    module.unknown.dedup();
    module.address_taken = taken.into_iter().filter(|name| module.functions.contains_key(name)).collect();
    module.address_taken.sort();
    Ok(module)
}

fn shorten(line: &str) -> String {
    line.chars().take(80).collect()
}

fn structure(module: &mut Module, line: &str) {
    let words = tokens(line);
    let [Token::Local(name), Token::Sign('='), Token::Word("type"), rest @ ..] = &words[..] else { return };
    let mut reader = Reader::new(rest);
    let body = match reader.kind() {
        Some(Type::Literal(fields, packed)) => Some((fields.to_vec(), packed)),
        _ => None,
    };
    module.types.named.insert((*name).into(), body);
}

fn global(module: &mut Module, line: &str, taken: &mut HashSet<String>) {
    let words = tokens(line);
    let [Token::Global(name), Token::Sign('='), rest @ ..] = &words[..] else { return };
    let Some(at) =
        rest.iter().position(|word| matches!(word, Token::Word("global" | "constant" | "alias" | "ifunc")))
    else {
        return;
    };
    for word in &rest[at..] {
        if let Token::Global(name) = word {
            taken.insert((*name).to_owned());
        }
    }
    if !matches!(rest[at], Token::Word("global" | "constant")) {
        return;
    }
    let defined = !rest[..at].iter().any(|word| matches!(word, Token::Word("external" | "extern_weak")));
    let mut reader = Reader::new(&rest[at + 1..]);
    let Some(kind) = reader.kind() else { return };
    let initial = if defined { Some(reader.value(&kind, &mut |_| None)) } else { None };
    let external = !rest[..at].iter().any(|word| matches!(word, Token::Word("internal" | "private")));
    let constant = rest[at] == Token::Word("constant");
    module
        .globals
        .insert((*name).to_owned(), Global { name: (*name).to_owned(), kind, initial, constant, external });
}

#[cfg(test)]
mod tests;
