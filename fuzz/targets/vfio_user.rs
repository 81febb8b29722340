//! Any bytes as messages of a driver VM to the gate: answers, refusals, or an end.

#![no_main]

use guardrail_gate::vfio_user::converse;
use guardrail_gate::vfio_user::message::{HEADER, Header, Request};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some((head, body)) = data.split_first_chunk::<HEADER>() {
        std::hint::black_box(Header::parse(head).is_ok());
        let command = u16::from_le_bytes([head[2], head[3]]);
        std::hint::black_box(Request::parse(command, body).is_ok());
    }
    converse(data);
});
