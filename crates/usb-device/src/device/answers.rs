//! Answers to control requests of classes and vendors.

use crate::plan::{Plan, Source};
use crate::random::Random;
use crate::wire::Control;
use std::collections::{BTreeMap, VecDeque};

/// Most writes and requests that are remembered.
const MOST: usize = 1024;

/// Most bytes of a write that are remembered. A controller of QEMU sends no more at once.
const MOST_BYTES: usize = 4096;

/// Most words of the caller that are used.
pub(super) const MOST_WORDS: usize = 4096;

/// A request counts as repeated when it came again within this many requests.
const NEAR: u64 = 6;

/// After this many repetitions, the answer changes each time.
const PATIENCE: u32 = 2;

/// A write to the device.
#[derive(Debug)]
struct Written {
    request: u8,
    value: u16,
    index: u16,
    data: Vec<u8>,
}

/// How often a request came in a row, and which request it was last.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    times: u32,
    last: u64,
}

#[derive(Debug)]
pub(super) struct Answers {
    source: Source,
    seed: u64,
    word: usize,
    words: Vec<u32>,
    written: VecDeque<Written>,
    seen: BTreeMap<(u8, u8, u16, u16), Seen>,
    /// The number of requests so far.
    requests: u64,
    fresh: Random,
}

impl Answers {
    pub fn new(plan: &Plan) -> Answers {
        Answers {
            source: plan.control,
            seed: plan.seed,
            word: plan.word,
            words: Vec::new(),
            written: VecDeque::new(),
            seen: BTreeMap::new(),
            requests: 0,
            fresh: Random::new(&[plan.seed, 3]),
        }
    }

    pub fn words(&mut self, words: &[u32]) {
        self.words.extend(words.iter().take(MOST_WORDS - self.words.len().min(MOST_WORDS)));
    }

    /// Remembers a write.
    pub fn write(&mut self, request: &Control, data: &[u8]) {
        self.requests += 1;
        if self.written.len() >= MOST {
            self.written.pop_front();
        }
        // A request without data writes its value.
        let data =
            if data.is_empty() { &request.value.to_le_bytes() } else { &data[..data.len().min(MOST_BYTES)] };
        let (value, index) = (request.value, request.index);
        self.written.push_back(Written { request: request.request, value, index, data: data.to_vec() });
    }

    /// The answer to a request for data, of as many bytes as it asks for.
    pub fn read(&mut self, request: &Control) -> Vec<u8> {
        let times = self.times(request);
        let length = usize::from(request.length);
        let place = [
            self.seed,
            4,
            u64::from(request.request),
            u64::from(request.kind) << 32 | u64::from(request.value) << 16 | u64::from(request.index),
        ];
        let mut of_place = Random::new(&place);
        if let Some(turn) = times.checked_sub(PATIENCE) {
            return self.turn(turn, length);
        }
        let mut source = self.source;
        if source == Source::Mixed {
            source = of_place.pick(&[
                Source::Written,
                Source::Zeros,
                Source::Ones,
                Source::One,
                Source::Fixed,
                Source::Words,
                Source::Words,
            ]);
        }
        match source {
            Source::Written => self.last_written(request, length),
            Source::Ones => vec![0xff; length],
            Source::One => number(1, length),
            Source::Fixed => of_place.bytes(length),
            Source::Fresh => self.fresh.bytes(length),
            Source::Counting => (0..=0xff_u8).cycle().skip(self.fresh.below(256)).take(length).collect(),
            Source::Words => word(&self.words, &mut of_place, length),
            Source::Word => one_word(&self.words, self.word, length),
            Source::Zeros | Source::Mixed => vec![0; length],
        }
    }

    /// How often this request came in a row before.
    fn times(&mut self, request: &Control) -> u32 {
        self.requests += 1;
        if self.seen.len() >= MOST {
            self.seen.clear();
        }
        let seen =
            self.seen.entry((request.kind, request.request, request.value, request.index)).or_default();
        let near = seen.last != 0 && self.requests - seen.last <= NEAR;
        seen.times = if near { seen.times.saturating_add(1) } else { 0 };
        seen.last = self.requests;
        seen.times
    }

    /// An answer for one who asks again and again, as for a bit that is to change: all ends of the range first, then
    /// the caller's words, bits and chance.
    fn turn(&mut self, turn: u32, length: usize) -> Vec<u8> {
        let turn = usize::try_from(turn).unwrap_or(usize::MAX);
        match turn % 8 {
            0 => vec![0xff; length],
            1 => number(1, length),
            2 => vec![0; length],
            3 => number(0x80, length),
            4 | 6 if !self.words.is_empty() => number(self.words[turn / 2 % self.words.len()], length),
            5 => number(1 << (turn / 8 % 32), length),
            _ => self.fresh.bytes(length),
        }
    }

    /// What was written last to the same place: request, value and index, else request and index, else value and index.
    fn last_written(&self, request: &Control, length: usize) -> Vec<u8> {
        let find = |same: &dyn Fn(&Written) -> bool| self.written.iter().rev().find(|one| same(one));
        let of = |one: &Written| {
            (one.request == request.request, one.value == request.value, one.index == request.index)
        };
        let found = find(&|one| of(one) == (true, true, true))
            .or_else(|| find(&|one| matches!(of(one), (true, _, true))))
            .or_else(|| find(&|one| matches!(of(one), (_, true, true))));
        let mut data = found.map(|one| one.data.clone()).unwrap_or_default();
        data.resize(length, 0);
        data
    }
}

/// A number, least significant byte first, with zeros behind.
pub(super) fn number(value: u32, length: usize) -> Vec<u8> {
    let mut bytes = value.to_le_bytes().to_vec();
    bytes.resize(length, 0);
    bytes
}

/// The caller's word with this index of those that fit into that many bytes; indexes beyond the end begin again.
pub(super) fn one_word(words: &[u32], index: usize, length: usize) -> Vec<u8> {
    let fit: Vec<u32> = words.iter().copied().filter(|&word| word <= most(length)).collect();
    let word = fit.get(index % fit.len().max(1)).copied().unwrap_or(0);
    number(word, length)
}

/// The largest number of that many bytes.
fn most(length: usize) -> u32 {
    if length >= 4 { u32::MAX } else { (1 << (8 * length)) - 1 }
}

/// One of the caller's words that fit into that many bytes, or its high bytes first; repeated for longer answers.
pub(super) fn word(words: &[u32], random: &mut Random, length: usize) -> Vec<u8> {
    let fit: Vec<u32> = words.iter().copied().filter(|&word| word <= most(length)).collect();
    if fit.is_empty() {
        return random.bytes(length);
    }
    let mut bytes = Vec::with_capacity(length + 4);
    while bytes.len() < length {
        let word = random.pick(&fit);
        let width = match (length, word) {
            (1, _) | (8.., ..0x100) => 1,
            (2 | 3, _) | (_, ..0x1_0000) => 2,
            _ => 4,
        };
        let mut one = word.to_le_bytes()[..width].to_vec();
        if random.one_in(3) {
            one.reverse();
        }
        bytes.extend(one);
    }
    bytes.truncate(length);
    bytes
}
