//! Guarded drivers in guests: they do all of their work without a violation. A driver that writes where it
//! must not is reported.

use guardrail_abi as abi;
use guardrail_certify::certify;
use guardrail_tests::workshop::Workshop;
use guardrail_tests::{Planted, Ran, ensure};
use guardrail_vm::kernels::NAMES;
use guardrail_vm::modules::LoadPlan;
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::run::{Options, Outcome};
use guardrail_vm::{Cache, admission, kbuild, kernels};
use libtest_mimic::{Arguments, Failed, Trial};
use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

/// The drivers and their workloads. The full workload of disks reads a bad sector, after which a stock
/// sym53c8xx crashes, too (docs/results/drivers.md).
const DRIVERS: [Driver; 19] = [
    driver(&["e1000"], Work::Full, &[("6.12", Work::Full)]),
    driver(&["pcnet32"], Work::Full, &[("6.1", Work::Usual)]),
    driver(&["8139cp"], Work::Full, &[]),
    driver(&["snd-ens1370"], Work::Full, &[("7.2", Work::Full)]),
    driver(&["nvme"], Work::Full, &[("6.12", Work::Full)]),
    driver(&["sym53c8xx"], Work::Usual, &[]),
    driver(&["vfat", "fat"], Work::Named("files"), &[("6.1", Work::Named("files"))]),
    driver(&["ahci", "libahci"], Work::Full, &[("6.12", Work::Usual)]),
    driver(&["ahci", "libahci", "libata"], Work::Full, &[]),
    driver(&["uhci_hcd"], Work::Full, &[("6.12", Work::Usual)]),
    driver(&["e1000e"], Work::Full, &[("6.1", Work::Usual)]),
    driver(&["igb"], Work::Full, &[("6.12", Work::Usual)]),
    driver(&["virtio_net"], Work::Full, &[]),
    driver(&["virtio_blk"], Work::Full, &[("6.1", Work::Usual)]),
    driver(&["xhci_pci", "xhci_hcd"], Work::Full, &[]),
    driver(&["usb_storage"], Work::Full, &[]),
    driver(&["snd_hda_intel"], Work::Full, &[]),
    driver(&["i2c_i801"], Work::Full, &[]),
    driver(&["ext4", "jbd2", "mbcache"], Work::Named("files-ext4"), &[]),
];

/// A driver that is guarded.
struct Driver {
    /// The driver, and modules that it needs and that share its domain.
    modules: &'static [&'static str],
    /// Its work on all kernels, in part only with `--ignored`.
    most: Work,
    /// Its work in every run of the tests, by kernel.
    always: &'static [(&'static str, Work)],
}

const fn driver(
    modules: &'static [&'static str],
    most: Work,
    always: &'static [(&'static str, Work)],
) -> Driver {
    Driver { modules, most, always }
}

/// The workload of a driver.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// The workload "full".
    Full,
    /// The workload of its class.
    Usual,
    /// The workload of this name.
    Named(&'static str),
}

impl std::fmt::Display for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Work::Full => "full workload",
            Work::Usual => "usual work",
            Work::Named(name) => name,
        })
    }
}

/// Functions of `guarded/border.c`, and the report on each where it is wrong.
const BORDER: [(&str, &str); 12] = [
    ("border_netdev+", "write of 4 bytes"),
    ("border_parse+", "kstrtoint, argument 3: write of 4 bytes"),
    ("border_behind+", "write of 1 bytes"),
    ("border_skb+", "write of 8 bytes"),
    ("border_given+", "write of 4 bytes"),
    ("border_timer+", "write of 8 bytes"),
    ("border_queued+", "write of 8 bytes"),
    ("border_armed+", "kmem_cache_free, argument 2: memory in which an object is in use"),
    ("border_handler+", "request_threaded_irq, argument 2: function at"),
    ("border_dentry+", "is_subdir, argument 1: use of"),
    ("border_buffer+", "unlock_buffer, argument 1: use of"),
    ("border_lock+", "with a mutex taken"),
];

/// Functions of `guarded/frames.c`, and the report on each where it is wrong.
const FRAMES: [(&str, &str); 8] = [
    ("frames_work+", "return with queued work on the stack, handed over by frames_work [frames], at"),
    ("frames_timer+", "return with an armed timer on the stack"),
    ("frames_wait+", "return with an entry of a wait queue on the stack"),
    ("frames_queue+", "return with an entry of a wait queue on the stack"),
    ("frames_list+", "return with an entry of a list on the stack"),
    ("frames_twice+", "insertion into a list of"),
    ("frames_write+", "write of 8 bytes"),
    ("frames_answer+", "complete, argument 1: write of "),
];

