//! The tracer's state, which callbacks use while the guest runs.
//!
//! **Must not know**: callbacks, and what instrumented code does.
//!
//! **Invariants**: only callbacks on a vCPU's own thread use that vCPU's state. A thread that takes the
//! mutex of the control ring has no open segment.

mod block;
mod coherent;
mod control;
mod gate;
mod holds;
mod posted;
mod stacks;
mod tracer;
mod vcpu;

pub use block::{Block, HoldSite, Leave, MemFlags, MemSite, Port, Resumes};
pub use control::LoadedModule;
pub use gate::Gate;
pub use holds::{Arrival, Thread, Verdict};
pub use posted::{Arrived, Posted, Write};
pub use tracer::{Tracer, entered, entered_with, global, install, tracer};
pub use vcpu::{
    ARGS, CR2, GS_BASE, INTERRUPT_FLAG, PerCpuAddresses, RAX, RBP, RCX, RDI, RDX, RFLAGS, RSI, RSP, Vcpu,
    word,
};
