//! Types and values.

use crate::ir::instruction::{Cast, Operand, Value};
use crate::ir::lexer::Token;
use crate::ir::types::Type;
use std::rc::Rc;

/// How deep types and constants may be nested.
const DEPTH: u32 = 64;

/// Reads words from the front.
pub struct Reader<'a, 't> {
    words: &'t [Token<'a>],
    at: usize,
    depth: u32,
}

/// Finds the index of a register by its name.
pub type Names<'n> = dyn FnMut(&str) -> Option<u32> + 'n;

impl<'a, 't> Reader<'a, 't> {
    pub fn new(words: &'t [Token<'a>]) -> Self {
        Reader { words, at: 0, depth: 0 }
    }

    pub fn peek(&self) -> Option<&'t Token<'a>> {
        self.words.get(self.at)
    }

    pub fn next(&mut self) -> Option<&'t Token<'a>> {
        let word = self.words.get(self.at)?;
        self.at += 1;
        Some(word)
    }

    pub fn sign(&mut self, sign: char) -> bool {
        let is = self.peek() == Some(&Token::Sign(sign));
        self.at += usize::from(is);
        is
    }

    pub fn word(&mut self, text: &str) -> bool {
        let is = self.peek() == Some(&Token::Word(text));
        self.at += usize::from(is);
        is
    }

    pub fn rest(&self) -> &'t [Token<'a>] {
        &self.words[self.at.min(self.words.len())..]
    }

    /// Skips linkage and attributes, up to where a type may begin.
    pub fn skip_words_to_type(&mut self) {
        while let Some(word) = self.peek() {
            match word {
                Token::Word(text) if !starts_type(text) => {
                    self.at += 1;
                    self.skip_group();
                }
                _ => break,
            }
        }
    }

    /// Skips `( … )`.
    pub fn skip_group(&mut self) {
        if self.peek() != Some(&Token::Sign('(')) {
            return;
        }
        let mut depth = 0;
        while let Some(word) = self.next() {
            match word {
                Token::Sign('(') => depth += 1,
                Token::Sign(')') => {
                    depth -= 1;
                    if depth == 0 {
                        return;
                    }
                }
                _ => {}
            }
        }
    }

    /// A type without a following parameter list.
    pub fn first_type(&mut self) -> Option<Type> {
        self.base().map(|base| self.stars(base))
    }

    /// Moves to the next global name and gives it.
    pub fn find_global(&mut self) -> Option<&'a str> {
        while let Some(word) = self.next() {
            if let Token::Global(name) = word {
                return Some(name);
            }
        }
        None
    }

    /// A type, a function's type included.
    pub fn kind(&mut self) -> Option<Type> {
        if self.depth >= DEPTH {
            return None;
        }
        self.depth += 1;
        let kind = self.kind_within();
        self.depth -= 1;
        kind
    }

    fn kind_within(&mut self) -> Option<Type> {
        let mut kind = self.first_type()?;
        while self.peek() == Some(&Token::Sign('(')) {
            let Some((parameters, more)) = self.parameters() else { return Some(kind) };
            kind = Type::Function(Rc::new(kind), Rc::new(parameters), more);
            kind = self.stars(kind);
        }
        Some(kind)
    }

    fn parameters(&mut self) -> Option<(Vec<Type>, bool)> {
        let start = self.at;
        self.at += 1;
        let (mut all, mut more) = (Vec::new(), false);
        loop {
            if self.sign(')') {
                return Some((all, more));
            }
            match self.peek() {
                Some(Token::Word("...")) => {
                    self.at += 1;
                    more = true;
                }
                _ => match self.kind() {
                    Some(kind) => all.push(kind),
                    None => {
                        self.at = start;
                        return None;
                    }
                },
            }
            if !self.sign(',') && self.peek() != Some(&Token::Sign(')')) {
                self.at = start;
                return None;
            }
        }
    }

    fn stars(&mut self, mut kind: Type) -> Type {
        loop {
            if self.sign('*') {
                kind = Type::Pointer(Rc::new(kind));
            } else if self.word("addrspace") {
                self.skip_group();
            } else {
                return kind;
            }
        }
    }

    fn base(&mut self) -> Option<Type> {
        match self.peek()? {
            Token::Local(name) => {
                self.at += 1;
                Some(Type::Named((*name).into()))
            }
            Token::Word(text) => {
                let kind = plain(text)?;
                self.at += 1;
                Some(kind)
            }
            Token::Sign('{') => {
                self.at += 1;
                self.fields('}').map(|fields| Type::Literal(Rc::new(fields), false))
            }
            Token::Sign('[') => {
                self.at += 1;
                self.row(']').map(|(count, of)| Type::Array(count, Rc::new(of)))
            }
            Token::Sign('<') => {
                self.at += 1;
                if self.sign('{') {
                    let fields = self.fields('}')?;
                    self.sign('>').then(|| Type::Literal(Rc::new(fields), true))
                } else {
                    self.row('>').map(|(count, of)| Type::Vector(count, Rc::new(of)))
                }
            }
            _ => None,
        }
    }

    fn fields(&mut self, end: char) -> Option<Vec<Type>> {
        let mut fields = Vec::new();
        loop {
            if self.sign(end) {
                return Some(fields);
            }
            fields.push(self.kind()?);
            if !self.sign(',') && self.peek() != Some(&Token::Sign(end)) {
                return None;
            }
        }
    }

    fn row(&mut self, end: char) -> Option<(u64, Type)> {
        let Some(Token::Word(count)) = self.next() else { return None };
        let count = count.parse().ok()?;
        if !self.word("x") {
            return None;
        }
        let of = self.kind()?;
        self.sign(end).then_some((count, of))
    }

    /// A type, attributes, and a value.
    pub fn operand(&mut self, names: &mut Names<'_>) -> Option<Operand> {
        let kind = self.kind()?;
        self.skip_attributes();
        let value = self.value(&kind, names);
        Some((kind, value))
    }

    fn skip_attributes(&mut self) {
        while let Some(Token::Word(text)) = self.peek() {
            if starts_value(text) {
                return;
            }
            self.at += 1;
            // `align 8`: a number that follows is not a value.
            if *text == "align" && !self.sign('(') {
                self.at += 1;
            } else {
                self.skip_group();
            }
        }
    }

    /// A value of a type. What is not understood is skipped as far as one can tell.
    pub fn value(&mut self, kind: &Type, names: &mut Names<'_>) -> Value {
        if self.depth >= DEPTH {
            self.at = self.words.len();
            return Value::Other;
        }
        self.depth += 1;
        let value = self.value_within(kind, names).unwrap_or(Value::Other);
        self.depth -= 1;
        value
    }

    fn value_within(&mut self, kind: &Type, names: &mut Names<'_>) -> Option<Value> {
        match self.next()? {
            Token::Local(name) => names(name).map(Value::Register),
            Token::Global(name) => Some(Value::Global((*name).into())),
            Token::Sign('[' | '{') => self.elements(names),
            Token::Sign('<') => {
                let packed = self.sign('{');
                let all = self.elements(names);
                if packed {
                    self.sign('>');
                }
                all
            }
            Token::Word("c") => match self.next()? {
                Token::Text(text) => Some(Value::Text(bytes(text))),
                _ => None,
            },
            Token::Word("null" | "zeroinitializer" | "false" | "none") => Some(Value::Zero),
            Token::Word("true") => Some(Value::Integer(1)),
            Token::Word("undef" | "poison") => Some(Value::Undefined),
            // The address of a label, for assembly that jumps to it; no data.
            Token::Word("blockaddress") => {
                self.skip_group();
                Some(Value::Undefined)
            }
            Token::Word("getelementptr") => {
                self.word("inbounds");
                self.constant_address(names)
            }
            Token::Word(
                cast @ ("bitcast" | "inttoptr" | "ptrtoint" | "addrspacecast" | "zext" | "sext" | "trunc"),
            ) => {
                self.sign('(');
                let from = self.operand(names)?;
                self.word("to");
                let to = self.kind()?;
                self.sign(')');
                Some(Value::Cast(conversion(cast)?, Box::new(from), to))
            }
            Token::Word(number) => integer(number, kind),
            _ => None,
        }
        .or_else(|| {
            // A constant expression that is not known: its operands are skipped.
            self.skip_group();
            None
        })
    }

    fn constant_address(&mut self, names: &mut Names<'_>) -> Option<Value> {
        self.sign('(');
        let base = self.kind()?;
        self.sign(',');
        let mut all = Vec::new();
        loop {
            self.word("inrange");
            all.push(self.operand(names)?);
            if !self.sign(',') {
                break;
            }
        }
        self.sign(')');
        Some(Value::Address(base, all))
    }

    fn elements(&mut self, names: &mut Names<'_>) -> Option<Value> {
        let mut all = Vec::new();
        loop {
            if let Some(Token::Sign(']' | '}' | '>')) = self.peek() {
                self.at += 1;
                return Some(Value::Aggregate(all));
            }
            all.push(self.operand(names)?);
            self.sign(',');
        }
    }
}

