//! Reads a guest's memory and registers from an ELF core, as QEMU's `dump-guest-memory` writes it.

use crate::error::{Error, Result};
use object::LittleEndian as LE;
use object::elf::{self, FileHeader64, ProgramHeader64};
use object::pod;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Most program headers that are read. QEMU writes one for each block of memory; `map` writes some
/// thousand for a kernel's addresses.
const MAX_HEADERS: usize = 0xffff;
/// Most bytes of notes that are read. Each vCPU has some kilobytes of notes.
const MAX_NOTES: u64 = 1 << 20;
/// Most vCPUs that are read; Guardrail's guests have up to four. The page tables of each may be walked.
const MAX_CPUS: usize = 16;
const NT_PRSTATUS: u32 = 1;
/// Offset of the registers in `elf_prstatus`, and of `rip` and `rsp` in them (`user_regs_struct`).
const PR_REG: usize = 112;
const RIP: usize = 16 * 8;
const RSP: usize = 19 * 8;
/// Offset of CR3 in QEMU's own note (`QEMUX86CPUState` in QEMU's `target/i386/arch_dump.c`).
const QEMU_CR3: usize = 416;
const QEMU_CR4: usize = 424;

/// A part of the guest's memory that the file has in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Guest physical address of its first byte.
    pub physical: u64,
    /// Offset of its first byte in the file.
    pub offset: u64,
    /// Length in bytes.
    pub size: u64,
    /// Guest virtual address of its first byte; zero where QEMU wrote the header.
    pub virt: u64,
}

/// Registers of one vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Instruction pointer, a guest virtual address.
    pub rip: u64,
    /// Stack pointer, a guest virtual address.
    pub rsp: u64,
    /// Physical address of the page tables, with flags in the low bits.
    pub cr3: u64,
    /// Control register 4, which says which processor features are on.
    pub cr4: u64,
}

/// A saved guest: an ELF core that stays mapped while it is read.
#[derive(Debug)]
pub struct Dump {
    path: PathBuf,
    file: File,
    blocks: Vec<Block>,
    /// The memory of the blocks by physical address, each byte once.
    pieces: Vec<Block>,
    note: Option<ProgramHeader64<LE>>,
    cpus: Vec<Cpu>,
}

impl Dump {
    /// Opens a file that QEMU wrote, with or without the kernel's addresses from the module `map`.
    pub fn open(path: &Path) -> Result<Dump> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let length = file.metadata().map_err(Error::io("read", path))?.len();
        let damaged = |why: &str| Error::damaged(path, why);
        let mut bytes = [0; size_of::<FileHeader64<LE>>()];
        file.read_exact_at(&mut bytes, 0).map_err(|_| damaged("it is cut"))?;
        let (header, _) = pod::from_bytes::<FileHeader64<LE>>(&bytes).map_err(|()| damaged("it is cut"))?;
        let ident = &header.e_ident;
        if ident.magic != elf::ELFMAG
            || ident.class != elf::ELFCLASS64
            || ident.data != elf::ELFDATA2LSB
            || header.e_type.get(LE) != elf::ET_CORE
            || header.e_machine.get(LE) != elf::EM_X86_64
        {
            return Err(damaged("it is no core of x86-64"));
        }
        let entry = size_of::<ProgramHeader64<LE>>();
        let count = usize::from(header.e_phnum.get(LE));
        if count >= MAX_HEADERS || usize::from(header.e_phentsize.get(LE)) != entry {
            return Err(damaged("its program headers cannot be read"));
        }
        let mut table = vec![0; count * entry];
        file.read_exact_at(&mut table, header.e_phoff.get(LE)).map_err(|_| damaged("it is cut"))?;
        let (headers, _) = pod::slice_from_bytes::<ProgramHeader64<LE>>(&table, count)
            .map_err(|()| damaged("its program headers cannot be read"))?;
        let mut blocks = Vec::new();
        for header in headers.iter().filter(|header| header.p_type.get(LE) == elf::PT_LOAD) {
            let (offset, size) = (header.p_offset.get(LE), header.p_filesz.get(LE));
            if offset.checked_add(size).is_none_or(|end| end > length) {
                return Err(damaged("it is cut"));
            }
            let (physical, virt) = (header.p_paddr.get(LE), header.p_vaddr.get(LE));
            blocks.push(Block { physical, offset, size, virt });
        }
        let note = headers.iter().find(|header| header.p_type.get(LE) == elf::PT_NOTE).copied();
        let mut notes = Vec::new();
        if let Some(note) = &note {
            notes.resize(note.p_filesz.get(LE).min(MAX_NOTES) as usize, 0);
            file.read_exact_at(&mut notes, note.p_offset.get(LE)).map_err(|_| damaged("it is cut"))?;
        }
        Ok(Dump { path: path.to_path_buf(), file, pieces: pieces(&blocks), blocks, note, cpus: cpus(&notes) })
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Registers of each vCPU.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    pub(crate) fn note(&self) -> Option<&ProgramHeader64<LE>> {
        self.note.as_ref()
    }

