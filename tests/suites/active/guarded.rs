//! Guarded active drivers: they do their work without a violation, and are ended where they write what is not theirs.

use super::{Driver, built, check, run_with};
use guardrail_tests::{Ran, ensure, guardrail};
use guardrail_vm::Cache;
use guardrail_vm::packages::Packages;
use guardrail_vm::run::Outcome;
use libtest_mimic::Failed;
use std::path::Path;

/// A fault that a patch of `fixtures/active/guarded` puts into the driver.
pub struct Fault {
    patch: &'static str,
    /// What the driver does then.
    pub does: &'static str,
    /// What is reported.
    what: &'static str,
    /// The driver's function that does it.
    function: &'static str,
    /// Whether main is ended, and not another entry.
    ends: bool,
}

/// All of them.
pub const FAULTS: [Fault; 3] = [
    Fault {
        patch: "store",
        does: "writes what is the core's",
        what: "write of 8 bytes at",
        function: "transmit",
        ends: true,
    },
    Fault {
        patch: "twice",
        does: "gives a packet back twice",
        what: "active_emit, argument 3: use of",
        function: "service",
        ends: true,
    },
    Fault {
        patch: "await",
        does: "waits in its top half",
        what: "active_await, argument 1: wait for a message of",
        function: "rtl_interrupt",
        ends: false,
    },
];

/// `guard` refuses the core, wrappers, and drivers of classes whose rights are not described.
pub fn are_refused() -> Result<(), Failed> {
    let modules = built(&Packages::new(&Cache::open()?), "6.1")?;
    for name in ["active_ahci", "active_es1370", "active_net", "guardrail_active"] {
        let module = modules.join(format!("{name}.ko"));
        let module = module.to_str().ok_or("the folder has a name of text")?;
        let refused = guardrail(&["guard", module, "--kernel", "6.1", "-o", "/nonexistent/guarded"]);
        let said = refused.stderr.lines().last().unwrap_or_default();
        let good = refused.status == 2 && said.starts_with(&format!("error: {module} cannot be guarded: "));
        ensure(good, || refused.said())?;
    }
    Ok(())
}

/// Guards the driver of a folder of modules.
fn guard(driver: &Driver, kernel: &str, modules: &Path, out: &Path) -> Result<(), Failed> {
    let (module, out) = (modules.join(format!("{}.ko", driver.module)), out.to_str());
    let module = module.to_str().ok_or("the folder has a name of text")?;
    let guarded = guardrail(&["guard", module, "--kernel", kernel, "-o", out.ok_or("so has this")?]);
    ensure(guarded.status == 0, || guarded.said())
}

/// Runs a workload with the driver guarded, under the policy that ends calls.
fn run(
    driver: &Driver,
    kernel: &str,
    modules: &Path,
    workload: &str,
    more: &[(&str, &str)],
) -> Result<Ran, Failed> {
    let guarded = tempfile::tempdir()?;
    guard(driver, kernel, modules, guarded.path())?;
    let variables = [
        ("STOCK", driver.stock),
        ("WRAPPER", driver.wrapper),
        ("ACTIVE", driver.module),
        ("CORE", ""),
        ("ROUNDS", "1"),
        ("POLICY", "fail"),
    ];
    let variables = [&variables[..], more].concat();
    let workload = format!("fixtures/active/{workload}.sh");
    run_with(driver, kernel, &[modules, guarded.path()], &workload, &variables)
}

/// The guarded driver passes the workload of its class, and nothing is reported of it.
pub fn works(driver: &Driver, kernel: &str) -> Result<(), Failed> {
    let modules = built(&Packages::new(&Cache::open()?), kernel)?;
    let ran = run(driver, kernel, &modules, driver.workload, &[])?;
    let sent = ran.console.lines().filter_map(|line| line.split_once("active: runs: ")).count();
    ensure(ran.outcome == Outcome::Completed && sent >= 3, || format!("{}\n{}", ran.outcome, ran.console))
}

/// A driver that does what it may not is ended there. The workload says what must hold afterwards.
pub fn is_stopped(driver: &Driver, fault: &Fault) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let modules = check::with_patches(folder.path(), &[&format!("guarded/{}.patch", fault.patch)])?;
    let ends = if fault.ends { "yes" } else { "" };
    let more = [("WHAT", fault.what), ("FUNCTION", fault.function), ("ENDS", ends)];
    let ran = run(driver, "6.1", &modules, "stopped", &more)?;
    let harm = ["BUG:", "WARNING:", "Oops", "general protection"];
    let harmed = ran.console.lines().any(|line| harm.iter().any(|word| line.contains(word)));
    ensure(ran.outcome == Outcome::Completed && !harmed, || format!("{}\n{}", ran.outcome, ran.console))
}
