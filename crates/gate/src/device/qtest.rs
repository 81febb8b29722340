//! The qtest protocol, by which a stock QEMU lets its devices be driven from outside: a line of text for each
//! access.

use crate::error::{Context, Error, Result};
use crate::sys;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The time limit for an answer; one takes microseconds, even where the device reads a file for it.
const LIMIT: Duration = Duration::from_secs(20);
/// The longest line that QEMU may send; it answers in a few words.
const MAX_LINE: usize = 4096;
/// The most changes of interrupt lines that may be unread. QEMU sends one when a line changes, and each read
/// takes them all.
const MAX_CHANGES: usize = 65_536;

/// The change of an interrupt line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The number of the line.
    pub line: u32,
    /// True where the line is raised, false where it is lowered.
    pub level: bool,
}

/// The connection to QEMU.
#[derive(Debug)]
pub struct Qtest {
    stream: UnixStream,
    buffer: Vec<u8>,
    changes: VecDeque<Change>,
    command: String,
}

/// The meaning of a line of text.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Ok(Option<u64>),
    Change(Change),
    Failed(String),
}

impl Line {
    fn parse(line: &str) -> Line {
        let failed = || Line::Failed(line.chars().take(200).collect());
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some("OK"), None, None) => Line::Ok(None),
            (Some("OK"), Some(value), None) => {
                let digits = value.strip_prefix("0x").unwrap_or(value);
                u64::from_str_radix(digits, 16).map_or_else(|_| failed(), |value| Line::Ok(Some(value)))
            }
            (Some("IRQ"), Some(level @ ("raise" | "lower")), Some(number)) => {
                let change = |line| Line::Change(Change { line, level: level == "raise" });
                number.parse().map_or_else(|_| failed(), change)
            }
            _ => failed(),
        }
    }
}

impl Qtest {
    /// Uses this stream for the protocol.
    pub fn new(stream: UnixStream) -> Result<Qtest> {
        stream.set_write_timeout(Some(LIMIT)).context("limit a wait")?;
        Ok(Qtest { stream, buffer: Vec::new(), changes: VecDeque::new(), command: String::new() })
    }

    /// The descriptor that becomes readable when a line changes.
    pub fn source(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Reads from memory (`read`) or a port (`in`).
    pub fn read(&mut self, port: bool, address: u64, size: usize) -> Result<u64> {
        self.command.clear();
        let verb = if port { "in" } else { "read" };
        let _ = writeln!(self.command, "{verb}{} {address:#x}", letter(size)?);
        self.ask()?.ok_or_else(|| broken("an answer without a value"))
    }

    /// Writes to memory or a port.
    pub fn write(&mut self, port: bool, address: u64, size: usize, value: u64) -> Result<()> {
        self.command.clear();
        let verb = if port { "out" } else { "write" };
        let _ = writeln!(self.command, "{verb}{} {address:#x} {value:#x}", letter(size)?);
        self.ask().map(drop)
    }

    /// Writes many bytes to memory.
    pub fn write_bytes(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        self.command.clear();
        let _ = write!(self.command, "write {address:#x} {:#x} 0x", bytes.len());
        for byte in bytes {
            let _ = write!(self.command, "{byte:02x}");
        }
        self.command.push('\n');
        self.ask().map(drop)
    }

    /// Has QEMU report the changes of interrupt lines that arrive at a device.
    pub fn intercept(&mut self, device: &str) -> Result<()> {
        self.command.clear();
        let _ = writeln!(self.command, "irq_intercept_in {device}");
        self.ask().map(drop)
    }

    /// Sends the command and waits for its answer; changes that arrive meanwhile are kept.
    fn ask(&mut self) -> Result<Option<u64>> {
        sys::send(&self.stream, self.command.as_bytes(), &[]).map_err(lost)?;
        let deadline = Instant::now() + LIMIT;
        loop {
            while let Some(line) = self.line()? {
                match line {
                    Line::Ok(value) => return Ok(value),
                    Line::Change(change) => self.keep(change)?,
                    Line::Failed(text) => return Err(broken(&text)),
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Qemu { what: format!("gave no answer for {} s", LIMIT.as_secs()) });
            }
            self.fill(left)?;
        }
    }

    /// Takes the changes that have arrived, without waiting.
    pub fn changes(&mut self) -> Result<Vec<Change>> {
        loop {
            while let Some(line) = self.line()? {
                match line {
                    Line::Change(change) => self.keep(change)?,
                    Line::Ok(_) => return Err(broken("an answer that nobody asked for")),
                    Line::Failed(text) => return Err(broken(&text)),
                }
            }
            if !self.receive()? {
                return Ok(self.changes.drain(..).collect());
            }
        }
    }

    /// True where a change arrived with an answer and nobody has taken it: no descriptor is readable for it
    /// any more.
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty() || !self.buffer.is_empty()
    }

