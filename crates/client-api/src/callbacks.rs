//! Turns QEMU's callbacks into calls of clients. Frequent callbacks are generic over the client's type,
//! so they need no lookup.

use crate::block::{Block, Shared};
use crate::host::{Host, host};
use crate::setup::Setup;
use crate::vcpu::{Access, Vcpu};
use crate::{Client, Discontinuity, HookId};
use guardrail_plugin::ffi::{self, MemCb};
use guardrail_trace::client::{Module, Results};
use std::ffi::{c_uint, c_void};

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

impl<C: Client> Erased for C {
    fn block(&'static self, shared: &Shared, host: &Host) {
        Client::block(self, &mut Block::new(shared, host));
    }

    fn entered(&'static self, vcpu: &mut Vcpu, hook: HookId) {
        Client::entered(self, vcpu, hook);
    }

    fn left(&'static self, vcpu: &mut Vcpu, hook: HookId, args: [u64; 6], result: u64) {
        Client::left(self, vcpu, hook, args, result);
    }

    fn discontinuity(&'static self, vcpu: &mut Vcpu, kind: Discontinuity, from: u64, to: u64) {
        Client::discontinuity(self, vcpu, kind, from, to);
    }

    fn switched(&'static self, vcpu: &mut Vcpu, from: u64, to: u64) {
        Client::switched(self, vcpu, from, to);
    }

    fn loaded(&'static self, module: &Module) {
        Client::loaded(self, module);
    }

    fn unloaded(&'static self, module: &Module) {
        Client::unloaded(self, module);
    }

    fn attached(&'static self, vcpu: &mut Vcpu, booted: bool) {
        Client::attached(self, vcpu, booted);
    }

    fn detached(&'static self) {
        Client::detached(self);
    }

    fn results(&'static self) -> Results {
        let mut results = Results { client: C::NAME.to_owned(), ..Results::default() };
        Client::results(self, &mut results);
        results
    }

    fn end(&'static self) {
        Client::end(self);
    }
}

/// A client type that a plugin offers.
pub struct Kind {
    pub(crate) name: &'static str,
    pub(crate) make: fn(&mut Setup) -> Result<&'static dyn Erased, String>,
}

impl Kind {
    /// Makes the kind of a client type.
    pub const fn of<C: Client>() -> Kind {
        Kind { name: C::NAME, make: make::<C> }
    }
}

fn make<C: Client>(setup: &mut Setup) -> Result<&'static dyn Erased, String> {
    let client = C::new(setup)?;
    if C::cell().set(client).is_err() {
        return Err(format!("the client {} is named twice", C::NAME));
    }
    Ok(C::cell().get().ok_or("a client that was just made is gone")?)
}

/// QEMU's callback before a block or an instruction of this client.
#[unsafe(naked)]
pub(crate) extern "C" fn executed<C: Client>(_: c_uint, _: *mut c_void) {
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

/// Returns the callback after accesses of this client's instructions.
pub(crate) fn mem_callback<C: Client>() -> MemCb {
    accessed::<C>
}

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
