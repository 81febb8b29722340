//! Addresses, and what is read and written through them.

use super::expression::Expression;
use super::places::{Object, Place};
use super::translate::{Known, RangeValue, Translation};
use super::{Action, Origin};
use crate::ir::instruction::{Operand, Predicate, Value};
use crate::ir::types::Type;
use std::rc::Rc;

impl<'m> Translation<'m> {
    /// The place of a pointer of this type, where the value alone does not say it.
    pub(super) fn place(&mut self, known: &Known, kind: &Type) -> Place {
        match &known.place {
            Some(Place::Unknown) | None => {}
            Some(place) => return place.clone(),
        }
        if let Some(Expression::Address(object, offset)) =
            known.value.map(|value| self.program.arena.get(value))
        {
            return Place::At(object, offset);
        }
        self.typed(kind.pointee()).unwrap_or(Place::Unknown)
    }

    /// The place to which a pointer to this type leads by its type.
    pub(super) fn typed(&mut self, kind: Option<&Type>) -> Option<Place> {
        let Some(Type::Named(name)) = kind else { return None };
        let name: Rc<str> = name.clone();
        if self.structures.single.contains(&name) {
            let module = self.frame().module;
            let plain = crate::ir::types::plain(&name).to_owned();
            let object =
                self.object(Object::Single(name.clone()), Some((module, Type::Named(name))), plain.clone());
            self.assume(format!("there is one struct {plain} for a device"));
            return Some(Place::At(object, 0));
        }
        self.structures.own.contains(&name).then_some(Place::Inside(name, 0))
    }

    pub fn address(&mut self, base: &Type, all: &[Operand]) -> Known {
        let Some((first, indices)) = all.split_first() else { return Known::nothing() };
        let pointer = self.peek(first);
        let mut place = self.place(&pointer, &first.0);
        if matches!(place, Place::Unknown) {
            place = self.typed(Some(base)).unwrap_or(Place::Unknown);
        }
        let mut kind = base.clone();
        let mut offset = Some(0u64);
        // The object that a varying index stays within: offset and length.
        let mut within: Option<(u64, u64)> = None;
        for (at, index) in indices.iter().enumerate() {
            let number = self.peek(index).value.and_then(|value| {
                let bits = self.program.arena.bits(value);
                self.program.arena.number(value).map(|number| super::expression::signed(bits, number) as u64)
            });
            let types = &self.module().types;
            if at == 0 {
                let size = types.layout(&kind).map(|(size, _)| size);
                offset = match (number, size) {
                    (Some(0), _) => offset,
                    (Some(number), Some(size)) => {
                        offset.map(|offset| offset.wrapping_add(number.wrapping_mul(size)))
                    }
                    _ => None,
                };
                continue;
            }
            let whole = types.layout(&kind).map(|(size, _)| size);
            match (number, types.step(&kind, number.unwrap_or(0))) {
                (Some(_), Some((step, inner))) => {
                    offset = offset.map(|offset| offset.wrapping_add(step));
                    kind = inner;
                }
                (None, Some((_, inner))) => {
                    if let (Some(offset), Some(whole), None) = (offset, whole, within) {
                        within = Some((offset, whole));
                    }
                    kind = inner;
                }
                (_, None) => {
                    offset = None;
                    break;
                }
            }
        }
        let place = moved(place, offset, within);
        let value = match (&place, pointer.value, offset, within) {
            (Place::At(object, offset), ..) => Some(self.program.arena.address(*object, *offset)),
            (_, Some(value), Some(0), None) => Some(value),
            _ => None,
        };
        Known { value, place: Some(place), fresh: None, member: pointer.member || indices.len() > 1 }
    }

    /// New memory that gets the type of the driver's structure is that structure, with nothing of the last one.
    pub(super) fn fresh_memory(&mut self, known: &Known, to: &Type) {
        let (Some(zero), Some(value)) = (known.fresh, known.value) else { return };
        let Some(Place::At(object, 0)) = self.typed(to.pointee()) else { return };
        let size = self.objects[object as usize].size;
        let bits = self.program.arena.bits(value);
        let null = self.program.arena.constant(bits, 0);
        let is_null = self.program.arena.compare(Predicate::Eq, value, null);
        let is_new = self.program.arena.not(is_null);
        let start = self.at;
        self.act(Action::Assume(is_new));
        self.range(Place::At(object, 0), size, if zero { RangeValue::Zero } else { RangeValue::Unknown });
        let end = self.at;
        self.edge(start, end, Action::Assume(is_null));
    }

    /// Writes a range; it is known which cells that are when all are known.
    pub fn range(&mut self, place: Place, length: u64, value: RangeValue) {
        self.rescue(&|arena, value| !arena.cells(value).is_empty(), None);
        let edge = self.act(Action::Skip);
        self.ranges.push((edge, place, length, value));
    }

