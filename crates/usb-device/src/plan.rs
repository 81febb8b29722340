//! What a plan's number chooses: the shape of the device, and how it answers.
//!
//! The first plans are curated, most usual first. All others draw each choice from their number.

use crate::random::Random;

/// How many plans are curated; those from this number on are drawn at random.
pub const CURATED: u64 = TABLE.len() as u64;

/// The speed of a device, with the numbers of usbredir.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speed {
    Full = 1,
    High = 2,
}

/// The interfaces and endpoints of a device whose class asks for none in particular.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Four interfaces, each with bulk and interrupt endpoints both ways, and isochronous ones in later settings.
    Wide,
    /// One interface: bulk in 1, bulk out 2, interrupt in 3.
    Plain,
    /// One interface: interrupt in 1, bulk out 2, bulk in 3.
    Serial,
    /// One interface with all endpoints: bulk pairs, the last pairs interrupt.
    Many,
    /// One interface: interrupt in 1.
    Input,
    /// One interface: interrupt in 1, interrupt out 2.
    Interrupts,
    /// One interface with settings of growing isochronous packets, like a camera; bulk and interrupt ones beside.
    Camera,
    /// Pairs of one number: bulk 1, interrupt 2, bulk 3; a second interface with more.
    Paired,
    /// One interface: bulk in 1 and bulk out 2, and nothing else.
    Bulk,
    /// Three interfaces: a silent one, one with isochronous endpoints out, one with such in.
    Streams,
    /// Two interfaces: interrupt endpoints of small packets first, bulk ones next.
    Composite,
    /// One interface: bulk in 1, bulk out 2, bulk in 3.
    Scanner,
    /// One interface with five bulk endpoints, in and out in turn.
    Five,
    /// One interface with packets of 8 bytes: bulk out 1, interrupt in 2; and with larger ones: bulk out 3, bulk in 4.
    Still,
    /// Three interfaces of bulk and interrupt endpoints: where the class is open, a printer, a disk and a mouse.
    Classes,
    /// A control interface and its data interface, where the class is open or the vendor's.
    Modem,
    /// Two interfaces with later settings: isochronous out 1 and in 2, interrupt pairs above.
    Sound,
    /// Whatever the seed gives.
    Drawn,
}

/// Where the bytes of an answer come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// What was written last to the same place; zeros before.
    Written,
    /// No bit set.
    Zeros,
    /// All bits set.
    Ones,
    /// Bytes 1, 0, 0, ...: a small number, least significant byte first.
    One,
    /// Bytes that stay the same for the same request.
    Fixed,
    /// Other bytes each time.
    Fresh,
    /// Bytes that count up.
    Counting,
    /// The caller's words, another for each request.
    Words,
    /// One of the caller's words for all requests, another for each plan.
    Word,
    /// One of the others for each request.
    Mixed,
}

/// How much of what was asked for a bulk or interrupt endpoint gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// All that was asked for, up to a limit; at most 8 bytes of an interrupt endpoint.
    Whole,
    /// At most a packet.
    Packet,
    /// Less than a packet.
    Short,
}

/// When a bulk or interrupt endpoint gives data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// At a steady rate, and at once after something was sent out.
    Steady,
    /// Only after something was sent out, or a request came.
    Answering,
}

/// The choices of one plan.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub seed: u64,
    pub speed: Speed,
    pub shape: Shape,
    pub control: Source,
    pub data: Source,
    pub length: Length,
    pub pace: Pace,
    /// Which of the caller's words [`Source::Word`] stands for; it may be beyond their end.
    pub word: usize,
    /// One in this many transfers stalls or fails; `None` for never.
    pub faults: Option<usize>,
}

type Row = (Speed, Shape, Source, Source, Length, Pace);

const TABLE: [Row; 24] = {
    use Length::{Packet, Short, Whole};
    use Pace::{Answering, Steady};
    use Shape::*;
    use Source::*;
    use Speed::{Full, High};
    [
        (High, Wide, Written, Written, Whole, Steady),
        (High, Paired, Words, Words, Whole, Steady),
        (Full, Interrupts, Written, Written, Packet, Steady),
        (High, Many, One, Counting, Whole, Steady),
        (Full, Input, Zeros, Counting, Packet, Steady),
        (High, Classes, Written, Written, Whole, Steady),
        (High, Composite, Mixed, Mixed, Packet, Steady),
        (High, Modem, Written, Written, Whole, Steady),
        (High, Sound, Written, Zeros, Whole, Steady),
        (High, Camera, Ones, Fresh, Whole, Steady),
        (High, Wide, Mixed, Mixed, Whole, Steady),
        (High, Wide, Words, Fixed, Whole, Steady),
        (Full, Serial, Zeros, Zeros, Packet, Steady),
        (High, Plain, Fixed, Written, Whole, Answering),
        (Full, Scanner, One, Written, Whole, Steady),
        (High, Five, Written, Zeros, Whole, Steady),
        (Full, Still, Words, Ones, Whole, Steady),
        (High, Bulk, Written, Written, Short, Answering),
        (Full, Streams, One, Zeros, Whole, Steady),
        (High, Wide, Ones, Ones, Whole, Steady),
        (Full, Plain, Ones, Zeros, Packet, Steady),
        (Full, Camera, Zeros, Zeros, Packet, Steady),
        (Full, Many, Fixed, Words, Short, Answering),
        (High, Paired, Written, Written, Whole, Answering),
    ]
};

impl Plan {
    /// The choices of plan `number`.
    pub fn of(number: u64) -> Plan {
        let curated = usize::try_from(number).ok().and_then(|index| TABLE.get(index));
        let (speed, shape, control, data, length, pace) = match curated {
            Some(&row) => row,
            None => Plan::drawn(number),
        };
        let faults = (curated.is_none() && number % 4 == 3).then_some(50);
        let word = usize::try_from(number.saturating_sub(CURATED) / 2).unwrap_or(0);
        Plan { seed: number, speed, shape, control, data, length, pace, word, faults }
    }

    fn drawn(number: u64) -> Row {
        use Shape::*;
        use Source::*;
        let mut random = Random::new(&[number, 1]);
        let shapes = [
            Wide, Plain, Serial, Many, Input, Interrupts, Camera, Paired, Bulk, Streams, Composite, Drawn,
            Drawn, Drawn, Drawn,
        ];
        // Every other plan goes through the caller's words, with the shape that most drivers take.
        if number.is_multiple_of(2) {
            let shape = random.pick(&[Wide, Wide, Wide, Camera, Many, Drawn]);
            return (Speed::High, shape, Word, random.pick(&[Written, Word]), Length::Whole, Pace::Steady);
        }
        let sources = [Written, Zeros, Ones, One, Fixed, Fresh, Counting, Words, Words, Mixed, Mixed, Mixed];
        (
            random.pick(&[Speed::High, Speed::High, Speed::Full]),
            random.pick(&shapes),
            random.pick(&sources),
            random.pick(&sources),
            random.pick(&[Length::Whole, Length::Packet, Length::Short]),
            random.pick(&[Pace::Steady, Pace::Steady, Pace::Answering]),
        )
    }
}
