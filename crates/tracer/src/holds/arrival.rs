//! A vCPU comes to an instruction that can be held, and is told what to do.

use guardrail_trace::meet::{Meet, MeetSide};
use std::time::Instant;

/// The roles of an instruction: pair and side.
pub type Roles = Vec<(u32, u8)>;

/// What the vCPU at an instruction is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Run it.
    Go,
    /// Begin it again.
    Back,
}

impl From<Verdict> for (Verdict, Option<Who>) {
    fn from(verdict: Verdict) -> Self {
        (verdict, None)
    }
}

/// What the vCPU is to do, as whom it is to tell when it has run its instruction, and a record for the log.
pub type Step = ((Verdict, Option<Who>), Option<Meet>);

/// A side of the meeting at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The one that was held.
    Held,
    /// The one that came.
    Other,
}

/// Who comes to an instruction that can be held.
pub struct Arrival<'a> {
    /// The access; its role is filled in here.
    pub side: MeetSide,
    /// The roles of the instruction.
    pub roles: &'a [(u32, u8)],
    /// The instruction was picked by chance.
    pub sampled: bool,
    /// The instruction locks the bus; two of those do not race.
    pub locked: bool,
    /// The vCPU can be held here.
    pub holdable: bool,
    /// The time.
    pub now: Instant,
}
