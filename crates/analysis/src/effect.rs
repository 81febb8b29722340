//! What a kernel function does: the vocabulary of call summaries, which the kernel crate owns.

pub use guardrail_kernel::effect::*;
