//! What the sections of code of a guarded module hold.

/// What a section of code holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The module's own functions.
    Own,
    /// Thunks that ask the runtime.
    Ask,
    /// Thunks for calls to the kernel.
    Call,
    /// Thunks for calls of the module.
    Entry,
    /// What the kernel calls in place of init and exit.
    Life,
}

/// Sections of code that guarding adds, with what they hold.
const MODES: [(&str, Mode); 6] = [
    (".text.guardrail", Mode::Ask),
    (".text.guardrail.events", Mode::Ask),
    (".text.guardrail.calls", Mode::Call),
    (".text.guardrail.entries", Mode::Entry),
    (".init.text.guardrail", Mode::Entry),
    (".text.guardrail.life", Mode::Life),
];

/// What a section of code holds, by its name.
pub fn mode(name: &str) -> Mode {
    MODES.iter().find(|mode| mode.0 == name).map_or(Mode::Own, |mode| mode.1)
}

/// What a function calls the runtime for, and keeps all registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Whether so many bytes at the address in a register may be written.
    Write(u8, i64),
    /// Whether RCX elements of 2 to this power bytes from RDI on may be written.
    Range(u8),
    /// Whether so many bytes of the per-CPU variable at the address in a register may be written.
    PerCpu(u8, i64),
    /// Whether the address in a register may be called.
    Call(u8),
    /// Something that proves nothing.
    Other,
}
