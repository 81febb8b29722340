//! The command line of the QEMU that runs the device.

use super::doorbell::VECTORS;
use crate::error::{Context, Error, Result};
use guardrail_jail::Jail;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The slot of the device on the bus.
pub const SLOT: u32 = 4;
/// The slot of the doorbell.
pub const DOORBELL_SLOT: u32 = 3;

/// The model of the device and its back ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// The QEMU program with the arguments that it needs to start, as [`Options::program`] takes it from a
    /// command.
    pub program: Vec<OsString>,
    /// Variables of QEMU's environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The model of the device: the PCI function that the driver drives.
    pub model: String,
    /// The values of QEMU's `-device` options for it, in order.
    pub devices: Vec<String>,
    /// Other arguments of QEMU for its back ends: network, disk, sound.
    pub arguments: Vec<String>,
    /// A file for QEMU's own log of all accesses to device memory; it is large.
    pub trace: Option<PathBuf>,
    /// What that QEMU reaches, besides the small file that it starts with and its log.
    pub reach: Jail,
}

impl Options {
    /// Takes program, arguments and environment from a command.
    pub fn program(mut self, command: &Command) -> Options {
        self.program =
            [command.get_program()].into_iter().chain(command.get_args()).map(Into::into).collect();
        self.environment = command
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .collect();
        self
    }

    /// All that QEMU reaches but the file that it starts with. A fault of a device model that the guest exploits must
    /// not leave this process.
    pub(crate) fn whole_reach(&self) -> Jail {
        self.trace.iter().fold(self.reach.clone(), Jail::writes)
    }

    /// Creates the file for QEMU's log: QEMU may write it, but create none.
    pub(crate) fn make_trace(&self) -> Result<()> {
        let Some(trace) = &self.trace else { return Ok(()) };
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(trace)
            .map(drop)
            .context("create the log of the device")
    }

    /// Checks, without starting anything, whether the device can run in a QEMU of its own.
    pub fn check(&self) -> Result<()> {
        self.placed().map(|_| ())
    }

    /// The values of the `-device` options, with the address of the function that is driven.
    fn placed(&self) -> Result<Vec<String>> {
        let bad = |why: String| Error::Device { why };
        let model = |device: &str| device.split(',').next().unwrap_or_default() == self.model;
        let mut devices = self.devices.clone();
        let Some(device) = devices.iter_mut().find(|device| model(device)) else {
            return Err(bad(format!(
                "{} is part of the machine; only a device that is added to it can stand elsewhere",
                self.model
            )));
        };
        if device.contains(",addr=") {
            return Err(bad(format!("'{device}' has an address of its own; leave it out")));
        }
        *device += &format!(",addr={SLOT:02x}.0,romfile=");
        Ok(devices)
    }

    /// The command line. `memory` is the guest's RAM, of `mib` MiB; `rom` is what the CPU runs.
    pub(super) fn command(
        &self,
        memory: &str,
        mib: u32,
        rom: &Path,
        channels: [(&str, i32); 3],
    ) -> Result<Command> {
        let Some((program, arguments)) = self.program.split_first() else {
            return Err(Error::Device { why: "no QEMU is named".into() });
        };
        let mut command = Command::new(program);
        command.args(arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-cpu", "qemu64", "-smp", "1"]);
        command.args(["-accel", "tcg,thread=single", "-machine", "pc,vmport=off,memory-backend=ram"]);
        command.arg("-m").arg(mib.to_string());
        command
            .arg("-object")
            .arg(format!("memory-backend-file,id=ram,size={mib}M,mem-path={memory},share=on"));
        command.arg("-bios").arg(rom);
        for (id, fd) in channels {
            command.arg("-chardev").arg(format!("socket,id={id},fd={fd}"));
        }
        command.args(["-object", "qtest,id=gate,chardev=qtest", "-mon", "chardev=qmp,mode=control"]);
        command.arg("-device").arg(format!(
            "ivshmem-doorbell,chardev=doorbell,vectors={VECTORS},addr={DOORBELL_SLOT:02x}.0,romfile="
        ));
        command.args(&self.arguments);
        for device in self.placed()? {
            command.arg("-device").arg(device);
        }
        if let Some(trace) = &self.trace {
            command
                .args(["-trace", "memory_region_ops_read", "-trace", "memory_region_ops_write", "-D"])
                .arg(trace);
        }
        Ok(command)
    }
}

/// The program of the CPU of the device's QEMU: it halts for good, but the machine's clocks continue.
pub fn rom() -> Vec<u8> {
    let mut rom = vec![0xf4; 64 << 10];
    // The first instruction is 16 bytes below the end: cli, hlt, and back to hlt.
    let start = rom.len() - 16;
    rom[start..start + 4].copy_from_slice(&[0xfa, 0xf4, 0xeb, 0xfd]);
    rom
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(options: &Options) -> Result<Vec<String>> {
        let command =
            options.command("/r", 512, Path::new("/rom"), [("qtest", 5), ("qmp", 6), ("doorbell", 7)])?;
        Ok(command.get_args().map(|word| word.to_string_lossy().into_owned()).collect())
    }

    #[test]
    fn only_the_driven_function_gets_an_address() {
        let mut options = Options {
            model: "lsi".into(),
            devices: vec!["lsi,id=hba".into(), "scsi-hd,bus=hba.0".into()],
            ..Options::default()
        }
        .program(Command::new("loader").arg("qemu").env("A", "b"));
        assert_eq!(options.environment, [("A".into(), "b".into())]);
        let words = arguments(&options).unwrap();
        assert_eq!(words[0], "qemu");
        assert!(words.contains(&"lsi,id=hba,addr=04.0,romfile=".to_owned()));
        assert!(words.contains(&"scsi-hd,bus=hba.0".to_owned()));
        assert!(words.contains(&"socket,id=doorbell,fd=7".to_owned()));
        assert!(options.check().is_ok());
        options.devices.remove(0);
        assert!(arguments(&options).unwrap_err().to_string().contains("is part of the machine"));
        options.program.clear();
        assert!(arguments(&options).is_err());
    }
}
