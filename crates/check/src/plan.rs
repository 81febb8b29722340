//! The plan of a run as plain data: every option with its type and unit.
//!
//! Knows: which options exclude each other.
//!
//! Must not know: how an option reaches QEMU, the tracer or the analysis. Each consumer reads its field from here.

use guardrail_host::{HostError, Symbols};
use guardrail_trace::config::Holds;
use guardrail_trace::log::Schedule;
use guardrail_vm::brought::{GuestFile, GuestProgram};
use guardrail_vm::prepare::Request;
use guardrail_vm::rerun::Rerun;
use guardrail_vm::root::GuestRoot;
use guardrail_vm::run::{Forward, TcgThreads};
use guardrail_vm::settings::Parameter;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// Words in each ring of the log (16 MiB).
pub const RING_WORDS: u64 = 1 << 21;
/// The guest's usual memory, in MiB.
pub const MEMORY_MIB: u32 = 512;
/// What memory a guest may have, in MiB. With more, all machines have a part of it behind a gap.
pub const MEMORY: RangeInclusive<u32> = 256..=2048;
/// The shortest hold that leaves time to save a guest.
const LEAST_HOLD_TO_SAVE: Duration = Duration::from_secs(20);

/// How many parts of the machinery run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Observe {
    /// QEMU without a plugin.
    None,
    /// The tracer without an analysis: nobody reads the log.
    Trace,
    /// The tracer and the checkers.
    #[default]
    Check,
}

/// The policy at a finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The finding is reported, and the run continues.
    #[default]
    Permissive,
    /// The device is cut off at races that were judged harmful, and at errors that put memory at risk.
    Triage,
    /// The device is cut off, except for data races that were judged harmless or undecided: every driver has some.
    Stringent,
}

impl Mode {
    /// The report's word for the mode.
    pub fn word(self) -> &'static str {
        match self {
            Mode::Permissive => "permissive",
            Mode::Triage => "triage",
            Mode::Stringent => "stringent",
        }
    }
}

/// Where device accesses are held until they are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GateKind {
    /// Device accesses are not held.
    Off,
    /// In the driver VM, before the instruction.
    #[default]
    Vmm,
    /// There as well. In addition, the device is in a QEMU of its own, behind a gate in a process of its own.
    VfioUser,
}

impl GateKind {
    /// The report's word for the gate.
    pub fn word(self) -> &'static str {
        match self {
            GateKind::Off => "off",
            GateKind::Vmm => "vmm",
            GateKind::VfioUser => "vfio-user",
        }
    }
}

/// The effort to confirm races.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// The number of holds of each race in each run.
    pub tries: u32,
    /// The most runs.
    pub runs: u32,
    /// How long a run goes on after the order of a confirmed race was forced, to see what follows; 0 to
    /// look for no consequence. Whole seconds.
    pub follow: Duration,
    /// How often the order of a confirmed race is forced again, each time in a run of its own.
    pub repeat: u32,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort { tries: 40, runs: 3, follow: Duration::ZERO, repeat: 0 }
    }
}

/// Accesses that are held in a run.
#[derive(Clone, Debug, Default)]
pub struct HeldAccesses {
    /// The instructions, and for how long they are held.
    pub holds: Holds,
    /// Variables of the guest that schedule its threads; no workload has to read them.
    pub variables: Vec<(String, String)>,
}

