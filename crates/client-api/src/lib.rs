//! Clients: code of your own that runs inside QEMU and sees the kernel run, instruction by instruction.
//!
//! A client is a type with the trait [`Client`], in a shared object of its own:
//!
//! ```ignore
//! use guardrail_client_api::{Block, Client, Counter, Results, Setup, clients};
//!
//! struct Blocks { executed: Counter }
//!
//! impl Client for Blocks {
//!     const NAME: &'static str = "executed-blocks";
//!     fn new(setup: &mut Setup) -> Result<Self, String> {
//!         Ok(Blocks { executed: setup.counter() })
//!     }
//!     fn block(&'static self, block: &mut Block<Self>) {
//!         block.add(&self.executed, 1);
//!     }
//!     fn results(&'static self, results: &mut Results) {
//!         results.notes.push(format!("{} blocks", self.executed.total()));
//!     }
//! }
//!
//! clients!(Blocks);
//! ```
//!
//! **Knows**: how QEMU translates and calls back, scopes, attaching and detaching, modules, calls of functions.
//!
//! **Must not know**: what a client is for.
//!
//! **Invariants**: code outside the scope, and user code always, runs as if no client were there; detached, all code does.
//! Callbacks of one vCPU never overlap; those of different vCPUs do. Nothing here waits for anything in a callback.

mod block;
mod callbacks;
mod control;
mod counter;
mod hooks;
mod host;
mod install;
mod modules;
mod scope;
mod setup;
mod unwind;
mod vcpu;

pub use block::{Block, When};
pub use counter::Counter;
pub use guardrail_binfmt as binfmt;
pub use guardrail_kernel as kernel;
pub use guardrail_shadow as shadow;
pub use guardrail_trace as trace;
pub use guardrail_trace::client::{Cell, Chart, Fault, FaultObject, Module, Results, Table};
pub use hooks::HookId;
pub use iced_x86;
pub use setup::Setup;
pub use unwind::Unwinder;
pub use vcpu::{Access, PerVcpu, Vcpu};

use std::sync::OnceLock;

/// Registers, by name for [`Vcpu::register`].
pub use guardrail_plugin::registers as register;

/// What KASLR added to the kernel's link-time addresses; 0 before it is known.
pub fn host_slide() -> u64 {
    host::host().and_then(|host| host.slide()).unwrap_or(0)
}

/// Now, for [`Fault::when`].
pub fn moment() -> u64 {
    host::host().map_or(0, |host| host.modules.moment())
}

/// What the `clients!` macro adds to a client: the one instance that callbacks reach.
pub trait Instance: Sized + 'static {
    /// Where it is kept.
    fn cell() -> &'static OnceLock<Self>;
}

/// What interrupts the flow of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discontinuity {
    /// An interrupt of a device, of another CPU or of the timer.
    Interrupt,
    /// An exception: a page fault, a breakpoint, a system call by interrupt.
    Exception,
}

/// Code that sees the kernel run. Every method but `new` and `results` has a default that does nothing.
///
/// One instance serves all vCPUs, which run at the same time: state is in [`Counter`]s, in [`PerVcpu`], in atomics or behind locks.
pub trait Client: Instance + Send + Sync {
    /// The name that results carry, and that `--client` chooses it by.
    const NAME: &'static str;

    /// Makes the client, before the guest runs. An error is one sentence, and ends the run.
    fn new(setup: &mut Setup) -> Result<Self, String>;

    /// A block of code in the scope is translated: say what is to happen when it runs. Called again whenever QEMU translates
    /// it anew, with the bytes that it has then.
    fn block(&'static self, block: &mut Block<Self>) {
        let _ = block;
    }

    /// An instruction or block that asked for it ([`Block::call`]) is about to run.
    fn executed(&'static self, vcpu: &mut Vcpu, data: u64) {
        let _ = (vcpu, data);
    }

    /// An instruction that asked for it ([`Block::accesses`]) has accessed memory.
    fn accessed(&'static self, vcpu: &mut Vcpu, access: Access, data: u64) {
        let _ = (vcpu, access, data);
    }

    /// The first instruction of a function that was asked for ([`Setup::hook`]) is about to run.
    fn entered(&'static self, vcpu: &mut Vcpu, hook: HookId) {
        let _ = (vcpu, hook);
    }

    /// A function that was asked for ([`Setup::hook`]) is about to return. `args` are those of its entry.
    fn left(&'static self, vcpu: &mut Vcpu, hook: HookId, args: [u64; 6], result: u64) {
        let _ = (vcpu, hook, args, result);
    }

    /// The vCPU stops at `from` and goes on at `to`. Told for everything that interrupts, user code included, if asked for
    /// ([`Setup::discontinuities`]). `from` is the instruction that had not run, or that faulted.
    fn discontinuity(&'static self, vcpu: &mut Vcpu, kind: Discontinuity, from: u64, to: u64) {
        let _ = (vcpu, kind, from, to);
    }

    /// The vCPU changes from one task to another, given by their `task_struct`, if asked for ([`Setup::threads`]).
    fn switched(&'static self, vcpu: &mut Vcpu, from: u64, to: u64) {
        let _ = (vcpu, from, to);
    }

    /// A module has been laid out and relocated; nothing of it has run, unless it was there when the client was attached.
    fn loaded(&'static self, module: &Module) {
        let _ = module;
    }

    /// A module is about to be freed.
    fn unloaded(&'static self, module: &Module) {
        let _ = module;
    }

    /// The client is attached. `booted`: to a system that runs already; all vCPUs stand still meanwhile. Else from its first
    /// instruction, before anything of the kernel has been allocated.
    fn attached(&'static self, vcpu: &mut Vcpu, booted: bool) {
        let _ = (vcpu, booted);
    }

    /// The client is detached: from here on it sees nothing until it is attached again. All vCPUs stand still.
    fn detached(&'static self) {}

    /// What there is to say until now; at any time, while vCPUs run, and at the end.
    fn results(&'static self, results: &mut Results);

    /// QEMU ends; the last call.
    fn end(&'static self) {}
}

/// Makes a plugin of one or more clients: the two symbols that QEMU looks for.
#[macro_export]
macro_rules! clients {
    ($($client:ty),+ $(,)?) => {
        $(
            impl $crate::Instance for $client {
                fn cell() -> &'static ::std::sync::OnceLock<Self> {
                    static CELL: ::std::sync::OnceLock<$client> = ::std::sync::OnceLock::new();
                    &CELL
                }
            }
        )+

        /// The version of the plugin API; QEMU reads it.
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals)]
        pub static qemu_plugin_version: ::std::ffi::c_int = $crate::internal::API_VERSION;

        /// QEMU calls this once, before the guest runs.
        ///
        /// # Safety
        /// Only for QEMU: `info` points to its description of itself, `argv` to `argc` strings.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn qemu_plugin_install(
            id: u64,
            info: *const $crate::internal::Info,
            argc: ::std::ffi::c_int,
            argv: *const *const ::std::ffi::c_char,
        ) -> ::std::ffi::c_int {
            // SAFETY: passed on from QEMU.
            unsafe {
                $crate::internal::install(id, info, argc, argv, &[$($crate::internal::Kind::of::<$client>()),+])
            }
        }
    };
}

/// For the macro `clients!` alone.
pub mod internal {
    pub use crate::callbacks::Kind;
    pub use crate::install::install;
    pub use guardrail_plugin::ffi::{API_VERSION, Info};
}
