//! Source lines of drivers by function and offset, as the kernel's log names places.

use guardrail_binfmt::module::SymbolKind;
use guardrail_binfmt::{Lines, ModuleImage};
use guardrail_finding::Source;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The source lines of all drivers of a run, by the module's name.
#[derive(Clone)]
pub struct Sources(Arc<HashMap<String, ModuleSources>>);

/// The source lines of one driver.
pub struct ModuleSources {
    /// Section and offset in it of each function; `None` where several have the name.
    functions: HashMap<String, Option<(usize, u64)>>,
    lines: Option<Arc<Mutex<Lines>>>,
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
        let frames = self.lines.as_ref()?.lock().ok()?.frames(section, start.checked_add(offset)?);
        Some(Source::of(frames.into_iter().map(|frame| (frame.function, frame.file, frame.line))))
    }
}

impl Sources {
    /// The source lines of these modules.
    pub fn new(modules: HashMap<String, ModuleSources>) -> Sources {
        Sources(Arc::new(modules))
    }

    /// The names of the drivers.
    pub fn drivers(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    /// The source lines of an instruction; `None` where they are not known.
    pub fn at(&self, module: &str, function: &str, offset: u64) -> Option<Source> {
        self.0.get(module)?.at(function, offset)
    }
}
