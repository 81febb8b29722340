//! A pass that logs what a driver does: what it loads and stores, what it calls, and where its functions
//! begin and end.
//! The runtime's `guardrail_event()` (`runtime/include/guardrail_abi.h`) receives the events, and passes them
//! to the handlers that register there.
//!
//! **Knows**: what an instruction reads, writes and calls.
//!
//! **Must not know**: who receives the events.
//!
//! **Invariants**: each event is logged before it happens. What cannot be logged is counted
//! ([`Trace::silent`]).
//!
//! The pass leaves out stores and loads of `push`, `pop`, `call` and `ret`, and what instructions do that the
//! kernel replaces.

use crate::border::guard;
use crate::border::runtime::Exports;
use crate::engine::code::{Insn, bit};
use crate::engine::emit::Operand;
use crate::engine::object::Object;
use crate::engine::pass::{FunctionView, Pass};
use crate::engine::patch::Patch;
use crate::engine::tables::{RETURN_THUNK, TRACER, thunk_register};
use crate::error::Result;
use crate::passes::asks::Asks;
use crate::passes::thunks::{Ask, Thunks};
use guardrail_abi as abi;
use iced_x86::{
    FlowControl, Instruction, InstructionInfo, InstructionInfoFactory, OpAccess, OpKind, Register,
};
use std::collections::BTreeSet;

/// What the pass can log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// Memory is about to be read.
    Load,
    /// Memory is about to be written.
    Store,
    /// A function is about to be called; the event has its address where a pointer names it.
    Call,
    /// A function has been entered.
    Entry,
    /// A function is about to be left.
    Exit,
}

impl Event {
    /// All events, in the order of their counts.
    pub const ALL: [Event; 5] = [Event::Load, Event::Store, Event::Call, Event::Entry, Event::Exit];

    /// The number by which the runtime knows it.
    fn number(self) -> u8 {
        match self {
            Event::Load => abi::EVENT_LOAD,
            Event::Store => abi::EVENT_STORE,
            Event::Call => abi::EVENT_CALL,
            Event::Entry => abi::EVENT_ENTRY,
            Event::Exit => abi::EVENT_EXIT,
        }
    }
}

/// The pass, with what it counts for one module.
#[derive(Debug)]
pub struct Trace {
    events: BTreeSet<Event>,
    thunks: Thunks,
    runtime: Exports,
    /// Places of each kind that log, in the order of [`Event::ALL`].
    pub logged: [usize; 5],
    /// Places that cannot log: the kernel replaces them, or they do what has no address of its own.
    pub silent: usize,
}

/// One event to log at an instruction.
struct Logged {
    event: Event,
    address: Address,
}

/// Where something happens.
#[derive(Clone, Copy)]
enum Address {
    /// At no address but the instruction's.
    Here,
    /// At so many bytes from an operand on, or from the CPU's own variables.
    At(Operand, u32, bool),
    /// At what a register points to: RCX elements of a size, 2 to this power.
    Elements(Register, u32),
    /// At the address in a register.
    Register(Register),
    /// At the address in memory.
    Memory(Operand),
}

impl Trace {
    /// Logs these events.
    pub fn new(events: impl IntoIterator<Item = Event>, runtime: &Exports) -> Trace {
        let (events, runtime) = (events.into_iter().collect(), runtime.clone());
        Trace { events, thunks: Thunks::default(), runtime, logged: [0; 5], silent: 0 }
    }

    fn patch(&mut self, view: &FunctionView<'_>, number: u32, logged: &Logged) -> Result<Patch> {
        let needed = view.needed(number);
        let mut asks = Asks { thunks: &mut self.thunks, needed, site: number };
        let event = logged.event.number();
        let built = match logged.address {
            Address::Here => asks.ask(Ask::Event(event, None, 0)),
            Address::Elements(register, shift) => asks.ask(Ask::Elements(event, register, shift)),
            Address::Register(register) => asks.ask(Ask::Event(event, Some(register), 0)),
            Address::At(operand, size, per_cpu) => {
                let event = if per_cpu { event | abi::EVENT_PERCPU } else { event };
                asks.operand(operand, Operand::address, |register| Ask::Event(event, Some(register), size))
            }
            Address::Memory(operand) => {
                asks.operand(operand, Operand::value, |register| Ask::Event(event, Some(register), 0))
            }
        }?;
        self.logged[logged.event as usize] += 1;
        Ok(built.patch)
    }
}

