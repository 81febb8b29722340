//! Real processes with roots and users of their own. Landlock is left out, so that it is not what keeps them apart.

use crate::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a shell needs to start.
fn system() -> Jail {
    let read = ["/bin", "/usr", "/lib", "/lib64", "/etc/ld.so.cache"].iter().fold(Jail::new(), Jail::reads);
    read.writes("/dev/null").apart(Role::Guest)
}

/// What a script prints; `None` where it fails.
fn says(jail: &Jail, script: &str) -> Option<String> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = enter::spawn_under(|_| Ok(None), &mut command, jail).unwrap();
    let output = child.wait_with_output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

/// Prints that a test is skipped where the machine lacks what it needs.
fn has(what: &str, there: bool) -> bool {
    if !there {
        eprintln!("skipped: this machine has no {what} of their own for jailed processes");
    }
    there
}

#[test]
fn only_what_is_listed_is_there() {
    if !has("roots", apart().roots) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().canonicalize().unwrap();
    let at = |name: &str| base.join(name);
    for name in ["read", "written", "other"] {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("file"), name).unwrap();
    }
    symlink("read", at("link")).unwrap();
    let jail = system().reads(at("link/file")).writes(at("written"));
    let ls = |place: &Path| says(&jail, &format!("ls {}", place.display()));
    let (shown, all) = (ls(Path::new("/")).unwrap(), fs::read_dir("/").unwrap().count());
    assert!(shown.lines().count() < all && shown.lines().any(|name| name == "usr"), "{shown}");
    assert_eq!(ls(&base).unwrap(), "link\nread\nwritten");
    assert!(ls(Path::new("/etc/passwd")).is_none());
    let run = |script: &str| says(&jail, &format!("cd {} && {script}", base.display()));
    assert_eq!(run("cat link/file read/file").unwrap(), "readread");
    assert!(run("echo more > written/new && mv written/new written/newer").is_some());
    for refused in ["echo more > read/file", "echo more > new", "rm read/file", "mkdir /tmp/x"] {
        assert!(run(refused).is_none(), "{refused}");
    }
    // What was written belongs to the user.
    let new = fs::metadata(at("written/newer")).unwrap();
    // SAFETY: the calls have no preconditions.
    assert_eq!((new.uid(), new.gid()), unsafe { (libc::geteuid(), libc::getegid()) });
    assert_eq!(fs::read_to_string(at("read/file")).unwrap(), "read");
}

#[test]
fn a_process_starts_where_its_parent_is() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "words").unwrap();
    let mut command = Command::new("/bin/cat");
    command.arg("file").current_dir(folder.path()).stdout(Stdio::piped());
    let child = spawn(&mut command, &system().reads(folder.path().join("file"))).unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"words");
}

#[test]
fn the_network_is_absent_where_no_port_is_named() {
    if !has("roots", apart().roots) {
        return;
    }
    let devices = |jail: &Jail| says(jail, "cat /proc/self/net/dev").unwrap();
    let ours = fs::read_to_string("/proc/self/net/dev").unwrap();
    let names = |text: &str| text.lines().filter(|line| line.contains(':')).count();
    assert_eq!(names(&devices(&system())), 1);
    for jail in [system().connects(1), system().binds(1), system().udp()] {
        assert_eq!(names(&devices(&jail)), names(&ours));
    }
}

#[test]
fn every_role_has_a_user_of_its_own() {
    if !has("users", apart().users) {
        return;
    }
    let id = |role| says(&system().apart(role), "id -u; id -g; id -G").unwrap();
    let guest = id(Role::Guest);
    assert_eq!(guest, [(); 3].map(|()| Role::Guest.user().to_string()).join("\n"));
    assert_ne!(guest, id(Role::Gate));
    // Memory and files of root are not theirs, but for what is listed.
    assert!(says(&system(), &format!("head -c 1 /proc/{}/environ", std::process::id())).is_none());
    let folder = tempfile::tempdir().unwrap();
    let [ours, theirs] = ["ours", "theirs"].map(|name| folder.path().join(name));
    for file in [&ours, &theirs] {
        fs::write(file, "words").unwrap();
        fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
    }
    chown(&theirs, Some(65534), Some(65534)).unwrap();
    let jail = system().reads(folder.path());
    let cat = |file: &PathBuf| says(&jail, &format!("cat {}", file.display()));
    assert_eq!((cat(&ours).as_deref(), cat(&theirs)), (Some("words"), None));
}

#[test]
fn processes_are_limited_where_the_user_is_their_own() {
    if !has("users", apart().users) {
        return;
    }
    let status = says(&system(), "cat /proc/self/limits").unwrap();
    let line = status.lines().find(|line| line.starts_with("Max processes")).unwrap();
    assert!(line.split_whitespace().nth(2).unwrap().parse::<u64>().unwrap() <= 1024, "{line}");
    // No process of another jail counts: with room for two, a shell starts a program.
    let starts =
        |most: u32| says(&system(), &format!("ulimit -u {most} || ulimit -p {most}; /bin/true && :"));
    assert_eq!((starts(1), starts(2).as_deref()), (None, Some("")));
}

#[test]
fn a_process_ends_with_the_thread_that_started_it() {
    let start = || {
        let mut command = Command::new("/bin/sleep");
        command.arg("60");
        // SAFETY: the closure makes one system call.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        spawn(&mut command, &system()).unwrap()
    };
    let mut child = std::thread::spawn(start).join().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}

#[test]
fn a_device_works_in_a_private_root() {
    assert!(says(&system().reads("/dev/urandom"), "head -c 1 /dev/urandom > /dev/null").is_some());
}