/// Functions of `guarded/ways.c`, and the report on each.
const WAYS: [(&str, &str); 5] = [
    ("ways_pointer+", "memset, argument 1: write of 1 bytes"),
    ("ways_struct+", "memset, argument 1: write of 1 bytes"),
    ("ways_thunk+", "memset, argument 1: write of 1 bytes"),
    ("ways_middle+", "call of"),
    ("ways_data+", "call of"),
];

/// Drivers of the zoo that write where they must not or misuse the kernel's memory, with the report on each.
/// Their twins cause no report. The drivers of a group run in turn in a guest.
const STOPPED: [&[(&str, &str)]; 3] = [
    &[
        ("oob-padding", "write of 1 bytes"),
        ("oob-vmalloc", "write of 4 bytes"),
        ("oob-init", "write of 2 bytes"),
        ("kernel-slack", "write of 1 bytes"),
        ("kernel-vmalloc", "write of 1 bytes"),
        ("kernel-work", "write of 1 bytes"),
        ("kernel-notifier", "write of 8 bytes"),
        ("kernel-timer", "write of 8 bytes"),
        ("invalid-free", "kfree, argument 1: release of memory"),
        ("lock-held", "with a mutex taken"),
        ("lock-held-timer", "with a spin lock taken"),
        ("lock-unlocked", "mutex_unlock, argument 1: release of a lock"),
        ("lock-unlocked-spin", "_raw_spin_unlock, argument 1: release of a lock"),
        ("lock-double", "mutex_lock_interruptible, argument 1: wait for a lock"),
        ("lock-double-rwsem", "down_write_killable, argument 1: wait for a lock"),
    ],
    &[
        ("oob-irq", "write of 4 bytes"),
        ("oob-coherent", "write of 4 bytes"),
        ("proto-irq-freed", "kfree, argument 1: memory in which an object is in use"),
        ("proto-irq-twice", "free_irq, argument 2: release of an interrupt"),
    ],
    &[
        ("null-dereference", "write of 4 bytes"),
        ("double-free", "kfree, argument 1: release of memory"),
        ("double-vfree", "vfree, argument 1: release of memory"),
        ("mismatched-free", "vfree, argument 1: release of memory"),
        ("mismatched-cache", "kmem_cache_free, argument 2: release of memory"),
        ("proto-misc-freed", "kmem_cache_free, argument 2: memory in which an object is in use"),
        ("proto-napi-disable", "napi_disable, argument 1: use of"),
        ("proto-napi-freed", "free_netdev, argument 1: release with an enabled NAPI instance"),
        ("proto-rcu-freed", "kmem_cache_free, argument 2: memory in which an object is in use"),
        ("proto-timer-freed", "kmem_cache_free, argument 2: memory in which an object is in use"),
        ("proto-work-freed", "kmem_cache_free, argument 2: memory in which an object is in use"),
    ],
];
/// The kernel's messages after harm.
const HARM: [&str; 4] = ["BUG:", "WARNING:", "Oops", "general protection"];

