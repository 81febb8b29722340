//! What users bring along: sources of a driver, a program that exercises it, files, kernels; and Guardrail as a package.

use guardrail_tests::{check, ensure, findings, guardrail, program, root};
use guardrail_vm::packages::Packages;
use guardrail_vm::software::Software;
use guardrail_vm::{Cache, kernels};
use libtest_mimic::{Arguments, Failed, Trial};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

fn main() {
    let trials = vec![
        Trial::test("a driver's sources, a program and a file lead to a finding with its line", from_sources),
        Trial::test("a module that the driver stands on is checked along with it", with_another),
        Trial::test("a file says which device a driver binds", by_own_catalog),
        Trial::test("sources that do not build say why", unbuilt),
        Trial::test("a program that fails ends the workload with its status", failing),
        Trial::test("a kernel from another distribution's package boots", foreign_kernel),
        Trial::test("a package of Guardrail works where it is unpacked", packaged),
        Trial::test("a driver that is watched is checked again when it changes", watched),
        Trial::test("a dry run says what would be run", dry),
        Trial::test("a program and a script run in a root of the user's", rooted),
        Trial::test("an image is a root as well", imaged),
        Trial::test("roots without what runs in them are refused", unrooted),
        Trial::test("the kernel's own tests pass, are skipped or fail", selftests),
        Trial::test("tests of LTP run on the driver's disk, and pass, are skipped or fail", ltp),
        Trial::test("a program of syzkaller's form is carried out, and refused with its place", calls),
        Trial::test("a quiet check prints findings and the verdict, a verbose one what it does", loud),
    ];
    guardrail_tests::run(Arguments::from_args(), trials)
}

/// A folder with the fixtures' driver and program, compiled for this machine.
struct Own {
    folder: tempfile::TempDir,
}

