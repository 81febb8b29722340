//! Clients: your own code inside QEMU, which sees the kernel run, instruction by instruction.
//!
//! A client is a type that implements the trait [`Client`], in a shared object of its own:
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
//! **Invariants**:
//! - Code outside the scope, and all user code, runs as if there were no client. While detached, all code
//!   runs so.
//! - Callbacks of one vCPU never overlap; those of different vCPUs do.
//! - Nothing here waits in a callback.

mod client;
mod control;
mod host;
mod install;

pub use client::{Block, Setup, Unwinder, When};
pub use guardrail_binfmt as binfmt;
pub use guardrail_kernel as kernel;
pub use guardrail_shadow as shadow;
pub use guardrail_trace as trace;
pub use guardrail_trace::client::{Cell, Chart, Fault, FaultObject, Module, Results, Table};
pub use host::{Access, Counter, HookId, PerVcpu, Vcpu};
pub use iced_x86;

use std::sync::OnceLock;

/// Registers, by name for [`Vcpu::register`].
pub use guardrail_plugin::registers as register;

/// The KASLR slide of the kernel; 0 before it is known.
pub fn host_slide() -> u64 {
    host::host().and_then(|host| host.slide()).unwrap_or(0)
}

/// The current moment, for [`Fault::when`].
pub fn moment() -> u64 {
    host::host().map_or(0, |host| host.modules.moment())
}

/// A client type with one instance that callbacks reach. The `clients!` macro implements it.
pub trait Instance: Sized + 'static {
    /// The cell that holds the instance.
    fn cell() -> &'static OnceLock<Self>;
}

/// Reasons why the flow of instructions is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discontinuity {
    /// An interrupt of a device, of another CPU or of the timer.
    Interrupt,
    /// An exception: a page fault, a breakpoint, a system call by interrupt.
    Exception,
}

/// Code that sees the kernel run. Every method but `new` and `results` has a default that does nothing.
///
/// One instance serves all vCPUs, which run at the same time. So its state is in [`Counter`]s, in
/// [`PerVcpu`], in atomics or behind locks.
pub trait Client: Instance + Send + Sync {
    /// The name in results and for `--client`.
    const NAME: &'static str;

    /// Makes the client, before the guest runs. An error is one sentence, and ends the run.
    fn new(setup: &mut Setup) -> Result<Self, String>;

    /// QEMU translates a block of code in the scope. The client requests here what happens when the
    /// block runs. QEMU may translate a block again, and then calls this again with the block's current
    /// bytes.
    fn block(&'static self, block: &mut Block<Self>) {
        let _ = block;
    }

    /// An instruction or block that was registered with [`Block::call`] is about to run.
    fn executed(&'static self, vcpu: &mut Vcpu, data: u64) {
        let _ = (vcpu, data);
    }

    /// An instruction that was registered with [`Block::accesses`] has accessed memory.
    fn accessed(&'static self, vcpu: &mut Vcpu, access: Access, data: u64) {
        let _ = (vcpu, access, data);
    }

    /// The first instruction of a function that was registered with [`Setup::hook`] is about to run.
    fn entered(&'static self, vcpu: &mut Vcpu, hook: HookId) {
        let _ = (vcpu, hook);
    }

    /// A function that was registered with [`Setup::hook`] is about to return. `args` are those of its
    /// entry.
    fn left(&'static self, vcpu: &mut Vcpu, hook: HookId, args: [u64; 6], result: u64) {
        let _ = (vcpu, hook, args, result);
    }

    /// The vCPU stops at `from` and continues at `to`. Called for every interrupt and exception, also of
    /// user code, if the client asked for it ([`Setup::discontinuities`]). `from` is the instruction
    /// that has not run, or that faulted.
    fn discontinuity(&'static self, vcpu: &mut Vcpu, kind: Discontinuity, from: u64, to: u64) {
        let _ = (vcpu, kind, from, to);
    }

    /// The vCPU switches from one task to another, given by their `task_struct`. Called if the client
    /// asked for it ([`Setup::threads`]).
    fn switched(&'static self, vcpu: &mut Vcpu, from: u64, to: u64) {
        let _ = (vcpu, from, to);
    }

    /// The kernel has laid out and relocated a module. None of its code has run, unless the module was
    /// loaded before the client was attached.
    fn loaded(&'static self, module: &Module) {
        let _ = module;
    }

    /// The kernel is about to free a module.
    fn unloaded(&'static self, module: &Module) {
        let _ = module;
    }

    /// The client is attached. If `booted`, the system runs already, and all vCPUs stand still
    /// meanwhile. Otherwise the kernel is at its first instruction, before its first allocation.
    fn attached(&'static self, vcpu: &mut Vcpu, booted: bool) {
        let _ = (vcpu, booted);
    }

    /// The client is detached: it sees nothing until it is attached again. All vCPUs stand still.
    fn detached(&'static self) {}

    /// Adds the results so far. Called at any time while vCPUs run, and at the end.
    fn results(&'static self, results: &mut Results);

    /// QEMU ends; this is the last call.
    fn end(&'static self) {}
}

/// Makes a plugin of one or more clients: it defines the two symbols that QEMU looks up.
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

        /// Installs the plugin. QEMU calls this once, before the guest runs.
        ///
        /// # Safety
        /// Only QEMU may call this: `info` points to its description of itself, `argv` to `argc`
        /// strings.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn qemu_plugin_install(
            id: u64,
            info: *const $crate::internal::Info,
            argc: ::std::ffi::c_int,
            argv: *const *const ::std::ffi::c_char,
        ) -> ::std::ffi::c_int {
            // SAFETY: QEMU passes valid arguments.
            unsafe {
                $crate::internal::install(id, info, argc, argv, &[$($crate::internal::Kind::of::<$client>()),+])
            }
        }
    };
}

/// For the macro `clients!` only.
pub mod internal {
    pub use crate::client::Kind;
    pub use crate::install::install;
    pub use guardrail_plugin::ffi::{API_VERSION, Info};
}
