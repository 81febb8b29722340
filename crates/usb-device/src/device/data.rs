//! Data of bulk, interrupt and isochronous endpoints.

use super::answers::{self, MOST_WORDS};
use super::flow::{Due, Pending};
use super::storage::Storage;
use super::{Device, rndis};
use crate::descriptors::Transfer;
use crate::error::Error;
use crate::plan::{Length, Plan, Source};
use crate::random::Random;
use crate::wire::{Status, kind};
use std::collections::VecDeque;
use std::time::Duration;

/// Most bytes of one answer.
const MOST: usize = 4096;

/// Most messages of the host that are remembered, to be given back.
const MOST_ECHOES: usize = 16;

/// Most bytes of an interrupt packet of a plan that gives all that is asked for: many drivers ask for no more.
const USUAL_INTERRUPT: usize = 8;

/// What the data of endpoints is made of.
#[derive(Debug)]
pub(super) struct Data {
    seed: u64,
    source: Source,
    length: Length,
    random: Random,
    count: u8,
    word: usize,
    words: Vec<u32>,
    /// What the host sent and the device has not given back.
    echoes: VecDeque<Vec<u8>>,
    /// What the host sent last.
    last: Vec<u8>,
    pub storage: Storage,
    pub rndis: rndis::State,
}

impl Data {
    pub fn new(plan: &Plan) -> Data {
        Data {
            seed: plan.seed,
            source: plan.data,
            length: plan.length,
            random: Random::new(&[plan.seed, 5]),
            count: 0,
            word: plan.word,
            words: Vec::new(),
            echoes: VecDeque::new(),
            last: Vec::new(),
            storage: Storage::default(),
            rndis: rndis::State::default(),
        }
    }

    pub fn words(&mut self, words: &[u32]) {
        self.words.extend(words.iter().take(MOST_WORDS - self.words.len().min(MOST_WORDS)));
    }

    /// True in one of `rate` cases.
    pub fn chance(&mut self, rate: usize) -> bool {
        self.random.one_in(rate)
    }

    /// Remembers what the host sent.
    fn sent(&mut self, data: &[u8]) {
        let data = &data[..data.len().min(MOST)];
        self.last = data.to_vec();
        if self.source != Source::Written {
            return;
        }
        if self.echoes.len() >= MOST_ECHOES {
            self.echoes.pop_front();
        }
        self.echoes.push_back(data.to_vec());
    }

    /// How much of `asked` bytes is given from an endpoint with packets of `packet` bytes.
    fn length(&mut self, asked: usize, packet: usize, transfer: Transfer) -> usize {
        let packet = packet.max(1);
        let most = match (self.length, transfer) {
            (Length::Whole, Transfer::Bulk) => MOST,
            (Length::Whole, Transfer::Interrupt) => USUAL_INTERRUPT.min(packet),
            (Length::Whole | Length::Packet, _) => packet,
            (Length::Short, _) => 1 + self.random.below(packet.min(64)),
        };
        asked.min(most)
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut source = self.source;
        if source == Source::Mixed {
            source =
                self.random.pick(&[Source::Zeros, Source::Ones, Source::One, Source::Fresh, Source::Words]);
        }
        match source {
            Source::Written => {
                let mut data = self.echoes.pop_front().unwrap_or_else(|| self.last.clone());
                data.truncate(length);
                if data.is_empty() { vec![0; length] } else { data }
            }
            Source::Zeros | Source::Mixed => vec![0; length],
            Source::Ones => vec![0xff; length],
            Source::One => answers::number(1, length),
            Source::Fixed => Random::new(&[self.seed, 6]).bytes(length),
            Source::Fresh => self.random.bytes(length),
            Source::Counting => {
                let start = self.count;
                self.count = self.count.wrapping_add(1);
                (start..=0xff).chain(0..=0xff).cycle().take(length).collect()
            }
            Source::Words => answers::word(&self.words, &mut self.random, length),
            Source::Word => answers::one_word(&self.words, self.word, length),
        }
    }
}

impl Device {
    /// A bulk transfer to the host: it waits, unless its endpoint cannot give.
    pub(super) fn want(&mut self, one: Pending, now: Duration) -> Result<(), Error> {
        if self.endpoint(one.endpoint, Transfer::Bulk).is_none() {
            self.counts.errors += 1;
            self.writer.bulk(one.id, one.endpoint, one.stream, Status::Invalid, 0, &[]);
            return Ok(());
        }
        if self.stalls(one.endpoint) {
            self.writer.bulk(one.id, one.endpoint, one.stream, Status::Stall, 0, &[]);
            return Ok(());
        }
        self.flow.want(one, now)
    }

