//! Call stacks of the running kernel, from the tables by which the kernel unwinds its own stacks (ORC).
//! They include the tables of modules, read from the guest when a stack first leads through a module.

use super::Setup;
use crate::host::{Vcpu, host};
use guardrail_binfmt::KernelImage;
use guardrail_binfmt::orc::{Frame, MAX_ENTRIES, Unwinder as Rules};
use guardrail_plugin::ffi;
use guardrail_plugin::registers::{RBP, RSP};
use rustc_hash::FxHashMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// Bytes of an ORC entry, and of its address.
const ENTRY: usize = 6;
const PLACE: usize = 4;
const PAGE: u64 = 4096;
/// Most frames that are walked, whatever the limit: stacks of interrupts lie on other stacks.
const MAX_FRAMES: usize = 128;

/// The one instance of the process, which all clients share.
static UNWINDER: OnceLock<Arc<Unwinder>> = OnceLock::new();

/// Walks call stacks; see [`Setup::unwinder`].
pub struct Unwinder {
    kernel: Rules,
    /// Offsets in `struct module`: the number of ORC entries, the pointer to their addresses, and the
    /// pointer to the entries.
    arch: Option<(u64, u64, u64)>,
    /// By the address of the `struct module`; `None` for a module without tables.
    modules: RwLock<FxHashMap<u64, Option<Arc<Rules>>>>,
}

impl Setup<'_> {
    /// Returns the process's stack walker. An error where this kernel has no ORC tables.
    pub fn unwinder(&mut self) -> Result<Arc<Unwinder>, String> {
        if let Some(unwinder) = UNWINDER.get() {
            return Ok(Arc::clone(unwinder));
        }
        let unwinder = Arc::new(Unwinder::new(&*self.kernel()?)?);
        Ok(Arc::clone(UNWINDER.get_or_init(|| unwinder)))
    }
}

impl Unwinder {
    fn new(image: &KernelImage) -> Result<Unwinder, String> {
        let kernel = Rules::of_image(image).ok_or_else(|| {
            format!(
                "the kernel {} has no ORC tables (CONFIG_UNWINDER_ORC), so it has no stacks",
                image.release()
            )
        })?;
        let member = |name| image.btf().member_offset("module", name);
        let arch =
            || Some((member("arch.num_orcs")?, member("arch.orc_unwind_ip")?, member("arch.orc_unwind")?));
        Ok(Unwinder { kernel, arch: arch(), modules: RwLock::default() })
    }

    /// Appends the current vCPU's stack to `out`: `pc`, then the return address of each call, innermost
    /// first, at most `limit` addresses. The vCPU is about to run the instruction at `pc` with its
    /// current registers. If the kernel was interrupted, the stack continues with the interrupted code.
    ///
    /// Only for callbacks before a block or an instruction, and for functions' entries and returns.
    pub fn stack(&self, vcpu: &mut Vcpu, pc: u64, limit: usize, out: &mut Vec<u64>) {
        let frame = Frame { pc, sp: vcpu.register(RSP), bp: vcpu.register(RBP), interrupted: true };
        self.walk(vcpu, frame, limit, |frame| out.push(frame.pc));
    }

    /// Like [`stack`](Self::stack), but each caller has an address inside the call instruction. A call
    /// that never returns may be the last instruction of its function.
    pub fn calls(&self, vcpu: &mut Vcpu, pc: u64, limit: usize, out: &mut Vec<u64>) {
        let frame = Frame { pc, sp: vcpu.register(RSP), bp: vcpu.register(RBP), interrupted: true };
        self.walk(vcpu, frame, limit, |frame| out.push(frame.pc - u64::from(!frame.interrupted)));
    }

