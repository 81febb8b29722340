//! The shape of a device: what its base address registers are, and how it interrupts.
//!
//! No ID says that, so it comes from the driver's code. A driver that reads memory where the device has ports faults, and
//! one that asks ports where the device has memory asks others: a wrong shape would show faults that are none.

use crate::functions::functions;
use guardrail_binfmt::module::ModuleImage;
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use rustc_hash::FxHashMap;

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

/// Large enough for what drivers map, whatever size they read, and small enough for all of them below 4 GiB.
const MEMORY: Bar = Bar::Memory(16 << 20);
const PORTS: Bar = Bar::Ports(256);

/// The vectors of a device with MSI-X.
pub(crate) const VECTORS: u16 = 16;
/// The register with the table of vectors, the last one, and where the table and the pending bits are in it.
pub(crate) const TABLE: (u32, u32, u32) = (5, 0xf_0000, 0xf_8000);

/// Functions that map a base address register, whose number is their second argument.
const MAP: [&str; 6] =
    ["pci_iomap", "pcim_iomap", "pci_iomap_range", "pci_iomap_wc", "pci_ioremap_bar", "pci_ioremap_wc_bar"];
/// Functions that map the registers of a mask, their second argument.
const MAP_MASK: [&str; 2] = ["pcim_iomap_regions", "pcim_iomap_regions_request_all"];
/// Functions that map memory at an address, their first argument.
const REMAP: [&str; 7] =
    ["ioremap", "ioremap_wc", "ioremap_cache", "ioremap_uc", "memremap", "devm_ioremap", "devm_ioremap_wc"];

/// Where a kernel keeps the base address registers of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Resources {
    /// The offset of `pci_dev.resource`.
    pub offset: u64,
    /// The size of a `struct resource`, which begins with its first address.
    pub size: u64,
}

/// A shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub(crate) bars: [Bar; 6],
    /// MSI, MSI-X and PCI Express besides the interrupt line.
    pub(crate) modern: bool,
}

impl Shape {
    /// The shape that a driver expects. `resources` is where its kernel keeps the addresses; without, only what is
    /// mapped by number is known.
    ///
    /// A register that is mapped is memory; for the functions that can map ports, too, memory is as good. Of the others,
    /// those of a driver with `in` or `out` instructions are ports.
    pub fn of(driver: &ModuleImage, resources: Option<Resources>) -> Shape {
        let mut use_ = Use { resources, ..Use::default() };
        let mut called: FxHashMap<usize, FxHashMap<u64, &str>> = FxHashMap::default();
        for (section, at, code) in functions(driver) {
            let called = called.entry(section).or_insert_with(|| {
                let name = |symbol: usize| Some(driver.symbol_name(driver.symbols().get(symbol)?));
                let relocations = driver.relocations(section);
                relocations.filter_map(|rela| Some((rela.offset, name(rela.symbol)?))).collect()
            });
            use_.read(code, at, called);
        }
        use_.shape()
    }
}

/// What a driver does with base address registers.
#[derive(Debug, Default)]
struct Use {
    resources: Option<Resources>,
    /// Those that it maps, a bit for each.
    mapped: u64,
    /// It has instructions for ports.
    ports: bool,
}

impl Use {
    fn shape(&self) -> Shape {
        let bar = |number: usize| if self.ports && self.mapped >> number & 1 == 0 { PORTS } else { MEMORY };
        Shape { bars: std::array::from_fn(bar), modern: !self.ports }
    }

