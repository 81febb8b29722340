//! Commands that read files which others wrote have no rights left when they open them. Nothing here needs a network or a
//! guest.

use guardrail_tests::program;
use guardrail_trace::file::{RunSummary, TraceMeta, TraceWriter};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a command may take to open its file.
const OPENING: Duration = Duration::from_secs(60);

fn command(args: &[&str], cache: &Path) -> Command {
    let mut command = Command::new(program());
    command.args(args).env("GUARDRAIL_CACHE", cache).stdin(Stdio::null());
    command
}

fn ended(args: &[&str], cache: &Path) -> Output {
    command(args, cache).output().unwrap()
}

/// The command waits for somebody who writes to its pipe, so its rights can be looked at.
#[test]
fn a_command_that_opens_a_file_can_do_little_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let pipe = path("pipe").display().to_string();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let commands: &[&[&str]] = &[
        &["analyze", &pipe],
        &["diff", &pipe, &pipe],
        &["guard", "--check", &pipe],
        &["guard", "--log", &pipe],
        &["report", "--from", &pipe],
        &["view", &pipe],
        &["view", "--check", &pipe],
    ];
    for args in commands {
        let mut child =
            command(args, &path("cache")).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let deadline = Instant::now() + OPENING;
        let mut seen = false;
        while !seen && Instant::now() < deadline && child.try_wait().unwrap().is_none() {
            seen = is_confined(&status(child.id()));
            std::thread::sleep(Duration::from_millis(5));
        }
        // It waits for the pipe, so it has not opened it before.
        let waits = child.try_wait().unwrap().is_none();
        let _ = child.kill();
        let output = child.wait_with_output().unwrap();
        assert!(seen && waits, "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A folder with a kernel that has one module, `held`, which is a pipe. Nobody writes to it, and the returned file keeps it
/// open, so that who opens the module waits for its first byte.
fn held_module(folder: &Path) -> (String, File) {
    let kernel = folder.join("kernel");
    let modules = kernel.join("lib/modules/1.0/kernel");
    fs::create_dir_all(&modules).unwrap();
    fs::create_dir_all(kernel.join("boot")).unwrap();
    fs::write(kernel.join("boot/vmlinuz-1.0"), "").unwrap();
    let pipe = modules.join("held.ko");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let open = File::options().read(true).write(true).open(&pipe).unwrap();
    (kernel.display().to_string(), open)
}

/// The state of a process, as `/proc` shows it.
fn status(process: u32) -> String {
    fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default()
}

fn is_confined(status: &str) -> bool {
    ["NoNewPrivs:\t1", "Seccomp:\t2"].iter().all(|line| status.contains(line))
}

/// The processes that a process has started, with their states.
fn children(of: u32) -> Vec<(u32, String)> {
    let parent = format!("\nPPid:\t{of}\n");
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.map(|number| (number, status(number))).filter(|(_, status)| status.contains(&parent)).collect()
}

/// Starts a command, waits until `is_held` says yes, and ends it.
fn is_held(args: &[&str], cache: &Path, is_held: impl Fn(&Child) -> bool) {
    let mut child = command(args, cache).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + OPENING;
    let mut seen = false;
    while !seen && Instant::now() < deadline && child.try_wait().unwrap().is_none() {
        seen = is_held(&child);
        std::thread::sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    assert!(seen, "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A command that starts guests has another process read modules, which has no rights at all.
#[test]
fn a_command_that_starts_guests_hands_modules_to_a_process_without_rights() {
    let folder = tempfile::tempdir().unwrap();
    let (kernel, _open) = held_module(folder.path());
    let out = folder.path().join("out").display().to_string();
    let commands: &[&[&str]] = &[
        &["check", "held", "--kernel", &kernel],
        &["survey", "--driver", "held", "--kernel", &kernel, "--out", &out],
        &["inject", "held", "--run", "--kernel", &kernel, "--out", &out],
        &["profile", "--client", "count", "--driver", "held", "--kernel", &kernel],
    ];
    // SAFETY: geteuid has no preconditions.
    let root = unsafe { libc::geteuid() } == 0;
    for args in commands {
        is_held(args, &folder.path().join("cache"), |child| {
            let parser = children(child.id()).into_iter().find(|(number, _)| {
                let words = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
                words.split(|byte| *byte == 0).any(|word| word == b"internal-parser")
            });
            let rights = |status: &str| !root || !status.contains("\nUid:\t0\t");
            parser.is_some_and(|(_, status)| is_confined(&status) && rights(&status))
        });
    }
}

/// These start no guest while they read, and so give their own rights up.
#[test]
fn a_command_that_reads_modules_is_confined() {
    let folder = tempfile::tempdir().unwrap();
    let (kernel, _open) = held_module(folder.path());
    let out = folder.path().join("out").display().to_string();
    let cache = folder.path().join("cache");
    is_held(&["inject", "held", "--kernel", &kernel, "--out", &out], &cache, |child| {
        is_confined(&status(child.id()))
    });
    let runtime = folder.path().join("guardrail.ko");
    fs::write(&runtime, "").unwrap();
    let runtime = runtime.display().to_string();
    // Another process guards the driver that is tried.
    is_held(&["guard", "held", "--try", "--kernel", &kernel, "--runtime", &runtime], &cache, |child| {
        children(child.id()).iter().any(|(_, status)| is_confined(status))
    });
    // Long enough to be read while somebody looks.
    let image = folder.path().join("kernel/boot/vmlinuz-1.0");
    File::create(image).unwrap().set_len(400 << 20).unwrap();
    is_held(&["transact", "survey", &kernel], &cache, |child| is_confined(&status(child.id())));
}

/// `verify` has C code compiled in a jail, and is confined when it reads the rest.
#[test]
fn verify_reads_c_code_without_rights() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (held, sound, cache) = (path("held.c"), path("sound.c"), folder.path().join("cache"));
    assert!(Command::new("mkfifo").arg(&held).status().unwrap().success());
    fs::write(&sound, "int main(void) { return 0; }\n").unwrap();
    is_held(&["verify", "--no-kernel", &held], &cache, |child| {
        let compiles = |status: &String| status.starts_with("Name:\tclang") && is_confined(status);
        children(child.id()).iter().any(|(_, status)| compiles(status))
    });
    is_held(&["verify", "--no-kernel", "--chart", &held, &sound], &cache, |child| {
        is_confined(&status(child.id()))
    });
}

/// A trace of which nobody knows the origin names files of the machine.
#[test]
fn a_trace_opens_no_file_that_it_has_no_business_with() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let trace = folder.path().join("a.trace");
    for image in ["/proc/kmsg", "/etc/passwd", "/boot/../etc/passwd"] {
        let tools = vec!["dmcheck".to_owned()];
        let meta = TraceMeta { kernel_image: image.to_owned(), tools, ..TraceMeta::default() };
        TraceWriter::create(trace.clone(), &meta).unwrap().finish(RunSummary::default()).unwrap();
        let trace = trace.display().to_string();
        let sentence =
            format!("the trace names {image}, which is neither in the cache nor in a folder of kernels");
        let analyzed = ended(&["analyze", &trace], &cache);
        let said = String::from_utf8_lossy(&analyzed.stderr).into_owned();
        assert!(analyzed.status.code() == Some(2) && said.contains(&sentence), "{said}");
        let viewed = ended(&["view", &trace], &cache);
        let said = String::from_utf8_lossy(&viewed.stderr).into_owned();
        assert!(viewed.status.code() == Some(0) && said.contains(&sentence), "{said}");
        let opened = ended(&["analyze", &trace, "--open", "/absent"], &cache);
        assert_eq!(opened.status.code(), Some(2), "{}", String::from_utf8_lossy(&opened.stderr));
    }
}
