//! Bodies of functions.

use super::value::{Reader, conversion, integer};
use crate::ir::instruction::{Binary, Block, Call, End, Function, Instruction, Operation, Predicate, Value};
use crate::ir::lexer::{Token, tokens};
use crate::ir::types::Type;
use std::collections::{HashMap, HashSet};

/// Indices of registers and blocks by name.
#[derive(Default)]
struct Scope {
    registers: HashMap<String, u32>,
    blocks: HashMap<String, u32>,
}

impl Scope {
    fn register(&mut self, name: &str) -> u32 {
        let next = self.registers.len() as u32;
        *self.registers.entry(name.to_owned()).or_insert(next)
    }

    fn block(&self, name: &str) -> Result<u32, String> {
        self.blocks.get(name).copied().ok_or_else(|| format!("block {name} is missing"))
    }
}

/// Reads a function: its first line, and the lines up to `}`.
pub fn function(head: &str, lines: &[&str], taken: &mut HashSet<String>) -> Result<Function, String> {
    let mut scope = Scope::default();
    let mut function = signature(head, &mut scope).ok_or("this head of a function is not understood")?;
    let lines = join(lines);
    // Blocks are named before they are used.
    let mut unnamed = scope.registers.len();
    if scope.registers.keys().any(|name| name.parse::<usize>().is_err()) {
        unnamed = 0;
    }
    scope.blocks.insert(unnamed.to_string(), 0);
    let mut count = 1u32;
    for line in &lines {
        if let Some(label) = label(line) {
            if count == 1 && lines.first() == Some(line) {
                scope.blocks.insert(label.to_owned(), 0);
                continue;
            }
            scope.blocks.insert(label.to_owned(), count);
            count += 1;
        }
    }
    let mut blocks = Vec::new();
    let mut current = Block { instructions: Vec::new(), end: End::Stop, line: None };
    let mut open = true;
    for (index, line) in lines.iter().enumerate() {
        if label(line).is_some() {
            if index > 0 {
                blocks.push(std::mem::replace(
                    &mut current,
                    Block { instructions: Vec::new(), end: End::Stop, line: None },
                ));
            }
            open = true;
            continue;
        }
        if !open {
            continue;
        }
        let words = tokens(line);
        let node = source(&words);
        if let Some(end) = end(&words, &mut scope, taken)? {
            current.instructions.extend(assembly(&words, node, &mut scope, taken));
            current.end = end;
            current.line = node;
            open = false;
        } else {
            let mut read = instruction(line, &words, &mut scope, taken, &mut function.variables);
            if let Some(read) = &mut read {
                read.line = node;
            }
            current.instructions.extend(read);
        }
    }
    blocks.push(current);
    if blocks.len() != count as usize {
        return Err("the blocks of this function are not understood".to_owned());
    }
    function.blocks = blocks;
    function.registers = scope.registers.len() as u32;
    Ok(function)
}

/// Joins what LLVM breaks into lines: switches, and jumps out of assembly.
fn join(lines: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut inside = false;
    for line in lines {
        let text = line.trim();
        if text.is_empty() || text.starts_with(';') {
            continue;
        }
        match all.last_mut() {
            Some(last) if inside || text.starts_with("to label ") => {
                last.push(' ');
                last.push_str(text);
            }
            _ => all.push(text.to_owned()),
        }
        if text.starts_with("switch ") {
            inside = !text.contains(']') || text.ends_with('[');
        }
        if inside && text.starts_with(']') {
            inside = false;
        }
    }
    all
}

/// The label that a line is.
fn label(line: &str) -> Option<&str> {
    let (name, rest) = line.split_once(':')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '$');
    let rest = rest.trim_start();
    (!name.is_empty() && name.chars().all(plain) && (rest.is_empty() || rest.starts_with(';')))
        .then_some(name)
}

