//! Answers the checkers' questions about kernel and modules, with the kernel crate.

use crate::analysis::sources::{KernelSources, ModuleSources, Sources};
use crate::input::{AnalysisInput, ModuleFile};
use guardrail_analysis::machine::{Constant, LineLookup, ModuleMap, Pointed, Range, Region, World, rooms};
use guardrail_binfmt::module::{Placed, PlacedSymbol};
use guardrail_binfmt::{Btf, KernelImage, KernelLines, Lines, ModuleImage};
use guardrail_finding::Source;
use guardrail_host::HostError;
use guardrail_kernel::summaries::Row;
use guardrail_kernel::{SummaryTable, charts, plan};
use guardrail_knowledge::chart::Chart;
use guardrail_knowledge::effect::Summary;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The most names whose summaries are kept; a trace can name no more functions than a kernel has.
const MAX_CALLS: usize = 1 << 16;

/// The types whose members are locks, as C names them.
const LOCK_TYPES: [&str; 8] = [
    "spinlock",
    "spinlock_t",
    "raw_spinlock",
    "rwlock_t",
    "mutex",
    "semaphore",
    "rw_semaphore",
    "socket_lock_t",
];

/// A kernel and the modules that are traced.
pub struct KernelWorld {
    image: Arc<KernelImage>,
    lines: Option<KernelSources>,
    table: SummaryTable,
    charts: Arc<[Chart]>,
    /// The names of the hooks, by number.
    hooks: Vec<String>,
    modules: HashMap<String, Module>,
    /// Modules that are not traced, by name.
    others: HashMap<String, ModuleImage>,
    calls: RefCell<HashMap<String, Arc<Summary>>>,
    page_struct_size: u64,
    gfp_zero: u64,
    gfp_reclaim: u64,
    slab_typesafe: u64,
    redzones: bool,
    inlines_unlock: bool,
}

struct Module {
    image: ModuleImage,
    /// The bytes of its constants, by the index of their section.
    constants: Vec<(usize, Arc<[u8]>)>,
    lines: Option<Arc<Mutex<Lines>>>,
    /// The module's types, where it has types and they fit the kernel's.
    types: Option<Btf>,
}

impl Module {
    /// Its constants at the addresses of one load; sorted, as the placed sections are.
    fn constants(&self, placed: &Placed) -> Vec<Constant> {
        let bytes = |index| self.constants.iter().find(|(known, _)| *known == index);
        let sections = placed.sections().iter();
        sections
            .filter_map(|s| Some(Constant { start: s.start, bytes: Arc::clone(&bytes(s.index)?.1) }))
            .collect()
    }
}

impl KernelWorld {
    /// Opens everything that the analysis needs, so that it needs no files later.
    pub fn open(input: &AnalysisInput) -> Result<KernelWorld, HostError> {
        let kernel = Arc::new(KernelImage::open(&input.kernel)?);
        let table = SummaryTable::for_image(&kernel);
        let charts = charts::for_image(&kernel);
        let mut modules = HashMap::new();
        for file in &input.modules {
            let image = ModuleImage::open(&file.path)?;
            let lines = match &file.debug {
                Some(debug) => Lines::of_file(debug, &image)?,
                None => Lines::of_module(&image),
            };
            let lines = lines.map(|lines| Arc::new(Mutex::new(lines)));
            let base = Arc::clone(kernel.btf());
            // Without types only the reports have less detail.
            let types = image.btf_bytes().and_then(|bytes| Btf::parse(bytes, Some(base)).ok());
            let constants = image.constant_sections();
            let constants = constants.map(|index| (index, Arc::from(image.section_bytes(index)))).collect();
            modules.insert(file.name.clone(), Module { image, constants, lines, types });
        }
        // Without such a module, some addresses have no names.
        let other = |file: &ModuleFile| Some((file.name.clone(), ModuleImage::open(&file.path).ok()?));
        let others = input.others.iter().filter_map(other).collect();
        let lines = input.kernel_debug.as_ref().zip(kernel.build_id());
        // Without the file only the reports have less detail.
        let lines = lines.and_then(|(file, id)| KernelLines::open(file, id).ok());
        let lines = lines.map(|lines| KernelSources::new(Arc::clone(&kernel), lines));
        let btf = kernel.btf();
        let page_struct_size = btf.struct_named("page").and_then(|page| btf.size_of(page)).unwrap_or(64);
        // Up to 6.9 the flags are macros, which the types do not contain.
        let flag = |name, bit| 1 << btf.enum_value(name).filter(|bit| (0..32).contains(bit)).unwrap_or(bit);
        let (gfp_zero, gfp_reclaim) = (flag("___GFP_ZERO_BIT", 8), flag("___GFP_DIRECT_RECLAIM_BIT", 10));
        let slab_typesafe = flag("_SLAB_TYPESAFE_BY_RCU", 19);
        let (hooks, calls) = (input.hooks.clone(), RefCell::default());
        let inlines_unlock = kernel.address_of("_raw_spin_unlock").is_none();
        Ok(KernelWorld {
            image: kernel,
            lines,
            table,
            charts,
            hooks,
            modules,
            others,
            calls,
            page_struct_size,
            gfp_zero,
            gfp_reclaim,
            slab_typesafe,
            redzones: input.redzones,
            inlines_unlock,
        })
    }

