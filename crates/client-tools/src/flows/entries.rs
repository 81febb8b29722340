//! Kernel entries of interrupts and exceptions.

use super::Level;
use guardrail_client_api::Discontinuity;
use guardrail_client_api::binfmt::KernelImage;

/// Link-time addresses of the entries of interrupts and exceptions in a kernel image.
pub struct Entries {
    /// Link-time addresses of `asm_exc_*`, sorted.
    exceptions: Vec<u64>,
    nmi: Vec<u64>,
}

impl Entries {
    pub(super) fn of(image: &KernelImage) -> Entries {
        let mut entries = Entries { exceptions: Vec::new(), nmi: Vec::new() };
        for symbol in image.symbols() {
            match symbol.name {
                name if name.contains("exc_nmi") => entries.nmi.push(symbol.address),
                name if name.starts_with("asm_exc_") => entries.exceptions.push(symbol.address),
                _ => {}
            }
        }
        entries.exceptions.sort_unstable();
        entries
    }

    /// The level of the flow that begins at a link-time address.
    pub fn level(&self, kind: Discontinuity, to: u64) -> Level {
        match kind {
            _ if self.nmi.contains(&to) => Level::Nmi,
            Discontinuity::Exception => Level::Exception,
            // QEMU reports a breakpoint instruction as an interrupt.
            _ if self.exceptions.binary_search(&to).is_ok() => Level::Exception,
            Discontinuity::Interrupt => Level::Hardirq,
        }
    }
}