    pub(super) fn load(&mut self, register: u32, kind: &Type, address: &Operand, volatile: bool) {
        let known = self.operand(address);
        let place = self.place(&known, &address.0);
        let clock = matches!(&address.1, Value::Global(name) if self.source.knowledge.is_clock(name));
        let origin = if clock {
            Origin::Clock
        } else if kind.pointee().is_some() {
            Origin::Link
        } else {
            Origin::Unknown
        };
        if clock || volatile {
            let known = self.unknown(register, kind, origin);
            self.set(register, known);
            return;
        }
        if let Place::At(object, offset) = place
            && let Some(known) = self.private(object, offset)
        {
            self.set(register, known);
            return;
        }
        if let Place::At(object, offset) = place
            && !self.is_foreign(object)
        {
            if let Some(known) = self.constant(object, offset, kind) {
                self.set(register, known);
                return;
            }
            if let Some(known) = self.bound.get(&(object, offset as u32)).cloned() {
                let fixed = known.value.filter(|value| self.program.arena.cells(*value).is_empty());
                let cell = self
                    .cell(object, offset, kind)
                    .map(|cell| (cell, self.program.cells[cell as usize].bits));
                let value = fixed.or_else(|| cell.map(|(cell, bits)| self.program.arena.cell(cell, bits)));
                self.set(register, Known { value, ..known });
                return;
            }
            if let Some(cell) = self.cell(object, offset, kind) {
                let bits = self.program.cells[cell as usize].bits;
                let value = self.program.arena.cell(cell, bits);
                self.set(register, Known::value(value));
                return;
            }
        }
        let known = self.unknown(register, kind, origin);
        self.set(register, known);
    }

    /// A name of the file: a function or a variable.
    pub(super) fn global(&mut self, name: &str) -> Known {
        let module = self.frame().module;
        if let Some(index) = self.function_of(module, name) {
            return Known::value(self.program.arena.function(index));
        }
        let what = self.variable(module, name);
        let global = self.module().globals.get(name);
        let kind = global.map(|global| (module, global.kind.clone()));
        let object = self.object(what, kind, name.to_owned());
        let value = self.program.arena.address(object, 0);
        Known { place: Some(Place::At(object, 0)), ..Known::value(value) }
    }

    /// A variable, as a file names it.
    pub fn variable(&self, module: usize, name: &str) -> Object {
        let open = self.source.modules[module].globals.get(name).is_none_or(|global| global.external);
        Object::Global((!open).then_some(module), name.into())
    }

    /// The part of a constant's initial value that holds an offset: how far the offset lies in it, its type, and itself.
    pub(super) fn initial(&self, object: u32, offset: u64) -> Option<(u64, Type, &'m Value)> {
        let info = &self.objects[object as usize];
        let (Object::Global(_, name), Some((home, _))) = (&info.what, &info.kind) else { return None };
        let modules = self.source.modules;
        let module = &modules[*home];
        let global = module.globals.get(&**name).filter(|global| global.constant)?;
        let (mut at, mut value, mut within) = (offset, global.initial.as_ref()?, global.kind.clone());
        while let Value::Aggregate(all) = value {
            let step = |index: u64| module.types.step(&within, index);
            let holds = |index: &u64| step(*index).is_some_and(|(start, _)| start <= at);
            let index = (0..all.len() as u64).rev().find(holds)?;
            let (start, inner) = step(index)?;
            at -= start;
            value = &all.get(index as usize)?.1;
            within = inner;
        }
        Some((at, within, value))
    }

    /// The content of a constant.
    fn constant(&mut self, object: u32, offset: u64, kind: &Type) -> Option<Known> {
        let (at, within, value) = self.initial(object, offset)?;
        match value {
            Value::Zero => Some(self.peek(&(kind.clone(), Value::Zero))),
            Value::Text(bytes) => {
                let byte = bytes.get(usize::try_from(at).ok()?)?;
                (*kind == Type::Int(8))
                    .then(|| Known::value(self.program.arena.constant(8, u64::from(*byte))))
            }
            value => (at == 0 && within.bits() == kind.bits()).then(|| self.peek(&(within, value.clone()))),
        }
    }

    pub(super) fn store(&mut self, value: &Operand, address: &Operand, volatile: bool) {
        let target = self.operand(address);
        let known = self.operand(value);
        let place = self.place(&target, &address.0);
        let length = self.module().types.layout(&value.0).map_or(16, |(size, _)| size);
        let Place::At(object, offset) = place else {
            self.expose_value(&known);
            self.range(written(place, target.member), length, RangeValue::Unknown);
            return;
        };
        let known = Known { place: known.place.clone().or_else(|| self.typed(value.0.pointee())), ..known };
        self.fresh_memory_kept(object, offset, &known);
        let once = match (&self.objects[object as usize].what, &address.1) {
            (Object::Local(number, register), Value::Register(at)) => {
                *number == self.frame().number && register == at && self.frame().stores[*at as usize] == 1
            }
            _ => false,
        };
        let fixed = known.value.is_some_and(|value| self.program.arena.cells(value).is_empty());
        let known_place = !matches!(known.place, None | Some(Place::Unknown));
        if once && !volatile && offset == 0 && (known_place || fixed) {
            self.bound.insert((object, 0), known.clone());
        } else {
            self.expose_value(&known);
        }
        match self.cell(object, offset, &value.0) {
            Some(cell) => self.assign(vec![(cell, known.value)]),
            None => self.range(Place::At(object, offset), length, RangeValue::Unknown),
        }
    }

