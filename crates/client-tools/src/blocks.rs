//! `blocks`: which blocks and functions run most, and on which stacks.
//!
//! Each block has a counter of its own, which translated code increments. A vCPU's stack is sampled
//! after a fixed number of instructions (option `every`). A block counts as a whole even if an exception
//! or a device access ends it early.

use crate::flows::lock;
use guardrail_client_api::{Block, Cell, Chart, Client, Counter, Results, Setup, Table, Unwinder, Vcpu};
use guardrail_client_api::{PerVcpu, register};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Instructions between two stacks. It is a prime, so that samples do not always meet a loop at the same
/// instruction.
const EVERY: u64 = 200_003;
/// Most frames of a stack.
const FRAMES: usize = 64;
/// Most different stacks, and most samples with their times, per vCPU. Later ones are only counted.
const MAX_STACKS: usize = 1 << 16;
const MAX_SAMPLES: usize = 1 << 19;
/// Most blocks in the results.
const TOLD: usize = 200;

/// The `blocks` client.
pub struct Blocks {
    blocks: Mutex<Vec<Option<Known>>>,
    /// Instructions since the last sample.
    since: Counter,
    every: u64,
    unwinder: Arc<Unwinder>,
    samples: PerVcpu<Mutex<Samples>>,
    start: Instant,
}

/// A block that was translated.
#[derive(Clone, Copy)]
struct Known {
    address: u64,
    len: u64,
    executed: Counter,
}

/// The sampled stacks of one vCPU.
#[derive(Default)]
struct Samples {
    stacks: HashMap<Vec<u64>, (u32, u64)>,
    /// Microseconds since the start, and the stack's number, of each sample.
    times: Vec<(u64, u32)>,
    lost: u64,
}

impl Samples {
    fn add(&mut self, stack: Vec<u64>, micros: u64) {
        let next = self.stacks.len();
        if next >= MAX_STACKS && !self.stacks.contains_key(&stack) {
            self.lost += 1;
            return;
        }
        let known = self.stacks.entry(stack).or_insert((next as u32, 0));
        known.1 += 1;
        let number = known.0;
        if self.times.len() < MAX_SAMPLES {
            self.times.push((micros, number));
        }
    }
}

impl Client for Blocks {
    const NAME: &'static str = "blocks";

    fn new(setup: &mut Setup) -> Result<Self, String> {
        setup.only(&["every"])?;
        let every = setup.number("every", EVERY)?;
        if every == 0 {
            return Err("the option every=0 would take a stack at every block; 1 does".into());
        }
        Ok(Blocks {
            blocks: Mutex::default(),
            since: setup.counter(),
            every,
            unwinder: setup.unwinder()?,
            samples: setup.per_vcpu(Mutex::default),
            start: Instant::now(),
        })
    }

    fn block(&'static self, block: &mut Block<Self>) {
        let len = block.len() as u64;
        let executed = {
            let mut blocks = lock(&self.blocks);
            let id = block.id() as usize;
            if blocks.len() <= id {
                blocks.resize(id + 1, None);
            }
            let address = block.address();
            blocks[id].get_or_insert_with(|| Known { address, len, executed: block.counter() }).executed
        };
        block.add(&executed, 1);
        block.add(&self.since, len);
        block.call_if(&self.since, self.every, block.address());
    }

    fn executed(&'static self, vcpu: &mut Vcpu, pc: u64) {
        self.since.set(vcpu.index(), 0);
        let mut stack = Vec::with_capacity(16);
        // At a kernel entry, the stack is still the program's.
        match vcpu.register(register::RSP) >> 63 {
            0 => stack.push(pc),
            _ => self.unwinder.calls(vcpu, pc, FRAMES, &mut stack),
        }
        let micros = self.start.elapsed().as_micros() as u64;
        lock(self.samples.of(vcpu)).add(stack, micros);
    }

    fn results(&'static self, results: &mut Results) {
        let mut known: Vec<(u64, u64, u64)> = lock(&self.blocks)
            .iter()
            .flatten()
            .map(|known| (known.address, known.len, known.executed.total()))
            .filter(|known| known.2 > 0)
            .collect();
        let all: u64 = known.iter().map(|known| known.1 * known.2).sum();
        results.notes.push(format!("{} blocks ran, {all} instructions", known.len()));
        known.sort_unstable_by_key(|known| std::cmp::Reverse(known.1 * known.2));
        let rows = known
            .iter()
            .take(TOLD)
            .map(|&(address, len, executed)| {
                vec![
                    Cell::Code(address),
                    Cell::Count(len),
                    Cell::Count(executed),
                    Cell::Count(len * executed),
                    Cell::Real(share(len * executed, all)),
                ]
            })
            .collect();
        let columns = ["block", "length", "executed", "instructions", "%"].map(str::to_owned).to_vec();
        results.tables.push(Table { name: "hottest blocks".into(), columns, rows, ..Table::default() });
        // The reader of these results groups by function, because it has the names.
        let rows = known
            .iter()
            .map(|&(address, len, executed)| {
                vec![
                    Cell::Function(address),
                    Cell::Count(len * executed),
                    Cell::Real(share(len * executed, all)),
                ]
            })
            .collect();
        let columns = ["function", "instructions", "%"].map(str::to_owned).to_vec();
        let name = "hottest functions".to_owned();
        results.tables.push(Table { name, columns, rows, chart: Chart::Sums });
        self.stacks(results);
    }
}

impl Blocks {
    fn stacks(&self, results: &mut Results) {
        let mut rows = Vec::new();
        let (mut lost, mut taken) = (0, 0);
        for (cpu, samples) in self.samples.all().enumerate() {
            let samples = lock(samples);
            lost += samples.lost;
            let mut times: Vec<Vec<u64>> = vec![Vec::new(); samples.stacks.len()];
            for &(micros, number) in &samples.times {
                times[number as usize].push(micros);
            }
            let mut stacks: Vec<_> = samples.stacks.iter().collect();
            stacks.sort_unstable_by_key(|(_, known)| known.0);
            for (stack, &(number, count)) in stacks {
                taken += count;
                let times: Vec<String> = times[number as usize].iter().map(u64::to_string).collect();
                rows.push(vec![
                    Cell::Stack(stack.clone()),
                    Cell::Count(count),
                    Cell::Count(cpu as u64),
                    Cell::Text(times.join(" ")),
                ]);
            }
        }
        results.notes.push(format!("{taken} stacks, one after {} instructions", self.every));
        if lost > 0 {
            results.notes.push(format!("{lost} stacks more were taken and not kept"));
        }
        let columns = ["stack", "samples", "CPU", "microseconds"].map(str::to_owned).to_vec();
        let name = "stacks".to_owned();
        results.tables.push(Table { name, columns, rows, chart: Chart::Flames });
    }
}

fn share(part: u64, all: u64) -> f64 {
    100.0 * part as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_are_kept_once() {
        let mut samples = Samples::default();
        samples.add(vec![1, 2], 10);
        samples.add(vec![3], 20);
        samples.add(vec![1, 2], 30);
        assert_eq!(samples.stacks[&vec![1, 2]], (0, 2));
        assert_eq!(samples.times, [(10, 0), (20, 1), (30, 0)]);
        for i in 0..MAX_STACKS as u64 {
            samples.add(vec![i, i], 40);
        }
        assert_eq!((samples.stacks.len(), samples.lost), (MAX_STACKS, 2));
    }
}
