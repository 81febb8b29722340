//! The gate, with real guests: every device access is held, faults are contained, and any failure closes the
//! gate.

use guardrail_tests::processes::{descendants, parents};
use guardrail_tests::{Checked, check, ensure, findings, guardrail, keeps_the_rules, root};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// Drivers whose accesses are counted by QEMU as well: registers in memory, ports, message-signaled interrupts.
/// The last one's device is of another bus, behind a PCI device that modules of the kernel access.
const COUNTED: [(&str, &[&str]); 4] = [
    ("e1000", &["e1000-mmio", "e1000-io"]),
    ("nvme", &["nvme", "msix-table"]),
    ("snd_ens1370", &["es1370"]),
    (
        "virtio_net",
        &[
            "msix-table",
            "virtio-pci-common-virtio-net",
            "virtio-pci-device-virtio-net",
            "virtio-pci-isr-virtio-net",
            "virtio-pci-notify-virtio-net",
        ],
    ),
];

/// Drivers whose devices must work behind either gate.
const BEHIND: [&str; 9] =
    ["e1000", "igb", "sym53c8xx", "nvme", "snd_ens1370", "e1000e", "pcnet32", "8139cp", "ahci"];
/// Drivers that no other test runs to the end of such a workload with the gate in the driver VM.
const ONLY_HERE: [&str; 4] = ["ahci", "igb", "snd_ens1370", "e1000e"];
/// So many of the first of both are tested each time, the others with `--ignored`.
const SAMPLED: usize = 1;
/// Drivers whose accesses are counted each time: one of each bus.
const COUNTED_ALWAYS: [&str; 2] = ["e1000", "virtio_net"];

/// The option by which a vCPU waits with writes, too.
const HOLD: &str = "--hold-writes";
/// The drivers among them that reach their device by memory.
const POSTING: [&str; 2] = ["e1000", "virtio_net"];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials: Vec<Trial> = Vec::new();
    for (driver, regions) in COUNTED {
        let trial =
            Trial::test(format!("every access of {driver} is held"), move || all_held(driver, regions, &[]));
        trials.push(trial.with_ignored_flag(!COUNTED_ALWAYS.contains(&driver)));
    }
    for (gate, drivers) in [("vmm", &ONLY_HERE[..]), ("vfio-user", &BEHIND)] {
        trials.extend(drivers.iter().enumerate().map(|(index, driver)| {
            let trial = Trial::test(format!("{driver} works with {gate}"), move || works(driver, gate));
            trial.with_ignored_flag(index >= SAMPLED)
        }));
    }
    let mut add =
        |name: &str, test: fn() -> Result<(), Failed>| trials.push(Trial::test(name.to_owned(), test));
    add("writes that wait are held, and arrive in order", || {
        let (driver, regions) = COUNTED[0];
        all_held(driver, regions, &[HOLD])
    });
    add("a finding is contained", || contained(&[]));
    add("a finding is contained where writes wait", || contained(&[HOLD]));
    add("containment without an access to hold fails", nothing_held);
    add("the twin of a contained driver runs", twin_runs);
    add("a policy lets a kind of finding pass", policy_warns);
    add("triage lets harmless findings pass", triage_passes);
    add("an analysis that dies closes the gate", || {
        lost(&[], "internal-analysis", libc::SIGKILL, "the analysis was ended by signal 9")
    });
    add("an analysis that stands still closes the gate", || {
        lost(&[], "internal-analysis", libc::SIGSTOP, "held for the longest time that is allowed")
    });
    add("what reaches the gate outside was held before", held_outside);
    add("a finding is contained outside", || contained_outside(&[]));
    add("a finding is contained outside where writes wait", || contained_outside(&[HOLD]));
    add("a gate outside that dies ends the run", || {
        let why = "the gate's process was ended by signal 9";
        lost(&["--gate", "vfio-user"], "internal-gate", libc::SIGKILL, why)
    });
    // Some tests have limits in seconds.
    libtest_mimic::run(&Arguments { test_threads: Some(1), ..arguments }, trials).exit();
}

