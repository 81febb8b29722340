//! A QEMU TCG plugin that writes the log of a driver's execution.
//!
//! **Knows**:
//! - QEMU's plugin API (version 7);
//! - x86-64 instruction forms for control flow, locks, ports and string instructions;
//! - its [`TracerConfig`](guardrail_trace::config::TracerConfig).
//!
//! **Must not know**: names or meaning of functions, checkers, findings. It decides nothing.
//!
//! **Invariants**:
//! - No event is lost silently.
//! - The guest waits only where a ring is full.
//! - Nothing waits in a discontinuity callback, or with a segment of its own thread open.
//!
//! [`trans`] decides what is instrumented, when QEMU translates a block. It finds the instructions in
//! [`code`], and registers [`callbacks`], which then run and use the [`state`].

mod callbacks;
mod code;
mod install;
mod state;
mod trans;
