//! Source lines of a module's code, from the DWARF of its file or of a separate debug file.
//!
//! A module is not linked yet: every section begins at zero.
//! Each section gets a made-up base, so that one lookup serves all of them. The relocations of the debug
//! sections are applied in memory.

use crate::bytes::{array, u32_at, u64_at};
use crate::decompress::LIMIT;
use crate::elf::{SHF_ALLOC, SHF_COMPRESSED, SHF_EXECINSTR, SHT_NOBITS};
use crate::error::KernelError;
use crate::module::ModuleImage;
use gimli::{EndianArcSlice, LittleEndian, SectionId};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Most unpacked bytes of all debug sections of one file together.
pub(crate) const MAX_DEBUG: u64 = 512 << 20;
/// Most frames of one chain of inlined functions.
const MAX_FRAMES: usize = 256;

/// Distance between the made-up bases' ends and beginnings, and the first base.
const GAP: u64 = 1 << 16;
const FIRST_BASE: u64 = 1 << 32;

const R_X86_64_64: u32 = 1;
const R_X86_64_32: u32 = 10;
const R_X86_64_32S: u32 = 11;

pub(crate) type Bytes = EndianArcSlice<LittleEndian>;

/// One function, inlined or not, that an instruction belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFrame {
    /// The function's name; `None` where DWARF has none.
    pub function: Option<String>,
    /// The file, relative to the folder of the build where that is possible.
    pub file: String,
    /// The line in the file; that of the call when an inner frame precedes.
    pub line: u32,
    /// The column; zero when unknown.
    pub column: u32,
}

impl From<SourceFrame> for (Option<String>, String, u32) {
    fn from(frame: SourceFrame) -> Self {
        (frame.function, frame.file, frame.line)
    }
}

/// Finds the source lines of a module's instructions.
pub struct Lines {
    context: addr2line::Context<Bytes>,
    /// Made-up base and size of each of the module's sections; `None` for those without code.
    bases: Vec<Option<(u64, u64)>>,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").field("bases", &self.bases).finish_non_exhaustive()
    }
}

impl Lines {
    /// The lines of a module that carries debug information itself.
    pub fn of_module(image: &ModuleImage) -> Option<Lines> {
        Lines::new(image, image)
    }

    /// The lines of a module whose debug information is in a file of its own.
    ///
    /// `None` when that file has none; an error when it belongs to another module.
    pub fn of_file(path: &Path, image: &ModuleImage) -> Result<Option<Lines>, KernelError> {
        let what = path.display().to_string();
        let debug = ModuleImage::parse_object(&what, crate::image::read_file(path)?)?;
        let same = image.sections().filter(|s| s.alloc && s.exec).all(|section| {
            debug.sections().find(|s| s.name == section.name).is_some_and(|other| other.size == section.size)
        });
        if !same || !same_build(image, &debug) {
            return Err(KernelError::NotA { what, expected: "the debug file of this build of the module" });
        }
        Ok(Lines::new(&debug, image))
    }

    fn new(debug: &ModuleImage, image: &ModuleImage) -> Option<Lines> {
        let debug_bases = made_up_bases(debug);
        let context = addr2line::Context::from_dwarf(dwarf(debug, &debug_bases)?).ok()?;
        let bases = image.sections().map(|section| {
            let index = debug.section_index(section.name).filter(|_| section.alloc && section.exec)?;
            debug_bases.get(index).copied().flatten().map(|base| (base, section.size.min(LIMIT)))
        });
        Some(Lines { context, bases: bases.collect() })
    }

    /// The functions that an instruction belongs to, innermost first; empty when unknown.
    pub fn frames(&self, section: usize, offset: u64) -> Vec<SourceFrame> {
        let Some(&Some((base, size))) = self.bases.get(section) else { return Vec::new() };
        if offset >= size {
            return Vec::new();
        }
        chain(&self.context, base + offset)
    }

    /// The line of an instruction in the function that is not inlined. For code inlined from a header, it is
    /// where the driver's own file calls it.
    pub fn line(&self, section: usize, offset: u64) -> Option<(String, u32)> {
        let known: Vec<SourceFrame> =
            self.frames(section, offset).into_iter().filter(|f| f.line != 0 && !f.file.is_empty()).collect();
        let own = known.iter().rev().find(|f| !f.file.ends_with(".h")).or(known.last())?;
        Some((own.file.clone(), own.line))
    }
}

/// The functions that an address belongs to, innermost first; empty when unknown.
pub(crate) fn chain(context: &addr2line::Context<Bytes>, address: u64) -> Vec<SourceFrame> {
    let folder = build_folder(context, address).unwrap_or_default();
    let mut frames = Vec::new();
    let Ok(mut found) = context.find_frames(address).skip_all_loads() else { return frames };
    while let Ok(Some(frame)) = found.next() {
        if frames.len() >= MAX_FRAMES {
            break;
        }
        let function = frame.function.as_ref().and_then(|f| Some(f.raw_name().ok()?.into_owned()));
        // A frame without a line stays, since its function is known; nobody will show line 0.
        let location = frame.location;
        frames.push(SourceFrame {
            function,
            file: location.as_ref().and_then(|l| l.file).map(|f| shorten(f, &folder)).unwrap_or_default(),
            line: location.as_ref().and_then(|l| l.line).unwrap_or(0),
            column: location.as_ref().and_then(|l| l.column).unwrap_or(0),
        });
    }
    frames
}

