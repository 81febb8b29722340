//! The active driver of QEMU's device `edu`, whose protocol is not a stock one: it is added as a user adds one.

use super::{check, guarded, modules_in};
use guardrail_protocol::header;
use guardrail_protocol::library::Library;
use guardrail_tests::{Ran, ensure};
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::run::{Options, Outcome};
use guardrail_vm::{Cache, kbuild, kernels};
use libtest_mimic::Failed;
use std::ffi::OsStr;
use std::path::Path;

/// The driver computes, fails as it should, and is unloaded while requests are under way.
pub fn works(kernel: &str) -> Result<(), Failed> {
    computes(kernel, &[])
}

/// The same for the guarded driver, with its wrapper in the same module; nothing is reported of them.
pub fn works_guarded(kernel: &str) -> Result<(), Failed> {
    computes(kernel, &[("POLICY", "fail")])
}

fn computes(kernel: &str, variables: &[(&str, &str)]) -> Result<(), Failed> {
    let ran = run(kernel, &[], "edu", variables)?;
    ensure(ran.outcome == Outcome::Completed && !ran.console.contains("guardrail: active "), || {
        format!("{}\n{}", ran.outcome, ran.console)
    })
}

/// The guarded driver is ended where it writes what is the core's, and the driver that is not guarded comes back.
pub fn is_stopped() -> Result<(), Failed> {
    let ran = run("6.1", &["guarded/edu-store.patch"], "stopped-edu", &[("POLICY", "fail")])?;
    ensure(ran.outcome == Outcome::Completed && !guarded::harmed(&ran), || {
        format!("{}\n{}", ran.outcome, ran.console)
    })
}

/// Runs a workload with the driver, whose sources get patches. With the runtime's POLICY among the variables, the guarded
/// driver is in the guest as well, for the workload to load.
fn run(kernel: &str, patches: &[&str], workload: &str, variables: &[(&str, &str)]) -> Result<Ran, Failed> {
    let packages = Packages::new(&Cache::open()?);
    let folder = tempfile::tempdir()?;
    let modules = folder.path().join("active");
    build(&packages, kernel, patches, &folder.path().join("tree"), &modules)?;
    let driver = modules.join("active_edu.ko");
    let driver = driver.to_str().ok_or("the folder has a name of text")?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/active");
    let workload = root.join(format!("{workload}.sh"));
    let request =
        Request { driver, kernel, device: Some("edu"), workload: workload.to_str(), ..Request::default() };
    let mut prepared = Prepared::new(&packages, &Parser::here(), request, &mut |_| {})?;
    let parts = [root.join("driver.sh"), workload].map(std::fs::read_to_string);
    prepared.workload.script = parts.into_iter().collect::<Result<String, _>>()?;
    let mut options = Options { cpus: 2, ..Options::new(folder.path()) };
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    options.variables = variables.iter().map(owned).collect();
    // A driver that was ended gives no interrupts by message back.
    options.kernel_arguments.extend((!patches.is_empty()).then(|| "pci=nomsi".to_owned()));
    if variables.iter().any(|(name, _)| *name == "POLICY") {
        let guarded = folder.path().join("guarded");
        guarded::guard(driver, kernel, &guarded)?;
        options.files.extend(modules_in(&guarded)?);
    }
    guardrail_tests::unwatched(&prepared, options, 120)
}

/// Builds a copy of the folder `active` with the protocol of the driver in its tables.
fn build(
    packages: &Packages,
    kernel: &str,
    patches: &[&str],
    tree: &Path,
    copy: &Path,
) -> Result<(), Failed> {
    let sources = kbuild::folder("active", "Kbuild", "GUARDRAIL_ACTIVE")?;
    let script = kbuild::folder("scripts", "kbuild", "GUARDRAIL_SCRIPTS")?.join("kbuild");
    super::copy(&sources, &super::files(&sources)?, copy)?;
    patches.iter().try_for_each(|name| check::apply(name, copy))?;
    let chart = std::fs::read_to_string(sources.join("drivers/factor.chart"))?;
    let library = Library::new(&[("factor.chart".to_owned(), chart)])?;
    let made = header::sources(&library.machines)?;
    std::fs::write(copy.join(header::HEADER), made.header)?;
    std::fs::write(copy.join(header::TABLES), made.tables)?;
    let rest: [&OsStr; 2] = [tree.as_os_str(), copy.as_os_str()];
    Ok(kbuild::run(packages, &kernels::find(packages, kernel)?, &script, &["--name", "active"], &rest)?)
}
