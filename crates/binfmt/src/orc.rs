//! Stack frames of kernel code: turns the tables that the kernel unwinds its own stacks by (ORC) into what
//! debuggers understand (DWARF).
//!
//! An ORC table has a row for each range of code.
//! The row states where the caller's stack pointer, its frame pointer and the return address are
//! (`arch/x86/include/asm/orc_types.h`).
//! It does not cover other registers, so they are undefined in callers.

mod unwind;

pub use unwind::{Frame, Unwinder, tables};

use std::ops::Range;

/// Most rows of a table that are read; the largest kernels have some hundred thousand.
pub const MAX_ENTRIES: usize = 1 << 21;
/// Rows that share a description. A debugger reads half of them for each stack frame.
const TOGETHER: usize = 32;

/// What offsets in a row count from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Undefined,
    /// The caller's stack pointer.
    Caller,
    Sp,
    Bp,
    /// The word that the stack pointer points to.
    AtSp,
    /// The word that the frame pointer points to.
    AtBp,
    /// A register, by its number in DWARF.
    Register(u8),
}

use Base::{AtBp, AtSp, Bp, Caller, Register, Sp, Undefined};

/// Numbers of bases up to 6.x, and in 7.x.
const BASES: [[Base; 11]; 2] = [
    [Undefined, Caller, Register(1), Register(5), Bp, Sp, Register(10), Register(13), AtBp, AtSp, Undefined],
    [
        Undefined,
        Register(0),
        Register(1),
        Sp,
        Bp,
        Register(5),
        Register(10),
        Register(13),
        Caller,
        AtSp,
        AtBp,
    ],
];
/// The numbers of the stack pointer in these two layouts.
const SP_NUMBERS: [u8; 2] = [5, 3];

/// How a kernel writes its tables. Nothing in a table states it, but most rows are of called functions, by
/// the stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    bases: &'static [Base; 11],
    /// Whether calls are kind 2 (since 6.4) and not kind 0.
    new_kinds: bool,
}

impl Layout {
    fn of(entries: &[Entry]) -> Layout {
        let count = |wanted: &dyn Fn(&Entry) -> bool| entries.iter().filter(|entry| wanted(entry)).count();
        let [old, new] = SP_NUMBERS.map(|number| count(&|entry| entry.sp.0 == number));
        let number = more_common([old, new]);
        let new_kinds = 2 * count(&|entry| entry.sp.0 == number && entry.kind & 7 == 2) > old.max(new);
        Layout { bases: &BASES[usize::from(new > old)], new_kinds }
    }

    fn base(&self, number: u8) -> Base {
        self.bases.get(usize::from(number)).copied().unwrap_or(Undefined)
    }

    fn kind(&self, entry: &Entry) -> Kind {
        match (self.new_kinds, entry.kind & if self.new_kinds { 7 } else { 3 }) {
            _ if self.base(entry.sp.0) == Undefined => Kind::Undefined,
            (true, 2) | (false, 0) => Kind::Call,
            (true, 3) | (false, 1) => Kind::Regs,
            (true, 4) | (false, 2) => Kind::Partial,
            _ => Kind::Undefined,
        }
    }
}

/// The number that a table, as it is in a file, has for the stack pointer.
pub fn stack_pointer(table: &[u8]) -> u8 {
    more_common(
        SP_NUMBERS.map(|number| table.chunks_exact(6).filter(|entry| entry[4] & 15 == number).count()),
    )
}

fn more_common([old, new]: [usize; 2]) -> u8 {
    SP_NUMBERS[usize::from(new > old)]
}

