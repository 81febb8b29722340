//! A guest whose device is behind a gate in a process of its own, and the failures that can happen to them.

use guardrail_gate::process::{Process, State};
use guardrail_gate::{Access, Counts, Gate, Open, Verdict, device, vfio_user};
use guardrail_jail::Jail;
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::progress::Progress;
use guardrail_vm::qemu::Qemu;
use guardrail_vm::run::{Finished, Options, Stop, Watch, device_side, run};
use guardrail_vm::{Cache, kernels};
use libtest_mimic::Failed;
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The argument that makes this program the gate's process.
pub const GATE: &str = "internal-gate";
/// The argument that makes this program end its first thread and live on in another.
pub const LEADERLESS: &str = "internal-leaderless";
/// Why a test closes the gate.
pub const REASON: &str = "a test wants it";
/// How long the guest may continue to try after the gate was closed.
const AFTERMATH: Duration = Duration::from_secs(2);

/// The policy that the gate's process shall have.
#[derive(Clone, Copy, Debug)]
pub enum Policy {
    /// Passes everything.
    Open,
    /// Stops answering after so many accesses.
    Silent { after: u64 },
}

/// An event in the middle of the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Nothing,
    Contain,
    KillGate,
    KillDevice,
    /// The device does not answer any more, and the gate shall be closed.
    StopDevice,
}

struct Silent(AtomicU64);

impl Gate for Silent {
    fn admit(&self, _: &Access) -> Verdict {
        std::thread::sleep(Duration::from_secs(20));
        Verdict::Pass
    }

    fn admit_now(&self, _: &Access) -> Option<Verdict> {
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.is_ok().then_some(Verdict::Pass)
    }
}

/// Builds the policy of the gate's process from its description.
pub fn policy(what: Value) -> Result<Arc<dyn Gate>, String> {
    Ok(match what["silent"].as_u64() {
        Some(after) => Arc::new(Silent(AtomicU64::new(after))),
        None => Arc::new(Open),
    })
}

/// QEMU's own log of the accesses that the device received.
pub struct Trace(PathBuf);

impl Trace {
    /// Compares it with what passed the gate: reads and writes by base address register, and in configuration
    /// space.
    pub fn compare(&self, driver: &str, counts: &Counts) -> Result<(), Failed> {
        let (mut seen, mut table, mut config) = (BTreeMap::<String, (u64, u64)>::new(), 0, 0);
        let text = std::fs::read_to_string(&self.0)?;
        for line in text.lines() {
            let Some((what, name)) = line.rsplit_once(" name ") else { continue };
            match name {
                // These belong to the chip set, and to the doorbell that the gate added.
                "'apic-msi'" | "'pci-conf-idx'" | "'ivshmem-mmio'" => {}
                "'pci-conf-data'" => config += 1,
                "'msix-table'" => table += 1,
                _ => {
                    let region = seen.entry(name.to_owned()).or_default();
                    match what.contains("memory_region_ops_write") {
                        true => region.1 += 1,
                        false => region.0 += 1,
                    }
                }
            }
        }
        let none = (0, 0);
        let mut passed: Vec<_> =
            counts.bars.iter().map(|bar| (bar.reads_passed, bar.writes_passed)).collect();
        passed.retain(|bar| *bar != none);
        passed.sort();
        // QEMU names regions by what they are; each of these devices has one for a base address register.
        let mut arrived: Vec<_> = seen.values().copied().collect();
        arrived.sort();
        let agrees = match driver {
            // While it runs its scripts this device reads and writes its own registers and memory, too.
            "sym53c8xx" => {
                ["'lsi-io'", "'lsi-mmio'", "'lsi-ram'"].iter().zip(&counts.bars).all(|(name, bar)| {
                    let (reads, writes) = seen.get(*name).copied().unwrap_or(none);
                    let exact = (bar.reads_passed, bar.writes_passed) == (reads, writes);
                    exact || *name != "'lsi-io'" && bar.reads_passed <= reads && bar.writes_passed <= writes
                })
            }
            _ => passed == arrived,
        };
        if !agrees || passed.is_empty() {
            return Err(format!("{passed:?} passed the gate, {seen:?} arrived").into());
        }
        if (table, config) != (counts.own_writes, counts.config_operations) {
            return Err(
                format!("{table} words of the table and {config} of configuration: {counts:?}").into()
            );
        }
        Ok(())
    }
}