/// One run of one or several drivers.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// The drivers, in the order in which they run: a module's name, the path of a `.ko`, or `zoo/NAME`. At
    /// least one is required.
    pub drivers: Vec<String>,
    /// Modules that are watched as well, by name: those that the drivers need, or others that are loaded before them.
    pub with: Vec<String>,
    /// A file with further drivers and the devices that they bind.
    pub catalog: Option<PathBuf>,
    /// The kernel: a short name, a release, a package or a folder of packages.
    pub kernel: String,
    /// The QEMU device that the driver serves; absent for the usual one of the catalog.
    pub device: Option<String>,
    /// A workload by name, or the path of a script; absent for the workload of the driver's class.
    pub workload: Option<String>,
    /// A program that is the workload, in place of `workload`.
    pub program: Option<GuestProgram>,
    /// The root file system in which the workload runs; absent for the guest's own.
    pub root: Option<GuestRoot>,
    /// Files that the guest gets.
    pub files: Vec<GuestFile>,
    /// The guest's memory, in MiB.
    pub memory_mib: u32,
    /// Variables of the workload; one that it does not read is refused.
    pub variables: Vec<(String, String)>,
    /// Variables that are left out where the workload does not read them, such as those of a whole survey.
    pub offered: Vec<(String, String)>,
    /// Parameters of the run's modules.
    pub parameters: Vec<Parameter>,
    /// Where the drivers' debug information comes from.
    pub symbols: Symbols,
    /// The checkers by name, as [`tools`](crate::tools) gives them.
    pub tools: Vec<String>,
    /// How many parts of the machinery run.
    pub observe: Observe,
    /// The policy at a finding.
    pub mode: Mode,
    /// Where device accesses are held.
    pub gate: GateKind,
    /// True where a vCPU goes on after a write to the device's memory, which arrives when it has been checked.
    pub posts: bool,
    /// The longest time that a device access is held; then the device is cut off. Whole seconds.
    pub hold_limit: Duration,
    /// Which kinds of findings cut the device off; absent for `guardrail.toml` of the current folder, if there is one.
    pub policy: Option<PathBuf>,
    /// How the analysis waits while the log is empty.
    pub schedule: Schedule,
    /// A shell command that runs at each finding; `None` for no command.
    pub on_finding: Option<String>,
    /// The most findings at which the guest is saved; `None` to save it at none.
    pub snapshots: Option<u32>,
    /// Number of the guest's CPUs, 1 to 4.
    pub cpus: u8,
    /// Whether the guest's CPUs share one thread.
    pub threads: TcgThreads,
    /// True where the kernel chooses its address at random (KASLR).
    pub kaslr: bool,
    /// True where the guest may continue from one that was kept, and is kept itself.
    pub kept_boot: bool,
    /// True where the guest has an IOMMU.
    pub iommu: bool,
    /// Words for the guest kernel's command line.
    pub kernel_arguments: Vec<String>,
    /// The least part of each driver's functions that must run, in percent.
    pub min_coverage: u32,
    /// The longest duration of the guest. Whole seconds.
    pub time_limit: Duration,
    /// Words in each ring of the log, a power of two.
    pub ring_words: u64,
    /// Ports of this machine that are forwarded into the guest.
    pub forwards: Vec<Forward>,
    /// The folder where the whole machine is recorded, or from which it is replayed. The path is absolute.
    pub rerun: Option<Rerun>,
    /// Words for QEMU's command line.
    pub qemu_arguments: Vec<String>,
    /// The file for a trace of the run; `None` without a recording.
    pub record: Option<PathBuf>,
    /// The run folder that is kept; absent for one that is removed with the run.
    pub out: Option<PathBuf>,
    /// The effort to confirm races in further runs; `None` to confirm none.
    pub confirm: Option<Effort>,
    /// Accesses that are held in this run; `None` for a usual run.
    pub held: Option<HeldAccesses>,
}

impl RunPlan {
    /// A run of one driver with the default kernel and all checkers.
    pub fn new(driver: &str) -> RunPlan {
        RunPlan {
            drivers: vec![driver.to_owned()],
            with: Vec::new(),
            catalog: None,
            kernel: guardrail_vm::kernels::DEFAULT.to_owned(),
            device: None,
            workload: None,
            program: None,
            root: None,
            files: Vec::new(),
            memory_mib: MEMORY_MIB,
            variables: Vec::new(),
            offered: Vec::new(),
            parameters: Vec::new(),
            symbols: Symbols::default(),
            tools: crate::tools::tools("all").unwrap_or_default(),
            observe: Observe::default(),
            mode: Mode::default(),
            gate: GateKind::default(),
            posts: true,
            hold_limit: Duration::from_secs(60),
            policy: None,
            schedule: Schedule::Interrupt,
            on_finding: None,
            snapshots: None,
            cpus: 2,
            threads: TcgThreads::Single,
            kaslr: true,
            kept_boot: false,
            iommu: false,
            kernel_arguments: Vec::new(),
            min_coverage: 0,
            time_limit: Duration::from_secs(600),
            ring_words: RING_WORDS,
            forwards: Vec::new(),
            rerun: None,
            qemu_arguments: Vec::new(),
            record: None,
            out: None,
            confirm: None,
            held: None,
        }
    }