    /// Offset in the file of the bytes at a physical address, and how many bytes follow there.
    pub(crate) fn place(&self, physical: u64) -> Option<(u64, u64)> {
        let after = self.pieces.partition_point(|piece| piece.physical <= physical);
        let piece = self.pieces.get(after.checked_sub(1)?)?;
        let into = (physical - piece.physical).min(piece.size);
        (into < piece.size).then(|| (piece.offset + into, piece.size - into))
    }

    /// Reads physical memory. `None` where the file does not have all of it.
    pub fn read_physical(&self, physical: u64, bytes: &mut [u8]) -> Option<()> {
        let (offset, rest) = self.place(physical)?;
        (bytes.len() as u64 <= rest).then_some(())?;
        self.file.read_exact_at(bytes, offset).ok()
    }

    /// Whether the headers have the kernel's addresses already.
    pub(crate) fn is_mapped(&self) -> bool {
        self.blocks.iter().any(|block| block.virt >> 63 == 1)
    }
}

/// The memory of blocks that may overlap, sorted and each byte once, in as few pieces as the file allows. A file may
/// have as many blocks as it likes, and page tables look for memory millions of times.
fn pieces(blocks: &[Block]) -> Vec<Block> {
    let mut sorted = blocks.to_vec();
    sorted.sort_by_key(|block| (block.physical, std::cmp::Reverse(block.size)));
    let mut pieces: Vec<Block> = Vec::new();
    let mut end = 0;
    for block in sorted {
        let known = end.max(block.physical) - block.physical;
        if known >= block.size {
            continue;
        }
        let rest = Block {
            physical: block.physical + known,
            offset: block.offset + known,
            size: block.size - known,
            ..block
        };
        end = rest.physical.saturating_add(rest.size);
        match pieces.last_mut() {
            Some(last)
                if last.physical.checked_add(last.size) == Some(rest.physical)
                    && last.offset + last.size == rest.offset =>
            {
                last.size += rest.size;
            }
            _ => pieces.push(rest),
        }
    }
    pieces
}

/// Reads the vCPUs from the notes. First come the states of any Linux core, then QEMU's own, in the same
/// order.
fn cpus(notes: &[u8]) -> Vec<Cpu> {
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
    };
    let (mut cpus, mut states): (Vec<Cpu>, usize) = (Vec::new(), 0);
    for (name, kind, content) in each_note(notes) {
        if name == b"CORE" && kind == NT_PRSTATUS && cpus.len() < MAX_CPUS {
            let (rip, rsp) = (word(content, PR_REG + RIP), word(content, PR_REG + RSP));
            cpus.push(Cpu { rip, rsp, ..Cpu::default() });
        } else if name == b"QEMU" {
            if let Some(cpu) = cpus.get_mut(states) {
                (cpu.cr3, cpu.cr4) = (word(content, QEMU_CR3), word(content, QEMU_CR4));
            }
            states += 1;
        }
    }
    cpus
}

/// Iterates over the notes: name, type and content of each.
fn each_note(mut notes: &[u8]) -> impl Iterator<Item = (&[u8], u32, &[u8])> {
    std::iter::from_fn(move || {
        let number = |at: usize| Some(u32::from_le_bytes(notes.get(at..at + 4)?.try_into().ok()?));
        let (name, size, kind) = (number(0)? as usize, number(4)? as usize, number(8)?);
        let content = 12usize.checked_add(name.checked_next_multiple_of(4)?)?;
        let end = content.checked_add(size.checked_next_multiple_of(4)?)?;
        let found = (notes.get(12..12 + name)?, notes.get(content..content.checked_add(size)?)?);
        notes = notes.get(end..)?;
        Some((found.0.strip_suffix(b"\0").unwrap_or(found.0), kind, found.1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_overlap_have_each_byte_once() {
        let block = |physical, offset, size| Block { physical, offset, size, virt: 0 };
        // A kernel's text lies in the direct map, and both are of one file.
        let blocks = [block(0x3000, 0x4000, 0x1000), block(0x1000, 0x2000, 0x8000), block(0x9000, 0xa000, 8)];
        assert_eq!(pieces(&blocks), [block(0x1000, 0x2000, 0x8008)]);
        let blocks = [block(0x2000, 0x100, 0x2000), block(0x1000, 0x9000, 0x2000), block(u64::MAX, 0, 9)];
        let apart = [block(0x1000, 0x9000, 0x2000), block(0x3000, 0x1100, 0x1000), block(u64::MAX, 0, 9)];
        assert_eq!(pieces(&blocks), apart);
        // However many headers name one place, it is looked for once.
        assert_eq!(pieces(&[block(0, 64, 0x1000); 60_000]).len(), 1);
    }
}