impl Own {
    fn new() -> Result<Own, Failed> {
        let own = Own { folder: tempfile::tempdir()? };
        let fixtures = root().join("tests/fixtures/own");
        fs::copy(fixtures.join("gauge.c"), own.path("gauge.c"))?;
        let compiler = Command::new("gcc")
            .arg("-o")
            .arg(own.path("write_gauge"))
            .arg(fixtures.join("write_gauge.c"))
            .arg("-lm")
            .status()?;
        ensure(compiler.success(), || "the program does not compile".into())?;
        fs::write(own.path("words"), "eleven byte")?;
        Ok(own)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn word(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

/// The fault is in a string of just the size of its object. KFENCE and the checker see it; the line is the file's own.
fn from_sources() -> Result<(), Failed> {
    let own = Own::new()?;
    let exec = format!("{} /data/words", own.word("write_gauge"));
    let file = format!("{}:/data/", own.word("words"));
    let (driver, out) = (own.word("gauge.c"), own.word("run"));
    let result = check(&[
        &driver, "--exec", &exec, "--file", &file, "--set", "LEVEL=7", "--memory", "384", "--out", &out,
    ]);
    let source = fs::read_to_string(own.path("gauge.c"))?;
    let line = source.lines().position(|line| line.contains("/* BUG */")).map(|at| at as u64 + 1);
    let found = findings(result.report()?).find(|finding| finding["kind"] == "out-of-bounds").cloned();
    let found = found.ok_or_else(|| result.said())?;
    let at = &found["location"];
    let named = at["file"].as_str().is_some_and(|file| file.ends_with("gauge.c"));
    ensure(named && at["line"].as_u64() == line && found["function"] == "gauge_keep", || {
        format!("{found:#}")
    })?;
    let printed = fs::read_to_string(own.path("run/output.log"))?;
    ensure(printed == "level 7, 11 bytes, 3.317\n", || printed.clone())?;
    ensure(result.status == 1 && result.stderr.contains("| level 7, 11 bytes"), || result.said())?;
    // The folder of the sources is as it was.
    let names = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut left: Vec<String> = fs::read_dir(own.folder.path())?.flatten().map(names).collect();
    left.sort();
    ensure(left == ["gauge.c", "run", "words", "write_gauge"], || format!("{left:?}"))
}

/// The faults are in the other module, but for a race with it. Without a word nobody looks there.
fn with_another() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let sources = root().join("tests/fixtures/own/pair");
    let built = guardrail(&["build", &format!("{}/", sources.display()), "--out", &path("built")]);
    ensure(built.status == 0, || built.said())?;
    let script = folder.path().join("keep");
    fs::write(
        &script,
        "#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8; do echo text $i >/dev/pair; usleep 20000; done\n",
    )?;
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755))?;
    let driver = path("built/pair_driver.ko");
    let run = |more: &[&str]| check(&[&[&driver, "--exec", &path("keep")], more].concat());
    let alone = run(&[]);
    ensure(alone.status == 0, || alone.said())?;
    let both = run(&["--with", "pair-core"]);
    let source = fs::read_to_string(sources.join("pair_core.c"))?;
    let line = |mark: &str| source.lines().position(|line| line.contains(mark)).map(|at| at as u64 + 1);
    let report = both.report()?;
    for (kind, mark) in [("out-of-bounds", "/* BUG */"), ("leak", "/* LEAK */")] {
        // A leak was allocated by the module's init function, whose memory belongs to the driver later.
        let named = |finding: &serde_json::Value| {
            let mut frames = finding["stack"].as_array().into_iter().flatten();
            finding["kind"] == kind && frames.any(|frame| frame["location"]["line"].as_u64() == line(mark))
        };
        ensure(findings(report).any(named), || format!("{kind}: {}", both.said()))?;
    }
    let modules = |race: &serde_json::Value| {
        [&race["stack"], &race["other"]["stack"]].map(|stack| stack[0]["module"].clone())
    };
    let races = findings(report).filter(|finding| finding["kind"] == "data-race");
    let between = races.map(modules).any(|[one, other]| one != other && one != serde_json::Value::Null);
    ensure(both.status == 1 && between, || both.said())?;
    for (more, why) in [
        (["--with", "pair_driver"], "pair_driver is the driver itself; --with names other modules"),
        (["--with", "pair_cor"], "there is no module named 'pair_cor'"),
    ] {
        let refused = run(&more);
        ensure(refused.status == 2 && refused.stderr.contains(why), || refused.said())?;
    }
    // It would be loaded before what it needs.
    let refused = check(&["libata", "--with", "ahci", "--dry-run"]);
    ensure(refused.status == 2 && refused.stderr.contains("needs libata"), || refused.said())
}

/// The usual device of 8139cp is another one, which the file leaves out of the guest.
fn by_own_catalog() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("mine.txt");
    let run = |text: &str| {
        fs::write(&file, text)?;
        Ok::<_, Failed>(check(&["8139cp", "--catalog", &file.display().to_string(), "--dry-run"]))
    };
    let own = run("# of mine\n8139cp | network | - | rtl8139,netdev=net0,mac=52:54:00:00:00:77\n")?;
    ensure(own.status == 0 && own.stdout.contains("mac=52:54:00:00:00:77"), || own.said())?;
    let bad = run("8139cp | network | -\n")?;
    let why = format!("{}, line 1: a row is 'driver | class | also | device'", file.display());
    ensure(bad.status == 2 && bad.stderr.contains(&why), || bad.said())
}

/// A root with a busybox, a program of its own, and links.
fn make_root(own: &Own) -> Result<PathBuf, Failed> {
    let folder = own.path("root");
    for place in ["bin", "etc", "usr/data"] {
        fs::create_dir_all(folder.join(place))?;
    }
    let tree = Cache::open()?.path("guest");
    let busybox = ["bin/busybox", "usr/bin/busybox"].map(|name| tree.join(name));
    let busybox = busybox.iter().find(|path| path.is_file()).ok_or("no guest has run here yet")?;
    fs::copy(busybox, folder.join("bin/busybox"))?;
    for (link, target) in [("bin/sh", "/bin/busybox"), ("bin/cat", "busybox"), ("data", "usr/data")] {
        symlink(target, folder.join(link))?;
    }
    add_script(
        &folder.join("bin/keep"),
        "#!/bin/sh\ncat $1 >/dev/gauge && echo kept $LEVEL of $DRIVER from $(cat /etc/name) >/dev/stdout\n",
    )?;
    fs::write(folder.join("etc/name"), "my root\n")?;
    Ok(folder)
}

