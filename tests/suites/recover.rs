//! A guarded driver that commits a violation while an application uses it. It is killed and recovers, and the
//! application continues with its connection or file.

use guardrail_knowledge::table::Kind;
use guardrail_tests::workshop::Workshop;
use guardrail_tests::{compiled, ensure};
use guardrail_vm::Cache;
use guardrail_vm::kernels::NAMES;
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::run::{Options, Outcome};
use guardrail_vm::software::Software;
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::Path;
use std::time::Duration;

/// A fault of a driver.
struct Fault {
    driver: &'static str,
    /// Where the violation is, or what happens to the driver then.
    place: &'static str,
    /// What the driver does there.
    does: &'static str,
    /// A function at that place.
    function: &'static str,
    /// The right that the driver lacks, so that it commits the violation: a part of the annotations, and its
    /// replacement.
    spoiled: (&'static str, &'static str),
    /// The kernels on which it is always tested.
    always: &'static [&'static str],
}

/// The faults are:
///
/// - the structure that is filled in for `ethtool -a`,
/// - a field of each packet that is received,
/// - the driver's part of commands,
/// - the results of commands, after which no driver is loaded again,
/// - the driver's part of a name that is looked up,
/// - times of a file that is written, in two modules,
/// - what a sound card can do, and a stream of one,
/// - a request to a USB host, and the result of a command to a USB disk.
const FAULTS: [Fault; 14] = [
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
        driver: "virtio_net",
        place: "receive",
        does: "recovers from a fault while it receives",
        function: "virtio_net",
        spoiled: ("cb, tstamp, protocol, mac_header", "cb, tstamp, mac_header"),
        always: &[],
    },
    Fault {
        driver: "sym53c8xx",
        place: "queue",
        does: "recovers from a fault where commands are queued",
        function: "queue_command",
        spoiled: ("before custom scsi_queue cmd ; after", "after"),
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
        spoiled: (
            "grant_fields sdev scsi_device ; before custom scsi_device sdev",
            "grant_fields sdev scsi_device",
        ),
        always: &[],
    },
    Fault {
        driver: "snd_ens1370",
        place: "open",
        does: "recovers from a fault while a program plays",
        function: "snd_ens",
        spoiled: ("type snd_pcm_runtime: hw, private_data", "type snd_pcm_runtime: private_data"),
        always: &["7.2"],
    },
    Fault {
        driver: "snd_hda_intel",
        place: "interrupt",
        does: "recovers from a fault while a program plays",
        function: "azx",
        spoiled: (
            "azx_init_streams (chip): after custom hda_streams &chip->azx.bus.core sizeof(azx_dev) if ok",
            "azx_init_streams (chip): nothing",
        ),
        always: &[],
    },
    Fault {
        driver: "uhci_hcd",
        place: "queue",
        does: "recovers from a fault while a program reads a disk",
        function: "uhci_",
        spoiled: ("grant_fields urb urb ; grant_fields urb->urb.ep", "grant_fields urb->urb.ep"),
        always: &[],
    },
    Fault {
        driver: "usb_storage",
        place: "command",
        does: "recovers from a fault while a program reads a disk",
        function: "usb_stor",
        spoiled: ("type scsi_cmnd: result, resid_len", "type scsi_cmnd: resid_len"),
        always: &["7.2"],
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

/// Drivers that fault at many places, by nothing that is spoiled: the runtime is asked for a fault.
const OFTEN: [&str; 6] = ["e1000", "virtio_net", "snd_ens1370", "snd_hda_intel", "uhci_hcd", "usb_storage"];

const fn often(driver: &'static str) -> Fault {
    Fault { driver, place: "places", does: "", function: "", spoiled: ("", ""), always: &[] }
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
    for kernel in NAMES {
        for driver in OFTEN {
            let name = format!("{driver} recovers from twenty faults in a row, on {kernel}");
            let trial = Trial::test(name, move || recovers(kernel, &often(driver)));
            trials.push(trial.with_ignored_flag(true));
        }
    }
    guardrail_tests::run(arguments, trials)
}

/// A guarded driver, or a module of its domain, with a right missing, and the runtime beside it.
fn guard(workshop: &Workshop, (fault, name): (&Fault, &str), folder: &Path) -> Result<String, Failed> {
    let (right, wrong) = fault.spoiled;
    let table: String = Kind::Rights.tables().map(|(_, text)| text).collect();
    if !table.contains(right) {
        return Err(format!("the table has no '{right}'").into());
    }
    let table = table.replace(right, wrong);
    workshop.write(&workshop.guarded(&workshop.modules.plan(name)?, Some(&table), &[])??, folder)
}

/// The driver is killed, and the guest finds everything as it was.
fn recovers(kernel: &str, fault: &Fault) -> Result<(), Failed> {
    let packages = Packages::new(&Cache::open()?);
    let folder = tempfile::tempdir()?;
    let workshop = Workshop::of(&packages, kernel)?;
    let driver = guard(&workshop, (fault, fault.driver), folder.path())?;
    let workload = folder.path().join("workload.sh");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let disk = fault.driver == "sym53c8xx";
    let own: &[&str] = match fault.driver {
        "vfat" => &["recover-files.sh"],
        "uhci_hcd" | "usb_storage" => &["recover-again.sh"],
        name if name.starts_with("snd") => &["player.sh", "recover-sound.sh"],
        _ if disk => &["recover-disk.sh"],
        _ => &["recover.sh"],
    };
    let shared = ["../../../guest/workloads/device.sh", "recovery.sh"];
    let parts = shared.iter().chain(own).map(|part| root.join("fixtures/guarded").join(part));
    std::fs::write(&workload, parts.map(std::fs::read_to_string).collect::<Result<Vec<_>, _>>()?.concat())?;
    let request = Request { driver: &driver, kernel, workload: workload.to_str(), ..Request::default() };
    let mut prepared = Prepared::new(&packages, &Parser::here(), request, &mut |_| {})?;
    let modules = &workshop.modules;
    for name in companions(fault.driver) {
        let path = guard(&workshop, (fault, name), folder.path())?;
        let place = prepared.plan.before.iter_mut().find(|module| module.name == *name);
        place.ok_or_else(|| format!("the driver does not need {name}"))?.bytes = std::fs::read(path)?;
    }
    let mut options = Options::new(folder.path());
    if fault.driver == "vfat" {
        options.files.push(("holds".to_owned(), compiled("holds", folder.path())?));
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
    options.kernel_arguments = vec!["loglevel=7".to_owned()];
    // What an idle driver does first for a read; one of its own threads sleeps meanwhile, waiting for that.
    let first = if fault.driver == "usb_storage" { "queuecommand" } else { "" };
    for (name, value) in [("FAULT", fault.place), ("FUNCTION", fault.function), ("FIRST", first)] {
        options.variables.push((name.to_owned(), value.to_owned()));
    }
    let many = fault.place == "places";
    if many {
        // What is waited for is counted in the log, which a faulting driver fills.
        options.kernel_arguments.push("log_buf_len=8M".to_owned());
        // A connection may take a minute to go on, as after a pulled cable.
        options.limits.silence = Duration::from_secs(120);
    }
    let ran = guardrail_tests::unwatched(&prepared, options, if many { 1_500 } else { 300 })?;
    // At its removal, guarded or not, sym53c8xx releases memory with interrupts off, and the kernel warns of
    // that.
    let console = ran.console.split("sym0: detaching").next().unwrap_or_default();
    let says = |text: &&str| console.contains(*text);
    let bad = ["BUG:", "WARNING:", "Oops", "Call Trace:"].into_iter().find(says);
    ensure(ran.outcome == Outcome::Completed && bad.is_none(), || {
        format!("{}; {bad:?}\n{}", ran.outcome, ran.console)
    })
}
