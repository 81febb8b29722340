//! The included clients, with real guests.

use guardrail_tests::{Checked, guardrail};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const KERNELS: [&str; 3] = ["6.1", "6.12", "7.2"];
/// Works with files, processes and pipes for some seconds.
const WORKLOAD: &str = "
i=0
while [ $i -lt 10 ]; do
    step \"files-$i\" sh -c 'dd if=/dev/zero of=/tmp/f bs=4k count=100 && find /sys/module -name \"*a*\" | sort | md5sum'
    i=$((i + 1))
done
";
/// How long the guest may take to answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// The number of comparisons of the counts.
const COMPARED: usize = 6;

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for kernel in KERNELS {
        let trial = Trial::test(format!("count is QEMU's own count on {kernel}"), move || counted(kernel));
        trials.push(trial.with_ignored_flag(kernel != "6.12"));
        let name = format!("count, blocks and calls agree on {kernel}");
        trials.push(Trial::test(name, move || agree(kernel)).with_ignored_flag(kernel != "7.2"));
    }
    trials.push(Trial::test("irq, mix and memtrace report what happened", events));
    trials.push(Trial::test("coverage reports lines of a module", covered));
    guardrail_tests::run(arguments, trials)
}

/// Writes the workload to a folder.
fn workload(folder: &Path) -> Result<String, Failed> {
    let path = folder.join("workload.sh");
    std::fs::write(&path, WORKLOAD)?;
    Ok(path.to_str().ok_or("a plain path")?.to_owned())
}

fn profile(arguments: &[&str], out: &Path) -> Result<Checked, Failed> {
    let script = workload(out.parent().ok_or("a folder")?)?;
    let out = out.to_str().ok_or("a plain path")?;
    let common = ["profile", "--format", "json", "--workload", &script, "--out", out];
    let result = guardrail(&[&common[..], arguments].concat());
    result.with(&[0])
}

/// A table of a client, by parts of their names.
fn table<'a>(report: &'a Value, client: &str, name: &str) -> Result<&'a [Value], Failed> {
    let clients = report["clients"].as_array().into_iter().flatten();
    let mut tables = clients
        .filter(|one| one["name"] == client)
        .flat_map(|one| one["tables"].as_array().into_iter().flatten());
    let found = tables.find(|table| table["name"].as_str().is_some_and(|known| known.contains(name)));
    let rows = found.and_then(|table| table["rows"].as_array());
    Ok(rows.ok_or_else(|| format!("no table {name} of {client} in {report:#}"))?)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(u64::MAX)
}

/// A row of a table by its first cell.
fn row<'a>(rows: &'a [Value], first: &str) -> Result<&'a Value, Failed> {
    Ok(rows.iter().find(|row| row[0] == first).ok_or_else(|| format!("no row {first}"))?)
}

/// QEMU counts instructions while it records a machine. At any time, its count equals that of `count`, with
/// firmware, kernel and programs.
fn counted(kernel: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let (out, monitor) = (folder.path().join("out"), folder.path().join("qmp"));
    let text = |path: &Path| path.display().to_string();
    let mut command = Command::new(guardrail_tests::program());
    command.current_dir(guardrail_tests::root());
    command.args(["profile", "--client", "count:all=yes", "--from", "boot"]);
    command.args(["--smp", "1", "--kernel", kernel]);
    command.args(["--workload", &workload(folder.path())?, "--out", &text(&out)]);
    let record = format!("shift=5,rr=record,rrfile={}", text(&folder.path().join("replay.bin")));
    let listen = format!("unix:{},server=on,wait=off", text(&monitor));
    command.args(["-icount", &record, "-qmp", &listen].map(|word| format!("--qemu-arg={word}")));
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let mut child = Ended(child);
    let mut qmp = Monitor::connect(&monitor)?;
    let config: Value = serde_json::from_slice(&std::fs::read(out.join("clients-0.config.json"))?)?;
    let socket = config["socket"].as_str().ok_or("a socket")?.to_owned();
    let (mut before, mut twice) = (0, 0);
    for _ in 0..COMPARED {
        std::thread::sleep(Duration::from_millis(1500));
        qmp.ask("stop")?;
        let wanted = number(&qmp.ask("query-replay")?["icount"]);
        let counts = counts(&socket)?;
        qmp.ask("cont")?;
        let [all, others, again] = counts[counts.len() - 3..] else { return Err("no counts".into()) };
        // QEMU counts instructions when they end, and the client counts them when they begin, which
        // instructions that fault do twice. An instruction at boot that changes its own block begins twice,
        // too.
        let more = (all + others - again).wrapping_sub(wanted);
        if more > 1 || more < twice || wanted <= before {
            return Err(format!("QEMU counted {wanted}, and before {before}; count has {counts:?}").into());
        }
        twice = more;
        if counts[..counts.len() - 3].iter().sum::<u64>() != all {
            return Err(format!("the contexts do not sum up: {counts:?}").into());
        }
        before = wanted;
    }
    child.end();
    Ok(())
}