    /// The words after `guardrail` that ask for this run, without those that say what is kept or printed.
    /// `release` is the kernel that a short name stands for, as names change their meaning.
    pub fn command(&self, release: &str) -> Vec<String> {
        let usual = RunPlan::new("");
        let kernel = if self.kernel.contains('/') { &self.kernel } else { release };
        let mut words = [vec!["check".to_owned()], self.drivers.clone()].concat();
        let mut option = |name: &str, value: &str| words.extend([name.to_owned(), value.to_owned()]);
        option("--kernel", kernel);
        if !self.with.is_empty() {
            option("--with", &self.with.join(","));
        }
        self.catalog.iter().for_each(|catalog| option("--catalog", &catalog.display().to_string()));
        self.device.iter().for_each(|device| option("--device", device));
        self.workload.iter().for_each(|workload| option("--workload", workload));
        self.program.iter().for_each(|program| option("--exec", &program.to_string()));
        self.root.iter().for_each(|root| option("--rootfs", &root.to_string()));
        self.files.iter().for_each(|file| option("--file", &file.to_string()));
        if self.memory_mib != usual.memory_mib {
            option("--memory", &self.memory_mib.to_string());
        }
        if self.tools != usual.tools {
            let quiet = crate::tools::tools("quiet").is_ok_and(|quiet| quiet == self.tools);
            option("--tool", &if quiet { "quiet".to_owned() } else { self.tools.join(",") });
        }
        for (name, value) in &self.variables {
            option("--set", &format!("{name}={value}"));
        }
        for (name, value) in &self.offered {
            option("--offer", &format!("{name}={value}"));
        }
        self.parameters.iter().for_each(|parameter| option("--param", &parameter.to_string()));
        self.kernel_arguments.iter().for_each(|words| option("--append", words));
        if self.mode != usual.mode {
            option("--mode", self.mode.word());
        }
        if self.gate != usual.gate {
            option("--gate", self.gate.word());
        }
        if self.cpus != usual.cpus {
            option("--smp", &self.cpus.to_string());
        }
        if self.threads == TcgThreads::Multi {
            option("--thread", "multi");
        }
        if self.time_limit != usual.time_limit {
            option("--timeout", &self.time_limit.as_secs().to_string());
        }
        let flags = [
            ("--no-kaslr", !self.kaslr),
            ("--hold-writes", !self.posts),
            ("--kept-boot", self.kept_boot),
            ("--iommu", self.iommu),
        ];
        words.extend(flags.iter().filter(|flag| flag.1).map(|flag| flag.0.to_owned()));
        words
    }

    /// Whether a vCPU goes on after a write to the device's memory. A snapshot is of the moment of a finding: for that,
    /// nothing may run on.
    pub fn posts(&self) -> bool {
        self.posts && self.snapshots.is_none()
    }

    /// Refuses options that exclude each other, before any file is read.
    pub fn refuse(&self) -> Result<(), HostError> {
        let why = self.refuse_gate().or_else(|| self.refuse_snapshots()).or_else(|| self.refuse_confirm());
        why.or_else(|| self.refuse_rerun()).map_or(Ok(()), |why| Err(HostError::Usage(why)))
    }

    fn refuse_gate(&self) -> Option<String> {
        if self.drivers.is_empty() {
            return Some("a run needs a driver".into());
        }
        (self.gate == GateKind::VfioUser && self.iommu).then(|| {
            "--gate vfio-user cannot be had with --iommu: the device's QEMU does not know the guest's IOMMU tables; \
             use --gate vmm"
                .into()
        })
    }

