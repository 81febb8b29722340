//! A QEMU TCG plugin that writes the log of a driver's execution.
//!
//! **Knows**: QEMU's plugin API (version 7), x86-64 instruction forms as far as control flow, locks, ports and
//! string instructions go, and the [`TracerConfig`](guardrail_trace::config::TracerConfig) it is given.
//!
//! **Must not know**: names or meaning of functions, checkers, findings. It decides nothing.
//!
//! **Invariants**: no event is lost silently; the guest waits only where a ring is full; nothing waits in a
//! discontinuity callback, or with a segment of its own thread open.
//!
//! What is instrumented is decided when QEMU translates a block ([`trans`]); what the instrumentation does
//! when it runs stands in [`exec`].

mod code;
mod control;
mod exec;
mod gate;
mod holds;
mod install;
mod kernel_entries;
mod lists;
mod modules;
mod tracer;
mod trans;
mod vcpu;