    fn keep(&mut self, change: Change) -> Result<()> {
        if self.changes.len() >= MAX_CHANGES {
            return Err(broken("more interrupts than can be kept"));
        }
        self.changes.push_back(change);
        Ok(())
    }

    /// The next whole line.
    fn line(&mut self) -> Result<Option<Line>> {
        let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') else {
            return if self.buffer.len() > MAX_LINE {
                Err(broken("a line without an end"))
            } else {
                Ok(None)
            };
        };
        let line = Line::parse(&String::from_utf8_lossy(&self.buffer[..end]));
        self.buffer.drain(..=end);
        Ok(Some(line))
    }

    /// Waits for more bytes, no longer than `limit`.
    fn fill(&mut self, limit: Duration) -> Result<()> {
        let mut entry = libc::pollfd { fd: self.stream.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let limit = limit.as_millis().clamp(1, 60_000) as libc::c_int;
        // SAFETY: one entry is passed, and it lives during the call.
        unsafe { libc::poll(&mut entry, 1, limit) };
        self.receive().map(drop)
    }

    /// Reads the bytes that have arrived; false where none have.
    fn receive(&mut self) -> Result<bool> {
        let mut piece = [0; 4096];
        match sys::receive(&self.stream, &mut piece, &mut Vec::new()) {
            Ok(0) => Err(Error::Qemu { what: "ended".into() }),
            Ok(count) => {
                self.buffer.extend_from_slice(&piece[..count]);
                Ok(true)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(false)
            }
            Err(error) => Err(lost(error)),
        }
    }
}

fn letter(size: usize) -> Result<char> {
    match size {
        1 => Ok('b'),
        2 => Ok('w'),
        4 => Ok('l'),
        8 => Ok('q'),
        _ => Err(broken(&format!("an access of {size} bytes"))),
    }
}

fn broken(what: &str) -> Error {
    Error::Qemu { what: format!("said over qtest: {what}") }
}

fn lost(error: io::Error) -> Error {
    Error::Qemu { what: format!("cannot be reached: {error}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn lines_are_told_apart() {
        assert_eq!(Line::parse("OK"), Line::Ok(None));
        assert_eq!(Line::parse("OK 0x00000000deadbeef"), Line::Ok(Some(0xdead_beef)));
        assert_eq!(Line::parse("IRQ lower 11"), Line::Change(Change { line: 11, level: false }));
        for line in ["", "OK x", "OK 1 2", "IRQ raise x", "FAIL Unknown command", "IRQ raise"] {
            assert!(matches!(Line::parse(line), Line::Failed(_)), "{line}");
        }
    }

    #[test]
    fn changes_that_come_before_an_answer_are_kept() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut qtest = Qtest::new(ours).unwrap();
        theirs.write_all(b"IRQ raise 11\nIRQ raise 10\nOK 0x5\nIRQ lower 11\n").unwrap();
        assert_eq!(qtest.read(false, 0x1000, 4).unwrap(), 5);
        assert!(qtest.has_changes());
        let levels: Vec<bool> = qtest.changes().unwrap().iter().map(|change| change.level).collect();
        assert_eq!(levels, [true, true, false]);
        theirs.write_all(b"OK\nOK\n").unwrap();
        qtest.write(true, 0xcf8, 2, 7).unwrap();
        qtest.write_bytes(0x20, &[1, 0xab]).unwrap();
        let mut sent = vec![0; 256];
        let count = theirs.read(&mut sent).unwrap();
        assert_eq!(&sent[..count], b"readl 0x1000\noutw 0xcf8 0x7\nwrite 0x20 0x2 0x01ab\n");
        drop(theirs);
        assert!(qtest.read(false, 0, 4).is_err());
        assert!(qtest.changes().is_err());
    }
}
