//! The arrival of a vCPU at an instruction that can be held, and the verdict on it.

use guardrail_trace::meet::{Meet, MeetSide};
use std::time::Instant;

/// The roles of an instruction: number of the pair, and side (0 or 1).
pub type Roles = Vec<(u32, u8)>;

/// What the vCPU does at the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Run the instruction.
    Go,
    /// Begin the instruction again.
    Back,
}

impl From<Verdict> for (Verdict, Option<Side>) {
    fn from(verdict: Verdict) -> Self {
        (verdict, None)
    }
}

/// The verdict, the side that the vCPU records when it has run its instruction, and a record for the
/// log.
pub type Step = ((Verdict, Option<Side>), Option<Meet>);

/// A side of the current meeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side that was held.
    Held,
    /// The side that arrived during the hold.
    Other,
}

/// The side to record when the instruction has run, and whether only its store counts.
pub type Awaiting = Option<(Side, bool)>;

/// The arrival of a vCPU at an instruction that can be held.
pub struct Arrival<'a> {
    /// The access. The hold fills in its role.
    pub side: MeetSide,
    /// Roles of the instruction: pair and side.
    pub roles: &'a [(u32, u8)],
    /// True where the instruction was picked at random.
    pub sampled: bool,
    /// True where the instruction locks the bus. Two such instructions do not race.
    pub locked: bool,
    /// True where the vCPU can be held here.
    pub holdable: bool,
    /// Host time of the arrival.
    pub now: Instant,
}
