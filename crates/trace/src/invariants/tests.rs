use super::*;
use crate::event::{EnterFlags, RegionFlags};

const CODE: u64 = 0xffff_ffff_c000_0000;
const MODULE: u64 = 0xffff_ffff_c000_8000;

fn load() -> Vec<u64> {
    let mut words = vec![Head::encode(Kind::ModuleLoad, 2, MODULE), 0];
    words.extend([0; 8]);
    words.extend([
        CODE,
        0x1000,
        RegionFlags::TEXT,
        CODE + 0x4000,
        0x100,
        RegionFlags::TEXT | RegionFlags::INIT,
    ]);
    words
}

fn load_other() -> Vec<u64> {
    let mut words = load();
    words[0] = Head::encode(Kind::OtherModule, 2, MODULE);
    words
}

fn define(number: u64, address: u64, bytes: u64) -> Vec<u64> {
    let mut words = vec![Head::encode(Kind::BlockDef, 0, number), address, bytes];
    words.extend(vec![0x90; bytes.div_ceil(8) as usize]);
    words
}

fn enter() -> Vec<u64> {
    vec![Head::encode(Kind::Enter, EnterFlags::INTERRUPTS_ON, 0), 1, 2, 3, 4]
}

fn run(number: u64) -> Vec<u64> {
    vec![Head::encode(Kind::Block, 0, number)]
}

fn access(insn: u16) -> Vec<u64> {
    vec![Access { addr: 16, size: 4, store: true, io: true, insn }.encode()]
}

fn cut(count: u64) -> Vec<u64> {
    vec![Head::encode(Kind::Cut, 0, count)]
}

/// Ring, continuation flag, and records of one segment.
type Parts = (u32, bool, Vec<Vec<u64>>);

fn check(segments: &[Parts]) -> Checker {
    let mut checker = Checker::new().with_vcpus(1);
    for (ticket, (ring, continuation, parts)) in segments.iter().enumerate() {
        let words = parts.concat();
        let (ring, continuation) = (*ring, *continuation);
        checker.segment(&Segment { ring, ticket: ticket as u64, continuation, words: &words });
    }
    checker
}

fn texts(checker: &Checker) -> Vec<String> {
    checker.violations().iter().map(|v| v.what.clone()).collect()
}

#[test]
fn a_trace_in_order_has_no_violation() {
    let hook = vec![Head::encode(Kind::HookCall, 1, 3), 1, 0x1000, 2, 64];
    let ret = vec![Head::encode(Kind::HookRet, 0, 3), 0x1000, 9];
    let checker = check(&[
        (1, false, vec![load()]),
        (0, false, vec![define(1, CODE, 9), enter(), run(1), access(0), access(8)]),
        (0, true, vec![access(3)]),
        (0, false, vec![hook, ret.clone(), ret]),
        (1, false, vec![vec![Head::encode(Kind::ModuleFree, 0, MODULE), CODE + 0x4000, CODE + 0x4100]]),
        (0, false, vec![run(1), cut(0)]),
        (1, false, vec![vec![Head::encode(Kind::ModuleUnload, 0, MODULE)]]),
    ]);
    assert_eq!(texts(&checker), Vec::<String>::new());
    let stats = checker.stats();
    assert_eq!((stats.blocks, stats.accesses, stats.stores, stats.device_accesses), (2, 3, 3, 3));
    assert_eq!((stats.segments, stats.unmatched_returns, stats.block_definitions), (7, 1, 1));
    assert_eq!(stats.kinds["HookRet"], 2);
}

