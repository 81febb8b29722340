//! The verbs of the tables, and the operands of each.

use super::{Clause, Kind};
use crate::effect::{Class, GLOBALS, LockKind};

/// What stands at one place of an effect.
#[derive(Clone, Copy)]
enum Operand {
    /// A parameter of the function.
    Param,
    /// A parameter, or `-` for none.
    ParamOrDash,
    /// A parameter, or this word.
    ParamOr(&'static str),
    /// One of these words.
    Word(&'static [&'static str]),
    /// A number of bytes.
    Number,
    /// A pointer: `PARAM`, `page(PARAM)`, `page(PARAM,OFFSET)`.
    Pointer,
    /// A pointer, or `phys(PARAM)` for a physical address.
    Memory,
    /// A size; see `knowledge/README.md`.
    Size,
    /// A class of memory.
    Class,
    /// Classes of memory, joined by `|`.
    Classes,
    /// A kind of lock.
    Lock,
    /// A lock or an object: `PARAM`, `PARAM.struct.member`, `global(NAME)`.
    Key,
    /// An address or a size; see `docs/use/annotations.md`.
    Value,
    /// The same, or `any`.
    ValueOrAny,
    /// A name of something that the kernel's types, the runtime or other rows have.
    Name,
    /// A number that may be negative.
    Integer,
}

use Operand::{
    Class as OneClass, Classes, Integer, Key, Lock, Memory, Name, Number, Param, ParamOr, ParamOrDash,
    Pointer, Size, Value, ValueOrAny, Word,
};

/// A verb with its operands, and the words that may follow them. A word that ends in `=` takes a parameter.
/// `|` separates words that may stand behind `=` as well.
struct Verb {
    name: &'static str,
    operands: &'static [Operand],
    options: &'static [&'static str],
    /// How many of the last operands may be left out.
    optional: usize,
}

const fn verb(name: &'static str, operands: &'static [Operand], options: &'static [&'static str]) -> Verb {
    Verb { name, operands, options, optional: 0 }
}

/// A verb whose last operands may be left out.
const fn optional(name: &'static str, operands: &'static [Operand], optional: usize) -> Verb {
    Verb { name, operands, options: &[], optional }
}

const MEMORY: &[Verb] = &[
    verb("alloc", &[OneClass, Size], &["zero=", "zero=yes", "page", "cache=", "realloc="]),
    verb("free", &[Pointer, Classes], &["cache="]),
    verb("allocs", &[Param, Param, OneClass, Size], &["zero=", "zero=yes", "cache="]),
    verb("frees", &[Param, Param, Classes], &["cache="]),
    verb("alias", &[Param, Param], &[]),
    verb("take", &[Pointer], &[]),
    verb("cache", &[Size, Size], &[]),
    verb("define", &[Pointer, Size], &[]),
    verb("copy", &[Pointer, Pointer, Size], &[]),
    verb("read", &[Pointer, Size], &[]),
    verb("touser", &[Pointer, Size], &[]),
    verb("putuser", &[Number], &[]),
    optional("output", &[Param, Number, Param], 1),
    verb("input", &[Number, Param], &[]),
    verb("todevice", &[Pointer, Size, Number], &[]),
    verb("dmamap", &[Pointer, Size, ParamOr("from")], &[]),
    verb("grow", &[Pointer], &[]),
    verb("escape", &[Param], &[]),
    verb("nothing", &[], &[]),
    verb("everywhere", &[], &[]),
];

const CONDITIONS: &[&str] = &["if=zero", "if=nonzero"];

/// Conditions in `rights.txt` about the result.
const RESULTS: [&str; 5] = ["always", "result", "ok", "positive", "true"];

const LOCKS: &[Verb] = &[
    verb("lock", &[Lock, Key], &["shared", "try", "if=zero", "if=nonzero"]),
    verb("unlock", &[Lock, Key], &["shared"]),
    verb("hold", &[Lock, Key], &[]),
    verb("release", &[Key], &[]),
    verb("acquire", &[Key], CONDITIONS),
    optional("sleeps", &[Param], 1),
    verb("violation", &[Param, Param, Param, Param], &[]),
    verb("everywhere", &[], &[]),
];