/// A process that ends with the test.
struct Ended(Child);

impl Ended {
    /// Ends it in the way of Ctrl-C.
    fn end(&mut self) {
        // SAFETY: the process is ours and has not been waited for.
        unsafe { libc::kill(self.0.id() as i32, libc::SIGINT) };
        let _ = self.0.wait();
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        if self.0.try_wait().ok().flatten().is_none() {
            self.end();
        }
    }
}

/// The numbers of the last row, which is that of all CPUs.
fn counts(socket: &str) -> Result<Vec<u64>, Failed> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"\"results\"\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let reply: Value = serde_json::from_str(&text)?;
    let rows = reply["results"]["clients"][0]["tables"][0]["rows"].as_array().ok_or("no rows")?;
    let cells = rows.last().and_then(Value::as_array).ok_or("no row")?;
    Ok(cells.iter().filter_map(|cell| cell["count"].as_u64()).collect())
}

/// QEMU's monitor.
struct Monitor(BufReader<UnixStream>);

impl Monitor {
    fn connect(path: &Path) -> Result<Monitor, Failed> {
        let end = Instant::now() + PATIENCE;
        let stream = loop {
            match UnixStream::connect(path) {
                Ok(stream) => break stream,
                Err(e) if Instant::now() > end => return Err(format!("no monitor: {e}").into()),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        };
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut monitor = Monitor(BufReader::new(stream));
        monitor.0.read_line(&mut String::new())?;
        monitor.ask("qmp_capabilities")?;
        Ok(monitor)
    }

    fn ask(&mut self, what: &str) -> Result<Value, Failed> {
        let line = json!({ "execute": what }).to_string() + "\n";
        self.0.get_mut().write_all(line.as_bytes())?;
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err(format!("QEMU ended before it answered to {what}").into());
            }
            let reply: Value = serde_json::from_str(&line)?;
            if let Some(result) = reply.get("return") {
                return Ok(result.clone());
            }
            if reply.get("error").is_some() {
                return Err(format!("{what}: {line}").into());
            }
        }
    }
}

/// Three clients that count in different ways, in one run: they agree on each function's instructions, and on
/// the total.
fn agree(kernel: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("out");
    let result =
        profile(&["--client", "count,blocks,calls,mix", "--from", "boot", "--kernel", kernel], &out)?;
    let report = result.report()?;
    let counts = table(report, "count", "by CPU")?;
    let counts: Vec<u64> = row(counts, "all")?.as_array().into_iter().flatten().skip(1).map(number).collect();
    let (contexts, all) = (&counts[..6], counts[6]);
    if contexts.iter().sum::<u64>() != all || contexts.iter().take(4).any(|&count| count == 0) {
        return Err(format!("contexts do not sum up, or nothing ran in one: {counts:?}").into());
    }
    // Other clients read a moment earlier or later, while QEMU ends; the guest does not run then.
    let mixed = number(&row(table(report, "mix", "by kind")?, "all")?[1]);
    if mixed != all {
        return Err(format!("mix has {mixed} instructions, count {all}").into());
    }
    // A block that is left in the middle counts as a whole, so blocks may have more.
    let functions = table(report, "blocks", "functions")?;
    let blocks: u64 = functions.iter().map(|row| number(&row[1])).sum();
    if blocks < all || blocks > all + all / 100 {
        return Err(format!("blocks has {blocks} instructions, count {all}").into());
    }
    // In hot functions without device accesses, the instructions of a call itself are those of its blocks.
    let calls = table(report, "calls", "functions")?;
    let mut same = 0;
    for function in functions.iter().take(12) {
        let name = function[0].as_str().ok_or("a name")?;
        let own = calls.iter().find(|row| row[0] == name).map_or(0, |row| number(&row[4]));
        same += usize::from(own == number(&function[1]));
    }
    if same < 5 {
        return Err(
            format!("only {same} of the 12 hottest functions have the same instructions in calls").into()
        );
    }
    let stacks = table(report, "blocks", "stacks")?;
    let deep = stacks.iter().filter(|row| row[0].as_array().is_some_and(|stack| stack.len() > 3)).count();
    if deep * 2 < stacks.len() || stacks.is_empty() {
        return Err(format!("{deep} of {} stacks have more than three frames", stacks.len()).into());
    }
    let svg = std::fs::read_to_string(out.join("blocks.svg"))?;
    let firefox: Value = serde_json::from_slice(&std::fs::read(out.join("blocks.firefox.json"))?)?;
    let samples = firefox["threads"][0]["samples"]["length"].as_u64();
    if !svg.contains("<title>do_syscall_64: ") || samples.is_none_or(|samples| samples < 10) {
        return Err("the flame graph or the Firefox profile is empty".into());
    }
    Ok(())
}

