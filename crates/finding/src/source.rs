//! The lines of source code of one instruction: that of its function, and those of functions inlined there.

use serde::{Deserialize, Serialize};

/// Most inlined functions that are kept of one instruction.
const MAX_INLINED: usize = 32;

/// The folders of the kernel's `include/` and `arch/*/include/`, whose headers belong to no driver.
const KERNEL_FOLDERS: [&str; 33] = [
    "acpi",
    "asm",
    "asm-generic",
    "clocksource",
    "crypto",
    "cxl",
    "drm",
    "dt-bindings",
    "generated",
    "hyperv",
    "keys",
    "kunit",
    "kvm",
    "linux",
    "math-emu",
    "media",
    "memory",
    "misc",
    "net",
    "pcmcia",
    "ras",
    "rdma",
    "rv",
    "scsi",
    "soc",
    "sound",
    "target",
    "trace",
    "uapi",
    "ufs",
    "vdso",
    "video",
    "xen",
];

/// An address in the kernel's image, as it is linked: what KASLR adds is taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkAddress(pub u64);

/// A line of source code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// Path of the file, as in the debug information.
    pub file: String,
    /// Number of the line, from 1.
    pub line: u32,
}

/// A function that the compiler has inlined into the one that holds the instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inlined {
    /// Name of the function, `?` where it is not known.
    pub function: String,
    /// The line in the function: of the instruction, or of the call of the function inlined into this one.
    #[serde(default)]
    pub location: Option<Location>,
}

/// What debug information says about an instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The line in the function that holds the instruction; `None` where it is not known.
    pub location: Option<Location>,
    /// The functions inlined at the instruction, innermost first.
    pub inlined: Vec<Inlined>,
}

impl Source {
    /// Makes it from functions, files and lines, innermost first. The last function is not inlined. An empty
    /// file or line 0 is not known.
    pub fn of<F: Into<(Option<String>, String, u32)>>(chain: impl IntoIterator<Item = F>) -> Source {
        let mut inlined: Vec<Inlined> = chain
            .into_iter()
            .map(F::into)
            .map(|(function, file, line)| Inlined {
                function: function.unwrap_or_else(|| "?".to_owned()),
                location: (line != 0 && !file.is_empty()).then_some(Location { file, line }),
            })
            .collect();
        let location = inlined.iter().rev().find_map(|one| one.location.clone());
        inlined.pop();
        inlined.truncate(MAX_INLINED);
        Source { location, inlined }
    }
}

impl Location {
    /// Whether the file is one of the kernel's shared headers, by its path.
    pub fn is_kernel_header(&self) -> bool {
        let mut parts = self.file.split('/');
        let header = self.file.ends_with(".h");
        header
            && parts.any(|part| part == "include")
            && parts.next().is_some_and(|part| KERNEL_FOLDERS.contains(&part))
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;

    fn at(file: &str, line: u32) -> Location {
        Location { file: file.to_owned(), line }
    }

    fn frame(chain: &[(&str, &str, u32)]) -> Frame {
        let chain = chain.iter().map(|&(name, file, line)| (Some(name.to_owned()), file.to_owned(), line));
        let Source { location, inlined } = Source::of(chain);
        Frame { function: "probe".to_owned(), location, inlined, ..Frame::default() }
    }

    #[test]
    fn the_line_at_fault_is_the_innermost_of_the_driver() {
        let probe = ("probe", "drivers/a/a.c", 70);
        let own = frame(&[("fill", "drivers/a/a.h", 12), probe]);
        assert_eq!(own.source(), Some(&at("drivers/a/a.h", 12)));
        assert_eq!(own.location, Some(at("drivers/a/a.c", 70)));
        let kernel =
            frame(&[("readl", "arch/x86/include/asm/io.h", 60), ("get", "drivers/a/a.c", 20), probe]);
        assert_eq!(kernel.source(), Some(&at("drivers/a/a.c", 20)));
        assert_eq!(kernel.inlined.len(), 2);
        assert_eq!(
            frame(&[("readl", "include/asm-generic/io.h", 9), probe]).source(),
            Some(&at(probe.1, 70))
        );
        assert_eq!(frame(&[]).source(), None);
        // The caller's line is not known, and the line of the inlined function is better than nothing.
        assert_eq!(frame(&[("fill", "a.h", 12), ("probe", "", 0)]).source(), Some(&at("a.h", 12)));
    }

    #[test]
    fn headers_of_a_driver_are_not_the_kernels() {
        for file in
            ["include/linux/slab.h", "linux/arch/x86/include/asm/io.h", "/usr/src/l/include/net/sock.h"]
        {
            assert!(at(file, 1).is_kernel_header(), "{file}");
        }
        for file in ["drivers/a/include/a.h", "zoo/lib/zoo.h", "linux/a.h", "include/linux/a.c", "include"] {
            assert!(!at(file, 1).is_kernel_header(), "{file}");
        }
    }

    #[test]
    fn a_chain_without_end_is_cut() {
        let chain: Vec<_> = (1..1000).map(|line| ("f", "a.c", line)).collect();
        assert_eq!(frame(&chain).inlined.len(), MAX_INLINED);
        assert_eq!(frame(&chain).location, Some(at("a.c", 999)));
    }
}
