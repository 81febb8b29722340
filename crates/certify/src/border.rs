//! What must be proven of the thunks at the border, and of those that ask the runtime.

use crate::data;
use crate::elf::Target;
use crate::graph::{Dest, Number};
use crate::mode::{Ask, Mode};
use crate::state::{ARGUMENTS, Fact, RAX, RCX, RDI, RDX, RSI, RSP, State};
use crate::value::{Atom, Val};
use crate::walk::Walk;
use guardrail_abi::{self as abi, layout, symbol};

/// The distance from the return address to the arguments of a call.
const CALL: i64 = -(layout::call::CALLER as i64);
/// The same to the record of an entry.
pub const RECORD: i64 = CALL - layout::record::CALL as i64;
const RESULT: i64 = CALL + layout::call::RESULT as i64;
const SECOND: i64 = CALL + layout::call::SECOND as i64;

impl Walk<'_, '_> {
    /// An address on the stack, by its distance from the return address.
    fn on_stack(&mut self, distance: i64) -> Val {
        self.values.atom(Atom::Init(RSP)).plus(distance)
    }

    /// A thunk calls something.
    pub fn border_call(&mut self, at: Number, to: Dest, state: &mut State) {
        match (self.module.mode(at), to) {
            (Mode::Own, _) => {}
            (Mode::Ask, Dest::Import(import)) => {
                self.slow(at, import, state);
                state.show(Fact::Asked);
            }
            (Mode::Call, Dest::Import(import)) => {
                let name = self.module.elf.import(import);
                if data::is_action(name) {
                    self.action(at, name, state);
                } else if name.starts_with(abi::PREFIX) {
                    self.fault(at, format!("a thunk calls {name}"));
                } else {
                    self.function(at, import, state);
                }
            }
            (Mode::Entry, Dest::Import(import)) => {
                let name = self.module.elf.import(import);
                if name == symbol::ENTER {
                    self.enter(at, state);
                } else if name == symbol::LEAVE {
                    self.leave(at, state);
                } else if data::is_action(name) {
                    self.action(at, name, state);
                } else {
                    self.fault(at, format!("the thunk of an entry calls {name}"));
                }
            }
            (Mode::Entry, Dest::Code(to)) => {
                if self.last {
                    self.found.functions.push((to, self.root));
                }
                self.entered(at, state);
            }
            (Mode::Ask | Mode::Call | Mode::Life, _) => self.fault(at, "a thunk calls what it must not"),
        }
    }

    /// A thunk, or another function, jumps to an import.
    pub fn border_jump(&mut self, at: Number, import: u32, state: &State) {
        let name = self.module.elf.import(import);
        match self.module.mode(at) {
            Mode::Own => {}
            Mode::Call if !name.starts_with(abi::PREFIX) => {
                if self.last {
                    self.found.wrapped.push((import, self.root));
                    self.all_done(at, state);
                    if self.after.iter().any(|row| !self.module.data.transacts(*row)) {
                        self.fault(at, "a thunk leaves out actions behind its call");
                    }
                }
                for (number, register) in (0..).zip(ARGUMENTS) {
                    self.passes(at, number, state.regs[usize::from(register)]);
                }
            }
            Mode::Life if name == symbol::MODULE_ENTER || name == symbol::MODULE_LEAVE => {
                let description = self.module.description;
                let wanted = self.values.atom(Atom::Address(Target::In(description)));
                if state.regs[usize::from(RDI)] != wanted {
                    self.fault(at, "a stub passes what is not the module's description");
                }
                if self.last {
                    self.found.stubs.push((self.root, import));
                }
            }
            _ => self.fault(at, format!("a thunk jumps to {name}")),
        }
    }

