//! `guardrail guard`: the files that it writes, its refusals, its findings in guarded modules, and mutants
//! that it contains.

use guardrail_tests::guardrail;
use guardrail_tests::mutants::{KERNEL, campaign, redirected, stock, write};
use guardrail_vm::kernels::{self, Kernel};
use guardrail_vm::modules::Modules;
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use guardrail_vm::{Cache, admission, runtime};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn main() {
    let arguments = Arguments::from_args();
    let trials = vec![
        Trial::test("a driver is guarded, whole, and always in the same way", written),
        Trial::test("drivers of one command share a domain", together),
        Trial::test("a kernel that is installed is guarded for with its own headers", installed),
        Trial::test("what cannot be guarded is refused in a sentence", refused),
        Trial::test("assembly is named, and left alone where it is trusted", assembly),
        Trial::test("what is wrong with a guarded module is found", found),
        Trial::test("a driver is tried in guests, stock and guarded, with one verdict", tried),
        Trial::test("a mutant that escapes is contained where it is guarded", contained),
    ];
    // Some verdicts depend on time.
    libtest_mimic::run(&Arguments { test_threads: Some(1), ..arguments }, trials).exit();
}

fn kernel(name: &str) -> Result<Kernel, Failed> {
    Ok(kernels::find(&Packages::new(&Cache::open()?), name)?)
}

/// Guards drivers into a folder.
fn guard(drivers: &[&str], out: &Path, more: &[&str]) -> Result<Value, Failed> {
    let out = out.to_str().ok_or("a path")?;
    let rest = ["-o", out, "--format", "json"];
    let result = guardrail(&[&["guard"], drivers, more, &rest].concat()).with(&[0])?;
    Ok(result.report()?.clone())
}

#[track_caller]
fn assert_refused(arguments: &[&str], words: &str) {
    let result = guardrail(&[&["guard"], arguments].concat());
    let error = result.stderr.lines().last().unwrap_or_default();
    assert_eq!((result.status, result.stdout.as_str()), (2, ""), "{arguments:?}: {error}");
    assert!(error.starts_with("error: ") && error.contains(words), "{arguments:?}: {error}");
}

fn written() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    let summary = guard(&["e1000"], &one, &["--kernel", KERNEL])?;
    guard(&["e1000"], &two, &["--kernel", KERNEL])?;
    for file in ["e1000.ko", "e1000.sha256", "guardrail.ko", "guard.json"] {
        assert!(fs::read(one.join(file))? == fs::read(two.join(file))?, "{file} differs");
    }
    let certified = fs::read_to_string(one.join("e1000.sha256"))?;
    assert_eq!(certified, admission::line(&fs::read(one.join("e1000.ko"))?));
    let driver = &summary["drivers"][0];
    assert!(driver["stores"]["checked"].as_u64() > Some(500), "{driver:#}");
    assert!(driver["imports"]["wrapped"].as_array().is_some_and(|names| !names.is_empty()), "{driver:#}");
    assert_eq!(driver["stores"]["replaced"], 0, "{driver:#}");
    let checked = guardrail(&["guard", "--check", one.join("e1000.ko").to_str().ok_or("a path")?]);
    assert_eq!(checked.status, 0, "{}{}", checked.stdout, checked.stderr);
    // A second run writes the same files and leaves no others.
    assert_eq!(fs::read_dir(&one)?.count(), 4);
    Ok(())
}

fn together() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    // The first has no init function; the others need it.
    let drivers = ["mii", "8139cp", "pcnet32"];
    let summary = guard(&drivers, folder.path(), &["--kernel", KERNEL, "--domain", "7"])?;
    assert_eq!(
        (&summary["domain"], summary["drivers"].as_array().map(Vec::len)),
        (&7.into(), Some(drivers.len()))
    );
    for driver in drivers {
        let file = folder.path().join(format!("{driver}.ko"));
        let checked = guardrail(&["guard", "--format", "json", "--check", file.to_str().ok_or("a path")?]);
        assert_eq!((checked.status, &checked.report()?["domain"]), (0, &7.into()), "{}", checked.stdout);
    }
    assert_refused(&["8139cp", "8139cp", "-o", "x", "--kernel", KERNEL], "8139cp is named twice");
    Ok(())
}