/// The folder that the file names of an address's compilation unit are relative to.
fn build_folder(context: &addr2line::Context<Bytes>, address: u64) -> Option<String> {
    let unit = context.find_dwarf_and_unit(address).skip_all_loads()?;
    Some(String::from_utf8_lossy(unit.comp_dir.as_ref()?.bytes()).into_owned())
}

/// The DWARF of a module, with its sections at these bases; `None` where it has no DWARF.
fn dwarf(debug: &ModuleImage, bases: &[Option<u64>]) -> Option<gimli::Dwarf<Bytes>> {
    debug.section_index(SectionId::DebugInfo.name())?;
    let mut room = MAX_DEBUG;
    gimli::Dwarf::load(|id| -> Result<Bytes, gimli::Error> {
        let bytes = if wanted(id) { relocated(debug, id.name(), bases, &mut room) } else { None };
        Ok(Bytes::new(Arc::from(bytes.unwrap_or_default()), LittleEndian))
    })
    .ok()
}

/// The DWARF of a module for callers that need no addresses.
pub(crate) fn dwarf_of(module: &ModuleImage) -> Option<gimli::Dwarf<Bytes>> {
    dwarf(module, &made_up_bases(module))
}

/// Whether the build ids agree; true unless both files have one.
fn same_build(image: &ModuleImage, debug: &ModuleImage) -> bool {
    let id = |m: &ModuleImage| {
        let bytes = m.section_index(".note.gnu.build-id").map(|index| m.section_bytes(index).to_vec());
        bytes.filter(|b| !b.is_empty())
    };
    id(image).is_none_or(|a| id(debug).is_none_or(|b| a == b))
}

/// Whether lines and functions are read from the section; the others stay out of memory.
pub(crate) fn wanted(id: SectionId) -> bool {
    matches!(
        id,
        SectionId::DebugAbbrev
            | SectionId::DebugAddr
            | SectionId::DebugAranges
            | SectionId::DebugInfo
            | SectionId::DebugLine
            | SectionId::DebugLineStr
            | SectionId::DebugRanges
            | SectionId::DebugRngLists
            | SectionId::DebugStr
            | SectionId::DebugStrOffsets
    )
}

/// A base for each section with code, far enough apart that offsets beyond an end stay apart too.
fn made_up_bases(debug: &ModuleImage) -> Vec<Option<u64>> {
    let mut next = FIRST_BASE;
    let base = |section: &crate::elf::SectionHeader| {
        if section.flags & SHF_ALLOC == 0 || section.flags & SHF_EXECINSTR == 0 {
            return None;
        }
        let base = next;
        // No section is larger than a file may be, even if its header claims more.
        next += (section.size.min(LIMIT) + GAP).next_multiple_of(GAP);
        Some(base)
    };
    debug.headers().iter().map(base).collect()
}

/// A debug section's bytes, unpacked and relocated. `room` is how many bytes may still be read; it shrinks by
/// the section's size.
fn relocated(debug: &ModuleImage, name: &str, bases: &[Option<u64>], room: &mut u64) -> Option<Vec<u8>> {
    let index = debug.section_index(name)?;
    let header = debug.headers().get(index).filter(|s| s.kind != SHT_NOBITS)?;
    let raw = debug.section_bytes(index);
    let mut bytes = if header.flags & SHF_COMPRESSED != 0 {
        unpack(raw, *room)?
    } else {
        (raw.len() as u64 <= *room).then(|| raw.to_vec())?
    };
    *room -= bytes.len() as u64;
    for rela in debug.relocations(index) {
        let Some(symbol) = debug.symbols().get(rela.symbol) else { continue };
        let base = symbol.section.and_then(|s| bases.get(usize::from(s)).copied().flatten()).unwrap_or(0);
        let value = base.wrapping_add(symbol.value).wrapping_add_signed(rela.addend);
        let width = match rela.kind {
            R_X86_64_64 => 8,
            R_X86_64_32 | R_X86_64_32S => 4,
            _ => continue,
        };
        let Some(start) = usize::try_from(rela.offset).ok() else { continue };
        let Some(place) = start.checked_add(width).and_then(|end| bytes.get_mut(start..end)) else {
            continue;
        };
        place.copy_from_slice(&value.to_le_bytes()[..width]);
    }
    Some(bytes)
}

/// Unpacks a section with `SHF_COMPRESSED`, to at most `room` bytes.
pub(crate) fn unpack(raw: &[u8], room: u64) -> Option<Vec<u8>> {
    let size = u64_at(raw, 8).filter(|&size| size <= room)?;
    array::<24>(raw, 0)?;
    let packed = raw.get(24..)?;
    let mut out = Vec::new();
    let read = match u32_at(raw, 0)? {
        1 => flate2::read::ZlibDecoder::new(packed).take(size).read_to_end(&mut out),
        2 => zstd::stream::read::Decoder::with_buffer(packed).and_then(|mut decoder| {
            decoder.window_log_max(28)?;
            decoder.take(size).read_to_end(&mut out)
        }),
        _ => return None,
    };
    (read.ok()? as u64 == size).then_some(out)
}