/// The program finds its file through a link of the root. The folder and an archive of it are the same root.
fn rooted() -> Result<(), Failed> {
    let own = Own::new()?;
    let folder = make_root(&own)?;
    let (driver, out) = (own.word("gauge.c"), own.word("run"));
    let file = format!("{}:/data/", own.word("words"));
    let root = folder.display().to_string();
    let result = check(&[
        &driver,
        "--rootfs",
        &root,
        "--exec",
        "keep /data/words",
        "--file",
        &file,
        "--set",
        "LEVEL=3",
        "--out",
        &out,
    ]);
    let printed = fs::read_to_string(own.path("run/output.log")).unwrap_or_default();
    ensure(printed == "kept 3 of gauge from my root\n", || result.said())?;
    let found = findings(result.report()?).any(|finding| finding["kind"] == "out-of-bounds");
    ensure(result.status == 1 && found, || result.said())?;
    let archive = own.word("root.tar");
    let packed = Command::new("tar").args(["-cf", &archive, "-C", &root, "."]).status()?;
    ensure(packed.success(), || "tar failed".into())?;
    let digest = |root: &str| {
        let said = guardrail(&["check", &driver, "--rootfs", root, "--exec", "keep /x", "--dry-run"]).said();
        said.lines().find_map(|line| Some(line.split_once(" (sha256 ")?.1.to_owned())).ok_or(said)
    };
    ensure(digest(&root)? == digest(&archive)?, || "the digests differ".into())?;
    let script = own.path("mine.sh");
    fs::write(
        &script,
        "step name cat /etc/name\ntry odd false\nstep keep keep /proc/cmdline\nstep bad cat /nowhere\n",
    )?;
    let script = script.display().to_string();
    let result = check(&[&driver, "--rootfs", &archive, "--workload", &script]);
    let failed = "the workload failed at 'bad': cat: can't open '/nowhere'";
    ensure(result.status == 3 && result.stderr.contains(failed), || result.said())?;
    ensure(result.stderr.contains("keep ok") && result.stderr.contains("unloaded gauge"), || result.said())
}

/// A runner in the place of the kernel's, which ends with 0 whatever its tests did.
const SELFTESTS: &str = "#!/bin/sh
case $1 in
--list) printf 'net:%s\\n' good skipped bad worse ;;
*)
    case $2 in
    net:good) echo 'ok 1 selftests: net: good' ;;
    net:skipped) echo 'ok 1 selftests: net: skipped # SKIP' ;;
    net:bad) echo '# FAIL: it broke' && echo 'ok 1 selftests: net: bad' ;;
    net:worse) echo 'not ok 1 selftests: net: worse # exit=7' ;;
    esac
    ;;
esac
";

/// Links of the root's busybox.
fn add_applets(folder: &Path, names: &str) -> Result<(), Failed> {
    for applet in names.split(' ') {
        symlink("busybox", folder.join("bin").join(applet))?;
    }
    Ok(())
}

/// Writes a script that can be run, and the folders that it is in.
fn add_script(path: &Path, text: &str) -> Result<(), Failed> {
    fs::create_dir_all(path.parent().ok_or("no folder")?)?;
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, PermissionsExt::from_mode(0o755))?)
}

/// Checks a driver with the script of `examples/NAME` in the root. The workload must fail, and each line be printed.
fn example_fails(
    [driver, name]: [&str; 2],
    folder: &Path,
    variables: &[&str],
    lines: &[&str],
) -> Result<(), Failed> {
    let script = root().join(format!("examples/{name}/workload.sh")).display().to_string();
    let folder = folder.display().to_string();
    let rooted = [driver, "--rootfs", &folder, "--workload", &script];
    let set = variables.iter().flat_map(|variable| ["--set", *variable]);
    let result = check(&rooted.into_iter().chain(set).collect::<Vec<_>>());
    let missing = lines.iter().find(|line| !result.stderr.contains(**line));
    ensure(result.status == 3 && missing.is_none(), || format!("{missing:?}: {}", result.said()))
}

