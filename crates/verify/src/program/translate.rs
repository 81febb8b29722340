//! Puts the functions of a driver into one graph.
//!
//! clang translates without optimizing, so a local variable of C is memory, and each read of it stands where C has
//! it. Results of instructions become expressions over that memory; one that is used after a part of it changes, or
//! in another block, gets a cell of its own.

use super::expression::{Arena, Id};
use super::places::{Object, ObjectInfo, Place, Structures, structures};
use super::{Action, Cell, Edge, Node, Origin, Program};
use crate::ir::Module;
use crate::ir::debug::Line;
use crate::ir::instruction::{End, Function, Operand, Operation, Value};
use crate::ir::types::Type;
use crate::ir::types::plain;
use crate::knowledge::Knowledge;
use rustc_hash::FxHashMap;

/// The most places of a graph.
const MOST_NODES: usize = 2_000_000;

/// What is translated.
#[derive(Clone)]
pub struct Source<'m> {
    /// The files.
    pub modules: &'m [Module],
    /// Whether what structures of the driver hold is followed.
    pub deep: bool,
    /// Index of the module and name of the main function.
    pub main: (usize, String),
    /// Whether a file is the driver's own.
    pub is_own: &'m dyn Fn(&str) -> bool,
    /// What is known about functions of the kernel.
    pub knowledge: &'m Knowledge,
    /// The client of an ordinary driver, which is then the main function.
    pub client: Option<&'m super::plan::ClientPlan<'m>>,
}

/// A cell that changes, and all cells that change with it, with their new values.
pub(super) type Change<'a> = (u32, &'a [(u32, Option<Id>)]);

/// A value that an instruction sees.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// The value; `None` for what is no integer and no pointer.
    pub value: Option<Id>,
    /// The target, for pointers.
    pub place: Option<Place>,
    /// Whether it is new memory: whether that is zero.
    pub fresh: Option<bool>,
    /// Whether it is the address of a member, also of the first one.
    pub member: bool,
}

impl Known {
    pub fn nothing() -> Known {
        Known { value: None, place: None, fresh: None, member: false }
    }

    pub fn value(value: Id) -> Known {
        Known { value: Some(value), ..Known::nothing() }
    }
}

/// A call that is being put in.
pub(super) struct Frame<'m> {
    pub module: usize,
    pub function: &'m Function,
    pub number: u32,
    pub known: Vec<Option<Known>>,
    /// How often each register is still read.
    pub uses: Vec<u32>,
    /// Registers that are read in other blocks than they are set.
    pub wide: Vec<bool>,
    /// Registers whose expression reads cells.
    pub pending: Vec<u32>,
    /// Number of stores into each local variable.
    pub stores: Vec<u32>,
    /// Index of the function's name.
    pub name: u32,
}

pub(super) struct Translation<'m> {
    pub source: &'m Source<'m>,
    pub structures: Structures,
    pub program: Program,
    pub objects: Vec<ObjectInfo>,
    pub object_index: FxHashMap<Object, u32>,
    pub cell_index: FxHashMap<(u32, u64, u64), u32>,
    pub frames: Vec<Frame<'m>>,
    pub calls: u32,
    /// The place where the next edge begins.
    pub at: u32,
    pub line: Line,
    pub bound: FxHashMap<(u32, u32), Known>,
    /// Writes of ranges, which are resolved when all cells are known: edge, place, length, value.
    pub ranges: Vec<(u32, Place, u64, RangeValue)>,
    /// Of each module, the index of its first file in the program's files.
    pub file_base: Vec<u32>,
    pub function_index: FxHashMap<(usize, String), u32>,
    pub by_index: Vec<(usize, String)>,
    pub sizes: FxHashMap<(usize, String), Option<usize>>,
    /// The domain that the main function gets, and its private data.
    pub domain: Option<(u32, u32)>,
}

/// What is written into a range.
#[derive(Clone, Debug)]
pub(super) enum RangeValue {
    Zero,
    Unknown,
    /// A copy from this object and offset.
    Copy(u32, u64),
}

