//! Turns addresses of a guest into functions and lines.

use guardrail_binfmt::{KernelImage, KernelLines, Lines, ModuleImage};
use guardrail_finding::{Frame, Source};
use guardrail_trace::client::{Module, Report};
use guardrail_vm::Cache;
use guardrail_vm::prepare::Prepared;
use guardrail_vm::symbols;
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;

/// More bytes than any function of the kernel has; bounds the search for its end.
const MAX_FUNCTION: u64 = 1 << 17;

/// The names for one run's addresses.
pub struct Names {
    image: KernelImage,
    slide: u64,
    modules: Vec<Module>,
    files: HashMap<String, PathBuf>,
    debug: HashMap<String, PathBuf>,
    lines: RefCell<HashMap<String, Option<DebugInfo>>>,
    /// The lines of the kernel, where its debug file is in the cache, and what was looked up by link-time address.
    kernel: Option<RefCell<(KernelLines, HashMap<u64, Source>)>>,
}

/// A module with the source lines of its code.
struct DebugInfo {
    image: ModuleImage,
    lines: Lines,
}

impl Names {
    /// Names for the addresses in these reports.
    pub fn new(cache: &Cache, prepared: &Prepared, image: KernelImage, reports: &[Report]) -> Names {
        let slide = reports.iter().find_map(|report| report.slide).unwrap_or(0);
        let mut modules: Vec<Module> =
            reports.first().map(|report| report.modules.clone()).unwrap_or_default();
        // The last module at an address is the one that ran there last.
        modules.reverse();
        let mut files = HashMap::new();
        let mut debug = HashMap::new();
        let more = prepared.more.iter().flat_map(|turn| turn.plan.before.iter().chain([&turn.plan.driver]));
        let plan = prepared.plan.before.iter().chain([&prepared.plan.driver]);
        for file in plan.chain(&prepared.also).chain(more) {
            files.insert(file.name.clone(), file.path.clone());
            if let Some(path) = symbols::cached(cache, file) {
                debug.insert(file.name.clone(), path);
            }
        }
        let lines = symbols::cached_kernel(cache, &prepared.kernel).zip(image.build_id());
        let lines = lines.and_then(|(file, id)| KernelLines::open(&file, id).ok());
        let kernel = lines.map(|lines| RefCell::new((lines, HashMap::new())));
        Names { image, slide, modules, files, debug, lines: RefCell::default(), kernel }
    }

    /// The function and line at a code address, at a moment (0: unknown).
    pub fn frame(&self, addr: u64, when: u64) -> Frame {
        let link = addr.wrapping_sub(self.slide);
        if self.image.is_text(link)
            && let Some(located) = self.image.symbol_at(link)
        {
            let Source { location, inlined } = self.kernel_source(link).unwrap_or_default();
            let (function, offset) = (located.name.to_owned(), located.offset);
            return Frame { function, module: None, offset, location, inlined, ..Frame::default() };
        }
        let there = |module: &&Module| module.contains(addr);
        let then = |module: &&Module| there(module) && module.life.0 <= when && when <= module.life.1;
        let Some(module) = self.modules.iter().find(then).or_else(|| self.modules.iter().find(there)) else {
            return Frame { function: format!("{addr:#x}"), ..Frame::default() };
        };
        let next = module.functions.partition_point(|function| function.0 <= addr);
        let (start, function) = match next.checked_sub(1) {
            Some(at) => (module.functions[at].0, module.functions[at].1.clone()),
            None => (addr, format!("{addr:#x}")),
        };
        let offset = addr - start;
        let Source { location, inlined } = self.source(&module.name, &function, offset).unwrap_or_default();
        Frame { function, module: Some(module.name.clone()), offset, location, inlined, ..Frame::default() }
    }

    /// The function and line for the return address of a call: the line is that of the call.
    pub fn caller(&self, addr: u64, when: u64) -> Frame {
        let frame = self.frame(addr.wrapping_sub(1), when);
        Frame { offset: frame.offset + 1, ..frame }
    }

    /// The function of an address, with its module where it has one.
    pub fn function(&self, addr: u64) -> String {
        let frame = self.frame(addr, 0);
        match frame.module {
            None => frame.function,
            Some(module) => format!("{} [{module}]", frame.function),
        }
    }

    /// The source lines of an offset in a module's function.
    fn source(&self, module: &str, function: &str, offset: u64) -> Option<Source> {
        let mut lines = self.lines.borrow_mut();
        let file = lines.entry(module.to_owned()).or_insert_with(|| self.debug_info(module)).as_ref()?;
        let symbol = file.image.symbols().iter().find(|symbol| file.image.symbol_name(symbol) == function)?;
        let frames = file.lines.frames(usize::from(symbol.section?), symbol.value.checked_add(offset)?);
        Some(Source::of(frames))
    }

    /// The source lines of a link-time address of the kernel.
    fn kernel_source(&self, link: u64) -> Option<Source> {
        let mut kernel = self.kernel.as_ref()?.borrow_mut();
        let (lines, known) = &mut *kernel;
        Some(known.entry(link).or_insert_with(|| Source::of(lines.frames(link))).clone())
    }

    /// The file of a module.
    pub fn module_file(&self, module: &str) -> Option<ModuleImage> {
        ModuleImage::open(self.files.get(module)?).ok()
    }

    /// The line table of a module's file, if the file or its debug file has one.
    pub fn module_lines(&self, module: &str, image: &ModuleImage) -> Option<Lines> {
        match self.debug.get(module) {
            Some(debug) => Lines::of_file(debug, image).ok()?,
            None => Lines::of_module(image),
        }
    }

    /// Offsets of all instructions of a function of the image.
    pub fn instructions(&self, function: &str) -> Option<Vec<u64>> {
        let start = self.image.address_of(function)?;
        // The function ends at the next symbol; the image has no exact size.
        let ends =
            |&size: &u64| self.image.symbol_at(start + size).is_none_or(|located| located.offset < size);
        let end = (1..MAX_FUNCTION).find(ends)?;
        Some(offsets(self.image.bytes_at(start, end)?))
    }

    /// The link-time address of a function of the image.
    pub fn address_of(&self, function: &str) -> Option<u64> {
        self.image.address_of(function)
    }

    /// The link-time range of the image's code.
    pub fn text(&self) -> (u64, u64) {
        let text = self.image.sections().find(|section| section.0 == ".text");
        text.map_or((0, 0), |(_, start, size)| (start, start.saturating_add(size)))
    }

    fn debug_info(&self, module: &str) -> Option<DebugInfo> {
        let image = self.module_file(module)?;
        let lines = self.module_lines(module, &image)?;
        Some(DebugInfo { image, lines })
    }
}

/// Offsets of the instructions of a function. Padding behind the last one, and traps that are unreachable,
/// are left out.
pub fn offsets(bytes: &[u8]) -> Vec<u64> {
    let insns = Decoder::new(64, bytes, DecoderOptions::NONE).into_iter();
    insns
        .filter(|insn| !insn.is_invalid() && insn.mnemonic() != Mnemonic::Int3)
        .map(|insn| insn.ip())
        .collect()
}