/// Prints the violations for the host, after all other steps.
const LOGS: &str = "
logs() {
    mount -t debugfs debugfs /sys/kernel/debug
    for file in violations domains stats; do
        sed \"s/^/debugfs $file: /\" /sys/kernel/debug/guardrail/$file >/dev/console
    done
    dmesg | grep -A 28 'guardrail: ' | sed 's/^/dmesg: /' >/dev/console
    true
}
step logs logs
";

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for Driver { modules, most, always } in DRIVERS {
        let mut add = |kernel: &'static str, work: Work, ignored| {
            let with = if modules.contains(&"libata") { " with libata" } else { "" };
            let name =
                format!("a guarded {}{with} does its {work} without a violation on {kernel}", modules[0]);
            let trial = Trial::test(name, move || silent(kernel, modules, work));
            trials.push(trial.with_ignored_flag(ignored));
        };
        always.iter().for_each(|(kernel, work)| add(kernel, *work, false));
        let rest = NAMES.into_iter().filter(|&kernel| !always.contains(&(kernel, most)));
        rest.for_each(|kernel| add(kernel, most, true));
    }
    for kernel in NAMES {
        let name = format!("what a driver must not do at the border is reported on {kernel}");
        trials.push(Trial::test(name, move || at_border(kernel)).with_ignored_flag(kernel != "7.2"));
    }
    for kernel in NAMES {
        let name = format!(
            "what the kernel holds of a stack frame that ends is reported and taken back on {kernel}"
        );
        trials.push(Trial::test(name, move || leaves_frames(kernel)).with_ignored_flag(kernel != "6.12"));
    }
    for kernel in NAMES {
        let name = format!("there is no way past thunks, and policies want a grade, on {kernel}");
        trials.push(Trial::test(name, move || has_no_ways(kernel)).with_ignored_flag(kernel != "6.12"));
    }
    for kernel in NAMES {
        let name = format!("a module that was not certified does not load on {kernel}");
        trials.push(Trial::test(name, move || admits(kernel)).with_ignored_flag(kernel != "7.2"));
    }
    for kernel in NAMES {
        let name = format!("a loop with interrupts off on the only processor is ended on {kernel}");
        trials.push(Trial::test(name, move || ends(kernel)).with_ignored_flag(kernel != NAMES[0]));
    }
    for kernel in NAMES {
        let name = format!("what is ended or killed leaves no lock and no registration on {kernel}");
        trials.push(Trial::test(name, move || leaves_nothing(kernel)).with_ignored_flag(kernel != "6.1"));
    }
    for kernel in NAMES {
        for (group, bugs) in STOPPED.into_iter().enumerate() {
            let name = format!("bugs of group {group} are stopped, and their twins are silent, on {kernel}");
            let trial = Trial::test(name, move || stopped(kernel, bugs));
            trials.push(trial.with_ignored_flag(kernel != NAMES[group % NAMES.len()]));
        }
    }
    trials.push(Trial::test("annotations mean something on one of the kernels", meaningful));
    guardrail_tests::run(arguments, trials)
}

/// A guarded driver in a file, with the runtime beside it.
fn guard(workshop: &Workshop, driver: &str, folder: &Path) -> Result<String, Failed> {
    let plan = workshop.modules.plan(driver)?;
    let module = match driver.ends_with("_low.ko") {
        true => workshop.poorly_graded(&plan)?,
        false => workshop.guarded(&plan, None, &[])??,
    };
    let path = workshop.write(&module, folder)?;
    // A driver of the zoo that needs preparation says which.
    let (from, to) = [driver, path.as_str()].map(|path| Path::new(path).with_extension("workload.sh")).into();
    if from.is_file() {
        std::fs::copy(from, to)?;
    }
    Ok(path)
}

/// Guards modules that the driver needs as well, and loads the runtime before them.
fn guard_needed(workshop: &Workshop, needed: &[&str], plan: &mut LoadPlan) -> Result<(), Failed> {
    for name in needed {
        let module = workshop.guarded(&workshop.modules.plan(name)?, None, &[])??;
        let place = plan.before.iter_mut().find(|before| before.name == module.name);
        *place.ok_or_else(|| format!("the driver does not need {name}"))? = module;
    }
    plan.before.sort_by_key(|module| module.name != "guardrail");
    Ok(())
}

/// Drivers of the zoo and their twins, built for a kernel.
fn zoo_modules(
    packages: &Packages,
    kernel: &str,
    bugs: &[(&str, &str)],
    out: &Path,
) -> Result<Vec<String>, Failed> {
    let folder = kbuild::folder("zoo", "build", "GUARDRAIL_ZOO")?;
    let rest: Vec<&OsStr> =
        std::iter::once(out.as_os_str()).chain(bugs.iter().map(|(name, _)| OsStr::new(name))).collect();
    kbuild::run(packages, &kernels::find(packages, kernel)?, &folder.join("build"), &[], &rest)?;
    let plain = bugs.iter().map(|(name, _)| name.replace('-', "_"));
    let files = plain.flat_map(|name| [format!("{name}.ko"), format!("{name}_ok.ko")]);
    Ok(files.map(|file| out.join(file).display().to_string()).collect())
}

