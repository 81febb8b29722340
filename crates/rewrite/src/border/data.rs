//! Writes actions as the runtime reads them: `struct guardrail_action`, `struct guardrail_entry` and what
//! they name, in one section of read-only data.

use super::{Action, Entry, Field, Step, Value, When};
use crate::engine::object::{Object, Reloc, Section, reloc};
use crate::error::{Result, refused};
use guardrail_abi::{self as abi, layout};
use object::elf;
use std::collections::BTreeMap;

/// The section's name.
const SECTION: &str = ".rodata.guardrail";
/// Arguments in registers; the words of the others follow those of the result and the caller.
const REGISTERS: u8 = abi::WORD_RESULT as u8;
/// Arguments that a value can name.
const MAX_ARGUMENTS: u8 = 32;
const RESULT: u8 = abi::WORD_RESULT as u8;
const STACK: u8 = abi::WORD_STACK as u8;
/// Most terms of a value.
const MAX_TERMS: usize = abi::MAX_TERMS as usize;
const TOO_LONG: &str = "a value of an action is worked out in more steps than are supported";
/// Longest name of a custom action, in bytes. The kernel's table of checksums has no room for more behind the
/// prefix.
const MAX_NAME: usize = 32;

/// Whether there is a result yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Before the function runs: without a result.
    Before,
    /// After the function returned.
    After,
}

/// The section while it is made.
#[derive(Default)]
pub(super) struct Data {
    /// The index that the section will have, and its symbol.
    symbol: usize,
    bytes: Vec<u8>,
    relocs: Vec<Reloc>,
    /// Offsets of the descriptions of entries.
    entries: Vec<u64>,
    /// Offsets of the names that are written already.
    names: BTreeMap<String, u64>,
    /// Offsets of the lists of fields that are written already.
    lists: BTreeMap<Vec<Field>, u64>,
    domain: u8,
}

impl Data {
    /// Begins a section behind those that the module has.
    pub fn new(object: &mut Object, domain: u8) -> Data {
        let section = object.sections.len();
        object.sections.push(Section::new(SECTION, elf::SHF_ALLOC, Vec::new(), Vec::new()));
        let symbol = object.symbol_of_section(section);
        Data { symbol, domain, ..Data::default() }
    }

    /// The protection domain of the module, from 1 to 14.
    pub fn domain(&self) -> u8 {
        self.domain
    }

    /// The section's symbol, from which on offsets count.
    pub fn symbol(&self) -> usize {
        self.symbol
    }

    /// Puts the section into the object; returns the offsets of the descriptions of entries.
    pub fn finish(mut self, object: &mut Object) -> Vec<u64> {
        let Some(section) = object.symbols[self.symbol].section() else { return self.entries };
        self.relocs.sort_by_key(|reloc| reloc.offset);
        object.sections[section].content = crate::engine::object::Content::Bytes(self.bytes);
        object.sections[section].relocs = self.relocs;
        self.entries
    }

