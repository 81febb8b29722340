//! Instructions: what each does to the graph.

use super::expression::Id;
use super::memory::written;
use super::places::{Object, Place};
use super::translate::{Known, RangeValue, Translation};
use super::{Action, Origin};
use crate::ir::instruction::{Call, Cast, Instruction, Operand, Operation, Predicate, Value};
use crate::ir::types::Type;
use crate::knowledge::{Allocates, Sleeps};
use std::rc::Rc;

/// A function of headers is put in up to this many instructions; a longer one is taken as one step.
const LARGEST_HELPER: usize = 150;

/// Nodes of an expression; a larger one is any value.
const LARGEST_EXPRESSION: usize = 400;

impl Translation<'_> {
    pub fn instruction(&mut self, instruction: &Instruction) -> Result<(), String> {
        let register = instruction.result.unwrap_or(u32::MAX);
        match &instruction.operation {
            Operation::Alloca(kind) => self.local(register, kind),
            Operation::Load(kind, address, volatile) => self.load(register, kind, address, *volatile),
            Operation::Store(value, address, volatile) => self.store(value, address, *volatile),
            Operation::Address(base, all) => {
                let known = self.address(base, all);
                self.read(all);
                self.set(register, known);
            }
            Operation::Cast(cast, from, to) => {
                let known = self.operand(from);
                self.fresh_memory(&known, to);
                let known = self.cast(*cast, known, &from.0, to);
                self.set(register, known);
            }
            Operation::Binary(operation, left, right) => {
                let (a, b) = (self.operand(left), self.operand(&(left.0.clone(), right.clone())));
                // An address that is calculated with leads anywhere in what it was taken of.
                self.expose_value(&a);
                self.expose_value(&b);
                let value = match (a.value, b.value) {
                    (Some(a), Some(b)) => Some(self.program.arena.binary(*operation, a, b)),
                    _ => None,
                };
                self.result(register, value, &left.0);
            }
            Operation::Compare(predicate, left, right) => {
                let (a, b) = (self.operand(left).value, self.operand(&(left.0.clone(), right.clone())).value);
                let value = match (a, b) {
                    (Some(a), Some(b)) => Some(self.program.arena.compare(*predicate, a, b)),
                    _ => None,
                };
                self.result(register, value, &Type::Int(1));
            }
            Operation::Select(condition, yes, no) => {
                let c = self.operand(&(Type::Int(1), condition.clone())).value;
                let (a, b) = (self.operand(yes), self.operand(no));
                self.expose_value(&a);
                self.expose_value(&b);
                let value = match (c, a.value, b.value) {
                    (Some(c), Some(a), Some(b)) => Some(self.program.arena.select(c, a, b)),
                    _ => None,
                };
                self.result(register, value, &yes.0);
            }
            Operation::Phi(..) | Operation::Nothing => {}
            Operation::Call(call) => return self.call(register, call),
            Operation::Atomic(address) => {
                let known = self.operand(address);
                let place = written(self.place(&known, &address.0), known.member);
                let length =
                    address.0.pointee().and_then(|kind| self.module().types.layout(kind)).map_or(8, |l| l.0);
                self.range(place, length, RangeValue::Unknown);
                self.forget(register);
            }
            Operation::Part(whole) => {
                self.operand(whole);
                self.forget(register);
            }
            Operation::Unknown(text) => {
                let name = text
                    .split_whitespace()
                    .find(|word| !word.starts_with(['%', '=']))
                    .unwrap_or("?")
                    .to_owned();
                let text = format!("the result of '{name}' at {} is taken as any value", self.here());
                self.assume(text);
                self.forget(register);
            }
        }
        Ok(())
    }

    fn read(&mut self, all: &[Operand]) {
        for operand in all {
            self.operand(operand);
        }
    }

    /// Sets a register to any value of any type.
    fn forget(&mut self, register: u32) {
        if register != u32::MAX {
            self.set(register, Known::nothing());
        }
    }

    fn result(&mut self, register: u32, value: Option<Id>, kind: &Type) {
        let small = |value: &Id| self.program.arena.size(*value).nodes as usize <= LARGEST_EXPRESSION;
        let known = match value.filter(small) {
            Some(value) => Known::value(value),
            None => self.unknown(register, kind, Origin::Unknown),
        };
        self.set(register, known);
    }

    fn local(&mut self, register: u32, kind: &Type) {
        let frame = self.frame();
        let (module, number) = (frame.module, frame.number);
        let node = frame.function.variables.iter().find(|(at, _)| *at == register).map(|(_, node)| *node);
        let name = node.and_then(|node| self.module().debug.variables.get(&node));
        let name = match name {
            Some(name) => format!("{}:{name}", self.frame().function.name),
            None => format!("{}:%{register}", self.frame().function.name),
        };
        let object = self.object(Object::Local(number, register), Some((module, kind.clone())), name);
        let value = self.program.arena.address(object, 0);
        self.frame_mut().known[register as usize] =
            Some(Known { place: Some(Place::At(object, 0)), ..Known::value(value) });
    }

    pub fn cast(&mut self, cast: Cast, known: Known, from: &Type, to: &Type) -> Known {
        let Some(bits) = to.bits() else { return Known::nothing() };
        let arena = &mut self.program.arena;
        match cast {
            Cast::Bits => {
                let same = known.value.is_none_or(|value| arena.bits(value) == bits);
                if !same {
                    let value = known.value.map(|value| {
                        if arena.bits(value) > bits {
                            arena.cut(bits, value)
                        } else {
                            arena.zero(bits, value)
                        }
                    });
                    return Known { value, ..Known::nothing() };
                }
                // The type of the pointer says where it leads to before it is lost.
                let place = match &known.place {
                    None | Some(Place::Unknown) => self.typed(from.pointee()),
                    place => place.clone(),
                };
                Known { place, ..known }
            }
            Cast::Zero => {
                Known { value: known.value.map(|value| arena.zero(bits, value)), ..Known::nothing() }
            }
            Cast::Sign => {
                Known { value: known.value.map(|value| arena.sign(bits, value)), ..Known::nothing() }
            }
            Cast::Cut => Known { value: known.value.map(|value| arena.cut(bits, value)), ..Known::nothing() },
            Cast::Float => Known::nothing(),
        }
    }

    fn call(&mut self, register: u32, call: &Call) -> Result<(), String> {
        let mut arguments: Vec<Known> = call.arguments.iter().map(|operand| self.operand(operand)).collect();
        for at in (0..arguments.len()).filter(|at| call.copies.get(*at) == Some(&true)) {
            arguments[at] = self.copied(&arguments[at], &call.arguments[at].0);
        }
        let callee = self.operand(&(Type::Pointer(Rc::new(Type::Other)), call.callee.clone()));
        if call.assembly {
            self.assume(
                "inline assembly sends and receives nothing, and writes only its operands".to_owned(),
            );
            self.writes(call, &arguments, None);
            let known = self.unknown(register, &call.result, Origin::Outside);
            self.set_result(register, known);
            return Ok(());
        }
        let value = callee.value.map(|value| self.program.arena.get(value));
        let known = match value {
            Some(super::expression::Expression::Function(index)) => {
                let (home, name) = self.by_index[index as usize].clone();
                self.named(register, call, arguments, home, &name)?
            }
            _ => match &call.callee {
                Value::Global(name) => self.named(register, call, arguments, usize::MAX, &name.clone())?,
                _ => self.indirect(register, call, arguments)?,
            },
        };
        self.set_result(register, known);
        Ok(())
    }

    /// A copy of the structure to which an argument points, which the callee may change by itself.
    fn copied(&mut self, known: &Known, kind: &Type) -> Known {
        let Some(to) = kind.pointee().cloned() else { return Known::nothing() };
        self.calls += 1;
        let (what, module) = (Object::Local(self.calls, u32::MAX), self.frame().module);
        let size = self.module().types.layout(&to).map_or(u64::MAX, |(size, _)| size);
        let object = self.object(what, Some((module, to)), "a copy".to_owned());
        let content = match self.place(known, kind) {
            Place::At(from, offset) => RangeValue::Copy(from, offset),
            _ => RangeValue::Unknown,
        };
        self.range(Place::At(object, 0), size, content);
        let address = self.program.arena.address(object, 0);
        Known { place: Some(Place::At(object, 0)), ..Known::value(address) }
    }

    /// Takes a way that may not exist: what lies behind is not called feasible.
    pub fn doubt(&mut self) {
        let object = self.object(Object::Result(u32::MAX, 0), None, "a way that may not exist".to_owned());
        let cell = self.cell(object, 0, &Type::Int(1)).expect("one width for a doubt");
        let bit = self.program.arena.cell(cell, 1);
        self.act(Action::Assume(bit));
    }

    fn set_result(&mut self, register: u32, known: Known) {
        if register != u32::MAX {
            self.set(register, known);
        }
    }

    fn named(
        &mut self,
        register: u32,
        call: &Call,
        arguments: Vec<Known>,
        home: usize,
        name: &str,
    ) -> Result<Known, String> {
        match self.client_call((register, call), arguments.clone(), home, name)? {
            Some(known) => Ok(known),
            None => self.plain_call(register, call, arguments, home, name),
        }
    }

    pub(super) fn plain_call(
        &mut self,
        register: u32,
        call: &Call,
        arguments: Vec<Known>,
        home: usize,
        name: &str,
    ) -> Result<Known, String> {
        match name {
            "setjmp" | "_setjmp" | "sigsetjmp" | "__sigsetjmp" | "llvm.eh.sjlj.setjmp" | "vfork" => {
                return Err(format!(
                    "{name} at {} may return twice; the engine follows no such function",
                    self.here()
                ));
            }
            "active_emit" => {
                let number = arguments.get(1).and_then(|known| known.value);
                let number = number.ok_or_else(|| {
                    format!("EMIT at {} sends no number that the engine can follow", self.here())
                })?;
                self.act(Action::Emit(number));
                return Ok(Known::nothing());
            }
            "active_await" => {
                let mask = arguments.get(1).and_then(|known| known.value);
                let mask = mask.ok_or_else(|| {
                    format!("AWAIT at {} has no mask that the engine can follow", self.here())
                })?;
                self.range(Place::Unknown, 8, RangeValue::Unknown);
                let cell = self.result_cell(register, 32);
                self.program.seeds.push(cell);
                self.act(Action::Await(mask, cell));
                return Ok(Known::value(self.program.arena.cell(cell, 32)));
            }
            _ => {}
        }
        if let Some(rest) = name.strip_prefix("llvm.") {
            return Ok(self.intrinsic(register, call, &arguments, rest));
        }
        if let Some(allocates) = self.source.knowledge.allocates(name) {
            self.sleep(name, &arguments);
            let zero = match allocates {
                Allocates::Zeroed(always) => always,
                Allocates::ByFlags(at) => arguments
                    .get(at)
                    .and_then(|known| known.value)
                    .and_then(|value| self.program.arena.number(value))
                    .is_some_and(|flags| flags & 0x100 != 0),
            };
            let known = self.unknown(register, &call.result, Origin::Outside);
            return Ok(Known { fresh: Some(zero), ..known });
        }
        let body = home != usize::MAX && (self.is_own(home, name) || !self.source.knowledge.is_known(name));
        if body && (self.is_put_in(home, name) || self.talks(home, name, 32)) {
            return self.inline(home, name, arguments);
        }
        self.sleep(name, &arguments);
        if let (true, Some(plan)) = (body && self.is_own(home, name), self.source.client) {
            let effects = plan.writes.of(&[(home, name.into())]);
            self.havoc(&effects);
        }
        if body {
            if let Some(inner) = self.sleeps_inside(home, name, 8) {
                let yes = self.program.arena.constant(1, 1);
                self.act(Action::Sleep(yes, format!("{name} ({inner})").into()));
            }
            self.assume("functions of kernel headers return".to_owned());
        } else {
            self.assume("functions of the kernel return, send and receive nothing, and write the driver's memory only where they get its address".to_owned());
        }
        let followed = self.source.client.is_some() && body && self.is_own(home, name);
        self.writes(call, &arguments, (!followed).then_some(name));
        let origin = match name {
            _ if self.source.knowledge.is_clock(name) => Origin::Clock,
            _ if self.source.knowledge.drains(name) => Origin::Drained,
            _ if body => Origin::Unknown,
            _ => Origin::Outside,
        };
        Ok(if register == u32::MAX { Known::nothing() } else { self.unknown(register, &call.result, origin) })
    }

    /// A call that may sleep.
    fn sleep(&mut self, name: &str, arguments: &[Known]) {
        let bit = match self.source.knowledge.sleeps(name) {
            None => return,
            Some(Sleeps::Always) => self.program.arena.constant(1, 1),
            Some(Sleeps::Flags(at)) => {
                let Some(flags) = arguments.get(at).and_then(|known| known.value) else {
                    let yes = self.program.arena.constant(1, 1);
                    self.act(Action::Sleep(yes, name.into()));
                    return;
                };
                let arena = self.arena();
                let bits = arena.bits(flags);
                let direct = arena.constant(bits, 0x400);
                let low = arena.binary(crate::ir::instruction::Binary::And, flags, direct);
                let zero = arena.constant(bits, 0);
                arena.compare(Predicate::Ne, low, zero)
            }
        };
        if self.program.arena.number(bit) != Some(0) {
            self.act(Action::Sleep(bit, name.into()));
        }
    }

    /// A function of a header that is taken as one step: what in it sleeps.
    fn sleeps_inside(&self, home: usize, name: &str, depth: u32) -> Option<String> {
        let function = self.source.modules[home].functions.get(name)?;
        let all = function.blocks.iter().flat_map(|block| &block.instructions);
        for instruction in all {
            let Operation::Call(Call { callee: Value::Global(callee), arguments, .. }) =
                &instruction.operation
            else {
                continue;
            };
            match self.source.knowledge.sleeps(callee) {
                Some(Sleeps::Always) => return Some(callee.to_string()),
                Some(Sleeps::Flags(at)) => {
                    if let Some((_, Value::Integer(flags))) = arguments.get(at)
                        && flags & 0x400 != 0
                    {
                        return Some(callee.to_string());
                    }
                }
                None if depth > 0 => {
                    if let Some(inner) = self.sleeps_inside(home, callee, depth - 1) {
                        return Some(inner);
                    }
                }
                None => {}
            }
        }
        None
    }

    /// Whether a function's body is put in: those of the driver always, others if they are short and without loops.
    fn is_put_in(&mut self, home: usize, name: &str) -> bool {
        (self.is_own(home, name) && self.source.client.is_none())
            || self.weight(home, name, 12).is_some_and(|weight| weight <= LARGEST_HELPER)
    }

    /// Whether one of the driver's own files defines a function.
    fn is_own(&self, home: usize, name: &str) -> bool {
        let module = &self.source.modules[home];
        let Some(function) = module.functions.get(name) else { return false };
        let file = module.debug.function_file(function.line);
        module.debug.files.get(file as usize).is_some_and(|file| (self.source.is_own)(file))
    }

    /// The number of instructions of a function and those that it calls; `None` with loops or too deep.
    fn weight(&mut self, home: usize, name: &str, depth: u32) -> Option<usize> {
        let key = (home, name.to_owned());
        if let Some(known) = self.sizes.get(&key) {
            return *known;
        }
        self.sizes.insert(key.clone(), None);
        let function = &self.source.modules[home].functions[name];
        let mut total = 0;
        let mut fine = depth > 0;
        for (index, block) in function.blocks.iter().enumerate() {
            total += block.instructions.len() + 1;
            fine &= targets(&block.end).all(|to| to as usize > index);
            for instruction in &block.instructions {
                if let Operation::Call(Call { callee: Value::Global(callee), .. }) = &instruction.operation
                    && self.source.modules[home].functions.contains_key(&**callee)
                    && fine
                    && !self.source.knowledge.is_known(callee)
                {
                    match self.weight(home, callee, depth - 1) {
                        Some(inner) if inner <= LARGEST_HELPER => total += inner,
                        _ => total += 1,
                    }
                }
            }
        }
        let result = fine.then_some(total);
        self.sizes.insert(key, result);
        result
    }

    /// A call by pointer.
    fn indirect(&mut self, register: u32, call: &Call, arguments: Vec<Known>) -> Result<Known, String> {
        let kinds: Vec<Type> = call.arguments.iter().map(|(kind, _)| kind.clone()).collect();
        let mut candidates = Vec::new();
        for (home, module) in self.source.modules.iter().enumerate() {
            for name in &module.address_taken {
                let function = &module.functions[name];
                if function.parameters == kinds
                    && function.result == call.result
                    && self.talks(home, name, 32)
                {
                    candidates.push((home, name.clone()));
                }
            }
        }
        let here = self.here();
        self.assume(format!("the function that is called by pointer at {here} sends and receives nothing unless it is one of this driver of that type"));
        match self.source.client {
            Some(plan) => {
                let callees = crate::code::flow::callees(self.source.modules, self.frame().module, call);
                let effects = plan.writes.of(&callees);
                self.havoc(&effects);
                self.writes(call, &arguments, None);
            }
            None => self.writes(call, &arguments, Some("")),
        }
        let start = self.at;
        self.doubt();
        let mut result = Known::nothing();
        let cell =
            call.result.bits().filter(|_| register != u32::MAX).map(|bits| self.result_cell(register, bits));
        if let Some(cell) = cell {
            self.assign(vec![(cell, None)]);
            let bits = self.program.cells[cell as usize].bits;
            result = Known::value(self.program.arena.cell(cell, bits));
        }
        let end = self.at;
        for (home, name) in candidates {
            self.at = start;
            self.doubt();
            let known = self.inline(home, &name, arguments.clone())?;
            if let Some(cell) = cell {
                self.act(Action::Assign(vec![(cell, known.value)]));
            }
            let at = self.at;
            self.edge(at, end, Action::Skip);
        }
        self.at = end;
        Ok(result)
    }

    /// Whether a function may send or receive.
    fn talks(&self, home: usize, name: &str, depth: u32) -> bool {
        if let Some(plan) = self.source.client {
            return plan.relevant.contains(&(home, name.into()));
        }
        let Some(function) = self.source.modules[home].functions.get(name) else { return false };
        depth > 0
            && function.blocks.iter().flat_map(|block| &block.instructions).any(|instruction| {
                let Operation::Call(Call { callee: Value::Global(callee), .. }) = &instruction.operation
                else {
                    return false;
                };
                matches!(&**callee, "active_emit" | "active_await") || self.talks(home, callee, depth - 1)
            })
    }

    /// What a function whose body is not followed writes: what its pointers lead to. `name` is the function's, where
    /// it may keep addresses.
    fn writes(&mut self, call: &Call, arguments: &[Known], name: Option<&str>) {
        if name.is_some() {
            // It may have kept, or find in memory, addresses that were given away before.
            self.range(Place::Unknown, 8, RangeValue::Unknown);
        }
        let calls_back = arguments.iter().any(|known| self.is_function(known));
        for (known, (kind, _)) in arguments.iter().zip(&call.arguments) {
            let Some(pointee) = kind.pointee() else { continue };
            if let (Some(object), Some(name)) = (self.whole(known), name)
                && (calls_back || self.source.knowledge.is_cookie(name))
                && !matches!(pointee, Type::Named(_))
            {
                self.objects[object as usize].kept = true;
                continue;
            }
            let own = matches!(pointee, Type::Named(name) if self.structures.own.contains(name));
            if own || self.whole(known).is_some() {
                // The driver's own structure as such: a function of another of its files, or one that fills it.
                let size = match self.whole(known) {
                    Some(object) => self.objects[object as usize].size,
                    None => self.module().types.layout(pointee).map_or(0, |(size, _)| size),
                };
                let place = self.place(known, kind);
                self.range(written(place, known.member), size, RangeValue::Unknown);
                continue;
            }
            let Some((object, low, high)) = self.extent(known) else { continue };
            if matches!(self.objects[object as usize].what, Object::Local(..)) || name.is_none() {
                self.range(Place::Within(object, low, high), high - low, RangeValue::Unknown);
            } else {
                self.objects[object as usize].lost.push((low, high));
            }
        }
    }

    fn is_function(&self, known: &Known) -> bool {
        let value = known.value.map(|value| self.program.arena.get(value));
        matches!(value, Some(super::expression::Expression::Function(_)))
    }

    fn intrinsic(&mut self, register: u32, call: &Call, arguments: &[Known], name: &str) -> Known {
        let number = |at: usize| {
            arguments.get(at).and_then(|known| known.value).and_then(|value| self.program.arena.number(value))
        };
        let first = || arguments.first().cloned().unwrap_or_else(Known::nothing);
        if name.starts_with("memset.") || name.starts_with("memcpy.") || name.starts_with("memmove.") {
            let length = number(2).unwrap_or(u64::MAX);
            let value = match (
                name.starts_with("memset."),
                number(1),
                arguments.get(1).and_then(|known| known.place.clone()),
            ) {
                (true, Some(0), _) => RangeValue::Zero,
                (false, _, Some(Place::At(object, offset))) => RangeValue::Copy(object, offset),
                _ => RangeValue::Unknown,
            };
            let to = first();
            let mut place = written(to.place.clone().unwrap_or(Place::Unknown), to.member);
            if let (u64::MAX, Place::At(object, offset)) = (length, &place) {
                place = Place::Within(*object, *offset, self.field_end(*object, *offset, to.member));
            }
            self.range(place, length, value);
            return Known::nothing();
        }
        if name.starts_with("expect.") {
            return first();
        }
        if name.starts_with("is.constant.") {
            return Known::value(self.program.arena.constant(1, 0));
        }
        if ["lifetime", "dbg", "assume", "prefetch", "stacksave", "stackrestore", "donothing"]
            .iter()
            .any(|skip| name.starts_with(skip))
        {
            return Known::nothing();
        }
        if register == u32::MAX {
            return Known::nothing();
        }
        self.unknown(register, &call.result, Origin::Unknown)
    }
}

/// The blocks that may follow.
pub fn targets(end: &crate::ir::instruction::End) -> impl Iterator<Item = u32> {
    use crate::ir::instruction::End;
    let all: Vec<u32> = match end {
        End::Jump(to) => vec![*to],
        End::Branch(_, yes, no) => vec![*yes, *no],
        End::Switch(_, other, cases) => cases.iter().map(|(_, to)| *to).chain([*other]).collect(),
        End::Any(all) => all.clone(),
        End::Return(_) | End::Stop => Vec::new(),
    };
    all.into_iter()
}