/// Registers in DWARF (System V ABI for AMD64, 3.6.2).
const DWARF_BP: u8 = 6;
const DWARF_SP: u8 = 7;
const DWARF_RETURN: u8 = 16;
/// Registers about which the row of a call states nothing.
const UNKNOWN: [u8; 14] = [0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
/// The registers in `struct pt_regs`, in words from its start.
const PT_REGS: [(u8, i64); 17] = [
    (15, 0),
    (14, 1),
    (13, 2),
    (12, 3),
    (DWARF_BP, 4),
    (3, 5),
    (11, 6),
    (10, 7),
    (9, 8),
    (8, 9),
    (0, 10),
    (2, 11),
    (1, 12),
    (4, 13),
    (5, 14),
    (DWARF_RETURN, 16),
    (DWARF_SP, 19),
];
/// The registers that a processor saves by itself, in words from the return address.
const INTERRUPTED: [(u8, i64); 2] = [(DWARF_RETURN, 0), (DWARF_SP, 3)];

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Nothing is known.
    Undefined,
    /// The code of a called function.
    Call,
    /// A `struct pt_regs` is on the stack.
    Regs,
    /// Only what the processor saves by itself is on the stack.
    Partial,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    address: u64,
    sp: (u8, i16),
    bp: (u8, i16),
    kind: u8,
}

/// Reads tables and writes `.debug_frame`.
#[derive(Debug, Default)]
pub struct Frames {
    out: Vec<u8>,
    /// The layout of the first table, which is the kernel's; `None` before it is read.
    layout: Option<Layout>,
}

impl Frames {
    /// A `.debug_frame` without descriptions.
    pub fn new() -> Frames {
        let mut frames = Frames::default();
        frames.common(b"\0", &[]);
        frames.common(b"zS\0", &[0]);
        frames
    }

    /// Adds the stack frames of code in `ranges`, which have one table. `places` holds distances from each of
    /// its words, which begin at `places_at`, to code. `entries` holds the row for each. Both are as in
    /// memory.
    pub fn add(
        &mut self,
        ranges: impl IntoIterator<Item = Range<u64>>,
        places_at: u64,
        places: &[u8],
        entries: &[u8],
    ) {
        let entries = read(places_at, places, entries);
        let layout = *self.layout.get_or_insert_with(|| Layout::of(&entries));
        for range in ranges {
            let from = entries.partition_point(|entry| entry.address < range.start);
            let within = &entries[from..];
            let within = &within[..within.partition_point(|entry| entry.address < range.end)];
            self.add_range(&range, within, &layout);
        }
    }

    /// Adds the stack frames of one range, to which all of the rows belong.
    fn add_range(&mut self, range: &Range<u64>, within: &[Entry], layout: &Layout) {
        let end = |i: usize| within.get(i).map_or(range.end, |entry| entry.address);
        let mut at = 0;
        while at < within.len() {
            let signal = is_signal(layout.kind(&within[at]));
            let same = within[at..].iter().take_while(|entry| is_signal(layout.kind(entry)) == signal);
            let count = if signal { 1 } else { same.take(TOGETHER).count() };
            let mut program = Vec::new();
            for (i, entry) in within[at..at + count].iter().enumerate() {
                if i > 0 {
                    advance(&mut program, entry.address - within[at + i - 1].address);
                }
                rules(&mut program, entry, layout);
            }
            self.describe(signal, within[at].address, end(at + count), &program);
            at += count;
        }
    }

    /// The content of `.debug_frame`.
    pub fn finish(self) -> Vec<u8> {
        self.out
    }

    /// Writes the common part of descriptions (CIE): version 3, lengths in words that grow downwards, the
    /// return address.
    fn common(&mut self, augmentation: &[u8], more: &[u8]) {
        let mut entry = u32::MAX.to_le_bytes().to_vec();
        entry.push(3);
        entry.extend_from_slice(augmentation);
        entry.extend_from_slice(&[1, 0x78, DWARF_RETURN]);
        entry.extend_from_slice(more);
        def_cfa(&mut entry, DWARF_SP, 8);
        for register in UNKNOWN {
            entry.extend_from_slice(&[0x07, register]);
        }
        self.append(entry);
    }