#[test]
fn each_broken_rule_is_told() {
    let cases: [(Vec<Parts>, &str); 11] = [
        (vec![(1, false, vec![load()]), (0, false, vec![enter(), run(1)])], "never defined"),
        (
            vec![(0, false, vec![define(1, CODE, 4), enter(), run(1)])],
            "outside the code of every loaded module",
        ),
        (
            vec![(1, false, vec![load()]), (0, false, vec![define(1, CODE, 4), enter(), run(1), access(4)])],
            "by instruction 4 of a block of 4 bytes",
        ),
        (
            vec![(1, false, vec![load()]), (0, false, vec![define(1, CODE, 4), enter(), run(1), cut(5)])],
            "a cut by instruction 4 of a block of 4 bytes",
        ),
        (
            vec![
                (1, false, vec![load()]),
                (0, false, vec![define(1, CODE, 4), enter(), run(1)]),
                (0, false, vec![access(0)]),
            ],
            "outside any block",
        ),
        (
            vec![(1, false, vec![load()]), (0, false, vec![define(1, CODE, 4), run(1)])],
            "before its vCPU entered",
        ),
        (vec![(0, false, vec![vec![0x7f << 56]])], "unknown record kind"),
        (vec![(0, false, vec![vec![Head::encode(Kind::HookRet, 0, 1)]])], "cut short"),
        (vec![(2, false, vec![])], "no such ring"),
        (vec![(1, false, vec![load(), load()])], "loaded already"),
        (
            vec![(0, false, vec![vec![Head::encode(Kind::End, 0, 0)]]), (0, false, vec![])],
            "after the end of its ring",
        ),
    ];
    for (segments, expected) in cases {
        let checker = check(&segments);
        let texts = texts(&checker);
        assert!(texts.len() == 1 && texts[0].contains(expected), "{expected}: {texts:?}");
    }
}

#[test]
fn init_code_may_not_run_once_it_was_given_back() {
    let checker = check(&[
        (1, false, vec![load()]),
        (0, false, vec![define(1, CODE + 0x4000, 4), enter(), run(1)]),
        (1, false, vec![vec![Head::encode(Kind::ModuleFree, 0, MODULE), CODE + 0x4000, CODE + 0x4100]]),
        (0, false, vec![run(1)]),
    ]);
    assert_eq!(checker.stats().violations, 1);
    assert_eq!(checker.violations()[0].ticket, 3);
}

#[test]
fn a_gap_in_the_tickets_is_told_and_violations_are_bounded() {
    let mut checker = Checker::new();
    for ticket in (0..1000).step_by(2) {
        checker.segment(&Segment { ring: 0, ticket, continuation: false, words: &[] });
    }
    assert_eq!(checker.stats().violations, 499);
    assert_eq!(checker.violations().len(), KEPT);
    assert_eq!(checker.violations()[0].to_string(), "segment 2 of ring 0: ticket 1 was expected");
}

#[test]
fn modules_that_are_not_watched_have_no_code_here() {
    let unload = || vec![Head::encode(Kind::OtherUnload, 0, MODULE)];
    let checker = check(&[(1, false, vec![load_other(), unload(), load_other(), unload()])]);
    assert_eq!(texts(&checker), [""; 0]);
    assert_eq!(checker.stats().kinds["OtherModule"], 2);
    for (segments, expected) in [
        (vec![(1, false, vec![load_other(), load_other()])], "loaded already"),
        (vec![(1, false, vec![unload()])], "was not loaded"),
        (
            vec![(1, false, vec![load_other()]), (0, false, vec![define(1, CODE, 4), enter(), run(1)])],
            "outside the code of every loaded module",
        ),
    ] {
        let texts = texts(&check(&segments));
        assert!(texts.len() == 1 && texts[0].contains(expected), "{expected}: {texts:?}");
    }
}

#[test]
fn stacks_are_dense_and_known_before_entries_name_them() {
    let stack = |number| vec![Head::encode(Kind::Stack, 1, number), 5];
    let entry = |number| vec![Head::encode(Kind::Enter, EnterFlags::STACK, 0), 1, 2, 3, 4, number];
    let right =
        check(&[(0, false, vec![stack(1), entry(1)]), (0, false, vec![stack(2), entry(1), entry(0)])]);
    assert_eq!(texts(&right), Vec::<String>::new());
    // Numbers count for each ring.
    let wrong = check(&[(0, false, vec![stack(1), entry(2)]), (1, false, vec![entry(1), stack(3)])]);
    assert_eq!(wrong.stats().violations, 3);
    let mut part = Checker::for_part();
    let words = [entry(9), stack(10)].concat();
    part.segment(&Segment { ring: 0, ticket: 7, continuation: false, words: &words });
    assert_eq!(texts(&part), Vec::<String>::new());
}
