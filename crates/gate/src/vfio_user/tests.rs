//! Conversations with the server's loop.

use super::message::{HEADER, words};
use super::talk::{Effects, FakeDevice, options, serve};
use super::{Options, Shared};
use crate::counts::Counts;
use crate::policy::{Access, Gate, Open, Verdict};
use crate::sys::{self, Event};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A driver VM that speaks to a server on another thread.
struct Guest {
    socket: UnixStream,
    shared: Arc<Shared>,
    effects: Arc<Mutex<Effects>>,
    server: JoinHandle<Counts>,
    next: u16,
}

impl Guest {
    fn new(options: Options, gate: impl Gate) -> Guest {
        let (socket, theirs) = UnixStream::pair().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let (shared, effects) = (Arc::new(Shared::new().unwrap()), Arc::<Mutex<Effects>>::default());
        let (ours, device) =
            (Arc::clone(&shared), FakeDevice { effects: Arc::clone(&effects), ..FakeDevice::default() });
        let gate: Arc<dyn Gate> = Arc::new(gate);
        let server = std::thread::spawn(move || serve(&ours, theirs, &options, &gate, device));
        Guest { socket, shared, effects, server, next: 0 }
    }

    fn send(&mut self, command: u16, body: &[u8], fd: Option<&Event>) -> u16 {
        self.next += 1;
        let mut bytes = Vec::from(self.next.to_le_bytes());
        bytes.extend(command.to_le_bytes());
        bytes.extend(words(&[(HEADER + body.len()) as u32, 0, 0]));
        bytes.extend(body);
        sys::send(&self.socket, &bytes, fd.map(|event| event.as_raw_fd()).as_slice()).unwrap();
        self.next
    }

    /// The next answer: its command, its error number, and its body.
    fn answer(&mut self) -> (u16, u32, Vec<u8>) {
        let mut head = [0; HEADER];
        self.socket.read_exact(&mut head).unwrap();
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
        let mut body = vec![0; word(4) as usize - HEADER];
        self.socket.read_exact(&mut body).unwrap();
        (u16::from_le_bytes([head[0], head[1]]), word(12), body)
    }

    fn ask(&mut self, command: u16, body: &[u8]) -> Result<Vec<u8>, u32> {
        let asked = self.send(command, body, None);
        let (answered, error, body) = self.answer();
        assert_eq!(answered, asked);
        if error == 0 { Ok(body) } else { Err(error) }
    }

    fn read(&mut self, region: u32, offset: u64, count: u32) -> Result<Vec<u8>, u32> {
        self.ask(9, &access(region, offset, count, &[])).map(|body| body[16..].to_vec())
    }

    fn write(&mut self, region: u32, offset: u64, bytes: &[u8]) -> Result<(), u32> {
        self.ask(10, &access(region, offset, bytes.len() as u32, bytes)).map(drop)
    }

    fn written(&self) -> Vec<u64> {
        self.effects.lock().unwrap().writes.iter().map(|write| write.1).collect()
    }

    fn hang_up(self) -> Counts {
        drop(self.socket);
        let counts = self.server.join().unwrap();
        assert!(self.effects.lock().unwrap().cut, "a device without a guest is cut off");
        counts
    }
}

fn access(region: u32, offset: u64, count: u32, bytes: &[u8]) -> Vec<u8> {
    let mut body = offset.to_le_bytes().to_vec();
    body.extend(words(&[region, count]));
    body.extend(bytes);
    body
}

/// Holds writes to offset 4 for a while, those to 12 forever, and panics at those to 20.
struct Slow;

impl Gate for Slow {
    fn admit(&self, access: &Access) -> Verdict {
        match access.offset {
            4 => std::thread::sleep(Duration::from_millis(100)),
            12 => std::thread::sleep(Duration::from_secs(3)),
            20 => std::panic::resume_unwind(Box::new(())),
            _ => return Verdict::Drop,
        }
        Verdict::Pass
    }

    fn admit_now(&self, access: &Access) -> Option<Verdict> {
        let slow = access.write && matches!(access.offset, 4 | 12 | 20 | 24);
        (!slow).then_some(Verdict::Pass)
    }
}

#[test]
fn the_device_is_told_and_reached() {
    let mut guest = Guest::new(options(), Open);
    let version = guest.ask(1, &words(&[0])).unwrap();
    assert!(version.starts_with(&[0; 4]) && version.ends_with(b"}}\0"));
    assert_eq!(guest.ask(4, &words(&[16, 0, 0, 0])).unwrap(), words(&[16, 3, 9, 3]));
    let region = guest.ask(5, &words(&[32, 0, 1, 0])).unwrap();
    assert_eq!(region[16..24], 64u64.to_le_bytes());
    assert_eq!(guest.ask(7, &words(&[16, 0, 2, 0])).unwrap(), words(&[16, 1, 2, 4]));
    assert_eq!(guest.read(0, 0x20, 4), Ok(vec![0x20; 4]));
    assert_eq!(guest.read(7, 0, 256), Ok(vec![0; 256]));
    assert_eq!(guest.write(1, 60, &[1, 2, 3, 4]), Ok(()));
    assert_eq!(guest.ask(13, &[]), Ok(vec![]));
    let counts = guest.hang_up();
    assert_eq!((counts.bars[0].reads_passed, counts.bars[1].writes_passed), (1, 1));
    assert_eq!((counts.config.reads_passed, counts.resets, counts.contained), (1, 1, None));
}

