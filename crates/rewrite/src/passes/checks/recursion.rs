//! Functions that may come to call themselves by calls and jumps of the module's own code. Calls by pointer lead
//! through entries, where the runtime looks at the stack itself.

use crate::engine::code::{At, Code, Insn};
use crate::engine::object::Object;
use crate::engine::pass::FunctionView;
use iced_x86::FlowControl;
use std::collections::{BTreeMap, BTreeSet};

/// Where functions begin, and the functions that each calls or continues in.
type Calls = BTreeMap<At, BTreeSet<At>>;

/// The functions on circles of calls, and those between two circles, each by its first instruction.
pub fn recursive(object: &Object, codes: &[Code]) -> BTreeSet<At> {
    let mut calls = calls(object, codes);
    // What calls nothing, or only what is on no circle, is on none; nor is what nothing calls.
    while shrink(&mut calls) {}
    calls.into_keys().collect()
}

/// The instruction of a function in front of which its stack can be looked at.
pub fn entered(view: &FunctionView<'_>) -> Option<u32> {
    let mut insns = view.function.insns.clone();
    insns.find(|&number| !view.insn(number).fixed).filter(|&number| !view.needed(number).has_flags())
}

/// Drops functions that call none of the others, and those that none of the others calls.
fn shrink(calls: &mut Calls) -> bool {
    let before = calls.len();
    let callers: BTreeSet<At> = calls.values().flatten().copied().collect();
    calls.retain(|function, called| !called.is_empty() && callers.contains(function));
    let left: BTreeSet<At> = calls.keys().copied().collect();
    for called in calls.values_mut() {
        called.retain(|function| left.contains(function));
    }
    calls.len() < before
}

fn calls(object: &Object, codes: &[Code]) -> Calls {
    let mut calls = Calls::new();
    for code in codes {
        for function in &code.functions {
            let leads = |number: u32| {
                let insn = &code.insns[number as usize];
                let begin = begin_of(codes, target(object, code, insn)?)?;
                let own = begin == (code.section, function.insns.start);
                (!own || insn.insn.flow_control() == FlowControl::Call).then_some(begin)
            };
            let called = function.insns.clone().filter_map(leads).collect();
            calls.insert((code.section, function.insns.start), called);
        }
    }
    calls
}

/// Where a direct call or jump leads, in the module's own code.
fn target(object: &Object, code: &Code, insn: &Insn) -> Option<(usize, u64)> {
    use FlowControl::{Call, ConditionalBranch, UnconditionalBranch};
    if !matches!(insn.insn.flow_control(), Call | ConditionalBranch | UnconditionalBranch) {
        return None;
    }
    if let Some(target) = insn.target {
        return Some((code.section, u64::from(code.insns[target as usize].at)));
    }
    let section = &object.sections[code.section];
    let reloc = insn.relocs(section).first()?;
    object.target(reloc.symbol, reloc.addend + insn.bias(reloc))
}

/// The function around a place, by its first instruction.
fn begin_of(codes: &[Code], (section, offset): (usize, u64)) -> Option<At> {
    let code = Code::find(codes, section)?;
    Some((section, code.function_of(code.holding(offset)?)?.insns.start))
}
