//! A guest as it was at one moment, made ready for a debugger.
//!
//! QEMU saves the guest's physical memory and the registers of its vCPUs as an ELF core ([`Dump`]). Here it gets the addresses that the
//! guest's kernel uses: its page tables are walked ([`paging`]), and the headers of the file rewritten ([`map`]). What is in
//! it is then found by itself: how far the kernel was moved, and where its modules are ([`Guest`]). A stock kernel comes without
//! a symbol file, so one is written from the tables in its image ([`symbols`]).
//!
//! Knows: ELF cores, the page tables of x86-64, how the kernel keeps its modules, what gdb wants.
//!
//! Must not know: how a guest is run or stopped, what a finding is, how gdb is started.
//!
//! **Architecture Invariant:** a saved guest is not trusted. Whatever its memory holds, nothing here panics, loops without
//! end or uses memory without bounds, and no text of the guest's gets into a gdb script.

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
