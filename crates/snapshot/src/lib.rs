//! Prepares a guest's state at one moment for a debugger.
//!
//! QEMU saves the guest's physical memory and the registers of its vCPUs as an ELF core ([`Dump`]). This
//! crate adds the addresses that the guest's kernel uses. It walks the kernel's page tables ([`paging`])
//! and rewrites the headers of the file ([`map`]). Then it finds the KASLR slide and the modules in
//! memory ([`Guest`]). A stock kernel has no symbol file, so the crate writes one from the tables in the
//! kernel's image ([`symbols`]).
//!
//! Knows: ELF cores, the page tables of x86-64, the kernel's module structures, what gdb needs.
//!
//! Must not know: how a guest is run or stopped, what a finding is, how gdb is started.
//!
//! **Architecture Invariant:** a saved guest is not trusted. Whatever its memory holds, nothing here
//! panics, loops without end or uses memory without bounds. No text of the guest gets into a gdb script.

mod dump;
mod error;
mod guest;
mod map;
pub mod paging;
pub mod script;
pub mod symbols;
#[cfg(test)]
mod tests;

pub use dump::{Cpu, Dump};
pub use error::{Error, Result};
pub use guest::{Guest, Loaded, module_symbols, placed};
pub use map::{map, thin};