fn source(words: &[Token<'_>]) -> Option<u32> {
    let at = words.iter().rposition(|word| *word == Token::Meta("dbg"))?;
    match words.get(at + 1) {
        Some(Token::Meta(number)) => number.parse().ok(),
        _ => None,
    }
}

fn signature(head: &str, scope: &mut Scope) -> Option<Function> {
    let words = tokens(head);
    let mut reader = Reader::new(words.get(1..)?);
    reader.skip_words_to_type();
    let result = reader.first_type()?;
    let name = reader.find_global()?.to_owned();
    if !reader.sign('(') {
        return None;
    }
    let mut parameters = Vec::new();
    while !reader.sign(')') {
        if reader.word("...") {
            continue;
        }
        if reader.sign(',') {
            continue;
        }
        parameters.push(reader.kind()?);
        loop {
            match reader.peek()? {
                Token::Local(name) => {
                    scope.register(name);
                    reader.next();
                    break;
                }
                Token::Word(_) => {
                    reader.next();
                    reader.skip_group();
                }
                _ => return None,
            }
        }
    }
    Some(Function {
        name,
        line: source(&words),
        result,
        parameters,
        external: true,
        blocks: Vec::new(),
        registers: 0,
        variables: Vec::new(),
    })
}

/// The target of `label %name`.
fn target(reader: &mut Reader<'_, '_>, scope: &Scope) -> Result<u32, String> {
    reader.word("label");
    match reader.next() {
        Some(Token::Local(name)) => scope.block(name),
        _ => Err("the target of a jump is missing".to_owned()),
    }
}

/// Notes the functions whose address is used. The address of a label in one, `blockaddress(@f, %label)`, does not count.
fn mention(words: &[Token<'_>], taken: &mut HashSet<String>) {
    for (at, word) in words.iter().enumerate() {
        let label = at >= 2 && words[at - 2] == Token::Word("blockaddress");
        if let (Token::Global(name), false) = (word, label) {
            taken.insert((*name).to_owned());
        }
    }
}

fn end(words: &[Token<'_>], scope: &mut Scope, taken: &mut HashSet<String>) -> Result<Option<End>, String> {
    let first = match words {
        [Token::Local(_), Token::Sign('='), word, ..] | [word, ..] => word,
        [] => return Ok(None),
    };
    let skip = if matches!(words.first(), Some(Token::Local(_))) { 3 } else { 1 };
    let mut reader = Reader::new(words.get(skip..).unwrap_or_default());
    let end = match first {
        Token::Word("ret") => {
            mention(words, taken);
            if reader.word("void") {
                End::Return(None)
            } else {
                End::Return(reader.operand(&mut names(scope)))
            }
        }
        Token::Word("unreachable") => End::Stop,
        Token::Word("br") if reader.peek() == Some(&Token::Word("label")) => {
            End::Jump(target(&mut reader, scope)?)
        }
        Token::Word("br") => {
            let (_, value) = reader.operand(&mut names(scope)).ok_or("a branch without a condition")?;
            reader.sign(',');
            let yes = target(&mut reader, scope)?;
            reader.sign(',');
            End::Branch(value, yes, target(&mut reader, scope)?)
        }
        Token::Word("switch") => {
            let value = reader.operand(&mut names(scope)).ok_or("a switch without a value")?;
            reader.sign(',');
            let other = target(&mut reader, scope)?;
            let mut cases = Vec::new();
            if !reader.sign('[') {
                return Err("a switch without cases".to_owned());
            }
            while !reader.sign(']') {
                let kind = reader.kind().ok_or("a case without a type")?;
                let Some(Token::Word(number)) = reader.next() else {
                    return Err("a case without a value".into());
                };
                let Some(Value::Integer(number)) = integer(number, &kind) else {
                    return Err("a case that is no number".into());
                };
                reader.sign(',');
                cases.push((number, target(&mut reader, scope)?));
            }
            End::Switch(value, other, cases)
        }
        Token::Word("callbr" | "indirectbr" | "invoke") => {
            mention(words, taken);
            if let Some(Token::Local(name)) = words.first() {
                scope.register(name);
            }
            let mut all = Vec::new();
            for pair in words.windows(2) {
                if let [Token::Word("label"), Token::Local(name)] = pair {
                    all.push(scope.block(name)?);
                }
            }
            End::Any(all)
        }
        Token::Word("resume") => End::Stop,
        _ => return Ok(None),
    };
    Ok(Some(end))
}

/// What assembly does that may jump: its operands are read or written before the jump.
fn assembly(
    words: &[Token<'_>],
    line: Option<u32>,
    scope: &mut Scope,
    taken: &mut HashSet<String>,
) -> Option<Instruction> {
    let (result, rest) = match words {
        [Token::Local(name), Token::Sign('='), rest @ ..] => (Some(scope.register(name)), rest),
        _ => (None, words),
    };
    if rest.first() != Some(&Token::Word("callbr")) {
        return None;
    }
    let operation = match call(rest, scope, taken) {
        Some(call) => Operation::Call(call),
        None => Operation::Unknown("callbr with operands that are not understood".to_owned()),
    };
    Some(Instruction { result, operation, line })
}

fn names(scope: &mut Scope) -> impl FnMut(&str) -> Option<u32> + '_ {
    |name| Some(scope.register(name))
}

fn instruction(
    line: &str,
    words: &[Token<'_>],
    scope: &mut Scope,
    taken: &mut HashSet<String>,
    variables: &mut Vec<(u32, u32)>,
) -> Option<Instruction> {
    let (result, words) = match words {
        [Token::Local(name), Token::Sign('='), rest @ ..] => (Some(scope.register(name)), rest),
        _ => (None, words),
    };
    if line.contains("@llvm.dbg.") {
        let mut locals = words.iter().filter_map(|word| match word {
            Token::Local(name) if scope.registers.contains_key(*name) => Some(*name),
            _ => None,
        });
        let node = words.iter().find_map(|word| match word {
            Token::Meta(number) => number.parse().ok(),
            _ => None,
        });
        if let (Some(name), Some(node), true) = (locals.next_back(), node, line.contains("dbg.declare")) {
            variables.push((scope.register(name), node));
        }
        return None;
    }
    let operation = operation(words, scope, taken).unwrap_or_else(|| {
        mention(words, taken);
        Operation::Unknown(line.chars().take(100).collect())
    });
    Some(Instruction { result, operation, line: None })
}

fn operation(words: &[Token<'_>], scope: &mut Scope, taken: &mut HashSet<String>) -> Option<Operation> {
    let Some(Token::Word(first)) = words.first() else { return None };
    let mut reader = Reader::new(&words[1..]);
    let call = matches!(*first, "call" | "tail" | "musttail" | "notail");
    if !call {
        mention(words, taken);
    }
    let mut names = |name: &str| Some(scope.register(name));
    let found = match *first {
        "alloca" => {
            reader.word("inalloca");
            let kind = reader.kind()?;
            // An array whose length is not constant has no layout.
            if reader.sign(',') && !matches!(reader.peek(), Some(Token::Word("align"))) {
                return Some(Operation::Alloca(Type::Other));
            }
            Operation::Alloca(kind)
        }
        "load" => {
            let atomic = reader.word("atomic");
            let volatile = reader.word("volatile") | atomic;
            let kind = reader.kind()?;
            reader.sign(',');
            Operation::Load(kind, reader.operand(&mut names)?, volatile)
        }
        "store" => {
            let atomic = reader.word("atomic");
            let volatile = reader.word("volatile") | atomic;
            let value = reader.operand(&mut names)?;
            reader.sign(',');
            Operation::Store(value, reader.operand(&mut names)?, volatile)
        }
        "getelementptr" => {
            reader.word("inbounds");
            let kind = reader.kind()?;
            let mut all = Vec::new();
            while reader.sign(',') {
                if matches!(reader.peek(), Some(Token::Meta(_))) {
                    break;
                }
                all.push(reader.operand(&mut names)?);
            }
            Operation::Address(kind, all)
        }
        "icmp" => {
            let Some(Token::Word(word)) = reader.next() else { return None };
            let predicate = predicate(word)?;
            let left = reader.operand(&mut names)?;
            reader.sign(',');
            let right = reader.value(&left.0, &mut names);
            Operation::Compare(predicate, left, right)
        }
        "select" => {
            let (_, condition) = reader.operand(&mut names)?;
            reader.sign(',');
            let yes = reader.operand(&mut names)?;
            reader.sign(',');
            Operation::Select(condition, yes, reader.operand(&mut names)?)
        }
        "phi" => {
            let kind = reader.kind()?;
            let mut all = Vec::new();
            while reader.sign('[') {
                let value = reader.value(&kind, &mut |name| Some(scope.register(name)));
                reader.sign(',');
                let Some(Token::Local(name)) = reader.next() else { return None };
                all.push((value, *scope.blocks.get(*name)?));
                reader.sign(']');
                reader.sign(',');
            }
            Operation::Phi(kind, all)
        }
        "freeze" => {
            let value = reader.operand(&mut names)?;
            let kind = value.0.clone();
            Operation::Cast(conversion("freeze")?, value, kind)
        }
        "atomicrmw" => {
            reader.word("volatile");
            reader.next();
            Operation::Atomic(reader.operand(&mut names)?)
        }
        "cmpxchg" => {
            reader.word("weak");
            reader.word("volatile");
            Operation::Atomic(reader.operand(&mut names)?)
        }
        "extractvalue" => Operation::Part(reader.operand(&mut names)?),
        "fence" => Operation::Nothing,
        _ if call => return self::call(words, scope, taken).map(Operation::Call),
        word => return arithmetic(word, &mut reader, scope),
    };
    Some(found)
}

/// Conversions, and operations on two numbers.
fn arithmetic(word: &str, reader: &mut Reader<'_, '_>, scope: &mut Scope) -> Option<Operation> {
    if let Some(cast) = conversion(word) {
        let from = reader.operand(&mut |name| Some(scope.register(name)))?;
        if !reader.word("to") {
            return None;
        }
        return Some(Operation::Cast(cast, from, reader.kind()?));
    }
    let binary = binary(word)?;
    while matches!(reader.peek(), Some(Token::Word("nuw" | "nsw" | "exact"))) {
        reader.next();
    }
    let left = reader.operand(&mut |name| Some(scope.register(name)))?;
    reader.sign(',');
    let right = reader.value(&left.0, &mut |name| Some(scope.register(name)));
    Some(Operation::Binary(binary, left, right))
}

fn call(words: &[Token<'_>], scope: &mut Scope, taken: &mut HashSet<String>) -> Option<Call> {
    let start = words.iter().position(|word| matches!(word, Token::Word("call" | "callbr")))?;
    let mut reader = Reader::new(&words[start + 1..]);
    reader.skip_words_to_type();
    let mut result = reader.first_type()?;
    // A variadic function's whole type stands here.
    if reader.peek() == Some(&Token::Sign('(')) {
        reader.skip_group();
        while reader.sign('*') {
            result = Type::Pointer(std::rc::Rc::new(Type::Other));
        }
    }
    let mut assembly = false;
    let callee = if reader.word("asm") {
        assembly = true;
        while !matches!(reader.peek(), None | Some(Token::Sign('('))) {
            reader.next();
        }
        Value::Other
    } else {
        let pointer = Type::Pointer(std::rc::Rc::new(Type::Other));
        reader.value(&pointer, &mut |name| Some(scope.register(name)))
    };
    if !reader.sign('(') {
        return None;
    }
    let (mut arguments, mut copies) = (Vec::new(), Vec::new());
    while !reader.sign(')') {
        if reader.sign(',') {
            continue;
        }
        if reader.word("metadata") {
            while !matches!(reader.peek(), None | Some(Token::Sign(',' | ')'))) {
                reader.next();
                reader.skip_group();
            }
            arguments.push((Type::Other, Value::Other));
            copies.push(false);
            continue;
        }
        if let Some(Token::Global(_)) = reader.peek() {
            return None;
        }
        let before = reader.rest();
        let operand = reader.operand(&mut |name| Some(scope.register(name)))?;
        let read = &before[..before.len() - reader.rest().len()];
        mention(read, taken);
        copies.push(read.contains(&Token::Word("byval")));
        arguments.push(operand);
    }
    Some(Call { callee, result, arguments, copies, assembly })
}

fn predicate(word: &str) -> Option<Predicate> {
    Some(match word {
        "eq" => Predicate::Eq,
        "ne" => Predicate::Ne,
        "ult" => Predicate::Ult,
        "ule" => Predicate::Ule,
        "ugt" => Predicate::Ugt,
        "uge" => Predicate::Uge,
        "slt" => Predicate::Slt,
        "sle" => Predicate::Sle,
        "sgt" => Predicate::Sgt,
        "sge" => Predicate::Sge,
        _ => return None,
    })
}

fn binary(word: &str) -> Option<Binary> {
    Some(match word {
        "add" => Binary::Add,
        "sub" => Binary::Sub,
        "mul" => Binary::Mul,
        "udiv" => Binary::UDiv,
        "sdiv" => Binary::SDiv,
        "urem" => Binary::URem,
        "srem" => Binary::SRem,
        "shl" => Binary::Shl,
        "lshr" => Binary::LShr,
        "ashr" => Binary::AShr,
        "and" => Binary::And,
        "or" => Binary::Or,
        "xor" => Binary::Xor,
        _ => return None,
    })
}
