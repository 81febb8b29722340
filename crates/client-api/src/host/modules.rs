//! The guest's modules: which are loaded, and which of their code is in the scope.

use super::{Host, Vcpu};
use guardrail_plugin::modules as guest;
use guardrail_trace::client::{Module, Scope, fits};
use std::sync::{Arc, PoisonError, RwLock};

/// More modules than a guest loads. At the limit the oldest are forgotten.
const MAX_MODULES: usize = 4096;
/// More symbols than any module has.
const MAX_SYMBOLS: u64 = 1 << 17;
/// Bytes of a symbol's name that are read.
const NAME: usize = 128;
/// Size of an ELF symbol in bytes.
const SYMBOL: usize = 24;
const FUNCTION: u8 = 2;
/// Most modules that are walked when clients attach.
const MAX_WALK: usize = 1024;

/// The modules that the plugin saw.
#[derive(Default)]
pub(crate) struct Modules(RwLock<State>);

#[derive(Default)]
struct State {
    modules: Vec<Arc<Module>>,
    /// Number of loads and unloads so far.
    moment: u64,
    /// Ranges in the scope (start, end, address of the module), sorted.
    ranges: Vec<(u64, u64, u64)>,
}

impl Modules {
    /// Whether the address belongs to a module in the scope, or to a function in it.
    pub(crate) fn in_scope(&self, addr: u64) -> bool {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let next = state.ranges.partition_point(|range| range.0 <= addr);
        next > 0 && addr < state.ranges[next - 1].1
    }

    /// All modules that the plugin saw, including unloaded ones.
    pub(crate) fn all(&self) -> Vec<Arc<Module>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).modules.clone()
    }

    /// Address of the `struct module` of the loaded module that contains this address.
    pub(crate) fn holding(&self, addr: u64) -> Option<u64> {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        state
            .modules
            .iter()
            .rfind(|module| !module.gone && module.contains(addr))
            .map(|module| module.address)
    }

    fn knows(&self, module: u64) -> bool {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        state.modules.iter().any(|known| known.address == module && !known.gone)
    }

    /// The current moment: the number of loads and unloads so far, from 1.
    pub(crate) fn moment(&self) -> u64 {
        self.0.read().unwrap_or_else(PoisonError::into_inner).moment + 1
    }

    fn add(&self, scope: &Scope, mut module: Module) -> Arc<Module> {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        state.moment += 1;
        module.life = (state.moment + 1, u64::MAX);
        let module = Arc::new(module);
        if state.modules.len() >= MAX_MODULES {
            state.modules.remove(0);
        }
        let address = module.address;
        match scope {
            Scope::Modules(names) if names.contains(&module.name) => {
                state.ranges.extend(module.regions.iter().map(|r| (r.0, r.0.saturating_add(r.1), address)));
            }
            Scope::Functions { patterns, .. } => {
                let ends = module.functions.iter().skip(1).map(|f| f.0).chain([u64::MAX]);
                for ((from, name), next) in module.functions.iter().zip(ends) {
                    let region = module.regions.iter().find(|r| from.wrapping_sub(r.0) < r.1);
                    if let Some(region) = region
                        && patterns.iter().any(|pattern| fits(pattern, name))
                    {
                        state.ranges.push((*from, next.min(region.0.saturating_add(region.1)), address));
                    }
                }
            }
            _ => {}
        }
        state.ranges.sort_unstable();
        state.modules.push(Arc::clone(&module));
        module
    }

    fn remove(&self, address: u64) -> Option<Arc<Module>> {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        state.ranges.retain(|range| range.2 != address);
        state.moment += 1;
        let moment = state.moment;
        let module = state.modules.iter_mut().rfind(|m| m.address == address && !m.gone)?;
        let gone = Arc::make_mut(module);
        (gone.gone, gone.life.1) = (true, moment);
        Some(Arc::clone(module))
    }

    /// Marks all modules as unloaded. Modules seen before a detachment may be unloaded unseen.
    pub(crate) fn forget(&self) {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        state.ranges.clear();
        state.moment += 1;
        let moment = state.moment;
        for module in &mut state.modules {
            if !module.gone {
                let gone = Arc::make_mut(module);
                (gone.gone, gone.life.1) = (true, moment);
            }
        }
    }
}