    /// A thunk returns.
    pub fn border_return(&mut self, at: Number, state: &State) {
        match self.module.mode(at) {
            Mode::Own => {}
            Mode::Ask => {
                let changed = (0..16u8).any(|register| {
                    let answers = self.asked == Some(Ask::Call(register));
                    let whole = self.values.atom(Atom::Init(register));
                    let value = state.regs[usize::from(register)];
                    match self.values.single(value).filter(|_| answers && value.off == 0) {
                        Some(Atom::Fresh(call, RAX)) => !self.node(call).calls(),
                        _ => answers || value != whole,
                    }
                });
                if changed || self.asked.is_none() || !state.shows(Fact::Asked) {
                    self.fault(at, "a thunk that asks the runtime changes registers, or does not ask");
                }
            }
            Mode::Call => {
                if !state.shows(Fact::Called) {
                    self.fault(at, "a thunk returns without having called its function");
                }
                self.after_done(at, state);
                self.gives(at, state);
            }
            Mode::Entry => {
                if !state.shows(Fact::Closed) {
                    self.fault(at, "the thunk of an entry returns without having left it");
                }
                self.gives(at, state);
            }
            Mode::Life => self.fault(at, "a stub returns without the runtime"),
        }
    }

    /// A thunk returns the result in its record.
    fn gives(&mut self, at: Number, state: &State) {
        for (register, distance) in [(RAX, RESULT), (RDX, SECOND)] {
            let place = self.on_stack(distance);
            let value = state.regs[usize::from(register)];
            let good = match self.values.single(value) {
                Some(Atom::Loaded(from, _)) => from == place && value.off == 0,
                _ => state.slot(place) == Some(value),
            };
            if !good {
                self.fault(at, "a thunk does not return the result in its record");
            }
        }
    }

    /// A thunk asks the runtime's slow path.
    fn slow(&mut self, at: Number, import: u32, state: &State) {
        let name = self.module.elf.import(import);
        let known = |register: u8| state.regs[usize::from(register)].known();
        let init = |walk: &Self, register: u8| {
            let value = state.regs[usize::from(register)];
            match walk.values.single(value).filter(|_| value.off == 0) {
                Some(Atom::Init(number)) => Some(number),
                _ => None,
            }
        };
        let (domain, ip) = match name {
            symbol::WRITE_SLOW | symbol::RANGE_SLOW | symbol::PERCPU_SLOW | symbol::BEYOND_SLOW => (RDX, RCX),
            symbol::CALL_SLOW | symbol::FRAME_SLOW => (RSI, RDX),
            symbol::LOOP_SLOW | symbol::PORT_SLOW => (RDI, RSI),
            symbol::EVENT => (RSP, RCX),
            _ => return self.fault(at, format!("a thunk that asks calls {name}")),
        };
        let ask = match name {
            symbol::WRITE_SLOW => init(self, RDI).zip(known(RSI)).map(|(at, size)| Ask::Write(at, size)),
            symbol::PERCPU_SLOW => init(self, RDI).zip(known(RSI)).map(|(at, size)| Ask::PerCpu(at, size)),
            symbol::CALL_SLOW => init(self, RDI).map(Ask::Call),
            symbol::RANGE_SLOW => {
                let count = self.values.atom(Atom::Init(RCX)).base;
                match self.values.terms(state.regs[usize::from(RSI)]).as_slice() {
                    [(base, factor @ (1 | 2 | 4 | 8 | 16))]
                        if *base == count
                            && state.regs[usize::from(RSI)].off == 0
                            && init(self, RDI) == Some(RDI) =>
                    {
                        Some(Ask::Range(factor.trailing_zeros() as u8))
                    }
                    _ => None,
                }
            }
            _ => Some(Ask::Other),
        };
        let own = name == symbol::EVENT || known(domain) == Some(i64::from(self.module.domain));
        let back = self.values.atom(Atom::Return);
        let far = self.values.atom(Atom::Distance(back.plus(1)));
        let site = self.values.add(back, far).map(|site| site.plus(5));
        match ask {
            Some(ask) if own && Some(state.regs[usize::from(ip)]) == site => {
                if self.asked.is_some_and(|asked| asked != ask) {
                    self.fault(at, "a thunk asks twice");
                }
                self.asked = Some(ask);
            }
            _ => self.fault(at, format!("a thunk calls {name} with other arguments")),
        }
    }