/// The workload ends well, with its checksums, and every access was held.
fn works(driver: &str, gate: &str) -> Result<(), Failed> {
    let mut arguments = vec![driver, "--gate", gate, "--kernel", "6.1"];
    for set in ["DOWNLOAD_MB=1", "REQUESTS=10", "UPLOADS=1", "PINGS=2"] {
        arguments.extend(["--offer", set]);
    }
    // The usual workload of a sound card only loads its driver.
    let sound = root().join("crates/gate/tests/sound.sh").display().to_string();
    if driver == "snd_ens1370" {
        arguments.extend(["--workload", &sound]);
    }
    let result = check(&arguments);
    let report = result.report()?;
    let run = &report["run"];
    let (counts, outside) = (&run["gate"], &run["gate"]["outside"]);
    // Bugs of the drivers are not the subject here; igb frees memory that is still mapped.
    let held = [0, 1].contains(&result.status)
        && run["outcome"] == "completed"
        && counts["kind"] == gate
        && counts["closed"].is_null()
        && counts["held"].as_u64() > Some(0)
        && counts["ungated"] == 0
        && counts["dropped"] == 0;
    let passed = outside["unknown"] == 0
        && outside["dropped"] == 0
        && outside["arrived_registers"].as_u64() > Some(0)
        && outside["interrupts"].as_u64() > Some(0);
    if held && (gate == "vmm" || passed) { Ok(()) } else { Err(failure(&result, report).into()) }
}

/// QEMU's own counts of what reached the device agree with the gate's, in each address space.
fn all_held(driver: &str, regions: &[&str], more: &[&str]) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let (log, trace) = (folder.path().join("qemu.log"), folder.path().join("run.trace"));
    let (log, trace) = (log.to_str().ok_or("a plain path")?, trace.to_str().ok_or("a plain path")?);
    let events = ["memory_region_ops_read", "memory_region_ops_write", "pci_cfg_read", "pci_cfg_write"];
    let mut words: Vec<String> =
        events.iter().flat_map(|event| ["-trace", event]).map(str::to_owned).collect();
    words.extend(["-D", log, "-msg", "timestamp=on"].map(str::to_owned));
    // Notifications by eventfd are not in the trace.
    words.extend(["-global", "virtio-pci.ioeventfd=off"].map(str::to_owned));
    let words: Vec<String> = words.iter().map(|word| format!("--qemu-arg={word}")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = check(&[&[driver, "--tool", "quiet", "--record", trace][..], &words, more].concat());
    let report = result.report()?;
    let (run, gate) = (&report["run"], &report["run"]["gate"]);
    if result.status != 0 || run["outcome"] != "completed" || gate["ungated"] != 0 || gate["dropped"] != 0 {
        return Err(format!("exit status {}: {run:#}\n{}", result.status, result.stderr).into());
    }
    let since = gate["since"].as_f64().ok_or("the device was not bound")?;
    let counts = qemu_counts(Path::new(log), since)?;
    let seen: u64 = regions.iter().filter_map(|region| counts.get(*region)).sum();
    let config: u64 =
        counts.iter().filter(|(name, _)| name.starts_with("config ")).map(|(_, count)| count).sum();
    let held = |space: &str| gate["spaces"][space]["held"].as_u64().unwrap_or(0);
    if held("memory") + held("port") != seen || held("config") != config || seen < 50 || config < 5 {
        return Err(format!(
            "QEMU saw {seen} accesses and {config} to configuration space; {gate:#}\n{counts:?}"
        )
        .into());
    }
    if let ("e1000", [region, ..]) = (driver, regions) {
        in_order(Path::new(log), since, region, trace)?;
    }
    let posted = gate["posted"].as_u64() > Some(0);
    ensure(if more.is_empty() { posted || !POSTING.contains(&driver) } else { !posted }, || {
        format!("{gate:#}")
    })?;
    keeps_the_rules(trace)
}

