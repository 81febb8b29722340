//! A block as QEMU shows it during its translation.

use crate::ffi::{self, Insn, MemCb, Tb, VcpuCb};
use iced_x86::{Instruction, Mnemonic, OpKind};
use std::ffi::c_void;

/// The longest x86 instruction, in bytes.
const MAX_INSN_LEN: usize = 15;

/// Whether this is a near return, or a jump to a return thunk. `return_thunk` says whether one begins at
/// an address.
pub fn is_return(insn: &Instruction, return_thunk: impl FnOnce(u64) -> bool) -> bool {
    match insn.mnemonic() {
        Mnemonic::Ret => true,
        Mnemonic::Jmp if insn.op0_kind() == OpKind::NearBranch64 => return_thunk(insn.near_branch_target()),
        _ => false,
    }
}

/// A block during its translation callback.
#[derive(Clone, Copy)]
pub struct View {
    tb: *mut Tb,
}

impl View {
    /// Wraps the block of a translation callback.
    ///
    /// # Safety
    /// QEMU passed `tb` to the callback that runs now. The caller does not keep the view beyond it.
    pub unsafe fn new(tb: *mut Tb) -> View {
        View { tb }
    }

    /// QEMU's handle of the block, valid during the translation callback.
    pub fn tb(&self) -> *mut Tb {
        self.tb
    }

    /// Guest virtual address of the first instruction.
    pub fn address(&self) -> u64 {
        // SAFETY: the handle is valid during the translation callback, which this value does not
        // outlive.
        unsafe { ffi::qemu_plugin_tb_vaddr(self.tb) }
    }

    /// Number of instructions, at least one.
    pub fn len(&self) -> usize {
        // SAFETY: as above.
        unsafe { ffi::qemu_plugin_tb_n_insns(self.tb) }.max(1)
    }

    /// Always false: a block has at least one instruction.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the instruction with this index, which is below [`len`](Self::len).
    pub fn insn(&self, index: usize) -> InsnView {
        // SAFETY: as above; QEMU returns a null pointer beyond the count, and there is at least one.
        InsnView(unsafe { ffi::qemu_plugin_tb_get_insn(self.tb, index) })
    }

    /// The bytes of all instructions.
    pub fn all_bytes(&self) -> Vec<u8> {
        (0..self.len()).flat_map(|i| self.insn(i).bytes()).collect()
    }

    /// The first `len` bytes of the block; `None` where it is shorter.
    pub fn bytes(&self, len: usize) -> Option<Vec<u8>> {
        let bytes: Vec<u8> = (0..self.len()).flat_map(|i| self.insn(i).bytes()).take(len).collect();
        (bytes.len() == len).then_some(bytes)
    }

    /// Registers a callback for each start of the block. The data is a number, or the address of a value
    /// that is never freed.
    pub fn call(&self, callback: VcpuCb, flags: i32, data: usize) {
        // SAFETY: as above; the data is a number, or points to a value that is never freed.
        unsafe { ffi::qemu_plugin_register_vcpu_tb_exec_cb(self.tb, callback, flags, data as *mut c_void) };
    }
}

/// An instruction as QEMU shows it during translation.
#[derive(Clone, Copy)]
pub struct InsnView(*mut Insn);

impl InsnView {
    /// QEMU's handle of the instruction, valid during the translation callback.
    pub fn handle(&self) -> *mut Insn {
        self.0
    }

    /// Guest virtual address of the instruction.
    pub fn address(&self) -> u64 {
        // SAFETY: the handle is valid during the translation callback.
        unsafe { ffi::qemu_plugin_insn_vaddr(self.0) }
    }

    /// The bytes of the instruction.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; MAX_INSN_LEN];
        // SAFETY: as above; QEMU writes at most the length given.
        let len = unsafe { ffi::qemu_plugin_insn_data(self.0, bytes.as_mut_ptr().cast(), bytes.len()) };
        bytes.truncate(len);
        bytes
    }

    /// Registers a callback before the instruction runs. The data is as for [`View::call`].
    pub fn call(&self, callback: VcpuCb, flags: i32, data: usize) {
        // SAFETY: as above; the data is a number, or points to a value that is never freed.
        unsafe { ffi::qemu_plugin_register_vcpu_insn_exec_cb(self.0, callback, flags, data as *mut c_void) };
    }

    /// Registers a callback after each of its memory accesses of this kind.
    pub fn accesses(&self, callback: MemCb, flags: i32, kind: i32, data: usize) {
        // SAFETY: as above.
        unsafe { ffi::qemu_plugin_register_vcpu_mem_cb(self.0, callback, flags, kind, data as *mut c_void) };
    }
}
