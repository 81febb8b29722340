//! What transactions of drivers' entry points rely on: code that restores a device.
//!
//! **Knows**: which drivers have power-management code that brings a device back to a known state.
//!
//! **Must not know**: how drivers are rewritten, how guests run, the command line.
//!
//! **Invariant**: what is said of a driver follows from its binary and from the kernel's types, not from its name.

mod power;
mod survey;

pub use power::{Bus, Driver, Power, drivers};
pub use survey::{Row, Survey, SurveyPlan, survey};
