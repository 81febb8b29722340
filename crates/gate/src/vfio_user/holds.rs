//! Accesses that wait for the policy, each on a thread of its own, so that none waits for another.

use crate::policy::{Access, Gate, Verdict};
use crate::sys::Event;
use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most accesses that may wait at once. A guest has no more vCPUs, and each waits for its own.
const MAX_HELD: usize = 64;

/// The ticket of an access and the policy's verdict on it; `None` where the policy panicked.
type Answer = (u64, Option<Verdict>);

/// An access that waits.
#[derive(Debug)]
struct Held<T> {
    ticket: u64,
    since: Instant,
    /// What its owner needs to finish it.
    pending: T,
    /// The policy's verdict, where other accesses must finish first.
    verdict: Option<Option<Verdict>>,
}

/// All accesses that wait for the policy.
#[derive(Debug)]
pub struct Holds<T> {
    held: VecDeque<Held<T>>,
    next: u64,
    threads: usize,
    jobs: Sender<(u64, Access)>,
    takers: Arc<Mutex<Receiver<(u64, Access)>>>,
    answers: Receiver<Answer>,
    sender: Sender<Answer>,
}

/// Reports that the policy panicked, unless it answered.
struct Answering<'a> {
    ticket: u64,
    verdict: Option<Verdict>,
    sender: &'a Sender<Answer>,
    wake: &'a Event,
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        let _ = self.sender.send((self.ticket, self.verdict));
        self.wake.signal();
    }
}

impl<T> Holds<T> {
    /// An empty set.
    pub fn new() -> Holds<T> {
        let (jobs, takers) = mpsc::channel();
        let (sender, answers) = mpsc::channel();
        Holds {
            held: VecDeque::new(),
            next: 0,
            threads: 0,
            jobs,
            takers: Arc::new(Mutex::new(takers)),
            answers,
            sender,
        }
    }

    /// Has the policy decide about an access. False where too many wait already, or no thread can be started:
    /// then the access is dropped.
    pub fn hold(&mut self, gate: &Arc<dyn Gate>, wake: &Arc<Event>, access: Access, pending: T) -> bool {
        if self.held.len() >= MAX_HELD {
            self.follow(Verdict::Drop, pending);
            return false;
        }
        if self.threads <= self.held.len() {
            let (takers, sender) = (Arc::clone(&self.takers), self.sender.clone());
            let (gate, wake) = (Arc::clone(gate), Arc::clone(wake));
            let run = move || ask(&takers, &sender, &*gate, &wake);
            if std::thread::Builder::new().name("gate-policy".into()).spawn(run).is_err() {
                self.follow(Verdict::Drop, pending);
                return false;
            }
            self.threads += 1;
        }
        self.queue(pending, None);
        self.jobs.send((self.next, access)).is_ok()
    }

    /// Makes an access wait for those before it, although it has its verdict.
    pub fn follow(&mut self, verdict: Verdict, pending: T) {
        self.queue(pending, Some(Some(verdict)));
    }

    fn queue(&mut self, pending: T, verdict: Option<Option<Verdict>>) {
        self.next += 1;
        self.held.push_back(Held { ticket: self.next, since: Instant::now(), pending, verdict });
    }

    /// The next access with a verdict, and how long it waited; in order, only the oldest qualifies.
    pub fn decided(&mut self, in_order: bool) -> Option<(T, Option<Verdict>, Duration)> {
        while let Ok((ticket, verdict)) = self.answers.try_recv() {
            if let Some(held) = self.held.iter_mut().find(|held| held.ticket == ticket) {
                held.verdict = Some(verdict);
            }
        }
        let index = match in_order {
            true => 0,
            false => self.held.iter().position(|held| held.verdict.is_some())?,
        };
        let verdict = self.held.get(index)?.verdict?;
        let held = self.held.remove(index)?;
        Some((held.pending, verdict, held.since.elapsed()))
    }

    /// The number of accesses that wait.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Takes the access that waits longest, without its verdict.
    pub fn give_up(&mut self) -> Option<(T, Duration)> {
        self.held.pop_front().map(|held| (held.pending, held.since.elapsed()))
    }

    /// The time since which the oldest access waits; `None` without any.
    pub fn oldest(&self) -> Option<Instant> {
        self.held.front().map(|held| held.since)
    }
}

/// Asks the policy about one access after the other, until there are no more or the policy panics.
fn ask(takers: &Mutex<Receiver<(u64, Access)>>, sender: &Sender<Answer>, gate: &dyn Gate, wake: &Event) {
    loop {
        let job = takers.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((ticket, access)) = job else { return };
        let mut answering = Answering { ticket, verdict: None, sender, wake };
        answering.verdict = Some(gate.admit(&access));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Space;

    struct Strange;

    impl Gate for Strange {
        fn admit(&self, access: &Access) -> Verdict {
            match access.offset {
                0 => std::thread::sleep(Duration::from_millis(500)),
                // Panics without a message.
                1 => std::panic::resume_unwind(Box::new(())),
                _ => {}
            }
            Verdict::Pass
        }
    }

    #[test]
    fn a_slow_access_delays_no_other_and_a_dead_policy_is_reported() {
        let (gate, wake): (Arc<dyn Gate>, _) = (Arc::new(Strange), Arc::new(Event::new().unwrap()));
        let mut holds = Holds::new();
        for offset in 0..3 {
            let access = Access { space: Space::Bar(0), offset, size: 4, write: true, value: 0 };
            assert!(holds.hold(&gate, &wake, access, offset));
        }
        let mut decided = Vec::new();
        let start = Instant::now();
        while decided.len() < 3 && start.elapsed() < Duration::from_secs(10) {
            decided.extend(holds.decided(false).map(|(pending, verdict, _)| (pending, verdict)));
        }
        assert_eq!(decided.last(), Some(&(0, Some(Verdict::Pass))));
        assert!(decided.contains(&(1, None)) && decided.contains(&(2, Some(Verdict::Pass))));
        assert!(holds.oldest().is_none() && wake.take() > 0);
    }

    #[test]
    fn in_order_the_first_goes_first() {
        let (gate, wake): (Arc<dyn Gate>, _) = (Arc::new(Strange), Arc::new(Event::new().unwrap()));
        let mut holds = Holds::new();
        let access = Access { space: Space::Bar(0), offset: 0, size: 4, write: true, value: 0 };
        assert!(holds.hold(&gate, &wake, access, "slow"));
        holds.follow(Verdict::Drop, "quick");
        assert_eq!((holds.decided(true).map(|held| held.0), holds.len()), (None, 2));
        let (mut decided, start) = (Vec::new(), Instant::now());
        while decided.len() < 2 && start.elapsed() < Duration::from_secs(10) {
            decided.extend(holds.decided(true).map(|held| held.0));
        }
        assert_eq!(decided, ["slow", "quick"]);
    }
}
