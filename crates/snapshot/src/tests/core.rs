//! Cores made by hand: one vCPU, and memory with page tables.

/// Where the page tables of the vCPU begin, and the virtual address of the kernel's text.
pub(crate) const TABLES: u64 = 0x1000;
pub(crate) const TEXT: u64 = 0xffff_ffff_8100_0000;

/// A core as QEMU writes it: one vCPU whose page tables are at [`TABLES`], and `size` bytes of memory from address 0.
/// The file ends behind the bytes that are given.
pub(crate) fn core(memory: &[u8], size: u64) -> Vec<u8> {
    let mut notes = Vec::new();
    let mut note = |name: &[u8], kind: u32, content: &[u8]| {
        for number in [name.len() as u32, content.len() as u32, kind] {
            notes.extend_from_slice(&number.to_le_bytes());
        }
        notes.extend_from_slice(name);
        notes.resize(notes.len().next_multiple_of(4), 0);
        notes.extend_from_slice(content);
    };
    let mut status = vec![0; 336];
    status[112 + 128..112 + 136].copy_from_slice(&(TEXT + 4).to_le_bytes());
    note(b"CORE\0", 1, &status);
    let mut state = vec![0; 440];
    state[416..424].copy_from_slice(&(TABLES | 0x18).to_le_bytes());
    note(b"QEMU\0", 0, &state);

    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let header = [(4, 2), (62, 2), (1, 4), (0, 8), (64, 8), (0, 8), (0, 4), (64, 2), (56, 2), (2, 2)];
    let mut put = |value: u64, size: usize| file.extend_from_slice(&value.to_le_bytes()[..size]);
    header.iter().chain(&[(64, 2), (0, 2), (0, 2)]).for_each(|&(value, size)| put(value, size));
    let notes_at = 64 + 2 * 56;
    let memory_at = notes_at + notes.len() as u64;
    for (kind, offset, size) in [(4, notes_at, notes.len() as u64), (1, memory_at, size)] {
        put(kind, 4);
        put(0, 4);
        [offset, 0, 0, size, size, 0].iter().for_each(|&value| put(value, 8));
    }
    file.extend_from_slice(&notes);
    file.extend_from_slice(memory);
    file
}

/// Sets an entry of a table.
pub(crate) fn entry(memory: &mut [u8], table: u64, index: usize, value: u64) {
    let at = table as usize + 8 * index;
    memory[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Memory of twelve pages. Its tables map [`TEXT`] to one page with a text, and the start of the kernel's half to two
/// adjacent pages in reverse order. They also map a large page at 2 MiB, which the file does not have.
pub(crate) fn small() -> Vec<u8> {
    let mut memory = vec![0; 0xc000];
    let tables = [(TABLES, 511, 0x2003), (0x2000, 510, 0x3003), (0x3000, 8, 0x7003), (0x3000, 9, 0x20_0083)];
    let half = [(TABLES, 256, 0x4003), (0x4000, 0, 0x5003), (0x5000, 0, 0x6003)];
    let pages = [(0x7000, 0, 0xa003), (0x6000, 0, 0x9003), (0x6000, 1, 0x8003)];
    for (table, index, value) in tables.into_iter().chain(half).chain(pages) {
        entry(&mut memory, table, index, value);
    }
    memory[0xa004..0xa00b].copy_from_slice(b"a text\0");
    memory
}
