//! Page tables in circles, and those of a guest of real size.

use super::core::{TABLES, TEXT, core, entry, small};
use crate::dump::Dump;
use crate::paging::{KERNEL_HALF, Range, Space};
use std::fs;
use std::time::{Duration, Instant};

fn range(virt: u64, physical: u64, size: u64) -> Range {
    Range { virt, physical, size }
}

/// These were followed up to the limit, for seconds.
#[test]
fn circles_of_many_tables_end_soon() {
    let folder = tempfile::tempdir().unwrap();
    let mut memory = vec![0; 0x1_0000];
    for table in 0..16 {
        (0..512).for_each(|i| entry(&mut memory, table << 12, i, (i as u64 % 16) << 12 | 3));
    }
    let path = folder.path().join("core");
    fs::write(&path, core(&memory, memory.len() as u64)).unwrap();
    let dump = Dump::open(&path).unwrap();
    let begun = Instant::now();
    for _ in 0..50 {
        // Each of 16 tables maps 16 pages 32 times.
        assert_eq!(Space::of(&dump, &dump.cpus()[0]).ranges().len(), 512);
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

const DIRECT: u64 = 0xffff_8880_0000_0000;
const VMALLOC: u64 = 0xffff_c900_0000_0000;
const SHADOW: u64 = 0xffff_ec00_0000_0000;
const SINGLE: u64 = 40_000;
const GUEST: u64 = 8 << 30;
const LARGE: u64 = 2 << 20;

/// Memory with page tables, and where the next table is.
struct Memory {
    bytes: Vec<u8>,
    free: u64,
}

impl Memory {
    fn index(virt: u64, level: u32) -> usize {
        (virt >> (12 + 9 * level) & 511) as usize
    }

    /// The table that an entry leads to, which is made where there is no table.
    fn next(&mut self, table: u64, index: usize) -> u64 {
        let at = table as usize + 8 * index;
        let mut next = u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap()) & !0xfff;
        if next == 0 {
            next = self.free;
            self.free += 0x1000;
            entry(&mut self.bytes, table, index, next | 3);
        }
        next
    }

    /// Maps a page at level 0, a large page at level 1.
    fn map(&mut self, virt: u64, physical: u64, level: u32) {
        let tables = (level + 1..4).rev();
        let table = tables.fold(TABLES, |table, level| self.next(table, Self::index(virt, level)));
        let flags = if level == 0 { 3 } else { 0x83 };
        entry(&mut self.bytes, table, Self::index(virt, level), physical | flags);
    }
}

/// A guest of 8 GiB. Its first half is mapped page by page and the other by large pages; many single pages are mapped
/// elsewhere. All entries of a table lead to one table, like KASAN's shadow memory that is not used.
#[test]
fn a_guest_of_real_size_is_read_whole() {
    let mut memory = Memory { bytes: vec![0; 16 << 20], free: TABLES + 0x1000 };
    (0..GUEST / 2).step_by(0x1000).for_each(|at| memory.map(DIRECT + at, at, 0));
    (GUEST / 2..GUEST).step_by(LARGE as usize).for_each(|at| memory.map(DIRECT + at, at, 1));
    (0..SINGLE).for_each(|page| memory.map(VMALLOC + (page << 12), (SINGLE - page) << 13, 0));
    memory.map(TEXT, LARGE, 1);
    let upper = memory.next(TABLES, Memory::index(SHADOW, 3));
    let lower = memory.next(upper, 0);
    (1..512).for_each(|i| entry(&mut memory.bytes, upper, i, lower | 3));
    (0..512).for_each(|i| entry(&mut memory.bytes, lower, i, 0x83));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("core");
    fs::write(&path, core(&memory.bytes, GUEST)).unwrap();
    // The rest of the memory is a hole.
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(GUEST + 0x1000).unwrap();
    let dump = Dump::open(&path).unwrap();
    let space = Space::of(&dump, &dump.cpus()[0]);
    let mut all = vec![range(DIRECT, 0, GUEST)];
    all.extend((0..SINGLE).map(|page| range(VMALLOC + (page << 12), (SINGLE - page) << 13, 0x1000)));
    all.extend((0..512).map(|i| range(SHADOW + i * LARGE, 0, LARGE)));
    all.push(range(TEXT, LARGE, LARGE));
    assert!(space.ranges() == all, "{} ranges", space.ranges().len());
}

/// A file may have tens of thousands of notes, and the tables of each vCPU are walked.
#[test]
fn a_file_has_few_vcpus() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("core");
    let mut file = core(&small(), small().len() as u64);
    // The notes are those at the end, each a state of Linux without content.
    let notes = [5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, b'C', b'O', b'R', b'E', 0, 0, 0, 0].repeat(1000);
    let (at, size) = (file.len() as u64, notes.len() as u64);
    file.extend(notes);
    file[64 + 8..64 + 16].copy_from_slice(&at.to_le_bytes());
    file[64 + 32..64 + 40].copy_from_slice(&size.to_le_bytes());
    fs::write(&path, file).unwrap();
    assert_eq!(Dump::open(&path).unwrap().cpus().len(), 16);
}

#[test]
fn a_small_core_is_sound() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("core");
    fs::write(&path, core(&small(), small().len() as u64)).unwrap();
    let dump = Dump::open(&path).unwrap();
    let space = Space::of(&dump, &dump.cpus()[0]);
    let half = [range(KERNEL_HALF, 0x9000, 0x1000), range(KERNEL_HALF + 0x1000, 0x8000, 0x1000)];
    assert_eq!(space.ranges(), [&half[..], &[range(TEXT, 0xa000, 0x1000)]].concat());
    let text = |virt, most| space.text(&dump, virt, most);
    assert_eq!(text(TEXT + 4, 64).as_deref(), Some("a text"));
    assert_eq!(text(TEXT + 4, 3).as_deref(), Some("a t"));
    assert_eq!(text(TEXT, 64).as_deref(), Some(""));
    assert_eq!(text(TEXT + 4, 0).as_deref(), Some(""));
}

/// A text goes on in the next page, and one without an end in memory is no text.
#[test]
fn texts_cross_pages() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("core");
    let mut memory = small();
    // The two pages at the start of the kernel's half, in reverse order.
    memory[0x8000..0x9000].fill(b'b');
    memory[0x9ffe..0xa000].fill(b'a');
    fs::write(&path, core(&memory, memory.len() as u64)).unwrap();
    let dump = Dump::open(&path).unwrap();
    let space = Space::of(&dump, &dump.cpus()[0]);
    let text = |virt, most| space.text(&dump, virt, most);
    assert_eq!(text(KERNEL_HALF + 0xffe, 4).as_deref(), Some("aabb"));
    assert_eq!(text(KERNEL_HALF + 0x1ffe, 2).as_deref(), Some("bb"));
    assert_eq!(text(KERNEL_HALF + 0x1ffe, 3), None);
    // A list of modules may name a quarter of a million texts. Each of their bytes was read on its own.
    let begun = Instant::now();
    for _ in 0..1 << 20 {
        assert_eq!(text(KERNEL_HALF + 0x1fc0, 64).map(|text| text.len()), Some(64));
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}
