//! Draws conclusions from the accesses that were held.

use super::Ended;
use super::scheduling::Scheduling;
use guardrail_finding::{Confirmation, ForcedOrder, RaceSide};
use guardrail_trace::meet::{Meet, MeetOutcome};

/// Both sides were at their instructions at the same time.
pub const CONFIRMED: &str = "confirmed";
/// The sides did not meet, which proves nothing.
pub const NOT_REPRODUCED: &str = "not-reproduced";
/// While one side was held the other never ran, although it runs otherwise.
pub const IMPOSSIBLE: &str = "impossible";
/// The accesses cannot be held.
const UNTRIED: &str = "untried";
/// The fewest tries for the verdict "impossible", and how often the other side must have been due in each. An
/// access that occurs once per load, alternating with the held one, is not kept away by anything.
const ENOUGH_TRIES: u64 = 3;
const ENOUGH_DUE: f64 = 4.0;

/// The observations of one race in all runs.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    runs: u64,
    tries: u64,
    met: u64,
    best: Option<Meet>,
    /// The scheduling of the run of the meeting.
    scheduling: Option<Scheduling>,
    arrivals: [u64; 2],
    /// The CPUs on which each access was made, one bit each.
    cpus: [u64; 2],
    came: u64,
    /// How often the other side would have occurred during the holds, at the rate of the rest of the time.
    due: f64,
    /// Nanoseconds for which each side was held without a meeting.
    waited: [u64; 2],
    /// How runs failed: the one in which the sides met, if they have, else the others.
    failed: Vec<String>,
}

impl Seen {
    /// True where another run might bring a result.
    pub fn undecided(&self) -> bool {
        self.met == 0
    }

    /// The scheduling of the run in which the sides met, and the side that was held; `None` where they did not.
    pub fn met(&self) -> Option<(Scheduling, u8)> {
        Some((self.scheduling?, self.best.filter(|_| self.met > 0)?.held.role & 1))
    }

    /// Adds the records of one run.
    pub fn add<'a>(&mut self, meets: impl Iterator<Item = &'a Meet>, ended: &Ended, scheduling: Scheduling) {
        self.runs += 1;
        if self.best.is_none() {
            self.scheduling = Some(scheduling);
        }
        let (mut waited, mut arrivals, mut tries) = ([0u64; 2], [0u64; 2], [0u64; 2]);
        for meet in meets {
            let role = usize::from(meet.held.role & 1);
            match meet.outcome {
                MeetOutcome::Totals => {
                    arrivals = meet.arrivals;
                    for role in 0..2 {
                        self.cpus[role] |= meet.values[role].unwrap_or(0);
                    }
                    continue;
                }
                MeetOutcome::Met => {
                    self.met += 1;
                    self.tries += 1;
                    self.best = self.best.or(Some(*meet));
                }
                MeetOutcome::Ran => {
                    if self.best.is_none_or(|best| best.outcome != MeetOutcome::Ran) {
                        self.best = Some(*meet);
                    }
                }
                MeetOutcome::Alone | MeetOutcome::Changed => {
                    self.tries += 1;
                    self.came += meet.came[1 - role];
                    waited[role] = waited[role].saturating_add(meet.nanos);
                    tries[role] += 1;
                }
            }
        }
        for role in 0..2 {
            self.arrivals[role] += arrivals[role];
            self.waited[role] = self.waited[role].saturating_add(waited[role]);
            let held = waited[1 - role] as f64 / 1e9;
            let free = (ended.guest_seconds - held).max(0.1);
            // An access that occurs hardly more often than the other is held may alternate with it.
            if arrivals[role] as f64 >= ENOUGH_DUE * tries[1 - role] as f64 {
                self.due += arrivals[role] as f64 * held / free;
            }
        }
        if self.met > 0 {
            self.failed.clear();
        }
        self.failed.extend(ended.failed.clone());
    }

    /// The result for the report.
    pub fn confirmation(&self) -> Confirmation {
        let times = |n: u64, what: &str| if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") };
        let tries = tries(self.tries);
        let runs = times(self.runs, "run");
        let mut values = Vec::new();
        let (outcome, detail) = if let Some(best) = self.best {
            values = best.values.iter().map(|value| value.map(|value| format!("{value:#x}"))).collect();
            let note = self
                .scheduling
                .and_then(Scheduling::note)
                .map(|note| format!("; {note}"))
                .unwrap_or_default();
            (CONFIRMED, met(&best) + &note)
        } else if self.arrivals.contains(&0) {
            let which = if self.arrivals[0] == 0 { "the one" } else { "the other" };
            (NOT_REPRODUCED, format!("{which} access was not made in {runs}"))
        } else if self.cpus[0] == self.cpus[1] && self.cpus[0].count_ones() == 1 {
            let cpu = self.cpus[0].trailing_zeros();
            (
                NOT_REPRODUCED,
                format!("both accesses were made on CPU {cpu} only; they did not meet in {tries} in {runs}"),
            )
        } else if self.came == 0 && self.tries >= ENOUGH_TRIES && self.due >= ENOUGH_DUE * self.tries as f64 {
            let [a, b] = self.arrivals;
            let held = (self.waited[0] + self.waited[1]) as f64 / 1e9;
            let detail = format!(
                "the other access was never made while the one was held, {held:.1} s in {tries}, though they were \
                 made {a} and {b} times in {runs}"
            );
            (IMPOSSIBLE, detail)
        } else {
            (NOT_REPRODUCED, format!("the accesses did not meet in {tries} in {runs}"))
        };
        let detail = match self.failed.first() {
            Some(why) if self.met > 0 => format!("{detail}; that run did not complete: {why}"),
            Some(why) => format!("{detail}; a run did not complete: {why}"),
            None => detail,
        };
        Confirmation {
            outcome: outcome.to_owned(),
            detail,
            tries: self.tries,
            runs: self.runs,
            meetings: self.met,
            values,
            order: self.best.as_ref().map(order),
            consequence: None,
            repeated: None,
        }
    }
}

