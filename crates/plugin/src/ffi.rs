//! The part of QEMU's plugin API (version 7) that Guardrail uses, and the few GLib functions that it
//! needs.
//!
//! All symbols come from the QEMU process that loads the plugin. Their names are those of
//! `qemu-plugin.h`.

#![allow(missing_docs)]

use std::ffi::{c_char, c_int, c_uint, c_void};

/// The version of the API that this file declares.
pub const API_VERSION: c_int = 7;

pub type PluginId = u64;

#[repr(C)]
pub struct Tb {
    _opaque: [u8; 0],
}
#[repr(C)]
pub struct Insn {
    _opaque: [u8; 0],
}
#[repr(C)]
pub struct Register {
    _opaque: [u8; 0],
}
#[repr(C)]
pub struct HwAddr {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct Version {
    pub min: c_int,
    pub cur: c_int,
}

#[repr(C)]
pub struct Info {
    pub target_name: *const c_char,
    pub version: Version,
    pub system_emulation: bool,
    pub smp_vcpus: c_int,
    pub max_vcpus: c_int,
}

/// GLib's growable byte array; its first two fields are public.
#[repr(C)]
pub struct GByteArray {
    pub data: *mut u8,
    pub len: c_uint,
}

/// GLib's growable array; its first two fields are public.
#[repr(C)]
pub struct GArray {
    pub data: *mut c_char,
    pub len: c_uint,
}

#[repr(C)]
pub struct RegDescriptor {
    pub handle: *mut Register,
    pub name: *const c_char,
    pub feature: *const c_char,
    pub is_readonly: bool,
}

/// `qemu_plugin_mem_value`: the type of the value, then a union of two words.
#[repr(C)]
pub struct MemValue {
    pub kind: c_int,
    pub low: u64,
    pub high: u64,
}

/// The result of `qemu_plugin_scoreboard_new`: an array with one element for each vCPU.
#[repr(C)]
pub struct Scoreboard {
    _opaque: [u8; 0],
}

/// `qemu_plugin_u64`: a word in the elements of a scoreboard.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ScoreWord {
    pub score: *mut Scoreboard,
    pub offset: usize,
}

pub const INLINE_ADD_U64: c_int = 0;
pub const INLINE_STORE_U64: c_int = 1;
pub const COND_GE: c_int = 7;

pub const CB_NO_REGS: c_int = 0;
pub const CB_R_REGS: c_int = 1;
pub const CB_RW_REGS_PC: c_int = 3;
pub const MEM_R: c_int = 1;
pub const MEM_W: c_int = 2;
pub const MEM_RW: c_int = 3;
pub const DISCON_INTERRUPT: c_int = 1;
pub const DISCON_EXCEPTION: c_int = 2;
pub const HWADDR_OK: c_int = 0;

pub type PlainCb = extern "C" fn(userdata: *mut c_void);
pub type VcpuCb = extern "C" fn(vcpu: c_uint, userdata: *mut c_void);
pub type TransCb = extern "C" fn(tb: *mut Tb, userdata: *mut c_void);
pub type DisconCb = extern "C" fn(vcpu: c_uint, kind: c_int, from: u64, to: u64, userdata: *mut c_void);
pub type MemCb = extern "C" fn(vcpu: c_uint, info: u32, vaddr: u64, userdata: *mut c_void);

