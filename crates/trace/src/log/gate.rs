//! The gate's part of the log: how far the analysis has checked, and whether the driver may still reach
//! the device.
//!
//! The tracer publishes the segment that ends with a device access, and waits until a later ticket is
//! checked. The analysis advances the checked ticket after each segment. If the policy contains a
//! finding in a segment, the analysis closes the gate before it advances.
//!
//! A closed gate never opens again. Every failure closes it:
//! - the log fails;
//! - an access reaches the time limit;
//! - the supervisor sees the analysis die.

use super::futex;
use super::layout::{ATTENTION_FAILED, GateCountWords, Mapping, SPACES};
use super::{Log, MergedReader};
use crate::pci::PciAddress;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::time::{Duration, Instant, SystemTime};

/// How often a waiter looks before it reads the clock.
const LOOKS: u32 = 64;
/// The longest sleep of a waiter. A missed wake-up costs no more than this.
const SLICE: Duration = Duration::from_millis(2);

/// The address spaces of device accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Space {
    /// Device registers mapped into memory.
    Memory,
    /// I/O ports, accessed by `in` and `out`.
    Port,
    /// PCI configuration space.
    Config,
}

/// Why a gate was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// The policy contains a finding.
    #[error("a finding is contained")]
    Finding,
    /// An access was held for the whole time limit.
    #[error("an access was held for the longest time that is allowed, and was not checked by then")]
    TimeOut,
    /// The log has failed, or no analysis checks it anymore.
    #[error("the log is no longer checked")]
    Unchecked,
    /// A device access reached the device without being held.
    #[error("an access reached the device without being held")]
    Ungated,
}

impl Closed {
    fn code(self) -> u32 {
        match self {
            Closed::Finding => 1,
            Closed::TimeOut => 2,
            Closed::Unchecked => 3,
            Closed::Ungated => 4,
        }
    }

    fn from_code(code: u32) -> Option<Closed> {
        match code {
            0 => None,
            1 => Some(Closed::Finding),
            2 => Some(Closed::TimeOut),
            4 => Some(Closed::Ungated),
            // Another process may have written any value; a nonzero one closes the gate.
            _ => Some(Closed::Unchecked),
        }
    }
}

/// What a waiter at the gate does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The segment is checked: the access may run.
    Pass,
    /// The gate is closed: the access must not reach the device.
    Closed(Closed),
    /// The segment is not checked yet.
    Wait,
}

/// Counts of device accesses in one address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SpaceCounts {
    /// Accesses that were held until they were checked, and then ran.
    pub held: u64,
    /// Accesses that a closed gate kept from the device.
    pub dropped: u64,
    /// Accesses that reached the device without being held. Any value but 0 is a fault of Guardrail.
    pub ungated: u64,
    /// Total time for which accesses were held, in nanoseconds.
    pub wait_nanos: u64,
    /// The longest hold of one access, in nanoseconds.
    pub longest_nanos: u64,
}

/// Counts of all device accesses at the gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GateStats {
    /// Accesses to device registers mapped into memory.
    pub memory: SpaceCounts,
    /// Accesses to I/O ports.
    pub port: SpaceCounts,
    /// Accesses to PCI configuration space.
    pub config: SpaceCounts,
    /// Writes to memory among those held for which their vCPU did not wait.
    pub posted: u64,
}

impl GateStats {
    /// The counts of the three address spaces.
    pub fn spaces(&self) -> [&SpaceCounts; SPACES] {
        [&self.memory, &self.port, &self.config]
    }

    /// Accesses in all spaces that were held and then ran.
    pub fn held(&self) -> u64 {
        self.spaces().iter().map(|space| space.held).sum()
    }

    /// Accesses in all spaces that a closed gate kept from the device.
    pub fn dropped(&self) -> u64 {
        self.spaces().iter().map(|space| space.dropped).sum()
    }

    /// Accesses in all spaces that reached a device without being held.
    pub fn ungated(&self) -> u64 {
        self.spaces().iter().map(|space| space.ungated).sum()
    }
}

impl Log {
    /// Closes the gate for good. A later reason does not replace the first one.
    pub fn close_gate(&self, why: Closed) {
        self.map.close_gate(why);
    }

    /// Why the gate is closed, or `None` while it is open.
    pub fn gate_closed(&self) -> Option<Closed> {
        self.map.gate_closed()
    }

