//! The loads: each a boot of the guest that measures several benchmarks.

/// A boot of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The name for `--workload`.
    pub name: &'static str,
    /// The guest's script.
    pub script: &'static str,
    /// The driver that the guest loads besides.
    pub driver: &'static str,
}

/// Where a benchmark spends its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// In the kernel, nearly all of it.
    Kernel,
    /// In user programs, nearly all of it.
    User,
    /// In both the kernel and user programs.
    Mixed,
}

impl Bound {
    /// Where the benchmark of this name spends its time.
    pub fn of(benchmark: &str) -> Bound {
        match benchmark {
            "user" => Bound::User,
            "ab" | "compile" => Bound::Mixed,
            _ => Bound::Kernel,
        }
    }

    /// The word for tables.
    pub fn word(self) -> &'static str {
        match self {
            Bound::Kernel => "kernel",
            Bound::User => "user",
            Bound::Mixed => "mixed",
        }
    }
}

const LOADS: [Load; 4] = [
    Load { name: "micro", script: "bench-kernel-micro", driver: "dummy" },
    Load { name: "files", script: "bench-kernel-files", driver: "virtio_blk" },
    Load { name: "web", script: "bench-kernel-web", driver: "dummy" },
    Load { name: "compile", script: "bench-kernel-compile", driver: "dummy" },
];

/// The loads with these names; all where there are none.
pub fn chosen(names: &[String]) -> Result<Vec<Load>, String> {
    crate::common::chosen("--workload", &LOADS, |load| load.name, names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_chosen_by_name() {
        assert_eq!(chosen(&[]).unwrap().len(), LOADS.len());
        assert_eq!(chosen(&["web".to_owned()]).unwrap()[0].script, "bench-kernel-web");
        assert!(chosen(&["wep".to_owned()]).unwrap_err().contains("there are micro, files"));
    }
}
