//! Symbol tables as `scripts/kallsyms` lays them out.
//!
//! The seeds of the fuzzer are made of these too (`examples/binfmt_seed`), so nothing here knows the crate.

/// The range of the text.
pub(crate) const TEXT: (u64, u64) = (0xffff_ffff_8100_0000, 0xffff_ffff_8110_0000);
/// Where the tables are.
pub(crate) const RODATA: u64 = 0xffff_ffff_8200_0000;

/// Where the kernel's banner is, and the head of its list of modules.
pub(crate) const BANNER: u64 = RODATA + 0x30_0000;
pub(crate) const MODULES: u64 = BANNER + 0x1000;

/// Where the addresses are and what else lies between the tables.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Layout {
    /// Up to 6.1: addresses first.
    First,
    /// The same, with the order by name between markers and tokens.
    FirstWithOrder,
    /// 6.4 and later: addresses last.
    Last,
    /// 7.0 and later: distances from their own places, last.
    LastPlaceRelative,
}

pub(crate) const LAYOUTS: [Layout; 4] =
    [Layout::First, Layout::FirstWithOrder, Layout::Last, Layout::LastPlaceRelative];

pub(crate) fn symbols() -> Vec<(u8, String, u64)> {
    let mut list = vec![(b'A', "per_cpu_thing".to_owned(), 0x40)];
    list.push((b'T', "_text".to_owned(), TEXT.0));
    list.push((b'T', "_stext".to_owned(), TEXT.0));
    list.extend((0..600).map(|i| (b't', format!("function_{i}"), TEXT.0 + 0x1000 + i * 0x40)));
    list.push((b't', "function_7".to_owned(), TEXT.0 + 0xf000));
    list.push((b'T', format!("long_{}", "x".repeat(200)), TEXT.0 + 0xf100));
    list.push((b'T', "_etext".to_owned(), TEXT.1));
    list.push((b'T', "_sinittext".to_owned(), TEXT.1 + 0x1000));
    list.push((b'T', "_einittext".to_owned(), TEXT.1 + 0x2000));
    list.push((b'D', "linux_banner".to_owned(), BANNER));
    list.push((b'd', "modules".to_owned(), MODULES));
    list
}

fn align(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(8), 0);
}

fn offsets(out: &mut Vec<u8>, list: &[(u8, String, u64)], layout: Layout) {
    align(out);
    for (_, _, address) in list {
        let word = match layout {
            Layout::LastPlaceRelative => address.wrapping_sub(RODATA + out.len() as u64) as u32,
            _ if *address < 0x1000 => *address as u32,
            _ => TEXT.0.wrapping_sub(1).wrapping_sub(*address) as u32,
        };
        out.extend_from_slice(&word.to_le_bytes());
    }
    align(out);
    if layout != Layout::LastPlaceRelative {
        out.extend_from_slice(&TEXT.0.to_le_bytes());
    }
}

/// Lays the tables out as `scripts/kallsyms` does.
pub(crate) fn build(layout: Layout) -> Vec<u8> {
    let mut list = symbols();
    if layout == Layout::LastPlaceRelative {
        list.remove(0);
    }
    let mut out = vec![0xcc; 48];
    if matches!(layout, Layout::First | Layout::FirstWithOrder) {
        offsets(&mut out, &list, layout);
    }
    align(&mut out);
    out.extend_from_slice(&(list.len() as u32).to_le_bytes());
    align(&mut out);
    let names = out.len();
    let mut markers = Vec::new();
    for (i, (kind, name, _)) in list.iter().enumerate() {
        if i % 256 == 0 {
            markers.push((out.len() - names) as u32);
        }
        let len = name.len() + 1;
        if len < 0x80 {
            out.push(len as u8);
        } else {
            out.extend_from_slice(&[(len & 0x7f) as u8 | 0x80, (len >> 7) as u8]);
        }
        out.push(*kind);
        out.extend_from_slice(name.as_bytes());
    }
    align(&mut out);
    for marker in markers {
        out.extend_from_slice(&marker.to_le_bytes());
    }
    align(&mut out);
    if layout == Layout::FirstWithOrder {
        for i in 0..list.len() as u32 {
            out.extend_from_slice(&i.wrapping_mul(7919).to_be_bytes()[1..]);
        }
        align(&mut out);
    }
    let table = out.len();
    let mut index = Vec::new();
    for byte in 0..=255u8 {
        index.push((out.len() - table) as u16);
        out.extend_from_slice(if byte.is_ascii_graphic() { std::slice::from_ref(&byte) } else { b"xyz" });
        out.push(0);
    }
    align(&mut out);
    for start in index {
        out.extend_from_slice(&start.to_le_bytes());
    }
    if matches!(layout, Layout::Last | Layout::LastPlaceRelative) {
        offsets(&mut out, &list, layout);
    }
    out.extend_from_slice(&[0xcc; 32]);
    out
}
