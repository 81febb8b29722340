//! Source lines of the kernel's own code, from the DWARF of a `vmlinux`.
//!
//! Such a file has hundreds of megabytes. What all units share is read at the first lookup, and then only the units
//! that hold the addresses. No unit is read before.

use crate::bytes::{u32_at, u64_at};
use crate::elf::{ET_REL, Elf, OnDisk, Ranges, SHF_COMPRESSED, SHT_NOBITS, SHT_SYMTAB, SectionHeader};
use crate::error::KernelError;
use crate::image::build_id;
use crate::lines::{Bytes, MAX_DEBUG, SourceFrame, chain, unpack, wanted};
use gimli::{LittleEndian, SectionId};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

/// The largest debug file of a kernel.
const MAX_FILE: u64 = 4 << 30;
/// The largest unit: what one source file was compiled to.
const MAX_UNIT: u64 = 64 << 20;
/// Most units and most ranges of addresses that are looked at.
const MAX_UNITS: usize = 1 << 17;
const MAX_RANGES: usize = 1 << 20;
/// Most units that are kept in memory; each takes about half a megabyte.
const MAX_KEPT: usize = 256;
/// Most bytes of a section of notes.
const MAX_NOTES: u64 = 1 << 20;
/// Where a file's program headers end, with room for more than any has.
const HEAD: u64 = 4096;

const SHT_STRTAB: u32 = 3;
const SHT_NOTE: u32 = 7;

/// A kernel's file with debug information, of which only the headers are read.
#[derive(Debug)]
pub struct DebugKernel {
    bytes: OnDisk,
    elf: Elf,
}

impl DebugKernel {
    /// Opens a file, and refuses what is no whole ELF file.
    pub fn open(path: &Path) -> Result<DebugKernel, KernelError> {
        DebugKernel::of(&path.display().to_string(), open(path)?)
    }

    /// Reads an open file; `what` names it in errors.
    pub fn read(what: &str, mut file: File) -> Result<DebugKernel, KernelError> {
        // A process that parses for another may not ask more about a file.
        let size = file.seek(SeekFrom::End(0));
        let size = size.map_err(|source| KernelError::Io { path: what.into(), source })?;
        DebugKernel::of(what, plausible(what.as_ref(), file, size)?)
    }

    fn of(what: &str, bytes: OnDisk) -> Result<DebugKernel, KernelError> {
        let elf = Elf::read(what, &bytes)?;
        Ok(DebugKernel { bytes, elf })
    }

    /// The GNU build ID in hexadecimal; `None` where the file has none.
    pub fn build_id(&self) -> Option<String> {
        noted_id(&self.bytes, &self.elf)
    }

    /// Whether the file is linked, as kernels are and modules are not.
    pub fn is_linked(&self) -> bool {
        self.elf.file_type != ET_REL
    }

    /// Whether the file has debug information.
    pub fn has_lines(&self) -> bool {
        let info = self.elf.section(SectionId::DebugInfo.name());
        info.is_some_and(|(_, section)| section.kind != SHT_NOBITS && section.size > 0)
    }

    /// Copies what lines and debuggers need: headers, notes, symbols, DWARF. Code, data and relocations become holes, so
    /// that all else stays at its place.
    pub fn copy(&self, out: &File) -> io::Result<()> {
        out.set_len(self.bytes.size)?;
        let headers = self.elf.sections.len() as u64 * 64;
        self.copy_range(out, 0, HEAD.min(self.bytes.size))?;
        self.copy_range(out, self.elf.headers_end - headers, headers)?;
        let kept = |section: &&SectionHeader| {
            section.name.starts_with(".debug_") && section.kind != SHT_NOBITS
                || [SHT_SYMTAB, SHT_STRTAB, SHT_NOTE].contains(&section.kind)
        };
        self.elf.sections.iter().filter(kept).try_for_each(|s| self.copy_range(out, s.offset, s.size))
    }

