//! Actions as the runtime reads them: `struct guardrail_action`, `struct guardrail_entry` and what they name, in one section of read-only data.

use super::{Action, Entry, Op, Value, When};
use crate::error::{Result, refused};
use crate::guard::new_section;
use crate::object::{Object, Reloc, reloc};
use object::elf;
use std::collections::BTreeMap;

/// The section's name.
const SECTION: &str = ".rodata.guardrail";
/// Bytes of `struct guardrail_action`, and where its parts stand.
const ACTION: usize = 72;
const TYPE: usize = 4;
const FROM: usize = 8;
const TO: usize = 12;
const POINTER: usize = 16;
const SIZE: usize = 32;
const FIELDS: usize = 48;
const N_FIELDS: usize = 56;
const FUNCTION: usize = 64;
/// Bytes of `struct guardrail_term`, and where the second words of terms and of values stand.
const TERM: usize = 16;
const WORD: usize = 8;
/// Bytes of `struct guardrail_entry`, and where its parts stand.
const ENTRY: usize = 24;
const DEAD: usize = 8;
const NAME: usize = 16;
/// `GUARDRAIL_ENTRY_CALLERS_STACK`.
const CALLERS_STACK: u32 = 1;
/// `GUARDRAIL_ANY_STATE`.
const ANY_STATE: u32 = u32::MAX;
/// `GUARDRAIL_WORD_RESULT`, `GUARDRAIL_WORD_STACK`, and the words of registers.
const RESULT: u8 = 6;
const STACK: u8 = 9;
const REGISTERS: u8 = 6;
/// Arguments that a value can name.
const MAX_ARGUMENTS: u8 = 32;
/// `GUARDRAIL_MAX_TERMS`, `GUARDRAIL_MAX_DEPTH`.
const MAX_TERMS: usize = 16;
const MAX_DEPTH: usize = 4;
const TOO_LONG: &str = "a value of an action is worked out in more steps than are supported";
/// `GUARDRAIL_VALUE_CONST`, `GUARDRAIL_VALUE_WORD`, `GUARDRAIL_VALUE_TERMS`, `GUARDRAIL_VALUE_HALF`.
const KINDS: [u8; 4] = [0, 1, 2, 3];
/// Bytes of an object's name that the kernel's table of checksums has room for, less the prefix.
const MAX_NAME: usize = 32;

/// Whether there is a result yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Before the function.
    Before,
    /// After it.
    After,
}

/// The section while it is made.
pub(super) struct Data {
    /// The index that it will have, and its symbol.
    symbol: usize,
    bytes: Vec<u8>,
    relocs: Vec<Reloc>,
    /// Names that are there already.
    names: BTreeMap<String, u64>,
    /// Lists of fields that are there already.
    lists: BTreeMap<Vec<(u32, u32)>, u64>,
    domain: u8,
}

impl Data {
    /// A section behind those that the module has.
    pub fn new(object: &mut Object, domain: u8) -> Data {
        let section = object.sections.len();
        object.sections.push(new_section(SECTION, elf::SHF_ALLOC, Vec::new(), Vec::new()));
        let symbol = object.symbol_of_section(section);
        Data {
            symbol,
            bytes: Vec::new(),
            relocs: Vec::new(),
            names: BTreeMap::new(),
            lists: BTreeMap::new(),
            domain,
        }
    }

    /// The protection domain.
    pub fn domain(&self) -> u8 {
        self.domain
    }

    /// The section's symbol, from which on offsets count.
    pub fn symbol(&self) -> usize {
        self.symbol
    }

    /// Puts it into its place.
    pub fn finish(mut self, object: &mut Object) {
        let Some(section) = object.symbols[self.symbol].section() else { return };
        self.relocs.sort_by_key(|reloc| reloc.offset);
        object.sections[section].content = crate::object::Content::Bytes(self.bytes);
        object.sections[section].relocs = self.relocs;
    }

