//! Runs a driver under its workload with its device behind the gate, without any tracer.
//!
//! `cargo run --example gated -- DRIVER [KERNEL] [NAME=VALUE…]`

use guardrail_gate::{Access, Gate, Memory, Space, Verdict, device, vfio_user};
use guardrail_jail::Jail;
use guardrail_vm::packages::Packages;
use guardrail_vm::parser::Parser;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::run::{Options, TcgThreads, Watch, device_side, run};
use guardrail_vm::{Cache, kernels};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Passes everything, but holds one write to the device's memory for some time.
struct Once {
    left: AtomicU64,
    hold: Duration,
}

impl Gate for Once {
    fn admit(&self, _: &Access) -> Verdict {
        eprintln!("        holding an access for {:?}", self.hold);
        std::thread::sleep(self.hold);
        Verdict::Pass
    }

    fn admit_now(&self, access: &Access) -> Option<Verdict> {
        let mine =
            access.space == Space::Config || !access.write || self.left.fetch_sub(1, Ordering::Relaxed) != 0;
        mine.then_some(Verdict::Pass)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (variables, words): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|word| word.contains('='));
    let word = |index: usize| words.get(index).map(String::as_str);
    let packages = Packages::new(&Cache::open()?);
    let workload = std::env::var("WORKLOAD").ok();
    let request = Request {
        driver: word(0).unwrap_or("e1000"),
        kernel: word(1).unwrap_or(kernels::DEFAULT),
        workload: workload.as_deref(),
        ..Request::default()
    };
    let prepared = Prepared::new(&packages, &Parser::here(), request, &mut |_| {})?;
    let folder = tempfile::tempdir()?;
    let mut options = Options::new(folder.path());
    let mut hold = (u64::MAX, Duration::ZERO);
    for (name, value) in variables.iter().filter_map(|variable| variable.split_once('=')) {
        match name {
            "CPUS" => options.cpus = value.parse()?,
            "THREADS" if value == "multi" => options.threads = TcgThreads::Multi,
            "HOLD_AT" => hold.0 = value.parse()?,
            "HOLD_MS" => hold.1 = Duration::from_millis(value.parse()?),
            "DISK" => options.disk_mib = value.parse()?,
            _ => options.variables.push((name.to_owned(), value.to_owned())),
        }
    }
    let side = device_side(&prepared, &mut options)?;
    options.device_elsewhere = std::env::var_os("NOGATE").is_none();
    let device = device::Options {
        model: prepared.choice.device.clone().ok_or("the driver has no device")?.name,
        devices: side.devices,
        arguments: side.arguments,
        trace: std::env::var_os("TRACE").map(Into::into),
        reach: side.reach,
        ..device::Options::default()
    };
    let gate = vfio_user::Options {
        folder: folder.path().to_path_buf(),
        memory_mib: options.memory_mib,
        hold_limit: Duration::from_secs(60),
        post_writes: std::env::var_os("POST").is_some(),
        id: "dut".into(),
        reach: Jail::new(),
        device: device.program(&prepared.qemu.command()),
    };
    let policy = Arc::new(Once { left: AtomicU64::new(hold.0), hold: hold.1 });
    let memory = Memory::new(options.memory_mib)?;
    let server = vfio_user::Server::start(gate, memory.clone(), policy)?;
    if options.device_elsewhere {
        options.qemu_arguments.extend(server.qemu_arguments());
        options.inherited.push(memory.descriptor());
        options.reach = Jail::new().unix_sockets();
    }
    let contain_at = std::env::var("CONTAIN_AT").ok();
    options.containable = contain_at.is_some();
    let closed = std::cell::Cell::new(false);
    let finished = run(
        &prepared,
        &options,
        &mut Watch {
            progress: &mut |time, line| {
                eprintln!("{:7.2} {line}", time.as_secs_f64());
                if contain_at.is_some() && line.to_string().split(' ').next() == contain_at.as_deref() {
                    eprintln!("        closing: {:?}", server.contain("the user wants it"));
                    closed.set(true);
                }
            },
            stop: &mut || None,
            activity: &mut || 0,
            closed: &mut || closed.take().then(|| (Vec::new(), "the user wants it".to_owned())),
            save: None,
        },
    )?;
    let failure = server.failure();
    let counts = server.stop();
    println!("{}: {} in {:.1} s", prepared.plan.driver.name, finished.outcome, finished.wall.as_secs_f64());
    println!("{counts:?}\n{failure:?}");
    if std::env::var_os("CONSOLE").is_some() {
        println!("{}", String::from_utf8_lossy(&std::fs::read(&finished.console)?));
    }
    Ok(())
}