    /// Gives the hooks their names, by number, before anything is asked.
    pub fn hook(&mut self, hooks: Vec<String>) {
        self.hooks = hooks;
    }

    /// The source lines of the traced modules and the kernel.
    pub fn sources(&self) -> Sources {
        let module = |(name, module): (&String, &Module)| {
            (name.clone(), ModuleSources::new(&module.image, module.lines.clone()))
        };
        Sources::new(self.modules.iter().map(module).collect(), self.lines.clone())
    }

    /// The modules that a module needs, and those that these need.
    fn needs(&self, name: &str) -> Vec<String> {
        let image = |name: &str| self.modules.get(name).map(|module| &module.image).or(self.others.get(name));
        let mut found = vec![name.to_owned()];
        let mut seen = 0;
        while seen < found.len() {
            for name in image(&found[seen]).into_iter().flat_map(ModuleImage::depends) {
                let name = name.replace('-', "_");
                if !found.contains(&name) && image(&name).is_some() {
                    found.push(name);
                }
            }
            seen += 1;
        }
        found.remove(0);
        found
    }

    fn hook_name(&self, number: u64) -> Option<&str> {
        self.hooks.get(usize::try_from(number).ok()?).map(String::as_str)
    }

    /// A module's types, or the kernel's where it has none of its own.
    fn types(&self, module: &str) -> &Btf {
        let own = self.modules.get(module).and_then(|module| module.types.as_ref());
        own.unwrap_or(self.image.btf())
    }

    /// The row of a hook, of a function of the kernel or of another module.
    fn hook_row(&self, number: u64) -> Option<&Row> {
        let name = self.hook_name(number)?;
        self.table.row(name).or_else(|| self.table.elsewhere_row(name))
    }
}

impl World for KernelWorld {
    fn function_at(&self, link_address: u64) -> Option<(String, u64)> {
        let located = self.image.is_text(link_address).then(|| self.image.symbol_at(link_address))??;
        Some((located.name.to_owned(), located.offset))
    }

    fn hook(&self, number: u64) -> Option<Arc<Summary>> {
        Some(Arc::clone(&self.hook_row(number)?.summary))
    }

    fn hook_args(&self, number: u64) -> usize {
        self.hook_row(number).map_or(0, |row| usize::from(row.args))
    }

    fn hook_returns(&self, number: u64) -> bool {
        self.hook_name(number).is_some_and(|name| self.table.row(name).is_some())
    }

    fn hook_address(&self, number: u64) -> u64 {
        let row = self.hook_name(number).and_then(|name| self.table.row(name));
        row.map_or(0, |row| row.address)
    }

    fn call(&self, name: &str) -> Arc<Summary> {
        if let Some(summary) = self.calls.borrow().get(name) {
            return Arc::clone(summary);
        }
        let summary = self.table.summary(&self.image, name);
        let mut calls = self.calls.borrow_mut();
        if calls.len() < MAX_CALLS {
            calls.insert(name.to_owned(), Arc::clone(&summary));
        }
        summary
    }

    fn call_other(&self, _module: &str, name: &str) -> Arc<Summary> {
        self.table.elsewhere(name).unwrap_or_else(|| Arc::new(Summary::unknown(name)))
    }

    fn module(&self, name: &str, _regions: &[Region], symbols: &[u64]) -> Option<ModuleMap> {
        let range = |symbol: &PlacedSymbol| Range {
            start: symbol.start,
            end: symbol.end,
            name: Arc::from(symbol.name.as_str()),
        };
        let Some(module) = self.modules.get(name) else {
            let placed = self.others.get(name)?.place(symbols)?;
            let functions = placed.functions().iter().map(range).collect();
            return Some(ModuleMap { functions, ..ModuleMap::default() });
        };
        let placed = module.image.place(symbols)?;
        let data: Vec<Range> = placed.data().iter().filter(|symbol| symbol.writable).map(range).collect();
        Some(ModuleMap {
            functions: placed.functions().iter().map(range).collect(),
            gaps: gaps(&placed, &data),
            data,
            constants: module.constants(&placed),
            ex_table: placed.ex_table().to_vec(),
            needs: self.needs(name),
            rooms: all_rooms(&module.image, &placed),
            lines: module.lines.clone().map(|lines| lookup(lines, placed)),
        })
    }