    /// Room for so many bytes.
    fn room(&mut self, size: usize) -> usize {
        let at = self.bytes.len().next_multiple_of(8);
        self.bytes.resize(at + size, 0);
        at
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// A pointer at `at` to an offset of the section.
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

    /// A list of fields. One that is there already is used again: the runtime knows lists by their place.
    fn fields(&mut self, list: &[(u32, u32)]) -> u64 {
        if let Some(at) = self.lists.get(list) {
            return *at;
        }
        let at = self.room(8 * list.len());
        for (number, (offset, size)) in list.iter().enumerate() {
            self.put(at + 8 * number, &offset.to_le_bytes());
            self.put(at + 8 * number + 4, &size.to_le_bytes());
        }
        self.lists.insert(list.to_vec(), at as u64);
        at as u64
    }

    /// Adds an action of a function; its offset, and the runtime's function that does it.
    pub fn action(&mut self, function: &str, side: Side, action: &Action) -> Result<(u64, String)> {
        let at = self.room(ACTION);
        let refuse = |detail: &str| refused(function, detail.to_owned());
        let (when, word) = match action.when {
            When::Always => (0, 0),
            When::NonZero(argument) => (5, self.argument(function, argument)?),
            _ if side == Side::Before => return refuse("an action before it depends on its result"),
            When::ResultValid => (1, 0),
            When::ResultZero => (2, 0),
            When::ResultNonNegative => (3, 0),
            When::ResultTrue => (4, 0),
        };
        let shape = Shape::of(&action.op);
        let (op, does) = match &action.op {
            Op::Custom { name, .. } | Op::Instead { name, .. } => {
                let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
                if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(good) {
                    return refuse("an action has a name that no function of the runtime has");
                }
                (shape.op, format!("guardrail_custom_{name}"))
            }
            _ => (shape.op, format!("guardrail_do_{}", shape.name)),
        };
        self.put(at, &[op, when, word, self.domain]);
        for (offset, number) in [(TYPE, shape.kind), (FROM, shape.from), (TO, shape.to)] {
            self.put(at + offset, &number.to_le_bytes());
        }
        for (offset, value) in [(POINTER, shape.pointer), (SIZE, shape.size)] {
            if let Some(value) = value {
                self.value(function, side, at + offset, value)?;
            }
        }
        if !shape.fields.is_empty() {
            let fields = self.fields(shape.fields);
            self.point(at + FIELDS, fields);
            self.put(at + N_FIELDS, &(shape.fields.len() as u32).to_le_bytes());
        }
        let name = self.name(function);
        self.point(at + FUNCTION, name);
        Ok((at as u64, does))
    }

    /// Adds the description of an entry; its offset.
    pub fn entry(&mut self, function: &str, entry: &Entry) -> u64 {
        let at = self.room(ENTRY);
        let flags = if entry.callers_stack { CALLERS_STACK } else { 0 };
        self.put(at, &u32::from(self.domain).to_le_bytes());
        self.put(at + 4, &flags.to_le_bytes());
        self.put(at + DEAD, &entry.dead.to_le_bytes());
        let name = self.name(function);
        self.point(at + NAME, name);
        at as u64
    }

    /// The number of an argument's word in the frame.
    fn argument(&self, function: &str, argument: u8) -> Result<u8> {
        match argument {
            0..REGISTERS => Ok(argument),
            REGISTERS..MAX_ARGUMENTS => Ok(argument - REGISTERS + STACK),
            _ => refused(
                function,
                format!("an action names argument {argument}, which is beyond those that can be named"),
            ),
        }
    }

    fn value(&mut self, function: &str, side: Side, at: usize, value: &Value) -> Result<()> {
        let [constant, word, by_terms, half] = KINDS;
        match value {
            Value::Const(number) => {
                self.put(at, &[constant]);
                self.put(at + WORD, &number.to_le_bytes());
            }
            Value::Arg(argument) => {
                let argument = self.argument(function, *argument)?;
                self.put(at, &[word, argument]);
            }
            Value::Result if side == Side::After => self.put(at, &[word, RESULT]),
            Value::Low(of, 4) if let Value::Arg(argument) = **of => {
                let argument = self.argument(function, argument)?;
                self.put(at, &[half, argument]);
            }
            _ => {
                let mut terms = Vec::new();
                let deepest = self.terms(function, side, value, 0, MAX_TERMS, &mut terms)?;
                if deepest > MAX_DEPTH || terms.len() > MAX_TERMS {
                    return refused(function, TOO_LONG);
                }
                let list = self.room(TERM * terms.len());
                for (number, (op, n, operand)) in terms.iter().enumerate() {
                    self.put(list + TERM * number, &[*op, *n]);
                    self.put(list + TERM * number + WORD, &operand.to_le_bytes());
                }
                self.put(at, &[by_terms]);
                self.put(at + 2, &(terms.len() as u16).to_le_bytes());
                self.point(at + WORD, list as u64);
            }
        }
        Ok(())
    }

    /// Adds the terms of a value, operands first, while `depth` values wait; the deepest that the stack gets. Values in values have so many levels at most.
    fn terms(
        &self,
        function: &str,
        side: Side,
        value: &Value,
        depth: usize,
        levels: usize,
        terms: &mut Vec<(u8, u8, i64)>,
    ) -> Result<usize> {
        let Some(levels) = levels.checked_sub(1).filter(|_| terms.len() <= MAX_TERMS) else {
            return refused(function, TOO_LONG);
        };
        let width = |width: u8, widest: u8| match width {
            1 | 2 | 4 | 8 if width <= widest => Ok(width),
            _ => refused(function, format!("a value of an action has {width} bytes, which no number has")),
        };
        let two = |op, first: &Value, second: &Value, terms: &mut Vec<_>| {
            let one = self.terms(function, side, first, depth, levels, terms)?;
            let other = self.terms(function, side, second, depth + 1, levels, terms)?;
            terms.push((op, 0, 0));
            Ok(one.max(other))
        };
        match value {
            Value::Const(number) => terms.push((0, 0, *number)),
            Value::Arg(argument) => terms.push((1, self.argument(function, *argument)?, 0)),
            Value::Result if side == Side::Before => {
                return refused(function, "an action before it names its result");
            }
            Value::Result => terms.push((1, RESULT, 0)),
            Value::Load(from, offset, size) => {
                let size = width(*size, 8)?;
                let deepest = self.terms(function, side, from, depth, levels, terms)?;
                terms.push((2, size, i64::from(*offset)));
                return Ok(deepest);
            }
            Value::Low(of, size) => {
                let size = width(*size, 4)?;
                let deepest = self.terms(function, side, of, depth, levels, terms)?;
                terms.push((3, size, 0));
                return Ok(deepest);
            }
            Value::Add(first, second) => return two(4, first, second, terms),
            Value::Mul(first, second) => return two(5, first, second, terms),
            Value::Shl(first, second) => return two(6, first, second, terms),
        }
        Ok(depth + 1)
    }
}

/// An operation, by what of `struct guardrail_action` it uses.
struct Shape<'a> {
    /// `GUARDRAIL_OP_…`.
    op: u8,
    /// The rest of the name of `guardrail_do_…`.
    name: &'static str,
    pointer: Option<&'a Value>,
    size: Option<&'a Value>,
    kind: u32,
    from: u32,
    to: u32,
    fields: &'a [(u32, u32)],
}

