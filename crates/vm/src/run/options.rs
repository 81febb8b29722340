//! What is to be run: all options of one run, with their units.

use crate::error::{Error, Result};
use crate::exercise::http::Server;
use crate::run::rerun::Rerun;
use crate::run::watchdog::Watched;
use guardrail_jail::Jail;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where the low part of larger memories ends in all machines.
const LOW_MEMORY: u64 = 2 << 30;

/// How QEMU runs several vCPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TcgThreads {
    /// All vCPUs run in turn on one thread.
    #[default]
    Single,
    /// Each vCPU has its own thread.
    Multi,
}

/// A plugin for QEMU, and its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// The path of the shared library.
    pub library: PathBuf,
    /// The file that its `config` argument names.
    pub config: PathBuf,
}

/// The time limits of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest time from start to end.
    pub total: Duration,
    /// The longest time without any sign of life.
    pub silence: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { total: Duration::from_secs(600), silence: Duration::from_secs(60) }
    }
}

/// Where a guest begins.
#[derive(Clone, Debug, Default)]
pub enum Start {
    /// The guest's kernel boots.
    #[default]
    Boot,
    /// The guest's kernel boots. When all is ready for the driver, the guest is saved in this file and ends;
    /// see [`save`].
    Save(PathBuf),
    /// The guest continues from this file. Everything but the driver and the variables has to be the same as
    /// when it was saved.
    Saved(PathBuf),
    /// The guest's kernel boots. Before the guest gets the files of the run it is saved in this file, and goes on.
    Keep(PathBuf),
    /// The guest continues from one that was kept so.
    Kept(Kept),
}

/// A guest that was saved when its kernel had booted, and that nobody removes meanwhile.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The saved guest.
    pub file: PathBuf,
    /// The distance by which its kernel was moved.
    pub slide: u64,
    /// The file, locked.
    pub(crate) _in_use: Arc<File>,
}

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The run folder; it exists, and the run writes all its files there.
    pub folder: PathBuf,
    /// Number of vCPUs, 1 to 4.
    pub cpus: u8,
    /// Whether the vCPUs share a thread of QEMU.
    pub threads: TcgThreads,
    /// The tracer or clients.
    pub plugins: Vec<Plugin>,
    /// The time limits.
    pub limits: Limits,
    /// The kernel chooses its address at random (KASLR).
    pub kaslr: bool,
    /// The machine has an IOMMU, and the kernel uses it for translation.
    pub iommu: bool,
    /// The guest's memory in MiB.
    pub memory_mib: u32,
    /// Size of the disk of a storage run in MiB.
    pub disk_mib: u64,
    /// Variables for the workload, such as `DOWNLOAD_MB`.
    pub variables: Vec<(String, String)>,
    /// Words added to the kernel's command line.
    pub kernel_arguments: Vec<String>,
    /// The console shows all messages of the kernel, not only errors, and KFENCE looks for faults.
    pub whole_log: bool,
    /// The driver's device can be cut off during the run; see [`Watch::closed`].
    pub containable: bool,
    /// What a [watchdog](Watched) of a containable run watches; `None` to rely on the main loop.
    pub watched: Option<Watched>,
    /// The folder where the whole machine is recorded, or from which it is replayed; mostly `None`.
    pub rerun: Option<Rerun>,
    /// Words added to QEMU's command line.
    pub qemu_arguments: Vec<String>,
    /// Ports of this machine that are forwarded into the guest of a network run.
    pub forwards: Vec<Forward>,
    /// Further files for the guest's folder `/guardrail`.
    pub files: Vec<(String, Vec<u8>)>,
    /// Whether the guest boots, is saved, or continues from a saved state.
    pub start: Start,
    /// The folder of kept guests, from one of which a run that would boot may continue; `None` to boot.
    pub kept: Option<PathBuf>,
    /// The device is not in the guest's QEMU: [`Options::qemu_arguments`] connect it.
    pub device_elsewhere: bool,
    /// What plugins and the caller's arguments reach, besides the files and ports that the other options name.
    pub reach: Jail,
    /// Descriptors that QEMU inherits under their numbers.
    pub inherited: Vec<Arc<OwnedFd>>,
    /// The peer of a network workload, where it listens already; else the run starts it.
    pub server: Option<Arc<Server>>,
}

/// The device of a run with its back ends, for another QEMU that runs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceSide {
    /// Arguments for network, disk or sound.
    pub arguments: Vec<String>,
    /// The values of `-device`, in order.
    pub devices: Vec<String>,
    /// What that QEMU may reach.
    pub reach: Jail,
}

/// A port of this machine's loopback address that is forwarded to a port of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// UDP instead of TCP.
    pub udp: bool,
    /// The port on this machine.
    pub host: u16,
    /// The port in the guest.
    pub guest: u16,
}

impl std::str::FromStr for Forward {
    type Err = Error;

    /// Reads `tcp:HOST:GUEST` or `udp:HOST:GUEST`.
    fn from_str(text: &str) -> Result<Forward> {
        let read = || {
            let (protocol, ports) = text.split_once(':')?;
            let (host, guest) = ports.split_once(':')?;
            let udp = match protocol {
                "udp" => true,
                "tcp" => false,
                _ => return None,
            };
            Some(Forward { udp, host: host.parse().ok()?, guest: guest.parse().ok()? })
        };
        read().ok_or_else(|| Error::BadValue(format!("'{text}' is no forwarded port, such as tcp:8080:80")))
    }
}

impl Options {
    /// The usual options for a run in `folder`.
    pub fn new(folder: &Path) -> Options {
        Options {
            folder: folder.to_path_buf(),
            cpus: 2,
            threads: TcgThreads::Single,
            plugins: Vec::new(),
            limits: Limits::default(),
            kaslr: true,
            iommu: false,
            memory_mib: 512,
            disk_mib: 64,
            variables: Vec::new(),
            kernel_arguments: Vec::new(),
            whole_log: false,
            containable: false,
            watched: None,
            rerun: None,
            qemu_arguments: Vec::new(),
            forwards: Vec::new(),
            files: Vec::new(),
            start: Start::Boot,
            kept: None,
            device_elsewhere: false,
            reach: Jail::new(),
            inherited: Vec::new(),
            server: None,
        }
    }
}

impl Options {
    /// Physical addresses of the guest's memory.
    pub fn memory(&self) -> Vec<(u64, u64)> {
        let size = u64::from(self.memory_mib) << 20;
        vec![(0, 0xa_0000), (0x10_0000, size.min(LOW_MEMORY))]
    }
}
