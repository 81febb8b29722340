//! A block of guest code, while QEMU translates it.

use crate::host::{Access, Counter, Host, Shared, host};
use crate::{Client, Instance};
use guardrail_plugin::block::View;
use guardrail_plugin::ffi::{self, CB_NO_REGS, CB_R_REGS, CB_RW_REGS_PC};
use iced_x86::{Decoder, DecoderOptions, Instruction};
use std::ffi::{c_int, c_uint, c_void};
use std::marker::PhantomData;

/// Accesses to report, by direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Accesses that read.
    Reads,
    /// Accesses that write.
    Writes,
    /// All accesses, reads and writes.
    Both,
}

/// A block during its translation: a run of instructions that is entered at the first one. Each request
/// made here takes effect whenever the translation runs.
pub struct Block<'a, C: ?Sized> {
    view: View,
    shared: &'a Shared,
    host: &'a Host,
    client: PhantomData<fn() -> &'a C>,
}

impl<'a, C: Client + Instance> Block<'a, C> {
    pub(crate) fn new(shared: &'a Shared, host: &'a Host) -> Block<'a, C> {
        Block { view: shared.view, shared, host, client: PhantomData }
    }

    /// Whether the block belongs to the scope. Always true, except for clients that asked for
    /// [everything](crate::Setup::everything).
    pub fn in_scope(&self) -> bool {
        self.shared.within
    }

    /// Guest virtual address of its first instruction.
    pub fn address(&self) -> u64 {
        self.view.address()
    }

    /// The KASLR slide of the kernel; `None` before it is known.
    pub fn slide(&self) -> Option<u64> {
        self.host.slide()
    }

    /// Number of its instructions, at least one.
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// Always false: a block has at least one instruction.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Its machine code.
    pub fn bytes(&self) -> &[u8] {
        self.shared.bytes()
    }

    /// Its decoded instructions; each has its address (`ip`).
    pub fn insns(&self) -> &[Instruction] {
        self.shared.insns.get_or_init(|| {
            let (bytes, at) = (self.shared.bytes(), self.address());
            let insns = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
            insns.into_iter().take(self.view.len()).collect()
        })
    }

    /// Guest virtual address of the instruction with this index, which is below [`len`](Self::len).
    pub fn insn_address(&self, index: usize) -> u64 {
        self.view.insn(index).address()
    }

    /// A dense number for these bytes at this address. A later translation of them gets the same number.
    pub fn id(&self) -> u32 {
        *self.shared.id.get_or_init(|| self.host.blocks.number(self.address(), self.shared.bytes()))
    }

    /// Whether its last instruction returns from a function, by itself or by a jump to the kernel's
    /// return thunk.
    pub fn returns(&self) -> bool {
        let slide = self.slide().unwrap_or(0);
        self.insns().last().is_some_and(|last| self.host.hooks.is_return(last, slide))
    }

    /// Makes a counter while the guest runs.
    pub fn counter(&self) -> Counter {
        self.host.counters.make()
    }

    /// Adds to its vCPU's counter at each start of the block. Costs no call.
    pub fn add(&mut self, counter: &Counter, value: u64) {
        self.at_start(ffi::INLINE_ADD_U64, counter, value);
    }

    /// Sets its vCPU's counter at each start of the block. Costs no call.
    pub fn set(&mut self, counter: &Counter, value: u64) {
        self.at_start(ffi::INLINE_STORE_U64, counter, value);
    }

    fn at_start(&self, operation: c_int, counter: &Counter, value: u64) {
        let (block, word) = (self.view.tb(), counter.word());
        // SAFETY: the handle is valid during the translation callback, the counter's scoreboard as long
        // as QEMU.
        unsafe { ffi::qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(block, operation, word, value) }
    }

    /// Adds to its vCPU's counter before each run of this instruction.
    pub fn add_at(&mut self, index: usize, counter: &Counter, value: u64) {
        self.before(index, ffi::INLINE_ADD_U64, counter, value);
    }

    /// Sets its vCPU's counter before each run of this instruction.
    pub fn set_at(&mut self, index: usize, counter: &Counter, value: u64) {
        self.before(index, ffi::INLINE_STORE_U64, counter, value);
    }

    fn before(&self, index: usize, operation: c_int, counter: &Counter, value: u64) {
        let (insn, word) = (self.view.insn(index).handle(), counter.word());
        // SAFETY: as above.
        unsafe { ffi::qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn, operation, word, value) }
    }

    /// Adds to its vCPU's counter at each memory access of this instruction.
    pub fn add_at_access(&mut self, index: usize, when: When, counter: &Counter, value: u64) {
        // SAFETY: as above.
        unsafe {
            ffi::qemu_plugin_register_vcpu_mem_inline_per_vcpu(
                self.view.insn(index).handle(),
                kind(when),
                ffi::INLINE_ADD_U64,
                counter.word(),
                value,
            );
        }
    }

    /// Calls [`executed`](Client::executed) with `data` at each start of the block.
    pub fn call(&mut self, data: u64) {
        self.view.call(executed::<C>, CB_R_REGS, data as usize);
    }

    /// Calls [`executed`](Client::executed) with `data` at a start of the block if the vCPU's counter is
    /// at least `limit`.
    pub fn call_if(&mut self, counter: &Counter, limit: u64, data: u64) {
        // SAFETY: as above; the data is a number.
        unsafe {
            ffi::qemu_plugin_register_vcpu_tb_exec_cond_cb(
                self.view.tb(),
                executed::<C>,
                CB_R_REGS,
                ffi::COND_GE,
                counter.word(),
                limit,
                data as *mut c_void,
            );
        }
    }

    /// Calls [`executed`](Client::executed) with `data` before each run of this instruction, with
    /// current registers.
    pub fn call_at(&mut self, index: usize, data: u64) {
        self.view.insn(index).call(executed::<C>, CB_R_REGS, data as usize);
    }

    /// Like [`call`](Self::call), and the client may send the vCPU to another address
    /// ([`Vcpu::jump`](crate::Vcpu::jump)).
    pub fn may_jump(&mut self, data: u64) {
        self.view.call(executed::<C>, CB_RW_REGS_PC, data as usize);
    }

    /// Like [`call_at`](Self::call_at), and the client may send the vCPU to another address
    /// ([`Vcpu::jump_from_inside`](crate::Vcpu::jump_from_inside)).
    pub fn may_jump_at(&mut self, index: usize, data: u64) {
        self.view.insn(index).call(executed::<C>, CB_RW_REGS_PC, data as usize);
    }

    /// Calls [`accessed`](Client::accessed) with `data` after each access of this instruction.
    pub fn accesses(&mut self, index: usize, when: When, data: u64) {
        self.view.insn(index).accesses(accessed::<C>, CB_NO_REGS, kind(when), data as usize);
    }
}

