//! Dumps made by hand, with page tables in them.

mod core;
mod tables;

use self::core::{TABLES, TEXT, core, entry};
use crate::dump::{Cpu, Dump};
use crate::map::{map, thin};
use crate::paging::{KERNEL_HALF, Range, Space};
use crate::symbols::{self, Section, Symbol};
use guardrail_binfmt::orc::Frames;
use object::{Object, ObjectSection, ObjectSymbol};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const MEMORY: usize = 0x40_0000;

/// Writes a core with this memory into a folder.
fn dump(folder: &Path, memory: &[u8]) -> PathBuf {
    let path = folder.join("core");
    fs::write(&path, core(memory, memory.len() as u64)).unwrap();
    path
}

/// Memory whose page tables map [`TEXT`] to 2 MiB at 0x20_0000. They also map two adjacent pages, in
/// reverse order, at the start of the kernel half.
fn memory() -> Vec<u8> {
    let mut memory = vec![0; MEMORY];
    entry(&mut memory, TABLES, 511, 0x2003);
    entry(&mut memory, 0x2000, 510, 0x3003);
    entry(&mut memory, 0x3000, 8, 0x20_0083);
    entry(&mut memory, TABLES, 256, 0x4003);
    entry(&mut memory, 0x4000, 0, 0x5003);
    entry(&mut memory, 0x5000, 0, 0x6003);
    entry(&mut memory, 0x6000, 0, 0x9003);
    entry(&mut memory, 0x6000, 1, 0x8003);
    // One entry points beyond the memory, and one is not present.
    entry(&mut memory, 0x6000, 2, 0x4000_0003);
    entry(&mut memory, 0x6000, 3, 0x7002);
    memory[0x20_0004..0x20_000c].copy_from_slice(b"a text\0x");
    memory[0x9ffc..0xa000].copy_from_slice(b"abcd");
    memory[0x8000..0x8004].copy_from_slice(b"efgh");
    memory
}

#[test]
fn a_dump_gets_the_addresses_of_its_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let path = dump(folder.path(), &memory());
    let dump = Dump::open(&path).unwrap();
    let cpu = Cpu { rip: TEXT + 4, rsp: 0, cr3: TABLES | 0x18, cr4: 0 };
    assert_eq!(dump.cpus(), [cpu]);
    let space = Space::of(&dump, &cpu);
    let range = |virt, physical, size| Range { virt, physical, size };
    assert_eq!(
        space.ranges(),
        [
            range(KERNEL_HALF, 0x9000, 0x1000),
            range(KERNEL_HALF + 0x1000, 0x8000, 0x1000),
            range(TEXT, 0x20_0000, 0x20_0000)
        ]
    );
    let mut bytes = [0; 8];
    space.read(&dump, KERNEL_HALF + 0xffc, &mut bytes).unwrap();
    assert_eq!(&bytes, b"abcdefgh");
    assert!(space.read(&dump, KERNEL_HALF + 0x1ffc, &mut bytes).is_none());
    assert_eq!(space.text(&dump, TEXT + 4, 64).unwrap(), "a text");

    map(&dump, &space).unwrap();
    let again = Dump::open(&path).unwrap();
    assert_eq!(again.cpus(), [cpu]);
    let mapped = fs::read(&path).unwrap();
    // A second mapping changes nothing.
    map(&again, &space).unwrap();
    assert_eq!(fs::read(&path).unwrap(), mapped);
    let core = object::File::parse(&mapped[..]).unwrap();
    let segments: Vec<(u64, u64)> = object::Object::segments(&core)
        .map(|s| (object::ObjectSegment::address(&s), object::ObjectSegment::size(&s)))
        .collect();
    assert_eq!(segments, space.ranges().iter().map(|r| (r.virt, r.size)).collect::<Vec<_>>());
    let text = object::Object::segments(&core).last().unwrap();
    assert!(object::ObjectSegment::data(&text).unwrap()[4..].starts_with(b"a text\0"));
}

#[test]
fn tables_that_lead_to_themselves_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut memory = vec![0; MEMORY];
    // Every entry of every level points to the top table.
    (0..512).for_each(|i| entry(&mut memory, TABLES, i, TABLES | 3));
    let dump = Dump::open(&dump(folder.path(), &memory)).unwrap();
    let space = Space::of(&dump, &dump.cpus()[0]);
    // At each level, the table is followed from one entry.
    let range = |virt| Range { virt, physical: TABLES, size: 0x1000 };
    assert_eq!(space.ranges().len(), 512);
    assert_eq!(space.ranges()[511], range(0xffff_ff80_001f_f000));
}

#[test]
fn what_is_no_dump_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = dump(folder.path(), &memory());
    let whole = fs::read(&path).unwrap();
    for length in [0, 10, 63, 64, 100, 170, 300, 0x10_0000] {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(Dump::open(&path).is_err(), "{length}");
    }
    fs::write(&path, "something else altogether, and long enough for a header of 64 bytes").unwrap();
    let error = Dump::open(&path).unwrap_err().to_string();
    assert!(error.ends_with("it is no core of x86-64"), "{error}");
}

#[test]
fn thinning_changes_nothing_that_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = dump(folder.path(), &memory());
    let before = (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().blocks());
    thin(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), before.0);
    assert!(fs::metadata(&path).unwrap().blocks() <= before.1);
}

#[test]
fn a_symbol_file_names_what_it_is_given() {
    let section = |name: &str, address, size, code| Section { name: name.into(), address, size, code };
    let symbol =
        |name: &str, address, code, local| Symbol { name: name.into(), address, size: 4, code, local };
    let bytes = symbols::write(
        &[section(".data", TEXT + 0x1000, 0x100, false), section(".text", TEXT, 0x100, true)],
        &[
            symbol("global", TEXT + 4, true, false),
            symbol("local", TEXT + 8, true, true),
            symbol("variable", TEXT + 0x1010, false, false),
            symbol("nowhere", 0x10, true, false),
        ],
        &Frames::new().finish(),
    );
    let file = object::File::parse(&bytes[..]).unwrap();
    let symbols: Vec<(&str, u64)> = file.symbols().map(|s| (s.name().unwrap(), s.address())).collect();
    assert_eq!(symbols, [("local", TEXT + 8), ("global", TEXT + 4), ("variable", TEXT + 0x1010)]);
    assert_eq!(file.section_by_name(".text").unwrap().address(), TEXT);
    assert!(file.section_by_name(".debug_frame").unwrap().size() > 0);
}