    /// True where the endpoint is halted, or now becomes so by plan.
    fn stalls(&mut self, address: u8) -> bool {
        let halted = self.halted.contains(&address);
        let fails = !halted && self.plan.faults.is_some_and(|rate| self.data.chance(rate));
        if fails {
            self.halted.push(address);
        }
        self.counts.stalls += u64::from(halted || fails);
        halted || fails
    }

    /// A bulk transfer from the host.
    pub(super) fn take_bulk(&mut self, id: u64, endpoint: u8, stream: u32, data: &[u8]) {
        self.counts.bulk_out += 1;
        let status = if self.endpoint(endpoint, Transfer::Bulk).is_none() {
            self.counts.errors += 1;
            Status::Invalid
        } else if self.stalls(endpoint) {
            Status::Stall
        } else {
            if !self.data.storage.takes(data) {
                self.data.sent(data);
            }
            self.flow.encourage();
            Status::Success
        };
        let taken = if status == Status::Success { data.len() } else { 0 };
        self.writer.bulk(id, endpoint, stream, status, taken, &[]);
    }

    /// An interrupt packet from the host.
    pub(super) fn take_interrupt(&mut self, id: u64, endpoint: u8, data: &[u8]) {
        self.counts.interrupt_out += 1;
        let known = self.endpoint(endpoint, Transfer::Interrupt).is_some();
        let status = if known { Status::Success } else { Status::Invalid };
        self.counts.errors += u64::from(!known);
        self.data.sent(data);
        self.flow.encourage();
        self.writer.packet(kind::INTERRUPT_PACKET, id, endpoint, status, data.len(), &[]);
    }

    /// Lets an endpoint give packets by itself.
    pub(super) fn start(&mut self, answer: u32, address: u8, transfer: Transfer, now: Duration) {
        let known = self.endpoint(address, transfer).is_some();
        let status = if known { Status::Success } else { Status::Stall };
        if known && address & 0x80 != 0 {
            self.flow.start(address, transfer == Transfer::Iso, now);
        }
        self.counts.stalls += u64::from(!known);
        self.writer.message(answer, 0, &[&[status as u8, address]]);
    }

    pub(super) fn stop(&mut self, answer: u32, address: u8) {
        self.flow.stop(address);
        self.writer.message(answer, 0, &[&[Status::Success as u8, address]]);
    }

    /// Gives what is due.
    pub(super) fn give(&mut self, now: Duration) {
        while let Some(due) = self.flow.next(now) {
            match due {
                Due::Transfer(one) => self.give_bulk(&one),
                Due::Interrupt(address) => self.give_packet(address, Transfer::Interrupt),
                Due::Iso(address) => self.give_packet(address, Transfer::Iso),
            }
        }
    }

    fn give_bulk(&mut self, one: &Pending) {
        self.counts.bulk_in += 1;
        let packet = self.endpoint(one.endpoint, Transfer::Bulk).map_or(64, |of| usize::from(of.packet));
        let data = match self.data.storage.next() {
            Some(mut data) => {
                data.truncate(one.length);
                data
            }
            None => {
                let length = self.data.length(one.length, packet, Transfer::Bulk);
                self.data.bytes(length)
            }
        };
        let fails = self.plan.faults.is_some_and(|rate| self.data.chance(rate * 2));
        self.counts.errors += u64::from(fails);
        let (status, data) = if fails { (Status::Failed, Vec::new()) } else { (Status::Success, data) };
        self.writer.bulk(one.id, one.endpoint, one.stream, status, 0, &data);
    }

    fn give_packet(&mut self, address: u8, transfer: Transfer) {
        let Some(packet) = self.endpoint(address, transfer).map(|of| usize::from(of.packet & 0x7ff)) else {
            return self.flow.stop(address);
        };
        let length = self.data.length(packet, packet, transfer);
        let data = self.data.bytes(length);
        let (kind, count) = match transfer {
            Transfer::Iso => (kind::ISO_PACKET, &mut self.counts.iso_in),
            _ => (kind::INTERRUPT_PACKET, &mut self.counts.interrupt_in),
        };
        *count += 1;
        self.writer.packet(kind, 0, address, Status::Success, 0, &data);
    }
}
