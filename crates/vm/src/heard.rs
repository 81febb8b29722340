//! What the supervisor hears from a guest and from its QEMU, and reads of what the user brings, as any bytes, for the fuzzer.

use crate::exercise::syz::Program;
use crate::http;
use crate::qmp::{self, Message};
use crate::root;
use crate::run::console::{Kept, MAX_EXCERPT, Scan};
use crate::run::cut::Ports;
use crate::run::progress::{Lines, Progress};
use guardrail_trace::pci::PciAddress;
use std::io::{self, Read, Write};

/// The bytes are the guest's console, the lines of its progress, and a request of its network workload.
pub fn guest(bytes: &[u8]) {
    let (mut lines, mut scan, mut kept) = (Lines::default(), Scan::default(), Kept::new(io::sink()));
    for piece in bytes.chunks(100) {
        kept.add(piece);
        lines.feed(piece, |line| {
            scan.line(line);
            match Progress::parse(line) {
                Some(Progress::Ask(what)) => _ = qmp::act(&what, io::sink()),
                Some(progress) => assert!(!progress.to_string().contains('\n')),
                None => {}
            }
        });
    }
    assert!(scan.panicked() || kept.cut().is_none());
    assert!(scan.excerpt().len() <= MAX_EXCERPT);
    let _ = http::understands(bytes);
}

/// The bytes are what QEMU says over its machine protocol, and over qtest.
pub fn qemu(bytes: &[u8]) {
    let mut lines = Lines::default();
    lines.feed(bytes, |line| _ = std::hint::black_box(Message::parse(line)));
    let _ = Ports::of(Spoken(bytes)).cut(PciAddress { bus: 0, devfn: 0x20 });
}

/// The bytes are a program in syzkaller's form, or the archive of a root.
pub fn brought(bytes: &[u8]) {
    if let Some(Ok(program)) = std::str::from_utf8(bytes).ok().map(Program::read) {
        // A heredoc of the guest's script has them.
        assert!(program.operations().lines().all(|line| line != "END_OF_FILE" && line.is_ascii()));
    }
    root::understands(bytes);
}

/// A stream that says these bytes and takes all commands.
struct Spoken<'a>(&'a [u8]);

impl Read for Spoken<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Spoken<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