    /// Adds a device to the gated ones. Returns false where there are too many.
    pub fn add_gated(&self, device: PciAddress) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX).max(1);
        let _ = self.map.header().gate.since.compare_exchange(0, now, AcqRel, Acquire);
        let word = 1 << 16 | u32::from(device.id());
        self.map.header().gate.devices.iter().any(|slot| {
            match slot.compare_exchange(0, word, AcqRel, Acquire) {
                Ok(_) => true,
                Err(there) => there == word,
            }
        })
    }

    /// Since when accesses are held, in microseconds since the epoch: just before the kernel binds the
    /// first device.
    pub fn gated_since(&self) -> Option<u64> {
        Some(self.map.header().gate.since.load(Acquire)).filter(|&since| since > 0)
    }

    /// The devices whose accesses are held.
    pub fn gated(&self) -> Vec<PciAddress> {
        let words = self.map.header().gate.devices.iter().map(|slot| slot.load(Acquire));
        words.filter(|&word| word != 0).map(|word| PciAddress::from_id(word as u16)).collect()
    }

    /// Whether every segment up to and including this ticket is checked.
    #[inline]
    pub fn admits(&self, ticket: u64) -> Admission {
        self.map.admits(ticket)
    }

    /// Waits until the segment with this ticket is checked, the gate is closed, or `patience` is over.
    /// During the first `spin` of that time the waiter keeps its processor.
    pub fn wait_checked(&self, ticket: u64, spin: Duration, patience: Duration) -> Admission {
        let begun = Instant::now();
        loop {
            for _ in 0..LOOKS {
                match self.map.admits(ticket) {
                    Admission::Wait => std::hint::spin_loop(),
                    admission => return admission,
                }
            }
            let passed = begun.elapsed();
            if passed >= patience {
                return Admission::Wait;
            }
            if passed >= spin {
                self.map.sleep_at_gate(ticket, SLICE.min(patience - passed));
            }
        }
    }

    /// The ticket that the next segment takes.
    pub fn next_ticket(&self) -> u64 {
        self.map.header().next_ticket.load(SeqCst)
    }

    /// Counts `count` accesses that were held for `nanos` nanoseconds in total and then ran.
    pub fn count_held(&self, space: Space, count: u64, nanos: u64) {
        let counts = self.map.gate_counts(space);
        counts.held.fetch_add(count, Relaxed);
        counts.wait_nanos.fetch_add(nanos, Relaxed);
        counts.longest_nanos.fetch_max(nanos, Relaxed);
    }

    /// Adds to the time for which vCPUs waited.
    pub fn count_waited(&self, nanos: u64) {
        self.map.gate_counts(Space::Memory).wait_nanos.fetch_add(nanos, Relaxed);
    }

    /// Counts a write that was held, and then arrived, while its vCPU went on.
    pub fn count_posted(&self) {
        self.map.header().gate.posted.fetch_add(1, Relaxed);
        self.map.gate_counts(Space::Memory).held.fetch_add(1, Relaxed);
    }

    /// Counts `count` accesses that a closed gate kept from the device.
    pub fn count_dropped(&self, space: Space, count: u64) {
        self.map.gate_counts(space).dropped.fetch_add(count, Relaxed);
    }

    /// Counts an access that reached the device without being held.
    pub fn count_ungated(&self, space: Space) {
        self.map.gate_counts(space).ungated.fetch_add(1, Relaxed);
    }

    /// The counts so far, for each address space.
    pub fn gate_stats(&self) -> GateStats {
        let of = |space| {
            let counts = self.map.gate_counts(space);
            SpaceCounts {
                held: counts.held.load(Relaxed),
                dropped: counts.dropped.load(Relaxed),
                ungated: counts.ungated.load(Relaxed),
                wait_nanos: counts.wait_nanos.load(Relaxed),
                longest_nanos: counts.longest_nanos.load(Relaxed),
            }
        };
        let posted = self.map.header().gate.posted.load(Relaxed);
        GateStats { memory: of(Space::Memory), port: of(Space::Port), config: of(Space::Config), posted }
    }
}

impl MergedReader {
    /// Publishes that the analysis has checked every segment returned so far.
    #[inline]
    pub fn publish_checked(&self) {
        let words = &self.map().header().gate;
        let next = self.next_ticket();
        words.checked.store(next, SeqCst);
        if words.wanted.load(SeqCst) < next {
            words.wanted.store(u64::MAX, SeqCst);
            words.sequence.fetch_add(1, SeqCst);
            futex::wake_all(&words.sequence);
        }
    }
}

impl Mapping {
    fn gate_counts(&self, space: Space) -> &GateCountWords {
        &self.header().gate.counts[match space {
            Space::Memory => 0,
            Space::Port => 1,
            Space::Config => 2,
        }]
    }

    fn close_gate(&self, why: Closed) {
        let words = &self.header().gate;
        let _ = words.closed.compare_exchange(0, why.code(), AcqRel, Acquire);
        words.sequence.fetch_add(1, SeqCst);
        futex::wake_all(&words.sequence);
    }

    fn gate_closed(&self) -> Option<Closed> {
        if self.header().attention.load(Relaxed) & ATTENTION_FAILED != 0 {
            self.close_gate(Closed::Unchecked);
        }
        Closed::from_code(self.header().gate.closed.load(Acquire))
    }

