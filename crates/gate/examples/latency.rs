//! Measures an access through the gate without any guest: this program speaks to the server as a driver VM
//! does.
//!
//! `cargo run --release --example latency -- [ACCESSES]`

use guardrail_gate::{Access, Gate, Memory, Open, Verdict, device, vfio_user};
use guardrail_jail::Jail;
use guardrail_vm::Cache;
use guardrail_vm::packages::Packages;
use guardrail_vm::qemu::Qemu;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Passes everything, but never at once: each access goes through a thread that may wait.
struct Later;

impl Gate for Later {
    fn admit(&self, _: &Access) -> Verdict {
        Verdict::Pass
    }
}

fn ask(
    stream: &mut UnixStream,
    command: u16,
    region: u32,
    offset: u64,
    data: &[u8],
    count: u32,
) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![1, 0];
    bytes.extend(command.to_le_bytes());
    for word in [32 + data.len() as u32, 0, 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(offset.to_le_bytes());
    bytes.extend(region.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    bytes.extend(data);
    stream.write_all(&bytes)?;
    let mut head = [0; 16];
    stream.read_exact(&mut head)?;
    let size = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    let mut body = vec![0; size.saturating_sub(16)];
    stream.read_exact(&mut body)?;
    Ok(body)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let accesses: u32 = std::env::args().nth(1).map_or(Ok(10_000), |word| word.parse())?;
    measure("decided at once", accesses, Arc::new(Open))?;
    measure("decided on another thread", accesses, Arc::new(Later))
}

fn measure(what: &str, accesses: u32, gate: Arc<dyn Gate>) -> Result<(), Box<dyn std::error::Error>> {
    let qemu = Qemu::find(&Packages::new(&Cache::open()?))?;
    let folder = tempfile::tempdir()?;
    let device = device::Options {
        model: "e1000".into(),
        devices: vec!["e1000".into()],
        reach: qemu.jail(),
        ..device::Options::default()
    };
    let options = vfio_user::Options {
        folder: folder.path().to_path_buf(),
        memory_mib: 64,
        hold_limit: Duration::from_secs(10),
        post_writes: false,
        id: "dut".into(),
        reach: Jail::new(),
        device: device.program(&qemu.command()),
    };
    let server = vfio_user::Server::start(options, Memory::new(64)?, gate)?;
    let mut stream = UnixStream::connect(folder.path().join("gate.sock"))?;
    ask(&mut stream, 10, 7, 0x10, &0xfeb0_0000u32.to_le_bytes(), 4)?;
    ask(&mut stream, 10, 7, 4, &[7, 0], 2)?;
    for (name, command, data) in [("read", 9, &[][..]), ("write", 10, &[0; 4][..])] {
        let start = Instant::now();
        for _ in 0..accesses {
            ask(&mut stream, command, 0, 8, data, 4)?;
        }
        println!("{name}, {what}: {:.1} us", start.elapsed().as_secs_f64() * 1e6 / f64::from(accesses));
    }
    drop(stream);
    let passed = server.stop().bars[0].writes_passed;
    if passed == u64::from(accesses) { Ok(()) } else { Err(format!("{passed} writes arrived").into()) }
}
