//! The most general client as a graph: the kernel's side of an ordinary driver.
//!
//! It begins one callback after the other, as its protocols allow. During some calls of the driver it calls back.

use super::Action;
use super::expression::Id;
use super::places::{Object, Place};
use super::plan::{Callback, Event, Success};
use super::translate::{Frame, Known, RangeValue, Translation};
use crate::code::effects::Effects;
use crate::code::flow::{GETS_DATA, SETS_DATA};
use crate::ir::debug::Line;
use crate::ir::instruction::{Call, Predicate};
use crate::ir::types::Type;
use guardrail_protocol::model::Outcome;

impl Translation<'_> {
    /// The graph of the client.
    pub(super) fn client(&mut self) -> Result<(), String> {
        let Some(plan) = self.source.client else { return Ok(()) };
        self.frames.push(Frame {
            module: 0,
            function: &plan.kernel,
            number: 0,
            known: Vec::new(),
            uses: Vec::new(),
            wide: Vec::new(),
            pending: Vec::new(),
            stores: Vec::new(),
            name: 0,
        });
        let turn = self.node();
        let (entry, exit) = (self.at, self.node());
        self.edge(entry, turn, Action::Skip);
        for callback in &plan.callbacks {
            self.at = turn;
            self.line = Line::default();
            if callback.awake {
                self.comes(plan.awake);
            }
            self.havoc(&plan.idle);
            for (number, at) in self.callback(callback)? {
                let over = plan.over.contains(&number);
                self.edge(at, if over { exit } else { turn }, Action::Skip);
            }
        }
        self.frames.pop();
        self.at = exit;
        self.assume(
            "callbacks run one at a time and to their end, also those of interrupts, timers and work"
                .to_owned(),
        );
        self.assume("a device is probed once, and the driver has no other".to_owned());
        Ok(())
    }

    /// Waits for one message.
    fn comes(&mut self, number: u64) {
        let mask = self.program.arena.constant(64, 1 << number);
        let cell = self.free_cell("message", 32);
        self.act(Action::Await(mask, cell));
    }

    /// A cell that no instruction has.
    fn free_cell(&mut self, name: &str, bits: u32) -> u32 {
        self.calls += 1;
        let object = self.object(Object::Result(self.calls, 0), None, name.to_owned());
        self.cell(object, 0, &Type::Int(bits)).expect("a new object has no cell")
    }

    /// Runs a callback: the places where it has ended, with the messages of its ends.
    fn callback(&mut self, callback: &Callback) -> Result<Vec<(u64, u32)>, String> {
        let before = self.line.clone();
        if let Some((home, name)) = callback.functions.first() {
            self.line_of(*home, name);
        }
        self.comes(callback.number);
        self.range(Place::Unknown, 8, RangeValue::Unknown);
        let begin = self.at;
        let mut ended = Vec::new();
        for (home, name) in &callback.functions {
            self.at = begin;
            self.line_of(*home, name);
            let line = self.line.clone();
            let arguments = self.arguments(*home, name);
            let known = self.inline(*home, name, arguments)?;
            self.line = line;
            self.ends(callback, known.value, &mut ended);
        }
        if callback.functions.is_empty() {
            self.ends(callback, None, &mut ended);
        }
        self.line = before;
        Ok(ended)
    }

    /// Any arguments; pointers are not null.
    fn arguments(&mut self, home: usize, name: &str) -> Vec<Known> {
        let mut all = Vec::new();
        for kind in &self.source.modules[home].functions[name].parameters {
            if kind.pointee().is_none() {
                all.push(Known::nothing());
                continue;
            }
            let cell = self.free_cell("an argument", 64);
            self.assign(vec![(cell, None)]);
            let value = self.program.arena.cell(cell, 64);
            let zero = self.equals_zero(value);
            let set = self.program.arena.not(zero);
            self.act(Action::Assume(set));
            all.push(Known::value(value));
        }
        all
    }

    fn ends(&mut self, callback: &Callback, value: Option<Id>, ended: &mut Vec<(u64, u32)>) {
        let at = self.at;
        for (number, outcome) in &callback.ends {
            self.at = at;
            if let (Some(value), true) = (value, *outcome != Outcome::Any) {
                let zero = self.equals_zero(value);
                let bits = self.program.arena.bits(value);
                let none = self.program.arena.constant(bits, 0);
                // Callbacks return 0 or a negative number.
                let negative = self.program.arena.compare(Predicate::Slt, value, none);
                self.act(Action::Assume(if *outcome == Outcome::Zero { zero } else { negative }));
            }
            let number_id = self.program.arena.constant(32, *number);
            self.act(Action::Emit(number_id));
            ended.push((*number, self.at));
        }
        if callback.ends.is_empty() {
            ended.push((callback.number, at));
        }
    }

    fn equals_zero(&mut self, value: Id) -> Id {
        let bits = self.program.arena.bits(value);
        let zero = self.program.arena.constant(bits, 0);
        self.program.arena.compare(Predicate::Eq, value, zero)
    }

    fn line_of(&mut self, home: usize, name: &str) {
        let module = &self.source.modules[home];
        let line = module.debug.line(module.functions[name].line);
        self.line = Line { file: self.file_base[home] + line.file, number: line.number };
    }

    /// Forgets what functions may have written.
    pub(super) fn havoc(&mut self, effects: &Effects) {
        if effects.fields.is_empty() && effects.globals.is_empty() {
            return;
        }
        self.rescue(&|arena, value| !arena.cells(value).is_empty(), None);
        let edge = self.act(Action::Skip);
        for (structure, offset, size) in &effects.fields {
            let place = Place::Inside(format!("struct.{structure}").into(), *offset);
            self.ranges.push((edge, place, *size, RangeValue::Unknown));
        }
        for object in 0..self.objects.len() {
            if matches!(&self.objects[object].what, Object::Global(_, name) if effects.globals.contains(name))
            {
                self.ranges.push((edge, Place::At(object as u32, 0), u64::MAX, RangeValue::Unknown));
            }
        }
    }

    /// The messages that a call stands for, around what it does otherwise.
    pub(super) fn client_call(
        &mut self,
        (register, call): (u32, &Call),
        arguments: Vec<Known>,
        home: usize,
        name: &str,
    ) -> Result<Option<Known>, String> {
        let Some(plan) = self.source.client else { return Ok(None) };
        if let Some(known) = self.answer((register, call), &arguments, name) {
            return Ok(Some(known));
        }
        let site = plan.by_site.get(&(std::ptr::from_ref(call) as usize));
        let named = plan.by_name.get(name);
        let during = plan.during.get(name);
        let result = plan.results.get(name).copied();
        if site.is_none() && named.is_none() && during.is_none() && result.is_none() {
            return Ok(None);
        }
        if let Some((callback, otherwise)) = during {
            self.rescue(&|arena, value| !arena.cells(value).is_empty(), None);
            let begin = self.at;
            self.comes(*otherwise);
            let end = self.at;
            self.at = begin;
            for (_, at) in self.callback(callback)? {
                self.edge(at, end, Action::Skip);
            }
            self.at = end;
        }
        let mut known = self.plain_call(register, call, arguments.clone(), home, name)?;
        if known.value.is_none()
            && let Some(bits) = call.result.bits()
        {
            let cell = self.free_cell(name, bits);
            self.assign(vec![(cell, None)]);
            known.value = Some(self.program.arena.cell(cell, bits));
        }
        if let (Some(value), Some(result)) = (known.value, result) {
            self.possible(result, value);
        }
        for event in site.into_iter().chain(named).flatten() {
            self.event(event, known.value, &arguments);
        }
        Ok(Some(known))
    }

    /// What the kernel's state says: the driver's data of the device, and truths that the protocols know.
    fn answer(&mut self, (register, call): (u32, &Call), arguments: &[Known], name: &str) -> Option<Known> {
        let plan = self.source.client?;
        if SETS_DATA.contains(&name) {
            let cell = self.data();
            let value = arguments.get(1)?;
            self.expose_value(value);
            self.assign(vec![(cell, value.value)]);
            return Some(Known::nothing());
        }
        if GETS_DATA.contains(&name) {
            let cell = self.data();
            return Some(Known::value(self.program.arena.cell(cell, 64)));
        }
        let bits = call.result.bits()?;
        if name == "PTR_ERR" {
            // It is called with an error pointer: the result is negative, also in 32 bits.
            let value = arguments.first()?.value?;
            let low = self.program.arena.cut(32, value);
            let none = self.program.arena.constant(32, 0);
            let negative = self.program.arena.compare(Predicate::Slt, low, none);
            self.act(Action::Assume(negative));
            return Some(Known::value(value));
        }
        if name == "ERR_PTR" {
            // It is called with an error number.
            let value = arguments.first()?.value?;
            let first = self.program.arena.constant(64, 4095u64.wrapping_neg());
            let error = self.program.arena.compare(Predicate::Uge, value, first);
            self.act(Action::Assume(error));
            return Some(Known::value(value));
        }
        let (yes, no) = *plan.asks.get(name)?;
        if register == u32::MAX {
            return None;
        }
        self.rescue(&|arena, value| !arena.cells(value).is_empty(), None);
        let cell = self.free_cell(name, bits);
        self.program.seeds.push(cell);
        let (begin, end) = (self.at, self.node());
        for (number, truth) in [(yes, 1), (no, 0)] {
            self.at = begin;
            self.comes(number);
            let value = self.program.arena.constant(bits, truth);
            self.act(Action::Assign(vec![(cell, Some(value))]));
            let at = self.at;
            self.edge(at, end, Action::Skip);
        }
        self.at = end;
        Some(Known::value(self.program.arena.cell(cell, bits)))
    }

    /// The cell with the driver's data of the device.
    fn data(&mut self) -> u32 {
        self.assume("pci_get_drvdata and dev_get_drvdata are called for one device".to_owned());
        let object =
            self.object(Object::Global(None, "the driver's data".into()), None, "driver data".to_owned());
        self.cell(object, 0, &Type::Int(64)).expect("one width for the data")
    }

    /// Assumes what a kernel function may return.
    fn possible(&mut self, result: Success, value: Id) {
        let arena = &mut self.program.arena;
        let bits = arena.bits(value);
        let zero = arena.constant(bits, 0);
        let condition = match result {
            Success::Zero => arena.compare(Predicate::Sle, value, zero),
            // No error pointer.
            Success::NonZero if bits == 64 => {
                let first = arena.constant(bits, 4095u64.wrapping_neg());
                arena.compare(Predicate::Ult, value, first)
            }
            Success::Valid => arena.compare(Predicate::Ne, value, zero),
            _ => return,
        };
        self.act(Action::Assume(condition));
    }

    fn event(&mut self, event: &Event, result: Option<Id>, arguments: &[Known]) {
        let begin = self.at;
        let mut others = Vec::new();
        let argument = event.argument.and_then(|(at, nothing)| Some((arguments.get(at)?.value?, nothing)));
        if let Some((value, nothing)) = argument {
            let zero = self.equals_zero(value);
            self.act(Action::Assume(zero));
            self.comes(nothing);
            others.push(self.at);
            self.at = begin;
            let set = self.program.arena.not(zero);
            self.act(Action::Assume(set));
        }
        if let (Some(value), true) = (result, event.success != Success::Always) {
            let begin = self.at;
            let (yes, no) = self.outcome(event.success, value);
            self.act(Action::Assume(no));
            others.push(self.at);
            self.at = begin;
            self.act(Action::Assume(yes));
        }
        let number = self.program.arena.constant(32, event.number);
        self.act(Action::Emit(number));
        let end = self.at;
        for at in others {
            self.edge(at, end, Action::Skip);
        }
    }

    /// What a result is after success, and what it is otherwise.
    fn outcome(&mut self, success: Success, value: Id) -> (Id, Id) {
        let zero = self.equals_zero(value);
        let arena = &mut self.program.arena;
        let bits = arena.bits(value);
        let none = arena.constant(bits, 0);
        match success {
            Success::Zero => {
                let negative = arena.compare(Predicate::Slt, value, none);
                (zero, negative)
            }
            Success::Positive => {
                let positive = arena.compare(Predicate::Sgt, value, none);
                let negative = arena.compare(Predicate::Slt, value, none);
                (positive, negative)
            }
            Success::Valid => {
                let first = arena.constant(bits, 4095u64.wrapping_neg());
                let error = arena.compare(Predicate::Uge, value, first);
                (arena.not(error), error)
            }
            Success::NonZero | Success::Always => (arena.not(zero), zero),
        }
    }
}
