//! The kernel's own symbol table, decoded from its image.
//!
//! `scripts/kallsyms` lays out these parts, each aligned:
//!
//! - the number of symbols,
//! - the compressed names,
//! - a marker for each 256th name,
//! - 256 tokens that bytes of names stand for,
//! - an index of the tokens.
//!
//! The addresses stand before all that (up to 6.3) or after it (since 6.4), in one of several encodings.
//! Nothing in the image states where this is. The tables are found by their form, and checked against each
//! other.

use crate::bytes::{c_str, i32_at, slice, u16_at, u32_at, u64_at};
use crate::error::KernelError;

/// More symbols than any kernel has.
const MAX_SYMBOLS: usize = 1 << 22;
const MAX_NAME: usize = 2048;

/// One symbol, borrowed from the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Link-time address (an offset for per-CPU symbols of kernels before 6.15).
    pub address: u64,
    /// The name, as in `/proc/kallsyms`.
    pub name: &'a str,
    /// The letter that `nm` gives it: `t`, `T`, `d`, …
    pub kind: char,
}

/// All symbols of an image.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    text: String,
    entries: Vec<Entry>,
    /// Indices of `entries`, sorted by name.
    by_name: Vec<u32>,
    /// Indices of `entries`, sorted by address; equal addresses in table order.
    by_address: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    address: u64,
    name: u32,
    len: u16,
    kind: u8,
}

/// A symbol that covers an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located<'a> {
    /// The name, as in `/proc/kallsyms`.
    pub name: &'a str,
    /// Bytes from the symbol's start to the address.
    pub offset: u64,
    /// Bytes from the symbol's start to the next symbol's.
    pub size: u64,
}

/// Whether there is a symbol table at all in this section: its tokens are found by their form.
pub(crate) fn has_table(rodata: &[u8]) -> bool {
    Tokens::find(rodata).is_some()
}

impl Symbols {
    /// Finds and decodes the table. `rodata` is the section it lies in, loaded at `rodata_addr`. `text` is
    /// the range of the kernel's text, by which the address encoding is recognized.
    pub fn decode(rodata: &[u8], rodata_addr: u64, text: (u64, u64)) -> Result<Symbols, KernelError> {
        let damaged = |detail: &str| KernelError::damaged("the kernel's symbol table (kallsyms)", detail);
        let tokens = Tokens::find(rodata).ok_or_else(|| damaged("its token table cannot be found"))?;
        let names = Names::find(rodata, tokens.table_at)
            .ok_or_else(|| damaged("its list of names cannot be found"))?;
        let mut symbols = Symbols::default();
        names.expand(rodata, &tokens, &mut symbols).ok_or_else(|| damaged("a name does not decode"))?;
        let addresses = find_addresses(rodata, rodata_addr, text, &names, &tokens, &symbols)
            .ok_or_else(|| damaged("its addresses cannot be found"))?;
        for (entry, address) in symbols.entries.iter_mut().zip(addresses) {
            entry.address = address;
        }
        symbols.index();
        Ok(symbols)
    }