impl<'a> Shape<'a> {
    fn of(op: &'a Op) -> Shape<'a> {
        let shape = |op, name, pointer: &'a Value| Shape {
            op,
            name,
            pointer: Some(pointer),
            size: None,
            kind: 0,
            from: ANY_STATE,
            to: 0,
            fields: &[],
        };
        match op {
            Op::Grant { pointer, size } => Shape { size: Some(size), ..shape(1, "grant", pointer) },
            Op::Revoke { pointer, size } => Shape { size: Some(size), ..shape(2, "revoke", pointer) },
            Op::RequireWrite { pointer, size } => {
                Shape { size: Some(size), ..shape(3, "require_write", pointer) }
            }
            Op::Own { pointer, size, kind } => {
                Shape { size: Some(size), kind: *kind, ..shape(4, "own", pointer) }
            }
            Op::Disown { pointer, kind } => Shape { kind: *kind, ..shape(5, "disown", pointer) },
            Op::Fields { pointer, fields } => Shape { fields, ..shape(6, "fields", pointer) },
            Op::UnFields { pointer, fields } => Shape { fields, ..shape(7, "unfields", pointer) },
            Op::Object { pointer, size, kind, fields } => {
                Shape { size: Some(size), kind: *kind, fields, ..shape(8, "object", pointer) }
            }
            Op::RequireObject { pointer, kind, state } => {
                Shape { kind: *kind, from: state.unwrap_or(ANY_STATE), ..shape(9, "require_object", pointer) }
            }
            Op::MoveObject { pointer, kind, from, to } => Shape {
                kind: *kind,
                from: from.unwrap_or(ANY_STATE),
                to: *to,
                ..shape(10, "move_object", pointer)
            },
            Op::ClearObject { pointer, kind } => Shape { kind: *kind, ..shape(11, "clear_object", pointer) },
            Op::RequireCall { pointer } => shape(12, "require_call", pointer),
            Op::Exit => Shape { pointer: None, ..shape(13, "exit", &Value::Result) },
            Op::Custom { pointer, size, .. } | Op::Instead { pointer, size, .. } => {
                Shape { size: Some(size), ..shape(14, "", pointer) }
            }
            Op::EndObject { pointer, kind, state } => {
                Shape { kind: *kind, from: state.unwrap_or(ANY_STATE), ..shape(15, "end_object", pointer) }
            }
        }
    }
}
