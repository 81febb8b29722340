//! Gives a saved guest the addresses of its kernel, and frees the disk space of its zeros.

use crate::dump::Dump;
use crate::error::{Error, Result};
use crate::paging::Space;
use object::elf::{self, FileHeader64, ProgramHeader64};
use object::{LittleEndian as LE, U16, U32, U64, pod};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Unit of holes in a file, in bytes.
const PAGE: usize = 4096;
/// Bytes that are examined at a time.
const PIECE: usize = 1 << 20;

/// Rewrites the headers of a dump, so that a debugger finds the guest's memory at the kernel's
/// addresses.
///
/// The new headers are written after all other content, before the file header refers to them. A
/// concurrent reader sees either the old or the new ones.
pub fn map(dump: &Dump, space: &Space) -> Result<()> {
    if dump.is_mapped() {
        return Ok(());
    }
    let path = dump.path();
    let mut headers: Vec<ProgramHeader64<LE>> = dump.note().copied().into_iter().collect();
    for range in space.ranges() {
        let Some((offset, _)) = dump.place(range.physical) else { continue };
        headers.push(ProgramHeader64 {
            p_type: U32::new(LE, elf::PT_LOAD),
            p_flags: U32::new(LE, elf::PF_R | elf::PF_W | elf::PF_X),
            p_offset: U64::new(LE, offset),
            p_vaddr: U64::new(LE, range.virt),
            p_paddr: U64::new(LE, range.physical),
            p_filesz: U64::new(LE, range.size),
            p_memsz: U64::new(LE, range.size),
            p_align: U64::new(LE, 0),
        });
    }
    let count = u16::try_from(headers.len())
        .ok()
        .filter(|count| *count < elf::PN_XNUM)
        .ok_or_else(|| Error::damaged(path, "its kernel maps its memory in too many pieces"))?;
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(Error::io("open", path))?;
    let end = file.metadata().map_err(Error::io("read", path))?.len().next_multiple_of(8);
    let mut bytes = [0; size_of::<FileHeader64<LE>>()];
    file.read_exact_at(&mut bytes, 0).map_err(Error::io("read", path))?;
    let (header, _) = pod::from_bytes_mut::<FileHeader64<LE>>(&mut bytes)
        .map_err(|()| Error::damaged(path, "it is cut"))?;
    header.e_phoff = U64::new(LE, end);
    header.e_phnum = U16::new(LE, count);
    // A core needs no section headers, and QEMU's are useless.
    header.e_shoff = U64::new(LE, 0);
    header.e_shnum = U16::new(LE, 0);
    header.e_shstrndx = U16::new(LE, 0);
    file.write_all_at(pod::bytes_of_slice(&headers), end).map_err(Error::io("write", path))?;
    file.write_all_at(&bytes, 0).map_err(Error::io("write", path))
}

/// Makes holes in a file where it has only zeros, because most of a guest's memory was never used.
pub fn thin(path: &Path) -> Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(Error::io("open", path))?;
    let length = file.metadata().map_err(Error::io("read", path))?.len();
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < length {
        let count = usize::try_from(length - at).map_or(PIECE, |rest| rest.min(PIECE));
        file.read_exact_at(&mut piece[..count], at).map_err(Error::io("read", path))?;
        let mut from = 0;
        while from + PAGE <= count {
            let zeros = piece[from..count].chunks_exact(PAGE).take_while(|page| is_zero(page)).count();
            if zeros > 0 && !punch(&file, at + from as u64, (zeros * PAGE) as u64) {
                // The file system has no holes. The file is complete nevertheless.
                return Ok(());
            }
            from += (zeros + 1) * PAGE;
        }
        at += count as u64;
    }
    Ok(())
}

fn is_zero(page: &[u8]) -> bool {
    page.iter().all(|&byte| byte == 0)
}

fn punch(file: &File, offset: u64, length: u64) -> bool {
    let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length)) else { return false };
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a plain system call on a descriptor that stays open during it.
    unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, length) == 0 }
}