fn selftests() -> Result<(), Failed> {
    let own = Own::new()?;
    let folder = make_root(&own)?;
    add_applets(&folder, "bash grep head ip ln perl readlink sed sleep tail tee timeout tr")?;
    add_script(&folder.join("kselftest/run_kselftest.sh"), SELFTESTS)?;
    let fails = |names: &str, lines: &[&str]| {
        let variable = format!("KSELFTESTS={names}");
        example_fails(["dummy", "kselftest"], &folder, &[&variable], lines)
    };
    let lines = [
        "net:good ok",
        "net:skipped skipped",
        "net:bad failed: FAIL: it broke",
        "net:worse failed: exit=7",
        "the workload failed at 'net:bad'",
    ];
    fails("net:good net:skipped net:bad net:worse", &lines)?;
    let why = "the workload failed at 'tests': kselftest-list.txt of the root has no test net:nothing";
    fails("net:good net:nothing", &[why])
}

/// A program in the place of LTP's. It prints a result, and where it runs, and ends with a status.
const LTP_PROGRAM: &str = "#!/bin/sh\necho \"fake.c:1: $1: in ${PWD##*/}\"\nexit $2\n";

/// A runtest file. One line hides a failure behind the status 0, one reports nothing, and one has no program.
const RUNTEST: &str = "#DESCRIPTION: fakes
good fake TPASS 0
lacking\tfake TCONF 32
bad fake TFAIL 1
broken fake TBROK 2
hidden fake TFAIL 1; fake TPASS 0
silent true
absent no_program
";

/// A folder as a root brings no file system for a disk. So the tests' is in memory, where no disk counts, and it has no
/// programs of its own.
fn ltp() -> Result<(), Failed> {
    let own = Own::new()?;
    let folder = make_root(&own)?;
    add_applets(&folder, "chmod cut grep head mkdir mount readlink sed sleep tail timeout true umount")?;
    let fails = |names: &str, lines: &[&str]| {
        let variables = ["LTP_FILESYSTEM=tmpfs", &format!("LTP={names}")];
        example_fails(["nvme", "ltp"], &folder, &variables, lines)
    };
    fails("fs:good", &["the workload failed at 'ltp': the root has no /opt/ltp/testcases/bin"])?;
    add_script(&folder.join("bin/mkfs.tmpfs"), "#!/bin/sh\n")?;
    add_script(&folder.join("bin/fsck.tmpfs"), "#!/bin/sh\n")?;
    add_script(&folder.join("opt/ltp/testcases/bin/fake"), LTP_PROGRAM)?;
    fs::create_dir(folder.join("opt/ltp/runtest"))?;
    fs::write(folder.join("opt/ltp/runtest/fs"), RUNTEST)?;
    let lines = [
        "fake.c:1: TPASS: in disk",
        "fs:good ok",
        "fs:lacking skipped: fake.c:1: TCONF",
        "fs:bad failed: exit=1; fake.c:1: TFAIL",
        "fs:broken failed: exit=2; fake.c:1: TBROK",
        "fs:hidden failed: fake.c:1: TFAIL",
        "fs:silent skipped: it ended with status 0 and reported no result",
        "fs:absent failed: exit=127",
        "fsck ok",
        "the workload failed at 'fs:bad'",
    ];
    fails("fs:good fs:lacking fs:bad fs:broken fs:hidden fs:silent fs:absent", &lines)?;
    fails(
        "fs:good fs:nothing",
        &["the workload failed at 'tests': the runtest files of the root have no test fs:nothing"],
    )
}