/// Writes for which the driver did not wait arrive where the driver made them: between the same other accesses.
fn in_order(log: &Path, since: f64, region: &str, trace: &str) -> Result<(), Failed> {
    let arrived: Vec<(bool, u64)> = qemu_events(log, since)?
        .iter()
        .filter(|words| words.last().is_some_and(|name| name.trim_matches('\'') == region))
        .filter_map(|words| Some((words[0].ends_with("write"), low_bits(words.get(6)?)?)))
        .collect();
    let (mut made, mut writes): (Vec<(bool, u64)>, u64) = (Vec::new(), 0);
    let view = guardrail(&["view", trace]).with(&[0])?;
    for line in view.stdout.lines() {
        if line.contains(" the access waits, and comes again") {
            made.pop();
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [_, _, "ring", _, way @ ("load" | "store"), _, "at", address, ..] = words.as_slice()
            && line.contains(" of a device, ")
        {
            made.push((*way == "store", low_bits(address).ok_or("an address")?));
            writes += u64::from(*way == "store");
        }
    }
    let differs = made.iter().zip(&arrived).position(|(one, other)| one != other);
    ensure(differs.is_none() && made.len() == arrived.len() && writes > 50, || {
        format!(
            "{} accesses were made and {} arrived; the first that differs is {differs:?}",
            made.len(),
            arrived.len()
        )
    })
}

/// The place of an address in its page.
fn low_bits(address: &str) -> Option<u64> {
    Some(u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()? & 0xfff)
}

/// Accesses since a time in seconds, by the name of their region, and to configuration space by `config
/// DEVICE`.
fn qemu_counts(log: &Path, since: f64) -> Result<BTreeMap<String, u64>, Failed> {
    let mut counts = BTreeMap::new();
    for words in qemu_events(log, since)? {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let name = match words[0] {
            // The host bridge and the other devices are not the driver's.
            "pci_cfg_read" | "pci_cfg_write" if words[1] != "PIIX3" && words[1] != "i440FX" => {
                format!("config {}", words[1])
            }
            "memory_region_ops_read" | "memory_region_ops_write" if words[2] != "-1" => {
                words[words.len() - 1].trim_matches('\'').to_owned()
            }
            _ => continue,
        };
        *counts.entry(name).or_insert(0) += 1;
    }
    Ok(counts)
}

/// The words of QEMU's events since a time in seconds.
fn qemu_events(log: &Path, since: f64) -> Result<Vec<Vec<String>>, Failed> {
    let text = std::fs::read(log)?;
    let text = String::from_utf8_lossy(&text);
    let events = text.lines().filter_map(|line| {
        let (time, rest) = line.split_once(' ')?;
        // Times are printed in microseconds, rounded down.
        let later = timestamp(time).is_some_and(|time| time >= since - 1e-6);
        later.then(|| rest.split(' ').map(str::to_owned).collect())
    });
    Ok(events.collect())
}

/// Seconds since the epoch of a time of today or yesterday, such as `2026-11-21T18:16:53.662229Z`.
fn timestamp(text: &str) -> Option<f64> {
    let clock = text.strip_suffix('Z')?.split_once('T')?.1;
    let mut parts = clock.split(':').map(str::parse::<f64>);
    let mut part = || parts.next()?.ok();
    let seconds = part()? * 3600.0 + part()? * 60.0 + part()?;
    let now = UNIX_EPOCH.elapsed().ok()?.as_secs_f64();
    let midnight = (now / 86400.0).floor() * 86400.0;
    Some(if midnight + seconds > now + 3600.0 { midnight + seconds - 86400.0 } else { midnight + seconds })
}

/// A driver whose device is behind no PCI device cannot be contained, and the run says so.
fn nothing_held() -> Result<(), Failed> {
    let result = check(&["psmouse", "--mode", "stringent"]);
    let says = "--mode stringent held no access of psmouse to a device";
    ensure(result.status == 3 && result.stderr.contains(says), || {
        format!("exit status {}: {}", result.status, result.stderr)
    })
}

/// The first finding cuts the device off before the access that would have reached it.
fn contained(more: &[&str]) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("hook");
    let hook = format!("echo $GUARDRAIL_KIND $GUARDRAIL_ACTION > {}", output.display());
    let words = ["zoo/uninit-mmio", "--mode", "stringent", "--on-finding", &hook];
    let result = check(&[&words[..], more].concat());
    let report = result.report()?;
    let finding = findings(report).next().ok_or("no finding")?;
    let gate = &report["run"]["gate"];
    let right = result.status == 4
        && report["mode"] == "stringent"
        && report["run"]["outcome"] == "contained"
        && finding["kind"] == "uninit-to-device"
        && finding["action"] == "contained"
        && gate["dropped"].as_u64() > Some(0)
        && gate["ungated"] == 0;
    if !right {
        return Err(failure(&result, report).into());
    }
    match std::fs::read_to_string(output)?.trim() {
        "uninit-to-device contained" => Ok(()),
        other => Err(format!("the hook said '{other}'").into()),
    }
}