fn starts_type(text: &str) -> bool {
    plain(text).is_some()
}

fn plain(text: &str) -> Option<Type> {
    Some(match text {
        "void" => Type::Void,
        "half" | "bfloat" => Type::Float(2),
        "float" => Type::Float(4),
        "double" => Type::Float(8),
        "x86_fp80" | "fp128" => Type::Float(16),
        "label" | "metadata" | "token" | "opaque" | "x86_mmx" => Type::Other,
        _ => Type::Int(text.strip_prefix('i')?.parse().ok().filter(|bits| (1..=1 << 16).contains(bits))?),
    })
}

fn starts_value(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit() || c == '-')
        || matches!(
            text,
            "null"
                | "zeroinitializer"
                | "true"
                | "false"
                | "undef"
                | "poison"
                | "getelementptr"
                | "bitcast"
                | "inttoptr"
                | "ptrtoint"
                | "addrspacecast"
                | "zext"
                | "sext"
                | "trunc"
                | "c"
                | "none"
                | "add"
                | "sub"
                | "mul"
                | "and"
                | "or"
                | "xor"
                | "shl"
                | "lshr"
                | "ashr"
                | "icmp"
                | "select"
                | "asm"
                | "blockaddress"
                | "dso_local_equivalent"
        )
}

/// The conversion of this name.
pub fn conversion(word: &str) -> Option<Cast> {
    Some(match word {
        "bitcast" | "inttoptr" | "ptrtoint" | "addrspacecast" | "freeze" => Cast::Bits,
        "zext" => Cast::Zero,
        "sext" => Cast::Sign,
        "trunc" => Cast::Cut,
        "fptrunc" | "fpext" | "fptoui" | "fptosi" | "uitofp" | "sitofp" => Cast::Float,
        _ => return None,
    })
}

/// An integer as a type holds it: cut to the type's bits.
pub fn integer(text: &str, kind: &Type) -> Option<Value> {
    let wide: i128 = text.parse().ok()?;
    let bits = kind.bits()?;
    let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    Some(Value::Integer(wide as u64 & mask))
}

fn bytes(text: &str) -> Vec<u8> {
    let text = text.as_bytes();
    let mut all = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let digits = text.get(at + 1..at + 3).and_then(|two| std::str::from_utf8(two).ok());
        match (text[at], digits.and_then(|two| u8::from_str_radix(two, 16).ok())) {
            (b'\\', Some(byte)) => {
                all.push(byte);
                at += 3;
            }
            (byte, _) => {
                all.push(byte);
                at += 1;
            }
        }
    }
    all
}