/// Runs guarded drivers in turn in a guest under a policy; modules that the first needs are guarded as well.
fn work(
    kernel: &str,
    drivers: &[String],
    needed: &[&str],
    workload: Option<&str>,
    policy: &str,
) -> Result<Ran, Failed> {
    let packages = Packages::new(&Cache::open()?);
    let folder = tempfile::tempdir()?;
    let workshop = Workshop::of(&packages, kernel)?;
    let guarded = drivers.iter().map(|driver| guard(&workshop, driver, folder.path()));
    let guarded = guarded.collect::<Result<Vec<_>, _>>()?;
    let request =
        Request { driver: &guarded[0], more: &guarded[1..], kernel, workload, ..Request::default() };
    let mut prepared = Prepared::new(&packages, &Parser::here(), request, &mut |_| {})?;
    guard_needed(&workshop, needed, &mut prepared.plan)?;
    let last = prepared.more.last_mut().map_or(&mut prepared.workload, |last| &mut last.workload);
    last.script.push_str(LOGS);
    let variables = vec![("PARAMETERS_guardrail".to_owned(), format!("policy={policy}"))];
    let mut options = Options { variables, ..Options::new(folder.path()) };
    // A step of a file system's workload takes longer than a minute where three guests share two processors.
    options.limits.silence = Duration::from_secs(300);
    guardrail_tests::unwatched(&prepared, options, 900)
}

/// The lines of the list of violations, and the runtime's lines in the log other than that it was loaded.
fn violations(ran: &Ran) -> Vec<&str> {
    ran.console.lines().filter(|line| line.starts_with("debugfs violations: ")).collect()
}

/// The reports on functions of a module that are missing, and the reports on others. The same function may
/// have several.
fn differs(ran: &Ran, expected: &[(&str, &str)], module: &str) -> Vec<String> {
    let violations = violations(ran);
    let of =
        |place: &str, what: &str| violations.iter().any(|line| line.contains(place) && line.contains(what));
    let missed = expected.iter().filter(|(place, what)| !of(place, what));
    let mut wrong: Vec<String> = missed.map(|found| format!("not reported: {found:?}")).collect();
    let known =
        |line: &&&str| expected.iter().any(|(place, _)| line.contains(place)) && line.contains(module);
    wrong.extend(violations.iter().filter(|line| !known(line)).map(|line| format!("unexpected: {line}")));
    wrong
}

/// Lines with the kernel's messages after harm.
fn harm(ran: &Ran) -> impl Iterator<Item = String> {
    let lines = ran.console.lines().filter(|line| HARM.iter().any(|word| line.contains(word)));
    lines.map(str::to_owned)
}

fn silent(kernel: &str, drivers: &[&str], amount: Work) -> Result<(), Failed> {
    let workload = match amount {
        Work::Named(name) => Some(name),
        Work::Full => Some("full"),
        Work::Usual => None,
    };
    let (driver, needed) = drivers.split_first().ok_or("no driver")?;
    let ran = work(kernel, &[(*driver).to_owned()], needed, workload, "log")?;
    let there = ran.console.lines().any(|line| line.starts_with("debugfs domains: "));
    let violations = violations(&ran);
    ensure(ran.outcome == Outcome::Completed && there && violations.is_empty(), || {
        format!("{}; {} violations:\n{}", ran.outcome, violations.len(), ran.console)
    })?;
    // File systems fill variables of their callers in loops; a walk of the stack for each such store takes minutes.
    let [walks, stores] = ["walks of the stack", "allowed on the stack"].map(|name| count(&ran, name));
    ensure(
        drivers != ["vfat", "fat"] || walks.zip(stores).is_some_and(|(walks, stores)| walks * 10 < stores),
        || format!("{walks:?} walks of the stack for {stores:?} stores:\n{}", ran.console),
    )
}

/// A count of the runtime's statistics.
fn count(ran: &Ran, name: &str) -> Option<u64> {
    let begin = format!("debugfs stats: {name}: ");
    ran.console.lines().find_map(|line| line.strip_prefix(&begin)?.trim().parse().ok())
}

