//! Parses the violations of guarded drivers from a kernel's log (`runtime/report/report.c`) into findings.

use guardrail_finding::{AccessInfo, ContextInfo, Finding, Fingerprints, Frame, ObjectInfo};
use guardrail_host::HostError;
use guardrail_report::{Report, Run, SCHEMA};
use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::path::Path;

/// The prefix of the runtime's lines, behind the log's own prefix.
const PREFIX: &str = "guardrail: ";
/// The name of the checker in reports.
const CHECKER: &str = "isolation";
/// The largest log that is read, in bytes.
const MAX_LOG: u64 = 256 << 20;
/// The most different findings, and the most lines that are kept of one.
const MAX_FINDINGS: usize = 10_000;
const MAX_LINES: usize = 64;

/// The violations that a kernel's log reports; `-` is standard input.
pub fn of_log(file: &Path) -> Result<Report, HostError> {
    let name = file.display().to_string();
    let mut bytes = Vec::new();
    let read = match name.as_str() {
        "-" => std::io::stdin().take(MAX_LOG).read_to_end(&mut bytes),
        _ => fs::File::open(file).and_then(|file| file.take(MAX_LOG).read_to_end(&mut bytes)),
    };
    read.map_err(|error| HostError::Usage(format!("cannot read {name}: {error}")))?;
    let log = String::from_utf8_lossy(&bytes);
    let findings = findings(&log);
    let mut drivers: Vec<&str> = findings.iter().map(|finding| finding.module.as_str()).collect();
    drivers.sort_unstable();
    drivers.dedup();
    let driver = if drivers.is_empty() { "guarded drivers".to_owned() } else { drivers.join(", ") };
    let release = log.lines().find_map(|line| line.split_once("Linux version ")?.1.split_whitespace().next());
    Ok(report(&driver, release.unwrap_or("an unknown kernel"), "completed", findings))
}

/// A report with findings of the isolation checker.
pub fn report(driver: &str, kernel: &str, outcome: &str, findings: Vec<Finding>) -> Report {
    Report {
        schema: SCHEMA.to_owned(),
        driver: driver.to_owned(),
        kernel: kernel.to_owned(),
        tools: vec![CHECKER.to_owned()],
        mode: "permissive".to_owned(),
        run: Run { outcome: outcome.to_owned(), ..Run::default() },
        findings,
        ..Report::default()
    }
}

/// True for the first line of a violation.
pub fn is_violation(line: &str) -> bool {
    own(line).is_some_and(|text| text.starts_with("violation: "))
}

/// The findings in a log, each place once.
pub fn findings(log: &str) -> Vec<Finding> {
    let mut all = Found::default();
    let mut current: Option<Finding> = None;
    let mut lines = 0;
    for text in log.lines().filter_map(own) {
        let found = text.strip_prefix("violation: ").and_then(violation);
        if let Some(found) = found.or_else(|| text.strip_prefix("fault: ").and_then(fault)) {
            all.keep(current.replace(found));
            lines = 0;
        } else if let Some(finding) = current.as_mut().filter(|_| lines < MAX_LINES) {
            lines += 1;
            detail(finding, text);
        }
    }
    all.keep(current);
    all.findings
}

/// The runtime's part of a line of a log; `None` for other lines.
fn own(line: &str) -> Option<&str> {
    let (before, text) = line.split_once(PREFIX)?;
    // Another program's message may quote the runtime's. The text before a real one is a time, a level, or
    // the logger's name.
    (before.is_empty() || before.ends_with([' ', ';', '>', ']'])).then_some(text)
}

/// The findings of a log so far.
#[derive(Default)]
struct Found {
    findings: Vec<Finding>,
    prints: Fingerprints,
    /// Index in `findings` by place. A log may have millions of violations at thousands of places.
    known: HashMap<u64, usize>,
}

impl Found {
    /// Adds a complete finding; a repetition is counted.
    fn keep(&mut self, finding: Option<Finding>) {
        let Some(mut finding) = finding else { return };
        let place = finding.place();
        if let Some(&known) = self.known.get(&place) {
            self.findings[known].count += 1;
        } else if self.findings.len() < MAX_FINDINGS {
            finding.id = self.prints.of(&finding);
            self.known.insert(place, self.findings.len());
            self.findings.push(finding);
        }
    }
}

