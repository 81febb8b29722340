//! Active drivers, in guests: the core passes its own tests, and drivers do the work of the stock ones.

#[path = "active/check.rs"]
mod check;
#[path = "active/edu.rs"]
mod edu;
#[path = "active/guarded.rs"]
mod guarded;

use guardrail_tests::{Ran, ensure};
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::run::{Options, Outcome};
use guardrail_vm::{Cache, kbuild, kernels};
use libtest_mimic::{Arguments, Failed, Trial};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

const KERNELS: [&str; 3] = ["6.1", "6.12", "7.2"];

/// An active driver, and what it replaces.
struct Driver {
    /// Its module.
    module: &'static str,
    /// The module with the wrapper of its class.
    wrapper: &'static str,
    /// The stock driver of the same device.
    stock: &'static str,
    /// QEMU's name of the device, unless it is the usual one.
    device: Option<&'static str>,
    /// The workload, of `fixtures/active/`.
    workload: &'static str,
    /// Programs for the workload, C files of `fixtures/active/`.
    programs: &'static [&'static str],
    /// The kernels that it is for.
    kernels: &'static [&'static str],
    /// The kernel on which it is always tested.
    always: &'static str,
}

/// All active drivers.
const DRIVERS: [Driver; 3] = [
    Driver {
        module: "active_8139cp",
        wrapper: "active_net",
        stock: "8139cp",
        device: Some("rtl8139"),
        workload: "network",
        programs: &[],
        kernels: &KERNELS,
        always: "6.1",
    },
    Driver {
        module: "active_ahci",
        wrapper: "active_ata",
        stock: "ahci",
        device: Some("ahci"),
        workload: "storage",
        programs: &[],
        kernels: &KERNELS,
        always: "6.1",
    },
    Driver {
        module: "active_es1370",
        wrapper: "active_sound",
        stock: "snd_ens1370",
        device: Some("ES1370"),
        workload: "es1370",
        programs: &["pcm", "mixer"],
        kernels: &KERNELS,
        always: "6.12",
    },
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for kernel in KERNELS {
        let trial = Trial::test(format!("the core passes its tests on {kernel}"), move || core(kernel));
        trials.push(trial.with_ignored_flag(kernel != "7.2"));
        let trial = Trial::test(format!("active_edu computes on {kernel}"), move || edu::works(kernel));
        trials.push(trial.with_ignored_flag(kernel != "6.12"));
        let name = format!("a guarded active_edu does its work without a violation on {kernel}");
        let trial = Trial::test(name, move || edu::works_guarded(kernel));
        trials.push(trial.with_ignored_flag(kernel != "6.1"));
    }
    let name = "a guarded active_edu that writes what is the core's is stopped, and the kernel goes on";
    trials.push(Trial::test(name, edu::is_stopped));
    for driver in &DRIVERS {
        for kernel in driver.kernels {
            let name = format!("{} does the work of {} on {kernel}", driver.module, driver.stock);
            let trial = Trial::test(name, move || works(driver, kernel, ""));
            trials.push(trial.with_ignored_flag(*kernel != driver.always));
        }
        let name = format!("{} works in a thread of its own", driver.module);
        let trial = Trial::test(name, move || works(driver, "6.1", "thread_only=1"));
        trials.push(trial.with_ignored_flag(driver.stock != "8139cp"));
        for how in ["poweroff", "reboot"] {
            let name = format!("{} answers {how} on 6.1", driver.module);
            let trial = Trial::test(name, move || shuts_down(driver, how));
            trials.push(trial.with_ignored_flag(driver.stock != "8139cp" || how != "poweroff"));
        }
        for kernel in ["6.1", "6.12"] {
            let name = format!("no checker reports anything of {} on {kernel}", driver.module);
            let trial = Trial::test(name, move || check::is_clean(driver, kernel));
            trials.push(trial.with_ignored_flag(driver.stock != "8139cp" || kernel != "6.1"));
        }
    }
    for fault in ["warn", "overflow"] {
        for kernel in KERNELS {
            let name = format!("traces of a domain's stack are printed at '{fault}' on {kernel}");
            let trial = Trial::test(name, move || traces(kernel, fault));
            trials.push(trial.with_ignored_flag(fault != "overflow" || kernel != "6.1"));
        }
    }
    let name = "a race between the domains of two ports is reported";
    trials.push(Trial::test(name, || check::finds_race(&DRIVERS[1])).with_ignored_flag(true));
    let name = "what is not guarded of active drivers is refused, in a sentence";
    trials.push(Trial::test(name, guarded::are_refused));
    for driver in DRIVERS.iter().filter(|driver| driver.module != "active_ahci") {
        for kernel in KERNELS {
            let name = format!("a guarded {} does its work without a violation on {kernel}", driver.module);
            let trial = Trial::test(name, move || guarded::works(driver, kernel));
            trials.push(trial.with_ignored_flag(kernel != driver.always));
        }
        for fault in guarded::FAULTS.iter().filter(|fault| fault.driver == driver.module) {
            let name =
                format!("a guarded {} that {} is stopped, and the kernel goes on", driver.module, fault.does);
            trials.push(Trial::test(name, move || guarded::is_stopped(driver, fault)));
        }
    }
    let name = "rules that a driver breaks at run time are findings";
    trials.push(Trial::test(name, || check::finds_violations(&DRIVERS[0])).with_ignored_flag(true));
    guardrail_tests::run(arguments, trials)
}