fn tried() -> Result<(), Failed> {
    let result = guardrail(&["guard", "zoo/oob-padding", "--try", "--kernel", KERNEL, "--format", "json"])
        .with(&[1])?;
    let report = result.report()?;
    assert_eq!(report["verdict"], "violations", "{report:#}");
    assert_eq!(report["violations"][0]["module"], "oob_padding", "{report:#}");
    for run in ["stock", "guarded"] {
        assert_eq!(report[run]["outcome"], "completed", "{report:#}");
        assert!(report[run]["instructions"].as_u64() > Some(10_000), "{report:#}");
    }
    assert_refused(&["e1000", "--try", "--workload", "nothing-of-this-name"], "there is no workload named");
    Ok(())
}

/// A kernel in the layout of a machine's root.
fn machine(root: &Path, headers: bool) -> Result<String, Failed> {
    let found = kernel(KERNEL)?;
    let release = &found.release;
    let modules = root.join("lib/modules");
    fs::create_dir_all(modules.join(release))?;
    fs::create_dir_all(root.join("boot"))?;
    std::os::unix::fs::symlink(found.modules.join("kernel"), modules.join(release).join("kernel"))?;
    let image = root.join(format!("boot/vmlinuz-{release}"));
    std::os::unix::fs::symlink(&found.vmlinuz, &image)?;
    if headers {
        let tree = kernels::headers_tree(&Packages::new(&Cache::open()?), &found)?;
        std::os::unix::fs::symlink(tree, modules.join(release).join("build"))?;
    }
    Ok(image.display().to_string())
}

fn installed() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let image = machine(folder.path(), true)?;
    let summary = guard(&["e1000"], &folder.path().join("out"), &["--kernel", &image])?;
    assert_eq!(summary["kernel"].as_str(), Some(kernel(KERNEL)?.release.as_str()));
    let bare = tempfile::tempdir()?;
    let image = machine(bare.path(), false)?;
    assert_refused(
        &["e1000", "-o", "x", "--kernel", &image],
        "install them with: apt-get install linux-headers-",
    );
    // An existing runtime needs no headers.
    let runtime = folder.path().join("out/guardrail.ko").display().to_string();
    guard(&["e1000"], &bare.path().join("out"), &["--kernel", &image, "--runtime", &runtime])?;
    Ok(())
}

fn refused() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    guard(&["e1000"], folder.path(), &["--kernel", KERNEL])?;
    let out = path("out");
    let refused = |driver: &str, more: &[&str], words: &str| {
        assert_refused(&[&[driver, "-o", &out, "--kernel", KERNEL], more].concat(), words);
    };
    refused(&path("e1000.ko"), &[], "is guarded already");
    refused(&path("guardrail.ko"), &[], "what guarded drivers stand on");
    refused("e1001", &[], "'e1000'");
    refused(&path("none.ko"), &[], "there is no such file");
    let (packages, newer) = (Packages::new(&Cache::open()?), kernel("6.12")?);
    let other = Modules::of(&newer, &Parser::here())?.plan("e1000")?.driver;
    fs::write(path("other.ko"), other.bytes)?;
    refused(&path("other.ko"), &[], "it was built for kernel 6.12");
    let strange = runtime::ensure(&packages, &newer)?.module.display().to_string();
    refused("e1000", &["--runtime", &strange], "a runtime for kernel 6.12");
    refused("e1000", &["--runtime", &path("e1000.ko")], "is not the runtime");
    refused("e1000", &["--runtime", &path("none")], "No such file");
    let (mut old, mut at) = (fs::read(path("guardrail.ko"))?, 0);
    for (place, part) in old.windows(9).enumerate() {
        if part.starts_with(b"\0version=") {
            at = place + 9;
        }
    }
    old[at] = if old[at] == b'1' { b'2' } else { b'1' };
    let words = format!("interface {}", char::from(old[at]));
    fs::write(path("old.ko"), old)?;
    refused("e1000", &["--runtime", &path("old.ko")], &words);
    let stock = Modules::of(&kernel(KERNEL)?, &Parser::here())?.plan("e1000")?.driver.bytes;
    let name = b"\0.rodata.str1.1\0";
    let start = stock.windows(name.len()).position(|part| part == name).ok_or("no such section")?;
    let mut unknown = stock.clone();
    unknown[start + 1..start + 8].copy_from_slice(b".xodata");
    fs::write(path("unknown.ko"), unknown)?;
    // Code does not name the section, whatever it contains: the module is still guarded.
    guard(&[&path("unknown.ko")], Path::new(&out), &["--kernel", KERNEL])?;
    fs::write(path("cut.ko"), &stock[..stock.len() / 2])?;
    refused(&path("cut.ko"), &[], "cut.ko is cut short");
    Ok(())
}

