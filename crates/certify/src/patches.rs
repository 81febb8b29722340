//! What the kernel changes in code when it loads a module: its tables must name whole instructions, and what
//! stands there must be what they say.

use crate::elf::{Place, Target};
use crate::graph::{NONE, Node, Number};
use crate::module::Module;
use crate::tables::{self, Patched};
use iced_x86::{Code, FlowControl, Mnemonic, OpKind, Register};

/// Code that control can reach, in order.
struct Living<'a, 'm> {
    module: &'a Module<'m>,
    numbers: Vec<Number>,
}

impl<'a, 'm> Living<'a, 'm> {
    fn of(module: &'a Module<'m>) -> Living<'a, 'm> {
        let graph = &module.graph;
        let mut numbers: Vec<Number> =
            (0..graph.nodes.len() as Number).filter(|number| graph.live[*number as usize]).collect();
        numbers.sort_unstable_by_key(|number| graph.nodes[*number as usize].place);
        Living { module, numbers }
    }

    fn node(&self, number: Number) -> &'a Node {
        &self.module.graph.nodes[number as usize]
    }

    /// Whether a place lies within an instruction, and not at its begin.
    fn within(&self, place: Place) -> bool {
        let after = self.numbers.partition_point(|number| self.node(*number).place <= place);
        let before = after.checked_sub(1).map(|before| self.node(self.numbers[before]));
        before.is_some_and(|node| node.place.0 == place.0 && node.place < place && place < node.behind())
    }
}

/// What the kernel patches must be what its tables say.
pub fn patches(module: &Module<'_>, faults: &mut Vec<String>) {
    let living = Living::of(module);
    patched(module, &living, faults);
    replaced(module, &living, faults);
    paravirtual(module, faults);
}

/// The kernel replaces whole instructions, and control comes to them by the first of them alone.
fn replaced(module: &Module<'_>, living: &Living<'_, '_>, faults: &mut Vec<String>) {
    for (from, to) in &module.tables.replaced {
        if living.within(*from) || living.within(*to) {
            let place = module.elf.name(*from);
            faults.push(format!("{place}: the kernel replaces a part of an instruction"));
        }
    }
    let graph = &module.graph;
    // The range that a place is in, behind its begin.
    let behind = |place: Place| {
        let after = module.tables.replaced.partition_point(|range| range.0 < place);
        let near = module.tables.replaced[..after].iter().rev().take(8);
        near.copied().find(move |range| range.0 < place && place < range.1)
    };
    let mut wrong = |to: Number, from: Option<Place>| {
        let place = graph.nodes[to as usize].place;
        let range = behind(place).filter(|range| from.is_none_or(|from| from < range.0 || from >= range.1));
        if range.is_some() {
            let place = module.elf.name(place);
            faults.push(format!("{place}: control comes to the middle of what the kernel replaces"));
        }
    };
    graph.roots.iter().for_each(|root| wrong(*root, None));
    for number in &living.numbers {
        let from = living.node(*number).place;
        graph.ways(*number).filter(|way| way.1 != NONE).for_each(|(_, to)| wrong(to, Some(from)));
    }
    for number in living.numbers.iter().copied() {
        let node = living.node(number);
        if module.elf.sections[node.place.0 as usize].name == tables::REPLACEMENTS && moves(module, node) {
            let place = module.elf.name(node.place);
            faults.push(format!("{place}: `{}` does something else where it is copied to", node.insn));
        }
    }
}

/// Whether code does something else where the kernel copies it to: what it names counts from its own place. The
/// kernel mends the first branch.
fn moves(module: &Module<'_>, node: &Node) -> bool {
    let first = module.tables.replacements.values().flatten().any(|one| one.code == Some(node.place));
    let near = (0..node.insn.op_count()).any(|operand| node.insn.op_kind(operand) == OpKind::NearBranch64);
    if near {
        let direct = matches!(node.insn.code(), Code::Call_rel32_64 | Code::Jmp_rel32_64 | Code::Jmp_rel8_64);
        return !(first && direct);
    }
    node.insn.is_ip_rel_memory_operand()
}

/// Paravirtual calls take their targets from the kernel's table, each at its own place.
fn paravirtual(module: &Module<'_>, faults: &mut Vec<String>) {
    for (place, row) in &module.tables.paravirtual {
        let node = module.graph.at(*place).map(|number| &module.graph.nodes[number as usize]);
        let Some(node) = node else { continue };
        let calls = node.insn.flow_control() == FlowControl::IndirectCall
            && node.insn.op0_kind() == OpKind::Memory
            && node.insn.memory_index() == Register::None;
        let named = module.named_memory(node);
        let good = matches!(named, Some((Target::Import(import), off))
            if module.elf.import(import) == "pv_ops" && off == 8 * i64::from(*row));
        if !(calls && good) {
            let place = module.elf.name(*place);
            faults.push(format!("{place}: the kernel calls another function than `{}`", node.insn));
        }
    }
}

/// What the kernel patches by itself.
fn patched(module: &Module<'_>, living: &Living<'_, '_>, faults: &mut Vec<String>) {
    for (place, what) in &module.tables.patched {
        if living.within(*place) {
            faults.push(format!("{}: the kernel patches a part of an instruction", module.elf.name(*place)));
        }
        let Some(number) = module.graph.at(*place).filter(|number| module.graph.live[*number as usize])
        else {
            continue;
        };
        let node = &module.graph.nodes[number as usize];
        let (insn, imported) = (&node.insn, module.imported(node).unwrap_or_default());
        let direct = matches!(insn.code(), Code::Call_rel32_64 | Code::Jmp_rel32_64);
        let empty = insn.mnemonic() == Mnemonic::Nop && insn.len() == 5;
        let good = match what {
            Patched::Tracer => {
                empty || (direct && imported == tables::TRACER) || insn.mnemonic() == Mnemonic::Nop
            }
            Patched::Return => direct && imported == tables::RETURN_THUNK,
            Patched::Indirect => tables::indirect(imported).is_some(),
            Patched::StaticCall => direct || node.to.is_some(),
            Patched::Lock => insn.has_lock_prefix() || insn.mnemonic() == Mnemonic::Xchg,
            Patched::Endbr => insn.code() == Code::Endbr64,
            Patched::Branch => insn.mnemonic() == Mnemonic::Nop || matches!(insn.mnemonic(), Mnemonic::Jmp),
        };
        if !good {
            faults.push(format!(
                "{}: the kernel patches `{insn}`, which is something else",
                module.elf.name(*place)
            ));
        }
    }
}
