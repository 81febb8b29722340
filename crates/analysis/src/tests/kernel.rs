//! A kernel for tests, whose functions are named and described one by one, with the module that tests run.

use crate::machine::{Constant, ModuleMap, Pointed, Range, Region, World};
use guardrail_knowledge::chart::{Call, Chart, parse};
use guardrail_knowledge::effect::{Class, Effect, Key, Len, Ptr, Summary, When, Zeroed};
use guardrail_trace::event::{Global, Head, Kind, RegionFlags};
use std::sync::Arc;

pub const MODULE: u64 = 0xffff_ffff_c000_0000;
/// The function `f`, which tests run unless they say otherwise.
pub const F: u64 = MODULE + 0x100;
/// A push in `f` that only makes room.
pub const ROOM: u64 = F + 0x90;
/// The function `g`.
pub const G: u64 = MODULE + 0x1100;
/// A variable of 37 bytes with a gap behind it.
pub const SLOTS: u64 = MODULE + 0x2000;
/// The constants.
pub const TEXTS: u64 = SLOTS + 0x100;
/// The code of the other module `core`.
pub const CORE: u64 = 0xffff_ffff_c100_0000;
/// The functions of `core`, 0x100 bytes each.
const CORE_FUNCTIONS: [&str; 4] = ["core_submit", "up_core", "thread_caller", "ready_line"];
pub const HEAP: u64 = 0xffff_8880_0200_0000;
const SLIDE: u64 = 0x1000_0000;
const TEXT: u64 = 0xffff_ffff_8100_0000;

#[derive(Clone)]
struct Function {
    name: &'static str,
    /// `None` where nothing is known about the function.
    effects: Option<Vec<Effect>>,
    hooked: bool,
    /// Number of arguments that its hook records.
    args: usize,
}

/// What is known about the guest's kernel. Hooks are numbered in the order in which they were added.
#[derive(Clone)]
pub struct Kernel {
    functions: Vec<Function>,
    charts: Arc<[Chart]>,
    preempt_count: Option<u64>,
    dma_skip_sync: Option<u64>,
    redzones: bool,
    /// The module's constants.
    texts: Vec<u8>,
}

impl Kernel {
    /// A kernel with the functions that a guest itself needs.
    pub fn new() -> Kernel {
        let kernel = Kernel {
            functions: Vec::new(),
            charts: Arc::new([]),
            preempt_count: None,
            dma_skip_sync: None,
            redzones: false,
            texts: Vec::new(),
        };
        kernel.unknown("caller").unknown("asm_exc_page_fault")
    }

    fn add(mut self, name: &'static str, effects: Option<Vec<Effect>>, hooked: bool) -> Kernel {
        assert!(self.functions.iter().all(|function| function.name != name), "{name} is there already");
        self.functions.push(Function { name, effects, hooked, args: 6 });
        self
    }

    /// Adds a function that is watched where the driver calls it.
    pub fn function(self, name: &'static str, effects: impl Into<Vec<Effect>>) -> Kernel {
        self.add(name, Some(effects.into()), false)
    }

    /// Adds a function that is watched wherever it is called.
    pub fn hook(self, name: &'static str, effects: impl Into<Vec<Effect>>) -> Kernel {
        self.add(name, Some(effects.into()), true)
    }

    /// Adds a function about which nothing is known.
    pub fn unknown(self, name: &'static str) -> Kernel {
        self.add(name, None, false)
    }

    /// Adds functions that do nothing that checkers follow.
    pub fn idle(self, names: &[&'static str]) -> Kernel {
        names.iter().fold(self, |kernel, name| kernel.function(name, []))
    }

    /// The hook of the last function records this many arguments.
    pub fn recording(mut self, args: usize) -> Kernel {
        self.functions.last_mut().expect("a function").args = args;
        self
    }

    /// Sets the charts, in the language of `knowledge/`. A parameter is in the register of its place.
    pub fn charts(mut self, text: &str) -> Kernel {
        self.charts = parse::file("charts", text).expect("charts").into_iter().map(resolved).collect();
        self
    }

    /// Sets the offset of `preempt_count` from the base of GS.
    pub fn preempt_count(mut self, offset: u64) -> Kernel {
        self.preempt_count = Some(offset);
        self
    }

    /// Sets the offset of the flag in `struct device` that says that synchronizations may be skipped.
    pub fn dma_skip_sync(mut self, offset: u64) -> Kernel {
        self.dma_skip_sync = Some(offset);
        self
    }

    /// Sets the module's constants.
    pub fn texts(mut self, texts: &[u8]) -> Kernel {
        self.texts = texts.to_vec();
        self
    }

    /// Lets the slab caches keep redzones.
    pub fn with_redzones(mut self) -> Kernel {
        self.redzones = true;
        self
    }

    /// The names of the functions; those that are hooked come first.
    pub fn names(&self) -> Vec<&'static str> {
        let (hooked, others): (Vec<_>, Vec<_>) = self.functions.iter().partition(|f| f.hooked);
        hooked.iter().chain(&others).map(|function| function.name).collect()
    }