fn kind(when: When) -> i32 {
    match when {
        When::Reads => ffi::MEM_R,
        When::Writes => ffi::MEM_W,
        When::Both => ffi::MEM_RW,
    }
}

/// QEMU's callback before a block or an instruction of this client.
#[unsafe(naked)]
extern "C" fn executed<C: Client>(_: c_uint, _: *mut c_void) {
    // The third argument is the host's rbp, where translated code keeps its vCPU's registers.
    std::arch::naked_asm!("mov rdx, rbp", "jmp {to}", to = sym executed_with::<C>)
}

extern "C" fn executed_with<C: Client>(index: c_uint, data: *mut c_void, env: *mut u64) {
    let (Some(host), Some(client)) = (host(), C::cell().get()) else { return };
    // SAFETY: the callback of this vCPU.
    let Some(vcpu) = (unsafe { host.vcpu(index) }) else { return };
    vcpu.cpu().regs.learn(env);
    client.executed(vcpu, data as u64);
    if let Some(pc) = vcpu.jump.take() {
        // SAFETY: clients set it in callbacks that were registered for it.
        unsafe { ffi::qemu_plugin_set_pc(pc) }
    }
}

/// QEMU's callback after an access of this client's instructions.
#[unsafe(naked)]
extern "C" fn accessed<C: Client>(_: c_uint, _: u32, _: u64, _: *mut c_void) {
    std::arch::naked_asm!("mov r8, rbp", "jmp {to}", to = sym accessed_with::<C>)
}

extern "C" fn accessed_with<C: Client>(
    index: c_uint,
    info: u32,
    address: u64,
    data: *mut c_void,
    env: *mut u64,
) {
    let (Some(host), Some(client)) = (host(), C::cell().get()) else { return };
    // SAFETY: the callback of this vCPU.
    let Some(vcpu) = (unsafe { host.vcpu(index) }) else { return };
    vcpu.cpu().regs.learn(env);
    client.accessed(vcpu, Access { address, info }, data as u64);
}