    /// Reads the text of `/proc/kallsyms`, without the symbols of modules.
    pub fn from_proc(text: &str) -> Symbols {
        let mut symbols = Symbols::default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let (Ok(address), Some(kind)) = (u64::from_str_radix(address, 16), kind.bytes().next()) else {
                continue;
            };
            if words.next().is_none() && symbols.entries.len() < MAX_SYMBOLS {
                symbols.push(kind, name.as_bytes(), address);
            }
        }
        symbols.index();
        symbols
    }

    fn push(&mut self, kind: u8, name: &[u8], address: u64) {
        let start = self.text.len() as u32;
        self.text.push_str(&String::from_utf8_lossy(name));
        let len = (self.text.len() as u32 - start).min(u32::from(u16::MAX)) as u16;
        self.entries.push(Entry { address, name: start, len, kind });
    }

    fn index(&mut self) {
        let mut order: Vec<u32> = (0..self.entries.len() as u32).collect();
        self.by_address = order.clone();
        self.by_address.sort_by_key(|&i| self.entries[i as usize].address);
        order.sort_by(|&a, &b| self.name(a).cmp(self.name(b)));
        self.by_name = order;
    }

    fn name(&self, index: u32) -> &str {
        let entry = &self.entries[index as usize];
        self.text.get(entry.name as usize..entry.name as usize + usize::from(entry.len)).unwrap_or("")
    }

    fn symbol(&self, index: u32) -> Symbol<'_> {
        let entry = &self.entries[index as usize];
        Symbol { address: entry.address, name: self.name(index), kind: char::from(entry.kind) }
    }

    /// How many symbols there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no symbol.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All symbols in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = Symbol<'_>> {
        (0..self.entries.len() as u32).map(|i| self.symbol(i))
    }

    /// All symbols with this name.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Symbol<'a>> {
        let start = self.by_name.partition_point(|&i| self.name(i) < name);
        self.by_name[start..].iter().map(|&i| self.symbol(i)).take_while(move |s| s.name == name)
    }

    /// Address of the first symbol with this name; a global symbol is preferred to a local one.
    pub fn address_of(&self, name: &str) -> Option<u64> {
        let mut first = None;
        for symbol in self.named(name) {
            if symbol.kind.is_ascii_uppercase() {
                return Some(symbol.address);
            }
            first.get_or_insert(symbol.address);
        }
        first
    }

    /// The symbol whose range holds `address`.
    pub fn at(&self, address: u64) -> Option<Located<'_>> {
        let after = self.by_address.partition_point(|&i| self.entries[i as usize].address <= address);
        let start = self.entries[*self.by_address.get(after.checked_sub(1)?)? as usize].address;
        let first = self.by_address.partition_point(|&i| self.entries[i as usize].address < start);
        let end = self.by_address.get(after).map_or(start, |&i| self.entries[i as usize].address);
        Some(Located { name: self.name(self.by_address[first]), offset: address - start, size: end - start })
    }

    /// Compares the table with the text of a guest's `/proc/kallsyms`. Returns what is in one and not in the
    /// other, as lines for people. Boot the guest with `nokaslr`.
    pub fn differences(&self, proc_kallsyms: &str) -> Vec<String> {
        let other = Symbols::from_proc(proc_kallsyms);
        let set = |symbols: &Symbols| -> std::collections::BTreeSet<(String, u64)> {
            symbols.iter().map(|s| (s.name.to_owned(), s.address)).collect()
        };
        let (mine, theirs) = (set(self), set(&other));
        let only = |a: &std::collections::BTreeSet<(String, u64)>, b, side: &str| -> Vec<String> {
            a.difference(b).map(|(name, address)| format!("only in {side}: {address:016x} {name}")).collect()
        };
        let mut lines = only(&mine, &theirs, "the image");
        lines.extend(only(&theirs, &mine, "the guest"));
        lines
    }
}

/// The 256 strings that bytes of names stand for.
struct Tokens {
    table_at: usize,
    index_at: usize,
    starts: Vec<u16>,
}

impl Tokens {
    fn find(data: &[u8]) -> Option<Tokens> {
        (0..data.len().saturating_sub(511)).step_by(8).find_map(|at| Tokens::at(data, at))
    }

    /// The tokens, if their index begins at `index_at`. An index begins with zero and grows by at least two.
    /// Each value is where a string begins in a table that ends just before.
    fn at(data: &[u8], index_at: usize) -> Option<Tokens> {
        if u16_at(data, index_at)? != 0 || u16_at(data, index_at + 2)? < 2 {
            return None;
        }
        let mut starts = Vec::with_capacity(256);
        for i in 0..256 {
            let start = u16_at(data, index_at + 2 * i)?;
            if i > 0 && u32::from(start) < u32::from(*starts.last()?) + 2 {
                return None;
            }
            starts.push(start);
        }
        // The last token's length and the padding are unknown, so try each aligned start.
        let last = usize::from(*starts.last()?);
        let nearest = index_at.checked_sub(last + 2)? & !3;
        let lowest = nearest.saturating_sub(256);
        let table_at = (lowest..=nearest).rev().step_by(4).find(|&table| {
            starts[1..]
                .iter()
                .all(|&s| data[table + usize::from(s) - 1] == 0 && data[table + usize::from(s)] != 0)
                && data[table..table + last].iter().filter(|&&b| b == 0).count() == 255
        })?;
        Some(Tokens { table_at, index_at, starts })
    }