const SIDES: Operand = Word(&["cpu", "device"]);

const DMA: &[Verb] = &[
    verb("map", &[Param, Memory, Size, Param], &["resource"]),
    verb("unmap", &[Param, Param, Size, Param], &["resource"]),
    verb("maplist", &[Param, Param, ParamOrDash, Param], &[]),
    verb("unmaplist", &[Param, Param, Param, Param], &[]),
    verb("sync", &[Param, Param, Size, Param, SIDES], &[]),
    verb("synclist", &[Param, Param, Param, Param, SIDES], &[]),
    verb("coherent", &[Param, Param, Param], &[]),
    verb("uncoherent", &[Param, Param, Param, Param], &[]),
    verb("pool", &[Param, Param], &[]),
    verb("unpool", &[Param], &[]),
    verb("poolalloc", &[Param, Param], &[]),
    verb("poolfree", &[Param, Param, Param], &[]),
    verb("dmaother", &[Param], &[]),
    verb("mapio", &[], &[]),
    verb("unmapio", &[Param], &[]),
    verb("unbind", &[Param], &[]),
    verb("askvmalloc", &[Param], &[]),
    verb("namedriver", &[], &[]),
    verb("needunmap", &[Param], &[]),
    verb("everywhere", &[], &[]),
];

const READS: &[Verb] = &[verb("format", &[Param], &[]), verb("read", &[Pointer, Size], &[])];

/// The verbs besides those of memory. They have the names of the ABI's actions.
const RIGHTS: &[Verb] = &[
    verb("grant", &[Value, Value], &[]),
    verb("revoke", &[Value, Value], &[]),
    verb("lend", &[Value, Value], &[]),
    verb("require_write", &[Value, Value], &[]),
    optional("require_call", &[Value, Name], 1),
    verb("require_calls", &[Value, Name], &[]),
    verb("own", &[Value, Value, Name], &[]),
    verb("disown", &[Value, Name], &[]),
    verb("grant_fields", &[Value, Name], &[]),
    verb("revoke_fields", &[Value, Name], &[]),
    verb("create_object", &[Value, Value, Name], &[]),
    verb("require_object", &[Value, Name], &[]),
    verb("move_object", &[Value, Name, Name], &[]),
    verb("destroy_object", &[Value, Name], &[]),
    verb("forget_object", &[Value, Name], &[]),
    optional("require_ref", &[Value, Name], 1),
    optional("grant_ref", &[Value, Name], 1),
    optional("revoke_ref", &[Value, Name], 1),
    verb("exit", &[], &[]),
    optional("custom", &[Name, Value, Value], 2),
    optional("instead", &[Name, Value, Value], 2),
    optional("undo", &[Name, Value, Value, Value, Value], 3),
    optional("undone", &[Name, ValueOrAny, ValueOrAny, ValueOrAny, ValueOrAny], 3),
    verb("fail", &[Integer], &[]),
    verb("raw", &[Param], &[]),
    verb("received", &[Param, Param], &[]),
    verb("emitted", &[Param, Param, Param], &[]),
];

const TRANSACT: &[Verb] = &[
    verb("plain", &[], &[]),
    verb("defer", &[], &["sync", "synclist", "packet"]),
    optional("reverse", &[Name, Value, Value, Value, Value, Value, Value], 5),
    verb("save", &[Value, Value], &[]),
    verb("touch", &[], &[]),
    verb("irrevocable", &[], &[]),
    verb("settle", &[], &["packets"]),
    optional("custom", &[Name, Value, Value], 2),
];

