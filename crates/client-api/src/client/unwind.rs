//! Call stacks of the running kernel, for clients.

use super::Setup;
use crate::host::{Vcpu, host};
use guardrail_binfmt::orc::{Frame, Unwinder as Rules};
use guardrail_plugin::cpu::Cpu;
use guardrail_plugin::registers::{RBP, RSP};
use guardrail_plugin::unwind::{self, Guest};
use std::sync::{Arc, OnceLock};

/// The one instance of the process, which all clients share.
static UNWINDER: OnceLock<Arc<Unwinder>> = OnceLock::new();

/// Walks call stacks; see [`Setup::unwinder`].
pub struct Unwinder(unwind::Unwinder);

impl Setup<'_> {
    /// Returns the process's stack walker. An error where this kernel has no ORC tables.
    pub fn unwinder(&mut self) -> Result<Arc<Unwinder>, String> {
        if let Some(unwinder) = UNWINDER.get() {
            return Ok(Arc::clone(unwinder));
        }
        let image = self.kernel()?;
        let rules = Rules::of_image(&image).ok_or_else(|| {
            format!(
                "the kernel {} has no ORC tables (CONFIG_UNWINDER_ORC), so it has no stacks",
                image.release()
            )
        })?;
        let (text, layout) = (self.layout().kernel_text, guardrail_kernel::module_tables(&image));
        let unwinder = Arc::new(Unwinder(unwind::Unwinder::new(rules, text, layout)));
        Ok(Arc::clone(UNWINDER.get_or_init(|| unwinder)))
    }
}

impl Unwinder {
    /// Appends the current vCPU's stack to `out`: `pc`, then the return address of each call, innermost
    /// first, at most `limit` addresses. The vCPU is about to run the instruction at `pc` with its
    /// current registers. If the kernel was interrupted, the stack continues with the interrupted code.
    ///
    /// Only for callbacks before a block or an instruction, and for functions' entries and returns.
    pub fn stack(&self, vcpu: &mut Vcpu, pc: u64, limit: usize, out: &mut Vec<u64>) {
        let first = Frame::first(pc, vcpu.register(RSP), vcpu.register(RBP), true);
        self.walk(vcpu, first, limit, |frame| out.push(frame.pc));
    }

    /// Like [`stack`](Self::stack), but each caller has an address inside the call instruction. A call
    /// that never returns may be the last instruction of its function.
    pub fn calls(&self, vcpu: &mut Vcpu, pc: u64, limit: usize, out: &mut Vec<u64>) {
        let first = Frame::first(pc, vcpu.register(RSP), vcpu.register(RBP), true);
        self.walk(vcpu, first, limit, |frame| out.push(frame.pc - u64::from(!frame.interrupted)));
    }

    /// Writes the callers of the current function into `out`: the return addresses, innermost first.
    /// Returns their number. The function is at its first instruction, or about to return.
    pub fn callers_of_call(&self, vcpu: &mut Vcpu, out: &mut [u64]) -> usize {
        let sp = vcpu.register(RSP);
        let Some(pc) = vcpu.word(sp, 8).filter(|pc| pc >> 63 != 0) else { return 0 };
        let first = Frame::first(pc, sp.wrapping_add(8), vcpu.register(RBP), false);
        let mut count = 0;
        self.walk(vcpu, first, out.len(), |frame| {
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
        self.0.walk(vcpu, slide, first, limit, |frame| {
            each(frame);
            true
        });
    }
}

impl Guest for Vcpu {
    fn cpu(&mut self) -> &mut Cpu {
        Vcpu::cpu(self)
    }

    fn physical(&mut self, page: u64) -> Option<u64> {
        self.translate(page)
    }

    fn word(&self, physical: u64) -> Option<u64> {
        host()?.ram.word(physical, 8)
    }

    fn module(&self, pc: u64) -> Option<u64> {
        host()?.modules.holding(pc)
    }
}

/// Forgets the rules of an unloaded module, or of all modules.
pub(crate) fn forget(module: Option<u64>) {
    if let Some(unwinder) = UNWINDER.get() {
        unwinder.0.forget(module);
    }
}