/// Builds the graph. An error is a sentence about what the engine cannot follow.
pub fn translate(source: &Source<'_>) -> Result<Program, String> {
    let mut structures = structures(source.modules, source.is_own, source.knowledge);
    if !source.deep {
        structures.single.clear();
    }
    let mut all = Translation {
        source,
        structures,
        program: Program { files: vec![String::new()], ..Program::default() },
        objects: Vec::new(),
        object_index: FxHashMap::default(),
        cell_index: FxHashMap::default(),
        frames: Vec::new(),
        calls: 0,
        at: 0,
        line: Line::default(),
        bound: FxHashMap::default(),
        ranges: Vec::new(),
        file_base: Vec::new(),
        function_index: FxHashMap::default(),
        by_index: Vec::new(),
        sizes: FxHashMap::default(),
        domain: None,
    };
    for module in source.modules {
        all.file_base.push(all.program.files.len() as u32);
        all.program.files.extend(module.debug.files.iter().cloned());
        all.program.assumptions.extend(module.unknown.iter().cloned());
    }
    let (module, name) = &source.main;
    all.program.functions.push(name.clone());
    all.program.entry = all.node();
    all.at = all.program.entry;
    if source.client.is_some() {
        all.client()?;
    } else {
        let arguments = all.start(*module, &source.modules[*module].functions[name]);
        all.inline(*module, name, arguments)?;
    }
    all.program.exit = all.at;
    all.program.deep = source.deep;
    all.finish();
    Ok(all.program)
}

impl<'m> Translation<'m> {
    pub fn arena(&mut self) -> &mut Arena {
        &mut self.program.arena
    }

