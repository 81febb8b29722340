//! A vCPU's registers, and the guest's memory as the vCPU maps it.

use crate::ffi::{self, GByteArray};
use crate::registers::{RCX, RDI, RDX, RSI, Registers, word};
use std::cell::UnsafeCell;

/// Registers of the six integer arguments of a call (System V ABI).
pub const ARGS: [usize; 6] = [RDI, RSI, RDX, RCX, 8, 9];

/// Access to one vCPU, and through it to the guest. Only for callbacks on the thread that runs it.
pub struct Cpu {
    /// Registers of this vCPU.
    pub regs: Registers,
    buf: *mut GByteArray,
}

// SAFETY: the raw pointers inside (register handles, a byte array) are not tied to a thread.
unsafe impl Send for Cpu {}

impl Default for Cpu {
    fn default() -> Self {
        Cpu::new()
    }
}

impl Cpu {
    /// Makes a vCPU whose registers are not known yet.
    pub fn new() -> Cpu {
        // SAFETY: plain allocation; the array lives as long as the process.
        let buf = unsafe { ffi::g_byte_array_new() };
        Cpu { regs: Registers::new(buf), buf }
    }

    /// Reads a register. Only for callbacks that may read registers.
    #[inline]
    pub fn reg(&mut self, index: usize) -> u64 {
        self.regs.get(index)
    }

    /// Sets a register. Only for callbacks that may write registers, and that leave by setting the
    /// program counter.
    pub fn set_reg(&mut self, index: usize, value: u64) {
        self.regs.set(index, value);
    }

    /// Reads the six argument registers.
    pub fn args(&mut self) -> [u64; 6] {
        ARGS.map(|r| self.reg(r))
    }

    /// Writes guest memory at a virtual address. Unmapped memory is not changed.
    pub fn write(&mut self, addr: u64, bytes: &[u8]) {
        // SAFETY: called on the vCPU's own thread; GLib copies the bytes.
        unsafe {
            (*self.buf).len = 0;
            ffi::g_byte_array_append(self.buf, bytes.as_ptr(), bytes.len() as u32);
            ffi::qemu_plugin_write_memory_vaddr(addr, self.buf);
        }
    }

    /// Reads guest memory by virtual address, as the vCPU maps it now. `None` where it is not mapped.
    pub fn read(&mut self, addr: u64, len: usize) -> Option<&[u8]> {
        // SAFETY: called on the vCPU's own thread; QEMU sizes the buffer.
        let ok = unsafe { ffi::qemu_plugin_read_memory_vaddr(addr, self.buf, len) };
        (ok && self.bytes().len() == len).then(|| self.bytes())
    }

    /// Reads guest memory by physical address. `None` where it cannot be read.
    pub fn read_physical(&mut self, addr: u64, len: usize) -> Option<&[u8]> {
        // SAFETY: as in `read`.
        let result = unsafe { ffi::qemu_plugin_read_memory_hwaddr(addr, self.buf, len) };
        (result == ffi::HWADDR_OK && self.bytes().len() == len).then(|| self.bytes())
    }

    /// Reads up to eight bytes by virtual address, zero-extended.
    pub fn read_word(&mut self, addr: u64, len: usize) -> Option<u64> {
        self.read(addr, len.min(8)).map(word)
    }

    /// Reads up to eight bytes by physical address, zero-extended.
    pub fn read_physical_word(&mut self, addr: u64, len: usize) -> Option<u64> {
        self.read_physical(addr, len.min(8)).map(word)
    }

    /// Translates a virtual address to a physical one. `None` where it is not mapped.
    pub fn translate(&mut self, addr: u64) -> Option<u64> {
        let mut physical = 0;
        // SAFETY: called on the vCPU's own thread; QEMU fills in the result.
        unsafe { ffi::qemu_plugin_translate_vaddr(addr, &mut physical) }.then_some(physical)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: GLib keeps `len` bytes at `data`; no other code uses the array.
        unsafe {
            let array = &*self.buf;
            if array.data.is_null() {
                &[]
            } else {
                std::slice::from_raw_parts(array.data, array.len as usize)
            }
        }
    }
}

/// State of a vCPU, alone on its cache lines. Only callbacks on the vCPU's own thread use it.
#[repr(align(128))]
pub struct VcpuCell<T>(UnsafeCell<T>);

// SAFETY: `get` is called only on the vCPU's thread, or while no vCPU runs; see there.
unsafe impl<T: Send> Sync for VcpuCell<T> {}

impl<T> VcpuCell<T> {
    /// Wraps the state of a vCPU.
    pub fn new(state: T) -> VcpuCell<T> {
        VcpuCell(UnsafeCell::new(state))
    }

    /// Returns the vCPU's state.
    ///
    /// # Safety
    /// The caller is one of these:
    /// - a callback for this vCPU (QEMU runs those on the thread that executes the vCPU, never nested);
    /// - code on the one thread that several vCPUs share;
    /// - code that runs while no vCPU runs.
    ///
    /// The caller must not keep the result beyond the callback.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn get(&self) -> &mut T {
        // SAFETY: by the contract above no other reference exists.
        unsafe { &mut *self.0.get() }
    }
}
