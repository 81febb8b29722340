//! Which functions of the kernel a module's function calls on every way through it, itself or by functions of the module.

use crate::flow::code::{Body, Callee, body, callee};
use crate::unit::Unit;
use guardrail_binfmt::ModuleImage;
use iced_x86::{FlowControl, Instruction};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Calls of functions within calls that are followed; deeper ones count as calling nothing.
const MAX_DEPTH: usize = 100;

/// A call that cannot be avoided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The function of the module that makes it.
    pub by: String,
    /// The function of the kernel, or of another module, that is called.
    pub function: String,
}

/// The direct calls of a module.
#[derive(Debug)]
pub struct Calls<'a> {
    unit: Unit,
    /// The functions that are asked for.
    wanted: &'a [&'a str],
    /// By number of the function; what is being looked at counts as calling nothing.
    known: RefCell<BTreeMap<usize, Option<Call>>>,
}

impl<'a> Calls<'a> {
    /// Reads a module's code, to find calls of the functions that are wanted.
    pub fn new(image: &ModuleImage, wanted: &'a [&'a str]) -> Calls<'a> {
        Calls { unit: Unit::module(image), wanted, known: RefCell::default() }
    }

    /// A wanted call that every way makes which returns from the function at an offset of a section; `None` where one
    /// way makes none, or where no function begins there.
    pub fn always(&self, section: usize, offset: u64) -> Option<Call> {
        let start = Unit::address(section, offset);
        let function = self.unit.function_at(start)?;
        (self.unit.functions()[function].start == start).then(|| self.of(function, 0)).flatten()
    }

    fn of(&self, function: usize, depth: usize) -> Option<Call> {
        if depth > MAX_DEPTH {
            return None;
        }
        if let Some(known) = self.known.borrow().get(&function) {
            return known.clone();
        }
        self.known.borrow_mut().insert(function, None);
        let found = body(&self.unit, function).and_then(|body| self.unavoidable(function, depth, &body));
        self.known.borrow_mut().insert(function, found.clone());
        found
    }

    /// Follows all ways, each up to a wanted call. Nothing is found where one reaches the end without it.
    fn unavoidable(&self, function: usize, depth: usize, body: &Body) -> Option<Call> {
        let mut found = None;
        let mut seen = vec![false; body.blocks.len()];
        let mut waiting = vec![0];
        while let Some(at) = waiting.pop() {
            let block = body.blocks.get(at)?;
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            let mut code = body.code[block.range.0..block.range.1].iter();
            match code.find_map(|insn| self.call(function, depth, insn)) {
                Some(call) => found = Some(call),
                None if block.next.is_empty() => return None,
                None => waiting.extend(&block.next),
            }
        }
        found
    }

    fn call(&self, function: usize, depth: usize, insn: &Instruction) -> Option<Call> {
        // The way on, and parts of the function elsewhere, are among its blocks.
        if insn.flow_control() == FlowControl::ConditionalBranch {
            return None;
        }
        match callee(&self.unit, insn)? {
            Callee::Extern(name) if self.wanted.contains(&name.as_str()) => {
                let by = self.unit.functions()[function].names.first().cloned().unwrap_or_default();
                Some(Call { by, function: name })
            }
            Callee::Local(other) if !self.unit.functions()[other].is_part() => self.of(other, depth + 1),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the first function always calls `gone`. Each call of it is given by its function and offset.
    fn always(code: &[(&str, &[u8])], calls: &[(usize, u64)]) -> Option<String> {
        let imports: Vec<_> = calls.iter().map(|(function, offset)| (*function, *offset, "gone")).collect();
        let unit = Unit::of_code(code, &imports);
        let calls = Calls { unit, wanted: &["gone"], known: RefCell::default() };
        calls.of(0, 0).map(|call| call.by)
    }

    #[test]
    fn a_call_on_every_way_is_found() {
        // call gone; ret
        assert_eq!(always(&[("f", &[0xe8, 0, 0, 0, 0, 0xc3])], &[(0, 1)]).as_deref(), Some("f"));
        // jmp gone
        assert_eq!(always(&[("f", &[0xe9, 0, 0, 0, 0])], &[(0, 1)]).as_deref(), Some("f"));
        // test edi,edi; je 1f; call gone; ret; 1: call gone; ret
        let both = [0x85, 0xff, 0x74, 6, 0xe8, 0, 0, 0, 0, 0xc3, 0xe8, 0, 0, 0, 0, 0xc3];
        assert_eq!(always(&[("f", &both)], &[(0, 5), (0, 11)]).as_deref(), Some("f"));
    }

    #[test]
    fn a_call_that_one_way_avoids_is_none() {
        // test edi,edi; je 1f; call gone; 1: ret
        let avoids = [0x85, 0xff, 0x74, 5, 0xe8, 0, 0, 0, 0, 0xc3];
        assert_eq!(always(&[("f", &avoids)], &[(0, 5)]), None);
        // jne gone; ret
        assert_eq!(always(&[("f", &[0x0f, 0x85, 0, 0, 0, 0, 0xc3])], &[(0, 2)]), None);
        // ret
        assert_eq!(always(&[("f", &[0xc3])], &[]), None);
    }

    #[test]
    fn calls_of_the_module_are_followed() {
        // f at 0x1000 calls g at 0x2000, which calls gone.
        let to_g = [0xe8, 0xfb, 0x0f, 0, 0, 0xc3];
        let code: [(&str, &[u8]); 2] = [("f", &to_g), ("g", &[0xe8, 0, 0, 0, 0, 0xc3])];
        assert_eq!(always(&code, &[(1, 1)]).as_deref(), Some("g"));
        // f calls itself, and then gone.
        let own = [0xe8, 0xfb, 0xff, 0xff, 0xff, 0xe8, 0, 0, 0, 0, 0xc3];
        assert_eq!(always(&[("f", &own)], &[(0, 6)]).as_deref(), Some("f"));
    }

    #[test]
    fn a_chain_of_calls_has_a_limit() {
        // Each function calls the next one, which begins 0x1000 behind it.
        let code: Vec<(&str, &[u8])> = vec![("f", &[0xe8, 0xfb, 0x0f, 0, 0, 0xc3]); 10_000];
        assert_eq!(always(&code, &[(9_999, 1)]), None);
        assert_eq!(always(&code[..50], &[(49, 1)]).as_deref(), Some("f"));
    }

    #[test]
    fn a_way_without_an_end_does_not_count() {
        // 1: test edi,edi; jne 1b; call gone; ret
        let spins = [0x85, 0xff, 0x75, 0xfc, 0xe8, 0, 0, 0, 0, 0xc3];
        assert_eq!(always(&[("f", &spins)], &[(0, 5)]).as_deref(), Some("f"));
    }
}