    /// Reads a function in the order of its code. `called` names the function of each call, by the place of its
    /// displacement.
    fn read(&mut self, code: &[u8], at: u64, called: &FxHashMap<u64, &str>) {
        // Which register has the first address of which base address register, and the last number for the second
        // argument.
        let mut holds: FxHashMap<Register, u64> = FxHashMap::default();
        let mut second = None;
        for insn in Decoder::with_ip(64, code, at, DecoderOptions::NONE) {
            let to = first_register(&insn);
            match insn.mnemonic() {
                Mnemonic::In | Mnemonic::Out => self.ports = true,
                Mnemonic::Call | Mnemonic::Jmp => {
                    let name = called.get(&(insn.next_ip().wrapping_sub(4))).copied().unwrap_or_default();
                    let number = second.take();
                    match name {
                        _ if MAP.contains(&name) => {
                            self.mapped |= number.map_or(0, |number: u64| 1u64 << (number & 63))
                        }
                        _ if MAP_MASK.contains(&name) => self.mapped |= number.unwrap_or(0),
                        _ if REMAP.contains(&name) => {
                            for register in [Register::RDI, Register::RSI] {
                                self.mapped |= holds.get(&register).map_or(0, |number| 1u64 << (number & 63));
                            }
                        }
                        _ => {}
                    }
                    holds.retain(|register, _| !CHANGED.contains(register));
                }
                Mnemonic::Mov => {
                    let held = match insn.op1_kind() {
                        OpKind::Memory => self.resource(&insn),
                        OpKind::Register => holds.get(&insn.op1_register().full_register()).copied(),
                        _ => None,
                    };
                    if let Some(to) = to {
                        match held {
                            Some(number) => holds.insert(to, number),
                            None => holds.remove(&to),
                        };
                        if to == Register::RSI {
                            let number = insn.op1_kind() == OpKind::Immediate32;
                            second = number.then(|| insn.immediate32().into());
                        }
                    }
                }
                Mnemonic::Xor if to == Some(Register::RSI) && insn.op1_kind() == OpKind::Register => {
                    second = (insn.op1_register().full_register() == Register::RSI).then_some(0);
                }
                _ => {
                    if let Some(to) = to.filter(|_| insn.mnemonic() != Mnemonic::Test) {
                        holds.remove(&to);
                    }
                }
            }
        }
    }

    /// The base address register whose first address an instruction loads.
    fn resource(&self, insn: &Instruction) -> Option<u64> {
        let Resources { offset, size } = self.resources?;
        let inside = insn.memory_displacement64().checked_sub(offset)?;
        let (number, rest) = (inside.checked_div(size)?, inside % size);
        (number < 6 && rest == 0 && insn.memory_index() == Register::None).then_some(number)
    }
}

/// Registers that a call may change.
const CHANGED: [Register; 9] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
];

fn first_register(insn: &Instruction) -> Option<Register> {
    let is = insn.op_count() > 0 && insn.op0_kind() == OpKind::Register;
    is.then(|| insn.op0_register().full_register()).filter(|register| register.is_gpr64())
}

#[cfg(test)]
pub(crate) mod testing {
    use super::{MEMORY, PORTS, Shape};

    /// Memory in all registers.
    pub(crate) const MODERN: Shape = Shape { bars: [MEMORY; 6], modern: true };
    /// Ports, and memory in every second register.
    pub(crate) const OLD: Shape =
        Shape { bars: [PORTS, MEMORY, PORTS, MEMORY, PORTS, MEMORY], modern: false };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(code: &[u8], called: &[(u64, &str)]) -> Shape {
        let mut use_ = Use { resources: Some(Resources { offset: 0x390, size: 0x40 }), ..Use::default() };
        use_.read(code, 0, &called.iter().copied().collect());
        use_.shape()
    }

    #[test]
    fn a_driver_without_port_instructions_has_memory() {
        assert_eq!(shape(&[0xc3], &[]), testing::MODERN);
    }

    #[test]
    fn what_is_mapped_is_memory_and_the_rest_of_a_driver_with_ports_is_ports() {
        // in (%dx),%al; mov $0x1,%esi; call pci_iomap; xor %esi,%esi; call other
        let code = [0xec, 0xbe, 1, 0, 0, 0, 0xe8, 0, 0, 0, 0, 0x31, 0xf6, 0xe8, 0, 0, 0, 0];
        let mut wanted = [PORTS; 6];
        wanted[1] = MEMORY;
        assert_eq!(shape(&code, &[(7, "pci_iomap"), (14, "other")]), Shape { bars: wanted, modern: false });
        // out %al,(%dx); mov $0x5,%esi; call pcim_iomap_regions
        let code = [0xee, 0xbe, 5, 0, 0, 0, 0xe8, 0, 0, 0, 0];
        assert_eq!(shape(&code, &[(7, "pcim_iomap_regions")]).bars[..3], [MEMORY, PORTS, MEMORY]);
        // in (%dx),%al; mov 0x410(%rbx),%rax; mov %rax,%rdi; call ioremap
        let code = [0xec, 0x48, 0x8b, 0x83, 0x10, 0x04, 0, 0, 0x48, 0x89, 0xc7, 0xe8, 0, 0, 0, 0];
        assert_eq!(shape(&code, &[(12, "ioremap")]).bars[..3], [PORTS, PORTS, MEMORY]);
    }

    #[test]
    fn code_that_is_none_is_read_to_its_end() {
        shape(&[0xff; 100], &[]);
        // mov $0xffffffff,%esi; call pci_iomap
        shape(&[0xbe, 0xff, 0xff, 0xff, 0xff, 0xe8, 0, 0, 0, 0], &[(6, "pci_iomap")]);
    }
}
