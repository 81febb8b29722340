//! `kaddrcheck`: checks that every byte that the kernel accesses has an owner.
//!
//! Shadow memory has a mark for each byte of slabs, pages, vmalloc and per-CPU memory without an owner.
//! Such a byte was freed, was never allocated, or lies beyond the size asked for. Each access of kernel
//! code looks at the marks, and calls of the allocators change them. Accesses of the allocators to their
//! own memory are exempt.

mod areas;
mod caches;
mod calls;
mod findings;
mod freelists;
mod frees;
mod guest;
mod judge;
mod memory;
mod pages;
mod scan;
mod sites;
mod spaces;
mod stacks;
mod suspect;
#[cfg(test)]
mod tests;

use findings::Findings;
use guardrail_client_api::kernel::SummaryTable;
use guardrail_client_api::kernel::slab::{self, Call, Layout};
use guardrail_client_api::register::{RCX, RDI, RSI};
use guardrail_client_api::{
    Access, Block, Cell, Client, HookId, Module, PerVcpu, Results, Setup, Table, Unwinder, Vcpu,
};
use judge::MemoryAccess;
use memory::Memory;
use sites::{Site, Sites};
use stacks::Stacks;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use suspect::Exempt;

/// The `kaddrcheck` client.
pub struct KAddrCheck {
    memory: Memory,
    calls: Vec<Call>,
    sites: Sites,
    /// Walks call stacks.
    unwinder: Arc<Unwinder>,
    stacks: Stacks,
    findings: Findings,
    exempt: PerVcpu<Exempt>,
    /// Number of frees at the time of a vCPU's last access.
    seen: PerVcpu<AtomicU64>,
    attached: AtomicBool,
    slabs_at_attach: AtomicU64,
    allocations: AtomicU64,
    unjudged: AtomicU64,
    /// Number of accesses to memory that another vCPU freed at that moment.
    crossed: AtomicU64,
}

impl Client for KAddrCheck {
    const NAME: &'static str = "kaddrcheck";

    fn new(setup: &mut Setup) -> Result<Self, String> {
        setup.only(&[])?;
        let image = setup.kernel()?;
        let layout = Layout::of(&image).map_err(|e| e.to_string())?;
        let named = slab::calls(&image, &SummaryTable::for_image(&image));
        let mut calls = Vec::new();
        for function in named {
            if setup.hook(&function.name, function.returns)?.is_some() {
                calls.push(function.call);
            }
        }
        Ok(KAddrCheck {
            unwinder: setup.unwinder()?,
            memory: Memory::new(layout).map_err(|e| format!("the host gives no address space: {e}"))?,
            calls,
            sites: Sites::new(&image),
            stacks: Stacks::default(),
            findings: Findings::default(),
            exempt: setup.per_vcpu(Exempt::default),
            seen: setup.per_vcpu(AtomicU64::default),
            attached: AtomicBool::new(false),
            slabs_at_attach: AtomicU64::new(0),
            allocations: AtomicU64::new(0),
            unjudged: AtomicU64::new(0),
            crossed: AtomicU64::new(0),
        })
    }

    fn block(&'static self, block: &mut Block<Self>) {
        let Some(slide) = block.slide() else { return };
        self.sites.instrument(block, slide);
    }

    fn accessed(&'static self, vcpu: &mut Vcpu, access: Access, data: u64) {
        let site = Site::from_data(data);
        let size = if site.size == 0 { access.size() } else { site.size };
        if self.memory.shadow.any(access.address, size) {
            self.suspect(vcpu, site, MemoryAccess { addr: access.address, len: size, store: site.store });
        }
        self.has_seen(vcpu);
    }

    /// Checks all accesses of a string instruction together, before it begins.
    fn executed(&'static self, vcpu: &mut Vcpu, data: u64) {
        let site = Site::from_data(data);
        self.has_seen(vcpu);
        let count = vcpu.register(RCX).min(1 << 32);
        let len = count * site.size;
        if site.store {
            let addr = vcpu.register(RDI);
            if self.memory.shadow.any(addr, len) {
                self.suspect(vcpu, site, MemoryAccess { addr, len, store: true });
            }
        }
        if site.loads {
            let addr = vcpu.register(RSI);
            if self.memory.shadow.any(addr, len) {
                self.suspect(vcpu, site, MemoryAccess { addr, len, store: false });
            }
        }
    }

    fn entered(&'static self, vcpu: &mut Vcpu, hook: HookId) {
        let Some(&call) = self.calls.get(hook.0 as usize) else { return };
        if call.begins() {
            let args = vcpu.args();
            self.called(vcpu, call, args, 0);
        }
    }

    fn left(&'static self, vcpu: &mut Vcpu, hook: HookId, args: [u64; 6], result: u64) {
        if let Some(&call) = self.calls.get(hook.0 as usize) {
            self.called(vcpu, call, args, result);
        }
    }

    fn unloaded(&'static self, module: &Module) {
        self.findings.close(module);
    }

    fn attached(&'static self, vcpu: &mut Vcpu, booted: bool) {
        let slide = vcpu.slide().unwrap_or(0);
        self.memory.set_slide(slide);
        if booted {
            self.slabs_at_attach.store(self.memory.scan(vcpu) as u64, Relaxed);
        }
        self.attached.store(true, Relaxed);
    }

    fn detached(&'static self) {
        self.attached.store(false, Relaxed);
        self.memory.forget();
    }

    fn results(&'static self, results: &mut Results) {
        results.findings = self.findings.all();
        let unseen = self.findings.all_unseen();
        if !unseen.is_empty() {
            results.tables.push(Table {
                name: "accesses to memory that had come to its user unseen, so not faults".to_owned(),
                columns: vec!["instruction".to_owned(), "times".to_owned()],
                rows: unseen.iter().map(|&(pc, times)| vec![Cell::Code(pc), Cell::Count(times)]).collect(),
                ..Table::default()
            });
        }
        let memory = self.memory.resident() + self.stacks.resident();
        let ram = self.memory.known_pages().map_or(0, |pages| pages.len() * pages::PAGE);
        results.notes.push(format!(
            "{} allocations were seen, of {} caches; {} slabs were there when the client was attached; the shadow and what is \
             noted of objects take {} MB for a guest of {} MB; {} times memory had come to its user unseen, {} accesses could not be judged for \
             want of a stack, and {} since another CPU freed the memory at that moment",
            self.allocations.load(Relaxed),
            self.memory.caches.len(),
            self.slabs_at_attach.load(Relaxed),
            memory >> 20,
            ram >> 20,
            self.memory.healed.load(Relaxed),
            self.unjudged.load(Relaxed),
            self.crossed.load(Relaxed),
        ));
    }
}

impl KAddrCheck {
    /// Notes that all frees so far precede the vCPU's next access.
    #[inline]
    fn has_seen(&self, vcpu: &Vcpu) {
        self.seen.of(vcpu).store(self.memory.frees.count(), Relaxed);
    }
}