    fn refuse_snapshots(&self) -> Option<String> {
        let least = LEAST_HOLD_TO_SAVE.as_secs();
        match self.snapshots {
            None => None,
            Some(_) if self.out.is_none() => {
                Some("--snapshot-on-finding needs a place for the snapshots; add --out DIR".into())
            }
            Some(_) if self.gate == GateKind::Off => Some(
                "--snapshot-on-finding needs a gate that holds the driver while the guest is saved; leave out --gate off"
                    .into(),
            ),
            Some(_) if self.hold_limit < LEAST_HOLD_TO_SAVE => Some(format!(
                "--snapshot-on-finding holds accesses for as long as saving takes; --gate-timeout must be at least {least}"
            )),
            Some(_) => None,
        }
    }

    fn refuse_confirm(&self) -> Option<String> {
        let finds_races = |tool: &String| tool.starts_with("drcheck") || tool == "datacollider";
        (self.confirm.is_some() && !self.tools.iter().any(finds_races)).then(|| {
            "--confirm tries races, but no checker of the run finds any; add --tool drcheck or --tool all"
                .into()
        })
    }

    fn refuse_rerun(&self) -> Option<String> {
        let fits = self.cpus == 1 && self.gate == GateKind::Off && self.threads == TcgThreads::Single;
        (self.rerun.is_some() && !fits)
            .then(|| "a machine that is recorded has one CPU and no gate; add --smp 1 --gate off".into())
    }

    /// The part of the plan that is fetched and checked before the run.
    pub(crate) fn request(&self) -> Request<'_> {
        Request {
            driver: &self.drivers[0],
            more: &self.drivers[1..],
            with: &self.with,
            catalog: self.catalog.as_deref(),
            kernel: &self.kernel,
            device: self.device.as_deref(),
            workload: self.workload.as_deref(),
        }
    }

    /// How the analysis waits while the log is empty. Without a gate nothing waits for the analysis.
    pub(crate) fn reader_schedule(&self) -> Schedule {
        match (self.gate, self.schedule) {
            (GateKind::Off, Schedule::Interrupt) => Schedule::Napping,
            (_, schedule) => schedule,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl Fn(&mut RunPlan)) -> Option<String> {
        let mut plan = RunPlan::new("e1000");
        change(&mut plan);
        plan.refuse().err().map(|error| error.to_string())
    }

    #[test]
    fn options_that_exclude_each_other_are_refused() {
        assert_eq!(refused(|_| ()), None);
        let snapshots = refused(|plan| plan.snapshots = Some(4));
        assert!(snapshots.is_some_and(|why| why.ends_with("add --out DIR")));
        let confirm = refused(|plan| {
            plan.confirm = Some(Effort::default());
            plan.tools = crate::tools::tools("quiet").unwrap();
        });
        assert!(confirm.is_some_and(|why| why.starts_with("--confirm tries races")));
        assert!(refused(|plan| plan.rerun = Some(Rerun::Record("/tmp/x".into()))).is_some());
        assert!(refused(|plan| plan.drivers.clear()).is_some());
    }

    #[test]
    fn a_run_knows_its_command() {
        let usual = RunPlan::new("e1000");
        assert_eq!(usual.command("6.1.0-56-amd64").join(" "), "check e1000 --kernel 6.1.0-56-amd64");
        let other = RunPlan {
            tools: crate::tools::tools("quiet").unwrap(),
            workload: Some("full".into()),
            variables: vec![("DOWNLOAD_MB".into(), "1".into())],
            kernel: "/tmp/k.deb".into(),
            cpus: 4,
            kaslr: false,
            ..usual
        };
        assert_eq!(
            other.command("6.1").join(" "),
            "check e1000 --kernel /tmp/k.deb --workload full --tool quiet --set DOWNLOAD_MB=1 --smp 4 --no-kaslr"
        );
    }

    #[test]
    fn an_analysis_that_nothing_waits_for_naps() {
        let plan = RunPlan { gate: GateKind::Off, ..RunPlan::new("e1000") };
        assert_eq!(plan.reader_schedule(), Schedule::Napping);
        assert_eq!(RunPlan::new("e1000").reader_schedule(), Schedule::Interrupt);
    }
}
