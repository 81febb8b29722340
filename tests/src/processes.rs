//! The processes of this machine, by their parents.

/// All processes of this machine, with their parents.
pub fn parents() -> Vec<(u32, u32)> {
    let read = |name: &str| -> Option<(u32, u32)> {
        let process: u32 = name.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        Some((process, stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()?))
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| read(entry.file_name().to_str()?)).collect()
}

/// All processes that a process has started, or that such a one has started.
pub fn descendants(of: u32) -> Vec<u32> {
    let all = parents();
    let (mut below, mut at) = (vec![of], 0);
    while let Some(parent) = below.get(at).copied() {
        below.extend(all.iter().filter(|(_, of)| *of == parent).map(|(process, _)| *process));
        at += 1;
    }
    below.split_off(1)
}

/// Whether a process is there and runs: one that has ended and waits for its parent does not.
pub fn runs(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
}