    fn describe(&mut self, signal: bool, start: u64, end: u64, program: &[u8]) {
        // The first common part begins the section; the second stands behind it.
        let first = 4 + u64::from(u32::from_le_bytes(self.out[..4].try_into().unwrap_or_default()));
        let common = if signal { first as u32 } else { 0 };
        let mut entry = common.to_le_bytes().to_vec();
        entry.extend_from_slice(&start.to_le_bytes());
        entry.extend_from_slice(&end.saturating_sub(start).to_le_bytes());
        if signal {
            entry.push(0);
        }
        entry.extend_from_slice(program);
        self.append(entry);
    }

    /// Appends a record with its length before it, padded with no-operations.
    fn append(&mut self, mut entry: Vec<u8>) {
        entry.resize((entry.len() + 4).next_multiple_of(8) - 4, 0);
        self.out.extend_from_slice(&(entry.len() as u32).to_le_bytes());
        self.out.extend_from_slice(&entry);
    }
}

/// The rows of a table, by address.
fn read(places_at: u64, places: &[u8], entries: &[u8]) -> Vec<Entry> {
    let places = places.chunks_exact(4).zip(entries.chunks_exact(6)).take(MAX_ENTRIES);
    let mut read: Vec<Entry> = places
        .enumerate()
        .map(|(i, (place, entry))| {
            let distance = i32::from_le_bytes(place.try_into().unwrap_or_default());
            let number = |at: usize| i16::from_le_bytes([entry[at], entry[at + 1]]);
            Entry {
                address: places_at.wrapping_add(4 * i as u64).wrapping_add_signed(distance.into()),
                sp: (entry[4] & 15, number(0)),
                bp: (entry[4] >> 4, number(2)),
                kind: entry[5],
            }
        })
        .collect();
    read.sort_by_key(|entry| entry.address);
    // The kernel looks from the end, so the last of several rows for one place holds.
    read.reverse();
    read.dedup_by_key(|entry| entry.address);
    read.reverse();
    read
}

/// Whether the caller was interrupted and did not call.
fn is_signal(kind: Kind) -> bool {
    matches!(kind, Kind::Regs | Kind::Partial)
}

/// Writes the rules that hold from a row on.
fn rules(out: &mut Vec<u8>, entry: &Entry, layout: &Layout) {
    let kind = layout.kind(entry);
    let offset = entry.sp.1;
    match (layout.base(entry.sp.0), u64::try_from(offset)) {
        _ if kind == Kind::Undefined => return undefined(out),
        (Sp, Ok(offset)) => def_cfa(out, DWARF_SP, offset),
        (Bp, Ok(offset)) => def_cfa(out, DWARF_BP, offset),
        (Register(number), _) => def_cfa(out, number, 0),
        // *(sp) + offset, and *(bp + offset).
        (AtSp, _) => def_cfa_expression(out, &[0x77, 0x00, 0x06], Some(offset)),
        (AtBp, _) => {
            let mut expression = vec![0x76];
            sleb(&mut expression, offset.into());
            expression.push(0x06);
            def_cfa_expression(out, &expression, None);
        }
        _ => return undefined(out),
    }
    let saved: &[(u8, i64)] = match kind {
        Kind::Regs => &PT_REGS,
        Kind::Partial => &INTERRUPTED,
        Kind::Call | Kind::Undefined => &[(DWARF_RETURN, -1)],
    };
    saved.iter().for_each(|&(register, words)| at_offset(out, register, words));
    match (layout.base(entry.bp.0), entry.bp.1) {
        (Caller, offset) if offset % 8 == 0 => at_offset(out, DWARF_BP, i64::from(offset) / 8),
        _ if kind == Kind::Regs => {}
        // The frame pointer is as it was.
        _ => out.extend_from_slice(&[0x08, DWARF_BP]),
    }
}

/// Writes that there is no caller.
fn undefined(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0x07, DWARF_RETURN]);
}

/// Moves to a later instruction, by `DW_CFA_advance_loc4`.
fn advance(out: &mut Vec<u8>, distance: u64) {
    out.push(0x04);
    out.extend_from_slice(&u32::try_from(distance).unwrap_or(u32::MAX).to_le_bytes());
}

/// Sets the frame's address to a register plus an offset, by `DW_CFA_def_cfa`.
fn def_cfa(out: &mut Vec<u8>, register: u8, offset: u64) {
    out.extend_from_slice(&[0x0c, register]);
    uleb(out, offset);
}

