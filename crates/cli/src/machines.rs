//! `guardrail vm`: a guest that stays alive, and clients that are attached and detached by hand.

mod state;

use crate::args::{ExecArgs, ProfileArgs, VmCommand, VmResultsArgs, VmStartArgs};
use crate::errors::{CliError, Status, print_line};
use crate::output;
use crate::profile::{plan, print};
use guardrail_profile::{self as profile, Live};
use guardrail_trace::client::Request;
use guardrail_vm::Cache;
use guardrail_vm::progress::Progress as Said;
use state::{Machine, Running};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The longest time until a guest is ready.
const START: Duration = Duration::from_secs(300);
/// The longest time for it to end by itself, and again by force.
const END: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);
/// The workload that runs a guest's commands.
const WORKLOAD: &str = "commands";
/// The byte that ends a command's output.
const MARK: u8 = 1;
/// The most bytes of a command's output that are shown.
const MAX_OUTPUT: usize = 64 << 20;

/// Runs a subcommand.
pub fn run(command: &VmCommand) -> Result<Status, CliError> {
    let cache = guardrail_host::cache()?;
    match command {
        VmCommand::Start(args) => start(&cache, args),
        VmCommand::List => list(&cache),
        VmCommand::Attach(args) => change(&cache, &args.name, Request::Attach),
        VmCommand::Detach(args) => change(&cache, &args.name, Request::Detach),
        VmCommand::Exec(args) => exec(&cache, args),
        VmCommand::Results(args) => results(&cache, args),
        VmCommand::Stop(args) => stop(&cache, args),
    }
}

/// Starts a process that outlives this one, and waits until its guest takes commands.
fn start(cache: &Cache, args: &VmStartArgs) -> Result<Status, CliError> {
    let machine = Machine::named(cache, &args.name)?;
    if machine.running()?.is_some() {
        return Err(CliError::Usage(format!("the VM {} runs already; stop it first", args.name)));
    }
    machine.clear()?;
    // Errors are reported here and not in the log of a process that nobody sees.
    profile::check(&plan(&args.profile))?;
    let log = fs::File::create(machine.log()).map_err(CliError::io("create", machine.log().display()))?;
    let errors = log.try_clone().map_err(CliError::io("open", machine.log().display()))?;
    let program = std::env::current_exe().map_err(CliError::io("find", "the guardrail program"))?;
    let mut command = Command::new(program);
    // The arguments behind "vm start" apply to the other process as well.
    command.arg("internal-vm").args(std::env::args_os().skip(3));
    command.stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
    let mut child = command.spawn().map_err(CliError::io("start", "the VM's process"))?;
    let end = Instant::now() + START;
    loop {
        if let Some(status) = child.try_wait().map_err(CliError::io("wait for", "the VM's process"))? {
            let log = fs::read_to_string(machine.log()).unwrap_or_default();
            let log = log.trim_end();
            let (before, why) = log.rsplit_once('\n').unwrap_or(("", log));
            if !before.is_empty() {
                eprintln!("{before}");
            }
            let why = if why.is_empty() { "without a word" } else { why };
            return Err(CliError::Run(format!("the VM {} did not start ({status}): {why}", args.name)));
        }
        if machine.running()?.is_some() {
            break;
        }
        if Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            return Err(CliError::Run(format!(
                "the VM {} was not ready within {} s; see {}",
                args.name,
                START.as_secs(),
                machine.log().display()
            )));
        }
        std::thread::sleep(LOOK);
    }
    print_line("guardrail", &format!("the VM {} runs (process {})", args.name, child.id()));
    Ok(Status::Clean)
}

/// Runs the process of a VM, which `vm start` started.
pub fn live(args: &VmStartArgs) -> Result<Status, CliError> {
    let cache = guardrail_host::cache()?;
    let machine = Machine::named(&cache, &args.name)?;
    let _lock = machine.lock()?;
    let mut wanted: ProfileArgs = args.profile.clone();
    wanted.workload = Some(WORKLOAD.to_owned());
    let port = machine.port();
    // This is the guest's third serial port.
    wanted.qemu_arg.push("-serial".into());
    wanted.qemu_arg.push(format!("unix:{},server=on,wait=off", port.display()));
    if wanted.out.is_none() {
        wanted.out = Some(machine.folder().join("run"));
    }
    let live = Live {
        ready: &mut |sockets, line| {
            if *line == Said::Begin("commands".to_owned()) {
                machine.is_ready(sockets)?;
            }
            Ok(())
        },
    };
    let status = profile::run_live(&plan(&wanted), Some(live)).and_then(|profile| profile.status());
    machine.ended();
    status
}

fn list(cache: &Cache) -> Result<Status, CliError> {
    let mut rows = vec![vec!["name".to_owned(), "process".to_owned(), "attached".to_owned()]];
    for (name, running) in state::all(cache)? {
        let attached = match profile::is_attached(&running.sockets) {
            Ok(attached) => if attached { "yes" } else { "no" }.to_owned(),
            Err(why) => why.to_string(),
        };
        rows.push(vec![name, running.process.to_string(), attached]);
    }
    output::text(&output::table(&rows))?;
    Ok(Status::Clean)
}

