//! Reports: findings, printed for people and for programs.
//!
//! Knows: the format of a report and its run (schema `guardrail/1`), and how to print them. The formats
//! are text in the style of KASAN ([`text`]), JSON ([`json`]) and SARIF 2.1.0 ([`sarif`]).
//!
//! Must not know: how a checker finds a fault, what a guest or a kernel is, or where output is written.
//!
//! **Architecture Invariant:** the same report gives the same bytes. Only the time fields of [`Run`] may
//! differ between a run and its replay.
//!
//! **Architecture Invariant:** text from a guest is printed without control characters.

pub mod columns;
pub mod json;
pub mod model;
pub mod sarif;
pub mod survey;
pub mod text;

pub use model::{Gate, GateOutside, GateOutsideSpace, GateSpace, Report, Run, SCHEMA, Step};