/// Drivers of `guarded/`, built in a folder.
fn built<const N: usize>(kernel: &str, folder: &Path, files: [&str; N]) -> Result<[String; N], Failed> {
    let packages = Packages::new(&Cache::open()?);
    let (copy, tree) = (folder.join("sources"), folder.join("tree"));
    std::fs::create_dir(&copy)?;
    let sources = kbuild::folder("tests/fixtures/guarded", "border.c", "GUARDRAIL_BORDER")?;
    for name in ["Kbuild", "border.c", "endless.c", "ends.c", "frames.c", "ways.c"] {
        std::fs::copy(sources.join(name), copy.join(name))?;
    }
    let scripts = [
        ("frames.sh", "frames"),
        ("frames.sh", "frames_ok"),
        ("ways.sh", "ways"),
        ("ways.sh", "ways_ok"),
        ("ways.sh", "ways_low"),
    ];
    for (script, name) in scripts {
        std::fs::copy(sources.join(script), copy.join(name).with_extension("workload.sh"))?;
    }
    let script = kbuild::folder("scripts", "kbuild", "GUARDRAIL_SCRIPTS")?.join("kbuild");
    let rest = [tree.as_os_str(), copy.as_os_str()];
    kbuild::run(&packages, &kernels::find(&packages, kernel)?, &script, &[], &rest)?;
    Ok(files.map(|file| copy.join(file).display().to_string()))
}

/// A loop with interrupts off on the only processor is ended, and the guest continues.
fn ends(kernel: &str) -> Result<(), Failed> {
    own_workload(kernel, "endless", 1)
}

/// Entries that are ended give errors and release their locks, and what a killed driver has registered is undone.
fn leaves_nothing(kernel: &str) -> Result<(), Failed> {
    own_workload(kernel, "ends", 2)
}

/// Runs a driver of `guarded/` with the workload of its name.
fn own_workload(kernel: &str, name: &str, cpus: u8) -> Result<(), Failed> {
    let packages = Packages::new(&Cache::open()?);
    let folder = tempfile::tempdir()?;
    let file = format!("{name}.ko");
    let [driver] = built(kernel, folder.path(), [&file])?;
    let driver = guard(&Workshop::of(&packages, kernel)?, &driver, folder.path())?;
    completes(&packages, kernel, &driver, name, Options { cpus, ..Options::new(folder.path()) })
}

/// A guarded driver completes a workload of `guarded/`, and the kernel reports no harm.
fn completes(
    packages: &Packages,
    kernel: &str,
    driver: &str,
    workload: &str,
    options: Options,
) -> Result<(), Failed> {
    let workload = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/guarded/{workload}.sh"));
    let request = Request { driver, kernel, workload: workload.to_str(), ..Request::default() };
    let prepared = Prepared::new(packages, &Parser::here(), request, &mut |_| {})?;
    let ran = guardrail_tests::unwatched(&prepared, options, 300)?;
    let harm: Vec<String> = harm(&ran).collect();
    ensure(ran.outcome == Outcome::Completed && harm.is_empty(), || {
        format!("{}; {harm:#?}\n{}", ran.outcome, ran.console)
    })
}

/// A driver that was changed after it was certified is refused, and so is one where no file, or a file for another module, says what
/// was certified. A file may list several.
fn admits(kernel: &str) -> Result<(), Failed> {
    let packages = Packages::new(&Cache::open()?);
    let folder = tempfile::tempdir()?;
    let driver = guard(&Workshop::of(&packages, kernel)?, "e1000", folder.path())?;
    let module = std::fs::read(&driver)?;
    let changed = turned_round(&module)?;
    ensure(
        certify("whole", &module)?.faults.is_empty() && !certify("changed", &changed)?.faults.is_empty(),
        || "the whole module is not certified, or the changed one is".into(),
    )?;
    let another = admission::line(b"another module").into_bytes();
    // Their names do not end in ".ko", so the guest's image does not admit them.
    let files = [("changed", changed), ("another", another)];
    let files = files.map(|(name, bytes)| (name.to_owned(), bytes)).to_vec();
    completes(&packages, kernel, &driver, "admission", Options { files, ..Options::new(folder.path()) })
}

/// The module with one byte changed: the first check of a store goes on where it fails, and stops where it succeeds.
fn turned_round(module: &[u8]) -> Result<Vec<u8>, Failed> {
    let tag = abi::tag(1, abi::WRITE);
    // `cmp byte [reg], tag; jne …`
    let is_check = |code: &[u8]| code[0] == 0x80 && code[1] & !7 == 0x38 && code[2..] == [tag, 0x0f, 0x85];
    let at = module.windows(5).position(is_check).ok_or("it has no check")?;
    let mut changed = module.to_vec();
    // `je …`
    changed[at + 4] = 0x84;
    Ok(changed)
}

