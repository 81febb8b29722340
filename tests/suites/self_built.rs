//! A kernel that a person built of Debian's source: from its tree, installed, and packed.
//!
//! The kernel takes many minutes to build, so the trials run with `--ignored` alone. The cache keeps its tree by the
//! digest of source and configuration.

use guardrail_tests::{SHORT, check, ensure, findings, guardrail, root};
use guardrail_vm::Cache;
use guardrail_vm::packages::{Fetch, Packages};
use libtest_mimic::{Arguments, Failed, Trial};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The version whose source is built.
const VERSION: &str = "6.1";
/// Its configuration, as values for `allnoconfig`.
const CONFIG: &str = "tests/fixtures/kernel/own.config";
/// Programs that the build needs, and their packages.
const PROGRAMS: [(&str, &str); 10] = [
    ("bc", "bc"),
    ("bison", "bison"),
    ("bsdtar", "libarchive-tools"),
    ("cpio", "cpio"),
    ("dpkg-buildpackage", "dpkg-dev"),
    ("flex", "flex"),
    ("objcopy", "binutils"),
    ("pahole", "pahole"),
    ("rpmbuild", "rpm"),
    ("rsync", "rsync"),
];

fn main() {
    // One after another: they share the tree.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let trials = [
        Trial::test("a kernel is taken from the tree where it was built", from_tree),
        Trial::test("a kernel is taken from where it was installed", installed),
        Trial::test("a kernel is taken from its Debian packages", from_deb),
        Trial::test("a kernel is taken from its RPM package", from_rpm),
        Trial::test("a kernel without its types is refused in a sentence", without_types),
    ];
    let trials = trials.map(|trial| trial.with_ignored_flag(true));
    guardrail_tests::run(arguments, trials.into_iter().collect())
}

/// The tree where the kernel was built.
fn tree() -> Result<PathBuf, Failed> {
    static TREE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    TREE.get_or_init(|| build().map_err(|error| format!("{error:?}"))).clone().map_err(Failed::from)
}

fn build() -> Result<PathBuf, Failed> {
    for (program, package) in PROGRAMS {
        let there = Command::new("sh").args(["-c", &format!("command -v {program}")]).output()?;
        ensure(there.status.success(), || {
            format!("{program} is missing; apt-get install {package} libelf-dev")
        })?;
    }
    let cache = Cache::open()?;
    let name = format!("linux-source-{VERSION}");
    let package = Packages::new(&cache).ensure_tree(
        &format!("self-built/{name}"),
        "source of a kernel",
        Fetch::Exactly(&[&name]),
    )?;
    let (source, config) = (package.join(format!("usr/src/{name}.tar.xz")), root().join(CONFIG));
    let mut hash = Sha256::new();
    hash.update(fs::read(&source)?);
    hash.update(fs::read(&config)?);
    let built = format!("self-built/{:.20x}", hash.finalize());
    let mut failure = None;
    let made = cache.ensure_tree(&built, |folder| {
        let script = "tar -xf \"$1\" --strip-components=1 && KCONFIG_ALLCONFIG=\"$2\" make -s ARCH=x86_64 allnoconfig && make -s -j2 bzImage modules";
        let mut make = Command::new("sh");
        make.args(["-ec", script, "sh"]).arg(&source).arg(&config).current_dir(folder);
        failure = failed(make).err();
        match failure {
            None => Ok(()),
            Some(_) => Err(guardrail_vm::Error::BadValue("the kernel does not build".into())),
        }
    });
    failure.map_or(Ok(made?), Err)
}

/// Runs a program that has to succeed.
fn failed(mut command: Command) -> Result<(), Failed> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure(output.status.success(), || format!("{command:?}: {}\n{said}", output.status))
}

/// Runs make in the tree.
fn make(words: &[String]) -> Result<(), Failed> {
    let mut make = Command::new("make");
    make.arg("-s").arg("-C").arg(tree()?).args(words);
    failed(make)
}

/// What `uname -r` says of the kernel.
fn release() -> Result<String, Failed> {
    Ok(fs::read_to_string(tree()?.join("include/config/kernel.release"))?.trim().to_owned())
}

/// A driver of the kernel is exercised: the run boots this kernel, and sees the driver at work. It has no error there, as it has
/// none on Debian's kernel.
fn checks_its_own(kernel: &Path) -> Result<(), Failed> {
    let kernel = kernel.display().to_string();
    let result = check(&[&["e1000", "--kernel", &kernel][..], &SHORT].concat());
    let report = result.report()?;
    ensure(result.status < 2 && report["kernel"] == release()?.as_str(), || result.said())?;
    let ran = report["run"]["coverage"][0]["functions_run"].as_u64().unwrap_or(0);
    ensure(ran > 50, || format!("{ran} functions ran; {}", result.said()))?;
    let errors = findings(report).filter(|finding| finding["severity"] == "error").count();
    ensure(errors == 0, || result.said())
}

