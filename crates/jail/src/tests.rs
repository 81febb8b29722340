//! Real processes in jails.

use super::*;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// What a shell needs to start, apart from the rest of the system.
fn system() -> Jail {
    shared().apart(Role::Guest)
}

/// The same, in the root of the caller.
fn shared() -> Jail {
    ["/bin", "/usr", "/lib", "/lib64", "/etc/ld.so.cache"]
        .iter()
        .fold(Jail::new(), Jail::reads)
        .writes("/dev/null")
}

fn run(jail: &Jail, program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    spawn(&mut command, jail).unwrap().wait_with_output().unwrap()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Prints that a test is skipped where the kernel lacks what it needs.
fn has(what: &str, there: bool) -> bool {
    if !there {
        eprintln!("skipped: this kernel's Landlock ({}) does not restrict {what}", available());
    }
    there
}

/// A folder with one file in a jail, and one outside.
fn places() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (inside, outside) = (folder.path().join("inside"), folder.path().join("outside"));
    for place in [&inside, &outside] {
        fs::create_dir(place).unwrap();
        fs::write(place.join("file"), "words").unwrap();
    }
    (folder, inside, outside)
}

#[test]
fn files_outside_are_refused() {
    if !has("files", available().restricts_files()) {
        return;
    }
    let (_folder, inside, outside) = places();
    let jail = system().reads(&inside);
    let read = run(&jail, "/bin/cat", &[&text(&inside.join("file"))]);
    assert_eq!(String::from_utf8_lossy(&read.stdout), "words");
    let refused = run(&jail, "/bin/cat", &[&text(&outside.join("file"))]);
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{refused:?}");
    // The rules hold for one file as well.
    let jail = system().reads(outside.join("file")).reads("/no/such/file");
    assert!(run(&jail, "/bin/cat", &[&text(&outside.join("file"))]).status.success());
    assert!(!run(&jail, "/bin/ls", &[&text(&outside)]).status.success());
}

#[test]
fn only_what_is_named_is_written() {
    if !has("files", available().restricts_files()) {
        return;
    }
    let (_folder, inside, outside) = places();
    let jail = system().writes(&inside).reads(&outside);
    let write = |place: &Path, script: &str| {
        let script = format!("cd {} && {script}", place.display());
        run(&jail, "/bin/sh", &["-c", &script]).status.success()
    };
    for script in ["echo more > new", "echo more >> file", "mkdir sub", "mv new sub/newer", "rm file"] {
        assert!(write(&inside, script), "{script}");
    }
    for script in ["echo more > new", "echo more >> file", "mkdir sub", "mv file file2", "rm file"] {
        assert!(!write(&outside, script), "{script}");
    }
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "words");
}

#[test]
fn nothing_of_root_is_left() {
    let status = run(&system(), "/bin/cat", &["/proc/self/status"]);
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} in {status:?}")).trim().to_owned()
    };
    for name in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(field(name).trim_start_matches('0'), "", "{name}");
    }
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        assert_eq!(field("CapBnd:").trim_start_matches('0'), "");
    }
    assert_eq!(field("NoNewPrivs:"), "1");
    assert_eq!(field("Seccomp:"), "2");
    assert_eq!(run(&system(), "/bin/sh", &["-c", "ulimit -c"]).stdout, b"0\n");
}

#[test]
fn namespaces_and_traces_are_refused() {
    // In a user namespace of its own a process would have all capabilities.
    let made = run(&system(), "/usr/bin/unshare", &["--user", "/bin/true"]);
    assert!(!made.status.success(), "{made:?}");
}

#[test]
fn other_ports_are_refused() {
    if !has("TCP ports", available().restricts_ports()) {
        return;
    }
    let [named, other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let ports = [&named, &other].map(|listener| listener.local_addr().unwrap().port());
    let jail = system().connects(ports[0]).reads(std::env::current_exe().unwrap());
    let connect = |port: u16| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "tests::connects"]).env("GUARDRAIL_TEST_PORT", port.to_string());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        spawn(&mut command, &jail).unwrap().wait().unwrap().success()
    };
    assert!(connect(ports[0]));
    assert!(!connect(ports[1]));
}