    fn copy_range(&self, mut out: &File, at: u64, len: u64) -> io::Result<()> {
        let mut from = &self.bytes.file;
        from.seek(SeekFrom::Start(at))?;
        out.seek(SeekFrom::Start(at))?;
        match io::copy(&mut from.take(len), &mut out)? {
            copied if copied == len => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// The build ID in an ELF file's notes.
fn noted_id(bytes: &OnDisk, elf: &Elf) -> Option<String> {
    let mut notes = elf.sections.iter().filter(|s| s.kind == SHT_NOTE && s.size <= MAX_NOTES);
    notes.find_map(|notes| build_id(&bytes.range(notes.offset, notes.size)?))
}

/// Opens a plain file of plausible size.
fn open(path: &Path) -> Result<OnDisk, KernelError> {
    let io = |source| KernelError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    if !metadata.is_file() {
        return Err(io(io::Error::other("it is no plain file")));
    }
    plausible(path, file, metadata.len())
}

fn plausible(path: &Path, file: File, size: u64) -> Result<OnDisk, KernelError> {
    if size > MAX_FILE {
        let source = io::Error::other("it is larger than 4 GiB");
        return Err(KernelError::Io { path: path.to_owned(), source });
    }
    Ok(OnDisk { file, size })
}

/// Finds the source lines of a kernel's instructions.
#[derive(Debug)]
pub struct KernelLines {
    bytes: OnDisk,
    build_id: String,
    /// Absent before the first lookup; `None` where the file does not serve.
    index: Option<Option<Index>>,
}

impl KernelLines {
    /// Opens the debug file of the kernel with a build ID. Nothing is read before the first lookup, so that a process
    /// without privileges can do that.
    pub fn open(path: &Path, build_id: &str) -> Result<KernelLines, KernelError> {
        Ok(KernelLines { bytes: open(path)?, build_id: build_id.to_owned(), index: None })
    }

    /// The functions that the instruction at a link-time address belongs to, innermost first. Empty when unknown, and
    /// where the file is of another kernel or damaged.
    pub fn frames(&mut self, address: u64) -> Vec<SourceFrame> {
        let index = self.index.get_or_insert_with(|| Index::read(&self.bytes, &self.build_id));
        index.as_mut().map(|index| index.frames(&self.bytes, address)).unwrap_or_default()
    }
}

/// The bytes of `.debug_info`.
enum Info {
    /// They are in the file at an offset, and so many.
    OnDisk(u64, u64),
    /// The file has them compressed.
    Unpacked(Vec<u8>),
}

impl Info {
    fn len(&self) -> u64 {
        match self {
            Info::OnDisk(_, len) => *len,
            Info::Unpacked(bytes) => bytes.len() as u64,
        }
    }

    fn range(&self, file: &OnDisk, at: u64, len: u64) -> Option<Vec<u8>> {
        at.checked_add(len).filter(|&end| end <= self.len())?;
        match self {
            Info::OnDisk(start, _) => Some(file.range(start.checked_add(at)?, len)?.into_owned()),
            Info::Unpacked(bytes) => Some(bytes.range(at, len)?.into_owned()),
        }
    }

    /// The unit at an offset, with its header.
    fn unit(&self, file: &OnDisk, at: u64) -> Option<Vec<u8>> {
        let head = self.range(file, at, 12)?;
        let len = match u32_at(&head, 0)? {
            u32::MAX => u64_at(&head, 4)?.checked_add(12)?,
            len => u64::from(len) + 4,
        };
        self.range(file, at, Some(len).filter(|&len| len <= MAX_UNIT)?)
    }
}

/// What is in memory of a debug file.
struct Index {
    info: Info,
    /// The sections that all units share.
    shared: Vec<(SectionId, Bytes)>,
    /// Begin and end of ranges of addresses, each with the offset of its unit; sorted.
    ranges: Vec<(u64, u64, u64)>,
    /// Units by their offsets; `None` for those that cannot be used.
    units: HashMap<u64, Option<addr2line::Context<Bytes>>>,
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").field("ranges", &self.ranges.len()).finish_non_exhaustive()
    }
}

impl Index {
    fn read(file: &OnDisk, build_id: &str) -> Option<Index> {
        let elf = Elf::read("the kernel's debug file", file).ok()?;
        if noted_id(file, &elf).as_deref() != Some(build_id) {
            return None;
        }
        let mut room = MAX_DEBUG;
        let (_, header) = elf.section(SectionId::DebugInfo.name())?;
        let info = match header.flags & SHF_COMPRESSED {
            _ if header.kind == SHT_NOBITS => return None,
            0 => Info::OnDisk(header.offset, header.size),
            _ => Info::Unpacked(section(file, header, &mut room)?),
        };
        let mut shared = Vec::new();
        let _ = gimli::Dwarf::load(|id| -> Result<Bytes, gimli::Error> {
            let header = elf.section(id.name()).filter(|_| is_shared(id));
            if let Some(bytes) = header.and_then(|(_, header)| section(file, header, &mut room)) {
                shared.push((id, Bytes::new(Arc::from(bytes), LittleEndian)));
            }
            Ok(none())
        });
        let mut index = Index { info, shared, ranges: Vec::new(), units: HashMap::new() };
        index.find_ranges(file);
        Some(index)
    }

    /// Finds the addresses of all units.
    fn find_ranges(&mut self, file: &OnDisk) {
        let mut at = 0;
        for _ in 0..MAX_UNITS {
            let Some(bytes) = self.info.unit(file, at) else { break };
            let len = bytes.len() as u64;
            let dwarf = self.dwarf(bytes);
            let unit = dwarf.units().next().ok().flatten().and_then(|header| dwarf.unit(header).ok());
            let ranges = unit.as_ref().and_then(|unit| dwarf.unit_ranges(unit).ok());
            if let Some(mut ranges) = ranges {
                while let Ok(Some(range)) = ranges.next() {
                    if self.ranges.len() < MAX_RANGES && range.begin < range.end {
                        self.ranges.push((range.begin, range.end, at));
                    }
                }
            }
            at += len;
        }
        self.ranges.sort_unstable();
    }

    /// The DWARF of one unit alone.
    fn dwarf(&self, unit: Vec<u8>) -> gimli::Dwarf<Bytes> {
        let unit = Bytes::new(Arc::from(unit), LittleEndian);
        gimli::Dwarf::load(|id| -> Result<Bytes, std::convert::Infallible> {
            let shared = self.shared.iter().find(|(known, _)| *known == id);
            Ok(if id == SectionId::DebugInfo {
                unit.clone()
            } else {
                shared.map_or_else(none, |s| s.1.clone())
            })
        })
        .unwrap_or_else(|never| match never {})
    }

    fn frames(&mut self, file: &OnDisk, address: u64) -> Vec<SourceFrame> {
        let after = self.ranges.partition_point(|range| range.0 <= address);
        let range = after.checked_sub(1).and_then(|at| self.ranges.get(at));
        let Some(&(_, _, at)) = range.filter(|range| address < range.1) else { return Vec::new() };
        if !self.units.contains_key(&at) {
            if self.units.len() >= MAX_KEPT {
                self.units.clear();
            }
            let unit = self.info.unit(file, at).and_then(|bytes| context(self.dwarf(bytes)));
            self.units.insert(at, unit);
        }
        let unit = self.units.get(&at).and_then(Option::as_ref);
        unit.map(|unit| chain(unit, address)).unwrap_or_default()
    }
}

/// Whether a section is shared by all units. `.debug_aranges` names units by their places in the file, and each of ours
/// is read as if it were the only one: it would get the addresses of the first.
fn is_shared(id: SectionId) -> bool {
    wanted(id) && !matches!(id, SectionId::DebugInfo | SectionId::DebugAranges)
}

fn none() -> Bytes {
    Bytes::new(Arc::from([]), LittleEndian)
}

/// A section's bytes, unpacked. `room` is how many bytes may still be read; it shrinks by the section's size.
fn section(file: &OnDisk, header: &SectionHeader, room: &mut u64) -> Option<Vec<u8>> {
    if header.kind == SHT_NOBITS || header.size > *room {
        return None;
    }
    let raw = file.range(header.offset, header.size)?.into_owned();
    let bytes = if header.flags & SHF_COMPRESSED != 0 { unpack(&raw, *room)? } else { raw };
    *room -= bytes.len() as u64;
    Some(bytes)
}

/// Prepares the lookup in one unit. `None` for a unit that refers to others, as link-time optimization makes them: the
/// names would be wrong.
fn context(dwarf: gimli::Dwarf<Bytes>) -> Option<addr2line::Context<Bytes>> {
    let unit = dwarf.unit(dwarf.units().next().ok()??).ok()?;
    let abbreviations = (1..).map_while(|code| unit.abbreviations.get(code));
    if abbreviations.flat_map(|one| one.attributes()).any(|spec| spec.form() == gimli::DW_FORM_ref_addr) {
        return None;
    }
    addr2line::Context::from_dwarf(dwarf).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::dwarf::dwarf;
    use crate::module::tests::Object;
    use std::os::unix::fs::MetadataExt;

    const TEXT: u64 = 0xffff_ffff_8100_0000;
    const INIT: u64 = 0xffff_ffff_8300_0000;
    const ID: &str = "0123456789abcdef";

    /// A kernel with the build ID.
    fn kernel(compress: u32, has_lines: bool) -> Vec<u8> {
        let mut object = Object::empty();
        object.compress = compress;
        let notes = b"\x04\0\0\0\x08\0\0\0\x03\0\0\0GNU\0\x01\x23\x45\x67\x89\xab\xcd\xef";
        object.section(".notes", SHT_NOTE, 2, notes);
        // Its code becomes a hole in the copy.
        object.section(".text", 1, 6, &[0x90; 1 << 16]);
        if has_lines {
            dwarf(&mut object, [1, 2], Some([TEXT, INIT]));
            object.debug(".debug_aranges", &first_unit(), &[]);
        }
        object.build()
    }

    /// `.debug_aranges` with the addresses of the first unit.
    fn first_unit() -> Vec<u8> {
        let mut table = vec![44, 0, 0, 0, 2, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0];
        table.extend([TEXT, 16, 0, 0].iter().flat_map(|word| word.to_le_bytes()));
        table
    }

    fn lines(path: &Path, address: u64) -> Vec<(String, String, u32)> {
        let frames = KernelLines::open(path, ID).unwrap().frames(address);
        frames.into_iter().map(|frame| (frame.function.unwrap(), frame.file, frame.line)).collect()
    }

    fn line(function: &str, file: &str, line: u32) -> (String, String, u32) {
        (function.to_owned(), file.to_owned(), line)
    }

    #[test]
    fn a_kernel_and_its_copy_have_the_same_lines() {
        let folder = tempfile::tempdir().unwrap();
        let [path, copy] = ["vmlinux", "copy"].map(|name| folder.path().join(name));
        for compress in [0, 1, 2] {
            std::fs::write(&path, kernel(compress, true)).unwrap();
            let debug = DebugKernel::open(&path).unwrap();
            assert_eq!((debug.build_id().as_deref(), debug.has_lines()), (Some(ID), true));
            debug.copy(&File::create(&copy).unwrap()).unwrap();
            for path in [&path, &copy] {
                let inlined = [line("helper", "include/inc.h", 30), line("work", "drv.c", 11)];
                assert_eq!(lines(path, TEXT + 5), inlined);
                assert_eq!(lines(path, INIT + 1), [line("setup", "drv.c", 50)]);
                assert_eq!(lines(path, TEXT + 16), []);
                assert_eq!(lines(path, 0), []);
            }
        }
        let used = |path: &Path| std::fs::metadata(path).unwrap().blocks() * 512;
        assert!(used(&copy) + (1 << 15) < used(&path), "{} of {}", used(&copy), used(&path));
    }

    #[test]
    fn a_file_that_does_not_serve_gives_no_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vmlinux");
        let refused = || DebugKernel::open(&path).unwrap_err().to_string();
        let whole = kernel(0, true);

        std::fs::write(&path, &whole).unwrap();
        assert!(KernelLines::open(&path, "0123").unwrap().frames(TEXT).is_empty());
        std::fs::write(&path, kernel(0, false)).unwrap();
        assert!(!DebugKernel::open(&path).unwrap().has_lines());
        assert_eq!(lines(&path, TEXT), []);
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert!(refused().ends_with("the section headers lie beyond its end"), "{}", refused());
        assert_eq!(lines(&path, TEXT), []);
        std::fs::write(&path, "text").unwrap();
        assert!(refused().ends_with("is not an ELF file"), "{}", refused());
        assert_eq!(lines(&path, TEXT), []);
        File::create(&path).unwrap().set_len(MAX_FILE + 1).unwrap();
        assert!(DebugKernel::open(&path).is_err() && KernelLines::open(&path, ID).is_err());
        assert!(DebugKernel::open(folder.path()).is_err());
    }

    #[test]
    fn a_unit_that_refers_to_others_has_no_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vmlinux");
        let mut bytes = kernel(0, true);
        // The form of DW_AT_abstract_origin becomes DW_FORM_ref_addr, in the abbreviations of both units.
        let at = bytes.windows(4).position(|four| four == [0x31, 0x13, 0x11, 0x01]).unwrap();
        bytes[at + 1] = 0x10;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(lines(&path, TEXT + 5), []);
    }

