//! What the registers of a device answer.

use crate::constants::Constants;
use guardrail_usb_device::mixed;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A register: the base address register, and the offset in it in bytes.
type Place = (u8, u64);

/// The most bytes that are remembered of what was written.
const MAX_WRITTEN: usize = 1 << 20;
/// A register that is read so often, with no write in between, is being waited for.
const WAITED: u32 = 8;
/// A register that is read so often is being waited for, whatever comes in between.
const WAITED_LONG: u32 = 96;
/// The next answer is tried after so many reads of a register that is being waited for.
const PATIENCE: u32 = 4;

/// How a plan answers before anything was written to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Zeros,
    Ones,
    /// What the driver compares with, else zeros.
    Compared,
    Random,
    /// What the driver compares with, whatever was written; else ones.
    ComparedAlways,
    /// Random, whatever was written.
    RandomAlways,
}

const KINDS: [Kind; 6] =
    [Kind::Zeros, Kind::Compared, Kind::Ones, Kind::ComparedAlways, Kind::Random, Kind::RandomAlways];

/// The answers of a device by one plan. They depend on the plan, the driver's accesses and nothing else.
#[derive(Debug)]
pub struct Answers {
    plan: u16,
    constants: Arc<Constants>,
    written: FxHashMap<Place, u8>,
    /// How often each register was read.
    reads: FxHashMap<Place, u32>,
    /// The register that was read last, and how often since the last write.
    again: (Place, u32),
}

impl Answers {
    /// The answers of a plan; of the same kind every sixth plan answers, with other choices.
    pub fn new(plan: u16, constants: Arc<Constants>) -> Answers {
        Answers {
            plan,
            constants,
            written: FxHashMap::default(),
            reads: FxHashMap::default(),
            again: ((0, 0), 0),
        }
    }

    /// The driver writes to a register.
    pub fn write(&mut self, bar: u8, offset: u64, bytes: &[u8]) {
        self.again.1 = 0;
        for (index, &byte) in bytes.iter().enumerate() {
            let at = offset.wrapping_add(index as u64);
            if self.written.len() < MAX_WRITTEN || self.written.contains_key(&(bar, at)) {
                self.written.insert((bar, at), byte);
            }
        }
    }

    /// The driver reads a register.
    pub fn read(&mut self, bar: u8, offset: u64, into: &mut [u8]) {
        let place = (bar, offset);
        let plain = self.plain(place, into.len());
        let value = match self.waits(place) {
            None => plain,
            Some(tries) => self.other(place, plain, tries),
        };
        for (byte, shift) in into.iter_mut().zip((0..64).step_by(8)) {
            *byte = (value >> shift) as u8;
        }
    }

    /// How many answers the driver has waited through; `None` where it does not wait.
    fn waits(&mut self, place: Place) -> Option<u32> {
        if self.reads.len() >= MAX_WRITTEN {
            self.reads.clear();
        }
        let all = self.reads.entry(place).or_default();
        *all = all.saturating_add(1);
        self.again = (place, if self.again.0 == place { self.again.1.saturating_add(1) } else { 1 });
        let over = self.again.1.checked_sub(WAITED).or_else(|| all.checked_sub(WAITED_LONG))?;
        Some(over / PATIENCE)
    }

    /// The answer to one that does not wait.
    fn plain(&self, place: Place, size: usize) -> u64 {
        let kind = KINDS[usize::from(self.plan) % KINDS.len()];
        let (bar, offset) = place;
        let first = match kind {
            Kind::Zeros => 0,
            Kind::Ones => u64::MAX,
            Kind::Compared => self.compared(place).unwrap_or(0),
            Kind::ComparedAlways => self.compared(place).unwrap_or(u64::MAX),
            Kind::Random | Kind::RandomAlways => self.random(place, 0),
        };
        if kind == Kind::RandomAlways || kind == Kind::ComparedAlways && self.compared(place).is_some() {
            return first;
        }
        // What was written takes the place of the first answer, byte by byte.
        (0..size.min(8)).fold(first, |value, index| {
            let shift = 8 * index;
            let written = self.written.get(&(bar, offset.wrapping_add(index as u64)));
            written.map_or(value, |&byte| value & !(0xff << shift) | u64::from(byte) << shift)
        })
    }