#[test]
fn unix_sockets_are_refused_unless_permitted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    // A private root has the sockets that are listed.
    let elsewhere = !apart().roots;
    for (jail, succeeds) in [
        (shared(), false),
        (system().writes(&path), false),
        (shared().unix_sockets(), true),
        (system().unix_sockets(), elsewhere),
        (system().unix_sockets().writes(&path), true),
    ] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "tests::connects_to_a_path"]).env("GUARDRAIL_TEST_SOCKET", &path);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let jail = jail.reads(std::env::current_exe().unwrap());
        assert_eq!(spawn(&mut command, &jail).unwrap().wait().unwrap().success(), succeeds);
    }
}

/// Runs in the jails of the test above.
#[test]
fn connects_to_a_path() {
    let Ok(path) = std::env::var("GUARDRAIL_TEST_SOCKET") else { return };
    std::os::unix::net::UnixStream::connect(path).unwrap();
}

#[test]
fn sockets_of_other_kinds_are_refused_unless_permitted() {
    let unix = system().unix_sockets();
    for (jail, opened) in [(system(), "stream"), (system().udp(), "stream packet"), (unix, "stream unix")] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "tests::opens_sockets"]).env("GUARDRAIL_TEST_OPENED", opened);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let jail = jail.reads(std::env::current_exe().unwrap());
        assert!(spawn(&mut command, &jail).unwrap().wait().unwrap().success(), "{opened}");
    }
}

/// Runs in the jails of the test above.
#[test]
fn opens_sockets() {
    let Ok(opened) = std::env::var("GUARDRAIL_TEST_OPENED") else { return };
    for (name, family, kind, protocol) in [
        ("stream", libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0),
        ("stream", libc::AF_INET6, libc::SOCK_STREAM, libc::IPPROTO_TCP),
        ("packet", libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK, 0),
        ("packet", libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_UDP),
        ("unix", libc::AF_UNIX, libc::SOCK_STREAM, 0),
        ("other", libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP),
        ("other", libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP),
        ("other", libc::AF_VSOCK, libc::SOCK_STREAM, 0),
        ("other", libc::AF_ALG, libc::SOCK_SEQPACKET, 0),
    ] {
        // SAFETY: the call takes plain numbers.
        let socket = unsafe { libc::socket(family, kind, protocol) };
        let error = std::io::Error::last_os_error().raw_os_error();
        let refused = socket < 0 && error == Some(libc::EPERM);
        // What the kernel lacks, such as IPv6, is another error.
        assert_eq!(!refused, opened.contains(name), "{name} {family} {kind} {protocol}");
    }
}

/// Runs in the jail of the test on ports.
#[test]
fn connects() {
    let Ok(port) = std::env::var("GUARDRAIL_TEST_PORT") else { return };
    let port: u16 = port.parse().unwrap();
    TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert!(TcpListener::bind("127.0.0.1:0").is_err());
}

#[test]
fn signals_stay_inside() {
    if !has("signals", available().restricts_signals()) {
        return;
    }
    let mut other = Command::new("/bin/sleep").arg("60").spawn().unwrap();
    let kill = format!("kill -9 {}", other.id());
    assert!(!run(&system(), "/bin/sh", &["-c", &kill]).status.success());
    assert!(other.try_wait().unwrap().is_none());
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(run(&system(), "/bin/sh", &["-c", "sleep 60 & kill -9 $!"]).status.success());
}

#[test]
fn what_either_of_two_jails_permits_is_permitted() {
    if !has("files", available().restricts_files()) {
        return;
    }
    let (_folder, inside, outside) = places();
    let jail = system().reads(&inside).and(&Jail::new().reads(&outside));
    assert!(run(&jail, "/bin/cat", &[&text(&outside.join("file"))]).status.success());
    assert_eq!(
        jail.paths().filter(|path| path.starts_with(&inside) || path.starts_with(&outside)).count(),
        2
    );
}

