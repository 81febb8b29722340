//! What is to be run: all options of one run, with their units.

use crate::error::{Error, Result};
use crate::run::rerun::Rerun;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the low part of larger memories ends in all machines.
const LOW_MEMORY: u64 = 2 << 30;

/// How QEMU runs several vCPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TcgThreads {
    /// All on one thread, by turns.
    #[default]
    Single,
    /// A thread for each.
    Multi,
}

/// A plugin for QEMU, and its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// The shared library.
    pub library: PathBuf,
    /// The file that its `config` argument names.
    pub config: PathBuf,
}

/// How long a run may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From start to end.
    pub total: Duration,
    /// Without any sign of life.
    pub silence: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { total: Duration::from_secs(600), silence: Duration::from_secs(60) }
    }
}

/// Where a guest begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// Its kernel boots.
    #[default]
    Boot,
    /// Its kernel boots, and when all is ready for the driver the guest is saved in this file and ends; see [`save`].
    Save(PathBuf),
    /// Where one was saved. All but the driver and the variables has to be as it was there.
    Saved(PathBuf),
}

/// How a run is done.
#[derive(Clone, Debug)]
pub struct Options {
    /// The run folder; it exists, and everything that the run writes is in it.
    pub folder: PathBuf,
    /// Number of vCPUs, 1 to 4.
    pub cpus: u8,
    /// How QEMU runs them.
    pub threads: TcgThreads,
    /// The tracer, or clients.
    pub plugins: Vec<Plugin>,
    /// Time limits.
    pub limits: Limits,
    /// The kernel chooses its address at random.
    pub kaslr: bool,
    /// The machine has an IOMMU, and the kernel has it translate.
    pub iommu: bool,
    /// The guest's memory.
    pub memory_mib: u32,
    /// Size of the disk of a storage run.
    pub disk_mib: u64,
    /// Variables for the workload, such as `DOWNLOAD_MB`.
    pub variables: Vec<(String, String)>,
    /// Module parameters (`name=value`).
    pub parameters: Vec<String>,
    /// Words added to the kernel's command line.
    pub kernel_arguments: Vec<String>,
    /// The driver's device can be cut off in the middle of the run; see [`Watch::closed`].
    pub containable: bool,
    /// The whole machine is recorded, or a recorded one runs again.
    pub rerun: Option<Rerun>,
    /// Words added to QEMU's command line.
    pub qemu_arguments: Vec<String>,
    /// Ports of this machine that lead into the guest of a network run.
    pub forwards: Vec<Forward>,
    /// Further files for the guest's folder `/guardrail`.
    pub files: Vec<(String, Vec<u8>)>,
    /// Where the guest begins.
    pub start: Start,
    /// The device is not in the guest's QEMU: [`Options::qemu_arguments`] tell where it is.
    pub device_elsewhere: bool,
}

/// The device of a run, and what is behind it, for a QEMU that runs it elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceSide {
    /// Arguments for network, disk or sound.
    pub arguments: Vec<String>,
    /// The values of `-device`, in order.
    pub devices: Vec<String>,
}

/// A port of this machine's loopback address that leads to a port of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// UDP instead of TCP.
    pub udp: bool,
    /// The port here.
    pub host: u16,
    /// The port of the guest.
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
            parameters: Vec::new(),
            kernel_arguments: Vec::new(),
            containable: false,
            rerun: None,
            qemu_arguments: Vec::new(),
            forwards: Vec::new(),
            files: Vec::new(),
            start: Start::Boot,
            device_elsewhere: false,
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
