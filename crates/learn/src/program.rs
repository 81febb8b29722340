//! Functions of whole binaries, from those that call nothing up to those that call others.

use crate::flow::code::{self, Callee};
use crate::flow::{Called, Surroundings, summarize};
use crate::known;
use crate::names::Names;
use crate::summary::{Summary, Unknown};
use crate::types::{Signature, Types};
use crate::unit::Unit;
use crate::value::Kind;
use guardrail_binfmt::{Btf, KernelImage, ModuleImage};
use iced_x86::{Instruction, OpKind};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

/// How often functions that call each other are looked at until it counts that they may do anything.
const ROUNDS: usize = 60;
/// How often until a range that still grows counts as unbounded.
const WIDENED: usize = 6;

/// The functions of a kernel and of its modules, as far as others may call them.
pub struct Program {
    /// Names of functions, for the places in summaries.
    pub names: Names,
    models: FxHashMap<String, Arc<Summary>>,
    reader: Arc<Summary>,
    /// What other units may call, by name.
    externs: FxHashMap<String, Arc<Summary>>,
    /// The kernel's types.
    pub(crate) btf: Arc<Btf>,
}

impl Program {
    /// Analyses all functions of a kernel.
    pub fn new(image: &KernelImage) -> (Program, Vec<(String, Arc<Summary>)>) {
        let types = Types::new(Arc::clone(image.btf()));
        let models = known::models(&types);
        let mut program = Program {
            names: Names::default(),
            models: models.into_iter().map(|(name, summary)| (name, Arc::new(summary))).collect(),
            reader: Arc::new(known::reader()),
            externs: FxHashMap::default(),
            btf: Arc::clone(image.btf()),
        };
        let unit = Unit::kernel(image);
        let exports = program.add(&unit, &types);
        (program, exports)
    }

    /// Analyses the functions of a module, with its types. The modules that it needs must have been added.
    pub(crate) fn module(&mut self, image: &ModuleImage, btf: Arc<Btf>) -> Vec<(String, Arc<Summary>)> {
        self.add(&Unit::module(image), &Types::new(btf))
    }

    /// Analyses a unit, and returns what each function does that it exports, by its own code.
    fn add(&mut self, unit: &Unit, types: &Types) -> Vec<(String, Arc<Summary>)> {
        let numbers: Vec<u32> = unit
            .functions()
            .iter()
            .map(|function| self.names.number(function.names.first().map_or("", String::as_str)))
            .collect();
        let mut work = Work { program: self, unit, types, summaries: vec![None; unit.functions().len()] };
        let order = order(unit);
        for group in &order {
            work.group(group, &numbers);
        }
        let mut exports = Vec::new();
        let mut bodies = Vec::new();
        let end = work.program.btf.end_id();
        for (name, address) in unit.exports() {
            let Some(function) = unit.function_at(address) else { continue };
            // A model is what callers see; what the code itself does is kept beside it.
            let known = work.model(name);
            if known.is_some() {
                let signature = work.signature(&unit.functions()[function].names);
                bodies.push((
                    name.to_owned(),
                    Arc::new(summarize(&work, function, numbers[function], signature)),
                ));
            }
            let Some(mut summary) = known.or_else(|| work.summaries[function].clone()) else { continue };
            // Numbers of a module's own types mean nothing elsewhere.
            if summary.result.is_some_and(|result| result.ty >= end) {
                let summary = Arc::make_mut(&mut summary);
                if let Some(result) = &mut summary.result {
                    result.ty = 0;
                    if result.direct == 0 && matches!(result.kind, Kind::Offset(_)) {
                        result.kind = Kind::Top;
                    }
                }
            }
            exports.push((name.to_owned(), Arc::clone(&summary)));
        }
        self.externs.extend(exports.iter().cloned());
        let mut exports: FxHashMap<String, Arc<Summary>> = exports.into_iter().collect();
        exports.extend(bodies);
        let mut exports: Vec<_> = exports.into_iter().collect();
        exports.sort_by(|a, b| a.0.cmp(&b.0));
        exports
    }
}

/// The analysis of one unit.
struct Work<'a> {
    program: &'a Program,
    unit: &'a Unit,
    types: &'a Types,
    summaries: Vec<Option<Arc<Summary>>>,
}

impl Work<'_> {
    /// Analyses functions that call each other, or one function.
    fn group(&mut self, group: &[usize], numbers: &[u32]) {
        let model = |function: &usize| {
            self.unit.functions()[*function].names.iter().find_map(|name| self.model(name))
        };
        let models: Vec<Option<Arc<Summary>>> = group.iter().map(model).collect();
        let open: Vec<usize> = group
            .iter()
            .zip(&models)
            .filter(|(_, model)| model.is_none())
            .map(|(function, _)| *function)
            .collect();
        for (&function, model) in group.iter().zip(models) {
            self.summaries[function] = model.or_else(|| Some(Arc::new(Summary::NOTHING)));
        }
        let place: FxHashMap<usize, usize> =
            open.iter().enumerate().map(|(at, function)| (*function, at)).collect();
        let mut callers = vec![Vec::new(); open.len()];
        for (at, &function) in open.iter().enumerate() {
            for callee in code::callees(self.unit, function) {
                if let Callee::Local(other) = callee
                    && let Some(&other) = place.get(&other)
                {
                    callers[other].push(at);
                }
            }
        }
        let mut rounds = vec![0; open.len()];
        // Functions that were found last call nothing further in the group, so they are first.
        let mut waiting: BTreeSet<usize> = (0..open.len()).collect();
        while let Some(at) = waiting.pop_first() {
            let function = open[at];
            rounds[at] += 1;
            let signature = self.signature(&self.unit.functions()[function].names);
            let mut summary = match rounds[at] {
                0..=ROUNDS => summarize(self, function, numbers[function], signature),
                _ => Summary::unknown(Unknown::Large),
            };
            if let Some(before) = &self.summaries[function]
                && rounds[at] > 1
                && !summary.grow_from(before, rounds[at] > WIDENED)
            {
                continue;
            }
            self.summaries[function] = Some(Arc::new(summary));
            waiting.extend(&callers[at]);
        }
    }

    /// Whether a name of a callee is of some kind.
    fn any_name(&self, callee: &Callee, of_kind: impl Fn(&str) -> bool) -> bool {
        match callee {
            Callee::Local(function) => {
                self.unit.functions()[*function].names.iter().any(|name| of_kind(name))
            }
            Callee::Extern(name) => of_kind(name),
            _ => false,
        }
    }

    fn model(&self, name: &str) -> Option<Arc<Summary>> {
        match self.program.models.get(name) {
            Some(model) => Some(Arc::clone(model)),
            None => known::only_reads(name).then(|| Arc::clone(&self.program.reader)),
        }
    }

    /// The prototype of a function by its names. Clones by the compiler have others than the function in source.
    fn signature(&self, names: &[String]) -> Option<Rc<Signature>> {
        let plain = |name: &&String| !name.contains('.') && !self.unit.is_ambiguous(name);
        names.iter().filter(plain).find_map(|name| self.types.function(name))
    }
}

