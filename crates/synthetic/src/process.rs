//! Synthetic devices in a process of their own, which is jailed: the guest speaks to it, and it reads the driver's code.
//!
//! The process ([`serve`]) is a program that [`Process::start`] starts. It gets one line of JSON, answers with one when its
//! devices can be connected, and with their counts when its input ends. So it ends with the program that started it.

use crate::accesses::Accesses;
use crate::constants::Constants;
use crate::ids::Ids;
use crate::pci::PciDevice;
use crate::shape::{Resources, Shape};
use crate::usb;
use guardrail_binfmt::KernelImage;
use guardrail_binfmt::module::ModuleImage;
use guardrail_gate::lines::{listen, receive, send};
use guardrail_gate::vfio_user::{self, Server};
use guardrail_gate::{Memory, Open, device};
use guardrail_jail::{Jail, Role};
use serde::{Deserialize, Serialize};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long the process may take to answer.
const LIMIT: Duration = Duration::from_secs(30);
/// How long the process may take to end.
const GRACE: Duration = Duration::from_secs(2);
/// How long an access may wait. Nothing holds accesses, so this is never reached.
const HOLD_LIMIT: Duration = Duration::from_secs(60);

/// What the process shall make.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Job {
    /// The folder for the sockets.
    folder: PathBuf,
    /// What distinguishes the guest's memory from other files.
    memory: (u64, u64),
    /// The files of the driver and of what it stands on, whose numbers answers are chosen from.
    modules: Vec<PathBuf>,
    /// The kernel's image.
    kernel: PathBuf,
    ids: Ids,
}

/// What the process says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    /// The devices can be connected: arguments for the driver VM's QEMU.
    Ready(Vec<String>),
    /// They cannot, for this reason.
    Failed(String),
    /// The end: the accesses to each device.
    Counts(Vec<Accesses>),
}

/// Why there is no synthetic device.
#[derive(Debug, thiserror::Error)]
#[error("the synthetic device {0}")]
pub struct Error(String);

/// Running devices; dropping it ends them.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<Answer>,
    arguments: Vec<String>,
    memory: Memory,
}

impl Process {
    /// Starts a program that calls [`serve`], for a PCI device with these IDs, or USB devices of all plans.
    ///
    /// The sockets will be in `folder`, and so are the files of the driver and of what it stands on, `modules`. `kernel` is
    /// the image that it runs in, the guest has `memory_mib` MiB, and `reach` lists what any program of this machine needs.
    pub fn start(
        mut command: Command,
        folder: &Path,
        modules: &[PathBuf],
        kernel: &Path,
        ids: Ids,
        memory_mib: u32,
        reach: Jail,
    ) -> Result<Process, Error> {
        let failed = |why: String| Error(format!("could not be started: {why}"));
        let memory = Memory::new(memory_mib).map_err(|error| failed(error.to_string()))?;
        let job = Job {
            folder: folder.to_path_buf(),
            memory: memory.identity().map_err(|error| failed(error.to_string()))?,
            modules: modules.to_vec(),
            kernel: kernel.to_path_buf(),
            ids,
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let jail = reach.reads(command.get_program()).reads(kernel).writes(folder);
        let jail = jail.unix_sockets().apart(Role::Gate);
        let mut child =
            guardrail_jail::spawn(&mut command, &jail).map_err(|error| failed(error.to_string()))?;
        let (stdin, answers) = (child.stdin.take(), listen(child.stdout.take()));
        let mut process = Process { child, stdin, answers, arguments: Vec::new(), memory };
        if !process.stdin.as_mut().is_some_and(|stdin| send(stdin, &job)) {
            return Err(failed("its process does not listen".into()));
        }
        match process.answer()? {
            Answer::Ready(arguments) => {
                process.arguments = process.memory.qemu_arguments(memory_mib);
                process.arguments.extend(arguments);
                Ok(process)
            }
            Answer::Failed(why) => Err(failed(why)),
            Answer::Counts(_) => Err(failed("its process answered out of turn".into())),
        }
    }

    /// The arguments for the driver VM's QEMU: its memory and the devices.
    pub fn qemu_arguments(&self) -> Vec<String> {
        self.arguments.clone()
    }

    /// The guest's memory, which the driver VM's QEMU inherits.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Why the devices are gone; `None` while they are there.
    pub fn failure(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(Error(format!("ended with {status}")).to_string())
    }

    /// Ends the devices, and returns the accesses to each, in the order of plans.
    pub fn stop(mut self) -> Result<Vec<Accesses>, Error> {
        self.stdin = None;
        match self.answer()? {
            Answer::Counts(counts) => Ok(counts),
            Answer::Failed(why) => Err(Error(why)),
            Answer::Ready(_) => Err(Error("answered out of turn".into())),
        }
    }

    /// The error for the death of the process. Its pipes are closed a moment before it ends.
    fn death(&mut self) -> Error {
        let deadline = Instant::now() + GRACE;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Error(format!("ended with {status}")),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
                _ => return Error("does not speak any more".into()),
            }
        }
    }

    fn answer(&mut self) -> Result<Answer, Error> {
        match self.answers.recv_timeout(LIMIT) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Disconnected) => Err(self.death()),
            Err(RecvTimeoutError::Timeout) => Err(Error(format!("gave no answer for {} s", LIMIT.as_secs()))),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stdin = None;
        // It ends by itself at the end of its input.
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The whole life of the process of synthetic devices.
pub fn serve() -> ExitCode {
    let (mut input, mut output) = (BufReader::new(std::io::stdin()), std::io::stdout());
    let Some(job) = receive::<Job>(&mut input) else { return 2.into() };
    let devices = match Devices::start(&job) {
        Ok(devices) => devices,
        Err(why) => {
            send(&mut output, &Answer::Failed(why));
            return 1.into();
        }
    };
    if !send(&mut output, &Answer::Ready(devices.qemu_arguments())) {
        return 1.into();
    }
    // Nothing more comes: the end of the input is the end of the run.
    let _ = input.read(&mut [0]);
    send(&mut output, &Answer::Counts(devices.stop()));
    0.into()
}