    fn token<'a>(&self, data: &'a [u8], byte: u8) -> Option<&'a [u8]> {
        c_str(data, self.table_at + usize::from(self.starts[usize::from(byte)]))
    }
}

/// Where the compressed names are.
struct Names {
    count: usize,
    count_at: usize,
    at: usize,
}

impl Names {
    /// Finds the names by the markers behind them. The markers end before the tokens, directly or (some
    /// kernels up to 6.3) with three bytes for each symbol between them. The names end where the markers
    /// begin.
    fn find(data: &[u8], tokens_at: usize) -> Option<Names> {
        let lowest = tokens_at.saturating_sub(3 * MAX_SYMBOLS + 16);
        (lowest..tokens_at.checked_sub(3)?).rev().filter(|at| at % 4 == tokens_at % 4).find_map(|last| {
            let (start, markers) = Names::markers_up_to(data, last)?;
            Names::before(data, start, &markers)
        })
    }

    /// The markers whose last is at `last`: they begin at zero, and each is 256 names further.
    fn markers_up_to(data: &[u8], last: usize) -> Option<(usize, Vec<usize>)> {
        let mut at = last;
        let mut markers = vec![u32_at(data, at)? as usize];
        while markers.last() != Some(&0) {
            at = at.checked_sub(4)?;
            let value = u32_at(data, at)? as usize;
            let step = markers.last()?.checked_sub(value)?;
            if !(256 * 2..=256 * MAX_NAME).contains(&step) || markers.len() > MAX_SYMBOLS / 256 {
                return None;
            }
            markers.push(value);
        }
        markers.reverse();
        (markers.len() > 1).then_some((at, markers))
    }

    fn before(data: &[u8], markers_at: usize, markers: &[usize]) -> Option<Names> {
        let last = *markers.last()?;
        let range = (markers.len() - 1) * 256 + 1..=markers.len() * 256;
        let nearest = markers_at.checked_sub(last)? & !3;
        let lowest = nearest.saturating_sub(256 * MAX_NAME);
        for at in (lowest..=nearest).rev().step_by(4) {
            for width in [4, 8] {
                let Some(count_at) = at.checked_sub(width) else { continue };
                let count = if width == 4 { u32_at(data, count_at)?.into() } else { u64_at(data, count_at)? };
                let Ok(count) = usize::try_from(count) else { continue };
                if range.contains(&count) && Names::check(data, at, markers_at, count, markers).is_some() {
                    return Some(Names { count, count_at, at });
                }
            }
        }
        None
    }

    fn check(data: &[u8], start: usize, end: usize, count: usize, markers: &[usize]) -> Option<()> {
        let mut at = start;
        for i in 0..count {
            if i % 256 == 0 && at - start != *markers.get(i / 256)? {
                return None;
            }
            let (len, head) = name_length(data, at)?;
            at += head + len;
            if at > end {
                return None;
            }
        }
        (end - at < 16).then_some(())
    }

    fn expand(&self, data: &[u8], tokens: &Tokens, symbols: &mut Symbols) -> Option<()> {
        let mut at = self.at;
        let mut name = Vec::new();
        for _ in 0..self.count {
            let (len, head) = name_length(data, at)?;
            name.clear();
            for &byte in slice(data, (at + head) as u64, len as u64)? {
                name.extend_from_slice(tokens.token(data, byte)?);
                if name.len() > MAX_NAME {
                    return None;
                }
            }
            at += head + len;
            let (&kind, rest) = name.split_first()?;
            symbols.push(kind, rest, 0);
        }
        Some(())
    }
}

