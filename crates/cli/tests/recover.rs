//! A guarded driver that violates something while an application uses it: it is killed and begins anew, and the application goes on with
//! the connection, or the file, that it has.

mod common;

use guardrail_kernel::isolation::{Isolation, types};
use guardrail_kernel::{KernelImage, ModuleImage};
use guardrail_rewrite::checks::Checks;
use guardrail_rewrite::interpose::border;
use guardrail_rewrite::{Object, rewrite};
use guardrail_vm::kernels::NAMES;
use guardrail_vm::modules::Modules;
use guardrail_vm::packages::Packages;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::run::{Options, Outcome};
use guardrail_vm::software::Software;
use guardrail_vm::{Cache, kernels, runtime};
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::Path;

/// What drivers are known by.
const TABLE: &str = include_str!("../../kernel/isolation.txt");
/// A fault of a driver.
struct Fault {
    driver: &'static str,
    /// Where it violates something, or what becomes of it then.
    place: &'static str,
    /// What it does.
    does: &'static str,
    /// A function there.
    function: &'static str,
    /// What the driver is given no right to, so that it does: a part of the table, and what stands there instead.
    spoiled: (&'static str, &'static str),
    /// On which kernels it is always tried.
    always: &'static [&'static str],
}

/// What is filled in for `ethtool -a`; a field of each frame that is received; the driver's part of commands; their results, and then no driver
/// comes; the driver's part of a name that is looked up; times of a file that is written, in two modules.
const FAULTS: [Fault; 9] = [
    Fault {
        driver: "e1000",
        place: "call",
        does: "recovers from a fault in a call",
        function: "",
        spoiled: (
            "kernel_ethtool_ringparam, ethtool_pauseparam (p): lend p sizeof(p)",
            "kernel_ethtool_ringparam (p): lend p sizeof(p)\nargument ethtool_pauseparam (p): nothing",
        ),
        always: &["6.12"],
    },
    Fault {
        driver: "e1000",
        place: "receive",
        does: "recovers from a fault while it receives",
        function: "clean_rx",
        spoiled: ("cb, tstamp, protocol, mac_header", "cb, tstamp, mac_header"),
        always: &["6.1"],
    },
    Fault {
        driver: "sym53c8xx",
        place: "queue",
        does: "recovers from a fault where commands are queued",
        function: "queue_command",
        spoiled: ("before do scsi_queue cmd ; after", "after"),
        always: &[],
    },
    Fault {
        driver: "sym53c8xx",
        place: "interrupt",
        does: "recovers from a fault in its interrupt",
        function: "sym_",
        spoiled: ("type scsi_cmnd: result, resid_len", "type scsi_cmnd: resid_len"),
        always: &["6.12"],
    },
    Fault {
        driver: "sym53c8xx",
        place: "loader",
        does: "has its disks fail where it is not loaded again, until it is",
        function: "sym_",
        spoiled: ("type scsi_cmnd: result, resid_len", "type scsi_cmnd: resid_len"),
        always: &[],
    },
    Fault {
        driver: "sym53c8xx",
        place: "often",
        does: "has its disks fail where it is killed too often",
        function: "sym_",
        spoiled: ("type scsi_cmnd: result, resid_len", "type scsi_cmnd: resid_len"),
        always: &[],
    },
    Fault {
        driver: "sym53c8xx",
        place: "probe",
        does: "recovers from a fault while devices are looked for, and from the same while it recovers",
        function: "sym_",
        spoiled: ("fields sdev scsi_device ; before do scsi_device sdev", "fields sdev scsi_device"),
        always: &[],
    },
    Fault {
        driver: "vfat",
        place: "lookup",
        does: "recovers from a fault where names are looked up",
        function: "vfat_",
        spoiled: (
            "entry inode_operations.lookup (dir, dentry, flags): lend &dentry->dentry.d_fsdata 8",
            "entry inode_operations.lookup (dir, dentry, flags): nothing",
        ),
        always: &[],
    },
    Fault {
        driver: "vfat",
        place: "write",
        does: "recovers from a fault where files are written",
        function: "fat_",
        spoiled: ("i_size, i_bytes, i_blkbits, i_blocks", "i_size, i_bytes, i_blkbits"),
        always: &["6.1"],
    },
];

/// Modules that share the driver's domain.
fn companions(driver: &str) -> &'static [&'static str] {
    if driver == "vfat" { &["fat"] } else { &[] }
}

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for kernel in NAMES {
        for fault in &FAULTS {
            let name = format!("{} {}, on {kernel}", fault.driver, fault.does);
            let trial = Trial::test(name, move || recovers(kernel, fault));
            trials.push(trial.with_ignored_flag(!fault.always.contains(&kernel)));
        }
    }
    common::run(arguments, trials)
}