/// Handles a module that the kernel has laid out.
pub(crate) fn load(host: &Host, vcpu: &mut Vcpu, address: u64) {
    if host.modules.knows(address) {
        return;
    }
    let Some(module) = read(host, vcpu, address) else { return };
    let module = host.modules.add(&host.config.scope, module);
    for (client, _) in &host.clients {
        client.loaded(&module);
    }
}

/// Handles a module that the kernel unloads.
pub(crate) fn unload(host: &Host, address: u64) {
    if let Some(module) = host.modules.remove(address) {
        for (client, _) in &host.clients {
            client.unloaded(&module);
        }
    }
}

/// Reads the kernel's list of modules, when clients attach to a running system.
pub(crate) fn walk(host: &Host, vcpu: &mut Vcpu) {
    let list = &host.config.modules;
    let Some(slide) = host.slide() else { return };
    let head = list.head.wrapping_add(slide);
    let mut at = vcpu.word(head, 8);
    for _ in 0..MAX_WALK {
        match at {
            Some(node) if node != head && node != 0 => {
                load(host, vcpu, node.wrapping_sub(list.list));
                at = vcpu.word(node, 8);
            }
            _ => return,
        }
    }
}

fn read(host: &Host, vcpu: &mut Vcpu, address: u64) -> Option<Module> {
    let layout = &host.config.kernel.layout;
    let (name, len) = guest::name(layout, vcpu.cpu(), address)?;
    let regions = guest::regions(layout, vcpu.cpu(), address)?;
    let regions: Vec<_> = regions.into_iter().filter(|region| region.1 > 0).collect();
    let mut module = Module {
        address,
        name: String::from_utf8_lossy(&name[..len]).into_owned(),
        regions,
        functions: Vec::new(),
        gone: false,
        life: (0, 0),
    };
    module.functions = functions(host, vcpu, &module).unwrap_or_default();
    Some(module)
}

/// Reads the module's functions from the symbol table that the kernel keeps.
fn functions(host: &Host, vcpu: &mut Vcpu, module: &Module) -> Option<Vec<(u64, String)>> {
    let layout = &host.config.kernel.layout;
    let (start, count) = guest::symbol_table(layout, vcpu.cpu(), module.address);
    if count == 0 || count > MAX_SYMBOLS {
        return None;
    }
    let tables = vcpu.word(module.address.wrapping_add(layout.kallsyms), 8)?;
    let names = vcpu.word(tables.wrapping_add(host.config.modules.strtab), 8)?;
    let symbols = vcpu.read(start, count as usize * SYMBOL)?.to_vec();
    let mut functions = Vec::new();
    for symbol in symbols.chunks_exact(SYMBOL) {
        let value = guardrail_plugin::registers::word(&symbol[8..16]);
        if symbol[4] & 0xf == FUNCTION && module.contains(value) {
            let at = names.wrapping_add(guardrail_plugin::registers::word(&symbol[..4]));
            functions.push((value, string(vcpu, at)?));
        }
    }
    functions.sort_unstable();
    functions.dedup_by_key(|function| function.0);
    Some(functions)
}

/// Reads a string of the guest, up to a zero or `NAME` bytes. It reads the next page only where the
/// first one has no zero.
fn string(vcpu: &mut Vcpu, addr: u64) -> Option<String> {
    let in_page = 4096 - (addr & 4095) as usize;
    let mut bytes = vcpu.read(addr, NAME.min(in_page))?.to_vec();
    if !bytes.contains(&0) && in_page < NAME {
        bytes.extend_from_slice(vcpu.read(addr.wrapping_add(in_page as u64), NAME - in_page)?);
    }
    let len = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    Some(String::from_utf8_lossy(&bytes[..len]).into_owned())
}
