//! The contract between guarded modules and the runtime, `guardrail.ko`: its numbers, layouts and names, and the actions at a border.
//!
//! **Knows**: what `runtime/include/guardrail_abi.h` declares. `GUARDRAIL_X` is [`X`](ABI) here, the offset of a member of `struct
//! guardrail_x` is in [`layout`]`::x`, and the name of a function or variable is in [`symbol`].
//!
//! **Must not know**: annotations, kernels, how code is rewritten.
//!
//! **Invariants**: `generated.rs` is what `tests/header.rs` makes of the header, and a C compiler gives every number the same value. No
//! other crate repeats one of these numbers or names (`tests/no_literals.rs`).

mod action;
#[rustfmt::skip]
mod generated;

pub use action::{Action, Field, Step, Value, When};
pub use generated::*;

/// What the names of the runtime's functions and variables begin with.
pub const PREFIX: &str = "guardrail_";
/// The runtime's module.
pub const RUNTIME: &str = "guardrail";

/// The field of `.modinfo` that marks a rewritten module; it holds the names of the passes.
pub const FIELD: &str = "guardrail";
/// The folder below `/lib/firmware` in which the runtime looks for what was certified.
pub const FIRMWARE: &str = "guardrail";

/// The file of that folder with the SHA-256 of each module of this name that was certified, one a line.
pub fn certified(module: &str) -> String {
    format!("{module}.sha256")
}

/// The tag of a slot of which a domain has this right (`GUARDRAIL_TAG`).
pub const fn tag(domain: u8, right: u8) -> u8 {
    domain << 4 | right
}
