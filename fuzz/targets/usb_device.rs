//! Any bytes as messages of QEMU to a synthetic USB device: replies, or an error.
//!
//! Input: the alias, the plan, then messages. Each has a byte for its type, one for the time that passes before, one for
//! the length of its body, and the body; type 255 stands for bytes of no form.

#![no_main]

use guardrail_usb_device::{Descriptors, Device};
use std::time::Duration;

const ALIASES: [&str; 4] = [
    "usb:v067Bp2303d*dc*dsc*dp*ic*isc*ip*in*",
    "usb:v*p*d*dc*dsc*dp*ic08isc06ip50in*",
    "usb:v*p*d*dc*dsc*dp*ic03isc01ip02in*",
    "usb:v*p*d*dc*dsc*dp*ic02isc02ip01in*",
];

/// The types of messages that a device gets, and one that it does not.
const KINDS: [u32; 24] = [
    0, 3, 6, 7, 9, 10, 12, 13, 15, 16, 18, 19, 21, 22, 23, 25, 26, 100, 101, 102, 103, 104, 1, 0xffff_ffff,
];

/// More than a message and its answers make at once.
const MOST_OUTPUT: usize = 1 << 20;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [alias, plan, rest @ ..] = data else { return };
    let plan = u64::from(*plan);
    let alias = ALIASES[usize::from(*alias) % ALIASES.len()];
    let descriptors = Descriptors::from_alias(alias, plan).expect("it is an alias");
    let mut device = Device::new(descriptors, plan).with_words(&[1, 0x8153, 0xffff_ffff]);
    let mut now = Duration::ZERO;
    let mut hello = [0_u32, 68, 0].map(u32::to_le_bytes).as_flattened().to_vec();
    hello.extend([0; 64]);
    hello.extend(0xf6_u32.to_le_bytes());
    device.message(&hello, now).expect("a greeting is accepted");
    let mut rest = rest;
    let mut id = 0_u64;
    while let [kind, pause, length, after @ ..] = rest {
        let (body, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        id += 1;
        let mut bytes = Vec::new();
        if *kind != 255 {
            bytes.extend(KINDS[usize::from(*kind) % KINDS.len()].to_le_bytes());
            bytes.extend((body.len() as u32).to_le_bytes());
            bytes.extend((id % 32).to_le_bytes());
        }
        bytes.extend(body);
        now += Duration::from_millis(u64::from(*pause));
        device.due(now);
        if device.message(&bytes, now).is_err() {
            break;
        }
        assert!(device.output().len() < MOST_OUTPUT);
        device.output().clear();
        _ = device.wait(now);
    }
    _ = std::hint::black_box(device.counts());
});