unsafe extern "C" {
    pub fn qemu_plugin_register_vcpu_init_cb(id: PluginId, cb: VcpuCb, userdata: *mut c_void);
    pub fn qemu_plugin_register_vcpu_exit_cb(id: PluginId, cb: VcpuCb, userdata: *mut c_void);
    pub fn qemu_plugin_register_vcpu_idle_cb(id: PluginId, cb: VcpuCb, userdata: *mut c_void);
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(id: PluginId, cb: TransCb, userdata: *mut c_void);
    pub fn qemu_plugin_register_vcpu_discon_cb(
        id: PluginId,
        kinds: c_int,
        cb: DisconCb,
        userdata: *mut c_void,
    );
    pub fn qemu_plugin_register_atexit_cb(id: PluginId, cb: PlainCb, userdata: *mut c_void);

    pub fn qemu_plugin_register_vcpu_resume_cb(id: PluginId, cb: VcpuCb, userdata: *mut c_void);
    /// Removes all callbacks, flushes translated code, then calls `cb` while no vCPU runs. Only a vCPU's
    /// thread may call it.
    pub fn qemu_plugin_reset(id: PluginId, cb: PlainCb, userdata: *mut c_void);

    pub fn qemu_plugin_scoreboard_new(element_size: usize) -> *mut Scoreboard;
    pub fn qemu_plugin_scoreboard_find(score: *mut Scoreboard, vcpu: c_uint) -> *mut c_void;
    pub fn qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
        tb: *mut Tb,
        op: c_int,
        entry: ScoreWord,
        imm: u64,
    );
    pub fn qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
        insn: *mut Insn,
        op: c_int,
        entry: ScoreWord,
        imm: u64,
    );
    pub fn qemu_plugin_register_vcpu_mem_inline_per_vcpu(
        insn: *mut Insn,
        rw: c_int,
        op: c_int,
        entry: ScoreWord,
        imm: u64,
    );
    pub fn qemu_plugin_register_vcpu_tb_exec_cond_cb(
        tb: *mut Tb,
        cb: VcpuCb,
        flags: c_int,
        cond: c_int,
        entry: ScoreWord,
        imm: u64,
        userdata: *mut c_void,
    );

    pub fn qemu_plugin_register_vcpu_tb_exec_cb(tb: *mut Tb, cb: VcpuCb, flags: c_int, userdata: *mut c_void);
    pub fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut Insn,
        cb: VcpuCb,
        flags: c_int,
        userdata: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut Insn,
        cb: MemCb,
        flags: c_int,
        rw: c_int,
        userdata: *mut c_void,
    );

    pub fn qemu_plugin_tb_n_insns(tb: *const Tb) -> usize;
    pub fn qemu_plugin_tb_vaddr(tb: *const Tb) -> u64;
    pub fn qemu_plugin_tb_get_insn(tb: *const Tb, index: usize) -> *mut Insn;
    pub fn qemu_plugin_insn_data(insn: *const Insn, dest: *mut c_void, len: usize) -> usize;
    pub fn qemu_plugin_insn_vaddr(insn: *const Insn) -> u64;

    pub fn qemu_plugin_mem_size_shift(info: u32) -> c_uint;
    pub fn qemu_plugin_mem_is_store(info: u32) -> bool;
    pub fn qemu_plugin_mem_get_value(info: u32) -> MemValue;
    pub fn qemu_plugin_get_hwaddr(info: u32, vaddr: u64) -> *mut HwAddr;
    pub fn qemu_plugin_hwaddr_is_io(hwaddr: *const HwAddr) -> bool;

    pub fn qemu_plugin_set_pc(vaddr: u64) -> !;

    pub fn qemu_plugin_get_registers() -> *mut GArray;
    pub fn qemu_plugin_read_register(handle: *mut Register, buf: *mut GByteArray) -> bool;
    pub fn qemu_plugin_read_memory_vaddr(addr: u64, data: *mut GByteArray, len: usize) -> bool;
    pub fn qemu_plugin_read_memory_hwaddr(addr: u64, data: *mut GByteArray, len: usize) -> c_int;
    /// Writes through the vCPU's address space, devices included. Takes QEMU's big lock where it is not held.
    pub fn qemu_plugin_write_memory_hwaddr(addr: u64, data: *mut GByteArray) -> c_int;
    pub fn qemu_plugin_translate_vaddr(vaddr: u64, hwaddr: *mut u64) -> bool;

    pub fn qemu_plugin_write_register(handle: *mut Register, buf: *mut GByteArray) -> bool;
    pub fn qemu_plugin_write_memory_vaddr(addr: u64, data: *mut GByteArray) -> bool;

    pub fn g_byte_array_new() -> *mut GByteArray;
    pub fn g_byte_array_append(array: *mut GByteArray, data: *const u8, len: c_uint) -> *mut GByteArray;
    pub fn g_array_free(array: *mut GArray, free_segment: c_int) -> *mut c_char;
}
