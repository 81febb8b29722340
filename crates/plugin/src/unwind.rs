//! Call stacks of the running kernel, from the tables by which the kernel unwinds its own stacks (ORC).
//! They include the tables of modules, read from the guest when a stack first leads through a module.

use crate::cpu::Cpu;
use guardrail_binfmt::orc::{Frame, MAX_ENTRIES, Unwinder as Rules};
use guardrail_trace::config::ModuleTables;
use rustc_hash::FxHashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Bytes of an ORC entry, and of its address.
const ENTRY: usize = 6;
const PLACE: usize = 4;
const PAGE: u64 = 4096;
/// Most frames that are walked, whatever the limit: stacks of interrupts lie on other stacks.
const MAX_FRAMES: usize = 128;

/// The guest, as a walk sees it.
pub trait Guest {
    /// The vCPU whose stack is walked.
    fn cpu(&mut self) -> &mut Cpu;

    /// The physical address of a page of a stack.
    fn physical(&mut self, page: u64) -> Option<u64>;

    /// The aligned word at a physical address, where it can be read without QEMU.
    fn word(&self, physical: u64) -> Option<u64>;

    /// Address of the `struct module` of the loaded module that contains this address.
    fn module(&self, pc: u64) -> Option<u64>;
}

/// Walks the stacks of one kernel.
#[derive(Debug)]
pub struct Unwinder {
    kernel: Rules,
    /// Link-time range (start, end) of the kernel's text.
    text: (u64, u64),
    layout: Option<ModuleTables>,
    /// By the address of the `struct module`; `None` for a module without tables.
    modules: RwLock<FxHashMap<u64, Option<Arc<Rules>>>>,
}

impl Unwinder {
    /// Makes an unwinder from the kernel's rules, the link-time range of its text, and the places of modules'
    /// tables.
    pub fn new(kernel: Rules, text: (u64, u64), layout: Option<ModuleTables>) -> Unwinder {
        Unwinder { kernel, text, layout, modules: RwLock::default() }
    }

    /// Calls `each` for each frame of a stack, beginning with `first`, until it returns false. The kernel's
    /// addresses are those of its image plus `slide`.
    pub fn walk(
        &self,
        guest: &mut impl Guest,
        slide: u64,
        first: Frame,
        limit: usize,
        mut each: impl FnMut(&Frame) -> bool,
    ) {
        let (mut frame, mut page) = (first, StackPage::default());
        for _ in 0..limit.min(MAX_FRAMES) {
            if !each(&frame) {
                return;
            }
            let next = if (self.text.0..self.text.1).contains(&frame.pc.wrapping_sub(slide)) {
                self.kernel.caller(&frame, slide, |addr| page.word(guest, addr))
            } else {
                let Some(rules) = self.module(guest, frame.pc) else { return };
                rules.caller(&frame, 0, |addr| page.word(guest, addr))
            };
            match next {
                Some(next) => frame = next,
                None => return,
            }
        }
    }

    /// Forgets the rules of an unloaded module, or of all modules.
    pub fn forget(&self, module: Option<u64>) {
        let mut modules = self.modules.write().unwrap_or_else(PoisonError::into_inner);
        match module {
            Some(module) => drop(modules.remove(&module)),
            None => modules.clear(),
        }
    }

    /// The unwind rules of the module that contains this address.
    fn module(&self, guest: &mut impl Guest, pc: u64) -> Option<Arc<Rules>> {
        let address = guest.module(pc)?;
        let known = self.modules.read().unwrap_or_else(PoisonError::into_inner).get(&address).cloned();
        if let Some(known) = known {
            return known;
        }
        let rules = self.read(guest.cpu(), address).map(Arc::new);
        let mut modules = self.modules.write().unwrap_or_else(PoisonError::into_inner);
        modules.insert(address, rules.clone());
        rules
    }

    fn read(&self, cpu: &mut Cpu, module: u64) -> Option<Rules> {
        let layout = self.layout.as_ref()?;
        let count = cpu.read_word(module.wrapping_add(layout.count), 4)? as usize;
        if count == 0 || count > MAX_ENTRIES {
            return None;
        }
        let places_at = cpu.read_word(module.wrapping_add(layout.places), 8)?;
        let entries_at = cpu.read_word(module.wrapping_add(layout.entries), 8)?;
        let places = cpu.read(places_at, count * PLACE)?.to_vec();
        let entries = cpu.read(entries_at, count * ENTRY)?;
        self.kernel.of_module(places_at, &places, entries)
    }
}

/// The page of a stack that was read last. Most stack pages lie outside the direct map, and a translation
/// costs more than a word.
#[derive(Default)]
struct StackPage {
    page: u64,
    physical: Option<u64>,
}

impl StackPage {
    fn word(&mut self, guest: &mut impl Guest, addr: u64) -> Option<u64> {
        if addr & (PAGE - 1) > PAGE - 8 || addr >> 63 == 0 {
            return None;
        }
        let page = addr & !(PAGE - 1);
        if self.page != page {
            *self = StackPage { page, physical: guest.physical(page) };
        }
        let physical = self.physical? + (addr & (PAGE - 1));
        guest.word(physical).or_else(|| guest.cpu().read_word(addr, 8))
    }
}