/// Both file systems are read only; what the program writes is above them.
fn imaged() -> Result<(), Failed> {
    let own = Own::new()?;
    let folder = make_root(&own)?;
    let image = own.path("root.ext4");
    fs::File::create(&image)?.set_len(32 << 20)?;
    let software = Software::find(&Packages::new(&Cache::open()?))?;
    let mut mke2fs = software.command("mke2fs")?;
    let made = mke2fs.args(["-q", "-t", "ext4", "-d"]).arg(&folder).arg(&image).output()?;
    ensure(made.status.success(), || String::from_utf8_lossy(&made.stderr).into_owned())?;
    let before = fs::read(&image)?;
    let driver = own.word("gauge.c");
    let image = image.display().to_string();
    let exec = "/bin/sh -c 'echo short >/etc/new && keep /etc/new'";
    let result = check(&[&driver, "--rootfs", &image, "--exec", exec]);
    ensure(result.report()?["run"]["outcome"] == "completed", || result.said())?;
    ensure(result.stderr.contains("| kept of gauge from my root"), || result.said())?;
    ensure(fs::read(&image)? == before, || "the image was written".into())?;
    let result = check(&["dummy", "--rootfs", &image, "--exec", "/bin/nothing"]);
    ensure(result.status == 3 && result.stderr.contains("can't execute '/bin/nothing'"), || result.said())
}

fn unrooted() -> Result<(), Failed> {
    let own = Own::new()?;
    let folder = own.path("bare");
    fs::create_dir(&folder)?;
    fs::write(own.path("mine.sh"), "true\n")?;
    let (root, script) = (folder.display().to_string(), own.word("mine.sh"));
    let refused = |words: &[&str], why: &str| {
        let result = check(&[&["dummy", "--rootfs", &root], words].concat());
        ensure(result.status == 2 && result.stderr.contains(why), || result.said())
    };
    refused(&["--exec", "keep"], "it has no program keep")?;
    refused(&["--workload", &script], "it has no program /bin/sh")?;
    refused(&[], "not for the workload 'load'; add --exec or --workload SCRIPT")?;
    let mut foreign = fs::read(own.path("write_gauge"))?;
    // The low byte of e_machine: 183 is AArch64.
    foreign[18] = 183;
    fs::write(folder.join("arm"), foreign)?;
    fs::set_permissions(folder.join("arm"), PermissionsExt::from_mode(0o755))?;
    refused(&["--exec", "/arm"], "/arm in it is for another machine")
}

/// The third call writes 11 bytes, behind which the driver writes one more.
fn calls() -> Result<(), Failed> {
    let own = Own::new()?;
    let (driver, program, out) = (own.word("gauge.c"), own.word("calls.syz"), own.word("run"));
    fs::write(
        own.path("calls.syz"),
        "# the file's 11 bytes\n\
         r0 = openat$gauge(0xffffffffffffff9c, &(0x7f0000000000)='/dev/gauge\\x00', 0x2, 0x0)\n\
         ioctl$gauge(r0, 0x5401, &(0x7f0000000040)=ANY=[@ANYBLOB=\"00\"])\n\
         write(r0, &(0x200000000080)=ANY=[@ANYBLOB='eleven ', @ANYRES32=r0], 0xb)\n\
         ppoll(0x0, 0x0, 0x0, 0x0) (rerun: 1)\n",
    )?;
    let result = check(&[&driver, "--workload", &program, "--set", "CALL_SECONDS=1", "--out", &out]);
    let found = findings(result.report()?).any(|finding| {
        finding["kind"] == "out-of-bounds"
            && finding["message"].as_str().is_some_and(|text| text.contains("offset 11"))
    });
    ensure(result.status == 1 && found, || result.said())?;
    let printed = fs::read_to_string(own.path("run/output.log"))?;
    let expected = "1: openat$gauge = 0x3\n2: ioctl$gauge = -1, errno 25 (Not a tty)\n3: write = 0xb\n\
                    4: ppoll = -1, errno 4 (Interrupted system call)\n4: ppoll = -1, errno 4 (Interrupted system call)\n";
    ensure(printed == expected, || printed.clone())?;
    fs::write(own.path("calls.syz"), "sync()\nioctl$x(0x3, 0x1, &(0x7f0000000000)={0x1, 0x2})\n")?;
    let result = check(&[&driver, "--workload", &program]);
    let why = "calls.syz:2:38: the size of this value is known to syzkaller's descriptions alone";
    ensure(result.status == 2 && result.stderr.contains(why), || result.said())
}