/// `WHAT ADDRESS by PLACE: domain N holds RIGHT, needs RIGHT`.
fn violation(text: &str) -> Option<Finding> {
    let (head, rights) = text.rsplit_once(": domain ")?;
    let (head, place) = head.rsplit_once(" by ")?;
    let (what, address) = head.rsplit_once(' ')?;
    let (_, needs) = rights.rsplit_once("needs ")?;
    let frame = frame(place)?;
    let what = what.strip_suffix(" at").unwrap_or(what);
    let kind = kind(needs);
    let lacks = if kind.ends_with("-right") { " without the right to" } else { "" };
    let size =
        what.split_once(" of ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok()).unwrap_or(0);
    Some(Finding {
        checker: CHECKER.to_owned(),
        kind: kind.to_owned(),
        message: format!("{what}{lacks}: domain {rights}"),
        module: frame.module.clone().unwrap_or_default(),
        function: frame.function.clone(),
        offset: frame.offset,
        access: Some(AccessInfo {
            what: what.split(' ').next().unwrap_or_default().to_owned(),
            address: format!("0x{address}"),
            size,
        }),
        count: 1,
        ..Finding::default()
    })
}

/// `WHAT by PLACE: domain N`: a fault of the processor, or a finding of the watchdog.
fn fault(text: &str) -> Option<Finding> {
    let (head, domain) = text.rsplit_once(": domain ")?;
    let (what, place) = head.rsplit_once(" by ")?;
    let domain: u8 = domain.parse().ok()?;
    let frame = frame(place)?;
    Some(Finding {
        checker: CHECKER.to_owned(),
        kind: if what == "endless loop" { "endless-loop" } else { "fault-in-driver" }.to_owned(),
        message: format!("{what}: domain {domain}"),
        module: frame.module.unwrap_or_default(),
        function: frame.function,
        offset: frame.offset,
        count: 1,
        ..Finding::default()
    })
}

/// The kind of a finding, by the right that the driver lacks.
fn kind(needs: &str) -> &'static str {
    match needs.split(' ').next().unwrap_or_default() {
        "write" => "write-without-right",
        "icall" | "call" => "call-without-right",
        "owner" | "ownership" => "free-without-right",
        "object" | "state" => "object-without-right",
        "no" => "lock-held-at-return",
        "quota" => "beyond-quota",
        _ => "no-right",
    }
}

/// Parses a further line of a violation.
fn detail(finding: &mut Finding, text: &str) {
    if let Some(place) = text.strip_prefix("  ") {
        finding.stack.extend(frame(place));
    } else if let Some(rest) = text.strip_prefix("call trace of ") {
        finding.context = context(rest).unwrap_or_default();
    } else if let Some(target) = text.strip_prefix("target:") {
        match object(target) {
            Some(object) => finding.object = Some(object),
            None => finding.notes.push(format!("the address is in {}", target.trim())),
        }
    } else {
        finding.notes.push(text.trim().to_owned());
    }
}

/// `function+0x1/0x1d0 [module]`.
fn frame(text: &str) -> Option<Frame> {
    let mut words = text.split_whitespace();
    let place = words.next()?;
    let module = words.next().and_then(|word| Some(word.strip_prefix('[')?.strip_suffix(']')?.to_owned()));
    let (function, offset) = place.split_once('+').unwrap_or((place, "0x0"));
    let offset = offset.split('/').next().and_then(|digits| digits.strip_prefix("0x")).unwrap_or_default();
    let offset = u64::from_str_radix(offset, 16).ok()?;
    Some(Frame { function: function.to_owned(), module, offset, ..Frame::default() })
}

/// `insmod[93] on CPU 0:`.
fn context(text: &str) -> Option<ContextInfo> {
    let (thread, cpu) = text.strip_suffix(':')?.rsplit_once(" on CPU ")?;
    let (name, number) = thread.strip_suffix(']')?.rsplit_once('[')?;
    Some(ContextInfo { thread: format!("{name}/{number}"), cpu: cpu.parse().ok()?, ..ContextInfo::default() })
}

