//! Reports: findings, printed for people and for programs.
//!
//! Knows: the format of a report and its run (schema `guardrail/1`), and how to print them. For people, the formats are text in the
//! style of KASAN ([`text`]), an HTML page ([`html`]), and a mail about one finding ([`mail`]). For programs, they are JSON
//! ([`json`]), SARIF 2.1.0 ([`sarif`]), JUnit XML ([`junit`]), KTAP ([`ktap`]), and Code Quality of GitLab ([`code_quality`]). It
//! also reads reports, baselines and suppressions, and marks findings that they know.
//!
//! Must not know: how a checker finds a fault, what a guest or a kernel is, or where output is written.
//!
//! **Architecture Invariant:** the same report gives the same bytes. Only the time fields of [`Run`] may
//! differ between a run and its replay.
//!
//! **Architecture Invariant:** any bytes as a report, a baseline or a suppression file give a result or one
//! sentence, never a panic.
//!
//! **Architecture Invariant:** text from a guest is printed without control characters.

pub mod baseline;
mod cases;
pub mod causes;
pub mod code_quality;
pub mod columns;
pub mod compare;
pub mod fail_on;
pub mod html;
pub mod json;
pub mod junit;
pub mod ktap;
pub mod list;
pub mod mail;
pub mod marks;
pub mod model;
pub mod sarif;
pub mod suppress;
pub mod survey;
pub mod text;
pub mod timeline;

pub use model::{
    Gate, GateOutside, GateOutsideSpace, GateSpace, ModuleIdentity, Report, Run, RunEnd, SCHEMA, Step,
};
