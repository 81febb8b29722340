//! The times at which a side of a pair is near: the kernel has called the driver's function on the way to it.
//!
//! A side that runs all the time is then held once for each kind of context in which it runs. The other side
//! may wait for one of them: a function that disables NAPI waits for a poll that is held.

use super::Arrival;
use std::time::{Duration, Instant};

/// How long a side counts as near.
const NEAR: Duration = Duration::from_secs(4);
/// How often the other side is held at most while a side is near.
const HOLDS: u8 = 2;
/// A side that comes near more often needs no holds of its own.
const RARE: u32 = 64;
/// Parts of `preempt_count`: a softirq is served; a hardirq or an NMI.
const SOFTIRQ: u32 = 0x100;
const HARDIRQ: u32 = 0xff_0000;

/// How often and when the sides of a pair came near, and in which contexts they run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Approaches {
    came: [u32; 2],
    last: [Option<Instant>; 2],
    /// Holds of the other side that are left for the last approach of a side.
    left: [u8; 2],
    /// The kinds of contexts in which a side was seen, one bit each.
    seen: [u8; 2],
    /// Holds of a side while the other was near, by the kind of its context.
    holds: [[u32; 3]; 2],
}

/// The kind of a context: process, softirq or hardirq.
fn kind(preempt_count: u32) -> usize {
    match preempt_count {
        count if count & HARDIRQ != 0 => 2,
        count if count & SOFTIRQ != 0 => 1,
        _ => 0,
    }
}

impl Approaches {
    /// A side comes near.
    pub fn come(&mut self, role: u8, now: Instant) {
        let role = usize::from(role);
        self.came[role] = self.came[role].saturating_add(1);
        (self.last[role], self.left[role]) = (Some(now), HOLDS);
    }

    /// A side runs in a context.
    pub fn meet(&mut self, role: u8, preempt_count: u32) {
        self.seen[usize::from(role)] |= 1 << kind(preempt_count);
    }

    /// Whether a side that is seen to come near does so now and then only.
    pub fn are_rare(&self, role: u8) -> bool {
        self.came[usize::from(role)] <= RARE
    }

    /// Whether a side is worth a hold because the other is near. The kinds of contexts take turns.
    pub fn invite(&self, role: u8, arrival: &Arrival<'_>, now: Instant) -> bool {
        let (role, other) = (usize::from(role), usize::from(1 - role));
        let near = self.last[other].is_some_and(|last| now.saturating_duration_since(last) < NEAR);
        let seen = (0..3).filter(|kind| self.seen[role] & 1 << kind != 0);
        let fewest = seen.map(|kind| self.holds[role][kind]).min().unwrap_or(0);
        let turn = self.holds[role][kind(arrival.side.preempt_count)] <= fewest;
        near && turn && self.left[other] > 0 && self.are_rare(1 - role as u8)
    }

    /// A side begins to be held. Returns whether that is because the other is near.
    pub fn take(&mut self, role: u8, arrival: &Arrival<'_>, now: Instant) -> bool {
        let invited = self.invite(role, arrival, now);
        if invited {
            self.left[usize::from(1 - role)] -= 1;
            self.holds[usize::from(role)][kind(arrival.side.preempt_count)] += 1;
        }
        invited
    }
}
