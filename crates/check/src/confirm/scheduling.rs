//! How a run with held accesses differs from the run that found the race.

use guardrail_trace::config::Holds;

/// Pairs for which a hold may last as long as it may be needed, and for which it may last somewhat longer than usual.
const FEW: usize = 8;
const SOME: usize = 32;
/// Milliseconds of the longest holds.
const VERY_LONG: u64 = 3000;
const LONG: u64 = 1000;
/// For how long threads are slowed down, in milliseconds: timers run meanwhile, and CPUs can change.
const STALL: u64 = 12;

/// How threads and interrupts are scheduled so that the sides of a race may meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// Threads and interrupt lines move from CPU to CPU: contexts that happen to share a CPU never meet there.
    Wander,
    /// Threads begin on one CPU and the driver's interrupt lines on another, and stay: what depends on CPUs needs that. Holds are long,
    /// for what comes only at unload.
    Apart,
    /// Threads are slowed down where they come back from the kernel, can be preempted there, and are moved fast: what they
    /// have set off may then run on another CPU than they.
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

    /// The variable that sets it in the guest.
    pub fn variables(self, cpus: u8) -> Vec<(String, String)> {
        let value = match self {
            _ if cpus < 2 => return Vec::new(),
            Scheduling::Wander => "wander",
            Scheduling::Apart => "apart",
            Scheduling::Shaken => "hurry",
        };
        vec![("SHUFFLE".to_owned(), value.to_owned())]
    }

    /// How often a driver is loaded, where that is the workload.
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

    /// How long to hold, and to slow down, when so many pairs are tried.
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

    /// What a reader of the outcome must know.
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
