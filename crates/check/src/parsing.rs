//! The process that parses what others wrote, for commands that cannot confine themselves (`guardrail internal-parser`).

use crate::confirm::points::Points;
use crate::run::tracer::Configure;
use crate::sandbox;
use guardrail_host::HostError;
use guardrail_vm::parser::{Known, serve as answer};

/// Gives up all rights, and parses what is asked until those that ask have ended. `more` are jobs of other engines.
pub fn serve(more: Vec<Known>) -> Result<(), HostError> {
    let own = vec![Known::of::<Configure>(), Known::of::<Points>()];
    let jobs = [guardrail_vm::jobs(), own, more].concat();
    answer(&jobs, sandbox::enter_parser).map_err(HostError::io("answer", "the process that asks"))
}