/// Length of the compressed name at `at`, and of the length itself: one byte, or two with seven bits in the
/// first.
fn name_length(data: &[u8], at: usize) -> Option<(usize, usize)> {
    let first = usize::from(*data.get(at)?);
    if first == 0 {
        None
    } else if first & 0x80 == 0 {
        Some((first, 1))
    } else {
        Some(((first & 0x7f) | usize::from(*data.get(at + 1)?) << 7, 2))
    }
}

/// How 32-bit words stand for addresses.
#[derive(Clone, Copy, Debug)]
enum Encoding {
    /// The address is this base plus the word.
    Relative(u64),
    /// A word of zero or more is the address itself (per-CPU symbols). A negative one means base - 1 - word.
    PerCpuAbsolute(u64),
    /// The word is the distance from its own place; the value is the address of the first word.
    PlaceRelative(u64),
    /// Whole addresses, 64 bits each.
    Absolute,
}

impl Encoding {
    fn address(self, data: &[u8], at: usize, index: usize) -> Option<u64> {
        if let Encoding::Absolute = self {
            return u64_at(data, at + 8 * index);
        }
        let word = i32_at(data, at + 4 * index)?;
        Some(match self {
            Encoding::Relative(base) => base.wrapping_add(u64::from(word as u32)),
            Encoding::PerCpuAbsolute(_) if word >= 0 => word as u64,
            Encoding::PerCpuAbsolute(base) => base.wrapping_sub(1).wrapping_sub(i64::from(word) as u64),
            Encoding::PlaceRelative(first) => {
                first.wrapping_add(4 * index as u64).wrapping_add(i64::from(word) as u64)
            }
            Encoding::Absolute => return None,
        })
    }
}

fn find_addresses(
    data: &[u8],
    data_addr: u64,
    text: (u64, u64),
    names: &Names,
    tokens: &Tokens,
    symbols: &Symbols,
) -> Option<Vec<u64>> {
    let words = names.count * 4;
    let mut candidates = Vec::new();
    // After the tokens stand the offsets, then the base.
    for at in (tokens.index_at + 512..tokens.index_at + 512 + 16).step_by(4) {
        candidates.push((at, Encoding::PlaceRelative(data_addr.wrapping_add(at as u64))));
        candidates.push((at, Encoding::Absolute));
        for base_at in [at + words, at + words + 4] {
            if let Some(base) = u64_at(data, base_at) {
                candidates.push((at, Encoding::PerCpuAbsolute(base)));
                candidates.push((at, Encoding::Relative(base)));
            }
        }
    }
    // Before the number of symbols stand the offsets, then the base.
    for base_at in [names.count_at.checked_sub(8)?, names.count_at.checked_sub(12)?] {
        let base = u64_at(data, base_at)?;
        for at in [base_at.checked_sub(words), base_at.checked_sub(words + 4)].into_iter().flatten() {
            candidates.push((at, Encoding::PerCpuAbsolute(base)));
            candidates.push((at, Encoding::Relative(base)));
        }
    }
    for padding in [0, 4] {
        if let Some(at) = names.count_at.checked_sub(2 * words + padding) {
            candidates.push((at, Encoding::Absolute));
        }
    }
    let probes: Vec<usize> = (0..names.count)
        .filter(|&i| {
            matches!(symbols.name(i as u32), "_text" | "_stext" | "_etext" | "_sinittext" | "_einittext")
        })
        .collect();
    candidates.into_iter().find_map(|(at, encoding)| {
        let decoded = |i| encoding.address(data, at, i);
        let plausible = probes.len() >= 3
            && probes.iter().all(|&i| {
                let address = decoded(i);
                match symbols.name(i as u32) {
                    "_text" => address == Some(text.0),
                    "_stext" | "_etext" => address.is_some_and(|a| a >= text.0 && a <= text.1),
                    _ => address.is_some_and(|a| a > text.1),
                }
            });
        plausible.then(|| (0..names.count).map(decoded).collect::<Option<Vec<u64>>>()).flatten()
    })
}

#[cfg(test)]
pub(crate) mod tests;