fn twin_runs() -> Result<(), Failed> {
    let result = check(&["zoo/uninit-mmio_ok", "--mode", "stringent"]);
    let report = result.report()?;
    ensure(result.status == 0 && report["run"]["gate"]["dropped"] == 0, || failure(&result, report))
}

fn policy_warns() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let policy = folder.path().join("policy.toml");
    std::fs::write(&policy, "[kinds]\nuninit-to-device = \"warn\"\n")?;
    let policy = policy.to_str().ok_or("a plain path")?;
    let result = check(&["zoo/uninit-mmio", "--mode", "stringent", "--policy", policy]);
    let report = result.report()?;
    let passed = findings(report).all(|finding| finding["action"] == "passed");
    ensure(result.status == 1 && passed && report["run"]["gate"]["dropped"] == 0, || failure(&result, report))
}

fn triage_passes() -> Result<(), Failed> {
    let result = check(&["zoo/race-statistics", "--mode", "triage", "--tool", "drcheck"]);
    let report = result.report()?;
    let harmless = |finding: &Value| {
        finding["action"] == "passed: judged harmless"
            && finding["triage"].as_str().is_some_and(|t| t.starts_with("likely"))
    };
    ensure(result.status == 0 && findings(report).any(|_| true) && findings(report).all(harmless), || {
        failure(&result, report)
    })
}

fn failure(result: &Checked, report: &Value) -> String {
    format!("exit status {}\n{report:#}\n{}", result.status, result.stderr)
}

/// A running check; it does not outlive the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The gate outside the driver VM receives the accesses that the tracer held, one by one, and nothing else.
fn held_outside() -> Result<(), Failed> {
    let result = check(&["e1000", "--tool", "quiet", "--gate", "vfio-user", "--set", "DOWNLOAD_MB=1"]);
    let report = result.report()?;
    let gate = &report["run"]["gate"];
    let (held, outside) = (&gate["spaces"], &gate["outside"]);
    // The card's first region is memory and its second ports, and only the driver accesses them. QEMU answers
    // some reads of configuration space itself.
    let right = result.status == 0
        && report["run"]["outcome"] == "completed"
        && gate["kind"] == "vfio-user"
        && gate["closed"].is_null()
        && gate["ungated"] == 0
        && gate["dropped"] == 0
        && outside["unknown"] == 0
        && outside["dropped"] == 0
        && held["memory"]["held"].as_u64() > Some(1000)
        && held["port"]["held"].as_u64() > Some(0)
        && outside["spaces"]["bar0"]["passed"] == held["memory"]["held"]
        && outside["spaces"]["bar1"]["passed"] == held["port"]["held"]
        && outside["arrived_config"].as_u64() > Some(0)
        && outside["arrived_config"].as_u64() <= held["config"]["held"].as_u64()
        && outside["interrupts"].as_u64() > Some(0);
    ensure(right, || failure(&result, report))
}

/// The device is cut off from outside, and stays so.
fn contained_outside(more: &[&str]) -> Result<(), Failed> {
    let words = ["zoo/uninit-mmio", "--mode", "stringent", "--gate", "vfio-user"];
    let result = check(&[&words[..], more].concat());
    let report = result.report()?;
    let gate = &report["run"]["gate"];
    let bar = &gate["outside"]["spaces"]["bar0"];
    // A posted write that was on its way when the gate closed is dropped.
    let counts = if more.is_empty() { &["passed", "dropped"][..] } else { &["passed"] };
    let arrived = counts.iter().filter_map(|count| bar[count].as_u64()).sum::<u64>();
    let right = result.status == 4
        && report["run"]["outcome"] == "contained"
        && gate["closed"] == "a finding is contained"
        && gate["dropped"].as_u64() > Some(0)
        && gate["ungated"] == 0
        && gate["spaces"]["memory"]["held"] == arrived;
    ensure(right, || failure(&result, report))
}