    /// Writes the callers of the current function into `out`: the return addresses, innermost first.
    /// Returns their number. The function is at its first instruction, or about to return.
    pub fn callers_of_call(&self, vcpu: &mut Vcpu, out: &mut [u64]) -> usize {
        let sp = vcpu.register(RSP);
        let Some(pc) = vcpu.word(sp, 8).filter(|pc| pc >> 63 != 0) else { return 0 };
        let frame = Frame { pc, sp: sp.wrapping_add(8), bp: vcpu.register(RBP), interrupted: false };
        let mut count = 0;
        self.walk(vcpu, frame, out.len(), |frame| {
            if let Some(place) = out.get_mut(count) {
                *place = frame.pc;
                count += 1;
            }
        });
        count
    }

    /// Calls `each` for each frame, beginning with `first`.
    pub fn walk(&self, vcpu: &mut Vcpu, first: Frame, limit: usize, mut each: impl FnMut(&Frame)) {
        let Some(slide) = host().and_then(|host| host.slide()) else { return };
        let (mut frame, mut memory) = (first, StackPages::default());
        for _ in 0..limit.min(MAX_FRAMES) {
            each(&frame);
            let link = frame.pc.wrapping_sub(slide);
            let next = if host().is_some_and(|host| within(host.config.kernel.kernel_text, link)) {
                self.kernel.caller(&frame, slide, |addr| memory.word(vcpu, addr))
            } else {
                let Some(rules) = self.module(vcpu, frame.pc) else { return };
                rules.caller(&frame, 0, |addr| memory.word(vcpu, addr))
            };
            match next {
                Some(next) => frame = next,
                None => return,
            }
        }
    }

    /// The unwind rules of the module that contains this address.
    fn module(&self, vcpu: &mut Vcpu, pc: u64) -> Option<Arc<Rules>> {
        let address = host()?.modules.holding(pc)?;
        let known = self.modules.read().unwrap_or_else(PoisonError::into_inner).get(&address).cloned();
        if let Some(known) = known {
            return known;
        }
        let rules = self.read(vcpu, address).map(Arc::new);
        let mut modules = self.modules.write().unwrap_or_else(PoisonError::into_inner);
        modules.insert(address, rules.clone());
        rules
    }

    fn read(&self, vcpu: &mut Vcpu, module: u64) -> Option<Rules> {
        let (count, places, entries) = self.arch?;
        let count = vcpu.word(module.wrapping_add(count), 4)? as usize;
        if count == 0 || count > MAX_ENTRIES {
            return None;
        }
        let places_at = vcpu.word(module.wrapping_add(places), 8)?;
        let entries_at = vcpu.word(module.wrapping_add(entries), 8)?;
        let places = vcpu.read(places_at, count * PLACE)?.to_vec();
        let entries = vcpu.read(entries_at, count * ENTRY)?;
        self.kernel.of_module(places_at, &places, entries)
    }
}

/// Forgets the rules of an unloaded module, or of all modules.
pub(crate) fn forget(module: Option<u64>) {
    let Some(unwinder) = UNWINDER.get() else { return };
    let mut modules = unwinder.modules.write().unwrap_or_else(PoisonError::into_inner);
    match module {
        Some(module) => drop(modules.remove(&module)),
        None => modules.clear(),
    }
}

fn within(range: (u64, u64), addr: u64) -> bool {
    (range.0..range.1).contains(&addr)
}

/// Reads stacks, with one translation per page, since most stack pages lie outside the direct map.
#[derive(Default)]
struct StackPages {
    page: u64,
    physical: Option<u64>,
}

impl StackPages {
    fn word(&mut self, vcpu: &mut Vcpu, addr: u64) -> Option<u64> {
        if addr & (PAGE - 1) > PAGE - 8 || addr >> 63 == 0 {
            return None;
        }
        let page = addr & !(PAGE - 1);
        if self.page != page {
            let mut physical = 0;
            // SAFETY: called on the vCPU's own thread; QEMU writes one word.
            let mapped = unsafe { ffi::qemu_plugin_translate_vaddr(page, &mut physical) };
            *self = StackPages { page, physical: mapped.then_some(physical) };
        }
        let physical = self.physical? + (addr & (PAGE - 1));
        host()?.ram.word(physical, 8).or_else(|| vcpu.word(addr, 8))
    }
}
