//! A guarded module as a whole: its code, its tables, and its description for the runtime.

use crate::data::Data;
use crate::elf::{Elf, Place, Target};
use crate::graph::{Graph, Node, Number, leaders, ranks};
use crate::mode::{Ask, Mode, mode};
use crate::tables::{self, Tables};
use guardrail_abi::{self as abi, ABI, layout};
use rustc_hash::{FxHashMap, FxHashSet};

/// The section with the description.
const DESCRIPTION: &str = ".guardrail";
/// The section with `struct module`.
const THIS: &str = ".gnu.linkonce.this_module";

/// What the description says of the frames of code, by section: offsets and words; `None` for thunks.
pub type Texts = FxHashMap<u32, Option<Vec<(u32, u32)>>>;

/// A range of memory: its section, first byte, and end.
type Range = (u32, u64, u64);

/// A module.
pub struct Module<'m> {
    pub elf: &'m Elf,
    pub tables: Tables,
    pub graph: Graph,
    pub data: Data<'m>,
    /// The protection domain, from 1 to 14.
    pub domain: u8,
    /// The number of the section with the description.
    pub description: u32,
    /// Which instructions begin blocks.
    pub leaders: Vec<bool>,
    /// The order in which control comes to instructions.
    pub ranks: Vec<u32>,
    /// Words of their callers' stacks that functions write.
    pub words: FxHashMap<Number, i64>,
    /// What functions ask the runtime.
    pub asks: FxHashMap<Number, Ask>,
    /// What the description says of the frames of code.
    pub texts: Texts,
    /// Imports that have a thunk.
    pub wrapped: FxHashMap<u32, Number>,
    /// The module's own memory: section, first byte, and the end.
    owned: Vec<Range>,
    modes: Vec<Mode>,
}

impl<'m> Module<'m> {
    /// Reads a module's code, and its description as far as code needs it.
    pub fn read(elf: &'m Elf, trusted: &[&str]) -> Module<'m> {
        let tables = Tables::read(elf);
        let graph = Graph::build(elf, &tables, trusted);
        let (leaders, ranks) = (leaders(&graph), ranks(&graph));
        let modes = elf.sections.iter().map(|section| mode(&section.name)).collect();
        let description = elf.section(DESCRIPTION).unwrap_or(u32::MAX);
        let mut module = Module {
            elf,
            tables,
            graph,
            data: Data::of(elf),
            domain: 0,
            description,
            leaders,
            ranks,
            words: FxHashMap::default(),
            asks: FxHashMap::default(),
            texts: Texts::default(),
            wrapped: FxHashMap::default(),
            owned: Vec::new(),
            modes,
        };
        module.owned = module.ranges();
        module
    }

    /// The kind of code that an instruction belongs to.
    pub fn mode(&self, number: Number) -> Mode {
        self.mode_of(self.graph.nodes[number as usize].place.0)
    }

    /// The kind of code in a section.
    pub fn mode_of(&self, section: u32) -> Mode {
        self.modes.get(section as usize).copied().unwrap_or(Mode::Own)
    }

    /// The name of the import that an instruction calls or jumps to.
    pub fn imported(&self, node: &crate::graph::Node) -> Option<&'m str> {
        match node.to? {
            crate::graph::Dest::Import(import) => Some(self.elf.import(import)),
            crate::graph::Dest::Code(_) => None,
        }
    }

    /// What the memory operand of an instruction names.
    pub fn named_memory(&self, node: &Node) -> Option<(Target, i64)> {
        let section = &self.elf.sections[node.place.0 as usize];
        let at = node.place.1 + node.offsets.displacement_offset() as u64;
        let reloc = section.reloc_at(at).filter(|_| node.offsets.has_displacement())?;
        Some((reloc.target, reloc.addend.wrapping_add(crate::graph::bias(reloc, node.behind().1))))
    }

