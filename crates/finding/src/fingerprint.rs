//! The fingerprint, which decides whether two findings are the same fault.

use crate::{Finding, Frame};
use std::collections::{BTreeMap, HashMap};

/// A hash that is the same in every run and every build (FNV-1a, 64 bits).
#[derive(Clone, Copy, Debug)]
struct Fingerprint(u64);

impl Fingerprint {
    fn new() -> Self {
        Fingerprint(0xcbf2_9ce4_8422_2325)
    }

    /// Adds a text and a separator to the hash.
    fn add(mut self, text: &str) -> Self {
        for byte in text.bytes().chain([0xff]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self
    }

    fn hex(self) -> String {
        format!("{:016x}", self.0)
    }
}

/// Which findings of a run are the same fault, and their fingerprints.
///
/// Races of two functions for one member are one fault. Every other place in the code is a fault of its own.
/// Places that differ in their addresses alone are numbered in the order in which they are seen, because
/// addresses differ between builds and the order of execution does not.
#[derive(Debug, Default)]
pub struct Fingerprints {
    /// By what has names: the number of each place, from 0.
    places: BTreeMap<u64, HashMap<u64, usize>>,
}

impl Fingerprints {
    /// The fingerprint of a finding, beside those that were seen before.
    pub fn of(&mut self, finding: &Finding) -> String {
        let print = print(finding);
        if is_race(finding) {
            return print.hex();
        }
        let places = self.places.entry(print.0).or_default();
        let next = places.len();
        let number = *places.entry(finding.place()).or_insert(next);
        if number == 0 { print.hex() } else { print.add(&(number + 1).to_string()).hex() }
    }
}

impl Finding {
    /// Computes [`Finding::id`] of a finding that is the first with its names.
    pub fn fingerprint(&self) -> String {
        Fingerprints::default().of(self)
    }

    /// A hash of the places in the code, which distinguishes findings of one build.
    pub fn place(&self) -> u64 {
        let hash = Fingerprint::new().add(&self.checker).add(&self.kind).add(&self.module);
        if let (true, Some(other)) = (is_race(self), &self.other) {
            let mut sides = [&self.stack, &other.stack].map(|stack| {
                top(stack).map_or_else(String::new, |f| format!("{}+{:#x}", f.function, f.offset))
            });
            sides.sort();
            return sides.iter().fold(hash, |hash, side| hash.add(side)).0;
        }
        let place = hash.add(&self.function).add(&self.offset.to_string());
        let near = self.stack.iter().filter(|frame| !frame.outer);
        near.fold(place, |hash, frame| hash.add(&frame.function)).0
    }
}

fn is_race(finding: &Finding) -> bool {
    finding.kind == "data-race" && finding.other.is_some()
}

/// The hash of what has names in every build: checker, kind, module, functions and target. Names of the
/// kernel's functions do not count, because they change between kernels.
fn print(finding: &Finding) -> Fingerprint {
    let hash = Fingerprint::new().add("2").add(&finding.checker).add(&finding.kind).add(&finding.module);
    if let (true, Some(other)) = (is_race(finding), &finding.other) {
        let mut sides = [&finding.stack, &other.stack].map(|stack| top(stack).map_or("", Frame::base));
        sides.sort_unstable();
        let hash = sides.iter().fold(hash, |hash, side| hash.add(side));
        // A function that gathers statistics has one finding for all that it reads.
        let gathers = finding.triage.as_deref().is_some_and(|why| why.ends_with("statistics counter"))
            && [&finding.stack, &other.stack]
                .iter()
                .any(|stack| driver(stack).any(|name| name.contains("stats") || name.contains("statistics")));
        return if gathers { hash.add("statistics") } else { hash.add(&target(finding)) };
    }
    let hash = hash.add(base(&finding.function)).add(&target(finding));
    let mut callers: Vec<&str> = driver(&finding.stack).collect();
    callers.dedup();
    callers.into_iter().fold(hash, Fingerprint::add)
}

/// The names of the driver's functions in a stack.
fn driver(stack: &[Frame]) -> impl Iterator<Item = &str> {
    stack.iter().filter(|frame| frame.in_driver()).map(Frame::base)
}

/// The innermost frame of the driver; the innermost of all where it has none.
fn top(stack: &[Frame]) -> Option<&Frame> {
    stack.iter().find(|frame| frame.in_driver()).or(stack.first())
}

/// The name of a function without the suffixes of the compiler's clones: `.isra.0`, `.cold`, …
fn base(function: &str) -> &str {
    match function.find('.') {
        None | Some(0) => function,
        Some(at) => &function[..at],
    }
}

impl Frame {
    /// The name of the function as the source has it, without the suffixes of the compiler's clones.
    pub fn base(&self) -> &str {
        base(&self.function)
    }
}

/// Objects up to this size in bytes are no arrays, so that an offset in them is a member.
pub const SMALL_OBJECT: u64 = 512;

/// What a finding is about, by names that are the same in every build.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target<'a> {
    /// A variable of the module, or a member of a type.
    Named(String),
    /// Memory whose type is not known.
    Memory {
        /// The sort of memory: `slab`, `page`, …
        class: &'a str,
        /// Name of its symbol or cache; empty where it has none.
        name: &'a str,
        /// The driver's function that allocated it; empty where that is not known.
        by: &'a str,
        /// Offset of the access in bytes, for races where it stands for a member.
        offset: Option<i64>,
    },
}