fn running(cache: &Cache, name: &str) -> Result<(Machine, Running), CliError> {
    let machine = Machine::named(cache, name)?;
    match machine.running()? {
        Some(running) => Ok((machine, running)),
        None => Err(CliError::Usage(format!(
            "no VM {name} runs; 'guardrail vm list' shows those that do, 'guardrail vm start {name} --client …' starts one"
        ))),
    }
}

fn change(cache: &Cache, name: &str, request: Request) -> Result<Status, CliError> {
    let (_, running) = running(cache, name)?;
    profile::change(&running.sockets, request)?;
    Ok(Status::Clean)
}

fn results(cache: &Cache, args: &VmResultsArgs) -> Result<Status, CliError> {
    let (machine, running) = running(cache, &args.name)?;
    let run = machine.profile_args()?;
    print(&profile::show_live(cache, &plan(&run), &running.sockets)?, args.format)
}

/// Runs a command in the guest.
fn exec(cache: &Cache, args: &ExecArgs) -> Result<Status, CliError> {
    let (machine, _) = running(cache, &args.name)?;
    let port = machine.port();
    let io = |doing| CliError::io(doing, port.display());
    let mut stream = UnixStream::connect(&port).map_err(io("reach the guest at"))?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).map_err(io("wait at"))?;
    let script = args.command.join(" ");
    stream.write_all(base64(script.as_bytes()).as_bytes()).map_err(io("write to"))?;
    stream.write_all(b"\n").map_err(io("write to"))?;
    let end = Instant::now() + Duration::from_secs(args.timeout);
    let (mut seen, mut shown, mut buffer) = (Vec::new(), 0usize, [0; 4096]);
    let status = loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Err(CliError::Run(format!("the VM {} ended", args.name))),
            Ok(count) => seen.extend_from_slice(&buffer[..count]),
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock
                        | std::io::ErrorKind::TimedOut
                        | std::io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(io("read from")(error)),
        }
        if let Some(status) = status(&seen) {
            break status;
        }
        if Instant::now() > end {
            return Err(CliError::Run(format!(
                "the command took longer than {} s in the guest",
                args.timeout
            )));
        }
        // Bytes that may be the beginning of the mark are kept.
        let ready = seen.iter().position(|&byte| byte == MARK).unwrap_or(seen.len());
        if shown < MAX_OUTPUT {
            output::text(&String::from_utf8_lossy(&seen[..ready]))?;
            shown += ready;
        }
        seen.drain(..ready);
    };
    let rest = seen.iter().position(|&byte| byte == MARK).unwrap_or(0);
    output::text(&String::from_utf8_lossy(&seen[..rest]))?;
    match status {
        0 => Ok(Status::Clean),
        code => Err(CliError::Run(format!("the command ended with status {code} in the guest"))),
    }
}

/// The status behind the mark, once it is whole.
fn status(seen: &[u8]) -> Option<i32> {
    let at = seen.iter().position(|&byte| byte == MARK)?;
    let rest = &seen[at + 1..];
    let end = rest.iter().position(|&byte| byte == b'\n')?;
    Some(std::str::from_utf8(&rest[..end]).ok()?.trim().parse().unwrap_or(-1))
}

/// Ends a VM: the guest unloads its driver, and clients write their results, which are printed.
fn stop(cache: &Cache, args: &VmResultsArgs) -> Result<Status, CliError> {
    let (machine, running) = running(cache, &args.name)?;
    if let Ok(mut stream) = UnixStream::connect(machine.port()) {
        // Where the guest does not listen, the process receives a signal below.
        let _ = stream.write_all(b"quit\n");
    }
    let mut asked = false;
    let begin = Instant::now();
    while machine.running()?.is_some() {
        if begin.elapsed() > END / 2 && !asked {
            asked = true;
            // SAFETY: a plain call; the held lock shows that the process is the VM's.
            unsafe { libc::kill(running.process as i32, libc::SIGTERM) };
        }
        if begin.elapsed() > END {
            return Err(CliError::Run(format!(
                "the VM {} did not end within {} s; its process is {}",
                args.name,
                END.as_secs(),
                running.process
            )));
        }
        std::thread::sleep(LOOK);
    }
    let run = plan(&machine.profile_args()?);
    print(&profile::show_kept(cache, &run, &machine.run_folder()?)?, args.format)
}

/// Base64 after RFC 4648.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0u32, |word, &byte| word << 8 | u32::from(byte)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * i)) as usize & 63] as char;
            text.push(if i <= chunk.len() { digit } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_travel_in_base64() {
        for (plain, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(plain.as_bytes()), text);
        }
    }

    #[test]
    fn a_status_stands_behind_the_mark() {
        assert_eq!(status(b"out\x010\n"), Some(0));
        assert_eq!(status(b"\x0117\nmore"), Some(17));
        assert_eq!(status(b"out\x011"), None);
        assert_eq!(status(b"out"), None);
    }
}