    pub(crate) fn section(&self) -> Option<&'m crate::elf::Section> {
        self.elf.sections.get(self.description as usize)
    }

    pub(crate) fn pointer(&self, at: usize) -> Option<Place> {
        let reloc = self.section()?.reloc_at(at as u64);
        reloc.filter(|reloc| reloc.width() == 8 && !reloc.relative())?.place()
    }

    /// The rows of a table in the description, each by its offset; `None` if it lies elsewhere.
    pub(crate) fn rows(&self, at: usize, count: usize, size: usize) -> Option<Vec<usize>> {
        let section = self.section()?;
        let count = usize::try_from(section.long(count)).ok()?;
        if count == 0 {
            return Some(Vec::new());
        }
        let (own, start) = self.pointer(at)?;
        let start = usize::try_from(start).ok()?;
        let end = count.checked_mul(size)?.checked_add(start)?;
        (own == self.description && end <= section.data.len()).then(|| (start..end).step_by(size).collect())
    }

    fn ranges(&self) -> Vec<Range> {
        use layout::module as row;
        let tables = [(row::WRITABLE, row::N_WRITABLE), (row::INIT_ONLY, row::N_INIT_ONLY)];
        let rows =
            tables.iter().filter_map(|(at, count)| self.rows(*at, *count, layout::range::BYTES)).flatten();
        rows.filter_map(|row| self.range(row)).collect()
    }

    fn range(&self, at: usize) -> Option<Range> {
        let (section, start) = self.pointer(at + layout::range::START)?;
        let len = self.section()?.long(at + layout::range::LEN);
        Some((section, start, start.checked_add(len)?))
    }

    /// Looks at the description; returns its interface and domain.
    pub fn describe(&mut self, faults: &mut Vec<String>) -> (u32, u32) {
        use layout::module as row;
        let Some(section) = self.section().filter(|section| section.data.len() >= row::BYTES) else {
            faults.push("it has no description for the runtime".into());
            return (0, 0);
        };
        let (magic, version) = (section.word(row::MAGIC), section.word(row::ABI));
        let (domain, flags) = (section.word(row::DOMAIN), section.word(row::FLAGS));
        if magic != abi::MAGIC {
            faults.push(format!("its description for the runtime begins with {magic:08x}"));
        }
        if version != ABI {
            faults.push(format!("it was guarded for interface {version}, and this is {ABI}; guard it again"));
        }
        if !(1..abi::DOMAINS).contains(&domain) || flags != abi::FLAGS {
            faults.push(format!("domain {domain} with flags {flags:x} is nothing that the runtime knows"));
        }
        self.domain = domain as u8;
        if section.write() {
            faults.push("its description can be written".into());
        }
        self.memory(faults);
        self.numbers(faults);
        self.thunks(faults);
        self.functions(faults);
        (version, domain)
    }

    /// The memory that the description claims must be the module's own variables.
    fn memory(&self, faults: &mut Vec<String>) {
        use layout::module as row;
        for (at, count) in [(row::WRITABLE, row::N_WRITABLE), (row::INIT_ONLY, row::N_INIT_ONLY)] {
            if self.rows(at, count, layout::range::BYTES).is_none() {
                faults.push("a table of its description lies elsewhere".into());
            }
        }
        for (section, start, end) in &self.owned {
            let section = &self.elf.sections[*section as usize];
            let of_data = [".data", ".bss", ".init.data"].iter().any(|name| section.name.starts_with(name));
            let own = of_data && section.alloc() && section.write() && !section.exec();
            if !own || section.name.contains("percpu") || *end > section.size {
                faults.push(format!(
                    "its description gives it {}+{start:#x}, which is not its own",
                    section.name
                ));
            }
        }
    }

    /// The description's numbers are what the file has: relocations fill its pointers alone. Rows of ranges begin
    /// with a pointer.
    fn numbers(&self, faults: &mut Vec<String>) {
        use layout::module as row;
        let ranges = [
            (row::WRITABLE, row::N_WRITABLE),
            (row::INIT_ONLY, row::N_INIT_ONLY),
            (row::CALLS, row::N_CALLS),
            (row::ENTRIES, row::N_ENTRIES),
        ];
        let rows = |at, count, size| self.rows(at, count, size).unwrap_or_default();
        let ranges: Vec<usize> = ranges
            .iter()
            .flat_map(|(at, count)| rows(*at, *count, layout::range::BYTES))
            .map(|row| row + layout::range::START)
            .collect();
        if ranges.iter().any(|at| self.pointer(*at).is_none()) {
            faults.push("its description has a range of memory that is not its own".into());
        }
        let is_entry = |at: usize| {
            let place = self.pointer(at).filter(|(section, _)| *section == self.data.section);
            place.is_some_and(|(_, at)| self.data.entry(at as u32, self.domain).is_ok())
        };
        let transacts = rows(row::TRANSACTS, row::N_TRANSACTS, size_of::<u64>());
        if !transacts.iter().all(|at| is_entry(*at)) {
            faults.push("its description names what is no entry".into());
        }
        let mut pointers: FxHashSet<usize> = [
            row::NAME,
            row::INIT,
            row::EXIT,
            row::WRITABLE,
            row::INIT_ONLY,
            row::TARGETS,
            row::IMPORTS,
            row::CALLS,
            row::ENTRIES,
            row::TEXTS,
            row::TRANSACTS,
        ]
        .into_iter()
        .chain(ranges)
        .chain(transacts)
        .chain(rows(row::TARGETS, row::N_TARGETS, layout::own_function::BYTES))
        .collect();
        for at in rows(row::IMPORTS, row::N_IMPORTS, layout::import::BYTES) {
            pointers.extend([at + layout::import::FUNCTION, at + layout::import::CALL]);
        }
        for at in rows(row::TEXTS, row::N_TEXTS, layout::text::BYTES) {
            pointers.extend([at + layout::text::END, at + layout::text::SPILLS]);
        }
        let relocs = self.section().map(|section| section.relocs.as_slice()).unwrap_or_default();
        if relocs.iter().any(|reloc| {
            reloc.width() != 8 || reloc.relative() || !pointers.contains(&(reloc.offset as usize))
        }) {
            faults.push("a relocation changes a number of its description".into());
        }
    }

    /// Which code the description calls thunks: all of it, and nothing else.
    fn thunks(&self, faults: &mut Vec<String>) {
        use layout::module as row;
        for (at, count, mode) in
            [(row::CALLS, row::N_CALLS, Mode::Call), (row::ENTRIES, row::N_ENTRIES, Mode::Entry)]
        {
            let rows = self.rows(at, count, layout::range::BYTES).unwrap_or_default();
            let named: Option<Vec<Range>> = rows.into_iter().map(|row| self.range(row)).collect();
            let mut named = named.unwrap_or_default();
            let own = |(index, section): (usize, &crate::elf::Section)| {
                let own = section.exec() && section.size > 0 && self.mode_of(index as u32) == mode;
                own.then_some((index as u32, 0, section.size))
            };
            let whole: Vec<Range> = self.elf.sections.iter().enumerate().filter_map(own).collect();
            named.sort_unstable();
            if named != whole {
                faults.push("its description calls thunks what is other code, or leaves out some".into());
            }
        }
    }

    /// The functions that the description names, and those that the kernel calls when it loads the module.
    fn functions(&self, faults: &mut Vec<String>) {
        use layout::module as row;
        for (at, what) in [(row::INIT, "init"), (row::EXIT, "exit")] {
            let own =
                self.pointer(at).map(|place| self.elf.begins(place) && self.mode_of(place.0) == Mode::Own);
            if own == Some(false) || (own.is_none() && what == "init") {
                faults.push(format!("its description names an {what} that is no function of its own"));
            }
        }
        match self.rows(row::TARGETS, row::N_TARGETS, layout::own_function::BYTES) {
            None => faults.push("a table of its description lies elsewhere".into()),
            Some(rows) => {
                let wrong = rows
                    .into_iter()
                    .filter(|row| !self.pointer(*row).is_some_and(|place| self.enters(place)));
                faults.extend(
                    wrong.map(|_| "its description lets others call what is no thunk of an entry".to_owned()),
                );
            }
        }
        let this = self.elf.sections.iter().find(|section| section.name == THIS);
        let Some(this) = this else { return faults.push("it has no struct module".into()) };
        let code = this.relocs.iter().filter_map(|reloc| reloc.place());
        let code = code.filter(|place| self.elf.sections[place.0 as usize].exec());
        let (stubs, others): (Vec<Place>, Vec<Place>) =
            code.partition(|place| self.mode_of(place.0) == Mode::Life);
        if stubs.is_empty() {
            faults.push("the kernel does not call the stub that makes it known to the runtime".into());
        }
        for place in others {
            faults.push(format!("the kernel calls {} past the runtime", self.elf.name(place)));
        }
        for place in stubs {
            if self.graph.at(place).is_none_or(|number| !self.graph.roots.contains(&number)) {
                faults.push("the kernel calls a stub where it does not begin".into());
            }
        }
    }

    /// The kernel calls the stub that makes the module known. The runtime calls init and exit, which have no
    /// arguments on the stack.
    pub fn life(&self, stubs: &[(Number, u32)], faults: &mut Vec<String>) {
        let this = self.elf.sections.iter().find(|section| section.name == THIS);
        let called = this.into_iter().flat_map(|this| &this.relocs).filter_map(|reloc| reloc.place());
        let called: Vec<Number> = called.filter_map(|place| self.graph.at(place)).collect();
        let enters = |stub: &&(Number, u32)| self.elf.import(stub.1) == abi::symbol::MODULE_ENTER;
        if !stubs.iter().filter(enters).any(|stub| called.contains(&stub.0)) {
            faults.push("the kernel calls no stub that makes it known to the runtime".into());
        }
        for at in [layout::module::INIT, layout::module::EXIT] {
            let Some(root) = self.pointer(at).and_then(|place| self.graph.at(place)) else { continue };
            if self.words.get(&root).is_some_and(|words| *words > 0) {
                faults.push("its init or exit writes the stack of the runtime".into());
            }
        }
    }

    /// What the module may call by pointer elsewhere must be imports, each by its thunk if it has one.
    pub fn imports(&self, faults: &mut Vec<String>) {
        use layout::{import, module as row};
        let Some(rows) = self.rows(row::IMPORTS, row::N_IMPORTS, import::BYTES) else {
            return faults.push("a table of its description lies elsewhere".into());
        };
        let named = |at: usize| {
            let reloc = self.section()?.reloc_at(at as u64)?;
            (reloc.width() == 8 && !reloc.relative()).then_some((reloc.target, reloc.addend))
        };
        for row in rows {
            let Some((Target::Import(function), 0)) = named(row + import::FUNCTION) else {
                faults.push("its description lets it call what is no import".into());
                continue;
            };
            let call = named(row + import::CALL);
            if self.elf.import(function).starts_with(abi::PREFIX) {
                faults.push("its description lets it use what is the runtime's".into());
            }
            // A variable cannot be called.
            let at = row + import::CALL;
            let none = |section: &crate::elf::Section| {
                section.reloc_at(at as u64).is_none() && section.long(at) == 0
            };
            if self.section().is_some_and(none) {
                continue;
            }
            let good = match self.wrapped.get(&function) {
                Some(thunk) => {
                    let (section, at) = self.graph.nodes[*thunk as usize].place;
                    call == Some((Target::In(section), at as i64))
                }
                None => call == Some((Target::Import(function), 0)),
            };
            if !good {
                let name = self.elf.import(function);
                faults.push(format!("its description lets it call {name} past its thunk"));
            }
        }
    }

    /// Whether a thunk of an entry begins at a place.
    fn enters(&self, place: Place) -> bool {
        self.mode_of(place.0) == Mode::Entry && self.elf.begins(place)
    }

    /// Places in sections for init and exit that code names.
    fn named(&self) -> FxHashSet<Place> {
        let mut named = FxHashSet::default();
        for node in self.graph.living() {
            let section = &self.elf.sections[node.place.0 as usize];
            for reloc in section.relocs_in(node.place.1, node.behind().1) {
                let more = crate::graph::bias(reloc, node.behind().1);
                let place = reloc.place().map(|(section, at)| (section, at.wrapping_add_signed(more)));
                named.extend(place.filter(|place| marking(&self.elf.sections[place.0 as usize])));
            }
        }
        named
    }

    /// Pointers to code must lead to thunks of entries.
    pub fn pointers(&self, faults: &mut Vec<String>) {
        let good = |place: Place| {
            let section = &self.elf.sections[place.0 as usize];
            !section.exec() || tables::kernels(section) || self.enters(place) || self.graph.trusts(place)
        };
        // Nobody may call init and exit by pointer, but their addresses are printed.
        let hooks = [layout::module::INIT, layout::module::EXIT].map(|at| self.pointer(at));
        let named = self.named();
        for (index, section) in self.elf.sections.iter().enumerate() {
            let skip = tables::is_table(section) || section.name == THIS || index as u32 == self.description;
            if !section.alloc() || section.exec() || skip {
                continue;
            }
            // A pointer that no code names just keeps the linker from leaving init or exit out.
            let marks = |reloc: &crate::elf::Reloc| {
                let used = || (0..8).any(|at| named.contains(&(index as u32, reloc.offset + at)));
                marking(section) && reloc.place().is_some_and(|place| hooks.contains(&Some(place))) && !used()
            };
            for reloc in &section.relocs {
                if marks(reloc) {
                    continue;
                }
                let Some(place) = reloc.place().filter(|place| !good(*place)) else { continue };
                let at = (index as u32, reloc.offset);
                faults.push(format!(
                    "{}: a pointer leads to {} past its thunk",
                    self.elf.name(at),
                    self.elf.name(place)
                ));
            }
        }
        for node in self.graph.living() {
            let named = node.to.is_none().then(|| crate::graph::named(self.elf, node)).flatten();
            let fine = |place: Place| {
                crate::graph::label(self.elf, place) || good(place) || hooks.contains(&Some(place))
            };
            if let Some(place) = named.filter(|place| !fine(*place)) {
                let at = self.elf.name(node.place);
                faults.push(format!(
                    "{at}: `{}` takes the address of {} past its thunk",
                    node.insn,
                    self.elf.name(place)
                ));
            }
        }
    }
}

/// Whether a section is one in which the kernel's macros mark init and exit functions.
fn marking(section: &crate::elf::Section) -> bool {
    [".init.data", ".exit.data"].contains(&section.name.as_str())
}
