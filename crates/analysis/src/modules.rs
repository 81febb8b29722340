//! Modules that are or were loaded, and names for addresses.

use crate::finding::Frame;
use crate::world::{ModuleMap, Range, Region, World, find};

/// Loads that are remembered.
const MAX_MODULES: usize = 256;

/// A module from its load on.
#[derive(Debug)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// Address of its `struct module`.
    pub address: u64,
    /// Its memory.
    pub regions: Vec<Region>,
    /// It has not been unloaded.
    pub loaded: bool,
    /// What is where in it.
    pub map: ModuleMap,
}

impl Module {
    /// Whether `addr` is in its memory.
    pub fn contains(&self, addr: u64) -> bool {
        self.regions.iter().any(|r| addr.wrapping_sub(r.start) < r.size)
    }
}

/// All modules in the order of their loading.
#[derive(Debug, Default)]
pub struct Modules {
    list: Vec<Module>,
    /// Ranges that hold code or data of loaded modules.
    live: Vec<(u64, u64)>,
}

impl Modules {
    /// The modules.
    pub fn list(&self) -> &[Module] {
        &self.list
    }

    /// Adds a module; gives its index.
    pub fn add(&mut self, module: Module) -> Option<u32> {
        if self.list.len() >= MAX_MODULES {
            return None;
        }
        self.list.push(module);
        self.refresh();
        Some(self.list.len() as u32 - 1)
    }

    fn refresh(&mut self) {
        self.live.clear();
        for module in self.list.iter().filter(|m| m.loaded) {
            self.live.extend(module.regions.iter().map(|r| (r.start, r.start.saturating_add(r.size))));
        }
    }

    /// The module at `address` has gone; gives its index.
    pub fn unload(&mut self, address: u64) -> Option<u32> {
        let at = self.list.iter().rposition(|m| m.loaded && m.address == address)?;
        self.list[at].loaded = false;
        self.refresh();
        Some(at as u32)
    }

    /// Whether `addr` is in a loaded module.
    #[inline]
    pub fn contains(&self, addr: u64) -> bool {
        self.live.iter().any(|&(from, to)| addr >= from && addr < to)
    }

    /// The module that holds or last held `addr`.
    pub fn at(&self, addr: u64) -> Option<(u32, &Module)> {
        let at = self
            .list
            .iter()
            .rposition(|m| m.loaded && m.contains(addr))
            .or_else(|| self.list.iter().rposition(|m| m.contains(addr)))?;
        Some((at as u32, &self.list[at]))
    }

    /// The loaded module's variable, or the gap behind a variable, at `addr`; true for a gap.
    pub fn variable_at(&self, addr: u64) -> Option<(&Module, &Range, bool)> {
        let (_, module) = self.at(addr)?;
        if let Some(range) = find(&module.map.data, addr) {
            return Some((module, range, false));
        }
        find(&module.map.gaps, addr).map(|range| (module, range, true))
    }

    /// Names the place `addr`; a return address names the call before it.
    pub fn frame(&self, world: &dyn World, slide: u64, addr: u64, is_return: bool) -> Frame {
        let inside = if is_return { addr.wrapping_sub(1) } else { addr };
        if let Some((_, module)) = self.at(inside) {
            let found = find(&module.map.functions, inside);
            return Frame {
                function: found.map_or_else(|| "?".to_owned(), |f| f.name.to_string()),
                module: Some(module.name.clone()),
                offset: found.map_or(0, |f| addr.wrapping_sub(f.start)),
                location: module.map.lines.as_ref().and_then(|lines| lines(inside)),
            };
        }
        match world.function_at(inside.wrapping_sub(slide)) {
            Some((function, offset)) => {
                Frame { function, module: None, offset: offset.wrapping_add(addr - inside), location: None }
            }
            None => Frame { function: "?".to_owned(), module: None, offset: 0, location: None },
        }
    }

    /// Whether a fault at `pc` is expected and handled.
    pub fn may_fault(&self, pc: u64) -> bool {
        self.at(pc).is_some_and(|(_, m)| m.map.ex_table.binary_search(&pc).is_ok())
    }
}