    fn page_struct_size(&self) -> u64 {
        self.page_struct_size
    }

    fn charts(&self) -> Arc<[Chart]> {
        Arc::clone(&self.charts)
    }

    fn per_cpu_start(&self) -> u64 {
        self.image.address_of("__per_cpu_start").unwrap_or(0)
    }
    fn rtnl_mutex(&self) -> Option<u64> {
        self.image.address_of("rtnl_mutex")
    }
    fn preempt_count(&self) -> Option<(u64, bool)> {
        plan::preempt_count(&self.image)
    }

    fn type_of_size(&self, module: &str, size: u64) -> Option<String> {
        self.modules.get(module)?.types.as_ref()?.only_struct_of_size(size).map(str::to_owned)
    }

    fn field(&self, module: &str, structure: &str, offset: u64) -> Option<String> {
        let types = self.types(module);
        types.field_at(types.struct_named(structure)?, offset)
    }

    fn lock_field(&self, module: &str, structure: &str, offset: u64) -> Option<String> {
        let types = self.types(module);
        types.field_of_type(types.struct_named(structure)?, offset, &LOCK_TYPES)
    }

    fn pointed_at(&self, module: &str, structure: &str, offset: u64) -> Option<Pointed> {
        let types = self.types(module);
        let pointed = types.pointed_at(types.struct_named(structure)?, offset)?;
        (!pointed.name.is_empty()).then(|| Pointed {
            name: pointed.name.to_owned(),
            size: pointed.size,
            open: pointed.open,
        })
    }

    fn size_of(&self, structure: &str) -> Option<u64> {
        let btf = self.image.btf();
        btf.size_of(btf.struct_named(structure)?)
    }

    fn gfp_zero(&self) -> u64 {
        self.gfp_zero
    }

    fn gfp_reclaim(&self) -> u64 {
        self.gfp_reclaim
    }

    fn slab_typesafe(&self) -> u64 {
        self.slab_typesafe
    }

    fn redzones(&self) -> bool {
        self.redzones
    }

    fn inlines_unlock(&self) -> bool {
        self.inlines_unlock
    }

    fn dma_skip_sync(&self) -> Option<u64> {
        let btf = self.image.btf();
        // It is a bitfield at first, and a bit of a flags array since 7.1.
        btf.byte_of_bit("device", "dma_skip_sync").or_else(|| {
            let bit = btf.enum_value_in("struct_device_flags", "DEV_FLAG_DMA_SKIP_SYNC")?;
            Some(btf.member_offset("device", "flags")? + u64::try_from(bit).ok()? / 8)
        })
    }
}

/// Addresses of the pushes that only make room on the stack, sorted, from the code of the module's file.
fn all_rooms(image: &ModuleImage, placed: &Placed) -> Vec<u64> {
    let mut found: Vec<u64> = Vec::new();
    for function in placed.functions() {
        let code = || {
            let (section, offset) = placed.section_of(function.start)?;
            let end = offset.checked_add(function.end.checked_sub(function.start)?)?;
            image.section_bytes(section).get(usize::try_from(offset).ok()?..usize::try_from(end).ok()?)
        };
        found.extend(rooms(code().unwrap_or_default(), function.start));
    }
    found.sort_unstable();
    found
}

/// Bytes of writable sections between variables, named by the variable before them.
fn gaps(placed: &Placed, data: &[Range]) -> Vec<Range> {
    let mut gaps = Vec::new();
    for section in placed.sections().iter().filter(|section| section.write) {
        let end = section.start.saturating_add(section.size);
        let from = data.partition_point(|variable| variable.start < section.start);
        let within = data[from..].iter().take_while(|variable| variable.start < end);
        let mut last: Option<&Range> = None;
        for variable in within {
            if let Some(before) =
                last.filter(|before| before.end < variable.start && before.start < before.end)
            {
                gaps.push(Range { start: before.end, end: variable.start, name: before.name.clone() });
            }
            // By the file's data, variables may overlap.
            if last.is_none_or(|before| variable.end > before.end) {
                last = Some(variable);
            }
        }
        // Padding before the next section belongs to no variable either.
        let behind = placed.sections().iter().map(|other| other.start).filter(|&start| start >= end).min();
        let end = behind.filter(|start| start - end < 8).unwrap_or(end);
        if let Some(before) = last.filter(|before| before.end < end && before.start < before.end) {
            gaps.push(Range { start: before.end, end, name: before.name.clone() });
        }
    }
    gaps.sort_by_key(|gap| gap.start);
    gaps
}

fn lookup(lines: Arc<Mutex<Lines>>, placed: Placed) -> LineLookup {
    Box::new(move |address| {
        let (section, offset) = placed.section_of(address)?;
        Some(Source::of(lines.lock().ok()?.frames(section, offset)))
    })
}