fn loud() -> Result<(), Failed> {
    let result = guardrail(&["-q", "check", "zoo/leak"]);
    let last = result.stdout.lines().last().unwrap_or_default().to_owned();
    ensure(result.status == 1 && result.stderr.is_empty(), || result.said())?;
    ensure(last.starts_with("guardrail: ") && last.ends_with(" 1 finding"), || last.clone())?;
    ensure(!result.stdout.contains("Coverage: "), || result.said())?;
    let result = guardrail(&["check", "zoo/leak", "--verbose"]);
    for word in ["kernel    6.1.0-", "starting QEMU", "the kernel has booted", "waiting for the analysis"] {
        ensure(result.stderr.contains(word), || format!("no '{word}' in {}", result.said()))?;
    }
    ensure(result.status == 1 && result.stdout.contains("Coverage: "), || result.said())
}

/// The fault is there only after the change.
fn watched() -> Result<(), Failed> {
    let own = Own::new()?;
    let (driver, source) = (own.path("gauge.c"), fs::read_to_string(own.path("gauge.c"))?);
    fs::write(&driver, source.replace("kept[length] = 0;", "kept[length - 1] = 0;"))?;
    let log = fs::File::create(own.path("log"))?;
    let exec = format!("{} /root/words", own.word("write_gauge"));
    let mut watcher = Command::new(program())
        .arg("watch")
        .arg(&driver)
        .args(["--", "--exec", &exec, "--file", &own.word("words")])
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    let said = || fs::read_to_string(own.path("log")).unwrap_or_default();
    let ended = |word: &str| {
        let deadline = Instant::now() + Duration::from_secs(300);
        while !said().contains(word) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(200));
        }
        said().contains(word)
    };
    let clean = ended("the check ended with status 0");
    fs::write(&driver, source)?;
    let found = clean && ended("the check ended with status 1");
    // SAFETY: the process was not waited for, so that the number is its own.
    unsafe { libc::kill(watcher.id() as i32, libc::SIGINT) };
    let status = watcher.wait()?;
    ensure(found && status.code() == Some(130), || format!("{status}\n{}", said()))
}

fn unbuilt() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("broken.c"), "#include <linux/module.h>\nint x = nobody;\nMODULE_LICENSE(\"GPL\");\n")?;
    for command in [&["build"][..], &["check", "--format", "json"]] {
        let result = guardrail(&[command, &[&path("broken.c")]].concat());
        let last = result.stderr.lines().last().unwrap_or_default().to_owned();
        let right = last.contains("broken.c does not build for 6.1.0") && last.contains("broken.c:2:");
        let shown = result.stderr.contains(&format!("{}:2:", path("broken.c")));
        ensure(result.status == 2 && right && shown, || result.said())?;
    }
    fs::write(path("other.c"), "")?;
    let result = guardrail(&["build", &format!("{}/", folder.path().display())]);
    ensure(result.status == 2 && result.stderr.contains("several C files"), || result.said())?;
    let result = guardrail(&["build", "e1000"]);
    ensure(result.status == 2 && result.stderr.contains("neither a C file nor a folder"), || result.said())
}

fn failing() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("mine.sh");
    // What it leaves running holds its output.
    fs::write(&script, "#!/bin/sh\nsleep 1000 &\necho one; echo \"last of $DRIVER\" >&2; exit 7\n")?;
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755))?;
    let result = check(&["dummy", "--exec", &format!("{} x", script.display())]);
    let why = "the workload failed at 'exec': exit status 7, after: last of dummy";
    ensure(result.status == 3 && result.stderr.contains(why) && result.stderr.contains("| one"), || {
        result.said()
    })?;
    fs::write(&script, "#!/usr/bin/python3\n")?;
    let result = check(&["dummy", "--exec", &script.display().to_string()]);
    ensure(result.status == 2 && result.stderr.contains("it is run by /usr/bin/python3"), || result.said())
}

