use super::*;
use std::collections::BTreeMap;

const BASE: u64 = 0xffff_8880_0000_0000;

fn shadow<const BITS: u32>() -> Shadow<BITS> {
    Shadow::new(Limits::bytes(64 << 20)).unwrap()
}

/// Pseudo-random numbers, the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// Compares marks and lookups at random addresses with a map of bytes. The addresses lie around a border
/// of units and a border of pages.
fn agrees_with_a_map<const BITS: u32>() {
    let shadow = shadow::<BITS>();
    let mut model: BTreeMap<u64, u8> = BTreeMap::new();
    let mut random = Random(0x1234_5678_9abc_def1);
    let start = BASE + UNIT - 3000;
    for _ in 0..20_000 {
        let addr = start + random.next(6000);
        match random.next(3) {
            0 => {
                let (len, value) = (random.next(200), random.next(u64::from(Shadow::<BITS>::MAX) + 1) as u8);
                assert!(shadow.fill(addr, len, value));
                for at in addr..addr + len {
                    model.insert(at, value);
                }
            }
            1 => {
                let len = random.next(80);
                let wanted = (addr..addr + len).find(|at| model.get(at).is_some_and(|&value| value != 0));
                assert_eq!(shadow.first(addr, len), wanted);
                assert_eq!(shadow.any(addr, len), wanted.is_some());
            }
            _ => assert_eq!(shadow.get(addr), model.get(&addr).copied().unwrap_or(0)),
        }
    }
}

#[test]
fn one_bit_agrees_with_a_map_of_bytes() {
    agrees_with_a_map::<1>();
}

#[test]
fn two_bits_agree_with_a_map_of_bytes() {
    agrees_with_a_map::<2>();
}

#[test]
fn eight_bits_agree_with_a_map_of_bytes() {
    agrees_with_a_map::<8>();
}

#[test]
fn nothing_is_marked_at_first_and_costs_nothing() {
    let shadow = shadow::<1>();
    for addr in [0, 0x1000, BASE, 0xffff_ffff_ffff_fff8, 0xff11_0000_0000_0000] {
        assert!(!shadow.any(addr, 8));
        shadow.clear(addr, 1 << 40);
    }
    assert_eq!(shadow.resident(), 0);
}

#[test]
fn ends_of_the_address_space_are_ordinary() {
    let shadow = shadow::<1>();
    assert!(shadow.fill(u64::MAX - 3, 100, 1));
    assert!(shadow.any(u64::MAX, 1) && shadow.any(u64::MAX - 7, 8) && !shadow.any(u64::MAX - 7, 4));
    assert_eq!(shadow.first(u64::MAX - 7, u64::MAX), Some(u64::MAX - 3));
    assert!(!shadow.any(0, 8) && !shadow.any(0, 0) && !shadow.any(u64::MAX, 0));
}

#[test]
fn addresses_that_no_processor_has_are_not_marked() {
    let shadow = shadow::<1>();
    assert!(!Shadow::<1>::covers(0x1234_0000_0000_0000));
    assert!(!shadow.fill(0x1234_0000_0000_0000, 8, 1));
    assert_eq!(shadow.resident(), 0);
}

#[test]
fn cleared_stretches_go_back_to_the_host() {
    let shadow = shadow::<1>();
    assert!(shadow.fill(BASE, 8 << 20, 1));
    let full = shadow.resident();
    assert!(full >= 1 << 20);
    shadow.clear(BASE + 100, (8 << 20) - 200);
    assert!(shadow.resident() < full / 10);
    assert!(shadow.any(BASE + 99, 1) && !shadow.any(BASE + 100, 8));
    assert!(!shadow.any(BASE + (4 << 20), 64));
    assert!(shadow.any(BASE + (8 << 20) - 100, 1));
}

#[test]
fn all_can_be_cleared_at_once() {
    let shadow = shadow::<8>();
    assert!(shadow.fill(BASE, 1 << 20, 3) && shadow.fill(BASE + 3 * UNIT, 1, 255));
    shadow.clear_all();
    assert_eq!(shadow.resident(), 4 * PAGE, "two units");
    assert!(!shadow.any(BASE, 64) && !shadow.any(BASE + 3 * UNIT, 1));
    assert!(shadow.fill(BASE, 1, 9));
    assert_eq!(shadow.get(BASE), 9);
}

#[test]
fn beyond_the_limit_nothing_is_marked() {
    let shadow = Shadow::<1>::new(Limits { bytes: 64 << 10, units: 2 }).unwrap();
    assert!(!shadow.fill(BASE, 1 << 30, 1));
    assert!(shadow.resident() <= 80 << 10);
    assert!(shadow.any(BASE, 1) && !shadow.any(BASE + (1 << 29), 64));
    shadow.clear(BASE, 1 << 30);
    assert!(shadow.fill(BASE + UNIT, 8, 1));
    assert!(!shadow.fill(BASE + 2 * UNIT, 8, 1), "a third unit");
    assert!(!shadow.any(BASE + 2 * UNIT, 8));
}

#[test]
fn threads_that_mark_neighbors_do_not_disturb_each_other() {
    let shadow = shadow::<2>();
    // Each thread marks every fourth byte, so all threads share each word.
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let shadow = &shadow;
            scope.spawn(move || {
                for round in 0..50 {
                    for i in 0..1000 {
                        let addr = BASE + 4 * i + thread;
                        let value = ((i + round + thread) % 4) as u8;
                        assert!(shadow.fill(addr, 1, value));
                        assert_eq!(shadow.get(addr), value);
                    }
                }
            });
        }
    });
    for i in 0..1000 {
        for thread in 0..4u64 {
            assert_eq!(shadow.get(BASE + 4 * i + thread), ((i + 49 + thread) % 4) as u8);
        }
    }
}

#[test]
fn threads_that_make_the_same_unit_share_it() {
    for _ in 0..50 {
        let shadow = shadow::<1>();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let shadow = &shadow;
                scope.spawn(move || assert!(shadow.fill(BASE + thread, 1, 1)));
            }
        });
        assert_eq!(shadow.first(BASE, 8), Some(BASE));
        assert!((0..4).all(|thread| shadow.any(BASE + thread, 1)));
        assert_eq!(shadow.resident(), 3 * PAGE);
    }
}
