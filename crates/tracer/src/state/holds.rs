//! Holds accesses to see which access arrives meanwhile. All vCPUs share the state.
//!
//! One access is held at a time. Its vCPU returns to its instruction again and again, so that interrupts
//! and other vCPUs can run. The hold ends when the other side of the pair reaches the same bytes, or at
//! the time limit.
//!
//! After a meeting the arriving side runs first, and then the held one. The record has the values of the
//! bytes before, between and after.

mod approaches;
mod arrival;
mod stalls;

pub use arrival::{Arrival, Awaiting, Roles, Side, Step, Verdict};
pub use stalls::Thread;

use approaches::Approaches;
use guardrail_trace::config::{HoldPoint, Holds as Config, Samples};
use guardrail_trace::meet::{Meet, MeetOutcome, MeetSide};
use rustc_hash::{FxHashMap, FxHashSet};
use stalls::Stalls;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Most pairs that are kept.
const MAX_PAIRS: usize = 1 << 12;
/// Number of a side's tries with the longest hold; up to `LONG_TRIES` the hold is long. Instructions
/// that rarely run get only these tries.
const FIRST_TRIES: u32 = 2;
const LONG_TRIES: u32 = 6;
/// How long a released side may take to run its instruction, and how long a held context may be away.
const GRACE: Duration = Duration::from_millis(1000);

/// The accesses that can be held, and the current hold.
pub struct Holds {
    config: Config,
    /// Roles of the instructions in loaded modules, by guest virtual address.
    roles: RwLock<FxHashMap<u64, Roles>>,
    /// Sides that come near where a function begins, by its guest virtual address.
    near: RwLock<FxHashMap<u64, Roles>>,
    state: Mutex<State>,
    stalls: Mutex<Stalls>,
    /// True while a sampled access is held. Every access of the driver is then compared with it.
    watching: AtomicBool,
}

/// The current hold, and statistics of the pairs.
#[derive(Debug, Default)]
pub struct State {
    held: Option<Held>,
    pairs: FxHashMap<u32, Pair>,
    /// Sides that are seen to come near.
    announced: FxHashSet<(u32, u8)>,
    sampled: Option<Instant>,
}

#[derive(Debug)]
struct Held {
    pair: Option<u32>,
    side: MeetSide,
    locked: bool,
    other: Option<MeetSide>,
    since: Instant,
    limit: Duration,
    spins: u64,
    came: u64,
    phase: Phase,
    values: [Option<u64>; 3],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// For the other side to arrive.
    Waiting,
    /// For the other side to run. The time is when it was released.
    Met(Instant),
    /// For the held side to run. The time is when it was released.
    Released(Instant),
}

#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    tries: [u32; 2],
    arrivals: [u64; 2],
    cpus: [u64; 2],
    came: [u64; 2],
    held: Duration,
    rest: [Option<Instant>; 2],
    met: bool,
    approaches: Approaches,
}

impl Holds {
    /// Starts without a hold.
    pub fn new(config: &Config) -> Holds {
        Holds {
            config: config.clone(),
            roles: RwLock::default(),
            near: RwLock::default(),
            state: Mutex::default(),
            stalls: Mutex::default(),
            watching: AtomicBool::new(false),
        }
    }

    /// Whether any access may be held in this run.
    pub fn wanted(&self) -> bool {
        !self.config.points.is_empty() || self.config.samples.is_some()
    }

    /// Whether threads are delayed in this run.
    pub fn stalling(&self) -> bool {
        self.config.stall_millis > 0
    }

    /// Whether a thread that returns from the kernel stays at its instruction for now.
    pub fn stays(&self, thread: Thread, now: Instant) -> bool {
        let held = self.state().held.is_some();
        let limit = Duration::from_millis(self.config.stall_millis);
        self.stalls.lock().unwrap_or_else(PoisonError::into_inner).stays(thread, limit, held, now)
    }

    /// Whether a sampled access is held.
    #[inline]
    pub fn watching(&self) -> bool {
        self.watching.load(Relaxed)
    }

    /// Finds the points in a module that was laid out. `symbols` has the values of its symbols, in the
    /// file's order.
    pub fn resolve(&self, module: &[u8], symbols: &[u64]) {
        let mut known = self.roles.write().unwrap_or_else(PoisonError::into_inner);
        let mut near = self.near.write().unwrap_or_else(PoisonError::into_inner);
        let of_module = |point: &&HoldPoint| point.module.as_bytes() == module;
        for point in self.config.points.iter().filter(of_module) {
            let Some(symbol) = symbols.get(point.symbol as usize) else { continue };
            let places = if point.approach { &mut *near } else { &mut *known };
            if point.approach {
                self.state().announced.insert((point.pair, point.role & 1));
            }
            places.entry(symbol.wrapping_add(point.offset)).or_default().push((point.pair, point.role & 1));
        }
    }

