//! The processes of a run, from `/proc`.

use std::fs;

/// Sends a signal to a process that a run started.
pub fn signal(process: u32, number: i32) {
    // SAFETY: sending a signal touches no memory; the process is one that this run started.
    unsafe { libc::kill(process as i32, number) };
}

/// The state of a process in `/proc`.
pub struct Stat {
    parent: u32,
    /// The start time in clock ticks since boot.
    pub start: u64,
    /// True where all its threads have ended and it waits to be reaped.
    pub dead: bool,
}

/// Reads the state of a process; `None` where the process does not exist.
pub fn stat(process: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name is in parentheses and may hold anything.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
        // The first thread becomes a zombie while others may still write (proc(5), num_threads).
        dead: matches!(*fields.first()?, "Z" | "X") && fields.get(17)?.parse::<u64>().ok()? <= 1,
    })
}

/// A process and all that it started, with start time and command line.
pub fn descendants(root: u32) -> Vec<(u32, u64, String)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let all: Vec<(u32, Stat)> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|process| Some((process, stat(process)?)))
        .collect();
    let mut wanted = vec![root];
    let mut next = 0;
    while let Some(&parent) = wanted.get(next) {
        wanted.extend(all.iter().filter(|(_, stat)| stat.parent == parent).map(|(process, _)| *process));
        next += 1;
    }
    let describe = |process: &u32| {
        let start = all.iter().find(|(number, _)| number == process)?.1.start;
        let line = fs::read(format!("/proc/{process}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        Some((*process, start, line.chars().take(4000).collect()))
    };
    wanted.iter().filter_map(describe).collect()
}
