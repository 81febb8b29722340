//! Commands that read files which others wrote have no rights left when they open them. Nothing here needs a network or a
//! guest.

use guardrail_tests::program;
use guardrail_trace::file::{RunSummary, TraceMeta, TraceWriter};
use std::path::Path;
use std::process::{Command, Output, Stdio};
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
        let status = format!("/proc/{}/status", child.id());
        let confined = || {
            let status = std::fs::read_to_string(&status).unwrap_or_default();
            ["NoNewPrivs:\t1", "Seccomp:\t2"].iter().all(|line| status.contains(line))
        };
        let deadline = Instant::now() + OPENING;
        let mut seen = false;
        while !seen && Instant::now() < deadline && child.try_wait().unwrap().is_none() {
            seen = confined();
            std::thread::sleep(Duration::from_millis(5));
        }
        // It waits for the pipe, so it has not opened it before.
        let waits = child.try_wait().unwrap().is_none();
        let _ = child.kill();
        let output = child.wait_with_output().unwrap();
        assert!(seen && waits, "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
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