    #[inline]
    fn admits(&self, ticket: u64) -> Admission {
        // The analysis closes the gate before it advances the checked ticket. So this reads the ticket
        // first, then the closed word.
        let checked = self.header().gate.checked.load(Acquire);
        match self.gate_closed() {
            Some(why) => Admission::Closed(why),
            None if checked > ticket => Admission::Pass,
            None => Admission::Wait,
        }
    }

    #[cold]
    fn sleep_at_gate(&self, ticket: u64, limit: Duration) {
        let words = &self.header().gate;
        // This is read first, because a checker that clears `wanted` changes it afterwards.
        let sequence = words.sequence.load(SeqCst);
        words.wanted.fetch_min(ticket, SeqCst);
        if self.admits(ticket) == Admission::Wait {
            futex::wait(&words.sequence, sequence, limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{FailReason, LogOptions, Next};

    fn log(folder: &tempfile::TempDir) -> Log {
        let options = LogOptions { words_per_ring: 1 << 12, ..LogOptions::new(1) };
        Log::create_with(folder.path().join("log"), &options).unwrap()
    }

    fn soon(log: &Log, ticket: u64) -> Admission {
        log.wait_checked(ticket, Duration::ZERO, Duration::from_millis(5))
    }

    #[test]
    fn an_access_waits_until_its_segment_is_checked() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(&folder);
        let mut writer = log.writer(0).unwrap();
        let mut reader = MergedReader::attach(&log).unwrap();
        writer.begin();
        writer.push(1);
        writer.close();
        let ticket = writer.ticket();
        assert_eq!(soon(&log, ticket), Admission::Wait);
        assert!(matches!(reader.next(Duration::from_secs(1)).unwrap(), Next::Segment(_)));
        assert_eq!(soon(&log, ticket), Admission::Wait);
        let waiter = std::thread::spawn({
            let log = log.clone();
            move || log.wait_checked(ticket, Duration::ZERO, Duration::from_secs(10))
        });
        std::thread::sleep(Duration::from_millis(10));
        reader.publish_checked();
        assert_eq!(waiter.join().unwrap(), Admission::Pass);
        assert_eq!(soon(&log, ticket + 1), Admission::Wait);
    }

    #[test]
    fn a_sleeper_is_woken_for_its_own_ticket_alone() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(&folder);
        let mut writer = log.writer(0).unwrap();
        let mut reader = MergedReader::attach(&log).unwrap();
        for word in 1..=8 {
            writer.begin();
            writer.push(word);
            writer.close();
        }
        let words = &log.map.header().gate;
        words.wanted.store(u64::MAX, SeqCst);
        let last = writer.ticket();
        let waiter = std::thread::spawn({
            let log = log.clone();
            move || log.wait_checked(last, Duration::ZERO, Duration::from_secs(10))
        });
        while words.wanted.load(SeqCst) != last {
            std::thread::yield_now();
        }
        for _ in 0..8 {
            assert_eq!(words.sequence.load(SeqCst), 0);
            assert!(matches!(reader.next(Duration::from_secs(1)).unwrap(), Next::Segment(_)));
            reader.publish_checked();
        }
        assert_eq!(waiter.join().unwrap(), Admission::Pass);
        assert_eq!(words.sequence.load(SeqCst), 1);
    }

    #[test]
    fn a_closed_gate_stays_closed_and_keeps_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(&folder);
        assert_eq!(log.gate_closed(), None);
        log.close_gate(Closed::Finding);
        log.close_gate(Closed::TimeOut);
        assert_eq!(soon(&log, 0), Admission::Closed(Closed::Finding));
        let reader = MergedReader::attach(&log).unwrap();
        reader.publish_checked();
        assert_eq!(soon(&log, 0), Admission::Closed(Closed::Finding));
    }

    #[test]
    fn a_failed_log_closes_the_gate_even_for_what_was_checked() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(&folder);
        log.fail(FailReason::ReaderDied);
        assert_eq!(soon(&log, 0), Admission::Closed(Closed::Unchecked));
    }

    #[test]
    fn devices_at_stake_are_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(&folder);
        let place = |devfn| PciAddress { bus: 0, devfn };
        assert!(log.add_gated(place(0)) && log.add_gated(place(0x18)) && log.add_gated(place(0)));
        assert_eq!(log.gated(), [place(0), place(0x18)]);
        assert!((0..14).all(|i| log.add_gated(place(0x20 + i))));
        assert!(!log.add_gated(place(0x40)));
    }

    #[test]
    fn accesses_are_counted_by_space() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(&folder);
        log.count_held(Space::Port, 1, 10);
        log.count_held(Space::Port, 1, 30);
        log.count_held(Space::Config, 1, 1);
        log.count_dropped(Space::Memory, 1);
        log.count_ungated(Space::Memory);
        let stats = log.gate_stats();
        assert_eq!((stats.held(), stats.dropped(), stats.ungated()), (3, 1, 1));
        assert_eq!((stats.port.wait_nanos, stats.port.longest_nanos), (40, 30));
    }
}
