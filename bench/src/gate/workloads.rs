//! The workloads: Figures 6.3 and 6.4 of the thesis, and audio playback.

use super::load::Load;
use crate::common::Device;

/// A workload in the guest.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// The name for `--only`.
    pub name: &'static str,
    /// The kind of device whose driver serves it.
    pub device: Device,
    /// The name for `guardrail check --workload`.
    pub script: &'static str,
    /// The load from outside; without one, the time of the guest's step `load` counts.
    pub load: Option<Load>,
}

const fn network(name: &'static str, script: &'static str, load: Load) -> Workload {
    Workload { name, device: Device::Network, script, load: Some(load) }
}

const WORKLOADS: [Workload; 10] = [
    network("web", "bench-web", Load::Web),
    network("memcached", "bench-memcached", Load::Memcached),
    network("tcp-send", "bench-stream", Load::Stream { udp: false, guest_sends: true }),
    network("tcp-receive", "bench-stream", Load::Stream { udp: false, guest_sends: false }),
    network("udp-send", "bench-stream", Load::Stream { udp: true, guest_sends: true }),
    network("udp-receive", "bench-stream", Load::Stream { udp: true, guest_sends: false }),
    network("tcp-request", "bench-request", Load::Request { udp: false }),
    network("udp-request", "bench-request", Load::Request { udp: true }),
    Workload { name: "postmark", device: Device::Disk, script: "bench-postmark", load: None },
    Workload { name: "audio", device: Device::Sound, script: "bench-audio", load: None },
];

/// The name for `--only` that times single accesses.
const REGISTERS: &str = "registers";

/// The workloads with these names, all where there are none, and whether single accesses are timed.
pub fn chosen(names: &[String]) -> Result<(Vec<Workload>, bool), String> {
    if names.is_empty() {
        return Ok((WORKLOADS.to_vec(), true));
    }
    let mut chosen = Vec::new();
    for name in names.iter().filter(|name| *name != REGISTERS) {
        let found = WORKLOADS.iter().find(|workload| workload.name == name);
        let known = || WORKLOADS.map(|workload| workload.name).join(", ");
        chosen.push(*found.ok_or_else(|| {
            format!("--only has no workload '{name}'; there are {} and {REGISTERS}", known())
        })?);
    }
    Ok((chosen, names.iter().any(|name| name == REGISTERS)))
}

impl Workload {
    /// The unit of its figures.
    pub fn unit(&self) -> &'static str {
        self.load.map_or("s", |load| load.unit())
    }

    /// Variables of the script. Loads from outside end by themselves.
    pub fn variables(&self, seconds: u32) -> Vec<String> {
        match self.name {
            // This takes about as long as the loads: 1000 transactions take about a second.
            "postmark" => vec![format!("TRANSACTIONS={}", seconds * 1000)],
            "audio" => vec![format!("SECONDS={seconds}")],
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_chosen_by_name() {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (chosen_ones, registers) = chosen(&names(&["audio", "registers"])).unwrap();
        assert_eq!((chosen_ones.len(), registers), (1, true));
        assert_eq!(chosen(&[]).unwrap().0.len(), WORKLOADS.len());
        assert!(chosen(&names(&["wep"])).unwrap_err().contains("web, memcached"));
    }
}