    pub fn module(&self) -> &'m Module {
        &self.source.modules[self.frame().module]
    }

    pub fn frame(&self) -> &Frame<'m> {
        self.frames.last().expect("a function is being put in")
    }

    pub fn frame_mut(&mut self) -> &mut Frame<'m> {
        self.frames.last_mut().expect("a function is being put in")
    }

    pub fn node(&mut self) -> u32 {
        let function = self.frames.last().map_or(0, |frame| frame.name);
        self.program.nodes.push(Node { line: self.line.clone(), function });
        self.program.nodes.len() as u32 - 1
    }

    /// Adds an edge from where we are to a new place.
    pub fn act(&mut self, action: Action) -> u32 {
        let to = self.node();
        let edge = self.edge(self.at, to, action);
        self.at = to;
        edge
    }

    pub fn edge(&mut self, from: u32, to: u32, action: Action) -> u32 {
        self.program.edges.push(Edge { from, to, action, line: self.line.clone() });
        self.program.edges.len() as u32 - 1
    }

    pub fn assume(&mut self, text: String) {
        self.program.assumptions.insert(text);
    }

    pub fn here(&self) -> String {
        self.program.location(&self.line)
    }

    pub fn object(&mut self, what: Object, kind: Option<(usize, Type)>, name: String) -> u32 {
        if let Some(&index) = self.object_index.get(&what) {
            return index;
        }
        let size = kind.as_ref().and_then(|(module, kind)| self.source.modules[*module].types.layout(kind));
        let index = self.objects.len() as u32;
        self.objects.push(ObjectInfo {
            what: what.clone(),
            name,
            kind,
            size: size.map_or(u64::MAX, |(size, _)| size),
            exposed: Vec::new(),
            kept: false,
            lost: Vec::new(),
        });
        self.object_index.insert(what, index);
        index
    }

    /// The cell of a scalar at an object's offset.
    pub fn cell(&mut self, object: u32, offset: u64, kind: &Type) -> Option<u32> {
        let bits = kind.bits()?;
        let length = u64::from(bits).div_ceil(8).next_power_of_two();
        if let Some(&cell) = self.cell_index.get(&(object, offset, length)) {
            return (self.program.cells[cell as usize].bits == bits).then_some(cell);
        }
        let index = self.program.cells.len() as u32;
        let name = self.cell_name(object, offset);
        let local = matches!(self.objects[object as usize].what, Object::Local(..) | Object::Result(..));
        let origin = Origin::Unknown;
        self.program.cells.push(Cell { object, offset, length, bits, name, lost: false, local, origin });
        self.cell_index.insert((object, offset, length), index);
        Some(index)
    }

    fn cell_name(&self, object: u32, offset: u64) -> String {
        let info = &self.objects[object as usize];
        if let Some((module, Type::Named(name))) = &info.kind {
            let field = self.source.modules[*module].debug.field(plain(name), offset);
            if let Some(field) = field {
                return format!("{}.{field}", info.name);
            }
        }
        if offset == 0 { info.name.clone() } else { format!("{}+{offset}", info.name) }
    }

    /// The cell that holds the result of an instruction.
    pub fn result_cell(&mut self, register: u32, bits: u32) -> u32 {
        let (number, name) = (self.frame().number, self.frame().function.name.clone());
        let object = self.object(Object::Result(number, register), None, format!("{name}:%{register}"));
        self.cell(object, 0, &Type::Int(bits)).expect("one width for a register")
    }

    /// A cell with an unknown value.
    pub fn unknown(&mut self, register: u32, kind: &Type, origin: Origin) -> Known {
        let Some(bits) = kind.bits() else { return Known::nothing() };
        let cell = self.result_cell(register, bits);
        self.program.cells[cell as usize].origin = origin;
        self.assign(vec![(cell, None)]);
        Known::value(self.program.arena.cell(cell, bits))
    }

    /// Sets cells; expressions that read their old values are kept.
    pub fn assign(&mut self, all: Vec<(u32, Option<Id>)>) {
        for (cell, _) in &all {
            self.rescue(&|arena, value| arena.mentions(value, *cell), Some((*cell, &all)));
        }
        self.act(Action::Assign(all));
    }

    /// Gives results that are still needed cells of their own, before what they read changes.
    pub fn rescue(&mut self, hit: &dyn Fn(&Arena, Id) -> bool, change: Option<Change<'_>>) {
        let mut index = 0;
        while let Some(&register) = self.frame().pending.get(index) {
            let frame = self.frame();
            let value = frame.known[register as usize].as_ref().and_then(|known| known.value);
            let Some(value) = value.filter(|_| frame.uses[register as usize] > 0) else {
                self.frame_mut().pending.swap_remove(index);
                continue;
            };
            index += 1;
            if !hit(&self.program.arena, value) {
                continue;
            }
            let mut kept = change.and_then(|(cell, all)| self.undo(value, cell, all));
            if kept.is_none() {
                let bits = self.program.arena.bits(value);
                let cell = self.result_cell(register, bits);
                self.act(Action::Assign(vec![(cell, Some(value))]));
                kept = Some(self.program.arena.cell(cell, bits));
            }
            if let Some(known) = &mut self.frame_mut().known[register as usize] {
                known.value = kept;
            }
        }
    }

    /// The old value as an expression over the new one, where the change is `c = c + n`.
    fn undo(&mut self, value: Id, cell: u32, all: &[(u32, Option<Id>)]) -> Option<Id> {
        use crate::ir::instruction::Binary;
        let [(_, Some(new))] = all else { return None };
        let bits = self.program.cells[cell as usize].bits;
        let arena = &mut self.program.arena;
        let old = arena.cell(cell, bits);
        let difference = arena.binary(Binary::Sub, *new, old);
        let step = match arena.get(*new) {
            super::expression::Expression::Binary(Binary::Add, _, base, step) if base == old => {
                arena.number(step)?
            }
            _ => arena.number(difference)?,
        };
        let step = arena.constant(bits, step);
        let before = arena.binary(Binary::Sub, old, step);
        Some(arena.replace(value, &mut |_, leaf| {
            matches!(leaf, super::expression::Expression::Cell(at, _) if at == cell).then_some(before)
        }))
    }

    /// Puts a function in; the result is what it returns.
    pub fn inline(&mut self, module: usize, name: &str, arguments: Vec<Known>) -> Result<Known, String> {
        let source = self.source;
        let function = &source.modules[module].functions[name];
        // What the caller still needs must not depend on what the function changes on some of its paths.
        if !self.frames.is_empty() {
            self.rescue(&|arena, value| !arena.cells(value).is_empty(), None);
        }
        if self.frames.iter().any(|frame| frame.function.name == name && frame.module == module) {
            return Err(format!("{name} calls itself ({}); the engine follows no recursion", self.here()));
        }
        if self.program.nodes.len() > MOST_NODES || self.frames.len() > 64 {
            return Err(format!("the calls in {} are too many or too deep to be followed", source.main.1));
        }
        self.calls += 1;
        let index = self.program.functions.iter().position(|known| known == name).unwrap_or_else(|| {
            self.program.functions.push(name.to_owned());
            self.program.functions.len() - 1
        });
        let registers = function.registers as usize;
        let (uses, wide, stores) = super::scan::scan(function);
        let mut known = vec![None; registers];
        for (slot, argument) in known.iter_mut().zip(arguments) {
            *slot = Some(argument);
        }
        let pending = (0..function.parameters.len() as u32).collect();
        let number = self.calls;
        let frame =
            Frame { module, function, number, known, uses, wide, pending, stores, name: index as u32 };
        self.frames.push(frame);
        let line = self.line.clone();
        let returned = self.blocks(function)?;
        self.frames.pop();
        self.line = line;
        Ok(returned)
    }

    fn blocks(&mut self, function: &'m Function) -> Result<Known, String> {
        for parameter in 0..function.parameters.len() {
            // A parameter that another block reads needs a cell; clang stores all in the first block.
            if self.frame().wide[parameter] {
                self.widen(parameter as u32);
            }
        }
        let starts: Vec<u32> = function.blocks.iter().map(|_| self.node()).collect();
        let exit = self.node();
        let before = self.at;
        self.edge(before, starts[0], Action::Skip);
        let bits = function.result.bits();
        let result = bits.map(|bits| {
            let number = self.frame().number;
            let object =
                self.object(Object::Result(number, u32::MAX), None, format!("{} returns", function.name));
            self.cell(object, 0, &Type::Int(bits)).expect("one width for a result")
        });
        let mut places: Vec<Option<Place>> = Vec::new();
        let (mut fresh, mut member) = (None, false);
        for (index, block) in function.blocks.iter().enumerate() {
            self.at = starts[index];
            for instruction in &block.instructions {
                self.go_to(instruction.line);
                self.instruction(instruction)?;
            }
            self.go_to(block.line);
            match &block.end {
                End::Return(value) => {
                    if let (Some(value), Some(cell)) = (value, result) {
                        let known = self.operand(value);
                        self.expose_value(&known);
                        places.push(known.place.clone());
                        fresh = fresh.or(known.fresh);
                        member |= known.member;
                        self.assign(vec![(cell, known.value)]);
                    }
                    let at = self.at;
                    self.edge(at, exit, Action::Skip);
                }
                End::Stop => {}
                end => self.end(index as u32, end, &starts),
            }
        }
        self.at = exit;
        let value = result.zip(bits).map(|(cell, bits)| self.program.arena.cell(cell, bits));
        let place = match places.split_first() {
            Some((first, rest)) if rest.iter().all(|place| place == first) => first.clone(),
            _ => None,
        };
        Ok(Known { value, place, fresh, member })
    }

    pub fn go_to(&mut self, node: Option<u32>) {
        let module = self.frame().module;
        let line = self.source.modules[module].debug.line(node);
        if line.number != 0 {
            self.line = Line { file: self.file_base[module] + line.file, number: line.number };
        }
    }

    fn end(&mut self, block: u32, end: &End, starts: &[u32]) {
        match end {
            End::Jump(to) => self.jump(block, *to, starts),
            End::Any(all) => {
                let at = self.at;
                for to in all {
                    self.at = at;
                    self.doubt();
                    self.jump(block, *to, starts);
                }
            }
            End::Branch(value, yes, no) => {
                let known = self.operand(&(Type::Int(1), value.clone()));
                let at = self.at;
                for (to, truth) in [(*yes, true), (*no, false)] {
                    self.at = at;
                    if let Some(value) = known.value {
                        let bit = if truth { value } else { self.program.arena.not(value) };
                        if self.program.arena.number(bit) == Some(0) {
                            continue;
                        }
                        self.act(Action::Assume(bit));
                    }
                    self.jump(block, to, starts);
                }
            }
            End::Switch(operand, other, cases) => {
                let known = self.operand(operand);
                for (number, to) in cases {
                    let at = self.at;
                    if let Some(value) = known.value {
                        let bits = self.program.arena.bits(value);
                        let number = self.program.arena.constant(bits, *number);
                        let arena = self.arena();
                        let is = arena.compare(crate::ir::instruction::Predicate::Eq, value, number);
                        let differs = arena.not(is);
                        self.act(Action::Assume(is));
                        self.jump(block, *to, starts);
                        self.at = at;
                        self.act(Action::Assume(differs));
                    } else {
                        self.jump(block, *to, starts);
                        self.at = at;
                    }
                }
                self.jump(block, *other, starts);
            }
            End::Return(_) | End::Stop => {}
        }
    }

    /// Goes to another block, with the values that its phis take.
    fn jump(&mut self, from: u32, to: u32, starts: &[u32]) {
        let function = self.frame().function;
        let mut all = Vec::new();
        for instruction in &function.blocks[to as usize].instructions {
            let (Operation::Phi(kind, values), Some(register)) = (&instruction.operation, instruction.result)
            else {
                continue;
            };
            let Some(bits) = kind.bits() else { continue };
            let Some((value, _)) = values.iter().find(|(_, block)| *block == from) else { continue };
            let known = self.operand(&(kind.clone(), value.clone()));
            self.expose_value(&known);
            let cell = self.result_cell(register, bits);
            if bits == 1 {
                self.program.seeds.push(cell);
            }
            all.push((cell, known.value));
        }
        if !all.is_empty() {
            self.act(Action::Assign(all));
        }
        let at = self.at;
        self.edge(at, starts[to as usize], Action::Skip);
    }

    /// The value of an operand, which is read once more.
    pub fn operand(&mut self, operand: &Operand) -> Known {
        let known = self.peek(operand);
        if let Value::Register(register) = operand.1 {
            let uses = &mut self.frame_mut().uses[register as usize];
            *uses = uses.saturating_sub(1);
        }
        known
    }

    /// The value of an operand.
    pub fn peek(&mut self, operand: &Operand) -> Known {
        let (kind, value) = operand;
        match value {
            Value::Register(register) => {
                if let Some(known) = &self.frame().known[*register as usize] {
                    return known.clone();
                }
                match kind.bits() {
                    Some(bits) => {
                        let cell = self.result_cell(*register, bits);
                        Known::value(self.program.arena.cell(cell, bits))
                    }
                    None => Known::nothing(),
                }
            }
            Value::Integer(number) => match kind.bits() {
                Some(bits) => Known::value(self.program.arena.constant(bits, *number)),
                None => Known::nothing(),
            },
            Value::Zero => match kind.bits() {
                Some(bits) => Known::value(self.program.arena.constant(bits, 0)),
                None => Known::nothing(),
            },
            Value::Global(name) => self.global(name),
            Value::Cast(cast, from, to) => {
                let known = self.peek(from);
                self.cast(*cast, known, &from.0.clone(), to)
            }
            Value::Address(base, operands) => self.address(base, operands),
            _ => Known::nothing(),
        }
    }

    /// The index of a function that is known by name.
    pub fn function_of(&mut self, module: usize, name: &str) -> Option<u32> {
        let modules = self.source.modules;
        let home = if modules[module].functions.contains_key(name) {
            module
        } else {
            let defines =
                |module: &Module| module.functions.get(name).is_some_and(|function| function.external);
            match modules.iter().position(defines) {
                Some(home) => home,
                None if modules[module].declarations.contains_key(name) => usize::MAX,
                None => return None,
            }
        };
        let key = (home, name.to_owned());
        if let Some(&index) = self.function_index.get(&key) {
            return Some(index);
        }
        let index = self.by_index.len() as u32;
        self.by_index.push(key.clone());
        self.function_index.insert(key, index);
        Some(index)
    }

    /// Keeps the result of an instruction.
    pub fn set(&mut self, register: u32, known: Known) {
        let reads = known.value.is_some_and(|value| !self.program.arena.cells(value).is_empty());
        self.frame_mut().known[register as usize] = Some(known);
        if self.frame().wide[register as usize] {
            self.widen(register);
        } else if reads {
            self.frame_mut().pending.push(register);
        }
    }

    /// Gives a register that other blocks read a cell.
    fn widen(&mut self, register: u32) {
        let Some(known) = self.frame().known[register as usize].clone() else { return };
        let Some(value) = known.value else { return };
        let bits = self.program.arena.bits(value);
        let cell = self.result_cell(register, bits);
        let own = self.program.arena.cell(cell, bits);
        if own == value || self.program.arena.cells(value).is_empty() {
            return;
        }
        self.assign(vec![(cell, Some(value))]);
        self.frame_mut().known[register as usize] = Some(Known { value: Some(own), ..known });
    }
}