impl Pass for Trace {
    fn name(&self) -> &'static str {
        "events"
    }

    fn prepare(&mut self, object: &mut Object) -> Result<()> {
        self.thunks = Thunks::for_events(object);
        Ok(())
    }

    fn function(&mut self, view: &FunctionView<'_>) -> Result<Vec<(u32, Patch)>> {
        let mut factory = InstructionInfoFactory::new();
        let mut patches = Vec::new();
        let first = entry(view);
        for number in view.function.insns.clone() {
            let insn = view.insn(number);
            let mut all = Vec::new();
            if first == Some(number) {
                all.push(Logged { event: Event::Entry, address: Address::Here });
            }
            self.silent += accesses(view, insn, factory.info(&insn.insn), &mut all)?;
            self.silent += flow(view, insn, &mut all)?;
            all.retain(|logged| self.events.contains(&logged.event));
            if insn.fixed {
                self.silent += all.len();
                continue;
            }
            for logged in all {
                patches.push((number, self.patch(view, number, &logged)?));
            }
        }
        Ok(patches)
    }

    fn finish(&mut self, object: &mut Object) -> Result<()> {
        std::mem::take(&mut self.thunks).finish(object);
        guard::depend(object);
        guard::add_versions(object, &self.runtime)
    }
}

/// The first instruction of a function that others may stand in front of, if nothing in the function jumps
/// there.
fn entry(view: &FunctionView<'_>) -> Option<u32> {
    if part(view.name()) {
        return None;
    }
    let range = view.function.insns.clone();
    let first = range.clone().find(|&number| !view.insn(number).fixed)?;
    let again = range.clone().any(|number| view.insn(number).target == Some(first));
    (!again).then_some(first)
}

/// Adds what an instruction loads and stores to `all`; returns 1 where that cannot be logged, else 0.
fn accesses(
    view: &FunctionView<'_>,
    insn: &Insn,
    info: &InstructionInfo,
    all: &mut Vec<Logged>,
) -> Result<usize> {
    let decoded = &insn.insn;
    let size = decoded.memory_size().size() as u32;
    let mut log = |address: Address, access: OpAccess| {
        let (reads, writes) = directions(access);
        let events = [(reads, Event::Load), (writes, Event::Store)];
        let happening = events.into_iter().filter(|(happens, _)| *happens);
        all.extend(happening.map(|(_, event)| Logged { event, address }));
    };
    if decoded.is_string_instruction() {
        let repeats = decoded.has_rep_prefix() || decoded.has_repne_prefix();
        for memory in info.used_memory() {
            if !memory.base().is_gpr64() || !size.is_power_of_two() {
                return Ok(1);
            }
            log(
                match repeats {
                    true => Address::Elements(memory.base(), size.trailing_zeros()),
                    false => Address::At(Operand::at(memory.base()), size, false),
                },
                memory.access(),
            );
        }
        return Ok(0);
    }
    let explicit = (0..decoded.op_count()).filter(|&operand| decoded.op_kind(operand) == OpKind::Memory);
    for operand in explicit {
        let access = info.op_access(operand);
        if directions(access) == (false, false) || calls(decoded) {
            continue;
        }
        let odd = size == 0
            || bit(decoded).is_some()
            || decoded.memory_index().is_vector_register()
            || decoded.segment_prefix() == Register::FS;
        if odd {
            return Ok(1);
        }
        let section = view.section();
        let place = Operand::of(decoded, insn.displacement_reloc(section))?;
        log(Address::At(place, size, decoded.segment_prefix() == Register::GS), access);
    }
    Ok(0)
}

/// Whether memory is read, and whether it is written.
fn directions(access: OpAccess) -> (bool, bool) {
    match access {
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        OpAccess::None | OpAccess::NoMemAccess => (false, false),
    }
}

/// Whether it is a call or a jump to an address in memory, of which the load is a part.
fn calls(insn: &Instruction) -> bool {
    matches!(insn.flow_control(), FlowControl::IndirectCall | FlowControl::IndirectBranch)
}

