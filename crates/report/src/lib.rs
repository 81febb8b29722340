//! Reports: what was found, for people and for programs.
//!
//! Knows: the shape of a report and its run (schema `guardrail/1`), and how to print them as text in the manner of
//! KASAN ([`text`]), as JSON ([`json`]) and as SARIF 2.1.0 ([`sarif`]).
//!
//! Must not know: how a finding came about, what a guest or a kernel is, or where output goes.
//!
//! **Architecture Invariant:** the same report gives the same bytes; whatever differs between a run and its
//! recording stands in the time fields of [`Run`] alone.
//!
//! **Architecture Invariant:** what a guest said is printed without control characters.

pub mod columns;
pub mod json;
pub mod model;
pub mod sarif;
pub mod survey;
pub mod text;

pub use model::{Gate, GateOutside, GateOutsideSpace, GateSpace, Report, Run, SCHEMA, Step};
