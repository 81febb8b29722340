//! Runs that continue from a guest that was kept find what runs find that boot.

use guardrail_tests::{ensure, program};
use guardrail_vm::Cache;
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The folder of the cache for kept guests.
const KEPT: &str = "booted";
/// What a run says whose guest is saved on the way.
const SAVED: &str = "the guest waits to be saved";

fn main() {
    let trials = vec![
        Trial::test("a memory bug is found in a guest that was kept", || {
            same("zoo/leak", |report| report["findings"][0]["id"].to_string())
        }),
        Trial::test("a gate holds the same accesses in a guest that was kept", || {
            same("snd_ens1370", |report| {
                let gate = &report["run"]["gate"];
                format!("{} {}", gate["held"], gate["ungated"])
            })
        }),
        Trial::test("a kept guest that is damaged is not used", damaged),
        Trial::test("a variable of the workload has the value that was set", variable),
        Trial::test("a usual run neither keeps a guest nor uses one", fresh),
    ];
    // Each run is looked at for where its guest began, in a cache of its own.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials).exit()
}

/// A cache without kept guests, which links to what is in the machine's.
struct Scratch {
    folder: tempfile::TempDir,
}

/// What a run reported, and what it said meanwhile.
struct Ran {
    status: Option<i32>,
    report: Value,
    said: String,
}

impl Scratch {
    fn new() -> Result<Scratch, Failed> {
        let scratch = Scratch { folder: tempfile::tempdir()? };
        for entry in fs::read_dir(Cache::open()?.root())?.flatten() {
            if !["unfinished", "locks", KEPT].iter().any(|own| entry.file_name() == *own) {
                std::os::unix::fs::symlink(entry.path(), scratch.folder.path().join(entry.file_name()))?;
            }
        }
        Ok(scratch)
    }

    fn check(&self, arguments: &[&str]) -> Result<Ran, Failed> {
        let output = Command::new(program())
            .args(["check", "--format", "json"])
            .args(arguments)
            .env("GUARDRAIL_CACHE", self.folder.path())
            .stdin(Stdio::null())
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let report = serde_json::from_slice(&output.stdout).map_err(|error| format!("{error}: {said}"))?;
        Ok(Ran { status: output.status.code(), report, said })
    }

    /// The kept guests.
    fn kept(&self) -> Vec<PathBuf> {
        let folders = fs::read_dir(self.folder.path().join(KEPT)).into_iter().flatten().flatten();
        folders.map(|folder| folder.path().join("guest")).filter(|guest| guest.exists()).collect()
    }
}

/// The first run boots, the second is saved, and two continue; all see the same.
fn same(driver: &str, seen: impl Fn(&Value) -> String) -> Result<(), Failed> {
    let scratch = Scratch::new()?;
    let mut first = None;
    for number in 0..4 {
        let ran = scratch.check(&[driver, "--kept-boot"])?;
        ensure(ran.said.contains(SAVED) == (number == 1), || format!("run {number} said:\n{}", ran.said))?;
        ensure(scratch.kept().len() == usize::from(number > 0), || {
            format!("{:?} after run {number}", scratch.kept())
        })?;
        let functions = &ran.report["run"]["coverage"][0]["functions"];
        let this = (ran.status, ran.report["run"]["outcome"].clone(), seen(&ran.report), functions.clone());
        let first = first.get_or_insert_with(|| this.clone());
        ensure(this == *first, || {
            format!("run {number} gave {this:?}, the first one {first:?}\n{}", ran.said)
        })?;
    }
    Ok(())
}

fn damaged() -> Result<(), Failed> {
    let scratch = Scratch::new()?;
    for _ in 0..2 {
        scratch.check(&["zoo/leak", "--kept-boot"])?;
    }
    let [guest] = scratch.kept().try_into().map_err(|kept| format!("{kept:?} are kept"))?;
    let beside =
        fs::read_dir(guest.parent().ok_or("it is in no folder")?)?.flatten().map(|file| file.file_name());
    let mut beside: Vec<_> = beside.collect();
    beside.sort();
    // The folder that its QEMU could write is gone.
    ensure(beside == ["guest", "slide", "uses"], || format!("{beside:?}"))?;
    let bytes = fs::read(&guest)?;
    fs::write(&guest, &bytes[..bytes.len() / 2])?;
    let ran = scratch.check(&["zoo/leak", "--kept-boot"])?;
    ensure(ran.status == Some(1) && ran.said.contains(SAVED), || ran.said.clone())?;
    ensure(fs::metadata(&guest)?.len() > bytes.len() as u64 / 2, || "it was not replaced".to_owned())
}

/// What a continuing guest gets besides has names that no workload uses.
fn variable() -> Result<(), Failed> {
    let scratch = Scratch::new()?;
    let script = scratch.folder.path().join("workload.sh");
    fs::write(&script, "step \"seed-$SEED-$NOW\" true\n")?;
    let script = script.to_str().ok_or("a plain path")?;
    for _ in 0..3 {
        let words = ["--workload", script, "--set", "SEED=7", "--set", "NOW=8", "--kept-boot"];
        let ran = scratch.check(&[&["zoo/leak_ok"][..], &words].concat())?;
        let steps = ran.report["run"]["steps"].to_string();
        ensure(steps.contains("\"seed-7-8\""), || format!("{steps}\n{}", ran.said))?;
    }
    Ok(())
}

fn fresh() -> Result<(), Failed> {
    let scratch = Scratch::new()?;
    for _ in 0..3 {
        let ran = scratch.check(&["zoo/leak"])?;
        ensure(ran.status == Some(1) && !ran.said.contains(SAVED), || ran.said.clone())?;
    }
    ensure(!scratch.folder.path().join(KEPT).exists(), || "a folder was made".to_owned())
}