/// A process of the run dies or hangs in the middle of it. The device is cut off, the run fails with a
/// message, and no process is left.
fn lost(arguments: &[&str], word: &str, signal: i32, why: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let said = folder.path().join("stderr");
    let child = Command::new(guardrail_tests::program())
        .args(["check", "e1000", "--gate-timeout", "2"])
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&said)?)
        .spawn()?;
    let mut running = Running(child);
    let deadline = Instant::now() + Duration::from_secs(120);
    while !std::fs::read_to_string(&said)?.contains("up …") {
        if Instant::now() > deadline {
            return Err("the guest did not begin".into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    jailed(running.0.id())?;
    let lost = child_of(running.0.id(), word).ok_or_else(|| format!("there is no {word}"))?;
    let others: Vec<u32> = ["internal-analysis", "internal-gate", "-kernel"]
        .iter()
        .filter_map(|word| child_of(running.0.id(), word))
        .chain(child_of(lost, "qtest"))
        .collect();
    // SAFETY: a plain system call; the process is a child of a child that still runs.
    unsafe { libc::kill(lost as i32, signal) };
    let status = loop {
        if let Some(status) = running.0.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            return Err("the run goes on".into());
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let text = std::fs::read_to_string(&said)?;
    let errors: Vec<&str> = text.lines().filter(|line| line.starts_with("error: ")).collect();
    if status.code() != Some(3) || errors.len() != 1 || !errors[0].contains(why) {
        return Err(format!("{status}\n{text}").into());
    }
    // With a gate outside there is also the QEMU of the device.
    if others.len() != 2 + 2 * usize::from(word == "internal-gate") {
        return Err(format!("only {} processes were found", others.len()).into());
    }
    let deadline = Instant::now() + Duration::from_secs(2);
    while let Some(pid) = others.iter().find(|pid| Path::new(&format!("/proc/{pid}")).exists()) {
        // The kernel kills a child of a child a moment after its parent.
        if Instant::now() > deadline {
            return Err(format!("process {pid} is still there").into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Every process that a run has started, or that such a one has started, has no capabilities, can gain none, and is under
/// a filter of system calls.
fn jailed(supervisor: u32) -> Result<(), Failed> {
    let below = descendants(supervisor);
    // The analysis and QEMU at least.
    ensure(below.len() > 1, || format!("process {supervisor} has started no others"))?;
    for process in &below {
        let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
        for line in ["CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
            let has = status.lines().any(|found| found == line);
            ensure(has, || format!("process {process} has no line {line:?}:\n{status}"))?;
        }
    }
    apart(supervisor)
}

/// QEMU, the gate, the analysis and the process that parses have users of their own, and the first two namespaces of their
/// own, where this machine permits that. The device's QEMU shares those of the gate.
fn apart(supervisor: u32) -> Result<(), Failed> {
    let user = |process: u32| -> Result<String, Failed> {
        let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
        let line = status.lines().find(|line| line.starts_with("Uid:")).unwrap_or_default();
        Ok(line.split_whitespace().skip(1).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" "))
    };
    let root = |process: u32| std::fs::read_link(format!("/proc/{process}/ns/mnt"));
    let able = guardrail_jail::apart();
    let all = parents();
    let started = |by: u32| all.iter().filter(move |(_, of)| *of == by).map(|(process, _)| *process);
    let mut users = BTreeSet::from([user(supervisor)?]);
    for process in started(supervisor) {
        let differs = users.insert(user(process)?);
        ensure(differs || !able.users, || {
            format!("process {process} has the user of another one: {users:?}")
        })?;
        // Those that can open no file.
        let shares = ["internal-analysis", "internal-parser"]
            .iter()
            .any(|word| child_of(supervisor, word) == Some(process));
        let own = root(process)? != root(supervisor)?;
        ensure(own || shares || !able.roots, || format!("process {process} has the supervisor's files"))?;
        for below in started(process) {
            let same = user(below)? == user(process)? && root(below)? == root(process)?;
            ensure(same, || format!("process {below} is apart from {process}"))?;
        }
    }
    Ok(())
}

/// The child of a process whose command line has this word.
fn child_of(parent: u32, word: &str) -> Option<u32> {
    let children = parents().into_iter().filter(|(_, of)| *of == parent).map(|(process, _)| process);
    children.into_iter().find(|process| {
        let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(word)
    })
}
