//! The plugin's state, one for the process, which all clients share: what it knows of the guest, and the
//! clients.
//!
//! **Knows**: vCPUs, memory, modules and hooks of the guest, the scope, counters.
//!
//! **Must not know**: what a client does, how QEMU calls back.
//!
//! **Invariants**: only callbacks of a vCPU use that vCPU's state.

mod counter;
mod hooks;
pub(crate) mod modules;
pub(crate) mod scope;
mod vcpu;

pub use counter::Counter;
pub(crate) use counter::Counters;
pub use hooks::HookId;
pub(crate) use hooks::{Hooks, Wanted};
pub use vcpu::{Access, PerVcpu, Vcpu};

use crate::Discontinuity;
use guardrail_plugin::block::View;
use guardrail_plugin::cpu::VcpuCell;
use guardrail_plugin::ffi::PluginId;
use guardrail_plugin::modules::find_ram;
use guardrail_plugin::ram::Ram;
use guardrail_trace::client::{ClientConfig, Module, Report, Results};
use guardrail_trace::config::PerCpu;
use guardrail_trace::event::Global;
use iced_x86::Instruction;
use modules::Modules;
use rustc_hash::FxHashMap;
use std::cell::OnceCell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A client of any type, as the host sees it.
pub(crate) trait Erased: Sync {
    fn block(&'static self, shared: &Shared, host: &Host);
    fn entered(&'static self, vcpu: &mut Vcpu, hook: HookId);
    fn left(&'static self, vcpu: &mut Vcpu, hook: HookId, args: [u64; 6], result: u64);
    fn discontinuity(&'static self, vcpu: &mut Vcpu, kind: Discontinuity, from: u64, to: u64);
    fn switched(&'static self, vcpu: &mut Vcpu, from: u64, to: u64);
    fn loaded(&'static self, module: &Module);
    fn unloaded(&'static self, module: &Module);
    fn attached(&'static self, vcpu: &mut Vcpu, booted: bool);
    fn detached(&'static self);
    fn results(&'static self) -> Results;
    fn end(&'static self);
}

/// The callbacks that a client asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wants {
    pub(crate) discontinuities: bool,
    pub(crate) threads: bool,
    pub(crate) everything: bool,
}

/// Data of a block that all clients share, computed at the first use.
pub(crate) struct Shared {
    pub(crate) view: View,
    pub(crate) within: bool,
    bytes: OnceCell<Vec<u8>>,
    pub(crate) insns: OnceCell<Vec<Instruction>>,
    pub(crate) id: OnceCell<u32>,
}

impl Shared {
    pub(crate) fn new(view: View, within: bool) -> Shared {
        Shared { view, within, bytes: OnceCell::new(), insns: OnceCell::new(), id: OnceCell::new() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get_or_init(|| self.view.all_bytes())
    }
}

static HOST: OnceLock<Host> = OnceLock::new();

/// State that all callbacks use.
pub(crate) struct Host {
    pub(crate) id: PluginId,
    pub(crate) config: ClientConfig,
    /// The clients that run, with the callbacks that each asked for.
    pub(crate) clients: Vec<(&'static dyn Erased, Wants)>,
    pub(crate) counters: Counters,
    pub(crate) hooks: Hooks,
    pub(crate) modules: Modules,
    pub(crate) blocks: Blocks,
    pub(crate) ram: Ram,
    pub(crate) control: State,
    vcpus: Box<[VcpuCell<Vcpu>]>,
    slide_known: AtomicBool,
    slide: AtomicU64,
    /// `page_offset_base`; 0 before it is known.
    direct_map: AtomicU64,
}

/// Whether clients are attached, and the requested state.
#[derive(Default)]
pub(crate) struct State {
    /// True while the scope is instrumented.
    pub(crate) attached: AtomicBool,
    /// True where the scope should be instrumented.
    pub(crate) wanted: AtomicBool,
    /// True while callbacks are registered that the requested state does not need.
    pub(crate) stale: AtomicBool,
    /// True while a reset is under way.
    pub(crate) changing: AtomicBool,
    /// Index of the vCPU whose thread asked for the reset.
    pub(crate) by: AtomicU32,
    /// Number of attachments so far.
    pub(crate) times: AtomicU64,
}

#[inline]
pub(crate) fn host() -> Option<&'static Host> {
    HOST.get()
}

/// Dense numbers of blocks.
#[derive(Default)]
pub(crate) struct Blocks(Mutex<FxHashMap<(u64, u64), u32>>);

impl Blocks {
    pub(crate) fn number(&self, address: u64, bytes: &[u8]) -> u32 {
        use std::hash::{BuildHasher, Hasher};
        let mut hasher = rustc_hash::FxBuildHasher.build_hasher();
        hasher.write(bytes);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = known.len() as u32;
        *known.entry((address, hasher.finish())).or_insert(next)
    }
}

/// Sets the process's host.
pub(crate) fn set(
    id: PluginId,
    config: ClientConfig,
    clients: Vec<(&'static dyn Erased, Wants)>,
    counters: Counters,
    hooks: Hooks,
) -> Result<&'static Host, String> {
    let host = Host {
        id,
        config,
        clients,
        vcpus: (0..counters.vcpus).map(|index| VcpuCell::new(Vcpu::new(index))).collect(),
        counters,
        hooks,
        modules: Modules::default(),
        blocks: Blocks::default(),
        ram: Ram::default(),
        control: State::default(),
        slide_known: AtomicBool::new(false),
        slide: AtomicU64::new(0),
        direct_map: AtomicU64::new(0),
    };
    HOST.set(host)
        .map_err(|_| "a plugin with clients is loaded twice; name it once on QEMU's command line")?;
    Ok(HOST.get().ok_or("a host that was just set is gone")?)
}

impl Host {
    /// Returns the vCPU of a callback.
    ///
    /// # Safety
    /// As for [`VcpuCell::get`].
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn vcpu(&self, index: u32) -> Option<&mut Vcpu> {
        // SAFETY: passed on to the caller.
        self.vcpus.get(index as usize).map(|cell| unsafe { cell.get() })
    }

    /// The KASLR slide; `None` before it is known.
    #[inline]
    pub(crate) fn slide(&self) -> Option<u64> {
        self.slide_known.load(Acquire).then(|| self.slide.load(Relaxed))
    }

    pub(crate) fn set_slide(&self, slide: u64) {
        self.slide.store(slide, Relaxed);
        self.slide_known.store(true, Release);
    }

    /// The physical address of an address in the kernel's direct map; `None` for other addresses.
    #[inline]
    pub(crate) fn direct_physical(&self, addr: u64) -> Option<u64> {
        let base = self.direct_map.load(Relaxed);
        (base != 0).then(|| addr.wrapping_sub(base)).filter(|&physical| physical < 1 << 40)
    }

    /// The offset of a per-CPU variable from the GS base.
    pub(crate) fn per_cpu_offset(&self, of: impl Fn(&PerCpu) -> u64) -> Option<u64> {
        let places = &self.config.kernel.per_cpu;
        let slide = if places.relative { self.slide()? } else { 0 };
        Some(of(places).wrapping_add(slide))
    }

    /// Finds the guest's RAM and the direct map, as soon as they can be known.
    pub(crate) fn learn_memory(&self, vcpu: &mut Vcpu) {
        let Some(slide) = self.slide().filter(|_| self.direct_map.load(Relaxed) == 0) else { return };
        find_ram(&self.ram, self.config.kernel.kernel_text, slide, vcpu.cpu());
        let base = self.config.kernel.globals.iter().find(|global| global.0 == Global::PageOffsetBase);
        if let Some(base) = base.and_then(|&(_, at)| vcpu.cpu().read_word(at.wrapping_add(slide), 8)) {
            self.direct_map.store(base, Relaxed);
        }
    }

    /// Collects the current results of all clients.
    pub(crate) fn report(&self) -> Report {
        Report {
            slide: self.slide(),
            modules: self.modules.all().iter().map(|module| (**module).clone()).collect(),
            clients: self.clients.iter().map(|(client, _)| client.results()).collect(),
        }
    }
}
