//! Many runs at a time on one cache, and guests that say more than anybody reads: results stay right, and memory bounded.
//!
//! With `--ignored`, as many runs as a laboratory has, and a longer flood. What was measured is printed.

use guardrail_tests::processes::descendants;
use guardrail_tests::{at_once, ensure, program};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Runs at a time, always and with `--ignored`.
const RUNS: [(usize, bool); 2] = [(4, false), (16, true)];
/// Seconds of a flood, always and with `--ignored`.
const FLOODS: [(u64, bool); 2] = [(10, false), (120, true)];
/// The most resident memory of the supervisor and of the analysis, in MiB.
const MOST: u64 = 600;
/// The most that a run may leave in its folder, in MiB; QEMU's files are removed with it.
const MOST_FILES: u64 = 200;
/// The longest time for all runs together.
const LIMIT: Duration = Duration::from_secs(1200);
/// What the guest does while its driver is loaded. Each line is more than its reader takes.
const FLOOD: &str = r#"
begun=$(cut -d. -f1 /proc/uptime)
over() { [ $(($(cut -d. -f1 /proc/uptime) - begun)) -ge "$FLOOD_SECONDS" ]; }
yes 'guardrail: ok step' | head -n 5000 > /tmp/steps
yes 'no line that the host knows' | head -n 5000 > /tmp/lines
head -c 100000 /dev/urandom | tr '\n' ' ' > /tmp/bytes
yes "the kernel's log" | head -n 200 > /tmp/log
for file in steps lines bytes; do
    until over; do cat /tmp/$file > /dev/ttyS1; done &