#[test]
fn what_is_out_of_bounds_is_refused() {
    let mut guest = Guest::new(options(), Open);
    for (region, offset, count) in
        [(0, 4093, 4), (0, 4096, 1), (1, 64, 1), (2, 0, 4), (0, 0, 3), (0, 0, 16), (7, 255, 2), (9, 0, 1)]
    {
        assert_eq!(guest.read(region, offset, count), Err(22), "{region} {offset} {count}");
    }
    assert_eq!(guest.ask(5, &words(&[32, 0, 9, 0])), Err(22));
    assert_eq!(guest.ask(7, &words(&[16, 0, 3, 0])), Err(22));
    assert_eq!(guest.ask(1, &[]), Err(22));
    assert_eq!(guest.ask(11, &[0; 64]), Err(95));
    assert_eq!(guest.hang_up().passed(), 0);
}

#[test]
fn interrupts_reach_the_guest_until_the_gate_closes() {
    let mut guest = Guest::new(options(), Open);
    let vector = Event::new().unwrap();
    guest.send(8, &words(&[20, 0x24, 2, 1, 1]), Some(&vector));
    assert_eq!(guest.answer().1, 0);
    guest.write(0, 8, &[1]).unwrap();
    assert_eq!(vector.take(), 1);
    guest.shared.close("as the test wants");
    guest.shared.wake.signal();
    assert_eq!(guest.read(0, 0x20, 4), Ok(vec![0xff; 4]));
    assert_eq!(guest.read(7, 0, 2), Ok(vec![0xff; 2]));
    assert_eq!(guest.write(0, 8, &[1]), Ok(()));
    assert_eq!((vector.take(), guest.written()), (0, vec![8]));
    let counts = guest.hang_up();
    assert_eq!((counts.bars[0].writes_dropped, counts.dropped()), (1, 3));
    assert_eq!(counts.contained.as_deref(), Some("as the test wants"));
}

#[test]
fn a_held_access_delays_no_other() {
    let mut guest = Guest::new(options(), Slow);
    let slow = guest.send(10, &access(0, 4, 1, &[1]), None);
    let quick = guest.send(9, &access(0, 0, 1, &[]), None);
    assert_eq!((guest.answer().0, guest.answer().0), (quick, slow));
    assert_eq!(guest.write(0, 24, &[1]), Ok(()));
    assert_eq!(guest.written(), [4]);
    let counts = guest.hang_up();
    assert_eq!((counts.held(), counts.bars[0].writes_dropped), (2, 1));
    assert!(counts.longest_hold_us >= 90_000);
}

#[test]
fn posted_writes_are_done_in_order_and_before_reads() {
    let mut guest = Guest::new(Options { post_writes: true, ..options() }, Slow);
    let first = guest.send(10, &access(0, 4, 1, &[1]), None);
    assert_eq!(guest.answer().0, first);
    assert!(guest.written().is_empty());
    guest.write(0, 0, &[2]).unwrap();
    assert_eq!(guest.read(0, 0x30, 1), Ok(vec![0x30]));
    assert_eq!(guest.written(), [4, 0]);
    guest.hang_up();
}

#[test]
fn a_policy_that_says_nothing_or_dies_closes_the_gate() {
    for (offset, why) in [(12, "an access was held for 0.3 s without a verdict"), (20, "the policy died")] {
        let mut guest = Guest::new(options(), Slow);
        assert_eq!(guest.write(0, offset, &[1]), Ok(()));
        assert_eq!(guest.read(0, 0x20, 1), Ok(vec![0xff]));
        assert!(guest.written().is_empty());
        let counts = guest.hang_up();
        assert_eq!(counts.contained.as_deref(), Some(why));
    }
}

#[test]
fn a_policy_closes_the_gate_although_nobody_accesses_anything() {
    struct Closing(Arc<AtomicBool>);
    impl Gate for Closing {
        fn admit(&self, _: &Access) -> Verdict {
            Verdict::Pass
        }

        fn closed(&self) -> Option<String> {
            self.0.load(Ordering::SeqCst).then(|| "a finding is contained".to_owned())
        }
    }
    let closing = Arc::new(AtomicBool::new(false));
    let mut guest = Guest::new(options(), Closing(Arc::clone(&closing)));
    guest.write(0, 0, &[1]).unwrap();
    closing.store(true, Ordering::SeqCst);
    let start = Instant::now();
    while !guest.effects.lock().unwrap().cut {
        assert!(start.elapsed() < Duration::from_secs(10), "the device is not cut off");
    }
    assert_eq!(guest.read(0, 0x20, 1), Ok(vec![0xff]));
    assert_eq!(guest.hang_up().contained.as_deref(), Some("a finding is contained"));
}

#[test]
fn a_lost_device_closes_the_gate() {
    let mut guest = Guest::new(options(), Open);
    guest.write(0, 16, &[1]).unwrap();
    assert_eq!(guest.read(0, 0x20, 1), Ok(vec![0xff]));
    let shared = Arc::clone(&guest.shared);
    guest.hang_up();
    let failure = shared.failure.lock().unwrap().clone();
    assert_eq!(failure.as_deref(), Some("the QEMU that runs the device was ended by a test"));
}

#[test]
fn a_broken_stream_ends_the_server_closed() {
    let mut guest = Guest::new(options(), Open);
    guest.socket.write_all(&[0xff; 64]).unwrap();
    let shared = Arc::clone(&guest.shared);
    guest.server.join().unwrap();
    assert!(guest.effects.lock().unwrap().cut);
    assert!(shared.failure.lock().unwrap().as_ref().unwrap().contains("broke the vfio-user protocol"));
}
