//! When the device gives data: transfers that wait, endpoints that give by themselves, and the bound on both.

use crate::error::Error;
use crate::plan::Pace;
use std::collections::VecDeque;
use std::time::Duration;

/// A bulk transfer to the host that waits for data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    pub id: u64,
    pub endpoint: u8,
    pub stream: u32,
    /// Bytes that the host asks for.
    pub length: usize,
    pub due: Duration,
}

/// An endpoint that gives data without being asked for each packet.
#[derive(Clone, Debug)]
struct Source {
    endpoint: u8,
    isochronous: bool,
    due: Duration,
}

/// What is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    Transfer(Pending),
    /// A packet of this interrupt endpoint.
    Interrupt(u8),
    /// A packet of this isochronous endpoint.
    Iso(u8),
}

/// Most transfers that wait at once. A controller of QEMU has far fewer under way.
const MOST_PENDING: usize = 4096;

/// The time between two transfers of one endpoint, and between two packets of one that is not asked.
const BULK_GAP: Duration = Duration::from_millis(10);
const INTERRUPT_GAP: Duration = Duration::from_millis(20);
const ISO_GAP: Duration = Duration::from_millis(4);

/// The same, where nothing came from the host.
const SILENCE: Duration = Duration::from_millis(500);

/// The time that one packet costs of all that are given: 1,000 packets a second.
const COST: Duration = Duration::from_millis(1);

/// How far the device may be ahead of that rate.
const BURST: Duration = Duration::from_millis(32);

/// Most answers that are given at once for what came from the host.
const MOST_CREDIT: u32 = 16;

#[derive(Debug)]
pub(super) struct Flow {
    pace: Pace,
    pending: VecDeque<Pending>,
    sources: Vec<Source>,
    /// When each endpoint has given last.
    last: Vec<(u8, Duration)>,
    /// Transfers that are answered at once, since something came from the host.
    credit: u32,
    /// The time up to which packets are paid for.
    paid: Duration,
}

impl Flow {
    pub fn new(pace: Pace) -> Flow {
        Flow {
            pace,
            pending: VecDeque::new(),
            sources: Vec::new(),
            last: Vec::new(),
            credit: 0,
            paid: Duration::ZERO,
        }
    }

    /// Something came from the host: a transfer that waits, or the next one, is answered at once.
    pub fn encourage(&mut self) {
        self.credit = (self.credit + 1).min(MOST_CREDIT);
    }

    /// Adds a transfer that waits.
    pub fn want(&mut self, mut one: Pending, now: Duration) -> Result<(), Error> {
        if self.pending.len() >= MOST_PENDING {
            return Err(Error::protocol(format!("more than {MOST_PENDING} bulk transfers wait at once")));
        }
        let gap = if self.pace == Pace::Answering { SILENCE } else { BULK_GAP };
        let waiting =
            self.pending.iter().filter(|other| other.endpoint == one.endpoint).map(|other| other.due);
        let given = self.last.iter().filter(|(endpoint, _)| *endpoint == one.endpoint).map(|(_, at)| *at);
        one.due = waiting.chain(given).max().map_or(now, |before| before.max(now)) + gap;
        self.pending.push_back(one);
        Ok(())
    }

    /// Lets an endpoint give packets by itself, from now on.
    pub fn start(&mut self, endpoint: u8, isochronous: bool, now: Duration) {
        self.stop(endpoint);
        self.sources.push(Source { endpoint, isochronous, due: now + gap(self.pace, isochronous) });
    }

    pub fn stop(&mut self, endpoint: u8) {
        self.sources.retain(|one| one.endpoint != endpoint);
    }

    /// Takes a waiting transfer out.
    pub fn cancel(&mut self, id: u64) -> Option<Pending> {
        let place = self.pending.iter().position(|one| one.id == id)?;
        self.pending.remove(place)
    }

    /// Ends all of these endpoints; gives what waited.
    pub fn leave(&mut self, endpoints: &[u8]) -> Vec<Pending> {
        self.sources.retain(|one| !endpoints.contains(&one.endpoint));
        let (left, rest) = self.pending.drain(..).partition(|one| endpoints.contains(&one.endpoint));
        self.pending = rest;
        left.into()
    }

    /// Ends all; gives what waited.
    pub fn clear(&mut self) -> Vec<Pending> {
        self.sources.clear();
        self.credit = 0;
        std::mem::take(&mut self.pending).into()
    }

    /// The next that is due at `now`, if the rate allows it.
    pub fn next(&mut self, now: Duration) -> Option<Due> {
        if self.paid > now + BURST {
            return None;
        }
        let due = self.take(now)?;
        self.paid = self.paid.max(now) + COST;
        Some(due)
    }

    fn take(&mut self, now: Duration) -> Option<Due> {
        let source = self.sources.iter_mut().filter(|one| one.due <= now).min_by_key(|one| one.due);
        let ready =
            self.pending.iter().enumerate().min_by_key(|(_, one)| one.due).map(|(at, one)| (at, one.due));
        if let Some((at, due)) = ready {
            let paid = self.credit > 0;
            // What waits longest goes first.
            if paid || (due <= now && source.as_ref().is_none_or(|source| due <= source.due)) {
                // Of transfers that are answered at once, the oldest is.
                let at = if paid { 0 } else { at };
                self.credit = self.credit.saturating_sub(1);
                let one = self.pending.remove(at)?;
                self.last.retain(|(endpoint, _)| *endpoint != one.endpoint);
                self.last.push((one.endpoint, now));
                return Some(Due::Transfer(one));
            }
        }
        let source = source?;
        let (endpoint, isochronous) = (source.endpoint, source.isochronous);
        let gap = gap(self.pace, isochronous);
        // A device that was late does not catch up.
        source.due = (source.due + gap).max(now);
        Some(if isochronous { Due::Iso(endpoint) } else { Due::Interrupt(endpoint) })
    }

    /// How long after `now` something is due.
    pub fn wait(&self, now: Duration) -> Option<Duration> {
        let pending = self.pending.iter().map(|one| if self.credit > 0 { now } else { one.due });
        let due = pending.chain(self.sources.iter().map(|one| one.due)).min()?;
        let allowed = self.paid.saturating_sub(BURST);
        Some(due.max(allowed).saturating_sub(now))
    }
}

/// The time between two packets of an endpoint that gives them by itself.
fn gap(pace: Pace, isochronous: bool) -> Duration {
    match (isochronous, pace) {
        (true, _) => ISO_GAP,
        (false, Pace::Steady) => INTERRUPT_GAP,
        (false, Pace::Answering) => SILENCE,
    }
}
