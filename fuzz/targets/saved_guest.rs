//! A saved guest with page tables in its memory, which may lead anywhere: its memory is found, read, mapped and
//! thinned, or there is an error.
//!
//! Input: the registers of the vCPUs, then operations on 64 KiB of memory and on the file's headers. All pages may be
//! page tables, also of themselves.
//! The target `core` takes any bytes as the file.

#![no_main]

use guardrail_snapshot::paging::Space;
use guardrail_snapshot::{Dump, map, thin};
use libfuzzer_sys::arbitrary::{Result, Unstructured};

const PAGE: usize = 4096;
const PAGES: usize = 16;
const ENTRIES: usize = 512;
/// Most ranges that one address space may have: more is a loop in the tables.
const MOST_RANGES: usize = 1 << 20;
/// Where the kernel half begins, and the kernel's text.
const PLACES: [u64; 4] = [0xffff_8000_0000_0000, 0xffff_ffff_8100_0000, 0, 0xffff_ffff_ffff_f000];

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let path = std::env::temp_dir().join(format!("guardrail-fuzz-saved-{}", std::process::id()));
    let Ok(file) = file(&mut Unstructured::new(data)) else { return };
    std::fs::write(&path, file).expect("room for a core");
    let Ok(dump) = Dump::open(&path) else { return };
    for cpu in dump.cpus().iter().take(2) {
        let space = Space::of(&dump, cpu);
        assert!(space.ranges().len() <= MOST_RANGES);
        assert!(space.ranges().windows(2).all(|two| two[0].virt < two[1].virt));
        for virt in [cpu.rsp, cpu.rip].into_iter().chain(PLACES) {
            std::hint::black_box(space.translate(virt));
            std::hint::black_box(space.text(&dump, virt, 64));
            std::hint::black_box(space.word(&dump, virt));
            let mut bytes = [0; 2 * PAGE];
            std::hint::black_box(space.read(&dump, virt, &mut bytes));
        }
        if map(&dump, &space).is_ok() {
            let again = Dump::open(&path).expect("what was mapped is still a core");
            assert_eq!(again.cpus(), dump.cpus());
        }
    }
    let _ = thin(&path);
    let _ = Dump::open(&path).map(|dump| std::hint::black_box(dump.cpus().len()));
});

/// The file: its headers, its notes, and its memory.
fn file(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let [cpus, loads, damage] = input.arbitrary::<[u8; 3]>()?;
    let mut notes = Vec::new();
    for _ in 0..=cpus % 2 {
        let [page, flags, rip, rsp] = input.arbitrary::<[u8; 4]>()?;
        let mut status = vec![0; 336];
        status[112 + 128..112 + 136].copy_from_slice(&place(rip).to_le_bytes());
        status[112 + 152..112 + 160].copy_from_slice(&place(rsp).to_le_bytes());
        note(&mut notes, b"CORE\0", 1, &status);
        let mut state = vec![0; 440];
        let cr3 = (u64::from(page) % (PAGES as u64 + 2)) << 12 | 0x18;
        state[416..424].copy_from_slice(&cr3.to_le_bytes());
        // Five levels of page tables.
        let cr4 = u64::from(flags & 1) << 12;
        state[424..432].copy_from_slice(&cr4.to_le_bytes());
        note(&mut notes, b"QEMU\0", 0, &state);
    }
    let mut segments = Vec::new();
    for _ in 0..loads % 4 {
        let [at, physical, size] = input.arbitrary::<[u8; 3]>()?;
        segments.push((page(at), page(physical), page(size)));
    }
    let memory = memory(input)?;
    let count = 2 + segments.len() as u64;
    let notes_at = 64 + count * 56;
    let memory_at = notes_at + notes.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let mut put = |value: u64, size: usize| file.extend_from_slice(&value.to_le_bytes()[..size]);
    let header = [(4, 2), (62, 2), (1, 4), (0, 8), (64, 8), (0, 8), (0, 4), (64, 2), (56, 2), (count, 2)];
    header.iter().chain(&[(64, 2), (0, 2), (0, 2)]).for_each(|&(value, size)| put(value, size));
    let size = (PAGES * PAGE) as u64;
    let mut segment = |kind: u64, offset: u64, physical: u64, size: u64| {
        put(kind, 4);
        put(0, 4);
        [offset, 0, physical, size, size, 0].iter().for_each(|&value| put(value, 8));
    };
    segment(4, notes_at, 0, notes.len() as u64);
    segment(1, memory_at, 0, size);
    segments.iter().for_each(|&(at, physical, size)| segment(1, memory_at.wrapping_add(at), physical, size));
    file.extend_from_slice(&notes);
    file.extend_from_slice(&memory);
    if damage & 1 != 0 {
        let [at, to] = input.arbitrary::<[u8; 2]>()?;
        file[usize::from(at)] = to;
    }
    Ok(file)
}

fn note(notes: &mut Vec<u8>, name: &[u8], kind: u32, content: &[u8]) {
    for number in [name.len() as u32, content.len() as u32, kind] {
        notes.extend_from_slice(&number.to_le_bytes());
    }
    notes.extend_from_slice(name);
    notes.resize(notes.len().next_multiple_of(4), 0);
    notes.extend_from_slice(content);
}

/// An address, or a size, in whole pages: small, in the middle, or absurd.
fn page(byte: u8) -> u64 {
    match byte >> 6 {
        0 | 1 => u64::from(byte) << 12,
        2 => u64::from(byte) << 40,
        _ => 0u64.wrapping_sub(u64::from(byte) << 4),
    }
}

/// A virtual address.
fn place(byte: u8) -> u64 {
    PLACES[usize::from(byte) % PLACES.len()].wrapping_add(u64::from(byte >> 2) << 8)
}

/// Memory with page tables in it.
fn memory(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut memory = vec![0; PAGES * PAGE];
    while !input.is_empty() {
        let [what, table, index, value] = input.arbitrary::<[u8; 4]>()?;
        let index = match index % 8 {
            0 => 511,
            1 => 510,
            2 => 256,
            3 => 8,
            _ => usize::from(index),
        };
        let flags = [0x3, 0x83, 0x2, 0x1, 0x3, 0x3][usize::from(what >> 4) % 6];
        let value = match what % 4 {
            0..=2 => u64::from(value) % (PAGES as u64 + 1) << 12 | flags,
            _ => page(value) | flags,
        };
        let at = usize::from(table) % PAGES * PAGE;
        // All entries of a table, or one.
        let entries = if what & 0x3c == 0x3c { 0..ENTRIES } else { index..index + 1 };
        for entry in entries {
            memory[at + 8 * entry..at + 8 * entry + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
    Ok(memory)
}
