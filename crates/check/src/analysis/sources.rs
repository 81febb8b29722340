//! Source lines of drivers by function and offset, as the kernel's log names places, and those of the kernel.

use guardrail_binfmt::module::SymbolKind;
use guardrail_binfmt::{KernelImage, KernelLines, Lines, ModuleImage};
use guardrail_finding::{Finding, LinkAddress, Source};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The source lines of all drivers of a run, by the module's name, and of its kernel.
#[derive(Clone)]
pub struct Sources {
    modules: Arc<HashMap<String, ModuleSources>>,
    kernel: Option<KernelSources>,
}

/// The source lines of one driver.
pub struct ModuleSources {
    /// Section and offset in it of each function; `None` where several have the name.
    functions: HashMap<String, Option<(usize, u64)>>,
    lines: Option<Arc<Mutex<Lines>>>,
}

/// The source lines of the kernel.
#[derive(Clone)]
pub struct KernelSources {
    image: Arc<KernelImage>,
    lines: Arc<Mutex<KernelLines>>,
}

impl ModuleSources {
    /// Reads the functions of a module. `lines` is absent where it has no debug information.
    pub fn new(image: &ModuleImage, lines: Option<Arc<Mutex<Lines>>>) -> ModuleSources {
        let mut functions: HashMap<String, Option<(usize, u64)>> = HashMap::new();
        for symbol in image.symbols().iter().filter(|symbol| symbol.kind == SymbolKind::Function) {
            let Some(section) = symbol.section else { continue };
            let place = Some((usize::from(section), symbol.value));
            functions
                .entry(image.symbol_name(symbol).to_owned())
                .and_modify(|known| *known = known.filter(|_| *known == place))
                .or_insert(place);
        }
        ModuleSources { functions, lines }
    }

    fn at(&self, function: &str, offset: u64) -> Option<Source> {
        let (section, start) = (*self.functions.get(function)?)?;
        Some(Source::of(self.lines.as_ref()?.lock().ok()?.frames(section, start.checked_add(offset)?)))
    }
}

impl KernelSources {
    /// The lines of the kernel of an image.
    pub fn new(image: Arc<KernelImage>, lines: KernelLines) -> KernelSources {
        KernelSources { image, lines: Arc::new(Mutex::new(lines)) }
    }

    fn at(&self, address: LinkAddress) -> Option<Source> {
        let frames = self.lines.lock().ok()?.frames(address.0);
        (!frames.is_empty()).then(|| Source::of(frames))
    }

    /// The lines at an offset in a function; `None` where several have the name.
    fn of(&self, function: &str, offset: u64) -> Option<Source> {
        let mut named = self.image.symbol_table().named(function);
        let symbol = named.next().filter(|first| named.all(|other| other.address == first.address))?;
        self.at(LinkAddress(symbol.address.checked_add(offset)?))
    }
}

impl Sources {
    /// The source lines of these modules, and of the kernel where its debug file is there.
    pub fn new(modules: HashMap<String, ModuleSources>, kernel: Option<KernelSources>) -> Sources {
        Sources { modules: Arc::new(modules), kernel }
    }

    /// The names of the drivers.
    pub fn drivers(&self) -> Vec<&str> {
        self.modules.keys().map(String::as_str).collect()
    }

    /// The source lines of an instruction of a module, or of the kernel (`None`); `None` where they are not known.
    pub fn at(&self, module: Option<&str>, function: &str, offset: u64) -> Option<Source> {
        match module {
            Some(module) => self.modules.get(module)?.at(function, offset),
            None => self.kernel.as_ref()?.of(function, offset),
        }
    }

    /// Adds lines to the kernel's frames of findings whose stacks the trace shows.
    pub fn locate_kernel(&self, findings: &mut [Finding]) {
        let Some(kernel) = &self.kernel else { return };
        for frame in findings.iter_mut().flat_map(Finding::frames_mut) {
            if let Some(source) = frame.instruction.take().and_then(|at| kernel.at(at)) {
                (frame.location, frame.inlined) = (source.location, source.inlined);
            }
        }
    }
}
