//! Applies calls of the allocators to the state.

use super::KAddrCheck;
use super::guest::Guest;
use super::stacks::DEPTH;
use guardrail_client_api::Vcpu;
use guardrail_client_api::kernel::slab::{Call, Size};
use guardrail_client_api::register::GS_BASE;
use std::sync::atomic::Ordering::Relaxed;

/// Most entries of a call's array or list.
const MAX_BULK: u64 = 1 << 14;

impl KAddrCheck {
    /// Handles the entry or return of an allocator's function.
    pub(super) fn called(&self, vcpu: &mut Vcpu, call: Call, args: [u64; 6], result: u64) {
        let arg = |number: u8| args[usize::from(number) % args.len()];
        let memory = &self.memory;
        match call {
            Call::Object(_) | Call::Vmalloc { .. } | Call::PerCpu { .. } | Call::Pages { .. }
                if result == 0 => {}
            Call::Object(size) => {
                self.allocations.fetch_add(1, Relaxed);
                let stack = self.here(vcpu);
                memory.object_allocated(vcpu, result, self.size(size, &args), stack);
            }
            Call::Free(pointer) => memory.object_freed(arg(pointer), self.here(vcpu)),
            Call::Grow(pointer) => memory.object_grown(arg(pointer)),
            Call::Bulk { count, objects, all } => {
                let stack = self.here(vcpu);
                let count = match all {
                    true if result & 0xff == 0 => 0,
                    true => arg(count),
                    false => u64::from(result as u32),
                };
                for object in array(vcpu, arg(objects), count.min(MAX_BULK)) {
                    memory.object_allocated(vcpu, object, None, stack);
                }
            }
            Call::BulkFree { count, objects } => {
                let stack = self.here(vcpu);
                for object in array(vcpu, arg(objects), arg(count).min(MAX_BULK)) {
                    memory.object_freed(object, stack);
                }
            }
            Call::SheafFree(head) => {
                let Some(places) = memory.sheaves() else { return };
                let sheaf = arg(head);
                let count = vcpu.word(sheaf.wrapping_add(places.0), 4).unwrap_or(0).min(MAX_BULK);
                for object in array(vcpu, sheaf.wrapping_add(places.1), count) {
                    memory.object_freed(object, 0);
                }
            }
            Call::Pages { order } => {
                let stack = self.here(vcpu);
                memory.pages_allocated(vcpu, result, arg(order) & 15, stack);
            }
            Call::PagesTaken { page, order } => memory.pages_allocated(vcpu, arg(page), arg(order) & 15, 0),
            Call::PagesBulk { list, array: pages } => {
                self.pages_bulk(vcpu, list.map_or(0, arg), arg(pages), result)
            }
            Call::PagesFree { page, order } => {
                let stack = self.here(vcpu);
                memory.pages_freed(vcpu, arg(page), arg(order) & 15, stack);
            }
            Call::PagesFreeList(list) => {
                let stack = self.here(vcpu);
                for page in self.list(vcpu, arg(list)) {
                    memory.pages_freed(vcpu, page, 0, stack);
                }
            }
            Call::PagesFreeBatch(batch) => {
                let Some((count, folios)) = memory.batch() else { return };
                let stack = self.here(vcpu);
                let count = vcpu.word(arg(batch).wrapping_add(count), 1).unwrap_or(0);
                for page in array(vcpu, arg(batch).wrapping_add(folios), count) {
                    memory.pages_freed(vcpu, page, 0, stack);
                }
            }
            Call::Vmalloc { size } => {
                memory.vmalloc_allocated(result, self.size(size, &args).unwrap_or(0), self.here(vcpu));
            }
            Call::VmallocFree(pointer) => memory.vmalloc_freed(arg(pointer), self.here(vcpu)),
            Call::AreaNew => self.area_new(vcpu, result),
            Call::AreaGone => {
                if let Some((addr, size)) = self.vm_struct(vcpu, result) {
                    memory.addresses_given(addr, size, self.here(vcpu));
                }
            }
            Call::AreasNew { count } => {
                for area in array(vcpu, result, arg(count).min(MAX_BULK)) {
                    if let Some((addr, size)) = self.vm_struct(vcpu, area) {
                        memory.addresses_taken(addr, size);
                    }
                }
            }
            Call::PerCpu { size } => {
                let stack = self.here(vcpu);
                memory.per_cpu_allocated(vcpu, result, arg(size), stack);
            }
            Call::PerCpuFree(pointer) => {
                let stack = self.here(vcpu);
                memory.per_cpu_freed(vcpu, arg(pointer), stack);
            }
            Call::Kfence if result != 0 => memory.kfence(vcpu, result),
            Call::Kfence => {}
        }
        // Memory that this vCPU frees itself is freed before the vCPU's next access.
        self.has_seen(vcpu);
    }

    fn size(&self, size: Size, args: &[u64; 6]) -> Option<u64> {
        let arg = |number: u8| args[usize::from(number) % args.len()];
        match size {
            Size::Arg(number) => Some(arg(number)),
            Size::Product(a, b) => Some(arg(a).saturating_mul(arg(b))),
            Size::Cache => None,
        }
    }

    /// Handles pages that were allocated together: in the array, if there is one, else in the list.
    fn pages_bulk(&self, vcpu: &mut Vcpu, list: u64, pages: u64, count: u64) {
        let stack = self.here(vcpu);
        let taken = match pages {
            0 => self.list(vcpu, list),
            _ => array(vcpu, pages, count.min(MAX_BULK)),
        };
        for page in taken {
            // Pages that were in the array before already belong to a user, and stay so.
            self.memory.pages_given(vcpu, page, stack);
        }
    }

    /// Reads address and size of a `struct vm_struct`.
    fn vm_struct(&self, vcpu: &mut Vcpu, area: u64) -> Option<(u64, u64)> {
        if area == 0 {
            return None;
        }
        let (addr, size) = self.memory.vm_struct();
        Some((vcpu.word(area.wrapping_add(addr), 8)?, vcpu.word(area.wrapping_add(size), 8)?))
    }

    fn area_new(&self, vcpu: &mut Vcpu, area: u64) {
        let (start, end) = self.memory.vmap_area();
        let start = vcpu.word(area.wrapping_add(start), 8);
        let end = vcpu.word(area.wrapping_add(end), 8);
        if let (Some(start), Some(end)) = (start, end) {
            self.memory.addresses_taken(start, end.wrapping_sub(start));
        }
    }

    /// Reads the pages of a list that is linked by `lru`.
    fn list(&self, vcpu: &mut Vcpu, head: u64) -> Vec<u64> {
        let lru = self.memory.page_lru();
        let mut pages = Vec::new();
        let mut at = vcpu.word(head, 8).unwrap_or(head);
        while at != head && at >> 63 != 0 && pages.len() < MAX_BULK as usize {
            pages.push(at.wrapping_sub(lru));
            at = vcpu.word(at, 8).unwrap_or(head);
        }
        pages
    }

    /// The number of the caller's stack, at the entry or the return of a function.
    fn here(&self, vcpu: &mut Vcpu) -> u32 {
        let mut frames = [0; DEPTH];
        // The register's index in QEMU's structure must be known before an access needs it.
        vcpu.register(GS_BASE);
        let count = self.unwinder.callers_of_call(vcpu, &mut frames);
        self.stacks.number(&frames[..count])
    }
}

/// Reads an array of pointers, without null ones.
fn array(guest: &mut impl Guest, at: u64, count: u64) -> Vec<u64> {
    (0..count).filter_map(|i| guest.word(at.wrapping_add(8 * i), 8)).filter(|&pointer| pointer != 0).collect()
}
