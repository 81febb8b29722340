//! Delays threads when they return from the kernel. Work that they started may then run before they
//! continue, and another CPU may take the thread over.

use super::mix;
use rustc_hash::FxHashMap;
use std::time::{Duration, Instant};

/// Most threads that are delayed at a time.
const MAX_THREADS: usize = 64;
/// Most addresses whose visits are counted.
const MAX_PLACES: usize = 1 << 16;
/// Delays may take this time, plus one `PART`th of the run's time so far.
const CREDIT: Duration = Duration::from_secs(1);
const PART: u32 = 4;

/// A thread at an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Guest virtual address of the instruction.
    pub address: u64,
    /// The thread's stack pointer.
    pub rsp: u64,
    /// Address of the thread's `task_struct`.
    pub task: u64,
}

/// The delayed threads, and the time that delays have taken.
#[derive(Debug, Default)]
pub struct Stalls {
    threads: Vec<(Thread, Instant)>,
    visits: FxHashMap<u64, u64>,
    begun: Option<Instant>,
    spent: Duration,
}

impl Stalls {
    /// Whether a thread stays at its instruction. With `held` an access is held already, and the thread
    /// may be the one that it waits for; so it continues.
    pub fn stays(&mut self, thread: Thread, limit: Duration, held: bool, now: Instant) -> bool {
        if let Some(i) = self.threads.iter().position(|(other, _)| *other == thread) {
            let spent = now.saturating_duration_since(self.threads[i].1);
            if !held && spent < limit {
                return true;
            }
            self.threads.swap_remove(i);
            self.spent += spent;
            return false;
        }
        // Forgets threads that never returned here, such as those that ended.
        self.threads.retain(|(_, since)| now.saturating_duration_since(*since) < limit * 100);
        let begun = *self.begun.get_or_insert(now);
        let allowed = CREDIT + now.saturating_duration_since(begun) / PART;
        if held || self.spent >= allowed || self.threads.len() >= MAX_THREADS || !self.chosen(thread.address)
        {
            return false;
        }
        self.threads.push((thread, now));
        true
    }

    /// Picks every other visit at random. Work that precedes this address must not always be delayed
    /// too.
    fn chosen(&mut self, address: u64) -> bool {
        if self.visits.len() >= MAX_PLACES && !self.visits.contains_key(&address) {
            return false;
        }
        let visits = self.visits.entry(address).or_default();
        *visits += 1;
        mix(mix(address & 0xfff) ^ *visits) & 1 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(10);

    fn thread(task: u64) -> Thread {
        Thread { address: 0x1000, rsp: 8, task }
    }

    /// Makes the first visits of an address that are picked.
    fn begin(stalls: &mut Stalls, now: Instant) {
        assert!((0..64).any(|_| stalls.stays(thread(1), LIMIT, false, now)));
    }

    #[test]
    fn a_thread_goes_on_after_the_time() {
        let (mut stalls, now) = (Stalls::default(), Instant::now());
        begin(&mut stalls, now);
        assert!(stalls.stays(thread(1), LIMIT, false, now + LIMIT / 2));
        assert!(!stalls.stays(thread(1), LIMIT, false, now + LIMIT));
        assert_eq!((stalls.spent, stalls.threads.len()), (LIMIT, 0));
    }

    #[test]
    fn a_thread_goes_on_when_an_access_is_held() {
        let (mut stalls, now) = (Stalls::default(), Instant::now());
        begin(&mut stalls, now);
        assert!(!stalls.stays(thread(1), LIMIT, true, now));
        assert!((0..64).all(|_| !stalls.stays(thread(1), LIMIT, true, now)));
    }

    #[test]
    fn a_part_of_the_time_is_spent_at_most() {
        let (mut stalls, begun) = (Stalls::default(), Instant::now());
        let mut now = begun;
        for i in 0..100_000 {
            let stays = stalls.stays(thread(1), LIMIT, false, now);
            now += if stays { LIMIT } else { Duration::from_micros(if i % 2 == 0 { 10 } else { 300 }) };
        }
        let run = now - begun;
        assert!(stalls.spent > run / (PART + 1), "{:?} of {run:?}", stalls.spent);
        assert!(stalls.spent <= CREDIT + run / PART + LIMIT, "{:?} of {run:?}", stalls.spent);
    }
}
