//! Reads lists that hooked functions get as arguments. Their length is bounded, and every read is
//! checked.

use crate::state::{Vcpu, word};
use guardrail_trace::config::{ListCount, ListWalk};
use guardrail_trace::event::{Head, Kind, MAX_ARGS, MAX_LIST_WORDS};

/// Most entries of one list that are read.
const MAX_ENTRIES: u64 = 256;
/// Most pieces of a chained list, so that a ring of empty pieces ends.
const MAX_PIECES: u32 = 64;
/// Most bytes of one entry that are read.
pub const MAX_ENTRY: u64 = 256;

/// Reads the guest's virtual memory.
pub trait GuestMemory {
    /// Reads `len` bytes at guest virtual address `addr`. `None` where they cannot be read.
    fn load(&mut self, addr: u64, len: usize) -> Option<&[u8]>;

    /// Reads up to eight bytes at `addr` as a little-endian number, zero-extended.
    fn load_word(&mut self, addr: u64, len: usize) -> Option<u64> {
        self.load(addr, len.min(8)).map(word)
    }
}

impl GuestMemory for Vcpu {
    fn load(&mut self, addr: u64, len: usize) -> Option<&[u8]> {
        self.read(addr, len)
    }
}

/// Makes the record of one list. The list ends where memory cannot be read.
pub fn record(
    memory: &mut impl GuestMemory,
    walk: &ListWalk,
    index: u8,
    hook: u32,
    rsp: u64,
    args: &[u64; MAX_ARGS],
) -> Vec<u64> {
    let mut words = vec![Head::encode(Kind::List, index, u64::from(hook)), rsp, 0];
    entries(memory, walk, args, &mut words);
    words[2] = words.len() as u64 - 3;
    words
}

