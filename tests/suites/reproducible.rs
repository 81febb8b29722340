//! What is built twice has the same bytes: by users with other folders, caches and file modes.
//!
//! The whole tracer takes minutes and runs with `--ignored`; a crate that is built in the same way runs always.

use guardrail_tests::{ensure, root};
use guardrail_vm::cache::Cache;
use guardrail_vm::kernels;
use guardrail_vm::packages::Packages;
use guardrail_vm::qemu::Qemu;
use libtest_mimic::{Arguments, Failed, Trial};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A small crate of the workspace that others are built from.
const SMALL: (&str, &str) = ("guardrail-shadow", "libguardrail_shadow.rlib");
const TRACER: (&str, &str) = ("guardrail-tracer", "libguardrail_tracer.so");

fn main() {
    // One after another: each build keeps all processors busy.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let mut trials = vec![
        Trial::test("a crate has the same bytes in another folder", || rust(SMALL)),
        Trial::test("the tracer has the same bytes in another folder", || rust(TRACER))
            .with_ignored_flag(true),
    ];
    for (number, kernel) in ["6.1", "6.12", "7.2"].into_iter().enumerate() {
        let name = format!("the runtime has the same bytes in another folder on {kernel}");
        trials.push(Trial::test(name, move || runtime(kernel)).with_ignored_flag(number > 0));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// Two users, each with a folder.
struct Users {
    _folder: tempfile::TempDir,
    homes: [PathBuf; 2],
}

/// The masks of new files' modes that the two users have.
const MASKS: [&str; 2] = ["022", "077"];

impl Users {
    fn new() -> Result<Users, Failed> {
        let folder = tempfile::Builder::new().prefix("reproducible-").tempdir_in("/var/tmp")?;
        let homes = ["a", "another/user"].map(|name| folder.path().join(name));
        for home in &homes {
            fs::create_dir_all(home)?;
        }
        Ok(Users { _folder: folder, homes })
    }

    /// Builds as each of them, and compares the files that come out.
    fn compare(&self, build: impl Fn(&Path, &str) -> Result<PathBuf, Failed>) -> Result<(), Failed> {
        let mut built = Vec::new();
        for (home, mask) in self.homes.iter().zip(MASKS) {
            built.push(fs::read(build(home, mask)?)?);
        }
        let differs = built[0].iter().zip(&built[1]).position(|(a, b)| a != b);
        ensure(built[0] == built[1], || {
            let lengths = [built[0].len(), built[1].len()];
            format!("they differ from byte {differs:?} on; the lengths are {lengths:?}")
        })
    }
}

/// Runs a program with words under a mask of new files' modes.
fn run(mask: &str, environment: &[(&str, &OsStr)], words: &[&dyn AsRef<OsStr>]) -> Result<(), Failed> {
    let mut command = Command::new("sh");
    command.args(["-c", "umask $1 && shift && exec \"$@\"", "sh", mask]).args(words);
    command.envs(environment.iter().copied()).env_remove("CARGO_TARGET_DIR").stdin(Stdio::null());
    let output = command.output()?;
    ensure(output.status.success(), || format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Builds a crate in clones of HEAD, with copies of the crates that cargo has fetched.
fn rust((package, file): (&str, &str)) -> Result<(), Failed> {
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo = cargo.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let registry = cargo.ok_or("neither CARGO_HOME nor HOME is set")?.join("registry");
    // Cargo runs this test, and names itself: the builds take the same toolchain.
    let program = PathBuf::from(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let mut path = program.parent().map(Path::to_path_buf).unwrap_or_default().into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let url = format!("file://{}", root().canonicalize()?.display());
    Users::new()?.compare(|home, mask| {
        let (clone, cargo, target) = (home.join("clone"), home.join("cargo"), home.join("target"));
        let git = ["git", "-c", "safe.directory=*", "clone", "--quiet", "--depth=1"];
        let mut words: Vec<&dyn AsRef<OsStr>> = git.iter().map(|word| word as &dyn AsRef<OsStr>).collect();
        words.extend([&url as &dyn AsRef<OsStr>, &clone]);
        run(mask, &[], &words)?;
        fs::create_dir_all(&cargo)?;
        run(mask, &[], &[&"cp", &"-RL", &registry, &cargo])?;
        let environment =
            [("CARGO_HOME", cargo.as_os_str()), ("CARGO_NET_OFFLINE", "true".as_ref()), ("PATH", &path)];
        run(mask, &environment, &[&clone.join("scripts/reproducible"), &target, &package])?;
        Ok(target.join("release").join(file))
    })
}

/// Builds the runtime from copies of its sources, against copies of the kernel's headers.
fn runtime(kernel: &str) -> Result<(), Failed> {
    let packages = Packages::new(&Cache::open()?);
    let kernel = kernels::find(&packages, kernel)?;
    let (headers, library) = (kernels::headers(&packages, &kernel)?, Qemu::fetched(&packages)?);
    Users::new()?.compare(|home, mask| {
        let (own, work) = (home.join("headers"), home.join("work"));
        let sources = work.join("runtime");
        fs::create_dir_all(&work)?;
        run(mask, &[], &[&"cp", &"-R", &headers, &own])?;
        run(mask, &[], &[&"cp", &"-R", &root().join("runtime"), &sources])?;
        let tree = own.join("usr/src").join(format!("linux-headers-{}", kernel.release));
        let (script, common) = (root().join("scripts/kbuild"), sources.join("base/kernel.h"));
        let options: [&dyn AsRef<OsStr>; 6] =
            [&"--runtime", &library, &"--name", &"runtime", &"--headers", &common];
        let places: [&dyn AsRef<OsStr>; 4] = [&tree, &kernel.release, &work, &sources];
        run(mask, &[], &[&[&script as &dyn AsRef<OsStr>], &options[..], &places].concat())?;
        Ok(sources.join("guardrail.ko"))
    })
}