/// All modules, built for a kernel unless the cache has them: their folder.
fn built(packages: &Packages, kernel: &str) -> Result<PathBuf, Failed> {
    let sources = kbuild::folder("active", "Kbuild", "GUARDRAIL_ACTIVE")?;
    let script = kbuild::folder("scripts", "kbuild", "GUARDRAIL_SCRIPTS")?.join("kbuild");
    let kernel = kernels::find(packages, kernel)?;
    let files = files(&sources)?;
    let mut hash = Sha256::new();
    hash.update(std::fs::read(&script)?);
    for file in &files {
        hash.update(format!("{}\n", file.display()));
        hash.update(std::fs::read(sources.join(file))?);
    }
    let tree = format!("active/{}/{:.20x}", kernel.release, hash.finalize());
    let mut made = Ok(());
    let folder = packages.cache().ensure_tree(&tree, |out| {
        made = make(packages, &kernel, &script, &sources, &files, out);
        Ok(())
    })?;
    made?;
    Ok(folder)
}

/// Builds the modules in a copy of the sources, and leaves them in `out`.
fn make(
    packages: &Packages,
    kernel: &kernels::Kernel,
    script: &Path,
    sources: &Path,
    files: &[PathBuf],
    out: &Path,
) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let (copy, tree) = (folder.path().join("sources"), folder.path().join("tree"));
    self::copy(sources, files, &copy)?;
    let rest = [tree.as_os_str(), copy.as_os_str(), OsStr::new("TEST=1")];
    kbuild::run(packages, kernel, script, &["--name", "active"], &rest)?;
    for entry in std::fs::read_dir(&copy)? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("ko")) {
            std::fs::copy(&path, out.join(path.file_name().unwrap_or_default()))?;
        }
    }
    Ok(())
}

/// Copies files of a folder.
fn copy(sources: &Path, files: &[PathBuf], to: &Path) -> Result<(), Failed> {
    for file in files {
        let to = to.join(file);
        std::fs::create_dir_all(to.parent().ok_or("a file has a folder")?)?;
        std::fs::copy(sources.join(file), to)?;
    }
    Ok(())
}

/// The sources below a folder, by their paths in it. A build in the folder itself leaves other files there.
fn files(sources: &Path) -> Result<Vec<PathBuf>, Failed> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(sources.join(&folder))? {
            let path = folder.join(entry?.file_name());
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let source = name == "Kbuild"
                || [".c", ".h", ".S"].iter().any(|end| name.ends_with(end)) && !name.ends_with(".mod.c");
            if sources.join(&path).is_dir() {
                folders.push(path);
            } else if source {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Runs a workload, a file of this crate, on two CPUs, with all modules and the driver's programs in the guest.
fn run(driver: &Driver, kernel: &str, workload: &str, variables: &[(&str, &str)]) -> Result<Ran, Failed> {
    let packages = Packages::new(&Cache::open()?);
    let modules = built(&packages, kernel)?;
    run_with(driver, kernel, &[&modules], workload, variables)
}

/// The same with the modules of some folders; those of later ones replace others.
fn run_with(
    driver: &Driver,
    kernel: &str,
    folders: &[&Path],
    workload: &str,
    variables: &[(&str, &str)],
) -> Result<Ran, Failed> {
    let packages = Packages::new(&Cache::open()?);
    let folder = tempfile::tempdir()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let parts =
        ["../guest/workloads/device.sh", "fixtures/active/driver.sh", workload].map(|part| root.join(part));
    let script = parts.iter().map(std::fs::read_to_string).collect::<Result<String, _>>()?;
    let request = Request {
        driver: driver.stock,
        kernel,
        device: driver.device, // Its guest has programs and modules for a file system.
        workload: Some("bench-postmark"),
        ..Request::default()
    };
    let mut prepared = Prepared::new(&packages, &Parser::here(), request, &mut |_| {})?;
    prepared.workload.script = script;
    let mut options = Options { cpus: 2, ..Options::new(folder.path()) };
    let mut modules = BTreeMap::new();
    for from in folders {
        modules.extend(modules_in(from)?);
    }
    options.files.extend(modules);
    for program in driver.programs {
        options.files.push(((*program).to_owned(), guardrail_tests::compiled(program, folder.path())?));
    }
    options.kernel_arguments.push("log_buf_len=1M".to_owned());
    options.variables =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    guardrail_tests::unwatched(&prepared, options, 180)
}

/// The modules of a folder by the names of their files.
fn modules_in(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, Failed> {
    let mut modules = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("ko")) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            modules.insert(name, std::fs::read(&path)?);
        }
    }
    Ok(modules)
}

