//! Any bytes as messages of a driver VM to the gate: answers, refusals, or an end.

#![no_main]

use guardrail_gate::vfio_user::converse;
use guardrail_gate::vfio_user::message::{HEADER, Header, Request};
use guardrail_gate::{Gate, Open};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some((head, body)) = data.split_first_chunk::<HEADER>() {
        std::hint::black_box(Header::parse(head).is_ok());
        let command = u16::from_le_bytes([head[2], head[3]]);
        std::hint::black_box(Request::parse(command, body).is_ok());
    }
    let (ours, mut theirs) = UnixStream::pair().expect("there are sockets");
    theirs.set_write_timeout(Some(Duration::from_millis(100))).expect("a limit can be set");
    let _ = theirs.write_all(data.get(1..).unwrap_or_default());
    let _ = theirs.shutdown(std::net::Shutdown::Write);
    let post = data.first().is_some_and(|byte| byte & 1 != 0);
    let gate: Arc<dyn Gate> = Arc::new(Open);
    converse(ours, (0, 0), post, &gate);
});
