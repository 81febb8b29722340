//! The active driver of QEMU's device `edu`, whose protocol is not a stock one: it is added as a user adds one.

use guardrail_protocol::header;
use guardrail_protocol::library::Library;
use guardrail_tests::ensure;
use guardrail_vm::packages::Packages;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::run::{Options, Outcome};
use guardrail_vm::{Cache, kbuild, kernels};
use libtest_mimic::Failed;
use std::ffi::OsStr;
use std::path::Path;

/// The driver computes, fails as it should, and is unloaded while requests are under way.
pub fn works(kernel: &str) -> Result<(), Failed> {
    let packages = Packages::new(&Cache::open()?);
    let folder = tempfile::tempdir()?;
    let modules = folder.path().join("active");
    build(&packages, kernel, &folder.path().join("tree"), &modules)?;
    let driver = modules.join("active_edu.ko");
    let workload = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/active/edu.sh");
    let request = Request {
        driver: driver.to_str().ok_or("the folder has a name of text")?,
        more: &[],
        kernel,
        device: Some("edu"),
        workload: workload.to_str(),
    };
    let prepared = Prepared::new(&packages, request, &mut |_| {})?;
    let ran = guardrail_tests::unwatched(&prepared, Options { cpus: 2, ..Options::new(folder.path()) }, 120)?;
    ensure(ran.outcome == Outcome::Completed && !ran.console.contains("guardrail: active "), || {
        format!("{}\n{}", ran.outcome, ran.console)
    })
}

/// Builds a copy of the folder `active` with the protocol of the driver in its tables.
fn build(packages: &Packages, kernel: &str, tree: &Path, copy: &Path) -> Result<(), Failed> {
    let sources = kbuild::folder("active", "Kbuild", "GUARDRAIL_ACTIVE")?;
    let script = kbuild::folder("scripts", "kbuild", "GUARDRAIL_SCRIPTS")?.join("kbuild");
    super::copy(&sources, &super::files(&sources)?, copy)?;
    let chart = std::fs::read_to_string(sources.join("drivers/factor.chart"))?;
    let library = Library::new(&[("factor.chart".to_owned(), chart)])?;
    let made = header::sources(&library.machines)?;
    std::fs::write(copy.join(header::HEADER), made.header)?;
    std::fs::write(copy.join(header::TABLES), made.tables)?;
    let rest: [&OsStr; 2] = [tree.as_os_str(), copy.as_os_str()];
    Ok(kbuild::run(packages, &kernels::find(packages, kernel)?, &script, &["--name", "active"], &rest)?)
}
