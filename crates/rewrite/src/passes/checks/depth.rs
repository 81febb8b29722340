//! How much a function has on its stack at each instruction, to find returns to an address that it pushed.

use crate::engine::code::{Code, Function, Insn};
use iced_x86::{FlowControl, InstructionInfoFactory, Mnemonic, OpKind, Register};
use std::collections::BTreeMap;

/// Bytes that the function has pushed; `None` where ways with different numbers meet, or the stack pointer is
/// set by other means.
type Depth = Option<i64>;

/// The first return of a function that finds something of the function's own on the stack.
pub fn pushed(code: &Code, function: &Function) -> Option<u32> {
    let mut depths: BTreeMap<u32, Depth> = BTreeMap::new();
    let mut open = vec![(function.insns.start, Some(0))];
    while let Some((number, new)) = open.pop() {
        if !function.insns.contains(&number) {
            continue;
        }
        let merged = match depths.get(&number) {
            Some(old) if *old == new || old.is_none() => continue,
            Some(_) => None,
            None => new,
        };
        depths.insert(number, merged);
        let insn = &code.insns[number as usize];
        let after = merged.and_then(|depth| behind(function, insn, depth));
        if insn.falls_through() {
            open.push((number + 1, after));
        }
        if let Some(target) = insn.target.filter(|_| insn.insn.flow_control() != FlowControl::Call) {
            open.push((target, after));
        }
    }
    let returns = |number: &u32| code.insns[*number as usize].insn.flow_control() == FlowControl::Return;
    depths
        .into_iter()
        .find(|(number, depth)| depth.is_some_and(|depth| depth > 0) && returns(number))
        .map(|(number, _)| number)
}

/// The depth behind an instruction.
fn behind(function: &Function, insn: &Insn, depth: i64) -> Depth {
    let decoded = &insn.insn;
    let own_stack = decoded.op_count() == 2
        && decoded.op0_kind() == OpKind::Register
        && decoded.op0_register() == Register::RSP;
    match decoded.mnemonic() {
        // Such a call is no call: it leads into the function itself.
        Mnemonic::Call => {
            (!insn.target.is_some_and(|target| function.insns.contains(&target))).then_some(depth)
        }
        Mnemonic::Add if own_stack => decoded.try_immediate(1).ok().map(|by| depth - by as i64),
        Mnemonic::Sub if own_stack => decoded.try_immediate(1).ok().map(|by| depth + by as i64),
        Mnemonic::Lea
            if own_stack
                && decoded.memory_base() == Register::RSP
                && decoded.memory_index() == Register::None =>
        {
            Some(depth - decoded.memory_displacement64() as i64)
        }
        Mnemonic::Leave | Mnemonic::Enter => None,
        _ if decoded.is_stack_instruction()
            && !(decoded.op_count() > 0
                && decoded.op0_kind() == OpKind::Register
                && decoded.op0_register() == Register::RSP) =>
        {
            Some(depth - i64::from(decoded.stack_pointer_increment()))
        }
        _ => {
            let mut info = InstructionInfoFactory::new();
            let sets = info.info(decoded).used_registers().iter().any(|used| {
                used.register().full_register() == Register::RSP && crate::engine::code::writes(used.access())
            });
            (!sets).then_some(depth)
        }
    }
}