    /// New memory that is kept in a variable is still new when it is read from there.
    fn fresh_memory_kept(&mut self, object: u32, offset: u64, known: &Known) {
        if known.fresh.is_some() && matches!(self.objects[object as usize].what, Object::Local(..)) {
            // Which of several values it is then is not known: its content is not.
            let maybe = Known { fresh: Some(false), place: None, ..known.clone() };
            self.bound.entry((object, offset as u32)).or_insert(maybe);
        }
    }

    /// Something else keeps this address now.
    pub fn expose_value(&mut self, known: &Known) {
        if let Some((object, low, high)) = self.extent(known) {
            self.objects[object as usize].exposed.push((low, high));
        } else if let Some(object) = self.whole(known) {
            self.objects[object as usize].kept = true;
        }
    }

    /// The object of which it is the address as a whole: a structure of the driver, which is found by its type.
    pub(super) fn whole(&self, known: &Known) -> Option<u32> {
        match known.place {
            Some(Place::At(object, 0)) if !known.member => {
                let what = &self.objects[object as usize].what;
                matches!(what, Object::Single(_) | Object::Private(_)).then_some(object)
            }
            _ => None,
        }
    }

    /// The range to which an address gives access; none for a whole structure of the driver.
    pub(super) fn extent(&self, known: &Known) -> Option<(u32, u64, u64)> {
        if self.whole(known).is_some() {
            return None;
        }
        match known.place.as_ref()? {
            Place::At(object, offset) => {
                Some((*object, *offset, self.field_end(*object, *offset, known.member)))
            }
            Place::Within(object, low, high) => Some((*object, *low, *high)),
            _ => None,
        }
    }

    /// The end of the largest field that begins at an offset; of a member, if the address is one's.
    pub(super) fn field_end(&self, object: u32, offset: u64, member: bool) -> u64 {
        let info = &self.objects[object as usize];
        let Some((module, kind)) = &info.kind else { return info.size };
        let types = &self.source.modules[*module].types;
        let (mut kind, mut start) = (kind.clone(), 0u64);
        for depth in 0..64 {
            let size = types.layout(&kind).map_or(u64::MAX, |(size, _)| size);
            if start == offset && (depth > 0 || !member) {
                return start.saturating_add(size);
            }
            let step = match &kind {
                Type::Array(count, of) => {
                    let size = types.layout(of).map_or(1, |(size, _)| size.max(1));
                    // A part of an array gives access to all of it.
                    let _ = count;
                    return match (offset - start) / size {
                        _ if offset < start => info.size,
                        _ => start.saturating_add(types.layout(&kind).map_or(u64::MAX, |(size, _)| size)),
                    };
                }
                _ => (0..4096)
                    .map_while(|index| types.step(&kind, index))
                    .take_while(|(at, _)| start + at <= offset)
                    .last(),
            };
            let Some((at, inner)) = step else { return info.size };
            start += at;
            kind = inner;
        }
        info.size
    }
}

/// What a store of the driver may write through an address that leads nowhere by its type.
pub(super) fn written(place: Place, member: bool) -> Place {
    match place {
        Place::Unknown if member => Place::Member,
        Place::Unknown => Place::Any,
        place => place,
    }
}

/// The place after a step of so many bytes, or of an unknown number within a range of the structure.
fn moved(place: Place, offset: Option<u64>, within: Option<(u64, u64)>) -> Place {
    match (place, offset, within) {
        (Place::At(object, base), _, Some((start, length))) => {
            let low = base.wrapping_add(start);
            Place::Within(object, low, low.saturating_add(length))
        }
        (Place::At(object, base), Some(offset), None) => Place::At(object, base.wrapping_add(offset)),
        (Place::Inside(name, base), Some(offset), None) => Place::Inside(name, base.wrapping_add(offset)),
        (Place::Within(object, low, high), ..) => Place::Within(object, low, high),
        (Place::At(object, _), None, None) => Place::Within(object, 0, u64::MAX),
        // The whole structure: which field it is, is not known.
        (Place::Inside(name, _), ..) => Place::Inside(name, u64::MAX),
        (place @ (Place::Unknown | Place::Member | Place::Any), ..) => place,
    }
}