/// Debian's kernel, packed as Arch packs its own.
fn foreign_kernel() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let kernel = kernels::find(&Packages::new(&Cache::open()?), "6.1")?;
    let modules = folder.path().join("usr/lib/modules").join(&kernel.release);
    fs::create_dir_all(modules.join("kernel/drivers/net"))?;
    fs::copy(&kernel.vmlinuz, modules.join("vmlinuz"))?;
    fs::copy(kernel.modules.join("modules.builtin"), modules.join("modules.builtin"))?;
    fs::copy(
        kernel.modules.join("kernel/drivers/net/dummy.ko"),
        modules.join("kernel/drivers/net/dummy.ko"),
    )?;
    let package = folder.path().join("linux-6.1-1-x86_64.pkg.tar.zst");
    let packed = Command::new("bsdtar")
        .args(["--zstd", "-cf"])
        .arg(&package)
        .arg("-C")
        .arg(folder.path())
        .arg("usr")
        .status()?;
    ensure(packed.success(), || "bsdtar failed".into())?;
    let result = check(&["dummy", "--kernel", &package.display().to_string()]);
    let report = result.report()?;
    ensure(report["run"]["outcome"] == "completed" && report["kernel"] == kernel.release.as_str(), || {
        result.said()
    })?;
    fs::write(&package, "no archive")?;
    let result = check(&["dummy", "--kernel", &package.display().to_string()]);
    ensure(result.status == 2 && result.stderr.contains("cannot be unpacked"), || result.said())
}

/// The package is unpacked, not installed. The program finds what belongs to it beside itself.
fn packaged() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755))?;
    let made = Command::new(root().join("scripts/deb")).arg(folder.path()).output()?;
    ensure(made.status.success(), || String::from_utf8_lossy(&made.stderr).into_owned())?;
    let package = String::from_utf8(made.stdout)?;
    let tree = folder.path().join("tree");
    let unpacked = Command::new("dpkg-deb").arg("-x").arg(package.trim()).arg(&tree).status()?;
    ensure(unpacked.success(), || format!("{package} does not unpack"))?;
    let program = tree.join("usr/bin/guardrail");
    let run = |words: &[&str]| Command::new(&program).args(words).output();
    let version = run(&["version"])?;
    let said = String::from_utf8_lossy(&version.stdout).into_owned();
    ensure(said.starts_with("guardrail 0."), || said.clone())?;
    let pages = tree.join("usr/share/man/man1");
    ensure(pages.join("guardrail-check.1.gz").is_file() && pages.join("guardrail.1.gz").is_file(), || {
        "no manual".into()
    })?;
    completes(&tree)?;
    let found = run(&["check", "zoo/leak", "--format", "json"])?;
    ensure(found.status.code() == Some(1), || String::from_utf8_lossy(&found.stderr).into_owned())?;
    // It finds its folders through a link, as that in /usr/bin is one.
    let link = folder.path().join("g");
    symlink(&program, &link)?;
    ensure(Command::new(&link).args(["list", "kernels"]).output()?.status.success(), || {
        "not through a link".into()
    })
}

/// The shell completes `check --sna`.
fn completes(tree: &Path) -> Result<(), Failed> {
    let script = tree.join("usr/share/bash-completion/completions/guardrail");
    let text = format!(
        ". {}; COMP_WORDS=(guardrail check --sna); COMP_CWORD=2; _guardrail guardrail --sna check; echo \"${{COMPREPLY[*]}}\"",
        script.display()
    );
    let output = Command::new("bash").args(["-c", &text]).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure(said.trim() == "--snapshot-on-finding", || {
        format!("{said}{}", String::from_utf8_lossy(&output.stderr))
    })
}

fn dry() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("out");
    let result =
        guardrail(&["check", "e1000", "--dry-run", "--memory", "300", "--out", &out.display().to_string()]);
    let said = result.said();
    for word in ["driver    e1000 (", "kernel    6.1.0-", "device    e1000,netdev=net0", " -m 300 "] {
        ensure(said.contains(word), || format!("no '{word}' in {said}"))?;
    }
    ensure(result.status == 0 && !out.exists(), || said.clone())
}