/// A guarded driver, or a module of its domain, with a right missing, and the runtime beside it.
fn guard(
    packages: &Packages,
    kernel: &str,
    (fault, name): (&Fault, &str),
    folder: &Path,
) -> Result<String, Failed> {
    let (right, wrong) = fault.spoiled;
    let kernel = kernels::find(packages, kernel)?;
    let runtime = runtime::ensure(packages, &kernel)?;
    std::fs::copy(&runtime.module, folder.join("guardrail.ko"))?;
    let plan = Modules::of(&kernel)?.plan(name)?;
    let driver = ModuleImage::parse(name, plan.driver.bytes.clone())?;
    let needed = plan.before.iter().map(|module| ModuleImage::parse(&module.name, module.bytes.clone()));
    let needed = needed.collect::<Result<Vec<_>, _>>()?;
    if !TABLE.contains(right) {
        return Err(format!("the table has no '{right}'").into());
    }
    let table = TABLE.replace(right, wrong);
    let isolation = Isolation::with_table(
        ("spoiled", &table),
        types(&KernelImage::open(&kernel.vmlinuz)?, &driver, &needed),
    )?;
    let found = border(&isolation, &Object::read(name, &plan.driver.bytes)?);
    let symbols = std::fs::read_to_string(&runtime.symbols)?;
    let mut checks = Checks::new(1).guarded(name, &symbols).interposing(found.interposition);
    let path = folder.join(format!("{name}.ko"));
    std::fs::write(&path, rewrite(name, plan.driver.bytes, &mut [&mut checks])?.file)?;
    Ok(path.display().to_string())
}

/// The driver is killed, and the guest finds all as it was.
fn recovers(kernel: &str, fault: &Fault) -> Result<(), Failed> {
    let packages = Packages::new(&Cache::open()?);
    let folder = tempfile::tempdir()?;
    let driver = guard(&packages, kernel, (fault, fault.driver), folder.path())?;
    let workload = folder.path().join("workload.sh");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let disk = fault.driver == "sym53c8xx";
    let own = match fault.driver {
        "vfat" => "tests/guarded/recover-files.sh",
        _ if disk => "tests/guarded/recover-disk.sh",
        _ => "tests/guarded/recover.sh",
    };
    let parts = ["../../workloads/device.sh", "tests/guarded/recovery.sh", own];
    let parts = parts.map(|part| std::fs::read_to_string(root.join(part))).into_iter();
    std::fs::write(&workload, parts.collect::<Result<Vec<_>, _>>()?.concat())?;
    let request = Request { driver: &driver, more: &[], kernel, device: None, workload: workload.to_str() };
    let mut prepared = Prepared::new(&packages, request, &mut |_| {})?;
    let modules = Modules::of(&prepared.kernel)?;
    for name in companions(fault.driver) {
        let path = guard(&packages, kernel, (fault, name), folder.path())?;
        let place = prepared.plan.before.iter_mut().find(|module| module.name == *name);
        place.ok_or_else(|| format!("the driver does not need {name}"))?.bytes = std::fs::read(path)?;
    }
    if fault.driver == "vfat" {
        prepared.plan.before.sort_by_key(|module| module.name != "guardrail");
        for name in ["loop", "nls_cp437", "nls_ascii"].into_iter().filter(|name| modules.has(name)) {
            modules.add(name, fault.driver, &mut prepared.also)?;
        }
    }
    if disk {
        for name in ["crc32c_generic", "ext4"].into_iter().filter(|name| modules.has(name)) {
            modules.add(name, fault.driver, &mut prepared.also)?;
        }
        prepared.workload.software = &["mke2fs"];
        prepared.software = Some(Software::find(&packages)?);
    }
    let mut options = Options::new(folder.path());
    options.kernel_arguments = vec!["loglevel=7".to_owned()];
    for (name, value) in [("FAULT", fault.place), ("FUNCTION", fault.function)] {
        options.variables.push((name.to_owned(), value.to_owned()));
    }
    let ran = common::unwatched(&prepared, options, 300)?;
    // When it is removed, sym53c8xx releases memory with interrupts off, of which the kernel warns; guarded or not.
    let console = ran.console.split("sym0: detaching").next().unwrap_or_default();
    let says = |text: &&str| console.contains(*text);
    let bad = ["BUG:", "WARNING:", "Oops", "Call Trace:"].into_iter().find(says);
    match ran.outcome == Outcome::Completed && bad.is_none() {
        true => Ok(()),
        false => Err(format!("{}; {bad:?}\n{}", ran.outcome, ran.console).into()),
    }
}