/// A guest and its gate.
pub struct Guest {
    prepared: Prepared,
    options: Options,
    policy: Policy,
    trace: Option<PathBuf>,
    pub hold_limit: Duration,
    /// The time of the event, from the beginning of the writes on.
    pub moment: Duration,
    /// The numbers of the gate's process and of the device's.
    processes: Vec<u32>,
    /// A digest of the disk when the gate was closed, and some time later.
    disk: (Option<u64>, Option<u64>),
    folder: tempfile::TempDir,
}

impl Guest {
    pub fn new(driver: &str, policy: Policy) -> Result<Guest, Failed> {
        let packages = Packages::new(&Cache::open()?);
        // The usual workload of a sound card only loads its driver.
        let sound = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sound.sh");
        let workload = (driver == "snd_ens1370").then_some(sound);
        let request = Request { driver, kernel: kernels::DEFAULT, workload, ..Request::default() };
        let prepared = Prepared::new(&packages, &Parser::here(), request, &mut |_| {})?;
        let folder = tempfile::tempdir()?;
        let mut options = Options::new(folder.path());
        options.disk_mib = 16;
        options.limits.total = Duration::from_secs(200);
        let small = [("DOWNLOAD_MB", "4"), ("REQUESTS", "20"), ("UPLOADS", "1"), ("PINGS", "2")];
        options.variables.extend(small.map(|(name, value)| (name.into(), value.into())));
        Ok(Guest {
            prepared,
            options,
            policy,
            trace: None,
            hold_limit: Duration::from_secs(60),
            moment: Duration::from_millis(50),
            processes: Vec::new(),
            disk: (None, None),
            folder,
        })
    }

    /// Makes the guest write more.
    pub fn enlarge(&mut self) {
        self.options.disk_mib = 128;
    }

    /// Makes QEMU log the accesses that the device receives.
    pub fn trace(&mut self) -> Trace {
        let path = self.folder.path().join("device.trace");
        self.trace = Some(path.clone());
        Trace(path)
    }

    fn start(&mut self) -> Result<Process, Failed> {
        let side = device_side(&self.prepared, &mut self.options)?;
        let device = device::Options {
            model: self.prepared.choice.device.clone().ok_or("the driver has no device")?.name,
            devices: side.devices,
            arguments: side.arguments,
            trace: self.trace.clone(),
            reach: side.reach,
            ..device::Options::default()
        };
        let options = vfio_user::Options {
            folder: self.folder.path().to_path_buf(),
            memory_mib: self.options.memory_mib,
            hold_limit: self.hold_limit,
            post_writes: false,
            id: "dut".into(),
            reach: Jail::new(),
            device: device.program(&self.prepared.qemu.command()),
        };
        let policy = match self.policy {
            Policy::Open => Value::Null,
            Policy::Silent { after } => json!({ "silent": after }),
        };
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(GATE);
        let process = Process::start(command, &options, policy)?;
        self.options.qemu_arguments = process.qemu_arguments();
        self.options.inherited = vec![process.memory().descriptor()];
        self.options.reach = Jail::new().unix_sockets();
        self.processes.push(process.id());
        Ok(process)
    }

