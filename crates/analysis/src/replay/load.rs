//! Modules are loaded and unloaded.

use super::Replay;
use crate::machine::{Gone, MAX_REGION, Module, Object, Other, Region};
use guardrail_trace::event::Head;

impl Replay {
    pub(super) fn module_load(&mut self, head: Head, operands: &[u64]) {
        let Some((name, regions, symbols)) = decoded(head, operands) else { return };
        let map = self.state.world.module(&name, &regions, symbols).unwrap_or_default();
        for region in &regions {
            self.forget(region.start, region.start.saturating_add(region.size));
        }
        self.each(0, None, |checker, cx| checker.module_comes(cx));
        self.make_way(&regions);
        let module = Module { name, address: head.address(), regions, loaded: true, map };
        self.reports.renamed();
        if let Some(index) = self.state.modules.add(module) {
            self.each(0, None, |checker, cx| checker.module_loaded(cx, index));
            self.definedness.module_loaded(&self.state.modules.list()[index as usize]);
        }
    }

    /// A module that is not watched was loaded.
    pub(super) fn other_load(&mut self, head: Head, operands: &[u64]) {
        let Some((name, regions, symbols)) = decoded(head, operands) else { return };
        let map = self.state.world.module(&name, &regions, symbols).unwrap_or_default();
        self.make_way(&regions);
        let (name, address) = (name.into(), head.address());
        let functions = map.functions;
        self.state.modules.add_other(Other { name, address, regions, loaded: true, functions });
        self.renamed();
    }

    /// What ran in memory that a module comes to keeps its name in the stacks so far.
    fn make_way(&mut self, regions: &[Region]) {
        let gone = self.state.modules.make_way(regions);
        if !gone.is_empty() {
            // What else is known by the addresses is over, as with an unload.
            for (from, to) in gone.iter().map(Gone::was) {
                self.state.blocks.retire(from, to);
                self.module_free(from, to);
            }
            let named =
                |at| gone.iter().map(|region| region.named(at)).find(|&named| named != at).unwrap_or(at);
            self.state.stacks.readdress(named);
        }
    }

    /// A module that is not watched was unloaded. Its names stay for stacks that were recorded before.
    pub(super) fn other_unload(&mut self, address: u64) {
        self.state.modules.unload_other(address);
        self.renamed();
    }

    /// Forgets names of addresses, which belong to other code from now on.
    fn renamed(&mut self) {
        self.reports.renamed();
        self.state.renamed();
        self.order.moved();
    }

    pub(super) fn module_free(&mut self, from: u64, to: u64) {
        self.each(0, None, |checker, cx| checker.module_freed(cx, from, to));
        self.definedness.forgotten(from, to);
        self.state.order.forget(from, to);
    }

    pub(super) fn module_unload(&mut self, address: u64) {
        self.all_left();
        let Some(index) = self.state.modules.unload(address) else { return };
        self.each(0, None, |checker, cx| checker.module_unloaded(cx, index));
        let regions = self.state.modules.list()[index as usize].regions.clone();
        for region in regions {
            let end = region.start.saturating_add(region.size);
            self.state.blocks.retire(region.start, end);
            self.module_free(region.start, end);
        }
    }

    /// Forgets the objects in a range that was freed or is used for something else.
    pub(super) fn forget(&mut self, from: u64, to: u64) {
        let gone = self.state.objects.clear(from, to);
        for object in gone {
            self.gone(0, &object);
        }
    }

    /// An object is forgotten, since its memory belongs to something else.
    pub(super) fn gone(&mut self, v: usize, object: &Object) {
        self.definedness.provenance.gone(object);
        self.forgotten(v, object.base, object.slot_end);
    }

    /// Nothing is known any more about the memory of a former object.
    pub(super) fn forgotten(&mut self, v: usize, from: u64, to: u64) {
        self.each(v, None, |checker, cx| checker.forgotten(cx, from, to));
        self.definedness.forgotten(from, to);
    }
}

/// Name, regions and symbols of a module, from its record.
fn decoded(head: Head, operands: &[u64]) -> Option<(String, Vec<Region>, &[u64])> {
    let name: Vec<u8> =
        operands.get(1..9)?.iter().flat_map(|w| w.to_le_bytes()).take_while(|&b| b != 0).collect();
    let count = usize::from(head.small);
    let regions = operands.get(9..9 + 3 * count)?.chunks_exact(3);
    let regions = regions
        .map(|r| Region { start: r[0], size: r[1].min(MAX_REGION), flags: r[2] })
        .filter(|r| r.size > 0)
        .collect();
    Some((String::from_utf8_lossy(&name).into_owned(), regions, operands.get(9 + 3 * count..)?))
}
