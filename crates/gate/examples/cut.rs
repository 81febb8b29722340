//! Measures how long it takes to cut a device off once its gate is closed, also where a process hangs.
//!
//! `cargo run --release -p guardrail-gate --example cut -- [nothing|qemu|gate] [outside] [TRIES]`
//!
//! Each try starts the driver VM's QEMU, with its device in it or behind the gate's process (`outside`, and where the
//! gate hangs). While the guest's firmware runs, what is named is stopped (SIGSTOP), and then the gate is closed.

use guardrail_gate::process::{Process, serve};
use guardrail_gate::{Open, device, vfio_user};
use guardrail_jail::Jail;
use guardrail_trace::pci::PciAddress;
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::run::{Options, Stop, Watch, Watched, device_side, run};
use guardrail_vm::{Cache, kernels};
use std::cell::Cell;
use std::error::Error;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The word by which this program runs as the gate's process.
const GATE: &str = "internal-gate";
/// From the start of QEMU to the closing of the gate.
const FIRMWARE: Duration = Duration::from_millis(300);
/// Where the machine has the driver's device.
const DEVICE: PciAddress = PciAddress { bus: 0, devfn: 2 << 3 };
const WHY: &str = "the gate was closed";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Hung {
    Nothing,
    Qemu,
    Gate,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |index: usize| words.get(index).map(String::as_str);
    if word(0) == Some(GATE) {
        return serve(|_| Ok(Arc::new(Open)));
    }
    let hung = match word(0) {
        None | Some("nothing") => Hung::Nothing,
        Some("qemu") => Hung::Qemu,
        Some("gate") => Hung::Gate,
        Some(other) => {
            eprintln!("cut: '{other}' was given; nothing, qemu or gate was expected");
            return 2.into();
        }
    };
    let outside = hung == Hung::Gate || word(1) == Some("outside");
    let tries = word(if word(1) == Some("outside") { 2 } else { 1 });
    let measured =
        tries.map_or(Ok(20), str::parse).map_err(Into::into).and_then(|tries| measure(hung, outside, tries));
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cut: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(hung: Hung, outside: bool, tries: usize) -> Result<(), Box<dyn Error>> {
    let packages = Packages::new(&Cache::open()?);
    let request = Request { driver: "e1000", kernel: kernels::DEFAULT, ..Request::default() };
    let prepared = Prepared::new(&packages, &Parser::here(), request, &mut |_| {})?;
    let (mut times, mut ended) = (Vec::new(), 0);
    for _ in 0..tries {
        let (took, by_force) = one(&prepared, hung, outside)?;
        times.push(took);
        ended += usize::from(by_force);
    }
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize].as_secs_f64() * 1e3;
    println!(
        "{tries} tries: median {:.1} ms, p99 {:.1}, p99.9 {:.1}, maximum {:.1}; QEMU was ended in {ended}",
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
    Ok(())
}

/// How long the cut took, and whether QEMU was ended for it.
fn one(prepared: &Prepared, hung: Hung, outside: bool) -> Result<(Duration, bool), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let mut options = Options::new(folder.path());
    let mut gate = outside.then(|| behind_gate(prepared, &mut options)).transpose()?;
    let closed = Arc::new(AtomicBool::new(false));
    let (of_watchdog, of_closer) = (Arc::clone(&closed), Arc::clone(&closed));
    let other = gate.as_ref().map(Process::id);
    options.containable = true;
    options.watched = Some(Watched { closed: Arc::new(move || of_watchdog.load(Ordering::Acquire)), other });
    let closer = std::thread::spawn(move || {
        let qemu = loop {
            match child("qemu-system").filter(|process| Some(*process) != other) {
                Some(process) => break process,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        std::thread::sleep(FIRMWARE);
        let target = match hung {
            Hung::Nothing => None,
            Hung::Qemu => Some(qemu),
            Hung::Gate => other,
        };
        if let Some(target) = target {
            // SAFETY: kill takes plain numbers, and nobody has waited for the process.
            unsafe { libc::kill(target as i32, libc::SIGSTOP) };
        }
        of_closer.store(true, Ordering::Release);
    });
    let over = Cell::new(false);
    let finished = run(
        prepared,
        &options,
        &mut Watch {
            progress: &mut |_, _| {},
            stop: &mut || over.get().then(|| Stop::Because("it was measured".to_owned())),
            activity: &mut || 0,
            closed: &mut || {
                if !closed.load(Ordering::Acquire) {
                    return None;
                }
                over.set(true);
                // As the supervisor of a run does; the device is then cut off already.
                let devices = match &mut gate {
                    Some(gate) => gate.contain(WHY).map(|_| Vec::new()).unwrap_or_default(),
                    None => vec![DEVICE],
                };
                Some((devices, WHY.to_owned()))
            },
            save: None,
        },
    )?;
    closer.join().map_err(|_| "the thread that closes the gate has failed")?;
    let took =
        finished.cut_took.ok_or_else(|| format!("the device was not cut off: {}", finished.outcome))?;
    Ok((took, finished.cut_by_force))
}

/// Takes the device out of the driver VM.
fn behind_gate(prepared: &Prepared, options: &mut Options) -> Result<Process, Box<dyn Error>> {
    let side = device_side(prepared, options)?;
    let device = device::Options {
        model: prepared.choice.device.clone().ok_or("the driver has no device")?.name,
        devices: side.devices,
        arguments: side.arguments,
        reach: side.reach,
        ..device::Options::default()
    };
    let gate = vfio_user::Options {
        folder: options.folder.clone(),
        memory_mib: options.memory_mib,
        hold_limit: Duration::from_secs(60),
        post_writes: false,
        id: "dut".into(),
        reach: Jail::new(),
        device: device.program(&prepared.qemu.command()),
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(GATE);
    let process = Process::start(command, &gate, serde_json::Value::Null)?;
    options.device_elsewhere = true;
    options.qemu_arguments = process.qemu_arguments();
    options.inherited = vec![process.memory().descriptor()];
    options.reach = Jail::new().unix_sockets();
    Ok(process)
}

/// The child of this process with this word in its command line.
fn child(word: &str) -> Option<u32> {
    let threads = std::fs::read_dir("/proc/self/task").ok()?.flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let children: Vec<u32> =
        lists.flat_map(|list| list.split_whitespace().flat_map(str::parse).collect::<Vec<_>>()).collect();
    let has = |process: &u32| {
        std::fs::read_to_string(format!("/proc/{process}/cmdline")).is_ok_and(|line| line.contains(word))
    };
    children.into_iter().find(has)
}
