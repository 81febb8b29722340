//! Arguments of `check`, and of the commands that work on its runs: `analyze`, `confirm`, `debug`, `survey`, `view`.

use crate::args::choice::one_of;
use crate::args::known::KnownArgs;
use crate::args::opened::OpenArgs;
use crate::args::runs::{EachArgs, PlaceArgs};
use crate::args::symbols::SymbolArgs;
use crate::args::{ListFormat, OutputArgs, TableFormat};
use clap::Args;
use guardrail_check::plan::{MEMORY, MEMORY_MIB, RING_WORDS};
use guardrail_check::survey::SurveyPlan;
use guardrail_check::view::Filter;
use guardrail_check::{Effort, GateKind, Mode, Observe, RunPlan};
use guardrail_host::HostError;
use guardrail_host::drivers::{parameters, variables};
use guardrail_host::folders::absolute;
use guardrail_trace::log::Schedule;
use guardrail_vm::brought::{GuestFile, GuestProgram};
use guardrail_vm::rerun::Rerun;
use guardrail_vm::root::GuestRoot;
use guardrail_vm::run::{Forward, TcgThreads};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// A module of the kernel (e1000), the path of a .ko, of a C file or of a folder of sources, or zoo/NAME; several take turns in one guest
    #[arg(required = true, value_name = "DRIVER")]
    pub drivers: Vec<String>,
    /// The kernel: 6.1, 6.12, 7.2 (also 6.1-cloud, 6.1-rt, …), a release, a .deb, a folder of packages, or /boot/vmlinuz-RELEASE
    #[arg(long, value_name = "NAME|PATH", default_value = guardrail_vm::kernels::DEFAULT)]
    pub kernel: String,
    /// Modules that are checked along with the driver, such as those that it needs, separated by commas
    #[arg(long, value_name = "MODULE,...", value_delimiter = ',')]
    pub with: Vec<String>,
    /// A file with drivers and the QEMU devices that they bind, before those of 'guardrail list drivers'
    #[arg(long, value_name = "FILE")]
    pub catalog: Option<PathBuf>,
    /// The QEMU device that the driver serves, instead of the usual one; "synthetic" for one with the driver's own IDs, which QEMU
    /// need not model
    #[arg(long, value_name = "QEMU-DEVICE")]
    pub device: Option<String>,
    /// The checkers, separated by commas; "quiet" is all but drcheck, "all" is all
    #[arg(long, value_name = "NAME,...", default_value = "all")]
    pub tool: String,
    /// What exercises the driver, instead of the workload of its class
    #[arg(long, value_name = "NAME|SCRIPT")]
    pub workload: Option<String>,
    /// A program of yours that exercises the driver, with its arguments in quotes; its libraries come with it
    #[arg(long, value_name = "COMMAND", conflicts_with = "workload")]
    pub exec: Option<GuestProgram>,
    /// Run the program of --exec, or the script of --workload, in this root file system: a folder, a .tar archive, or an ext4 or
    /// squashfs image
    #[arg(long, value_name = "DIR|IMAGE")]
    pub rootfs: Option<GuestRoot>,
    /// A file or folder for the guest, in /root unless DST says where; may be given several times
    #[arg(long = "file", value_name = "SRC[:DST]")]
    pub brought: Vec<GuestFile>,
    /// What happens at a finding
    #[arg(long, value_parser = one_of::<Mode>(), default_value = "permissive")]
    pub mode: Mode,
    /// Where device accesses wait until everything before them has been checked
    #[arg(long, value_parser = one_of::<GateKind>(), default_value = "vmm")]
    pub gate: GateKind,
    /// Longest time that a device access is held; then the device is cut off
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub gate_timeout: u64,
    /// Have a vCPU wait with writes to the device's memory, too, instead of going on until they are checked and arrive
    #[arg(long)]
    pub hold_writes: bool,
    /// Which kinds of findings cut the device off and which are only reported, instead of ./guardrail.toml
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Run CMD with the shell at each finding; $GUARDRAIL_FINDING, _CHECKER, _KIND, _MESSAGE and _ACTION describe it
    #[arg(long, value_name = "CMD")]
    pub on_finding: Option<String>,
    /// Save the guest in --out at the first N findings (4 if N is not given), for 'guardrail debug'
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "4", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub snapshot_on_finding: Option<u32>,
    /// What the analysis does while the log is empty
    #[arg(long, value_parser = one_of::<Schedule>(), default_value = "interrupt")]
    pub schedule: Schedule,
    /// Number of guest CPUs, 1 to 4
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=4))]
    pub smp: u8,
    /// Run the guest's CPUs by turns on one thread, or on a thread each
    #[arg(long, value_parser = one_of::<TcgThreads>(), default_value = "single")]
    pub thread: TcgThreads,
    /// The guest's memory, in MiB
    #[arg(long, value_name = "MIB", default_value_t = MEMORY_MIB, value_parser = clap::value_parser!(u32).range(i64::from(*MEMORY.start())..=i64::from(*MEMORY.end())))]
    pub memory: u32,
    /// Boot the kernel at its link-time address
    #[arg(long)]
    pub no_kaslr: bool,
    /// Continue from a guest that has booted and was kept, or keep this one for later runs
    #[arg(long)]
    pub kept_boot: bool,
    /// Give the guest an IOMMU, so that devices see memory at other addresses
    #[arg(long)]
    pub iommu: bool,
    /// Words for the guest kernel's command line, such as swiotlb=force; may be given several times
    #[arg(long, value_name = "WORDS")]
    pub append: Vec<String>,
    /// The least part of each driver's functions that must run; a run below it is not exercised
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub min_coverage: u32,
    /// Longest time that the run may take
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub timeout: u64,
    /// A variable of the workload, such as DOWNLOAD_MB=200; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub variables: Vec<String>,
    /// A variable that is left out where the workload does not read it, for surveys
    #[arg(long = "offer", value_name = "NAME=VALUE", hide = true)]
    pub offered: Vec<String>,
    /// A parameter of the driver's module, such as debug=3; may be given several times
    #[arg(long = "param", value_name = "[MODULE.]NAME=VALUE")]
    pub parameters: Vec<String>,
    /// How much of the machinery runs, for benchmarks
    #[arg(long, value_parser = one_of::<Observe>(), default_value = "check", hide = true)]
    pub observe: Observe,
    /// Words in each ring of the log, a power of two, for tests
    #[arg(long, value_name = "N", default_value_t = RING_WORDS, hide = true)]
    pub log_words: u64,
    /// A port of this machine that leads into the guest (tcp:HERE:THERE, udp:HERE:THERE), for benchmarks
    #[arg(long = "forward", value_name = "PORTS", hide = true)]
    pub forwards: Vec<Forward>,
    /// Record the whole virtual machine in DIR, so that it can run again instruction by instruction; with --smp 1 --gate off
    #[arg(long, value_name = "DIR", conflicts_with = "vm_replay")]
    pub vm_record: Option<PathBuf>,
    /// Run the virtual machine again that was recorded in DIR; the other options must be as they were
    #[arg(long, value_name = "DIR")]
    pub vm_replay: Option<PathBuf>,
    /// A word for QEMU's command line; may be given several times
    #[arg(long = "qemu-arg", value_name = "WORD", allow_hyphen_values = true)]
    pub qemu_arg: Vec<String>,
    /// Print what would be run, and run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Also write the trace to FILE
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Keep the run folder (console, configuration, report) as DIR
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Try to make each data race that is found happen, in further runs
    #[arg(long)]
    pub confirm: bool,
    /// Where the drivers' source lines come from.
    #[command(flatten)]
    pub symbols: SymbolArgs,
    /// Which findings are known or accepted.
    #[command(flatten)]
    pub known: KnownArgs,
    /// How the report is printed and written.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl CheckArgs {
    /// The run that the arguments ask for.
    pub fn plan(&self) -> Result<RunPlan, HostError> {
        // A root has its own programs, which are looked for when it is read.
        if let (Some(program), None) = (&self.exec, &self.rootfs) {
            program.refuse_absent()?;
        }
        let rerun = match (&self.vm_record, &self.vm_replay) {
            (Some(folder), _) => Some(Rerun::Record(absolute(folder)?)),
            (None, Some(folder)) => Some(Rerun::Replay(absolute(folder)?)),
            (None, None) => None,
        };
        Ok(RunPlan {
            drivers: self.drivers.clone(),
            with: self.with.clone(),
            catalog: self.catalog.as_deref().map(absolute).transpose()?,
            kernel: self.kernel.clone(),
            device: self.device.clone(),
            workload: self.workload.clone(),
            program: self.exec.clone(),
            root: self.rootfs.clone(),
            files: self.brought.clone(),
            memory_mib: self.memory,
            variables: variables(&self.variables)?,
            offered: variables(&self.offered)?,
            parameters: parameters(&self.parameters)?,
            symbols: self.symbols.plan(),
            tools: guardrail_check::tools(&self.tool)?,
            observe: self.observe,
            mode: self.mode,
            gate: self.gate,
            posts: !self.hold_writes,
            hold_limit: Duration::from_secs(self.gate_timeout),
            policy: self.policy.clone(),
            schedule: self.schedule,
            on_finding: self.on_finding.clone(),
            snapshots: self.snapshot_on_finding,
            cpus: self.smp,
            threads: self.thread,
            kaslr: !self.no_kaslr,
            kept_boot: self.kept_boot,
            iommu: self.iommu,
            kernel_arguments: self.append.clone(),
            min_coverage: self.min_coverage,
            time_limit: Duration::from_secs(self.timeout),
            ring_words: self.log_words,
            forwards: self.forwards.clone(),
            rerun,
            qemu_arguments: self.qemu_arg.clone(),
            record: self.record.clone(),
            out: self.out.clone(),
            confirm: self.confirm.then(Effort::default),
            held: None,
        })
    }
}