/// `slab kmalloc-128 start ffff88ba1ffb5380 pointer offset 16 size 128`, the kernel's description of memory
/// (`mem_dump_obj`).
fn object(text: &str) -> Option<ObjectInfo> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "slab")?;
    let after = |name: &str| {
        let found = words.iter().position(|word| *word == name)?;
        words.get(found + 1).copied()
    };
    let pointer = words.windows(3).find(|three| three[..2] == ["pointer", "offset"]);
    Some(ObjectInfo {
        address: format!("0x{}", after("start")?),
        size: after("size")?.parse().ok()?,
        class: "slab".to_owned(),
        name: words.get(at + 1).map(|name| (*name).to_owned()),
        offset: pointer.and_then(|three| three[2].parse().ok()),
        ..ObjectInfo::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
[    0.000000] Linux version 6.1.0-1 (x)
[    3.100000] guardrail: violation: write of 8 bytes at ffff88ba1ffb5390 by report+0x1/0x1d0 [guardrail_test]: domain 1 holds read, needs write
[    3.100001] guardrail: domain 2 (other) holds write there
[    3.100002] guardrail: target: slab kmalloc-128 start ffff88ba1ffb5380 pointer offset 16 size 128
[    3.100003] e1000 0000:00:03.0 eth0: something else
[    3.100004] guardrail: call trace of insmod[93] on CPU 0:
[    3.100005] guardrail:   report+0x93/0x1d0 [guardrail_test]
[    3.100006] guardrail:   do_one_initcall+0x56/0x220
host kernel: guardrail: violation: call of 0000000000000000 by f+0x10/0x20 [e1000]: domain 1 holds read, needs icall
6,99,100,-;guardrail: target: user memory
guardrail: violation: call of 0000000000000000 by f+0x10/0x20 [e1000]: domain 1 holds read, needs icall
";

    #[test]
    fn a_log_becomes_findings() {
        let found = findings(LOG);
        assert_eq!(found.len(), 2);
        let first = &found[0];
        assert_eq!(first.kind, "write-without-right");
        assert_eq!(first.message, "write of 8 bytes without the right to: domain 1 holds read, needs write");
        assert_eq!(
            (first.function.as_str(), first.offset, first.module.as_str()),
            ("report", 1, "guardrail_test")
        );
        assert_eq!(first.context.thread, "insmod/93");
        assert_eq!(first.stack.len(), 2);
        assert_eq!(first.stack[1].to_string(), "do_one_initcall+0x56");
        let object = first.object.as_ref().unwrap();
        assert_eq!(
            (object.size, object.offset, object.name.as_deref()),
            (128, Some(16), Some("kmalloc-128"))
        );
        let access = first.access.as_ref().unwrap();
        assert_eq!(
            (access.what.as_str(), access.size, access.address.as_str()),
            ("write", 8, "0xffff88ba1ffb5390")
        );
        assert_eq!(first.notes, ["domain 2 (other) holds write there"]);
        assert_eq!((found[1].kind.as_str(), found[1].count), ("call-without-right", 2));
        assert_ne!(found[0].id, found[1].id);
        assert!(found.iter().all(|finding| guardrail_finding::kinds::find(&finding.kind).is_some()));
    }

    #[test]
    fn locks_quotas_and_faults_are_findings() {
        let log = "\
guardrail: violation: return from init with a mutex taken at ffff88ba1ffb5390 by f+0x1/0x1d0 [x]: domain 1 holds the lock, needs no lock
guardrail: violation: __kmalloc, result: allocation of 64 bytes beyond the quota at ffff88ba1ffb5390 by f+0x2/0x1d0 [x]: domain 1 holds 1025 KiB, needs quota of 1024 KiB
guardrail: fault: division by zero by f+0x3/0x1d0 [x]: domain 1
guardrail: fault: endless loop by delay_tsc+0x33/0xa0: domain 1
guardrail: fault: by f: domain x
";
        let found = findings(log);
        let kinds: Vec<_> = found.iter().map(|one| (one.kind.as_str(), one.message.as_str())).collect();
        assert_eq!(
            kinds,
            [
                (
                    "lock-held-at-return",
                    "return from init with a mutex taken: domain 1 holds the lock, needs no lock"
                ),
                (
                    "beyond-quota",
                    "__kmalloc, result: allocation of 64 bytes beyond the quota: domain 1 holds 1025 KiB, needs quota of 1024 KiB"
                ),
                ("fault-in-driver", "division by zero: domain 1"),
                ("endless-loop", "endless loop: domain 1"),
            ]
        );
        assert!(found.iter().all(|finding| guardrail_finding::kinds::find(&finding.kind).is_some()));
    }

    #[test]
    fn what_only_looks_like_a_violation_is_none() {
        for text in [
            "",
            "guardrail: violation: ",
            "guardrail: violation: write by : domain 1",
            "guardrail: violation: a by b: domain x",
            "xguardrail: violation: call of 0 by f+0x10/0x20 [e1000]: domain 1 holds read, needs icall",
            "guardrail:   f+0x1/0x2\nguardrail: target: slab",
        ] {
            assert!(findings(text).is_empty(), "{text}");
        }
        let all: String = (0..5000u32).filter_map(char::from_u32).collect();
        assert!(findings(&all).is_empty());
    }

    /// Each line was compared with all findings, which took over 30 s here.
    #[test]
    fn a_log_with_many_places_is_read_at_once() {
        let line = |at: usize| {
            format!(
                "guardrail: violation: call of 0 by f+{at:#x}/0xfffff [m]: domain 1 holds read, needs icall\n"
            )
        };
        let log: String = (0..5 * MAX_FINDINGS).map(|at| line(at % (2 * MAX_FINDINGS))).collect();
        let begun = std::time::Instant::now();
        let found = findings(&log);
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
        assert_eq!(found.len(), MAX_FINDINGS);
        assert_eq!((found[0].count, found[MAX_FINDINGS - 1].count), (3, 3));
        let ids: std::collections::HashSet<&str> = found.iter().map(|finding| finding.id.as_str()).collect();
        assert_eq!(ids.len(), MAX_FINDINGS);
    }

    #[test]
    fn details_are_bounded() {
        let mut log =
            "guardrail: violation: call of 0 by f+0x1/0x2 [m]: domain 1 holds read, needs icall\n".to_owned();
        log += &"guardrail:   f+0x1/0x2 [m]\n".repeat(1000);
        assert_eq!(findings(&log)[0].stack.len(), MAX_LINES);
    }
}