/// The number of tries in words.
pub fn tries(number: u64) -> String {
    if number == 1 { "1 try".to_owned() } else { format!("{number} tries") }
}

/// Which side was held at a meeting. The finding's own access has the role 0.
fn order(meet: &Meet) -> ForcedOrder {
    let own = meet.held.role & 1 == 0;
    let cpus = [meet.held.cpu, meet.other.cpu].map(u32::from);
    ForcedOrder {
        held: if own { RaceSide::Access } else { RaceSide::Other },
        cpus: if own { cpus } else { [cpus[1], cpus[0]] },
    }
}

/// The sentence for a meeting.
fn met(meet: &Meet) -> String {
    let (held, other) = (&meet.held, &meet.other);
    let (address, len) = held.overlap(other);
    let way = |store: bool| if store { "write" } else { "read" };
    let place = match held.cpu == other.cpu {
        true if held.task == other.task => format!("on CPU {}, an interrupt there", held.cpu),
        true => format!("on CPU {}, another thread there", held.cpu),
        false => format!("on CPU {}, CPU {}", held.cpu, other.cpu),
    };
    let bytes = if len == 1 { "byte".to_owned() } else { format!("{len} bytes") };
    let mut text = format!(
        "while a {} of the {bytes} at {address:#x} was held {place} came to {} them",
        way(held.store),
        way(other.store)
    );
    if let [Some(before), Some(between), Some(after)] = meet.values {
        text.push_str(&format!(
            "; the value was {before:#x} before, {between:#x} after the {}, {after:#x} after the {}",
            way(other.store),
            way(held.store)
        ));
    }
    text
}

