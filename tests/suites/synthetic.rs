//! Drivers on synthetic devices, which no QEMU models.

use guardrail_tests::{check, ensure, findings, guardrail, program, root};
use libtest_mimic::{Arguments, Failed, Trial};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

fn main() {
    let trials = vec![
        Trial::test("a driver that compares gets what it compares with, and its fault is found", compared),
        Trial::test("its careful twin is silent", careful),
        Trial::test("a network driver without a model is probed, used, taken again and unplugged", network),
        Trial::test("a USB driver without a model is probed and used", usb),
        Trial::test("a driver that a library registers is seen to take its device", registered_by_a_library),
        Trial::test("interrupts without a cause are no fault of the driver's", uncaused),
        Trial::test("a driver finds the firmware files that it names", firmware),
        Trial::test("a run that was killed is in the way of no other one", left_by_a_killed_run),
        Trial::test("what a synthetic device cannot be is refused", refused),
        Trial::test("a device whose process dies ends the run", killed),
    ];
    guardrail_tests::run(Arguments::from_args(), trials)
}

/// Writes the fixture's source, with these words before it, where it can be built.
fn picky(before: &str) -> Result<(tempfile::TempDir, String), Failed> {
    let folder = tempfile::tempdir()?;
    let source = fs::read_to_string(root().join("tests/fixtures/own/picky.c"))?;
    let path = folder.path().join("picky.c");
    fs::write(&path, format!("{before}{source}"))?;
    let name = path.display().to_string();
    Ok((folder, name))
}

/// The driver refuses the device until it reads the number that only its own code names, and waits for a bit.
fn compared() -> Result<(), Failed> {
    let (_folder, driver) = picky("")?;
    let result = check(&[&driver, "--device", "synthetic", "--smp", "1"]);
    ensure(result.stderr.contains(" bound 0000:"), || result.said())?;
    let report = result.report()?;
    let found = findings(report).find(|finding| finding["kind"] == "out-of-bounds").cloned();
    let found = found.ok_or_else(|| result.said())?;
    let source = fs::read_to_string(&driver)?;
    let line = source.lines().position(|line| line.contains("/* BUG */")).map(|at| at as u64 + 1);
    let at = &found["location"]["line"];
    ensure(found["function"] == "picky_probe" && at.as_u64() == line && result.status == 1, || {
        format!("{found:#}")
    })
}

fn careful() -> Result<(), Failed> {
    let (_folder, driver) = picky("#define CAREFUL\n")?;
    let result = check(&[&driver, "--device", "synthetic", "--smp", "1"]);
    ensure(result.stderr.contains(" bound 0000:") && result.status == 0, || result.said())
}

fn network() -> Result<(), Failed> {
    let result = check(&["alx", "--device", "synthetic"]);
    for wanted in [" bound 0000:", "used ok", "taken-again ok", "unplugged ok", "unload ok"] {
        ensure(result.stderr.contains(wanted), || format!("{wanted}\n{}", result.said()))?;
    }
    ensure(!result.stderr.contains("sent 0 interrupts"), || result.said())?;
    let report = result.report()?;
    ensure(report["run"]["device"] == "synthetic", || format!("{:#}", report["run"]))?;
    let coverage = &report["run"]["coverage"][0];
    let [entered, all] = ["functions_run", "functions"].map(|key| coverage[key].as_u64().unwrap_or(0));
    ensure(2 * entered > all, || format!("{coverage:#}"))
}

fn usb() -> Result<(), Failed> {
    let result = check(&["pl2303", "--device", "synthetic"]);
    for wanted in [" bound ", "used ok", "unplugged ok", "unload ok"] {
        ensure(result.stderr.contains(wanted), || format!("{wanted}\n{}", result.said()))?;
    }
    for none in ["answered 0 reads", "took 0 writes"] {
        ensure(!result.stderr.contains(none), || result.said())?;
    }
    Ok(())
}

/// The library's handler does not ask the device where no command runs, so the kernel gives the line up.
fn uncaused() -> Result<(), Failed> {
    let script = root().join("tests/fixtures/synthetic/uncaused.sh").display().to_string();
    let result = check(&["pata_artop", "--device", "synthetic", "--workload", &script, "--smp", "1"]);
    let kernels =
        findings(result.report()?).find(|finding| finding["kind"] == "unhandled-interrupt").cloned();
    let note = kernels.ok_or_else(|| result.said())?;
    ensure(note["severity"] == "note" && result.status == 0, || format!("{note:#}"))
}

fn firmware() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("run");
    check(&["p54usb", "--device", "synthetic", "--workload", "load", "--out", &out.display().to_string()]);
    let log = fs::read_to_string(out.join("console.log"))?;
    ensure(log.contains("p54") && !log.contains("Direct firmware load"), || log.clone())
}

/// comedi registers the driver in the name of its own library.
fn registered_by_a_library() -> Result<(), Failed> {
    let result = check(&["cb_pcimdas", "--device", "synthetic", "--workload", "load", "--set", "ANSWERS=3"]);
    ensure(result.stderr.contains(" bound 0000:") && result.stderr.contains("unload ok"), || result.said())
}

/// What a run leaves that was killed is in the way of none.
fn left_by_a_killed_run() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().display().to_string();
    let words = ["check", "pl2303", "--device", "synthetic", "--workload", "load", "--out", &out];
    let mut run = Command::new(program()).args(words).stderr(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    let lines = BufReader::new(run.stderr.take().ok_or("no standard error")?).lines();
    for line in lines {
        if line?.contains("the kernel has booted") {
            run.kill()?;
        }
    }
    run.wait()?;
    ensure(folder.path().join("synthetic").exists(), || "the run was not killed in time".into())?;
    let result = guardrail(&words).with(&[0, 1])?;
    ensure(result.stderr.contains(" bound ") && !folder.path().join("synthetic").exists(), || result.said())
}

fn refused() -> Result<(), Failed> {
    for (words, wanted) in [
        (
            &["dummy", "--device", "synthetic"][..],
            "a synthetic device has the IDs of a driver's PCI or USB aliases",
        ),
        (&["alx", "--device", "synthetic", "--gate", "vfio-user"], "does not go with --gate vfio-user"),
        (
            &["alx", "atl1c", "--device", "synthetic"],
            "does not go with several drivers; check them one by one",
        ),
        (&["alx", "--device", "synthetic", "--set", "ANSWER=3"], "reads no variable 'ANSWER'"),
        (&["alx", "--device", "synthetic", "--iommu"], "does not go with --iommu"),
    ] {
        let result = guardrail(&[&["check"], words].concat());
        ensure(result.status == 2 && result.stderr.contains(wanted), || result.said())?;
    }
    Ok(())
}

fn killed() -> Result<(), Failed> {
    let words = ["check", "alx", "--device", "synthetic", "--timeout", "120"];
    let mut run = Command::new(program()).args(words).stderr(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    let mut said = String::new();
    for line in BufReader::new(run.stderr.take().ok_or("no standard error")?).lines() {
        let line = line?;
        if line.contains("the kernel has booted") {
            let killed = Command::new("pkill")
                .args(["-KILL", "-P", &run.id().to_string(), "-f", "internal-device"])
                .status()?;
            ensure(killed.success(), || "no process of devices was found".into())?;
        }
        said += &format!("{line}\n");
    }
    let status = run.wait()?.code();
    ensure(status == Some(3) && said.contains("error: the synthetic device ended with signal: 9"), || said)
}