/// `DW_CFA_def_cfa_expression`, with `DW_OP_consts`, `DW_OP_plus` behind it.
fn def_cfa_expression(out: &mut Vec<u8>, expression: &[u8], plus: Option<i16>) {
    let mut expression = expression.to_vec();
    if let Some(offset) = plus {
        expression.push(0x11);
        sleb(&mut expression, offset.into());
        expression.push(0x22);
    }
    out.push(0x0f);
    uleb(out, expression.len() as u64);
    out.extend_from_slice(&expression);
}

/// `DW_CFA_offset_extended_sf`: the register was saved so many words above the frame's address.
fn at_offset(out: &mut Vec<u8>, register: u8, words: i64) {
    out.extend_from_slice(&[0x11, register]);
    sleb(out, -words);
}

fn uleb(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            return out.push(byte);
        }
        out.push(byte | 0x80);
    }
}

fn sleb(out: &mut Vec<u8>, mut value: i64) {
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 && byte & 0x40 == 0 || value == -1 && byte & 0x40 != 0 {
            return out.push(byte);
        }
        out.push(byte | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table at 0x1000 for code at 0x2000: a function, a push of BP, an interrupt, an end. `sp` and
    /// `caller` are numbers of bases.
    fn frames(sp: u8, caller: u8, call: u8, regs: u8) -> Vec<u8> {
        let entry = |offset: i16, bp: i16, bases: u8, kind: u8| {
            [&offset.to_le_bytes()[..], &bp.to_le_bytes(), &[bases, kind]].concat()
        };
        let entries = [
            entry(8, 0, sp, call),
            entry(16, -16, caller << 4 | sp, call),
            entry(8, 0, sp, call),
            entry(0, 0, sp, regs),
            entry(0, 0, 0, 0),
        ]
        .concat();
        let places = [0x1000, 0x0ffd, 0x0ffc, 0x1000, 0x1010];
        let places: Vec<u8> = places.iter().flat_map(|place: &i32| place.to_le_bytes()).collect();
        let mut frames = Frames::new();
        frames.add(Some(0x2000..0x2100), 0x1000, &places, &entries);
        frames.finish()
    }

    #[test]
    fn all_layouts_give_the_same_frames() {
        let (oldest, newest) = (frames(5, 1, 0, 1), frames(3, 8, 2, 3));
        assert_eq!(oldest, frames(5, 1, 2, 3));
        assert_eq!(oldest, newest);
        assert!(oldest.len().is_multiple_of(8));
        // CFA is SP + 16, and BP is two words below.
        let pushed = [0x0c, DWARF_SP, 16, 0x11, DWARF_RETURN, 1, 0x11, DWARF_BP, 2];
        assert!(oldest.windows(pushed.len()).any(|window| window == pushed), "{oldest:x?}");
        // For an interrupt, all registers are known.
        assert!(oldest.windows(3).any(|window| window == [0x11, DWARF_SP, 0x6d]), "{oldest:x?}");
    }

    #[test]
    fn tables_of_any_content_are_read() {
        let junk: Vec<u8> = (0..6000u32).map(|i| ((i * 7919) >> 3) as u8).collect();
        let mut frames = Frames::new();
        frames.add(Some(0..u64::MAX), u64::MAX - 10, &junk, &junk);
        frames.add(Some(0..0), 0, &junk, &junk);
        assert!(frames.finish().len().is_multiple_of(8));
    }

    #[test]
    fn numbers_are_leb128() {
        let signed = |value| {
            let mut out = Vec::new();
            sleb(&mut out, value);
            out
        };
        assert_eq!(
            (signed(2), signed(-2), signed(127), signed(-129)),
            (vec![2], vec![0x7e], vec![0xff, 0], vec![0xff, 0x7e])
        );
        let mut out = Vec::new();
        uleb(&mut out, 624_485);
        assert_eq!(out, [0xe5, 0x8e, 0x26]);
    }
}
