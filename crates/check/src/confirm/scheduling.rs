//! How a run with held accesses differs from the run that found the race.

use guardrail_trace::config::Holds;

/// With at most `FEW` pairs, a hold lasts as long as may be necessary. With at most `SOME`, it lasts somewhat
/// longer than usual.
const FEW: usize = 8;
const SOME: usize = 32;
/// The longest holds, in milliseconds.
const VERY_LONG: u64 = 3000;
const LONG: u64 = 1000;
/// How long threads are slowed down, in milliseconds: timers expire meanwhile, and threads can change CPUs.
const STALL: u64 = 12;

/// How threads and interrupts are scheduled so that the sides of a race may meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// Threads and interrupt lines move from CPU to CPU, because contexts that share a CPU by chance cannot
    /// meet.
    Wander,
    /// Threads begin on one CPU and the driver's interrupt lines on another, and both stay: races that depend
    /// on CPUs need that. Holds are long, for accesses that occur only at unload.
    Apart,
    /// Threads are slowed down where they return from the kernel, can be preempted there, and move fast. Work
    /// that they have started may then run on another CPU.
    Shaken,
}

impl Scheduling {
    /// The scheduling of the nth run, from 1.
    pub fn of_run(run: u32) -> Scheduling {
        match run % 3 {
            1 => Scheduling::Wander,
            2 => Scheduling::Apart,
            _ => Scheduling::Shaken,
        }
    }

    /// The variables that set it in the guest.
    pub fn variables(self, cpus: u8) -> Vec<(String, String)> {
        let value = match self {
            _ if cpus < 2 => return Vec::new(),
            Scheduling::Wander => "wander",
            Scheduling::Apart => "apart",
            Scheduling::Shaken => "hurry",
        };
        vec![("SHUFFLE".to_owned(), value.to_owned())]
    }

    /// How often the driver is loaded, in the workload that only loads it.
    pub fn turns(self) -> u32 {
        match self {
            Scheduling::Wander | Scheduling::Apart => 4,
            Scheduling::Shaken => 10,
        }
    }

    /// Words for the kernel's command line.
    pub fn kernel_arguments(self) -> Vec<String> {
        match self {
            Scheduling::Shaken => vec!["preempt=full".to_owned()],
            _ => Vec::new(),
        }
    }

    /// The times to hold, and to slow down, for this number of pairs.
    pub fn times(self, pairs: usize, holds: Holds) -> Holds {
        let first_millis = match self {
            Scheduling::Wander => holds.first_millis,
            _ if pairs <= FEW => VERY_LONG,
            _ if pairs <= SOME => LONG,
            _ => holds.first_millis,
        };
        let stall_millis = if self == Scheduling::Shaken { STALL } else { 0 };
        Holds { first_millis, stall_millis, ..holds }
    }

    /// A note for readers of the outcome; mostly `None`.
    pub fn note(self) -> Option<&'static str> {
        (self == Scheduling::Shaken)
            .then_some("in a kernel with preempt=full, whose threads were slowed down")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedulings_take_turns() {
        let schedulings: Vec<Scheduling> = (1..=4).map(Scheduling::of_run).collect();
        assert_eq!(
            schedulings,
            [Scheduling::Wander, Scheduling::Apart, Scheduling::Shaken, Scheduling::Wander]
        );
        assert!(Scheduling::Apart.variables(1).is_empty());
        assert_eq!(Scheduling::Apart.variables(2).len(), 1);
    }

    #[test]
    fn many_pairs_are_held_for_a_short_time() {
        let first = |scheduling: Scheduling, pairs| scheduling.times(pairs, Holds::default()).first_millis;
        assert_eq!([1, 20, 100].map(|n| first(Scheduling::Apart, n)), [VERY_LONG, LONG, 500]);
        assert_eq!(first(Scheduling::Wander, 1), 500);
        assert_eq!(Scheduling::Wander.times(1, Holds::default()).stall_millis, 0);
    }
}