const ROLES: &[Verb] = &[
    verb("worker", &[], &[]),
    verb("aftergrace", &[], &[]),
    verb("initializes", &[], &[]),
    verb("unloads", &[], &[]),
    verb("keepslocks", &[], &[]),
    verb("shows", &[], &[]),
    verb("requestsline", &[], &[]),
    verb("defers", &[Param], &[]),
    verb("keepsnothing", &[], &[]),
    verb("pools", &[], &[]),
    verb("droppable", &[], &[]),
    verb("frees", &[Param], &[]),
    verb("idle", &[], &[]),
    verb("sized", &[Param], &[]),
    verb("switchesstacks", &[], &[]),
    verb("suspends", &[], &[]),
    verb("silences", &[], &[]),
    verb("neverwaitsforitself", &[Param], &[]),
    verb("initslock", &[Param], &[]),
];

/// Judges an effect without a kernel; the error states what is wrong.
pub(super) fn check(kind: Kind, clause: &Clause<'_>, params: &[&str]) -> Result<(), String> {
    let (verbs, more): (_, &[Verb]) = match kind {
        Kind::Memory => (MEMORY, &[]),
        Kind::Locks => (LOCKS, &[]),
        Kind::Dma => (DMA, &[]),
        Kind::Reads => (READS, &[]),
        Kind::Rights => (RIGHTS, MEMORY),
        Kind::Transact => (TRANSACT, &[]),
        Kind::Roles => (ROLES, &[]),
    };
    let words = &clause.words;
    let name = *words.first().ok_or("an effect is missing")?;
    let Some(verb) = verbs.iter().chain(more).find(|verb| verb.name == name) else {
        let known: Vec<&str> = verbs.iter().chain(more).map(|verb| verb.name).collect();
        return Err(format!("'{name}' is no effect of {}; there are {}", kind.file(), known.join(", ")));
    };
    let least = verb.operands.len() - verb.optional;
    if words.len() - 1 < least {
        return Err(format!("{least} words follow '{name}', and not {}", words.len() - 1));
    }
    for (word, operand) in words[1..].iter().zip(verb.operands) {
        operand.check(word, params).map_err(|what| {
            let known = operand.known(word, params).filter(|(_, words)| !words.is_empty());
            let known = known.map(|(what, words)| format!("; {what}: {}", words.join(", ")));
            format!("'{word}' after '{name}' is no {what}{}", known.unwrap_or_default())
        })?;
    }
    for word in words.iter().skip(1 + verb.operands.len()) {
        let plain = verb.options.contains(word);
        let with_param = word.split_once('=').is_some_and(|(option, param)| {
            verb.options.iter().any(|known| known.strip_suffix('=') == Some(option))
                && params.contains(&param)
        });
        if !plain && !with_param {
            return Err(format!("'{word}' does not follow '{name}'"));
        }
    }
    match clause.when.filter(|when| !RESULTS.contains(when) && !params.contains(when)) {
        Some(when) => Err(format!("'{when}' is no condition: {} or PARAM", RESULTS.join(", "))),
        None => Ok(()),
    }
}

impl Operand {
    /// For messages: the words that the operand may be or contain, after what they are.
    fn known<'a>(self, word: &str, params: &'a [&'a str]) -> Option<(&'static str, Vec<&'a str>)> {
        Some(match self {
            Word(words) => ("words", words.to_vec()),
            OneClass | Classes => ("classes", Class::NAMED.map(|(name, _)| name).to_vec()),
            Lock => ("kinds", LockKind::NAMED.map(|(name, _)| name).to_vec()),
            Key if word.starts_with("global(") => ("globals", GLOBALS.to_vec()),
            Number | Name | Integer => return None,
            _ => ("parameters", params.to_vec()),
        })
    }

