//! Modules come and go.

use super::Machine;
use crate::modules::Module;
use crate::world::Region;
use guardrail_trace::event::Head;

impl Machine {
    pub(super) fn module_load(&mut self, head: Head, operands: &[u64]) {
        let Some(name) = operands.get(1..9) else { return };
        let name: Vec<u8> = name.iter().flat_map(|w| w.to_le_bytes()).take_while(|&b| b != 0).collect();
        let name = String::from_utf8_lossy(&name).into_owned();
        let count = usize::from(head.small);
        let (Some(regions), Some(symbols)) = (operands.get(9..9 + 3 * count), operands.get(9 + 3 * count..))
        else {
            return;
        };
        let regions: Vec<Region> = regions
            .chunks_exact(3)
            .map(|r| Region { start: r[0], size: r[1].min(1 << 30), flags: r[2] })
            .filter(|r| r.size > 0)
            .collect();
        let map = self.state.world.module(&name, &regions, symbols).unwrap_or_default();
        for region in &regions {
            self.forget(region.start, region.start.saturating_add(region.size));
        }
        self.each(0, None, |checker, cx| checker.module_comes(cx));
        let module = Module { name, address: head.address(), regions, loaded: true, map };
        if let Some(index) = self.state.modules.add(module) {
            self.each(0, None, |checker, cx| checker.module_loaded(cx, index));
        }
    }

    pub(super) fn module_free(&mut self, from: u64, to: u64) {
        self.each(0, None, |checker, cx| checker.module_freed(cx, from, to));
    }

    pub(super) fn module_unload(&mut self, address: u64) {
        let Some(index) = self.state.modules.unload(address) else { return };
        self.each(0, None, |checker, cx| checker.module_unloaded(cx, index));
        let regions = self.state.modules.list()[index as usize].regions.clone();
        for region in regions {
            let end = region.start.saturating_add(region.size);
            self.each(0, None, |checker, cx| checker.module_freed(cx, region.start, end));
        }
    }

    /// Forgets objects in a range that has gone to something else.
    pub(super) fn forget(&mut self, from: u64, to: u64) {
        let gone = self.state.objects.clear(from, to);
        for object in gone {
            self.each(0, None, |checker, cx| checker.forgotten(cx, object.base, object.slot_end));
        }
    }
}
