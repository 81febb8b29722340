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
    /// The driver's module.
    pub driver: &'static str,
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
pub const FAULTS: [Fault; 4] = [
    Fault {
        driver: "active_8139cp",
        patch: "store",
        does: "writes what is the core's",
        what: "write of 8 bytes at",
        function: "transmit",
        ends: true,
    },
    Fault {
        driver: "active_8139cp",
        patch: "twice",
        does: "gives a packet back twice",
        what: "active_emit, argument 3: use of",
        function: "service",
        ends: true,
    },
    Fault {
        driver: "active_8139cp",
        patch: "await",
        does: "waits in its top half",
        what: "active_await, argument 1: wait for a message of",
        function: "rtl_interrupt",
        ends: false,
    },
    Fault {
        driver: "active_es1370",
        patch: "es1370-store",
        does: "writes what a message does not lend",
        what: "write of 8 bytes at",
        function: "es1370_opened",
        ends: true,
    },
];

/// `guard` refuses the core, wrappers, and drivers of a class whose rights are not described.
pub fn are_refused() -> Result<(), Failed> {
    let modules = built(&Packages::new(&Cache::open()?), "6.1")?;
    for name in ["active_ahci", "active_net", "active_ata", "active_sound", "guardrail_active"] {
        let module = modules.join(format!("{name}.ko"));
        let module = module.to_str().ok_or("the folder has a name of text")?;
        let refused = guardrail(&["guard", module, "--kernel", "6.1", "-o", "/nonexistent/guarded"]);
        let said = refused.stderr.lines().last().unwrap_or_default();
        let good = refused.status == 2 && said.starts_with(&format!("error: {module} cannot be guarded: "));
        ensure(good, || refused.said())?;
    }
    Ok(())
}

/// Guards a driver, the file of a module.
pub fn guard(module: &str, kernel: &str, out: &Path) -> Result<(), Failed> {
    let out = out.to_str().ok_or("the folder has a name of text")?;
    let guarded = guardrail(&["guard", module, "--kernel", kernel, "-o", out]);
    ensure(guarded.status == 0, || guarded.said())
}

/// Whether the kernel complains.
pub fn harmed(ran: &Ran) -> bool {
    let harm = ["BUG:", "WARNING:", "Oops", "general protection"];
    ran.console.lines().any(|line| harm.iter().any(|word| line.contains(word)))
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
    let module = modules.join(format!("{}.ko", driver.module));
    guard(module.to_str().ok_or("the folder has a name of text")?, kernel, guarded.path())?;
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
    let workload = format!("stopped-{}", driver.workload);
    let ran = run(driver, "6.1", &modules, &workload, &more)?;
    ensure(ran.outcome == Outcome::Completed && !harmed(&ran), || format!("{}\n{}", ran.outcome, ran.console))
}