/// All tests that the core plans ran, and passed; the benchmark came to its end.
fn core(kernel: &str) -> Result<(), Failed> {
    let ran = run(&DRIVERS[0], kernel, "fixtures/active/core.sh", &[])?;
    let lines: Vec<&str> = ran.console.lines().filter(|line| line.starts_with("dmesg: ")).collect();
    let said = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    let planned =
        lines.iter().find_map(|line| line.split_once("guardrail_active_test: 1..")?.1.trim().parse().ok());
    let passed = said("guardrail_active_test: ok ");
    let good = planned == Some(passed) && passed >= 15 && said("not ok") == 0 && said("bench: done") == 1;
    let sound = said("BUG:") + said("WARNING:") == 0;
    ensure(ran.outcome == Outcome::Completed && good && sound, || {
        format!("{}; {passed} passed of {planned:?}\n{}", ran.outcome, ran.console)
    })
}

/// Where a driver warns or overflows its stack, the guest prints its frames and those of the thread that sent to it.
fn traces(kernel: &str, fault: &str) -> Result<(), Failed> {
    let ran = run(&DRIVERS[0], kernel, "fixtures/active/fault.sh", &[("FAULT", fault)])?;
    let at = |from: usize, what: &str| ran.console[from..].find(what).map(|at| from + at);
    let driver = at(0, "the driver's stack:").and_then(|at_driver| {
        let sender = at(at_driver, ", which runs it:")?;
        let main = at(at_driver, " test_main+").filter(|&main| main < sender)?;
        let deep = fault != "overflow" || at(at_driver, " descend+").is_some_and(|descend| descend < main);
        at(sender, " active_ask+").zip(at(sender, " do_fault+")).filter(|_| deep)
    });
    let said = fault != "overflow" || at(0, "active test: its stack has overflowed").is_some();
    ensure(driver.is_some_and(|(ask, fault)| ask < fault) && said, || {
        format!("{}\n{}", ran.outcome, ran.console)
    })
}

/// The driver answers the shutdown of the system, and no rule is broken by then.
fn shuts_down(driver: &Driver, how: &str) -> Result<(), Failed> {
    let variables = [
        ("STOCK", driver.stock),
        ("WRAPPER", driver.wrapper),
        ("ACTIVE", driver.module),
        ("CORE", "dyndbg=+p"),
        ("HOW", how),
    ];
    let ran = run(driver, "6.1", "fixtures/active/shutdown.sh", &variables)?;
    let answered = ran.console.find(": shutdown is answered with 0");
    let end = if how == "reboot" { "reboot: Restarting system" } else { "reboot: Power down" };
    let good = answered.zip(ran.console.find(end)).is_some_and(|(answered, end)| answered < end);
    ensure(good && !ran.console.contains(": rule "), || format!("{}\n{}", ran.outcome, ran.console))
}

/// The driver passes the workload of its class, and its domain was run for more than a few messages.
fn works(driver: &Driver, kernel: &str, core: &str) -> Result<(), Failed> {
    let rounds = if core.is_empty() { "2" } else { "1" };
    let variables = [
        ("STOCK", driver.stock),
        ("WRAPPER", driver.wrapper),
        ("ACTIVE", driver.module),
        ("CORE", core),
        ("ROUNDS", rounds),
    ];
    let ran = run(driver, kernel, &format!("fixtures/active/{}.sh", driver.workload), &variables)?;
    let sent = ran.console.lines().filter_map(|line| line.split_once("active: runs: ")).count();
    ensure(ran.outcome == Outcome::Completed && sent >= 3, || format!("{}\n{}", ran.outcome, ran.console))
}