impl Finding {
    /// What the finding is about; `None` where it is about no memory.
    pub fn target(&self) -> Option<Target<'_>> {
        if let Some(variable) = &self.variable {
            return Some(Target::Named(variable.clone()));
        }
        let object = self.object.as_ref()?;
        if let Some(field) = &object.field {
            return Some(Target::Named(without_indices(field)));
        }
        let by = object.allocated.as_ref().and_then(|at| at.stack.iter().find(|frame| frame.in_driver()));
        Some(Target::Memory {
            class: &object.class,
            name: object.name.as_deref().unwrap_or_default(),
            by: by.map_or("", Frame::base),
            offset: object.offset.filter(|_| is_race(self) && object.size <= SMALL_OBJECT),
        })
    }
}

impl std::fmt::Display for Target<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (class, name, by, offset) = match self {
            Target::Named(name) => return f.write_str(name),
            Target::Memory { class, name, by, offset } => (*class, *name, *by, offset),
        };
        let class = if class.is_empty() { "memory" } else { class };
        write!(f, "{class}")?;
        for (before, text) in [(" ", name), (" of ", by)] {
            if !text.is_empty() {
                write!(f, "{before}{text}")?;
            }
        }
        offset.map_or(Ok(()), |offset| write!(f, " at offset {offset}"))
    }
}

/// The part of a fingerprint for what the finding is about.
fn target(finding: &Finding) -> String {
    match finding.target() {
        None => String::new(),
        Some(Target::Named(name)) => name,
        Some(Target::Memory { class, name, by, offset }) => {
            let offset = offset.map_or_else(String::new, |offset| format!("+{offset}"));
            format!("{class} {name} {by}{offset}")
        }
    }
}

/// Drops the indices of array elements: `slots[3].dma` becomes `slots[].dma`.
pub fn without_indices(name: &str) -> String {
    let mut inside = false;
    let kept = |c: &char| {
        inside = match *c {
            '[' => true,
            ']' => false,
            _ => inside,
        };
        !inside || *c == '['
    };
    name.chars().filter(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::Fingerprints;
    use crate::{Finding, Frame, Inlined, Location, ObjectInfo, OtherAccess};

    fn stack(functions: &[(&str, u64)]) -> Vec<Frame> {
        let frame = |&(function, offset): &(&str, u64)| Frame {
            function: function.to_owned(),
            module: Some("drv".to_owned()),
            offset,
            ..Frame::default()
        };
        functions.iter().map(frame).collect()
    }

    fn race(first: (&str, u64), second: (&str, u64)) -> String {
        let other = OtherAccess { stack: stack(&[second]), ..OtherAccess::default() };
        Finding {
            kind: "data-race".to_owned(),
            stack: stack(&[first]),
            other: Some(other),
            ..Finding::default()
        }
        .fingerprint()
    }

    #[test]
    fn a_race_has_no_first_side() {
        assert_eq!(race(("f", 1), ("g", 2)), race(("g", 2), ("f", 1)));
        assert_ne!(race(("f", 1), ("g", 2)), race(("f", 1), ("h", 2)));
    }

    #[test]
    fn a_race_is_the_same_in_another_build() {
        assert_eq!(race(("f", 1), ("g.isra.0", 2)), race(("f.cold", 7), ("g", 3)));
        let on = |field: &str| {
            let object = ObjectInfo { field: Some(field.to_owned()), ..ObjectInfo::default() };
            let other = OtherAccess { stack: stack(&[("g", 2)]), ..OtherAccess::default() };
            Finding {
                kind: "data-race".to_owned(),
                stack: stack(&[("f", 1)]),
                other: Some(other),
                object: Some(object),
                ..Finding::default()
            }
            .fingerprint()
        };
        assert_eq!(on("priv.slots[3].dma"), on("priv.slots[0].dma"));
        assert_ne!(on("priv.head"), on("priv.tail"));
        assert_ne!(on("priv.head"), race(("f", 1), ("g", 2)));
    }

    #[test]
    fn places_of_one_function_are_numbered() {
        let at = |offset| Finding { function: "f".to_owned(), offset, ..Finding::default() };
        let (mut one, mut two) = (Fingerprints::default(), Fingerprints::default());
        let ids = [1, 5, 1].map(|offset| one.of(&at(offset)));
        assert_eq!(ids[0], ids[2]);
        assert_ne!(ids[0], ids[1]);
        // In another build the same two places have other offsets.
        assert_eq!([9, 30].map(|offset| two.of(&at(offset))), [ids[0].clone(), ids[1].clone()]);
    }

    #[test]
    fn functions_of_the_kernel_do_not_count() {
        let called = |kernel: &str| {
            let mut stack = stack(&[("f", 1)]);
            stack.insert(0, Frame { function: kernel.to_owned(), ..Frame::default() });
            Finding { function: "f".to_owned(), stack, ..Finding::default() }.fingerprint()
        };
        assert_eq!(called("kmalloc_trace"), called("__kmalloc_cache_noprof"));
    }

    #[test]
    fn fingerprints_stay_the_same() {
        let finding = Finding {
            checker: "dmcheck".to_owned(),
            kind: "use-after-free".to_owned(),
            module: "drv".to_owned(),
            function: "f".to_owned(),
            offset: 0x10,
            stack: stack(&[("f", 0x10), ("g", 0x20)]),
            ..Finding::default()
        };
        assert_eq!(finding.fingerprint(), "bc93948e0fa0f264");
        let later = Finding { event: 7, count: 3, message: "again".to_owned(), ..finding.clone() };
        assert_eq!(later.fingerprint(), finding.fingerprint());
        let mut inlined = finding.clone();
        inlined.stack[0].inlined = vec![Inlined { function: "h".to_owned(), location: None }];
        inlined.location = Some(Location { file: "drv.h".to_owned(), line: 3 });
        assert_eq!(inlined.fingerprint(), finding.fingerprint());
    }
}