    fn hooks(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter().filter(|function| function.hooked)
    }

    /// The number of a hook.
    pub fn number(&self, name: &str) -> u64 {
        self.hooks().position(|f| f.name == name).unwrap_or_else(|| panic!("{name} is no hook")) as u64
    }

    fn link_address(&self, name: &str) -> u64 {
        let at = self.functions.iter().position(|f| f.name == name);
        TEXT + at.unwrap_or_else(|| panic!("there is no function {name}")) as u64 * 0x100
    }

    /// The address of a function in memory; `core/…` names one of the other module.
    pub fn address(&self, name: &str) -> u64 {
        match name.strip_prefix("core/") {
            Some(name) => {
                let at = CORE_FUNCTIONS.iter().position(|f| *f == name).expect("a function of core");
                CORE + at as u64 * 0x100
            }
            None => self.link_address(name) + SLIDE,
        }
    }
}

/// A chart whose calls find their objects in registers.
fn resolved(draft: parse::Draft) -> Chart {
    let key = |params: &[String], name: &String| {
        arg(params.iter().position(|param| param == name).expect("a parameter") as u8)
    };
    let call = |rule: parse::Rule| Call {
        keys: rule.keys.iter().map(|part| part.as_ref().map(|name| key(&rule.params, name))).collect(),
        function: rule.function,
        when: match rule.when {
            None => When::Always,
            Some("zero") => When::Zero,
            Some(_) => When::NonZero,
        },
        from: rule.from,
        to: rule.to,
        nowait: rule.nowait,
        wakes: rule.wakes,
        waits: rule.waits,
        hand: rule.hand,
    };
    let mut chart = draft.chart;
    for (callback, params, by) in &draft.turns {
        chart.callbacks[*callback].turns = Some(key(params, by));
    }
    Chart { calls: draft.rules.into_iter().map(call).collect(), ..chart }
}

impl Function {
    fn summary(&self) -> Summary {
        match &self.effects {
            Some(effects) => Summary { name: self.name.to_owned(), effects: effects.clone() },
            None => Summary::unknown(self.name),
        }
    }
}