    /// Forgets the points in a range that the kernel freed.
    pub fn forget(&self, from: u64, to: u64) {
        let mut known = self.roles.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|at, _| !(from..to).contains(at));
        let mut near = self.near.write().unwrap_or_else(PoisonError::into_inner);
        near.retain(|at, _| !(from..to).contains(at));
    }

    /// The sides that come near where a function begins at an address.
    pub fn approaches(&self, address: u64) -> Roles {
        let near = self.near.read().unwrap_or_else(PoisonError::into_inner);
        near.get(&address).cloned().unwrap_or_default()
    }

    /// Notes that sides come near.
    pub fn approach(&self, roles: &Roles, now: Instant) {
        let mut state = self.state();
        for &(pair, role) in roles {
            if state.pairs.len() < MAX_PAIRS || state.pairs.contains_key(&pair) {
                state.pairs.entry(pair).or_default().approaches.come(role, now);
            }
        }
    }

    /// The roles of the instruction at an address, and whether it is picked at random.
    pub fn at(&self, address: u64) -> (Roles, bool) {
        let known = self.roles.read().unwrap_or_else(PoisonError::into_inner);
        let roles = known.get(&address).cloned().unwrap_or_default();
        let picked =
            self.config.samples.as_ref().is_some_and(|s| {
                mix(s.seed ^ mix(address & 0xfff)).is_multiple_of(u64::from(s.one_in.max(1)))
            });
        (roles, picked)
    }

    /// Whether a sampled access is held, or may begin to be held.
    pub fn due(&self, now: Instant) -> bool {
        let Some(samples) = &self.config.samples else { return false };
        let state = self.state();
        state.held.is_some() || state.pause_over(samples, now)
    }

    /// Locks the state, for one step of one vCPU.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles the arrival of a vCPU at an instruction. `read` returns the bytes at an address now.
    pub fn arrive(&self, arrival: &Arrival<'_>, read: impl FnMut(u64, u64) -> Option<u64>) -> Step {
        let mut state = self.state();
        let step = state.arrive(&self.config, arrival, read);
        let watch = |held: &Held| held.pair.is_none() && held.phase == Phase::Waiting;
        self.watching.store(state.held.as_ref().is_some_and(watch), Relaxed);
        step
    }

    /// Notes that a side has run its instruction.
    pub fn ran(&self, side: Side, now: Instant, read: impl FnMut(u64, u64) -> Option<u64>) -> Option<Meet> {
        self.state().ran(side, now, read)
    }

    /// Compares an access of the driver with the sampled one that is held.
    pub fn accessed(
        &self,
        side: &MeetSide,
        now: Instant,
        read: impl FnMut(u64, u64) -> Option<u64>,
    ) -> Option<Meet> {
        let mut state = self.state();
        let meet = state.accessed(side, now, read);
        if meet.is_some() {
            self.watching.store(false, Relaxed);
        }
        meet
    }

    /// Makes the totals record of every pair, at the end of the run.
    pub fn totals(&self) -> Vec<Meet> {
        let state = self.state();
        let mut pairs: Vec<_> = state.pairs.iter().collect();
        pairs.sort_unstable_by_key(|pair| pair.0);
        let total = |(&pair, known): (&u32, &Pair)| Meet {
            outcome: MeetOutcome::Totals,
            pair: Some(pair),
            held: MeetSide::default(),
            other: MeetSide::default(),
            values: [Some(known.cpus[0]), Some(known.cpus[1]), None],
            spins: 0,
            nanos: known.held.as_nanos() as u64,
            came: known.came,
            arrivals: known.arrivals,
        };
        pairs.into_iter().map(total).collect()
    }
}

