//! Call stacks of a running kernel, by its ORC tables.

use super::{Base, Kind, Layout, read};
use crate::image::KernelImage;

/// Where the registers of the caller are, for a stretch of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    base: Base,
    offset: i16,
    bp: Base,
    bp_offset: i16,
    kind: Kind,
}

/// The ORC tables of a kernel's image: link-time address and bytes of the places, and bytes of the entries.
/// `None` for a kernel without them.
pub fn tables(image: &KernelImage) -> Option<(u64, &[u8], &[u8])> {
    let section = |wanted: &str| {
        let (_, start, size) = image.sections().find(|section| section.0 == wanted)?;
        Some((start, image.bytes_at(start, size)?))
    };
    let (places_at, places) = section(".orc_unwind_ip")?;
    Some((places_at, places, section(".orc_unwind")?.1))
}

/// Largest stack of an x86-64 kernel, in bytes.
const STACK: u64 = 16 << 10;

/// Bytes of code that the search looks at together.
const BLOCK: u32 = 256;
/// Most bytes of code of a kernel or module; a table that covers more is damaged.
const MAX_CODE: u32 = 1 << 28;

/// Rules by code address, of the kernel's image or of a module.
#[derive(Debug)]
pub struct Unwinder {
    /// Offsets from `start`, sorted.
    places: Vec<u32>,
    rules: Vec<Rule>,
    /// For each [`BLOCK`] of code, how many places lie before it. The search then takes a few steps instead
    /// of twenty.
    blocks: Vec<u32>,
    start: u64,
    layout: Layout,
}

/// A frame of a stack: where it is, with the registers that lead to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Address of the instruction.
    pub pc: u64,
    /// The value of RSP at the instruction.
    pub sp: u64,
    /// The value of RBP at the instruction.
    pub bp: u64,
    /// Whether the code was interrupted at `pc`; otherwise `pc` is where a call returns to.
    pub interrupted: bool,
    /// Whether it is on another stack than the function that it called, or than what interrupted it.
    pub switched: bool,
}

impl Frame {
    /// A frame from which a walk begins.
    pub fn first(pc: u64, sp: u64, bp: u64, interrupted: bool) -> Frame {
        Frame { pc, sp, bp, interrupted, switched: false }
    }
}

impl Unwinder {
    /// The rules of the kernel's image (link-time addresses); `None` for a kernel without ORC tables.
    pub fn of_image(image: &KernelImage) -> Option<Unwinder> {
        let (places_at, places, entries) = tables(image)?;
        Unwinder::make(None, places_at, places, entries)
    }

    /// The rules of a kernel, from its two [`tables`].
    pub fn of_tables(places_at: u64, places: &[u8], entries: &[u8]) -> Option<Unwinder> {
        Unwinder::make(None, places_at, places, entries)
    }

    /// The rules of a module, from the two tables as they are in memory (`mod->arch`). `self` holds the
    /// kernel's rules, which have the same format.
    pub fn of_module(&self, places_at: u64, places: &[u8], entries: &[u8]) -> Option<Unwinder> {
        Unwinder::make(Some(self.layout), places_at, places, entries)
    }

    fn make(layout: Option<Layout>, places_at: u64, places: &[u8], entries: &[u8]) -> Option<Unwinder> {
        let entries = read(places_at, places, entries);
        let layout = layout.unwrap_or_else(|| Layout::of(&entries));
        let start = entries.first()?.address;
        let near = |address: u64| {
            u32::try_from(address.wrapping_sub(start)).ok().filter(|&distance| distance < MAX_CODE)
        };
        let rule = |entry: &super::Entry| Rule {
            base: layout.base(entry.sp.0),
            offset: entry.sp.1,
            bp: layout.base(entry.bp.0),
            bp_offset: entry.bp.1,
            kind: layout.kind(entry),
        };
        let (places, rules): (Vec<u32>, Vec<Rule>) =
            entries.iter().filter_map(|entry| Some((near(entry.address)?, rule(entry)))).unzip();
        let end = places.last()? / BLOCK + 2;
        let mut blocks = Vec::with_capacity(end as usize);
        let mut before = 0;
        for block in 0..end {
            while places.get(before).is_some_and(|&place| place < block * BLOCK) {
                before += 1;
            }
            blocks.push(before as u32);
        }
        Some(Unwinder { places, rules, blocks, start, layout })
    }

    fn rule(&self, pc: u64) -> Option<&Rule> {
        let at = u32::try_from(pc.checked_sub(self.start)?).ok()?;
        let block = (at / BLOCK) as usize;
        let from = self.blocks.get(block).map_or(self.places.len(), |&from| from as usize);
        let to = self.blocks.get(block + 1).map_or(self.places.len(), |&to| to as usize);
        let next = from + self.places[from..to].partition_point(|&place| place <= at);
        self.rules.get(next.checked_sub(1)?)
    }