/// The devices of a process.
enum Devices {
    Pci(Server),
    Usb(usb::Devices),
}

impl Devices {
    fn start(job: &Job) -> Result<Devices, String> {
        let modules: Result<Vec<_>, _> = job.modules.iter().map(|path| ModuleImage::open(path)).collect();
        let modules = modules.map_err(|error| error.to_string())?;
        let constants = Arc::new(Constants::of(&modules));
        Ok(match &job.ids {
            Ids::Pci(ids) => {
                let driver = modules.first().ok_or("has no driver")?;
                let shape = Shape::of(driver, resources(&job.kernel));
                Devices::Pci(server(job, PciDevice::new(*ids, shape, constants))?)
            }
            Ids::Usb(alias) => Devices::Usb(usb::Devices::start(alias, &job.folder, &constants)?),
        })
    }

    fn qemu_arguments(&self) -> Vec<String> {
        match self {
            Devices::Pci(server) => server.qemu_arguments(),
            Devices::Usb(devices) => devices.qemu_arguments(),
        }
    }

    fn stop(self) -> Vec<Accesses> {
        match self {
            Devices::Pci(server) => vec![Accesses::of_pci(&server.stop())],
            Devices::Usb(devices) => devices.stop(),
        }
    }
}

/// Where the kernel keeps base address registers; `None` where its types are not known.
fn resources(kernel: &Path) -> Option<Resources> {
    let image = KernelImage::open(kernel).ok()?;
    let btf = image.btf();
    let size = btf.size_of(btf.struct_named("resource")?)?;
    Some(Resources { offset: btf.member_offset("pci_dev", "resource")?, size })
}

fn server(job: &Job, device: guardrail_gate::Result<PciDevice>) -> Result<Server, String> {
    let options = vfio_user::Options {
        folder: job.folder.clone(),
        memory_mib: 0,
        hold_limit: HOLD_LIMIT,
        post_writes: false,
        id: "synthetic0".into(),
        reach: Jail::new(),
        device: device::Options::default(),
    };
    device
        .and_then(|device| Server::of_device(options, job.memory, Arc::new(Open), device))
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_makes_no_device_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let module = folder.path().join("x.ko");
        let ids = Ids::Usb(String::new());
        let error = Process::start(
            Command::new("false"),
            folder.path(),
            &[module],
            Path::new("/vmlinuz"),
            ids,
            1,
            Jail::new(),
        )
        .unwrap_err();
        assert!(error.to_string().starts_with("the synthetic device "), "{error}");
    }

    #[test]
    fn a_file_that_is_no_module_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let module = folder.path().join("x.ko");
        let ids = Ids::Usb("usb:v1234p5678d*dc*dsc*dp*ic*isc*ip*in*".into());
        let (folder, kernel) = (folder.path().to_path_buf(), "/vmlinuz".into());
        let job = Job { folder, memory: (0, 0), modules: vec![module], kernel, ids };
        let error = Devices::start(&job).err().unwrap();
        assert!(error.contains("x.ko"), "{error}");
    }

    #[test]
    fn each_plan_of_a_usb_device_listens_and_ends() {
        let folder = tempfile::tempdir().unwrap();
        let alias = "usb:v1234p5678d*dc*dsc*dp*ic*isc*ip*in*";
        let devices = usb::Devices::start(alias, folder.path(), &Constants::default()).unwrap();
        let words = devices.qemu_arguments();
        let sockets = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(words.iter().filter(|word| word.starts_with("usb-redir,")).count(), sockets);
        assert_eq!(devices.stop(), vec![Accesses::default(); sockets]);
    }
}
