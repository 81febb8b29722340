//! `guardrail check` on active drivers: it reports nothing of them, and reports the faults that are put into copies of them.

use super::{Driver, built, copy, files};
use guardrail_tests::{check, ensure, findings, root};
use guardrail_vm::packages::Packages;
use guardrail_vm::{Cache, kbuild, kernels};
use libtest_mimic::Failed;
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// No checker has anything to report of the driver.
pub fn is_clean(driver: &Driver, kernel: &str) -> Result<(), Failed> {
    let modules = built(&Packages::new(&Cache::open()?), kernel)?;
    let report = report(&modules, driver, kernel)?;
    ensure(findings(&report).next().is_none(), || listed(&report))
}

/// Two domains count in one word, and nothing orders them: a race with the driver's function on each side, and nothing else.
pub fn finds_race(driver: &Driver) -> Result<(), Failed> {
    let report = patched(driver, &["races/ahci-resets.patch"])?;
    let of_ports = |race: &Value| {
        let sides =
            "update of 4 bytes in ahci_port_main (process) and update of 4 bytes in ahci_port_main (process)";
        race["kind"] == "data-race" && race["message"].as_str().is_some_and(|text| text.contains(sides))
    };
    ensure(findings(&report).count() == 1 && findings(&report).all(of_ports), || listed(&report))
}

/// What the monitor sees of rules that are broken at run time becomes findings with stacks.
pub fn finds_violations(driver: &Driver) -> Result<(), Failed> {
    let patches =
        ["bugs/rtl8139cp/05-early-wake.patch", "bugs/rtl8139cp/17-registration-failure-not-awaited.patch"];
    let report = patched(driver, &patches)?;
    let found = |rule: u32, words: &str, states: &str| {
        findings(&report).any(|finding| {
            finding["kind"] == format!("protocol-rule-{rule}")
                && finding["message"].as_str().is_some_and(|text| text.contains(words))
                && finding["function"] == "rtl8139cp_main"
                && finding["stack"].to_string().contains("active_main")
                && finding["notes"].to_string().contains(states)
        })
    };
    let all = found(1, "it emits ethernet_queue_wake in the state present.up.flowing", "pci bound.running")
        && found(3, "which no protocol is sure to send", "pci probing, ethernet registering, irq off");
    ensure(all && findings(&report).count() == 2, || listed(&report))
}

/// The report on a driver in a folder of modules.
fn report(modules: &Path, driver: &Driver, kernel: &str) -> Result<Value, Failed> {
    let module = modules.join(format!("{}.ko", driver.module));
    let module = module.to_str().ok_or("the folder has a name of text")?;
    let mut arguments = vec![module, "--kernel", kernel, "--tool", "all"];
    arguments.extend(driver.device.iter().flat_map(|device| ["--device", device]));
    let checked = check(&arguments).with(&[0, 1])?;
    Ok(checked.report()?.clone())
}

/// The report on a copy of the driver with patches of `fixtures/active`, on 6.1.
fn patched(driver: &Driver, patches: &[&str]) -> Result<Value, Failed> {
    let folder = tempfile::tempdir()?;
    report(&with_patches(folder.path(), patches)?, driver, "6.1")
}

/// The modules, built in a folder for 6.1 from a copy of the sources with patches of `fixtures/active`.
pub fn with_patches(folder: &Path, patches: &[&str]) -> Result<PathBuf, Failed> {
    let packages = Packages::new(&Cache::open()?);
    let sources = kbuild::folder("active", "Kbuild", "GUARDRAIL_ACTIVE")?;
    let script = kbuild::folder("scripts", "kbuild", "GUARDRAIL_SCRIPTS")?.join("kbuild");
    let (tree, modules) = (folder.join("tree"), folder.join("active"));
    copy(&sources, &files(&sources)?, &modules)?;
    patches.iter().try_for_each(|name| apply(name, &modules))?;
    let rest: [&OsStr; 2] = [tree.as_os_str(), modules.as_os_str()];
    kbuild::run(&packages, &kernels::find(&packages, "6.1")?, &script, &["--name", "active"], &rest)?;
    Ok(modules)
}

/// Applies a patch of `fixtures/active` to a copy of the folder `active`.
pub fn apply(name: &str, to: &Path) -> Result<(), Failed> {
    let patch = std::fs::File::open(root().join("tests/fixtures/active").join(name))?;
    let ran =
        Command::new("patch").args(["-p1", "-s", "-F2", "-d"]).arg(to).stdin(Stdio::from(patch)).output()?;
    ensure(ran.status.success(), || {
        format!("{name} does not apply: {}", String::from_utf8_lossy(&ran.stdout))
    })
}

fn listed(report: &Value) -> String {
    let lines = findings(report).map(|finding| {
        let word = |key: &str| finding[key].as_str().unwrap_or("?").to_owned();
        format!("{} in {}: {}; {}", word("kind"), word("function"), word("message"), finding["notes"])
    });
    format!("{} findings:\n{}", findings(report).count(), lines.collect::<Vec<_>>().join("\n"))
}
