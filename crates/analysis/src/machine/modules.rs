//! Modules that are or were loaded, and names for addresses.

use super::{ModuleMap, Range, Region, World, find};
use guardrail_finding::{Frame, LinkAddress, Source};
use std::sync::Arc;

/// Most loads of modules that are remembered.
const MAX_MODULES: usize = 256;

/// A watched module, from its load on.
#[derive(Debug)]
pub struct Module {
    /// Name of the module.
    pub name: String,
    /// Guest address of its `struct module`.
    pub address: u64,
    /// The memory that it was loaded to.
    pub regions: Vec<Region>,
    /// False once it was unloaded.
    pub loaded: bool,
    /// The addresses of its functions, variables and source lines.
    pub map: ModuleMap,
}

/// Where code of modules is named whose memory belongs to others now, such as their init functions: no code runs there (the
/// shadow memory of KASAN; Documentation/arch/x86/x86_64/mm.rst).
const GONE: u64 = 0xffff_ec00_0000_0000;
/// The largest region, in bytes.
pub const MAX_REGION: u64 = 1 << 30;
/// Most such regions.
const MAX_GONE: usize = 4096;
/// The end of their addresses.
const GONE_TO: u64 = GONE + MAX_GONE as u64 * MAX_REGION;

/// A region of a loaded module whose memory belongs to another now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Where it was.
    was: Region,
    /// Where it is named.
    now: u64,
}

impl Gone {
    /// Where it was: its start and its end.
    pub fn was(&self) -> (u64, u64) {
        (self.was.start, self.was.start.saturating_add(self.was.size))
    }

    /// The address by which a former address of the region is named.
    pub fn named(&self, addr: u64) -> u64 {
        match addr.wrapping_sub(self.was.start) {
            offset if offset < self.was.size => self.now + offset,
            _ => addr,
        }
    }
}

/// Most modules that are remembered at a time and not watched.
const MAX_OTHERS: usize = 256;

/// A module that is not watched. Only its names matter.
#[derive(Debug)]
pub struct Other {
    /// Name of the module.
    pub name: Arc<str>,
    /// Guest address of its `struct module`.
    pub address: u64,
    /// The memory that it was loaded to.
    pub regions: Vec<Region>,
    /// False once it was unloaded.
    pub loaded: bool,
    /// Its functions, sorted by address; empty where its file is not available.
    pub functions: Vec<Range>,
}

fn hold(regions: &[Region], addr: u64) -> bool {
    regions.iter().any(|r| addr.wrapping_sub(r.start) < r.size)
}

fn overlap(a: &Region, b: &Region) -> bool {
    a.start < b.start.saturating_add(b.size) && b.start < a.start.saturating_add(a.size)
}

/// All modules in the order of their loading.
#[derive(Debug, Default)]
pub struct Modules {
    list: Vec<Module>,
    others: Vec<Other>,
    /// The lowest and the highest address of the modules that are not watched.
    span: (u64, u64),
    /// Ranges that hold code or data of loaded modules.
    live: Vec<(u64, u64)>,
    /// Regions of loaded modules whose memory belongs to others.
    gone: Vec<Gone>,
}

impl Modules {
    /// All watched modules, in the order of their loading.
    pub fn list(&self) -> &[Module] {
        &self.list
    }

    /// Adds a module and returns its index; `None` where there are too many.
    pub fn add(&mut self, module: Module) -> Option<u32> {
        if self.list.len() >= MAX_MODULES {
            return None;
        }
        // Memory of other modules there, such as their init code, was freed. It must not lend its names to
        // this module's addresses after an unload.
        for other in &mut self.others {
            other.regions.retain(|old| !module.regions.iter().any(|new| overlap(old, new)));
        }
        self.list.push(module);
        self.refresh();
        Some(self.list.len() as u32 - 1)
    }

