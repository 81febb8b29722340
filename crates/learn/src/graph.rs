//! Which functions of a module lead to which others, by direct calls and jumps.

use crate::flow::code::{Callee, callees};
use crate::unit::Unit;
use guardrail_binfmt::ModuleImage;
use std::collections::BTreeSet;

/// The direct calls of a module, backwards.
#[derive(Debug)]
pub struct Graph {
    unit: Unit,
    /// By number of a function, the numbers of those that call it.
    callers: Vec<Vec<usize>>,
}

impl Graph {
    /// Reads a module's code.
    pub fn new(image: &ModuleImage) -> Graph {
        Graph::of(Unit::module(image))
    }

    fn of(unit: Unit) -> Graph {
        let mut callers = vec![Vec::new(); unit.functions().len()];
        let whole = (0..unit.functions().len()).filter(|at| !unit.functions()[*at].is_part());
        for function in whole {
            for callee in callees(&unit, function) {
                if let Callee::Local(other) = callee {
                    callers[other].push(function);
                }
            }
        }
        Graph { unit, callers }
    }

    /// The names of all functions that lead to those with one of the names, which are among them. `None` where the module has
    /// no such function. Copies and parts that the compiler has made (`f.cold`, `f.isra.0`) count as the function itself.
    pub fn leading_to<'a>(&self, wanted: impl IntoIterator<Item = &'a str>) -> Option<BTreeSet<&str>> {
        let functions = self.unit.functions();
        let wanted: BTreeSet<&str> = wanted.into_iter().map(plain).collect();
        let named = |at: &usize| functions[*at].names.iter().any(|own| wanted.contains(plain(own)));
        let mut waiting: Vec<usize> = (0..functions.len()).filter(named).collect();
        let mut seen: BTreeSet<usize> = waiting.iter().copied().collect();
        while let Some(at) = waiting.pop() {
            waiting.extend(self.callers[at].iter().copied().filter(|caller| seen.insert(*caller)));
        }
        let names = seen.iter().flat_map(|at| functions[*at].names.iter().map(String::as_str));
        (!seen.is_empty()).then(|| names.collect())
    }
}

/// The name that the source has.
fn plain(name: &str) -> &str {
    name.split_once('.').map_or(name, |(plain, _)| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The functions that lead to `wanted`. Each function is given by its name and code, and begins 0x1000 behind the last.
    fn leading(code: &[(&str, &[u8])], wanted: &str) -> Option<Vec<String>> {
        let graph = Graph::of(Unit::of_code(code, &[]));
        graph.leading_to([wanted]).map(|names| names.into_iter().map(str::to_owned).collect())
    }

    /// call of the next function; ret
    const NEXT: [u8; 6] = [0xe8, 0xfb, 0x0f, 0, 0, 0xc3];
    const RET: [u8; 1] = [0xc3];

    #[test]
    fn calls_are_followed_backwards() {
        let code: [(&str, &[u8]); 4] = [("a", &NEXT), ("b", &NEXT), ("c", &RET), ("d", &RET)];
        assert_eq!(leading(&code, "c").unwrap(), ["a", "b", "c"]);
        assert_eq!(leading(&code, "d").unwrap(), ["d"]);
        assert_eq!(leading(&code, "e"), None);
    }

    #[test]
    fn jumps_and_circles_are_followed() {
        // a jumps to b; b calls a and then c.
        let back = [0xe8, 0xfb, 0xef, 0xff, 0xff, 0xe8, 0xf6, 0x0f, 0, 0, 0xc3];
        let code: [(&str, &[u8]); 3] = [("a", &[0xe9, 0xfb, 0x0f, 0, 0]), ("b", &back), ("c", &RET)];
        assert_eq!(leading(&code, "c").unwrap(), ["a", "b", "c"]);
        assert_eq!(leading(&code, "a").unwrap(), ["a", "b"]);
    }

    #[test]
    fn what_the_compiler_has_split_is_one_function() {
        let code: [(&str, &[u8]); 3] = [("a", &NEXT), ("b.isra.0", &NEXT), ("c", &RET)];
        assert_eq!(leading(&code, "b").unwrap(), ["a", "b.isra.0"]);
        assert_eq!(leading(&code, "c.cold").unwrap(), ["a", "b.isra.0", "c"]);
    }
}
