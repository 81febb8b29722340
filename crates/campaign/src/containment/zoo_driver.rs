//! What a planted fault can harm, and how the harm is seen from outside of the guest.

use crate::Harmed;
use guardrail_host::HostError;
use guardrail_vm::{packets, sectors};
use serde::Serialize;
use std::path::Path;

/// A driver of the zoo in which faults can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ZooDriver {
    /// A disk: no sector may hold foreign content.
    Disk,
    /// A network: no packet may leave that nobody sent.
    Net,
}

/// The state outside of the guest after a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Harm {
    /// The number of wrong sectors or packets.
    pub wrong: u64,
    /// Writes of which only a part was done, as where QEMU died in the middle of one.
    pub partial: u64,
    /// Descriptions of the first wrong ones.
    pub told: Vec<String>,
    /// The amount of work that was done, in blocks or packets.
    pub done: u64,
    /// True where all of the work was done.
    pub complete: bool,
}

impl ZooDriver {
    /// All subjects, in the order of the table.
    pub const ALL: [ZooDriver; 2] = [ZooDriver::Disk, ZooDriver::Net];

    /// The subjects that the user asked for.
    pub fn wanted(harmed: Harmed) -> Vec<ZooDriver> {
        match harmed {
            Harmed::Disk => vec![ZooDriver::Disk],
            Harmed::Net => vec![ZooDriver::Net],
            Harmed::All => ZooDriver::ALL.to_vec(),
        }
    }

    /// The driver's folder in the zoo.
    pub fn driver(self) -> &'static str {
        match self {
            ZooDriver::Disk => "gate-disk",
            ZooDriver::Net => "gate-net",
        }
    }

    /// The device and its back end, as `check --device` takes them; their files are in the folder where QEMU
    /// starts.
    pub fn device(self) -> &'static str {
        match self {
            ZooDriver::Disk => {
                "nvme,serial=guardrail,drive=image + -drive if=none,id=image,format=raw,cache=unsafe,file=disk.raw"
            }
            ZooDriver::Net => {
                "e1000,netdev=net,romfile= + -netdev user,id=net,ipv6=off,restrict=on \
                 -object filter-dump,id=dump,netdev=net,queue=rx,file=net.pcap"
            }
        }
    }

    /// The approximate duration of its work in milliseconds.
    pub fn work_millis(self) -> u64 {
        match self {
            ZooDriver::Disk => 200,
            ZooDriver::Net => 2200,
        }
    }

    /// Makes the files that the run starts with, and returns the workload's variables.
    pub fn begin(self, folder: &Path) -> Result<Vec<(String, String)>, HostError> {
        match self {
            ZooDriver::Disk => {
                sectors::create(&folder.join("disk.raw"))?;
                Ok(sectors::variables())
            }
            ZooDriver::Net => Ok(packets::variables()),
        }
    }

    /// Checks the files that the run left.
    pub fn harm(self, folder: &Path) -> Result<Harm, HostError> {
        match self {
            ZooDriver::Disk => {
                let verdict = sectors::verify(&folder.join("disk.raw"))?;
                Ok(Harm {
                    wrong: verdict.wrong,
                    partial: verdict.partial,
                    done: verdict.copied.iter().sum(),
                    complete: verdict.is_complete(),
                    told: verdict.examples,
                })
            }
            ZooDriver::Net => {
                let dump = folder.join("net.pcap");
                // QEMU sent nothing if it ended before it made the dump.
                if dump.metadata().map_or(0, |file| file.len()) == 0 {
                    return Ok(Harm::default());
                }
                let verdict = packets::verify(&dump)?;
                Ok(Harm {
                    wrong: verdict.wrong,
                    partial: 0,
                    done: verdict.sent.iter().copied().map(u64::from).sum(),
                    complete: verdict.is_complete(),
                    told: verdict.examples,
                })
            }
        }
    }
}