/// A driver of C is built for the kernel, and its fault is found with its line.
fn finds_a_fault(kernel: &Path) -> Result<(), Failed> {
    let (kernel, folder) = (kernel.display().to_string(), tempfile::tempdir()?);
    let source = root().join("tests/fixtures/own/gauge.c");
    let out = folder.path().display().to_string();
    guardrail(&["build", &source.display().to_string(), "--kernel", &kernel, "--out", &out]).with(&[0])?;
    let leak = check(&["zoo/leak", "--kernel", &kernel]);
    ensure(findings(leak.report()?).any(|finding| finding["kind"] == "leak"), || leak.said())?;
    let module = folder.path().join("gauge.ko").display().to_string();
    let exec = "/bin/sh -c \"echo 0123456789 >/dev/gauge\"";
    let result = check(&[&module, "--kernel", &kernel, "--exec", exec]);
    let text = fs::read_to_string(source)?;
    let line = text.lines().position(|line| line.contains("/* BUG */")).map(|at| at as u64 + 1);
    let found = findings(result.report()?).find(|finding| finding["kind"] == "out-of-bounds").cloned();
    let found = found.ok_or_else(|| result.said())?;
    ensure(found["location"]["line"].as_u64() == line && found["function"] == "gauge_keep", || {
        format!("{found:#}")
    })
}

fn from_tree() -> Result<(), Failed> {
    checks_its_own(&tree()?)?;
    finds_a_fault(&tree()?)
}

fn installed() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let root = folder.path().display();
    fs::create_dir(folder.path().join("boot"))?;
    let places = [format!("INSTALL_PATH={root}/boot"), format!("INSTALL_MOD_PATH={root}")];
    make(&[&["modules_install".to_owned(), "install".to_owned()][..], &places].concat())?;
    checks_its_own(folder.path())?;
    finds_a_fault(folder.path())
}

fn from_deb() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    // The packages come to be beside the tree; the debug package is of no use here.
    let beside = tree()?.parent().ok_or("the tree is in no folder")?.to_path_buf();
    make(&["bindeb-pkg".to_owned()])?;
    for entry in fs::read_dir(&beside)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let wanted = name.ends_with(".deb") && !name.contains("-dbg_") && !name.contains("libc-dev");
        if wanted {
            fs::copy(entry.path(), folder.path().join(&name))?;
        }
        if entry.path().is_file() && name.starts_with("linux-") {
            fs::remove_file(entry.path())?;
        }
    }
    checks_its_own(folder.path())?;
    finds_a_fault(folder.path())
}

/// `binrpm-pkg` makes no package of headers, so the fault's driver needs the tree.
fn from_rpm() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    make(&["binrpm-pkg".to_owned(), format!("RPMOPTS=--define '_rpmdir {}'", folder.path().display())])?;
    // The build counts itself in the package's release.
    let name = format!("kernel-{}-", release()?.replace('-', "_"));
    let is_kernel =
        |path: &PathBuf| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&name));
    let mut made = fs::read_dir(folder.path().join("x86_64"))?.flatten().map(|entry| entry.path());
    let package = made.find(is_kernel).ok_or("no package of the kernel was made")?;
    checks_its_own(&package)?;
    let source = root().join("tests/fixtures/own/gauge.c").display().to_string();
    let result = guardrail(&["build", &source, "--kernel", &package.display().to_string()]);
    ensure(result.status == 2 && result.stderr.contains("has no headers (Module.symvers)"), || result.said())
}

/// The image of the tree without the section of its types.
fn without_types() -> Result<(), Failed> {
    let (folder, release) = (tempfile::tempdir()?, release()?);
    let modules = folder.path().join(format!("lib/modules/{release}"));
    fs::create_dir_all(&modules)?;
    std::os::unix::fs::symlink(tree()?, modules.join("kernel"))?;
    let mut strip = Command::new("objcopy");
    strip.args(["--rename-section", ".BTF=.none"]).arg(tree()?.join("vmlinux")).arg(modules.join("vmlinuz"));
    failed(strip)?;
    let result = check(&["e1000", "--kernel", &folder.path().display().to_string()]);
    let wanted = format!("the kernel {release} was built without type information (CONFIG_DEBUG_INFO_BTF); ");
    ensure(result.status > 1 && result.stderr.contains(&wanted), || result.said())
}