impl State {
    fn arrive(
        &mut self,
        config: &Config,
        arrival: &Arrival<'_>,
        mut read: impl FnMut(u64, u64) -> Option<u64>,
    ) -> Step {
        let now = arrival.now;
        let mut meet = None;
        match &self.held {
            Some(held) if held.is(&arrival.side) => return self.again(config, arrival.side.cpu, now, read),
            Some(held) if held.lost(now) => meet = self.finish(now, MeetOutcome::Alone),
            _ => {}
        }
        for &(pair, role) in arrival.roles {
            if self.pairs.len() < MAX_PAIRS || self.pairs.contains_key(&pair) {
                let known = self.pairs.entry(pair).or_default();
                known.arrivals[usize::from(role)] += 1;
                known.cpus[usize::from(role)] |= 1 << (arrival.side.cpu & 63);
                known.approaches.meet(role, arrival.side.preempt_count);
            }
        }
        if let Some(held) = &mut self.held {
            let role = arrival.roles.iter().find(|r| Some(r.0) == held.pair && r.1 != held.side.role);
            let (Some(&(_, role)), Phase::Waiting) = (role, held.phase) else {
                return (Verdict::Go.into(), meet);
            };
            held.came += 1;
            if config.held_apart.is_some() && held.side.cpu == arrival.side.cpu {
                return (Verdict::Go.into(), meet);
            }
            let other = MeetSide { role, ..arrival.side };
            let (from, len) = held.side.overlap(&other);
            if len == 0 || !(held.side.store || other.store) || held.locked && arrival.locked {
                return (Verdict::Go.into(), meet);
            }
            held.values[0] = read(from, len.min(8));
            held.other = Some(other);
            held.phase = Phase::Met(now);
            if let Some(known) = held.pair.and_then(|pair| self.pairs.get_mut(&pair)) {
                known.met = true;
            }
            return ((Verdict::Go, Some(Side::Other)), self.meet(now, MeetOutcome::Met));
        }
        if arrival.holdable && self.hold(config, arrival) {
            if let Some(held) = &mut self.held {
                held.values[0] = read(held.side.address, u64::from(held.side.size).min(8));
            }
            return (Verdict::Back.into(), meet);
        }
        (Verdict::Go.into(), meet)
    }

    /// Begins a hold, if a pair of the instruction, or sampling, still wants a try.
    fn hold(&mut self, config: &Config, arrival: &Arrival<'_>) -> bool {
        let now = arrival.now;
        let wants = |&&(pair, role): &&(u32, u8)| {
            self.pairs.get(&pair).is_some_and(|known| {
                if config.once && known.met || config.held_apart.is_some_and(|held| held != role) {
                    return false;
                }
                let (most, tries) = (config.tries.div_ceil(2), known.tries[usize::from(role)]);
                // Some tries are kept for the times when the other side is near.
                let rare = self.announced.contains(&(pair, 1 - role)) && known.approaches.are_rare(1 - role);
                let free = if rare { most.div_ceil(2) } else { most };
                let rests = known.rest[usize::from(role)].is_some_and(|until| now < until);
                tries < free && !rests || tries < most && known.approaches.invite(role, arrival, now)
            })
        };
        let tries = |&&(pair, _): &&(u32, u8)| self.pairs.get(&pair).map_or(0, |p| p.tries[0] + p.tries[1]);
        let chosen = arrival.roles.iter().filter(wants).min_by_key(tries).copied();
        let (pair, role, limit) = match (chosen, &config.samples) {
            (Some((pair, role)), _) => {
                let known = self.pairs.entry(pair).or_default();
                let invited = known.approaches.take(role, arrival, now);
                let tries = &mut known.tries[usize::from(role)];
                *tries += 1;
                let millis = match *tries {
                    n if n <= FIRST_TRIES || invited => config.first_millis,
                    n if n <= LONG_TRIES => config.long_millis,
                    _ => config.short_millis,
                };
                (Some(pair), role, millis)
            }
            (None, Some(samples)) if arrival.sampled => {
                if !self.pause_over(samples, now) {
                    return false;
                }
                (None, 0, samples.millis)
            }
            _ => return false,
        };
        self.held = Some(Held {
            pair,
            side: MeetSide { role, ..arrival.side },
            locked: arrival.locked,
            other: None,
            since: now,
            limit: Duration::from_millis(limit),
            spins: 0,
            came: 0,
            phase: Phase::Waiting,
            values: [None; 3],
        });
        true
    }

    fn pause_over(&self, samples: &Samples, now: Instant) -> bool {
        let pause = Duration::from_millis(samples.pause_millis);
        self.sampled.is_none_or(|last| now.saturating_duration_since(last) >= pause)
    }