/// The result for a race that cannot be tried.
pub fn untried(why: String) -> Confirmation {
    Confirmation { outcome: UNTRIED.to_owned(), detail: why, ..Confirmation::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_trace::meet::MeetSide;

    fn meet(outcome: MeetOutcome, role: u8, millis: u64) -> Meet {
        let side = MeetSide { pc: 1, address: 0x1000, size: 4, store: true, role, ..MeetSide::default() };
        Meet {
            outcome,
            pair: Some(0),
            held: side,
            other: MeetSide { role: 1 - role, cpu: 1, ..side },
            values: [Some(1), Some(2), Some(3)],
            spins: 1,
            nanos: millis * 1_000_000,
            came: [0; 2],
            arrivals: [10, 500],
        }
    }

    fn judged(meets: &[Meet]) -> Confirmation {
        let mut seen = Seen::default();
        seen.add(meets.iter(), &Ended { guest_seconds: 20.0, failed: None }, Scheduling::Wander);
        seen.confirmation()
    }

    #[test]
    fn a_run_that_fails_costs_no_outcome() {
        let failed = |why: &str| Ended { guest_seconds: 20.0, failed: Some(why.to_owned()) };
        let mut seen = Seen::default();
        seen.add([meet(MeetOutcome::Alone, 0, 500)].iter(), &failed("it hung"), Scheduling::Wander);
        assert!(seen.undecided());
        let detail = seen.confirmation().detail;
        assert!(detail.ends_with("in 1 run; a run did not complete: it hung"), "{detail}");
        seen.add([meet(MeetOutcome::Met, 0, 5)].iter(), &failed("it panicked"), Scheduling::Apart);
        let found = seen.confirmation();
        assert_eq!((found.outcome.as_str(), found.tries), (CONFIRMED, 2));
        assert!(found.detail.ends_with("; that run did not complete: it panicked"), "{}", found.detail);
    }

    #[test]
    fn a_meeting_confirms() {
        let meets =
            [meet(MeetOutcome::Alone, 0, 500), meet(MeetOutcome::Met, 0, 5), meet(MeetOutcome::Ran, 0, 6)];
        let found = judged(&meets);
        assert_eq!((found.outcome.as_str(), found.tries, found.meetings), (CONFIRMED, 2, 1));
        assert_eq!(found.values, [Some("0x1".into()), Some("0x2".into()), Some("0x3".into())]);
        assert_eq!(found.order, Some(ForcedOrder { held: RaceSide::Access, cpus: [0, 1] }));
        let swapped = judged(&[meet(MeetOutcome::Met, 1, 5)]);
        assert_eq!(swapped.order, Some(ForcedOrder { held: RaceSide::Other, cpus: [1, 0] }));
        assert_eq!(
            found.detail,
            "while a write of the 4 bytes at 0x1000 was held on CPU 0, CPU 1 came to write them; the value was 0x1 \
             before, 0x2 after the write, 0x3 after the write"
        );
    }

    #[test]
    fn who_never_comes_while_the_other_stands_cannot_run_then() {
        let alone: Vec<Meet> = vec![meet(MeetOutcome::Alone, 0, 500); 4];
        let totals = Meet { values: [Some(3), Some(1), None], ..meet(MeetOutcome::Totals, 0, 0) };
        let one = Meet { values: [Some(2), Some(2), None], ..totals };
        let found = judged(&[&alone[..], &[one]].concat());
        assert_eq!(found.outcome, NOT_REPRODUCED);
        assert_eq!(
            found.detail,
            "both accesses were made on CPU 1 only; they did not meet in 4 tries in 1 run"
        );
        assert_eq!(judged(&[&alone[..], &[totals]].concat()).outcome, IMPOSSIBLE);
        // The other side occurred, but at other bytes.
        let came = Meet { came: [0, 3], ..alone[0] };
        assert_eq!(judged(&[&alone[..], &[came, totals]].concat()).outcome, NOT_REPRODUCED);
        // The other side is so rare that nothing follows.
        let seldom = Meet { arrivals: [10, 2], ..totals };
        assert_eq!(judged(&[&alone[..], &[seldom]].concat()).outcome, NOT_REPRODUCED);
        // The sides alternate, once a load.
        let turns = Meet { arrivals: [18, 18], ..totals };
        let alone: Vec<Meet> = vec![meet(MeetOutcome::Alone, 0, 500); 36];
        assert_eq!(judged(&[&alone[..], &[turns]].concat()).outcome, NOT_REPRODUCED);
        let never = judged(&[Meet { arrivals: [10, 0], ..totals }]);
        assert_eq!(
            (never.outcome.as_str(), never.detail.as_str()),
            (NOT_REPRODUCED, "the other access was not made in 1 run")
        );
    }
}
