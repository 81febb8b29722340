//! What can be said only when the whole graph is known: which cells a range covers, which are lost.

use super::places::{Object, Place};
use super::translate::{Known, RangeValue, Translation};
use super::{Action, Program};
use crate::ir::instruction::{Call, Operation, Value};
use crate::ir::types::Type;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

impl Translation<'_> {
    pub(super) fn finish(&mut self) {
        self.addresses_in_variables();
        // The client of an ordinary driver calls what the kernel calls.
        if self.source.client.is_none() {
            self.other_entries();
        }
        self.lose_private();
        self.lose_cells();
        self.resolve_ranges();
        self.drop_lost();
        shorten(&mut self.program);
    }

    /// Variables whose address is in the initial value of another.
    fn addresses_in_variables(&mut self) {
        let mut names: HashSet<Object> = HashSet::new();
        for (home, module) in self.source.modules.iter().enumerate() {
            for global in module.globals.values() {
                let mut work: Vec<&Value> = global.initial.iter().collect();
                while let Some(value) = work.pop() {
                    match value {
                        Value::Aggregate(all) => work.extend(all.iter().map(|(_, value)| value)),
                        value => names.extend(variable(value, 8).map(|name| self.variable(home, &name))),
                    }
                }
            }
        }
        for info in &mut self.objects {
            if names.contains(&info.what) {
                info.exposed.push((0, u64::MAX));
            }
        }
    }

    /// What functions write that the kernel calls by themselves, such as the top half of an interrupt, may change at
    /// any time. They are put in like the main function, and only what they write is looked at.
    fn other_entries(&mut self) {
        let (edges, ranges) = (self.program.edges.len(), self.ranges.len());
        let mut followed = true;
        for (home, name) in self.entries() {
            self.at = self.node();
            let count = self.source.modules[home].functions[&name].parameters.len();
            let arguments = (0..count).map(|_| Known::nothing()).collect();
            followed &= self.inline(home, &name, arguments).is_ok();
            self.frames.clear();
        }
        let mut all: Vec<(Place, u64)> = Vec::new();
        for edge in self.program.edges.split_off(edges) {
            let Action::Assign(cells) = edge.action else { continue };
            for (cell, _) in cells {
                let cell = &self.program.cells[cell as usize];
                all.push((Place::At(cell.object, cell.offset), cell.length));
            }
        }
        all.extend(self.ranges.split_off(ranges).into_iter().map(|(_, place, length, _)| (place, length)));
        for (place, length) in all {
            self.lose_place(&place, length);
        }
        if !followed {
            // What cannot be followed may write anything.
            for info in &mut self.objects {
                if !matches!(info.what, Object::Local(..) | Object::Result(..)) {
                    info.lost.push((0, u64::MAX));
                }
            }
        }
    }

    /// Functions whose address is taken, and those that other files may call.
    fn entries(&self) -> Vec<(usize, String)> {
        let mut called: HashSet<&str> = HashSet::new();
        for module in self.source.modules {
            let functions = module.functions.values();
            for instruction in functions.flat_map(|function| &function.blocks).flat_map(|b| &b.instructions) {
                if let Operation::Call(Call { callee: Value::Global(callee), .. }) = &instruction.operation {
                    called.insert(callee);
                }
            }
        }
        let mut found = Vec::new();
        for (home, module) in self.source.modules.iter().enumerate() {
            for (name, function) in &module.functions {
                let open = function.external && !called.contains(name.as_str());
                let main = (home, name.as_str()) == (self.source.main.0, self.source.main.1.as_str());
                if (module.address_taken.contains(name) || open) && !main {
                    found.push((home, name.clone()));
                }
            }
        }
        found.sort();
        found
    }

    /// Marks what a write to a place may change as any value at any time.
    fn lose_place(&mut self, place: &Place, length: u64) {
        for index in 0..self.objects.len() {
            let ranges = self.touched(index as u32, place, length);
            self.objects[index].lost.extend(ranges);
        }
    }

    /// The ranges of an object that a write to a place may change.
    pub(super) fn touched(&self, object: u32, place: &Place, length: u64) -> Vec<(u64, u64)> {
        let info = &self.objects[object as usize];
        match place {
            Place::At(at, offset) if *at == object => vec![(*offset, offset.saturating_add(length))],
            Place::Within(at, low, high) if *at == object => vec![(*low, *high)],
            Place::Inside(name, offset) => {
                let size = self.size_of(object, name);
                let range = |at: u64| match *offset {
                    u64::MAX => (at, at + size),
                    offset => (at.wrapping_add(offset), at.wrapping_add(offset).saturating_add(length)),
                };
                self.occurrences(object, name).into_iter().map(range).collect()
            }
            Place::Any if info.kept => vec![(0, u64::MAX)],
            Place::Any | Place::Member => info.exposed.clone(),
            _ => Vec::new(),
        }
    }

    /// The offsets in an object at which a structure begins.
    fn occurrences(&self, object: u32, name: &str) -> Vec<u64> {
        let Some((module, kind)) = &self.objects[object as usize].kind else { return Vec::new() };
        let all = self.source.modules[*module].types.inside(kind, 4096);
        all.into_iter().filter(|(_, inner)| **inner == *name).map(|(at, _)| at).collect()
    }

    fn lose_cells(&mut self) {
        for index in 0..self.program.cells.len() {
            let cell = &self.program.cells[index];
            let (low, high) = (cell.offset, cell.offset + cell.length);
            let info = &self.objects[cell.object as usize];
            let lost = info.lost.iter().any(|(from, to)| *from < high && low < *to);
            if lost {
                self.program.cells[index].lost = true;
            }
        }
        // Pieces that overlap and are not the same are not followed.
        let mut order: Vec<u32> = (0..self.program.cells.len() as u32).collect();
        let key = |index: &u32| {
            let cell = &self.program.cells[*index as usize];
            (cell.object, cell.offset, cell.length)
        };
        order.sort_by_key(key);
        let mut overlapping = Vec::new();
        for (at, &first) in order.iter().enumerate() {
            let (object, offset, length) = key(&first);
            for &second in &order[at + 1..] {
                let (other, start, _) = key(&second);
                if other != object || start >= offset + length {
                    break;
                }
                overlapping.extend([first, second]);
            }
        }
        for index in overlapping {
            self.program.cells[index as usize].lost = true;
        }
    }

    fn resolve_ranges(&mut self) {
        // Of each structure, the cells in it with their offsets in it.
        let mut inside: HashMap<Rc<str>, Vec<(u32, u64)>> = HashMap::new();
        let exposed: Vec<u32> =
            (0..self.program.cells.len() as u32).filter(|cell| self.is_exposed(*cell)).collect();
        for (edge, place, length, value) in std::mem::take(&mut self.ranges) {
            let mut all: Vec<(u32, Option<u32>)> = Vec::new();
            if let Place::Inside(name, offset) = &place {
                if !inside.contains_key(name) {
                    inside.insert(name.clone(), self.cells_inside(name));
                }
                let hit = |at: u64, cell: u32| {
                    let size = self.program.cells[cell as usize].length;
                    *offset == u64::MAX || (*offset < at + size && at < offset.saturating_add(length))
                };
                all.extend(
                    inside[name].iter().filter(|(cell, at)| hit(*at, *cell)).map(|(cell, _)| (*cell, None)),
                );
                if self.source.client.is_none() {
                    let others = exposed.iter().filter(|cell| !all.iter().any(|(other, _)| other == *cell));
                    let others: Vec<_> = others.map(|cell| (*cell, None)).collect();
                    all.extend(others);
                }
            }
            let is_type = matches!(place, Place::Inside(..));
            for index in (0..self.program.cells.len() as u32).filter(|_| !is_type) {
                let cell = self.program.cells[index as usize].clone();
                if cell.lost || matches!(self.objects[cell.object as usize].what, Object::Result(..)) {
                    continue;
                }
                let (low, high) = (cell.offset, cell.offset + cell.length);
                let hit = |from: u64, to: u64| from < high && low < to;
                match &place {
                    Place::At(object, offset) if *object == cell.object => {
                        let end = offset.saturating_add(length);
                        if !hit(*offset, end) {
                            continue;
                        }
                        let whole = *offset <= low && high <= end;
                        let content = match &value {
                            RangeValue::Zero if whole => Some(self.program.arena.constant(cell.bits, 0)),
                            RangeValue::Copy(from, start) if whole => {
                                let at = start + (low - offset);
                                let key = (*from, at, cell.length);
                                if let Some(number) = self.initial_number(*from, at, cell.bits) {
                                    all.push((index, Some(self.program.arena.constant(cell.bits, number))));
                                    continue;
                                }
                                let source = self.cell_index.get(&key).copied();
                                let source =
                                    source.filter(|&source| !self.program.cells[source as usize].lost);
                                source
                                    .filter(|&source| self.program.cells[source as usize].bits == cell.bits)
                                    .map(|source| self.program.arena.cell(source, cell.bits))
                            }
                            _ => None,
                        };
                        all.push((index, content));
                    }
                    Place::Within(object, from, to) if *object == cell.object && hit(*from, *to) => {
                        all.push((index, None));
                    }
                    Place::Unknown | Place::Member | Place::Any => {
                        let info = &self.objects[cell.object as usize];
                        let kept = info.kept && place == Place::Any;
                        if kept || self.is_exposed(index) {
                            all.push((index, None));
                        }
                    }
                    _ => {}
                }
            }
            if all.is_empty() {
                continue;
            }
            match &mut self.program.edges[edge as usize].action {
                // Several ranges may be written at once.
                Action::Assign(before) => before.extend(all),
                action => *action = Action::Assign(all),
            }
        }
    }

    /// The number that a constant holds at an offset.
    fn initial_number(&self, object: u32, offset: u64, bits: u32) -> Option<u64> {
        match self.initial(object, offset)? {
            (_, _, Value::Zero) => Some(0),
            (0, kind, Value::Integer(number)) if kind.bits() == Some(bits) => Some(*number),
            _ => None,
        }
    }

    /// Whether the address of a member that holds the cell was kept somewhere.
    fn is_exposed(&self, cell: u32) -> bool {
        let cell = &self.program.cells[cell as usize];
        let info = &self.objects[cell.object as usize];
        let (low, high) = (cell.offset, cell.offset + cell.length);
        !cell.lost && info.exposed.iter().any(|(from, to)| *from < high && low < *to)
    }

    /// The cells in structures of a type, with their offsets in it.
    fn cells_inside(&self, name: &str) -> Vec<(u32, u64)> {
        let mut found = Vec::new();
        let mut starts: HashMap<u32, (Vec<u64>, u64)> = HashMap::new();
        for (index, cell) in self.program.cells.iter().enumerate() {
            if cell.lost || matches!(self.objects[cell.object as usize].what, Object::Result(..)) {
                continue;
            }
            let (all, size) = starts
                .entry(cell.object)
                .or_insert_with(|| (self.occurrences(cell.object, name), self.size_of(cell.object, name)));
            // A structure does not lie in itself, so that at most one holds the cell.
            let start = all.iter().find(|at| **at <= cell.offset && cell.offset < *at + *size);
            found.extend(start.map(|at| (index as u32, cell.offset - at)));
        }
        found
    }

    fn size_of(&self, object: u32, name: &str) -> u64 {
        let Some((module, _)) = &self.objects[object as usize].kind else { return 0 };
        let kind = Type::Named(name.into());
        self.source.modules[*module].types.layout(&kind).map_or(0, |(size, _)| size)
    }

    /// A lost cell has any value each time it is read: writes to it are dropped.
    fn drop_lost(&mut self) {
        let Program { edges, cells, .. } = &mut self.program;
        for edge in edges {
            if let Action::Assign(all) = &mut edge.action {
                all.retain(|(cell, _)| !cells[*cell as usize].lost);
                if all.is_empty() {
                    edge.action = Action::Skip;
                }
            }
        }
    }
}

