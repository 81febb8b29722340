//! What runs when instrumented code runs: callbacks that write the log, hold accesses, or learn of modules.
//!
//! **Must not know**: which code is instrumented, and when QEMU translates it.
//!
//! **Invariants**: nothing waits with a segment of its own thread open.

pub mod accesses;
pub mod blocks;
pub mod gate;
pub mod holds;
pub mod hooks;
pub mod lists;
pub mod modules;
pub mod stacks;
