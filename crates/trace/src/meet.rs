//! Meetings: records of accesses that the tracer held to see which access arrives meanwhile
//! ([`Kind::Meet`](crate::event::Kind::Meet)).

use crate::event::{Head, Kind, MEET_WORDS};

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MeetOutcome {
    /// No other side arrived in time.
    Alone = 0,
    /// The other side reached the same bytes. Both vCPUs stand before their instructions.
    Met = 1,
    /// Both sides have run after they met.
    Ran = 2,
    /// A record at the end of the run: how often each side ran in total, whether or not it was held.
    Totals = 3,
    /// The bytes changed during the hold, and the tracer saw no driver access that changed them.
    Changed = 4,
}

/// One side of a meeting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeetSide {
    /// Guest virtual address of the instruction.
    pub pc: u64,
    /// Guest virtual address in the instruction's memory operand.
    pub address: u64,
    /// Length of the access in bytes.
    pub size: u8,
    /// True for a store.
    pub store: bool,
    /// Side of the pair, 0 or 1.
    pub role: u8,
    /// Index of the vCPU.
    pub cpu: u8,
    /// `preempt_count` at the instruction.
    pub preempt_count: u32,
    /// Address of the current task.
    pub task: u64,
    /// The stack pointer, which distinguishes contexts.
    pub rsp: u64,
}

/// A record of the kind `Meet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meet {
    /// How the hold ended.
    pub outcome: MeetOutcome,
    /// Number of the instruction pair; `None` for a sampled access.
    pub pair: Option<u32>,
    /// The side that was held.
    pub held: MeetSide,
    /// The side that arrived during the hold. Its `pc` is 0 where none arrived.
    pub other: MeetSide,
    /// The bytes that both sides access (the first eight): before either ran, after the arriving side,
    /// and after the held side. For totals, the CPUs on which each side ran, one bit each.
    pub values: [Option<u64>; 3],
    /// How often the held vCPU returned to its instruction.
    pub spins: u64,
    /// Duration of the hold in nanoseconds. For totals, the duration of all holds.
    pub nanos: u64,
    /// How often the other side ran during the hold, at any address. For totals, over all tries.
    pub came: [u64; 2],
    /// How often each side has run so far, whether or not it was held.
    pub arrivals: [u64; 2],
}

const NO_PAIR: u64 = 0xffff_ffff;

impl Meet {
    /// Packs the record into words, the head first.
    pub fn encode(&self) -> [u64; 1 + MEET_WORDS] {
        let mut words = [0; 1 + MEET_WORDS];
        words[0] = Head::encode(Kind::Meet, self.outcome as u8, self.pair.map_or(NO_PAIR, u64::from));
        words[1..6].copy_from_slice(&side_words(&self.held));
        words[6..11].copy_from_slice(&side_words(&self.other));
        for (i, value) in self.values.iter().enumerate() {
            words[11 + i] = value.unwrap_or(0);
            words[14] |= u64::from(value.is_some()) << i;
        }
        words[15] = self.spins;
        words[16] = self.nanos;
        words[17..19].copy_from_slice(&self.came);
        words[19..21].copy_from_slice(&self.arrivals);
        words
    }

    /// Decodes a record. `None` where it has another kind or impossible values.
    pub fn decode(head: Head, operands: &[u64]) -> Option<Meet> {
        if head.kind != Kind::Meet || operands.len() != MEET_WORDS {
            return None;
        }
        let outcome = match head.small {
            0 => MeetOutcome::Alone,
            1 => MeetOutcome::Met,
            2 => MeetOutcome::Ran,
            3 => MeetOutcome::Totals,
            4 => MeetOutcome::Changed,
            _ => return None,
        };
        let value = |i: usize| (operands[13] >> i & 1 != 0).then(|| operands[10 + i]);
        Some(Meet {
            outcome,
            pair: u32::try_from(head.large).ok().filter(|&pair| u64::from(pair) != NO_PAIR),
            held: side(&operands[..5]),
            other: side(&operands[5..10]),
            values: [value(0), value(1), value(2)],
            spins: operands[14],
            nanos: operands[15],
            came: [operands[16], operands[17]],
            arrivals: [operands[18], operands[19]],
        })
    }
}

impl MeetSide {
    /// The bytes that both sides access, as address and length. The length is 0 where the sides do not
    /// overlap.
    pub fn overlap(&self, other: &MeetSide) -> (u64, u64) {
        let end = |side: &MeetSide| side.address.saturating_add(u64::from(side.size));
        let from = self.address.max(other.address);
        (from, end(self).min(end(other)).saturating_sub(from))
    }
}

fn side_words(side: &MeetSide) -> [u64; 5] {
    let small = u64::from(side.size)
        | u64::from(side.store) << 8
        | u64::from(side.role & 1) << 9
        | u64::from(side.cpu) << 16
        | u64::from(side.preempt_count) << 32;
    [side.pc, side.address, small, side.task, side.rsp]
}

fn side(words: &[u64]) -> MeetSide {
    MeetSide {
        pc: words[0],
        address: words[1],
        size: words[2] as u8,
        store: words[2] >> 8 & 1 != 0,
        role: (words[2] >> 9 & 1) as u8,
        cpu: (words[2] >> 16) as u8,
        preempt_count: (words[2] >> 32) as u32,
        task: words[3],
        rsp: words[4],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meet() -> Meet {
        let held = MeetSide {
            pc: 0xffff_ffff_c000_0123,
            address: 0xffff_8880_0000_1000,
            size: 8,
            store: true,
            role: 1,
            cpu: 3,
            preempt_count: 0x8001_0101,
            task: 7,
            rsp: 9,
        };
        Meet {
            outcome: MeetOutcome::Ran,
            pair: Some(5),
            held,
            other: MeetSide { address: held.address + 4, size: 4, store: false, role: 0, ..held },
            values: [Some(1), None, Some(u64::MAX)],
            spins: 11,
            nanos: 12,
            came: [13, 14],
            arrivals: [15, 16],
        }
    }

    #[test]
    fn a_meeting_survives_a_round_trip() {
        for meet in [meet(), Meet { pair: None, outcome: MeetOutcome::Totals, ..meet() }] {
            let words = meet.encode();
            let head = Head::decode(words[0]).unwrap();
            assert_eq!(head.operands(&words[1..]), Some(MEET_WORDS));
            assert_eq!(Meet::decode(head, &words[1..]), Some(meet));
        }
    }

    #[test]
    fn sides_overlap_in_the_bytes_of_both() {
        let Meet { held, other, .. } = meet();
        assert_eq!(held.overlap(&other), (held.address + 4, 4));
        assert_eq!(held.overlap(&MeetSide { address: held.address + 8, ..held }).1, 0);
        assert_eq!(held.overlap(&MeetSide { address: u64::MAX, ..held }).1, 0);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let words = meet().encode();
        let head = Head::decode(words[0]).unwrap();
        assert_eq!(Meet::decode(Head { small: 9, ..head }, &words[1..]), None);
        assert_eq!(Meet::decode(head, &words[2..]), None);
        assert_eq!(Meet::decode(Head { kind: Kind::Rep, ..head }, &words[1..]), None);
    }
}
