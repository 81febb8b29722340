//! The workloads, each a fixed amount of work, and the paper's figures for similar ones: tables 5 to 7 of
//! "Fast Byte-Granularity Software Fault Isolation" (2009).

use crate::common::Device;

/// What the amount of work is counted in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unit {
    /// KiB that arrived, as the guest reports.
    Kib,
    /// Packets that arrived, as the guest reports.
    Packet,
    /// A fixed amount that stands here: so many of these units.
    Fixed(f64, &'static str),
}

impl Unit {
    /// The unit as a word for tables.
    pub fn word(self) -> &'static str {
        match self {
            Unit::Kib => "KiB",
            Unit::Packet => "packet",
            Unit::Fixed(_, word) => word,
        }
    }
}

/// A workload in the guest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// The name for `--only`.
    pub name: &'static str,
    /// The kind of device whose driver serves it.
    pub device: Device,
    /// The name for `guardrail profile --workload`.
    pub script: &'static str,
    /// Variables of the script, as `NAME=VALUE`.
    pub variables: &'static [&'static str],
    /// Whether a server of the host takes part.
    pub server: bool,
    /// What the work is counted in.
    pub unit: Unit,
    /// What the paper measured: more CPU time of the kernel in percent, and with which driver.
    pub paper: &'static [(&'static str, f64)],
}

const fn transfer(
    name: &'static str,
    variables: &'static [&'static str],
    unit: Unit,
    paper: &'static [(&'static str, f64)],
) -> Workload {
    Workload { name, device: Device::Network, script: "bench-transfer", variables, server: true, unit, paper }
}

/// Packets are of 16 bytes, as in the paper. Packets to the guest are sent no faster than an emulated
/// processor takes them.
const WORKLOADS: [Workload; 7] = [
    transfer(
        "tcp-send",
        &["PROTOCOL=tcp", "DIRECTION=send", "BYTES=67108864"],
        Unit::Kib,
        &[("intelpro", 13.57), ("xframe", 11.94)],
    ),
    transfer(
        "tcp-receive",
        &["PROTOCOL=tcp", "DIRECTION=receive", "BYTES=67108864"],
        Unit::Kib,
        &[("intelpro", 11.69), ("xframe", 3.12)],
    ),
    transfer(
        "udp-send",
        &["PROTOCOL=udp", "DIRECTION=send", "BYTES=480000", "LENGTH=16", "RATE=0"],
        Unit::Packet,
        &[("intelpro", -1.74), ("xframe", 16.06)],
    ),
    transfer(
        "udp-receive",
        &["PROTOCOL=udp", "DIRECTION=receive", "BYTES=160000", "LENGTH=16", "RATE=256K"],
        Unit::Packet,
        &[("intelpro", 3.89), ("xframe", 6.86)],
    ),
    Workload {
        name: "postmark",
        device: Device::Disk,
        script: "bench-postmark",
        variables: &["TRANSACTIONS=2000"],
        server: false,
        unit: Unit::Fixed(2000.0, "transaction"),
        paper: &[("disk+classnp", 2.88), ("ramdisk", 0.0), ("usbport+usbehci", 0.91)],
    },
    Workload {
        name: "disk",
        device: Device::Disk,
        script: "bench-disk",
        variables: &["MB=32", "ROUNDS=2"],
        server: false,
        unit: Unit::Fixed(2048.0, "64 KiB request"),
        paper: &[],
    },
    Workload {
        name: "audio",
        device: Device::Sound,
        script: "bench-audio",
        variables: &["SECONDS=10"],
        server: false,
        unit: Unit::Fixed(10.0, "second"),
        paper: &[],
    },
];

/// Table 7: transactions per second with the kmdf driver, by the size of its buffer. There is no driver like
/// it here.
pub const KMDF: [(&str, f64); 4] = [("1", -8.76), ("512", -7.08), ("4K", -2.48), ("64K", -1.14)];

/// The workloads with these names; all where there are none.
pub fn chosen(names: &[String]) -> Result<Vec<Workload>, String> {
    crate::common::chosen("--only", &WORKLOADS, |workload| workload.name, names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_chosen_by_name() {
        assert_eq!(chosen(&[]).unwrap().len(), WORKLOADS.len());
        assert_eq!(chosen(&["disk".to_owned()]).unwrap()[0].script, "bench-disk");
        assert!(chosen(&["dsk".to_owned()]).unwrap_err().contains("there are tcp-send"));
    }

    /// Counting begins and ends with steps of the scripts. The guest has steps of its own: it loads the driver and unloads it.
    #[test]
    fn no_step_has_the_name_of_one_of_the_guests() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../guest/benchmarks");
        for workload in WORKLOADS {
            let script = std::fs::read_to_string(format!("{folder}/{}.sh", workload.script)).unwrap();
            let steps: Vec<&str> = script.lines().filter_map(|line| line.strip_prefix("step ")).collect();
            let has = |name: &str| steps.iter().any(|step| step.split(' ').next() == Some(name));
            assert!(
                has("work") && has("worked") && !has("load") && !has("unload"),
                "{}: {steps:?}",
                workload.name
            );
        }
    }
}