/// Each function that breaks a rule is reported, and no others are; the twin causes no report.
fn at_border(kernel: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let drivers = built(kernel, folder.path(), ["border.ko", "border_ok.ko"])?;
    let ran = work(kernel, &drivers, &[], None, "log")?;
    let wrong = differs(&ran, &BORDER, "[border]");
    ensure(wrong.is_empty() && ran.outcome == Outcome::Completed, || {
        format!("{}; {wrong:#?}\n{}", ran.outcome, ran.console)
    })
}

/// An object on a stack frame that the kernel still uses when the function returns is reported, and the
/// kernel's use ends. The twin causes no report.
fn leaves_frames(kernel: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let drivers = built(kernel, folder.path(), ["frames.ko", "frames_ok.ko"])?;
    let ran = work(kernel, &drivers, &[], None, "fail")?;
    let mut wrong = differs(&ran, &FRAMES, "[frames]");
    wrong.extend(harm(&ran));
    wrong.extend(ran.console.lines().filter(|line| line.contains("frames: left")).map(str::to_owned));
    ensure(wrong.is_empty() && ran.outcome == Outcome::Completed, || {
        format!("{}; {wrong:#?}\n{}", ran.outcome, ran.console)
    })
}

/// Calls by pointer past thunks are stopped, and the twin's reach what they should. A driver whose imports have
/// too few rules runs under policy "log" alone.
fn has_no_ways(kernel: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let drivers = built(kernel, folder.path(), ["ways.ko", "ways_ok.ko", "ways_low.ko"])?;
    let ran = work(kernel, &drivers, &[], None, "fail")?;
    let mut wrong = differs(&ran, &WAYS, "[ways]");
    wrong.extend(harm(&ran));
    for policy in ["oops", "fail", "recover"] {
        let line = format!("policy '{policy}' refuses ways_low: ");
        if !ran.console.contains(&line) {
            wrong.push(format!("not in the log: {line}"));
        }
    }
    ensure(wrong.is_empty() && ran.outcome == Outcome::Completed, || {
        format!("{}; {wrong:#?}\n{}", ran.outcome, ran.console)
    })
}

/// Each driver's bug is reported at its place, and ended before it has done harm; its twin causes no report.
fn stopped(kernel: &str, bugs: &[(&str, &str)]) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let modules = zoo_modules(&Packages::new(&Cache::open()?), kernel, bugs, folder.path())?;
    let ran = work(kernel, &modules, &[], None, "fail")?;
    let violations = violations(&ran);
    let mut wrong = Vec::new();
    let planted = Planted::all();
    for (name, what) in bugs {
        let module = name.replace('-', "_");
        let of = |module: &str| {
            let place = format!("[{module}]");
            violations.iter().filter(|line| line.contains(&place)).collect::<Vec<_>>()
        };
        let expected = planted.iter().find(|bug| bug.name == *name).ok_or("the zoo lacks it")?;
        let place = format!("by {}+", expected.word("function").ok_or("a bug without a function")?);
        if !of(&module).iter().any(|line| line.contains(what) && line.contains(&place)) {
            wrong.push(format!("{name} is not reported"));
        }
        if !of(&format!("{module}_ok")).is_empty() {
            wrong.push(format!("{name}'s twin is reported"));
        }
    }
    wrong.extend(harm(&ran));
    // Where a driver's first function was ended, it did not load or bound no device.
    let ended =
        matches!(ran.outcome, Outcome::Completed | Outcome::LoadFailed { .. } | Outcome::NoDeviceBound);
    ensure(wrong.is_empty() && ended, || format!("{}; {wrong:#?}\n{}", ran.outcome, ran.console))
}

/// An effect or a field that no kernel has is an error in a table.
fn meaningful() -> Result<(), Failed> {
    let packages = Packages::new(&Cache::open()?);
    let mut left_out: Option<std::collections::BTreeSet<String>> = None;
    for kernel in NAMES {
        let workshop = Workshop::of(&packages, kernel)?;
        for driver in DRIVERS.iter().flat_map(|driver| driver.modules) {
            let here = workshop.isolation(&workshop.modules.plan(driver)?, None)?.left_out();
            left_out = Some(match left_out {
                Some(others) => others.intersection(&here).cloned().collect(),
                None => here,
            });
        }
    }
    let mut left_out = left_out.unwrap_or_default();
    // No kernel has the core of active drivers; the suite "active" guards one of them.
    left_out.retain(|what| !what.starts_with("active"));
    ensure(left_out.is_empty(), || format!("no kernel knows: {left_out:#?}"))
}