/// Where Debian builds a kernel, in the source (`debian/rules.real`). Paths of assembler files lead to the source.
const DEBIAN: &str = "/debian/build/";

/// A path without `.` and `..`, relative to the folder of the build where it lies in it, or in the source around it.
fn shorten(path: &str, folder: &str) -> String {
    let path = normal(path);
    let folder = normal(folder);
    let source = folder.split_once(DEBIAN).map(|(source, _)| source);
    let below = |folder: &str| Some(path.strip_prefix(folder)?.strip_prefix('/')?.to_owned());
    [Some(folder.as_str()), source]
        .into_iter()
        .flatten()
        .filter(|folder| !folder.is_empty())
        .find_map(below)
        .filter(|rest| !rest.is_empty())
        .unwrap_or(path)
}

fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|&last| last != "..") => {
                parts.pop();
            }
            // Nothing is above the root.
            ".." if path.starts_with('/') => {}
            _ => parts.push(part),
        }
    }
    let joined = parts.join("/");
    if path.starts_with('/') { format!("/{joined}") } else { joined }
}

#[cfg(test)]
pub(crate) mod dwarf;

#[cfg(test)]
mod tests {
    use super::dwarf::module;
    use super::*;
    use crate::module::tests::Object;

    fn check(lines: &Lines, text: usize, init: usize) {
        assert_eq!(lines.line(text, 0), Some(("drv.c".into(), 10)));
        assert_eq!(lines.line(text, 12), Some(("drv.c".into(), 11)));
        assert_eq!(lines.line(init, 1), Some(("drv.c".into(), 50)));
        // The header's line belongs to the inner frame only.
        let frames = lines.frames(text, 5);
        let short: Vec<_> =
            frames.iter().map(|f| (f.function.as_deref().unwrap(), f.file.as_str(), f.line)).collect();
        assert_eq!(short, [("helper", "include/inc.h", 30), ("work", "drv.c", 11)]);
        assert_eq!(lines.line(text, 5), Some(("drv.c".into(), 11)));
        assert_eq!(lines.frames(init, 5)[1].function.as_deref(), Some("setup"));
        assert_eq!(lines.line(text, 16), None);
        assert_eq!(lines.line(999, 0), None);
        assert_eq!(lines.line(text, u64::MAX), None);
    }

    #[test]
    fn sections_do_not_collide_and_inlined_code_counts_for_its_caller() {
        for compress in [0, 1, 2] {
            let (bytes, text, init) = module(compress);
            let image = ModuleImage::parse("drv.ko", bytes).unwrap();
            check(&Lines::of_module(&image).unwrap(), text, init);
        }
    }

    #[test]
    fn a_separate_debug_file_serves_only_its_own_module() {
        let (bytes, text, init) = module(0);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drv.ko.debug");
        std::fs::write(&path, &bytes).unwrap();
        let image = ModuleImage::parse("drv.ko", bytes).unwrap();
        check(&Lines::of_file(&path, &image).unwrap().unwrap(), text, init);

        let mut other = Object::module("drv");
        other.section(".text", 1, 6, &[0x90; 32]);
        let other = ModuleImage::parse("drv.ko", other.build()).unwrap();
        assert!(Lines::of_module(&other).is_none());
        assert!(Lines::of_file(&path, &other).is_err());
    }

    #[test]
    fn lines_can_move_to_another_thread() {
        fn sendable<T: Send>() {}
        sendable::<Lines>();
    }

    #[test]
    fn damaged_bytes_never_panic() {
        let (bytes, text, init) = module(0);
        let probe = |bytes: Vec<u8>| {
            let Ok(image) = ModuleImage::parse("drv.ko", bytes) else { return };
            if let Some(lines) = Lines::of_module(&image) {
                for (section, offset) in [(text, 0), (text, 5), (text, 12), (init, 5)] {
                    let _ = lines.line(section, offset);
                }
            }
        };
        for at in 0..bytes.len() {
            for bits in [0x01, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= bits;
                probe(damaged);
            }
            probe(bytes[..at].to_vec());
        }
    }

    #[test]
    fn paths_are_short_and_normal() {
        assert_eq!(shorten("./zoo/oob/../zoo.h", "."), "zoo/zoo.h");
        assert_eq!(shorten("/build/linux/./drivers/a.c", "/build/linux"), "drivers/a.c");
        assert_eq!(shorten("/build/linux-2/a.c", "/build/linux"), "/build/linux-2/a.c");
        let debian = "/build/linux/debian/build/amd64";
        assert_eq!(shorten("/build/linux/arch/entry.S", debian), "arch/entry.S");
        assert_eq!(shorten("/build/linux/debian/build/amd64/a.c", debian), "a.c");
        assert_eq!(shorten("/../a/../../b.c", "/"), "/b.c");
        assert_eq!(shorten("../../b.c", ""), "../../b.c");
    }
}
