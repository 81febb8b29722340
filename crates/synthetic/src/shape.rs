//! The shapes of a device: what its base address registers are, and how it interrupts. No ID says that, so a run has a
//! device of each shape.

use serde::{Deserialize, Serialize};

/// A base address register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bar {
    /// Memory, of so many bytes.
    Memory(u64),
    /// Ports, of so many bytes.
    Ports(u64),
}

impl Bar {
    pub(crate) fn size(self) -> u64 {
        match self {
            Bar::Memory(size) | Bar::Ports(size) => size,
        }
    }
}

/// A shape of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// Memory in all registers, MSI, MSI-X and PCI Express: devices of this century.
    Memory,
    /// Ports first and memory second, with an interrupt line: devices of the nineties.
    PortsFirst,
    /// Memory first and ports second, with MSI.
    MemoryFirst,
    /// Ports alone, with an interrupt line.
    Ports,
}

/// Large enough for what drivers map, and small enough for 24 of them below 4 GiB.
const MEMORY: Bar = Bar::Memory(1 << 20);
const PORTS: Bar = Bar::Ports(256);

/// The vectors of a device with MSI-X.
pub(crate) const VECTORS: u16 = 16;
/// The register with the table of vectors, the last one, and where the table and the pending bits are in it.
pub(crate) const TABLE: (u32, u32, u32) = (5, 0xf_0000, 0xf_8000);

impl Shape {
    /// All shapes, the most usual first.
    pub const ALL: [Shape; 4] = [Shape::Memory, Shape::PortsFirst, Shape::MemoryFirst, Shape::Ports];

    pub(crate) fn bars(self) -> [Bar; 6] {
        match self {
            Shape::Memory => [MEMORY; 6],
            Shape::PortsFirst => [PORTS, MEMORY, PORTS, MEMORY, PORTS, MEMORY],
            Shape::MemoryFirst => [MEMORY, PORTS, MEMORY, PORTS, MEMORY, PORTS],
            Shape::Ports => [PORTS; 6],
        }
    }

    pub(crate) fn has_msi(self) -> bool {
        matches!(self, Shape::Memory | Shape::MemoryFirst)
    }

    pub(crate) fn has_vectors(self) -> bool {
        self == Shape::Memory
    }

    pub(crate) fn is_express(self) -> bool {
        self == Shape::Memory
    }
}