    /// A thunk performs an action.
    fn action(&mut self, at: Number, name: &str, state: &mut State) {
        let wanted = self.on_stack(CALL);
        if state.regs[usize::from(RSI)] != wanted {
            self.fault(at, format!("{name} gets another record than the call's"));
        }
        let row = self.row(state.regs[usize::from(RDI)]);
        let Some(row) = row else {
            return self.fault(at, format!("{name} gets what is no action"));
        };
        if let Err(why) = self.module.data.action(row, name, self.module.domain) {
            self.fault(at, why);
        }
        let gives = self.module.mode(at) == Mode::Entry && !state.shows(Fact::Called);
        if self.module.data.of_entry(row) != gives {
            self.fault(at, format!("{name} gets an action for another place"));
        }
        if state.shows(Fact::Called) {
            self.after.insert(row);
        } else {
            self.before.insert((row, at));
        }
        if self.last {
            self.found.actions.push((row, self.root));
        }
        self.kept(at, state);
        state.show(Fact::Done(row));
    }

    /// The row of read-only data at an address.
    fn row(&self, value: Val) -> Option<u32> {
        match self.values.single(value) {
            Some(Atom::Address(Target::In(section))) if section == self.module.data.section => {
                u32::try_from(value.off).ok()
            }
            _ => None,
        }
    }

    /// At the first call of a thunk its record must hold the arguments.
    fn kept(&mut self, at: Number, state: &State) {
        let first =
            !state.facts.iter().any(|fact| matches!(fact, Fact::Done(_) | Fact::Called | Fact::Entered));
        if !first {
            return;
        }
        for (number, register) in (0..).zip(ARGUMENTS) {
            let (place, value) = (self.on_stack(CALL + 8 * number), self.values.atom(Atom::Init(register)));
            if state.slot(place) != Some(value) {
                self.fault(at, format!("a thunk's record lacks argument {}", number + 1));
            }
        }
    }

    /// An argument that a thunk passes must be the one that it got, or what its record holds.
    fn passes(&mut self, at: Number, number: i64, value: Val) {
        let register = ARGUMENTS[number as usize];
        let place = self.on_stack(CALL + 8 * number);
        let good = match self.values.single(value).filter(|_| value.off == 0) {
            Some(Atom::Init(own)) => own == register,
            Some(Atom::Loaded(from, _)) => from == place,
            _ => false,
        };
        if !good {
            self.fault(at, format!("a thunk passes another argument {}", number + 1));
        }
    }

    /// A thunk calls the function that it is for.
    fn function(&mut self, at: Number, import: u32, state: &mut State) {
        if self.last {
            self.found.wrapped.push((import, self.root));
        }
        self.all_done(at, state);
        for (number, register) in (0..).zip(ARGUMENTS) {
            self.passes(at, number, state.regs[usize::from(register)]);
        }
        self.stack_words(at, state);
        if state.shows(Fact::Called) {
            self.fault(at, "a thunk calls twice");
        }
        state.show(Fact::Called);
    }

    /// What stands on the stack at the call is what stands above the thunk's return address.
    fn stack_words(&mut self, at: Number, state: &State) {
        let record = if self.module.mode(at) == Mode::Entry { RECORD } else { CALL };
        let (sp, lowest) = (state.sp(), self.on_stack(record));
        let deep = lowest.off.checked_sub(sp.off).filter(|deep| *deep >= 0 && deep % 8 == 0);
        let Some(deep) = deep.filter(|_| sp.base == lowest.base) else {
            return self.fault(at, "a thunk calls while its stack is elsewhere");
        };
        for word in 0..deep / 8 {
            let there = self.on_stack(8 + 8 * word);
            let loaded = |value: Val| matches!(self.values.single(value), Some(Atom::Loaded(from, _)) if from == there && value.off == 0);
            // The size of the stack is the module's; what it holds is not more than its code has stored.
            if !state.slot(sp.plus(8 * word)).is_some_and(loaded) {
                return self.fault(at, "a thunk passes other words of the stack");
            }
        }
    }

