//! The guest's console: kept in a bounded file, and searched for the kernel's last words.

use crate::error::printable;
use std::io::Write;

/// The console file never grows beyond this.
const MAX_FILE: usize = 16 << 20;
/// The longest part of a panic that is kept for the report, in bytes.
pub(crate) const MAX_EXCERPT: usize = 16 << 10;

/// Texts that mark the first line of a kernel's last report.
const SIGNS: [&str; 12] = [
    "BUG: ",
    "Oops: ",
    "Oops:",
    "general protection fault",
    "invalid opcode: ",
    "divide error: ",
    "kernel BUG at ",
    "stack segment: ",
    "double fault: ",
    "Kernel panic - not syncing",
    "int3: ",
    "Unable to handle kernel",
];

/// What the console shows of a panic.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    excerpt: String,
    /// Whether the report in the excerpt has ended.
    over: bool,
    panicked: bool,
    /// Why the console's file lacks the end of the console; `None` where it has all.
    pub(crate) cut: Option<String>,
}

/// The console's file, which has the beginning of what the console shows.
pub(crate) struct Kept<W> {
    file: W,
    room: usize,
    cut: Option<String>,
}

impl<W: Write> Kept<W> {
    /// A console that has shown nothing yet.
    pub(crate) fn new(file: W) -> Kept<W> {
        Kept { file, room: MAX_FILE, cut: None }
    }

    /// Adds what the console shows. A file that cannot be written must not end the run. Nothing later is added
    /// then, since a log with a hole would mislead.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        if self.cut.is_some() {
            return;
        }
        let fits = &bytes[..bytes.len().min(self.room)];
        self.room -= fits.len();
        self.cut = match self.file.write_all(fits) {
            Err(error) => Some(format!("it cannot be written further ({error})")),
            Ok(()) if fits.len() < bytes.len() => Some(format!("it is longer than {} MiB", MAX_FILE >> 20)),
            Ok(()) => None,
        };
    }

    /// Why the file lacks the end of the console; `None` where it has all.
    pub(crate) fn cut(self) -> Option<String> {
        self.cut
    }
}

impl Scan {
    /// Reads one line of the console and collects it once a sign of trouble was seen.
    pub(crate) fn line(&mut self, line: &str) {
        let line = printable(line);
        let sign = SIGNS.iter().any(|sign| line.contains(sign));
        if self.excerpt.is_empty() && !sign {
            return;
        }
        let panic = line.contains("Kernel panic - not syncing");
        // The kernel survived an earlier report; only what comes before the panic explains that.
        if sign && self.over && !panic && !self.panicked {
            self.excerpt.clear();
            self.over = false;
        }
        self.over |= ["---[ end trace", "=========="].iter().any(|end| without_time(&line).starts_with(end));
        self.panicked |= panic;
        if self.excerpt.len() + line.len() < MAX_EXCERPT {
            self.excerpt.push_str(without_time(&line));
            self.excerpt.push('\n');
        }
    }

    /// True where the kernel reported a panic.
    pub(crate) fn panicked(&self) -> bool {
        self.panicked
    }

    /// The text from the first sign of the last trouble to the end, bounded; empty without any trouble.
    pub(crate) fn excerpt(&self) -> &str {
        &self.excerpt
    }
}

/// Cuts `[    3.141592] ` off the beginning of a line of the kernel's log.
pub fn without_time(line: &str) -> &str {
    let Some(rest) = line.strip_prefix('[') else { return line };
    match rest.split_once(']') {
        Some((time, rest)) if time.trim().bytes().all(|b| b.is_ascii_digit() || b == b'.') => {
            rest.trim_start()
        }
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_file_is_bounded_and_has_no_hole() {
        let mut kept = Kept::new(Vec::new());
        kept.add(&vec![b'x'; MAX_FILE - 1]);
        kept.add(b"yz");
        kept.add(b"z");
        assert!(kept.file.len() == MAX_FILE && kept.file.ends_with(b"xy"));
        assert_eq!(kept.cut().unwrap(), "it is longer than 16 MiB");
        // A full disk.
        let mut room = [0; 4];
        let mut kept = Kept::new(&mut room[..]);
        for bytes in [b"one", b"two", b"six"] {
            kept.add(bytes);
        }
        assert!(kept.cut().unwrap().starts_with("it cannot be written further ("));
        assert_eq!(&room, b"onet");
    }

    #[test]
    fn the_excerpt_begins_at_the_first_sign() {
        let mut scan = Scan::default();
        for line in [
            "[    1.0] e1000: loading out-of-tree module",
            "[    3.5] BUG: kernel NULL pointer dereference, address: 0000000000000008",
            "[    3.5] RIP: 0010:x_init+0x5/0x10 [x]",
            "[    3.6] Kernel panic - not syncing: Fatal exception",
        ] {
            scan.line(line);
        }
        assert!(scan.panicked());
        assert_eq!(scan.excerpt().lines().count(), 3);
        assert!(scan.excerpt().starts_with("BUG: kernel NULL pointer"));
    }

    #[test]
    fn what_the_kernel_survived_is_no_part_of_a_panic() {
        let mut scan = Scan::default();
        for line in [
            "[    2.0] BUG: KFENCE: use-after-free read in x_init+0x5/0x10 [x]",
            "[    2.1] ==================================================================",
            "[    3.5] BUG: kernel NULL pointer dereference, address: 0000000000000008",
            "[    3.5] Oops: 0002 [#1]",
            "[    3.6] ---[ end trace 0000000000000000 ]---",
            "[    3.6] Kernel panic - not syncing: Fatal exception",
        ] {
            scan.line(line);
        }
        assert_eq!(scan.excerpt().lines().count(), 4);
        assert!(scan.excerpt().starts_with("BUG: kernel NULL pointer"));
    }
}