    /// The frame of the caller. `slide` is what KASLR added to the addresses of these rules; `word` reads the
    /// stack. `None` at the end of a stack, and where no rule holds.
    pub fn caller(
        &self,
        frame: &Frame,
        slide: u64,
        mut word: impl FnMut(u64) -> Option<u64>,
    ) -> Option<Frame> {
        // A return address may belong to the next function, where the callee never returns.
        let pc = frame.pc.wrapping_sub(u64::from(!frame.interrupted));
        let rule = self.rule(pc.wrapping_sub(slide))?;
        let plus = |value: u64, offset: i16| value.wrapping_add_signed(offset.into());
        let sp = match rule.base {
            Base::Sp => plus(frame.sp, rule.offset),
            Base::Bp => plus(frame.bp, rule.offset),
            Base::AtSp => plus(word(frame.sp)?, rule.offset),
            Base::AtBp => word(plus(frame.bp, rule.offset))?,
            _ => return None,
        };
        let saved_bp = match rule.bp {
            Base::Caller => word(plus(sp, rule.bp_offset)),
            Base::Bp => word(plus(frame.bp, rule.bp_offset)),
            _ => None,
        };
        // `struct pt_regs` has rbp as its fifth word, rip and rsp as the 17th and 20th.
        let (pc, sp, bp, interrupted) = match rule.kind {
            Kind::Call => (word(sp.wrapping_sub(8))?, sp, saved_bp.unwrap_or(frame.bp), false),
            Kind::Regs => {
                let bp = saved_bp.or_else(|| word(sp.wrapping_add(4 * 8))).unwrap_or(frame.bp);
                (word(sp.wrapping_add(16 * 8))?, word(sp.wrapping_add(19 * 8))?, bp, true)
            }
            Kind::Partial => (word(sp)?, word(sp.wrapping_add(3 * 8))?, saved_bp.unwrap_or(frame.bp), true),
            Kind::Undefined => return None,
        };
        // The kernel's way onto the interrupt's stack leaves the old stack pointer there. Code that was
        // interrupted on the same stack lies above.
        let below = || sp.wrapping_sub(frame.sp) >= STACK;
        let switched = rule.base == Base::AtSp || interrupted && below();
        // Anything else is user code, or no code.
        (pc >> 63 != 0).then_some(Frame { pc, sp, bp, interrupted, switched })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const TABLE: u64 = 0xffff_ffff_9000_0000;
    const CODE: u64 = 0xffff_ffff_8000_0000;

    /// A table as kernels up to 6.3 write it: base 5 is rsp, 4 rbp, 1 the caller's stack pointer; kind 0 a
    /// call, 1 registers.
    fn table(rules: &[(u64, i16, u8, i16, u8, u8)]) -> Unwinder {
        let (mut places, mut entries) = (Vec::new(), Vec::new());
        for (i, &(at, offset, base, bp_offset, bp_base, kind)) in (0u64..).zip(rules) {
            let distance = (CODE + at).wrapping_sub(TABLE + 4 * i) as u32;
            places.extend_from_slice(&distance.to_le_bytes());
            entries.extend_from_slice(&offset.to_le_bytes());
            entries.extend_from_slice(&bp_offset.to_le_bytes());
            entries.extend_from_slice(&[base | bp_base << 4, kind]);
        }
        Unwinder::make(None, TABLE, &places, &entries).unwrap()
    }

    #[test]
    fn callers_are_found_through_calls_and_interrupts() {
        // The distance from table to code must fit in 32 bits, as in a kernel.
        let table = table(&[
            (0x100, 8, 5, 0, 0, 0),
            (0x101, 16, 5, -16, 1, 0),
            (0x400, 16, 4, 0, 0, 0),
            (0x900, 0, 5, 0, 0, 1),
            (0x1000, 0, 0, 0, 0, 0),
        ]);
        let memory: BTreeMap<u64, u64> = [
            (0x7000, 0x7100),       // the saved frame pointer
            (0x7008, CODE + 0x450), // the return address
            (0x7108, CODE + 0x910), // the caller of that, by its frame pointer
            (0x7110 + 128, CODE + 0x100),
            (0x7110 + 152, 0x8000),
            (0x8000, CODE + 0x1200),
        ]
        .into();
        let slide = 0x20_0000;
        let word =
            |addr: u64| memory.get(&addr).map(|&value| if value >= CODE { value + slide } else { value });
        let mut frame = Frame::first(CODE + 0x180 + slide, 0x7000, 1, true);
        let mut seen = Vec::new();
        while let Some(caller) = table.caller(&frame, slide, word) {
            frame = caller;
            seen.push((frame.pc - slide - CODE, frame.sp, frame.interrupted));
        }
        assert_eq!(
            seen,
            [(0x450, 0x7010, false), (0x910, 0x7110, false), (0x100, 0x8000, true), (0x1200, 0x8008, false)]
        );
        assert_eq!(table.caller(&Frame { pc: 0x1234, ..frame }, slide, word), None);
    }

    #[test]
    fn any_table_is_survived() {
        let table = table(&[(0, 8, 5, 0, 0, 0), (0x0fff_ffff, 8, 5, 0, 0, 0)]);
        for pc in [0, CODE - 1, CODE, CODE + 0x0fff_ffff, CODE + 0x1fff_ffff, u64::MAX] {
            for sp in [0, 8, u64::MAX] {
                let frame = Frame::first(pc, sp, sp, pc % 2 == 0);
                table.caller(&frame, 0, |addr| (addr % 16 == 0).then_some(addr));
            }
        }
        assert!(Unwinder::make(None, TABLE, &[], &[]).is_none());
    }
}
