//! Parses a device's PCI configuration space.

/// Bytes of configuration space that configuration mechanism #1 reaches.
pub const CONFIG: usize = 256;
/// The command register.
pub const COMMAND: u64 = 4;
/// The bit that makes the device answer at its ports.
pub const PORTS: u16 = 1;
/// The bit that makes the device answer at its memory.
pub const MEMORY: u16 = 2;
/// The first base address register.
pub const BAR: u64 = 0x10;

/// The capability for message-signaled interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Msi {
    /// The offset of the capability in configuration space.
    pub at: u64,
    /// True where addresses have 64 bits.
    pub wide: bool,
    /// True where it has a mask bit for each interrupt.
    pub masks: bool,
    /// The number of interrupts.
    pub vectors: u32,
}

impl Msi {
    /// The offset of the data word.
    pub fn data(&self) -> u64 {
        self.at + if self.wide { 12 } else { 8 }
    }

    /// True for bytes with the address and the masks of interrupts, which the gate owns.
    pub fn owns(&self, offset: u64) -> bool {
        let end = self.data() + if self.masks { 12 } else { 4 };
        (self.at + 4..end).contains(&offset)
    }
}

/// The capability for a table of interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsiX {
    /// The offset of the capability in configuration space.
    pub at: u64,
    /// The number of interrupts.
    pub vectors: u32,
    /// The base address register whose memory holds the table.
    pub bar: usize,
    /// The offset of the table in that memory.
    pub table: u64,
}

/// The capabilities that the gate uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Message-signaled interrupts; `None` where the device has none.
    pub msi: Option<Msi>,
    /// Message-signaled interrupts with a table; `None` where the device has none.
    pub msi_x: Option<MsiX>,
}

impl Capabilities {
    /// Reads the list of capabilities in configuration space; a cyclic list ends.
    pub fn of(config: &[u8; CONFIG]) -> Capabilities {
        let word = |at: usize| config.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]));
        let long = |at: usize| u32::from(word(at)) | u32::from(word(at + 2)) << 16;
        let mut found = Capabilities::default();
        if word(6) & 0x10 == 0 {
            return found;
        }
        let mut at = usize::from(config[0x34] & !3);
        for _ in 0..CONFIG / 4 {
            if !(0x40..=CONFIG - 4).contains(&at) {
                break;
            }
            match config[at] {
                5 => {
                    let control = word(at + 2);
                    let msi = Msi {
                        at: at as u64,
                        wide: control & 0x80 != 0,
                        masks: control & 0x100 != 0,
                        vectors: 1 << (control >> 1 & 7).min(5),
                    };
                    found.msi = Some(msi);
                }
                0x11 => {
                    let place = long(at + 4);
                    found.msi_x = Some(MsiX {
                        at: at as u64,
                        vectors: u32::from(word(at + 2) & 0x7ff) + 1,
                        bar: (place & 7) as usize,
                        table: u64::from(place & !7),
                    });
                }
                _ => {}
            }
            at = usize::from(config[at + 1] & !3);
        }
        found
    }
}

/// The sizes of the base address registers' spaces, from the values that they read after a write of all ones.
pub fn sizes(bars: [u32; 6]) -> [u64; 6] {
    let mut sizes = [0; 6];
    let mut index = 0;
    while index < 6 {
        let low = bars[index];
        let wide = low & 7 == 4 && index < 5;
        let mask = if low & 1 != 0 {
            u64::from(low & !3) | 0xffff_ffff_ffff_0000
        } else if wide {
            u64::from(low & !15) | u64::from(bars[index + 1]) << 32
        } else {
            u64::from(low & !15) | 0xffff_ffff_0000_0000
        };
        if low & !15 != 0 {
            sizes[index] = (!mask).wrapping_add(1);
        }
        index += if wide { 2 } else { 1 };
    }
    sizes
}

/// Where the memory and ports are, from the command register and the base address registers: the address, and
/// true for ports. `None` where the device does not answer.
pub fn places(command: u16, bars: [u32; 6]) -> [Option<(u64, bool)>; 6] {
    let mut places = [None; 6];
    let mut index = 0;
    while index < 6 {
        let low = bars[index];
        let wide = low & 7 == 4 && index < 5;
        let port = low & 1 != 0;
        let address = match (port, wide) {
            (true, _) => u64::from(low & !3),
            (false, true) => u64::from(low & !15) | u64::from(bars[index + 1]) << 32,
            (false, false) => u64::from(low & !15),
        };
        let answers = command & if port { PORTS } else { MEMORY } != 0;
        places[index] = (answers && address != 0).then_some((address, port));
        index += if wide { 2 } else { 1 };
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_found() {
        let mut config = [0; CONFIG];
        assert_eq!(Capabilities::of(&config), Capabilities::default());
        config[6] = 0x10;
        config[0x34] = 0x40;
        config[0x40..0x44].copy_from_slice(&[0x11, 0x50, 0x40, 0x80]);
        config[0x44..0x48].copy_from_slice(&[0x04, 0x20, 0, 0]);
        config[0x50..0x54].copy_from_slice(&[0x05, 0x40, 0x86, 0x01]);
        let found = Capabilities::of(&config);
        assert_eq!(found.msi_x, Some(MsiX { at: 0x40, vectors: 65, bar: 4, table: 0x2000 }));
        let msi = found.msi.unwrap();
        assert_eq!(msi, Msi { at: 0x50, wide: true, masks: true, vectors: 8 });
        assert_eq!([0x53, 0x54, 0x5c, 0x67, 0x68].map(|at| msi.owns(at)), [false, true, true, true, false]);
    }

    #[test]
    fn sizes_and_places_follow_from_the_registers() {
        let ones = [0xfffe_0000, 0xffff_ffc1, 0xffff_c004, 0xffff_ffff, 0, 0];
        assert_eq!(sizes(ones), [0x2_0000, 0x40, 0x4000, 0, 0, 0]);
        let bars = [0xfebc_0000, 0xc001, 0x4, 0x1, 0, 0];
        let memory = (0xfebc_0000, false);
        assert_eq!(
            places(PORTS | MEMORY, bars)[..4],
            [Some(memory), Some((0xc000, true)), Some((1 << 32, false)), None]
        );
        assert_eq!(places(MEMORY, bars)[1], None);
        assert_eq!(places(0, bars), [None; 6]);
    }
}