/// Adds calls of an instruction to `all`, and whether it leaves the function; returns 1 where that depends on
/// a condition, else 0.
fn flow(view: &FunctionView<'_>, insn: &Insn, all: &mut Vec<Logged>) -> Result<usize> {
    let decoded = &insn.insn;
    let section = view.section();
    let name = insn.names(view.object, section);
    let call = |address| Logged { event: Event::Call, address };
    let exit = || Logged { event: Event::Exit, address: Address::Here };
    let direct = || thunk_register(name).map_or(Address::Here, Address::Register);
    match decoded.flow_control() {
        FlowControl::Return => all.push(exit()),
        FlowControl::UnconditionalBranch if name == RETURN_THUNK => all.push(exit()),
        // The compiler added this call; it is not the driver's own.
        FlowControl::Call if name == TRACER => {}
        FlowControl::Call => all.push(call(direct())),
        FlowControl::UnconditionalBranch if leaves(view, insn) => all.extend([call(direct()), exit()]),
        FlowControl::ConditionalBranch if leaves(view, insn) => return Ok(1),
        // With that prefix it is a jump by a table, which stays in the function.
        FlowControl::IndirectBranch if decoded.segment_prefix() == Register::DS => {}
        FlowControl::IndirectCall | FlowControl::IndirectBranch => {
            let address = match decoded.op0_kind() {
                OpKind::Register => Address::Register(decoded.op0_register()),
                OpKind::Memory => Address::Memory(Operand::of(decoded, insn.displacement_reloc(section))?),
                _ => Address::Here,
            };
            all.push(call(address));
            if decoded.flow_control() == FlowControl::IndirectBranch {
                all.push(exit());
            }
        }
        _ => {}
    }
    Ok(0)
}

/// Whether a branch leads to another function: to where one begins, and not to a part that is no function by
/// itself.
fn leaves(view: &FunctionView<'_>, insn: &Insn) -> bool {
    let section = view.section();
    let target = match insn.target {
        // Most branches stay where they are.
        Some(target) if view.function.insns.contains(&target) => return false,
        Some(target) => Some((view.code.section, view.insn(target).at.into())),
        None => {
            let Some(reloc) = insn.relocs(section).first() else { return false };
            view.object.target(reloc.symbol, reloc.addend.wrapping_add(insn.bias(reloc)))
        }
    };
    let Some((section, offset)) = target else { return true };
    let own = &view.object.symbols[view.function.symbol];
    let mut there =
        view.object.symbols.iter().filter(|symbol| {
            symbol.function() && symbol.section() == Some(section) && symbol.value == offset
        });
    (own.section(), own.value) != (Some(section), offset) && there.any(|symbol| !part(&symbol.name))
}

/// Whether the name is that of a part: the compiler puts what is rarely run of a function elsewhere.
fn part(name: &str) -> bool {
    name.ends_with(".cold") || name.contains(".cold.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::object::reloc;
    use crate::passes::checks::Checks;
    use crate::tests::{Module, TEXT, listing};

    /// endbr64; mov rax,[rdi+8]; add [rsi],rax; push rbx; rep movsq; call rax; mov gs:[8],rcx; pop rbx; jmp elsewhere
    const CODE: [u8; 37] = [
        0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x8b, 0x47, 0x08, 0x48, 0x01, 0x06, 0x53, 0xf3, 0x48, 0xa5, 0xff, 0xd0,
        0x65, 0x48, 0x89, 0x0c, 0x25, 0x08, 0, 0, 0, 0x5b, 0xe9, 0, 0, 0, 0, 0x66, 0x90, 0x66, 0x90, 0x90,
    ];

    fn module() -> Module {
        let mut module = Module::new(&CODE);
        module.reloc(TEXT, 28, reloc::PLT32, 4, -4);
        module
    }

    #[test]
    fn each_event_has_its_address() {
        let mut trace = Trace::new(Event::ALL, &Exports::default());
        let rewritten = module().rewrite(&mut trace).unwrap();
        // The tail call logs both that it calls, and that the function is left.
        assert_eq!((trace.logged, trace.silent), ([3, 3, 2, 1, 1], 0));
        let object = Object::read("result", &rewritten.file).unwrap();
        insta::assert_snapshot!(listing(&object, TEXT));
        let thunks = object.section(crate::passes::thunks::EVENTS).unwrap();
        insta::assert_snapshot!("thunks", listing(&object, thunks));
    }

    #[test]
    fn only_what_is_asked_for_is_logged() {
        let mut trace = Trace::new([Event::Exit], &Exports::default());
        module().rewrite(&mut trace).unwrap();
        assert_eq!(trace.logged, [0, 0, 0, 0, 1]);
    }

    #[test]
    fn a_module_can_be_checked_and_traced() {
        let (mut checks, mut trace) = (Checks::new(1), Trace::new([Event::Store], &Exports::default()));
        let file = module().0.write().unwrap();
        let rewritten = crate::rewrite("made.ko", file, &mut [&mut checks, &mut trace]).unwrap();
        assert_eq!((checks.stores.checked, trace.logged), (3, [0, 3, 0, 0, 0]));
        let object = Object::read("result", &rewritten.file).unwrap();
        for section in [crate::passes::thunks::SECTION, crate::passes::thunks::EVENTS] {
            assert!(object.section(section).is_some(), "{section}");
        }
    }
}
