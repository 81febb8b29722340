//! A machine that lacks something: a network, a cache that takes files, root. Each command works, or says in one sentence
//! what cannot be done and what to do.

use guardrail_tests::{Checked, ensure, program, ran, root};
use guardrail_vm::Cache;
use libtest_mimic::{Arguments, Failed, Trial};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A user without rights and files.
const NOBODY: u32 = 65534;

/// Mounts the cache's folder over itself, so that it takes no files, and goes on.
const READ_ONLY: &str = "mount --bind \"$GUARDRAIL_CACHE\" \"$GUARDRAIL_CACHE\" && mount -o remount,bind,ro \"$GUARDRAIL_CACHE\" && exec \"$@\"";

/// Shows the cache of this test's user at the folder of another one, who may read it.
const SHARED: &str = "mount --bind \"$0\" \"$GUARDRAIL_CACHE\" && exec \"$@\"";

fn main() {
    // SAFETY: geteuid has no preconditions.
    let root = unsafe { libc::geteuid() } == 0;
    let reached = root
        && setpriv(Path::new("/")).arg("test").arg("-x").arg(program()).status().is_ok_and(|s| s.success());
    let trials = vec![
        Trial::test("an empty cache without a network", empty_without_network),
        Trial::test("the cache of this machine without a network", without_network),
        Trial::test("the cache of this machine in a namespace of its user alone", alone),
        Trial::test("a cache that is read-only", read_only),
        Trial::test("an empty cache that is read-only", empty_read_only),
        Trial::test("sources without a network and crates", crates_without_network),
        Trial::test("a cache of another user, without root", of_another).with_ignored_flag(!reached),
    ];
    guardrail_tests::run(Arguments::from_args(), trials)
}

/// Starts a command in namespaces of its own. Users without rights are root there.
fn apart(namespaces: &str) -> Command {
    let mut command = Command::new("unshare");
    // SAFETY: geteuid has no preconditions.
    let root = unsafe { libc::geteuid() } == 0;
    command.args(["--map-root-user"].iter().filter(|_| !root)).arg(namespaces);
    command
}

/// Starts a command as a user without rights.
fn setpriv(home: &Path) -> Command {
    let user = NOBODY.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]).stdin(Stdio::null());
    command.env("HOME", home).env_remove("GUARDRAIL_CACHE").env_remove("XDG_CACHE_HOME");
    command
}

/// Runs the program behind what a command starts with.
fn run(mut command: Command, cache: &Path, words: &str) -> Checked {
    command.arg(program()).args(words.split(' ')).env("GUARDRAIL_CACHE", cache).current_dir(root());
    ran(command)
}

/// The command fails with one error, of one line, which contains all of these.
fn refuses(result: &Checked, wanted: &[&str]) -> Result<(), Failed> {
    let errors: Vec<&str> = result.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    let one = errors.len() == 1 && wanted.iter().all(|word| errors[0].contains(word));
    ensure(result.status > 1 && one, || format!("wanted {wanted:?}: {}", result.said()))
}

/// A planted bug is found, as on every machine.
fn finds(result: &Checked) -> Result<(), Failed> {
    ensure(result.status == 1 && result.stdout.contains("leak"), || result.said())
}

fn empty_without_network() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let run = |words: &str| run(apart("--net"), folder.path(), words);
    let doctor = run("doctor");
    ensure(doctor.status == 0 && doctor.stdout.contains("no route leads out of this machine"), || {
        doctor.said()
    })?;
    for words in
        ["check zoo/leak", "check e1000", "build tests/fixtures/own/gauge.c", "check e1000 --kernel 6.12"]
    {
        let carried = "or carry it here by guardrail cache export and import";
        refuses(&run(words), &["is not in the cache", carried])?;
    }
    refuses(&run("cache import /nowhere"), &["cannot open /nowhere"])?;
    let listed = run("list drivers");
    ensure(listed.status == 0 && listed.stdout.contains("e1000"), || listed.said())
}

fn without_network() -> Result<(), Failed> {
    let cache = Cache::open()?;
    finds(&run(apart("--net"), cache.root(), "check zoo/leak"))
}

/// Root is the only user there: the processes of the run cannot take users of their own.
fn alone() -> Result<(), Failed> {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net"]);
    finds(&run(command, Cache::open()?.root(), "check zoo/leak"))
}

fn read_only() -> Result<(), Failed> {
    let cache = Cache::open()?;
    let run = |words: &str| {
        let mut command = apart("--mount");
        command.args(["sh", "-c", READ_ONLY, "sh"]);
        run(command, cache.root(), words)
    };
    let doctor = run("doctor");
    ensure(doctor.status == 0 && doctor.stdout.contains("it takes no files"), || doctor.said())?;
    finds(&run("check zoo/leak"))?;
    // What is new has no place there.
    let folder = tempfile::tempdir()?;
    let source = fs::read_to_string(root().join("tests/fixtures/own/gauge.c"))?;
    let new = folder.path().join("gauge.c");
    fs::write(&new, format!("{source}/* {} */\n", folder.path().display()))?;
    let why =
        ["is not in the cache", "since it is read-only", "what it holds works as it is", "GUARDRAIL_CACHE"];
    refuses(&run(&format!("build {}", new.display())), &why)
}

fn empty_read_only() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let mut command = apart("--mount");
    command.args(["sh", "-c", READ_ONLY, "sh"]);
    refuses(&run(command, folder.path(), "check e1000"), &["takes no files", "since it is read-only"])
}

/// The script says what it lacks to build the program, and what to do.
fn crates_without_network() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let mut command = apart("--net");
    command.arg(root().join("guardrail")).arg("version");
    command.env("CARGO_HOME", path("cargo")).env("CARGO_TARGET_DIR", path("target"));
    let result = ran(command);
    let said = result.stderr.lines().last().unwrap_or_default();
    let wanted =
        said.contains("the crates that Guardrail is built of are not in") && said.contains("make deb");
    ensure(result.status == 3 && wanted, || result.said())
}

/// A folder where the user without rights has the cache of this test's user.
fn users() -> Result<(tempfile::TempDir, PathBuf), Failed> {
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755))?;
    let (home, shared) = (folder.path().join("home"), folder.path().join("shared"));
    fs::create_dir(&home)?;
    fs::create_dir(&shared)?;
    chown(&home, Some(NOBODY), Some(NOBODY))?;
    Ok((folder, shared))
}

/// As the user without rights, with the cache of this test's user.
fn shared(folder: &Path, more: &[&str]) -> Result<Command, Failed> {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", SHARED]).arg(Cache::open()?.root());
    let user = setpriv(&folder.join("home"));
    command.arg("env").arg(format!("HOME={}", folder.join("home").display()));
    command.arg(user.get_program()).args(user.get_args()).args(more);
    Ok(command)
}

fn of_another() -> Result<(), Failed> {
    let (folder, cache) = users()?;
    finds(&run(shared(folder.path(), &[])?, &cache, "check zoo/leak"))?;
    let import = run(shared(folder.path(), &[])?, &cache, "cache import /etc/hostname");
    refuses(&import, &["takes no files", "it belongs to another user", "GUARDRAIL_CACHE"])?;
    let closed = folder.path().join("closed");
    fs::create_dir(&closed)?;
    fs::set_permissions(&closed, PermissionsExt::from_mode(0o700))?;
    let none = run(setpriv(&folder.path().join("home")), &closed.join("none"), "check zoo/leak");
    refuses(&none, &["takes no files", "belongs to another user"])
}
