//! The guest's memory, which the driver VM's QEMU and the device's QEMU share.

use crate::error::{Context, Result};
use crate::sys;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// The guest's memory. Both QEMUs inherit its descriptor under this process's number and open it by that: a jailed
/// process cannot look into another one's folder in `/proc`.
#[derive(Clone, Debug)]
pub struct Memory(Arc<OwnedFd>);

impl Memory {
    /// New memory of `mib` MiB. Its size can never change, so that no process can make another one fault on it.
    pub fn new(mib: u32) -> Result<Memory> {
        sys::memory_file(size(mib)).map(|fd| Memory(Arc::new(fd))).context("make the guest's memory")
    }

    /// Takes over the memory that this process has inherited under a number.
    ///
    /// # Safety
    ///
    /// Nothing else in this process owns the number.
    pub(crate) unsafe fn inherited(number: RawFd, mib: u32) -> Result<Memory> {
        // SAFETY: the caller guarantees the same.
        let fd = unsafe { sys::inherited_memory(number, size(mib)) };
        let fd = fd.context("take over the guest's memory")?;
        Ok(Memory(Arc::new(fd)))
    }

    /// The descriptor that a QEMU inherits under its number.
    pub fn descriptor(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.0)
    }

    /// The number of the descriptor.
    pub(crate) fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// The arguments by which the driver VM's QEMU has it as its memory, of `mib` MiB.
    pub fn qemu_arguments(&self, mib: u32) -> Vec<String> {
        let path = self.path();
        vec![
            "-object".into(),
            format!("memory-backend-file,id=guardrail-ram,size={mib}M,mem-path={path},share=on"),
            "-machine".into(),
            "memory-backend=guardrail-ram".into(),
        ]
    }

    /// The path by which a process opens the memory that it has inherited.
    pub(crate) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.number())
    }

    /// What distinguishes it from other files: its device and inode.
    pub fn identity(&self) -> Result<(u64, u64)> {
        sys::identity(&self.0).context("look at the guest's memory")
    }
}

fn size(mib: u32) -> u64 {
    u64::from(mib) << 20
}