    /// Runs the guest to its end; the event happens in the middle of its writes.
    pub fn run(&mut self, step: Step) -> Result<(Finished, State), Failed> {
        let mut process = self.start()?;
        // The run removes its image at its end, which may come before the test has seen enough.
        let (disk, kept) = (self.folder.path().join("disk.img"), self.folder.path().join("disk.kept"));
        let (begun, closed) = (Cell::new(None), Cell::new(false));
        self.options.containable = step == Step::Contain;
        let mut happened: Option<Instant> = None;
        let mut problem = None;
        let (mut device, mut images) = (None, (None, None));
        let mut finished = run(
            &self.prepared,
            &self.options,
            &mut Watch {
                progress: &mut |time, line| {
                    eprintln!("{:7.2} {line}", time.as_secs_f64());
                    if *line == Progress::Begin("write".into()) {
                        begun.set(Some(Instant::now()));
                    }
                },
                stop: &mut || {
                    if device.is_none() {
                        device = process.state().ok().and_then(|state| state.device);
                    }
                    let due = begun.get().is_some_and(|begun: Instant| begun.elapsed() >= self.moment);
                    if step != Step::Nothing && happened.is_none() && due {
                        problem = happen(step, &mut process, device).err();
                        happened = Some(Instant::now());
                        problem = problem.take().or(std::fs::hard_link(&disk, &kept).err().map(Into::into));
                        images.0 = hash(&kept);
                    }
                    let over = happened.is_some_and(|time| time.elapsed() > AFTERMATH);
                    over.then(|| Stop::Because("the test has seen enough".into()))
                },
                activity: &mut || 0,
                // The gate has cut the device off; only the notice to the guest remains.
                closed: &mut || closed.take().then(|| (Vec::new(), REASON.to_owned())),
                save: None,
            },
        )?;
        images.1 = hash(&kept);
        self.disk = images;
        self.processes.extend(device);
        if let Some(problem) = problem {
            return Err(problem);
        }
        if step != Step::Nothing && happened.is_none() {
            return Err(format!("it never came to write: {}", finished.outcome).into());
        }
        finished.trouble.truncate(2000);
        let state = match process.stop() {
            Ok(state) => state,
            Err(_) if step == Step::KillGate => State::default(),
            Err(error) => return Err(error.into()),
        };
        eprintln!("{:?}", state.counts);
        Ok((finished, state))
    }

    /// The disk has not changed since the gate was closed.
    pub fn disk_unchanged(&self) -> Result<(), Failed> {
        match self.disk {
            (Some(before), Some(after)) if before == after => Ok(()),
            other => Err(format!("the disk was changed through a closed gate: {other:?}").into()),
        }
    }

    /// No process is left running.
    pub fn nothing_left(&self) -> Result<(), Failed> {
        if self.processes.len() < 2 {
            return Err("the device never started".into());
        }
        for process in &self.processes {
            gone(*process)?;
        }
        match self.folder.path().join("gate.sock").exists() {
            true => Err("the gate's socket is left".into()),
            false => Ok(()),
        }
    }
}

/// A gate in front of a network card, for a driver VM of 64 MiB that never comes.
pub fn without_guest(folder: &Path) -> Result<Process, Failed> {
    let qemu = Qemu::find(&Packages::new(&Cache::open()?))?;
    let device = device::Options {
        model: "e1000".into(),
        devices: vec!["e1000".into()],
        reach: qemu.jail(),
        ..device::Options::default()
    };
    let options = vfio_user::Options {
        folder: folder.to_path_buf(),
        memory_mib: 64,
        hold_limit: Duration::from_secs(10),
        post_writes: false,
        id: "dut".into(),
        reach: Jail::new(),
        device: device.program(&qemu.command()),
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(GATE);
    Ok(Process::start(command, &options, Value::Null)?)
}

fn happen(step: Step, process: &mut Process, device: Option<u32>) -> Result<(), Failed> {
    let device = device.ok_or("the device never started")?;
    let signal = |name: &str, process: u32| Command::new("kill").args([name, &process.to_string()]).status();
    let kill = |process: u32| signal("-KILL", process);
    match step {
        Step::Nothing => {}
        Step::Contain => {
            process.contain(REASON)?;
        }
        Step::KillGate => {
            kill(process.id())?;
            gone(device)?;
        }
        Step::StopDevice => {
            signal("-STOP", device)?;
            let start = Instant::now();
            process.contain(REASON)?;
            gone(device)?;
            if start.elapsed() > Duration::from_secs(15) {
                return Err(format!("closing took {:?}", start.elapsed()).into());
            }
        }
        Step::KillDevice => {
            kill(device)?;
            let deadline = Instant::now() + Duration::from_secs(5);
            while process.state()?.failure.is_none() {
                if Instant::now() > deadline {
                    return Err("the gate did not notice that its device died".into());
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
    Ok(())
}

/// Waits until a process has ended, even where nobody has asked for its status yet.
pub fn gone(process: u32) -> Result<(), Failed> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let fields: Vec<_> = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ').collect();
        // The first thread becomes a zombie while others may still write: the number of threads decides
        // (proc(5), num_threads).
        if matches!(fields[..], [""] | ["Z", ..]) && matches!(fields.get(17), None | Some(&("0" | "1"))) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("process {process} is left: {stat}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn hash(path: &Path) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    hasher.write(&std::fs::read(path).ok()?);
    Some(hasher.finish())
}
