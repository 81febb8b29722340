//! Verifies drivers: the C code of an active driver against the message protocols that it follows, and ordinary drivers
//! against a client that plays the kernel.
//!
//! **Knows**: LLVM IR as text, the rules of protocols, and how to search all states of a driver and its protocols.
//!
//! **Must not know**: how a guest runs, how a report is printed.
//!
//! **Invariant**: "proved" is said only after all states were seen. A limit gives "not decided". What is not
//! understood is an unknown value with an assumption, or a refusal; nothing is left out silently.
//!
//! clang is a program that is called, and its text is read by a parser of this crate. LLVM is not linked in: it is
//! large, its interface changes with each version, and a bounded parser cannot crash on a damaged file.
//!
//! Entry point: [`run::run`]. The stages: [`front`] compiles, [`ir`] reads, [`program`] builds the control skeleton,
//! [`engine`] searches, [`verdict`] refines, [`findings`] and [`sequence`] tell. [`client`] does the same for ordinary
//! drivers.

pub mod by_rule;
pub mod certificate;
pub mod client;
pub mod code;
pub mod engine;
pub mod findings;
pub mod front;
pub mod ir;
pub mod knowledge;
pub mod messages;
pub mod program;
pub mod promela;
pub mod recheck;
pub mod run;
pub mod sequence;
pub mod stock;
pub mod verdict;
pub mod verified;