/// The variable that a constant address is in.
fn variable(value: &Value, depth: u32) -> Option<Rc<str>> {
    match value {
        Value::Global(name) => Some(name.clone()),
        Value::Cast(_, inner, _) if depth > 0 => variable(&inner.1, depth - 1),
        Value::Address(_, all) if depth > 0 => variable(&all.first()?.1, depth - 1),
        _ => None,
    }
}

/// Removes places that only lead on, and what is never reached.
fn shorten(program: &mut Program) {
    let count = program.nodes.len();
    let mut out: Vec<Vec<u32>> = vec![Vec::new(); count];
    for (index, edge) in program.edges.iter().enumerate() {
        out[edge.from as usize].push(index as u32);
    }
    let next = |node: u32| match &out[node as usize][..] {
        [only] if program.edges[*only as usize].action == Action::Skip => {
            Some(program.edges[*only as usize].to)
        }
        _ => None,
    };
    let mut target: Vec<u32> = (0..count as u32).collect();
    for node in 0..count as u32 {
        let (mut at, mut steps) = (node, 0);
        while let Some(to) = next(at) {
            at = to;
            steps += 1;
            // A loop that does nothing stays one.
            if steps > count {
                at = node;
                break;
            }
        }
        target[node as usize] = at;
    }
    let entry = target[program.entry as usize];
    let exit = target[program.exit as usize];
    let mut seen = vec![false; count];
    let mut work = vec![entry];
    seen[entry as usize] = true;
    let mut edges = Vec::new();
    while let Some(node) = work.pop() {
        for &index in &out[node as usize] {
            let mut edge = program.edges[index as usize].clone();
            edge.to = target[edge.to as usize];
            if !seen[edge.to as usize] {
                seen[edge.to as usize] = true;
                work.push(edge.to);
            }
            edges.push(edge);
        }
    }
    seen[exit as usize] = true;
    let mut number = vec![u32::MAX; count];
    let mut nodes = Vec::new();
    for node in 0..count {
        if seen[node] {
            number[node] = nodes.len() as u32;
            nodes.push(program.nodes[node].clone());
        }
    }
    for edge in &mut edges {
        edge.from = number[edge.from as usize];
        edge.to = number[edge.to as usize];
    }
    program.entry = number[entry as usize];
    program.exit = number[exit as usize];
    program.out = vec![Vec::new(); nodes.len()];
    for (index, edge) in edges.iter().enumerate() {
        program.out[edge.from as usize].push(index as u32);
    }
    program.nodes = nodes;
    program.edges = edges;
}
