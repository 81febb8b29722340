//! The guest's console: kept in a bounded file, and searched for the kernel's last words.

use crate::run::progress::printable;

/// The console file never grows beyond this.
pub(crate) const MAX_FILE: usize = 16 << 20;
/// The longest part of a panic that is kept for the report, in bytes.
const MAX_EXCERPT: usize = 16 << 10;

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
    /// Whether the console is longer than its file.
    pub(crate) cut: bool,
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