    /// All actions before the function have been performed, or are proven to do nothing.
    fn all_done(&mut self, at: Number, state: &State) {
        let rows: Vec<(u32, Number)> = self.before.iter().copied().collect();
        for (row, _) in rows {
            if !state.shows(Fact::Done(row)) && !self.packet(row, state) && !self.module.data.transacts(row) {
                let function = self.module.data.function(row).unwrap_or_default();
                self.fault(at, format!("a thunk calls before it has performed an action of {function}"));
            }
        }
        if self.before.is_empty() && self.after.is_empty() && self.module.mode(at) == Mode::Call {
            self.fault(at, "a thunk performs no action");
        }
    }

    /// Whether an action requires just a packet that was found by its tag.
    fn packet(&mut self, row: u32, state: &State) -> bool {
        let Some(argument) = self.module.data.packet(row) else { return false };
        let Some(register) = ARGUMENTS.get(argument) else { return false };
        let value = self.values.atom(Atom::Init(*register));
        state.shows(Fact::Packet(value))
    }

    fn after_done(&mut self, at: Number, state: &State) {
        for row in self.after.clone() {
            if !state.shows(Fact::Done(row)) && !self.module.data.transacts(row) {
                let function = self.module.data.function(row).unwrap_or_default();
                self.fault(at, format!("a thunk leaves out an action of {function}"));
            }
        }
    }

    /// The thunk of an entry notes it.
    fn enter(&mut self, at: Number, state: &mut State) {
        let record = self.on_stack(RECORD);
        if state.regs[usize::from(RSI)] != record || state.sp() != record {
            self.fault(at, "an entry is noted with another record");
        }
        self.kept(at, state);
        match self.row(state.regs[usize::from(RDI)]) {
            Some(row) => {
                if let Err(why) = self.module.data.entry(row, self.module.domain) {
                    self.fault(at, why);
                }
                if self.last {
                    self.found.entries.push((row, self.root));
                }
            }
            None => self.fault(at, "an entry is noted without its description"),
        }
    }

    /// The thunk of an entry calls the module's function.
    fn entered(&mut self, at: Number, state: &mut State) {
        if !state.shows(Fact::Entered) || state.shows(Fact::Called) {
            self.fault(at, "the thunk of an entry calls the function without having noted the entry");
        }
        self.all_done(at, state);
        let calls: Vec<(u32, Number)> = self.before.iter().copied().collect();
        for (_, call) in calls {
            let result = self.values.atom(Atom::Fresh(call, RAX));
            if !state.shows(Fact::Zero(result)) {
                self.fault(at, "the thunk of an entry calls the function after an action has failed");
            }
        }
        for (number, register) in (0..).zip(ARGUMENTS) {
            self.passes(at, number, state.regs[usize::from(register)]);
        }
        self.stack_words(at, state);
        state.show(Fact::Called);
    }

    /// The thunk of an entry leaves it.
    fn leave(&mut self, at: Number, state: &mut State) {
        let record = self.on_stack(RECORD);
        if state.regs[usize::from(RDI)] != record {
            self.fault(at, "an entry is left with another record");
        }
        self.after_done(at, state);
        state.show(Fact::Closed);
    }

    /// A thunk's own store must not change the arguments in its record, nor what the runtime keeps there.
    pub fn record_store(&mut self, at: Number, node: &crate::graph::Node, state: &State, address: Val) {
        let mode = self.module.mode(at);
        if !matches!(mode, Mode::Call | Mode::Entry) {
            return;
        }
        let first = self.on_stack(0);
        if address.base != first.base {
            return self.fault(at, "a thunk stores to what is not its record");
        }
        let value =
            crate::step::number(node.insn.op1_register()).map(|register| state.regs[usize::from(register)]);
        let atom = value.filter(|value| value.off == 0).and_then(|value| self.values.single(value));
        let argument = (address.off - CALL) / 8;
        let good = match address.off {
            RESULT | SECOND => true,
            CALL..RESULT => {
                matches!(atom, Some(Atom::Init(own)) if ARGUMENTS.get(argument as usize) == Some(&own))
            }
            _ => false,
        };
        if !good {
            self.fault(at, "a thunk stores to its record what does not belong there");
        }
    }
}