#[test]
fn inherited_memory_is_opened_again_and_other_processes_are_not() {
    use std::io::Write;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::process::CommandExt;
    // SAFETY: the name is a C string, and the descriptor is new.
    let mut memory =
        unsafe { fs::File::from_raw_fd(libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC)) };
    memory.write_all(b"words").unwrap();
    let fd = memory.as_raw_fd();
    let cat = |path: &str| {
        let mut command = Command::new("/bin/cat");
        command.arg(path).stdout(Stdio::piped()).stderr(Stdio::null());
        // SAFETY: the closure makes one system call.
        unsafe {
            command.pre_exec(move || {
                libc::fcntl(fd, libc::F_SETFD, 0);
                Ok(())
            });
        }
        spawn(&mut command, &system()).unwrap().wait_with_output().unwrap().stdout
    };
    assert_eq!(cat(&format!("/proc/self/fd/{fd}")), b"words");
    if has("files", available().restricts_files()) {
        assert_eq!(cat(&format!("/proc/{}/fd/{fd}", std::process::id())), b"");
    }
}

#[test]
fn a_program_that_is_absent_is_no_broken_jail() {
    let error = spawn(&mut Command::new("/no/such/program"), &system()).unwrap_err();
    assert!(matches!(error, Error::Start(_)), "{error}");
}

#[test]
fn root_needs_capabilities_for_the_files_of_others() {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: only root reads files of other users");
    }
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
    for file in [&ours, &theirs] {
        fs::write(file, "words").unwrap();
        fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }
    std::os::unix::fs::chown(&theirs, Some(65534), Some(65534)).unwrap();
    assert_eq!(out_of_reach([ours.as_path()].into_iter()), None);
    assert_eq!(out_of_reach([ours.as_path(), &theirs].into_iter()), Some(theirs.clone()));
    // The thread that looked has lost its rights, and this one has not.
    assert_eq!(fs::read_to_string(theirs).unwrap(), "words");
}

#[test]
fn a_pipe_that_is_inherited_needs_no_permission() {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    let (reader, mut writer) = std::io::pipe().unwrap();
    let place = format!("/proc/self/fd/{}", writer.as_raw_fd());
    assert!(landlock::rules(&Jail::new().writes(place)).is_ok());
    writer.write_all(b"words").unwrap();
    drop(writer);
    assert_eq!(std::io::read_to_string(reader).unwrap(), "words");
}

#[test]
fn a_process_enters_a_jail_by_itself() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "tests::enters"]).env("GUARDRAIL_TEST_ENTERS", "1");
    let ended = command.stdout(Stdio::null()).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// Runs in a process of its own, by the test above.
#[test]
fn enters() {
    if std::env::var_os("GUARDRAIL_TEST_ENTERS").is_none() {
        return;
    }
    let (_folder, inside, outside) = places();
    enter(&system().writes(&inside)).unwrap();
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    assert_eq!(effective.trim().trim_start_matches('0'), "");
    let restricts = available().restricts_files();
    for (place, is_inside) in [(&inside, true), (&outside, false)] {
        assert_eq!(fs::write(place.join("new"), "words").is_ok(), is_inside || !restricts);
        assert_eq!(fs::read(place.join("file")).is_ok(), is_inside || !restricts);
    }
    // What it starts is in the jail, too.
    let cat = Command::new("/bin/cat").arg(outside.join("file")).stderr(Stdio::null()).output().unwrap();
    assert_eq!(cat.status.success(), !restricts);
}

#[test]
fn memory_and_open_files_are_limited() {
    const MIB: u64 = 1 << 20;
    let limits = |jail: &Jail| {
        let said = run(jail, "/bin/sh", &["-c", "ulimit -Hv; ulimit -Hn"]).stdout;
        let said = String::from_utf8(said).unwrap();
        let mut lines = said.lines().map(|line| line.parse::<u64>().ok());
        (lines.next().unwrap(), lines.next().unwrap())
    };
    let (memory, files) = limits(&system().memory(256 * MIB).more_memory(256 * MIB));
    assert_eq!(memory, Some(512 * MIB / 1024));
    assert!(files.is_some_and(|files| files <= 4096));
    assert_eq!(limits(&system().more_memory(MIB)).0, None);
    // The limit holds, and the larger of two.
    let fill = "head -c 100m /dev/zero | tail -c 100m > /dev/null";
    let small = system().reads("/dev/zero").memory(64 * MIB);
    assert!(!run(&small, "/bin/sh", &["-c", fill]).status.success());
    assert!(run(&small.and(&Jail::new().memory(512 * MIB)), "/bin/sh", &["-c", fill]).status.success());
}