fn assembly() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().to_str().ok_or("a path")?;
    let arguments = ["crc32c_intel", "-o", out, "--kernel", KERNEL];
    assert_refused(&arguments, "assembly that cannot be proven: crc_pcl (it jumps by a table");
    assert_refused(&[&arguments[..], &["--trust", "crc_pdl"]].concat(), "crc_pcl");
    let trusted = ["--kernel", KERNEL, "--trust", "crc_pcl"];
    let summary = guard(&["crc32c_intel"], folder.path(), &trusted)?;
    assert_eq!(summary["drivers"][0]["trusted"], serde_json::json!(["crc_pcl"]));
    let module = folder.path().join("crc32c_intel.ko").display().to_string();
    let checked = guardrail(&["guard", "--check", &module]);
    assert!(checked.status == 0 && checked.stdout.contains("unchecked: crc_pcl"), "{}", checked.stdout);
    assert_refused(
        &["e1000", "-o", out, "--kernel", KERNEL, "--trust", "nothing"],
        "--trust nothing: there is no such function",
    );
    Ok(())
}

fn found() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    guard(&["e1000"], folder.path(), &["--kernel", KERNEL])?;
    let file = folder.path().join("e1000.ko");
    let guarded = fs::read(&file)?;
    let magic = 0x4c52_4447u32.to_le_bytes();
    let at = guarded.windows(4).position(|part| part == magic).ok_or("no description")?;
    let with = |offset: usize, byte: u8| -> Result<String, Failed> {
        let mut changed = guarded.clone();
        changed[at + offset] = byte;
        fs::write(&file, changed)?;
        let checked = guardrail(&["guard", "--check", file.to_str().ok_or("a path")?]);
        assert_eq!(checked.status, 1, "{}{}", checked.stdout, checked.stderr);
        Ok(checked.stdout)
    };
    for (offset, byte, words) in
        [(0, 0, "description for the runtime begins with"), (4, 99, "interface 99"), (8, 16, "domain 16")]
    {
        let said = with(offset, byte)?;
        assert!(said.contains(words), "{said}");
    }
    // The runtime of another kernel exports the same symbols, in other versions or for another release.
    fs::write(&file, &guarded)?;
    let other = runtime::ensure(&Packages::new(&Cache::open()?), &kernel("6.12")?)?;
    let other = other.module.display().to_string();
    let checked = guardrail(&["guard", "--check", file.to_str().ok_or("a path")?, "--runtime", &other]);
    assert!(checked.status == 1 && checked.stdout.contains("and the runtime for 6.12"), "{}", checked.stdout);
    Ok(())
}

fn contained() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let stock = stock("e1000")?;
    // The message at load is replaced by a free of memory that nobody allocated.
    let escapes = redirected(&stock, ".init.text", "_printk", "kfree")?;
    let escapes = write(folder.path(), "escapes", &escapes)?;
    let same = write(folder.path(), "same", &stock)?;
    let out = folder.path().join("campaign");
    let arguments = ["--guarded", "--mutant", &escapes, "--mutant", &same];
    let result = campaign("e1000", &out, &arguments)?.with(&[0])?;
    let rows = result.report()?.as_array().cloned().unwrap_or_default();
    let row = |way: &str| rows.iter().find(|row| row["way"] == way).cloned().unwrap_or_default();
    assert_eq!((&row("plain")["escaped"], &row("plain")["none"]), (&1.into(), &1.into()), "{rows:#?}");
    let guarded = row("guarded");
    assert_eq!((&guarded["contained"], &guarded["none"]), (&1.into(), &1.into()), "{guarded:#}");
    assert_eq!((&guarded["of_escaped"]["all"], &guarded["of_escaped"]["contained"]), (&1.into(), &1.into()));
    let report: Value = serde_json::from_slice(&fs::read(out.join("violations.json"))?)?;
    assert_eq!(report["findings"][0]["checker"], "isolation", "{report:#}");
    assert!(out.join("runs/escapes.guarded/report.sarif").is_file());
    // All verdicts are known, so nothing runs again.
    let lines = fs::read_to_string(out.join("results.jsonl"))?;
    let again = campaign("e1000", &out, &arguments)?;
    assert_eq!((again.status, again.stdout), (0, result.stdout), "{}", again.stderr);
    assert_eq!(fs::read_to_string(out.join("results.jsonl"))?, lines);
    Ok(())
}