    /// Appends so many zeros, aligned; returns their offset.
    fn room(&mut self, size: usize) -> usize {
        let at = self.bytes.len().next_multiple_of(8);
        self.bytes.resize(at + size, 0);
        at
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Writes a pointer at `at` to an offset of the section.
    fn point(&mut self, at: usize, to: u64) {
        let (offset, addend) = (at as u64, to as i64);
        self.relocs.push(Reloc { offset, kind: reloc::ABS64, symbol: self.symbol, addend });
    }

    fn name(&mut self, name: &str) -> u64 {
        if let Some(at) = self.names.get(name) {
            return *at;
        }
        let at = self.bytes.len() as u64;
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.names.insert(name.to_owned(), at);
        at
    }

    /// Writes a list of fields; returns its offset. Equal lists share one: the runtime knows lists by their
    /// address.
    fn fields(&mut self, list: &[Field]) -> u64 {
        if let Some(at) = self.lists.get(list) {
            return *at;
        }
        let at = self.room(layout::field::BYTES * list.len());
        for (number, field) in list.iter().enumerate() {
            let row = at + layout::field::BYTES * number;
            self.put(row + layout::field::OFFSET, &field.offset.to_le_bytes());
            self.put(row + layout::field::SIZE, &field.size.to_le_bytes());
        }
        self.lists.insert(list.to_vec(), at as u64);
        at as u64
    }

    /// Adds an action of a function; returns its offset. `import` is the symbol of the function that is called.
    pub fn action(
        &mut self,
        function: &str,
        side: Side,
        step: &Step,
        of_entry: bool,
        import: usize,
    ) -> Result<u64> {
        use layout::action as row;
        let at = self.room(row::BYTES);
        let action = &step.action;
        let refuse = |detail: &str| refused(function, detail.to_owned());
        if let Action::Custom { name, .. } | Action::Instead { name, .. } = action {
            let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(good) {
                return refuse("an action has a name that no function of the runtime has");
            }
        }
        let (when, word) = match step.when {
            When::Always => (abi::ALWAYS, 0),
            When::NonZero(argument) => (abi::NONZERO, argument_word(function, argument)?),
            _ if side == Side::Before => return refuse("an action before it depends on its result"),
            When::ResultValid => (abi::RESULT_VALID, 0),
            When::ResultZero => (abi::RESULT_ZERO, 0),
            When::ResultNotNegative => (abi::RESULT_NOT_NEGATIVE, 0),
            When::ResultTrue => (abi::RESULT_TRUE, 0),
        };
        let only = if of_entry && side == Side::Before { abi::OF_ENTRY } else { 0 };
        let bytes = [
            (row::KIND, action.kind()),
            (row::WHEN, when | only),
            (row::WHEN_WORD, word),
            (row::DOMAIN, self.domain),
        ];
        for (offset, byte) in bytes {
            self.put(at + offset, &[byte]);
        }
        let (from, to) = action.states();
        let from = from.unwrap_or(abi::ANY_STATE);
        for (offset, number) in [(row::TYPE, action.object()), (row::FROM, from), (row::TO, to)] {
            self.put(at + offset, &number.to_le_bytes());
        }
        for (offset, value) in [(row::POINTER, action.pointer()), (row::SIZE, action.size())] {
            if let Some(value) = value {
                self.value(function, side, at + offset, value)?;
            }
        }
        if !action.fields().is_empty() {
            let fields = self.fields(action.fields());
            self.point(at + row::FIELDS, fields);
            self.put(at + row::N_FIELDS, &(action.fields().len() as u32).to_le_bytes());
        }
        if let more @ [_, ..] = action.more() {
            use layout::value;
            let list = self.room(value::BYTES * more.len());
            for (number, one) in more.iter().enumerate() {
                self.value(function, side, list + value::BYTES * number, one)?;
            }
            self.point(at + row::MORE, list as u64);
            self.put(at + row::N_MORE, &(more.len() as u32).to_le_bytes());
        }
        if let Some(inverse) = action.inverse() {
            let inverse = self.name(inverse);
            self.point(at + row::INVERSE, inverse);
        }
        if let Action::Defer { .. } = action {
            let offset = (at + row::TARGET) as u64;
            self.relocs.push(Reloc { offset, kind: reloc::ABS64, symbol: import, addend: 0 });
        }
        let name = self.name(function);
        self.point(at + row::FUNCTION, name);
        Ok(at as u64)
    }

    /// Adds the description of an entry; returns its offset.
    pub fn entry(&mut self, function: &str, entry: &Entry) -> u64 {
        use layout::entry as row;
        let at = self.room(row::BYTES);
        let stack = if entry.callers_stack { abi::ENTRY_CALLERS_STACK } else { 0 };
        let flags = u32::from(stack) | entry.flags;
        for (offset, number) in [(row::DOMAIN, self.domain.into()), (row::FLAGS, flags)] {
            self.put(at + offset, &number.to_le_bytes());
        }
        self.entries.push(at as u64);
        self.put(at + row::DEAD, &entry.dead.to_le_bytes());
        for (offset, arguments) in [(row::POINTERS, &entry.pointers), (row::KEPT, &entry.kept)] {
            let words = arguments.iter().filter_map(|&argument| argument_word(function, argument).ok());
            let bits = words.filter_map(|word| 1u32.checked_shl(word.into())).fold(0, |all, bit| all | bit);
            self.put(at + offset, &bits.to_le_bytes());
        }
        let name = self.name(function);
        self.point(at + row::FUNCTION, name);
        at as u64
    }

    fn value(&mut self, function: &str, side: Side, at: usize, value: &Value) -> Result<()> {
        use layout::value as row;
        let (kind, word) = match value {
            Value::Const(number) => {
                self.put(at + row::CONSTANT, &number.to_le_bytes());
                (abi::VALUE_CONST, 0)
            }
            Value::Arg(argument) => (abi::VALUE_WORD, argument_word(function, *argument)?),
            Value::Result if side == Side::After => (abi::VALUE_WORD, RESULT),
            Value::Low(of, 4) if let Value::Arg(argument) = **of => {
                (abi::VALUE_HALF, argument_word(function, argument)?)
            }
            _ => {
                self.terms_of(function, side, at, value)?;
                (abi::VALUE_TERMS, 0)
            }
        };
        self.put(at + row::KIND, &[kind]);
        self.put(at + row::WORD, &[word]);
        Ok(())
    }

    /// Writes the terms of a value that takes several.
    fn terms_of(&mut self, function: &str, side: Side, at: usize, value: &Value) -> Result<()> {
        use layout::{term, value as row};
        let mut terms = Vec::new();
        let deepest = add_terms(function, side, value, 0, MAX_TERMS, &mut terms)?;
        if deepest > abi::MAX_DEPTH as usize || terms.len() > MAX_TERMS {
            return refused(function, TOO_LONG);
        }
        let list = self.room(term::BYTES * terms.len());
        for (number, Term { op, n, operand }) in terms.iter().enumerate() {
            let at = list + term::BYTES * number;
            self.put(at + term::OP, &[*op]);
            self.put(at + term::N, &[*n]);
            self.put(at + term::OPERAND, &operand.to_le_bytes());
        }
        self.put(at + row::N_TERMS, &(terms.len() as u16).to_le_bytes());
        self.point(at + row::TERMS, list as u64);
        Ok(())
    }
}

/// The number of an argument's word in `struct guardrail_call`.
fn argument_word(function: &str, argument: u8) -> Result<u8> {
    match argument {
        0..REGISTERS => Ok(argument),
        REGISTERS..MAX_ARGUMENTS => Ok(argument - REGISTERS + STACK),
        _ => refused(
            function,
            format!("an action names argument {argument}, which is beyond those that can be named"),
        ),
    }
}

/// Adds the terms of a value, operands first, while `depth` values wait on the stack. Returns the greatest
/// depth of the stack. `levels` limits how deep values may nest.
fn add_terms(
    function: &str,
    side: Side,
    value: &Value,
    depth: usize,
    levels: usize,
    terms: &mut Vec<Term>,
) -> Result<usize> {
    let Some(levels) = levels.checked_sub(1).filter(|_| terms.len() <= MAX_TERMS) else {
        return refused(function, TOO_LONG);
    };
    let width = |width: u8, widest: u8| match width {
        1 | 2 | 4 | 8 if width <= widest => Ok(width),
        _ => refused(function, format!("a value of an action has {width} bytes, which no number has")),
    };
    let two = |op, first: &Value, second: &Value, terms: &mut Vec<_>| {
        let one = add_terms(function, side, first, depth, levels, terms)?;
        let other = add_terms(function, side, second, depth + 1, levels, terms)?;
        terms.push(Term { op, n: 0, operand: 0 });
        Ok(one.max(other))
    };
    match value {
        Value::Const(operand) => terms.push(Term { op: abi::TERM_CONST, n: 0, operand: *operand }),
        Value::Arg(argument) => {
            terms.push(Term { op: abi::TERM_WORD, n: argument_word(function, *argument)?, operand: 0 });
        }
        Value::Result if side == Side::Before => {
            return refused(function, "an action before it names its result");
        }
        Value::Result => terms.push(Term { op: abi::TERM_WORD, n: RESULT, operand: 0 }),
        Value::Load(from, offset, size) => {
            let n = width(*size, 8)?;
            let deepest = add_terms(function, side, from, depth, levels, terms)?;
            terms.push(Term { op: abi::TERM_LOAD, n, operand: i64::from(*offset) });
            return Ok(deepest);
        }
        Value::Low(of, size) => {
            let n = width(*size, 4)?;
            let deepest = add_terms(function, side, of, depth, levels, terms)?;
            terms.push(Term { op: abi::TERM_LOW, n, operand: 0 });
            return Ok(deepest);
        }
        Value::Add(first, second) => return two(abi::TERM_ADD, first, second, terms),
        Value::Mul(first, second) => return two(abi::TERM_MUL, first, second, terms),
        Value::Shl(first, second) => return two(abi::TERM_SHL, first, second, terms),
    }
    Ok(depth + 1)
}

/// One step of a value: `struct guardrail_term`.
struct Term {
    op: u8,
    n: u8,
    operand: i64,
}