done
until over; do cat /tmp/lines /tmp/bytes > /dev/console; done &
until over; do while read -r line; do echo "$line" > /dev/kmsg; done < /tmp/log; done &
until over; do cat /proc/net/dev /sys/class/net/*/statistics/* > /dev/null 2>&1; done &
until over; do sleep 1; done
wait
# The next line is not the end of a damaged one.
echo > /dev/ttyS1
"#;

fn main() {
    let runs = RUNS.map(|(count, long)| {
        let name = format!("{count} runs at a time are as right as one");
        Trial::test(name, move || side_by_side(count)).with_ignored_flag(long)
    });
    let floods = FLOODS.map(|(seconds, long)| {
        let name = format!("a guest that says too much for {seconds} s harms nobody");
        Trial::test(name, move || flood(seconds)).with_ignored_flag(long)
    });
    // What is measured is measured alone.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, runs.into_iter().chain(floods).collect()).exit()
}

/// The largest resident memory of each kind of process that a process has started, and of itself, in MiB.
#[derive(Default)]
struct Peaks(BTreeMap<String, u64>);

impl Peaks {
    fn look(&mut self, process: u32) {
        for process in [process].into_iter().chain(descendants(process)) {
            let read = |file: &str| fs::read_to_string(format!("/proc/{process}/{file}")).unwrap_or_default();
            let line = read("cmdline").replace('\0', " ");
            let kind = match line.as_str() {
                line if line.contains("qemu-system") => "QEMU",
                line if line.contains("internal-analysis") => "analysis",
                line if line.contains("guardrail ") => "supervisor",
                _ => continue,
            };
            let status = read("status");
            let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
            let mib = kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) >> 10;
            let known = self.0.entry(kind.to_owned()).or_default();
            *known = mib.max(*known);
        }
    }

    /// Refuses more than the supervisor and the analysis may have.
    fn refuse(&self) -> Result<(), Failed> {
        let large = |(kind, mib): &(&String, &u64)| kind.as_str() != "QEMU" && **mib > MOST;
        let found = self.0.iter().find(large);
        found.map_or(Ok(()), |(kind, mib)| Err(format!("{kind} took {mib} MiB").into()))
    }
}

/// Waits for a process, and looks at its memory.
fn ended(child: &mut Child, peaks: &mut Peaks) -> Result<Option<i32>, Failed> {
    let deadline = Instant::now() + LIMIT;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code());
        }
        peaks.look(child.id());
        std::thread::sleep(Duration::from_millis(100));
    }
    child.kill()?;
    child.wait()?;
    Err("it goes on".into())
}

fn check(
    arguments: &[&str],
    folder: &Path,
    peaks: &mut Peaks,
) -> Result<(Option<i32>, Value, String), Failed> {
    let (report, errors) = (folder.join("report"), folder.join("errors"));
    let mut child = Command::new(program())
        .args(["check", "--format", "json"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(fs::File::create(&report)?)
        .stderr(fs::File::create(&errors)?)
        .spawn()?;
    let status = ended(&mut child, peaks)?;
    let said = fs::read_to_string(errors)?;
    Ok((status, serde_json::from_slice(&fs::read(report)?).unwrap_or_default(), said))
}

fn side_by_side(count: usize) -> Result<(), Failed> {
    let began = Instant::now();
    let numbers: Vec<usize> = (0..count).collect();
    // Every other driver is correct.
    let driver = |number: usize| if number.is_multiple_of(2) { "zoo/leak" } else { "zoo/leak_ok" };
    let results =
        at_once(&numbers, count, |number| -> Result<(BTreeMap<String, u64>, Option<String>), Failed> {
            let (folder, mut peaks) = (tempfile::tempdir()?, Peaks::default());
            let (status, report, said) = check(&[driver(*number)], folder.path(), &mut peaks)?;
            let found: Vec<&str> = report["findings"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|one| one["id"].as_str())
                .collect();
            let wanted = usize::from(number.is_multiple_of(2));
            ensure(status == Some(wanted as i32) && found.len() == wanted, || {
                format!("run {number} of {}: status {status:?}, findings {found:?}\n{said}", driver(*number))
            })?;
            peaks.refuse()?;
            Ok((peaks.0, found.first().map(|id| (*id).to_owned())))
        });
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut ids: Vec<&String> = results.iter().filter_map(|(_, id)| id.as_ref()).collect();
    ids.dedup();
    ensure(ids.len() == 1, || format!("one bug has the fingerprints {ids:?}"))?;
    let peak =
        |kind: &str| results.iter().filter_map(|(peaks, _)| peaks.get(kind)).max().copied().unwrap_or(0);
    println!(
        "{count} runs: {:.0} s, at most {} MiB for a supervisor, {} for an analysis, {} for a QEMU",
        began.elapsed().as_secs_f64(),
        peak("supervisor"),
        peak("analysis"),
        peak("QEMU")
    );
    Ok(())
}

fn flood(seconds: u64) -> Result<(), Failed> {
    let (folder, mut peaks) = (tempfile::tempdir()?, Peaks::default());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (script, out, variable) = (path("flood.sh"), path("out"), format!("FLOOD_SECONDS={seconds}"));
    fs::write(&script, FLOOD)?;
    let arguments = ["e1000", "--workload", &script, "--out", &out, "--set", &variable, "--timeout", "600"];
    let began = Instant::now();
    let (status, report, said) = check(&arguments, folder.path(), &mut peaks)?;
    let files = fs::read_dir(&out)?.flatten().filter_map(|entry| entry.metadata().ok());
    let (count, bytes) = files.fold((0, 0), |(count, bytes), file| (count + 1, bytes + file.len()));
    println!(
        "{seconds} s of flood: status {status:?} after {:.0} s, {:?} MiB, {} MiB in {count} files",
        began.elapsed().as_secs_f64(),
        peaks.0,
        bytes >> 20
    );
    ensure(status.is_some_and(|status| status < 2), || format!("status {status:?}: {said}"))?;
    ensure(report["run"]["outcome"] == "completed", || format!("{:#}", report["run"]))?;
    ensure(said.len() < 1 << 20, || format!("{} bytes of progress", said.len()))?;
    ensure(bytes >> 20 < MOST_FILES, || format!("{bytes} bytes stay"))?;
    peaks.refuse()
}