impl World for Kernel {
    fn function_at(&self, at: u64) -> Option<(String, u64)> {
        let offset = at.checked_sub(TEXT)?;
        let function = self.functions.get((offset / 0x100) as usize)?;
        Some((function.name.to_owned(), offset % 0x100))
    }
    fn hook(&self, number: u64) -> Option<Arc<Summary>> {
        Some(Arc::new(self.hooks().nth(number as usize)?.summary()))
    }
    fn hook_args(&self, number: u64) -> usize {
        self.hooks().nth(number as usize).map_or(6, |hook| hook.args)
    }
    fn hook_address(&self, number: u64) -> u64 {
        self.hooks().nth(number as usize).map_or(0, |hook| self.link_address(hook.name))
    }
    fn call(&self, name: &str) -> Arc<Summary> {
        let function = self.functions.iter().find(|function| function.name == name);
        Arc::new(function.map_or_else(|| Summary::unknown(name), Function::summary))
    }
    fn module(&self, name: &str, _: &[Region], _: &[u64]) -> Option<ModuleMap> {
        let range = |start: u64, end: u64, name: &str| Range { start, end, name: name.into() };
        if name == "core" {
            let functions = (CORE..).step_by(0x100).zip(CORE_FUNCTIONS);
            let functions = functions.map(|(at, name)| range(at, at + 0x100, name)).collect();
            return Some(ModuleMap { functions, ..ModuleMap::default() });
        }
        Some(ModuleMap {
            functions: vec![range(F, G, "f"), range(G, G + 0x100, "g")],
            data: vec![range(SLOTS, SLOTS + 37, "slots")],
            gaps: vec![range(SLOTS + 37, SLOTS + 64, "slots")],
            constants: vec![Constant { start: TEXTS, bytes: self.texts.as_slice().into() }],
            ex_table: vec![F + 0x80],
            needs: vec!["core".to_owned()],
            rooms: vec![ROOM],
            lines: None,
        })
    }
    fn charts(&self) -> Arc<[Chart]> {
        Arc::clone(&self.charts)
    }
    fn preempt_count(&self) -> Option<(u64, bool)> {
        Some((self.preempt_count?, false))
    }
    fn type_of_size(&self, module: &str, size: u64) -> Option<String> {
        (module == "drv" && size == 320).then(|| "device".to_owned())
    }
    fn lock_field(&self, _: &str, structure: &str, offset: u64) -> Option<String> {
        let member = match (structure, offset) {
            ("device", 64) => "table.lock",
            ("ring", 8) => "lock",
            ("list_head", 8) => "prev",
            _ => return None,
        };
        Some(member.to_owned())
    }
    fn pointed_at(&self, _: &str, structure: &str, offset: u64) -> Option<Pointed> {
        let (name, size, open) = match (structure, offset) {
            ("device", 128) => ("ring", 48, false),
            ("device", 136) => ("list_head", 16, false),
            ("device", 144) => ("ring", 48, true),
            _ => return None,
        };
        Some(Pointed { name: name.to_owned(), size, open })
    }
    fn dma_skip_sync(&self) -> Option<u64> {
        self.dma_skip_sync
    }
    fn inlines_unlock(&self) -> bool {
        true
    }
    fn redzones(&self) -> bool {
        self.redzones
    }
}

/// An allocation whose memory is zeroed as `zeroed` says.
pub fn alloc(class: Class, size: Len, zeroed: Zeroed) -> Effect {
    Effect::Alloc { class, size, zeroed, page: false, cache: None, realloc: None }
}

/// A free of an argument's memory.
pub fn free(arg: u8, class: Class) -> Effect {
    Effect::Free { ptr: Ptr::Arg(arg), classes: vec![class], cache: None }
}

/// The object that an argument points to.
pub fn arg(arg: u8) -> Key {
    Key::Arg { arg, offset: 0 }
}

/// Arguments in registers.
pub fn six(args: &[u64]) -> [u64; 6] {
    let mut six = [0; 6];
    six[..args.len()].copy_from_slice(args);
    six
}

/// The words at the beginning of a log: where the kernel lies, and the module `drv`.
pub fn begins() -> Vec<u64> {
    let mut words = vec![Head::encode(Kind::Global, Global::Slide as u8, 0), SLIDE];
    words.extend([Head::encode(Kind::ModuleLoad, 2, 0x1234_5678), 0]);
    words.extend([u64::from_le_bytes(*b"drv\0\0\0\0\0"), 0, 0, 0, 0, 0, 0, 0]);
    words.extend([MODULE, 0x2000, RegionFlags::TEXT, SLOTS, 0x1000, 0]);
    words
}

/// A module that is not watched is loaded, with its code at [`CORE`].
pub fn loads_other(name: &[u8; 8]) -> Vec<u64> {
    loads(Kind::OtherModule, name)
}

/// The module that the driver needs, which is watched, is loaded with its code at [`CORE`].
pub fn loads_needed() -> Vec<u64> {
    loads(Kind::ModuleLoad, b"core\0\0\0\0")
}

fn loads(kind: Kind, name: &[u8; 8]) -> Vec<u64> {
    let mut words = vec![Head::encode(kind, 1, CORE + 0x800), 0];
    words.extend([u64::from_le_bytes(*name), 0, 0, 0, 0, 0, 0, 0]);
    words.extend([CORE, 0x1000, RegionFlags::TEXT]);
    words
}

/// Defines a block of code.
pub fn defines(block: u64, addr: u64, bytes: &[u8]) -> Vec<u64> {
    let mut words = vec![Head::encode(Kind::BlockDef, 0, block), addr, bytes.len() as u64];
    words.extend(bytes.chunks(8).map(|bytes| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    }));
    words
}
