//! What checkers ask about kernel and modules, answered by the kernel crate.

use crate::errors::CliError;
use crate::wire::Subject;
use guardrail_analysis::effect::Summary;
use guardrail_analysis::finding::Location;
use guardrail_analysis::world::{LineLookup, ModuleMap, Range, Region, World};
use guardrail_kernel::module::{Placed, PlacedSymbol};
use guardrail_kernel::{KernelImage, Lines, ModuleImage, SummaryTable};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Names whose summaries are kept; a trace can name no more functions than a kernel has.
const MAX_CALLS: usize = 1 << 16;

/// A kernel and the modules that are traced.
pub struct Known {
    image: KernelImage,
    table: SummaryTable,
    /// The names of the hooks, by number.
    hooks: Vec<String>,
    modules: HashMap<String, Module>,
    calls: RefCell<HashMap<String, Arc<Summary>>>,
    page_struct_size: u64,
    gfp_zero: u64,
}

struct Module {
    image: ModuleImage,
    lines: Option<Arc<Mutex<Lines>>>,
}

impl Known {
    /// Opens everything that the analysis needs, so that it needs no files later.
    pub fn open(subject: &Subject) -> Result<Known, CliError> {
        let image = KernelImage::open(&subject.kernel)?;
        let table = SummaryTable::for_image(&image);
        let mut modules = HashMap::new();
        for file in &subject.modules {
            let image = ModuleImage::open(&file.path)?;
            let lines = match &file.debug {
                Some(debug) => Lines::of_file(debug, &image)?,
                None => Lines::of_module(&image),
            };
            let lines = lines.map(|lines| Arc::new(Mutex::new(lines)));
            modules.insert(file.name.clone(), Module { image, lines });
        }
        let btf = image.btf();
        let page_struct_size = btf.struct_named("page").and_then(|page| btf.size_of(page)).unwrap_or(64);
        // Up to 6.9 the flags are macros, of which types say nothing.
        let bit = btf.enum_value("___GFP_ZERO_BIT").filter(|bit| (0..32).contains(bit)).unwrap_or(8);
        let (hooks, calls) = (subject.hooks.clone(), RefCell::default());
        Ok(Known { image, table, hooks, modules, calls, page_struct_size, gfp_zero: 1 << bit })
    }

    fn hook_name(&self, number: u64) -> Option<&str> {
        self.hooks.get(usize::try_from(number).ok()?).map(String::as_str)
    }
}

impl World for Known {
    fn function_at(&self, link_address: u64) -> Option<(String, u64)> {
        let located = self.image.is_text(link_address).then(|| self.image.symbol_at(link_address))??;
        Some((located.name.to_owned(), located.offset))
    }

    fn hook(&self, number: u64) -> Option<Arc<Summary>> {
        Some(Arc::clone(&self.table.row(self.hook_name(number)?)?.summary))
    }

    fn hook_args(&self, number: u64) -> usize {
        let row = self.hook_name(number).and_then(|name| self.table.row(name));
        row.map_or(0, |row| usize::from(row.args))
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

    fn module(&self, name: &str, _regions: &[Region], symbols: &[u64]) -> Option<ModuleMap> {
        let module = self.modules.get(name)?;
        let placed = module.image.place(symbols)?;
        let range = |symbol: &PlacedSymbol| Range {
            start: symbol.start,
            end: symbol.end,
            name: Arc::from(symbol.name.as_str()),
        };
        let data: Vec<Range> = placed.data().iter().filter(|symbol| symbol.writable).map(range).collect();
        Some(ModuleMap {
            functions: placed.functions().iter().map(range).collect(),
            gaps: gaps(&placed, &data),
            data,
            ex_table: placed.ex_table().to_vec(),
            lines: module.lines.clone().map(|lines| lookup(lines, placed)),
        })
    }

    fn page_struct_size(&self) -> u64 {
        self.page_struct_size
    }

    fn gfp_zero(&self) -> u64 {
        self.gfp_zero
    }
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
            // Variables may lie in others, as far as a file says.
            if last.is_none_or(|before| variable.end > before.end) {
                last = Some(variable);
            }
        }
        // Bytes that align the section behind belong to nobody either.
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
        let (file, line) = lines.lock().ok()?.line(section, offset)?;
        Some(Location { file, line })
    })
}