fn entries(
    memory: &mut impl GuestMemory,
    walk: &ListWalk,
    args: &[u64; MAX_ARGS],
    words: &mut Vec<u64>,
) -> Option<()> {
    let arg = |i: u8| args[usize::from(i) % MAX_ARGS];
    let base = arg(walk.arg);
    let count = match walk.count {
        ListCount::Arg(i) => arg(i) & u64::from(u32::MAX),
        ListCount::Member(offset) => memory.load_word(base.wrapping_add(offset), 4)?,
    };
    let mut at = match walk.through {
        Some(offset) => memory.load_word(base.wrapping_add(offset), 8)?,
        None => base,
    };
    let span = walk.fields.iter().map(|f| f.0.saturating_add(u64::from(f.1)));
    let span =
        span.chain(walk.chain.map(|offset| offset.saturating_add(8))).max().unwrap_or(0).min(MAX_ENTRY);
    let fit = MAX_LIST_WORDS / (walk.fields.len() as u64).max(1);
    let (mut left, mut pieces) = (count.min(MAX_ENTRIES).min(fit), 0);
    while left > 0 {
        let entry = memory.load(at, span as usize)?;
        let field = |offset: u64, size: u8| {
            let from = (offset as usize).min(entry.len());
            word(&entry[from..(from + usize::from(size).min(8)).min(entry.len())])
        };
        let link = walk.chain.map_or(0, |offset| field(offset, 8));
        if link & 1 != 0 {
            pieces += 1;
            if pieces > MAX_PIECES {
                break;
            }
            at = link & !3;
            continue;
        }
        words.extend(walk.fields.iter().map(|f| field(f.0, f.1)));
        left -= 1;
        if link & 2 != 0 {
            break;
        }
        at = at.wrapping_add(walk.stride);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guest memory for tests, from address 0x1000 on.
    struct Guest(Vec<u8>);

    impl GuestMemory for Guest {
        fn load(&mut self, addr: u64, len: usize) -> Option<&[u8]> {
            let from = usize::try_from(addr.checked_sub(0x1000)?).ok()?;
            self.0.get(from..from.checked_add(len)?)
        }
    }

    impl Guest {
        fn new() -> Guest {
            Guest(vec![0; 0x400])
        }
        fn put(&mut self, addr: u64, value: u64) {
            let at = (addr - 0x1000) as usize;
            self.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
    }

    /// A list as in `struct scatterlist`: link, offset and length, address.
    fn scatter(count: ListCount) -> ListWalk {
        ListWalk {
            arg: 1,
            through: None,
            count,
            stride: 0x20,
            fields: vec![(8, 4), (12, 4), (16, 8)],
            chain: Some(0),
            at_entry: true,
            at_return: false,
        }
    }

    fn entry(guest: &mut Guest, at: u64, link: u64, value: u64) {
        guest.put(at, link);
        guest.put(at + 8, value << 32 | 4);
        guest.put(at + 16, value << 12);
    }

    fn walk(guest: &mut Guest, walk: &ListWalk, args: [u64; 6]) -> Vec<u64> {
        let record = record(guest, walk, 3, 9, 0x7000, &args);
        assert_eq!(record[..2], [Head::encode(Kind::List, 3, 9), 0x7000]);
        let head = Head::decode(record[0]).unwrap();
        assert_eq!(head.operands(&record[1..]), Some(record.len() - 1));
        record[3..].to_vec()
    }

    #[test]
    fn a_list_ends_with_its_count() {
        let mut guest = Guest::new();
        entry(&mut guest, 0x1100, 0, 1);
        entry(&mut guest, 0x1120, 0, 2);
        entry(&mut guest, 0x1140, 0, 3);
        let words = walk(&mut guest, &scatter(ListCount::Arg(2)), [0, 0x1100, 2, 0, 0, 0]);
        assert_eq!(words, [4, 1, 0x1000, 4, 2, 0x2000]);
    }

    #[test]
    fn a_list_goes_on_in_the_next_piece_and_ends_with_its_mark() {
        let mut guest = Guest::new();
        entry(&mut guest, 0x1100, 0, 1);
        guest.put(0x1120, 0x1200 | 1);
        entry(&mut guest, 0x1200, 2, 2);
        entry(&mut guest, 0x1220, 0, 3);
        let words = walk(&mut guest, &scatter(ListCount::Arg(2)), [0, 0x1100, 7, 0, 0, 0]);
        assert_eq!(words, [4, 1, 0x1000, 4, 2, 0x2000]);
    }

    #[test]
    fn a_list_is_found_through_a_structure() {
        let mut guest = Guest::new();
        guest.put(0x1000, 0x1100);
        guest.put(0x1008, 1);
        entry(&mut guest, 0x1100, 0, 7);
        let list = ListWalk { through: Some(0), ..scatter(ListCount::Member(8)) };
        assert_eq!(walk(&mut guest, &list, [0, 0x1000, 0, 0, 0, 0]), [4, 7, 0x7000]);
    }

    #[test]
    fn rings_of_pieces_absurd_counts_and_bad_pointers_end() {
        let mut guest = Guest::new();
        guest.put(0x1100, 0x1100 | 1);
        let list = scatter(ListCount::Arg(2));
        assert_eq!(walk(&mut guest, &list, [0, 0x1100, 5, 0, 0, 0]), [0u64; 0]);
        assert_eq!(walk(&mut guest, &list, [0, 0xdead_0000, 5, 0, 0, 0]), [0u64; 0]);
        assert_eq!(walk(&mut guest, &list, [0, u64::MAX - 4, 5, 0, 0, 0]), [0u64; 0]);
        // The end of memory ends the list; the entries before it are kept.
        let words = walk(&mut guest, &list, [0, 0x1120, u64::MAX, 0, 0, 0]);
        assert_eq!(words.len(), 3 * (0x400 - 0x120) / 0x20);
        let all = ListWalk { stride: 0, ..list };
        assert_eq!(walk(&mut guest, &all, [0, 0x1120, u64::MAX, 0, 0, 0]).len(), 3 * 256);
    }
}