    /// A number that the driver compares this register with: another one in each plan.
    fn compared(&self, place: Place) -> Option<u64> {
        let values = self.constants.at(place.1);
        let turn = usize::from(self.plan) / KINDS.len();
        let chosen = match values {
            [] => return None,
            // A random one of several, once each had its turn.
            _ if turn >= values.len() => self.random(place, 1) as usize % values.len(),
            _ => turn,
        };
        Some(values[chosen].into())
    }

    /// Another answer for a driver that waits.
    fn other(&self, place: Place, plain: u64, tries: u32) -> u64 {
        let values = self.constants.at(place.1);
        let (tries, few) = (tries as usize, values.len());
        match tries {
            0 => !plain,
            1 => 0,
            2 => u64::MAX,
            _ if tries - 3 < few => values[tries - 3].into(),
            _ if tries - 3 < 2 * few => {
                values.iter().take(tries - 2 - few).fold(0, |all, one| all | u64::from(*one))
            }
            // One bit after the other, then anything.
            _ if tries - 3 - 2 * few < 32 => 1 << (tries - 3 - 2 * few),
            _ => self.random(place, tries as u64),
        }
    }

    /// A number that looks random (splitmix64 of plan, place and turn).
    fn random(&self, (bar, offset): Place, turn: u64) -> u64 {
        let seed = offset ^ u64::from(bar) << 40 ^ u64::from(self.plan) << 44 ^ turn << 20;
        mixed(seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(answers: &mut Answers, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        answers.read(0, offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn plan(number: u16) -> Answers {
        Answers::new(number, Arc::new(Constants::default()))
    }

    #[test]
    fn a_register_answers_what_was_written() {
        let mut answers = plan(2);
        assert_eq!(read(&mut answers, 0x10), u32::MAX);
        answers.write(0, 0x11, &[0x12]);
        assert_eq!(read(&mut answers, 0x10), 0xffff_12ff);
        answers.write(1, 0x10, &[0; 8]);
        assert_eq!(read(&mut answers, 0x10), 0xffff_12ff);
        let mut same = plan(4);
        assert_eq!(read(&mut plan(4), 0x10), read(&mut same, 0x10));
        assert_ne!(read(&mut plan(4), 0x10), read(&mut plan(10), 0x10));
    }

    #[test]
    fn one_that_is_waited_for_answers_otherwise() {
        for number in 0..12 {
            let mut answers = plan(number);
            answers.write(0, 0, &[1, 0, 0, 0]);
            // A bit that the device shall clear, and another that it shall set.
            assert!((0..64).any(|_| read(&mut answers, 0) & 1 == 0), "{number}");
            assert!((0..512).any(|_| read(&mut answers, 4) & 0x4000 != 0), "{number}");
            assert!((0..512).any(|_| read(&mut answers, 8) & 0x4000 == 0), "{number}");
            // The same with a write between the reads.
            let seen = (0..512).any(|turn| {
                answers.write(0, 12, &[turn as u8]);
                read(&mut answers, 16) & 2 != 0
            });
            assert!(seen, "{number}");
        }
    }

    #[test]
    fn nothing_that_a_driver_does_is_kept_without_bound() {
        let mut answers = plan(0);
        for offset in 0..MAX_WRITTEN as u64 + 10 {
            answers.write(0, offset, &[1]);
            answers.read(0, offset, &mut [0]);
        }
        assert!(answers.written.len() <= MAX_WRITTEN && answers.reads.len() <= MAX_WRITTEN);
        answers.read(5, u64::MAX, &mut [0; 8]);
        answers.write(5, u64::MAX, &[0; 8]);
    }
}