    /// A module comes to these regions. Returns which ones of loaded modules are gone since, and have other addresses now.
    pub fn make_way(&mut self, regions: &[Region]) -> Vec<Gone> {
        let first = self.gone.len();
        let lies_there = |old: &&mut Region| regions.iter().any(|new| overlap(old, new));
        'all: for module in self.list.iter_mut().filter(|module| module.loaded) {
            // What is gone already stays where it is named, whatever a log says.
            for old in module
                .regions
                .iter_mut()
                .filter(|old| old.start < GONE || old.start >= GONE_TO)
                .filter(lies_there)
            {
                if self.gone.len() >= MAX_GONE {
                    break 'all;
                }
                let now = GONE + self.gone.len() as u64 * MAX_REGION;
                self.gone.push(Gone { was: *old, now });
                old.start = now;
            }
        }
        self.refresh();
        self.gone[first..].to_vec()
    }

    /// The address that the module's file knows for what is named by `addr`.
    fn known(&self, addr: u64) -> u64 {
        let index = addr.wrapping_sub(GONE) / MAX_REGION;
        let gone = usize::try_from(index).ok().and_then(|index| self.gone.get(index));
        gone.map_or(addr, |gone| gone.was.start.wrapping_add(addr - gone.now))
    }

    fn refresh(&mut self) {
        self.live.clear();
        for module in self.list.iter().filter(|m| m.loaded) {
            self.live.extend(module.regions.iter().map(|r| (r.start, r.start.saturating_add(r.size))));
        }
    }

    /// Marks the module at `address` as unloaded and returns its index.
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

    /// Adds a module that is not watched. Where there are too many, drops the oldest unloaded one.
    pub fn add_other(&mut self, other: Other) {
        if self.others.len() >= MAX_OTHERS {
            let gone = self.others.iter().position(|o| !o.loaded).unwrap_or(0);
            self.others.remove(gone);
        }
        for region in &other.regions {
            let end = region.start.saturating_add(region.size);
            self.span = match self.span {
                (0, 0) => (region.start, end),
                (from, to) => (from.min(region.start), to.max(end)),
            };
        }
        self.others.push(other);
    }

    /// Marks the module that is not watched and whose `struct module` is at `address` as unloaded.
    pub fn unload_other(&mut self, address: u64) {
        if let Some(other) = self.others.iter_mut().rfind(|o| o.loaded && o.address == address) {
            other.loaded = false;
        }
    }

    /// The module that is not watched and that holds or last held `addr`. `None` where a watched module holds
    /// it now.
    pub fn other_at(&self, addr: u64) -> Option<&Other> {
        if addr < self.span.0 || addr >= self.span.1 || self.contains(addr) {
            return None;
        }
        let loaded = self.others.iter().rfind(|o| o.loaded && hold(&o.regions, addr));
        if loaded.is_none() && self.at(addr).is_some() {
            return None;
        }
        loaded.or_else(|| self.others.iter().rfind(|o| hold(&o.regions, addr)))
    }

    /// The watched module that holds or last held `addr`, with its index.
    pub fn at(&self, addr: u64) -> Option<(u32, &Module)> {
        let at = self
            .list
            .iter()
            .rposition(|m| m.loaded && hold(&m.regions, addr))
            .or_else(|| self.list.iter().rposition(|m| hold(&m.regions, addr)))?;
        Some((at as u32, &self.list[at]))
    }

    /// The loaded module's variable at `addr`, or the gap behind a variable. The flag is true for a gap.
    pub fn variable_at(&self, addr: u64) -> Option<(&Module, &Range, bool)> {
        let (_, module) = self.at(addr)?;
        if let Some(range) = find(&module.map.data, addr) {
            return Some((module, range, false));
        }
        find(&module.map.gaps, addr).map(|range| (module, range, true))
    }

    /// The text at `addr` in a module's constants, without the zero at its end. `None` where no constant is known
    /// there, or where none of its first `limit` bytes is zero.
    pub fn text_at(&self, addr: u64, limit: usize) -> Option<&[u8]> {
        let (_, module) = self.at(addr)?;
        let constants = &module.map.constants;
        let constant = constants.get(constants.partition_point(|c| c.start <= addr).checked_sub(1)?)?;
        let bytes = constant.bytes.get(usize::try_from(addr - constant.start).ok()?..)?;
        let end = bytes.iter().take(limit).position(|&byte| byte == 0)?;
        bytes.get(..end)
    }

    /// Names the code at `addr`; a return address names the call before it.
    pub fn frame(&self, world: &dyn World, slide: u64, addr: u64, is_return: bool) -> Frame {
        let inside = if is_return { addr.wrapping_sub(1) } else { addr };
        let unknown = || ("?".to_owned(), 0);
        let name = |functions: &[Range], at: u64| {
            let offset = |f: &Range| at.wrapping_add(addr - inside).wrapping_sub(f.start);
            find(functions, at).map_or_else(unknown, |f| (f.name.to_string(), offset(f)))
        };
        if let Some(other) = self.other_at(inside) {
            let (function, offset) = name(&other.functions, inside);
            let module = Some(other.name.to_string());
            return Frame { function, module, offset, other: true, ..Frame::default() };
        }
        if let Some((_, module)) = self.at(inside) {
            let known = self.known(inside);
            let (function, offset) = name(&module.map.functions, known);
            let source = module.map.lines.as_ref().and_then(|lines| lines(known));
            let Source { location, inlined } = source.unwrap_or_default();
            let module = Some(module.name.clone());
            return Frame { function, module, offset, location, inlined, ..Frame::default() };
        }
        let linked = inside.wrapping_sub(slide);
        let found = world.function_at(linked);
        let instruction = found.as_ref().map(|_| LinkAddress(linked));
        let (function, offset) =
            found.map_or_else(unknown, |(name, offset)| (name, offset.wrapping_add(addr - inside)));
        Frame { function, offset, instruction, ..Frame::default() }
    }

    /// Whether the instruction at `pc` is a push that only makes room on the stack.
    pub fn makes_room(&self, pc: u64) -> bool {
        self.at(pc).is_some_and(|(_, m)| m.map.rooms.binary_search(&pc).is_ok())
    }

    /// Whether a fault at `pc` is expected and handled.
    pub fn may_fault(&self, pc: u64) -> bool {
        self.at(pc).is_some_and(|(_, m)| m.map.ex_table.binary_search(&pc).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::kernel::Kernel;

    fn region(start: u64, size: u64) -> Region {
        Region { start, size, flags: 0 }
    }

    #[test]
    fn freed_init_code_of_another_gives_no_name_to_a_module_that_left() {
        let mut modules = Modules::default();
        let regions = vec![region(0x1000, 0x1000), region(0x4000, 0x1000)];
        modules.add_other(Other {
            name: "core".into(),
            address: 1,
            regions,
            loaded: true,
            functions: Vec::new(),
        });
        let (name, regions, map) = ("drv".to_owned(), vec![region(0x4000, 0x2000)], ModuleMap::default());
        modules.add(Module { name, address: 2, regions, loaded: true, map }).unwrap();
        modules.unload(2).unwrap();
        assert!(modules.other_at(0x4010).is_none());
        assert_eq!(modules.at(0x4010).unwrap().1.name, "drv");
        assert_eq!(&*modules.other_at(0x1010).unwrap().name, "core");
    }

    #[test]
    fn a_function_whose_memory_another_module_has_keeps_its_name() {
        let world = Kernel::new();
        let mut modules = Modules::default();
        let module = |name: &str, address, regions: Vec<Region>, function: &str| {
            let range = |r: &Region| Range { start: r.start, end: r.start + r.size, name: function.into() };
            let functions = regions.iter().map(range).collect();
            let map = ModuleMap { functions, ..ModuleMap::default() };
            Module { name: name.to_owned(), address, regions, loaded: true, map }
        };
        let name = |modules: &Modules, at| {
            let frame = modules.frame(&world, 0, at, true);
            (frame.module.unwrap_or_default(), frame.function, frame.offset)
        };
        modules.add(module("core", 1, vec![region(0x1000, 0x1000), region(0x4000, 0x1000)], "init")).unwrap();
        let gone = modules.make_way(&[region(0x4800, 0x2000)]);
        modules.add(module("drv", 2, vec![region(0x4800, 0x2000)], "tick")).unwrap();
        let [gone] = gone.as_slice() else { panic!("{gone:?}") };
        let now = gone.named(0x4810);
        assert_eq!((gone.named(0x1010), gone.named(0x5000)), (0x1010, 0x5000));
        assert_eq!(name(&modules, now), ("core".into(), "init".into(), 0x810));
        assert_eq!(name(&modules, 0x4810), ("drv".into(), "tick".into(), 0x10));
        assert!(modules.contains(now) && modules.contains(0x4810));
        modules.unload(1).unwrap();
        assert_eq!(name(&modules, now), ("core".into(), "init".into(), 0x810));
        assert!(!modules.contains(now) && modules.make_way(&[region(now, 8)]).is_empty());
    }

    #[test]
    fn no_two_regions_that_are_gone_share_an_address() {
        let mut modules = Modules::default();
        let regions: Vec<Region> =
            (0..MAX_GONE as u64 + 10).map(|n| region(0x1000 * (n + 1), 0x1000)).collect();
        let (name, map) = ("core".to_owned(), ModuleMap::default());
        modules.add(Module { name, address: 1, regions: regions.clone(), loaded: true, map }).unwrap();
        let mut count = 0;
        for _ in 0..3 {
            count += modules.make_way(&regions).len();
        }
        let mut starts: Vec<u64> = modules.list()[0].regions.iter().map(|region| region.start).collect();
        starts.sort_unstable();
        starts.dedup();
        assert_eq!((count, starts.len()), (MAX_GONE, regions.len()));
        assert!(modules.make_way(&[region(GONE, u64::MAX - GONE)]).is_empty());
    }

    #[test]
    fn a_frame_of_the_kernel_has_the_address_before_it_was_moved() {
        let world = Kernel::new();
        let (modules, slide, at) = (Modules::default(), 0x1000_0000, world.address("caller"));
        let instruction = |at, is_return| modules.frame(&world, slide, at, is_return).instruction;
        assert_eq!(instruction(at + 8, false), Some(LinkAddress(at + 8 - slide)));
        assert_eq!(instruction(at + 8, true), Some(LinkAddress(at + 7 - slide)));
        assert_eq!(instruction(8, false), None);
    }
}