    #[test]
    fn a_file_that_is_cut_while_it_is_open_gives_no_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vmlinux");
        std::fs::write(&path, kernel(0, true)).unwrap();
        let mut lines = KernelLines::open(&path, ID).unwrap();
        assert_eq!(lines.frames(TEXT).len(), 1);
        File::options().write(true).open(&path).unwrap().set_len(64).unwrap();
        assert!(lines.frames(INIT).is_empty());
    }

    #[test]
    fn damaged_bytes_never_panic() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vmlinux");
        let mut object = Object::empty();
        object.section(".notes", SHT_NOTE, 2, &kernel(0, false)[64..88]);
        dwarf(&mut object, [1, 2], Some([TEXT, INIT]));
        let bytes = object.build();
        assert_eq!(bytes[64..88], kernel(0, false)[64..88]);
        let probe = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let mut lines = KernelLines::open(&path, ID).unwrap();
            [TEXT, TEXT + 5, TEXT + 12, INIT + 5].map(|address| lines.frames(address).len())
        };
        assert_eq!(probe(&bytes), [1, 2, 1, 2]);
        for at in 0..bytes.len() {
            for bits in [0x01, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= bits;
                probe(&damaged);
            }
            probe(&bytes[..at]);
        }
    }

    #[test]
    fn lines_can_move_to_another_thread() {
        fn sendable<T: Send>() {}
        sendable::<KernelLines>();
    }
}
