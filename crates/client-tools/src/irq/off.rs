//! Stretches with interrupts off on one vCPU.

use crate::flows::Clock;
use guardrail_client_api::{Cell, Table};

/// Number of longest stretches that are kept.
const KEPT: usize = 20;
/// Number of length classes; each is a power of two.
const POWERS: usize = 40;

/// A stretch with interrupts off that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// Duration of the stretch.
    pub length: Clock,
    /// Address of the instruction that disabled interrupts, or of the interrupting entry.
    pub from: u64,
    /// Address of the instruction that enabled interrupts.
    pub to: u64,
    /// The stack at its end.
    pub stack: Vec<u64>,
    /// Level of the flow that ran at its end.
    pub level: &'static str,
    /// Index of the vCPU.
    pub cpu: u32,
}

/// All stretches of a vCPU.
#[derive(Clone, Debug, Default)]
pub struct Off {
    since: Option<(Clock, u64)>,
    /// The longest stretches, longest first; one for each pair of `from` and `to`.
    longest: Vec<Stretch>,
    /// Number of stretches for each power of two of instructions.
    lengths: Vec<u64>,
    sum: Clock,
}

impl Off {
    /// Notes that interrupts are off from here on, unless they were off already.
    pub fn begins(&mut self, now: Clock, pc: u64) {
        self.since.get_or_insert((now, pc));
    }

    /// Notes that interrupts are on from here on. Returns a stretch that is among the longest, so that
    /// the caller can [keep](Self::keep) it with its stack.
    pub fn ends(&mut self, now: Clock, pc: u64) -> Option<Stretch> {
        let (start, from) = self.since.take()?;
        let length = now.since(start);
        self.sum.insns += length.insns;
        self.sum.ns += length.ns;
        let power = (u64::BITS - length.insns.leading_zeros()) as usize;
        self.lengths.resize(POWERS, 0);
        self.lengths[power.min(POWERS - 1)] += 1;
        let same = self.longest.iter().find(|known| (known.from, known.to) == (from, pc));
        let beaten = match same {
            Some(same) => same.length.insns,
            None if self.longest.len() < KEPT => {
                return Some(Stretch { length, from, to: pc, ..Stretch::default() });
            }
            None => self.longest.last().map_or(0, |last| last.length.insns),
        };
        (length.insns > beaten).then(|| Stretch { length, from, to: pc, ..Stretch::default() })
    }

    /// Keeps a stretch among the longest.
    pub fn keep(&mut self, stretch: Stretch) {
        self.longest.retain(|known| (known.from, known.to) != (stretch.from, stretch.to));
        let at = self.longest.partition_point(|known| known.length.insns >= stretch.length.insns);
        self.longest.insert(at, stretch);
        self.longest.truncate(KEPT);
    }

    /// Drops the current stretch, without a measurement.
    pub fn forget(&mut self) {
        self.since = None;
    }

    /// Adds the stretches of another vCPU.
    pub fn merge(&mut self, other: &Off) {
        for stretch in &other.longest {
            let same = |known: &&Stretch| (known.from, known.to) == (stretch.from, stretch.to);
            if self.longest.iter().find(same).is_none_or(|known| known.length.insns < stretch.length.insns) {
                self.keep(stretch.clone());
            }
        }
        self.lengths.resize(POWERS, 0);
        self.lengths.iter_mut().zip(&other.lengths).for_each(|(sum, count)| *sum += count);
        self.sum.insns += other.sum.insns;
        self.sum.ns += other.sum.ns;
    }

    /// The tables for the results.
    pub fn tables(&self) -> Vec<Table> {
        let longest = self.longest.iter().map(|stretch| {
            vec![
                Cell::Count(stretch.length.insns),
                Cell::Count(stretch.length.ns),
                Cell::Count(stretch.cpu.into()),
                Cell::Text(stretch.level.to_owned()),
                Cell::Code(stretch.from),
                Cell::Stack(stretch.stack.clone()),
            ]
        });
        let columns = ["instructions", "ns", "CPU", "context", "off from", "stack where they went on"];
        let longest = Table {
            name: "longest stretches with interrupts off".into(),
            columns: columns.map(str::to_owned).to_vec(),
            rows: longest.collect(),
            ..Table::default()
        };
        let lengths = self.lengths.iter().enumerate().filter(|(_, count)| **count > 0);
        let lengths = lengths.map(|(power, &count)| {
            let below = 1u64 << power;
            vec![Cell::Count(below), Cell::Count(count)]
        });
        let lengths = Table {
            name: "stretches with interrupts off by length".into(),
            columns: ["instructions below", "stretches"].map(str::to_owned).to_vec(),
            rows: lengths.collect(),
            ..Table::default()
        };
        vec![longest, lengths]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(insns: u64) -> Clock {
        Clock { insns, ns: insns * 2 }
    }

    #[test]
    fn a_stretch_lasts_from_the_first_off_to_the_first_on() {
        let mut off = Off::default();
        assert_eq!(off.ends(at(5), 1), None);
        off.begins(at(10), 100);
        off.begins(at(20), 200);
        let stretch = off.ends(at(35), 300).unwrap();
        assert_eq!((stretch.length, stretch.from, stretch.to), (at(25), 100, 300));
        off.keep(stretch);
        assert_eq!(off.ends(at(40), 1), None);
        // A shorter one with the same start and end is only counted.
        off.begins(at(50), 100);
        assert_eq!(off.ends(at(60), 300), None);
        assert_eq!((off.sum, off.lengths.iter().sum::<u64>()), (at(35), 2));
        off.begins(at(70), 1);
        off.forget();
        assert_eq!(off.ends(at(80), 2), None);
    }

    #[test]
    fn the_longest_are_kept_once() {
        let mut off = Off::default();
        for i in 1..100 {
            off.begins(at(0), i % 50);
            if let Some(stretch) = off.ends(at(i), 7) {
                off.keep(stretch);
            }
        }
        let mut both = Off::default();
        both.merge(&off);
        both.merge(&off);
        assert_eq!(both.longest, off.longest);
        let lengths: Vec<u64> = off.longest.iter().map(|stretch| stretch.length.insns).collect();
        assert_eq!(lengths, (80..100).rev().collect::<Vec<_>>());
        assert_eq!(both.tables()[0].rows.len(), KEPT);
    }
}
