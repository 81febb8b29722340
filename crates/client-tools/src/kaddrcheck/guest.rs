//! Access to the guest's memory: through the vCPU in a run, from a map in tests.

use guardrail_client_api::Vcpu;

/// The guest's memory, by virtual address.
pub trait Guest {
    /// Reads up to eight bytes, zero-extended. `None` where nothing is mapped.
    fn word(&mut self, addr: u64, len: usize) -> Option<u64>;

    /// Fills a buffer from memory. Returns false where any of it is not mapped.
    fn fill(&mut self, addr: u64, buffer: &mut [u8]) -> bool;
}

impl Guest for Vcpu {
    #[inline]
    fn word(&mut self, addr: u64, len: usize) -> Option<u64> {
        Vcpu::word(self, addr, len)
    }

    fn fill(&mut self, addr: u64, buffer: &mut [u8]) -> bool {
        match self.read(addr, buffer.len()) {
            Some(bytes) => {
                buffer.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }
}