impl Surroundings for Work<'_> {
    fn unit(&self) -> &Unit {
        self.unit
    }

    fn types(&self) -> &Types {
        self.types
    }

    fn called(&self, callee: &Callee) -> Option<Called> {
        match callee {
            Callee::Local(function) => {
                let summary = self.summaries[*function].clone()?;
                let signature = self.signature(&self.unit.functions()[*function].names);
                Some(Called { summary, signature })
            }
            Callee::Extern(name) => {
                let summary = self.model(name).or_else(|| self.program.externs.get(name).cloned())?;
                Some(Called { summary, signature: self.types.function(name) })
            }
            Callee::Indirect | Callee::Nowhere => None,
        }
    }

    fn is_return(&self, callee: &Callee) -> bool {
        self.any_name(callee, |name| name.starts_with("__x86_return_thunk"))
    }

    fn preserves(&self, callee: &Callee) -> bool {
        self.any_name(callee, known::preserves)
    }

    fn paravirtual(&self, insn: &Instruction) -> Option<String> {
        if insn.op_count() == 0 || insn.op0_kind() != OpKind::Memory {
            return None;
        }
        let offset = self.unit.pv_operation(insn.next_ip(), insn.memory_displacement64())?;
        let btf = self.types.btf();
        btf.field_at(btf.struct_named("paravirt_patch_template")?, offset)
    }
}

/// The functions in groups that call each other, callees first.
fn order(unit: &Unit) -> Vec<Vec<usize>> {
    let count = unit.functions().len();
    let edges: Vec<Vec<usize>> = (0..count)
        .map(|function| {
            let local = |callee| match callee {
                Callee::Local(other) => Some(other),
                _ => None,
            };
            match unit.functions()[function].is_part() {
                true => Vec::new(),
                false => code::callees(unit, function).into_iter().filter_map(local).collect(),
            }
        })
        .collect();
    strongly_connected(&edges)
}

/// Tarjan's algorithm without recursion: groups of nodes that reach each other, those that are reached first.
fn strongly_connected(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    const NONE: usize = usize::MAX;
    let count = edges.len();
    let (mut index, mut low) = (vec![NONE; count], vec![0; count]);
    let (mut on_stack, mut stack, mut groups) = (vec![false; count], Vec::new(), Vec::new());
    let mut next = 0;
    for root in 0..count {
        if index[root] != NONE {
            continue;
        }
        let mut path = vec![(root, 0)];
        while let Some((node, edge)) = path.pop() {
            if edge == 0 {
                (index[node], low[node]) = (next, next);
                next += 1;
                stack.push(node);
                on_stack[node] = true;
            }
            match edges[node].get(edge) {
                Some(&to) => {
                    path.push((node, edge + 1));
                    if index[to] == NONE {
                        path.push((to, 0));
                    } else if on_stack[to] {
                        low[node] = low[node].min(index[to]);
                    }
                }
                None => {
                    if low[node] == index[node] {
                        let at = stack.iter().rposition(|other| *other == node).unwrap_or(0);
                        let group: Vec<usize> = stack.drain(at..).collect();
                        group.iter().for_each(|other| on_stack[*other] = false);
                        groups.push(group);
                    }
                    if let Some((parent, _)) = path.last() {
                        low[*parent] = low[*parent].min(low[node]);
                    }
                }
            }
        }
    }
    groups
}

#[cfg(test)]
impl Program {
    /// What functions do that are made by hand, without prototypes.
    pub fn of_code(
        code: &[(&str, &[u8])],
        imports: &[(usize, u64, &str)],
    ) -> FxHashMap<String, Arc<Summary>> {
        let mut bytes = guardrail_binfmt::btf::testing::Builder::new(0);
        bytes.add("int", 1, 0, 4, &[1 << 24 | 32]);
        let btf = Arc::new(Btf::parse(&bytes.build(), None).expect("it is whole"));
        let types = Types::new(Arc::clone(&btf));
        let models = known::models(&types).into_iter().map(|(name, summary)| (name, Arc::new(summary)));
        let mut program = Program {
            names: Names::default(),
            models: models.collect(),
            reader: Arc::new(known::reader()),
            externs: FxHashMap::default(),
            btf,
        };
        program.add(&Unit::of_code(code, imports), &types).into_iter().collect()
    }
}