    /// Handles the held vCPU's return to its instruction.
    fn again(
        &mut self,
        config: &Config,
        cpu: u8,
        now: Instant,
        mut read: impl FnMut(u64, u64) -> Option<u64>,
    ) -> Step {
        let Some(held) = &mut self.held else { return (Verdict::Go.into(), None) };
        // The thread may have moved to another CPU.
        held.side.cpu = cpu;
        let over = now.saturating_duration_since(held.since) >= held.limit || held.spins >= config.spins;
        held.spins += 1;
        match held.phase {
            Phase::Waiting if over => {
                let mut outcome = MeetOutcome::Alone;
                if held.pair.is_none() {
                    held.values[1] = read(held.side.address, u64::from(held.side.size).min(8));
                    if held.values[0].is_some()
                        && held.values[1].is_some()
                        && held.values[0] != held.values[1]
                    {
                        outcome = MeetOutcome::Changed;
                    }
                }
                (Verdict::Go.into(), self.finish(now, outcome))
            }
            Phase::Waiting => (Verdict::Back.into(), None),
            // The other side goes on. The limit keeps the held context from counting as lost.
            Phase::Released(since) if now.saturating_duration_since(since) < linger(config) => {
                (Verdict::Back.into(), None)
            }
            // After this time the other side has run, or will not run.
            Phase::Met(since) if now.saturating_duration_since(since) < GRACE / 10 => {
                (Verdict::Back.into(), None)
            }
            Phase::Met(_) | Phase::Released(_) => {
                held.phase = Phase::Released(now);
                ((Verdict::Go, Some(Side::Held)), None)
            }
        }
    }

    fn ran(
        &mut self,
        side: Side,
        now: Instant,
        mut read: impl FnMut(u64, u64) -> Option<u64>,
    ) -> Option<Meet> {
        let held = self.held.as_mut()?;
        let (from, len) = held.side.overlap(held.other.as_ref()?);
        let value = read(from, len.min(8));
        match (side, held.phase) {
            (Side::Other, Phase::Met(_)) => {
                held.values[1] = value;
                held.phase = Phase::Released(now);
                None
            }
            (Side::Held, Phase::Released(_)) => {
                held.values[2] = value;
                // Without the middle value the arriving side did not run first.
                let whole = held.values[1].is_some();
                self.finish(now, if whole { MeetOutcome::Ran } else { MeetOutcome::Met })
            }
            _ => None,
        }
    }

    fn accessed(
        &mut self,
        side: &MeetSide,
        now: Instant,
        mut read: impl FnMut(u64, u64) -> Option<u64>,
    ) -> Option<Meet> {
        let held = self.held.as_mut()?;
        if held.pair.is_some() || held.phase != Phase::Waiting || !(held.side.store || side.store) {
            return None;
        }
        if held.side.overlap(side).1 == 0 {
            return None;
        }
        held.other = Some(*side);
        held.values[1] = read(held.side.address, u64::from(held.side.size).min(8));
        self.finish(now, MeetOutcome::Met)
    }

    /// Ends the hold and returns its record.
    fn finish(&mut self, now: Instant, outcome: MeetOutcome) -> Option<Meet> {
        let meet = self.meet(now, outcome);
        let held = self.held.take()?;
        let spent = now.saturating_duration_since(held.since);
        match held.pair.and_then(|pair| self.pairs.get_mut(&pair)) {
            Some(pair) => {
                let role = usize::from(held.side.role);
                pair.came[1 - role] += held.came;
                pair.held += spent;
                // The guest gets time to continue. Rare arrivals are not lost meanwhile, because the
                // other side has a rest time of its own.
                pair.rest[role] = Some(now + spent.min(Duration::from_millis(200)));
            }
            None => self.sampled = Some(now),
        }
        meet
    }

    fn meet(&self, now: Instant, outcome: MeetOutcome) -> Option<Meet> {
        let held = self.held.as_ref()?;
        let role = usize::from(held.side.role);
        let mut came = [0; 2];
        came[1 - role] = held.came;
        Some(Meet {
            outcome,
            pair: held.pair,
            held: held.side,
            other: held.other.unwrap_or_default(),
            values: held.values,
            spins: held.spins,
            nanos: now.saturating_duration_since(held.since).as_nanos() as u64,
            came,
            arrivals: held.pair.and_then(|pair| self.pairs.get(&pair)).map_or([0; 2], |pair| pair.arrivals),
        })
    }
}

impl Held {
    /// Whether the arrival is that of the held context.
    fn is(&self, side: &MeetSide) -> bool {
        (self.side.pc, self.side.rsp, self.side.task) == (side.pc, side.rsp, side.task)
    }

    /// Whether the held context has not returned to its instruction, or did not run it, for too long.
    fn lost(&self, now: Instant) -> bool {
        let since = match self.phase {
            Phase::Waiting => self.since + self.limit,
            Phase::Met(since) | Phase::Released(since) => since,
        };
        now.saturating_duration_since(since) > GRACE
    }
}

/// How long the held side stays after the other one has made its access.
fn linger(config: &Config) -> Duration {
    Duration::from_millis(config.linger_millis).min(GRACE / 2)
}

/// Spreads the bits of a number.
fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests;