    /// Judges a word in place of the operand; the error states what was expected.
    fn check(self, word: &str, params: &[&str]) -> Result<(), &'static str> {
        let is_param = |word: &str| params.contains(&word);
        let inside = |name: &str| word.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
        let is_pointer = || {
            is_param(word)
                || inside("page")
                    .is_some_and(|inner| inner.split(',').count() <= 2 && inner.split(',').all(is_param))
        };
        let (fits, what) = match self {
            Param => (is_param(word), "parameter"),
            ParamOrDash => (is_param(word) || word == "-", "parameter or '-'"),
            ParamOr(other) => (is_param(word) || word == other, "parameter or known word"),
            Word(words) => (words.contains(&word), "word that may stand here"),
            Number => (word.parse::<u8>().is_ok(), "number of bytes"),
            Pointer => (is_pointer(), "pointer: PARAM, page(PARAM) or page(PARAM,OFFSET)"),
            Memory => (is_pointer() || inside("phys").is_some_and(is_param), "pointer or phys(PARAM)"),
            Size => (is_size(word, params), "size"),
            OneClass => (Class::named(word).is_some(), "class of memory"),
            Classes => (word.split('|').all(|class| Class::named(class).is_some()), "class of memory"),
            Lock => (LockKind::named(word).is_some(), "kind of lock"),
            Key => match inside("global") {
                Some(name) => (GLOBALS.contains(&name), "global that is known"),
                None => (is_key(word, params), "key: PARAM, PARAM.struct.member or global(NAME)"),
            },
            Value => (is_value(word, params), "value"),
            ValueOrAny => (word == "any" || is_value(word, params), "value or 'any'"),
            Name => (word.chars().all(|c| c.is_alphanumeric() || "_.|".contains(c)), "name"),
            Integer => (word.parse::<i64>().is_ok(), "decimal number"),
        };
        fits.then_some(()).ok_or(what)
    }
}

fn is_key(word: &str, params: &[&str]) -> bool {
    let parts: Vec<&str> = word.splitn(3, '.').collect();
    parts.len() != 2 && params.contains(&parts[0])
}

/// A number, `PARAM`, `PARAM*PARAM`, `order(PARAM)`, `PARAM->struct.member`, `sizeof(struct)`, `result`, `result+N`,
/// `result+N/PARAM`, `N/PARAM`, `found`, `found/PARAM`, or `rest`.
fn is_size(word: &str, params: &[&str]) -> bool {
    let is_param = |word: &str| params.contains(&word);
    let inside = |name: &str| word.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
    if let Some(rest) = word.strip_prefix("result") {
        let (extra, bound) = rest.split_once('/').unwrap_or((rest, ""));
        let number =
            extra.is_empty() || extra.strip_prefix('+').is_some_and(|extra| extra.parse::<u64>().is_ok());
        return number && (bound.is_empty() || is_param(bound));
    }
    if let Some((number, bound)) = word.split_once('/') {
        return (number == "found" || number.parse::<u64>().is_ok()) && is_param(bound);
    }
    if let Some((param, member)) = word.split_once("->") {
        return is_param(param) && member.split_once('.').is_some();
    }
    if let Some((a, b)) = word.split_once('*') {
        return is_param(a) && is_param(b);
    }
    matches!(word, "rest" | "found")
        || word.parse::<u64>().is_ok()
        || is_param(word)
        || inside("order").is_some_and(is_param)
        || inside("sizeof").is_some_and(|name| !name.is_empty())
}

/// A number, `PARAM`, `result`, `VALUE*VALUE`, `VALUE+VALUE`, `[VALUE]`, `u32[VALUE]`, `VALUE->struct.member`, `&VALUE->struct.member`,
/// `order(VALUE)`, `sizeof(struct)`, `sizeof(PARAM)`, or `kind(NAME)`.
fn is_value(word: &str, params: &[&str]) -> bool {
    let is_value = |word: &str| is_value(word, params);
    let inside = |start, end| word.strip_prefix(start)?.strip_suffix(end);
    if let Some(inner) = inside("u32[", ']').or_else(|| inside("[", ']')) {
        return is_value(inner);
    }
    if let Some((a, b)) = word.split_once(['*', '+']) {
        return is_value(a) && is_value(b);
    }
    if let Some((base, member)) = word.trim_start_matches('&').rsplit_once("->") {
        return is_value(base) && member.contains('.');
    }
    word == "result"
        || word.parse::<i64>().is_ok()
        || params.contains(&word)
        || inside("order(", ')').is_some_and(is_value)
        || inside("sizeof(", ')').or_else(|| inside("kind(", ')')).is_some_and(|name| !name.is_empty())
}