/// Arguments of `confirm`.
#[derive(Debug, Args)]
pub struct ConfirmArgs {
    /// The findings by id, or its first characters (default: all data races of the run)
    #[arg(value_name = "FINDING")]
    pub findings: Vec<String>,
    /// The folder of the run (of 'check --out'); its report gets the outcome
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// How often each race is tried in a run
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=10000))]
    pub tries: u32,
    /// The most runs
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// How long to look for what follows after a race was made to happen; 0 looks for nothing
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=600))]
    pub follow: u64,
    /// Force the order of each race that was made to happen again, in N further runs, and count how often it works
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub repeat: u32,
    /// How the outcome is printed
    #[arg(long, value_enum, default_value_t = ListFormat::Text)]
    pub format: ListFormat,
}

/// Arguments of `debug`.
#[derive(Debug, Args)]
pub struct DebugArgs {
    /// The finding by id, or its first characters
    pub finding: String,
    /// The folder of the run (of 'check --out' with --snapshot-on-finding)
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Show where the guest stood, and end
    #[arg(long)]
    pub batch: bool,
    /// Further arguments for gdb, such as -ex COMMAND
    #[arg(last = true, value_name = "GDB-ARGUMENT")]
    pub gdb: Vec<OsString>,
}

/// Arguments of `analyze`.
#[derive(Debug, Args)]
pub struct AnalyzeArgs {
    /// The trace
    pub file: PathBuf,
    /// The checkers, separated by commas, instead of those of the run
    #[arg(long, value_name = "NAME,...")]
    pub tool: Option<String>,
    /// Where the drivers' source lines come from.
    #[command(flatten)]
    pub symbols: SymbolArgs,
    /// Which files the trace may name.
    #[command(flatten)]
    pub open: OpenArgs,
    /// Which findings are known or accepted.
    #[command(flatten)]
    pub known: KnownArgs,
    /// How the report is printed and written.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `view`.
#[derive(Debug, Args)]
pub struct ViewArgs {
    /// The trace
    pub file: PathBuf,
    /// Only events in this function of the driver, or of this kernel function
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,
    /// Only events of the thread with this number
    #[arg(long, value_name = "PID")]
    pub thread: Option<u64>,
    /// Only accesses to this address or range (hexadecimal)
    #[arg(long, value_name = "A[-B]", value_parser = parse_range)]
    pub address: Option<(u64, u64)>,
    /// Only events of this kind: access, block, enter, call, hook-call, …
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,
    /// At most this many events
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Check the trace's invariants instead of printing events
    #[arg(long)]
    pub check: bool,
    /// Which files the trace may name.
    #[command(flatten)]
    pub open: OpenArgs,
}

/// Arguments of `survey`.
#[derive(Debug, Args)]
pub struct SurveyArgs {
    /// Which runs there are.
    #[command(flatten)]
    pub places: PlaceArgs,
    /// Run modules that the catalog does not list on synthetic devices
    #[arg(long)]
    pub synthetic: bool,
    /// How many guests run at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub jobs: u8,
    /// What each run is like.
    #[command(flatten)]
    pub each: EachArgs,
    /// The folder of the survey; one that was interrupted goes on
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Keep the trace of each run in its folder below runs/
    #[arg(long)]
    pub record: bool,
    /// Run again what failed before
    #[arg(long)]
    pub retry: bool,
    /// An earlier survey to compare with
    #[arg(long, value_name = "DIR")]
    pub against: Option<PathBuf>,
    /// How the table is printed; the folder has it in all formats
    #[arg(long, value_enum, default_value_t = TableFormat::Text)]
    pub format: TableFormat,
}

impl ViewArgs {
    /// The events that are wanted.
    pub fn filter(&self) -> Filter {
        Filter {
            function: self.function.clone(),
            thread: self.thread,
            address: self.address,
            kind: self.kind.clone(),
            limit: self.limit,
        }
    }
}

impl SurveyArgs {
    /// The survey that the arguments ask for.
    pub fn plan(&self) -> Result<SurveyPlan, HostError> {
        Ok(SurveyPlan {
            drivers: self.places.driver.clone(),
            kernels: self.places.kernel.clone(),
            every_device: self.places.every_device,
            synthetic: self.synthetic,
            jobs: self.jobs,
            tools: guardrail_check::tools(&self.each.tool)?,
            mode: self.each.mode,
            workload: self.each.workload.clone(),
            cpus: self.each.smp,
            variables: self.each.variables.clone(),
            time_limit: Duration::from_secs(self.each.timeout),
            out: self.out.clone(),
            record: self.record,
            retry: self.retry,
            against: self.against.clone(),
        })
    }
}

fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let number = |text: &str| {
        let digits = text.trim().trim_start_matches("0x").replace('_', "");
        u64::from_str_radix(&digits, 16).map_err(|_| format!("'{text}' is not a hexadecimal address"))
    };
    match text.split_once('-') {
        None => number(text).map(|at| (at, at)),
        Some((from, to)) => match (number(from)?, number(to)?) {
            (from, to) if from <= to => Ok((from, to)),
            _ => Err("the range ends before it begins".to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_hexadecimal() {
        assert_eq!(parse_range("0x10-20"), Ok((16, 32)));
        assert_eq!(parse_range("ffff_8880"), Ok((0xffff_8880, 0xffff_8880)));
        assert!(parse_range("20-10").is_err());
        assert!(parse_range("zz").is_err());
    }
}