/// Interrupts have vectors and handlers; kinds of instructions and accesses are there.
fn events() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("out");
    let result = profile(&["--client", "irq,mix,memtrace:limit=200000"], &out)?;
    let report = result.report()?;
    let handlers = table(report, "irq", "interrupts")?;
    let timer = handlers.iter().find(|row| row[1].as_str().is_some_and(|name| name.contains("apic_timer")));
    let faults = handlers.iter().find(|row| row[1] == "asm_exc_page_fault");
    let devices = handlers.iter().filter(|row| row[2].as_str().is_some_and(|name| !name.is_empty())).count();
    let well = |row: Option<&Value>, vector: &str| {
        row.is_some_and(|row| {
            row[0] == vector
                && number(&row[3]) > 10
                && number(&row[4]) > 50
                && row[5].as_u64() >= row[4].as_u64()
        })
    };
    if !well(timer, "236") || !well(faults, "14") || devices == 0 {
        return Err(format!("{handlers:#?}").into());
    }
    let stretches = table(report, "irq", "longest")?;
    let lengths: Vec<u64> = stretches.iter().map(|row| number(&row[0])).collect();
    if lengths.len() < 10 || !lengths.is_sorted_by(|one, other| one >= other) {
        return Err(format!("{stretches:#?}").into());
    }
    let stores = number(&row(table(report, "mix", "by kind")?, "plain store")?[1]);
    if stores < 100_000 {
        return Err(format!("only {stores} stores").into());
    }
    let trace = std::fs::read(out.join("memory.trace"))?;
    let accesses = accesses(&trace)?;
    if accesses != 200_000 {
        return Err(format!("{accesses} accesses in the trace").into());
    }
    // A trace that ends too early is readable up to its end.
    let short = self::accesses(&trace[..trace.len() - 10])?;
    if short == 0 || short >= accesses {
        return Err(format!("{short} accesses in what is left of a trace that was cut").into());
    }
    Ok(())
}

/// The number of accesses in a trace, read by the documented layout.
fn accesses(trace: &[u8]) -> Result<u64, Failed> {
    let mut rest = trace.strip_prefix(b"GRMEMTR1").ok_or("no trace")?;
    let mut count = 0;
    while let Some((head, behind)) = rest.split_at_checked(12) {
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap_or_default());
        let Some((packed, behind)) = behind.split_at_checked(word(8) as usize) else { break };
        if word(0) > 1 || packed.len() < 10 {
            return Err(format!("a piece of CPU {} with {} bytes", word(0), packed.len()).into());
        }
        count += u64::from(word(4));
        rest = behind;
    }
    Ok(count)
}

/// A module with debug information: its functions and lines, including those that never ran.
fn covered() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("out");
    let arguments = ["--client", "coverage", "--scope", "driver", "--driver", "zoo/leak-error"];
    let result = profile(&arguments, &out)?;
    let report = result.report()?;
    let functions = table(report, "coverage", "by function")?;
    let ran = functions.iter().filter(|row| number(&row[3]) > 0 && number(&row[5]) > 0).count();
    let never = functions.iter().filter(|row| number(&row[3]) == 0).count();
    if ran < 2 || functions.iter().any(|row| number(&row[3]) > number(&row[4])) {
        return Err(format!("{ran} functions ran, {never} did not: {functions:#?}").into());
    }
    let lcov = std::fs::read_to_string(out.join("coverage.lcov"))?;
    let drcov = std::fs::read(out.join("coverage.drcov"))?;
    let lines = lcov.lines().filter(|line| line.starts_with("DA:")).count();
    let zero = lcov.lines().filter(|line| line.starts_with("DA:") && line.ends_with(",0")).count();
    if lines < 10 || zero == 0 || zero == lines || !drcov.starts_with(b"DRCOV VERSION: 2\n") {
        return Err(format!("{lines} lines, {zero} of them never ran").into());
    }
    Ok(())
}
