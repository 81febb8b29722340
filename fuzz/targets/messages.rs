//! Any bytes as messages of other processes: of a guest and its QEMU, of the gate's process and the device's QEMU, of
//! the analysis, and of clients inside QEMU.
//!
//! Input: the kind of speaker, then lines. A byte from 0x80 on stands for a message or a part of one.

#![no_main]

use guardrail_check::analysis::wire::{self, Job, Message, Order};
use guardrail_trace::client::{ClientConfig, Reply, Request};
use guardrail_trace::config::TracerConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;

const PARTS: [&str; 40] = [
    "guardrail: booted\n",
    "guardrail: loaded e1000\n",
    "guardrail: begin ",
    "guardrail: failed ping no answer\n",
    "guardrail: ask link-up\n",
    "guardrail: alive 1\n",
    "[    3.141592] BUG: unable to handle page fault\n",
    "[    3.141592] ---[ end trace 0000000000000000 ]---\n",
    "Kernel panic - not syncing: Fatal exception\n",
    "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\n",
    "{\"return\": {}}\n",
    "{\"error\": {\"class\": \"GenericError\", \"desc\": \"no\"}}\n",
    "{\"event\": \"RESET\"}\n",
    "{\"event\": \"SHUTDOWN\", \"data\": {\"reason\": \"guest-shutdown\"}}\n",
    "{\"event\": \"MIGRATION\", \"data\": {\"status\": \"completed\"}}\n",
    "{\"event\": \"DUMP_COMPLETED\", \"data\": {\"error\": \"full\"}}\n",
    "OK\n",
    "OK 0x00000000deadbeef\n",
    "IRQ raise 11\n",
    "IRQ lower 4294967295\n",
    "FAIL Unknown command\n",
    "{\"ready\":[\"-device\",\"x\"]}\n",
    "{\"failed\":\"it broke\"}\n",
    "{\"state\":{\"counts\":{},\"failure\":null,\"device\":7}}\n",
    "\"report\"\n",
    "{\"contain\":\"why\"}\n",
    "\"stop\"\n",
    "\"ready\"\n",
    "{\"progress\":7}\n",
    "{\"found\":{\"id\":\"1\",\"checker\":\"dmcheck\",\"kind\":\"k\",\"message\":\"m\",\"action\":\"a\",\"waits\":true}}\n",
    "\"drained\"\n",
    "{\"done\":{\"findings\":[{}],\"statistics\":{},\"cut\":null,\"notes\":[],\"unrecorded\":null}}\n",
    "{\"goon\":\"1\"}\n",
    "{\"ended\":{\"run\":{},\"kernel_log\":null}}\n",
    "\"cut\"\n",
    "\"attach\"\n",
    "{\"state\":{\"attached\":true}}\n",
    "{\"results\":{}}\n",
    "[[[[[[[[[[[[[[[[",
    "{\"a\":",
];

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((speaker, rest)) = data.split_first() else { return };
    let mut bytes = Vec::new();
    for &byte in rest {
        match PARTS.get(usize::from(byte.wrapping_sub(0x80))) {
            Some(part) => bytes.extend_from_slice(part.as_bytes()),
            None => bytes.push(byte),
        }
    }
    match speaker % 6 {
        0 => guardrail_vm::heard::guest(&bytes),
        1 => guardrail_vm::heard::qemu(&bytes),
        2 => guardrail_gate::heard::qemu(&bytes),
        3 => _ = guardrail_gate::heard::understood(&bytes),
        4 => {
            read::<Message>(&bytes);
            read::<Order>(&bytes);
            read::<Job>(&bytes);
        }
        _ => {
            read::<Request>(&bytes);
            read::<Reply>(&bytes);
            read::<ClientConfig>(&bytes);
            read::<TracerConfig>(&bytes);
        }
    }
});

/// Reads all messages of this type; what was read is written and read as the same again.
fn read<T: DeserializeOwned + Serialize>(mut bytes: &[u8]) {
    while let Ok(Some(message)) = wire::receive::<T>(&mut bytes) {
        let mut once = Vec::new();
        wire::send(&mut once, &message).expect("a message can be written");
        let again = wire::receive::<T>(&mut &once[..]).expect("it can be read").expect("it is there");
        let mut twice = Vec::new();
        wire::send(&mut twice, &again).expect("a message can be written");
        assert_eq!(once, twice);
    }
}
